"""What a convex master minimises, as functions of the weights: value, gradient and Hessian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray

Loss = Callable[[Tensor], Tensor]


class Objective(Protocol):
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
                "return a mean over the data computed from the given outputs"
            )
        (gradient,) = torch.autograd.grad(value, point)
        return float(value.detach()), gradient

    def slope(self, weights: Array) -> tuple[float, Array]:
        value, gradient = self.output_gradient(weights)
        slopes = np.asarray((self.flat @ gradient.reshape(-1)).cpu().numpy())
        if not (np.isfinite(value) and np.isfinite(slopes).all()):
            raise InvalidInput(
                f"the loss of the current mixture is {value} or its gradient is not finite; "
                "use a loss that is finite for every mixture of the members (log_loss is)"
            )
        return value, slopes

    def curvature(self, weights: Array) -> Array:
        """Z' (d2 loss / d outputs2) Z: one batch of Hessian-vector products, no n x n matrix."""
        point = self.mixture(weights).requires_grad_()
        size = len(self.outputs)
        hessian = torch.zeros(size, size, dtype=torch.float64, device=self.flat.device)
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(self.loss(point), point, create_graph=True)
        if gradient.requires_grad:  # otherwise the loss is linear in the outputs
            chunk = max(1, 20_000_000 // max(1, self.flat.shape[1]))
            for first in range(0, size, chunk):
                (product,) = torch.autograd.grad(
                    gradient,
                    point,
                    self.outputs[first : first + chunk],
                    retain_graph=True,
                    is_grads_batched=True,
                    allow_unused=True,
                )
                if product is not None:
                    hessian[first : first + chunk] = product.flatten(1) @ self.flat.T
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


def no_loss(outputs: Tensor) -> Tensor:
    """Zero, with a gradient: what is minimised while slack alone counts."""
    return (outputs * 0.0).sum()


def checked_curvature(hessian: Array) -> Array:
    """Symmetric and positive definite, or the loss is not convex."""
    if not hessian.size:
        return hessian
    hessian = 0.5 * (hessian + hessian.T)
    if not np.isfinite(hessian).all():
        raise InvalidInput(
            "the Hessian of the loss is not finite at the current mixture; "
            "a convex master needs a twice differentiable loss"
        )
    eigenvalues = np.linalg.eigvalsh(hessian)
    scale = max(abs(eigenvalues[0]), abs(eigenvalues[-1]))
    if eigenvalues[0] < -1e-7 * scale - 1e-12:
        raise InvalidInput(
            "the loss is not convex in the outputs of the mixture: its Hessian has the eigenvalue "
            f"{eigenvalues[0]:.3g} (largest {eigenvalues[-1]:.3g}); use a convex loss, such as "
            "squared, log_loss or cross_entropy"
        )
    # Where the loss is flat or rounding made the Hessian indefinite, a shift keeps the step
    # defined; it changes the step only, never the point the steps lead to.
    shift = max(0.0, -2.0 * eigenvalues[0]) + 1e-12 * scale
    return np.asarray(hessian + shift * np.eye(len(hessian)))
