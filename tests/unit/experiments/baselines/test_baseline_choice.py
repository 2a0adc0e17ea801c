"""Settings are chosen on a held-out part of the training data, and by its score alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from baseline_cases import SETTINGS, blobs, data

from cg4ai.errors import InvalidInput
from cg4ai.records import Array
from experiments.baselines import METHODS, BaselineData, BaselineSettings, Method, tuned
from experiments.baselines.choice import hold_out
from experiments.baselines.records import Fitted
from raising import raises


def rows(array: Array) -> set[bytes]:
    return {row.tobytes() for row in np.asarray(array, dtype=np.float64)}


def test_nothing_held_out_is_trained_on() -> None:
    every = data(10, soft=3)
    part = hold_out(every, seed=7)
    held = rows(part.inputs)
    assert len(held) == 6
    assert np.bincount(part.labels).tolist() == [2, 2, 2]
    assert rows(part.training.inputs) == rows(every.inputs) - held
    assert rows(part.training.hard_inputs).isdisjoint(held)
    assert len(part.training.soft_inputs) == 3 * 24
    gone = {tuple(x) for x in np.round(part.inputs, 12)}
    for copy, source in zip(every.soft_inputs, every.soft_sources, strict=True):
        among = bool((part.training.soft_inputs == copy).all(1).any())
        assert among == (tuple(np.round(every.inputs[source], 12)) not in gone)


def test_seed_decides_what_is_held_out() -> None:
    every = data(10)
    assert rows(hold_out(every, seed=1).inputs) == rows(hold_out(every, seed=1).inputs)
    assert rows(hold_out(every, seed=1).inputs) != rows(hold_out(every, seed=2).inputs)


def recording(seen: list[BaselineData], right: float) -> Method:
    """A method that is right iff its weight is `right`, and notes what it is given."""

    def fit_all(
        given: BaselineData, candidates: Sequence[BaselineSettings], seed: int, repeats: int
    ) -> list[Fitted]:
        seen.append(given)
        single = METHODS["single"].fit_all(given, [SETTINGS], seed, 1)[0]

        def fitted(settings: BaselineSettings) -> Fitted:
            sign = 1.0 if settings.weight == right else -1.0
            return replace(single, predict=lambda inputs: sign * single.predict(inputs))

        return [fitted(settings) for settings in candidates for _ in range(repeats)]

    def grid(base: BaselineSettings) -> list[BaselineSettings]:
        return [replace(base, weight=weight) for weight in (1.0, 2.0, 3.0)]

    return Method("recording", fit_all, grid)


def test_the_best_on_the_held_out_part_is_chosen() -> None:
    every = data(10, spread=0.1)
    seen: list[Any] = []
    choice = tuned(recording(seen, 2.0), every, SETTINGS, seed=1)
    assert choice.settings.weight == 2.0
    assert [candidate.settings.weight for candidate in choice.candidates] == [1.0, 2.0, 3.0]
    assert choice.candidates[1].accuracy > max(choice.candidates[i].accuracy for i in (0, 2))
    held = rows(hold_out(every, seed=1).inputs)
    assert all(rows(given.inputs).isdisjoint(held) for given in seen)


def test_the_better_half_is_tried_with_a_blur_too() -> None:
    smooth = recording([], 5.0)

    def fit_all(
        given: BaselineData, candidates: Sequence[BaselineSettings], seed: int, repeats: int
    ) -> list[Fitted]:
        # right where blurred, and else for weights from 6 on
        right = [5.0 if c.blur or c.weight >= 6 else 0.0 for c in candidates]
        plain = [replace(c, weight=w) for c, w in zip(candidates, right, strict=True)]
        return smooth.fit_all(given, plain, seed, repeats)

    grid = [replace(SETTINGS, weight=float(weight)) for weight in range(10)]
    method = replace(smooth, fit_all=fit_all)
    choice = tuned(method, data(10, spread=0.1), SETTINGS, seed=1, grid=grid, blur=2.0, gain=1.5)
    tried = [c.settings for c in choice.candidates]
    assert [c.blur for c in tried] == [0.0] * 10 + [2.0] * 5
    assert [c.weight for c in tried[10:]] == [6.0, 7.0, 8.0, 9.0, 0.0]
    assert {c.gain for c in tried[10:]} == {1.5}
    few = tuned(method, data(10, spread=0.1), SETTINGS, seed=1, grid=grid[:4], blur=2.0)
    assert few.settings.blur == 2.0
    assert len(few.candidates) == 8


def test_scores_of_candidates_can_be_recomputed() -> None:
    blurred = data(10, spread=0.8)
    grid = [replace(SETTINGS, weight=weight) for weight in (0.01, 1.0)]
    choice = tuned(METHODS["penalty"], blurred, SETTINGS, seed=3, repeats=2, grid=grid)
    for candidate in choice.candidates:
        assert candidate.score == pytest.approx((candidate.accuracy + candidate.rows_satisfied) / 2)
    best = max(choice.candidates, key=lambda candidate: candidate.score)
    assert choice.settings == replace(best.settings, starts=2)
    again = tuned(METHODS["penalty"], blurred, SETTINGS, seed=3, repeats=2, grid=grid)
    assert again.candidates == choice.candidates


def test_many_members_come_back_in_the_chosen_settings() -> None:
    base = replace(SETTINGS, members=40, training=replace(SETTINGS.training, steps=5))
    choice = tuned(METHODS["average"], data(5), base, seed=0)
    assert choice.settings.members == 40


def test_grids_begin_with_the_settings_given() -> None:
    for name, method in METHODS.items():
        grid = method.grid(SETTINGS)
        assert SETTINGS in grid, name
        assert len(set(grid)) == len(grid), name


def test_copies_without_originals_are_refused() -> None:
    copies = replace(data(10, soft=1), soft_sources=None)
    with raises(InvalidInput, "invalid-input", "soft_sources"):
        tuned(METHODS["single"], copies, SETTINGS, seed=0)


def test_too_few_inputs_are_refused() -> None:
    with raises(InvalidInput, "invalid-input"):
        hold_out(data(4), seed=0)
    every = data(10)
    held = hold_out(every, seed=0)
    only = replace(every, hard_inputs=held.inputs, hard_labels=held.labels)
    with raises(InvalidInput, "invalid-input", "every"):
        hold_out(only, seed=0)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"labels": np.zeros(3)}, "labels"),
        ({"labels": np.full(6, 3)}, "classes=3"),
        ({"hard_inputs": np.zeros((6, 5))}, "hard_inputs"),
        ({"soft_labels": np.zeros(1)}, "soft_inputs"),
        ({"classes": 1}, "classes"),
        (
            {"soft_inputs": np.zeros((1, 2)), "soft_labels": [0], "soft_sources": [6]},
            "soft_sources",
        ),
    ],
)
def test_wrong_data_is_refused(wrong: dict[str, object], name: str) -> None:
    inputs, labels = blobs(2, seed=0)
    with raises(InvalidInput, "invalid-input", name):
        replace(BaselineData(inputs, labels, inputs, labels, 3), **wrong)  # type: ignore[arg-type]
