"""The part of a linear master that HiGHS holds: rows that were violated, columns of late use.

Whoever changes the table says so here; nothing is checked, the table did that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cg4ai.colgen.master.table import DUMMY_MULTIPLE, OWN_SLACK, MasterTable
from cg4ai.errors import SolverFailure
from cg4ai.records import Array, Duals, IntArray
from cg4ai.solvers.highs import BASIC, OPTIMAL, STUCK, LinearProgram

MEMBER, DUMMY, EPIGRAPH, SHARED, OWN = range(5)  # what a column of HiGHS stands for


@dataclass(frozen=True, slots=True)
class Prices:
    """What slack costs, `penalty` a unit; or 1, and members nothing, if `slack_only`.

    Members that are `barred` cost as much as a dummy, so they get weight only if rows need them.
    """

    penalty: float
    slack_only: bool = False
    barred: tuple[int, ...] = ()

    def of(self, table: MasterTable, kinds: IntArray, keys: IntArray) -> Array:
        """The cost of each column of HiGHS."""
        if self.slack_only:
            free = (kinds == MEMBER) | (kinds == EPIGRAPH)
            return np.where(free, 0.0, np.where(kinds == DUMMY, DUMMY_MULTIPLE, 1.0))
        costs = np.where(kinds == DUMMY, self.penalty * DUMMY_MULTIPLE, self.penalty)
        costs[kinds == MEMBER] = table.costs[keys[kinds == MEMBER]]
        costs[(kinds == MEMBER) & np.isin(keys, self.barred)] = self.penalty * DUMMY_MULTIPLE
        costs[kinds == EPIGRAPH] = table.epigraph_weights[keys[kinds == EPIGRAPH]]
        return costs


@dataclass(frozen=True, slots=True)
class TablePoint:
    """One HiGHS solution spread over the whole table."""

    weights: Array
    dummy: Array
    epigraph: Array
    shared_numbers: IntArray
    shared: Array
    duals: Duals


@dataclass(slots=True)
class ActiveSet:
    """What HiGHS holds, in its own order; its first rows are the convexity rows, not listed.

    `keys` name a column within its kind: member, block, scenario, shared number or table row.
    """

    rows: IntArray
    row_ages: IntArray
    kinds: IntArray
    keys: IntArray
    column_ages: IntArray

    @classmethod
    def of_dummies(cls, blocks: int) -> Self:
        none, zeros = np.empty(0, dtype=np.int64), np.zeros(blocks, dtype=np.int64)
        return cls(none, none.copy(), np.full(blocks, DUMMY), np.arange(blocks), zeros)

    @property
    def members(self) -> IntArray:
        """The numbers of the members held."""
        return np.asarray(self.keys[self.kinds == MEMBER])

    def positions(self, kind: int, keys: IntArray) -> IntArray:
        """Where HiGHS has the columns of this kind with these keys."""
        at = np.flatnonzero(self.kinds == kind)
        at = at[np.argsort(self.keys[at])]
        return np.asarray(at[np.searchsorted(self.keys[at], keys)])

    def append_rows(self, rows: IntArray) -> None:
        self.rows = np.concatenate([self.rows, rows])
        self.row_ages = np.concatenate([self.row_ages, np.zeros_like(rows)])

    def append_columns(self, kind: int, keys: IntArray) -> None:
        self.kinds = np.concatenate([self.kinds, np.full(len(keys), kind)])
        self.keys = np.concatenate([self.keys, keys])
        self.column_ages = np.concatenate([self.column_ages, np.zeros_like(keys)])

    def keep(self, rows: NDArray[np.bool_], columns: NDArray[np.bool_]) -> None:
        self.rows, self.row_ages = self.rows[rows], self.row_ages[rows]
        self.kinds, self.keys = self.kinds[columns], self.keys[columns]
        self.column_ages = self.column_ages[columns]


class ActiveProgram:
    """Moves rows and columns of the table in and out of HiGHS, which keeps its basis."""

    def __init__(self, table: MasterTable, prices: Prices, *, tolerance: float) -> None:
        self.table = table
        self.prices = prices
        self.tolerance = tolerance
        self.held = ActiveSet.of_dummies(table.blocks)
        self._next_primal = False
        self._build()

    @property
    def cold_restarts(self) -> int:
        return self._program.cold_restarts

    def set_prices(self, prices: Prices) -> None:
        self.prices = prices
        self._program.change_costs(prices.of(self.table, self.held.kinds, self.held.keys))
        self._next_primal = True

    def run(self) -> int:
        """Solve what is held to optimality; the simplex iterations it took."""
        ending = self._program.run(primal=self._next_primal)
        if ending.status != OPTIMAL:
            raise SolverFailure(_explain(ending.status))
        return ending.iterations

    def read(self) -> TablePoint:
        """HiGHS's solution on the whole table, weights cleaned to sum to one with the dummy.

        HiGHS defines duals as the change of the optimum per unit of bound, so for this
        minimisation with >= rows they have the package's signs already; only dust is clipped.
        """
        held, blocks = self.held, self.table.blocks
        solution = self._program.solution()
        values = np.maximum(solution.values, self._lower(held.kinds))
        weights, duals = np.zeros(self.table.n_columns), np.zeros(self.table.n_rows)
        weights[held.members] = values[held.kinds == MEMBER]
        dummy, block_of = values[:blocks], self.table.column_blocks
        total = dummy + np.bincount(block_of, weights=weights, minlength=blocks)
        factors = self.table.compute_factors(held.rows)
        duals[held.rows] = np.maximum(solution.duals[blocks:], 0.0) * factors
        return TablePoint(
            weights=weights / total[block_of],
            dummy=dummy / total,
            epigraph=values[held.kinds == EPIGRAPH],
            shared_numbers=held.keys[held.kinds == SHARED],
            shared=values[held.kinds == SHARED],
            duals=Duals(rows=duals, blocks=solution.duals[:blocks].copy()),
        )

    def add_rows(self, rows: IntArray) -> None:
        """Give rows to HiGHS, with their own slacks; their logicals enter the basis."""
        self.add_columns(OWN, rows[self.table.slack_of[rows] == OWN_SLACK])
        matrix = self._row_matrix(rows)
        bounds = self.table.bounds[rows] * self.table.compute_factors(rows)
        self._program.add_rows(bounds, np.full(len(rows), np.inf), matrix)
        self.held.append_rows(rows)
        self._next_primal = False

    def add_columns(self, kind: int, keys: IntArray) -> None:
        """Give columns to HiGHS; only members have entries in rows that are held already."""
        if not len(keys):
            return
        table, held = self.table, self.held
        kinds = np.full(len(keys), kind)
        if kind == MEMBER:
            dense = table.coefficients[np.ix_(held.rows, keys)]
            dense = dense * table.compute_factors(held.rows)[:, None]
            ones = (np.ones(len(keys)), (table.column_blocks[keys], np.arange(len(keys))))
            convexity = sparse.csc_matrix(ones, shape=(table.blocks, len(keys)))
            matrix = sparse.vstack([convexity, sparse.csc_matrix(dense)], format="csc")
            self._next_primal = True
        else:
            matrix = sparse.csc_matrix((table.blocks + len(held.rows), len(keys)))
        costs = self.prices.of(table, kinds, keys)
        self._program.add_columns(costs, self._lower(kinds), matrix)
        held.append_columns(kind, keys)

    def set_aside(self, *, row_age_limit: int, column_age_limit: int) -> None:
        """Take rows and columns that have been idle too long out of HiGHS.

        Only rows whose logical is basic and columns that are not: what remains is a basis still.
        """
        held, blocks = self.held, self.table.blocks
        old_rows = held.row_ages > row_age_limit
        old_columns = held.column_ages > column_age_limit
        if not (old_rows.any() or old_columns.any()):
            return
        column_basis, row_basis = self._program.basis()
        if not len(column_basis):
            return
        old_rows &= row_basis[blocks:] == BASIC
        slack_of_old = (held.kinds == OWN) & np.isin(held.keys, held.rows[old_rows])
        old_columns = (old_columns | slack_of_old) & (column_basis != BASIC)
        self._program.delete(blocks + np.flatnonzero(old_rows), np.flatnonzero(old_columns))
        self._program.set_basis(
            column_basis[~old_columns],
            np.concatenate([row_basis[:blocks], row_basis[blocks:][~old_rows]]),
        )
        held.keep(~old_rows, ~old_columns)

    def count_idle(self, point: TablePoint) -> None:
        """One more solve without price for rows, without weight or promise for members."""
        held = self.held
        idle_rows = point.duals.rows[held.rows] == 0
        held.row_ages = np.where(idle_rows, held.row_ages + 1, 0)
        solution = self._program.solution()
        unattractive = (solution.values <= 0) & (solution.reduced_costs > self.tolerance)
        idle = (held.kinds == MEMBER) & unattractive
        held.column_ages = np.where(idle, held.column_ages + 1, 0)

    def state(self) -> dict[str, NDArray[Any]]:
        column_basis, row_basis = self._program.basis()
        return {
            "next_primal": np.array(self._next_primal),
            "column_basis": column_basis,
            "row_basis": row_basis,
            **{f"held_{f.name}": getattr(self.held, f.name).copy() for f in fields(ActiveSet)},
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Hold what `state` says, in the same order and with the same basis."""
        self.held = ActiveSet(**{f.name: state[f"held_{f.name}"].copy() for f in fields(ActiveSet)})
        self._next_primal = bool(state["next_primal"])
        self._build()
        if len(state["column_basis"]):
            self._program.set_basis(state["column_basis"], state["row_basis"])

    def _build(self) -> None:
        """A new HiGHS model of what is held, without a basis."""
        table, held = self.table, self.held
        self._program = LinearProgram(self.tolerance)
        empty = sparse.csc_matrix((0, len(held.kinds)))
        costs = self.prices.of(table, held.kinds, held.keys)
        self._program.add_columns(costs, self._lower(held.kinds), empty)
        weighted = np.flatnonzero((held.kinds == DUMMY) | (held.kinds == MEMBER))
        blocks = held.keys[weighted].copy()
        members = held.kinds[weighted] == MEMBER
        blocks[members] = table.column_blocks[blocks[members]]
        ones = np.ones(table.blocks)
        convexity = sparse.csr_matrix(
            (np.ones(len(weighted)), (blocks, weighted)), shape=(table.blocks, len(held.kinds))
        )
        self._program.add_rows(ones, ones, convexity)
        bounds = table.bounds[held.rows] * table.compute_factors(held.rows)
        self._program.add_rows(bounds, np.full(len(bounds), np.inf), self._row_matrix(held.rows))

    def _lower(self, kinds: IntArray) -> Array:
        return np.where(kinds == EPIGRAPH, self.table.epigraph_floor, 0.0)

    def _row_matrix(self, rows: IntArray) -> Any:
        """Table rows as HiGHS sees them: (len(rows), held columns), compressed by row."""
        table, held = self.table, self.held
        members = np.flatnonzero(held.kinds == MEMBER)
        dense = table.coefficients[np.ix_(rows, held.keys[members])]
        at, column = np.nonzero(dense)
        row_of, column_of, values = [at], [members[column]], [dense[at, column]]
        slack, epigraph = table.slack_of[rows], table.epigraph_of[rows]
        for kind, chosen, keys in (
            (EPIGRAPH, epigraph >= 0, epigraph),
            (SHARED, slack >= 0, slack),
            (OWN, slack == OWN_SLACK, rows),
        ):
            at = np.flatnonzero(chosen)
            row_of.append(at)
            column_of.append(held.positions(kind, keys[at]))
            values.append(np.ones(len(at)))
        where = (np.concatenate(row_of), np.concatenate(column_of))
        shape = (len(rows), len(held.kinds))
        entries = np.concatenate(values) * table.compute_factors(rows)[where[0]]
        return sparse.csr_matrix((entries, where), shape=shape)


def _explain(status: str) -> str:
    if status == STUCK:
        return (
            "HiGHS got nowhere with the master, from its basis, from scratch or by an interior "
            f"point (status {status}); scale coefficients and costs to about 1, or lower "
            "penalty_limit"
        )
    if status in ("kInfeasible", "kUnbounded", "kUnboundedOrInfeasible"):
        return (
            f"HiGHS calls the master {status}, which its slacks and dummies rule out: this is "
            "numerical trouble; scale coefficients and costs to about 1, or lower penalty_limit"
        )
    return (
        f"HiGHS ended with status {status}, from which no solution of the master can be "
        "read; scale coefficients and costs to about 1, or lower penalty_limit"
    )
