"""What all layers of `cg4ai.nn` share: shapes, precision, devices, and what checkpoints say.

The numbers of rules are fixed. They stay in float64 whatever the module is cast to, and outputs
have the precision of what comes in, float32 or float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from cg4ai.data.arrays import is_traced
from cg4ai.errors import InvalidInput

OUTPUT_DTYPES = (torch.float32, torch.float64)
STATED = "rules"  # the buffer that says which rules a checkpoint was made under


class RuleLayer(nn.Module, ABC):
    """(..., r) and, where rules depend on it, the input (..., d) -> (..., output_size)."""

    rules: Tensor

    def __init__(
        self, *, input_size: int, output_size: int, needs_input: bool, digest: str
    ) -> None:
        """`needs_input`: whether `forward` needs x, as a rule or the anchor depends on it."""
        super().__init__()
        self.input_size, self.output_size = input_size, output_size
        self.needs_input = needs_input
        self._dtype = torch.get_default_dtype()
        self._stated = np.frombuffer(bytes.fromhex(digest), np.uint8).copy()
        self.register_buffer(STATED, torch.tensor(self._stated, device="cpu"))

    # ---- what each layer says -----------------------------------------------------------------

    @property
    @abstractmethod
    def widths(self) -> tuple[int, ...]:
        """How many numbers may come in."""

    @abstractmethod
    def guarantee(self, dtype: torch.dtype | None = None) -> str:
        """Which rules hold, where, how that is known, and up to what rounding of this dtype."""

    @abstractmethod
    def _keep(self, given: Tensor, inputs: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Numbers (n, width) and inputs (n, d) as they came -> outputs (n, r) in the dtype."""

    # ---- forward ------------------------------------------------------------------------------

    def forward(self, y: Tensor, x: Tensor | None = None) -> Tensor:
        """(..., width), (..., d) -> (..., output_size), in the precision of y, at least float32.

        The axes before the last are those of a batch, any number of them; those of x may be fewer,
        and are repeated then. x is needed where `needs_input`.
        """
        self._check(y, x)
        given = y.reshape(-1, y.shape[-1]) if y.ndim != 2 else y
        inputs = None
        if x is not None and self.input_size:
            alike = x.ndim == y.ndim == 2 and (is_traced() or len(x) == len(y))
            inputs = x if alike else x.expand(*y.shape[:-1], x.shape[-1])
            inputs = inputs.reshape(-1, x.shape[-1]) if inputs.ndim != 2 else inputs
        dtype = y.dtype if y.dtype in OUTPUT_DTYPES else torch.float32
        with _in_full(y.device):
            kept = self._keep(given, inputs, dtype)
        return kept if y.ndim == 2 else kept.reshape(*y.shape[:-1], self.output_size)

    def _check(self, y: Tensor, x: Tensor | None) -> None:
        name = type(self).__name__
        for given in (y, x):
            if given is not None and not isinstance(given, Tensor):
                raise InvalidInput(
                    f"{name} takes tensors of torch, got {type(given).__name__}; use "
                    "torch.as_tensor(...)",
                    code="type",
                )
        if not y.is_floating_point():
            raise InvalidInput(
                f"{name} takes numbers in floating point, got {y.dtype}; use y.float()", code="type"
            )
        if y.ndim < 1 or int(y.shape[-1]) not in self.widths:
            wanted = " or ".join(f"(..., {width})" for width in self.widths)
            raise InvalidInput(f"{name} takes y {wanted}, got {tuple(y.shape)}", code="shape")
        if x is None and self.needs_input:
            raise InvalidInput(
                f"{name} needs the input: its rules or its anchor depend on it. Call layer(y, x), "
                "or put it into a SequentialWithInput",
                code="missing-argument",
            )
        if x is None or not self.input_size:
            return
        if x.ndim < 1 or int(x.shape[-1]) != self.input_size:
            raise InvalidInput(
                f"{name} takes inputs x (..., {self.input_size}), got {tuple(x.shape)}",
                code="shape",
            )
        if not is_traced() and not _repeats_to(x.shape[:-1], y.shape[:-1]):
            raise InvalidInput(
                f"{name} takes an input x for every y, or fewer that are repeated, got x "
                f"{tuple(x.shape)} and y {tuple(y.shape)}",
                code="shape",
            )

    # ---- precision and devices ----------------------------------------------------------------

    @property
    def dtype(self) -> torch.dtype:
        """What the module was last cast to; `guarantee` speaks of it."""
        return self._dtype

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moved to another device; casts change nothing but what `guarantee` speaks of."""
        before = self.rules.device
        probe = fn(torch.empty(0, dtype=torch.float32, device=before))
        cast = _cast_by(fn, before, probe)
        if cast is not None:
            self._dtype = cast if cast in OUTPUT_DTYPES else torch.float32
        lowered = working_dtype(probe.device) != torch.float64

        def placed(tensor: Tensor) -> Tensor:
            if not tensor.is_floating_point():
                return fn(tensor)
            made = fn(tensor.float() if lowered else tensor)
            return made if lowered or made.dtype == tensor.dtype else tensor.to(made.device)

        super()._apply(placed, recurse)  # type: ignore[no-untyped-call]
        if self.rules.device.type != "meta":
            self._restore()
        self._prepare()
        return self

    def _restore(self) -> None:
        """Give fixed numbers their values again.

        A device may have fewer digits, and `to_empty` leaves whatever is in memory.
        """
        self._buffers[STATED] = torch.tensor(self._stated, device=self.rules.device)

    def _prepare(self) -> None:
        """Make what is computed once by NumPy now, not while torch records a graph."""
        if self.rules.device.type == "meta":
            return
        with torch.no_grad(), torch.inference_mode(False), on_cpu():
            for dtype in (torch.float32, working_dtype(self.rules.device)):
                like = torch.empty(0, dtype=dtype, device=self.rules.device)
                x = like.new_zeros(1, self.input_size) if self.input_size else None
                for width in self.widths:
                    for inputs in [x] if self.needs_input else [x, None]:
                        self._keep(like.new_full((1, width), torch.nan), inputs, dtype)

    # ---- checkpoints --------------------------------------------------------------------------

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        """As of any module, but a checkpoint made under other rules is refused."""
        stated, errors = state_dict.get(f"{prefix}{STATED}"), rest[-1]
        own = torch.tensor(self._stated, device="cpu")
        if stated is not None and not torch.equal(stated.to("cpu", own.dtype), own):
            errors.append(
                f"the checkpoint was made under other rules than this {type(self).__name__}"
                f"{f' ({prefix[:-1]})' if prefix else ''} keeps: build it with the same rules"
            )
            return
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def _cast_by(
    fn: Callable[[Tensor], Tensor], device: torch.device, probe: Tensor
) -> torch.dtype | None:
    """What a function for `_apply` casts floats to; None if it leaves their precision alone."""
    if probe.dtype != torch.float32 or working_dtype(probe.device) == torch.float32:
        return probe.dtype
    if working_dtype(device) == torch.float32:
        return None
    double = fn(torch.empty(0, dtype=torch.float64, device=device))
    return None if double.dtype == torch.float64 else double.dtype


def on_cpu() -> torch.device:
    """A context in which numbers of NumPy's become tensors of the CPU.

    Networks are often made under another default device, such as `meta`, which has no numbers.
    """
    return torch.device("cpu")


def working_dtype(device: torch.device) -> torch.dtype:
    """What is computed in: float64, but on Apple's GPUs, which have none."""
    return torch.float32 if device.type == "mps" else torch.float64


@contextmanager
def _in_full(device: torch.device) -> Iterator[None]:
    """Without autocast, which would round products to half precision; it leaves float64 alone."""
    if working_dtype(device) == torch.float64 or not torch.is_autocast_enabled(device.type):
        yield
        return
    with torch.autocast(device.type, enabled=False):
        yield


def _repeats_to(given: torch.Size, wanted: torch.Size) -> bool:
    """Whether axes are those wanted, or fewer, or of size 1."""
    last = wanted[len(wanted) - len(given) :]
    return len(given) <= len(wanted) and all(
        size in (1, other) for size, other in zip(given, last, strict=True)
    )
