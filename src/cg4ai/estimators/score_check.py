"""How good a mixture is where nothing was trained: its score beside a constant and a line.

A mixture can keep every rule and be useless. Whoever is given one should see by how much it beats
the answer that needs no inputs, and what a linear model without rules would have done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from sklearn.metrics import accuracy_score, mean_pinball_loss, r2_score

from cg4ai.estimators.holdout import LabelledData
from cg4ai.estimators.simple_members import MOST_LINEAR, linear_models
from cg4ai.records import Array

SHRINKAGE = 0.01  # of the linear model to compare with

CONSTANTS = {"accuracy": "the most frequent class", "R2": "the mean", "D2": "constant quantiles"}

Predictor = Callable[[Array], Array]  # (n, d) -> (n, r)


@dataclass(frozen=True, slots=True)
class Score:
    """What was reached on `rows` rows: accuracy of classes, R2 of numbers, D2 of quantiles.

    D2 is the share of the pinball loss of the rows' own quantiles that is saved.

    `constant` is the most frequent class or the mean of the rows trained on, `linear` a linear
    model fitted to them without rules (None where a class is missing there). Where no rows were
    held out (`held_out` False) all are on the rows trained on. The model's members were weighed by
    the held-out rows, so its figure is a little too good; so is `without_rules`, the figure of the
    best mixture of the same members without the rules (None: it was not sought).
    """

    measure: Literal["accuracy", "R2", "D2"]
    model: float
    constant: float
    linear: float | None
    rows: int
    held_out: bool
    without_rules: float | None = None

    @property
    def is_useless(self) -> bool:
        """Whether a constant does as well, though there is something to learn."""
        return self.constant < 1.0 and self.model <= self.constant

    def __str__(self) -> str:
        where = "held-out" if self.held_out else "training"
        constant = CONSTANTS[self.measure]
        plain = (
            "" if self.without_rules is None else f"without the rules {self.without_rules:.3f}, "
        )
        linear = "" if self.linear is None else f", a linear model {self.linear:.3f}"
        return (
            f"{where} {self.measure} {self.model:.3f} on {self.rows} rows "
            f"({plain}{constant} {self.constant:.3f}{linear})"
        )


def quantile_score(
    targets: Array, outputs: Array, quantiles: Sequence[float], weights: Array | None = None
) -> float:
    """D2: 1 - pinball loss of the outputs (n, q) / that of the targets' own quantiles."""
    pinball = partial(mean_pinball_loss, targets, sample_weight=weights)
    own = np.quantile(targets, quantiles, weights=weights, method="inverted_cdf")
    pairs = list(enumerate(quantiles))
    reached = sum(pinball(outputs[:, number], alpha=one) for number, one in pairs)
    least = sum(pinball(np.full(len(targets), own[number]), alpha=one) for number, one in pairs)
    return float(1 - reached / least) if least > 0 else float(reached == 0)


@dataclass(frozen=True)
class Scorer:
    """Scores predictors on `judged` rows; what they are compared with comes from `trained`."""

    trained: LabelledData
    judged: LabelledData
    outputs: int
    quantiles: tuple[float, ...] = ()

    def score(self, predict: Predictor, plain: Predictor | None = None) -> Score:
        """The score of a mixture's outputs, and of those of the `plain` one."""
        few = self.trained.thin(MOST_LINEAR)
        known = ~np.isnan(few.inputs)
        mean = np.nansum(few.inputs, axis=0) / np.maximum(1, known.sum(axis=0))
        few = replace(few, inputs=np.where(known, few.inputs, mean))
        lines = linear_models(few, self.outputs, (SHRINKAGE,), self.quantiles)
        # a linear model needs all numbers: for missing ones it has their means
        inputs = np.where(np.isnan(self.judged.inputs), mean, self.judged.inputs)
        constant, *linear = [self._value(line.outputs(inputs)) for line in lines]
        return Score(
            measure=self._measure(),
            model=self._value(predict(self.judged.inputs)),
            constant=constant,
            linear=linear[0] if linear else None,
            rows=len(self.judged.inputs),
            held_out=self.judged is not self.trained,
            without_rules=None if plain is None else self._value(plain(self.judged.inputs)),
        )

    def _measure(self) -> Literal["accuracy", "R2", "D2"]:
        if self.judged.classification:
            return "accuracy"
        return "D2" if self.quantiles else "R2"

    def _value(self, outputs: Array) -> float:
        targets, weights = self.judged.targets, self.judged.weights
        if self.judged.classification:
            return float(accuracy_score(targets, outputs.argmax(1), sample_weight=weights))
        if len(targets) < 2:
            return 1.0 if np.allclose(outputs, targets) else 0.0
        if self.quantiles:
            return quantile_score(
                np.asarray(targets[:, 0], float), outputs, self.quantiles, weights
            )
        return float(r2_score(targets, outputs, sample_weight=weights))
