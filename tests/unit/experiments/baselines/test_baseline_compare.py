"""The comparison measures what it says, and only measures with test data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from baseline_cases import blobs, data

from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.errors import InvalidInput
from experiments.baselines import METHODS, compare, comparison_markdown, paper_settings
from raising import raises

TEST = blobs(20, seed=9)


def test_figures_equal_those_computed_by_hand() -> None:
    blurred = data(6, spread=0.8)
    row = compare(
        blurred,
        *TEST,
        rule="margin",
        threshold=0.2,
        seed=3,
        augmented=False,
        members=2,
        which=["single"],
        settings=["paper"],
    )[0]
    settings = paper_settings("margin", 0.2, augmented=False, members=2)
    result = METHODS["single"].train(blurred, settings, seed=3)
    right = [
        int(np.argmax(score)) == y
        for score, y in zip(result.predict(TEST[0]), TEST[1], strict=True)
    ]
    kept = 0
    for score, y in zip(result.predict(blurred.inputs), blurred.labels, strict=True):
        kept += all(score[y] - score[c] >= 0.2 for c in range(3) if c != y)
    assert row.test_accuracy == pytest.approx(np.mean(right))
    assert row.rows == 18
    assert row.rows_satisfied == pytest.approx(kept / 18)
    assert row.rows_satisfied_given_labels is None
    assert row.choosing_s is None
    assert row.blur == 0.0


def test_settings_do_not_depend_on_test_data(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = Training(steps=20, learning_rate=1e-2, decay=1.0)
    monkeypatch.setattr("experiments.baselines.records.PAPER_TRAINING", quick)
    rows = [
        compare(
            data(6, spread=0.8),
            TEST[0],
            labels,
            rule="probability",
            threshold=0.6,
            seed=1,
            augmented=False,
            members=2,
            which=["penalty", "projection"],
        )
        for labels in (TEST[1], (TEST[1] + 1) % 3)
    ]
    for first, second in zip(*rows, strict=True):
        assert first.chosen == second.chosen
        assert first.rows_satisfied == second.rows_satisfied
        assert first.test_accuracy != second.test_accuracy
    assert [row.settings for row in rows[0]] == ["paper", "tuned"] * 2
    oracle = rows[0][2]
    assert oracle.oracle
    assert (oracle.rows_satisfied_given_labels, oracle.accuracy_given_labels) == (1.0, 1.0)
    text = comparison_markdown(rows[0])
    assert "oracle projection (oracle) | tuned" in text
    assert len(text.splitlines()) == 6


def test_augmentation_is_given_to_all_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    single = METHODS["single"]

    def fit_all(given, candidates, seed, repeats):
        seen.append((given.soft_inputs is not None, candidates[0].batch))
        quick = replace(candidates[0], training=replace(candidates[0].training, steps=2))
        return single.fit_all(given, [quick], seed, repeats)

    for name in METHODS:
        monkeypatch.setitem(METHODS, name, replace(METHODS[name], fit_all=fit_all))
    for augmented in (True, False):
        compare(
            data(6, soft=2),
            *TEST,
            rule="margin",
            threshold=0.1,
            seed=0,
            augmented=augmented,
            members=2,
            settings=["paper"],
        )
    assert seen == [(True, 256)] * len(METHODS) + [(False, 0)] * len(METHODS)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"which": ["penalti"]}, "penalty"),
        ({"settings": ["best"]}, "tuned"),
        ({"augmented": True}, "soft_inputs"),
    ],
)
def test_refused(changes: dict[str, object], name: str) -> None:
    given: dict[str, object] = {"rule": "margin", "threshold": 0.1, "seed": 0, "members": 2}
    with raises(InvalidInput, "invalid-input", name):
        compare(data(2), *TEST, **(given | {"augmented": False} | changes))  # type: ignore[arg-type]
