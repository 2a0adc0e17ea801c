"""What a shield keeps: the rules of one requirement over its region, ready for inference.

A guard knows by how much outputs keep each rule, where the rules hold, and how far a violating
output must move towards an anchor. `ensemble/shield.py` blends by it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.records import Array
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.place import Requirement, rows_at_centre
from cg4ai.rules.regions import Ball, Box, Region

AIM = 1e-12  # how far inside a bound a restored output aims, relative to max(1, |bound|)
TOLERANCE = 1e-9  # a rule counts as kept down to minus this, on the same scale


@dataclass(frozen=True, eq=False)
class FunctionRules:
    """Rules without a normal form, known through the requirement: those of a concave functional.

    `bounds` (L,) are those of its rows.
    """

    requirement: Requirement
    bounds: Array

    def slack(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """(n, d), (n, r) -> (n, L), at least 0 where a rule is kept."""
        return -self.requirement.violations(inputs, outputs)

    def scale(self, like: Tensor) -> Tensor:
        """(L,) max(1, |bound|) of each rule."""
        return torch.as_tensor(np.maximum(np.abs(self.bounds), 1.0), device=like.device)


@dataclass(frozen=True, eq=False)
class Guard:
    """The rules of one requirement, each linear or concave in the output, and where they hold."""

    name: str
    region: Region
    rules: AffineRules | FunctionRules

    def theta(self, inputs: Tensor, own: Tensor, anchor: Tensor) -> Tensor:
        """(n,) the largest over violated rules of (aim - own) / (slack of the anchor - own).

        `own` (n, L) is the slack of the outputs, `anchor` (n, r) the anchor's outputs. Where the
        anchor breaks a rule too it is taken whole if that is better, else the rule is left alone.
        """
        other = self.rules.slack(inputs, anchor)
        reach = other.clamp_min(0.0)
        aim = torch.minimum(reach, AIM * self.rules.scale(own))
        # not a number is neither kept nor worse than the anchor
        short = ~((own >= 0) | (other <= own))
        # what is masked must not divide by 0, or its gradient would be no number
        gap = torch.where(short, reach - own, 1.0)
        share = torch.where(short, (aim - own) / gap, 0.0).amax(-1)
        share = torch.where(torch.isfinite(share), share.clamp_max(1.0), 1.0)
        return torch.where(self.region.near(inputs), share, 0.0)

    def kept(self, inputs: Array, outputs: Tensor) -> NDArray[np.bool_]:
        """(n,): inside the region, and all rules recomputed from the outputs hold."""
        with torch.no_grad():
            x = torch.as_tensor(inputs, device=outputs.device)
            holds = self.rules.slack(x, outputs) >= -TOLERANCE * self.rules.scale(outputs)
        return np.asarray(holds.all(-1).cpu().numpy() & self.region.contains(inputs))


def guard(requirement: Requirement, *, output_size: int) -> Guard:
    """The guard of a requirement over a Box or Ball: its normal form if it has one."""
    region = requirement.region
    if not isinstance(region, Box | Ball):
        raise InvalidInput(
            f"a shield keeps rules over a Box or a Ball, but {requirement.name} lists its inputs "
            "or sums over them; give the region in which it shall hold"
        )
    requirement.check(requirement.input_size, output_size)
    rules: AffineRules | None = getattr(requirement, "normal_form", None)
    if rules is not None:
        return Guard(requirement.name, region, rules)
    bounds = rows_at_centre(requirement, output_size).bounds
    return Guard(requirement.name, region, FunctionRules(requirement, bounds))
