"""The size of a row: the unit in which its margins, tolerances and violations are measured.

A row `value >= bound` has the size of its bound. Where the bound is zero it has that of the
requirement's other bounds, and where all are zero that of its coefficients times the outputs. So a
rule stated in grams is met to the same number of digits as in tonnes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from cg4ai.objectives import AnyObjective
from cg4ai.records import Array
from cg4ai.rules.regions import Region
from cg4ai.rules.requirement import InputRule, Requirement, count_rules_over
from cg4ai.rules.rows import LinearRows, Rows

LEAST_SHARE = 1e-6  # a bound below this share of the requirement's size is zero but for rounding
EXTREMES = 3  # points of a region at which its bounds are read
UNSCALED = (1e-4, 1e6)  # sizes that suit solvers and prices of slack as they are


@dataclass(frozen=True, slots=True)
class RequirementSize:
    """The largest and the least size of a requirement's rows, and what they are divided by.

    One `scale`, a power of two, serves all rows of a requirement: slack, own or shared, is then
    least in the rule's own units.
    """

    size: float
    least: float
    scale: float

    def compute_row_sizes(self, bounds: Array) -> Array:
        """The size (m,) of each row with these `bounds` (m,), before scaling."""
        sizes = np.abs(bounds)
        return np.where(sizes >= LEAST_SHARE * self.size, sizes, self.size)


def compute_requirement_size(
    requirement: Requirement, output_size: int, *, outputs: Callable[[], float]
) -> RequirementSize:
    """The size of a requirement's rows; `outputs` says how large predictions are, if need be."""
    rows = _example_rows(requirement, output_size)
    if rows is None or not len(rows):
        return RequirementSize(1.0, 1.0, 1.0)
    size = _size(rows, output_size, outputs)
    scale = 1.0 if UNSCALED[0] <= size <= UNSCALED[1] else float(2.0 ** np.round(np.log2(size)))
    made = RequirementSize(size, size, scale)
    return replace(made, least=float(made.compute_row_sizes(rows.bounds).min()))


def compute_variable_units(largest: Array) -> Array:
    """Powers of two (n,), units for variables whose largest coefficients (n,) suit no solver."""
    unsuited = (largest > 0) & ((largest < UNSCALED[0]) | (largest > UNSCALED[1]))
    return np.where(unsuited, 2.0 ** -np.round(np.log2(np.where(unsuited, largest, 1.0))), 1.0)


def estimate_output_size(objective: AnyObjective) -> float:
    """How large predictions are expected to be: as the targets where those are numbers, else 1."""
    targets = objective.labels
    if targets is None or targets.ndim != 2 or not targets.size or targets.dtype.kind != "f":
        return 1.0
    return float(np.abs(targets).max()) or 1.0


def _example_rows(requirement: Requirement, output_size: int) -> Rows | None:
    """All listed rows; over a region those at some inputs; None where none can be had."""
    region = requirement.region
    if not isinstance(region, Region):
        return requirement.rows(0)
    if not isinstance(requirement, InputRule):
        return None
    made = torch.Generator().manual_seed(0)
    inputs = np.concatenate([region.middle[None], region.extremes(EXTREMES, made).numpy()])
    count = count_rules_over(requirement, output_size)
    which = np.tile(np.arange(count), len(inputs))
    return requirement.rows_at(np.repeat(inputs, count, axis=0), which, 0)


def _size(rows: Rows, output_size: int, outputs: Callable[[], float]) -> float:
    largest = float(np.abs(rows.bounds).max())
    if largest > 0:
        return largest
    if isinstance(rows, LinearRows):
        return float(np.abs(rows.coefficients).max()) * outputs() or 1.0
    with torch.no_grad():
        at_zero = rows.values(torch.zeros(len(rows), output_size, dtype=torch.float64))
    values = at_zero.abs()[torch.isfinite(at_zero)]
    return float(values.max()) if len(values) and values.max() > 0 else 1.0
