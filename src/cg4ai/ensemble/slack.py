"""How much room a rule has where it was asked for: the distribution behind an audit's worst row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cg4ai.data import arrays
from cg4ai.ensemble.audit import compute_row_violations
from cg4ai.records import Array
from cg4ai.rules import OutputRule, Shape
from cg4ai.rules.equality import Equality
from cg4ai.rules.regions import Region
from cg4ai.rules.violations import predictions, region_violations, sample_candidates

if TYPE_CHECKING:
    from cg4ai.ensemble.ensemble import Ensemble
    from cg4ai.rules import Requirement

VERTICES = 64


@dataclass(frozen=True, eq=False)
class Slack:
    """`values` (n,) in the rule's own units: what is left to its bound, below 0 where it is missed.

    They are of listed rows, or of inputs of a region; none of a rule that leaves no room by its
    nature (an equality) or is about pairs of inputs (a shape). `found`: the least that a search
    of the region came to, if there was one.
    """

    requirement: str
    values: Array
    found: float | None = None


def compute_slack(ensemble: Ensemble, requirement: Requirement, inputs: Any = None) -> Slack:
    """The room of one requirement at each listed row, or at inputs of its region.

    `inputs` (n, d): where to look at rules over regions, as far as they lie there, and at rules
    that hold at every input; by default the centre, vertices and some inputs at random.
    """
    requirement.check(ensemble.input_size, ensemble.output_size)
    points = None if inputs is None else arrays.as_matrix(inputs, "inputs", missing=True)
    name, region = requirement.name, requirement.region
    if isinstance(requirement, Shape | Equality):
        return Slack(name, np.empty(0))
    if isinstance(requirement, OutputRule):
        if points is None:
            return Slack(name, np.empty(0))
        matrix, bound = requirement.output_set(ensemble.output_size).rows
        return Slack(name, (predictions(ensemble, points).numpy() @ matrix.T - bound).min(1))
    if isinstance(region, Region):
        inside = np.empty((0, ensemble.input_size)) if points is None else points
        inside = inside[region.contains(inside)]
        if not len(inside):
            inside = sample_candidates(region, VERTICES, torch.Generator().manual_seed(0))
        return Slack(name, -region_violations(ensemble, requirement, inside).max(axis=1))
    rows = requirement.rows(0)
    assert rows is not None  # all others list their inputs
    return Slack(name, -compute_row_violations(requirement, ensemble, rows).violations)
