"""Members that vote: whatever scores a classifier gives, its vote is 1 for the largest, else 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from cg4ai.errors import InvalidInput
from cg4ai.members.wrapped import Restored, WrappedMembers
from cg4ai.protocols import Members
from cg4ai.records import MemberState


@dataclass(frozen=True)
class Vote:
    """One vote per input, for the first of the largest scores; nothing is to be stored."""

    digest: str = "vote"

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        return self

    def state(self) -> MemberState:
        return MemberState(self.digest, {}, {})


class VotedMembers(WrappedMembers[Vote]):
    """The members of `inner`, whose scores become votes; a mixture gives shares of votes."""

    kind = "voted"
    part = "vote"
    blind = True

    def __init__(self, inner: Members) -> None:
        if inner.output_size < 2:
            raise InvalidInput(
                f"votes are for classes, and these members have {inner.output_size} output; use "
                "members with one output per class"
            )
        super().__init__(inner, Vote())

    @property
    def differentiable(self) -> bool:
        return False

    def around(self, inner: Members) -> Self:
        return type(self)(inner)

    def outputs(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            largest = self.inner.outputs(inputs).argmax(-1)
        return functional.one_hot(largest, self.output_size).to(torch.float64)

    @classmethod
    def restore(cls, state: MemberState, restored: Restored, factories: Mapping[str, Any]) -> Self:
        inner, _ = cls._stored(state, restored)
        return cls(inner)
