"""All rows and columns of a linear master in one dense table, checked as they come in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.errors import InvalidInput
from cg4ai.records import Array, Duals, IntArray

OWN_SLACK, NO_SLACK = -1, -2
DUMMY_MULTIPLE = 1000.0  # one unit of dummy costs as much as this many units of slack
SMALL = 1 / 64  # bounds below are small for the tolerances of solvers
MOST_DOUBLINGS = 20
SPREAD, LARGE_SPREAD = 1e9, 1e6  # of costs, beyond a small and a large unit
USUAL = (1e-2, 1e6)  # sizes of costs that suit solvers and prices of slack as they are
LARGEST = 1e12  # HiGHS takes larger numbers for infinite, and they would drown the others

_ARRAYS = (
    *("costs", "column_blocks", "bounds", "slack_of", "epigraph_of", "epigraph_weights"),
    *("epigraph_floor", "coefficients"),
)


class MasterTable:
    """Costs (n,), blocks (n,) and `coefficients` (m, n) of columns; bounds (m,) of rows.

    `slack_of` (m,): OWN_SLACK, NO_SLACK or the number >= 0 of a shared slack. `epigraph_of` (m,):
    the scenario whose t the row contains, or -1. Adding changes nothing where it is refused.
    """

    def __init__(self, blocks: int) -> None:
        none = np.empty(0, dtype=np.int64)
        self.blocks = blocks
        self.costs = np.empty(0)
        self.column_blocks = none
        self.bounds = np.empty(0)
        self.slack_of = none
        self.epigraph_of = none
        self.epigraph_weights = np.empty(0)
        self.epigraph_floor = 0.0
        self._reserved = np.empty((0, 0))  # its first n_rows x n_columns are in use

    @property
    def n_rows(self) -> int:
        return len(self.bounds)

    @property
    def n_columns(self) -> int:
        return len(self.costs)

    @property
    def coefficients(self) -> Array:
        """(n_rows, n_columns), a view."""
        return self._reserved[: self.n_rows, : self.n_columns]

    def add_epigraph(self, weights: Array, floor: float) -> None:
        weights = _numbers("epigraph weights", weights, (None,))
        require(len(weights) > 0, "an epigraph needs at least one scenario, got none")
        require(bool((weights >= 0).all()), "epigraph weights must be >= 0, or t is unbounded")
        floor = float(_numbers("the epigraph's floor", np.array(floor), ()))
        require(
            not len(self.epigraph_weights) or floor == self.epigraph_floor,
            f"all scenarios of an epigraph have one floor, got {floor} after {self.epigraph_floor}",
        )
        self.epigraph_floor = floor
        self.epigraph_weights = np.concatenate([self.epigraph_weights, weights])

    def add_columns(self, costs: Array, blocks: IntArray, coefficients: Array) -> None:
        costs = _numbers("column costs", costs, (None,))
        blocks = _integers("column blocks", blocks, len(costs))
        coefficients = _numbers("coefficients", coefficients, (self.n_rows, len(costs)))
        require(
            bool(((blocks >= 0) & (blocks < self.blocks)).all()),
            f"column blocks must lie in 0..{self.blocks - 1}, got {np.unique(blocks)}",
        )
        before = self.n_columns
        self.costs = np.concatenate([self.costs, costs])
        self.column_blocks = np.concatenate([self.column_blocks, blocks])
        self._reserve()
        self.coefficients[:, before:] = coefficients

    def add_rows(
        self, coefficients: Array, bounds: Array, slack: IntArray, epigraph: IntArray | None
    ) -> None:
        bounds = _numbers("row bounds", bounds, (None,))
        k = len(bounds)
        coefficients = _numbers("coefficients", coefficients, (k, self.n_columns))
        slack = _integers("slack numbers", slack, k)
        epigraph = _integers(
            "epigraph numbers", np.full(k, -1) if epigraph is None else epigraph, k
        )
        scenarios = len(self.epigraph_weights)
        require(
            bool(((epigraph >= -1) & (epigraph < scenarios)).all()),
            f"epigraph numbers must lie in -1..{scenarios - 1}; add_epigraph made {scenarios}",
        )
        require(
            bool((slack >= NO_SLACK).all() and (epigraph[slack == NO_SLACK] >= 0).all()),
            "slack must be -1 (own), a shared number >= 0, or -2 (none) for epigraph rows only: "
            "other rows without slack could make the master infeasible",
        )
        before = self.n_rows
        self.bounds = np.concatenate([self.bounds, bounds])
        self.slack_of = np.concatenate([self.slack_of, slack])
        self.epigraph_of = np.concatenate([self.epigraph_of, epigraph])
        self._reserve()
        self.coefficients[before:] = coefficients

    def compute_shortfall(self, weights: Array, epigraph: Array) -> Array:
        """`bound - value` (m,) of every row, t included, slack not."""
        shortfall = self.bounds - self.coefficients @ weights
        with_epigraph = self.epigraph_of >= 0
        shortfall[with_epigraph] -= epigraph[self.epigraph_of[with_epigraph]]
        return np.asarray(shortfall)

    def compute_factors(self, rows: IntArray) -> Array:
        """Powers of two that rows with small bounds are multiplied by where they are solved.

        Solvers meet rows to an absolute tolerance; so they meet these to a share of the bound.
        """
        size = np.abs(self.bounds[rows])
        small = (size > 0) & (size < SMALL) & (self.slack_of[rows] != NO_SLACK)
        exponent = np.round(-np.log2(np.where(small, size, 1.0)))
        return np.where(small, 2.0 ** np.minimum(exponent, MOST_DOUBLINGS), 1.0)

    def compute_reduced_costs(self, columns: IntArray, duals: Duals, *, free: bool) -> Array:
        """Of these columns at these duals; cost 0 if `free`."""
        used = np.flatnonzero(duals.rows)
        costs = np.zeros(len(columns)) if free else self.costs[columns]
        return Duals(duals.rows[used], duals.blocks).reduced_costs(
            costs, self._reserved[np.ix_(used, columns)], self.column_blocks[columns]
        )

    def state(self) -> dict[str, NDArray[Any]]:
        return {name: np.array(getattr(self, name)) for name in _ARRAYS}

    @classmethod
    def restore(cls, blocks: int, state: Mapping[str, NDArray[Any]]) -> MasterTable:
        table = cls(blocks)
        floor = float(state["epigraph_floor"])
        if len(state["epigraph_weights"]):
            table.add_epigraph(state["epigraph_weights"].copy(), floor)
        nothing = np.empty((0, len(state["costs"])))
        table.add_columns(state["costs"], state["column_blocks"], nothing)
        table.add_rows(
            state["coefficients"], state["bounds"], state["slack_of"], state["epigraph_of"]
        )
        return table

    def _reserve(self) -> None:
        """Make room; the capacity depends on the size alone, so a restored table is equal."""
        capacity = [1 << max(n - 1, 0).bit_length() for n in (self.n_rows, self.n_columns)]
        rows, columns = self._reserved.shape
        if capacity != [rows, columns]:
            larger = np.zeros(capacity)
            larger[:rows, :columns] = self._reserved
            self._reserved = larger


def choose_objective_unit(sizes: Array, usual: float | None) -> float | None:
    """The power of two that costs are divided by; None where the first of them are all zero.

    `sizes` are those of the first members, which may be wild; `usual` is that of the data's own
    spread, where it is known. A large unit is at most the least cost but not below a
    millionth of what is usual, a small one at least a billionth of the largest.
    """
    known = sizes[sizes > 0]
    if not len(known):
        return None
    low, high = float(known.min()), float(known.max())
    if usual is None:
        usual = high if high < USUAL[0] else max(low, 1.0)
    small, large = usual < USUAL[0], usual > USUAL[1]
    unit = max(usual, high / SPREAD) if small else max(min(usual, low), usual / LARGE_SPREAD)
    outside = (small and unit < USUAL[0]) or (large and unit > USUAL[1])
    return float(2.0 ** np.round(np.log2(unit))) if outside else 1.0


def choose_penalty_factor(unit: float, usual: float | None, row_size: float) -> float:
    """What prices of slack are multiplied by where costs are usually very small or large.

    In units of the objective, slack of as much as a row asks for shall cost what is stated times
    what is usual; a program of ordinary costs keeps the prices as they are.
    """
    if unit == 1.0 and (usual is None or USUAL[0] <= usual <= USUAL[1]):
        return 1.0
    return max(1.0, (usual or 0.0) / unit) / row_size


def require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidInput(message)


def _numbers(name: str, values: Array, shape: tuple[int | None, ...]) -> Array:
    """`values` as float64 of the given shape (None: any length), all finite and not huge."""
    array = np.asarray(values, dtype=np.float64)
    fits = array.ndim == len(shape) and all(
        expected in (None, found) for found, expected in zip(array.shape, shape, strict=True)
    )
    require(fits, f"{name} must have shape {shape}, got {array.shape}")
    good = np.abs(array) <= LARGEST
    require(
        bool(good.all()),
        f"{name} must be finite and at most {LARGEST:g} in size, got {array[~good][:3]}; rescale",
    )
    return array


def _integers(name: str, values: IntArray, length: int) -> IntArray:
    array = np.asarray(values)
    require(array.shape == (length,), f"{name} must have shape ({length},), got {array.shape}")
    whole = np.issubdtype(array.dtype, np.integer) or not length
    require(whole, f"{name} must be integers, got {array.dtype}")
    return array.astype(np.int64)
