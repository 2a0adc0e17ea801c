"""Outputs reconciled: moved into a set of balances, ranges and orders, in closed form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from cg4ai.nn.set_projection import LARGEST, Clamp
from cg4ai.records import MemberState
from cg4ai.rules.reconciliation import ARRAYS, Reconciliation

NUMBERS = tuple(name for name in ARRAYS if name != "free")


@dataclass(frozen=True, eq=False)
class ReconciliationTensors:
    """A reconciliation as tensors, with the names that its arrays have."""

    source: Reconciliation
    numbers: Mapping[str, Tensor]
    free: Tensor

    @classmethod
    def of(cls, source: Reconciliation, like: Tensor) -> ReconciliationTensors:
        numbers = {name: torch.as_tensor(getattr(source, name)).to(like) for name in NUMBERS}
        numbers["aim"] = torch.as_tensor(source.aim).to(like)
        return cls(source, numbers, torch.as_tensor(source.free, device=like.device))

    @property
    def digest(self) -> str:
        return self.source.digest

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.numbers)

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> ReconciliationTensors:
        return ReconciliationTensors(
            self.source, dict(tensors), self.free.to(tensors["offset"].device)
        )

    def state(self) -> MemberState:
        arrays = {name: getattr(self.source, name) for name in ARRAYS}
        chains = [list(one) for one in self.source.chains]
        return MemberState("reconciliation", {"chains": chains}, arrays)

    def reconcile(self, inputs: Tensor, outputs: Tensor, clamp: Clamp = torch.clamp) -> Tensor:
        """(..., n, d), (..., n, r) -> (..., n, r) in the set; not a number counts as 0."""
        own, most = self.numbers, LARGEST.get(outputs.dtype, 1e4)
        z = torch.nan_to_num(
            outputs.index_select(-1, self.free), nan=0.0, posinf=most, neginf=-most
        )
        for chain in self.source.chains:
            place = torch.tensor(chain, device=z.device)
            z = z.index_copy(-1, place, z.index_select(-1, place).sort(-1).values)
        z = clamp(z, own["low"], own["high"])
        fixed = own["offset"]
        if self.source.slope.any():
            fixed = fixed + inputs.to(z.dtype) @ own["slope"].mT
        y = z @ own["basis"].mT + fixed
        if not len(self.source.bound):
            return y
        matrix, bound, anchor = own["matrix"], own["bound"], own["anchor"]
        room, slack = matrix @ anchor - bound, y @ matrix.mT - bound
        short = slack < 0
        share = (room - own["aim"]) / torch.where(short, room - slack, 1.0)
        kept = torch.where(short, share, 1.0).amin(-1, keepdim=True)
        return anchor + kept * (y - anchor)
