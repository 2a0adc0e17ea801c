"""What links carry: at random demand vectors, and the worst that was found of each."""

from __future__ import annotations

import numpy as np

from cg4ai.data import Array
from cg4ai.routing.network.instance import Instance

LEVELS = 21  # quantiles of each link's utilisation that are kept: every twentieth, ends included
GAPS = 5  # of the largest distances from the optimum


class WorstLoads:
    """The highest utilisation seen of each link, and the vector at which some link was fullest."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.links = np.zeros(len(instance.arcs))
        self.vector: Array | None = None
        self._most = -np.inf

    def update(self, vectors: Array, splits: Array) -> Array:
        """Look at splits (n, P) of vectors (n, D); returns the utilisations (n, A)."""
        loads = self.instance.compute_utilisation(vectors, splits)
        self.merge_loads(loads.max(axis=0), vectors[loads.max(axis=1).argmax()])
        return loads

    def merge_loads(self, links: Array, vector: Array | None) -> None:
        """Note utilisations (A,) that others found; the vector is that of the fullest link."""
        if links.max() > self._most:
            self._most, self.vector = float(links.max()), vector
        self.links = np.maximum(self.links, links)

    def to_arrays(self) -> dict[str, Array]:
        worst = {} if self.vector is None else {"worst_vector": self.vector}
        return {"link_worst": self.links, **worst}


def load_arrays(loads: Array) -> dict[str, Array]:
    """Utilisations (n, A) as quantiles (LEVELS, A) of each link, the least and the largest too."""
    return {"link_loads": np.quantile(loads, np.linspace(0, 1, LEVELS), axis=0)}


def gap_arrays(vectors: Array, reached: Array, best: Array) -> dict[str, Array]:
    """The demand vectors (k, D) furthest above the optimum, with the MLUs (k, 2) of both."""
    worst = np.argsort(best - reached, kind="stable")[:GAPS]
    return {
        "gap_vectors": vectors[worst],
        "gap_mlu": np.column_stack([reached[worst], best[worst]]),
    }
