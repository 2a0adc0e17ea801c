"""The problem of a router that learns from measured traffic: mean MLU over the optimum.

A demand vector b counts by MLU(b) / optimum(b), so that quiet hours count as much as busy ones.
The optimum of a fresh vector comes from stored dual prices: it is at least their largest product
with b, and exactly that where one of them is optimal, as nearly everywhere. Prices of the links of
each node are always among them, so that no demands have a bound of zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cg4ai import Problem
from cg4ai.clock import Deadline
from cg4ai.colgen import Epigraph, Layout, Training, derive_seed, generator
from cg4ai.data import Array, IntArray
from cg4ai.members import ShieldedArchitecture, ShieldedMembers
from cg4ai.routing.demands.measured import MeasuredTraffic, thin_vectors
from cg4ai.routing.demands.sets import FreshDemands, MixedDemands
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.prove.unroutable import priced_demands
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.joint import JointPricer, capacity_shield, joint_network
from cg4ai.routing.train.optimal import least_mlu_until
from cg4ai.routing.train.problem import NEAR_CORNER, OTHERS, capacity
from cg4ai.routing.train.rare_demands import GapTail, LeastMlu
from cg4ai.routing.train.utilisation import Utilisation

NOISE = 0.2  # by which measured demands are multiplied: the exponential of so much times a normal
FROM_SET = 0.1  # of every batch, drawn from the whole set: the guarantee is about all of it
PRICED = 1000  # measured vectors solved for dual prices, at most
PRICED_OF_SET = 100  # and vectors of the set
SCENARIO_PATHS, LEAST_SCENARIOS = 300_000, 100  # scenarios x paths of the master, about
SCREENED_PATHS = 4_000_000  # vectors x paths that one search for the worst looks at
RATE = 0.01
NO_LOAD = 1e-30


class MeasuredDemands:
    """Vectors near measured ones (T, D), and a share from the whole set, by `fresh`: of all mixes.

    Each demand is multiplied by a random factor of its own.
    """

    any_device = True

    def __init__(self, measured: Array, fresh: FreshDemands | MixedDemands) -> None:
        self.measured, self.fresh = torch.as_tensor(measured), fresh
        self._known: dict[torch.device, Tensor] = {}

    def __call__(self, count: int, generator: torch.Generator) -> Tensor:
        """(count, D) float64 on the generator's device."""
        device = generator.device
        if device not in self._known:
            self._known[device] = self.measured.to(device)
        known, others = self._known[device], round(FROM_SET * count)
        near = count - others
        pick = torch.randint(len(known), (near,), generator=generator, device=device)
        size = (near, known.shape[1])
        factor = torch.randn(size, generator=generator, dtype=torch.float64, device=device)
        return torch.cat([known[pick] * (NOISE * factor).exp(), self.fresh(others, generator)])


class RelativeUtilisation(Utilisation):
    """One function per arc: its utilisation over the optimal MLU of the demand vector."""

    def __init__(self, instance: Instance, prices: Array) -> None:
        super().__init__(instance)
        self.prices = prices
        self._on_device: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def compute_least(self, inputs: Tensor) -> Tensor:
        """Demands (k, D) -> (k,): the optimal MLU, or a little less."""
        key = (inputs.dtype, inputs.device)
        if key not in self._on_device:
            prices = torch.as_tensor(self.prices.T.copy())
            self._on_device[key] = prices.to(dtype=inputs.dtype, device=inputs.device)
        return (inputs @ self._on_device[key]).amax(-1).clamp_min(NO_LOAD)

    def values(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return super().values(inputs, outputs) / self.compute_least(inputs).unsqueeze(-1)

    def coefficients(self, inputs: Array, which: IntArray) -> Array:
        least = self.compute_least(torch.as_tensor(np.asarray(inputs, np.float64))).numpy()
        return np.asarray(super().coefficients(inputs, which) / least[:, None])


@dataclass(frozen=True)
class RatioTail(GapTail):
    """The worst of many vectors like the measured ones, by how far MLU / optimum is above 1."""

    drawn: MeasuredDemands | None = None
    pieces: RelativeUtilisation | None = None

    def sample_gaps(
        self, predict: Callable[[Tensor], Tensor], count: int, *, seed: int
    ) -> tuple[Tensor, Tensor]:
        """About `count` vectors (n, D), fewer where paths are many, and MLU / optimum - 1 (n,)."""
        assert self.drawn is not None
        assert self.pieces is not None
        paths = len(self.instance.path_demand)
        fewer = min(count, max(1024, SCREENED_PATHS // paths))
        vectors = self.drawn(fewer, generator(seed)).to(self.device)
        ratio = self.pieces.values(vectors, predict(vectors)).amax(-1)
        return vectors, ratio - 1.0

    def find(self, predict: Callable[[Tensor], Tensor], *, seed: int) -> tuple[Array, Array]:
        """Vectors (k, D) of large ratio, worst first, and the ratio they should not exceed (k,).

        Where the optimum is above the bound that ratios are taken of, so much more is allowed.
        """
        assert self.pieces is not None
        vectors, gaps = self.sample_gaps(predict, self.screened, seed=derive_seed(seed, 0, "tail"))
        worst = torch.argsort(gaps, descending=True, stable=True)[: self.limit]
        worst = worst[gaps[worst] > self.allowed]
        chosen, reached = vectors[worst].cpu().numpy(), 1.0 + gaps[worst].cpu().numpy()
        if not len(chosen):
            return chosen, np.zeros(0)
        best = least_mlu_until(self.instance, chosen, Deadline())
        least = self.pieces.compute_least(torch.as_tensor(chosen)).numpy()
        levels = (1.0 + self.allowed) * np.maximum(best / least, 1.0)
        above = reached > levels
        return chosen[above], levels[above]


def node_prices(instance: Instance) -> Array:
    """Prices (k, D) of a unit of each demand, by the links that leave each node or enter it.

    What a node sends loads one of its links at least as if it filled them evenly. By these a unit
    of every demand has a price, where those of solved vectors may have none for a demand.
    """
    prices = []
    for side in (0, 1):
        for node in dict.fromkeys(arc[side] for arc in instance.arcs):
            own = np.array([arc[side] == node for arc in instance.arcs])
            prices.append(priced_demands(instance, np.where(own, instance.capacity, 0.0)))
    return np.array(prices)


def traffic_problem(instance: Instance, measured: MeasuredTraffic, recipe: Recipe) -> Problem:
    """One network for all demands behind a shield, trained on vectors like the measured ones."""
    paths = len(instance.path_demand)
    recipe = recipe.fill_defaults(len(instance.demand_max), joint=True)
    fresh = MixedDemands(
        instance.region,
        instance.ends,
        others=OTHERS,
        edge=NEAR_CORNER,
        seed=derive_seed(recipe.seed, 0, "set"),
    )
    drawn = MeasuredDemands(measured.earlier, fresh)
    count = min(recipe.scenarios, max(LEAST_SCENARIOS, SCENARIO_PATHS // paths))
    sample = thin_vectors(measured.earlier, count)
    # so that members are chosen, and left out, by vectors of the set, too
    beside = fresh(
        max(1, round(FROM_SET * len(sample))), generator(derive_seed(recipe.seed, 0, "beside"))
    )
    others = fresh(PRICED_OF_SET, generator(derive_seed(recipe.seed, 0, "priced")))
    of_set = np.maximum(torch.cat([beside, others]).numpy(), 0.0)
    solved = np.concatenate([thin_vectors(measured.earlier, PRICED), of_set])
    least = LeastMlu(instance, solved)
    pieces = RelativeUtilisation(instance, np.concatenate([least.prices, node_prices(instance)]))
    # the mean MLU of vectors scaled to an optimum of one is their mean ratio
    scaled = sample / pieces.compute_least(torch.as_tensor(sample)).numpy()[:, None]
    shield = capacity_shield(instance, capacity(instance, recipe), scaled)
    scenarios = np.concatenate([sample, beside.numpy()])
    groups = np.repeat([0, 1], [len(sample), len(beside)])
    tail = RatioTail(instance, least, device=recipe.device, drawn=drawn, pieces=pieces)
    network = joint_network(instance, hidden=recipe.hidden)
    split = shield.anchor.outputs(torch.zeros(1, len(instance.demand_max), dtype=torch.float64))
    network = replace(network, start=split[0, 0].cpu().numpy())
    pricer = JointPricer(
        ShieldedArchitecture(network, shield),
        first=Training(recipe.first_steps, learning_rate=RATE, schedule="onecycle"),
        later=Training(recipe.later_steps, learning_rate=RATE / 2, schedule="onecycle"),
        batch_size=recipe.batch_size,
    )
    return Problem(
        objective=Epigraph(scenarios, pieces, sampler=drawn, tail=tail, least=1.0, groups=groups),
        requirements=(),
        pricers=(pricer,),
        layout=Layout.single(paths),
        start=((ShieldedMembers(shield.anchor, shield), np.zeros(1, np.int64)),),
    )
