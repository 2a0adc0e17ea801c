"""Rounds of a search: dealt cells are joined to the same tree, whoever worked on them, and when."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from certification_cases import random_networks, single_block

from cg4ai import certify
from cg4ai.errors import InvalidInput
from cg4ai.proofs import Certification
from cg4ai.proofs import search_rounds as rounds
from cg4ai.proofs.bounds.bound import CellBound, Cells
from cg4ai.proofs.bounds.search import Search
from cg4ai.rules import Box, Linear
from raising import raises

BOX = Box([-1.0, -1.0], [1.0, 1.0])
ROWS = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0], [1.0, 1.0, -1.0]])


def small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many rounds and tasks with few cells."""
    for name, cells in (("FIRST_ROUND", 16), ("LEAST_TASK", 16), ("LAST_ROUND", 128)):
        monkeypatch.setattr(rounds, name, cells)


def case(room: float, count: int = 3) -> tuple[Any, Linear]:
    """Networks, and `count` rules whose limits leave so much room above what was seen."""
    ensemble = single_block(random_networks(8, count=3, hidden=(16, 16), size=3.0))
    axis = np.linspace(-1.0, 1.0, 401)
    points = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    top = (ensemble.predict(points) @ ROWS[:count].T).max(0)
    return ensemble, Linear(BOX, ROWS[:count], top + room, sense="<=")


def same(one: Certification, other: Certification) -> bool:
    """Equal in all but time, to the last bit."""
    for field in fields(one):
        first, second = getattr(one, field.name), getattr(other, field.name)
        if field.name not in ("seconds", "rules", "open_cells", "violations"):
            assert np.array_equal(first, second), field.name
    for mine, theirs in zip(one.rules, other.rules, strict=True):
        for field in fields(mine):
            assert np.array_equal(getattr(mine, field.name), getattr(theirs, field.name))
    for field in fields(one.open_cells):
        assert np.array_equal(
            getattr(one.open_cells, field.name), getattr(other.open_cells, field.name)
        )
    assert one.violations.keys() == other.violations.keys()
    return all(
        np.array_equal(one.violations[rule], other.violations[rule]) for rule in one.violations
    )


@pytest.mark.slow
@pytest.mark.guard
@pytest.mark.parametrize(
    ("room", "count", "limits", "status"),
    [
        (1e-4, 3, {}, "proven"),
        (1e-5, 3, {"cell_limit": 150}, "unknown"),
        (-1e-6, 1, {}, "refuted"),
        (-1e-6, 3, {"all_rules": True}, "refuted"),
    ],
)
def test_the_answer_is_the_same_for_any_number_of_jobs(
    room: float, count: int, limits: dict[str, Any], status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_rounds(monkeypatch)
    ensemble, rule = case(room, count)
    alone = certify(ensemble, rule, n_jobs=1, tolerance=0.0, **limits)
    assert alone.status == status
    assert alone.cells <= limits.get("cell_limit", np.inf)
    assert same(alone, certify(ensemble, rule, n_jobs=2, tolerance=0.0, **limits))


def test_dealing_makes_the_tree_that_one_search_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble, rule = case(1e-3)
    whole = certify(ensemble, rule, n_jobs=1)
    small_rounds(monkeypatch)
    dealt = certify(ensemble, rule, n_jobs=1)
    assert dealt.cells == whole.cells
    for mine, theirs in zip(dealt.rules, whole.rules, strict=True):
        assert np.array_equal(mine.dimensions, theirs.dimensions)
        np.testing.assert_allclose(mine.leaf_bounds, theirs.leaf_bounds, rtol=1e-12, atol=1e-12)


def widths(cells: Cells) -> CellBound:
    width = cells.upper - cells.lower
    return CellBound(width.amax(-1), width, torch.ones_like(width))


def test_dealt_searches_come_back_as_they_were_or_as_they_are_now() -> None:
    def begun() -> Search:
        search = Search(0.2, 0.0, lower=np.zeros(2), upper=np.array([1.0, 2.0]))
        for _ in range(3):
            search.step(2, widths)
        return search

    search, other = begun(), begun()
    waiting = search.waiting
    parts = search.deal(3)
    assert search.waiting == 0
    assert sum(part.waiting for part in parts) == waiting
    assert max(part.waiting for part in parts) - min(part.waiting for part in parts) <= 1
    for part in parts[1:]:
        while part.waiting:
            part.step(5, widths)
    for part in parts:
        search.join(part)
    assert search.waiting == parts[0].waiting > 0
    for one in (search, other):
        while one.waiting:
            one.step(4, widths)
    assert search.cells == other.cells
    assert [array.tolist() for array in search.preorder()] == [
        array.tolist() for array in other.preorder()
    ]


def test_wrong_numbers_of_jobs_are_refused() -> None:
    ensemble, rule = case(1e-3)
    with raises(InvalidInput, "range", "n_jobs"):
        certify(ensemble, rule, n_jobs=0)
