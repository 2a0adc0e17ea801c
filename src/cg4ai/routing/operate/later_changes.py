"""What a bound on changes costs on later matrices in order of time, and how often it yields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.apps import LastAnswer
from cg4ai.data import Array
from cg4ai.routing.operate.churn import ChurnLimit

AT_ONCE = 2**22  # numbers of splits that are held at once
NO_LOAD = 1e-300  # an MLU below it counts as so much


@dataclass(frozen=True, eq=False)
class JudgedChanges:
    """`found` is for a summary; `mlu` (n,) that of the answers under the bound."""

    found: dict[str, Any]
    mlu: Array


def judge_changes(
    limit: ChurnLimit,
    vectors: Array,
    answer: Callable[[slice], Array],
    *,
    inside: NDArray[np.bool_],
) -> JudgedChanges:
    """Answers for vectors (n, D) in order, with the bound and without.

    `answer` gives the splits of some of the vectors. The largest utilisation is over those that lie
    `inside` (n,) the set, at the vectors for which the capacities are kept.
    """
    made, size = limit.instance, max(1, AT_ONCE // len(limit.instance.path_demand))
    names = tuple(map(str, range(len(made.path_demand))))
    last: LastAnswer | None = None
    before: Array | None = None
    parts, reached, plain, free, worst = [], [], [], [0.0], 0.0
    for first in range(0, len(vectors), size):
        some = slice(first, first + size)
        splits, given = answer(some), vectors[some]
        held = limit.limit(given, splits, last, names=names)
        parts.append(held)
        reached.append(made.compute_utilisation(given, held.outputs).max(axis=1))
        plain.append(made.compute_utilisation(given, splits).max(axis=1))
        at = given if limit.corner is None else np.broadcast_to(limit.corner, given.shape)
        kept = inside[some] if limit.corner is None else np.ones(len(given), bool)
        if kept.any():
            loads = made.compute_utilisation(at[kept], held.outputs[kept])
            worst = max(worst, float(loads.max()))
        old = splits[:1] if before is None else before[None]
        for row, (new, was) in enumerate(zip(splits, [*old, *splits[:-1]], strict=True)):
            if first or row:
                free.append(limit.weigh(given[row], limit.measure(new, was)))
        last, before = LastAnswer(names, held.outputs[-1]), splits[-1]
    growth = np.concatenate(reached) / np.maximum(np.concatenate(plain), NO_LOAD)
    yielded, limited, changed, moved = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("yielded", "limited", "changed", "moved")
    )
    found = {
        "bound": limit.bound,
        "matrices": len(vectors),
        "held": float((limited & ~yielded).mean()),
        "yielded": float(yielded.mean()),
        "mean_moved": float(moved[1:].mean()) if len(moved) > 1 else 0.0,
        "mean_moved_without": float(np.mean(free[1:])) if len(free) > 1 else 0.0,
        "largest_change": float(changed.max()),
        "mean_growth": float(growth.mean()),
        "p99_growth": float(np.percentile(growth, 99)),
        "worst_growth": float(growth.max()),
        "worst_utilisation": worst,
    }
    return JudgedChanges(found, np.concatenate(reached))
