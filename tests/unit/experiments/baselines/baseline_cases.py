"""Three blobs in the plane, small enough to train on in no time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.records import Array, IntArray
from experiments.baselines import BaselineData, BaselineSettings

CENTRES = np.array([[0.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
QUICK = Training(steps=150, learning_rate=2e-2, decay=1.0)
SETTINGS = BaselineSettings(training=QUICK, members=3, per_round=2)


def blobs(per_class: int, *, seed: int, spread: float = 0.4) -> tuple[Array, IntArray]:
    labels = np.repeat(np.arange(3), per_class)
    noise = np.random.default_rng(seed).normal(size=(len(labels), 2))
    return CENTRES[labels] + spread * noise, labels


def data(per_class: int = 10, *, seed: int = 0, soft: int = 0, spread: float = 0.4) -> BaselineData:
    """Every point is in the loss and a rule; `soft` shifted copies of each."""
    inputs, labels = blobs(per_class, seed=seed, spread=spread)
    plain = BaselineData(inputs, labels, inputs, labels, 3)
    if not soft:
        return plain
    sources = np.repeat(np.arange(len(labels)), soft)
    noise = 0.05 * np.random.default_rng(seed + 1).normal(size=(len(sources), 2))
    return replace(
        plain,
        soft_inputs=inputs[sources] + noise,
        soft_labels=labels[sources],
        soft_sources=sources,
    )
