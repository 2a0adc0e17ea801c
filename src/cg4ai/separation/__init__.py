"""Search for inputs at which a mixture breaks a requirement; the loop turns them into rows.

The rows in a `SeparationResult` carry requirement number -1: the loop, which knows the number,
fills it in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cg4ai.rules.regions import Region
from cg4ai.separation.ascent import GradientAscent
from cg4ai.separation.blackbox import BlackBox
from cg4ai.separation.scan import PoolScan

if TYPE_CHECKING:
    from cg4ai.protocols import Separator
    from cg4ai.rules import Requirement

__all__ = ["BlackBox", "GradientAscent", "PoolScan", "default_separator"]


def default_separator(requirement: Requirement, ensemble_differentiable: bool) -> Separator:
    """The requirement's own separator, else one that suits its region and the members."""
    if requirement.separator is not None:
        return requirement.separator
    if not isinstance(requirement.region, Region):
        return PoolScan()
    return GradientAscent() if ensemble_differentiable else BlackBox()
