"""One pricing request seen as a convex problem in the parameters of affine members."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cg4ai.colgen.pricing.exact.ball import (
    BallQuadratic,
    BallSolution,
    LocalModel,
    compute_linearisation_bound,
    minimise_linear,
    minimise_newton,
    minimise_projected_gradient,
)
from cg4ai.colgen.pricing.reduced_cost import (
    compute_loss_gradient,
    compute_mixture_outputs,
    is_loss_linearised,
)
from cg4ai.errors import InvalidInput
from cg4ai.objectives import Supervised
from cg4ai.protocols import PricingRequest
from cg4ai.records import Array, IntArray
from cg4ai.rules.rows import LinearRows

# Covers accumulated rounding of sums of up to a few million float64 terms, relative to the sum of
# their absolute values; subtracted from every bound.
ROUNDING = 1e-13


@dataclass(frozen=True, slots=True)
class Standardiser:
    """Inputs to zero mean and unit deviation; features that do not vary keep deviation 1."""

    mean: Array
    deviation: Array

    @classmethod
    def of(cls, inputs: Array) -> Standardiser:
        deviation = inputs.std(0)
        constant = deviation <= 1e-12 * (1.0 + np.abs(inputs).max(0))
        return cls(inputs.mean(0), np.where(constant, 1.0, deviation))

    def design(self, inputs: Array) -> Array:
        """(n, d) -> (n, d + 1): standardised, with a last column of ones."""
        z = (inputs - self.mean) / self.deviation
        return np.concatenate([z, np.ones((len(z), 1))], axis=1)

    def original(self, parameters: Array) -> tuple[Array, Array]:
        """(count, d + 1, r) on standardised inputs -> weights (count, d, r), bias (count, r)."""
        weights = parameters[:, :-1] / self.deviation[:, None]
        return weights, parameters[:, -1] - np.einsum("d,mdr->mr", self.mean, weights)


@dataclass(frozen=True, slots=True)
class AffineOptimum:
    """Best parameters (d + 1, r), all blocks side by side, and their value and bound per block.

    Values and bounds are reduced costs at the duals asked for, with the master's gammas.
    """

    parameters: Array
    values: Array
    lower_bounds: Array


class AffineProblem:
    """Reduced costs as functions of parameters V (d + 1, r), one set of columns per block."""

    def __init__(
        self, request: PricingRequest, *, radius: float, tolerance: float, newton_size: int
    ) -> None:
        self.request = request
        self.layout = request.rows.layout
        self.radius = radius
        self.tolerance = tolerance
        self.newton_size = newton_size
        self.standardiser = Standardiser.of(request.objective.inputs)
        self.row_inputs, self.row_outputs = self._rows()
        self.data = self.standardiser.design(request.objective.inputs)
        objective = request.objective
        loss = objective.loss if isinstance(objective, Supervised) else "none"
        self.has_loss = request.loss_weight > 0 and loss != "none"
        self.is_squared, self.is_smooth = loss == "squared", loss != "absolute"
        if isinstance(objective, Supervised) and self.is_squared:
            self._prepare_squared(objective)

    def _prepare_squared(self, objective: Supervised) -> None:
        n = len(objective.inputs)
        raw = np.ones(n) if objective.sample_weight is None else objective.sample_weight
        weighted = self.data * (raw / raw.sum())[:, None]
        self.quadratic = BallQuadratic.of(self.data.T @ weighted)
        self.cross = weighted.T @ np.asarray(objective.targets, dtype=np.float64)

    def _rows(self) -> tuple[Array, Array]:
        """Row j is `row_inputs[j]^T V row_outputs[j]`: (m, d + 1) and (m, r)."""
        inputs = [np.empty((0, self.standardiser.mean.size + 1))]
        outputs = [np.empty((0, self.layout.output_size))]
        for batch in self.request.rows.batches:
            if not isinstance(batch, LinearRows):
                raise InvalidInput(
                    f"requirement {batch.requirement} has rows that are concave in the outputs; "
                    "affine members are priced exactly against linear rows only: state a margin "
                    "as its pairwise form (one linear row per other class), or price by gradient",
                    code="unsupported",
                )
            design = self.standardiser.design(batch.inputs)
            inputs.append(design[batch.index] if batch.mixing is None else batch.mixing @ design)
            outputs.append(batch.coefficients)
        return np.concatenate(inputs), np.concatenate(outputs)

    def prices(self, duals: Array) -> Array:
        """(d + 1, r): minus the gradient of `sum_j dual_j row_j` in the parameters."""
        return -self.row_inputs.T @ (duals[:, None] * self.row_outputs)

    def row_values(self, parameters: Array) -> Array:
        """Values (m,) of all rows for the predictor made of these parameters."""
        return np.asarray(((self.row_inputs @ parameters) * self.row_outputs).sum(1))

    @property
    def evaluations(self) -> int:
        """How often `find_best_by_loss` may be called to find extra members: what it costs
        decides.
        """
        if not (self.has_loss and self.is_smooth):
            return 0
        if self.is_squared:
            return 400
        longest = max(len(positions) for positions in self.layout.blocks)
        return 100 if longest * self.data.shape[1] <= self.newton_size else 0

    def find_best(self, duals: Array) -> AffineOptimum:
        """Least reduced cost per block at `duals`, with the objective's own cost."""
        if not is_loss_linearised(self.request):
            return self.find_best_by_loss(duals)
        prices = self.prices(duals)
        objective, ensemble = self.request.objective, self.request.ensemble
        if self.has_loss and isinstance(objective, Supervised) and ensemble is not None:
            outputs = compute_mixture_outputs(ensemble, objective.inputs, self.request.device)
            gradient = compute_loss_gradient(objective, outputs)
            prices = prices + self.request.loss_weight * (self.data.T @ gradient)
        return self._collect([self._linear(prices, positions) for positions in self.layout.blocks])

    def find_best_by_loss(self, duals: Array, start: Array | None = None) -> AffineOptimum:
        """Least `loss_weight * mean loss - duals . rows - gamma` per block."""
        prices = self.prices(duals)
        solutions = []
        for positions in self.layout.blocks:
            if not self.has_loss:
                solutions.append(self._linear(prices, positions))
            elif self.is_squared:
                solutions.append(self._squared(prices, positions))
            else:
                first = None if start is None else start[:, positions]
                solutions.append(self._convex(prices, positions, first))
        return self._collect(solutions)

    def _collect(self, solutions: list[BallSolution]) -> AffineOptimum:
        gammas = self.request.duals.blocks
        parameters = np.empty((self.data.shape[1], self.layout.output_size))
        for positions, solution in zip(self.layout.blocks, solutions, strict=True):
            parameters[:, positions] = solution.point
        values = np.array([solution.value for solution in solutions]) - gammas
        bounds = np.array([solution.lower_bound for solution in solutions]) - gammas
        return AffineOptimum(parameters, values, bounds - ROUNDING * np.abs(gammas))

    def _linear(self, prices: Array, positions: IntArray) -> BallSolution:
        solution = minimise_linear(prices[:, positions], self.radius)
        return self._outward(solution, abs(solution.value))

    def _outward(self, solution: BallSolution, magnitude: float) -> BallSolution:
        margin = ROUNDING * (magnitude + abs(solution.value))
        return BallSolution(solution.point, solution.value, solution.lower_bound - margin)

    def _squared(self, prices: Array, positions: IntArray) -> BallSolution:
        weight = self.request.loss_weight
        linear = prices[:, positions] - 2 * weight * self.cross[:, positions]
        point = self.quadratic.minimise(linear / weight, self.radius)
        local = self._local(point, prices[:, positions], positions)
        bound = compute_linearisation_bound(local, point, self.radius)
        magnitude = float(np.abs(linear).sum()) * self.radius
        return self._outward(BallSolution(point, local.value, bound), magnitude)

    def _convex(self, prices: Array, positions: IntArray, start: Array | None) -> BallSolution:
        mine = prices[:, positions]
        first = np.zeros_like(mine) if start is None else start

        def function(point: Array) -> LocalModel:
            return self._local(point, mine, positions)

        if mine.size <= self.newton_size:
            solution = minimise_newton(
                function,
                lambda point: self._hessian(point, positions),
                first,
                radius=self.radius,
                tolerance=self.tolerance,
            )
        else:
            solution = minimise_projected_gradient(
                function, first, radius=self.radius, tolerance=self.tolerance
            )
        return self._outward(solution, float(np.linalg.norm(mine)) * self.radius)

    def _loss(self, point: Array, positions: IntArray) -> tuple[Tensor, Tensor]:
        """Outputs (n, q), as a leaf of the graph, and the weighted mean loss."""
        objective = self.request.objective
        if not isinstance(objective, Supervised):
            raise InvalidInput("only a supervised objective has a loss", code="unsupported")
        outputs = torch.from_numpy(self.data @ point).requires_grad_()
        cost = objective.costs(outputs.unsqueeze(0), positions)[0]
        return outputs, cost * self.request.loss_weight

    def _local(self, point: Array, prices: Array, positions: IntArray) -> LocalModel:
        outputs, cost = self._loss(point, positions)
        (gradient,) = torch.autograd.grad(cost, outputs)
        return LocalModel(
            float(cost.detach()) + float(np.sum(prices * point)),
            self.data.T @ gradient.numpy() + prices,
        )

    def _hessian(self, point: Array, positions: IntArray) -> Array:
        """(p q, p q): the loss is a sum over inputs, so q backward passes give all of it."""
        outputs, cost = self._loss(point, positions)
        (gradient,) = torch.autograd.grad(cost, outputs, create_graph=True)
        size, count = self.data.shape[1], len(positions)
        result = np.zeros((size, count, size, count))
        for k in range(count if gradient.requires_grad else 0):
            (second,) = torch.autograd.grad(gradient[:, k].sum(), outputs, retain_graph=True)
            curvature = second.numpy(force=True)
            for other in range(count):
                weighted = self.data * curvature[:, other : other + 1]
                result[:, k, :, other] = self.data.T @ weighted
        return result.reshape(size * count, size * count)

    def collapse_mixture(self) -> list[Array]:
        """The mixture as one affine member, if it is one and lies in the ball.

        A mixture of affine members is affine; its parameters are read off d + 1 inputs. If other
        kinds of members take part this is one more candidate, judged like all others.
        """
        if self.request.ensemble is None:
            return []
        mean, deviation = self.standardiser.mean, self.standardiser.deviation
        inputs = np.concatenate([mean + np.diag(deviation), mean[None]])
        outputs = compute_mixture_outputs(self.request.ensemble, inputs, self.request.device)
        parameters = np.concatenate([outputs[:-1] - outputs[-1], outputs[-1:]])
        norms = [np.linalg.norm(parameters[:, positions]) for positions in self.layout.blocks]
        return [parameters] if max(norms) <= self.radius * (1 + 1e-9) else []
