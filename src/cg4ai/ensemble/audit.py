"""Does the ensemble keep a requirement? Read from recomputed predictions, never from the LP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cg4ai.colgen.separation import (
    brief_separator,
    default_separator,
)
from cg4ai.data.arrays import is_among
from cg4ai.ensemble import shapes
from cg4ai.ensemble.constructed import Pointwise, is_constructed, keeps_capped
from cg4ai.ensemble.rates import GroupRate, compute_group_rates
from cg4ai.ensemble.verdict import EVERY_INPUT, Verdict, describe_coverage
from cg4ai.objectives import compute_votes
from cg4ai.protocols import SeparatorDefaults
from cg4ai.records import Array, IntArray, SeparationResult, Strength
from cg4ai.rules import DecisionRate, OutputRule, Rate, Shape
from cg4ai.rules.rates import GroupRates
from cg4ai.rules.regions import Region
from cg4ai.rules.requirement import InputRule
from cg4ai.rules.row_sizes import RequirementSize, compute_requirement_size
from cg4ai.rules.rows import ConcaveRows, LinearRows, compute_shortfall
from cg4ai.rules.violations import predictions, sample_candidates

if TYPE_CHECKING:
    from cg4ai.ensemble.ensemble import Ensemble
    from cg4ai.rules import Requirement
    from cg4ai.rules.rows import Rows

LISTED_ONLY = "on the listed rows; likely violated on new ones"
SHOWN = 5  # violated rows spelled out when an audit is printed


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found for one requirement.

    AUDITED: every listed row was recomputed, `rows` of them. ATTACKED: a region was searched with
    the stated `effort`; `rows` then counts the violated inputs found and `satisfied` is 0.
    BOUNDED: so it was, and the solver's upper bound of any violation is below the tolerance.
    SHIELDED: a shield keeps the rule at every input of the region, with an anchor whose `room` is
    proven by closed form; it was searched all the same. CONSTRUCTED: every member keeps it by its
    structure, as its arrays show; `worst_violation` is what rounding leaves. CERTIFIED: it was
    searched, and then proven at every input of the region in as many cells as `effort` says.

    `violated` holds row numbers worst first, with `violations` and `descriptions` alongside;
    `worst_violation` is negative when all rows have room to spare.
    """

    requirement: str
    strength: Strength
    place: str
    rows: int
    satisfied: int
    worst_violation: float
    tolerance: float
    violated: IntArray
    violations: Array
    descriptions: tuple[str, ...]
    decision_rates: Mapping[Any, float] = field(default_factory=dict)
    threshold: float | None = None
    effort: Mapping[str, Any] = field(default_factory=dict)
    room: float | None = None
    rates: tuple[GroupRate, ...] = ()

    @property
    def holds(self) -> bool:
        """No violation above the tolerance was found; over a region that is no proof."""
        return len(self.violated) == 0

    @property
    def doubtful(self) -> bool:
        """Whether it holds at the listed inputs, and held-out ones say that it will not at new."""
        return self.holds and any(rate.doubtful for rate in self.rates)

    @property
    def verdict(self) -> Verdict:
        """Whether it holds, where, and how that was established, in a few words."""
        where = describe_coverage(
            self.strength,
            self.place,
            holds=self.holds,
            rows=self.rows,
            satisfied=self.satisfied,
            worst_violation=self.worst_violation,
        )
        return Verdict(self.requirement, self.holds, self.strength, where, self.doubtful)

    def __str__(self) -> str:
        said = {
            Strength.AUDITED: self._audited,
            Strength.CONSTRUCTED: self._built,
            Strength.CERTIFIED: self._proven,
            Strength.BOUNDED: self._bounded,
        }
        statement = said.get(self.strength, self._searched)()
        return "\n".join([statement, *self.describe_missed(), *self.rate_lines()])

    def describe_missed(self) -> list[str]:
        """A line for each of the worst violated rows."""
        worst = zip(self.descriptions[:SHOWN], self.violations, strict=False)
        lines = [f"  missed by {size:.3g}: {text}" for text, size in worst]
        more = len(self.descriptions) - SHOWN
        return [*lines, f"  and {more} more"] if more > 0 else lines

    def rate_lines(self) -> list[str]:
        """A line for each rate that the rule binds, and one for rates of decisions."""
        lines = [f"  {rate}" for rate in self.rates]
        if self.decision_rates:
            rates = ", ".join(f"{name}: {rate:.4g}" for name, rate in self.decision_rates.items())
            lines.append(
                f"  decisions at threshold {self.threshold:g} (not bound by the rule): {rates}"
            )
        return lines

    def _worst(self, name: str) -> str:
        """The worst violation under this name; the margin that is left where there is none."""
        if self.worst_violation < 0:
            return f"margin {-self.worst_violation:.3g}"
        return f"{name} {self.worst_violation:.3g}"

    def _audited(self) -> str:
        verdict = "holds" if self.holds else "is violated"
        where = f" {LISTED_ONLY}" if self.doubtful else ""
        return (
            f"{self.requirement} {verdict} (audited){where}: {self.satisfied} of {self.rows} rows "
            f"at {self.place} satisfied within {self.tolerance:g}, "
            f"{self._worst('worst violation')}; other inputs are not covered"
        )

    def _built(self) -> str:
        error = max(0.0, self.worst_violation)
        return (
            f"{self.requirement} holds (constructed) at {self._everywhere}: the structure of every "
            f"member guarantees it; the largest rounding error is {error:.3g} at "
            f"{self.effort['evaluations']} tested inputs"
        )

    @property
    def _everywhere(self) -> str:
        return self.place if self.place == EVERY_INPUT else f"{EVERY_INPUT} of {self.place}"

    def _proven(self) -> str:
        return (
            f"{self.requirement} holds (certified) at every input of {self.place}: proven in "
            f"{self.effort['cells']} cells and {self.effort['seconds']:g} s "
            f"({self._worst('worst violation found')})"
        )

    def _bounded(self) -> str:
        effort = ", ".join(f"{name} {value}" for name, value in self.effort.items())
        return (
            f"{self.requirement} holds (bounded) at every input of {self.place}: branch and bound "
            f"leaves no violation above {self.effort['bound']:.3g} "
            f"({self._worst('worst found')}; {effort}); nothing checked the solver, certify can"
        )

    def _searched(self) -> str:
        effort = ", ".join(f"{name} {value}" for name, value in self.effort.items())
        if self.holds and self.room is not None:
            return (
                f"{self.requirement} holds (shielded) at every input of {self.place}: predictions "
                f"that would violate it are moved to an anchor with proven margin {self.room:.3g} "
                f"({self._worst('worst violation found')}; {effort})"
            )
        if self.holds:
            return (
                f"{self.requirement} was attacked over {self.place} and no violation above "
                f"{self.tolerance:g} was found ({self._worst('worst')}; {effort}); "
                "a search is not a proof"
            )
        return (
            f"{self.requirement} is violated ({self.strength}) over {self.place}: {self.rows} "
            f"violated inputs found, worst violation {self.worst_violation:.3g} ({effort})"
        )


def audit(
    requirement: Requirement,
    ensemble: Ensemble,
    *,
    tolerance: float = 1e-6,
    threshold: float = 0.5,
    seed: int = 0,
    limit: int = 100,
    found: SeparationResult | None = None,
    brief: bool = False,
    held_out: Array | None = None,
    fresh: Array | None = None,
) -> Audit:
    """Recompute every listed row in float64; over a region, search for violations.

    A row is violated where it lacks more than `tolerance` x its size, which is that of its bound
    (`rules.sizes`). `threshold` turns scores into decisions for a Rate; `seed` and `limit` (of
    inputs reported) are for the search, which the requirement's separator does, or the default one.
    A search of this very mixture that was done already is given as `found`. A `brief` search looks
    at single inputs and hardly climbs, for endings that have no time left: what it finds is real,
    and its effort is stated like any other. `held_out` (n, d) are inputs that no member was trained
    on: rates at those of them that the rule lists are stated by themselves, with intervals. Of
    decisions `fresh` (m,) are those at the rule's inputs by models that were not trained there.
    """
    from cg4ai.ensemble.shield import find_shield_check

    requirement.check(ensemble.input_size, ensemble.output_size)
    if isinstance(requirement, InputRule) and not ensemble.takes_missing:
        requirement.check_missing("members of this mixture")
    if isinstance(requirement, Shape):
        return _shape(requirement, ensemble, tolerance, limit)
    if isinstance(requirement, Pointwise):
        if is_constructed(ensemble, requirement):
            return _constructed(requirement, ensemble, tolerance)
        requirement.require_inputs()
    rows = requirement.rows(0)
    if rows is None:
        shield = find_shield_check(ensemble, requirement)
        capped = keeps_capped(ensemble, requirement)
        if found is None:
            search = default_separator(requirement, ensemble.differentiable)
            hurried = (brief or capped or shield is not None) and isinstance(
                requirement.region, Region
            )
            if hurried and isinstance(search, SeparatorDefaults) and search.takes_any_rule:
                search = brief_separator(ensemble.differentiable)
            least = tolerance * estimate_region_size(requirement, ensemble).least
            found = search.find(ensemble, requirement, seed=seed, limit=limit, tolerance=least)
        size = estimate_region_size(requirement, ensemble)
        attacked = _attacked(requirement, found, tolerance, size)
        if capped and attacked.holds:
            return replace(attacked, strength=Strength.CONSTRUCTED)
        if shield is None:
            return attacked
        return replace(attacked, strength=Strength.SHIELDED, room=shield.room)
    return _recomputed(requirement, ensemble, rows, tolerance, threshold, held_out, fresh)


class RowViolations(NamedTuple):
    """Outputs (n, r) at the inputs of rows, and by how much each row (m,) is missed."""

    outputs: Tensor
    violations: Array


def compute_row_violations(
    requirement: Requirement, ensemble: Ensemble, rows: Rows
) -> RowViolations:
    """What the mixture makes of a requirement's own rows; negative where there is room."""
    if isinstance(requirement, DecisionRate):
        assert isinstance(rows, LinearRows)
        assert rows.mixing is not None
        outputs = compute_votes(torch.as_tensor(ensemble.answers(rows.inputs)))
        # decisions that rounding can change count as those that are worse for the row
        doubt = ensemble.find_unsure(rows.inputs) @ np.abs(rows.coefficients).T
        unsure = np.einsum("jk,kj->j", np.abs(rows.mixing), doubt)
    else:
        outputs = predictions(ensemble, rows.inputs)
        unsure = 0.0
    with torch.no_grad():
        values = rows.values(outputs).numpy()
    return RowViolations(outputs, compute_shortfall(rows.bounds, values) + unsure)


def _recomputed(
    requirement: Requirement,
    ensemble: Ensemble,
    rows: Rows,
    tolerance: float,
    threshold: float,
    held_out: Array | None,
    fresh: Array | None = None,
) -> Audit:
    """What predictions at the listed inputs make of every row."""
    outputs, violations = compute_row_violations(requirement, ensemble, rows)
    size = compute_requirement_size(
        requirement, ensemble.output_size, outputs=lambda: float(outputs.abs().max())
    )
    tolerances = tolerance * size.compute_row_sizes(rows.bounds)
    order = np.argsort(-violations, kind="stable")
    violated = order[violations[order] > tolerances[order]]
    thresholded = {}
    if isinstance(requirement, Rate):
        thresholded = requirement.decision_rates(outputs.numpy(), threshold)
    rates: tuple[GroupRate, ...] = ()
    if isinstance(requirement, GroupRates):
        held = None if held_out is None else is_among(requirement.points, held_out)
        if isinstance(requirement, DecisionRate):  # models that decide are trained on all rows
            held = None
        scores = outputs.numpy()[:, requirement.column]
        rates = compute_group_rates(requirement, scores, held, fresh)
    return Audit(
        requirement=requirement.name,
        strength=Strength.AUDITED,
        place=f"{_places(rows)} listed inputs",
        rows=len(rows),
        satisfied=len(rows) - len(violated),
        worst_violation=float(violations.max()),
        tolerance=float(tolerances.max()),
        violated=violated,
        violations=violations[violated],
        descriptions=_descriptions(requirement, rows, violated),
        decision_rates=thresholded,
        threshold=threshold if thresholded else None,
        rates=rates,
        effort={"search": "recomputation", "evaluations": len(rows.inputs)},
    )


def _places(rows: Rows) -> int:
    """How many inputs are listed; concave rows repeat an input that has several rules."""
    if isinstance(rows, ConcaveRows) and rows.origin is not None:
        return len(np.unique(rows.origin[:, 0]))
    return len(rows.inputs)


def _constructed(rule: Pointwise, ensemble: Ensemble, tolerance: float) -> Audit:
    """Kept by structure; what rounding leaves is measured at a few inputs all the same."""
    inputs = _looked_at(rule, ensemble.input_size)
    missed = rule.compute_violation(inputs, predictions(ensemble, inputs).numpy())
    return Audit(
        requirement=rule.name,
        strength=Strength.CONSTRUCTED,
        place=EVERY_INPUT,
        rows=0,
        satisfied=0,
        worst_violation=float(missed.max()),
        tolerance=tolerance,
        violated=np.empty(0, np.int64),
        violations=np.empty(0),
        descriptions=(),
        effort={"search": "structure of every member", "evaluations": len(inputs)},
    )


def _looked_at(rule: Pointwise, input_size: int) -> Array:
    """Those of its region or list; of a rule that names none, some at random."""
    if isinstance(rule.region, Region):
        return sample_candidates(rule.region, 64, torch.Generator().manual_seed(0))
    if isinstance(rule, OutputRule) or rule.inputs is None:
        generator = torch.Generator().manual_seed(0)
        return torch.randn(512, input_size, generator=generator).double().numpy()
    return rule.points


def _shape(shape: Shape, ensemble: Ensemble, tolerance: float, limit: int) -> Audit:
    """By the signs in the arrays of every member; inputs are compared all the same."""
    built = np.bool_(shapes.keeps(ensemble, shape))
    violations, inputs = shapes.find_worst_pairs(ensemble, shape)
    sums = predictions(ensemble, inputs).numpy() @ shape.functionals(ensemble.output_size).T
    tolerance = tolerance * (float(np.abs(sums).max()) or 1.0)
    order = np.argsort(-violations, kind="stable")[:limit]
    violated = order[(violations[order] > tolerance) & ~built]
    how = "structure of every member" if built else "pairs of inputs at random"
    return Audit(
        requirement=shape.name,
        strength=Strength.CONSTRUCTED if built else Strength.ATTACKED,
        place=EVERY_INPUT,
        rows=len(violated),
        satisfied=0,
        worst_violation=max(0.0, float(violations.max())) if built else float(violations.max()),
        tolerance=tolerance,
        violated=violated,
        violations=violations[violated],
        descriptions=tuple(f"from x = {_shown(inputs[j])}" for j in violated),
        effort={"search": how, "evaluations": len(violations)},
    )


def _shown(point: Array) -> str:
    shown = ", ".join(f"{value:.4g}" for value in point[:6])
    return f"[{shown}{', ...' if len(point) > 6 else ''}]"


def estimate_region_size(requirement: Requirement, ensemble: Ensemble) -> RequirementSize:
    """Over a region, where outputs are taken to be as large as at some of its inputs."""

    def largest() -> float:
        if not isinstance(requirement.region, Region):
            return 1.0
        inputs = sample_candidates(requirement.region, 64, torch.Generator().manual_seed(0))
        return float(predictions(ensemble, inputs).abs().max())

    return compute_requirement_size(requirement, ensemble.output_size, outputs=largest)


def _attacked(
    requirement: Requirement, found: SeparationResult, tolerance: float, size: RequirementSize
) -> Audit:
    sizes = np.full(len(found.violations), size.least)
    if found.rows is not None:
        sizes = size.compute_row_sizes(found.rows.bounds)
    violated = np.flatnonzero(found.violations > tolerance * sizes)
    tolerance = tolerance * size.least
    region = requirement.region
    excluded = found.bound is not None and found.bound <= tolerance
    return Audit(
        requirement=requirement.name,
        strength=Strength.BOUNDED if excluded else Strength.ATTACKED,
        place=str(region) if isinstance(region, Region) else "its region",
        rows=len(violated),
        satisfied=0,
        worst_violation=found.worst,
        tolerance=tolerance,
        violated=violated,
        violations=found.violations[violated],
        descriptions=() if found.rows is None else _descriptions(requirement, found.rows, violated),
        effort=found.effort if found.bound is None else {**found.effort, "bound": found.bound},
    )


def _descriptions(requirement: Requirement, rows: Rows, violated: IntArray) -> tuple[str, ...]:
    return tuple(requirement.describe(rows, int(j)) for j in violated)
