"""Which decisions keep rules on rates: few weights of scores, and thresholds between them.

A decision is for the class of the largest `s_0(x) + sum_i |v_i| s_i(x) + offsets`. s_0 is the score
of the classes, s_i that of belonging to a group (with one label), or of not belonging to it where
v_i < 0. In probabilities the most accurate decisions under such rules are of this form, the v_i
being the prices of the rules. Given v and all offsets but one, sorting inputs by how far a class
leads gives every set of decisions that this offset can make, with all rates and errors, by sums
over that order. So v is searched, few numbers, and thresholds are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from cg4ai.records import Array, IntArray
from cg4ai.rules import DecisionRate

KEPT = 1e-9  # rates are counts: by less nothing is missed
NARROW = 1e-6  # of the size of scores: gaps no wider have no threshold
AS_GOOD = 5e-4  # of all rows: how many more wrong decisions a wider gap may cost
WIDTH = 1.5  # how far weights of groups are looked for at first, in weights of the classes
ONE, TWO, MANY = 41, 11, 9  # values of each weight at first, where there are so many
FINEST = WIDTH / 256  # step of weights
TRIALS = 80  # while one choice is improved, for each weight
PRICED = 10  # times that prices are sought
ROUNDED = 0.05  # of the mean cost of a decision: how far the corners of its dual are rounded
MOST = 1.0  # of prices, in errors per rate
SHRUNK = 0.01  # of the variance of scores, added to it
FURTHEST = 10.0  # of weights that prices ask for


@dataclass(frozen=True, eq=False)
class Term:
    """Scores (U, r) for a group and label, and against them; `name` says which."""

    name: str
    ahead: Array
    against: Array


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores at U inputs: `base` (U, r) of the classes, and those of groups.

    `costs` (U, r) is what a decision for each class adds to the share of wrong ones, `forced` (U,)
    the class that rules over regions decide for, or -1.
    """

    base: Array
    terms: tuple[Term, ...]
    costs: Array
    forced: IntArray

    def mix(self, values: Array) -> Array:
        """(U, r) scores with these weights (k,) of the groups."""
        scores = self.base
        for value, term in zip(values, self.terms, strict=True):
            if value:
                scores = scores + abs(value) * (term.ahead if value > 0 else term.against)
        return scores

    def decide(self, values: Array, offsets: Array) -> IntArray:
        """(U,) classes."""
        found = (self.mix(values) + offsets).argmax(1)
        return np.asarray(np.where(self.forced < 0, found, self.forced))

    def take(self, chosen: NDArray[np.bool_]) -> ScoreTable:
        """At some of the inputs."""
        terms = tuple(Term(one.name, one.ahead[chosen], one.against[chosen]) for one in self.terms)
        return ScoreTable(self.base[chosen], terms, self.costs[chosen], self.forced[chosen])


@dataclass(frozen=True, eq=False)
class RateRows:
    """Rows `sum_u gains[j, u] [decision u = columns[j]] >= bounds[j]`, gains (m, U)."""

    gains: Array
    columns: IntArray
    bounds: Array

    @classmethod
    def of(
        cls, rates: Sequence[DecisionRate], places: Mapping[int, IntArray], count: int
    ) -> RateRows:
        """`places` says for the id of each list of points where these are among `count` inputs."""
        gains, columns, bounds = [], [], []
        for rate in rates:
            rows = rate.rows(0)
            own = np.zeros((len(rows), count))
            np.add.at(own.T, places[id(rate.points)], rows.mixing.T)  # type: ignore[union-attr]
            gains.append(own)
            columns.append(np.full(len(rows), rate.column))
            bounds.append(rows.bounds)
        return cls(np.concatenate(gains), np.concatenate(columns), np.concatenate(bounds))

    def compute_missed(self, decided: IntArray) -> float:
        """By how much the worst rate is missed by these decisions (U,)."""
        reached = np.where(decided[None] == self.columns[:, None], self.gains, 0.0).sum(1)
        return float(np.maximum(self.bounds - reached, 0.0).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class Choice:
    """Weights (k,) of groups, offsets (r,), and what comes of them; better ones rank lower."""

    values: Array
    offsets: Array
    missed: float
    error: float

    @property
    def rank(self) -> tuple[float, float]:
        return (0.0 if self.missed <= KEPT else self.missed, self.error)

    @property
    def is_kept(self) -> bool:
        return self.missed <= KEPT


@dataclass(frozen=True, eq=False)
class _Curve:
    """All decisions that the offset of one class can make: for it at the first k inputs."""

    leads: Array  # (n,), falling
    reached: Array  # (m, n + 1)
    error: Array  # (n + 1,)
    size: float  # of the scores


class _Side:
    """A table of scores with the rows that are counted there."""

    def __init__(self, table: ScoreTable, rows: RateRows) -> None:
        self.table, self.rows = table, rows
        free = table.forced < 0
        self.whole = bool(free.all())
        self.free = np.flatnonzero(free)
        self.gains, self.costs = rows.gains[:, free], table.costs[free]
        fixed = np.flatnonzero(~free)
        classes = table.forced[fixed]
        self.fixed_error = float(table.costs[fixed, classes].sum())
        hit = classes[None] == rows.columns[:, None]
        self.fixed_values = np.where(hit, rows.gains[:, fixed], 0.0).sum(1)

    def curve(self, values: Array, offsets: Array, one: int) -> _Curve:
        scores = self.table.mix(values)
        scores = scores if self.whole else scores[self.free]
        size = max(1.0, float(np.abs(scores).max(initial=0.0)))
        if scores.shape[1] == 2:
            instead = np.full(len(scores), 1 - one)
            lead = scores[:, one] - scores[:, 1 - one] - offsets[1 - one]
        else:
            others = scores + offsets
            others[:, one] = -np.inf
            instead = others.argmax(1)
            lead = scores[:, one] - others.max(1)
        order = np.argsort(-lead, kind="stable")
        lead, instead, costs = lead[order], instead[order], self.costs[order]
        gains, columns = self.gains[:, order], self.rows.columns
        number = np.arange(len(order))
        begin, change = self.fixed_values, gains
        if (columns != one).any():
            hit = instead[None] == columns[:, None]
            begin = begin + np.where(hit, gains, 0.0).sum(1)
            change = np.where((columns == one)[:, None], gains, 0.0) - np.where(hit, gains, 0.0)
        before = costs[number, instead]
        error = self.fixed_error + before.sum() + _running((costs[:, one] - before)[None])[0]
        return _Curve(lead, begin[:, None] + _running(change), error, size)

    def missed(self, curve: _Curve, bounds: Array) -> Array:
        return np.asarray(np.maximum(bounds[:, None] - curve.reached, 0.0).max(0))


class DecisionSearch:
    """The best weights and offsets for each of several bounds (m,) of the same rows.

    `fresh` are scores of models that were not trained at their inputs: rates and errors there are
    what new inputs are likely to have. `listed`, if it is given, are those of the models that will
    decide, and the rows that decisions must keep there as well.
    """

    def __init__(
        self,
        fresh: tuple[ScoreTable, RateRows],
        bounds: Sequence[Array] = (),
        listed: tuple[ScoreTable, RateRows] | None = None,
        trials: int = TRIALS,
    ) -> None:
        self.trials = trials
        self.fresh = _Side(*fresh)
        self.listed = None if listed is None else _Side(*listed)
        self.bounds = list(bounds) or [fresh[1].bounds]
        # of two classes one threshold is enough
        two = fresh[0].base.shape[1] == 2
        self.classes = [1] if two else np.unique(fresh[1].columns).tolist()
        none = np.zeros(len(fresh[0].terms))
        # a rule that nothing was looked at for is missed by more than any other
        worst = Choice(none, np.zeros(fresh[0].base.shape[1]), np.inf, np.inf)
        self.best = [worst for _ in self.bounds]
        self.directions = np.zeros((0, len(none)))

    def run(self) -> list[Choice]:
        """Coarsely, then each choice improved by ever smaller steps."""
        self._try_coarsely(len(self.best[0].values))
        for level in range(len(self.bounds)):
            self._improve(level)
        return self.best

    def _try_prices(self) -> None:
        """What is most accurate at prices of the rows, for prices that make decisions keep them.

        Costs and gains of decisions are estimated from the scores, as a line in them: then a price
        for each row gives weights, and the best prices solve a small convex program. Its bounds are
        moved by what the estimate is wrong by.
        """
        one = self.classes[0]
        guess = _Estimate(self.fresh, one)
        self.directions = guess.directions
        for bounds in self.bounds:
            bias = np.zeros(len(bounds))
            for _ in range(PRICED):
                prices = guess.find_prices(bounds - bias)
                values = guess.convert(prices)
                if values is None:
                    break
                self.look(values)
                bias = (bias + guess.compute_bias(prices)) / 2  # all at once it would swing

    def _try_coarsely(self, count: int) -> None:
        if count:
            self._try_prices()
        if count <= 2:
            steps = np.linspace(-WIDTH, WIDTH, {0: 1, 1: ONE, 2: TWO}[count])
            for found in product(*[steps] * count):
                self.look(np.array(found))
            return
        self.look(np.zeros(count))
        for number, value in product(range(count), np.linspace(-WIDTH, WIDTH, MANY)):
            for start in {id(one): one for one in self.best}.values():
                values = start.values.copy()
                values[number] = value
                self.look(values)

    def _improve(self, level: int) -> None:
        step, last = WIDTH / 8, self.trials * len(self.best[level].values)
        while step >= FINEST and last > 0:
            before = self.best[level]
            for values in _moved(before.values, step, self.directions):
                self.look(values)
                last -= 1
            if self.best[level] is before:
                step /= 2

    def look(self, values: Array) -> None:
        """Take these weights for every bound that they are best for."""
        sides = [self.fresh] if self.listed is None else [self.fresh, self.listed]
        shared: dict[bytes, list[_Curve]] = {}
        for level, bounds in enumerate(self.bounds):
            found = replace(self.best[level], values=values, offsets=0 * self.best[level].offsets)
            for one in self.classes * (1 if len(self.classes) == 1 else 2):
                key = found.offsets.tobytes() + bytes([one])
                if key not in shared:
                    shared[key] = [side.curve(values, found.offsets, one) for side in sides]
                found = self._cut(found, shared[key], bounds, one)
            if found.rank < self.best[level].rank:
                self.best[level] = found

    def _cut(self, found: Choice, curves: list[_Curve], bounds: Array, one: int) -> Choice:
        """With the best offset for class `one`: a threshold between two fresh scores."""
        curve = curves[0]
        ends = _ends(curve.leads)
        at = (ends[:-1] + ends[1:]) / 2
        missed = self.fresh.missed(curve, bounds)
        if self.listed is not None:
            known = curves[1]
            own = self.listed.missed(known, self.listed.rows.bounds)
            missed = missed + own[np.searchsorted(-known.leads, -at)]
        allowed = ends[:-1] - ends[1:] > NARROW * curve.size
        cut = _best(np.where(allowed, missed, np.inf), curve.error)
        offsets = found.offsets.copy()
        offsets[one] = -at[cut]
        return replace(
            found, offsets=offsets, missed=float(missed[cut]), error=float(curve.error[cut])
        )

    def settle(self, found: Choice) -> Choice:
        """The same with thresholds in the widest gaps between listed scores that are as good.

        So rounding moves no listed input across one.
        """
        assert self.listed is not None
        for one in self.classes:
            known = self.listed.curve(found.values, found.offsets, one)
            curve = self.fresh.curve(found.values, found.offsets, one)
            ends = _ends(known.leads)
            at, gap = (ends[:-1] + ends[1:]) / 2, ends[:-1] - ends[1:]
            place = np.searchsorted(-curve.leads, -at)
            missed = self.listed.missed(known, self.listed.rows.bounds)
            missed = missed + self.fresh.missed(curve, self.bounds[0])[place]
            error = curve.error[place]
            missed = np.where(gap > NARROW * known.size, missed, np.inf)
            cut = _best(missed, error)
            good = (missed <= max(missed[cut], KEPT)) & (error <= error[cut] + AS_GOOD)
            # near the one that was found: far away, gaps are wide and hold nobody
            far = np.abs(np.arange(len(at)) - cut) > max(1, AS_GOOD * len(at))
            cut = int(np.argmax(np.where(good & ~far, gap, -np.inf)))
            offsets = found.offsets.copy()
            offsets[one] = -at[cut]
            found = replace(
                found, offsets=offsets, missed=float(missed[cut]), error=float(error[cut])
            )
        return found


class _Estimate:
    """What a decision for class `one` costs, and adds to each row, as a line in the leads."""

    def __init__(self, side: _Side, one: int) -> None:
        table, rows = side.table, side.rows
        leads = [_lead_of(scores, one) for scores in (table.base, *(t.ahead for t in table.terms))]
        self.known = np.stack([np.ones(len(leads[0])), *leads], axis=1)[side.free]
        other = np.delete(side.costs, one, axis=1).min(1)
        self.mine = rows.columns == one
        self.gains = side.gains[self.mine]
        # errors depend on the scores of the classes alone, as far as these are chances
        self.cost = np.zeros(self.known.shape[1])
        self.cost[:2] = _fit(self.known[:, :2], (side.costs[:, one] - other)[None])[0]
        self.slopes = _fit(self.known, self.gains)
        self.fixed = side.fixed_values[self.mine]
        self.unit = float(np.abs(self.known @ self.cost).mean()) or 1.0
        sizes = np.linalg.norm(self.slopes[:, 2:], axis=1, keepdims=True)
        ways = self.slopes[:, 2:] / np.where(sizes > 0, sizes, 1.0)
        self.directions = ways[::2] if len(ways) > 1 else ways  # rows come in pairs of signs

    def find_prices(self, bounds: Array) -> Array:
        """(m,) of the rows: they maximise the Lagrangian's minimum, a little rounded."""
        asked = bounds[self.mine] - self.fixed
        costs, gains = self.known @ self.cost, self.known @ self.slopes.T
        soft = ROUNDED * self.unit

        def lacking(prices: Array) -> tuple[float, Array]:
            worth = (gains @ prices - costs) / soft
            value = soft * float(np.logaddexp(0.0, worth).sum()) - float(prices @ asked)
            return value, gains.T @ expit(worth) - asked

        start = np.zeros(len(asked))
        limits = [(0.0, MOST)] * len(asked)
        found = minimize(lacking, start, jac=True, method="L-BFGS-B", bounds=limits)
        return np.asarray(found.x)

    def convert(self, prices: Array) -> Array | None:
        """Weights (k,) of the groups at these prices; None where the classes have none."""
        line = prices @ self.slopes - self.cost
        if line[1] <= 0:
            return None
        return np.asarray(np.clip(line[2:] / line[1], -FURTHEST, FURTHEST))

    def compute_bias(self, prices: Array) -> Array:
        """(m,) of all rows: what decisions at these prices really reach, beyond the estimate."""
        decided = self.known @ (prices @ self.slopes - self.cost) > 0
        found = np.zeros(len(self.mine))
        found[self.mine] = (self.gains - self.slopes @ self.known.T) @ decided
        return found


def _fit(known: Array, wanted: Array) -> Array:
    """(m, k): lines in the known (U, k), the first of which is 1, for wanted (m, U); shrunk.

    Scores of groups are nearly sums of others, so that lines without shrinking would be any.
    """
    spread = known.std(0)
    spread[0] = 0.0
    shrink = len(known) * SHRUNK * np.diag(spread**2)
    found = np.linalg.lstsq(known.T @ known + shrink, known.T @ wanted.T, rcond=None)[0]
    return np.asarray(found.T, np.float64)


def _lead_of(scores: Array, one: int) -> Array:
    return np.asarray(scores[:, one] - np.delete(scores, one, axis=1).max(1))


def _moved(values: Array, step: float, directions: Array) -> Iterator[Array]:
    for way in (*np.eye(len(values)), *directions):
        for sign in (1, -1):
            yield values + sign * step * way


def _running(values: Array) -> Array:
    """(m, n) -> (m, n + 1): sums of the first 0, 1, ..., n."""
    return np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)


def _ends(lead: Array) -> Array:
    """Leads, falling, with one more on both sides, so that a threshold may lie beyond all."""
    if not len(lead):
        return np.array([1.0, -1.0])
    room = max(1.0, float(lead[0] - lead[-1]))
    return np.concatenate([[lead[0] + room], lead, [lead[-1] - room]])


def _best(missed: Array, error: Array) -> int:
    """The cut that misses rates least, with the least error."""
    allowed = missed <= max(float(missed.min()), KEPT)
    return int(np.argmin(np.where(allowed, error, np.inf)))
