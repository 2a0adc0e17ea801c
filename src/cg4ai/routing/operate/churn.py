"""Splits that change little from one matrix to the next, and further only where a link asks for it.

A demand's change is the share of its traffic that takes another path: half the sum of what its
shares change by. Each demand moves from its shares before towards the new ones, until all is done
or its change reaches the bound. If that overloads a link, all demands go on by one common step, the
smallest that ends it. The new splits fit, and loads are linear along the way, so there is one
(docs/mathematics.md, "Bounded changes").
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cg4ai.apps import LastAnswer, LimitedOutputs
from cg4ai.data import Array
from cg4ai.errors import InvalidInput
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.options import churn_fault
from cg4ai.routing.train.granular import ALMOST

CHURN = "churn"  # what an ensemble says of itself: the largest change of its answers
FULL = 1.0  # the most that a link may carry, where the new splits do not carry more
LEAST_LOAD = 1e-300  # an MLU below it counts as none


@dataclass(frozen=True, eq=False)
class ChurnLimit:
    """Holds successive splits of an instance to changes of at most `bound` of each demand.

    `parts`: splits are multiples of 1/parts, and stay so. `corner` (D,): the vector at which no
    link may be overloaded, if that is not the one which is split.
    """

    instance: Instance
    bound: float
    parts: int | None = None
    corner: Array | None = None

    def __post_init__(self) -> None:
        if fault := churn_fault(self.bound, self.parts):
            raise InvalidInput(fault, code="range")

    @cached_property
    def _loads(self) -> Any:
        """(A, P), sparse: what a unit of flow on a path adds to the utilisation of a link."""
        made = self.instance
        return sparse.csr_matrix((made.incidence / made.capacity).T)

    def limit(
        self,
        vectors: Array,
        splits: Array,
        last: LastAnswer | None = None,
        *,
        names: tuple[str, ...] = (),
        free: NDArray[np.bool_] | None = None,
    ) -> LimitedOutputs:
        """New splits (n, P) of successive vectors (n, D), each held near the one before.

        `last` is the answer before the first, with `names` of the paths (P,); without it the first
        is free. So are those marked by `free` (n,), and nothing is held near what is no number.
        """
        count, made = len(splits), self.instance
        outputs = splits.copy()
        follows, limited, yielded = np.zeros((3, count), bool)
        changed, moved, wanted = np.zeros((3, count))
        growth = np.ones(count)
        before: Array | None = None
        for row, (vector, new) in enumerate(zip(vectors, splits, strict=True)):
            if not np.isfinite(new).all():
                continue
            if row == 0 and last is not None:
                before = self._carry_over(last, names, new)
            if before is not None:
                at = vector if self.corner is None else self.corner
                whole = self.measure(new, before)
                follows[row], wanted[row] = True, self.weigh(vector, whole)
                if free is None or not free[row]:
                    outputs[row] = self._hold(at, new, before, whole)
                change = self.measure(outputs[row], before)
                changed[row], moved[row] = change.max(), self.weigh(vector, change)
                limited[row] = not np.array_equal(outputs[row], new)
                yielded[row] = changed[row] > self.bound + ALMOST
                if limited[row]:
                    reached, was = (self._mlu(vector, one) for one in (outputs[row], new))
                    growth[row] = reached / was if was > LEAST_LOAD else 1.0
            before = outputs[row]
        assert outputs.shape == (count, len(made.path_demand))
        return LimitedOutputs(outputs, follows, changed, moved, wanted, limited, yielded, growth)

    def measure(self, new: Array, before: Array) -> Array:
        """(D,): the share of each demand that takes another path."""
        return np.asarray(np.add.reduceat(np.abs(new - before), self.instance.starts) / 2)

    def weigh(self, vector: Array, change: Array) -> float:
        """The share of all traffic of changes (D,); their mean where there is none."""
        total = float(vector.sum())
        return float(change @ vector / total) if total > 0 else float(change.mean())

    def _carry_over(self, last: LastAnswer, names: tuple[str, ...], new: Array) -> Array | None:
        """The answer before over the paths of now; what was on lost ones goes as the new one does.

        None if it was of other parts than these.
        """
        made = self.instance
        known = dict(zip(last.names, last.outputs.tolist(), strict=True))
        kept = np.array([known.get(name, 0.0) for name in names])
        left = 1 - np.add.reduceat(kept, made.starts)
        before = kept + np.where(left > ALMOST, left, 0.0)[made.path_demand] * new
        if not np.isfinite(before).all() or (left < -ALMOST).any():
            return None
        if self.parts is not None and np.abs(before * self.parts % 1.0 - 0.5).min() < 0.5 - ALMOST:
            return None
        return np.asarray(before)

    def _hold(self, vector: Array, new: Array, before: Array, whole: Array) -> Array:
        """The new split (P,), as far as the bound and the capacities at a vector allow."""
        if (whole <= self.bound + ALMOST).all():
            return new
        most = max(FULL, self._mlu(vector, new))
        if self.parts is not None:
            first = int(np.floor(self.bound * self.parts + ALMOST))
            for units in range(first, self.parts):
                held = self._move_units(new, before, units)
                if self._mlu(vector, held) <= most:
                    return held
            return new
        share = np.minimum(1.0, self.bound / np.maximum(whole, LEAST_LOAD))
        held = np.where(
            (share < 1)[self.instance.path_demand],
            _between(before, new, share[self.instance.path_demand]),
            new,
        )
        return self._relieve(vector, new, held, most)

    def _relieve(self, vector: Array, new: Array, held: Array, most: float) -> Array:
        """From `held` towards `new` until no link carries more than `most`: exact line search."""
        flows = vector[self.instance.path_demand]
        loads, ends = self._loads @ (flows * held), self._loads @ (flows * new)
        over = loads > most
        if not over.any():
            return held
        step = float(((loads[over] - most) / (loads[over] - ends[over])).max())
        return new if step >= 1 else _between(held, new, step)

    def _move_units(self, new: Array, before: Array, most: int) -> Array:
        """A split in whole units between two such, with at most so many units moved per demand."""
        made, parts = self.instance, self.parts
        assert parts is not None
        old = np.round(before * parts)
        steps = np.round(new * parts) - old
        rises = np.add.reduceat(np.maximum(steps, 0), made.starts)
        units = np.minimum(rises, most)
        exact = steps * (units / np.maximum(rises, 1))[made.path_demand]
        whole = np.trunc(exact + np.sign(exact) * ALMOST)
        group = 2 * made.path_demand + (steps < 0)
        missing = np.repeat(units, 2) - np.bincount(
            group, np.abs(whole), 2 * len(rises)
        )  # of what rises and of what falls
        order = np.lexsort((-np.abs(exact - whole), group))
        first = np.searchsorted(group[order], np.arange(2 * len(rises)))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - first[group[order]]
        whole += np.sign(steps) * (rank < missing[group] - 0.5)
        return np.asarray((old + whole) / parts)

    def _mlu(self, vector: Array, split: Array) -> float:
        return float((self._loads @ (vector[self.instance.path_demand] * split)).max())


def _between(start: Array, end: Array, share: Array | float) -> Array:
    return np.asarray(start + share * (end - start))
