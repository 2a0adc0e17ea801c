"""Balances beside ranges and orders: one convex set of outputs, with a map into it in closed form.

Some outputs are free and all others follow from them, `y = offset + slope x + basis z`, z being the
free ones. Which are free is chosen so that most ends and orders follow from ends and orders of z,
as those of sums of numbers above zero do. Rows that do not are kept by moving outputs towards an
anchor, a point of the set. docs/mathematics.md has the proof.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.optimize import linprog

from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray
from cg4ai.rules.affine import AIM
from cg4ai.rules.equality import Completion, Equality, join_equalities
from cg4ai.rules.output_sets import OutputRule, Outputs, OutputSet, join_output_rules

EXACT = 1e-12  # of the sizes of all terms: what counts as zero in sums of rows and basis
INDEPENDENT = 1e-9  # of a column's length, that must be left of it by those chosen before
WORST_CONDITION = 1e8  # of the free outputs as coordinates
LEAST_ROOM = 1e-9  # of the size of a row, that an anchor must leave


@dataclass(frozen=True, eq=False)
class Reconciliation:
    """Outputs `offset + slope x + basis z`, (r,), (r, d), (r, k), of the `free` ones z (k,).

    z is sorted along each of `chains`, numbers of z, and clamped to [low, high], (k,) each. Then
    outputs are moved towards `anchor` (r,) until `matrix @ y >= bound`, (m, r) and (m,).
    """

    offset: Array
    slope: Array
    basis: Array
    free: IntArray
    low: Array
    high: Array
    chains: tuple[Outputs, ...]
    matrix: Array
    bound: Array
    anchor: Array

    def __post_init__(self) -> None:
        r, k = self.basis.shape if self.basis.ndim == 2 else (0, 0)
        fits = (
            self.offset.shape == self.anchor.shape == (r,)
            and self.slope.ndim == 2
            and len(self.slope) == r
            and self.free.shape == self.low.shape == self.high.shape == (k,)
            and self.matrix.shape == (len(self.bound), r)
            and self.bound.ndim == 1
        )
        fits = fits and bool(
            (self.low <= self.high).all()
            and ((self.free >= 0) & (self.free < r)).all()
            and np.array_equal(self.basis[self.free], np.eye(k))
            and not self.offset[self.free].any()
            and not self.slope[self.free].any()
            and all(0 <= one < k for chain in self.chains for one in chain)
            and all(
                self.low[a] <= self.low[b] and self.high[a] <= self.high[b]
                for chain in self.chains
                for a, b in pairwise(chain)
            )
        )
        kept = fits and bool((self.matrix @ self.anchor >= self.bound).all())
        if not kept or (len(self.bound) and self.slope.any()):
            raise InvalidInput(
                "a reconciliation has arrays that do not fit or an anchor that breaks a row",
                code="bad-file",
            )

    @property
    def input_size(self) -> int:
        return int(self.slope.shape[1])

    @property
    def output_size(self) -> int:
        return len(self.offset)

    @cached_property
    def digest(self) -> str:
        """Equal for those of the same numbers."""
        total = hashlib.sha256(repr(("reconciliation", self.chains)).encode())
        for name in ARRAYS:
            array = np.ascontiguousarray(getattr(self, name))
            total.update(f"{array.shape}".encode())
            total.update((array + 0).tobytes())
        return total.hexdigest()

    @cached_property
    def aim(self) -> Array:
        """(m,): how far inside its bound each row is restored, where the anchor has that room."""
        sizes = np.abs(self.bound) + np.abs(self.matrix) @ np.abs(self.anchor)
        return np.asarray(np.minimum(AIM * sizes, self.matrix @ self.anchor - self.bound))

    def compute_least(self, matrix: Array) -> Array:
        """(m,): what `matrix @ y` is at least for all outputs that are reconciled."""
        known = {row.tobytes(): bound for row, bound in zip(self.matrix, self.bound, strict=True)}
        across, fixed = matrix @ self.basis, matrix @ self.offset
        size = np.abs(matrix) @ np.abs(self.basis)
        across = np.where(np.abs(across) <= EXACT * size, 0.0, across)
        moved = np.abs(matrix @ self.slope) > EXACT * (np.abs(matrix) @ np.abs(self.slope))
        ends = np.where(across > 0, self.low, self.high)
        least = fixed + np.where(across != 0, across * np.where(across != 0, ends, 0.0), 0.0).sum(1)
        least = np.maximum(least, [self._along_chains(row) for row in across] + fixed)
        least[moved.any(axis=1)] = -np.inf
        stored = [known.get((row + 0.0).tobytes(), -np.inf) for row in matrix]
        return np.asarray(np.maximum(least, stored))

    def _along_chains(self, row: Array) -> float:
        """A difference of free outputs along a chain is at least 0."""
        read = np.flatnonzero(row)
        if len(read) != 2 or row[read].sum() != 0:
            return -np.inf
        lower, upper = read if row[read[1]] > 0 else read[::-1]
        for chain in self.chains:
            if lower in chain and upper in chain and chain.index(lower) < chain.index(upper):
                return 0.0
        return -np.inf

    def compute_sizes(self) -> Array:
        """(r,): of what outputs are sums of, as far as it is bounded."""
        ends = np.abs(np.stack([self.low, self.high]))
        most = np.where(np.isfinite(ends), ends, 0.0).max(0, initial=0.0)
        return np.asarray(np.abs(self.offset) + np.abs(self.basis) @ most)

    @cached_property
    def output_set(self) -> OutputSet:
        """The ends that all outputs keep."""
        unit = np.eye(self.output_size)
        return OutputSet(self.compute_least(unit), -self.compute_least(-unit))


ARRAYS = ("offset", "slope", "basis", "free", "low", "high", "matrix", "bound", "anchor")


def find_balances(equalities: Sequence[Equality], rules: Sequence[OutputRule]) -> list[Equality]:
    """The equalities, with totals and fixed outputs of the rules as equalities, too."""
    if not (equalities and rules):
        return list(equalities)
    size = equalities[0].matrix.shape[1]
    source, unit = join_output_rules(rules, size), np.eye(size)
    found = list(equalities)
    for one in source.totals:
        found.append(Equality(None, unit[list(one.outputs)].sum(0), one.value, name="SumTo"))
    for output in np.flatnonzero(source.low == source.high):
        found.append(Equality(None, unit[output], source.low[output], name="Range"))
    return found


def reconcile(
    equalities: Sequence[Equality],
    rules: Sequence[OutputRule],
    *,
    input_size: int,
    reference: Array | None = None,
) -> Reconciliation:
    """The map for these equalities beside ranges, orders and totals; InvalidInput without one.

    `reference` (r,) is what outputs are like, near which an anchor is sought.
    """
    balances = find_balances(equalities, rules)
    names = " and ".join([*(one.name for one in equalities), *(one.name for one in rules)])
    completion = join_equalities(balances, input_size=input_size)
    source = join_output_rules(rules, completion.output_size)
    free = _choose_free(np.concatenate([one.matrix for one in balances]), completion, source)
    made = _express(completion, free, source)
    rows = [rule.output_set(completion.output_size).rows for rule in rules]
    matrix = np.concatenate([source.rows[0], *(one[0] for one in rows)]) + 0.0
    bound = np.concatenate([source.rows[1], *(one[1] for one in rows)])
    sizes = np.abs(bound) + np.abs(matrix) @ made.compute_sizes()
    left = ~(made.compute_least(matrix) >= bound - EXACT * sizes)
    if not left.any():
        return made
    if made.slope.any():
        raise InvalidInput(
            f"{names}: the balance depends on the input, so that at some inputs no outputs keep "
            "it and their ranges or orders; state these as Linear over a Box",
            code="infeasible",
        )
    matrix, which = np.unique(matrix[left], axis=0, return_inverse=True)
    tightest = np.full(len(matrix), -np.inf)
    np.maximum.at(tightest, which.reshape(-1), bound[left])
    anchor = _find_anchor(made, matrix, tightest, reference, names)
    return replace(made, matrix=matrix, bound=tightest, anchor=anchor)


def _choose_free(matrix: Array, completion: Completion, source: OutputSet) -> IntArray:
    """(k,): outputs of which the others are functions.

    Others are, if possible, those without ends; then those alone with their sign in a balance, as
    a sum is with its parts.
    """
    size = completion.output_size
    chained = np.isin(np.arange(size), [one for chain in source.chains for one in chain])
    ended = np.isfinite(source.low) | np.isfinite(source.high) | chained
    alone = np.zeros(size, bool)
    for row in matrix:
        for side in (row > 0, row < 0):
            if side.sum() == 1:
                alone |= side
    terms = (matrix != 0).sum(axis=0)
    order = np.lexsort((-terms, chained, ~alone, ended))
    wanted = size - completion.free_size
    found = _independent(matrix, order, wanted)
    free = np.setdiff1d(np.arange(size), found)
    if len(found) < wanted or np.linalg.cond(_scaled(completion)[free]) > WORST_CONDITION:
        from scipy.linalg import qr

        pivots = qr(_scaled(completion).T, mode="r", pivoting=True)[1]
        free = np.sort(pivots[: completion.free_size])
    return np.asarray(free, np.int64)


def _scaled(completion: Completion) -> Array:
    units = 1.0 if completion.units is None else completion.units[:, None]
    return np.asarray(completion.basis / units)


def _independent(matrix: Array, order: IntArray, wanted: int) -> list[int]:
    """The first outputs, in this order, whose columns are linearly independent."""
    basis = np.zeros((len(matrix), 0))
    found: list[int] = []
    for output in order.tolist():
        column = matrix[:, output]
        length = float(np.linalg.norm(column))
        rest = column - basis @ (basis.T @ column)
        rest = rest - basis @ (basis.T @ rest)
        if length > 0 and np.linalg.norm(rest) > INDEPENDENT * length:
            basis = np.column_stack([basis, rest / np.linalg.norm(rest)])
            found.append(output)
        if len(found) == wanted:
            break
    return found


def _express(completion: Completion, free: IntArray, source: OutputSet) -> Reconciliation:
    """All outputs by the free ones, which are clamped to their ends and sorted."""
    inverse = np.linalg.inv(completion.basis[free])
    basis = _tidy(completion.basis @ inverse)
    basis[free] = np.eye(len(free))
    offset = _tidy(completion.offset - basis @ completion.offset[free])
    slope = _tidy(completion.slope - basis @ completion.slope[free])
    offset[free], slope[free] = 0.0, 0.0
    place = {int(output): number for number, output in enumerate(free)}
    chains = tuple(
        tuple(place[one] for one in chain)
        for chain in source.chains
        if all(one in place for one in chain)
    )
    size = completion.output_size
    return Reconciliation(
        offset,
        slope,
        basis,
        free,
        source.low[free],
        source.high[free],
        chains,
        np.empty((0, size)),
        np.empty(0),
        np.zeros(size),
    )


def _tidy(array: Array) -> Array:
    """Numbers that are whole but for rounding as whole ones: sums of parts have coefficients 1."""
    whole = np.round(array)
    size = max(1.0, float(np.abs(array).max(initial=0.0)))
    return np.where(np.abs(array - whole) <= EXACT * size, whole, array)


def _find_anchor(
    made: Reconciliation, matrix: Array, bound: Array, reference: Array | None, names: str
) -> Array:
    """A point of the set near the reference, with half of the room that its rows can have."""
    k, m = made.basis.shape[1], len(bound)
    ends = list(zip(made.low, made.high, strict=True))
    across = matrix @ made.basis
    target = np.zeros(k) if reference is None else reference[made.free]
    middle = np.clip(target, made.low, made.high)
    terms = np.abs(matrix) @ np.abs(made.offset + made.basis @ middle)
    size = np.maximum(np.abs(bound), terms)
    size = np.where(size > 0, size, max(1.0, float(size.max(initial=0.0))))
    orders = np.zeros((0, k))
    for chain in made.chains:
        for a, b in pairwise(chain):
            orders = np.vstack([orders, np.eye(k)[a] - np.eye(k)[b]])
    need = bound - matrix @ made.offset
    # variables z and the room s, in shares of the sizes
    upper = np.vstack(
        [np.column_stack([-across, size]), np.column_stack([orders, np.zeros(len(orders))])]
    )
    answer = linprog(
        np.append(np.zeros(k), -1.0),
        A_ub=upper,
        b_ub=np.append(-need, np.zeros(len(orders))),
        bounds=[*ends, (None, 1.0)],
    )
    room = float(answer.x[-1]) if answer.status == 0 else -np.inf
    if room < LEAST_ROOM:
        raise InvalidInput(
            f"{names} leave no room: no outputs keep all of them"
            + ("" if room < -LEAST_ROOM else " with anything to spare")
            + "; widen a range, or state what is fixed as Equality",
            code="infeasible",
        )
    # the least distance |z - target|, with half of that room
    near = linprog(
        np.append(np.zeros(k), np.ones(k)),
        A_ub=np.vstack(
            [
                np.column_stack([-across, np.zeros((m, k))]),
                np.column_stack([orders, np.zeros((len(orders), k))]),
                np.column_stack([np.eye(k), -np.eye(k)]),
                np.column_stack([-np.eye(k), -np.eye(k)]),
            ]
        ),
        b_ub=np.concatenate([-need - room / 2 * size, np.zeros(len(orders)), target, -target]),
        bounds=[*ends, *[(None, None)] * k],
    )
    z = near.x[:k] if near.status == 0 else answer.x[:k]
    z = np.clip(z, made.low, made.high)
    for chain in made.chains:
        z[list(chain)] = np.sort(z[list(chain)])
    return np.asarray(made.offset + made.basis @ z)
