"""Chooses a baseline's settings on a held-out part of the training data, never on test images."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.estimators.holdout import LabelledData, split_rows
from cg4ai.records import Array, IntArray
from cg4ai.seeds import derive_seed
from experiments.baselines.records import BaselineData, BaselineSettings, Fitted, Method

FRACTION = 0.2
CHOOSING_MEMBERS = 16
LEAST_BLURRED = 4  # candidates tried with a blur, or half of them where that is more


@dataclass(frozen=True)
class Candidate:
    """Settings with their mean validation accuracy and share of kept rules over the repeats.

    `score` is the accuracy, for methods that enforce the rule the mean of both.
    """

    settings: BaselineSettings
    accuracy: float
    rows_satisfied: float
    score: float


@dataclass(frozen=True)
class Choice:
    settings: BaselineSettings
    candidates: tuple[Candidate, ...]
    seconds: float


@dataclass(frozen=True)
class Validation:
    """`training` has nothing of the held-out inputs: not as rules and not as copies."""

    training: BaselineData
    inputs: Array
    labels: IntArray


def hold_out(data: BaselineData, *, seed: int) -> Validation:
    """A fifth of the training inputs, of each class alike, drawn by the seed."""
    if data.soft_inputs is not None and data.soft_sources is None:
        raise InvalidInput(
            "soft_sources is missing: without the original of each augmented copy, copies of "
            "held-out inputs would be trained on; give soft_sources, or no soft data"
        )
    positions = np.arange(len(data.labels))
    labelled = LabelledData(positions[:, None].astype(float), data.labels, np.ones(len(positions)))
    generator = np.random.default_rng(derive_seed(seed, 0, "validation"))
    kept, held = (
        part.inputs[:, 0].astype(np.int64) for part in split_rows(labelled, FRACTION, generator)
    )
    if not len(held):
        raise InvalidInput(
            f"no class has the {round(1 / FRACTION)} inputs it takes to hold one out; "
            "choose settings by hand, or give more data"
        )
    hidden = {row.tobytes() for row in data.inputs[held]}
    required = np.array([row.tobytes() not in hidden for row in data.hard_inputs])
    if not required.any():
        raise InvalidInput("every hard input is among those held out; give more hard inputs")
    training = replace(
        data.without_soft(),
        inputs=data.inputs[kept],
        labels=data.labels[kept],
        hard_inputs=data.hard_inputs[required],
        hard_labels=data.hard_labels[required],
    )
    if data.soft_inputs is not None:
        stays = ~np.isin(data.soft_sources, held)
        if stays.any():
            training = replace(
                training,
                soft_inputs=data.soft_inputs[stays],
                soft_labels=data.soft_labels[stays],
            )
    return Validation(training, data.inputs[held], data.labels[held])


def tuned(
    method: Method,
    data: BaselineData,
    base: BaselineSettings,
    *,
    seed: int,
    repeats: int = 5,
    grid: Sequence[BaselineSettings] | None = None,
    blur: float = 0.0,
    gain: float = 1.0,
) -> Choice:
    """The best of `grid` (the method's own around `base` by default) on the held-out part.

    Each candidate trains `repeats` times from other random starts; the chosen settings of a single
    network get as many starts. Methods with many members choose with at most 16 of them and once,
    and the chosen settings get back their own number. With a `blur` the better half of the
    candidates, at least four, is tried once more with that blur and gain. Of equal scores the one
    that keeps more rules, then the first, is chosen.
    """
    start = time.perf_counter()
    candidates = list(method.grid(base) if grid is None else grid)
    if not candidates:
        raise InvalidInput("grid is empty; give at least one candidate")
    validation = hold_out(data, seed=seed)
    judged = _tried(method, candidates, validation, seed=seed, repeats=repeats)
    if blur:
        count = max(LEAST_BLURRED, (len(judged) + 1) // 2)
        better = sorted(judged, key=_merit, reverse=True)[:count]
        again = [replace(candidate.settings, blur=blur, gain=gain) for candidate in better]
        judged += _tried(method, again, validation, seed=seed, repeats=repeats)
    best = max(judged, key=_merit)
    single = "starts" in method.reads
    chosen = replace(best.settings, starts=repeats) if single else best.settings
    return Choice(chosen, tuple(judged), time.perf_counter() - start)


def _merit(candidate: Candidate) -> tuple[float, float]:
    return candidate.score, candidate.rows_satisfied


def _tried(
    method: Method,
    candidates: Sequence[BaselineSettings],
    validation: Validation,
    *,
    seed: int,
    repeats: int,
) -> list[Candidate]:
    """Train every candidate without the held-out part and judge it on that."""
    many = "members" in method.reads
    smaller = [
        replace(settings, members=min(settings.members, CHOOSING_MEMBERS)) if many else settings
        for settings in candidates
    ]
    tries = 1 if many else repeats
    fitted = method.fit_all(validation.training, smaller, derive_seed(seed, 0, "choice"), tries)
    return [
        _judged(method, settings, fitted[tries * index : tries * (index + 1)], validation)
        for index, settings in enumerate(candidates)
    ]


def _judged(
    method: Method, settings: BaselineSettings, tries: Sequence[Fitted], validation: Validation
) -> Candidate:
    accuracy = float(np.mean([_accuracy(fitted, validation) for fitted in tries]))
    rows = float(np.mean([_kept(fitted, settings, validation.training) for fitted in tries]))
    score = (accuracy + rows) / 2 if method.enforces else accuracy
    return Candidate(settings, accuracy, rows, score)


def _accuracy(fitted: Fitted, validation: Validation) -> float:
    return float((fitted.predict(validation.inputs).argmax(1) == validation.labels).mean())


def _kept(fitted: Fitted, settings: BaselineSettings, data: BaselineData) -> float:
    scores = fitted.predict(data.hard_inputs)
    if fitted.correct is not None:
        scores = fitted.correct(scores, data.hard_labels)
    return float(settings.label_rule.satisfied(scores, data.hard_labels).mean())
