"""Linear rules that share one limit, the largest of several linear functions of the input.

`sum_k (constant + slope . x) y_k <= max_j (prices_j . x)` for every rule: loads of links that stay
below a multiple of a bound which is the same for all of them. As `AffineRules` each rule would
carry all pieces of its own.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.records import Array, select_prefixed
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.normal_form import NormalFormDefaults, SlackOfOne


@dataclass(frozen=True, eq=False)
class SharedRules(NormalFormDefaults):
    """`values`: rules whose own limits are 0; `prices` (K, d): what limits all of them."""

    values: AffineRules
    prices: Array
    _tensors: dict[tuple[torch.dtype, torch.device], Tensor] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        prices = np.ascontiguousarray(self.prices, np.float64)
        size = self.values.input_size
        if prices.ndim != 2 or prices.shape[1] != size or not len(prices):
            raise InvalidInput(
                f"shared limits need prices (K, {size}), got {prices.shape}", code="shape"
            )
        if not np.isfinite(prices).all():
            raise InvalidInput("shared limits need prices that are finite", code="not-finite")
        if self.values.limit.any() or not self.values.plain:
            raise InvalidInput(
                "rules that share a limit have limits of 0 of their own", code="conflict"
            )
        object.__setattr__(self, "prices", prices)

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def digest(self) -> str:
        total = hashlib.sha256(self.values.digest.encode())
        total.update(f"prices {self.prices.shape}".encode())
        total.update(self.prices.tobytes())
        return total.hexdigest()

    @property
    def reads(self) -> NDArray[np.bool_]:
        """(L, r): which outputs each rule reads."""
        return self.values.reads

    def slack(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """(n, d), (..., n, r) -> (..., n, L), at least 0 where a rule is kept."""
        limit = (inputs.to(outputs.dtype) @ self._on(outputs)).amax(-1, keepdim=True)
        return self.values.slack(inputs, outputs) + limit

    def single(self) -> SlackOfOne | None:
        """`slack` for one input, by NumPy."""
        values, prices = self.values.single(), self.prices
        return None if values is None else lambda x, y: values(x, y) + prices.dot(x).max()

    def bound_sizes(self, ends: Array) -> Array:
        """(L,) what the limit that is shared does not exceed at inputs up to `ends` (d,)."""
        return np.full(len(self), float((np.abs(self.prices) @ ends).max()))

    def sizes(self, inputs: Array, outputs: Array) -> Array:
        """(n, d), (n, r) -> (n, L): the sum of the sizes of a rule's terms, by which it rounds."""
        limit = (np.abs(inputs) @ np.abs(self.prices).T).max(axis=1, keepdims=True)
        return np.asarray(self.values.sizes(inputs, outputs) + limit)

    def term_sizes(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """(n, d), (..., n, r) -> (..., n, L): as `sizes`, by tensors."""
        limit = (inputs.to(outputs.dtype).abs() @ self._on(outputs).abs()).amax(-1, keepdim=True)
        return self.values.term_sizes(inputs, outputs) + limit

    def _on(self, like: Tensor) -> Tensor:
        key = (like.dtype, like.device)
        if key not in self._tensors:
            self._tensors[key] = torch.as_tensor(
                self.prices.T.copy(), dtype=like.dtype, device=like.device
            )
        return self._tensors[key]

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The rules as named arrays, for `from_arrays`."""
        return {**self.values.arrays, "prices": self.prices}

    @classmethod
    def from_arrays(cls, stored: Mapping[str, NDArray[Any]], *, input_size: int) -> SharedRules:
        """What `arrays` gave; KeyError or InvalidInput if it is damaged."""
        return cls(AffineRules.from_arrays(stored, input_size=input_size), stored["prices"])

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """What `slack` multiplies by in float64, for `with_tensors`."""
        own = {f"values.{name}": one for name, one in self.values.tensors(device).items()}
        like = torch.empty(0, dtype=torch.float64, device=device)
        return own | {"prices": self._on(like)}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> SharedRules:
        """The same rules, whose `slack` multiplies by tensors such as `tensors` gave."""
        made = copy.copy(self)
        own = tensors["prices"]
        object.__setattr__(
            made, "values", self.values.with_tensors(select_prefixed(tensors, "values."))
        )
        object.__setattr__(made, "_tensors", {(own.dtype, own.device): own})
        return made
