"""Other methods on RAYEN's task: RAYEN itself, and a penalty with cvxpylayers' projection."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cg4ai.data import Array
from experiments.peers.ellipsoid import OUTPUTS, ConvexTask, as_tensors
from experiments.peers.outcomes import MISSING, Clock, Outcome, chunks, installed, milliseconds
from experiments.peers.training import Network, Recipe, fit

HIDDEN = (64, 64)
PENALTY = 10.0
SLOWLY = 2000  # inputs at which a solver is asked for violations
Predict = Callable[[Tensor], Tensor]


def measured(
    task: ConvexTask, method: str, seed: int, train_s: float, predict: Predict, *, points: Array
) -> Outcome:
    tests = torch.as_tensor(task.tests)
    with torch.no_grad():
        found = torch.cat([predict(part) for part in chunks(points)])
        figures = {
            "mse": task.mse(predict(tests)),
            **task.violation(found.numpy()),
            "train_s": train_s,
            "predict_ms": milliseconds(lambda: predict(tests), 5) * 1024 / len(tests),
        }
    return Outcome(task.name, method, seed, figures)


def rayen(task: ConvexTask, recipe: Recipe, seed: int) -> Outcome:
    """RAYEN's layer behind the common network."""
    if not (installed("rayen") and installed("cvxpylayers")):
        return Outcome(task.name, "RAYEN", seed, note=MISSING)
    torch.manual_seed(seed)
    module = Rayen(task)
    with Clock() as clock:
        _fit(module, task, recipe)
    return measured(
        task, "RAYEN", seed, clock.seconds, lambda x: module(x.float()).double(),
        points=task.searched(seed),
    )  # fmt: skip


class Rayen(nn.Module):
    """The common network behind RAYEN's own layer; its package must be there."""

    def __init__(self, task: ConvexTask) -> None:
        super().__init__()
        if "cdd" not in sys.modules and find_spec("cdd") is None:
            sys.modules["cdd"] = ModuleType("cdd")  # for enumerating vertices, which is not used
        from rayen import constraint_module, constraints

        tied: tuple[Any, Any] = (task.equality, task.values[:, None])
        if not len(task.values):
            tied = (None, None)
        linear = constraints.LinearConstraint(task.linear, task.limits[:, None], *tied)
        square = task.root.T @ task.root
        quadratic = constraints.ConvexQuadraticConstraint(
            2 * square,
            -2 * square @ task.centre[:, None],
            np.array([[task.centre @ square @ task.centre - 1.0]]),
        )
        rules = constraints.ConvexConstraints(lc=linear, qcs=[quadratic], print_debug_info=False)
        layer = constraint_module.ConstraintModule(rules, input_dim=1, create_map=False)
        self.network = Network(task.inputs.shape[1], layer.dim_after_map, HIDDEN)
        self.layer = layer

    def in_double(self, task: ConvexTask) -> Rayen:
        """The same with all digits of the rules: what the layer computes beforehand in float64."""
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            made = Rayen(task)
        finally:
            torch.set_default_dtype(before)
        made.network.load_state_dict(self.network.state_dict())
        return made

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(self.network(inputs)[..., None])
        return outputs[..., 0]


def penalty(task: ConvexTask, recipe: Recipe, seed: int) -> tuple[nn.Module, float]:
    """The common network trained with squared violations added; it keeps no rule for certain."""
    torch.manual_seed(seed)
    module = Network(task.inputs.shape[1], OUTPUTS, HIDDEN)
    L, limit, R, c, E, e = (
        torch.tensor(value, dtype=torch.float32)
        for value in (task.linear, task.limits, task.root, task.centre, task.equality, task.values)
    )

    def broken(y: Tensor) -> Tensor:
        linear = (y @ L.T - limit).relu().square().sum(-1)
        quadratic = (((y - c) @ R.T).square().sum(-1) - 1).relu().square()
        return linear + quadratic + (y @ E.T - e).square().sum(-1)

    with Clock() as clock:
        _fit(module, task, recipe, lambda y: PENALTY * broken(y).mean())
    return module.double(), clock.seconds


def projected(task: ConvexTask, recipe: Recipe, seed: int) -> Outcome:
    """That network with its predictions projected by cvxpylayers."""
    name = "penalty, then cvxpylayers"
    if not installed("cvxpylayers"):
        return Outcome(task.name, name, seed, note=MISSING)
    module, seconds = penalty(task, recipe, seed)
    layer, points = _projection(task), task.searched(seed)[:SLOWLY]
    found = measured(task, name, seed, seconds, lambda x: layer(module(x)), points=points)
    note = f"violations searched at {SLOWLY:,} inputs, for its time"
    return Outcome(task.name, name, seed, found.figures, note)


def _projection(task: ConvexTask) -> Predict:
    import cvxpy as cp
    from cvxpylayers.torch import CvxpyLayer

    y, aim = cp.Variable(OUTPUTS), cp.Parameter(OUTPUTS)
    rules = [
        task.linear @ y <= task.limits,
        cp.sum_squares(task.root @ (y - task.centre)) <= 1,
        *([task.equality @ y == task.values] if len(task.values) else []),
    ]
    problem = cp.Problem(cp.Minimize(cp.sum_squares(y - aim)), rules)
    layer = CvxpyLayer(problem, parameters=[aim], variables=[y])

    def project(outputs: Tensor) -> Tensor:
        (found,) = layer(outputs)
        return torch.as_tensor(found)

    return project


def _fit(
    module: nn.Module,
    task: ConvexTask,
    recipe: Recipe,
    extra: Callable[[Tensor], Tensor] | None = None,
) -> None:
    inputs, labels = as_tensors(task)

    def loss_of(step: int) -> Tensor:
        pick = torch.randint(len(inputs), (recipe.batch,))
        outputs = module(inputs[pick])
        loss: Tensor = (outputs - labels[pick]).square().sum(-1).mean()
        return loss if extra is None else loss + extra(outputs)

    fit(module, loss_of, recipe)
