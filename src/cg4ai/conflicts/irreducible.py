"""Linear rows that exclude each other: a certificate by duality, and a set of which none is spare.

Rows `A x >= b` over `x >= lower`, `H x = h` are given a slack each. Where the least sum of slack is
positive its duals beta >= 0 are a certificate: rows with beta > 0 cannot hold together (Farkas).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_matrix, csr_matrix, hstack, identity

from cg4ai.errors import SolverFailure
from cg4ai.records import Array, IntArray
from cg4ai.solvers.highs import OPTIMAL, LinearProgram

PRICED = 1e-9  # duals up to this are rounding; slack costs 1 each
TIGHT = 1e-9  # to which HiGHS meets rows
MOST_CLAUSES = 60  # that are named one by one; of more only the requirements

Core = Callable[[NDArray[np.bool_]], NDArray[np.bool_] | None]


class UndecidedError(Exception):
    """The work that was allowed did not tell whether a set can be kept."""


@dataclass(frozen=True)
class System:
    """`matrix @ x >= bounds`, (m, n), `equal @ x == to`, `x >= lower`.

    Row j is of clause `owner[j]`, counted from 0.
    """

    matrix: Any
    bounds: Array
    owner: IntArray
    lower: Array
    equal: Any
    to: Array

    @property
    def scale(self) -> Array:
        """(m,): the largest coefficient of each row, one for rows that have none."""
        most = np.asarray(abs(self.matrix).max(axis=1).todense()).ravel()
        return np.where(most > 0, most, 1.0)

    def part(self, kept: NDArray[np.bool_]) -> System:
        """Of these clauses alone, numbered anew, with the x that they speak of."""
        rows = kept[self.owner]
        matrix = self.matrix[rows]
        used = np.asarray((abs(matrix) > 0).sum(axis=0)).ravel() > 0
        used[:1] = True  # of rows without coefficients, too, there is something to solve
        tied = (abs(self.equal) @ used.astype(float)) > 0
        used |= np.asarray((abs(self.equal[tied]) > 0).sum(axis=0)).ravel() > 0
        owner = (np.cumsum(kept) - 1)[self.owner[rows]]
        return System(
            matrix[:, used],
            self.bounds[rows],
            owner,
            self.lower[used],
            self.equal[tied][:, used],
            self.to[tied],
        )


@dataclass(frozen=True, slots=True)
class LeastSlack:
    """The least sum of slack, and its duals: of the rows as they were given, and of equalities."""

    total: float
    rows: Array
    equal: Array


class ElasticProgram:
    """A system solved again and again with some of its clauses, each time from the last basis.

    Rows are scaled to a largest coefficient of one, so that slack compares.
    """

    def __init__(self, system: System, tolerance: float) -> None:
        self.system, self.tolerance = system, tolerance
        self._scale = system.scale
        rows, size = system.matrix.shape
        self._bounds = system.bounds / self._scale
        self._program = LinearProgram(TIGHT)
        self._program.add_columns(np.zeros(size), system.lower, csc_matrix((0, size)))
        self._program.add_columns(np.ones(rows), np.zeros(rows), csc_matrix((0, rows)))
        scaled = csr_matrix(system.matrix.multiply(1 / self._scale[:, None]))
        whole = hstack([scaled, identity(rows)], format="csr")
        self._program.add_rows(self._bounds, np.full(rows, np.inf), whole)
        plain = hstack([system.equal, csr_matrix((len(system.to), rows))], format="csr")
        self._program.add_rows(system.to, system.to, plain)

    def add_columns(self, matrix: Array, equal: Array) -> None:
        """Further x >= 0 with coefficients (m, c) in the rows and (h, c) in the equalities."""
        whole = csc_matrix(np.concatenate([matrix / self._scale[:, None], equal]))
        none = np.zeros(matrix.shape[1])
        self._program.add_columns(none, none, whole)

    def minimise_slack(self, kept: NDArray[np.bool_]) -> LeastSlack:
        """The least sum of slack of the clauses `kept` (count,); UndecidedError if HiGHS has no
        answer.
        """
        system = self.system
        active = kept[system.owner]
        lower = np.concatenate([np.where(active, self._bounds, -np.inf), system.to])
        upper = np.concatenate([np.full(len(active), np.inf), system.to])
        try:
            self._program.change_row_bounds(lower, upper)
            ending = self._program.run()
        except SolverFailure as error:
            raise UndecidedError(str(error)) from error
        if ending.status != OPTIMAL:
            raise UndecidedError(ending.status)
        duals = self._program.solution().duals
        own = np.where(active, np.maximum(duals[: len(active)], 0.0), 0.0) / self._scale
        return LeastSlack(self._program.objective(), own, duals[len(active) :])

    def find_core(self, kept: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        """Which of these clauses exclude each other; None: all can be kept together."""
        least = self.minimise_slack(kept)
        return None if least.total <= self.tolerance else self.find_priced(least, kept)

    def part(self, kept: NDArray[np.bool_]) -> ElasticProgram:
        return ElasticProgram(self.system.part(kept), self.tolerance)

    def find_priced(self, least: LeastSlack, kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The clauses (count,) that have a price."""
        found = np.zeros(len(kept), bool)
        found[self.system.owner[least.rows * self._scale > PRICED]] = True
        return found


class ClauseProver(Protocol):
    """Tells whether clauses can be kept together."""

    def find_core(self, kept: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        """Which of the clauses `kept` (count,) exclude each other; None: they do not."""
        ...

    def part(self, kept: NDArray[np.bool_]) -> ClauseProver:
        """The same for these clauses alone, numbered anew."""
        ...


@dataclass(frozen=True, slots=True)
class ConflictSets:
    """Sets of clauses that exclude each other; `irreducible`: it was shown that none is spare.

    They are single clauses, or all of one requirement where single ones would be too many.
    """

    parts: tuple[IntArray, ...]
    irreducible: bool


def search(prover: ClauseProver, requirement: IntArray) -> ConflictSets | None:
    """What excludes each other, none of it spare; None if all clauses can be kept together.

    `requirement` (count,) says which one each clause is of.
    """
    count = len(requirement)
    try:
        first = prover.find_core(np.ones(count, bool))
    except UndecidedError:
        return None
    if first is None:
        return None
    if first.sum() > MOST_CLAUSES:
        first = _shrunk(prover.find_core, first, np.ones(count, bool))
    if first.sum() > MOST_CLAUSES:
        known, owner = np.unique(requirement, return_inverse=True)
        kept, shown = find_irreducible(_coarse(prover.find_core, owner, len(known)), len(known))
        parts = tuple(np.flatnonzero(owner == one) for one in np.flatnonzero(kept).tolist())
        return ConflictSets(parts, shown)
    small = prover.part(first)
    try:
        still = small.find_core(np.ones(int(first.sum()), bool)) is not None
    except UndecidedError:
        still = False
    if not still:  # rounding put some price below what counts
        small, first = prover, np.ones(count, bool)
    kept, shown = find_irreducible(small.find_core, int(first.sum()))
    return ConflictSets(tuple(np.flatnonzero(first)[kept][:, None]), shown)


def _coarse(core: Core, owner: IntArray, count: int) -> Core:
    """The same for sets of clauses: all of one owner or none."""

    def coarse(kept: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        found = core(kept[owner])
        return None if found is None else np.bincount(owner[found], minlength=count) > 0

    return coarse


def find_irreducible(core: Core, count: int) -> tuple[NDArray[np.bool_], bool]:
    """A set (count,) of which none is spare, by deletion, and whether that was shown of all.

    All together are known to exclude each other. Each is left out in turn. Where the others still
    do, it stays out, with all that have no price; else it is needed, in this set and in every part
    of it that excludes.
    """
    kept, shown = np.ones(count, bool), True
    for clause in range(count):
        if not kept[clause]:
            continue
        others = kept.copy()
        others[clause] = False
        try:
            found = core(others)
        except UndecidedError:
            shown = False
            continue
        if found is not None:
            kept = _shrunk(core, found, others)
    return kept, shown


def _shrunk(core: Core, found: NDArray[np.bool_], known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The smallest set that prices lead to, shown to exclude; `known` where rounding misled."""
    while True:
        try:
            again = core(found)
        except UndecidedError:
            again = None
        if again is None:
            return known
        if again.sum() == found.sum():
            return found
        found, known = again, found
