"""The study of decisions on new rows: its tables, and accuracies at equal gaps."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.decisions import (
    DRAWN,
    PLAIN,
    REAL,
    REDUCTION,
    Task,
    all_tasks,
    at_equal_gap,
    methods_of,
)
from experiments.peers.outcomes import Outcome
from experiments.peers.people import People


@pytest.mark.parametrize("table", [*REAL, *DRAWN])
def test_tables_hold_groups_and_a_known_one_is_a_feature(table: str) -> None:
    rows = 1000 if table in DRAWN else 0
    train, fresh = Task(table, rows, "selection", known=False).draw(3)
    assert len(fresh.labels) >= len(train.labels) - 1
    rates = [train.labels[train.groups == g].mean() for g in np.unique(train.groups)]
    assert all(0.02 < rate < 0.98 for rate in rates)
    told, _ = Task(table, rows, "selection", known=True).draw(3)
    np.testing.assert_array_equal(told.inputs[:, -1], told.groups)
    np.testing.assert_array_equal(told.inputs[:, :-1], train.inputs)


def test_gaps_and_their_errors_are_those_of_the_groups() -> None:
    people = People(np.zeros((8, 1)), np.array([1, 0] * 4), np.array([0] * 4 + [1] * 4))
    decided = np.array([1, 0, 1, 0, 1, 1, 0, 0])
    assert Task("x", 8, "selection", known=False).gap(decided, people) == 0.0
    odds = Task("x", 8, "equalised odds", known=False)
    assert odds.gap(decided, people) == 0.5
    assert odds.error(decided, people, people) == pytest.approx(np.sqrt(0.25 / 2))


def test_peers_are_read_between_their_bounds() -> None:
    def one(method: str, gap: float, accuracy: float) -> Outcome:
        return Outcome("t", method, 0, {"fresh_gap": gap, "accuracy": accuracy})

    found = [one(f"{REDUCTION}, bound 1", 0.1, 0.7), one(PLAIN, 0.3, 0.8)]
    assert at_equal_gap(found, "t", REDUCTION, 0.2) == pytest.approx(0.75)
    assert at_equal_gap(found, "t", REDUCTION, 0.05) == pytest.approx(0.7)


def test_every_task_has_its_methods() -> None:
    tasks = all_tasks([*REAL, *DRAWN], (2000, 5000))
    assert len(tasks) == 4 * (len(REAL) + 2 * len(DRAWN))
    assert len({one.name for one in tasks}) == len(tasks)
    assert all(PLAIN in methods_of(one) for one in tasks)
