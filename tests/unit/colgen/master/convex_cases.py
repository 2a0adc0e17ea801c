"""Random convex masters for tests, and their optimality conditions as an oracle."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.colgen.master.convex import ConvexMaster
from cg4ai.objectives import compute_cross_entropy, compute_squared_loss
from cg4ai.records import MasterSolution

Floats = NDArray[np.float64]
LOSS_NAMES = ["squared", "log_loss", "cross_entropy"]


def log_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """-log p, continued by its tangent below 1e-12."""
    p = outputs.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    floor = torch.tensor(1e-12, dtype=outputs.dtype)
    return torch.where(p > floor, -p.clamp_min(floor).log(), 1.0 - floor.log() - p / floor)


LOSSES = {
    "squared": compute_squared_loss,
    "log_loss": log_loss,
    "cross_entropy": compute_cross_entropy,
}


def nothing(count: int = 0) -> Floats:
    return np.empty((0, count))


def squared_to(target: list[float]) -> Callable[[Tensor], Tensor]:
    goal = torch.tensor([target], dtype=torch.float64)
    return lambda outputs: (outputs - goal).square().sum()


class Case:
    """A random master: `kind` of loss, blocks, rows of all slack modes, feasible or not."""

    def __init__(self, seed: int, *, kind: str, blocks: int = 1, rows: int = 6, room: float = 0.1):
        generator = np.random.default_rng(seed)
        n, r, count = 12, 2 * blocks, 4 * blocks
        self.blocks = np.arange(count) % blocks
        outputs = np.zeros((count, n, r))
        for i, block in enumerate(self.blocks):
            outputs[i, :, 2 * block : 2 * block + 2] = generator.normal(size=(n, 2))
        if kind == "log_loss":  # probabilities that sum to 1 over all blocks
            for i, block in enumerate(self.blocks):
                part = np.exp(outputs[i, :, 2 * block : 2 * block + 2])
                outputs[i, :, 2 * block : 2 * block + 2] = (
                    part / part.sum(1, keepdims=True) / blocks
                )
        self.outputs = torch.as_tensor(outputs)
        if kind == "squared":
            targets = torch.as_tensor(generator.normal(size=(n, r)))
        else:
            targets = torch.as_tensor(generator.integers(0, r, n))
        self.loss = lambda mixture: LOSSES[kind](mixture, targets).mean()
        inside = np.zeros(count)
        for number in range(blocks):
            inside[self.blocks == number] = generator.dirichlet(np.ones(4))
        self.inside = inside
        self.coefficients = generator.normal(size=(rows, count))
        self.bounds = self.coefficients @ inside - room * generator.random(rows)
        self.slack = generator.integers(-1, 2, rows)
        self.n_blocks = blocks

    def master(self, penalty: float = 10.0) -> ConvexMaster:
        master = ConvexMaster(self.n_blocks, self.loss, penalty=penalty)
        master.add_columns(self.outputs, self.blocks, nothing(len(self.blocks)))
        master.add_rows(self.coefficients, self.bounds, self.slack)
        return master

    def loss_of(self, weights: Floats) -> float:
        w = torch.as_tensor(weights)
        return float(self.loss(torch.einsum("m,mnr->nr", w, self.outputs)))

    def penalised(self, weights: Floats, penalty: float) -> float:
        lacking = np.maximum(0.0, self.bounds - self.coefficients @ weights)
        shared = [lacking[self.slack == k].max() for k in set(self.slack[self.slack >= 0])]
        slack = lacking[self.slack < 0].sum() + sum(shared)
        return self.loss_of(weights) + penalty * float(slack)

    def random_weights(self, generator: np.random.Generator) -> Floats:
        weights = np.zeros(len(self.blocks))
        for block in range(self.n_blocks):
            weights[self.blocks == block] = generator.dirichlet(np.full(4, 0.5))
        return weights


def check_optimality(case: Case, master: ConvexMaster, solution: MasterSolution) -> None:
    """KKT of the penalised program from recomputed quantities alone."""
    beta, gamma, weights = solution.duals.rows, solution.duals.blocks, solution.weights
    cost = np.einsum("mnr,nr->m", case.outputs.numpy(), master.gradient())
    reduced = cost - case.coefficients.T @ beta - gamma[case.blocks]
    assert weights.min() >= 0
    sums = np.bincount(case.blocks, weights, minlength=case.n_blocks)
    np.testing.assert_allclose(sums + solution.dummy, 1.0, atol=1e-12)
    scale = 1.0 + np.abs(cost).max() + beta.max(initial=0.0)
    assert reduced.min() >= -1e-9 * scale
    assert (weights * np.abs(reduced)).max() <= 1e-7 * scale
    assert (beta >= 0).all()
    values = case.coefficients @ weights
    np.testing.assert_allclose(solution.slack, np.maximum(0.0, case.bounds - values))
    penalty = master.penalty
    for j in range(len(beta)):
        if case.slack[j] >= 0:  # rows short of the group's largest shortfall are not tight
            mates = case.slack == case.slack[j]
            used = solution.slack[mates].max()
            total = beta[mates].sum()
        else:
            used, total = solution.slack[j], beta[j]
        assert beta[j] * abs(values[j] + used - case.bounds[j]) <= 1e-7 * scale
        assert total <= penalty * (1 + 1e-9)
        assert used * (penalty - total) <= 1e-7 * scale * penalty
