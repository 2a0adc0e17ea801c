"""Study `layers`: one network and one plain torch loop, behind our layers and behind others'.

Only what stands at the end of the network differs. All are trained in float32 and evaluated both
so and cast to float64; rules are recomputed in float64 from the numbers that come out.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from cg4ai.data import Array
from cg4ai.nn import Completion, SequentialWithInput, Shield
from cg4ai.rules import AffineBound, Box, Equality, Linear, Polytope, Quadratic
from experiments.peers import ellipsoid_peers, piecewise_peers, quadratic_peers
from experiments.peers.ellipsoid import OUTPUTS, ConvexTask, as_tensors
from experiments.peers.ellipsoid_peers import Rayen
from experiments.peers.outcomes import MISSING, OURS, Clock, Outcome, chunks, installed
from experiments.peers.outcomes import milliseconds as quickest
from experiments.peers.piecewise import FAR, Piecewise
from experiments.peers.quadratic import QuadraticProblem
from experiments.peers.training import Network, Recipe, fit

LAYER, RAYEN, HARDNET, NONE = f"{OURS}, a layer", "RAYEN", "HardNet", "no layer, a penalty"
TIMED = 1024  # predictions at a time
Figures = dict[str, float]


@dataclass(frozen=True)
class Trained:
    """A network behind a layer, in float32 and float64, and the processor seconds it took."""

    single: nn.Module
    double: nn.Module
    seconds: float

    @classmethod
    def fit(cls, module: nn.Module, loss_of: Callable[[int], Tensor], recipe: Recipe) -> Trained:
        with Clock() as clock:
            fit(module, loss_of, recipe)
        return cls(module, copy.deepcopy(module).double(), clock.seconds)

    def predict(self, inputs: Array, dtype: torch.dtype = torch.float64) -> Array:
        """(n, d) -> (n, r) or (n,): the numbers that come out, as float64."""
        module = self.double if dtype == torch.float64 else self.single
        with torch.no_grad():
            found = [module(part.to(dtype)).double() for part in chunks(inputs)]
        return np.asarray(torch.cat(found).numpy())

    def broken(self, violation: Callable[[Array], dict[str, float]], points: Array) -> Figures:
        """The largest violations in float64, and those in float32 under names of their own."""
        found = violation(self.predict(points))
        single = violation(self.predict(points, torch.float32))
        return {**found, **{f"{name}_single": value for name, value in single.items()}}

    def costs(self, inputs: Array) -> Figures:
        """Training seconds, and milliseconds of so many predictions in float32."""
        few = torch.as_tensor(np.resize(inputs, (TIMED, *inputs.shape[1:]))).float()
        with torch.no_grad():
            return {"train_s": self.seconds, "predict_ms": quickest(lambda: self.single(few))}


# ---- RAYEN's task: linear and quadratic rules that are the same at all inputs --------------------


def ellipsoid(task: ConvexTask, recipe: Recipe, method: str, seed: int) -> Outcome:
    if method == RAYEN and not (installed("rayen") and installed("cvxpylayers")):
        return Outcome(task.name, method, seed, note=MISSING)
    torch.manual_seed(seed)
    inputs, labels = as_tensors(task)
    if method == NONE:
        module, seconds = ellipsoid_peers.penalty(task, recipe, seed)
        trained = Trained(copy.deepcopy(module).float(), module, seconds)
    else:
        module = Rayen(task) if method == RAYEN else behind_layers(task)

        def loss_of(step: int) -> Tensor:
            pick = torch.randint(len(inputs), (recipe.batch,))
            loss: Tensor = (module(inputs[pick]) - labels[pick]).square().sum(-1).mean()
            return loss

        trained = Trained.fit(module, loss_of, recipe)
    if isinstance(module, Rayen):
        trained = replace(trained, double=module.in_double(task))
    figures = {
        "mse": task.mse(torch.as_tensor(trained.predict(task.tests))),
        **trained.broken(task.violation, task.searched(seed)),
        **trained.costs(task.tests),
    }
    return Outcome(task.name, method, seed, figures)


def behind_layers(task: ConvexTask) -> nn.Module:
    """The common network behind a Shield, and a Completion where an equality is asked for."""
    square = task.root.T @ task.root
    bound = 1.0 - task.centre @ square @ task.centre
    rules = [
        Linear(None, task.linear, task.limits, "<=", name="linear"),
        Quadratic(None, square, bound, -2 * square @ task.centre, name="ellipsoid"),
    ]
    free, layers = OUTPUTS - len(task.values), list[nn.Module]()
    tied = [Equality(None, task.equality, task.values)] if len(task.values) else []
    if tied:
        layers.append(Completion(tied))
    network = Network(task.inputs.shape[1], free, ellipsoid_peers.HIDDEN)
    return nn.Sequential(network, *layers, Shield(rules, within=tied))


# ---- DC3's programs: equalities that move with the input, as many inequalities -------------------


def quadratic(problem: QuadraticProblem, recipe: Recipe, method: str, seed: int) -> Outcome:
    """HardNet's projection is as published: after a tenth of the steps, with a penalty beside."""
    torch.manual_seed(seed)
    size, width = len(problem.equality), problem.equality.shape[1]
    module: nn.Module = (
        quadratic_peers.HardNet(problem)
        if method == HARDNET
        else Network(size, width, quadratic_peers.HIDDEN)
    )
    if method == LAYER:
        module = shielded(problem)

    def loss_of(step: int) -> Tensor:
        inputs = torch.rand(recipe.batch, size) * 2 - 1
        if isinstance(module, quadratic_peers.HardNet):
            module.projecting = step >= quadratic_peers.WARM_UP * recipe.steps
        outputs = module(inputs)
        if method == LAYER:
            return problem.loss(outputs, inputs).mean()
        return quadratic_peers.penalised(problem, outputs, inputs)

    trained = Trained.fit(module, loss_of, recipe)
    points = problem.searched(seed)
    above = problem.above(torch.as_tensor(trained.predict(problem.inputs)))
    figures = {
        "mean": float(above.mean()),
        "max": float(above.max()),
        **trained.broken(lambda y: problem.violation(torch.as_tensor(y), points), points),
        **trained.costs(problem.inputs),
    }
    return Outcome(problem.name, method, seed, figures)


def shielded(problem: QuadraticProblem) -> nn.Module:
    """The common network, as wide as the equalities leave free, completed and shielded."""
    size, width = len(problem.equality), problem.equality.shape[1]
    box = Box(np.full(size, -1.0), np.ones(size))
    tied = Equality(None, problem.equality, AffineBound(np.zeros(size), np.eye(size)))
    rule = Linear(box, problem.inequality, problem.limit, "<=")
    network = Network(size, width - size, quadratic_peers.HIDDEN)
    return SequentialWithInput(network, Completion(tied), Shield(rule, within=tied))


# ---- HardNet's functions: bounds that change with the input --------------------------------------


class Between(nn.Module):
    """The network of HardNet's paper; what keeps `low <= y <= high` is given."""

    def __init__(self, keep: Callable[[Tensor, Tensor, Tensor], Tensor], task: Piecewise) -> None:
        super().__init__()
        self.network = Network(1, 1, piecewise_peers.HIDDEN)
        self.keep, self.task = keep, task

    def forward(self, inputs: Tensor) -> Tensor:
        bounds = self.task.bounds(inputs.double().numpy())
        low, high = (torch.as_tensor(bound).to(inputs.dtype) for bound in bounds)
        return self.keep(self.network(inputs[:, None])[:, 0], low, high)


def piecewise(task: Piecewise, recipe: Recipe, method: str, seed: int) -> Outcome:
    """All labelled points at every step."""
    torch.manual_seed(seed)
    module = Between({LAYER: _shield(task), HARDNET: _clamp, NONE: _leave}[method], task)
    x, y = torch.tensor(task.inputs).float(), torch.tensor(task.labels).float()
    low, high = (torch.as_tensor(bound).float() for bound in task.bounds(task.inputs))

    def loss_of(step: int) -> Tensor:
        outputs = module(x)
        loss: Tensor = (outputs - y).square()
        if method != LAYER:
            broken = (low - outputs).relu().square() + (outputs - high).relu().square()
            loss = loss + piecewise_peers.PENALTY * broken
        return loss.mean()

    trained = Trained.fit(module, loss_of, recipe)
    # inputs that float32 holds, so that both precisions are asked the same
    points = task.searched(seed).astype(np.float32).astype(np.float64)
    figures = {
        "mse": float(np.square(trained.predict(task.grid) - task.target(task.grid)).mean()),
        **trained.broken(lambda found: {"inequality": task.violation(points, found)}, points),
        **trained.costs(points),
    }
    return Outcome(task.name, method, seed, figures)


def _shield(task: Piecewise) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Both bounds are inputs of the layer, its anchor is their middle."""
    region = Polytope(Box([-FAR, -FAR], [FAR, FAR]), [[1.0, -1.0]], [-task.room])
    low, high = AffineBound(0.0, [1.0, 0.0]), AffineBound(0.0, [0.0, 1.0])
    rules = [
        Linear(region, [1.0], low, ">=", name="low"),
        Linear(region, [1.0], high, "<=", name="high"),
    ]
    shield = Shield(rules, anchor=(np.array([[0.5, 0.5]]), np.zeros(1)))

    def keep(y: Tensor, low: Tensor, high: Tensor) -> Tensor:
        kept: Tensor = shield(y[:, None], torch.stack([low, high], -1))[:, 0]
        return kept

    return keep


def _clamp(y: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return y + (low - y).relu() - (y - high).relu()


def _leave(y: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return y
