"""What a shield keeps: the rules of one requirement over its region, ready for inference.

A guard knows by how much outputs keep each rule (`slack`, >= 0 where kept), where the rules hold,
and how far a violating output must move towards an anchor. `shield.py` blends by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.records import Array
from cg4ai.rules import Linear, Margin, Probability, Requirement
from cg4ai.rules.affine import rules_of
from cg4ai.rules.linear import is_functional
from cg4ai.rules.regions import Ball, Box, Region

AIM = 1e-12  # how far inside a bound a restored output aims, relative to max(1, |bound|)
TOLERANCE = 1e-9  # a rule counts as kept down to minus this, on the same scale
HAIR = 1e-12  # inputs that rounding puts this far outside, relative to the region, are shielded too


class Rules(Protocol):
    """Several rules on (input, output), each linear or concave in the output."""

    @property
    def scale(self) -> Tensor:
        """(L,) max(1, |bound|) of each rule."""
        ...

    def slack(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """(n, d), (n, r) -> (n, L), at least 0 where a rule is kept."""
        ...

    def to(self, device: torch.device) -> Rules: ...


@dataclass(frozen=True, eq=False)
class FunctionRules:
    """Rules known only through the requirement itself, such as those of a concave functional."""

    requirement: Requirement
    scale: Tensor

    def slack(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return -self.requirement.violations(inputs, outputs)

    def to(self, device: torch.device) -> FunctionRules:
        return replace(self, scale=self.scale.to(device))


class AffineRules:
    """`sum_q (constant[l, q] + slope[l, q] . x) y_q <= limit_l`, in one matrix product.

    The slopes are given sparsely: `value[k]` is the slope of rule `rule[k]`, output `output[k]`
    along input `input[k]`. Each pair (input, output) that occurs is one product x_i y_q.
    """

    NAMES = ("constant", "limit", "rule", "output", "input", "value")

    def __init__(self, arrays: Mapping[str, NDArray[Any]], *, device: torch.device) -> None:
        """`arrays`: constant (L, r), limit (L,), and rule, output, input, value (k,)."""
        self.arrays = dict(arrays)
        constant, limit = arrays["constant"], arrays["limit"]
        pairs, place = np.unique(
            np.stack([arrays["input"], arrays["output"]]).astype(np.int64),
            axis=1,
            return_inverse=True,
        )
        matrix = np.zeros((pairs.shape[1], len(limit)))
        np.add.at(matrix, (place.reshape(-1), arrays["rule"]), arrays["value"])
        self.device = device
        self.limit = torch.as_tensor(limit, device=device)
        self.scale = self.limit.abs().clamp_min(1.0)
        self._fixed = torch.as_tensor(-constant.T, device=device) if constant.any() else None
        self._inputs = torch.as_tensor(pairs[0], device=device)
        in_order = np.array_equal(pairs[1], np.arange(constant.shape[1]))  # then no copy is needed
        self._outputs = None if in_order else torch.as_tensor(pairs[1], device=device)
        self._product = torch.as_tensor(-matrix, device=device) if len(matrix) else None

    def slack(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        result = self.limit.expand(len(inputs), -1)
        if self._fixed is not None:
            result = torch.addmm(result, outputs, self._fixed)
        if self._product is not None:
            chosen = outputs if self._outputs is None else outputs.index_select(1, self._outputs)
            products = inputs.index_select(1, self._inputs) * chosen
            result = torch.addmm(result, products, self._product)
        return result

    def to(self, device: torch.device) -> AffineRules:
        return AffineRules(self.arrays, device=device)

    def worst(self, outputs: Array, region: Region) -> tuple[Array, Array]:
        """For constant outputs (r,): the least slack (L,) of each rule in the region, and where.

        Such values are affine in the input, so their maximum over a Box is at a corner and over a
        Ball along the slope, both in closed form.
        """
        slopes = np.zeros((len(self.limit), region.size))
        value, output = self.arrays["value"], self.arrays["output"]
        np.add.at(slopes, (self.arrays["rule"], self.arrays["input"]), value * outputs[output])
        if isinstance(region, Ball) and region.norm == 2:
            length = np.linalg.norm(slopes, axis=1, keepdims=True)
            points = region.centre + region.radius * slopes / np.maximum(length, 1e-300)
        else:
            lower, upper = region.bounds()
            points = np.where(slopes > 0, upper, lower)
        highest = self.arrays["constant"] @ outputs + (slopes * points).sum(axis=1)
        return self.arrays["limit"] - highest, points


@dataclass(frozen=True, eq=False)
class Guard:
    """The rules of one requirement, and the region in which they hold."""

    name: str
    region: Region
    rules: Rules

    def to(self, device: torch.device) -> Guard:
        return replace(self, rules=self.rules.to(device))

    def near(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (n,): inside the region, or so close that only rounding put it outside."""
        ends = [torch.as_tensor(end, device=inputs.device) for end in self.region.bounds()]
        hair = HAIR * (ends[1] - ends[0] + torch.maximum(ends[0].abs(), ends[1].abs()))
        inside = ((inputs >= ends[0] - hair) & (inputs <= ends[1] + hair)).all(-1)
        if isinstance(self.region, Ball) and self.region.norm == 2:
            centre = torch.as_tensor(self.region.centre, device=inputs.device)
            distance: Tensor = torch.linalg.vector_norm(inputs - centre, dim=-1)
            return inside & (distance <= self.region.radius + hair.max())
        return inside

    def theta(self, inputs: Tensor, own: Tensor, anchor: Tensor) -> Tensor:
        """(n,) the largest over violated rules of (aim - own) / (slack of the anchor - own).

        `own` (n, L) is the slack of the outputs, `anchor` (n, r) the anchor's outputs. Where the
        anchor breaks a rule too it is taken whole if that is better, else the rule is left alone.
        """
        other = self.rules.slack(inputs, anchor)
        reach = other.clamp_min(0.0)
        aim = torch.minimum(reach, AIM * self.rules.scale)
        # not a number is neither kept nor worse than the anchor
        short = ~((own >= 0) | (other <= own))
        # what is masked must not divide by 0, or its gradient would be no number
        gap = torch.where(short, reach - own, 1.0)
        share = torch.where(short, (aim - own) / gap, 0.0).amax(-1)
        share = torch.where(torch.isfinite(share), share.clamp_max(1.0), 1.0)
        return torch.where(self.near(inputs), share, 0.0)

    def kept(self, inputs: Array, outputs: Tensor) -> NDArray[np.bool_]:
        """(n,): inside the region, and all rules recomputed from the outputs hold."""
        with torch.no_grad():
            x = torch.as_tensor(inputs, device=outputs.device)
            holds = (self.rules.slack(x, outputs) >= -TOLERANCE * self.rules.scale).all(-1)
        return np.asarray(holds.cpu().numpy() & self.region.contains(inputs))


def guard(requirement: Requirement, *, output_size: int) -> Guard:
    """The guard of a requirement over a Box or Ball, on the CPU.

    Rules that are linear in the output with coefficients affine in the input become one matrix
    product; others are evaluated by the requirement itself.
    """
    region = requirement.region
    if not isinstance(region, Box | Ball):
        raise InvalidInput(
            f"a shield keeps rules over a Box or a Ball, but {requirement.name} lists its inputs "
            "or sums over them; give the region in which it shall hold"
        )
    requirement.check(requirement.input_size, output_size)
    if not _affine(requirement):
        rules = _function_rules(requirement, region, output_size)
        return Guard(requirement.name, region, rules)
    found = rules_of(requirement, output_size=output_size)
    known = found.coefficients
    arrays = {
        "constant": known.constant,
        "limit": found.limit,
        "rule": known.rule,
        "output": known.output,
        "input": known.input,
        "value": known.value,
    }
    return Guard(requirement.name, region, AffineRules(arrays, device=torch.device("cpu")))


def _affine(requirement: Requirement) -> bool:
    if isinstance(requirement, Linear) and is_functional(requirement.coefficients):
        return hasattr(requirement.coefficients, "affine")
    return isinstance(requirement, Linear | Margin | Probability)


def _function_rules(requirement: Requirement, region: Region, output_size: int) -> FunctionRules:
    middle = np.mean(region.bounds(), axis=0)[None]
    outputs = torch.zeros(1, output_size, dtype=torch.float64)
    with torch.no_grad():
        count = requirement.violations(torch.as_tensor(middle), outputs).shape[-1]
    rows = requirement.rows_at(np.repeat(middle, count, axis=0), np.arange(count), 0)
    return FunctionRules(requirement, torch.as_tensor(np.maximum(np.abs(rows.bounds), 1.0)))
