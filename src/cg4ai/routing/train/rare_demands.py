"""Rare demand vectors at which a router is far above the optimum: found without solving LPs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from cg4ai.clock import Deadline
from cg4ai.colgen import derive_seed, generator
from cg4ai.data import Array
from cg4ai.routing.demands.sets import FreshDemands
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.train.effort import SCREENED, count_affordable
from cg4ai.routing.train.optimal import dual_prices, least_mlu_until
from cg4ai.routing.train.utilisation import Utilisation

CHUNK = 16384  # vectors predicted at once, at most
LARGEST_SHARE = 8  # one of so many vectors is trained on at most
UNSEEN = 5e-4  # the share of vectors whose price may be unknown: these look worse than they are


class LeastMlu:
    """A lower bound of the optimal MLU at any demand vectors, from the dual prices of some.

    It is exact wherever one of the prices is optimal, nearly everywhere in practice, and costs a
    matrix product instead of one linear program per vector.
    """

    def __init__(self, instance: Instance, vectors: Array) -> None:
        self.prices, self.arc_prices = dual_prices(instance, vectors, unseen=UNSEEN)

    def __call__(self, demands: Tensor) -> Tensor:
        """(n, D) -> (n,)."""
        prices = torch.as_tensor(self.prices, dtype=demands.dtype, device=demands.device)
        return (demands @ prices.T).amax(-1)


@dataclass(frozen=True)
class GapTail:
    """The worst of many random demand vectors, where the MLU is `allowed` above the optimum.

    weight: of each vector's excess in the master's objective.
    screened, limit: vectors looked at in each search, and kept of it at most.
    device: where the vectors are predicted.
    """

    instance: Instance
    least: LeastMlu = field(repr=False)
    allowed: float = 0.04
    weight: float = 0.02
    screened: int = 50_000
    limit: int = 32
    device: str = "cpu"

    @property
    def most(self) -> int:
        """Vectors that one search looks at, fewer where paths are many."""
        return count_affordable(self.screened, SCREENED, len(self.instance.path_demand))

    @cached_property
    def _fresh(self) -> FreshDemands:
        return FreshDemands(self.instance.region)

    def sample_gaps(
        self, predict: Callable[[Tensor], Tensor], count: int, *, seed: int
    ) -> tuple[Tensor, Tensor]:
        """`count` random vectors (count, D) and the MLU above the optimum at each (count,)."""
        functional, fresh = Utilisation(self.instance), self._fresh
        made = generator(seed)
        drawn, gaps = [], []
        chunk = min(CHUNK, self.most)
        for start in range(0, count, chunk):
            here = fresh(min(chunk, count - start), made).to(self.device)
            mlu = functional.values(here, predict(here)).amax(-1)
            drawn.append(here)
            gaps.append(mlu - self.least(here))
        return torch.cat(drawn), torch.cat(gaps)

    def find(self, predict: Callable[[Tensor], Tensor], *, seed: int) -> tuple[Array, Array]:
        """Vectors (k, D) of large gap, worst first, and the MLU they should not exceed (k,)."""
        drawn, gaps = self.sample_gaps(predict, self.most, seed=derive_seed(seed, 0, "tail"))
        worst = torch.argsort(gaps, descending=True, stable=True)[: self.limit]
        worst = worst[gaps[worst] > self.allowed]
        chosen = drawn[worst].cpu().numpy()
        if not len(chosen):
            return chosen, np.zeros(0)
        reached = (self.least(drawn[worst]) + gaps[worst]).cpu().numpy()
        # the optimum itself: where no known price is optimal, a gap is less than it seems
        levels = least_mlu_until(self.instance, chosen, Deadline()) + self.allowed
        above = np.flatnonzero(reached > levels)
        above = above[np.argsort((levels - reached)[above], kind="stable")]
        return chosen[above], levels[above]

    def find_hardest(
        self, predict: Callable[[Tensor], Tensor], *, seed: int, screened: int, kept: int
    ) -> Array:
        """The vectors of largest gap; fewer where fewer are affordable, an eighth at most."""
        count = min(screened, self.most)
        drawn, gaps = self.sample_gaps(predict, count, seed=derive_seed(seed, 0, "hardest"))
        worst = gaps.topk(max(1, min(kept, len(gaps) // LARGEST_SHARE))).indices
        return np.asarray(drawn[worst].cpu().numpy())
