"""`FittedModel`: a model of another library as numbers, beside what the library itself predicts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from cg4ai.errors import InvalidInput
from cg4ai.members.networks import NetworkMembers
from cg4ai.members.trees import TreeMembers
from cg4ai.records import Array

Predict = Callable[[Array], Array]
PROBES = 256  # inputs at which the reading of a model is compared with the library
ZEROS = 0.05  # share of zeros in them
LARGEST_CUT = 1e38
LARGEST_INPUT = 1e38  # which float32 has, too
SINGLE, DOUBLE = 2.0**-24, 2.0**-53


@dataclass(frozen=True, eq=False)
class FittedModel:
    """One member, and how the library that fitted it predicts.

    `predict` (n, d) -> (n, r) gives the model's answers: values, or a probability for each class.
    `scores` gives what the member has before its link: (n, r), with 0 for the first of two classes
    that share one score. `unit` is the rounding of the library's sums, relative to their terms;
    `largest` is the size of the largest inputs that the library takes. `labels` are the classes as
    the library has them, where `outputs` are their names.
    """

    words: str
    members: TreeMembers | NetworkMembers
    features: tuple[str, ...]
    outputs: tuple[str, ...]
    classes: bool
    predict: Predict = field(repr=False)
    scores: Predict = field(repr=False)
    unit: float = DOUBLE
    largest: float = LARGEST_INPUT
    labels: tuple[Any, ...] = ()

    @property
    def input_size(self) -> int:
        return self.members.input_size

    @property
    def output_size(self) -> int:
        return self.members.output_size

    @property
    def is_trees(self) -> bool:
        return isinstance(self.members, TreeMembers)

    @property
    def under_softmax(self) -> bool:
        if isinstance(self.members, TreeMembers):
            return self.members.link == "softmax"
        return self.members.architecture.output == "softmax"

    @property
    def everywhere(self) -> str:
        return f"all numbers up to {self.largest:g} in size"

    @property
    def rounding(self) -> float:
        """By how much the library's sums may differ from exact ones, at any input, for trees."""
        if not isinstance(self.members, TreeMembers):
            return 0.0
        own = self.members
        value = own.value[0] * own.factor[0]
        sizes = float(value.abs().amax(1).sum(0).max() + own.initial[0].abs().max())
        return float(2 * (own.value.shape[1] + 8) * self.unit * sizes)

    def read_scores(self, inputs: Array) -> Array:
        """What the member has before its link, by the numbers that were read."""
        own = self.members
        if isinstance(own, TreeMembers) and own.link == "softmax":
            own = copy.copy(own)
            own.link = "identity"
        return own.outputs(torch.as_tensor(inputs))[0].detach().cpu().numpy()

    def find_probes(self, count: int, seed: int = 0) -> Array:
        """Inputs at thresholds of the trees, just above them, beyond them, and at zero."""
        random = np.random.default_rng(seed)
        points = random.normal(size=(count, self.input_size))
        if not isinstance(self.members, TreeMembers):
            return points
        own = self.members
        inner = (own.left[0] != torch.arange(own.left.shape[2])).numpy()
        feature, threshold = own.feature[0].numpy(), own.threshold[0].numpy()
        for column in range(self.input_size):
            cuts = np.unique(threshold[inner & (feature == column)])
            cuts = cuts[np.abs(cuts) < LARGEST_CUT]  # others stand for infinite ones
            if not len(cuts):
                continue
            if own.single_precision:
                cuts = cuts.astype(np.float32)
            above = np.nextafter(cuts, np.array(np.inf, cuts.dtype))
            width = max(1.0, float(cuts[-1] - cuts[0]))
            known = np.concatenate([cuts, above, cuts[:1] - width, cuts[-1:] + width])
            points[:, column] = random.choice(known.astype(np.float64), count)
        points[random.random(points.shape) < ZEROS] = 0.0  # which some libraries take for missing
        return points

    def verify(self) -> FittedModel:
        """Itself, if the numbers that were read give what the library predicts."""
        probes = self.find_probes(PROBES)
        found, wanted = self.read_scores(probes), np.asarray(self.scores(probes), np.float64)
        if wanted.shape != found.shape:
            raise InvalidInput(
                f"{self.words} gives {wanted.shape[1:]} scores at an input, {found.shape[1:]} were "
                "read from it: this kind of model is not supported",
                code="unsupported",
            )
        if self.under_softmax and isinstance(self.members, TreeMembers):
            found, wanted = (one - one.mean(axis=1, keepdims=True) for one in (found, wanted))
        allowed = max(self.rounding, 1e-4 * np.abs(wanted).max() * self.unit / SINGLE, 1e-9)
        apart = float(np.abs(found - wanted).max())
        if not apart <= allowed:
            raise InvalidInput(
                f"what was read from {self.words} does not give what it predicts (they differ by "
                f"{apart:.3g}): this version or kind of model is not supported",
                code="unsupported",
            )
        return self
