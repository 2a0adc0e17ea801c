"""Single outputs clamped to limits that depend on the input, by steps that are monotone in both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cg4ai.nn.set_projection import LARGEST, Clamp
from cg4ai.records import MemberState
from cg4ai.rules.caps import FIELDS, Caps


@dataclass(frozen=True, eq=False)
class CapTensors:
    """Limits as tensors, with the names that they have there."""

    source: Caps
    numbers: Mapping[str, Tensor]
    upper: Tensor
    lower: Tensor

    @classmethod
    def of(cls, source: Caps, like: Tensor) -> CapTensors:
        numbers = {name: torch.as_tensor(getattr(source, name)).to(like) for name in FIELDS}
        upper, lower = (
            torch.as_tensor(source.side == side).nonzero()[:, 0].to(like.device) for side in (1, -1)
        )
        return cls(source, numbers, upper, lower)

    @property
    def digest(self) -> str:
        return self.source.digest

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.numbers)

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> CapTensors:
        like = tensors["offset"]
        return CapTensors(
            self.source, dict(tensors), self.upper.to(like.device), self.lower.to(like.device)
        )

    def state(self) -> MemberState:
        arrays = {name: getattr(self.source, name) for name in ("output", "side", *FIELDS)}
        config = {"outputs": self.source.output_size, "share": self.source.share}
        return MemberState("caps", config, arrays)

    def limits(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """(n, d) -> the lower and the upper limit of each output, (n, r) each; infinite if none.

        Terms are added one after another, so that rounded sums are monotone in each of them.
        """
        own, source = self.numbers, self.source
        count, size = len(inputs), source.output_size
        x = inputs.to(own["offset"].dtype)
        values = own["offset"].unsqueeze(0).expand(count, -1, -1)
        for j in np.flatnonzero(source.slope.any((0, 1))).tolist():
            at = torch.clamp(x[:, j : j + 1], own["least"][:, j], own["most"][:, j])
            values = values + at.unsqueeze(-1) * own["slope"][..., j]
        acts = torch.ones(count, len(source.output), dtype=torch.bool, device=x.device)
        ended = (source.low > -float("inf")) | (source.high < float("inf"))
        for j in np.flatnonzero(ended.any(0)).tolist():
            at = x[:, j : j + 1]
            acts = acts & (at >= own["low"][:, j]) & (at <= own["high"][:, j])
        place = torch.as_tensor(source.output, device=x.device).expand(count, -1)
        found = []
        for which, sign in ((self.lower, -1.0), (self.upper, 1.0)):
            limit = values[:, which].amax(-1) if sign > 0 else values[:, which].amin(-1)
            limit = torch.where(acts[:, which], limit, sign * float("inf"))
            none = x.new_full((count, size), sign * float("inf"))
            how = "amin" if sign > 0 else "amax"
            found.append(none.scatter_reduce(-1, place[:, which], limit, how))
        return found[0], found[1]

    def cap_outputs(self, inputs: Tensor, outputs: Tensor, clamp: Clamp = torch.clamp) -> Tensor:
        """(n, d), (..., n, r) -> (..., n, r) within the limits; not a number counts as 0."""
        lower, upper = (one.to(outputs.dtype) for one in self.limits(inputs))
        share = self.source.share
        most = LARGEST.get(outputs.dtype, 1e4)
        z = torch.nan_to_num(outputs, nan=0.0, posinf=most, neginf=-most)
        if share is None:
            return clamp(z, lower, upper)
        ends = (
            lower[:, share : share + 1].clamp(max=1.0),
            upper[:, share : share + 1].clamp(min=0.0),
        )
        own = z[..., share : share + 1]
        moved = clamp(own, *ends)
        rest = 1.0 - own
        spread = torch.where(
            rest > 0, z / torch.where(rest > 0, rest, 1.0), 1.0 / (z.shape[-1] - 1)
        )
        others = (1.0 - moved) * spread
        return torch.cat([others[..., :share], moved, others[..., share + 1 :]], -1)
