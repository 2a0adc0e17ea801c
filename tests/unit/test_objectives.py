"""Losses against NumPy, the three objectives, batches, and what they refuse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.objectives import (
    LOSSES,
    Epigraph,
    Objective,
    Supervised,
    compute_log_loss,
    get_loss_function,
)
from cg4ai.records import Array, IntArray
from cg4ai.rules import Box
from cg4ai.seeds import derive_seed, generator
from raising import raises

RNG = np.random.default_rng(1)
X = RNG.normal(size=(7, 2))
Y = RNG.normal(size=(7, 3))
LABELS = RNG.integers(0, 3, 7)
OUTPUTS = RNG.normal(size=(2, 7, 3))
PROBABILITIES = np.exp(OUTPUTS) / np.exp(OUTPUTS).sum(-1, keepdims=True)


def value(name: str, outputs: Array, targets: Any) -> Array:
    return LOSSES[name](torch.as_tensor(outputs), torch.as_tensor(targets)).numpy()


def test_losses_agree_with_their_formulas() -> None:
    np.testing.assert_allclose(value("squared", OUTPUTS, Y), ((OUTPUTS - Y) ** 2).sum(-1))
    np.testing.assert_allclose(value("absolute", OUTPUTS, Y), np.abs(OUTPUTS - Y).sum(-1))
    picked = PROBABILITIES[:, np.arange(7), LABELS]
    np.testing.assert_allclose(value("log_loss", PROBABILITIES, LABELS), -np.log(picked))
    np.testing.assert_allclose(value("cross_entropy", OUTPUTS, LABELS), -np.log(picked))
    np.testing.assert_array_equal(value("none", OUTPUTS, LABELS), np.zeros((2, 7)))


def test_log_loss_is_finite_convex_and_continuous_at_zero_probability() -> None:
    p = torch.tensor([1e-3, 2e-12, 1e-12, 5e-13, 0.0, -1e-6], dtype=torch.float64)
    outputs = torch.stack([p, 1 - p], dim=-1).requires_grad_()
    losses = compute_log_loss(outputs, torch.zeros(6))
    assert bool(torch.isfinite(losses).all())
    assert losses[2].item() == pytest.approx(-math.log(1e-12), rel=1e-9)
    slope = torch.autograd.grad(losses.sum(), outputs)[0][:, 0]
    assert bool((slope < 0).all())
    assert bool((slope.diff() <= 1e-3).all())  # steeper the smaller the probability
    np.testing.assert_allclose(slope[3:], -1e12)


def test_losses_by_name_or_own() -> None:
    def own(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.sum(-1)

    assert get_loss_function(own) is own
    assert get_loss_function("squared") is LOSSES["squared"]
    with raises(InvalidInput, "unknown-name", "squared"):
        get_loss_function("square")


def test_costs_charge_each_member_its_own_block() -> None:
    weights = RNG.random(7)
    objective = Supervised(X, Y, sample_weight=weights)
    positions = np.array([2, 0])
    outputs = OUTPUTS[..., :2]
    expected = [
        np.average(((own - Y[:, positions]) ** 2).sum(1), weights=weights) for own in outputs
    ]
    costs = objective.costs(torch.as_tensor(outputs), positions)
    np.testing.assert_allclose(costs.numpy(), expected)


def test_the_costs_of_all_blocks_add_up_to_the_value_of_the_joint_outputs() -> None:
    objective = Supervised(X, Y)
    batch = objective.batch(None, generator(0), device="cpu", dtype=torch.float64)
    joint = torch.as_tensor(OUTPUTS)
    parts = [objective.costs(joint[..., p], p) for p in (np.array([1]), np.array([0, 2]))]
    np.testing.assert_allclose(
        torch.stack(parts).sum(0).numpy(), objective.value(batch, joint).numpy()
    )


def test_a_weight_of_two_means_two_copies() -> None:
    weights = np.array([1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    twice = np.array([0, 1, 1, 2, 3, 4, 5, 6])
    weighed = Supervised(X, LABELS, "cross_entropy", sample_weight=weights)
    copied = Supervised(X[twice], LABELS[twice], "cross_entropy")
    for objective, outputs in ((weighed, OUTPUTS), (copied, OUTPUTS[:, twice])):
        batch = objective.batch(None, generator(0), device="cpu", dtype=torch.float64)
        tensor = torch.as_tensor(outputs)
        np.testing.assert_allclose(
            objective.value(batch, tensor), objective.costs(tensor, np.arange(3))
        )
    np.testing.assert_allclose(
        weighed.costs(torch.as_tensor(OUTPUTS), np.arange(3)),
        copied.costs(torch.as_tensor(OUTPUTS[:, twice]), np.arange(3)),
    )


def test_batches_draw_from_data_and_soft_data_together() -> None:
    soft = (X[:3] + 100.0, LABELS[:3])
    objective = Supervised(X, LABELS, "cross_entropy", soft=soft, sample_weight=np.full(7, 2.0))
    whole = objective.batch(None, generator(0), device="cpu", dtype=torch.float32)
    assert whole.inputs.shape == (7, 2)  # the master's objective has no soft data
    assert whole.inputs.dtype == torch.float32
    assert whole.targets is not None
    assert whole.targets.dtype == torch.int64
    drawn = [
        objective.batch(6, made, device="cpu", dtype=torch.float64)
        for made in [generator(0)]
        for _ in range(50)
    ]
    assert all(len(batch.inputs) == 6 for batch in drawn)
    shares = [float((batch.inputs[:, 0] > 50).double().mean()) for batch in drawn]
    assert 0.15 < np.mean(shares) < 0.45  # three of ten
    weights = torch.cat([batch.weights for batch in drawn if batch.weights is not None])
    assert set(weights.tolist()) == {1.0, 2.0}
    again = objective.batch(6, generator(0), device="cpu", dtype=torch.float64)
    np.testing.assert_array_equal(again.inputs, drawn[0].inputs)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"loss": "squarred"}, "unknown-name"),
        ({"kind": "mixed"}, "unknown-name"),
        ({"inputs": X[:, 0]}, "shape"),
        ({"inputs": np.empty((0, 2)), "targets": np.empty((0, 3))}, "shape"),
        ({"targets": Y[:4]}, "shape"),
        ({"targets": Y[:, 0]}, "shape"),
        ({"sample_weight": np.ones(3)}, "shape"),
        ({"sample_weight": np.full(7, -1.0)}, "shape"),
        ({"sample_weight": np.zeros(7)}, "shape"),
        ({"sample_weight": np.full(7, np.nan)}, "shape"),
    ],
)
def test_data_that_do_not_fit_are_refused(changes: dict[str, Any], code: str) -> None:
    with raises(InvalidInput, code):
        Supervised(**({"inputs": X, "targets": Y} | changes))


class Pieces:
    """Each output times the first input, and their sum."""

    count = 4

    def values(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        scaled = inputs[:, :1] * outputs
        return torch.cat([scaled, scaled.sum(-1, keepdim=True)], dim=-1)

    def coefficients(self, inputs: Array, which: IntArray) -> Array:
        table = np.concatenate([np.eye(3), np.ones((1, 3))])
        return inputs[:, :1] * table[which]


def test_an_epigraph_is_the_mean_of_the_largest_piece() -> None:
    objective = Epigraph(X, Pieces())
    batch = objective.batch(None, generator(0), device="cpu", dtype=torch.float64)
    scaled = X[:, :1] * OUTPUTS[0]
    expected = np.maximum(scaled.max(1), scaled.sum(1)).mean()
    assert objective.value(batch, torch.as_tensor(OUTPUTS[0])).item() == pytest.approx(expected)


def test_epigraph_batches_are_fresh_where_there_is_a_sampler() -> None:
    def sampler(count: int, made: torch.Generator) -> Tensor:
        return torch.rand(count, 2, generator=made, dtype=torch.float64)

    made = generator(3)
    fresh = Epigraph(X, Pieces(), sampler)
    first = fresh.batch(5, made, device="cpu", dtype=torch.float32)
    second = fresh.batch(5, made, device="cpu", dtype=torch.float32)
    assert first.inputs.dtype == torch.float32
    assert not torch.equal(first.inputs, second.inputs)
    drawn = Epigraph(X, Pieces()).batch(5, made, device="cpu", dtype=torch.float64)
    assert all(any(np.array_equal(x, known) for known in X) for x in drawn.inputs.numpy())


def test_seeds_differ_by_run_iteration_and_job_and_repeat() -> None:
    seeds = {
        derive_seed(seed, iteration, job)
        for seed in (0, 1)
        for iteration in (0, 1)
        for job in ("pricing 0 0", "pricing 0 1", "cut 0 0")
    }
    assert len(seeds) == 12
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(5, 2, "cut") == derive_seed(5, 2, "cut")
    assert torch.equal(torch.rand(3, generator=generator(4)), torch.rand(3, generator=generator(4)))


def quarter_distance(outputs: Tensor, inputs: Tensor) -> Tensor:
    return (outputs - inputs.sum(-1, keepdim=True)).square().sum(-1) / 4


def test_an_objective_without_labels_scores_outputs_by_their_inputs() -> None:
    objective = Objective(X, quarter_distance)
    objective.check(3)
    expected = ((OUTPUTS - X.sum(1)[None, :, None]) ** 2).sum(-1).mean(-1) / 4
    outputs = torch.as_tensor(OUTPUTS)
    everything = objective.batch(None, generator(0), device="cpu", dtype=torch.float64)
    np.testing.assert_allclose(objective.value(everything, outputs), expected)
    np.testing.assert_allclose(objective.costs(outputs, np.arange(3)), expected)
    assert objective.kind == "mixture"


def test_inputs_of_an_objective_may_be_drawn_from_a_region_anew_at_every_step() -> None:
    objective = Objective(Box([2.0, 5.0], [3.0, 6.0]), quarter_distance, count=50)
    assert objective.inputs.shape == (50, 2)
    made = generator(1)
    first, second = (
        objective.batch(8, made, device="cpu", dtype=torch.float32).inputs for _ in range(2)
    )
    assert not torch.equal(first, second)
    assert bool(((first >= torch.tensor([2.0, 5.0])) & (first <= torch.tensor([3.0, 6.0]))).all())


def test_losses_that_are_not_convex_are_averaged_over_members() -> None:
    objective = Objective(X, lambda outputs, inputs: outputs.sin().sum(-1))
    objective.check(3)
    assert objective.kind == "average"
    with raises(InvalidInput, "type"):
        Objective(X, "squared")  # type: ignore[arg-type]
