"""The constraint language: what a user asks for, as rows for the master and the pricers.

Everything here binds scores; those that `DecisionRate` binds are votes of 0 and 1. Rows are linear
in the outputs, or concave: then the mean of the members' values is at most the value of the mixture
(Jensen), so a mixture whose weighted members meet a row meets the rule itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cg4ai.exports import lazy_exports

if TYPE_CHECKING:
    from cg4ai.rules.affine import AffineRules
    from cg4ai.rules.bounds import AffineBound, Largest, Smallest
    from cg4ai.rules.coefficients import AffineCoefficients
    from cg4ai.rules.concave import Concave
    from cg4ai.rules.equality import Completion, Equality
    from cg4ai.rules.guards import Guard, guard_of
    from cg4ai.rules.labels import Margin, Probability
    from cg4ai.rules.linear import Linear
    from cg4ai.rules.output_sets import Ordered, OutputRule, OutputSet, Range, SumTo
    from cg4ai.rules.quadratic import Quadratic
    from cg4ai.rules.rates import DecisionRate, Rate
    from cg4ai.rules.regions import Ball, Box, Polytope, Pool, Region, region_of
    from cg4ai.rules.requirement import InputRule, Requirement, RequirementDefaults
    from cg4ai.rules.rows import ConcaveRows, LinearRows, Rows, RowSet
    from cg4ai.rules.shapes import Curvature, Monotone, Shape
    from cg4ai.rules.shared_limits import SharedRules
    from cg4ai.rules.sums import Difference
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "cg4ai.rules.affine": ["AffineRules"],
            "cg4ai.rules.bounds": ["AffineBound", "Largest", "Smallest"],
            "cg4ai.rules.coefficients": ["AffineCoefficients"],
            "cg4ai.rules.concave": ["Concave"],
            "cg4ai.rules.equality": ["Completion", "Equality"],
            "cg4ai.rules.guards": ["Guard", "guard_of"],
            "cg4ai.rules.labels": ["Margin", "Probability"],
            "cg4ai.rules.linear": ["Linear"],
            "cg4ai.rules.output_sets": ["Ordered", "OutputRule", "OutputSet", "Range", "SumTo"],
            "cg4ai.rules.quadratic": ["Quadratic"],
            "cg4ai.rules.rates": ["DecisionRate", "Rate"],
            "cg4ai.rules.regions": ["Ball", "Box", "Polytope", "Pool", "Region", "region_of"],
            "cg4ai.rules.requirement": ["InputRule", "Requirement", "RequirementDefaults"],
            "cg4ai.rules.rows": ["ConcaveRows", "LinearRows", "RowSet", "Rows"],
            "cg4ai.rules.shapes": ["Curvature", "Monotone", "Shape"],
            "cg4ai.rules.shared_limits": ["SharedRules"],
            "cg4ai.rules.sums": ["Difference"],
        },
    )

__all__ = [
    "AffineBound",
    "AffineCoefficients",
    "AffineRules",
    "Ball",
    "Box",
    "Completion",
    "Concave",
    "ConcaveRows",
    "Curvature",
    "DecisionRate",
    "Difference",
    "Equality",
    "Guard",
    "InputRule",
    "Largest",
    "Linear",
    "LinearRows",
    "Margin",
    "Monotone",
    "Ordered",
    "OutputRule",
    "OutputSet",
    "Polytope",
    "Pool",
    "Probability",
    "Quadratic",
    "Range",
    "Rate",
    "Region",
    "Requirement",
    "RequirementDefaults",
    "RowSet",
    "Rows",
    "Shape",
    "SharedRules",
    "Smallest",
    "SumTo",
    "guard_of",
    "region_of",
]
