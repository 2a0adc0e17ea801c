"""Tables of numbers for the studies of regressors and classifiers, split into training and test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.model_selection import KFold

from cg4ai.data import Array, IntArray

TEST_ROWS = 20_000
FOLDS = 5


@dataclass(frozen=True)
class Split:
    """Rows to train on, and rows to score on that were not seen."""

    inputs: Array
    targets: Array | IntArray
    test_inputs: Array
    test_targets: Array | IntArray


@dataclass(frozen=True)
class Task:
    """A table, what is known of it, and what it is split into."""

    splits: tuple[Split, ...]
    signs: Mapping[int, int] = field(default_factory=dict)  # features with which the target moves
    low: float = -np.inf
    high: float = np.inf


def diabetes(seed: int) -> Task:
    """Progression of a disease on a scale; body mass, blood pressure and one serum raise it."""
    inputs, targets = load_diabetes(return_X_y=True)
    folds = KFold(FOLDS, shuffle=True, random_state=seed).split(inputs)
    splits = tuple(Split(inputs[a], targets[a], inputs[b], targets[b]) for a, b in folds)
    return Task(splits, {2: 1, 3: 1, 8: 1}, 25.0, 346.0)


def friedman1(seed: int, rows: int = 1000) -> Task:
    """Ten inputs, five without meaning; the target rises with two and lies in [0, 30] but noise."""
    inputs, targets = make_friedman1(rows + TEST_ROWS, noise=1.0, random_state=seed)
    return Task((_cut(inputs, targets, rows),), {3: 1, 4: 1}, 0.0, 30.0)


def scores(seed: int, rows: int = 20_000) -> Task:
    """Twelve inputs: six move the target one way, smoothly or in steps, four any way, two not."""
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(rows + TEST_ROWS, 12))
    inputs[:, 4:8] = random.uniform(-2, 2, (len(inputs), 4))
    targets = 50 + 10 * latent(inputs) + random.normal(0, 8, len(inputs))
    signs = {0: 1, 1: 1, 2: -1, 3: -1, 4: 1, 5: 1}
    return Task((_cut(inputs, np.clip(targets, 0, 100), rows),), signs, 0.0, 100.0)


def latent(x: Array) -> Array:
    """Rises with inputs 0, 1, 4 and 5, falls with 2 and 3."""
    smooth = 1.5 * np.tanh(x[:, 0] + 0.5 * x[:, 1]) - np.logaddexp(0, x[:, 2])
    steps = 0.5 * (x[:, 4] > -0.5) + 0.8 * (x[:, 4] > 1.0) + np.floor(x[:, 5])
    tied = np.maximum(x[:, 1], 0) * (x[:, 6] > 0) - 0.7 * x[:, 3] * np.exp(-(x[:, 7] ** 2))
    free = np.sin(2 * x[:, 6]) + 0.3 * x[:, 8] * x[:, 9]
    made: Array = smooth + steps + tied + free
    return made


def uneven(seed: int, rows: int = 2000) -> Task:
    """Friedman's function with noise that grows with two inputs and is skew."""
    random = np.random.default_rng(seed)
    inputs, means = make_friedman1(rows + TEST_ROWS, noise=0.0, random_state=seed)
    size = 0.5 + 3 * inputs[:, 3] * inputs[:, 5]
    targets = means + size * (random.gamma(2.0, 1.0, len(means)) - 2.0)
    return Task((_cut(inputs, targets, rows),))


def classes(seed: int, count: int, rows: int = 4000) -> Task:
    """The scores above as `count` classes in order, of equal size."""
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(rows + TEST_ROWS, 12))
    inputs[:, 4:8] = random.uniform(-2, 2, (len(inputs), 4))
    values = latent(inputs) + random.logistic(0, 0.5, len(inputs))
    ends = np.quantile(values, np.arange(1, count) / count)
    targets = np.searchsorted(ends, values).astype(np.int64)
    return Task((_cut(inputs, targets, rows),), {0: 1, 1: 1, 2: -1, 3: -1, 4: 1, 5: 1})


def three_classes(seed: int, rows: int = 2000) -> Task:
    """The last class by the scores above, noise added; the others by where inputs lie."""
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(rows + TEST_ROWS, 12))
    inputs[:, 4:8] = random.uniform(-2, 2, (len(inputs), 4))
    values = latent(inputs) + random.logistic(0, 0.5, len(inputs))
    other = inputs[:, 0] * inputs[:, 6] + np.cos(2 * inputs[:, 7]) + inputs[:, 8]
    other = (other + random.logistic(0, 0.3, len(inputs)) > 0).astype(np.int64)
    targets = np.where(values > np.quantile(values, 0.6), 2, other)
    return Task((_cut(inputs, targets, rows),), {0: 1, 1: 1, 2: -1, 3: -1, 4: 1, 5: 1})


def five_grades(seed: int, rows: int = 2000) -> Task:
    """Friedman's function cut into five classes in order, of equal size."""
    inputs, values = make_friedman1(rows + TEST_ROWS, noise=1.0, random_state=seed)
    ends = np.quantile(values, np.arange(1, 5) / 5)
    return Task((_cut(inputs, np.searchsorted(ends, values), rows),), {3: 1, 4: 1})


def _cut(inputs: Array, targets: Array | IntArray, rows: int) -> Split:
    return Split(inputs[:rows], targets[:rows], inputs[rows:], targets[rows:])


def around(split: Split, count: int, seed: int) -> Array:
    """(count, d) inputs to search: half of them rows, half anywhere in a box a tenth wider."""
    random = np.random.default_rng([seed, 1])
    low, high = split.inputs.min(0), split.inputs.max(0)
    room = 0.1 * (high - low)
    anywhere = random.uniform(low - room, high + room, (count - count // 2, len(low)))
    rows = split.test_inputs[random.integers(len(split.test_inputs), size=count // 2)]
    return np.vstack([rows, anywhere])


def pairs(split: Split, signs: Mapping[int, int], count: int, seed: int) -> tuple[Array, Array]:
    """Inputs, and the same with some of the features moved so that the target cannot fall."""
    random = np.random.default_rng([seed, 2])
    before = around(split, count, seed)
    features = list(signs)
    chosen = random.random((count, len(features))) < 0.5
    chosen[np.arange(count), random.integers(len(features), size=count)] = True
    spans = np.ptp(split.inputs, axis=0)[features] * np.array([signs[one] for one in features])
    # small steps as well as large ones
    steps = random.random((count, len(features))) ** 3 * spans
    after = before.copy()
    after[:, features] += np.where(chosen, steps, 0.0)
    return before, after
