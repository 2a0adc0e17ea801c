"""What baselines take and give back: plain arrays in, one predictor with its settings out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.data import arrays
from cg4ai.errors import InvalidInput, InvalidSettings
from cg4ai.members import NetworkMembers
from cg4ai.records import Array, IntArray
from experiments.baselines.rule import LabelRule, RuleKind

# The paper's training: Adam 1e-3, up to 1000 epochs, patience 50, no decay of the learning rate.
PAPER_TRAINING = Training(steps=1000, learning_rate=1e-3, patience=50, decay=1.0)
# Batches make single losses noise, so that early stopping would stop by luck.
PAPER_BATCH_TRAINING = Training(steps=3000, learning_rate=1e-3, schedule="onecycle")
PAPER_BATCH = 256


@dataclass(frozen=True, eq=False)
class BaselineData:
    """Images to learn from, and images whose class is required.

    inputs (n, d), labels (n,): the training loss. hard_inputs (m, d), hard_labels (m,): one rule
    each; they may be among `inputs`. soft_inputs (s, d), soft_labels (s,): augmented copies that
    join the loss, kept in float32. soft_sources (s,): for each copy the position in `inputs` of
    what it is a copy of, -1 for none of them; choosing settings needs it, to hold copies out with
    their originals.
    """

    inputs: Any
    labels: Any
    hard_inputs: Any
    hard_labels: Any
    classes: int
    soft_inputs: Any = None
    soft_labels: Any = None
    soft_sources: Any = None

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise InvalidInput(f"classes must be at least 2, got {self.classes}")
        pairs = [("inputs", "labels"), ("hard_inputs", "hard_labels")]
        if self.soft_inputs is not None:
            pairs.append(("soft_inputs", "soft_labels"))
        elif self.soft_labels is not None or self.soft_sources is not None:
            raise InvalidInput("soft_labels and soft_sources need soft_inputs")
        for inputs, labels in pairs:
            self._check_pair(inputs, labels)
        if self.soft_sources is not None:
            self._check_sources()

    def _check_pair(self, inputs: str, labels: str) -> None:
        points = arrays.as_matrix(getattr(self, inputs), inputs)
        width = np.shape(self.inputs)[1]
        if points.shape[1] != width:
            raise InvalidInput(f"{inputs} must be (m, {width}) like inputs, got {points.shape}")
        if np.shape(getattr(self, labels)) != (len(points),):
            raise InvalidInput(
                f"{labels} must be ({len(points)},), one per row of {inputs}, "
                f"got {np.shape(getattr(self, labels))}"
            )
        known = arrays.as_labels(getattr(self, labels), labels, len(points))
        if known.max() >= self.classes:
            raise InvalidInput(
                f"{labels} must be below classes={self.classes}, got {known.max()}; "
                "classes count from 0"
            )
        # copies serve training alone, in float32, and there may be very many of them
        kept = points.astype(np.float32) if inputs == "soft_inputs" else points
        object.__setattr__(self, inputs, kept)
        object.__setattr__(self, labels, known)

    def _check_sources(self) -> None:
        sources = np.asarray(self.soft_sources)
        expected = (len(self.soft_inputs),)
        if sources.shape != expected or sources.dtype.kind not in "iu":
            raise InvalidInput(
                f"soft_sources must be {expected} whole numbers, got {sources.dtype} "
                f"{sources.shape}"
            )
        if sources.min() < -1 or sources.max() >= len(self.inputs):
            raise InvalidInput(
                f"soft_sources must lie in -1..{len(self.inputs) - 1}, got "
                f"{sources.min()}..{sources.max()}"
            )
        object.__setattr__(self, "soft_sources", sources.astype(np.int64))

    def without_soft(self) -> BaselineData:
        return replace(self, soft_inputs=None, soft_labels=None, soft_sources=None)


@dataclass(frozen=True, kw_only=True)
class BaselineSettings:
    """Settings of all baselines, the paper's by default; `Method.reads` says who reads what.

    rule, threshold: the rule on hard inputs. hidden: neurons of one member. training, batch: how
    long members train, on so many images per step (0: all; needed for early stopping). starts:
    random starts of a single network, of which one is kept by its training data. warm_up: share
    of the steps on cross-entropy alone, before violations count. weight: of squared violations.
    target: the threshold that training asks for, by default the rule's own. rounds: multiplier
    updates. correction_steps, correction_rate, soft_weight: of DC3. members: how many are
    averaged, at most boosted, or as wide as. nu: LPBoost's share of images that may lie below the
    margin. per_round: learners trained at a time by LPBoost. blur, gain: networks that read
    square pictures are trained through a first layer blurred by so many pixels, times the gain,
    and hold the blurred weights when finished; 0 is no blur.
    """

    rule: RuleKind = "margin"
    threshold: float = 0.05
    hidden: int = 4
    training: Training = PAPER_TRAINING
    batch: int = 0
    starts: int = 1
    warm_up: float = 0.0
    weight: float = 10.0
    target: float | None = None
    rounds: int = 5
    correction_steps: int = 5
    correction_rate: float = 0.1
    soft_weight: float = 0.0
    members: int = 64
    nu: float = 0.1
    per_round: int = 8
    blur: float = 0.0
    gain: float = 1.0
    device: str = "cpu"

    def __post_init__(self) -> None:
        _ = self.label_rule, self.training_rule  # both refuse what is no threshold
        faults = [
            f"{name} must be a whole number of at least {low}, got {getattr(self, name)!r}"
            for name, low in (
                ("hidden", 1),
                ("batch", 0),
                ("starts", 1),
                ("rounds", 1),
                ("correction_steps", 0),
                ("members", 1),
                ("per_round", 1),
            )
            if not isinstance(getattr(self, name), int) or getattr(self, name) < low
        ]
        for name in ("weight", "correction_rate", "soft_weight", "blur"):
            if not 0 <= getattr(self, name) < math.inf:
                faults.append(f"{name} must be a finite number >= 0, got {getattr(self, name)!r}")
        if not 0 <= self.warm_up < 1:
            faults.append(f"warm_up must lie in [0, 1), got {self.warm_up!r}")
        if not 0 < self.gain < math.inf:
            faults.append(f"gain must be a finite number > 0, got {self.gain!r}")
        if not 0 < self.nu <= 1:
            faults.append(f"nu must lie in (0, 1], got {self.nu!r}")
        if self.batch and self.training.schedule == "plateau":
            faults.append(
                "early stopping (schedule 'plateau') judges by the loss of all images; with "
                f"batch={self.batch} use schedule 'onecycle'"
            )
        if faults:
            raise InvalidSettings("; ".join(faults))

    @property
    def label_rule(self) -> LabelRule:
        return LabelRule(self.rule, self.threshold)

    @property
    def training_rule(self) -> LabelRule:
        return LabelRule(self.rule, self.threshold if self.target is None else self.target)


def paper_settings(
    rule: RuleKind,
    threshold: float,
    *,
    augmented: bool,
    members: int = 64,
    hidden: int = 4,
    device: str = "cpu",
) -> BaselineSettings:
    """The paper's settings; with augmented copies, batches in place of early stopping."""
    return BaselineSettings(
        rule=rule,
        threshold=threshold,
        hidden=hidden,
        members=members,
        device=device,
        training=PAPER_BATCH_TRAINING if augmented else PAPER_TRAINING,
        batch=PAPER_BATCH if augmented else 0,
    )


Predict = Callable[[Array], Array]
Correct = Callable[[Array, IntArray], Array]


@dataclass(frozen=True, eq=False)
class Fitted:
    """One trained predictor: (N, d) -> scores (N, classes) float64, whose argmax is the answer.

    Scores are probabilities under the rule "probability" and logits under "margin". `correct`
    maps scores and labels to new scores, for methods that use labels at inference.
    """

    predict: Predict
    members: NetworkMembers
    weights: Array
    note: str = ""
    correct: Correct | None = None


@dataclass(frozen=True, eq=False)
class BaselineResult:
    """A trained baseline."""

    name: str
    fitted: Fitted
    settings: BaselineSettings
    seconds: float

    @property
    def note(self) -> str:
        return self.fitted.note

    def predict(self, inputs: Any) -> Array:
        """Scores (N, classes) for inputs (N, d), without any label."""
        return self.fitted.predict(arrays.as_matrix(inputs, "inputs"))

    def predict_labelled(self, inputs: Any, labels: Any) -> Array:
        """Scores where the labels are known: corrected by methods that correct by labels."""
        scores = self.predict(inputs)
        if self.fitted.correct is None:
            return scores
        return self.fitted.correct(scores, arrays.as_labels(labels, "labels", len(scores)))


# (data, candidates, seed, repeats) -> candidates x repeats, the repeats of a candidate together
FitAll = Callable[[BaselineData, Sequence[BaselineSettings], int, int], list[Fitted]]
Grid = Callable[[BaselineSettings], list[BaselineSettings]]


@dataclass(frozen=True)
class Method:
    """A baseline: how it trains many candidates at once, and what its settings may be.

    `reads` are the settings that matter to it beyond rule, threshold, hidden, training, batch,
    blur and gain; `enforces` tells whether training knows the rule, `oracle` that corrections use
    labels which nobody knows at inference.
    """

    name: str
    fit_all: FitAll
    grid: Grid
    reads: tuple[str, ...] = ()
    enforces: bool = False
    oracle: bool = False

    def train(self, data: BaselineData, settings: BaselineSettings, *, seed: int) -> BaselineResult:
        start = time.perf_counter()
        fitted = self.fit_all(data, [settings], seed, 1)[0]
        seconds = time.perf_counter() - start
        return BaselineResult(self.name, fitted, settings, seconds)

    def used(self, settings: BaselineSettings) -> Mapping[str, Any]:
        """The settings that this method reads, as plain values."""
        training = settings.training
        plain: dict[str, Any] = {
            "learning_rate": training.learning_rate,
            "steps": training.steps,
            "schedule": training.schedule,
            "weight_decay": training.weight_decay,
            "batch": settings.batch,
            "blur": settings.blur,
            "gain": settings.gain,
        }
        return plain | {name: getattr(settings, name) for name in self.reads}


def training_grid(base: BaselineSettings) -> list[BaselineSettings]:
    """Four ways to train, beginning with `base`: faster, and faster with weights kept small."""
    fast = replace(base.training, learning_rate=10 * base.training.learning_rate)
    ways = [base.training, fast, replace(fast, weight_decay=0.1), replace(fast, weight_decay=1.0)]
    return [replace(base, training=way) for way in ways]
