"""How a mixture decides that keeps rules on decisions: scores for it, cross-fitted, and a choice.

Scores of the classes, and of belonging to each group (with one label, where the rule is about one),
are trained by the problem's own pricers, so that they keep by construction whatever members do.
Each is trained once on all rows, to decide, and once for each fold on the others: there its scores
are those of new inputs, by which weights and thresholds are chosen (`DecisionSearch`). The models
join the ensemble without weight in the mixture: scores stay what all other rules bind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from cg4ai.layout import Layout
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.conversion import from_sklearn
from cg4ai.members.equalities import CompletedMembers
from cg4ai.members.mixture import Part
from cg4ai.objectives import Supervised
from cg4ai.protocols import Members, Pricer, PricingRequest
from cg4ai.records import Array, Duals, IntArray
from cg4ai.rules import DecisionRate
from cg4ai.rules.equality import Completion
from cg4ai.rules.rates import Cell
from cg4ai.rules.rows import RowSet
from cg4ai.seeds import derive_seed

if TYPE_CHECKING:
    from cg4ai.colgen.state import RunState

FOLDS, FOLDS_OF_NETWORKS = 5, 3  # networks take a hundred times as long to train as lines
LARGE = 1e6  # worth of a member in a request: its pricer proposes all that it trains
BREAKING = 1e-6  # weight of the constants that keep members from agreeing where no rule asks


@dataclass(frozen=True, slots=True)
class DecidingEnsemble:
    """The ensemble with the members that decide, what they were chosen by, what is to be said."""

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
    rows = RateRows.of(
        stricter,
        {id(b.points): places[id(a.points)] for a, b in zip(rates, stricter, strict=True)},
        count,
    )
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
                f"{least.count} rows in group {least.group!r}{least.condition} a gap has a "
                f"standard error of {error:.2g}, so that new rows may miss it by as much"
            )
    return found


@dataclass(frozen=True, eq=False)
class _Target:
    """What scores of groups are trained on: inputs, and the class of each (m,).

    A joint one has `classes` of its own, of which those in `shown` are scores; else there are the
    classes of the problem, and who belongs to the group is in that of the rule, `column`. `column`
    is what its scores speak of in both.
    """

    name: str
    inputs: Array
    codes: IntArray
    place: IntArray  # of the inputs, among all
    column: int
    classes: int
    shown: tuple[int, ...] = ()
    exact: int | None = None  # the feature that tells the group by itself
    blind: int | None = None  # the feature that the scores must not use

    @property
    def scores(self) -> int:
        return len(self.shown) or 1


class _Making:
    """Scores at all distinct inputs of data and rules."""

    def __init__(self, run: RunState, rates: Sequence[DecisionRate]) -> None:
        self.run, self.rates = run, rates
        self.problem = problem = run.problem
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
        self.fold_of = self._draw_folds()
        self.chosen = 0
        self.targets: list[_Target] = []
        self.known: dict[tuple[int, int], Members | None] = {}

    def _targets(self) -> list[_Target]:
        """What groups are told by: all at once where the pricer fits any classes, else each alone.

        The first group is what the others leave.
        """
        free = self.problem.shield is None and not self.problem.kept
        asked = [one for one in iterate_pricers(self.pricers[self.chosen]) if not one.inner_parts()]
        joint = free and all(one.capabilities.any_classes for one in asked)
        found: dict[tuple[Any, ...], _Target] = {}
        for rate in self.rates:
            feature, key = rate.group_feature, (id(rate.points), rate.groups.tobytes(), rate.column)
            if feature is not None:
                self._check_feature(rate, feature)
            if len(rate.names) < 2:
                continue
            told = feature is not None and free
            if told:
                found[*key, "exact"] = self._joint(rate, None, exact=feature)
            labels = None if rate.of == "selection" else rate.labels == rate.column
            if told and labels is None:
                continue
            if joint:
                hidden = feature if told else None
                found[*key, labels is None] = self._joint(rate, labels, blind=hidden)
                continue
            for cell in rate.cells():
                if cell.group != rate.names[0]:
                    found[*key, cell.inputs.tobytes()] = self._alone(rate, cell)
        return list(found.values())

    def _joint(
        self, rate: DecisionRate, labels: NDArray[np.bool_] | None, **features: int | None
    ) -> _Target:
        """Groups, each with either label where these are given."""
        groups = np.unique(rate.groups, return_inverse=True)[1].astype(np.int64)
        codes, count, first = groups, len(rate.names), 1
        if labels is not None:
            codes, count, first = 2 * groups + labels, 2 * count, 2
        return _Target(
            "groups",
            rate.points,
            codes,
            self.places[id(rate.points)],
            rate.column,
            count,
            tuple(range(first, count)),
            **features,
        )

    def _alone(self, rate: DecisionRate, cell: Cell) -> _Target:
        """One group, perhaps with one label, in the classes of the problem."""
        often = np.bincount(self.labels, minlength=self.size).astype(np.float64)
        often[rate.column] = -1
        codes = np.where(cell.inputs, rate.column, int(often.argmax()))
        name = f"group {cell.group!r}{cell.condition}"
        place = self.places[id(rate.points)]
        return _Target(name, rate.points, codes, place, rate.column, self.size)

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
        for rate in self.rates:
            groups = np.unique(rate.groups, return_inverse=True)[1]
            strata *= len(rate.names)
            own = self.places[id(rate.points)]
            np.maximum.at(strata, own, strata[own] + groups)
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
        self.targets = self._targets()
        terms = []
        for target in self.targets:
            ahead = self._cross(self.chosen, target)
            against = None
            if not target.shown and not self.mirrored:
                against = self._cross(self.chosen, target, -1)
            assert ahead is not None
            terms += self._terms(target, ahead, against)
        return ScoreTable(base, tuple(terms), self._costs(), self._forced([]))

    def _terms(self, target: _Target, ahead: Array, against: Array | None) -> list[Term]:
        """The scores of what a target's models say."""
        if not target.shown:
            return [Term(target.name, ahead, ahead[:, ::-1] if against is None else against)]
        found = []
        for one in target.shown:
            scores = np.zeros((len(ahead), self.size))
            scores[:, target.column] = ahead[:, one]
            found.append(Term(f"{target.name} {one}", scores, -scores))
        return found

    def _loss(self, scores: Array) -> float:
        outputs = torch.as_tensor(scores[self.own])
        batch = self.data.batch(None, torch.Generator(), device="cpu", dtype=torch.float64)
        return float(self.data.value(batch, outputs))

    def _cross(self, pricer: int, target: _Target | None, sign: int = 1) -> Array | None:
        if target is not None and target.exact is not None:
            return self._answers(self._train(pricer, target, sign, None), self.inputs)
        size = self.size if target is None else target.classes
        scores = np.zeros((len(self.inputs), size))
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
        terms: list[Term] = []
        for number, target in enumerate(self.targets):
            made = [self._get(number, 1)]
            if not target.shown and not self.mirrored:
                made.append(self._get(number, -1))
            ahead, *against = [self._answers(one, self.inputs) for one in made]
            terms += self._terms(target, ahead, against[0] if against else None)
        used = [self.base, *self.known.values()] if self.agreement else []
        base = self._answers(self.base, self.inputs)
        return ScoreTable(base, tuple(terms), self._costs(), self._forced(used))

    def _get(self, number: int, sign: int) -> Members:
        if (number, sign) not in self.known:
            target = self.targets[number]
            self.known[number, sign] = self._train(self.chosen, target, sign, None)
        found = self.known[number, sign]
        assert found is not None
        return found

    def final(self, values: Array) -> tuple[list[tuple[Members, float]], ScoreTable]:
        """The members that decide with these weights, and their scores at all inputs."""
        assert self.base is not None
        base = self._answers(self.base, self.inputs)
        members, terms, start = [(self.base, 1.0)], [], 0
        for number, target in enumerate(self.targets):
            own = values[start : start + target.scores]
            start += target.scores
            if target.shown:
                basis = np.zeros((self.size, target.classes))
                basis[target.column, list(target.shown)] = own
                made = [(self._weigh(self._get(number, 1), basis), 1.0)] if own.any() else []
                scores = [self._answers(one, self.inputs) for one, _ in made]
                # all of its weights are in the one member
                zero = np.zeros_like(base)
                first = own[0] or 1.0
                shown = [scores[0] / abs(first) if scores else zero] + [zero] * (len(own) - 1)
            else:
                sign = 1 if own[0] > 0 else -1
                made = [(self._get(number, sign), abs(float(own[0])))] if own[0] else []
                shown = [self._answers(one, self.inputs) for one, _ in made] or [
                    np.zeros_like(base)
                ]
            members += made
            terms += [Term(target.name, one, one) for one in shown]
        forced = self._forced([one for one, _ in members]) if self.agreement else self._forced([])
        return members, ScoreTable(base, tuple(terms), self._costs(), forced)

    @staticmethod
    def _weigh(members: Members, basis: Array) -> Members:
        """Outputs (r,) as sums of those of members, with these weights (r, classes)."""
        size = len(basis)
        still = Completion(np.zeros(size), np.zeros((size, members.input_size)), basis)
        return CompletedMembers(members, still)

    def join(
        self, ensemble: Ensemble, members: list[tuple[Members, float]], choice: Choice
    ) -> Ensemble:
        """The ensemble with these members, which have no weight in the mixture but decide."""
        if self.agreement:
            members = [*members, (self._constants(), BREAKING)]
        total = sum(weight for _, weight in members)
        parts = [Part(one, np.zeros(len(one), np.int64), np.zeros(len(one))) for one, _ in members]
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
        made: Members = self.problem.start[0][0]
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
            labels = target.codes
            if sign < 0:  # the two classes that there are change places
                low, high = np.unique(labels)[[0, -1]]
                labels = low + high - labels
        kept = np.ones(len(labels), bool) if fold is None else self.fold_of[place] != fold
        inputs, labels = inputs[kept], labels[kept]
        weights = None if weights is None else weights[kept]
        size = self.size if target is None else target.classes
        if len(np.unique(labels)) < 2:
            return ConstantMembers(np.eye(size)[labels[:1]], inputs.shape[1])
        if target is not None and target.exact is not None:
            return self._indicator(target.exact, inputs, labels, size)
        what = "classes" if target is None else f"{target.name} {sign}"
        seed = derive_seed(self.run.settings.seed, 0, f"scores for decisions: {what} {fold}")
        if target is not None and target.blind is not None:
            # shuffled, the group says nothing
            inputs = inputs.copy()
            column = inputs[:, target.blind]
            inputs[:, target.blind] = np.random.default_rng(seed).permutation(column)
        layout = self.problem.layout if size == self.size else Layout.single(size)
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

    @staticmethod
    def _indicator(feature: int, inputs: Array, labels: IntArray, size: int) -> Members:
        """A tree that reads the group from its feature."""
        from sklearn.tree import DecisionTreeClassifier

        alone = np.zeros_like(inputs)
        alone[:, feature] = inputs[:, feature]
        tree = DecisionTreeClassifier(random_state=0).fit(alone, labels)
        return from_sklearn(tree, classes=size)


def _folds_of(pricer: Pricer) -> int:
    trained = any(one.trained_architecture() is not None for one in iterate_pricers(pricer))
    return FOLDS_OF_NETWORKS if trained else FOLDS
