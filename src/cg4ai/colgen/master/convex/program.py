"""The convex program over the weights: what is minimised, and what proves how good a point is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.records import Array, Duals, IntArray

TINY_WEIGHT = 1e-11  # what an interior-point method leaves on members it does not use
LEAST_UNIT = 0.01  # interior-point methods meet rows with smaller bounds no better
Loss = Callable[[Tensor], Tensor]


def compute_tolerance_units(bounds: Array) -> Array:
    """What tolerances of rows with these bounds (m,) are multiples of: 1 where a bound is 0."""
    size = np.abs(bounds)
    return np.where(size > 0, np.maximum(2 * size, LEAST_UNIT), 1.0)


class SmoothFunction(Protocol):
    """A smooth convex function of the weights (M,)."""

    def value(self, weights: Array) -> float: ...

    def slope(self, weights: Array) -> tuple[float, Array]:
        """The value and the gradient (M,)."""
        ...

    def curvature(self, weights: Array) -> Array:
        """The Hessian (M, M)."""
        ...


class MixtureLoss:
    """`loss(sum_i weights_i outputs_i)` with `outputs` (M, n, r) in float64."""

    def __init__(self, loss: Loss, outputs: Tensor) -> None:
        self.loss = loss
        self.outputs = outputs
        self.flat = outputs.flatten(1)

    def mixture(self, weights: Array) -> Tensor:
        w = torch.as_tensor(weights, dtype=torch.float64, device=self.flat.device)
        return (w @ self.flat).reshape(self.outputs.shape[1:])

    def value(self, weights: Array) -> float:
        with torch.no_grad():
            return float(self.loss(self.mixture(weights)))

    def output_gradient(self, weights: Array) -> tuple[float, Tensor]:
        """The loss and its gradient (n, r) by the outputs of the mixture."""
        point = self.mixture(weights).requires_grad_()
        with torch.enable_grad():
            value = self.loss(point)
        if value.ndim != 0 or not value.requires_grad:
            raise InvalidInput(
                "the loss of a convex master must be a differentiable torch scalar, got shape "
                f"{tuple(value.shape)} with requires_grad={value.requires_grad}; "
                "return a mean over the data computed from the given outputs",
                code="type",
            )
        (gradient,) = torch.autograd.grad(value, point)
        return float(value.detach()), gradient

    def slope(self, weights: Array) -> tuple[float, Array]:
        value, gradient = self.output_gradient(weights)
        slopes = np.asarray((self.flat @ gradient.reshape(-1)).cpu().numpy())
        if not (np.isfinite(value) and np.isfinite(slopes).all()):
            raise InvalidInput(
                f"the loss of the current mixture is {value} or its gradient is not finite; "
                "use a loss that is finite for every mixture of the members (log_loss is)",
                code="not-finite",
            )
        return value, slopes

    def curvature(self, weights: Array) -> Array:
        """Z' (d2 loss / d outputs2) Z: a Hessian-vector product per member, no n x n matrix.

        Of sums, because torch loads sympy, a third of a second, where it is given grad_outputs.
        """
        point = self.mixture(weights).requires_grad_()
        size = len(self.outputs)
        hessian = torch.zeros(size, size, dtype=torch.float64, device=self.flat.device)
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(self.loss(point), point, create_graph=True)
            if gradient.requires_grad:  # otherwise the loss is linear in the outputs
                for number, outputs in enumerate(self.outputs):
                    (product,) = torch.autograd.grad(
                        (gradient * outputs).sum(), point, retain_graph=True, allow_unused=True
                    )
                    if product is not None:
                        hessian[number] = self.flat @ product.flatten()
        return np.asarray(hessian.cpu().numpy())


class DistanceToUniform:
    """Squared distance of the weights to equal weights within each block."""

    def __init__(self, blocks: IntArray) -> None:
        self.centre = 1.0 / np.bincount(blocks)[blocks]

    def value(self, weights: Array) -> float:
        return float(np.sum((weights - self.centre) ** 2))

    def slope(self, weights: Array) -> tuple[float, Array]:
        return self.value(weights), 2.0 * (weights - self.centre)

    def curvature(self, weights: Array) -> Array:
        return 2.0 * np.eye(len(weights))


def compute_zero_loss(outputs: Tensor) -> Tensor:
    """Zero, with a gradient: what is minimised while slack alone counts."""
    return (outputs * 0.0).sum()


def check_curvature(hessian: Array) -> Array:
    """Symmetric and positive definite, or the loss is not convex."""
    if not hessian.size:
        return hessian
    hessian = 0.5 * (hessian + hessian.T)
    if not np.isfinite(hessian).all():
        raise InvalidInput(
            "the Hessian of the loss is not finite at the current mixture; "
            "a convex master needs a twice differentiable loss",
            code="not-finite",
        )
    eigenvalues = np.linalg.eigvalsh(hessian)
    scale = max(abs(eigenvalues[0]), abs(eigenvalues[-1]))
    if eigenvalues[0] < -1e-7 * scale - 1e-12:
        raise InvalidInput(
            "the loss is not convex in the outputs of the mixture: its Hessian has the eigenvalue "
            f"{eigenvalues[0]:.3g} (largest {eigenvalues[-1]:.3g}); use a convex loss, such as "
            "squared, log_loss or cross_entropy",
            code="not-convex",
        )
    # Where the loss is flat or rounding made the Hessian indefinite, a shift keeps the step
    # defined; it changes the step only, never the point the steps lead to.
    shift = max(0.0, -2.0 * eigenvalues[0]) + 1e-12 * scale
    return np.asarray(hessian + shift * np.eye(len(hessian)))


@dataclass(frozen=True, slots=True)
class Program:
    """minimise objective + penalties over block-wise convex weights that meet the rows.

    `groups` (m,) numbers the slack variable of each row from 0. `penalty` is the price of slack
    and `dummy_price` that of a dummy; a penalty of None means hard rows and no dummies. A
    violation up to `row_tolerance` (m,) is not charged, so that rounding times a huge
    penalty does not drown the objective.
    """

    objective: SmoothFunction
    coefficients: Array
    bounds: Array
    groups: IntArray
    blocks: IntArray
    n_blocks: int
    row_tolerance: Array
    penalty: float | None = None
    dummy_price: float = np.inf

    @property
    def n_groups(self) -> int:
        return int(self.groups.max(initial=-1)) + 1

    def block_sums(self, weights: Array) -> Array:
        return np.asarray(np.bincount(self.blocks, weights, self.n_blocks), dtype=np.float64)

    def centre(self) -> Array:
        """Equal weights in each block: as far from the edges, where losses may be steep, as any."""
        return np.asarray(1.0 / np.bincount(self.blocks)[self.blocks])

    def group_slack(self, weights: Array) -> Array:
        """What each slack variable must be: the largest shortfall of its rows beyond tolerance."""
        slack = np.zeros(self.n_groups)
        np.maximum.at(
            slack, self.groups, self.bounds - self.row_tolerance - self.coefficients @ weights
        )
        return slack

    def charge(self, weights: Array) -> float:
        if self.penalty is None:
            return 0.0
        dummies = np.maximum(0.0, 1.0 - self.block_sums(weights)).sum()
        slack = self.group_slack(weights).sum()
        return float(self.penalty * slack + self.dummy_price * dummies)

    def tidy(self, weights: Array) -> Array:
        """Nonnegative weights with block sums at most 1 (with hard rows: exactly 1)."""
        weights = np.where(weights < TINY_WEIGHT, 0.0, weights)
        sums = self.block_sums(weights)
        exact = (sums > 1.0 - 1e-9) | (self.penalty is None)
        return np.asarray(weights / np.where(exact & (sums > 0), sums, 1.0)[self.blocks])

    def duals(self, gradient: Array, beta: Array) -> Duals:
        """Row duals made feasible, and the best block duals for them: no reduced cost is < 0."""
        beta = np.maximum(beta, 0.0)
        if self.penalty is not None:
            total = np.bincount(self.groups, beta, minlength=self.n_groups)
            beta = beta * (self.penalty / np.maximum(total, self.penalty))[self.groups]
        gamma = np.full(self.n_blocks, self.dummy_price)
        np.minimum.at(gamma, self.blocks, gradient - self.coefficients.T @ beta)
        return Duals(beta, gamma)


@dataclass(frozen=True, slots=True)
class Point:
    """Weights with what is known there; `bound` is proven for a convex loss by `duals`."""

    weights: Array
    value: float
    merit: float
    gradient: Array
    duals: Duals
    bound: float

    @property
    def gap(self) -> float:
        return self.merit - self.bound


def assess(program: Program, weights: Array, choices: list[Array]) -> Point:
    """The point with those of the given row duals that prove the largest bound.

    For all feasible l, slack and dummies, `loss(l) >= value + gradient . (l - weights)`; duals
    that are feasible for that linear program bound it from below.
    """
    value, gradient = program.objective.slope(weights)
    options = [program.duals(gradient, beta) for beta in choices]
    bounds = [
        float(value - gradient @ weights + duals.rows @ program.bounds + duals.blocks.sum())
        for duals in options
    ]
    best = int(np.argmax(bounds))
    merit = value + program.charge(weights)
    return Point(weights, value, merit, gradient, options[best], bounds[best])


def check_table(name: str, table: Array, shape: tuple[int, ...]) -> None:
    if table.shape != shape or not np.isfinite(table).all():
        raise InvalidInput(
            f"{name} must be finite with shape {shape}, got shape {table.shape}"
            f"{'' if np.isfinite(table).all() else ' with NaN or infinite entries'}",
            code="not-finite",
        )
