"""What decisions cost: accuracy against the gap between groups, on rows that chose nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cg4ai.data import arrays
from cg4ai.ensemble.decision_search import Choice, DecisionSearch, RateRows, ScoreTable
from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray
from cg4ai.rules import DecisionRate

TOLERANCES = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3)
BRIEF = 16  # steps by which each point is improved, for each weight


@dataclass(frozen=True)
class FrontierPoint:
    """One tolerance, and what decisions under it reached on rows that they were not chosen by.

    `gap` is the largest difference of two groups' rates, with its standard error.
    """

    tolerance: float
    gap: float
    gap_error: float
    accuracy: float
    accuracy_error: float


@dataclass(frozen=True)
class Frontier:
    """Accuracy against the gap for a range of tolerances; `unbound` are decisions by no rule.

    Each row is decided by models that were not trained on it and by thresholds that were not
    chosen by it, in as many folds as scores are cross-fitted on.
    """

    rule: str
    rows: int
    points: tuple[FrontierPoint, ...]
    unbound: FrontierPoint

    def table(self) -> list[dict[str, float]]:
        """One dictionary per tolerance, as for `pandas.DataFrame`; the last is without the rule."""
        return [
            {
                "tolerance": one.tolerance,
                "gap": one.gap,
                "gap_error": one.gap_error,
                "accuracy": one.accuracy,
                "accuracy_error": one.accuracy_error,
            }
            for one in (*self.points, self.unbound)
        ]

    def __str__(self) -> str:
        lines = [
            f"{self.rule}: decisions on {self.rows} rows that they were not chosen by",
            "tolerance   gap (standard error)   accuracy",
        ]
        for one in (*self.points, self.unbound):
            asked = f"{one.tolerance:9.3f}" if np.isfinite(one.tolerance) else "  no rule"
            lines.append(f"{asked}   {one.gap:.4f} ({one.gap_error:.4f})        {one.accuracy:.4f}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class DecisionStudy:
    """What decisions were chosen by: cross-fitted scores, the rules as asked, and the choice.

    `table` are scores at U distinct inputs by models that were not trained there, `folds` (U,)
    which of these that were; `places` says for the id of each list of points where these are.
    """

    table: ScoreTable
    rates: tuple[DecisionRate, ...]
    places: Mapping[int, IntArray]
    folds: IntArray
    choice: Choice
    small_groups: tuple[str, ...] = ()  # what is to be said of groups too small for the tolerance

    def __getstate__(self) -> dict[str, Any]:
        lists = [self.places[id(one.points)] for one in self.rates]  # ids change where it is read
        return {**self.__dict__, "places": lists}

    def __setstate__(self, state: dict[str, Any]) -> None:
        lists = dict(zip((id(one.points) for one in state["rates"]), state["places"], strict=True))
        self.__dict__.update({**state, "places": lists})

    @property
    def accuracy(self) -> float:
        """Of the decisions, where no model that scores was trained."""
        return 1.0 - self.choice.error

    @property
    def unbound_accuracy(self) -> float:
        """The same by the largest score of the classes, without the rules."""
        return 1.0 - self._error(self.table.base.argmax(1))

    def decide_listed(self, rate: DecisionRate) -> Array | None:
        """(m,) 1 where the rule's inputs are decided for its class by cross-fitted scores."""
        place = self.places.get(id(rate.points))
        if place is None:
            return None
        decided = self.table.decide(self.choice.values, self.choice.offsets)
        return np.asarray(decided[place] == rate.column, np.float64)

    def frontier(self, tolerances: Sequence[float] | None = None) -> Frontier:
        """Decisions for each of these tolerances, in place of the rule's own.

        Margins are left out: a point says what a tolerance becomes on rows that chose nothing.
        """
        ruled = [one for one in self.rates if one.tolerance is not None]
        if not ruled:
            raise InvalidInput(
                "a frontier varies the tolerance between groups, and no rule on decisions has one",
                code="unsupported",
            )
        asked = arrays.as_numbers(TOLERANCES if tolerances is None else tolerances, "tolerances")
        if asked.ndim != 1 or not len(asked) or (asked < 0).any() or (asked > 1).any():
            raise InvalidInput(
                "tolerances must be one or more numbers between 0 and 1", code="range"
            )
        decided = np.zeros((len(asked), len(self.folds)), np.int64)
        for fold in np.unique(self.folds):
            for level, choice in enumerate(self._choose(self.folds != fold, asked)):
                found = self.table.decide(choice.values, choice.offsets)
                decided[level] = np.where(self.folds == fold, found, decided[level])
        points = [self._point(float(t), one) for t, one in zip(asked, decided, strict=True)]
        unbound = self._point(np.inf, self.table.base.argmax(1))
        return Frontier(ruled[0].name, len(self.folds), tuple(points), unbound)

    def _choose(self, kept: Any, tolerances: Array) -> list[Choice]:
        """The best decisions for each tolerance on some of the inputs alone."""
        number = np.cumsum(kept) - 1
        rates, places = [], {}
        for one in self.rates:
            place = self.places[id(one.points)]
            part = one.restrict_to(kept[place])
            if part is None:
                raise InvalidInput(
                    f"{one.name} has a group that lies in one fold alone: too few rows",
                    code="small-groups",
                )
            rates.append(part)
            places[id(part.points)] = number[place[kept[place]]]
        rows = RateRows.of(rates, places, int(kept.sum()))
        bounds = []
        for tolerance in tolerances:
            own = [
                one if one.tolerance is None else one.with_tolerance(float(tolerance))
                for one in rates
            ]
            bounds.append(np.concatenate([one.rows(0).bounds for one in own]))
        return DecisionSearch((self.table.take(kept), rows), bounds, trials=BRIEF).run()

    def _point(self, tolerance: float, decided: IntArray) -> FrontierPoint:
        gap, gap_error = 0.0, 0.0
        for rate in self.rates:
            hit = decided[self.places[id(rate.points)]] == rate.column
            for a, b in rate.pair_cells() if rate.tolerance is not None else ():
                first, second = hit[a.inputs], hit[b.inputs]
                apart = abs(float(first.mean() - second.mean()))
                if apart >= gap:
                    gap = apart
                    gap_error = float(
                        np.sqrt(first.var() / len(first) + second.var() / len(second))
                    )
        right = 1.0 - self._error(decided)
        error = float(np.sqrt(max(right * (1 - right), 0.0) / len(self.folds)))
        return FrontierPoint(tolerance, gap, gap_error, right, error)

    def _error(self, decided: IntArray) -> float:
        return float(self.table.costs[np.arange(len(decided)), decided].sum())
