"""The linear master: weighs members and prices rows for the loop, exactly and from warm starts.

With blocks g, members i, rows j and scenarios s it is

    minimise    sum_i cost_i w_i + sum_s weight_s t_s + penalty (sum of slacks + D sum_g dummy_g)
    subject to  sum_{i in g} w_i + dummy_g = 1                               for every block g
                sum_i coefficient_ji w_i (+ t_e(j)) (+ slack) >= bound_j     for every row j
                w, dummy, slack >= 0,  t_s >= floor,  D = DUMMY_MULTIPLE

The dummy of a block is the paper's dummy column: a large cost and no contribution to any row. It
is the same thing as a slack on the block's convexity row, the paper's variant for routing.

Costs that are usually below 1e-2 or above 1e6 are divided by a power of two, the `unit` of the
objective: what is stored is in it, what is given and answered is not. Penalties are in this unit.

All coefficients live in one dense table; HiGHS holds only the rows that have been violated and the
columns that have been useful lately. Every solve ends by checking the whole table, so the answer
is that of the complete master whatever was set aside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cg4ai.colgen.master.active import EPIGRAPH, MEMBER, SHARED, ActiveProgram, Prices, TablePoint
from cg4ai.colgen.master.table import (
    DUMMY_MULTIPLE,
    LARGEST,
    NO_SLACK,
    OWN_SLACK,
    MasterTable,
    choose_objective_unit,
    choose_penalty_factor,
    require,
)
from cg4ai.records import Array, Duals, IntArray, MasterSolution


class LinearMaster:
    """The complete master over all rows and columns added so far; see the module for the LP.

    `row_age_limit` and `column_age_limit`: a row without price or a column without weight for
    more than this many solves in a row leaves HiGHS until it is violated or improves again.
    `activation_batch`: how many violated rows enter HiGHS at a time, most violated first; small
    batches cost more rounds, large ones activate rows that never bind. `usual` is the size of costs
    that the data suggest, `row_size` that of bounds of rows.
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
        usual: float | None = None,
        row_size: float = 1.0,
    ) -> None:
        require(blocks >= 1, f"a master needs at least one block, got {blocks}")
        require(
            0 < penalty <= penalty_limit <= LARGEST / DUMMY_MULTIPLE,
            f"penalties must satisfy 0 < penalty <= penalty_limit <= {LARGEST / DUMMY_MULTIPLE:g}, "
            f"got {penalty} and {penalty_limit}",
        )
        require(penalty_growth > 1, f"penalty_growth must exceed 1, got {penalty_growth}")
        require(
            row_age_limit >= 0 and column_age_limit >= 0,
            f"age limits must be >= 0, got {row_age_limit} and {column_age_limit}",
        )
        require(activation_batch >= 1, f"activation_batch must be >= 1, got {activation_batch}")
        require(1e-10 <= tolerance <= 1e-3, f"tolerance must be in [1e-10, 1e-3], got {tolerance}")
        self.blocks = int(blocks)
        self.penalty_growth = float(penalty_growth)
        self.penalty_limit = float(penalty_limit)
        self.row_age_limit = int(row_age_limit)
        self.column_age_limit = int(column_age_limit)
        self.activation_batch = int(activation_batch)
        self.tolerance = float(tolerance)
        self._cold_restarts_before = 0
        self._usual, self._row_size = usual, row_size
        self._unit: float | None = None  # not known before something has a cost
        self._gap = 0.0
        self._start(MasterTable(self.blocks), Prices(float(penalty)))

    def _start(self, table: MasterTable, prices: Prices) -> None:
        self._table = table
        self._active = ActiveProgram(table, prices, tolerance=self.tolerance)

    @property
    def n_rows(self) -> int:
        return self._table.n_rows

    @property
    def n_columns(self) -> int:
        return self._table.n_columns

    @property
    def penalty(self) -> float:
        return self._active.prices.penalty

    @property
    def unit(self) -> float:
        """The unit of the objective, in which penalties are stated and the table is stored."""
        return 1.0 if self._unit is None else self._unit

    @property
    def gap(self) -> float:
        """How far the last `penalised` is above what the duals prove, but for other columns."""
        return self._gap

    @property
    def cold_restarts(self) -> int:
        """How often a warm start failed numerically and was repeated from scratch."""
        return self._cold_restarts_before + self._active.cold_restarts

    @property
    def coefficients(self) -> Array:
        """The table in use, (n_rows, n_columns); a view, not to be written to."""
        return self._table.coefficients

    @property
    def bounds(self) -> Array:
        return self._table.bounds

    @property
    def slack_numbers(self) -> IntArray:
        return self._table.slack_of

    @property
    def table(self) -> MasterTable:
        """All rows and columns with what they cost, in the unit; not to be written to."""
        return self._table

    @property
    def slack_only(self) -> bool:
        """Whether slack alone is minimised."""
        return self._active.prices.slack_only

    def add_epigraph(self, weights: Array, floor: float) -> None:
        """Add variables `t_s >= floor` with cost `weights[s]` >= 0, one per scenario."""
        before = len(self._table.epigraph_weights)
        if floor and self._unit is None:
            self._unit = 1.0
        self._table.add_epigraph(weights, floor / self.unit)
        self._active.add_columns(EPIGRAPH, before + np.arange(len(weights)))

    def add_columns(self, costs: Array, blocks: IntArray, coefficients: Array) -> None:
        """Add members: `costs` (c,), `blocks` (c,), `coefficients` (n_rows, c)."""
        before = self.n_columns
        costs, coefficients = np.asarray(costs, float), np.asarray(coefficients, float)
        if self._unit is None and np.isfinite(costs).all():
            self._take_unit(np.abs(costs))
        if self.unit != 1.0:
            coefficients = coefficients / self._row_units(self._table.epigraph_of)
        self._table.add_columns(costs / self.unit, blocks, coefficients)
        self._active.add_columns(MEMBER, np.arange(before, self.n_columns))

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
        known = self._table.slack_of
        if epigraph is not None:
            pieces, coefficients = np.asarray(epigraph) >= 0, np.asarray(coefficients, float)
            if self._unit is None and pieces.any() and np.isfinite(coefficients).all():
                self._take_unit(np.abs(coefficients[pieces]).ravel())
            if self.unit != 1.0:
                units = self._row_units(np.asarray(epigraph))
                coefficients, bounds = coefficients / units, np.asarray(bounds) / units[:, 0]
        self._table.add_rows(coefficients, bounds, slack, epigraph)
        added = self._table.slack_of[len(known) :]
        self._active.add_columns(SHARED, np.setdiff1d(added[added >= 0], known))

    def usual_cost(self) -> float:
        """The median size of what members cost; of an epigraph the unit, 0 where that is 1."""
        usual = self.unit * float(np.median(np.abs(self._table.costs)))
        return usual or (0.0 if self.unit == 1.0 else self.unit)

    def _take_unit(self, sizes: Array) -> None:
        """From the sizes of the first costs."""
        self._unit = choose_objective_unit(sizes, self._usual)
        factor, most = (
            choose_penalty_factor(self.unit, self._usual, self._row_size),
            LARGEST / DUMMY_MULTIPLE,
        )
        if factor != 1.0:
            self.penalty_limit = min(factor * self.penalty_limit, most)
            penalty = min(factor * self.penalty, self.penalty_limit)
            self._active.set_prices(replace(self._active.prices, penalty=penalty))

    def _row_units(self, epigraph: IntArray) -> Array:
        """(m, 1): what rows are divided by: the unit where they are pieces of the objective."""
        return np.where(epigraph >= 0, self.unit, 1.0)[:, None]

    def raise_penalty(self) -> bool:
        """Multiply the penalty by its growth, up to its limit; False if it is there already."""
        if self.penalty >= self.penalty_limit:
            return False
        penalty = min(self.penalty * self.penalty_growth, self.penalty_limit)
        self._active.set_prices(replace(self._active.prices, penalty=penalty))
        return True

    def bar(self, members: IntArray) -> None:
        """Price these members out of the following solves, and only these; none lifts it.

        For trying how far the others go, not part of a state: `objective` leaves the price out,
        so a solution that gives barred members weight is not one to keep.
        """
        barred = tuple(np.asarray(members, np.int64).tolist())
        self._active.set_prices(replace(self._active.prices, barred=barred))

    def minimise_slack(self, on: bool) -> None:
        """Switch the phase in which members and epigraph are free and slack has price 1."""
        if on != self._active.prices.slack_only:
            self._active.set_prices(replace(self._active.prices, slack_only=on))

    def solve(self) -> MasterSolution:
        """An optimal solution of the complete master (all rows, all columns of the table).

        While slack is minimised, `objective` is 0 and `penalised` is the sum of all slack.
        """
        self._active.set_aside(
            row_age_limit=self.row_age_limit, column_age_limit=self.column_age_limit
        )
        iterations = 0
        while True:
            iterations += self._active.run()
            point = self._active.read()
            # Within one solve rows and columns only enter, so this ends; rows first, so that
            # each HiGHS run starts either primal feasible (new columns) or dual feasible.
            if len(rows := self._violated(point)):
                self._active.add_rows(rows)
            elif len(columns := self._improving(point)):
                self._active.add_columns(MEMBER, columns)
            else:
                break
        self._active.count_idle(point)
        return self._solution(point, iterations=iterations)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything as named arrays; `restore` makes an equal master of them.

        A run that goes on from `restore(state())` wherever it saves a state continues bit for bit
        like one that was stopped there.
        """
        return {
            "settings": np.array([float(getattr(self, name)) for name in _SETTINGS]),
            "slack_phase": np.array(self._active.prices.slack_only),
            "unit": np.array(np.nan if self._unit is None else self._unit),
            "cold_restarts_before": np.array(self.cold_restarts),
            **self._table.state(),
            **self._active.state(),
        }

    @classmethod
    def restore(cls, state: Mapping[str, NDArray[Any]]) -> Self:
        """A new master from what `state` returned, warm-started from the same basis."""
        values = dict(zip(_SETTINGS, state["settings"].tolist(), strict=True))
        counts = ("blocks", "row_age_limit", "column_age_limit", "activation_batch")
        master = cls(**{k: int(v) if k in counts else v for k, v in values.items()})
        master._cold_restarts_before = int(state["cold_restarts_before"])
        unit = float(state["unit"])
        master._unit = None if np.isnan(unit) else unit
        prices = Prices(master.penalty, bool(state["slack_phase"]))
        master._start(MasterTable.restore(master.blocks, state), prices)
        master._active.restore(state)
        return master

    def _violated(self, point: TablePoint) -> IntArray:
        """The most violated rows that HiGHS does not hold, at most a batch."""
        violation = self._table.compute_shortfall(point.weights, point.epigraph)
        shared = self._table.slack_of >= 0
        order = np.argsort(point.shared_numbers)
        at = np.searchsorted(point.shared_numbers[order], self._table.slack_of[shared])
        violation[shared] -= point.shared[order][at]
        violation[self._active.held.rows] = 0.0
        violation *= self._table.compute_factors(np.arange(self.n_rows))
        violated = np.flatnonzero(violation > self.tolerance)
        if len(violated) > self.activation_batch:
            worst = np.argsort(-violation[violated], kind="stable")[: self.activation_batch]
            violated = violated[worst]
        return violated

    def _improving(self, point: TablePoint) -> IntArray:
        """Columns that HiGHS does not hold and that would improve at the present duals."""
        prices = self._active.prices
        out = np.union1d(self._active.held.members, np.array(prices.barred, np.int64))
        aside = np.setdiff1d(np.arange(self.n_columns), out)
        reduced_costs = self._table.compute_reduced_costs(
            aside, point.duals, free=prices.slack_only
        )
        return np.asarray(aside[reduced_costs < -self.tolerance])

    def _solution(self, point: TablePoint, *, iterations: int) -> MasterSolution:
        table, prices = self._table, self._active.prices
        # Rows without slack hold exactly once t absorbs the solver's tolerance.
        without = np.flatnonzero(table.slack_of == NO_SLACK)
        lacking = table.compute_shortfall(point.weights, point.epigraph)[without]
        scenarios, epigraph = table.epigraph_of[without], point.epigraph.copy()
        np.maximum.at(epigraph, scenarios, point.epigraph[scenarios] + lacking)
        slack = np.maximum(table.compute_shortfall(point.weights, epigraph), 0.0)
        slack[without] = 0.0
        total = _total_slack(slack, table.slack_of)
        if prices.slack_only:
            objective = 0.0
            penalties = total + DUMMY_MULTIPLE * float(point.dummy.sum())
        else:
            objective = float(table.costs @ point.weights + table.epigraph_weights @ epigraph)
            penalties = prices.penalty * (total + DUMMY_MULTIPLE * float(point.dummy.sum()))
        unit = 1.0 if prices.slack_only else self.unit
        self._gap = unit * max(0.0, objective + penalties - self._proven(point.duals))
        return MasterSolution(
            weights=point.weights,
            duals=Duals(self._stated(point.duals.rows, unit), unit * point.duals.blocks),
            objective=unit * objective,
            penalised=unit * (objective + penalties),
            slack=slack,
            dummy=point.dummy,
            active_rows=len(self._active.held.rows),
            active_columns=len(self._active.held.members),
            solver_iterations=iterations,
        )

    def _proven(self, duals: Duals) -> float:
        """What the duals prove of all columns whose reduced cost is at least 0."""
        table, floor = self._table, self._table.epigraph_floor
        bound = float(duals.rows @ table.bounds + duals.blocks.sum())
        if floor and not self._active.prices.slack_only:
            spent = np.zeros(len(table.epigraph_weights))
            of = table.epigraph_of >= 0
            np.add.at(spent, table.epigraph_of[of], duals.rows[of])
            bound += floor * float((table.epigraph_weights - spent).sum())
        return bound

    def _stated(self, rows: Array, unit: float) -> Array:
        """Duals (m,) of the rows as they were given: pieces are stored in the unit themselves."""
        return rows * np.where(self._table.epigraph_of >= 0, 1.0, unit)


# Settings by value in a state, in this order.
_SETTINGS = (
    *("blocks", "penalty", "penalty_growth", "penalty_limit"),
    *("row_age_limit", "column_age_limit", "activation_batch", "tolerance"),
)


def _total_slack(slack: Array, slack_of: IntArray) -> float:
    """The sum of own slacks, and of what each shared one must be: the largest of its rows."""
    numbers, shared_of = np.unique(slack_of[slack_of >= 0], return_inverse=True)
    shared = np.zeros(len(numbers))
    np.maximum.at(shared, shared_of, slack[slack_of >= 0])
    return float(slack[slack_of == OWN_SLACK].sum() + shared.sum())
