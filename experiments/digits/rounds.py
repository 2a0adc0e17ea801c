"""`python -m experiments.digits rounds`: what small groups, priced by duals, add round after round.

The same problem by several ways, every member trained for equally many steps but in the last:

- duals: a group is trained on the loss of half the mixture, half the group, its rows weighted by
  the master's duals;
- equal rows: the same, every row weighing the same;
- alone: every row weighs the same, and the group is trained as if there were no mixture;
- one group: as many members as the rounds came to, trained together at once;
- longer: one small group trained for as many steps as all rounds together.

After each round the mixture of the master's weights is evaluated: rows met, test accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cg4ai import solve
from cg4ai.colgen.pricing.defaults import WrappingPricer
from cg4ai.compile.problem import Problem
from cg4ai.ensemble.audit import audit
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.members.mixture import Mixture
from cg4ai.protocols import Pricer, PricingRequest
from cg4ai.records import PricingResult
from experiments.digits.app import DigitsApplication
from experiments.digits.evaluate import TOLERANCE, Prepared, accuracy
from experiments.digits.problem import digit_settings, digits_problem, listed
from experiments.digits.settings import DigitsSettings
from experiments.pricing_controls import Change, ignore_mixture, use_duals, weigh_rows_equally

SMALL_GROUPS: dict[str, Change] = {
    "duals": use_duals,
    "equal rows": weigh_rows_equally,
    "alone": ignore_mixture,
}


@dataclass(frozen=True, slots=True)
class Round:
    """The mixture of the master's weights after so many groups."""

    rows_met: int
    test_accuracy: float


@dataclass(frozen=True)
class _Watched(WrappingPricer):
    """Shows what the master made of the members so far, then prices by a changed request.

    Whether there is enough is asked of the inner pricer by the request as it came.
    """

    inner: Pricer
    change: Change
    heard: list[Round]
    measure: Callable[[Mixture], Round]

    def price(self, request: PricingRequest) -> PricingResult:
        # asked again in an iteration, by other duals, the mixture is the same
        if request.ensemble is not None and request.iteration > len(self.heard):
            self.heard.append(self.measure(request.ensemble))
        return self.inner.price(self.change(request))


@dataclass(frozen=True, kw_only=True)
class Study:
    """One way to price, one seed: the rounds by the master's weights, then the final weights."""

    way: str
    seed: int
    columns: int
    rounds: list[Round]
    final: Round
    ended: str


def study(asked: DigitsSettings, way: str, change: Change) -> Study:
    """Train by one way to price, and listen."""
    prepared = DigitsApplication().prepare(asked, None)
    heard: list[Round] = []
    measure = _measure_of(prepared)
    problem = _watch(
        digits_problem(prepared.demand, asked, base=prepared.base), change, heard, measure
    )
    result = solve(problem, digit_settings(asked, prepared.demand))
    return Study(
        way=way,
        seed=asked.seed,
        columns=result.columns,
        rounds=heard,
        final=measure(result.ensemble),
        ended=result.stop_reason.value,
    )


def _watch(
    problem: Problem, change: Change, heard: list[Round], measure: Callable[[Mixture], Round]
) -> Problem:
    watched = tuple(_Watched(one, change, heard, measure) for one in problem.pricers)
    return replace(problem, pricers=watched)


def _measure_of(prepared: Prepared) -> Callable[[Mixture], Round]:
    assert prepared.demand.rows is not None
    rule = listed(*prepared.demand.rows, prepared.settings, name="required")

    def measure(mixture: Mixture) -> Round:
        ensemble = Ensemble(mixture.parts, mixture.layout)
        found = audit(rule, ensemble, tolerance=TOLERANCE)
        right = accuracy(ensemble.predict(prepared.split.test_images), prepared.split.test_labels)
        return Round(found.satisfied, right)

    return measure


def studies(asked: DigitsSettings) -> Iterator[Study]:
    """All ways, one after the other; the large group has as many members as the rounds came to."""
    ways = dict(SMALL_GROUPS)
    if asked.constraints_only:
        del ways["alone"]  # without a loss of the mixture it is the same as equal rows
    by_duals = None
    for way, change in ways.items():
        found = study(asked, way, change)
        by_duals = by_duals or found
        yield found
    assert by_duals is not None
    count = by_duals.columns // asked.group
    whole = replace(asked, rounds=1, group=by_duals.columns, column_limit=by_duals.columns)
    yield study(whole, "one group", use_duals)
    yield study(replace(asked, rounds=1, steps=count * asked.steps), "longer", use_duals)


def rows_of(found: Sequence[Study]) -> list[dict[str, Any]]:
    """A row for each way and seed."""
    return [
        {
            "seed": one.seed,
            "way": one.way,
            "members": one.columns,
            "rows met, by round": ", ".join(str(each.rows_met) for each in one.rounds),
            "in the end": one.final.rows_met,
            "test accuracy, by round": ", ".join(
                f"{100 * each.test_accuracy:.1f}" for each in one.rounds
            ),
            "with final weights": f"{100 * one.final.test_accuracy:.1f}",
            "ended": one.ended,
        }
        for one in found
    ]


def means_of(found: Sequence[Study]) -> list[dict[str, Any]]:
    """A row for each way: means over seeds, and the worst seed."""
    rows = []
    for way in dict.fromkeys(one.way for one in found):
        mine = [one for one in found if one.way == way]
        accuracies = [100 * one.final.test_accuracy for one in mine]
        rows.append(
            {
                "way": way,
                "seeds": len(mine),
                "members": float(np.mean([one.columns for one in mine])),
                "rows met, mean": float(np.mean([one.final.rows_met for one in mine])),
                "worst": min(one.final.rows_met for one in mine),
                "test accuracy, mean": float(np.mean(accuracies)),
                "worst accuracy": min(accuracies),
            }
        )
    return rows
