"""The constraint language: what a user asks for, as rows for the master and the pricers.

Everything here binds scores. Rows are linear in the outputs, or concave: then the mean of the
members' values is at most the value of the mixture (Jensen), so a mixture whose weighted members
meet a row meets the rule itself.
"""

from cg4ai.requirements.concave import Concave
from cg4ai.requirements.contradictions import contradictions, improbable
from cg4ai.requirements.difference import Difference
from cg4ai.requirements.labels import Margin, Probability
from cg4ai.requirements.linear import Linear
from cg4ai.requirements.place import Requirement
from cg4ai.requirements.rates import Rate

__all__ = [
    "Concave",
    "Difference",
    "Linear",
    "Margin",
    "Probability",
    "Rate",
    "Requirement",
    "contradictions",
    "improbable",
]
