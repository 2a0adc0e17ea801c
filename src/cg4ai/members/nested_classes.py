"""Members of many classes made of binary ones: what a part keeps of a probability, the whole keeps.

Libraries of trees bound how a probability moves with a feature for two classes only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.members.checks import check_indices
from cg4ai.members.slopes import OPPOSITE, Moves
from cg4ai.members.wrappers import Restored, WrappedMembers
from cg4ai.protocols import Members, Single
from cg4ai.records import IntArray, MemberState
from cg4ai.rules.shapes import Monotone, Shape

EACH = -1  # each class against all others


@dataclass(frozen=True)
class Nesting:
    """How parts, each with probabilities of all `size` classes, make those of one member.

    With a class `output` there are two: of the first its probability p is taken, of the second
    those q of the others, which share what is left: p and (1 - p) q. Without, classes are in
    order and there is a part for each but the first, of which P(class >= k) is taken in column k.
    Sorted they fall with k, as they must, and their differences are the probabilities. With EACH
    there is a part for each class against all others, and their probabilities are divided by their
    sum: one of them rises where its own part rises and all other parts fall.
    """

    size: int
    output: int | None = None

    def __post_init__(self) -> None:
        if self.size < 3 or not (self.output in (None, EACH) or 0 <= self.output < self.size):
            raise InvalidInput(
                f"nested classes are three or more and output one of them, got {self.size} "
                f"classes and output {self.output}",
                code="range",
            )

    @property
    def parts(self) -> int:
        return {None: self.size - 1, EACH: self.size}.get(self.output, 2)

    @property
    def another(self) -> int:
        """A class that stands for all but `output` where that is told apart from them."""
        return 1 if self.output == 0 else 0

    @property
    def bound(self) -> dict[int, int]:
        """{part: the column of its that is taken as it is}, which rules on the whole bind."""
        if self.output is None:
            return {k - 1: k for k in range(1, self.size)}
        if self.output == EACH:
            return {k: k for k in range(self.size)}
        return {0: self.output}

    @property
    def digest(self) -> str:
        return f"nesting {self.size} {self.output}"

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        return self

    def state(self) -> MemberState:
        return MemberState("nesting", {"output": self.output}, {})

    def compose(self, parts: Tensor) -> Tensor:
        """(count, parts, n, size) -> (count, n, size)."""
        if self.output is None:
            reached = torch.stack([parts[:, part, :, k] for part, k in self.bound.items()], -1)
            falling = reached.sort(-1, descending=True).values
            first = falling[..., :1]
            above = torch.cat([torch.ones_like(first), falling], -1)
            return above - torch.cat([falling, torch.zeros_like(first)], -1)
        if self.output == EACH:
            each = torch.stack([parts[:, k, :, k] for k in range(self.size)], -1)
            total = each.sum(-1, keepdim=True)
            return torch.where(total > 0, each / torch.where(total > 0, total, 1.0), 1 / self.size)
        own = parts[:, 0, :, self.output : self.output + 1]
        others = (1.0 - own) * parts[:, 1]
        return torch.cat([others[..., : self.output], own, others[..., self.output + 1 :]], -1)


class NestedMembers(WrappedMembers[Nesting]):
    """Members composed of several of `inner` each: the parts of the first, of the second, ..."""

    kind = "nested"
    part = "nesting"
    blind = True

    def __init__(self, inner: Members, output: int | None = None) -> None:
        nesting = Nesting(inner.output_size, output)
        if len(inner) % nesting.parts:
            raise InvalidInput(
                f"each member is made of {nesting.parts} parts, got {len(inner)} in all",
                code="shape",
            )
        super().__init__(inner, nesting)

    def __len__(self) -> int:
        return len(self.inner) // self.layer.parts

    def wrap(self, inner: Members) -> Self:
        return type(self)(inner, self.layer.output)

    def take(self, indices: IntArray) -> Self:
        chosen = check_indices(indices, len(self), torch.device("cpu")).numpy()
        parts = self.layer.parts
        return self.wrap(self.inner.take((chosen[:, None] * parts + np.arange(parts)).ravel()))

    def outputs(self, inputs: Tensor) -> Tensor:
        found = self.inner.outputs(inputs)
        return self.layer.compose(found.view(len(self), self.layer.parts, *found.shape[1:]))

    def single(self) -> Single | None:
        inner, layer, shape = self.inner.single(), self.layer, (len(self), self.layer.parts, 1, -1)
        if inner is None:
            return None
        return lambda x: (
            layer.compose(torch.from_numpy(inner(x)[0].reshape(shape)))[:, 0].numpy(),
            None,
        )

    def gives_shares(self) -> bool:
        return self.inner.gives_shares()

    def find_moves(self, shape: Shape) -> Sequence[Moves]:
        """What is asked of the whole is asked of the columns taken from parts as they are."""
        nesting = self.layer
        if not isinstance(shape, Monotone) or shape.logits:
            return ()
        if shape.ordered != (nesting.output is None) or (shape.output is None) != shape.ordered:
            return ()
        if nesting.output not in (None, EACH) and shape.output != nesting.output:
            return ()
        first = np.arange(len(self)) * nesting.parts
        found = [
            self.inner.take(first + part).find_moves(replace(shape, output=k, ordered=False))
            for part, k in nesting.bound.items()
        ]
        if nesting.output == EACH:  # the others do the opposite
            found = [
                own if k == shape.output else [one[..., OPPOSITE] for one in own]
                for k, own in enumerate(found)
            ]
        return [np.concatenate(parts) for parts in zip(*found, strict=True)]

    @classmethod
    def restore(cls, state: MemberState, restored: Restored, factories: Mapping[str, Any]) -> Self:
        """Members from a saved state; `restored` makes the parts."""
        inner, layer = cls._stored(state, restored)
        output = layer.config.get("output")
        if not (output is None or type(output) is int):
            raise InvalidInput(
                f"nested members name a class or none, got {output!r:.80}", code="range"
            )
        return cls(inner, output)
