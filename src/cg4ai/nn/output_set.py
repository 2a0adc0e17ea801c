"""`OutputSet`: a layer whose outputs lie in ranges, orders and sums, at every input."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.nn.layer_rules import Given, check_rules, find_width
from cg4ai.nn.rule_layer import RuleLayer, working_dtype
from cg4ai.nn.set_projection import LARGEST, SetTensors, clamp_inward
from cg4ai.records import Array
from cg4ai.rules import output_sets
from cg4ai.rules.output_sets import OutputRule


class OutputSet(RuleLayer):
    """Moves outputs (..., r) into the set of `Range`, `Ordered` and `SumTo` rules, in closed form.

    Outputs are sorted along orders, clamped to ranges, and shifted to sums. In training mode a
    gradient that leads back inside passes where an output lies outside its range: else networks
    that begin outside would learn nothing. NaN counts as 0, infinite as very large.

    `output_size` is needed where no rule names all outputs by its ends.

    >>> model = nn.Sequential(nn.Linear(3, 4), OutputSet(SumTo(1.0), output_size=4))
    """

    def __init__(self, rules: Given, *, output_size: int | None = None) -> None:
        kept = check_rules(rules, "OutputSet")
        own = [one for one in kept if isinstance(one, OutputRule)]
        if len(own) < len(kept) or not kept:
            wrong = ", ".join(one.name for one in kept if not isinstance(one, OutputRule))
            raise InvalidInput(
                f"an OutputSet takes Range, Ordered and SumTo, got {wrong or 'none'}; other rules "
                "are for a Shield or a Completion",
                code="type",
            )
        source = output_sets.join_output_rules(own, find_width(kept, output_size))
        super().__init__(
            input_size=0,
            output_size=source.output_size,
            needs_input=False,
            digest=source.digest,
        )
        self.requirements, self.source = tuple(own), source
        self._tensors: dict[tuple[torch.dtype, torch.device], SetTensors] = {}
        self._ends: dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}
        self._prepare()

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.output_size,)

    def _keep(self, given: Tensor, inputs: Tensor | None, dtype: torch.dtype) -> Tensor:
        work, most = working_dtype(given.device), LARGEST[dtype]
        z = torch.nan_to_num(given.to(dtype), nan=0.0, posinf=most, neginf=-most).to(work)
        learning = self.training and torch.is_grad_enabled() and z.requires_grad
        spelled = torch.compiler.is_exporting() or torch.jit.is_tracing()  # type: ignore[no-untyped-call]
        moved = self._on(z).move_into_set(
            z, clamp_inward if learning and not spelled else torch.clamp
        )
        if dtype == torch.float64:
            return moved
        low, high = self._inward_ends(moved.device)
        return torch.clamp(moved.to(dtype), low, high)

    def _on(self, like: Tensor) -> SetTensors:
        key = (like.dtype, like.device)
        if key not in self._tensors:
            self._tensors[key] = SetTensors.of(self.source, like)
        return self._tensors[key]

    def _inward_ends(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The ends in float32, rounded inwards; where none fits between them, the nearest."""
        key = (torch.float32, device)
        if key not in self._ends:
            low, high = round_ends_inward(self.source.low, self.source.high)
            self._ends[key] = (torch.tensor(low, device=device), torch.tensor(high, device=device))
        return self._ends[key]

    def extra_repr(self) -> str:
        return f"{', '.join(one.name for one in self.requirements)}; {self.output_size} outputs"

    def guarantee(self, dtype: torch.dtype | None = None) -> str:
        """Which rules hold, and up to what rounding of this dtype: what it was last cast to."""
        asked = self.dtype if dtype is None else dtype
        double = asked == torch.float64
        lines = [
            f"OutputSet over {self.output_size} outputs, in {'float64' if double else 'float32'}:"
        ]
        lines += [f"- {one.name} holds at every input" for one in self.requirements]
        lines.append("Established by construction: outputs are moved into the set in closed form.")
        exact = "Ranges and orders hold exactly."
        low, high = round_ends_inward(self.source.low, self.source.high)
        if not double and ((low < self.source.low) | (high > self.source.high)).any():
            exact = "Orders hold exactly; some range holds no float32, and its nearest is taken."
        lines.append(f"Rounding: {exact}")
        if self.source.totals:
            size = f"{'1e-14' if double else '6.1e-08'} of the sum of the outputs' sizes"
            lines[-1] += f" Sums are met within {size}."
        return "\n".join(lines)


def round_ends_inward(low: Array, high: Array) -> tuple[Array, Array]:
    """Ends (r,) as float32 that lie between those given where there are any, else the nearest."""
    with np.errstate(over="ignore"):
        least, most = low.astype(np.float32), high.astype(np.float32)
    up = np.where(least < low, np.nextafter(least, np.float32(np.inf)), least)
    down = np.where(most > high, np.nextafter(most, np.float32(-np.inf)), most)
    crossed = up > down
    nearest = ((low + high) / 2).astype(np.float32) if crossed.any() else up
    return np.where(crossed, nearest, up), np.where(crossed, nearest, down)
