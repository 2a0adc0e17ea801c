"""Trains the networks of all baselines: candidates that train alike are one stack of networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cg4ai.colgen.pricing.gradient.training import LossOf, Training, train
from cg4ai.members import NetworkArchitecture, NetworkMembers
from cg4ai.protocols import Parameters
from cg4ai.records import Array
from cg4ai.seeds import derive_seed, generator
from experiments.baselines.records import (
    BaselineData,
    BaselineSettings,
    Correct,
    FitAll,
    Fitted,
    Predict,
)
from experiments.baselines.rule import LabelRule
from experiments.digits.members import blurred, picture_side


@dataclass(frozen=True)
class Model:
    """One network to train: its settings, and the number its random start is drawn from."""

    settings: BaselineSettings
    index: int


class Stack:
    """Networks with one training schedule and one rule, trained together, each as if alone."""

    def __init__(self, data: BaselineData, models: Sequence[Model], *, seed: int) -> None:
        self.models = list(models)
        self.settings = models[0].settings  # what all of them share is read from the first
        self.rule: LabelRule = self.settings.training_rule
        self.architecture = NetworkArchitecture(
            data.inputs.shape[1], data.classes, hidden=(self.settings.hidden,)
        )
        if self.settings.blur:
            picture_side(self.architecture.input_size)
        self.parameters = self._fresh(seed)
        self.inputs, self.labels = self._tensors(data.inputs, data.labels)
        self.hard_inputs, self.hard_labels = self._tensors(data.hard_inputs, data.hard_labels)
        self.augmented = data.soft_inputs is not None
        self._pool, self._pool_labels = self.inputs, self.labels
        if self.augmented:
            soft_inputs, soft_labels = self._tensors(data.soft_inputs, data.soft_labels)
            self._pool = torch.cat([self.inputs, soft_inputs])
            self._pool_labels = torch.cat([self.labels, soft_labels])
        self._batches = generator(derive_seed(seed, 0, "batches"))

    def _fresh(self, seed: int) -> Parameters:
        starts = [
            self.architecture.initialise(1, generator(derive_seed(seed, model.index, "member")))
            for model in self.models
        ]
        return {
            name: torch.cat([start[name] for start in starts]).to(self.settings.device)
            for name in starts[0]
        }

    def _tensors(self, inputs: Array, labels: Any) -> tuple[Tensor, Tensor]:
        device = self.settings.device
        points = torch.as_tensor(inputs, dtype=torch.float32, device=device)
        return points, torch.as_tensor(labels, dtype=torch.int64, device=device)

    def per_model(self, values: Iterable[float]) -> Tensor:
        """One number per model, beside the losses."""
        return torch.tensor(list(values), dtype=torch.float32, device=self.settings.device)

    def blurred(self, parameters: Parameters) -> Parameters:
        """The networks' own parameters for those that training moves."""
        return blurred(parameters, blur=self.settings.blur, gain=self.settings.gain)

    def logits(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(models, n, classes)."""
        return self.architecture.forward(self.blurred(parameters), inputs)

    def task_loss(self, parameters: Parameters) -> Tensor:
        """Mean cross-entropy over the next batch of training images and copies: (models,)."""
        inputs, labels = self._pool, self._pool_labels
        size = self.settings.batch
        if 0 < size < len(labels):
            # drawn on the CPU, so that every device sees the same batches
            drawn = torch.randint(len(labels), (size,), generator=self._batches)
            positions = drawn.to(labels.device)
            inputs, labels = inputs[positions], labels[positions]
        return cross_entropy(self.logits(parameters, inputs), labels).mean(-1)

    def hard_logits(self, parameters: Parameters) -> Tensor:
        """Logits at every hard input: (models, m, classes)."""
        return self.logits(parameters, self.hard_inputs)

    def train(self, loss: LossOf, training: Training | None = None) -> None:
        """Train on from the present parameters, by default with the settings of the stack."""
        schedule = training or self.settings.training
        self.parameters = train(self.parameters, loss, schedule, models=len(self.models))

    def warm_up(self) -> Training:
        """Train on cross-entropy for the first share of the steps; returns what is left of them."""
        whole = self.settings.training
        first = round(self.settings.warm_up * whole.steps)
        self.train(lambda parameters, step: self.task_loss(parameters), replace(whole, steps=first))
        return replace(whole, steps=whole.steps - first)

    def members(self) -> NetworkMembers:
        """The networks as float64 members whose outputs are the scores of the rule."""
        finished = replace(self.architecture, output=self.rule.output)
        held = self.blurred(self.parameters)
        return finished.members({name: t.cpu() for name, t in held.items()})


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """(models, n, r) and (n,) -> (models, n)."""
    flat = labels.expand(logits.shape[:-1]).reshape(-1)
    losses = functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), flat, reduction="none")
    return losses.reshape(logits.shape[:-1])


def train_networks(
    data: BaselineData, models: Sequence[Model], *, seed: int, fit: Callable[[Stack], None]
) -> list[NetworkMembers]:
    """Train every model; `fit` trains one stack. Models whose schedules agree share a stack."""
    groups: dict[object, list[int]] = {}
    for position, model in enumerate(models):
        chosen = model.settings
        shape = (chosen.hidden, chosen.batch, chosen.training, chosen.warm_up, chosen.rounds)
        rule = (chosen.training_rule, chosen.correction_steps)
        first = (chosen.blur, chosen.gain)
        groups.setdefault((shape, rule, first, chosen.device), []).append(position)
    trained: dict[int, NetworkMembers] = {}
    for positions in groups.values():
        stack = Stack(data, [models[position] for position in positions], seed=seed)
        fit(stack)
        members = stack.members()
        for place, position in enumerate(positions):
            trained[position] = members.take(np.array([place]))
    return [trained[position] for position in range(len(models))]


def networks(
    fit: Callable[[Stack], None],
    *,
    correction: Callable[[BaselineSettings], Correct] | None = None,
    note: str = "",
) -> FitAll:
    """Trains by `fit` one network per candidate and repeat: the best of its starts."""

    def fit_all(
        data: BaselineData, candidates: Sequence[BaselineSettings], seed: int, repeats: int
    ) -> list[Fitted]:
        models = [
            Model(settings, index)
            for settings in candidates
            for index in range(repeats * settings.starts)
        ]
        trained = iter(train_networks(data, models, seed=seed, fit=fit))
        fitted = []
        for settings in candidates:
            correct = None if correction is None else correction(settings)
            for _ in range(repeats):
                starts = [next(trained) for _ in range(settings.starts)]
                member = kept_start(data, settings, starts)
                predict = mixture_predictor(member, np.ones(1))
                fitted.append(Fitted(predict, member, np.ones(1), note, correct))
        return fitted

    return fit_all


def kept_start(
    data: BaselineData, settings: BaselineSettings, starts: Sequence[NetworkMembers]
) -> NetworkMembers:
    """The network that keeps most rules, of those the one of least training cross-entropy."""
    if len(starts) == 1:
        return starts[0]

    def merit(member: NetworkMembers) -> tuple[float, float]:
        predict = mixture_predictor(member, np.ones(1))
        kept = settings.label_rule.satisfied(predict(data.hard_inputs), data.hard_labels)
        scores = torch.as_tensor(predict(data.inputs))
        logits = scores if settings.rule == "margin" else scores.log()
        return float(kept.mean()), -float(
            cross_entropy(logits, torch.as_tensor(data.labels)).mean()
        )

    return max(starts, key=merit)


def mixture_predictor(members: NetworkMembers, weights: Array) -> Predict:
    """Scores of the mixture of members: the mean of their outputs with these weights."""

    def predict(inputs: Array) -> Array:
        with torch.inference_mode():
            scores = members.mixture(torch.as_tensor(inputs, dtype=torch.float64), weights)
        result: Array = scores.numpy()
        return result

    return predict
