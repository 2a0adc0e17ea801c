"""Cells that resist a proof: which are taken, how many are kept, and what a checkpoint holds."""

import numpy as np
import pytest

from cg4ai.errors import InvalidInput
from cg4ai.proofs.prover import NEAR, PER_RULE, CellMemory, compute_leaf_corners
from cg4ai.proofs.records import Certification, OpenCells, RuleCells, RuleProof
from cg4ai.rules import Linear
from cg4ai.rules.regions import Box
from raising import raises


@pytest.fixture
def requirement():
    return Linear(Box(np.zeros(5), np.ones(5)), np.eye(4), np.ones(4), sense="<=")


def grown(lower, upper, depth, made):
    """A random tree in preorder, and the corners of its leaves by halving boxes."""
    if depth == 0 or made.random() < 0.2:
        return [-1], [(lower, upper)]
    dimension = int(made.integers(len(lower)))
    high, low = upper.copy(), lower.copy()
    high[dimension] = low[dimension] = 0.5 * (lower[dimension] + upper[dimension])
    first, leaves = grown(lower, high, depth - 1, made)
    second, more = grown(low, upper, depth - 1, made)
    return [dimension, *first, *second], leaves + more


@pytest.mark.parametrize("seed", range(5))
def test_corners_of_leaves_are_those_of_halved_boxes(seed):
    made = np.random.default_rng(seed)
    lower, upper = made.random(3), 1.0 + made.random(3)
    tree, leaves = grown(lower, upper, 7, made)
    chosen = np.arange(0, len(leaves), 2)
    found = compute_leaf_corners(np.array(tree, np.int16), chosen, lower=lower, upper=upper)
    np.testing.assert_array_equal(found[0], [leaves[k][0] for k in chosen])
    np.testing.assert_array_equal(found[1], [leaves[k][1] for k in chosen])


def proof_of(rule, bounds):
    """A comb: the last leaf halved again and again, a leaf for every bound."""
    dimensions = np.array([*([rule % 5, -1] * (len(bounds) - 1)), -1], np.int16)
    return RuleProof(rule, "unknown", 1.0, max(bounds), dimensions, np.array(bounds), 9)


def test_open_and_tight_cells_are_taken_as_many_of_every_rule(requirement):
    many = [1.5] * (2 * PER_RULE)
    few = [0.5, 1.0 - NEAR / 2, -np.inf, np.inf, 1.2]  # kept by far, tight, outside, unknown, open
    no_cells = OpenCells(np.empty(0, np.int64), np.empty((0, 5)), np.empty((0, 5)), np.empty(0))
    rules = (proof_of(0, many), proof_of(3, few))
    answer = Certification("unknown", rules, None, None, None, no_cells, 9, 0.1, "")
    memory = CellMemory(requirement)
    memory.cells = RuleCells(np.full(3, 2), np.zeros((3, 5)), np.ones((3, 5)))
    memory.learn(answer, seed=3)
    assert np.bincount(memory.cells.rules).tolist() == [PER_RULE, 0, 0, 2]
    mine = memory.cells.take(np.flatnonzero(memory.cells.rules == 3))
    np.testing.assert_array_equal(mine.lower[:, 3], [0.5, 0.9375])
    np.testing.assert_array_equal(mine.upper[:, 3], [0.75, 1.0])


def test_memory_is_restored_as_it_was(requirement):
    memory, other = CellMemory(requirement), CellMemory(requirement)
    corners = np.random.default_rng(0).random((7, 5))
    memory.cells = RuleCells(np.arange(7) % 4, corners, corners + 0.1)
    other.restore(memory.state())
    np.testing.assert_array_equal(other.cells.rules, memory.cells.rules)
    np.testing.assert_array_equal(other.cells.lower, memory.cells.lower)
    np.testing.assert_array_equal(other.cells.upper, memory.cells.upper)


def test_listed_inputs_have_no_cells():
    listed = Linear(np.zeros((3, 5)), np.ones(4), 1.0, sense="<=")
    with raises(InvalidInput, "unsupported", "Box", "Ball"):
        CellMemory(listed)


@pytest.mark.parametrize("halvings", [1, 4])
def test_leaves_are_halved_further_within_themselves(requirement, halvings):
    no_cells = OpenCells(np.empty(0, np.int64), np.empty((0, 5)), np.empty((0, 5)), np.empty(0))
    answer = Certification(
        "unknown", (proof_of(3, [1.5] * 6),), None, None, None, no_cells, 9, 0.1, ""
    )
    memory, finer = CellMemory(requirement), CellMemory(requirement)
    memory.learn(answer, seed=3)
    finer.learn(answer, seed=3, halvings=halvings)
    assert (finer.cells.lower >= memory.cells.lower).all()
    assert (finer.cells.upper <= memory.cells.upper).all()
    width, halved = memory.cells.upper - memory.cells.lower, finer.cells.upper - finer.cells.lower
    ratio = np.full(5, 1.0)
    ratio[3] = 0.5**halvings  # where the tree was halved, the only such dimension
    np.testing.assert_allclose(halved / width, np.tile(ratio, (len(width), 1)))
