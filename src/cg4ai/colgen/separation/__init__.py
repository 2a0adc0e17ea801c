"""Search for inputs at which a mixture breaks a requirement; the loop turns them into rows.

The rows in a `SeparationResult` carry requirement number -1: the loop, which knows the number,
fills it in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cg4ai.colgen.separation.ascent import GradientAscent
from cg4ai.colgen.separation.blackbox import BlackBox
from cg4ai.colgen.separation.mip import MixedInteger
from cg4ai.colgen.separation.scan import PoolScan
from cg4ai.rules.regions import Region

if TYPE_CHECKING:
    from cg4ai.protocols import Separator
    from cg4ai.rules import Requirement

__all__ = [
    "BlackBox",
    "GradientAscent",
    "MixedInteger",
    "PoolScan",
    "default_separator",
    "is_exact_search",
    "training_separator",
]


def default_separator(requirement: Requirement, ensemble_differentiable: bool) -> Separator:
    """The requirement's own separator, else one that suits its region and the members."""
    if requirement.separator == "mip":
        return MixedInteger()
    if requirement.separator is not None:
        return requirement.separator
    if not isinstance(requirement.region, Region):
        return PoolScan()
    return GradientAscent() if ensemble_differentiable else BlackBox()


def is_exact_search(requirement: Requirement) -> bool:
    """Whether it is to be searched by mixed-integer programs."""
    return requirement.separator == "mip" or isinstance(requirement.separator, MixedInteger)


def training_separator(requirement: Requirement, ensemble_differentiable: bool) -> Separator:
    """The same, but quick where that one is exact: training asks often and needs no bound."""
    if is_exact_search(requirement):
        return GradientAscent()
    return default_separator(requirement, ensemble_differentiable)
