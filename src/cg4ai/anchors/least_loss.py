"""Finds the affine decision rule of least mean loss, with room for rules over regions or freely.

Newton's method: the mean loss is made quadratic around the rule found before, with the exact slope
and with one curvature for all inputs, and minimised under the rows of the robust counterpart, a
quadratic program. Steps start at a rule that keeps the rows and stay among those that do; the mean
loss itself decides how far they go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from cg4ai.anchors.affine_maps import AffineMap, Space
from cg4ai.anchors.responses import ResponseRows
from cg4ai.anchors.splitting import QuadraticModel, RegionRows
from cg4ai.errors import SolverFailure
from cg4ai.records import Array
from cg4ai.solvers.conic import QuadraticProgram

ROUNDS = 12
SETTLED = 1e-4  # a round that gains no more than this share of all gains is the last
FLAT = 0.01  # curvatures count as at least this share of the largest, and as positive
STRAIGHT = 1e-6  # a loss whose slope changes by less than this share is linear
RIDGE = 1e-3  # of the inputs' second moments, added to them: a step, not the loss, is held back
ASIDE = 0.05  # of the spread of outputs: how far apart slopes are compared
DENSE = 1000  # numbers of a rule up to which a program counts correlations of the inputs in
WELL_DRAWN = 4  # inputs for each number of an output from which on they are counted in anyway
HALVINGS = 12

Rows = RegionRows | ResponseRows | tuple[Any, Array]


@dataclass(frozen=True, eq=False)
class MeanLoss:
    """`value` of outputs (n, r) at the `inputs` (n, d): a mean of one loss for each input."""

    inputs: Array
    value: Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class _Local:
    """The mean loss around a rule: value, slope (k, m), curvature (k, k) of the outputs' z.

    `linear`: the loss is not curved at all, and the curvature stands for none.
    """

    value: float
    slope: Array
    curvature: Array
    linear: bool


class _LossSearch:
    """Rules `z(x) = W [x - centre, 1]` in a space, W (k, d + 1), and their mean loss."""

    def __init__(self, loss: MeanLoss, space: Space) -> None:
        self.loss, self.space = loss, space
        self.centre = loss.inputs.mean(0)
        self.features = np.column_stack([loss.inputs - self.centre, np.ones(len(loss.inputs))])
        moments = self.features.T @ self.features / len(self.features)
        self.dense = space.basis.shape[1] * len(moments) <= DENSE
        if not self.dense and len(self.features) < WELL_DRAWN * len(moments):
            moments = np.diag(np.diag(moments))
        spread = np.diag(moments)
        self.moments = moments + np.diag(RIDGE * spread + 1e-9 * spread.max())
        self.fixed = torch.as_tensor(space.offset + loss.inputs @ space.slope.T)

    def rule(self, W: Array) -> AffineMap:
        return self.space.outputs(W[:, :-1], W[:, -1] - W[:, :-1] @ self.centre)

    def coordinates(self, one: AffineMap) -> Array:
        """W of a rule in the space, whose basis is orthonormal."""
        basis, middle = self.space.basis, one.offsets + one.slopes @ self.centre
        own = self.space.offset + self.space.slope @ self.centre
        return np.column_stack(
            [basis.T @ (one.slopes - self.space.slope), basis.T @ (middle - own)]
        )

    def value(self, W: Array) -> float:
        with torch.no_grad():
            return float(self.loss.value(self._outputs(W)))

    def _outputs(self, W: Array) -> Tensor:
        return self.fixed + torch.as_tensor(self.features @ W.T @ self.space.basis.T)

    def around(self, W: Array) -> _Local:
        outputs = self._outputs(W)
        value, slope = self._sloped(outputs)
        curvature = self.space.basis.T @ self._bent(outputs) @ self.space.basis
        size, axes = np.linalg.eigh((curvature + curvature.T) / 2)
        steep = float(np.linalg.norm(slope.sum(0)))
        # over a way as long as outputs are large, and against what rounding makes of nothing
        linear = np.abs(size).max() * (1.0 + float(outputs.abs().max())) <= STRAIGHT * steep
        largest = np.abs(size).max() or float(np.linalg.norm(slope)) or 1.0
        size = np.maximum(np.abs(size), FLAT * largest)
        along = self.space.basis.T @ slope.T @ self.features
        return _Local(value, along, (axes * size) @ axes.T, bool(linear))

    def _sloped(self, outputs: Tensor) -> tuple[float, Array]:
        free = outputs.detach().requires_grad_(True)
        value = self.loss.value(free)
        (slope,) = torch.autograd.grad(value, free)
        return float(value.detach()), slope.numpy()

    def _bent(self, outputs: Tensor) -> Array:
        """The mean over inputs of the losses' second derivatives (r, r), by slopes on both sides.

        One output is moved at each input, so that two slopes are enough, and the loss need not
        be differentiable twice; one with kinks is as bent as it is on average.
        """
        count, size = outputs.shape
        spread = outputs.std(0, correction=0).numpy()
        steps = ASIDE * np.maximum(spread, max(float(spread.mean()), ASIDE))
        which = np.random.default_rng(0).permutation(count) % size
        aside = torch.zeros_like(outputs)
        aside[np.arange(count), which] = torch.as_tensor(steps[which])
        change = self._sloped(outputs + aside)[1] - self._sloped(outputs - aside)[1]
        rows = np.zeros((size, size))
        np.add.at(rows, which, change / (2 * steps[which])[:, None])
        share = np.bincount(which, minlength=size) / count
        return np.nan_to_num(rows / np.maximum(share, 1 / count)[:, None], posinf=0, neginf=0)


def minimise_loss(
    loss: MeanLoss,
    space: Space,
    start: AffineMap,
    rows: Rows | None = None,
) -> AffineMap:
    """The rule of least mean loss, from `start`, which must keep the rows.

    `rows`: of `build_region_rows`, of few responses, or of `Counterpart.leaving` around the mean
    input. A program that its solver gives up ends the search: every rule on the way keeps the rows,
    but for the tolerance of the solver, and the last one is the best.
    """
    search = _LossSearch(loss, space)
    W = search.coordinates(start)
    first = search.value(W)
    for _ in range(ROUNDS):
        local = search.around(W)
        try:
            step = _step(local, search, W, rows)
        except SolverFailure:
            break
        size = _length(search, W, step, local)
        W = W + size * step
        reached = search.value(W)
        if local.value - reached <= SETTLED * (first - reached):
            break
    return search.rule(W)


def find_slope(loss: MeanLoss, space: Space, at: AffineMap) -> Array:
    """(k, d + 1): how the mean loss changes with W of `z(x) = W [x - mean, 1]`."""
    search = _LossSearch(loss, space)
    return search.around(search.coordinates(at)).slope


def _length(search: _LossSearch, W: Array, step: Array, local: _Local) -> float:
    """How much of the step lowers the mean loss as its slope promises; 0 if nothing does."""
    falls = float((local.slope * step).sum())
    for halvings in range(HALVINGS):
        size = 0.5**halvings
        if search.value(W + size * step) <= local.value + 1e-3 * size * falls:
            return size
    return 0.0


def _step(local: _Local, search: _LossSearch, W: Array, rows: Rows | None) -> Array:
    """To the least of the quadratic around W, under the rows."""
    moments = search.moments
    if rows is None:
        across = np.linalg.solve(moments, local.slope.T).T
        return np.asarray(-np.linalg.solve(local.curvature, across))
    if not isinstance(rows, tuple):
        curvature = local.curvature
        if local.linear and isinstance(rows, ResponseRows):
            curvature = np.zeros_like(curvature)  # a linear program is exact
        model = QuadraticModel(W, local.slope, curvature, moments, search.centre)
        return rows.minimise(model) - W
    if not search.dense:
        moments = np.diag(np.diag(moments))
    matrix, limits = rows
    k, width = W.shape
    # the rows have all slopes first, then the constant part
    order = np.append(np.arange(k * width).reshape(k, width)[:, :-1].ravel(),
                      np.arange(k) * width + width - 1)  # fmt: skip
    curved = sparse.kron(sparse.csr_matrix(local.curvature), sparse.csr_matrix(moments), "csr")
    curved = curved[order][:, order]
    here, slope = W.ravel()[order], local.slope.ravel()[order]
    rest = matrix.shape[1] - len(order)
    program = QuadraticProgram(
        P=sparse.block_diag([curved, sparse.csc_matrix((rest, rest))], format="csc"),
        q=np.append(slope - curved @ here, np.zeros(rest)),
        A=matrix,
        b=limits,
        n_equal=0,
    )
    found = np.empty(k * width)
    found[order] = program.solve().x[: k * width]
    return np.asarray(found.reshape(k, width)) - W
