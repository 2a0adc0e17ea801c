"""Which rows a member is trained on: those the duals weigh most, and small batches of the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cg4ai.protocols import PricingRequest
from cg4ai.records import Array
from cg4ai.rules.rows import ConcaveRows, LinearRows, Rows, merged

Weighted = tuple[Rows, Array, Array]  # rows, hinge weights, guiding duals


def weighted_rows(
    request: PricingRequest, *, limit: int | None, hinge_only: bool
) -> tuple[list[Weighted], list[Rows]]:
    """Rows of most weight, with hinge weights (sum one) and guiding duals; then the others.

    Only rows of requirements have hinge weights; those of an epigraph objective matter to the
    reduced cost alone. The others come in small batches, newest last. With no limit all rows of
    positive weight come first.
    """
    if not len(request.rows):
        return [], []
    ruled = np.concatenate(
        [np.full(len(batch), batch.requirement >= 0) for batch in request.rows.batches]
    )
    guide = np.maximum(request.guide, 0.0)
    total = guide[ruled].sum()
    weights = np.where(ruled, guide / total if total > 0 else 1.0 / max(1, ruled.sum()), 0.0)
    rank = weights if hinge_only else np.maximum(weights, guide)
    keep = rank > 0
    if limit is not None and keep.sum() > limit:
        keep[np.argsort(-rank, kind="stable")[limit:]] = False
    parts = list(
        zip(
            request.rows.batches,
            request.rows.split(weights),
            request.rows.split(guide),
            request.rows.split(keep.astype(np.float64)),
            strict=True,
        )
    )
    chosen: list[Weighted] = []
    rest: list[Rows] = []
    for batch, batch_weights, batch_guide, batch_keep in parts:
        used, unused = np.flatnonzero(batch_keep), np.flatnonzero(batch_keep == 0)
        if len(used):
            chosen.append((batch.take(used), batch_weights[used], batch_guide[used]))
        if len(unused) and batch.requirement >= 0:
            rest.append(batch.take(unused))
    return _joined(chosen), _chunks(rest)


def _joined(chosen: Sequence[Weighted]) -> list[Weighted]:
    """The same rows in as few batches as possible: each costs a call at every step."""
    simple = [
        (rows, weights, guide)
        for rows, weights, guide in chosen
        if isinstance(rows, LinearRows) and rows.index is not None
    ]
    if not simple:
        return list(chosen)
    taken = {id(rows) for rows, _, _ in simple}
    one = replace(merged([rows for rows, _, _ in simple]), requirement=0)
    weights = np.concatenate([weights for _, weights, _ in simple])
    guide = np.concatenate([guide for _, _, guide in simple])
    return [(one, weights, guide), *(entry for entry in chosen if id(entry[0]) not in taken)]


def concave_joined(chosen: Sequence[Weighted]) -> list[Weighted]:
    """The same rows with the concave ones of one functional as a single batch, which come last."""
    alike: dict[Callable[..., object], list[tuple[ConcaveRows, Array, Array]]] = {}
    result: list[Weighted] = []
    for rows, weights, guide in chosen:
        if isinstance(rows, ConcaveRows):
            alike.setdefault(rows.functional, []).append((rows, weights, guide))
        else:
            result.append((rows, weights, guide))
    for group in alike.values():
        one = merged([rows for rows, _, _ in group])
        together = [np.concatenate([entry[part] for entry in group]) for part in (1, 2)]
        result.append((one, together[0], together[1]))
    return result


def _chunks(batches: Sequence[Rows]) -> list[Rows]:
    """Batches of at most 64 rows, of those that look at one input each."""
    simple = [rows for rows in batches if isinstance(rows, LinearRows) and rows.index is not None]
    if not simple:
        return []
    one = merged(simple)
    return [
        one.take(np.arange(start, min(start + 64, len(one)))) for start in range(0, len(one), 64)
    ]
