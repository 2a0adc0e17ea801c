"""scikit-learn estimators: fit under requirements, predict with one deterministic mixture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from cg4ai.compile.problem import Problem
from cg4ai.ensemble.frontier import Frontier
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.estimators.batches import TargetEncoding
from cg4ai.estimators.fitting import ConstrainedEstimator, Outside
from cg4ai.estimators.frames import names_of
from cg4ai.estimators.kinds import LearningTask
from cg4ai.estimators.parameters import PARAMETERS, is_number, one_of
from cg4ai.estimators.request import choose_requirements
from cg4ai.estimators.score_check import quantile_score
from cg4ai.objectives import Pinball
from cg4ai.records import Array, IntArray
from cg4ai.rules import DecisionRate, Margin, Ordered, Probability, Requirement, Shape

NOISE = 1e-12  # by which sums of weighted probabilities leave [0, 1]
ROUNDED = 0.02  # of the spread of y: how far the corner of the pinball loss is rounded


@dataclass(eq=False, repr=False, kw_only=True)
class ConstrainedClassifier(ClassifierMixin, ConstrainedEstimator):  # type: ignore[misc]
    __doc__ = f"""A classifier whose scores keep hard rules.

    >>> rule = Probability(X_hard, y_hard, at_least=0.9)
    >>> model = ConstrainedClassifier().fit(X, y, requirements=[rule])
    >>> print(model.audit_[0])

    Requirement inputs are in this estimator's own input space (for pipelines, see
    `cg4ai.data.fit_with_requirements`). Labels in requirements are labels of y. Requirements take
    whole numbers only, so where y holds anything else (text, negative numbers) they are positions
    in `classes_`, the sorted distinct labels; `requirement_labels(y_hard, y)` gives the right
    numbers in any case.
    Outputs, as in `Linear(X, coefficients, ...)` and `Rate(..., output=1)`, are counted in the
    order of `classes_`. With a single class in y there is a second output without a label.
    {PARAMETERS}
    Other Parameters
    ----------------
    scores : "probability" makes every member output probabilities (for `Probability`, `Rate`, and
        `Margin` on the scale 0 to 1); "logit" makes them output logits.
    output_limit : with scores="logit", the largest size of a logit on known inputs: networks are
        scaled down to it, since a margin in logits means nothing without a scale. Affine members
        are bounded by their pricer instead.

    class_weight : {{label: weight}} of the rows of each class, times `sample_weight`; "balanced"
        makes all classes weigh the same in sum. `score_` is weighed so, too.

    classes_ : after `fit`, the sorted distinct labels.
    """

    scores: str = "probability"
    output_limit: float | None = 20.0
    class_weight: Mapping[Any, float] | str | None = None

    def problem(
        self,
        X: Any,
        y: Any = None,
        requirements: Sequence[Requirement] | None = None,
        sample_weight: Any = None,
    ) -> Problem:
        probability = one_of(self.scores, "scores", ("probability", "logit")) == "probability"
        given = self._given(X, y, sample_weight, labelled=True)
        check_classification_targets(given.targets)
        self.classes_, often = given.count_labels()
        positions = partial(_positions, classes=self.classes_)
        examples = given.make_examples(TargetEncoding(positions, self._class_weights(often)))
        data = examples.data
        task = LearningTask(
            inputs=data.inputs,
            outputs=max(2, len(self.classes_)),
            links="softmax" if probability else "linear",
            targets=data.targets,
            output_limit=None if probability else self.output_limit,
        )
        loss = self.loss or ("log_loss" if probability else "cross_entropy")
        asked = choose_requirements(self.requirements, requirements)
        own = [self._by_position(requirement) for requirement in asked]
        return self._problem(examples, task, own, loss)

    def _class_weights(self, often: IntArray) -> Array | None:
        """(classes,): the weight of each class, of which there are `often` rows; None: the same."""
        given = self.class_weight
        if given is None:
            return None
        if isinstance(given, str):
            one_of(given, "class_weight", ("balanced",))
            return np.asarray(often.sum() / (len(often) * often))
        if not isinstance(given, Mapping):
            raise InvalidInput(
                f'class_weight must be None, "balanced" or {{label: weight}}, got {given!r}',
                code="unknown-name",
            )
        self._check_class_weights(given)
        return np.array([float(given.get(label, 1.0)) for label in self.classes_.tolist()])

    def _check_class_weights(self, given: Mapping[Any, float]) -> None:
        known = self.classes_.tolist()
        for label, weight in given.items():
            if label not in known:
                hint = did_you_mean(str(label), list(map(str, known)))
                raise InvalidInput(
                    f"class_weight names the label {label!r}, which is not in y{hint}; the labels "
                    f"there are {known[:10]}",
                    code="unknown-name",
                )
            if not is_number(weight) or weight < 0:
                raise InvalidInput(
                    f"class_weight gives {label!r} the weight {weight!r}; use a number >= 0",
                    code="range",
                )

    def _as_trained(self, requirement: Requirement) -> Requirement:
        """Labels are those of y, as in `fit`; the ensemble takes positions in `classes_`."""
        return super()._as_trained(self._by_position(requirement))

    @staticmethod
    def requirement_labels(labels: Any, y: Any) -> IntArray:
        """The whole numbers by which requirements name `labels`, given all labels y of `fit`.

        These are the labels themselves if y holds whole numbers >= 0, else their positions among
        the sorted distinct values of y.
        """
        classes = np.unique(np.asarray(y))
        given = np.asarray(labels)
        position = _positions(given, classes)
        return np.asarray(given if _name_themselves(classes) else position, np.int64)

    def _by_position(self, requirement: Requirement) -> Requirement:
        """The requirement with its labels as positions in `classes_`."""
        if isinstance(requirement, Shape):  # of logits only differences mean anything
            named: Shape = self._by_names(requirement)
            return named.for_classes(max(2, len(self.classes_)), logits=self.scores == "logit")
        if not isinstance(requirement, Probability | Margin | DecisionRate):
            return requirement
        if requirement.labels is None or not _name_themselves(self.classes_):
            return requirement
        if requirement.labels.dtype.kind == "U":
            return self._by_names(requirement)  # type: ignore[no-any-return]
        position = np.searchsorted(self.classes_, requirement.labels)
        unknown = ~np.isin(requirement.labels, self.classes_)
        if unknown.any():
            raise InvalidInput(
                f"{requirement.name} names label {requirement.labels[unknown][0]}, which is not "
                f"in y; the labels there are {self.classes_[:10].tolist()}",
                code="unknown-name",
            )
        if np.array_equal(position, requirement.labels):
            return requirement
        return replace(requirement, labels=position)

    def decision_function(self, X: Any) -> Array:
        """The mixture's scores (n, classes); for two classes the second minus the first, (n,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) <= 2 else scores

    def predict_proba(self, X: Any) -> Array:
        """Mixture of probabilities, or softmax of the mixture of logits: (n, classes).

        Under a `DecisionRate`, too: it binds what `predict` decides, not these.
        """
        return self._chances(self._scores(X))

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithms of `predict_proba`, (n, classes)."""
        with np.errstate(divide="ignore"):  # a chance of nothing is no error
            return np.asarray(np.log(self.predict_proba(X)))

    def _chances(self, scores: Array) -> Array:
        """Scores (n, outputs) as probabilities (n, classes)."""
        if len(self.classes_) == 1:
            return np.ones((len(scores), 1))
        if self.scores == "logit":
            scores = np.exp(scores - scores.max(1, keepdims=True))
            return np.asarray(scores / scores.sum(1, keepdims=True))
        near = np.clip(scores, 0.0, 1.0)
        return np.asarray(np.where(np.abs(scores - near) <= NOISE, near, scores))

    def frontier(self, tolerances: Sequence[float] | None = None) -> Frontier:
        """Accuracy against the gap between groups for a range of tolerances of a `DecisionRate`.

        From one fit: each row is decided by models that were not trained on it and by thresholds
        that were not chosen by it. Print it, take its `table()`, or draw it by
        `cg4ai.plots.plot_frontier`.
        """
        check_is_fitted(self, "ensemble_")
        study = self.result_.decisions
        if study is None:
            raise InvalidInput(
                "a frontier is of decisions: fit with a DecisionRate first", code="unsupported"
            )
        return study.frontier(tolerances)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of the largest score, (n,); under a `DecisionRate` the class decided for.

        A decision depends on the input alone, and is the same at every call and on every machine.
        """
        return np.concatenate([self.classes_[self._decided(part)] for part in self._parts(X)])

    def _named_predictions(self, X: Any, outside: Outside) -> dict[str, NDArray[Any]]:
        parts = list(self._parts(X))
        chances = self._chances(self._scores_of(parts, outside))
        decided = np.concatenate([self._decided(part, "ignore") for part in parts])
        each = {f"probability {label}": chances[:, k] for k, label in enumerate(self.classes_)}
        return {self._target_name: self.classes_[decided], **each}

    def _output_labels(self) -> list[str]:
        return list(map(str, self.classes_))

    def _decided(self, x: Array, outside: Outside = "warn") -> IntArray:
        return self.ensemble_.decide(x, outside=outside, classes=len(self.classes_))


@dataclass(eq=False, repr=False, kw_only=True)
class ConstrainedRegressor(RegressorMixin, ConstrainedEstimator):  # type: ignore[misc]
    __doc__ = f"""A regressor whose outputs keep hard rules, in the units of y.

    >>> cap = Linear(Box(lower, upper), [1.0], 100.0, "<=")
    >>> model = ConstrainedRegressor().fit(X, y, requirements=[cap])
    >>> print(model.audit_[0])

    y has shape (n,) or (n, outputs). Requirement inputs are in this estimator's own input space
    (see `cg4ai.data.fit_with_requirements` for pipelines). Defaults of tolerances and penalties are
    relative to the spread of y; what `settings` gives is taken as it is.
    {PARAMETERS}
    Other Parameters
    ----------------
    quantiles : with loss="pinball", the quantiles of y (n,) to predict, rising numbers between 0
        and 1, (0.1, 0.5, 0.9) by default. Outputs are (n, quantiles) and never cross (`Ordered`).

    target_scale_ : after `fit`, the spread of y: the mean over outputs of standard deviations.
    """

    quantiles: Sequence[float] | None = None

    def problem(
        self,
        X: Any,
        y: Any = None,
        requirements: Sequence[Requirement] | None = None,
        sample_weight: Any = None,
    ) -> Problem:
        given = self._given(X, y, sample_weight, multi_output=True, y_numeric=True)
        levels = self._levels(given.targets)
        self.output_names_ = names_of(y)
        self._quantiles = levels
        self._flat = given.targets.ndim == 1 and not levels
        examples = given.make_examples(TargetEncoding(partial(_columns, copies=len(levels) or 1)))
        data = examples.data
        task = LearningTask(
            inputs=data.inputs,
            outputs=data.targets.shape[1],
            links="linear",
            targets=data.targets,
            quantiles=levels,
        )
        asked = choose_requirements(self.requirements, requirements)
        if not levels:
            return self._problem(examples, task, asked, self.loss or "squared")
        if len(levels) > 1 and not any(isinstance(one, Ordered) for one in asked):
            asked = [Ordered(name="quantiles in order"), *asked]
        return self._problem(examples, task, asked, Pinball(levels, ROUNDED * task.spread))

    def _levels(self, values: Array) -> tuple[float, ...]:
        """The quantiles to predict; none without the pinball loss."""
        if self.loss != "pinball":
            if self.quantiles is not None:
                raise InvalidInput(
                    f"quantiles are for loss='pinball', got loss={self.loss!r}", code="conflict"
                )
            return ()
        if values.ndim != 1:
            raise InvalidInput(
                f"quantiles are of one target, y (n,), but y has the shape {values.shape}",
                code="shape",
            )
        given = (0.1, 0.5, 0.9) if self.quantiles is None else self.quantiles
        return Pinball(tuple(map(float, np.atleast_1d(given)))).quantiles

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R2; with quantiles D2, the share of the pinball loss of constant quantiles it saves."""
        if self.loss != "pinball":
            return float(super().score(X, y, sample_weight))
        levels = self._levels(np.asarray(y))
        return quantile_score(np.asarray(y), self.predict(X), levels, sample_weight)

    def predict(self, X: Any) -> Array:
        """The mixture's outputs, (n,) or (n, outputs) as y was; (n, quantiles) with quantiles."""
        scores = self._scores(X)
        return scores[:, 0] if self._flat else scores

    def _named_predictions(self, X: Any, outside: Outside) -> dict[str, NDArray[Any]]:
        scores = self._scores_of(self._parts(X), outside)
        return dict(zip(self._output_labels(), scores.T, strict=True))

    def _output_labels(self) -> list[str]:
        if self._quantiles:
            return [f"quantile {one:g}" for one in self._quantiles]
        if self._flat:
            return [self._target_name]
        count = self.ensemble_.output_size
        named = len(self.output_names_) == count
        return list(self.output_names_) if named else [f"output {k}" for k in range(count)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _positions(labels: NDArray[Any], classes: NDArray[Any]) -> IntArray:
    """(n,): where each label stands among the sorted classes."""
    position = np.searchsorted(classes, labels).clip(0, len(classes) - 1)
    unknown = classes[position] != labels
    if unknown.any():
        raise InvalidInput(
            f"label {labels[unknown].tolist()[0]!r} is not in y, whose labels are "
            f"{classes[:10].tolist()}",
            code="unknown-name",
        )
    return np.asarray(position, np.int64)


def _columns(values: NDArray[Any], copies: int) -> Array:
    """(n,) or (n, r) numbers as (n, r), each so many times side by side."""
    columns = values[:, None] if values.ndim == 1 else values
    return np.repeat(np.asarray(columns, np.float64), copies, axis=1)


def _name_themselves(classes: NDArray[Any]) -> bool:
    """Whether requirements can hold these labels: whole numbers >= 0."""
    if classes.dtype.kind not in "iubf":
        return False
    return bool(np.all(classes >= 0) and np.all(classes == np.round(classes)))
