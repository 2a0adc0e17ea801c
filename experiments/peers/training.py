"""One network and one way to train it for all peers: only the layer behind it differs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Recipe:
    """Adam with one cycle of learning rates; `limit_s` of processor time ends it early."""

    steps: int = 6000
    batch: int = 256
    rate: float = 3e-3
    limit_s: float = math.inf
    cycle: bool = True


class Network(nn.Module):
    """Hidden layers and, beside them, a linear map from inputs to outputs if `skip`."""

    def __init__(
        self, inputs: int, outputs: int, hidden: tuple[int, ...], *, skip: bool = True
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for size, following in pairwise((inputs, *hidden)):
            layers += [nn.Linear(size, following), nn.ReLU()]
        self.deep = nn.Sequential(*layers, nn.Linear(hidden[-1], outputs))
        self.skip = nn.Linear(inputs, outputs, bias=False) if skip else None

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.deep(inputs)
        return outputs if self.skip is None else outputs + self.skip(inputs)


def fit(module: nn.Module, loss_of: Callable[[int], Tensor], recipe: Recipe) -> None:
    """Minimise `loss_of(step)` in the parameters of `module`."""
    adam = torch.optim.Adam(module.parameters(), lr=recipe.rate)
    cycle = torch.optim.lr_scheduler.OneCycleLR(adam, recipe.rate, total_steps=recipe.steps)
    start = time.process_time()
    for step in range(recipe.steps):
        adam.zero_grad()
        torch.autograd.backward(loss_of(step))
        adam.step()
        if recipe.cycle:
            cycle.step()
        if time.process_time() - start > recipe.limit_s:
            break
