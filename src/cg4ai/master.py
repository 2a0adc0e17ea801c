"""The restricted master: the linear program that weighs members and prices rows for the loop.

With blocks g, members i, rows j and scenarios s it is

    minimise    sum_i cost_i w_i + sum_s weight_s t_s + penalty (sum of slacks + D sum_g dummy_g)
    subject to  sum_{i in g} w_i + dummy_g = 1                               for every block g
                sum_i coefficient_ji w_i (+ t_e(j)) (+ slack) >= bound_j     for every row j
                w, dummy, slack >= 0,  t_s >= floor,  D = DUMMY_MULTIPLE

The dummy of a block is the paper's dummy column: a large cost and no contribution to any row. It
is the same thing as a slack on the block's convexity row, the paper's variant for routing.

All coefficients live in one dense table here; HiGHS holds only the rows that have been violated
and the columns that have been useful lately. Every solve ends by checking the whole table, so
the answer is that of the complete master whatever was set aside.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import highspy
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cg4ai.errors import InvalidInput, SolverFailure
from cg4ai.records import Array, Duals, IntArray, MasterSolution

OWN_SLACK, NO_SLACK = -1, -2
DUMMY_MULTIPLE = 1000.0  # one unit of dummy costs as much as this many units of slack
LARGEST = 1e12  # HiGHS takes larger numbers for infinite, and they would drown the others
SMALLEST = 1e-12  # HiGHS drops smaller coefficients

MEMBER, DUMMY, EPIGRAPH, SHARED, OWN = range(5)  # what a column of HiGHS stands for

_Status = highspy.HighsModelStatus
_LIMITS = (_Status.kIterationLimit, _Status.kTimeLimit)
_IMPOSSIBLE = (_Status.kInfeasible, _Status.kUnbounded, _Status.kUnboundedOrInfeasible)


class LinearMaster:
    """The complete master over all rows and columns added so far; see the module for the LP.

    `row_age_limit` and `column_age_limit`: a row without price or a column without weight for
    more than this many solves in a row leaves HiGHS until it is violated or improves again.
    `activation_batch`: how many violated rows enter HiGHS at a time, most violated first; small
    batches cost more rounds, large ones activate rows that never bind.
    """

    def __init__(
        self,
        blocks: int,
        *,
        penalty: float = 10.0,
        penalty_growth: float = 10.0,
        penalty_limit: float = 1e8,
        row_age_limit: int = 10,
        column_age_limit: int = 20,
        activation_batch: int = 200,
        tolerance: float = 1e-9,
    ) -> None:
        _require(blocks >= 1, f"a master needs at least one block, got {blocks}")
        _require(
            0 < penalty <= penalty_limit <= LARGEST / DUMMY_MULTIPLE,
            f"penalties must satisfy 0 < penalty <= penalty_limit <= {LARGEST / DUMMY_MULTIPLE:g}, "
            f"got {penalty} and {penalty_limit}",
        )
        _require(penalty_growth > 1, f"penalty_growth must exceed 1, got {penalty_growth}")
        _require(
            row_age_limit >= 0 and column_age_limit >= 0,
            f"age limits must be >= 0, got {row_age_limit} and {column_age_limit}",
        )
        _require(activation_batch >= 1, f"activation_batch must be >= 1, got {activation_batch}")
        _require(1e-10 <= tolerance <= 1e-3, f"tolerance must be in [1e-10, 1e-3], got {tolerance}")
        self.blocks = int(blocks)
        self.penalty_growth = float(penalty_growth)
        self.penalty_limit = float(penalty_limit)
        self.row_age_limit = int(row_age_limit)
        self.column_age_limit = int(column_age_limit)
        self.activation_batch = int(activation_batch)
        self.tolerance = float(tolerance)
        self._penalty = float(penalty)
        self._slack_phase = False
        self._cold_restarts_before = 0

        none = np.empty(0, dtype=np.int64)
        self._table = np.empty((0, 0))  # capacity; the first n_rows x n_columns are in use
        self._costs = np.empty(0)
        self._column_blocks = none
        self._bounds = np.empty(0)
        self._slack_of = none
        self._epigraph_of = none
        self._epigraph_weights = np.empty(0)
        self._epigraph_floor = 0.0
        self._held = _Held.of_dummies(self.blocks)
        self._next_primal = False
        self._build()

    @property
    def n_rows(self) -> int:
        return len(self._bounds)

    @property
    def n_columns(self) -> int:
        return len(self._costs)

    @property
    def penalty(self) -> float:
        return self._penalty

    @property
    def cold_restarts(self) -> int:
        """How often a warm start failed numerically and was repeated from scratch."""
        return self._cold_restarts_before + self._solver.cold_restarts

    @property
    def coefficients(self) -> Array:
        """The table in use, (n_rows, n_columns); a view, not to be written to."""
        return self._table[: self.n_rows, : self.n_columns]

    def add_epigraph(self, weights: Array, floor: float) -> None:
        """Add variables `t_s >= floor` with cost `weights[s]` >= 0, one per scenario; once."""
        _require(not len(self._epigraph_weights), "add_epigraph was called before; call it once")
        weights = _numbers("epigraph weights", weights, (None,))
        _require(len(weights) > 0, "an epigraph needs at least one scenario, got none")
        _require(bool((weights >= 0).all()), "epigraph weights must be >= 0, or t is unbounded")
        self._epigraph_floor = float(_numbers("the epigraph's floor", np.array(floor), ()))
        self._epigraph_weights = weights
        self._hold_columns(EPIGRAPH, np.arange(len(weights)))

    def add_columns(self, costs: Array, blocks: IntArray, coefficients: Array) -> None:
        """Add members: `costs` (c,), `blocks` (c,), `coefficients` (n_rows, c)."""
        costs = _numbers("column costs", costs, (None,))
        blocks = _integers("column blocks", blocks, len(costs))
        coefficients = _numbers("coefficients", coefficients, (self.n_rows, len(costs)))
        _require(
            bool(((blocks >= 0) & (blocks < self.blocks)).all()),
            f"column blocks must lie in 0..{self.blocks - 1}, got {np.unique(blocks)}",
        )
        before = self.n_columns
        self._costs = np.concatenate([self._costs, costs])
        self._column_blocks = np.concatenate([self._column_blocks, blocks])
        self._grow()
        self.coefficients[:, before:] = coefficients
        self._hold_columns(MEMBER, np.arange(before, self.n_columns))

    def add_rows(
        self,
        coefficients: Array,
        bounds: Array,
        slack: IntArray,
        epigraph: IntArray | None = None,
    ) -> None:
        """Add rows: `coefficients` (k, n_columns), `bounds` (k,).

        `slack` (k,): OWN_SLACK (-1), NO_SLACK (-2, epigraph rows only, since nothing else keeps
        them feasible) or the number >= 0 of a slack variable shared by all rows that name it.
        `epigraph` (k,): the scenario whose t the row contains, or -1. Rows wait in the table
        until a solve finds them violated.
        """
        bounds = _numbers("row bounds", bounds, (None,))
        k = len(bounds)
        coefficients = _numbers("coefficients", coefficients, (k, self.n_columns))
        slack = _integers("slack numbers", slack, k)
        epigraph = _integers(
            "epigraph numbers", np.full(k, -1) if epigraph is None else epigraph, k
        )
        scenarios = len(self._epigraph_weights)
        _require(
            bool(((epigraph >= -1) & (epigraph < scenarios)).all()),
            f"epigraph numbers must lie in -1..{scenarios - 1}; add_epigraph made {scenarios}",
        )
        _require(
            bool((slack >= NO_SLACK).all() and (epigraph[slack == NO_SLACK] >= 0).all()),
            "slack must be -1 (own), a shared number >= 0, or -2 (none) for epigraph rows only: "
            "other rows without slack could make the master infeasible",
        )
        before = self.n_rows
        new_shared = np.setdiff1d(slack[slack >= 0], self._slack_of)
        self._bounds = np.concatenate([self._bounds, bounds])
        self._slack_of = np.concatenate([self._slack_of, slack])
        self._epigraph_of = np.concatenate([self._epigraph_of, epigraph])
        self._grow()
        self.coefficients[before:] = coefficients
        self._hold_columns(SHARED, new_shared)

    def raise_penalty(self) -> bool:
        """Multiply the penalty by its growth, up to its limit; False if it is there already."""
        if self._penalty >= self.penalty_limit:
            return False
        self._penalty = min(self._penalty * self.penalty_growth, self.penalty_limit)
        self._refresh_costs()
        return True

    def minimise_slack(self, on: bool) -> None:
        """Switch the phase in which members and epigraph are free, slack and dummy cost 1 each."""
        if on != self._slack_phase:
            self._slack_phase = on
            self._refresh_costs()

    def reduced_costs(
        self, costs: Array, blocks: IntArray, coefficients: Array, duals: Duals
    ) -> Array:
        """`cost - sum_j beta_j coefficient_j - gamma[block]`, (c,), for columns (n_rows, c).

        While slack is minimised members are free and `costs` count as zero.
        """
        expected = (len(duals.rows), len(costs))
        _require(
            np.shape(coefficients) == expected,
            f"coefficients must have shape {expected} like duals and costs, "
            f"got {np.shape(coefficients)}",
        )
        used = np.flatnonzero(duals.rows)
        priced = duals.rows[used] @ coefficients[used]
        return np.asarray((0.0 if self._slack_phase else costs) - priced - duals.blocks[blocks])

    def solve(self) -> MasterSolution:
        """An optimal solution of the complete master (all rows, all columns of the table).

        While slack is minimised, `objective` is 0 and `penalised` is the sum of all slack.
        """
        started = time.perf_counter()
        self._set_aside()
        iterations = 0
        while True:
            iterations += self._solver.run(primal=self._next_primal)
            point = self._read()
            # Within one solve rows and columns only enter, so this ends; rows first, so that
            # each HiGHS run starts either primal feasible (new columns) or dual feasible.
            if len(rows := self._violated(point)):
                self._hold_rows(rows)
            elif len(columns := self._improving(point)):
                self._hold_columns(MEMBER, columns)
            else:
                break
        self._count_idle(point)
        return self._solution(point, iterations=iterations, started=started)

    def reload(self) -> None:
        """Rebuild HiGHS from table, held rows and columns, and basis, exactly as `restore` does.

        A run that reloads wherever it saves `state` continues bit for bit like a restored one.
        """
        column_basis, row_basis = self._solver.basis()
        self._cold_restarts_before = self.cold_restarts
        self._build()
        if len(column_basis):
            self._solver.set_basis(column_basis, row_basis)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything as named arrays; `restore` makes an equal master of them."""
        column_basis, row_basis = self._solver.basis()
        own = {name: np.array(getattr(self, f"_{name}")) for name in _OWN_ARRAYS}
        held = {f"held_{f.name}": getattr(self._held, f.name).copy() for f in fields(_Held)}
        return {
            "settings": np.array([float(getattr(self, name)) for name in _SETTINGS]),
            "coefficients": self.coefficients.copy(),
            "cold_restarts_before": np.array(self.cold_restarts),
            "column_basis": column_basis,
            "row_basis": row_basis,
            **own,
            **held,
        }

    @classmethod
    def restore(cls, state: Mapping[str, NDArray[Any]]) -> Self:
        """A new master from what `state` returned, warm-started from the same basis."""
        values = dict(zip(_SETTINGS, state["settings"].tolist(), strict=True))
        counts = ("blocks", "row_age_limit", "column_age_limit", "activation_batch")
        master = cls(**{k: int(v) if k in counts else v for k, v in values.items()})
        for name in _OWN_ARRAYS:
            value = state[name]
            setattr(master, f"_{name}", value.copy() if value.ndim else value.item())
        master._cold_restarts_before = int(state["cold_restarts_before"])
        master._grow()
        master.coefficients[:] = state["coefficients"]
        master._held = _Held(**{f.name: state[f"held_{f.name}"].copy() for f in fields(_Held)})
        master._build()
        if len(state["column_basis"]):
            master._solver.set_basis(state["column_basis"], state["row_basis"])
        return master

    def _grow(self) -> None:
        """Make room in the table; the capacity depends on the size alone, for equal restores."""
        capacity = [1 << max(n - 1, 0).bit_length() for n in (self.n_rows, self.n_columns)]
        rows, columns = self._table.shape
        if capacity != [rows, columns]:
            table = np.zeros(capacity)
            table[:rows, :columns] = self._table
            self._table = table

    def _solver_costs(self, kinds: IntArray, keys: IntArray) -> Array:
        """What HiGHS columns cost in the present phase at the present penalty."""
        if self._slack_phase:
            return np.where((kinds == MEMBER) | (kinds == EPIGRAPH), 0.0, 1.0)
        costs = np.where(kinds == DUMMY, self._penalty * DUMMY_MULTIPLE, self._penalty)
        costs[kinds == MEMBER] = self._costs[keys[kinds == MEMBER]]
        costs[kinds == EPIGRAPH] = self._epigraph_weights[keys[kinds == EPIGRAPH]]
        return costs

    def _refresh_costs(self) -> None:
        self._solver.change_costs(self._solver_costs(self._held.kinds, self._held.keys))
        self._next_primal = True

    def _build(self) -> None:
        """A new HiGHS model of what is held, without a basis."""
        held = self._held
        self._solver = _Solver(self.tolerance)
        empty = sparse.csc_matrix((0, len(held.kinds)))
        self._solver.add_columns(
            self._solver_costs(held.kinds, held.keys), self._lower(held.kinds), empty
        )
        weighted = np.flatnonzero((held.kinds == DUMMY) | (held.kinds == MEMBER))
        blocks = held.keys[weighted].copy()
        members = held.kinds[weighted] == MEMBER
        blocks[members] = self._column_blocks[blocks[members]]
        ones = np.ones(self.blocks)
        convexity = sparse.csr_matrix(
            (np.ones(len(weighted)), (blocks, weighted)), shape=(self.blocks, len(held.kinds))
        )
        self._solver.add_rows(ones, ones, convexity)
        bounds = self._bounds[held.rows]
        self._solver.add_rows(bounds, np.full(len(bounds), np.inf), self._row_matrix(held.rows))

    def _lower(self, kinds: IntArray) -> Array:
        return np.where(kinds == EPIGRAPH, self._epigraph_floor, 0.0)

    def _row_matrix(self, rows: IntArray) -> Any:
        """Table rows as HiGHS sees them: (len(rows), held columns), compressed by row."""
        held = self._held
        members = np.flatnonzero(held.kinds == MEMBER)
        dense = self._table[np.ix_(rows, held.keys[members])]
        at, column = np.nonzero(np.abs(dense) > SMALLEST)
        row_of, column_of, values = [at], [members[column]], [dense[at, column]]
        slack, epigraph = self._slack_of[rows], self._epigraph_of[rows]
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
        return sparse.csr_matrix((np.concatenate(values), where), shape=shape)

    def _hold_rows(self, rows: IntArray) -> None:
        """Give rows to HiGHS, with their own slacks; their logicals enter the basis."""
        self._hold_columns(OWN, rows[self._slack_of[rows] == OWN_SLACK])
        matrix = self._row_matrix(rows)
        self._solver.add_rows(self._bounds[rows], np.full(len(rows), np.inf), matrix)
        self._held.append_rows(rows)
        self._next_primal = False

    def _hold_columns(self, kind: int, keys: IntArray) -> None:
        """Give columns to HiGHS; only members have entries in rows that are held already."""
        if not len(keys):
            return
        kinds = np.full(len(keys), kind)
        if kind == MEMBER:
            dense = self._table[np.ix_(self._held.rows, keys)]
            dense[np.abs(dense) <= SMALLEST] = 0.0
            ones = (np.ones(len(keys)), (self._column_blocks[keys], np.arange(len(keys))))
            convexity = sparse.csc_matrix(ones, shape=(self.blocks, len(keys)))
            matrix = sparse.vstack([convexity, sparse.csc_matrix(dense)], format="csc")
            self._next_primal = True
        else:
            matrix = sparse.csc_matrix((self.blocks + len(self._held.rows), len(keys)))
        self._solver.add_columns(self._solver_costs(kinds, keys), self._lower(kinds), matrix)
        self._held.append_columns(kind, keys)

    def _set_aside(self) -> None:
        """Take rows and columns that have been idle too long out of HiGHS.

        Only rows whose logical is basic and columns that are not: what remains is a basis still.
        """
        held = self._held
        old_rows = held.row_ages > self.row_age_limit
        old_columns = held.column_ages > self.column_age_limit
        if not (old_rows.any() or old_columns.any()):
            return
        column_basis, row_basis = self._solver.basis()
        if not len(column_basis):
            return
        old_rows &= row_basis[self.blocks :] == _BASIC
        slack_of_old = (held.kinds == OWN) & np.isin(held.keys, held.rows[old_rows])
        old_columns = (old_columns | slack_of_old) & (column_basis != _BASIC)
        self._solver.delete(self.blocks + np.flatnonzero(old_rows), np.flatnonzero(old_columns))
        self._solver.set_basis(
            column_basis[~old_columns],
            np.concatenate([row_basis[: self.blocks], row_basis[self.blocks :][~old_rows]]),
        )
        held.keep(~old_rows, ~old_columns)

    def _count_idle(self, point: _Point) -> None:
        held = self._held
        idle_rows = point.duals.rows[held.rows] == 0
        held.row_ages = np.where(idle_rows, held.row_ages + 1, 0)
        values, _, reduced_costs = self._solver.solution()
        idle = (held.kinds == MEMBER) & (values <= 0) & (reduced_costs > self.tolerance)
        held.column_ages = np.where(idle, held.column_ages + 1, 0)

    def _read(self) -> _Point:
        """HiGHS's solution on the whole table, weights cleaned to sum to one with the dummy.

        HiGHS defines duals as the change of the optimum per unit of bound, so for this
        minimisation with >= rows they have the package's signs already; only dust is clipped.
        """
        held = self._held
        values, row_duals, _ = self._solver.solution()
        values = np.maximum(values, self._lower(held.kinds))
        weights, duals = np.zeros(self.n_columns), np.zeros(self.n_rows)
        weights[held.keys[held.kinds == MEMBER]] = values[held.kinds == MEMBER]
        dummy = values[: self.blocks]
        total = dummy + np.bincount(self._column_blocks, weights=weights, minlength=self.blocks)
        duals[held.rows] = np.maximum(row_duals[self.blocks :], 0.0)
        return _Point(
            weights=weights / total[self._column_blocks],
            dummy=dummy / total,
            epigraph=values[held.kinds == EPIGRAPH],
            shared_numbers=held.keys[held.kinds == SHARED],
            shared=values[held.kinds == SHARED],
            duals=Duals(rows=duals, blocks=row_duals[: self.blocks].copy()),
        )

    def _shortfall(self, point: _Point) -> Array:
        """`bound - value` of every row, t included, slack not."""
        shortfall = self._bounds - self.coefficients @ point.weights
        with_epigraph = self._epigraph_of >= 0
        shortfall[with_epigraph] -= point.epigraph[self._epigraph_of[with_epigraph]]
        return shortfall

    def _violated(self, point: _Point) -> IntArray:
        """The most violated rows that HiGHS does not hold, at most a batch."""
        violation = self._shortfall(point)
        shared = self._slack_of >= 0
        order = np.argsort(point.shared_numbers)
        at = np.searchsorted(point.shared_numbers[order], self._slack_of[shared])
        violation[shared] -= point.shared[order][at]
        violation[self._held.rows] = 0.0
        violated = np.flatnonzero(violation > self.tolerance)
        if len(violated) > self.activation_batch:
            worst = np.argsort(-violation[violated], kind="stable")[: self.activation_batch]
            violated = violated[worst]
        return violated

    def _improving(self, point: _Point) -> IntArray:
        """Columns that HiGHS does not hold and that would improve at the present duals."""
        held, duals = self._held, point.duals
        aside = np.setdiff1d(np.arange(self.n_columns), held.keys[held.kinds == MEMBER])
        used = np.flatnonzero(duals.rows)
        reduced_costs = self.reduced_costs(
            self._costs[aside],
            self._column_blocks[aside],
            self._table[np.ix_(used, aside)],
            Duals(rows=duals.rows[used], blocks=duals.blocks),
        )
        return np.asarray(aside[reduced_costs < -self.tolerance])

    def _solution(self, point: _Point, *, iterations: int, started: float) -> MasterSolution:
        # Rows without slack hold exactly once t absorbs the solver's tolerance.
        without = np.flatnonzero(self._slack_of == NO_SLACK)
        scenarios, lacking = self._epigraph_of[without], self._shortfall(point)[without]
        epigraph = point.epigraph.copy()
        np.maximum.at(epigraph, scenarios, point.epigraph[scenarios] + lacking)
        slack = np.maximum(self._shortfall(replace(point, epigraph=epigraph)), 0.0)
        slack[without] = 0.0
        numbers, shared_of = np.unique(self._slack_of[self._slack_of >= 0], return_inverse=True)
        shared = np.zeros(len(numbers))
        np.maximum.at(shared, shared_of, slack[self._slack_of >= 0])
        total = float(slack[self._slack_of == OWN_SLACK].sum() + shared.sum())
        if self._slack_phase:
            objective, penalties = 0.0, total + float(point.dummy.sum())
        else:
            objective = float(self._costs @ point.weights + self._epigraph_weights @ epigraph)
            penalties = self._penalty * (total + DUMMY_MULTIPLE * float(point.dummy.sum()))
        return MasterSolution(
            weights=point.weights,
            duals=point.duals,
            objective=objective,
            penalised=objective + penalties,
            slack=slack,
            dummy=point.dummy,
            active_rows=len(self._held.rows),
            active_columns=int((self._held.kinds == MEMBER).sum()),
            solver_iterations=iterations,
            seconds=time.perf_counter() - started,
        )


# What `state` keeps besides table, held sets and basis: settings by value, the rest as arrays.
_SETTINGS = (
    *("blocks", "penalty", "penalty_growth", "penalty_limit"),
    *("row_age_limit", "column_age_limit", "activation_batch", "tolerance"),
)
_OWN_ARRAYS = (
    *("slack_phase", "next_primal", "costs", "column_blocks", "bounds", "slack_of"),
    *("epigraph_of", "epigraph_weights", "epigraph_floor"),
)


@dataclass(frozen=True, slots=True)
class _Point:
    """One HiGHS solution spread over the whole table."""

    weights: Array
    dummy: Array
    epigraph: Array
    shared_numbers: IntArray
    shared: Array
    duals: Duals


@dataclass(slots=True)
class _Held:
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


class _Solver:
    """HiGHS behind checked calls on whole arrays; knows nothing of what rows and columns mean."""

    def __init__(self, tolerance: float) -> None:
        self.cold_restarts = 0
        self._highs = highspy.Highs()
        options: dict[str, bool | int | float | str] = {
            "output_flag": False,
            "threads": 1,
            "solver": "simplex",
            "presolve": "off",  # a few violated rows at a time leave it nothing to do
            "small_matrix_value": SMALLEST,
            "primal_feasibility_tolerance": tolerance,
            "dual_feasibility_tolerance": tolerance,
        }
        for name, value in options.items():
            _check(self._highs.setOptionValue(name, value), f"option {name}")

    def add_columns(self, costs: Array, lower: Array, matrix: Any) -> None:
        upper = np.full(len(costs), np.inf)
        arrays = matrix.indptr[:-1], matrix.indices, matrix.data
        _check(self._highs.addCols(len(costs), costs, lower, upper, matrix.nnz, *arrays), "addCols")

    def add_rows(self, lower: Array, upper: Array, matrix: Any) -> None:
        arrays = matrix.indptr[:-1], matrix.indices, matrix.data
        _check(self._highs.addRows(len(lower), lower, upper, matrix.nnz, *arrays), "addRows")

    def change_costs(self, costs: Array) -> None:
        every = np.arange(len(costs), dtype=np.int32)
        _check(self._highs.changeColsCost(len(costs), every, costs), "changeColsCost")

    def delete(self, rows: IntArray, columns: IntArray) -> None:
        _check(self._highs.deleteRows(len(rows), rows.astype(np.int32)), "deleteRows")
        _check(self._highs.deleteCols(len(columns), columns.astype(np.int32)), "deleteCols")

    def basis(self) -> tuple[IntArray, IntArray]:
        """Statuses of columns and rows as numbers; empty before the first solve."""
        basis = self._highs.getBasis()
        if not basis.valid:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        columns = np.array([int(status) for status in basis.col_status], dtype=np.int64)
        return columns, np.array([int(status) for status in basis.row_status], dtype=np.int64)

    def set_basis(self, columns: IntArray, rows: IntArray) -> None:
        basis = highspy.HighsBasis()
        basis.col_status = [highspy.HighsBasisStatus(status) for status in columns.tolist()]
        basis.row_status = [highspy.HighsBasisStatus(status) for status in rows.tolist()]
        basis.valid, basis.alien = True, False
        _check(self._highs.setBasis(basis), "setBasis")

    def run(self, *, primal: bool) -> int:
        """Solve to optimality from the present basis and return the simplex iterations.

        A warm start that ends in anything but an answer or a limit is repeated once from scratch.
        """
        warm = bool(self._highs.getBasis().valid)
        status, iterations = self._attempt(primal=primal)
        if warm and status not in (_Status.kOptimal, *_LIMITS):
            self.cold_restarts += 1
            _check(self._highs.clearSolver(), "clearSolver")
            status, more = self._attempt(primal=False)
            iterations += more
        if status != _Status.kOptimal:
            raise SolverFailure(_explain(status))
        return iterations

    def _attempt(self, *, primal: bool) -> tuple[highspy.HighsModelStatus, int]:
        _check(self._highs.setOptionValue("simplex_strategy", 4 if primal else 1), "its strategy")
        outcome = self._highs.run()
        status = self._highs.getModelStatus()
        if outcome == highspy.HighsStatus.kError and status == _Status.kOptimal:
            status = _Status.kSolveError  # a status left over from an earlier run
        return status, max(0, int(self._highs.getInfo().simplex_iteration_count))

    def solution(self) -> tuple[Array, Array, Array]:
        """Values of columns, duals of rows, reduced costs of columns."""
        found = self._highs.getSolution()
        return np.array(found.col_value), np.array(found.row_dual), np.array(found.col_dual)


_BASIC = int(highspy.HighsBasisStatus.kBasic)


def _explain(status: highspy.HighsModelStatus) -> str:
    if status in _LIMITS:
        return (
            f"the master stopped at a limit of HiGHS before it was solved (status {status.name}); "
            "raise the limit"
        )
    if status in _IMPOSSIBLE:
        return (
            f"HiGHS calls the master {status.name}, which its slacks and dummies rule out: this is "
            "numerical trouble; scale coefficients and costs to about 1, or lower penalty_limit"
        )
    return (
        f"HiGHS ended with status {status.name}, from which no solution of the master can be "
        "read; scale coefficients and costs to about 1, or lower penalty_limit"
    )


def _check(outcome: highspy.HighsStatus, action: str) -> None:
    if outcome != highspy.HighsStatus.kOk:
        raise SolverFailure(f"HiGHS answered {outcome.name} to {action}; expected kOk")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidInput(message)


def _numbers(name: str, values: Array, shape: tuple[int | None, ...]) -> Array:
    """`values` as float64 of the given shape (None: any length), all finite and not huge."""
    array = np.asarray(values, dtype=np.float64)
    fits = array.ndim == len(shape) and all(
        expected in (None, found) for found, expected in zip(array.shape, shape, strict=True)
    )
    _require(fits, f"{name} must have shape {shape}, got {array.shape}")
    good = np.abs(array) <= LARGEST
    _require(
        bool(good.all()),
        f"{name} must be finite and at most {LARGEST:g} in size, got {array[~good][:3]}; rescale",
    )
    return array


def _integers(name: str, values: IntArray, length: int) -> IntArray:
    array = np.asarray(values)
    _require(array.shape == (length,), f"{name} must have shape ({length},), got {array.shape}")
    whole = np.issubdtype(array.dtype, np.integer) or not length
    _require(whole, f"{name} must be integers, got {array.dtype}")
    return array.astype(np.int64)
