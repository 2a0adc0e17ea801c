"""How a mixture decides that keeps rules on decisions: final weights, and thresholds on scores.

Given weights of the members' scores and all offsets but one, sorting the listed inputs by how far
a class leads gives every set of decisions that its offset can make, with all rates and errors, by
sums over that order. So weights are searched, few numbers, and thresholds are exact. A threshold
lies in the middle of a gap between the leads of listed inputs, the widest of those that are about
as good, so that rounding moves no listed input across it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cg4ai.colgen import tolerances
from cg4ai.colgen.restricted_master import Workspace
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.data.arrays import group_same_inputs
from cg4ai.ensemble.decision_rule import AGREED, Decider, compute_leads
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import FitWarning
from cg4ai.objectives import Supervised, compute_votes
from cg4ai.records import Array, IntArray
from cg4ai.rules import DecisionRate, OutputRule, Requirement
from cg4ai.rules.regions import Region
from cg4ai.rules.rows import LinearRows, compute_shortfall

NARROW = 1e-6  # of the size of scores: gaps no wider have no threshold
AS_GOOD = 5e-4  # of all rows: how many more wrong decisions a wider gap may cost
KEPT = 1e-9  # rates are counts: by less nothing is missed
MEMBERS = 8  # of largest weight, whose scores decide
SHARES = 8  # steps in which two members are mixed at first
BEST = 2  # mixtures that are improved
FINEST = 1 / 256  # step of weights
TRIALS = 400  # mixtures looked at while the best are improved
FREE = 2.0  # more than rates can differ by
UNKEPT = (
    "the margin of a rule on decisions cannot be kept by the members that were found: the rule is "
    "kept as asked, at the listed inputs, and may be missed by more on new ones"
)
WORTH_SAYING = 0.01  # of all rows: how many more wrong decisions are


@dataclass(frozen=True, slots=True)
class DecisionWeights:
    """Weights of the mixture, how it decides, and what is to be said."""

    weights: Array
    decider: Decider
    note: str


def choose_decisions(work: Workspace, weights: Array) -> DecisionWeights:
    """Weights and thresholds with which the decisions at the listed inputs keep the rules.

    Margins that no weights keep are given up first, and so are those that no thresholds were found
    for, with a warning.
    """
    note = ""
    if (missed := _missed_margins(work, weights)).any():
        note = UNKEPT
        weights = work.solve_tightened(missed).weights
    ensemble = work.whole_ensemble(weights)
    listed = MemberScores(ensemble, work.problem)
    trained = _rates(work.problem.requirements)
    asked = _rates(work.problem.asked)
    found = find_thresholds(listed, asked if note else trained)
    if not (found.is_kept or note or all(one in asked for one in trained)):
        note, found = UNKEPT, find_thresholds(listed, asked)
    if note:
        warnings.warn(note, FitWarning, stacklevel=2)
    notes = [note] if note else []
    if not found.is_kept:
        notes.append(
            f"no thresholds were found with which decisions keep the rules: they miss one by "
            f"{found.missed:.3g}"
        )
    if found.error > listed.error_of_votes + WORTH_SAYING:
        notes.append(
            f"decisions are wrong at {found.error:.1%} of the rows; drawn at random by shares of "
            f"votes they would be at {listed.error_of_votes:.1%}"
        )
    return DecisionWeights(weights, found.decider, "; ".join(notes))


def build_single_decider(ensemble: Ensemble) -> Decider:
    """The decisions of the only member of a mixture: the class of its largest score."""
    count = sum(len(part.weights) for part in ensemble.parts)
    return Decider(np.full(count, 1 / count), np.zeros(ensemble.output_size))


def _rates(requirements: Sequence[Requirement]) -> list[DecisionRate]:
    return [one for one in requirements if isinstance(one, DecisionRate)]


def _missed_margins(work: Workspace, weights: Array) -> Array:
    """(m,): by how much rows of the master change where a margin is missed by shares of votes.

    A rule that is stricter than asked becomes the one asked, one at held-out inputs alone asks for
    nothing. All 0 if no margin is missed.
    """
    easier, short = np.zeros(len(work.rows)), np.zeros(len(work.rows))
    used = np.flatnonzero(weights > 0)
    share = weights[used] / weights[used].sum()
    start = 0
    for batch in work.rows.batches:
        place = slice(start, start + len(batch))
        start = place.stop
        if not (isinstance(batch, LinearRows) and batch.votes):
            continue
        rule = work.problem.requirements[batch.requirement]
        assert isinstance(rule, DecisionRate)
        asked: DecisionRate = rule.asked or rule
        whole = len(asked.points) == len(batch.inputs)
        bounds = asked.rows(batch.requirement).bounds if whole else None
        easier[place] = -FREE if bounds is None else bounds - batch.bounds
        cast = compute_votes(work.columns.outputs(batch.inputs)).cpu().numpy()[used]
        values = replace(batch, votes=False).values(torch.as_tensor(np.tensordot(share, cast, 1)))
        short[place] = compute_shortfall(batch.bounds, values.numpy())
    missed = (short > tolerances.FEASIBILITY_TOLERANCE) & (easier < 0)
    return easier if missed.any() else np.zeros(len(easier))


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows `sum_u gains[j, u] [decision u = columns[j]] >= bounds[j]`, gains (m, U)."""

    gains: Array
    columns: IntArray
    bounds: Array


class MemberScores:
    """The scores of a mixture's members where its data and its rules on decisions are.

    `scores` (k, U, r) of the members of largest weight at distinct inputs, `costs` (U, r) what a
    decision for each class adds to the share of wrong ones, `forced` (U,) the class on which all
    members agree, or -1.
    """

    def __init__(self, ensemble: Ensemble, problem: CompiledProblem) -> None:
        objective = problem.objective
        assert isinstance(objective, Supervised)
        wanted = [*problem.requirements, *problem.asked]
        lists = {id(one.points): one.points for one in wanted if isinstance(one, DecisionRate)}
        stacked = np.concatenate([objective.inputs, *lists.values()])
        first, which = group_same_inputs(stacked)
        starts = np.cumsum([len(objective.inputs), *map(len, lists.values())])[:-1]
        own, *places = np.split(np.asarray(which).reshape(-1), starts)
        self._places = dict(zip(lists, places, strict=True))
        self.members = sum(len(part.weights) for part in ensemble.parts)
        weights = np.concatenate([part.weights for part in ensemble.parts])
        with torch.no_grad():
            x = torch.as_tensor(stacked[first], device=ensemble.device)
            outputs = [part.members.outputs(x).cpu() for part in ensemble.parts]
        scores = torch.cat(outputs)
        self.forced = np.full(scores.shape[1], -1)
        self.agreement = any(
            isinstance(one.region, Region) or isinstance(one, OutputRule) for one in wanted
        )
        if self.agreement:
            least = compute_leads(scores[weights > 0]).amin(0).numpy()
            self.forced = np.where(least.max(1) > AGREED, least.argmax(1), -1)
        self.costs = _costs(objective, own, scores.shape[1:])
        votes = scores.argmax(-1).numpy()
        wrong = self.costs[np.arange(scores.shape[1]), votes].sum(1)
        self.error_of_votes = float(weights @ wrong / weights.sum())
        told = (scores.amax(1) > scores.amin(1)).any(-1).numpy()  # constants tell nothing
        use = np.where(told, weights, 0.0) if (told & (weights > 0)).any() else weights
        self.chosen = np.argsort(-use, kind="stable")[: min(MEMBERS, int((use > 0).sum()))]
        self.scores = scores.numpy()[self.chosen]
        self.weights = use[self.chosen] / use[self.chosen].sum()

    def rows(self, rates: Sequence[DecisionRate]) -> _Rows:
        gains, columns, bounds = [], [], []
        for rate in rates:
            rows = rate.rows(0)
            own = np.zeros((len(rows), self.scores.shape[1]))
            np.add.at(own.T, self._places[id(rate.points)], rows.mixing.T)  # type: ignore[union-attr]
            gains.append(own)
            columns.append(np.full(len(rows), rate.column))
            bounds.append(rows.bounds)
        return _Rows(np.concatenate(gains), np.concatenate(columns), np.concatenate(bounds))

    def build_decider(self, weights: Array, offsets: Array) -> Decider:
        """Of the whole ensemble, from weights (k,) of the members that are looked at."""
        every = np.zeros(self.members)
        every[self.chosen] = weights
        return Decider(every, offsets, self.agreement)


def _costs(objective: Supervised, place: IntArray, shape: Sequence[int]) -> Array:
    labels = np.asarray(objective.targets, np.int64)
    given = objective.sample_weight
    share = np.full(len(labels), 1 / len(labels)) if given is None else given / given.sum()
    costs = np.zeros(shape)
    np.add.at(costs, place, share[:, None])
    np.add.at(costs, (place, labels), -share)
    return costs


class Thresholds(NamedTuple):
    """How to decide, by how much the worst rate is missed then, and the share of wrong ones."""

    decider: Decider
    missed: float
    error: float

    @property
    def is_kept(self) -> bool:
        return self.missed <= KEPT


@dataclass(frozen=True, eq=False)
class _Choice:
    """Weights (k,), offsets (r,), and what comes of them; better ones compare as less."""

    weights: Array
    offsets: Array
    missed: float
    error: float

    @property
    def rank(self) -> tuple[float, float]:
        return (0.0 if self.missed <= KEPT else self.missed, self.error)


def find_thresholds(listed: MemberScores, rates: Sequence[DecisionRate]) -> Thresholds:
    """Of the mixtures that are tried, the one that keeps all rates with the fewest wrong decisions.

    If none keeps them, the one that misses them least.
    """
    search = _WeightSearch(listed, listed.rows(rates))
    tried = [search.find_offsets(weights) for weights in _first(listed.weights)]
    best = min(
        (search.improve(one) for one in sorted(tried, key=lambda one: one.rank)[:BEST]),
        key=lambda one: one.rank,
    )
    final = search.find_offsets(best.weights, wide=True)
    return Thresholds(listed.build_decider(final.weights, final.offsets), final.missed, final.error)


def _first(weights: Array) -> Iterator[Array]:
    """The master's weights, each member alone, and two of them mixed."""
    yield weights
    if len(weights) == 1:
        return
    single = np.eye(len(weights))
    yield from single
    for one, other in combinations(single, 2):
        for step in range(1, SHARES):
            yield one + step / SHARES * (other - one)


class _WeightSearch:
    def __init__(self, listed: MemberScores, rows: _Rows) -> None:
        self.listed, self.rows = listed, rows
        self.trials = 0
        free = listed.forced < 0
        self.free = np.flatnonzero(free)
        self.gains, self.costs = rows.gains[:, free], listed.costs[free]
        fixed = np.flatnonzero(~free)
        classes = listed.forced[fixed]
        self.fixed_error = float(listed.costs[fixed, classes].sum())
        hit = classes[None] == rows.columns[:, None]
        self.fixed_values = np.where(hit, rows.gains[:, fixed], 0.0).sum(1)
        # of two classes one threshold is enough
        ruled = np.unique(rows.columns).tolist()
        self.classes = [1] if listed.scores.shape[2] == 2 else ruled

    def find_offsets(self, weights: Array, *, wide: bool = False) -> _Choice:
        """The best offsets for these weights, one class after the other."""
        self.trials += 1
        scores = np.tensordot(weights, self.listed.scores[:, self.free], 1)
        found = _Choice(weights, np.zeros(scores.shape[1]), np.inf, np.inf)
        for _ in range(1 if len(self.classes) == 1 else 2):
            for one in self.classes:
                found = self._swept(found, scores, one, wide=wide)
        return found

    def _swept(self, found: _Choice, scores: Array, one: int, *, wide: bool) -> _Choice:
        """With the best offset for class `one`."""
        others = scores + found.offsets
        others[:, one] = -np.inf
        instead = others.argmax(1)
        lead = scores[:, one] - others.max(1)
        order = np.argsort(-lead, kind="stable")
        lead, instead, costs = lead[order], instead[order], self.costs[order]
        number = np.arange(len(order))
        hit = instead[None] == self.rows.columns[:, None]
        gains = self.gains[:, order]
        change = np.where((self.rows.columns == one)[:, None], gains, 0.0) - np.where(hit, gains, 0)
        values = self.fixed_values + np.where(hit, gains, 0.0).sum(1)
        reached = values[:, None] + _running(change)
        missed = np.maximum(self.rows.bounds[:, None] - reached, 0.0).max(0)
        start = self.fixed_error + costs[number, instead].sum()
        error = start + _running((costs[:, one] - costs[number, instead])[None])[0]
        # class `one` at the first k inputs, with a threshold between the leads of k - 1 and k
        ends = _ends(lead)
        gap = ends[:-1] - ends[1:]
        size = NARROW * max(1.0, float(np.abs(scores).max(initial=0.0)))
        cut = _best(missed, error, gap, size, wide=wide)
        offsets = found.offsets.copy()
        offsets[one] = -(ends[cut] + ends[cut + 1]) / 2
        return replace(found, offsets=offsets, missed=float(missed[cut]), error=float(error[cut]))

    def improve(self, found: _Choice) -> _Choice:
        """By moving weight to a member, or away from it, in ever smaller steps."""
        step, last = 0.25, self.trials + TRIALS // BEST
        while step >= FINEST and len(found.weights) > 1:
            better = min(
                (self.find_offsets(one) for one in _moved(found.weights, step)),
                key=lambda one: one.rank,
            )
            if better.rank < found.rank:
                found = better
            else:
                step /= 2
            if self.trials >= last:
                break
        return found


def _moved(weights: Array, step: float) -> Iterator[Array]:
    for number in range(len(weights)):
        more = (1 - step) * weights
        more[number] += step
        yield more
        less = weights.copy()
        less[number] *= 1 - step
        if less.sum() > 0 and less[number] < weights[number] < 1:
            yield less / less.sum()


def _running(values: Array) -> Array:
    """(m, n) -> (m, n + 1): sums of the first 0, 1, ..., n."""
    return np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)


def _ends(lead: Array) -> Array:
    """Leads, falling, with one more on both sides, so that a threshold may lie beyond all."""
    if not len(lead):
        return np.array([1.0, -1.0])
    room = max(1.0, float(lead[0] - lead[-1]))
    return np.concatenate([[lead[0] + room], lead, [lead[-1] - room]])


def _best(missed: Array, error: Array, gap: Array, size: float, *, wide: bool) -> int:
    """The cut that misses rates least, with the least error; of those as good the widest."""
    allowed = gap > size
    least = missed[allowed].min()
    allowed &= missed <= max(least, KEPT)
    best = error[allowed].min()
    if not wide:
        return int(np.flatnonzero(allowed & (error <= best))[0])
    good: NDArray[np.bool_] = allowed & (error <= best + AS_GOOD)
    return int(np.argmax(np.where(good, gap, -np.inf)))
