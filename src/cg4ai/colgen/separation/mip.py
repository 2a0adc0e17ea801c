"""`MixedInteger`: the most violated input of a linear rule and a bound on it, by branch and bound.

For mixtures of one-hidden-layer ReLU networks with linear outputs; `relu_peak.py` has the program.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cg4ai import clock
from cg4ai.colgen.separation.relu_peak import (
    NODES,
    Excess,
    Peak,
    check_region,
    climb,
    compute_line_bound,
    maximise_excess,
)
from cg4ai.colgen.separation.scan import collect_violations, get_search_region
from cg4ai.errors import InvalidInput
from cg4ai.members.relu import ReluNetwork
from cg4ai.protocols import SeparatorDefaults
from cg4ai.records import SeparationResult
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.requirement import as_whole_number
from cg4ai.rules.violations import OutputModel

if TYPE_CHECKING:
    from cg4ai.rules import Requirement


@dataclass(frozen=True)
class MixedInteger(SeparatorDefaults):
    """HiGHS on one program for each rule that simple bounds leave open, from the attack's best.

    The answer is optimal within `gap` (in the units of the rule), or has the bound that `nodes` of
    branch and bound, or `seconds`, for each program allowed: a count ends alike on all machines. At
    most `units` units may change their sign in the region. Bounds are proven up to the solver's
    tolerance of 1e-9 in every row. An `eager` search takes violated inputs that climbing found as
    they are, and asks programs for the other rules only whether any is violated: with many rules
    the cuts come sooner, and rules that are kept are bounded all the same, by the tolerance.
    """

    takes_any_rule = True

    nodes: int = NODES
    seconds: float = math.inf
    gap: float = 1e-6
    units: int = 1000
    starts: int = 16
    eager: bool = False

    def __post_init__(self) -> None:
        as_whole_number(self.nodes, "nodes", least=1)
        as_whole_number(self.units, "units", least=1)
        as_whole_number(self.starts, "starts", least=0)
        for what in ("seconds", "gap"):
            value = getattr(self, what)
            if not (isinstance(value, int | float) and value > 0):
                raise InvalidInput(f"{what} must be a number > 0, got {value!r}", code="range")
        if not math.isfinite(self.gap):
            raise InvalidInput(f"gap must be finite, got {self.gap!r}", code="range")

    def find(
        self,
        ensemble: OutputModel,
        requirement: Requirement,
        *,
        seed: int,
        limit: int,
        tolerance: float,
    ) -> SeparationResult:
        """At most `limit` rows violated by more than `tolerance`, worst first, and a bound."""
        started = clock.now()
        peaks = self.peaks(ensemble, requirement, seed=seed, tolerance=tolerance)
        effort: dict[str, Any] = {
            "search": "mixed-integer programs",
            "rules": len(peaks),
            "programs": sum(peak.units > 0 for peak in peaks),
            "units": max(peak.units for peak in peaks),
            "optimal": sum(peak.optimal for peak in peaks),
            "seconds": round(clock.now() - started, 3),
        }
        inputs = np.stack([peak.input for peak in peaks])
        found = collect_violations(
            ensemble, requirement, inputs, limit=limit, tolerance=tolerance, effort=effort
        )
        return replace(found, bound=max(found.worst, max(peak.bound for peak in peaks)))

    def peaks(
        self, ensemble: OutputModel, requirement: Requirement, *, seed: int, tolerance: float
    ) -> list[Peak]:
        """The best input and the bound of each rule in normal form, in order.

        A rule that lines above all units keep from being violated by more than `tolerance` needs
        no program: its input is the best that was climbed to.
        """
        region = get_search_region(requirement, "MixedInteger")
        check_region(region)
        network = ReluNetwork.of(ensemble)
        rules = get_linear_rules(requirement, len(network.bias))
        found = []
        for rule in range(len(rules)):
            own = rules.piece == rule
            total = network.combine_outputs(rules.constant[rule])
            excess = Excess(total, rules.limit[own], rules.tilt[own])
            start = climb(excess, region, starts=self.starts, seed=seed)
            bound = compute_line_bound(excess, region)
            value = float(excess.values(start[None])[0])
            if bound <= tolerance or (self.eager and value > tolerance):
                found.append(Peak(start, value, max(bound, value), optimal=bound <= tolerance))
                continue
            found.append(
                maximise_excess(
                    excess,
                    region,
                    start=start,
                    gap=self.gap,
                    nodes=self.nodes,
                    seconds=self.seconds,
                    units=self.units,
                    floor=tolerance if self.eager else None,
                )
            )
        return found

    def thorough(self) -> MixedInteger:
        """The same with ten times the effort."""
        return replace(self, nodes=10 * self.nodes, seconds=10 * self.seconds)


def get_linear_rules(requirement: Requirement, output_size: int) -> AffineRules:
    """The rules in normal form, or an error that says why no such program states them."""
    requirement.check(requirement.input_size, output_size)
    rules = requirement.normal_form
    if not isinstance(rules, AffineRules):
        raise InvalidInput(
            f"exact separation is for linear rules over a region (Linear, Margin, Probability), "
            f"and {requirement.name} ({type(requirement).__name__}) is none; use GradientAscent or "
            "BlackBox",
            code="unsupported",
        )
    if np.any(rules.value != 0):
        raise InvalidInput(
            f"{requirement.name} multiplies outputs by the input, which is bilinear, but exact "
            "separation needs constant coefficients; use cg4ai.certify, which proves such rules "
            "in cells",
            code="unsupported",
        )
    return rules
