"""`NormalForm`: the rules of a requirement over a region as a shield reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self

import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.records import Array, IntArray

# an input (d,) and outputs (m, r) -> the slack of each rule (m, L)
SlackOfOne = Callable[[Array, Array], Array]
# inputs (n, d) and outputs (..., n, r) -> the slack of some rules (..., n, K)
SlackOfSome = Callable[[Tensor, Tensor], Tensor]


class NormalForm(Protocol):
    """Several rules on one output vector, each linear or concave in it."""

    @property
    def digest(self) -> str | None:
        """What tells rules apart; None where they are a function in Python."""
        ...

    def slack(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """(n, d), (..., n, r) -> (..., n, L), at least 0 where a rule is kept."""
        ...

    def bound_sizes(self, ends: Array) -> Array:
        """(L,) what no bound exceeds in size at inputs up to `ends` (d,) in size."""
        ...

    def sizes(self, inputs: Array, outputs: Array) -> Array:
        """(n, d), (n, r) -> (n, L): the sum of the sizes of a rule's terms, by which it rounds."""
        ...

    def term_sizes(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """(n, d), (..., n, r) -> (..., n, L): as `sizes`, at least, and by tensors.

        A slack changes by at most u times as much where outputs change by a share u of their size.
        """
        ...

    # ---- with defaults in `NormalFormDefaults` ------------------------------------------------

    @property
    def reads(self) -> NDArray[Any] | None:
        """(L, r): which outputs each rule reads; None where that is not known."""
        ...

    @property
    def output_size(self) -> int | None:
        """How many outputs there are; None where that is not known."""
        ...

    @property
    def free_of_inputs(self) -> bool:
        """Whether the rules are the same at every input."""
        ...

    @property
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """The rules as named arrays, as they are stored."""
        ...

    def shares(
        self, inputs: Tensor, outputs: Tensor, anchor: Tensor, *, aim: Tensor
    ) -> Tensor | None:
        """(..., n, L): the share of the anchor (n, r) that each rule needs, in closed form.

        `aim` (L,) is how far inside its bound. None: there is no such form but that of a line.
        """
        ...

    def single(self) -> SlackOfOne | None:
        """`slack` for one input by NumPy, of rules whose `shares` are those of a line; or None."""
        ...

    def compute_slack_of_some(self, which: IntArray, x: Array, y: Array) -> Array:
        """(K,), (d,), (m, r) -> (m, K): the slack of the rules `which` alone, by NumPy."""
        ...

    @property
    def is_separable(self) -> bool:
        """Whether `find_broken` and what picks rules are there: `shares` are those of a line."""
        ...

    def find_broken(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """(n, d), (..., n, r) -> (K,): the rules that some output breaks, but for rounding."""
        ...

    def pick(self, which: Tensor, like: Tensor) -> SlackOfSome:
        """`slack` of the rules `which` (K,) alone, of outputs like these."""
        ...

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """What `slack` is computed from, for `with_tensors`."""
        ...

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same rules computed from other tensors of these names."""
        ...


class NormalFormDefaults:
    """Defaults of `NormalForm`: rules that may read all outputs, without arrays or tensors."""

    @property
    def reads(self) -> NDArray[Any] | None:
        return None

    @property
    def output_size(self) -> int | None:
        return None

    @property
    def free_of_inputs(self) -> bool:
        return False

    @property
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        return {}

    def shares(
        self, inputs: Tensor, outputs: Tensor, anchor: Tensor, *, aim: Tensor
    ) -> Tensor | None:
        return None

    def single(self) -> SlackOfOne | None:
        return None

    @property
    def is_separable(self) -> bool:
        return False

    def find_broken(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        raise NotImplementedError

    def pick(self, which: Tensor, like: Tensor) -> SlackOfSome:
        raise NotImplementedError

    def compute_slack_of_some(self, which: IntArray, x: Array, y: Array) -> Array:
        raise NotImplementedError

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        return {}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        return self
