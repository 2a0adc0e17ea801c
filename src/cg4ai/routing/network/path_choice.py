"""Which paths a router may use: the shortest, disjoint ones, or those that carry traffic best.

Generated paths come from the best routings of many demand vectors of the set (`flows`). A few of
each demand are kept: first those that carry most, then exchanges, priced by duals, lower the mean
MLU over the vectors together with the level at the worst case of the set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, get_args

import numpy as np

from cg4ai import clock
from cg4ai.colgen import derive_seed, generator
from cg4ai.data import Array, IntArray
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.routing.demands.sets import DemandSet, Mix, MixedDemands
from cg4ai.routing.network.flows import BestRouting, Mask, NetworkFlows
from cg4ai.routing.network.path_files import Nodes
from cg4ai.routing.network.path_search import (
    Graph,
    find_disjoint_pair,
    iterate_paths,
    refuse_unreached,
)
from cg4ai.rules import Box

PathChoice = Literal["generated", "shortest", "disjoint"]
CHOICES: tuple[PathChoice, ...] = get_args(PathChoice)

NAMED = 5  # demands that a note names
# by which paths are chosen: fewer where demands are many
MOST_VECTORS, LEAST_VECTORS, VECTORS_EACH = 140, 40, 12_000
# the share of each mix; the others are uniform, or of the traffic
MIX_SHARES: dict[Mix, float] = {"sparse": 0.05, "lognormal": 0.1, "gravity": 0.1, "corner": 0.1}
VARIED = 1.0  # spread of the logarithms of factors by which few measured vectors are varied
LEVEL_WEIGHT = 0.5  # of the level at the worst case, beside a mean of weight one
MOST_WORK = 2_000_000  # columns and rows of the programs by which paths are chosen
ROUNDS, SPARING, SPARED, SPARING_GROWTH = 8, 0.3, 0.02, 1.3
GAIN = 1e-6  # of the objective: what a change must bring at least
DROPPED = 2  # paths of a demand, those used least, that are tried in an exchange


@dataclass(frozen=True, eq=False)
class ChosenPaths:
    """The paths of each demand by its (source, target), and what is to be said of them."""

    paths: dict[tuple[int, int], list[Nodes]]
    notes: tuple[str, ...] = ()


def check_choice(choice: str, number: int) -> None:
    if choice not in CHOICES:
        raise InvalidInput(
            f"path_choice must be one of {', '.join(CHOICES)}, got {choice!r}"
            f"{did_you_mean(choice, CHOICES)}",
            code="unknown-name",
        )
    if choice == "disjoint" and number < 2:
        raise InvalidInput(
            "path_choice disjoint takes at least 2 paths of each demand, got 1; allow more paths",
            code="conflict",
        )


def choose_paths(
    graph: Graph,
    volumes: Mapping[tuple[int, int], float],
    region: DemandSet,
    number: int,
    *,
    choice: PathChoice,
    disjoint: bool = False,
    earlier: Array | None = None,
) -> ChosenPaths:
    """At most `number` paths of each demand, within the limits of the graph.

    `volumes` are the largest demands, `region` is their set, in the same units and order.
    `disjoint`: generated paths of a demand have two without a common link, where the graph has.
    `earlier` (T, D): measured demand vectors, to choose by in place of random ones of the set.
    """
    check_choice(choice, number)
    pairs = list(volumes)
    refuse_unreached(graph, pairs)
    apart = (disjoint or choice == "disjoint") and number > 1
    twins = [find_disjoint_pair(graph, *pair) if apart else [] for pair in pairs]
    if choice == "generated":
        largest = np.array([volumes[pair] for pair in pairs])
        vectors = _draw_vectors(graph, pairs, region, largest, earlier)
        found = generate_paths(graph, pairs, largest, vectors, number, twins=twins)
    else:
        words = f"{choice} paths of {len(pairs):,} demands"
        found = []
        with clock.review().stage(words, needed=True) as stage:
            for done, (pair, first) in enumerate(zip(pairs, twins, strict=True)):
                stage.is_in_time(done, len(pairs))
                others = (path for path in iterate_paths(graph, *pair) if path not in first)
                found.append([*first, *islice(others, number - len(first))])
    notes = list(_name_inseparable(graph, pairs, twins)) if apart else []
    return ChosenPaths(dict(zip(pairs, found, strict=True)), tuple(notes))


def _name_inseparable(
    graph: Graph, pairs: Sequence[tuple[int, int]], twins: Sequence[list[Nodes]]
) -> Iterator[str]:
    """Demands that a single failure can cut off."""
    alone = [pair for pair, own in zip(pairs, twins, strict=True) if not own]
    if alone:
        names = ", ".join(f"{graph.nodes[a]}->{graph.nodes[b]}" for a, b in alone[:NAMED])
        more = f" and {len(alone) - NAMED} more" if len(alone) > NAMED else ""
        within = f" of at most {graph.limits}" if graph.limits else ""
        yield f"no two paths{within} without a common link were found for {names}{more}"


@dataclass(frozen=True, eq=False)
class SampleVectors:
    """Vectors (n, D) to choose paths by: `typical` ones, and the `worst` of the set."""

    typical: Array
    worst: Array


def _draw_vectors(
    graph: Graph,
    pairs: Sequence[tuple[int, int]],
    region: DemandSet,
    largest: Array,
    earlier: Array | None,
) -> SampleVectors:
    """As shares of the largest demands; the same whenever the same is asked."""
    count = min(MOST_VECTORS, max(LEAST_VECTORS, VECTORS_EACH // len(pairs)))
    ends = [(graph.nodes[source], graph.nodes[target]) for source, target in pairs]
    drawn = MixedDemands(region, ends, seed=derive_seed(0, 0, "vectors of paths"))
    made = generator(derive_seed(0, 1, "vectors of paths"))
    others = {mix: max(1, round(share * count)) for mix, share in MIX_SHARES.items()}
    typical = [drawn.draw(mix, each, made).numpy() for mix, each in others.items()]
    left = count - sum(others.values())
    if earlier is None:
        typical.append(drawn.draw("uniform", left, made).numpy())
    else:
        typical.append(_vary(earlier[earlier.any(axis=1)], left))
    if isinstance(region, Box):
        worst = region.upper[None]
    else:
        worst = drawn.draw("corner", max(1, count // 8), made).numpy()
    return SampleVectors(np.concatenate(typical) / largest, worst / largest)


def _vary(sent: Array, count: int) -> Array:
    """(count, D): measured vectors, evenly over time; where they are few, varied ones beside.

    Paths that suit three vectors alone may be bad ones for the fourth.
    """
    rows = np.unique(np.linspace(0, len(sent) - 1, min(count, len(sent))).round())
    made = np.random.default_rng(derive_seed(0, 2, "vectors of paths"))
    more = sent[made.integers(len(sent), size=count - len(rows))]
    return np.concatenate(
        [sent[rows.astype(np.int64)], more * np.exp(VARIED * made.normal(size=more.shape))]
    )


def generate_paths(
    graph: Graph,
    pairs: Sequence[tuple[int, int]],
    largest: Array,
    vectors: SampleVectors,
    number: int,
    *,
    twins: Sequence[list[Nodes]] = (),
) -> list[list[Nodes]]:
    """At most `number` paths of each demand, by column generation.

    They lower the mean MLU over the typical vectors and, with LEVEL_WEIGHT, over the worst. `twins`
    are paths of each demand without common links: where there are such, two of those kept are.
    """
    flows = NetworkFlows(graph, pairs, largest)
    flows.add((demand, path) for demand, own in enumerate(twins) for path in own)
    shares = np.concatenate([vectors.worst, vectors.typical])
    with clock.review().stage(f"the best paths of {len(pairs):,} demands", needed=True) as stage:
        best = []
        for done, vector in enumerate(shares):
            stage.is_in_time(done, len(shares))
            best.append(flows.optimise(vector))
    optima = np.array([one.mlu for one in best])
    weights = np.empty(len(shares))
    for part, weight in (
        (slice(len(vectors.worst)), LEVEL_WEIGHT),
        (slice(len(vectors.worst), None), 1.0),
    ):
        weights[part] = weight / max(float(optima[part].sum()), 1e-300)
    found = _Selection(flows, shares, weights, best, number, disjoint=any(twins))
    found.improve()
    return found.to_paths()


@dataclass(frozen=True, eq=False)
class _Routed:
    """The vectors routed over chosen paths: the MLU (V,) and flows (V, P) of each, and prices."""

    chosen: Mask
    mlu: Array
    flows: Array
    paid: Array
    prices: Array


class _Selection:
    """Chooses among the paths of `flows`; vectors (V, D) with `weights` (V,) of their MLU."""

    def __init__(
        self,
        flows: NetworkFlows,
        shares: Array,
        weights: Array,
        best: Sequence[BestRouting],
        number: int,
        *,
        disjoint: bool,
    ) -> None:
        self.flows, self.shares, self.weights, self.number = flows, shares, weights, number
        self.demand, self.loads = flows.demand, flows.make_loads()
        paths = len(self.demand)
        order, counts = np.argsort(self.demand, kind="stable"), np.bincount(self.demand)
        self.blocks = np.split(order, np.cumsum(counts)[:-1])
        self.carried = np.array([np.pad(one.flows, (0, paths - len(one.flows))) for one in best])
        self.best = np.array([one.mlu for one in best])  # at least what any choice has
        self.total = np.maximum(weights @ shares, 1e-300)  # (D,)
        self.work_left = MOST_WORK
        self.pairs: list[list[tuple[int, int]]] = [[] for _ in self.blocks]
        if disjoint and number > 1:
            self.pairs = [self._pairs(block) for block in self.blocks]
        self.state = self._start()

    def _pairs(self, block: IntArray) -> list[tuple[int, int]]:
        """Paths of a demand without common links."""
        graph, paths = self.flows.graph, self.flows.paths
        every = [(int(a), int(b)) for a in block for b in block if a < b]
        return [(a, b) for a, b in every if graph.are_disjoint(paths[a], paths[b])]

    def to_paths(self) -> list[list[Nodes]]:
        """Of each demand those chosen, by what they carry."""
        carried = self.weights @ self.state.flows
        found = []
        for block in self.blocks:
            own = block[self.state.chosen[block]]
            order = own[np.argsort(-carried[own], kind="stable")]
            found.append([self.flows.paths[k] for k in order])
        return found

    # ---- a first choice --------------------------------------------------------------------------

    def _start(self) -> _Routed:
        """Those that carry most, when each vector takes few paths that others do not use."""
        costs_unit = float(np.median(self.best)) / self.flows.unit
        carried, sparing = self.carried, SPARING
        start = self._route(self._most_used(carried))
        for _ in range(ROUNDS):
            if self.value(start) <= self.least * (1 + 1e-3) or self._is_spent():
                break
            used = (self.weights @ carried) / self.total[self.demand]
            self.flows.forbid(None)
            self.flows.change_costs(sparing * costs_unit * SPARED / (used + SPARED))
            carried = np.array([self._solve(vector).flows for vector in self.shares])
            self.flows.change_costs(np.zeros(len(self.demand)))
            sparing *= SPARING_GROWTH
            other = self._route(self._most_used(carried))
            start = min(start, other, key=self.value)
        return start

    def _most_used(self, carried: Array) -> Mask:
        used = self.weights @ carried
        chosen = np.zeros(len(used), bool)
        for block, pairs in zip(self.blocks, self.pairs, strict=True):
            order = block[np.argsort(-used[block], kind="stable")].tolist()
            first = max(pairs, key=lambda pair: used[list(pair)].sum(), default=())
            kept = [*first, *(path for path in order if path not in first)][: self.number]
            chosen[kept] = True
        return chosen

    # ---- the objective ---------------------------------------------------------------------------

    @property
    def least(self) -> float:
        """What no choice is below."""
        return float(self.weights @ self.best)

    def value(self, routed: _Routed) -> float:
        return float(self.weights @ routed.mlu)

    def _solve(self, vector: Array) -> BestRouting:
        before = self.flows.work
        found = self.flows.solve(vector)
        self.work_left -= self.flows.work - before
        return found

    def _is_spent(self) -> bool:
        return self.work_left <= 0

    def _route(self, chosen: Mask) -> _Routed:
        self.flows.forbid(~chosen)
        found = [self._solve(vector) for vector in self.shares]
        return _Routed(
            chosen,
            np.array([one.mlu for one in found]),
            np.array([one.flows for one in found]),
            np.array([one.paid for one in found]),
            np.array([one.prices for one in found]),
        )

    def _reroute(
        self, before: _Routed, chosen: Mask, changed: Mask, below: float
    ) -> _Routed | None:
        """`before` with the `changed` vectors (V,) routed anew; None if the value reaches `below`.

        `before` must allow what `chosen` does, or bound it in `_value_left`.
        """
        self.flows.forbid(~chosen)
        after = replace(
            before,
            chosen=chosen,
            mlu=before.mlu.copy(),
            flows=before.flows.copy(),
            paid=before.paid.copy(),
            prices=before.prices.copy(),
        )
        value = self.value(before)
        for k in np.flatnonzero(changed):
            found = self._solve(self.shares[k])
            value += self.weights[k] * (found.mlu - before.mlu[k])
            if value >= below:
                return None
            after.mlu[k], after.flows[k] = found.mlu, found.flows
            after.paid[k], after.prices[k] = found.paid, found.prices
        return after

    # ---- exchanges -------------------------------------------------------------------------------

    def improve(self) -> None:
        """Exchange paths while that helps, as far as the work allows."""
        words = f"exchanging paths of {len(self.blocks):,} demands"
        with clock.review().stage(words) as stage:
            while self._improve_once(stage):
                pass

    def _improve_once(self, stage: clock.Stage) -> bool:
        """Try every path once, first those that bring most by prices; whether one was taken."""
        refused: list[int] = []
        taken = False
        while self.value(self.state) > self.least * (1 + GAIN) and not self._is_spent():
            gains, cheaper = self._gains()
            gains[refused] = 0.0
            path = int(gains.argmax())
            if gains[path] <= GAIN * self.least:
                return taken
            if not stage.is_in_time(MOST_WORK - self.work_left, MOST_WORK):
                return False
            refused.append(path)
            better = self._exchange(path, cheaper[:, path])
            if better is not None:
                self.state, taken = better, True
        return False

    def _gains(self) -> tuple[Array, Mask]:
        """(P,): what a path not chosen brings at most, by duals; (V, P): vectors it concerns."""
        state = self.state
        reduced = state.paid[:, self.demand] - (self.loads @ state.prices.T).T
        reduced[:, state.chosen] = 0.0
        volume = self.shares[:, self.demand]
        cheaper = (reduced > GAIN) & (volume > 0)
        scaled = np.where(cheaper, reduced * volume, 0.0)
        return self.weights @ scaled * self.flows.unit, cheaper

    def _exchange(self, path: int, cheaper: Mask) -> _Routed | None:
        """The choice with a further path, in place of another one of its demand if need be."""
        goal = self.value(self.state) - GAIN * self.least
        chosen = self.state.chosen.copy()
        chosen[path] = True
        wider = self._reroute(self.state, chosen, cheaper, np.inf)
        assert wider is not None
        block = self.blocks[self.demand[path]]
        own = [int(one) for one in block if chosen[one]]
        if self.value(wider) >= goal or len(own) <= self.number:
            return wider if self.value(wider) < goal else None
        used = self.weights @ wider.flows
        best: _Routed | None = None
        for other in sorted(own, key=lambda one: (used[one], one))[:DROPPED]:
            without = chosen.copy()
            without[other] = False
            if other == path or not self._keeps_pair(without, int(self.demand[path])):
                continue
            changed = wider.flows[:, other] > GAIN * self.shares[:, self.demand[path]]
            found = self._reroute(wider, without, changed, goal)
            if found is not None:
                best, goal = found, self.value(found)
        return best

    def _keeps_pair(self, chosen: Mask, demand: int) -> bool:
        pairs = self.pairs[demand]
        return not pairs or any(chosen[a] and chosen[b] for a, b in pairs)
