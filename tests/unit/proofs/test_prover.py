"""Cells that resist a proof: which are taken, how many are kept, and what a checkpoint holds."""

import numpy as np
import pytest

from cg4ai.errors import InvalidInput
from cg4ai.proofs.prover import MOST, CellMemory, cells_of
from cg4ai.proofs.records import Certification, OpenCells, RuleCells
from cg4ai.rules import Linear
from cg4ai.rules.regions import Box


@pytest.fixture
def requirement():
    return Linear(Box(np.zeros(5), np.ones(5)), np.eye(4), np.ones(4), sense="<=")


def test_cells_are_taken_evenly_from_the_rules_that_resist():
    rules = np.array([0] * 500 + [4] * 3)
    size = len(rules)
    cells = OpenCells(rules, np.zeros((size, 2)), np.ones((size, 2)), np.full(size, 1.5))
    cells.bounds[500] = np.inf  # nothing is known of this one
    answer = Certification("unknown", (), None, None, None, cells, 9, 0.1, "")
    taken = cells_of(answer, seed=3)
    assert np.bincount(taken.rules).tolist() == [200, 0, 0, 0, 2]


def test_memory_keeps_the_newest(requirement):
    memory = CellMemory(requirement)
    for number in range(4):
        rules = np.full(MOST // 3, number)
        ends = np.zeros((len(rules), 5))
        memory.add(RuleCells(rules, ends, ends))
    assert len(memory) == MOST
    assert set(memory.cells.rules) == {1, 2, 3}


def test_memory_is_restored_as_it_was(requirement):
    memory, other = CellMemory(requirement), CellMemory(requirement)
    corners = np.random.default_rng(0).random((7, 5))
    memory.add(RuleCells(np.arange(7) % 4, corners, corners + 0.1))
    other.restore(memory.state())
    np.testing.assert_array_equal(other.cells.rules, memory.cells.rules)
    np.testing.assert_array_equal(other.cells.lower, memory.cells.lower)
    np.testing.assert_array_equal(other.cells.upper, memory.cells.upper)


def test_listed_inputs_have_no_cells():
    listed = Linear(np.zeros((3, 5)), np.ones(4), 1.0, sense="<=")
    with pytest.raises(InvalidInput, match="no Box or Ball"):
        CellMemory(listed)
