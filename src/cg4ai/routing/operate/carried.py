"""What a network carries of demands that are too large for it, classes of high priority first.

Of each class, in order, first the share that all its demands can have is made as large as possible,
then its traffic in all; what the classes before it were given stays theirs. These are linear
programs over the router's paths (docs/mathematics.md, "Priorities").
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cg4ai.apps import Answers
from cg4ai.data import Array
from cg4ai.routing.demands.priorities import list_classes
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.train.optimal import (
    SplitProgram,
    make_loads,
    make_membership,
    routing_program,
    solve_program,
)

GIVEN_UP = 1e-7  # of what a class was given, so that rounding takes no program its solution
LOST = 1e-7  # of the largest demand: less than that may be lost in the solver's tolerance
LEAST = 1e-8  # of a demand: less than that on a path is rounding
WHOLE = 1 - 1e-6  # a demand is carried in full from this share on


@dataclass(frozen=True, eq=False)
class CarriedDemands:
    """Splits (n, P), and the share of each demand (n, D) that fits over them beside the others."""

    splits: Array
    shares: Array


@dataclass(frozen=True, eq=False)
class _Stage:
    """What is asked for next: of which demands (D,), and what is kept of those before.

    `least` (D,) each demand gets at least, `weights` (k, D) times flows reach `totals` (k,).
    """

    chosen: NDArray[np.bool_]
    least: Array
    weights: Array
    totals: Array


class CarryingProgram:
    """Splits of demands that are too many for an instance with priorities."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._member, self._loads = make_membership(instance), make_loads(instance).T
        given = np.array(instance.priorities)
        self._classes = [given == one for one in list_classes(given.tolist())]

    def solve(self, vectors: Array, otherwise: Array) -> CarriedDemands:
        """For vectors (n, D); `otherwise` (n, P) are the splits of demands that get nothing."""
        made = self.instance
        splits, shares = otherwise.copy(), np.ones(vectors.shape)
        for row, vector in enumerate(made.check_vectors(vectors) / made.demand_max):
            flows = self._carry(vector)
            flows = np.where(flows > LEAST * vector[made.path_demand], flows, 0.0)
            carried, asked = np.add.reduceat(flows, made.starts), vector > LOST
            found = carried[asked] / vector[asked]
            shares[row, asked] = np.where(found > WHOLE, 1.0, found)
            some = (carried > LOST)[made.path_demand]
            totals = np.maximum(carried, LOST)[made.path_demand]
            splits[row] = np.where(some, flows / totals, splits[row])
        return CarriedDemands(splits, shares)

    def keep_first(self, vectors: Array, found: Answers) -> Answers:
        """Answers for vectors (n, D), those of overloaded networks by priority."""
        made = self.instance
        shares, splits, gaps = np.ones(vectors.shape), found.splits, found.gaps
        over = np.flatnonzero(found.overloaded)
        if len(over):
            carried = self.solve(vectors[over], splits[over])
            before, now = (
                made.compute_utilisation(vectors[over], one).max(axis=1)
                for one in (splits[over], carried.splits)
            )
            splits, gaps = splits.copy(), gaps.copy()
            splits[over], shares[over] = carried.splits, carried.shares
            gaps[over] = np.maximum((1 + gaps[over]) * now / before - 1, 0.0)
        given = np.array(made.priorities)
        by_class = {
            f"carried, priority {one}": _weigh(vectors, shares, given == one)
            for one in list_classes(given.tolist())
        }
        each = {f"carried {name}": shares[:, at] for at, name in enumerate(made.demand_names)}
        return replace(found, splits=splits, gaps=gaps, carried=by_class, carried_each=each)

    def _carry(self, vector: Array) -> Array:
        """Flows (P,) for demands (D,), both in units of the largest demands."""
        largest = self.instance.demand_max / self.instance.demand_max.max()
        least, weights, totals = np.zeros(len(vector)), np.zeros((0, len(vector))), np.zeros(0)
        flows = np.zeros(len(self.instance.path_demand))
        for chosen in self._classes:
            stage = _Stage(chosen, least, weights, totals)
            unit = max(float(vector[chosen].max()), LOST)  # shares of huge demands are tiny
            share = self._solve(stage, vector, unit)[-1] / unit
            least = np.where(chosen, (1 - GIVEN_UP) * min(share, 1.0) * vector, least)
            stage = _Stage(chosen, least, weights, totals)
            flows = np.maximum(self._solve(stage, vector, 0.0)[:-1], 0.0)
            own = np.where(chosen, largest, 0.0)
            carried = own @ np.add.reduceat(flows, self.instance.starts)
            weights = np.vstack([weights, own])
            totals = np.append(totals, (1 - GIVEN_UP) * carried)
        return flows

    def _solve(self, stage: _Stage, vector: Array, unit: float) -> Array:
        """Flows (P,) and, last, the share that all chosen demands have, times `unit`.

        That is as large as possible where the unit is above 0; else the flow of these demands is.
        """
        chosen, member, common = stage.chosen, self._member, unit > 0
        column = sparse.csr_matrix(-vector[chosen, None] / (unit or 1.0))
        rows = [
            [member, None],
            [self._loads, None],
            [member[chosen], column if common else None],
            [sparse.csr_matrix(stage.weights) @ member, None],
            [None, sparse.csr_matrix([[1.0]])],
        ]
        matrix = sparse.bmat(rows, format="csr")
        some, kept, links = int(chosen.sum()), len(stage.totals), self._loads.shape[0]
        low = [stage.least, np.full(links, -np.inf), np.zeros(some), stage.totals, np.zeros(1)]
        high = [vector, np.ones(links), *(np.full(n, np.inf) for n in (some, kept))]
        largest = self.instance.demand_max / self.instance.demand_max.max()
        worth = np.where(chosen, largest, 0.0)[self.instance.path_demand]
        cost = np.append(np.zeros(len(worth)) if common else -worth, -1.0 if common else 0.0)
        program = routing_program(
            cost, matrix, np.concatenate(low), np.concatenate([*high, np.full(1, unit or 1.0)])
        )
        solve_program(program)
        return np.asarray(program.solution().values)


def _weigh(vectors: Array, shares: Array, chosen: NDArray[np.bool_]) -> Array:
    """(n,): the share of the traffic of chosen demands that is carried; of none, all."""
    asked = vectors[:, chosen].sum(axis=1)
    carried = (vectors[:, chosen] * shares[:, chosen]).sum(axis=1)
    some = asked > 0
    return np.asarray(np.where(some, carried / np.where(some, asked, 1.0), 1.0))


def measure_classes(instance: Instance) -> list[dict[str, float | int]]:
    """Of each priority how many demands it has, and up to what multiple of their largest it and
    those before it fit together, whatever the others are.

    By splits at which this is computed: so it holds whatever the program's tolerances are.
    """
    assert instance.priorities is not None
    given, program = np.array(instance.priorities), SplitProgram(instance)
    found: list[dict[str, float | int]] = []
    for one in list_classes(instance.priorities):
        corner = np.where(given <= one, instance.demand_max, 0.0)[None]
        split = program.solve(corner)[0]
        reached = float(instance.compute_utilisation(corner, split).max())
        volume = float(instance.demand_max[given == one].sum() / instance.demand_max.sum())
        found.append(
            {
                "priority": one,
                "demands": int((given == one).sum()),
                "volume": volume,
                "fits_up_to": 1.0 / reached,
            }
        )
    return found
