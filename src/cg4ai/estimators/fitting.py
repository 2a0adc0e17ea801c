"""What the two scikit-learn estimators share: from parameters and data to a solved problem."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from cg4ai import clock
from cg4ai.clock import Deadline, Review
from cg4ai.colgen.loop import solve
from cg4ai.colgen.result import Result
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.compile.output_sets import find_output_set
from cg4ai.compile.problem import Problem
from cg4ai.data.arrays import check_same_columns
from cg4ai.ensemble.audit import LISTED_ONLY, Audit
from cg4ai.ensemble.claims import Explanation
from cg4ai.ensemble.ensemble import FEATURE_NAMES, OUTPUT_NAMES
from cg4ai.ensemble.slack import Slack
from cg4ai.errors import FitWarning, InvalidInput, SmallGroups
from cg4ai.estimators.batches import Examples
from cg4ai.estimators.frames import predict_frame
from cg4ai.estimators.holdout import HeldOutPricer, Kind, LabelledData
from cg4ai.estimators.inputs import make_dense
from cg4ai.estimators.kinds import (
    LearningTask,
    exact_kinds,
    fitted_member,
    is_fitted,
    is_module,
    kinds_of,
    make_network,
    pricers_for,
)
from cg4ai.estimators.linear_prior import find_linear_prior
from cg4ai.estimators.parameters import COLUMN_LIMIT, is_number, one_of
from cg4ai.estimators.plain_state import StoredEstimator
from cg4ai.estimators.progress import watch_progress
from cg4ai.estimators.request import find_shortcomings
from cg4ai.estimators.score_check import Score, Scorer
from cg4ai.estimators.simple_members import simple_members
from cg4ai.layout import Layout
from cg4ai.objectives import LossFunction
from cg4ai.proofs.after_training import prove_afterwards
from cg4ai.protocols import Members, Pricer
from cg4ai.records import Array, IntArray, IterationRecord, StopReason
from cg4ai.rules import (
    Curvature,
    DecisionRate,
    OutputRule,
    Probability,
    Requirement,
    Shape,
)
from cg4ai.rules.rates import GroupRates
from cg4ai.rules.requirement import InputRule

SMALL = 1_000_000  # numbers in the largest array of a training step that one thread does best

USUAL_LOSSES = (
    None,
    "squared",
    "pinball",
    "log_loss",
    "cross_entropy",
)  # others do not aim at the score

Outside = Literal["warn", "ignore"]
LIMITS = {
    StopReason.COLUMN_LIMIT: "column_limit",
    StopReason.ITERATION_LIMIT: "iteration_limit",
    StopReason.TIME_LIMIT: "time_limit_s",
}


@dataclass(eq=False, repr=False, kw_only=True)
class ConstrainedEstimator(StoredEstimator):
    """What the two estimators share beside parameters, reading and storing; not public."""

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + self._stated()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += self._stated()
        return bundle

    def _stated(self) -> str:
        """What is guaranteed, under scikit-learn's own diagram; nothing before `fit`."""
        return self.result_._repr_html_() if hasattr(self, "result_") else ""

    def fit(
        self,
        X: Any,
        y: Any = None,
        requirements: Sequence[Requirement] | None = None,
        sample_weight: Any = None,
        progress: Callable[[IterationRecord], None] | None = None,
    ) -> Self:
        """Train on (X, y) under the requirements; or on `cg4ai.data.Batches`, which hold both.

        The requirements are those given here, or else the parameter `requirements`.
        `sample_weight` (n,) weighs the rows; a weight of 2 means what two copies mean. `progress`
        is called with the record of each iteration. What does not fit is refused before anything
        is trained. Read `audit_` afterwards: it says which requirements hold, and how it is known.
        A `FitWarning` says so if one is violated, or likely to be on new rows, a limit ended
        training early, or a constant would have predicted as well.
        """
        started, review = clock.now(), Review(say=self._say, what="fitting")
        with review.activate():
            with review.stage("stating the problem"):
                problem = self.problem(X, y, requirements, sample_weight)
            settings = self.run_settings()
            review.deadline = Deadline(started + settings.time_limit_s)
            if review.deadline.finite:  # stating the problem took of it, too
                settings = replace(settings, time_limit_s=review.deadline.compute_seconds_left())
            with _threads_for(self._work()), watch_progress(self.verbose, progress) as told:
                result = solve(problem, settings, progress=told, callbacks=self.callbacks)
                self.adopt(prove_afterwards(result, problem.requirements, settings))
        for caution in self.cautions_:
            kind = SmallGroups if caution in self._small_groups else FitWarning
            warnings.warn(caution, kind, stacklevel=2)
        return self

    def _say(self, text: str) -> None:
        if self.verbose:
            print(text, flush=True)

    def problem(
        self,
        X: Any,
        y: Any = None,
        requirements: Sequence[Requirement] | None = None,
        sample_weight: Any = None,
    ) -> Problem:
        """The problem that `fit` solves: for `cg4ai.solve` with settings or a run of your own."""
        raise NotImplementedError

    def _problem(
        self,
        examples: Examples,
        task: LearningTask,
        requirements: Sequence[Requirement],
        loss: str | LossFunction,
    ) -> Problem:
        from cg4ai.conflicts import contradiction

        average = one_of(self.objective, "objective", ("mixture", "average")) == "average"
        kind: Kind = "average" if average else "mixture"
        data = examples.data
        requirements = [
            self._by_names(one) if isinstance(one, Shape | OutputRule | InputRule) else one
            for one in requirements
        ]
        built = all(isinstance(one, Shape | OutputRule) for one in requirements)
        task = replace(task, shapes=_shapes(requirements, task), rows=not built)
        for requirement in requirements:
            self._check_names(requirement)
            if isinstance(requirement, Probability) and task.links != "softmax":
                raise InvalidInput(
                    f"{requirement.name} is a rule on probabilities, but the outputs are "
                    f"{'logits' if task.classification else 'values'}; use scores='probability' "
                    "in a classifier, or Margin or Linear",
                    code="unsupported",
                )
            if isinstance(requirement, OutputRule) and task.links == "softmax":
                raise InvalidInput(
                    f"{requirement.name} binds outputs as they are, but these are probabilities, "
                    "which lie in [0, 1] and sum to 1 already; set scores='logit' to bind logits, "
                    "or bind probabilities by Linear over a Box",
                    code="unsupported",
                )
        kinds = examples.choose_kinds(kinds_of(self.members))
        task = self._with_rates(task, requirements)
        if self.votes_ and examples.looked is not None:
            raise InvalidInput(
                "decisions are chosen by models that are fitted to all rows at once, which "
                "Batches are not; bind scores by Rate, or fit to a sample of the rows",
                code="unsupported",
            )
        self.target_scale_ = task.spread
        self._shortcomings = find_shortcomings(examples.count, getattr(self, "classes_", None))
        self.check_training()
        pricers: Sequence[Pricer] = pricers_for(kinds, self, task)
        exact = all(isinstance(kind, str) and kind in exact_kinds(task) for kind in kinds)
        self._exact = exact
        least = _least_held_out(requirements, modules=all(is_module(kind) for kind in kinds))
        fraction = self.share_held_out(examples.count, exact=exact, least=least)
        trained = weighed = data
        if fraction or examples.looked is not None:
            auto = self.validation_fraction == "auto"
            made = np.random.default_rng(self.draw_seed())
            trained, weighed = examples.split(fraction, made, about=auto)
            training = examples.objective(trained, loss, kind)
            pricers = [HeldOutPricer(pricer, training, weighed.inputs) for pricer in pricers]
        held_out = None if weighed is data else weighed.inputs
        self.n_held_out_ = 0 if held_out is None else len(held_out)
        start = self._start(kinds, task, trained)
        self._links = task.links
        self._judge = Scorer(trained, weighed, task.outputs, task.quantiles)
        prior = None
        scored = task.classification and self.loss in USUAL_LOSSES and kind == "mixture"
        split = not self.votes_ and examples.looked is None and weighed is not data
        if scored and split and self._starts_from_lines(kinds, task):
            prior = find_linear_prior(
                make_network(self, task, hidden=_hidden(kinds)),
                (data, trained, weighed),
                task.shapes,
                self.draw_seed(),
            )
            if prior is not None:
                start.append((prior.member, np.zeros(1, np.int64)))
        objective = weighed.objective(loss, kind)
        if prior is not None:
            objective = prior.add_to(objective)
        problem = Problem(
            objective=objective,
            requirements=tuple(requirements),
            pricers=pricers,
            layout=Layout.single(task.outputs),
            start=start,
            probabilities=(task.outputs,) if task.links == "softmax" else (),
            held_out=held_out,
            labelled=data.objective(loss, kind) if self.votes_ else None,
        )
        find_output_set(CompiledProblem.from_problem(problem))
        conflict = contradiction(
            requirements,
            input_size=data.inputs.shape[1],
            output_size=task.outputs,
            probabilities=(task.outputs,) if task.links == "softmax" else (),
            logits=task.classification,
        )
        if conflict is not None:
            raise InvalidInput(
                f"the requirements contradict each other: {conflict}", code="infeasible"
            )
        return problem

    def _by_names(self, rule: Shape | OutputRule | InputRule) -> Any:
        """A rule by positions: of the columns of X, and of the classes or the columns of y."""
        outputs = getattr(self, "classes_", getattr(self, "output_names_", ()))
        features = getattr(self, "feature_names_in_", ())
        names = list(map(str, features)), list(map(str, outputs))
        if isinstance(rule, InputRule):
            return rule.resolve_names(*names, (self.input_range_[0], self.input_range_[1]))
        return rule.resolve_names(*names)

    def _with_rates(self, task: LearningTask, requirements: Sequence[Requirement]) -> LearningTask:
        """The task with what members must know of rules on rates and decisions."""
        rates = [one for one in requirements if isinstance(one, GroupRates)]
        decided = [one for one in rates if isinstance(one, DecisionRate)]
        if decided and not task.classification:
            raise InvalidInput(
                f"{decided[0].name} is about decisions between classes, and y holds numbers: use "
                "Rate, or a ConstrainedClassifier",
                code="unsupported",
            )
        self.votes_ = bool(decided)
        every = bool(rates) and len(rates) == len(requirements)
        alone = bool(decided) and len(decided) == len(requirements)
        return replace(task, rates=every and not decided, votes=self.votes_, decided=alone)

    @property
    def _limits(self) -> dict[str, Any]:
        """The limits of the loop, which are parameters or settings."""
        return {
            "column_limit": (self.settings or {}).get("column_limit", COLUMN_LIMIT),
            "iteration_limit": self.most_iterations,
            "time_limit_s": self.time_limit_s,
        }

    def _work(self) -> int:
        """Numbers in the largest array of a training step."""
        count = len(self._judge.trained.inputs)
        usual = self.training_of_networks(count)
        rows = usual.batch_size or count
        models = usual.restarts * len(usual.weight_decay)
        return int(rows * models * max(self.layers(count), default=1))

    def _check_names(self, requirement: Requirement) -> None:
        """Refuse a requirement whose DataFrame has other columns, or another order, than X."""
        named = getattr(requirement, "feature_names", None) or ()
        known = tuple(map(str, getattr(self, "feature_names_in_", ())))
        check_same_columns(named, known, requirement.name, "X")

    def _start(
        self, kinds: Sequence[Any], task: LearningTask, trained: LabelledData
    ) -> list[tuple[Members, IntArray]]:
        """Models that are given fitted; beside networks simple members, where there is room."""
        labels = getattr(self, "classes_", None)
        start = [fitted_member(kind, task, labels) for kind in kinds if is_fitted(kind)]
        if self._starts_from_lines(kinds, task):
            architecture = make_network(self, task, hidden=_hidden(kinds))
            start.append(
                simple_members(
                    architecture,
                    trained,
                    task.quantiles,
                    task.shapes,
                    shrinkages=self.chosen_effort.shrinkages,
                )
            )
        start += self._earlier_members(task)
        return [(members, np.zeros(len(members), np.int64)) for members in start]

    def _earlier_members(self, task: LearningTask) -> list[Members]:
        """With `warm_start`, the members of the fit before, without what its rules put around."""
        if not self.warm_start or not hasattr(self, "ensemble_"):
            return []
        before = self.ensemble_
        names = getattr(self, "classes_", range(task.outputs))
        known = before.about.get(OUTPUT_NAMES, [])
        same = before.input_size == task.inputs.shape[1] and before.output_size == task.outputs
        if not same or (task.classification and known != list(map(str, names))):
            raise InvalidInput(
                f"warm_start goes on from a model of {before.input_size} features and the outputs "
                f"{known[:10]}; these data have {task.inputs.shape[1]} and "
                f"{list(map(str, names))[:10]}: set warm_start=False to begin anew",
                code="conflict",
            )
        if self._links != task.links:
            raise InvalidInput(
                "warm_start goes on from members of other scores; set scores as in the fit before, "
                "or warm_start=False",
                code="conflict",
            )
        return [part.members.innermost() for part in before.used]

    def _starts_from_lines(self, kinds: Sequence[Any], task: LearningTask) -> bool:
        """Whether there are networks, whose class has linear models, and room for these."""
        named = ("auto", "network", *(("affine",) if task.links == "softmax" else ()))
        known = any(isinstance(kind, str) and kind in named for kind in kinds)
        limit = self._limits["column_limit"]
        room = is_number(limit) and limit >= 4 * (1 + len(self.chosen_effort.shrinkages))
        return known and bool(room) and task.output_limit is None

    def adopt(self, result: Result) -> Self:
        """Become the fitted estimator of a result that `cg4ai.solve` gave for `problem`.

        `score_` and `cautions_` are made here; `fit` also warns of the latter.
        """
        if not hasattr(self, "_judge"):
            raise InvalidInput(
                "adopt takes the result of a problem: call problem(X, y, ...) first", code="type"
            )
        # the data may reach beyond a rule's region: that is for users' own predictions to warn of
        found = [result.ensemble] + ([] if result.plain is None else [result.plain.ensemble])
        self.score_ = self._judge.score(*(one.answers for one in found))
        if result.decisions is not None:  # models that decide are trained on all rows
            self.score_ = replace(
                self.score_,
                model=result.decisions.accuracy,
                without_rules=result.decisions.unbound_accuracy,
            )
        del self._judge  # it holds the data
        self.cautions_ = self._cautions(result, self.score_)
        notes = [text for text in (result.note, str(self.score_), *self.cautions_) if text]
        self.result_ = replace(result, note="; ".join(notes))
        self.ensemble_ = result.ensemble
        self.ensemble_.about[OUTPUT_NAMES] = self._output_labels()
        if hasattr(self, "feature_names_in_"):
            self.ensemble_.about[FEATURE_NAMES] = list(map(str, self.feature_names_in_))
        self.audit_ = result.audits
        self.history_ = result.history
        self.stop_reason_ = result.stop_reason
        self.n_iter_ = max(1, len(result.history))
        return self

    def _cautions(self, result: Result, score: Score) -> tuple[str, ...]:
        """What whoever uses this model should know first."""
        decisions = result.decisions
        self._small_groups = () if decisions is None else decisions.small_groups
        found = [*self._small_groups, *([self._misaligned] if self._misaligned else [])]
        found += self._shortcomings
        found += [
            f"a requirement is violated: {audit}" for audit in result.audits if not audit.holds
        ]
        found += [
            f"{audit.requirement} holds {LISTED_ONLY}: {rate}"
            for audit in result.audits
            if audit.holds
            for rate in audit.rates
            if rate.doubtful
        ]
        if result.conflict is not None:
            found.append(f"requirements contradict each other: {result.conflict}")
        if (self.settings or {}).get("guarantee") != "attacked":
            found += [
                f"{audit.requirement} is not proven at every input of {audit.place}: violations "
                f"were searched for only ({result.note}); see cg4ai.proofs.certification"
                for audit in result.audits
                if audit.strength == "attacked" and audit.holds
            ]
        reason = result.stop_reason
        if result.cut:
            found.append(
                f"time_limit_s={self.time_limit_s} cut short: {'; '.join(result.cut)}; without a "
                "limit, or with a higher one, the result may be another"
            )
        elif reason in LIMITS:
            name = LIMITS[reason]
            found.append(
                f"training was ended by {name}={self._limits[name]} while it still improved; "
                "a higher limit may give a better model"
            )
        if reason is StopReason.INTERRUPTED:
            found.append("training was interrupted: this is the mixture it had by then")
        if score.is_useless and self.loss in USUAL_LOSSES:
            found.append(
                f"this model predicts no better than a constant does: {score}; train longer, or "
                "look at the features and the requirements"
            )
        return tuple(found)

    def audit(self, requirement: Requirement, *, tolerance: float = 1e-6) -> Audit:
        """Recompute any requirement, also one that was not trained for, from predictions.

        Labels are those of y, as in `fit`; `ensemble_.audit` takes positions in `classes_`.
        """
        check_is_fitted(self, "ensemble_")
        return self.ensemble_.audit(self._as_trained(requirement), tolerance=tolerance)

    def slack(self, requirement: Requirement, X: Any = None) -> Slack:
        """How much room a requirement has: at its rows or, over a region, at those of X in it."""
        check_is_fitted(self, "ensemble_")
        inputs = None if X is None else make_dense(self._validated(X, reset=False))
        return self.ensemble_.slack(self._as_trained(requirement), inputs)

    def _as_trained(self, requirement: Requirement) -> Requirement:
        """The requirement by positions of columns and outputs, as the ensemble knows it."""
        if isinstance(requirement, Shape | OutputRule | InputRule):
            return self._by_names(requirement)  # type: ignore[no-any-return]
        return requirement

    def predict_frame(self, X: Any, *, explain: bool = False) -> Any:
        """Predictions as a DataFrame with the index of X; see `cg4ai.data.predict_frame`."""
        return predict_frame(self, X, explain=explain)

    def _named_predictions(self, X: Any, outside: Outside) -> dict[str, NDArray[Any]]:
        """Columns (n,) of predictions by name."""
        raise NotImplementedError

    def _output_labels(self) -> list[str]:
        """What the outputs are called."""
        raise NotImplementedError

    def _explanation(self, X: Any) -> Explanation:
        """What is established about each prediction, as `ensemble_.predict(X, explain=True)`."""
        parts = list(self._parts(X))
        return self.ensemble_.predict(np.concatenate(parts), explain=True)  # type: ignore[no-any-return]

    def _scores(self, X: Any) -> Array:
        return self._scores_of(self._parts(X), "warn")

    def _scores_of(self, parts: Iterable[Array], outside: Outside) -> Array:
        """(n, outputs) of checked inputs; what lies outside regions is warned of, or not."""
        return np.concatenate([self.ensemble_.predict(part, outside=outside) for part in parts])


def _shapes(requirements: Sequence[Requirement], task: LearningTask) -> tuple[Shape, ...]:
    """The shapes among the requirements; those that these outputs cannot have are refused."""
    shapes = tuple(one for one in requirements if isinstance(one, Shape))
    for shape in shapes:
        shape.check(task.inputs.shape[1], task.outputs)
        if task.classification:
            shape.differences(task.outputs)  # says if it must be told whose score it is about
        elif shape.ordered:
            raise InvalidInput(
                f"{shape.name} is about classes in order, but y holds numbers", code="unsupported"
            )
        if isinstance(shape, Curvature) and task.links == "softmax":
            raise InvalidInput(
                f"{shape.name}: probabilities have no curvature that members could keep; set "
                "scores='logit', or leave it out",
                code="unsupported",
            )
    return shapes


def _hidden(kinds: Sequence[Any]) -> tuple[int, ...] | None:
    """No hidden layers where all members are affine; None: as the parameters say."""
    return () if all(isinstance(kind, str) and kind == "affine" for kind in kinds) else None


def _least_held_out(requirements: Sequence[Requirement], *, modules: bool) -> float:
    """A tenth where few members are trained: there is little to choose by, rows are worth more."""
    decided = any(isinstance(one, DecisionRate) for one in requirements)
    return 0.1 if decided or modules else 0.2


@contextmanager
def _threads_for(size: int) -> Iterator[None]:
    """One thread of torch while arrays hold fewer than SMALL numbers, else as many as are set.

    Threads meet after every operation. On small arrays that is most of the time, and on busy cores
    a fit of 150 rows took twenty times the processor time with two threads that it took with one.
    """
    before = torch.get_num_threads()
    if size < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
