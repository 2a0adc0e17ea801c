"""Which rules a mixture keeps by the structure of its members; of equalities, by their arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cg4ai.ensemble import shapes
from cg4ai.ensemble.output_sets import keeps_set
from cg4ai.members.structure import OutputForm
from cg4ai.rules import Requirement
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.caps import keeps_rules
from cg4ai.rules.equality import Equality
from cg4ai.rules.output_sets import OutputRule
from cg4ai.rules.regions import Region
from cg4ai.rules.shapes import Shape

if TYPE_CHECKING:
    from cg4ai.ensemble.ensemble import Ensemble


Pointwise = Equality | OutputRule  # rules about the outputs at one input
Built = Pointwise | Shape  # rules that members keep by construction


def is_constructed(ensemble: Ensemble, rule: Requirement) -> bool:
    """Whether every member that is used keeps it at every input, but for rounding."""
    if isinstance(rule, OutputRule):
        return keeps_set(ensemble, rule)
    if isinstance(rule, Shape):
        return shapes.keeps(ensemble, rule)
    if not isinstance(rule, Equality):
        return keeps_capped(ensemble, rule)
    forms = find_forms(ensemble)
    return bool(forms) and all(rule.is_kept_by(*form) for form in forms)


def keeps_capped(ensemble: Ensemble, rule: Requirement) -> bool:
    """Whether the limits of all members keep a rule over a region, at every input of it."""
    caps = ensemble.caps
    if not caps or not isinstance(rule.region, Region) or isinstance(rule, Equality):
        return False
    rule.check(ensemble.input_size, ensemble.output_size)  # margins are rules of all outputs
    rules = rule.normal_form
    if not isinstance(rules, AffineRules):
        return False
    return all(keeps_rules(one, rules, rule.region) for one in caps)


def find_forms(ensemble: Ensemble) -> list[OutputForm]:
    """Those of all members that are used, and of the anchor; none where a member has no form."""
    anchor = ensemble.anchor
    parts = [*ensemble.used, *(() if anchor is None else anchor.used)]
    found = [part.members.find_output_forms() for part in parts]
    if len(ensemble.layout) > 1 or not all(found):
        return []
    return [form for forms in found for form in forms]
