"""The constraint language: what a user asks for, as rows for the master and the pricers.

Everything here binds scores; those that `DecisionRate` binds are votes of 0 and 1. Rows are linear
in the outputs, or concave: then the mean of the members' values is at most the value of the mixture
(Jensen), so a mixture whose weighted members meet a row meets the rule itself.
"""

from cg4ai.rules.affine import AffineRules
from cg4ai.rules.bounds import AffineBound, Largest, Smallest
from cg4ai.rules.coefficients import AffineCoefficients
from cg4ai.rules.concave import Concave
from cg4ai.rules.equality import Completion, Equality
from cg4ai.rules.labels import Margin, Probability
from cg4ai.rules.linear import Linear
from cg4ai.rules.output_sets import Ordered, OutputRule, OutputSet, Range, SumTo
from cg4ai.rules.quadratic import Quadratic
from cg4ai.rules.rates import DecisionRate, Rate
from cg4ai.rules.regions import Ball, Box, Polytope, Pool
from cg4ai.rules.requirement import Placed, Requirement, RequirementDefaults
from cg4ai.rules.rows import ConcaveRows, LinearRows, Rows
from cg4ai.rules.shapes import Curvature, Monotone, Shape
from cg4ai.rules.sums import Difference

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
    "Largest",
    "Linear",
    "LinearRows",
    "Margin",
    "Monotone",
    "Ordered",
    "OutputRule",
    "OutputSet",
    "Placed",
    "Polytope",
    "Pool",
    "Probability",
    "Quadratic",
    "Range",
    "Rate",
    "Requirement",
    "RequirementDefaults",
    "Rows",
    "Shape",
    "Smallest",
    "SumTo",
]
