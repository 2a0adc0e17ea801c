"""HardNet's method on its own problems: the network of the paper behind its projection."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from cg4ai.data import Array
from experiments.peers.outcomes import Clock, Outcome, milliseconds
from experiments.peers.piecewise import Piecewise
from experiments.peers.training import Network, Recipe, fit

HIDDEN = (200, 200)
PENALTY = 10.0
WARM_UP = 0.1  # share of the steps without projection, for two bounds, as published
Predict = Callable[[Array], Array]  # (n,) -> (n,)


def measured(task: Piecewise, method: str, seed: int, train_s: float, predict: Predict) -> Outcome:
    points = task.searched(seed)
    return Outcome(
        task.name,
        method,
        seed,
        {
            "mse": float(np.square(predict(task.grid) - task.target(task.grid)).mean()),
            "inequality": task.violation(points, predict(points)),
            "train_s": train_s,
            "predict_ms": milliseconds(lambda: predict(points[:1024])),
        },
    )


class HardNet(nn.Module):
    """In one dimension the closed-form projection on `low <= y <= high`."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Network(1, 1, HIDDEN, skip=False)
        self.projecting = True
        for layer in self.network.deep:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight)

    def forward(self, inputs: Tensor, low: Tensor, high: Tensor) -> Tensor:
        y: Tensor = self.network(inputs[:, None])[:, 0]
        return y if not self.projecting else y + (low - y).relu() - (y - high).relu()


def hardnet(task: Piecewise, seed: int, recipe: Recipe, *, method: str) -> Outcome:
    """Trained on all labelled points at every step, in double precision, as published."""
    torch.manual_seed(seed)
    module = HardNet().double()
    x, y = torch.tensor(task.inputs), torch.tensor(task.labels)
    low, high = (torch.tensor(bound) for bound in task.bounds(task.inputs))

    def loss_of(step: int) -> Tensor:
        module.projecting = task.name != "band" or step >= WARM_UP * recipe.steps
        outputs: Tensor = module(x, low, high)
        broken = (low - outputs).relu().square() + (outputs - high).relu().square()
        return ((outputs - y).square() + PENALTY * broken).mean()

    def predict(points: Array) -> Array:
        with torch.no_grad():
            edges = (torch.as_tensor(bound) for bound in task.bounds(points))
            return np.asarray(module(torch.as_tensor(points), *edges).numpy())

    with Clock() as clock:
        fit(module, loss_of, recipe)
    return measured(task, method, seed, clock.seconds, predict)
