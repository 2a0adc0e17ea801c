"""Study `quantiles`: nine quantiles at once, ours beside nine models and a plain network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch

import cg4ai
from cg4ai.data import Array
from experiments.peers import boosters, tables
from experiments.peers.boosters import Asked
from experiments.peers.cells import Cell
from experiments.peers.outcomes import OURS, Clock, Outcome
from experiments.peers.tables import Split, Task
from experiments.peers.training import Network, Recipe, fit

LEVELS = tuple(np.round(np.arange(1, 10) / 10, 1))
CHOSEN_BY = (0.1, 0.5, 0.9)  # quantiles by which settings of boosted trees are chosen
SEARCHED = 20_000
ROUNDING = 1e-9
TASKS: Mapping[str, Callable[[int], Task]] = {
    "diabetes": tables.diabetes,
    "uneven noise": tables.uneven,
}
NETWORK = "one network, nine outputs"
HIDDEN = (64, 64)
STEPS = (100, 300, 900)  # of which the rows held out choose
Predict = Callable[[Array], Array]


def cells(seeds: Sequence[int]) -> list[Cell]:
    methods = [OURS, *(_nine(name) for name in boosters.names() if name != "XGBoost"), NETWORK]
    return [
        Cell(task, method, seed, partial(measured, task, method, seed))
        for task in TASKS
        for seed in seeds
        for method in methods
    ]


def _nine(name: str) -> str:
    return f"nine of {name}"


def measured(name: str, method: str, seed: int) -> Outcome:
    """Pinball loss and coverage on rows not seen, crossings at 20,000 inputs."""
    task = TASKS[name](seed)
    work = {OURS: _ours, NETWORK: _network}.get(method) or partial(_boosted, method)
    found = []
    for split in task.splits:
        with Clock() as clock:
            predict = work(split, seed)
        found.append(_figures(predict, split, seed, len(task.splits)) | {"train_s": clock.seconds})
    figures = {
        key: float((np.sum if key == "crossings" else np.mean)([one[key] for one in found]))
        for key in found[0]
    }
    return Outcome(name, method, seed, figures)


def _figures(predict: Predict, split: Split, seed: int, parts: int) -> dict[str, float]:
    outputs, targets = predict(split.test_inputs), split.test_targets
    searched = predict(tables.around(split, SEARCHED // parts, seed))
    below = (targets[:, None] <= outputs).mean(0)
    room = ROUNDING * float(split.targets.std())
    return {
        "pinball": float(np.mean([
            boosters.pinball(targets, outputs[:, k], level) for k, level in enumerate(LEVELS)
        ])),
        "crossings": float((np.diff(searched, axis=1) < -room).any(1).sum()),
        "coverage": float(below[-1] - below[0]),
        "off": float(np.abs(below - LEVELS).mean()),
    }  # fmt: skip


def _ours(split: Split, seed: int) -> Predict:
    model = cg4ai.ConstrainedRegressor(loss="pinball", quantiles=LEVELS, random_state=seed)
    predict: Predict = model.fit(split.inputs, split.targets).predict
    return predict


def _boosted(method: str, split: Split, seed: int) -> Predict:
    """One choice of settings for all nine."""
    (name,) = (one for one in boosters.names() if _nine(one) == method)
    asked = [Asked(quantile=level) for level in CHOSEN_BY]
    choice = boosters.chosen(name, split.inputs, split.targets, asked, boosters.squared, seed)
    models = [
        boosters.fitted(name, split.inputs, split.targets, Asked(quantile=level), choice, seed)
        for level in LEVELS
    ]
    return lambda inputs: np.column_stack([model.predict(inputs) for model in models])


def _network(split: Split, seed: int) -> Predict:
    """Trained on four fifths of the rows to see for how long, then on all."""
    shift, scale = split.inputs.mean(0), split.inputs.std(0)
    centre, spread = split.targets.mean(), split.targets.std()
    inputs = torch.as_tensor((split.inputs - shift) / scale, dtype=torch.float32)
    targets = torch.as_tensor((split.targets - centre) / spread, dtype=torch.float32)
    order = np.random.default_rng(seed).permutation(len(inputs))
    held, kept = order[: len(order) // 5], order[len(order) // 5 :]
    losses = {}
    for steps in STEPS:
        network = _trained(inputs[kept], targets[kept], steps, seed)
        with torch.no_grad():
            losses[steps] = float(_loss(network(inputs[held]), targets[held]))
    network = _trained(inputs, targets, min(losses, key=lambda steps: losses[steps]), seed)

    def predict(points: Array) -> Array:
        with torch.no_grad():
            outputs = network(torch.as_tensor((points - shift) / scale, dtype=torch.float32))
        made: Array = outputs.double().numpy() * spread + centre
        return made

    return predict


def _trained(inputs: torch.Tensor, targets: torch.Tensor, steps: int, seed: int) -> Network:
    torch.manual_seed(seed)
    network = Network(inputs.shape[1], len(LEVELS), HIDDEN)
    recipe = Recipe(steps=steps, batch=128)

    def loss(step: int) -> torch.Tensor:
        rows = torch.randint(len(inputs), (recipe.batch,))
        return _loss(network(inputs[rows]), targets[rows])

    fit(network, loss, recipe)
    return network


def _loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    levels = torch.tensor(LEVELS, dtype=torch.float32)
    missed = targets[:, None] - outputs
    return torch.maximum(levels * missed, (levels - 1) * missed).mean()
