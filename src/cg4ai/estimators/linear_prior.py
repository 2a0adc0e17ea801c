"""A prior on scores: what a linear classifier expects, as rows of small weight to weigh members by.

Few held-out rows say little about how sure a mixture may be: where it is right on all of them, the
log loss there is least for members that are certain. So weights are found as if a few further rows
had been seen, at the same inputs, whose labels a linear model draws. That shrinks the mixture
towards this model; with many rows held out nothing is left of it. Rules and proofs do not see it:
it is part of the objective, which stays convex in the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cg4ai.estimators.effort import SHRINKAGES
from cg4ai.estimators.holdout import LabelledData, draw_folds
from cg4ai.estimators.simple_members import (
    LinearModel,
    embed_models,
    fit_simple_models,
    normalise_inputs,
)
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.objectives import Supervised
from cg4ai.protocols import Members
from cg4ai.records import Array
from cg4ai.rules.shapes import Shape

PRIOR_ROWS = 10.0  # about as many as members have weight; 5 and 20 do as well
MOST_ROWS = 500  # held out: with more the prior would be less than 2 % of the objective
FOLDS = 5  # by which shrinkages are weighed
LEAST_SHARE = 0.01  # of a shrinkage; with less it is left out


@dataclass(frozen=True, slots=True)
class LinearPrior:
    """A linear model of all rows as `member`, and what one expects of the held-out rows.

    These `chances` (m, classes) are of a model that was not fitted to those rows.
    """

    member: Members
    chances: Array

    def add_to(self, objective: Supervised) -> Supervised:
        """With each row of the objective under every label, all as heavy as `PRIOR_ROWS` rows."""
        count, classes = self.chances.shape
        weights = objective.sample_weight
        own = np.ones(count) if weights is None else weights
        expected = PRIOR_ROWS / count * (own[:, None] * self.chances)
        return replace(
            objective,
            inputs=np.tile(objective.inputs, (1 + classes, 1)),
            targets=np.concatenate([objective.targets, np.repeat(np.arange(classes), count)]),
            sample_weight=np.concatenate([own, expected.T.ravel()]),
            prior_rows=count * classes,
        )


def find_linear_prior(
    architecture: NetworkArchitecture,
    rows: tuple[LabelledData, LabelledData, LabelledData],
    shapes: tuple[Shape, ...],
    seed: int,
) -> LinearPrior | None:
    """The prior of `rows`: all, those of them to train on, and those to weigh by.

    None where so many rows are held out that it would hardly count.
    """
    data, trained, weighed = rows
    if len(weighed.inputs) > MOST_ROWS:
        return None
    shares = _weigh_shrinkages(architecture, data, seed)
    used = [one for one, share in zip(SHRINKAGES, shares[1:], strict=True) if share > 0]

    def fit(rows: LabelledData) -> LinearModel:
        models = fit_simple_models(architecture, rows, used, shapes=shapes)
        return _average(models, shares[np.append(True, shares[1:] > 0)][: len(models)])

    # Fitted to all rows it looks a little better at those held out than it is. That holds other
    # members back by about what a linear model can learn by heart, which is what they must beat.
    member = embed_models(architecture, [fit(data)])
    judged = normalise_inputs(architecture, weighed)
    return LinearPrior(member, compute_chances(fit(trained), judged))


def _weigh_shrinkages(architecture: NetworkArchitecture, data: LabelledData, seed: int) -> Array:
    """(1 + shrinkages,): how likely the constant and each shrinkage make the labels of other folds.

    Likelihoods of models that were not fitted to these labels, in proportion: of few rows the best
    shrinkage is hardly known, and several have their share.
    """
    folds = draw_folds(data, FOLDS, np.random.default_rng(seed))
    losses = np.zeros(1 + len(SHRINKAGES))
    for fold in range(FOLDS):
        fitted, judged = (data.take(np.flatnonzero(one)) for one in (folds != fold, folds == fold))
        models = fit_simple_models(architecture, fitted, SHRINKAGES)
        if len(models) < len(losses):  # a class has too few rows: the constant alone
            return np.asarray(np.eye(len(losses))[0])
        losses += _compute_losses(models, normalise_inputs(architecture, judged))
    losses *= len(data.inputs) / data.weights.sum()  # rows count as one on average
    shares = np.exp(losses.min() - losses)
    shares[shares < LEAST_SHARE * shares.sum()] = 0.0
    return np.asarray(shares / shares.sum())


def _average(models: Sequence[LinearModel], shares: Array) -> LinearModel:
    """One model whose slopes and offsets are averages."""
    each = shares / shares.sum() if shares.sum() > 0 else np.full(len(models), 1 / len(models))
    return LinearModel(
        np.tensordot(each, np.stack([one.slopes for one in models]), 1),
        np.tensordot(each, np.stack([one.offsets for one in models]), 1),
    )


def _compute_losses(models: Sequence[LinearModel], judged: LabelledData) -> Array:
    """(models,): the weighted log losses."""
    rows = np.arange(len(judged.inputs))
    right = np.stack([compute_chances(one, judged)[rows, judged.targets] for one in models])
    return np.asarray(-np.log(np.maximum(right, 1e-12)) @ judged.weights)


def compute_chances(model: LinearModel, rows: LabelledData) -> Array:
    """(n, classes): the softmax of the model's scores."""
    scores = model.outputs(rows.inputs)
    chances = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(chances / chances.sum(1, keepdims=True))
