"""Rows drawn at a training step stand, on average, for all rows; few rows are not drawn at all."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pricing_requests import make_request, point_rows

from cg4ai.colgen.pricing.gradient import losses
from cg4ai.colgen.pricing.gradient.cuda_graphs import build_segmented_training
from cg4ai.colgen.pricing.gradient.losses import Trainer
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.rows import (
    SUMMED,
    RowDraws,
    compute_chances,
    draw_indices,
    prepare_rows,
)
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.layout import Layout
from cg4ai.members import NetworkArchitecture
from cg4ai.objectives import Supervised
from cg4ai.rules import Margin, Rate
from cg4ai.rules.rows import RowSet
from cg4ai.seeds import generator

MADE = np.random.default_rng(0)
INPUTS = MADE.normal(size=(40, 2))
LABELS = np.arange(40) % 3
NETWORK = NetworkArchitecture(2, 3, hidden=(4,))


@given(
    st.lists(st.sampled_from([0.0, 1e-9, 0.1, 0.5, 1.0, 3.0, 1e6]), min_size=1, max_size=30),
    st.integers(1, 30),
)
def test_chances_are_proportional_up_to_certainty_and_sum_to_the_count(weights, count):
    weights = np.array(weights)
    chance = compute_chances(weights, count)
    positive = np.count_nonzero(weights)
    assert chance.sum() == pytest.approx(min(count, positive), rel=1e-9)
    assert np.all((chance >= 0) & (chance <= 1))
    assert np.all((chance > 0) == (weights > 0))
    uncertain = (chance < 1) & (chance > 0)
    if uncertain.any():
        factor = chance[uncertain] / weights[uncertain]
        np.testing.assert_allclose(factor, factor[0], rtol=1e-9)
        assert np.all(weights[chance >= 1] * factor[0] >= 1 - 1e-9)


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_each_draw_has_different_rows_as_many_as_the_chances_sum_to(seed):
    chance = compute_chances(np.random.default_rng(seed).random(50) ** 4, 7)
    picked = draw_indices(chance, generator(seed))
    assert len(picked) == 7
    assert len(np.unique(picked)) == 7
    assert set(np.flatnonzero(chance >= 1)) <= set(picked)


def test_rows_are_drawn_as_often_as_their_chances_say():
    chance = compute_chances(np.array([5.0, 1.0, 0.5, 0.5, 0.25, 0.75]), 3)
    made = generator(1)
    count = np.zeros(6)
    for _ in range(4000):
        count[draw_indices(chance, made)] += 1
    assert count[0] == 4000
    spread = np.sqrt(chance * (1 - chance) / 4000)
    assert np.all(np.abs(count / 4000 - chance) <= 4 * spread)


def rows_of_many_kinds():
    """Concave rows in two batches, linear ones of one input each, and one over all inputs."""
    margin = Margin(INPUTS, LABELS, 0.1, form="member")
    rate = Rate.budget(INPUTS, mean_at_least=0.2)
    for requirement in (margin, rate):
        requirement.check(2, 3)
    every = margin.rows(0)
    simple = replace(
        point_rows(INPUTS[:12], MADE.normal(size=(12, 3)), MADE.normal(size=12)),
        index=np.array([3, 1, 1, 0, 2, 5, 4, 7, 6, 8, 9, 11]),
    )
    return RowSet(
        Layout.single(3),
        [
            every.take(np.arange(15)),
            replace(simple, requirement=1),
            replace(rate.rows(0), requirement=2),
            every.take(np.arange(15, 40)),
        ],
    )


def full_terms(pricer, request, parameters):
    """The hinge over all rows and the sum of dual x value, from the formulas, row by row."""
    hinge = priced = 0.0
    weights = request.guide / request.guide.sum()
    starts = np.cumsum([0, *(len(batch) for batch in request.rows.batches)])
    for batch, start in zip(request.rows.batches, starts, strict=False):
        outputs = NETWORK.forward(parameters, torch.as_tensor(batch.inputs)).reshape(
            pricer.restarts, pricer.group, -1, 3
        )
        values = batch.values(outputs).mean(1)
        for j in range(len(batch)):
            lacking = batch.bounds[j] + pricer.headroom - values[:, j]
            hinge = hinge + pricer.row_weight * weights[start + j] * lacking.clamp_min(0)
            priced = priced - request.guide[start + j] * values[:, j]
    return hinge, priced


@pytest.fixture(autouse=True)
def in_double_precision(monkeypatch):
    monkeypatch.setattr(losses, "TRAINED_IN", torch.float64)


def trainer_of(pricer, rows, guide):
    objective = Supervised(INPUTS, LABELS, "none", "mixture")
    request = make_request(objective, rows, duals=guide, loss_weight=0.0)
    return Trainer(pricer, request, generator(5)), request


PRICER = GradientPricer(
    NETWORK,
    restarts=2,
    group=3,
    training=Training(10, 0.01, "onecycle"),
    row_limit=10,
    row_weight=3.0,
    headroom=0.3,
)


@pytest.mark.slow
@pytest.mark.guard
@pytest.mark.parametrize("finish", [0.0, 0.5])
def test_the_mean_over_draws_is_the_loss_over_all_rows(finish):
    rows = rows_of_many_kinds()
    guide = np.random.default_rng(2).random(len(rows)) ** 3
    pricer = replace(PRICER, finish=finish)
    trainer, request = trainer_of(pricer, rows, guide)
    assert trainer.draws is not None
    parameters = {
        name: value.to(torch.float64) for name, value in NETWORK.initialise(6, generator(3)).items()
    }
    hinge, priced = full_terms(pricer, request, parameters)
    for term, expected in (
        (trainer.compute_guided_loss, hinge),
        (trainer.compute_reduced_cost, priced),
    ):
        found = torch.stack([term(parameters, step) for step in range(3000)])
        error = found.std(0) / np.sqrt(len(found))
        assert torch.all(error > 0)
        assert torch.all((found.mean(0) - expected).abs() < 4 * error)
    sizes = [
        sum(len(part.needed) for part in trainer.draws.draw_rows(trainer.made)) for _ in range(5)
    ]
    assert sizes == [10] * 5


def test_up_to_the_limit_nothing_is_drawn():
    rows = rows_of_many_kinds()
    guide = np.random.default_rng(2).random(len(rows))
    parameters = {
        name: value.to(torch.float64) for name, value in NETWORK.initialise(6, generator(3)).items()
    }
    losses = []
    for pricer in (replace(PRICER, row_limit=len(rows)), replace(PRICER, row_limit=10_000)):
        trainer, request = trainer_of(pricer, rows, guide)
        before = trainer.made.get_state()
        losses.append(trainer.compute_guided_loss(parameters, 0))
        assert trainer.draws is None
        assert torch.equal(before, trainer.made.get_state())
        torch.testing.assert_close(losses[-1], full_terms(pricer, request, parameters)[0])
    assert torch.equal(*losses)


@pytest.mark.parametrize(
    "training", [{"training": Training(10, 0.01, "plateau")}, {"attack_every": 5}]
)
def test_with_plateaus_or_attacks_those_of_most_weight_stay(training):
    rows = rows_of_many_kinds()
    trainer, _ = trainer_of(replace(PRICER, **training), rows, np.arange(len(rows)) + 1.0)
    assert trainer.draws is None
    assert sum(len(entry.needed) for entry in trainer.rows) == 10


def test_graphs_of_fixed_shape_are_not_for_drawn_rows():
    rows = RowSet(Layout.single(3), [point_rows(INPUTS, np.ones((40, 3)), np.zeros(40))])
    objective = Supervised(INPUTS, LABELS, "cross_entropy", "average")
    request = make_request(objective, rows, duals=np.ones(40))
    found = []
    for limit in (10, 40):
        pricer = replace(PRICER, row_limit=limit, batch_size=8)
        trainer = Trainer(pricer, request, generator(5))
        found.append(build_segmented_training(trainer, 5, 10))
    assert found[0] is None
    assert found[1] is not None


def test_concave_rows_of_one_requirement_become_one_batch():
    rows = rows_of_many_kinds()
    weights = [np.ones(len(batch)) for batch in rows.batches]
    draws = RowDraws(
        list(zip(rows.batches, weights, weights, strict=True)),
        10,
        ready=lambda entry: prepare_rows(entry, torch.as_tensor, headroom=0.0, weight=1.0),
        hinge_only=True,
    )
    assert [len(part.needed) for part in draws.single] == [12, 40]
    assert [len(part.needed) for part in draws.always] == [1]
    np.testing.assert_allclose(draws.single[1].inputs, INPUTS)
    second: Any = draws.single[1].rows
    np.testing.assert_array_equal(second.positions, np.arange(40))


def test_rows_over_many_inputs_are_in_every_step():
    rates = [Rate.budget(INPUTS[k:], mean_at_least=0.2) for k in range(3)]
    batches = []
    for number, rate in enumerate(rates):
        rate.check(2, 3)
        batches.append(rate.rows(number))
    trainer, request = trainer_of(
        replace(PRICER, row_limit=1, finish=0.0), RowSet(Layout.single(3), batches), [1.0, 2.0, 3.0]
    )
    parameters = {
        name: value.to(torch.float64) for name, value in NETWORK.initialise(6, generator(3)).items()
    }
    expected, _ = full_terms(trainer.pricer, request, parameters)
    torch.testing.assert_close(trainer.compute_guided_loss(parameters, 0), expected)


def test_training_with_drawn_rows_meets_them():
    """Forty rows, four at a step: members end where each row is met."""
    rows = RowSet(
        Layout.single(3),
        [point_rows(INPUTS, np.tile([1.0, 0.0, 0.0], (40, 1)), np.full(40, 2.0))],
    )
    objective = Supervised(INPUTS, LABELS, "none", "mixture")
    request = make_request(objective, rows, duals=np.random.default_rng(4).random(40))
    pricer = GradientPricer(
        NETWORK,
        restarts=1,
        finish=0.0,
        row_limit=4,
        headroom=0.2,
        training=Training(600, 0.05, "onecycle"),
    )
    members = pricer.price(request).members
    assert members is not None
    assert float(members.outputs(torch.as_tensor(INPUTS))[0, :, 0].min()) > 2.0


def test_a_sum_over_many_inputs_is_drawn_without_bias():
    made = np.random.default_rng(3)
    count = 3 * SUMMED
    rate = Rate(made.normal(size=(count, 2)), np.arange(count) % 7 > 0, output=0, tolerance=0.1)
    rate.check(2, 1)
    rows = rate.rows(0)
    entry = prepare_rows((rows, np.ones(2), np.ones(2)), torch.as_tensor, headroom=0.0, weight=1.0)
    outputs = (entry.inputs[:, :1] ** 2 + entry.inputs[:, 1:]).double()
    exact = entry.values(outputs)
    seed, found = generator(0), []
    for _ in range(300):
        few = entry.sample_inputs(seed)
        assert len(few.inputs) == SUMMED
        found.append(few.values((few.inputs[:, :1] ** 2 + few.inputs[:, 1:]).double()))
    drawn = torch.stack(found)
    error = (drawn.mean(0) - exact).abs() / (drawn.std(0) / len(drawn) ** 0.5)
    assert float(error.max()) < 4.0
    torch.testing.assert_close(rows.values(outputs), exact)
