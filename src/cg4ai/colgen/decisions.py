"""How a mixture decides that keeps rules on decisions: scores for it, cross-fitted, and a choice.

Scores of the classes, and of belonging to each group (with one label, where the rule is about one),
are trained by the problem's own pricers, so that they keep by construction whatever members do.
Each is trained once on all rows, to decide, and once for each fold on the others: there its scores
are those of new inputs, by which weights and thresholds are chosen (`DecisionSearch`). The models
join the ensemble without weight in the mixture: scores stay what all other rules bind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from cg4ai.colgen.pricing.defaults import iterate_pricers
from cg4ai.compile.decisions import decides_by_agreement
from cg4ai.data.arrays import group_same_inputs
from cg4ai.ensemble.decision_rule import AGREED, Decider, compute_leads
from cg4ai.ensemble.decision_search import (
    Choice,
    DecisionSearch,
    RateRows,
    ScoreTable,
    Term,
)
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.frontier import DecisionStudy
from cg4ai.errors import InvalidInput
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.conversion import from_sklearn
from cg4ai.members.mixture import Part
from cg4ai.objectives import Supervised
from cg4ai.protocols import Members, Pricer, PricingRequest
from cg4ai.records import Array, Duals, IntArray
from cg4ai.rules import DecisionRate
from cg4ai.rules.rows import RowSet
from cg4ai.seeds import derive_seed

if TYPE_CHECKING:
    from cg4ai.colgen.state import RunState

FOLDS, FOLDS_OF_NETWORKS = 5, 3  # networks take a hundred times as long to train as lines
LARGE = 1e6  # worth of a member in a request: its pricer proposes all that it trains
BREAKING = 1e-6  # weight of the constants that keep members from agreeing where no rule asks


@dataclass(frozen=True, slots=True)
class DecidingEnsemble:
    """The ensemble with the members that decide, what they were chosen by, and what is to be said."""

    ensemble: Ensemble
    study: DecisionStudy
    note: str


def choose_decisions(run: RunState, ensemble: Ensemble) -> DecidingEnsemble:
    """The same mixture, with decisions that keep the rules at listed inputs and on new ones."""
    rates = tuple(one for one in run.problem.asked if isinstance(one, DecisionRate))
    made = _Making(run, rates)
    small = find_small_groups(rates, made.spread, made.folds)
    notes = list(small)
    stricter = [one.tighten(made.spread) for one in rates]
    fresh = made.cross_fit()
    places, count = made.places, len(made.inputs)
    rows = RateRows.of(stricter, {id(b.points): places[id(a.points)] for a, b in zip(rates, stricter, strict=True)}, count)
    asked = RateRows.of(rates, places, count)
    listed = made.whole()
    search = DecisionSearch((fresh, rows), listed=(listed, asked))
    choice = search.run()[0]
    members, listed = made.final(choice.values)
    search = DecisionSearch((fresh, rows), listed=(listed, asked))
    choice = search.settle(choice)
    if not choice.is_kept:
        notes.append(
            f"no decisions were found that keep the rules with their margins, at listed inputs "
            f"and on new ones: they miss one by {choice.missed:.3g}"
        )
    study = DecisionStudy(fresh, rates, places, made.fold_of, choice, tuple(small))
    decided = made.join(ensemble, members, choice)
    return DecidingEnsemble(decided, study, "; ".join(notes))


def find_small_groups(rates: Sequence[DecisionRate], spread: float, folds: int) -> list[str]:
    """What is to be said of groups too small for their tolerance; some are refused."""
    found = []
    for rate in rates:
        least = min(rate.cells(), key=lambda cell: cell.count)
        if least.count < folds:
            raise InvalidInput(
                f"{rate.name}: groups too small: group {least.group!r} has {least.count} rows"
                f"{least.condition}, fewer than the {folds} folds that decisions are chosen by; "
                "join it with another, or leave it out",
                code="small-groups",
            )
        if rate.tolerance is None:
            continue
        error = rate.compute_error_of_gaps(spread)
        if error > rate.tolerance:
            found.append(
                f"{rate.name}: groups too small for the tolerance {rate.tolerance:g}: with "
                f"{least.count} rows in group {least.group!r}{least.condition} a gap has a standard "
                f"error of {error:.2g}, so that new rows may miss it by as much"
            )
    return found


@dataclass(frozen=True, eq=False)
class _Target:
    """What scores of a group are trained on: inputs, and whether they belong to it (m,)."""

    name: str
    inputs: Array
    member: NDArray[np.bool_]
    place: IntArray  # of the inputs, among all
    column: int  # the class of the rule
    exact: int | None = None  # the feature that tells the group by itself
    blind: int | None = None  # the feature that the scores must not use


class _Making:
    """Scores at all distinct inputs of data and rules."""

    def __init__(self, run: RunState, rates: Sequence[DecisionRate]) -> None:
        self.run, self.rates = run, rates
        problem = run.problem
        objective = problem.stated.labelled or problem.objective
        assert isinstance(objective, Supervised)
        self.data = objective
        self.labels = np.asarray(objective.targets, np.int64)
        self.size = problem.layout.output_size
        lists = {id(one.points): one.points for one in rates}
        stacked = np.concatenate([objective.inputs, *lists.values()])
        first, which = group_same_inputs(stacked)
        starts = np.cumsum([len(objective.inputs), *map(len, lists.values())])[:-1]
        self.own, *places = np.split(np.asarray(which).reshape(-1), starts)
        self.places: dict[int, IntArray] = dict(zip(lists, places, strict=True))
        self.inputs = stacked[first]
        self.agreement = decides_by_agreement(problem)
        # members as they were trained: classes may change places, and nothing else changes
        self.mirrored = self.size == 2 and problem.shield is None and not problem.kept
        self.pricers = [one.for_decisions() for one in problem.pricers]
        self.folds = min(map(_folds_of, self.pricers))
        # decisions vary as labels do; among those with one label as much as they can
        own = [0.5 if one.of != "selection" else self._vary(one) for one in rates]
        self.spread = max(own)
        self.targets = self._targets()
        self.fold_of = self._draw_folds()
        self.chosen = 0

    def _targets(self) -> list[_Target]:
        """Every group but the first, with each label that a rule asks for."""
        found: dict[tuple[Any, ...], _Target] = {}
        for rate in self.rates:
            place, feature = self.places[id(rate.points)], rate.group_feature
            free = feature is not None and self.mirrored
            if feature is not None:
                self._check_feature(rate, feature)
            groups = rate.groups
            for cell in rate.cells():
                if cell.group == rate.names[0]:
                    continue
                make = partial(_Target, inputs=rate.points, place=place, column=rate.column)
                if free:
                    key = (id(rate.points), groups.tobytes(), cell.group, feature, rate.column)
                    name = f"group {cell.group!r}"
                    found[key] = make(name, member=groups == cell.group, exact=feature)
                if not free or cell.condition:
                    key = (id(rate.points), cell.inputs.tobytes(), rate.column, free)
                    name = f"group {cell.group!r}{cell.condition}"
                    found[key] = make(name, member=cell.inputs, blind=feature if free else None)
        return list(found.values())

    @staticmethod
    def _check_feature(rate: DecisionRate, feature: int) -> None:
        values, which = np.unique(rate.points[:, feature], return_inverse=True)
        pairs = np.unique(np.stack([which, np.unique(rate.groups, return_inverse=True)[1]]), axis=1)
        if pairs.shape[1] > len(values) or np.isnan(values).any():
            raise InvalidInput(
                f"{rate.name}: feature {feature} does not tell the groups: some of its values "
                "belong to several. Where features are changed by a pipeline first, give the "
                "position that the column has behind it",
                code="conflict",
            )

    def _vary(self, rate: DecisionRate) -> float:
        return float((self.labels == rate.column).std())

    def _draw_folds(self) -> IntArray:
        """(U,): inputs are dealt out evenly, of each class and group alike."""
        count = len(self.inputs)
        strata = np.zeros(count, np.int64)
        strata[self.own] = self.labels
        for target in self.targets:
            strata *= 2
            np.maximum.at(strata, target.place, strata[target.place] + target.member)
        seed = derive_seed(self.run.settings.seed, 0, "folds of decisions")
        shuffled = np.random.default_rng(seed).permutation(count)
        shuffled = shuffled[np.argsort(strata[shuffled], kind="stable")]
        folds = np.empty(count, np.int64)
        folds[shuffled] = np.arange(count) % self.folds
        return folds

    def cross_fit(self) -> ScoreTable:
        """Scores at each input by models of the folds that it is not in."""
        tried = [self._cross(number, None) for number in range(len(self.pricers))]
        known = [(one, number) for number, one in enumerate(tried) if one is not None]
        if not known:
            raise InvalidInput(
                "no pricer trains members for labels, by which decisions could be chosen; give one "
                "that does, such as cg4ai.colgen.TreePricer or GradientPricer",
                code="unsupported",
            )
        base, self.chosen = min(known, key=lambda one: self._loss(one[0]))
        terms = []
        for target in self.targets:
            ahead = self._cross(self.chosen, target)
            assert ahead is not None
            against = ahead[:, ::-1] if self.mirrored else self._cross(self.chosen, target, -1)
            assert against is not None
            terms.append(Term(target.name, ahead, against))
        return ScoreTable(base, tuple(terms), self._costs(), self._forced([]))

    def _loss(self, scores: Array) -> float:
        outputs = torch.as_tensor(scores[self.own])
        batch = self.data.batch(None, torch.Generator(), device="cpu", dtype=torch.float64)
        return float(self.data.value(batch, outputs))

    def _cross(self, pricer: int, target: _Target | None, sign: int = 1) -> Array | None:
        if target is not None and target.exact is not None:
            return self._answers(self._train(pricer, target, sign, None), self.inputs)
        scores = np.zeros((len(self.inputs), self.size))
        for fold in range(self.folds):
            made = self._train(pricer, target, sign, fold)
            if made is None:
                return None
            here = self.fold_of == fold
            scores[here] = self._answers(made, self.inputs[here])
        return scores

    def whole(self) -> ScoreTable:
        """Scores at listed inputs by the models that may decide, each for and against its group."""
        self.base = self._train(self.chosen, None, 1, None)
        self.known: dict[tuple[int, int], Members | None] = {}
        signs = (1,) if self.mirrored else (1, -1)
        for number, target in enumerate(self.targets):
            for sign in signs:
                self.known[number, sign] = self._train(self.chosen, target, sign, None)
        terms = []
        for number, target in enumerate(self.targets):
            ahead = self._answers(self.known[number, 1], self.inputs)
            against = ahead[:, ::-1]
            if not self.mirrored:
                against = self._answers(self.known[number, -1], self.inputs)
            terms.append(Term(target.name, ahead, against))
        used = [self.base, *self.known.values()] if self.agreement else []
        base = self._answers(self.base, self.inputs)
        return ScoreTable(base, tuple(terms), self._costs(), self._forced(used))

    def final(self, values: Array) -> tuple[list[tuple[Members, float]], ScoreTable]:
        """The members that decide with these weights, and their scores at all inputs."""
        assert self.base is not None
        base = self._answers(self.base, self.inputs)
        members = [(self.base, 1.0)]
        terms = []
        for number, (target, value) in enumerate(zip(self.targets, values, strict=True)):
            scores = np.zeros_like(base)
            if value:
                sign = 1 if value > 0 else -1
                if (number, sign) not in self.known:
                    self.known[number, sign] = self._train(self.chosen, target, sign, None)
                one = self.known[number, sign]
                assert one is not None
                members.append((one, abs(float(value))))
                scores = self._answers(one, self.inputs)
            terms.append(Term(target.name, scores, scores))
        forced = self._forced([one for one, _ in members]) if self.agreement else self._forced([])
        return members, ScoreTable(base, tuple(terms), self._costs(), forced)

    def join(
        self, ensemble: Ensemble, members: list[tuple[Members, float]], choice: Choice
    ) -> Ensemble:
        """The ensemble with these members, which have no weight in the mixture but decide."""
        if self.agreement:
            members = [*members, (self._constants(), BREAKING)]
        total = sum(weight for _, weight in members)
        parts = [
            Part(one, np.zeros(len(one), np.int64), np.zeros(len(one))) for one, _ in members
        ]
        weights = [np.zeros(sum(len(part.weights) for part in ensemble.parts))]
        weights += [np.full(len(one), weight / total / len(one)) for one, weight in members]
        decider = Decider(np.concatenate(weights), choice.offsets / total, self.agreement)
        made = Ensemble(
            (*ensemble.parts, *parts), ensemble.layout, about=ensemble.about, device=ensemble.device
        )
        made.about["decisions"] = decider.record()
        return made

    def _constants(self) -> Members:
        """A member for each class that says so everywhere, as far as other rules let it."""
        made: Members = self.run.problem.start[0][0]
        return made.to(self.run.settings.device)

    def _forced(self, members: Sequence[Members | None]) -> IntArray:
        """(U,): the class on which all these and the constants agree, or -1."""
        found = np.full(len(self.inputs), -1)
        if not members:
            return found
        x = torch.as_tensor(self.inputs)
        with torch.no_grad():
            every = [
                compute_leads(one.outputs(x.to(one.device)).cpu()).amin(0)
                for one in [*members, self._constants()]
                if one is not None
            ]
        least = torch.stack(every).amin(0).numpy()
        return np.where(least.max(1) > AGREED, least.argmax(1), found)

    def _costs(self) -> Array:
        given = self.data.sample_weight
        share = np.full(len(self.labels), 1 / len(self.labels))
        share = share if given is None else given / given.sum()
        costs = np.zeros((len(self.inputs), self.size))
        np.add.at(costs, self.own, share[:, None])
        np.add.at(costs, (self.own, self.labels), -share)
        return costs

    def _answers(self, members: Members | None, inputs: Array) -> Array:
        """(n, r): the mean of their outputs."""
        assert members is not None
        with torch.no_grad():
            x = torch.as_tensor(inputs, device=self.run.settings.device)
            outputs = [members.outputs(part).mean(0).cpu() for part in torch.split(x, 16_384)]
        return np.asarray(torch.cat(outputs).numpy())

    def _train(
        self, pricer: int, target: _Target | None, sign: int, fold: int | None
    ) -> Members | None:
        """Members for the classes, or for (or against) a group, without the rows of a fold."""
        if target is None:
            inputs, labels, place = self.data.inputs, self.labels, self.own
            weights = self.data.sample_weight
        else:
            inputs, place, weights = target.inputs, target.place, None
            labels = self._coded(target, sign)
        kept = np.ones(len(labels), bool) if fold is None else self.fold_of[place] != fold
        inputs, labels = inputs[kept], labels[kept]
        weights = None if weights is None else weights[kept]
        if len(np.unique(labels)) < 2:
            return ConstantMembers(np.eye(self.size)[labels[:1]], inputs.shape[1])
        if target is not None and target.exact is not None:
            return self._indicator(target.exact, inputs, labels)
        what = "classes" if target is None else f"{target.name} {sign}"
        seed = derive_seed(self.run.settings.seed, 0, f"scores for decisions: {what} {fold}")
        if target is not None and target.blind is not None:
            # shuffled, the group says nothing
            inputs = inputs.copy()
            column = inputs[:, target.blind]
            inputs[:, target.blind] = np.random.default_rng(seed).permutation(column)
        layout = self.run.problem.layout
        request = PricingRequest(
            iteration=0,
            seed=seed,
            duals=Duals(np.empty(0), np.full(len(layout), LARGE)),
            guide=np.empty(0),
            rows=RowSet(layout),
            objective=Supervised(inputs, labels, self.data.loss, "average", weights),
            loss_weight=1.0,
            ensemble=None,
            device=self.run.settings.device,
        )
        return self.pricers[pricer].price(request).members

    def _coded(self, target: _Target, sign: int) -> IntArray:
        """The class of the rule for who belongs to the group; another for who does not."""
        member = target.member if sign > 0 else ~target.member
        often = np.bincount(self.labels, minlength=self.size).astype(np.float64)
        often[target.column] = -1
        return np.where(member, target.column, int(often.argmax()))

    def _indicator(self, feature: int, inputs: Array, labels: IntArray) -> Members:
        """A tree that reads the group from its feature."""
        from sklearn.tree import DecisionTreeClassifier

        alone = np.zeros_like(inputs)
        alone[:, feature] = inputs[:, feature]
        tree = DecisionTreeClassifier(random_state=0).fit(alone, labels)
        return from_sklearn(tree, classes=self.size)


def _folds_of(pricer: Pricer) -> int:
    trained = any(one.trained_architecture() is not None for one in iterate_pricers(pricer))
    return FOLDS_OF_NETWORKS if trained else FOLDS
