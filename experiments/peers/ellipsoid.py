"""RAYEN's kind of task: learn projections onto a set of linear and quadratic rules.

The set is fixed, `L y <= l`, `|R (y - c)| <= 1` and, if asked for, `E y = e`; the label of an input
is the point of the set next to a smooth function of it, which lies outside for about half of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cg4ai.data import Array
from experiments.peers.cones import Cones, Ellipsoid

INPUTS, OUTPUTS, LINEAR = 4, 4, 6
TRAINING, TESTS, SEARCHED = 2000, 1000, 100_000


@dataclass(frozen=True, eq=False)
class ConvexTask:
    """Rules, and inputs with labels: `inputs` to train on, `tests` to measure at."""

    linear: Array
    limits: Array
    root: Array
    centre: Array
    equality: Array
    values: Array
    inputs: Array
    labels: Array
    tests: Array
    test_labels: Array

    @property
    def name(self) -> str:
        return "with an equality" if len(self.values) else "without an equality"

    def violation(self, outputs: Array) -> dict[str, float]:
        """The largest of each kind; 0 if all are kept."""
        linear = (outputs @ self.linear.T - self.limits).max()
        quadratic = (np.square((outputs - self.centre) @ self.root.T).sum(1) - 1).max()
        equality = np.abs(outputs @ self.equality.T - self.values).max(initial=0.0)
        return {
            "inequality": max(0.0, float(linear), float(quadratic)),
            "equality": float(equality),
        }

    def searched(self, seed: int) -> Array:
        """Inputs to look for violations at: half of the box, half of its corners."""
        drawn = np.random.default_rng([seed, 2]).uniform(-1, 1, (SEARCHED, INPUTS))
        drawn[::2] = np.sign(drawn[::2])
        return np.asarray(drawn)

    def mse(self, outputs: Tensor) -> float:
        """Mean over inputs and outputs."""
        return float(np.square(outputs.numpy() - self.test_labels).mean())


def convex_task(seed: int, *, equality: bool) -> ConvexTask:
    """A random task; the origin keeps all rules with room."""
    rng = np.random.default_rng([seed, 3])
    linear = rng.normal(size=(LINEAR, OUTPUTS))
    linear /= np.linalg.norm(linear, axis=1, keepdims=True)
    limits = rng.uniform(0.3, 0.6, LINEAR)
    root = np.eye(OUTPUTS) + 0.3 * rng.normal(size=(OUTPUTS, OUTPUTS))
    centre = 0.1 * rng.normal(size=OUTPUTS)
    tied = rng.normal(size=(1 if equality else 0, OUTPUTS))
    values = 0.1 * rng.normal(size=len(tied))
    first, second = rng.normal(size=(INPUTS, 16)), rng.normal(size=(16, OUTPUTS)) / 4
    x = rng.uniform(-1, 1, (TRAINING + TESTS, INPUTS))
    aims = np.sin(x @ first) @ second
    cones = Cones(tied, linear, Ellipsoid(root, centre, 1.0))
    labels = np.array([cones.minimise(np.eye(OUTPUTS), -aim, values, limits) for aim in aims])
    return ConvexTask(
        linear, limits, root, centre, tied, values,
        x[:TRAINING], labels[:TRAINING], x[TRAINING:], labels[TRAINING:],
    )  # fmt: skip


def as_tensors(task: ConvexTask) -> tuple[Tensor, Tensor]:
    """Inputs and labels to train on, in single precision."""
    return (
        torch.tensor(task.inputs, dtype=torch.float32),
        torch.tensor(task.labels, dtype=torch.float32),
    )
