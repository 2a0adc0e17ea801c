"""The control of columns: equal steps, every way, and tables of means and the worst seed."""

from __future__ import annotations

import pytest

from experiments import columns


def test_ways_are_trained_for_equal_steps_and_summarised() -> None:
    found = columns.compare_ways(("abilene-5-3", 3), guarantee="shielded", most=2, steps=40)
    assert [(one["columns"], one["way"]) for one in found] == [
        (1, "one network"),
        (2, "one network"),
        *((2, way) for way in columns.COLUMN_WAYS),
    ]
    assert [one["steps"] for one in found] == [40, 46, 46, 46, 46]
    assert all(0 <= one["mean"] <= one["p999"] <= one["max"] for one in found)
    other = {**found[0], "seed": 4, "mean": found[0]["mean"] + 0.2}
    first = columns.summarise([*found, other])[0]
    assert first["seeds"] == 2
    assert first["mean"] == pytest.approx(found[0]["mean"] + 0.1, abs=1e-5)
    assert first["worst mean"] == pytest.approx(found[0]["mean"] + 0.2, abs=1e-5)
