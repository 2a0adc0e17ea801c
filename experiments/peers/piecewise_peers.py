"""HardNet's method on its own problems: the network of the paper behind its projection."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from cg4ai.records import Array
from experiments.peers.outcomes import Clock, Outcome, milliseconds
from experiments.peers.piecewise import Piecewise
from experiments.peers.training import Network, Recipe, fit

HIDDEN = (200, 200)
PENALTY = 10.0
WARM_UP = 0.1  # share of the steps without projection, for two bounds, as published
PUBLISHED = Recipe(steps=1000, rate=1e-4, cycle=False)
Predict = Callable[[Array], Array]  # (n,) -> (n,)


def measured(
    task: Piecewise, method: str, seed: int, train_s: float, predict: Predict
) -> Outcome:
    points = task.searched(seed)
    return Outcome(
        task.name,
        method,
        seed,
        {
            "mse": float(np.square(predict(task.grid) - task.target(task.grid)).mean()),
            "inequality": task.violation(points, predict(points)),
            "train_s": train_s,
            "predict_ms": milliseconds(lambda: predict(task.grid), 5),
        },
    )


class HardNet(nn.Module):
    """In one dimension the closed-form projection on `low <= y <= high`.

    With `sees_bounds` the network has the bounds as inputs, too.
    """

    def __init__(self, *, sees_bounds: bool = False) -> None:
        super().__init__()
        self.network = Network(3 if sees_bounds else 1, 1, HIDDEN, skip=False)
        self.sees_bounds, self.projecting = sees_bounds, True
        for layer in self.network.deep:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight)

    def forward(self, inputs: Tensor, low: Tensor, high: Tensor) -> Tensor:
        seen = torch.stack([inputs, low, high], -1) if self.sees_bounds else inputs[:, None]
        y: Tensor = self.network(seen)[:, 0]
        return y + (low - y).relu() - (y - high).relu() if self.projecting else y


def hardnet(
    task: Piecewise, seed: int, recipe: Recipe = PUBLISHED, *, sees_bounds: bool = False
) -> Outcome:
    """Trained on all labelled points at every step, in double precision, as published."""
    torch.manual_seed(seed)
    module = HardNet(sees_bounds=sees_bounds).double()
    x, y = torch.tensor(task.inputs), torch.tensor(task.labels)
    low, high = (torch.tensor(bound) for bound in task.bounds(task.inputs))

    def loss_of(step: int) -> Tensor:
        module.projecting = task.name != "band" or step >= WARM_UP * recipe.steps
        outputs = module(x, low, high)
        broken = (low - outputs).relu().square() + (outputs - high).relu().square()
        return ((outputs - y).square() + PENALTY * broken).mean()

    def predict(points: Array) -> Array:
        with torch.no_grad():
            edges = (torch.as_tensor(bound) for bound in task.bounds(points))
            return np.asarray(module(torch.as_tensor(points), *edges).numpy())

    with Clock() as clock:
        fit(module, loss_of, recipe)
    method = "HardNet, bounds as inputs" if sees_bounds else "HardNet"
    return measured(task, method, seed, clock.seconds, predict)
