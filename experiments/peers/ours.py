"""Ours on the peers' problems, through the public interface alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

import cg4ai
from cg4ai.colgen import GradientPricer, Layout, Supervised, Training
from cg4ai.data import Array
from cg4ai.members import NetworkArchitecture
from cg4ai.rules import AffineBound, Equality, Polytope, Quadratic
from experiments.peers import ellipsoid_peers, piecewise_peers, quadratic_peers
from experiments.peers.ellipsoid import OUTPUTS, ConvexTask
from experiments.peers.outcomes import OURS, Clock, Outcome
from experiments.peers.piecewise import FAR, LOWER, UPPER, Piecewise
from experiments.peers.quadratic import QuadraticProblem
from experiments.peers.training import Recipe

HIDDEN = (64, 64)  # of DC3's problems: a thousand predictions in a few milliseconds
PROOF_S = 20.0
HAIR = 1e-9
MEMBERS = 4  # of a mixture on HardNet's problems


def quadratic(problem: QuadraticProblem, recipe: Recipe, seed: int) -> Outcome:
    """DC3's problems: equalities completed, inequalities by the shield, anchor found."""
    equalities, outputs = problem.equality.shape
    box = cg4ai.rules.Box(np.full(equalities, -1.0), np.ones(equalities))
    rules = [
        Equality(None, problem.equality, AffineBound(np.zeros(equalities), np.eye(equalities))),
        cg4ai.rules.Linear(box, problem.inequality, problem.limit, "<="),
    ]
    network = NetworkArchitecture(equalities, outputs - equalities, hidden=HIDDEN, skip=True)
    with Clock() as clock:
        objective = cg4ai.Objective(box, problem.loss)
        ensemble = _solved(objective, rules, network, recipe, seed=seed)
    found = quadratic_peers.measured(problem, OURS, seed, clock.seconds, _on_tensors(ensemble))
    return replace(found, note=proven(ensemble, rules))


def ellipsoid(task: ConvexTask, recipe: Recipe, seed: int) -> Outcome:
    """RAYEN's task: linear and quadratic rules by the shield, anchor found."""
    size = task.inputs.shape[1]
    box = cg4ai.rules.Box(np.full(size, -1.0), np.ones(size))
    square = task.root.T @ task.root
    bound = 1.0 - task.centre @ square @ task.centre
    rules: list[Any] = [
        cg4ai.rules.Linear(box, task.linear, task.limits, "<="),
        Quadratic(box, square, bound, -2 * square @ task.centre),
    ]
    if len(task.values):
        rules.append(Equality(box, task.equality, task.values))
    network = NetworkArchitecture(
        size, OUTPUTS - len(task.values), hidden=ellipsoid_peers.HIDDEN, skip=True
    )
    with Clock() as clock:
        objective = Supervised(task.inputs, task.labels, "squared", "mixture")
        ensemble = _solved(objective, rules, network, recipe, seed=seed, members=3)
    points = task.searched(seed)
    found = ellipsoid_peers.measured(
        task, OURS, seed, clock.seconds, _on_tensors(ensemble), points=points
    )
    return replace(found, note=proven(ensemble, rules))


def piecewise(task: Piecewise, recipe: Recipe, seed: int) -> Outcome:
    """HardNet's problems: the bounds at x are inputs beside x, and so the rules are affine.

    Where bounds meet the anchor has no room, and no proof in rounded numbers reaches them: the
    shield keeps them as they are, and by a hair wider, which is then what is proven.
    """
    region = Polytope(
        cg4ai.rules.Box([LOWER, -FAR, -FAR], [UPPER, FAR, FAR]), [[0.0, 1.0, -1.0]], [-task.room]
    )
    rules = _between(region)
    provable = rules if task.room else _between(region, HAIR)
    every = rules if task.room else [*rules, *provable]
    network = NetworkArchitecture(
        3, 1, hidden=piecewise_peers.HIDDEN, activation="gelu", scale=np.array([1.0, FAR, FAR])
    )

    def seen(points: Array) -> Array:
        return np.column_stack([points, *task.bounds(points)])

    with Clock() as clock:
        objective = Supervised(seen(task.inputs), task.labels[:, None], "squared", "average")
        middle = (np.array([[0.0, 0.5, 0.5]]), np.zeros(1))
        ensemble = _solved(
            objective, every, network, recipe, seed=seed, anchor=middle, members=MEMBERS
        )
    found = piecewise_peers.measured(
        task, OURS, seed, clock.seconds, lambda points: ensemble.predict(seen(points))[:, 0]
    )
    note = proven(ensemble, provable)
    return replace(found, note=note if task.room else f"{note}, with bounds wider by {HAIR:g}")


def _between(region: Polytope, hair: float = 0.0) -> list[cg4ai.rules.Linear]:
    """The output between the second and the third input."""
    more = f" within {hair:g}" if hair else ""
    low, high = AffineBound(-hair, [0.0, 1.0, 0.0]), AffineBound(hair, [0.0, 0.0, 1.0])
    return [
        cg4ai.rules.Linear(region, [1.0], low, ">=", name=f"low{more}"),
        cg4ai.rules.Linear(region, [1.0], high, "<=", name=f"high{more}"),
    ]


def proven(ensemble: cg4ai.Ensemble, rules: Sequence[Any]) -> str:
    """In words, which rules the separate checker finds proven on their whole regions."""
    answers = {one.name: cg4ai.certify(ensemble, one, time_limit_s=PROOF_S) for one in rules}
    left = [name for name, answer in answers.items() if answer.status != "proven"]
    if left:
        return f"by the shield; no proof within {PROOF_S:.0f} s of {', '.join(left)}"
    return "all rules proven on the whole region, accepted by the checker"


def _solved(
    objective: Supervised,
    rules: Sequence[Any],
    network: NetworkArchitecture,
    recipe: Recipe,
    *,
    seed: int,
    anchor: Any = None,
    members: int = 1,
) -> cg4ai.Ensemble:
    """One pricing: so many members, each trained through the shield for all steps."""
    pricer = GradientPricer(
        network,
        restarts=members,
        training=Training(recipe.steps, recipe.rate, "onecycle"),
        batch_size=recipe.batch,
        blend=1.0,
        finish=0.0,
    )
    outputs = rules[0].output_size
    problem = cg4ai.Problem(
        objective, rules, [pricer], Layout.single(outputs), anchor=anchor, plain_first=False
    )
    weights: Literal["loss", "uniform"] = "uniform" if members > 1 else "loss"
    settings = cg4ai.Settings(seed=seed, iteration_limit=1, final_weights=weights)
    return cg4ai.solve(problem, settings).ensemble


def _on_tensors(ensemble: cg4ai.Ensemble) -> quadratic_peers.Predict:
    def predict(inputs: Tensor) -> Tensor:
        return torch.as_tensor(ensemble.predict(inputs))

    return predict
