"""Training many models at once: each as if alone, against library optimisers and by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cg4ai.colgen.pricing.gradient.training import FusedAdam, Training, train
from cg4ai.errors import InvalidInput
from cg4ai.members import NetworkArchitecture
from cg4ai.protocols import Parameters
from cg4ai.seeds import generator
from raising import raises

X = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(-1, 1)
Y = torch.sin(3 * X)
NETWORK = NetworkArchitecture(1, 1, hidden=(4,), activation="tanh")


def initial(count: int) -> Parameters:
    made = NETWORK.initialise(count, generator(3))
    return {name: value.double() for name, value in made.items()}


def fit(parameters: Parameters, step: int) -> Tensor:
    return (NETWORK.forward(parameters, X) - Y).square().mean((1, 2))


def flat_loss(slopes: list[float]) -> tuple[Callable[[Parameters, int], Tensor], list[Tensor]]:
    """Losses that never change but have a gradient, so that each step moves by its rate."""
    seen: list[Tensor] = []

    def loss(parameters: Parameters, step: int) -> Tensor:
        p = parameters["p"]
        seen.append(p.detach().clone())
        return torch.tensor(slopes, dtype=p.dtype) * (p - p.detach()) + 1.0

    return loss, seen


def by_library(
    parameters: Parameters, training: Training, rate: Callable[[int], float]
) -> Parameters:
    """torch.optim.AdamW on one model; `rate(step)` is the learning rate of a step."""
    current = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    optimiser = torch.optim.AdamW(
        current.values(), lr=1.0, weight_decay=training.weight_decays[0], eps=1e-8
    )
    for step in range(training.steps):
        optimiser.param_groups[0]["lr"] = rate(step)
        optimiser.zero_grad()
        fit(current, step).sum().backward()
        optimiser.step()
    return {name: value.detach() for name, value in current.items()}


def assert_close(one: Parameters, other: Parameters, **tolerance: float) -> None:
    for name, value in one.items():
        close: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-8, **tolerance}
        torch.testing.assert_close(value, other[name], **close)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_onecycle_is_adam_that_warms_up_and_anneals(weight_decay: float) -> None:
    training = Training(
        steps=40, learning_rate=0.02, schedule="onecycle", weight_decay=weight_decay
    )

    def rate(step: int) -> float:
        if step < 4:
            return 0.02 * (step + 1) / 4
        return 0.01 * (1 + math.cos(math.pi * (step - 4) / 36))

    start = initial(1)
    trained = train(start, fit, training, models=1)
    assert_close(trained, by_library(start, training, rate))


def test_plateau_with_steady_improvement_is_plain_adam() -> None:
    training = Training(steps=15, learning_rate=0.005)
    start = initial(1)
    trained = train(start, fit, training, models=1)
    # the parameters after the last step are never evaluated, so the best are those before it
    shorter = Training(steps=14, learning_rate=0.005)
    assert_close(trained, by_library(start, shorter, lambda step: 0.005))
    assert_close(start, initial(1), rtol=0, atol=0)  # what was given is left alone


@pytest.mark.parametrize("schedule", ["plateau", "onecycle"])
def test_models_trained_together_are_as_if_trained_alone(schedule: Any) -> None:
    training = Training(
        steps=120, learning_rate=0.05, schedule=schedule, patience=7, decay_after=3, decay=0.5
    )
    start = initial(8)
    together = train(start, fit_pairs, training, models=4)
    for model in range(4):
        own = {name: value[2 * model : 2 * model + 2] for name, value in start.items()}
        alone = train(own, fit_pairs, training, models=1)
        part = {name: value[2 * model : 2 * model + 2] for name, value in together.items()}
        assert_close(part, alone, rtol=1e-6, atol=1e-7)


def fit_pairs(parameters: Parameters, step: int) -> Tensor:
    """The loss of the mean of two members: (models,)."""
    outputs = NETWORK.forward(parameters, X)
    mean = outputs.reshape(-1, 2, *outputs.shape[1:]).mean(1)
    return (mean - Y).square().mean((1, 2))


def test_the_learning_rate_decays_after_every_few_steps_without_improvement() -> None:
    loss, seen = flat_loss([1.0])
    training = Training(steps=31, learning_rate=0.1, patience=1000, decay=0.5, decay_after=10)
    train({"p": torch.zeros(1, dtype=torch.float64)}, loss, training, models=1)
    moved = torch.stack(seen).flatten().diff().abs().numpy()
    # step 0 improves on nothing; steps 1 to 9 are without, the tenth such step halves the rate
    np.testing.assert_allclose(moved[:10], 0.1, rtol=1e-5)
    np.testing.assert_allclose(moved[10:20], 0.05, rtol=1e-5)
    np.testing.assert_allclose(moved[20:30], 0.025, rtol=1e-5)


def test_a_model_stops_after_its_patience_and_the_rest_go_on() -> None:
    seen: list[Tensor] = []

    def loss(parameters: Parameters, step: int) -> Tensor:
        p = parameters["p"]
        seen.append(p.detach().clone())
        stuck = p[0] - p[0].detach() + 1.0
        return torch.stack([stuck, p[1]])  # the other falls for ever

    training = Training(steps=60, learning_rate=0.1, patience=12, decay_after=100)
    train({"p": torch.zeros(2, dtype=torch.float64)}, loss, training, models=2)
    moved = torch.stack(seen).diff(dim=0).abs()
    assert len(seen) == 60
    assert bool((moved[:12, 0] > 0.09).all())
    assert bool((moved[12:, 0] == 0).all())
    assert bool((moved[:, 1] > 0.09).all())


def test_training_ends_when_every_model_has_stopped() -> None:
    loss, seen = flat_loss([1.0, 2.0])
    training = Training(steps=500, patience=12)
    train({"p": torch.zeros(2, dtype=torch.float64)}, loss, training, models=2)
    assert len(seen) <= 20  # looked at every ten steps


def test_plateau_keeps_the_best_parameters_and_onecycle_the_last() -> None:
    def valley(parameters: Parameters, step: int) -> Tensor:
        """Falls until p = 0.5, and from there the gradient leads uphill."""
        p = parameters["p"]
        value = (p.detach() - 0.5).abs()
        return value - p + p.detach()

    start = {"p": torch.zeros(1, dtype=torch.float64)}
    best = train(start, valley, Training(steps=40, learning_rate=0.05), models=1)
    assert best["p"].item() == pytest.approx(0.5, abs=1e-3)
    last = train(
        start, valley, Training(steps=40, learning_rate=0.05, schedule="onecycle"), models=1
    )
    assert last["p"].item() > 0.7


def test_a_model_that_diverges_keeps_its_best_and_harms_no_other() -> None:
    def loss(parameters: Parameters, step: int) -> Tensor:
        p = parameters["p"]
        return torch.stack([p[0] if step < 5 else p[0] * math.nan, (p[1] - 3.0).square()])

    start = {"p": torch.zeros(2, dtype=torch.float64)}
    trained = train(start, loss, Training(steps=400, learning_rate=0.05), models=2)["p"]
    assert trained[0].item() == pytest.approx(-0.2, rel=1e-4)
    assert trained[1].item() == pytest.approx(3.0, abs=1e-2)


def test_no_steps_change_nothing() -> None:
    start = initial(2)
    assert_close(train(start, fit, Training(steps=0), models=2), start, rtol=0, atol=0)


def test_a_pause_sees_parameters_without_gradients_before_each_step() -> None:
    seen: list[tuple[int, bool]] = []

    def pause(parameters: Parameters, step: int) -> None:
        seen.append((step, any(value.requires_grad for value in parameters.values())))

    train(initial(1), fit, Training(steps=3), models=1, pause=pause)
    assert seen == [(0, False), (1, False), (2, False)]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"steps": -1}, "range"),
        ({"patience": 0}, "range"),
        ({"decay_after": 0}, "range"),
        ({"weight_decay": -0.1}, "range"),
        ({"weight_decay": (1.0, -0.1)}, "range"),
        ({"weight_decay": ()}, "range"),
        ({"learning_rate": 0.0}, "range"),
        ({"learning_rate": math.nan}, "range"),
        ({"decay": 0.0}, "range"),
        ({"decay": 1.5}, "range"),
        ({"schedule": "cosine"}, "unknown-name"),
    ],
)
def test_what_does_not_fit_is_refused(wrong: dict[str, Any], code: str) -> None:
    with raises(InvalidInput, code):
        Training(**wrong)


def test_gradients_may_come_in_any_layout() -> None:
    gradient = torch.randn(4, 3, 2, generator=generator(0)).permute(2, 1, 0)
    assert not gradient.is_contiguous()
    values = [torch.zeros(2, 3, 4) for _ in range(2)]
    FusedAdam(values[:1], Training(), 1).step([gradient], 0.1)
    FusedAdam(values[1:], Training(), 1).step([gradient.contiguous()], 0.1)
    assert torch.equal(*values)
    torch.testing.assert_close(values[0], -0.1 * gradient.sign(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("schedule", ["onecycle", "plateau"])
def test_several_weight_decays_take_turns_over_the_models(schedule: Any) -> None:
    start = initial(4)
    together = train(start, fit, Training(30, 0.05, schedule, weight_decay=(1.0, 0.0)), models=4)
    for first, decay in ((0, 1.0), (1, 0.0)):
        own = {name: value[first::2] for name, value in start.items()}
        alone = train(own, fit, Training(30, 0.05, schedule, weight_decay=decay), models=2)
        for name, value in alone.items():
            torch.testing.assert_close(together[name][first::2], value)


@pytest.mark.parametrize("schedule", ["onecycle", "plateau"])
def test_parameters_may_come_in_any_layout(schedule: Any) -> None:
    start = torch.randn(4, 3, 2, generator=generator(1)).permute(2, 1, 0)
    goal = torch.randn(2, 3, 4, generator=generator(2))
    assert not start.is_contiguous()

    def loss(parameters: Parameters, step: int) -> Tensor:
        return (parameters["p"] - goal).square().sum((1, 2))

    wanted = Training(20, 0.1, schedule)
    found, expected = (
        train({"p": value}, loss, wanted, models=2)["p"] for value in (start, start.contiguous())
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("schedule", ["plateau", "onecycle"])
def test_the_unit_of_the_loss_does_not_matter(schedule: Any) -> None:
    training = Training(steps=60, learning_rate=0.05, schedule=schedule)
    found = train(initial(2), fit, training, models=2)
    small = train(initial(2), lambda p, step: 2.0**-60 * fit(p, step), training, models=2)
    assert bool((fit(small, 0) < 0.5 * fit(initial(2), 0)).all())
    for name, value in found.items():
        torch.testing.assert_close(small[name], value, rtol=1e-4, atol=1e-4)
