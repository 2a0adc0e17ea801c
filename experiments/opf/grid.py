"""The DC model of a grid as MATPOWER has it: power transfer factors, balances, limits of flows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray
from experiments.opf.matpower import Case

ISOLATED = 4  # type of a bus that MATPOWER leaves out
SURE = 1e-6  # share of its rate by which a line that is left out must stay below it


@dataclass(frozen=True, eq=False)
class Grid:
    """What of a case is in service, in MW.

    Generators (G,), loads (D,) that are not 0, lines (L,) with a limit. Flows are
    `by_generator @ p - by_load @ d + constant`; in island i the generators `island_of_generator ==
    i` give what its loads take and `fixed[i]` (shunts and phase shifters).
    """

    name: str
    buses: int
    lower: Array
    upper: Array
    costs: Array
    loads: Array
    by_generator: Array
    by_load: Array
    constant: Array
    rate: Array
    island_of_generator: IntArray
    island_of_load: IntArray
    fixed: Array
    unlimited: int
    lines: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    notes: tuple[str, ...] = ()

    @property
    def islands(self) -> int:
        return len(self.fixed)

    def flows(self, dispatch: Array, loads: Array) -> Array:
        """(n, G), (n, D) -> (n, L)."""
        return np.asarray(dispatch @ self.by_generator.T - loads @ self.by_load.T + self.constant)

    def cost(self, dispatch: Array) -> Array:
        """(n, G) -> (n,), without the constant terms of the file."""
        return np.asarray(np.square(dispatch) @ self.costs[:, 0] + dispatch @ self.costs[:, 1])

    @property
    def is_linear(self) -> bool:
        return not self.costs[:, 0].any()

    def sums(self, island_of: IntArray) -> Array:
        """(islands, elements): which elements are in which island."""
        return np.asarray(np.arange(self.islands)[:, None] == island_of, np.float64)


def build_grid(case: Case) -> Grid:
    """The grid of a case; InvalidInput where the DC model has no meaning."""
    notes: list[str] = []
    number = case.column("bus", "number").astype(np.int64)
    if len(np.unique(number)) < len(number):
        raise InvalidInput(f"{case.name} numbers two buses alike", code="bad-file")
    used = case.column("bus", "type") != ISOLATED
    place = {int(one): at for at, one in enumerate(number[used])}
    if not used.all():
        lost = case.column("bus", "load")[~used].sum()
        notes.append(f"{int((~used).sum())} isolated buses left out, with {lost:g} MW of load")

    branch = case.branch[_serving(case, "branch", ("from", "to"), number, place, notes)]
    start, end = (_places(branch[:, at], place) for at in (0, 1))
    reactance = branch[:, 3]
    if (reactance == 0).any():
        row = branch[np.flatnonzero(reactance == 0)[0]]
        raise InvalidInput(
            f"the branch from bus {row[0]:g} to {row[1]:g} of {case.name} has no reactance, so "
            "that the DC model gives it no flow; join the two buses or give it a reactance",
            code="range",
        )
    ratio = np.where(branch[:, 8] == 0, 1.0, branch[:, 8])
    strength = case.base / (reactance * ratio)
    shifted = -strength * np.deg2rad(branch[:, 9])  # the flow at equal angles

    lines, size = len(branch), len(place)
    ends = np.concatenate([start, end])
    incidence = sparse.csr_matrix(
        (np.repeat([1.0, -1.0], lines), (np.tile(np.arange(lines), 2), ends)), (lines, size)
    )
    count, island = connected_components(abs(incidence.T) @ abs(incidence), directed=False)

    on = _serving(case, "gen", ("bus",), number, place, notes)
    gen, costs = case.gen[on], case.costs[on]
    lower, upper = gen[:, 9], gen[:, 8]
    if (lower > upper).any() or not np.isfinite([lower, upper]).all():
        row = np.flatnonzero((lower > upper) | ~np.isfinite(lower) | ~np.isfinite(upper))[0]
        raise InvalidInput(
            f"a generator at bus {gen[row, 0]:g} of {case.name} has Pmin {lower[row]:g} and Pmax "
            f"{upper[row]:g}; finite limits are needed, Pmin at most Pmax",
            code="range",
        )
    at_bus = _places(gen[:, 0], place)
    nominal, shunt = case.column("bus", "load")[used], case.column("bus", "shunt")[used]
    loaded = np.flatnonzero(nominal)

    # what buses take whatever the loads are; one that joins the islands has no more to give
    taken = shunt + incidence.T @ shifted
    sums = sparse.csr_matrix((np.ones(size), (island, np.arange(size))), (count, size))
    fixed = sums @ taken
    _refuse_unserved(case, number[used], island, at_bus, nominal, fixed)

    columns = np.concatenate([at_bus, loaded])
    angles = _solve_angles(incidence, strength, island, columns, taken, case.name)
    limited = np.flatnonzero(branch[:, 5] > 0)
    along = sparse.diags_array(strength[limited]) @ incidence[limited]
    factors = along @ angles
    return Grid(
        case.name,
        size,
        lower,
        upper,
        costs,
        nominal[loaded],
        factors[:, : len(gen)],
        factors[:, len(gen) : -1],
        shifted[limited] - factors[:, -1],
        branch[limited, 5],
        island[at_bus].astype(np.int64),
        island[loaded].astype(np.int64),
        fixed,
        lines - len(limited),
        limited,
        tuple(notes),
    )


def _serving(
    case: Case,
    table: str,
    ends: tuple[str, ...],
    numbers: IntArray,
    place: dict[int, int],
    notes: list[str],
) -> IntArray:
    """Which rows of a table are in service, at buses that are."""
    on = case.column(table, "status") > 0
    if not on.all():
        notes.append(f"{int((~on).sum())} rows of mpc.{table} out of service")
    for name in ends:
        at = case.column(table, name)
        unknown = ~np.isin(at, numbers)
        if unknown.any():
            raise InvalidInput(
                f"mpc.{table} of {case.name} names bus {at[unknown][0]:g}, which mpc.bus lacks",
                code="bad-file",
            )
        on &= np.isin(at, list(place))
    if not on.any():
        raise InvalidInput(f"{case.name} has no row of mpc.{table} in service", code="empty")
    return np.flatnonzero(on)


def _places(numbers: Array, place: dict[int, int]) -> IntArray:
    return np.array([place[int(one)] for one in numbers], np.int64)


def _refuse_unserved(
    case: Case, number: IntArray, island: IntArray, at_bus: IntArray, nominal: Array, fixed: Array
) -> None:
    served = np.isin(island, island[at_bus])
    taking = (nominal != 0) | (fixed[island] != 0)
    if (taking & ~served).any():
        bus = number[np.flatnonzero(taking & ~served)[0]]
        raise InvalidInput(
            f"bus {bus} of {case.name} is in an island with load and without a generator in "
            "service; set its type to 4 or connect it",
            code="infeasible",
        )


def _solve_angles(
    incidence: sparse.csr_matrix,
    strength: Array,
    island: IntArray,
    columns: IntArray,
    taken: Array,
    name: str,
) -> Array:
    """(buses, columns + 1): angles for 1 MW at each of these buses, and for what buses take.

    The first bus of each island has angle 0 and balances it.
    """
    _, first = np.unique(island, return_index=True)
    free = np.setdiff1d(np.arange(len(island)), first)
    susceptance = (incidence.T @ sparse.diags_array(strength) @ incidence).tocsc()
    result = np.zeros((len(island), len(columns) + 1))
    if not len(free):
        return result
    given = np.zeros((len(island), len(columns) + 1))
    given[columns, np.arange(len(columns))] = 1.0
    given[:, -1] = taken
    try:
        found = splu(susceptance[free][:, free]).solve(given[free])
    except RuntimeError as error:
        raise InvalidInput(
            f"the susceptances of {name} do not determine its flows ({error}): reactances of "
            "parallel or series branches cancel",
            code="range",
        ) from error
    result[free] = found
    return result


@dataclass(frozen=True, eq=False)
class Extremes:
    """The largest and least flow (L,) at any dispatch within limits that balances its loads."""

    largest: Array
    least: Array

    def can_break(self, rate: Array) -> NDArray[np.bool_]:
        """(L,): whether a line can leave its limits."""
        return np.asarray(np.maximum(self.largest, -self.least) > (1 - SURE) * rate)


def bound_flows(grid: Grid, lower: Array, upper: Array) -> Extremes:
    """Over all loads of the box, too.

    Adding a multiple of each island's balance changes no flow. With any multiple the sum of the
    terms' own extremes is a bound, so that the least of these bounds is one; it is at a breakpoint.
    """
    ends = []
    for sign in (1.0, -1.0):
        total = sign * grid.constant
        for number in range(grid.islands):
            g, d = grid.island_of_generator == number, grid.island_of_load == number
            slopes = sign * np.column_stack([grid.by_generator[:, g], -grid.by_load[:, d]])
            balance = np.concatenate([np.ones(g.sum()), -np.ones(d.sum())])
            low = np.concatenate([grid.lower[g], lower[d]])
            high = np.concatenate([grid.upper[g], upper[d]])
            total = total + _bound_sums(slopes, balance, low, high, float(grid.fixed[number]))
        ends.append(total)
    return Extremes(ends[0], -ends[1])


def _bound_sums(slopes: Array, balance: Array, low: Array, high: Array, fixed: float) -> Array:
    """(L,): the least over t of `max over low <= v <= high of (slopes - t balance) . v + t fixed`.

    Convex and piecewise linear in t, with a breakpoint where a slope changes its sign.
    """
    at = slopes * balance  # t where slopes - t balance is 0: balance is 1 or -1
    order = np.argsort(at, axis=1)
    middle, radius = (low + high) / 2, (high - low) / 2
    weight = radius[order]
    # the derivative in t: fixed - balance . middle, and each |.| term rises after its breakpoint
    rising = 2 * np.cumsum(weight, axis=1) - weight.sum(1, keepdims=True)
    start = fixed - float(balance @ middle)
    chosen = np.argmax(start + rising >= 0, axis=1)
    chosen = np.where((start + rising >= 0).any(1), chosen, at.shape[1] - 1)
    t = np.take_along_axis(at, np.take_along_axis(order, chosen[:, None], 1), 1)
    rest = slopes - t * balance
    return np.asarray(rest @ middle + np.abs(rest) @ radius + t[:, 0] * fixed)
