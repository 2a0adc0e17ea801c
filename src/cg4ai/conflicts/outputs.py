"""Rules that no predictor can keep: outputs at each known input are free, and one LP tells.

Inputs that no row ties to others are looked at one by one, and most of them need no LP: projecting
onto the row that is missed most soon finds outputs that keep all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import bmat, csr_matrix
from scipy.sparse.csgraph import connected_components

from cg4ai.conflicts.clauses import Clauses, collect_clauses
from cg4ai.conflicts.conflict import Conflict, Scope
from cg4ai.conflicts.irreducible import ConflictSets, ElasticProgram, System, search
from cg4ai.records import Array, IntArray

if TYPE_CHECKING:
    from cg4ai.rules import Requirement

PROJECTIONS = 60
MET = 1e-9  # relative to a row's bound
MOST_ENTRIES = 500_000  # of all LPs together; what is left then is not looked at
MOST_NAMED = 3_000  # rows among which single clauses are named; of more only the requirements


def contradiction(
    requirements: Sequence[Requirement],
    *,
    input_size: int,
    output_size: int,
    probabilities: Sequence[int] = (),
    logits: bool = False,
    further: Array | None = None,
) -> Conflict | None:
    """Clauses that no outputs keep together, none of them spare; None if there are none known.

    `probabilities` are the sizes of groups of outputs >= 0 that sum to one, `logits` says that
    outputs are scores of classes of which only differences matter. `further` (k, d) are inputs to
    read rules over regions at. Concave functions, convex budgets and curvature are not looked at,
    and regions at some inputs only: None does not mean that all can be kept.
    """
    clauses = collect_clauses(
        requirements,
        input_size=input_size,
        output_size=output_size,
        classes="probabilities" if probabilities else "logits" if logits else "",
        further=further,
    )
    groups = np.repeat(np.arange(len(probabilities)), probabilities)
    scope = Scope.PROBABILITIES if len(groups) else Scope.OUTPUTS
    work = 0
    for rows in _apart(clauses, groups):
        program = _program(clauses, rows, groups, whole=True)
        work += program.system.matrix.nnz
        if work > MOST_ENTRIES:
            break
        found = program.found()
        if found is None:
            continue
        ruled = np.unique(clauses.requirements[np.concatenate(found.parts)])
        rows = rows[np.isin(clauses.requirements[clauses.owner[rows]], ruled)]
        if len(rows) <= MOST_NAMED:
            found = _program(clauses, rows, groups, whole=False).found() or found
        return Conflict.from_clauses(
            scope, found, requirements, owner=clauses.requirements, text=clauses.text
        )
    return None


def _apart(clauses: Clauses, groups: IntArray) -> Iterator[IntArray]:
    """Rows that must be looked at together, for every part of the points that no row ties."""
    weights = clauses.weights
    if not weights.shape[0]:
        return
    _, part = connected_components(bmat([[None, weights], [weights.T, None]]), directed=False)
    part_of = part[: len(clauses.bounds)]
    several = np.bincount(part[len(clauses.bounds) :])[part_of] > 1
    first = np.asarray(abs(weights).argmax(axis=1)).ravel()
    alone = np.flatnonzero(~several)
    open_points = _unmet(clauses, alone, first[alone], groups)
    single = alone[np.isin(first[alone], open_points)]
    order = np.argsort(part_of[single], kind="stable")
    ends = np.flatnonzero(np.diff(part_of[single][order])) + 1
    yield from (one for one in np.split(single[order], ends) if len(one))
    for number in np.unique(part_of[several]):
        yield np.flatnonzero(part_of == number)


def _unmet(clauses: Clauses, rows: IntArray, points: IntArray, groups: IntArray) -> IntArray:
    """Points at which projections find no outputs that keep all rows: those need an LP.

    `rows` look at one point each, `points` (m,).
    """
    weight = np.asarray(clauses.weights[rows].sum(axis=1)).ravel()
    a, b = clauses.coefficients[rows] * weight[:, None], clauses.bounds[rows]
    used, place = np.unique(points, return_inverse=True)
    y = _normal(np.zeros((len(used), clauses.coefficients.shape[1])), groups)
    length = np.maximum((a * a).sum(axis=1), 1e-300)
    room = MET * (1 + np.abs(b))
    for _ in range(PROJECTIONS):
        short = b - (a * y[place]).sum(axis=1)
        missed = np.flatnonzero(short > room)
        if not len(missed):
            break
        worst = np.full(len(used), -np.inf)
        np.maximum.at(worst, place[missed], short[missed] / np.sqrt(length[missed]))
        at = missed[short[missed] / np.sqrt(length[missed]) == worst[place[missed]]]
        y[place[at]] += (short[at] / length[at])[:, None] * a[at]
        y = _normal(y, groups)
    short = b - (a * y[place]).sum(axis=1)
    return np.asarray(used[np.unique(place[short > room])])


def _normal(y: Array, groups: IntArray) -> Array:
    """Within each group numbers >= 0 that sum to one; without groups as they are."""
    if not len(groups):
        return y
    y = np.maximum(y, 0.0)
    member = groups[:, None] == np.arange(groups.max() + 1)
    total = y @ member
    count = member.sum(axis=0)
    return np.where(
        (total > 0)[:, groups], y / np.where(total > 0, total, 1.0)[:, groups], 1 / count[groups]
    )


@dataclass(frozen=True)
class _ClauseProgram:
    """A system, and the clauses that each number in it stands for: one, or all of a requirement."""

    system: System
    stands_for: tuple[IntArray, ...]
    requirement: IntArray

    def found(self) -> ConflictSets | None:
        """Clauses that exclude each other."""
        tolerance = MET * (1 + np.abs(self.system.bounds).max())
        found = search(ElasticProgram(self.system, tolerance), self.requirement)
        if found is None:
            return None
        parts = [np.concatenate([self.stands_for[one] for one in part]) for part in found.parts]
        return ConflictSets(tuple(parts), found.irreducible)


def _program(clauses: Clauses, rows: IntArray, groups: IntArray, *, whole: bool) -> _ClauseProgram:
    """Variables are the outputs at every point that the rows speak of; `whole`: requirements.

    Points of which all rows say the same are one: the mean of their outputs keeps what they do.
    Where it does not matter which clause of a requirement says it, that leaves far fewer.
    """
    own = clauses.owner[rows]
    said_by = clauses.requirements[own] if whole else own
    known, number = np.unique(said_by, return_inverse=True)
    stands_for = (
        [np.unique(own[number == one]) for one in range(len(known))]
        if whole
        else (list(known[:, None]))
    )
    rows, number, weights = _merged(clauses, rows, number)
    entries = weights.tocoo()
    outputs = clauses.coefficients.shape[1]
    data = entries.data[:, None] * clauses.coefficients[rows[entries.row]]
    columns = entries.col[:, None] * outputs + np.arange(outputs)
    size = weights.shape[1] * outputs
    row = np.repeat(entries.row, outputs)
    matrix = csr_matrix((data.ravel(), (row, columns.ravel())), shape=(len(rows), size))
    matrix.eliminate_zeros()
    equal, lower = _simplices(weights.shape[1], outputs, groups)
    system = System(matrix, clauses.bounds[rows], number, lower, equal, np.ones(equal.shape[0]))
    requirement = np.array([clauses.requirements[one[0]] for one in stands_for])
    return _ClauseProgram(system, tuple(stands_for), requirement)


def _merged(clauses: Clauses, rows: IntArray, number: IntArray) -> tuple[IntArray, IntArray, Any]:
    """Rows, their numbers and weights (m, points), like points added up: one keeps its rows."""
    weights = clauses.weights[rows]
    alone = np.diff(weights.indptr) == 1
    ties, own = weights[~alone].tocsc(), weights[alone].tocsc()
    said = np.column_stack([number, clauses.bounds[rows], clauses.coefficients[rows]])
    said = said[alone]
    place, spare = np.full(weights.shape[1], -1), np.zeros(alone.sum(), bool)
    known: dict[bytes, int] = {}
    for k in np.flatnonzero(np.diff(weights.tocsc().indptr)).tolist():
        tied = slice(ties.indptr[k], ties.indptr[k + 1])
        mine = slice(own.indptr[k], own.indptr[k + 1])
        key = ties.indices[tied].tobytes() + ties.data[tied].tobytes()
        key += said[own.indices[mine]].tobytes() + own.data[mine].tobytes()
        spare[own.indices[mine]] = key in known
        place[k] = known.setdefault(key, len(known))
    kept = np.ones(len(rows), bool)
    kept[np.flatnonzero(alone)[spare]] = False
    used = np.flatnonzero(place >= 0)
    gather = csr_matrix(
        (np.ones(len(used)), (used, place[used])), shape=(weights.shape[1], len(known))
    )
    return rows[kept], number[kept], csr_matrix(weights[kept] @ gather)


def _simplices(points: int, outputs: int, groups: IntArray) -> tuple[Any, Array]:
    """Rows that sum each group at each point, and the least that outputs may be."""
    if not len(groups):
        return csr_matrix((0, points * outputs)), np.full(points * outputs, -np.inf)
    column = np.arange(points * outputs)
    row = np.repeat(np.arange(points), outputs) * (groups.max() + 1) + np.tile(groups, points)
    equal = csr_matrix((np.ones(len(column)), (row, column)))
    return equal, np.zeros(points * outputs)
