"""Final weights: the best mixture of the members at hand among those that keep the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from cg4ai.colgen.master.convex.program import (
    DistanceToUniform,
    Loss,
    MixtureLoss,
    Point,
    Program,
    SmoothFunction,
    check_table,
    compute_tolerance_units,
)
from cg4ai.colgen.master.convex.sequential import minimise
from cg4ai.errors import InvalidInput, SolverFailure
from cg4ai.records import Array, IntArray


@dataclass(frozen=True, slots=True)
class FinalWeights:
    """Weights (M,) of the product, and how good they are.

    `gap` is certified: no weights that meet the rows have an objective lower by more; it is inf
    where the start had to be returned. `note` says what was done to get there, or is empty.
    """

    weights: Array
    gap: float
    note: str


def compute_final_weights(
    choice: Literal["loss", "uniform"],
    *,
    coefficients: Array,
    bounds: Array,
    blocks: IntArray,
    n_blocks: int,
    start: Array,
    loss: Loss | None = None,
    outputs: Tensor | Array | None = None,
) -> FinalWeights:
    """The best weights that keep every row: least loss of the mixture, or closest to equal.

    `coefficients` (m, M), `bounds` (m,), `blocks` (M,), `start` (M,) from the master, `outputs`
    (M, n, r) for "loss". Where `start` misses a bound, the bound becomes what it achieves, so the
    result is never worse than `start` in any row, nor in the objective.
    """
    objective = _final_objective(choice, blocks, loss=loss, outputs=outputs)
    check_table("coefficients", coefficients, (len(bounds), len(blocks)))
    check_table("bounds", bounds, (len(bounds),))
    check_table("start", start, (len(blocks),))
    start = _whole_mixture(start, blocks, n_blocks)
    reached = coefficients @ start
    program = Program(
        objective=objective,
        coefficients=coefficients,
        # A tiny inward margin, where start has it, so that rounding does not break a row.
        bounds=np.minimum(bounds + 1e-9 * compute_tolerance_units(bounds), reached),
        groups=np.arange(len(bounds)),
        blocks=blocks,
        n_blocks=n_blocks,
        row_tolerance=1e-10 * compute_tolerance_units(bounds),
    )
    none, inactive = np.zeros(len(bounds)), np.zeros(len(bounds), np.bool_)
    try:
        found = minimise(program, start, beta=none, active=inactive, tolerance=1e-9)
    except SolverFailure as error:
        return FinalWeights(start, np.inf, f"kept the master's weights: {error}")
    return _chosen(program, found.point, start=start, needed=np.minimum(bounds, reached))


def _chosen(program: Program, point: Point, *, start: Array, needed: Array) -> FinalWeights:
    """The weights of the point, if they are better than `start` once the rows are met."""
    objective = program.objective
    bound = point.bound - float(point.duals.rows @ (program.bounds - needed))
    weights, note = _restored(
        point.weights, start, coefficients=program.coefficients, needed=needed
    )
    value = objective.value(weights)
    if not value <= objective.value(start):
        weights, value = start, objective.value(start)
        note = "kept the master's weights: no others that meet the rows are better"
    gap = max(0.0, value - bound)
    if gap > 1e-6 * max(1.0, abs(value)):
        note = "; ".join(filter(None, [note, f"optimal only to within {gap:.2g}"]))
    return FinalWeights(weights, gap, note)


def _whole_mixture(start: Array, blocks: IntArray, n_blocks: int) -> Array:
    """`start` with the weights of every block made to sum to one."""
    start = np.maximum(start, 0.0)
    sums = np.bincount(blocks, start, minlength=n_blocks)
    if (sums <= 0).any():
        raise InvalidInput(
            f"blocks {np.flatnonzero(sums <= 0).tolist()} have no weight in start; a mixture needs "
            "members in every block",
            code="empty",
        )
    return np.asarray(start / sums[blocks])


def _final_objective(
    choice: str, blocks: IntArray, *, loss: Loss | None, outputs: Tensor | Array | None
) -> SmoothFunction:
    if choice == "uniform":
        return DistanceToUniform(blocks)
    if choice != "loss":
        raise InvalidInput(
            f"final weights can be chosen by 'loss' or 'uniform', got {choice!r}",
            code="unknown-name",
        )
    if loss is None or outputs is None or len(outputs) != len(blocks):
        raise InvalidInput(
            "final weights by 'loss' need the loss and outputs (M, n, r) of all "
            f"{len(blocks)} members, got loss={loss!r} and outputs of "
            f"{None if outputs is None else len(outputs)}",
            code="missing-argument",
        )
    return MixtureLoss(loss, torch.as_tensor(outputs, dtype=torch.float64).detach())


def _restored(
    weights: Array, start: Array, *, coefficients: Array, needed: Array
) -> tuple[Array, str]:
    """The weights, moved towards `start` by the least that meets every row to 1e-9 of its size."""
    values, reached = coefficients @ weights, coefficients @ start
    broken = needed - values > 1e-9 * compute_tolerance_units(needed)
    if not broken.any():
        return weights, ""
    share = float(np.max((needed - values)[broken] / (reached - values)[broken]))
    share = min(1.0, share)
    return (
        weights + share * (start - weights),
        f"blended with a share {share:.2g} of the master's weights to meet the rows",
    )
