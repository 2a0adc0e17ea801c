"""The simplest members of a network's class, to start from: a constant and shrunken linear models.

The master may mix them with what is trained later: weight on the constant tempers any member, and
where there is nothing to learn beyond a line, a line is there.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import lsq_linear, minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor
from torch.nn import functional

from cg4ai.estimators.effort import SHRINKAGES
from cg4ai.estimators.holdout import LabelledData
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.members.signed_networks import SignedArchitecture
from cg4ai.members.slopes import FREE
from cg4ai.protocols import Members
from cg4ai.records import Array, IntArray
from cg4ai.rules.shapes import Shape

MOST_LINEAR = 20_000  # rows that linear models are fitted to: with more they hardly change
LEAST_SHARE = 1e-3  # class shares of the constant are at least this, so that its loss is finite


@dataclass(frozen=True, slots=True)
class LinearModel:
    """`slopes` (r, d) x input + `offsets` (r,); for classes, the scores under a softmax."""

    slopes: Array
    offsets: Array

    def outputs(self, inputs: Array) -> Array:
        return np.asarray(inputs @ self.slopes.T + self.offsets)


def simple_members(
    architecture: NetworkArchitecture,
    data: LabelledData,
    quantiles: Sequence[float] = (),
    shapes: tuple[Shape, ...] = (),
    *,
    shrinkages: Sequence[float] = SHRINKAGES,
) -> Members:
    """A constant and one linear model per shrinkage, fitted to `data`, as members.

    Where shapes stand, the slopes have signs that keep them.
    """
    models = fit_simple_models(architecture, data, shrinkages, quantiles, shapes)
    return embed_models(architecture, models)


def fit_simple_models(
    architecture: NetworkArchitecture,
    data: LabelledData,
    shrinkages: Sequence[float],
    quantiles: Sequence[float] = (),
    shapes: tuple[Shape, ...] = (),
) -> list[LinearModel]:
    """A constant and linear models, of the inputs and outputs as the architecture scales them."""
    data = normalise_inputs(architecture, data.thin(MOST_LINEAR))
    targets = data.targets
    if not data.classification:  # labels have no unit, logits or not
        targets = _standardised(architecture, targets)
    return linear_models(
        replace(data, targets=targets), architecture.output_size, shrinkages, quantiles, shapes
    )


def normalise_inputs(architecture: NetworkArchitecture, data: LabelledData) -> LabelledData:
    """The rows with inputs as the architecture scales them."""
    return replace(data, inputs=architecture.normalise(torch.as_tensor(data.inputs)).numpy())


def embed_models(architecture: NetworkArchitecture, models: Sequence[LinearModel]) -> Members:
    """Linear models of scaled inputs and outputs as members.

    The architecture must have a skip, or no hidden layer, and softmax or linear outputs.
    """
    parameters = {
        name: torch.zeros(len(models), *shape, dtype=torch.float64)
        for name, shape in architecture.shapes().items()
    }
    linear = "skip" if architecture.skip else "weight_0"
    parameters[linear] = torch.as_tensor(np.stack([model.slopes for model in models]))
    parameters[f"bias_{architecture.depth}"] = torch.as_tensor(
        np.stack([model.offsets for model in models])
    )
    return architecture.members(parameters)


def _standardised(architecture: NetworkArchitecture, targets: Array | IntArray) -> Array:
    shift = 0.0 if architecture.output_shift is None else architecture.output_shift
    scale = 1.0 if architecture.output_scale is None else architecture.output_scale
    return np.asarray((targets - shift) / scale)


def linear_models(
    data: LabelledData,
    outputs: int,
    shrinkages: Sequence[float],
    quantiles: Sequence[float] = (),
    shapes: tuple[Shape, ...] = (),
) -> list[LinearModel]:
    """A constant, then a linear model for each shrinkage; of classes only if all are there.

    For `quantiles`, one output each, a model is moved by those of what it leaves unexplained.
    """
    deviation = data.inputs.std(0)
    scale = np.where(deviation > 0, deviation, 1.0)
    shift = data.inputs.mean(0)
    inputs = (data.inputs - shift) / scale
    weights = data.weights / data.weights.mean()
    fit = _classifiers if data.classification else _regressors
    # without shapes all models, with them the constant alone: the others need their signs
    fitted = fit(inputs, data.targets, weights, outputs, () if shapes else shrinkages)
    missing = data.classification and len(np.unique(data.targets)) < outputs
    if shapes and not missing:
        standard = replace(data, inputs=inputs, weights=weights)
        fitted += signed_models(standard, outputs, shrinkages, shapes)
    if quantiles:
        fitted = [_spread(model, inputs, data, quantiles) for model in fitted]
    return [
        LinearModel(model.slopes / scale, model.offsets - (model.slopes / scale) @ shift)
        for model in fitted
    ]


def _spread(
    model: LinearModel, inputs: Array, data: LabelledData, quantiles: Sequence[float]
) -> LinearModel:
    rest = (data.targets - model.outputs(inputs))[:, 0]
    ends = np.quantile(rest, quantiles, weights=data.weights, method="inverted_cdf")
    return LinearModel(model.slopes, model.offsets + ends)


def signed_models(
    data: LabelledData, outputs: int, shrinkages: Sequence[float], shapes: tuple[Shape, ...]
) -> list[LinearModel]:
    """Ridge models of standardised data whose slopes have the signs that the shapes ask for."""
    probabilities = data.classification and not shapes[0].logits
    line = NetworkArchitecture(
        data.inputs.shape[1], outputs, hidden=(), output="softmax" if probabilities else "linear"
    )
    signed = SignedArchitecture(line, shapes)
    fit = _signed_classifier if data.classification else _signed_regressor
    return [fit(data, signed, shrinkage) for shrinkage in shrinkages]


def _ends(signed: SignedArchitecture) -> tuple[Array, Array]:
    """Least and largest slopes, (m, d)."""
    code = signed.codes["weight_0"]
    free = code == FREE
    return np.where(free | (code < 0), -np.inf, 0.0), np.where(free | (code > 0), np.inf, 0.0)


def _signed_regressor(
    data: LabelledData, signed: SignedArchitecture, shrinkage: float
) -> LinearModel:
    weights = data.weights / data.weights.sum()
    centre, mean = weights @ data.inputs, weights @ data.targets
    x, y = data.inputs - centre, np.asarray(data.targets - mean)
    gram = (x * weights[:, None]).T @ x + shrinkage * np.eye(x.shape[1])
    root = np.linalg.cholesky(gram).T  # the squares of all rows, in as many as there are features
    wanted = np.linalg.solve(root.T, (x * weights[:, None]).T @ y)
    low, high = _ends(signed)
    slopes = np.zeros(low.shape)
    for output, column in enumerate(wanted.T):
        own = slice(None) if np.isinf(high[output]).all() else (high - low)[output] > 0
        bounds = (low[output][own], high[output][own])
        slopes[output, own] = lsq_linear(root[:, own], column, bounds).x
    slopes = np.clip(slopes, low, high)
    return LinearModel(slopes, mean - slopes @ centre)


def _signed_classifier(
    data: LabelledData, signed: SignedArchitecture, shrinkage: float
) -> LinearModel:
    """Mean log loss and half the ridge, by differences of scores within bounds."""
    x, labels = torch.as_tensor(data.inputs), torch.as_tensor(data.targets)
    weights = torch.as_tensor(data.weights / data.weights.sum())
    low, high = _ends(signed)
    size, classes = low.size, signed.output_size

    def make_model(values: Tensor) -> tuple[Tensor, Tensor]:
        return signed.scores(values[:size].view(1, *low.shape))[0], values[size:]

    def compute_loss(values: Array) -> tuple[float, Array]:
        point = torch.tensor(values, requires_grad=True)
        slopes, offsets = make_model(point)
        losses = functional.cross_entropy(x @ slopes.T + offsets, labels, reduction="none")
        centred = slopes - slopes.mean(0)  # what a softmax sees of them
        total = weights @ losses + 0.5 * shrinkage * (centred**2).sum() + 1e-6 * (offsets**2).sum()
        total.backward()  # type: ignore[no-untyped-call]
        assert point.grad is not None
        return total.item(), point.grad.numpy()

    ends = list(zip(low.ravel(), high.ravel(), strict=True)) + [(-np.inf, np.inf)] * classes
    found = minimize(
        compute_loss, np.zeros(size + classes), jac=True, method="L-BFGS-B", bounds=ends
    )
    slopes, offsets = make_model(torch.as_tensor(found.x))
    return LinearModel(slopes.numpy(), offsets.numpy())


def _regressors(
    inputs: Array,
    targets: Array | IntArray,
    weights: Array,
    outputs: int,
    shrinkages: Sequence[float],
) -> list[LinearModel]:
    mean = np.average(targets, axis=0, weights=weights)
    models = [LinearModel(np.zeros((outputs, inputs.shape[1])), mean)]
    for shrinkage in shrinkages:
        ridge = Ridge(alpha=shrinkage * len(inputs)).fit(inputs, targets, sample_weight=weights)
        models.append(LinearModel(np.atleast_2d(ridge.coef_), np.atleast_1d(ridge.intercept_)))
    return models


def _classifiers(
    inputs: Array,
    labels: Array | IntArray,
    weights: Array,
    classes: int,
    shrinkages: Sequence[float],
) -> list[LinearModel]:
    shares = np.bincount(labels, weights, minlength=classes) / weights.sum()
    constant = np.log(np.maximum(shares, LEAST_SHARE))
    models = [LinearModel(np.zeros((classes, inputs.shape[1])), constant)]
    if (shares == 0).any():
        return models
    for shrinkage in shrinkages:
        # scikit-learn sums losses and halves the square, so this is the ridge of mean losses.
        model = LogisticRegression(C=1.0 / (shrinkage * len(inputs)), max_iter=200)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(inputs, labels, sample_weight=weights)
        slopes, offsets = model.coef_, model.intercept_
        if classes == 2:
            slopes, offsets = np.vstack([-slopes, slopes]) / 2, np.append(-offsets, offsets) / 2
        models.append(LinearModel(slopes, offsets))
    return models


class ScaledLogistic(LogisticRegression):  # type: ignore[misc]
    """Logistic regression on standardised features, with coefficients for the features as given.

    So features in any units are shrunk alike, and it converges in few steps.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ScaledLogistic:
        """Fit to X (n, d) and the labels y (n,)."""
        inputs = np.asarray(X, np.float64)
        middle, spread = inputs.mean(0), inputs.std(0)
        spread = np.where(spread > 0, spread, 1.0)
        super().fit((inputs - middle) / spread, y, sample_weight)
        slopes: Any = getattr(self, "coef_") / spread  # noqa: B009 - scikit-learn has no types
        self.coef_: Any = slopes
        self.intercept_: Any = getattr(self, "intercept_") - slopes @ middle  # noqa: B009
        return self
