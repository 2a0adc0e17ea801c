"""Sets of demand vectors: a box, one with lower bounds, or one with limits on sums of demands.

A set says where a router is guaranteed. It is a `Box` or a `Polytope` over vectors b (D,), whose
matrix adds up the demands of a node (hose) or all of them (a budget).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from cg4ai.apps import Excess
from cg4ai.colgen import generator as seeded
from cg4ai.data import Array
from cg4ai.errors import InvalidInput
from cg4ai.rules import Box, Polytope

DemandSet = Box | Polytope
NEAR = 0.1  # the edge: a vector within so much of the largest in its direction
POOL = 4096  # vectors of a polytope from which fresh ones are made
POOL_FIGURES = 2**25  # of all of them at most, 256 MB
UNIT = 1e-12  # a direction shorter than this, relative to the set, leads nowhere
Mix = Literal["uniform", "sparse", "lognormal", "gravity", "corner"]
MIXES: tuple[Mix, ...] = get_args(Mix)
ON = 0.1  # of the demands of a sparse vector
SPREAD = 1.0  # of the logarithms of lognormal demands, and of the nodes' weights


def demand_box(largest: Array, least: float = 0.0) -> Box:
    """[least x largest, largest], with `least` a share from 0 up to, but not, 1."""
    if not 0 <= least < 1:
        raise InvalidInput(
            f"least must be a share of the largest demands from 0 to below 1, got {least}",
            code="range",
        )
    return Box(least * largest, largest)


def limit_demands(
    box: Box,
    ends: Sequence[tuple[str, str]],
    *,
    hose: float | None = None,
    budget: float | None = None,
) -> DemandSet:
    """The vectors of a box that keep limits on sums; `ends` are (source, target) of each demand.

    hose: what a node sends in all, and what it receives, is at most this share of the sum of these
    demands' largest volumes. budget: the same of all demands together. None: no such limit.
    """
    rows, limits = [], []
    if hose is not None:
        _check_share("hose", hose)
        for members in node_totals(ends):
            rows.append(members)
            limits.append(hose * float(members @ box.upper))
    if budget is not None:
        _check_share("budget", budget)
        rows.append(np.ones(box.size))
        limits.append(budget * float(box.upper.sum()))
    if not rows:
        return box
    for members, limit in zip(rows, limits, strict=True):
        _check_room(box, members, limit, ends)
    return Polytope(box, np.array(rows), np.array(limits))


def _check_room(box: Box, members: Array, limit: float, ends: Sequence[tuple[str, str]]) -> None:
    """Refuse a limit on the sum of `members` (D,) that their least volumes exceed."""
    least = float(members @ box.lower)
    if least <= limit * (1 + 1e-12):
        return
    what = name_total(members, ends)
    share = least / float(members @ box.upper)
    raise InvalidInput(
        f"no demand vector keeps the limits: {what} is at least {least:.6g} by the smallest "
        f"demands, but at most {limit:.6g} by hose or budget; set hose and budget to at least "
        f"{share:.6g}, or choose smaller least demands",
        code="infeasible",
    )


def node_totals(ends: Sequence[tuple[str, str]]) -> list[Array]:
    """For each node that sends, then for each that receives, 1 at its demands (D,).

    Totals of one demand alone, which its own largest volume bounds, are left out.
    """
    totals = []
    for side in (0, 1):
        for node in dict.fromkeys(pair[side] for pair in ends):
            members = np.array([float(pair[side] == node) for pair in ends])
            if members.sum() > 1:
                totals.append(members)
    return totals


def name_total(members: Array, ends: Sequence[tuple[str, str]]) -> str:
    """What the sum of the demands with an entry in `members` (D,) is called."""
    used = np.flatnonzero(members).tolist()
    sources, targets = {ends[demand][0] for demand in used}, {ends[demand][1] for demand in used}
    if len(sources) == 1:
        return f"what {sources.pop()} sends in all"
    if len(targets) == 1:
        return f"what {targets.pop()} receives in all"
    if len(used) == len(ends):
        return "what all demands make up together"
    return f"a sum of {len(used)} demands"


def measure_excess(
    region: DemandSet, vectors: Array, names: Sequence[str], ends: Sequence[tuple[str, str]]
) -> Excess:
    """By which limit of a set vectors (n, D) >= 0 are beyond it most: a demand or a node's total.

    `names` of the demands; that of the smallest volume of a demand says so.
    """
    box = region if isinstance(region, Box) else region.box
    least = np.flatnonzero(box.lower > 0)
    limits = [*names, *(f"the smallest {names[demand]}" for demand in least.tolist())]
    parts = [_ratios(vectors, box.upper), _ratios(box.lower[least], vectors[:, least])]
    if isinstance(region, Polytope):
        limits += [name_total(row, ends) for row in region.matrix]
        parts.append(_ratios(vectors @ region.matrix.T, region.limit))
    factors = np.concatenate(parts, axis=1)
    return Excess(limits, factors.argmax(axis=1), factors.max(axis=1))


def _ratios(values: Array, limits: Array) -> Array:
    """Values over limits, infinite where one is exceeded that is not above 0; none of 0 is 0."""
    values, limits = np.broadcast_arrays(values, limits)
    above = np.where(values > limits, np.inf, 0.0)
    with np.errstate(over="ignore"):
        return np.asarray(np.divide(values, limits, out=above, where=limits > 0))


def _check_share(what: str, share: float) -> None:
    if not 0 < share <= 1:
        raise InvalidInput(
            f"{what} must be a share of the sum of the largest demands, above 0 and at most 1, "
            f"got {share}",
            code="range",
        )


def scale_set(region: DemandSet, factor: float) -> DemandSet:
    """The set of all vectors of `region` times `factor`."""
    if isinstance(region, Box):
        return Box(factor * region.lower, factor * region.upper)
    inner = Box(factor * region.box.lower, factor * region.box.upper)
    return Polytope(inner, region.matrix, factor * region.limit)


def describe_set(region: DemandSet) -> str:
    """What a vector of the set is like."""
    lower, upper = region.bounds() if isinstance(region, Box) else region.box.bounds()
    words = "between zero and its largest volume"
    if lower.any():
        share = float((lower / np.maximum(upper, 1e-300)).min())
        words = f"between at least {share:.3g} of its largest volume and that volume"
    if isinstance(region, Polytope):
        count = len(region.limit)
        words += f", with {count} limit{'s' if count > 1 else ''} on sums of demands"
    return f"every demand {words}"


def sample_demands(region: DemandSet, count: int, seed: int) -> Array:
    """Demand vectors (count, D), uniform in the set; in a polytope as far as walks reach."""
    if isinstance(region, Box):
        shares = np.random.default_rng(seed).uniform(0, 1, (count, region.size))
        return np.asarray(region.lower + shares * (region.upper - region.lower))
    return np.asarray(region.sample(count, seeded(seed)).numpy())


class FreshDemands:
    """Demand vectors drawn uniformly from a set, a share `edge` of them where it ends.

    At the edge of a box all demands are within a tenth of their largest; at that of a polytope the
    vector is, along its own direction.
    """

    any_device = True

    def __init__(
        self,
        region: DemandSet,
        *,
        edge: float = 0.0,
        seed: int = 0,
        pool: Tensor | None = None,
    ) -> None:
        """`pool`: vectors of a polytope that are drawn already; others draw theirs."""
        box = region if isinstance(region, Box) else region.box
        self.lower, self.upper = torch.as_tensor(box.lower), torch.as_tensor(box.upper)
        self.width = self.upper - self.lower
        self.edge = edge
        self._known: dict[torch.device, tuple[Tensor, Tensor]] = {}
        self.pool = pool
        if isinstance(region, Polytope):
            if pool is None:
                self.pool = region.sample(min(POOL, POOL_FIGURES // region.size), seeded(seed))
            self.matrix, self.limit = map(torch.as_tensor, (region.matrix, region.limit))

    def __call__(self, count: int, generator: torch.Generator) -> Tensor:
        """(count, D) float64 on the generator's device."""
        device = generator.device
        if device not in self._known:  # once: training must not copy from the host at every step
            self._known[device] = (self.lower.to(device), self.width.to(device))
        lower, width = self._known[device]
        size = (count, len(width))
        edge = round(self.edge * count)
        if self.pool is not None:
            return self._walked(size, edge, generator)
        share = torch.rand(size, generator=generator, dtype=torch.float64, device=device)
        if edge:
            share[:edge].mul_(-NEAR).add_(1.0)
        return lower + share * width

    def _walked(self, size: tuple[int, int], edge: int, generator: torch.Generator) -> Tensor:
        """One step of a walk (hit and run) from vectors of the pool, which leaves them uniform."""
        assert self.pool is not None
        device = generator.device
        pick = torch.randint(len(self.pool), (size[0],), generator=generator, device=device)
        start = self.pool.to(device)[pick]
        way = torch.randn(size, generator=generator, dtype=torch.float64, device=device)
        way = way * self.width.to(device)
        share = torch.rand((size[0], 1), generator=generator, dtype=torch.float64, device=device)
        back, ahead = self._reach(start, -way), self._reach(start, way)
        inside = start + way * (share * (back + ahead) - back)
        if edge:
            lower = self.lower.to(device)
            out = inside[:edge] - lower
            far = self._reach(lower.expand_as(out), out)
            inside[:edge] = lower + out * far * (1 - NEAR * share[:edge])
        return inside

    def scale_shares(self, share: Tensor) -> Tensor:
        """Shares (n, D) of the way from the smallest to the largest demand, as vectors of the set.

        What lies outside is moved towards all smallest demands, just as far as it must be.
        """
        lower, width = self.lower.to(share.device), self.width.to(share.device)
        way = share * width
        if self.pool is not None:
            way = way * self._reach(lower.expand_as(way), way).clamp_max(1.0)
        return torch.minimum(lower + way, self.upper.to(share.device))  # rounding may exceed it

    def _reach(self, start: Tensor, way: Tensor) -> Tensor:
        """(n, 1): how many times `way` (n, D) leads from `start` (n, D) to the end of the set."""
        device = start.device
        lower, upper = self.lower.to(device), (self.lower + self.width).to(device)
        matrix, limit = self.matrix.to(device), self.limit.to(device)
        room = torch.cat([upper - start, start - lower, limit - start @ matrix.T], 1)
        pace = torch.cat([way, -way, way @ matrix.T], 1)
        scale = torch.cat([self.width, self.width, self.limit.abs()]).to(device)
        steps = torch.where(pace > UNIT * scale, room.clamp_min(0.0) / pace, torch.inf)
        return steps.amin(1, keepdim=True).clamp_max(1e6)


class MixedDemands:
    """Demand vectors of several mixes, all in one set.

    uniform: uniformly distributed in the set. sparse: a tenth of the demands, at random, between
    their smallest and largest, the others at their smallest. lognormal: each demand by a factor of
    its own. gravity: by a factor of its source times one of its target. corner: where the set ends,
    see `FreshDemands`. Lognormal and gravity vectors are as large as the box allows; what a
    polytope does not contain is scaled down into it.
    """

    any_device = True

    def __init__(
        self,
        region: DemandSet,
        ends: Sequence[tuple[str, str]],
        *,
        others: float = 0.0,
        edge: float = 0.0,
        seed: int = 0,
    ) -> None:
        """`others`: of a batch the share of each of sparse, lognormal and gravity.

        `edge`: that of the corner; the rest is uniform.
        """
        self.fresh = FreshDemands(region, edge=edge, seed=seed)
        pool = self.fresh.pool
        self.inner = FreshDemands(region, pool=pool) if edge else self.fresh
        self.outer = FreshDemands(region, edge=1.0, pool=pool)
        self.others = others
        nodes = dict.fromkeys(node for pair in ends for node in pair)
        names = {name: number for number, name in enumerate(nodes)}
        self.ends = torch.tensor([[names[node] for node in pair] for pair in ends]).T  # (2, D)
        self.nodes = len(names)
        self._ends: dict[torch.device, Tensor] = {}

    def __call__(self, count: int, generator: torch.Generator) -> Tensor:
        """(count, D) float64 on the generator's device."""
        each = round(self.others * count)
        if not each:
            return self.fresh(count, generator)
        kinds: tuple[Mix, ...] = ("sparse", "lognormal", "gravity")
        parts = [self.fresh(count - len(kinds) * each, generator)]
        return torch.cat([*parts, *(self.draw(mix, each, generator) for mix in kinds)])

    def draw(self, mix: Mix, count: int, generator: torch.Generator) -> Tensor:
        """(count, D) vectors of one mix."""
        if mix == "uniform":
            return self.inner(count, generator)
        if mix == "corner":
            return self.outer(count, generator)
        return self.fresh.scale_shares(self._shares(mix, count, generator))

    def _shares(self, mix: Mix, count: int, generator: torch.Generator) -> Tensor:
        """(count, D): of the way from the smallest to the largest demand."""
        device = generator.device
        if device not in self._ends:
            self._ends[device] = self.ends.to(device)
        ends, kind = self._ends[device], torch.float64
        size = ends.shape[1]
        if mix == "sparse":
            order = torch.rand((count, size), generator=generator, dtype=kind, device=device)
            # at least one, so that there is something to route
            on = order <= order.amin(1, keepdim=True).clamp_min(ON)
            return on * torch.rand((count, size), generator=generator, dtype=kind, device=device)
        if mix == "lognormal":
            way = torch.randn((count, size), generator=generator, dtype=kind, device=device)
        else:
            shape = (2, count, self.nodes)
            weight = torch.randn(shape, generator=generator, dtype=kind, device=device)
            way = weight[0][:, ends[0]] + weight[1][:, ends[1]]
        return (SPREAD * (way - way.amax(1, keepdim=True))).exp()
