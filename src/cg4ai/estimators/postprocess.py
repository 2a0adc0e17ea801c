"""Decisions under rules for a classifier that is fitted already: `postprocess`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from cg4ai.colgen.decisions import FOLDS, find_small_groups
from cg4ai.ensemble.decision_search import (
    Choice,
    DecisionSearch,
    RateRows,
    ScoreTable,
    Term,
)
from cg4ai.ensemble.frontier import DecisionStudy, Frontier
from cg4ai.ensemble.rates import compute_group_rates
from cg4ai.errors import FitWarning, InvalidInput, SmallGroups
from cg4ai.records import Array, IntArray
from cg4ai.rules import DecisionRate
from cg4ai.rules.requirement import find_position


class PostprocessedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted classifier of two classes that decides under a rule; made by `postprocess`.

    `predict` makes one decision per row, by a threshold on the model's probability and those of
    groups. `predict_proba` is the model's own. `rates_` are the rates of groups on the rows that
    decisions were chosen by, with intervals; `study_` what they were chosen by.
    """

    def __init__(self, model: Any = None) -> None:
        self.model = model

    def fit(self, X: Any, y: Any = None) -> Self:
        """Refused: decisions are chosen by `postprocess`, which needs a rule and groups."""
        raise InvalidInput(
            "a postprocessed classifier is not fitted again: call cg4ai.postprocess(model, rule, "
            "X, y)",
            code="unsupported",
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "values_")

    def predict_proba(self, X: Any) -> Array:
        """(n, 2): the model's own probabilities."""
        check_is_fitted(self)
        return _probabilities(self.model, X)

    def decision_function(self, X: Any) -> Array:
        """(n,): the second class is decided for where this is above 0."""
        check_is_fitted(self)
        scores = _lead(_probabilities(self.model, X))
        for value, one in zip(self.values_, self._scorers, strict=True):
            scores = scores + value * one(X)
        return np.asarray(scores + self.offset_)

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,): the class decided for, the same at every call."""
        return np.asarray(self.classes_[(self.decision_function(X) > 0).astype(np.int64)])

    def frontier(self, tolerances: Any = None) -> Frontier:
        """Accuracy against the gap for these tolerances, on rows that chose nothing."""
        check_is_fitted(self)
        study: DecisionStudy = self.study_
        return study.frontier(tolerances)


def postprocess(
    model: Any, rule: DecisionRate, X: Any = None, y: Any = None
) -> PostprocessedClassifier:
    """A classifier that decides by the scores of a fitted `model` and keeps a rule on new rows.

    >>> rule = DecisionRate(X_later, groups, tolerance=0.02)
    >>> fair = postprocess(model, rule, X_later, y_later)
    >>> fair.predict(X_new)

    X, y are labelled rows that the model was not trained on, those that the rule lists in the same
    order; left out, they are the rule's inputs and labels. By the model's scores there decisions
    are chosen. The rule's groups are needed here only: clones of the model learn, cross-fitted,
    what the features tell of them. With its `group_feature` decisions use the group itself.
    """
    if not isinstance(rule, DecisionRate):
        raise InvalidInput(
            f"postprocess takes a rule on decisions, DecisionRate, got {type(rule).__name__}",
            code="type",
        )
    classes = _check_model(model)
    table = rule.points if X is None else X
    table = table if hasattr(table, "iloc") else np.asarray(table)
    given = rule.labels if y is None else y
    if given is None:
        raise InvalidInput(
            "postprocess chooses the most accurate decisions: give y, or labels of the rule",
            code="missing-argument",
        )
    labels = _positions(given, classes)
    if not len(labels) == len(table) == len(rule.points):
        raise InvalidInput(
            f"X has {len(table)} rows, y has {len(labels)}, and {rule.name} lists "
            f"{len(rule.points)}; they must be the same rows",
            code="shape",
        )
    numbers = np.arange(len(labels), dtype=np.float64)[:, None]  # rows stand for themselves
    output = rule.output
    if isinstance(output, str):
        output = find_position(output, list(map(str, classes)), rule.name, "class")
    asked = replace(rule, inputs=numbers, labels=labels, output=output, group_feature=None)
    asked.check(1, 2)
    return _choose(model, classes, asked, table, labels, rule.group_feature)


def _choose(
    model: Any,
    classes: NDArray[Any],
    asked: DecisionRate,
    table: Any,
    labels: IntArray,
    place: int | None,
) -> PostprocessedClassifier:
    spread = 0.5 if asked.of != "selection" else float(labels.std())
    small = find_small_groups([asked], spread, FOLDS)
    folds = _draw_folds(labels, asked)
    base = _two_columns(_lead(_probabilities(model, table)))
    terms: list[Term] = []
    scorers: list[Callable[[Any], Array]] = []
    if place is not None:
        for group in asked.names[1:]:
            reader = _Reader(place, group)
            scorers.append(reader)
            terms.append(_term(f"group {group!r}", reader(table)))
    if place is None or asked.of != "selection":
        inputs = table if place is None else _shuffled(table, place)
        groups = np.unique(asked.groups, return_inverse=True)[1].astype(np.int64)
        codes = groups if asked.of == "selection" else 2 * groups + labels
        shown = range(1 if asked.of == "selection" else 2, int(codes.max()) + 1)
        chances = np.zeros((len(labels), int(codes.max()) + 1))
        for fold in range(FOLDS):
            made = clone(model).fit(_rows(inputs, folds != fold), codes[folds != fold])
            here = np.flatnonzero(folds == fold)
            chances[np.ix_(here, made.classes_)] = made.predict_proba(_rows(table, folds == fold))
        whole = clone(model).fit(inputs, codes)
        for code in shown:
            terms.append(_term(f"group and label {code}", chances[:, code]))
            scorers.append(_Learnt(whole, code))
    costs = np.full((len(labels), 2), 1 / len(labels))
    costs[np.arange(len(labels)), labels] = 0.0
    scored = ScoreTable(base, tuple(terms), costs, np.full(len(labels), -1))
    places = {id(asked.points): np.arange(len(labels))}
    stricter = asked.tighten(spread)
    rows = RateRows.of([stricter], {id(stricter.points): np.arange(len(labels))}, len(labels))
    search = DecisionSearch((scored, rows), listed=(scored, rows))
    choice: Choice = search.settle(search.run()[0])
    made = PostprocessedClassifier(model)
    made.classes_, made.values_ = classes, choice.values
    made._scorers = scorers
    made.offset_ = float(choice.offsets[1] - choice.offsets[0])
    made.study_ = DecisionStudy(scored, (asked,), places, folds, choice, tuple(small))
    decided = scored.decide(choice.values, choice.offsets).astype(np.float64)
    made.rates_ = compute_group_rates(asked, decided, fresh=decided)
    for text in small:
        warnings.warn(text, SmallGroups, stacklevel=3)
    if not choice.is_kept:
        warnings.warn(
            f"no decisions were found that keep {asked.name} with its margin: they miss it by "
            f"{choice.missed:.3g}",
            FitWarning,
            stacklevel=3,
        )
    return made


@dataclass(frozen=True)
class _Reader:
    """1 where the group's own column says that a row belongs to it, -1 elsewhere."""

    place: int
    group: Any

    def __call__(self, X: Any) -> Array:
        table = X if hasattr(X, "iloc") else np.asarray(X)
        column = np.asarray(_column(table, self.place))
        return np.where(column == self.group, 1.0, -1.0)


@dataclass(frozen=True)
class _Learnt:
    """How sure a clone of the model is that a row belongs to a group, with one label or any."""

    model: Any
    code: int

    def __call__(self, X: Any) -> Array:
        return np.asarray(
            _probabilities(self.model, X)[:, list(self.model.classes_).index(self.code)]
        )


def _term(name: str, lead: Array) -> Term:
    return Term(name, _two_columns(lead), _two_columns(-lead))


def _two_columns(lead: Array) -> Array:
    return np.stack([-lead / 2, lead / 2], axis=1)


def _lead(chances: Array) -> Array:
    return np.asarray(chances[:, 1] - chances[:, 0])


def _probabilities(model: Any, X: Any) -> Array:
    return np.asarray(model.predict_proba(X), np.float64)


def _check_model(model: Any) -> NDArray[Any]:
    """The two classes of a fitted classifier with probabilities."""
    if not hasattr(model, "predict_proba"):
        raise InvalidInput(
            f"postprocess needs a classifier with predict_proba, got {type(model).__name__}",
            code="type",
        )
    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise InvalidInput(
            f"{type(model).__name__} is not fitted; call fit(X, y) first", code="unsupported"
        ) from error
    classes = np.asarray(model.classes_)
    if len(classes) != 2:
        raise InvalidInput(
            f"postprocess decides between two classes, the model has {len(classes)}; train a "
            "ConstrainedClassifier under a DecisionRate",
            code="unsupported",
        )
    return classes


def _positions(y: Any, classes: NDArray[Any]) -> IntArray:
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise InvalidInput(f"y must be labels (n,), got shape {labels.shape}", code="shape")
    unknown = ~np.isin(labels, classes)
    if unknown.any():
        raise InvalidInput(
            f"label {labels[unknown][0]!r} is not one that the model knows: {classes.tolist()}",
            code="unknown-name",
        )
    return np.asarray(labels == classes[1], np.int64)


def _column(table: Any, place: int) -> Any:
    return np.asarray(table.iloc[:, place] if hasattr(table, "iloc") else table[:, place])


def _rows(table: Any, kept: NDArray[np.bool_]) -> Any:
    return table[kept]  # a DataFrame takes a mask, too


def _shuffled(table: Any, place: int) -> Any:
    """The same with the column of the group shuffled, so that models learn to leave it aside."""
    order = np.random.default_rng(0).permutation(len(table))
    made = table.copy()
    if hasattr(made, "iloc"):
        made[made.columns[place]] = made.iloc[order, place].to_numpy()
    else:
        made[:, place] = made[order, place]
    return made


def _draw_folds(labels: IntArray, asked: DecisionRate) -> IntArray:
    strata = labels + 2 * np.unique(asked.groups, return_inverse=True)[1]
    shuffled = np.random.default_rng(0).permutation(len(labels))
    shuffled = shuffled[np.argsort(strata[shuffled], kind="stable")]
    folds = np.empty(len(labels), np.int64)
    folds[shuffled] = np.arange(len(labels)) % FOLDS
    return folds
