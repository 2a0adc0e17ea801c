"""Which separator searches for a rule: its own, else one that suits its region and the members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cg4ai.rules.regions import Region

if TYPE_CHECKING:
    from cg4ai.protocols import Separator
    from cg4ai.rules import Requirement


def default_separator(requirement: Requirement, ensemble_differentiable: bool) -> Separator:
    """The requirement's own separator, else one that suits its region and the members."""
    if requirement.separator == "mip":
        from cg4ai.colgen.separation.mip import MixedInteger

        return MixedInteger()
    if requirement.separator is not None:
        return requirement.separator
    if not isinstance(requirement.region, Region):
        from cg4ai.colgen.separation.scan import PoolScan

        return PoolScan()
    if not ensemble_differentiable:
        from cg4ai.colgen.separation.blackbox import BlackBox

        return BlackBox()
    from cg4ai.colgen.separation.ascent import GradientAscent

    return GradientAscent()


def brief_separator(ensemble_differentiable: bool) -> Separator:
    """A search for endings that have no time left: at single inputs, and hardly climbing."""
    if ensemble_differentiable:
        from cg4ai.colgen.separation.ascent import GradientAscent

        return GradientAscent(starts=1, steps=0)
    from cg4ai.colgen.separation.blackbox import BlackBox

    return BlackBox(starts=1, evaluations=10, vertices=16)


def is_exact_search(requirement: Requirement) -> bool:
    """Whether it is to be searched by mixed-integer programs."""
    if requirement.separator is None or isinstance(requirement.separator, str):
        return requirement.separator == "mip"
    from cg4ai.colgen.separation.mip import MixedInteger

    return isinstance(requirement.separator, MixedInteger)


def training_separator(requirement: Requirement, ensemble_differentiable: bool) -> Separator:
    """The same, but quick where that one is exact: training asks often and needs no bound."""
    if is_exact_search(requirement):
        from cg4ai.colgen.separation.ascent import GradientAscent

        return GradientAscent()
    return default_separator(requirement, ensemble_differentiable)
