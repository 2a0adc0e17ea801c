"""Splits in whole multiples of 1/N, as switches have them, that keep the capacities all the same.

The anchor of a router with granularity N is itself such a split that fits at every vector of the
set. An answer is rounded by largest remainders and checked at its own demands; where it does not
fit it goes towards the anchor, which always does (docs/mathematics.md, "Rounded splits").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from cg4ai import Ensemble
from cg4ai.data import Array
from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.members import ShieldedMembers
from cg4ai.routing.options import MOST_PARTS
from cg4ai.routing.train.optimal import SAFETY, make_membership
from cg4ai.solvers import MixedProgram, solve_mixed

if TYPE_CHECKING:
    from cg4ai.routing.network.instance import Instance

ALMOST = 1e-9  # a share that rounding error alone keeps below a whole number of parts is one
STEPS = (0.25, 0.5, 0.75)  # of the way to the anchor, before the anchor itself
FITS = 1.0  # the most that a rounded answer may load a link: no tolerance
NODES, GAP = 2000, 0.002  # of the search for a split: branch and bound, and the level given up
TRIED_WHOLE = 24  # numbers of parts beyond the one asked for that are searched, not only rounded


def round_splits(splits: Array, path_demand: NDArray[np.int64], parts: int) -> Array:
    """Splits (n, P) in multiples of 1/parts, by largest remainders within each demand.

    Shares of a demand sum to one before and after; no share moves by 1/parts or more.
    """
    scaled = splits * parts
    counts = np.floor(scaled + ALMOST)
    starts = np.flatnonzero(np.diff(path_demand, prepend=-1))
    missing = parts - np.add.reduceat(counts, starts, axis=1)
    # paths of a demand are neighbours: sorted by demand, then by what was cut off
    order = np.argsort(2.0 * path_demand - (scaled - counts), axis=1, kind="stable")
    rank = np.empty_like(order)
    place = np.arange(splits.shape[1]) - starts[path_demand]
    np.put_along_axis(rank, order, np.broadcast_to(place, order.shape), axis=1)
    return np.asarray((counts + (rank < missing[:, path_demand])) / parts)


@dataclass(frozen=True, eq=False)
class Granularity:
    """How answers of a router are rounded: `parts` N, and the split (P,) that fits everywhere."""

    instance: Instance
    parts: int
    anchor: Array

    def round_answers(self, vectors: Array, splits: Array) -> Array:
        """Splits (n, P) for vectors (n, D), rounded; within the set none overloads a link.

        Outside it, where nothing need fit, the candidate of least load is taken.
        """
        broken = ~np.isfinite(splits).all(axis=1, keepdims=True)
        usable = np.where(broken, self.anchor, splits)
        best: Array = self._round(usable)
        reached = self._compute_mlu(vectors, best)
        for share in (*STEPS, 1.0):
            over = np.flatnonzero(~(reached <= FITS))
            if not len(over):
                break
            near = usable[over] + share * (self.anchor - usable[over])
            tried = self._round(near) if share < 1 else np.tile(self.anchor, (len(over), 1))
            now = self._compute_mlu(vectors[over], tried)
            lower = np.flatnonzero(~(now >= reached[over]))
            best[over[lower]], reached[over[lower]] = tried[lower], now[lower]
        return best

    def _round(self, splits: Array) -> Array:
        return round_splits(splits, self.instance.path_demand, self.parts)

    def _compute_mlu(self, vectors: Array, splits: Array) -> Array:
        return np.asarray(self.instance.compute_utilisation(vectors, splits).max(axis=1))


def restore_granularity(instance: Instance, ensemble: Ensemble) -> Granularity | None:
    """How the answers of a trained router are rounded; None: they are not."""
    if instance.granularity is None:
        return None
    parts = instance.granularity
    for part in ensemble.used:
        if isinstance(part.members, ShieldedMembers):
            nothing = torch.zeros(1, len(instance.demand_max), dtype=torch.float64)
            anchor = part.members.shield.anchor.outputs(nothing)[0, 0].cpu().numpy()
            if np.abs(anchor * parts - np.round(anchor * parts)).max() < ALMOST:
                return Granularity(instance, parts, anchor)
    raise RunFolderError(
        f"the run says that splits are multiples of 1/{parts}, but has no anchor that is: restore "
        "it from a copy",
        code="altered",
    )


def find_granular_split(instance: Instance, parts: int, *, near: Array) -> Array:
    """A split (P,) in multiples of 1/parts that fits on the whole set, close to `near` (P,) if any.

    InvalidInput with the smallest number of parts that was found to do, where there is none.
    """
    found = _round_or_search(instance, parts, near, search=True)
    if found is not None:
        return found
    others = range(parts + 1, MOST_PARTS + 1)
    enough = next(
        (
            other
            for other in others
            if _round_or_search(instance, other, near, search=other <= parts + TRIED_WHOLE)
            is not None
        ),
        None,
    )
    remedy = (
        f"--granularity {enough} is the smallest found that does"
        if enough is not None
        else f"none up to {MOST_PARTS} was found that does"
    )
    raise InvalidInput(
        f"no constant split in multiples of 1/{parts} was found that keeps the capacities at every "
        f"demand vector of the set, so rounded answers could not be guaranteed: {remedy}; or ask "
        "for a smaller --load or set",
        code="infeasible",
    )


def _round_or_search(instance: Instance, parts: int, near: Array, *, search: bool) -> Array | None:
    """A split that fits, by rounding or else by branch and bound; None: none was found."""
    limit = max(instance.level, 1.0 - SAFETY)
    for split in (near, instance.robust.split):
        rounded: Array = round_splits(split[None], instance.path_demand, parts)[0]
        if compute_worst_load(instance, rounded) <= limit:
            return rounded
    return _search(instance, parts, limit) if search else None


def compute_worst_load(instance: Instance, split: Array) -> float:
    """The largest utilisation of a link under a constant split (P,) at any vector of the set."""
    from cg4ai.routing.train.anchors import worst_vectors

    return float(worst_vectors(instance, split).loads.max())


def _search(instance: Instance, parts: int, limit: float) -> Array | None:
    """The split of least worst load, by a mixed-integer program of bounded effort."""
    from cg4ai.routing.train.anchors import safe_rows

    safe = safe_rows(instance)
    paths, demands = len(instance.path_demand), len(instance.demand_max)
    blank = sparse.csr_matrix((demands, safe.extra + 1))
    units = sparse.diags(np.concatenate([np.full(paths, 1 / parts), np.ones(safe.extra + 1)]))
    matrix = sparse.vstack(
        [sparse.hstack([make_membership(instance), blank]), safe.matrix @ units], format="csr"
    )
    size = paths + safe.extra + 1
    upper = np.concatenate([np.full(paths, float(parts)), np.full(safe.extra, np.inf), [limit]])
    sums, open_below = np.full(demands, float(parts)), np.full(len(safe.upper), -np.inf)
    program = MixedProgram(
        np.concatenate([np.zeros(size - 1), [1.0]]),
        np.zeros(size),
        upper,
        np.arange(size) < paths,
        matrix,
        np.concatenate([sums, open_below]),
        np.concatenate([sums, safe.upper]),
    )
    values = solve_mixed(program, node_limit=NODES, gap=GAP).values
    if values is None:
        return None
    split: Array = np.round(values[:paths]) / parts
    whole = np.abs(make_membership(instance) @ split - 1).max() < ALMOST
    return split if whole and compute_worst_load(instance, split) <= limit else None
