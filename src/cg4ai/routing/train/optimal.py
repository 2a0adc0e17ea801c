"""Optimal routings of many demand vectors, and best constant splits.

The variables are flows, so that between demand vectors only right-hand sides change and the
solver goes on from the last basis. A flow is stated in units of its demand's largest volume and a
link's load in units of its capacity, and a vector is made longer or shorter until its largest
demand is near one, for loads grow with demands: so every figure in the programs is near one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cg4ai import clock
from cg4ai.clock import Deadline
from cg4ai.data import Array, IntArray
from cg4ai.errors import InvalidInput, SolverFailure
from cg4ai.routing.train.least_norm import least_norm
from cg4ai.solvers import INFEASIBLE, OPTIMAL, LinearProgram

if TYPE_CHECKING:
    from cg4ai.routing.network.instance import Instance

TOLERANCE = 1e-9
UNBOUNDED = 1e6  # of a link's capacity: more than demands near their largest can load it
# beyond so many demands programs begin with each on one path; below, it makes no difference in time
MANY_DEMANDS = 2000
PRICED_TOGETHER = 500  # vectors solved between two looks at whether there are new prices
SAFETY = 1e-6  # what an anchor keeps below full capacity, where the load leaves that much


@dataclass(frozen=True, slots=True, eq=False)
class OptimalRouting:
    """`mlu` (N,): largest link utilisation; `splits` (N, P) and `cost` (N,) where asked for.

    `cost` is the sum over paths of length x flow.
    """

    mlu: Array
    splits: Array | None = None
    cost: Array | None = None


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The least MLU at the corner, the arcs that bound it and the demands that must cross them."""

    mlu: float
    arcs: list[int]
    demands: list[int]


class _Flows:
    """One program over flows, solved again and again for other demands.

    Without `weights`: least t with every link's utilisation at most t. With `weights` (P,), the
    price of a whole demand on each path: least total price with utilisation at most `bound`.
    """

    def __init__(self, instance: Instance, weights: Array | None = None) -> None:
        paths, arcs = instance.incidence.shape
        demands = len(instance.demand_max)
        self.paths, self.demands, self.arcs = paths, demands, arcs
        parts = [[make_membership(instance)], [make_loads(instance).T]]
        cost, self.bounded = weights, weights is not None
        if cost is None:
            parts = [[parts[0][0], None], [parts[1][0], sparse.csr_matrix(-np.ones((arcs, 1)))]]
            cost = np.concatenate([np.zeros(paths), [1.0]])
        matrix = sparse.bmat(parts, format="csr")
        self.lower = np.concatenate([np.zeros(demands), np.full(arcs, -np.inf)])
        self.upper = np.zeros(demands + arcs)
        self.program = routing_program(cost, matrix, self.lower, self.upper)
        self.primal = demands > MANY_DEMANDS and not self.bounded
        if demands > MANY_DEMANDS:
            self._begin(instance, cost)

    def _begin(self, instance: Instance, cost: Array) -> None:
        """Each demand on its cheapest path: with prices optimal as soon as it fits."""
        order = np.lexsort((cost[: self.paths], instance.path_demand))
        cheapest = order[instance.starts]
        if self.bounded:
            self.program.begin_with(cheapest, np.arange(self.demands))
            return
        loads = np.asarray(make_loads(instance)[cheapest].sum(axis=0))
        start_from_paths(self.program, cheapest, level=self.paths, arc=int(loads.argmax()))

    def solve(self, shares: Array, bound: float = 0.0) -> bool:
        """For demands of `shares` (D,) of their largest volumes; False if `bound` is too low."""
        self.lower[: self.demands] = shares
        self.upper[: self.demands] = shares
        self.upper[self.demands :] = bound
        self.program.change_row_bounds(self.lower, self.upper)
        answers = (OPTIMAL, INFEASIBLE) if self.bounded else (OPTIMAL,)
        # one vector takes little time: those who solve many look at the clock between them
        status = solve_program(self.program, answers, deadline=Deadline(), primal=self.primal)
        return status == OPTIMAL

    @property
    def value(self) -> float:
        return self.program.objective()

    def get_flows(self) -> Array:
        values = self.program.solution().values
        return np.asarray(np.maximum(values[: self.paths], 0.0))

    def get_duals(self) -> tuple[Array, Array]:
        """Prices of the demands (D,), and of the arcs (A,) >= 0."""
        duals = self.program.solution().duals
        return duals[: self.demands], np.maximum(-duals[self.demands :], 0.0)


def utilisation_per_share(instance: Instance) -> Array:
    """(P, A): what a path adds to a link's utilisation if it takes all of the largest demand."""
    largest = instance.demand_max[instance.path_demand]
    return np.asarray(instance.incidence * largest[:, None] / instance.capacity)


def make_loads(instance: Instance) -> Any:
    """`utilisation_per_share` (P, A), sparse: of a path only the few links that it uses."""
    path, arc = np.nonzero(instance.incidence)
    largest = instance.demand_max[instance.path_demand]
    value = instance.incidence[path, arc] * largest[path] / instance.capacity[arc]
    loads = sparse.csr_matrix((value, (path, arc)), instance.incidence.shape)
    loads.eliminate_zeros()
    return loads


def routing_program(cost: Array, matrix: Any, lower: Array, upper: Array) -> LinearProgram:
    """`cost`.x minimised over x >= 0, lower <= matrix x <= upper."""
    program = LinearProgram(TOLERANCE)
    empty = sparse.csc_matrix((0, len(cost)))
    program.add_columns(cost, np.zeros(len(cost)), empty)
    program.add_rows(lower, upper, sparse.csr_matrix(matrix))
    return program


def solve_program(
    program: LinearProgram,
    answers: tuple[str, ...] = (OPTIMAL,),
    *,
    deadline: Deadline | None = None,
    primal: bool = False,
) -> str:
    """The status, one of `answers`; TimeIsOver where a deadline ends it, by default the run's."""
    deadline = clock.review().deadline if deadline is None else deadline
    status = program.run(primal=primal, answers=answers, deadline=deadline).status
    if status not in answers:
        raise SolverFailure(
            f"a routing program ended as {status}, expected {' or '.join(answers)}; demands or "
            "capacities may differ by too many orders of magnitude"
        )
    return status


def start_from_paths(program: LinearProgram, columns: IntArray, *, level: int, arc: int) -> None:
    """Begin where all of each demand is on one path: its column of `columns` (D,).

    `level` is the column of the MLU, `arc` the link that is then loaded most; the first D rows are
    those of demands, in the order of `columns`. From there the primal simplex method moves flow
    only where that helps; without a basis thousands of demands are first routed one by one.
    """
    tight = np.append(np.arange(len(columns)), len(columns) + arc)
    program.begin_with(np.append(columns, level), tight)


def scale_vectors(instance: Instance, B: Array) -> tuple[Array, Array]:
    """Vectors (N, D) as shares of the largest volumes, times what brings the largest near one.

    And by how much (N,) they are smaller: powers of two, which change no digit. Without it a vector
    of 1e-9 of the largest demands would be lost in the solver's tolerances.
    """
    shares = instance.check_vectors(B) / instance.demand_max
    largest = shares.max(axis=1, initial=0.0)
    scale = np.where(largest > 0, np.ldexp(1.0, np.frexp(largest)[1]), 1.0)
    return np.asarray(shares / scale[:, None]), scale


def find_bottleneck(instance: Instance) -> Bottleneck:
    """What the corner of the box, all demands at their largest, costs at best."""
    program = _Flows(instance)
    program.solve(np.ones(program.demands))
    demand_prices, arc_prices = program.get_duals()
    return Bottleneck(
        mlu=program.value,
        arcs=np.flatnonzero(arc_prices > 1e-7).tolist(),
        demands=np.flatnonzero(demand_prices > 1e-7).tolist(),
    )


class DualPrices:
    """The optimal MLU and its slope at one demand vector after another, from warm starts."""

    def __init__(self, instance: Instance) -> None:
        self._program, self._instance = _Flows(instance), instance

    def compute_at(self, vector: Array) -> tuple[float, Array]:
        """The optimum at a vector (D,), and dual prices (D,) of a unit of each demand there.

        The optimum of any other vector b is at least prices . b.
        """
        (shares,), (scale,) = scale_vectors(self._instance, vector[None])
        self._program.solve(shares)
        prices = self._program.get_duals()[0] / self._instance.demand_max
        return float(self._program.value * scale), np.asarray(prices)


def link_prices(instance: Instance, vector: Array) -> Array:
    """(A,), >= 0, summing to one: the dual prices of the links at one demand vector (D,)."""
    program = _Flows(instance)
    program.solve(scale_vectors(instance, vector)[0][0])
    return program.get_duals()[1]


def demand_prices(instance: Instance, B: Array, *, unseen: float = 0.0) -> Array:
    """The distinct dual prices (k, D) of a unit of each demand at the vectors B (N, D).

    By duality the optimal MLU of *any* vector b is at least price . b for each of them, and the
    optimum is the largest of finitely many such forms: a few hundred cover a whole box closely.
    Random vectors need not all be solved: the share of prices met only once estimates how often
    the next vector has a new one (Good and Turing), and from `unseen` of it on the rest is left.
    """
    return dual_prices(instance, B, unseen=unseen)[0]


def arc_prices(instance: Instance, B: Array, *, unseen: float = 0.0) -> Array:
    """The prices (k, A) of the links, which sum to one, behind distinct prices of demands."""
    prices = dual_prices(instance, B, unseen=unseen)[1]
    prices = prices[prices.sum(axis=1) > TOLERANCE]  # demands of zero have none
    return np.asarray(prices / prices.sum(axis=1, keepdims=True))


def dual_prices(instance: Instance, B: Array, *, unseen: float = 0.0) -> tuple[Array, Array]:
    """Distinct prices (k, D) of demands, sorted, and those of links (k, A) behind each."""
    pairs = _dual_solutions(instance, B, unseen)
    demands, order = np.unique([price for price, _ in pairs], axis=0, return_index=True)
    return demands / instance.demand_max, np.array([price for _, price in pairs])[order]


def _dual_solutions(instance: Instance, B: Array, unseen: float) -> list[tuple[Array, Array]]:
    """Prices of demands (D,), in units of the largest, and of links (A,), each pair once."""
    program = _Flows(instance)
    found: Counter[bytes] = Counter()
    pairs: dict[bytes, tuple[Array, Array]] = {}
    review = clock.review().take_share(0.5)
    with review.stage(f"prices of links at {len(B):,} demand vectors") as stage:
        for number, vector in enumerate(scale_vectors(instance, B)[0], start=1):
            program.solve(vector)
            demands, arcs = program.get_duals()
            price = np.round(demands, 9)
            found[price.tobytes()] += 1
            pairs.setdefault(price.tobytes(), (price, arcs))
            if number % PRICED_TOGETHER == 0 and _met_once(found) < unseen * number:
                break
            if number < len(B) and not stage.is_in_time(number, len(B)):
                break
    return list(pairs.values())


def _met_once(found: Counter[bytes]) -> int:
    return sum(count == 1 for count in found.values())


def optimal_routing(
    instance: Instance,
    B: Array,
    *,
    splits: bool = False,
    objective: Literal["mlu", "cost"] = "mlu",
) -> OptimalRouting:
    """The best routing of each vector (N, D).

    "mlu": the least maximum link utilisation. "cost": the least sum of path length x flow with
    every link at most full. With `splits` also the one canonical split: for "mlu" the least
    total utilisation among optimal ones, and then for both the least sum of squared shares. A
    demand of zero is split evenly.
    """
    shares, scale = scale_vectors(instance, B)
    if objective == "mlu":
        mlu = _least_mlu(instance, shares)
        if not splits:
            return OptimalRouting(mlu * scale)
        weights = utilisation_per_share(instance).sum(axis=1)
        found = _canonical(instance, shares, weights, mlu + TOLERANCE)
        return OptimalRouting(mlu * scale, found, _cost(instance, B, found))
    if objective == "cost":
        weights = instance.path_length * instance.demand_max[instance.path_demand]
        bounds = np.minimum(1 / scale, UNBOUNDED)
        found = _canonical(instance, shares, weights, bounds, unique=splits)
        mlu = instance.compute_utilisation(B, found).max(axis=1)
        return OptimalRouting(mlu, found if splits else None, _cost(instance, B, found))
    raise InvalidInput(f"the objective is 'mlu' or 'cost', got {objective!r}", code="unknown-name")


def _cost(instance: Instance, B: Array, splits: Array) -> Array:
    flows = instance.check_vectors(B)[:, instance.path_demand] * splits
    return np.asarray(flows @ instance.path_length)


def _least_mlu(instance: Instance, shares: Array) -> Array:
    values = []
    for value in _each_least_mlu(instance, shares):
        clock.refuse_overtime("solving for the optimum of demand vectors")
        values.append(value)
    return np.array(values)


def _each_least_mlu(instance: Instance, shares: Array) -> Iterator[float]:
    program = _Flows(instance)
    for vector in shares:
        program.solve(vector)
        yield program.value


def least_mlu_until(instance: Instance, B: Array, deadline: Deadline) -> Array:
    """The least MLU (n,) of the first of the vectors (N, D): as many as time allows, one at least.

    They are the same as `optimal_routing` gives.
    """
    shares, scale = scale_vectors(instance, B)
    values = []
    for value in _each_least_mlu(instance, shares):
        values.append(value)
        if deadline.passed:
            break
    return np.array(values) * scale[: len(values)]


class SplitProgram:
    """An optimal split of one demand vector after another, whichever the solver comes to first.

    Every vector is solved from the basis of the largest demands, not from that of the vector
    before: so the same vector has the same split, whatever was asked before, in hardly more time.
    """

    def __init__(self, instance: Instance) -> None:
        self._program, self._instance = _Flows(instance), instance
        self._program.solve(np.ones(self._program.demands))
        self._basis = self._program.program.basis()

    def solve(self, B: Array) -> tuple[Array, Array]:
        """Splits (N, P) of vectors (N, D), and the prices (N, A) of links that make them optimal.

        Prices are all 0 where nothing is routed.
        """
        made, program = self._instance, self._program
        splits = np.empty((len(B), len(made.path_demand)))
        prices = np.empty((len(B), len(made.arcs)))
        for position, vector in enumerate(scale_vectors(made, B)[0]):
            program.program.restart_from(*self._basis)
            program.solve(vector)
            splits[position] = _split_of(made, vector, program.get_flows())[0]
            prices[position] = program.get_duals()[1] if vector.any() else 0.0
        return splits, prices


def _split_of(instance: Instance, vector: Array, flows: Array) -> tuple[Array, NDArray[np.bool_]]:
    """The shares (P,) of flows (P,), and which demands (D,) they are of.

    A demand may be so small that it is lost in the solver's tolerance: any split of it will do.
    """
    counts, demand = np.bincount(instance.path_demand), instance.path_demand
    totals = np.bincount(demand, flows, len(counts))
    routed = (vector > 1e-7) & (totals > 0)
    split = flows / np.where(routed, totals, 1.0)[demand]
    return np.where(routed[demand], split, 1.0 / counts[demand]), routed


def _canonical(
    instance: Instance, shares: Array, weights: Array, bounds: Array, *, unique: bool = True
) -> Array:
    """Splits (N, P) of least total weight with every link's utilisation at most its bound.

    With `unique`, the one of least norm where several exist.
    """
    weights = weights / max(float(weights.max()), 1e-300)
    program, loads = _Flows(instance, weights), utilisation_per_share(instance)
    result = np.empty((len(shares), len(weights)))
    for position, (vector, bound) in enumerate(zip(shares, bounds, strict=True)):
        clock.refuse_overtime("solving for the splits of demand vectors")
        if not program.solve(vector, bound):
            raise InvalidInput(
                f"demand vector {position} cannot be routed within the capacities; "
                "stay inside the box of the instance",
                code="infeasible",
            )
        per_path = vector[instance.path_demand]
        split, routed = _split_of(instance, vector, program.get_flows())
        if unique:
            demand_prices, arc_prices = program.get_duals()
            slack = weights + loads @ arc_prices - demand_prices[instance.path_demand]
            split = least_norm(
                split,
                instance.path_demand,
                free=routed[instance.path_demand] & (slack < 1e-7),
                loads=loads * per_path[:, None],
                bound=bound,
                tight=arc_prices > 1e-7,
            )
        result[position] = split
    return result


@dataclass(frozen=True, slots=True, eq=False)
class SafeRows:
    """`matrix` (R, P + extra + 1) times (split, extra variables >= 0, t) is at most `upper` (R,).

    Then no link is loaded above t, a utilisation, at any demand vector that is meant.
    """

    matrix: Any
    upper: Array
    extra: int = 0


def make_safe_rows_at(instance: Instance, corner: Array) -> SafeRows:
    """At all demands up to `corner` (D,): the load of a constant split grows with them."""
    share = (corner / instance.demand_max)[instance.path_demand]
    loads = make_loads(instance).T.multiply(share)
    level = sparse.csr_matrix(-np.ones((len(instance.arcs), 1)))
    return SafeRows(sparse.hstack([loads, level], format="csr"), np.zeros(len(instance.arcs)))


def make_membership(instance: Instance) -> Any:
    """(D, P) sparse: 1 where a path is one of the demand's."""
    paths = len(instance.path_demand)
    shape = (len(instance.demand_max), paths)
    return sparse.csr_matrix((np.ones(paths), (instance.path_demand, np.arange(paths))), shape)


def best_split(
    instance: Instance,
    samples: Array,
    *,
    safe: SafeRows,
    limit: float,
    share: float = 1.0,
    beside: Array | None = None,
) -> Array:
    """The constant split (P,) of least mean MLU over `samples` (N, D) that is `safe` up to `limit`.

    With `beside` (N, A), what else loads the links, it is the mean of the largest of
    `beside + share * utilisation`. Rows `load of arc a at sample s <= t_s` are added as they are
    violated.
    """
    vectors = instance.check_vectors(samples) / instance.demand_max
    if len(vectors) == 0:
        raise InvalidInput("an anchor needs at least one sample of the demands", code="empty")
    loads, count = utilisation_per_share(instance), len(vectors)
    paths, links = loads.shape
    other = np.zeros((count, links)) if beside is None else beside
    blank = sparse.csr_matrix((len(instance.demand_max), safe.extra))
    fixed = sparse.vstack([sparse.hstack([make_membership(instance), blank]), safe.matrix[:, :-1]])
    at_limit = safe.upper - limit * safe.matrix[:, -1].toarray()[:, 0]
    ones = np.ones(len(instance.demand_max))
    program = routing_program(
        np.concatenate([np.zeros(paths + safe.extra), np.full(count, 1.0 / count)]),
        sparse.hstack([fixed, sparse.csr_matrix((fixed.shape[0], count))], format="csr"),
        np.concatenate([ones, np.full(len(at_limit), -np.inf)]),
        np.concatenate([ones, at_limit]),
    )
    per_path = share * vectors[:, instance.path_demand]
    known: set[tuple[int, int]] = set()
    while True:
        solve_program(program)
        values = program.solution().values
        split = np.maximum(values[:paths], 0.0)
        split /= np.bincount(instance.path_demand, split)[instance.path_demand]
        utilisation = (per_path * split) @ loads + other
        worst = utilisation.argmax(axis=1)
        short = utilisation.max(axis=1) > values[paths + safe.extra :] + 1e-7
        new = [(int(s), int(worst[s])) for s in np.flatnonzero(short)]
        new = [pair for pair in new if pair not in known]
        if not new:
            return np.asarray(split)
        known.update(new)
        _add_sample_rows(program, new, per_path, loads=loads, beside=other, extra=safe.extra)


def _add_sample_rows(
    program: LinearProgram,
    pairs: list[tuple[int, int]],
    per_path: Array,
    *,
    loads: Array,
    beside: Array,
    extra: int,
) -> None:
    """Rows `load of arc a at sample s - t_s <= -beside`."""
    samples, arcs = np.array(pairs).T
    number = np.arange(len(pairs))
    levels = sparse.csr_matrix(
        (-np.ones(len(pairs)), (number, samples)), shape=(len(pairs), len(per_path))
    )
    own = sparse.csr_matrix(per_path[samples] * loads[:, arcs].T)
    matrix = sparse.hstack([own, sparse.csr_matrix((len(pairs), extra)), levels], format="csr")
    program.add_rows(np.full(len(pairs), -np.inf), -beside[samples, arcs], matrix)
