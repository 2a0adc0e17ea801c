"""What the rate of each group is, at the inputs of a rule and at those of them held out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cg4ai.records import Array
from cg4ai.rules.rates import Cell, DecisionRate, GroupRates

NORMAL = 1.959964  # intervals have 95 % confidence


@dataclass(frozen=True, slots=True)
class RateEstimate:
    """A rate, or a difference of two, over `count` inputs, with its 95 % interval for new ones.

    Rates of decisions have Wilson's interval; means of scores and differences the normal one. It
    takes the inputs for a fair sample, and what was trained on none: so it is given for held-out
    inputs alone.
    """

    value: float
    count: int
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} of {self.count} ({self.low:.4f} to {self.high:.4f})"


@dataclass(frozen=True, slots=True)
class GroupRate:
    """Of one group, or of one minus another: at all inputs of the rule, and at those held out.

    The rule keeps it between `least` and `most`; None: it has no such end.
    """

    group: str
    value: float
    count: int
    held_out: RateEstimate | None = None
    least: float | None = None
    most: float | None = None

    @property
    def doubtful(self) -> bool:
        """Whether new inputs are likely to break the rule: no value of the interval keeps it."""
        known = self.held_out
        if known is None:
            return False
        below = self.least is not None and known.high < self.least
        return below or (self.most is not None and known.low > self.most)

    def __str__(self) -> str:
        told = f"{self.group}: {self.value:.4f} of {self.count}"
        return told if self.held_out is None else f"{told}; held out {self.held_out}"


def compute_group_rates(
    rule: GroupRates,
    scores: Array,
    held: NDArray[np.bool_] | None = None,
    fresh: Array | None = None,
) -> tuple[GroupRate, ...]:
    """Rates of all groups, then their differences; `scores` (m,) at the inputs of the rule.

    `held` (m,) marks inputs that no member was trained on. Or `fresh` (m,) are scores at the inputs
    by models that were not trained there. Weights were fitted to them, but those are few numbers.
    """
    if fresh is not None:
        held = np.ones(len(scores), bool)
    apart = scores if fresh is None else fresh
    decided = isinstance(rule, DecisionRate)
    cells = rule.cells()
    found = [
        GroupRate(
            f"group {cell.group!r}{cell.condition}",
            float(scores[cell.inputs].mean()),
            cell.count,
            _estimate(_held(cell, apart, held), decided=decided),
            rule.low,
            rule.high,
        )
        for cell in cells
    ]
    for a, b in rule.pair_cells() if rule.tolerance is not None else ():
        found.append(
            GroupRate(
                f"group {a.group!r} minus group {b.group!r}{a.condition}",
                float(scores[a.inputs].mean() - scores[b.inputs].mean()),
                a.count + b.count,
                _difference(_held(a, apart, held), _held(b, apart, held)),
                -rule.tolerance,  # type: ignore[operator]
                rule.tolerance,
            )
        )
    return tuple(found)


def _held(cell: Cell, scores: Array, held: NDArray[np.bool_] | None) -> Array:
    return scores[:0] if held is None else scores[cell.inputs & held]


def _estimate(values: Array, *, decided: bool) -> RateEstimate | None:
    count = len(values)
    if count < 2:
        return None
    mean = float(values.mean())
    if not decided:
        half = NORMAL * float(values.std(ddof=1)) / np.sqrt(count)
        return RateEstimate(mean, count, mean - half, mean + half)
    share = NORMAL**2 / count
    middle = (mean + share / 2) / (1 + share)
    half = float(np.sqrt(mean * (1 - mean) * share + share**2 / 4)) / (1 + share)
    return RateEstimate(mean, count, max(0.0, middle - half), min(1.0, middle + half))


def _difference(one: Array, other: Array) -> RateEstimate | None:
    if min(len(one), len(other)) < 2:
        return None
    value = float(one.mean() - other.mean())
    error = float(np.sqrt(one.var(ddof=1) / len(one) + other.var(ddof=1) / len(other)))
    half = NORMAL * error
    return RateEstimate(value, len(one) + len(other), value - half, value + half)
