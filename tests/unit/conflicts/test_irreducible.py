"""Sets of which none is spare: against SciPy's linprog, on random systems of rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from cg4ai.conflicts.irreducible import ElasticProgram, System, UndecidedError, search


def feasible(matrix: np.ndarray, bounds: np.ndarray) -> bool:
    """Whether A x >= b has a solution, by another solver's word."""
    size = matrix.shape[1]
    answer = linprog(np.zeros(size), -matrix, -bounds, bounds=[(None, None)] * size)
    return answer.status == 0


def system(matrix: np.ndarray, bounds: np.ndarray, owner: np.ndarray | None = None) -> System:
    rows, size = matrix.shape
    lower = np.full(size, -np.inf)
    owner = np.arange(rows) if owner is None else owner
    return System(csr_matrix(matrix), bounds, owner, lower, csr_matrix((0, size)), np.empty(0))


def random_rows(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """More rows than variables: mostly such that cannot all hold."""
    random = np.random.default_rng(seed)
    size, rows = int(random.integers(1, 5)), int(random.integers(4, 14))
    matrix = random.integers(-3, 4, size=(rows, size)).astype(float)
    return matrix, random.integers(-3, 6, size=rows).astype(float)


@pytest.mark.slow
@pytest.mark.guard
def test_200_random_systems_have_irreducible_conflicts() -> None:
    infeasible = seed = 0
    while infeasible < 200:
        matrix, bounds = random_rows(seed)
        seed += 1
        found = search(ElasticProgram(system(matrix, bounds), 1e-7), np.arange(len(bounds)))
        assert (found is None) == feasible(matrix, bounds), seed
        if found is None:
            continue
        infeasible += 1
        assert found.irreducible
        rows = np.concatenate(found.parts)
        assert not feasible(matrix[rows], bounds[rows]), seed
        for one in rows:
            rest = rows[rows != one]
            assert feasible(matrix[rest], bounds[rest]), seed


def test_rows_of_one_clause_stay_together() -> None:
    matrix = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    owner = np.array([0, 0, 1, 2])  # 0 <= x <= 1; x >= 2; x <= 5
    rows = system(matrix, np.array([0.0, -1.0, 2.0, -5.0]), owner)
    found = search(ElasticProgram(rows, 1e-7), np.arange(3))
    assert [part.tolist() for part in found.parts] == [[0], [1]]


def test_very_many_rows_are_told_by_requirement() -> None:
    """Each of 100 variables is at least 1, their sum at most 99; one further row is spare."""
    matrix = np.vstack([np.eye(100), -np.ones((1, 100)), np.eye(100)[:1]])
    bounds = np.array([1.0] * 100 + [-99.5, -3.0])
    requirement = np.array([0] * 100 + [1, 2])
    found = search(ElasticProgram(system(matrix, bounds), 1e-7), requirement)
    assert [len(part) for part in found.parts] == [100, 1]
    assert found.irreducible


class Tired:
    """Knows of all clauses together, then gives up."""

    def __init__(self) -> None:
        self.asked = 0

    def find_core(self, kept: np.ndarray) -> np.ndarray | None:
        self.asked += 1
        if self.asked > 2:
            raise UndecidedError("enough")
        return kept

    def part(self, kept: np.ndarray) -> Tired:
        return self


def test_a_search_that_ends_early_says_so() -> None:
    found = search(Tired(), np.arange(3))
    assert len(found.parts) == 3
    assert not found.irreducible


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_the_scale_of_rows_does_not_matter(scale: float) -> None:
    matrix = scale * np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    clash = search(
        ElasticProgram(system(matrix, scale * np.array([1.0, -0.9, 0.0])), 1e-7), np.arange(3)
    )
    assert [part.tolist() for part in clash.parts] == [[0], [1]]
    none = search(
        ElasticProgram(system(matrix, scale * np.array([1.0, -1.0, 0.0])), 1e-7), np.arange(3)
    )
    assert none is None
