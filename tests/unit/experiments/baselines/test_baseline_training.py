"""How baselines train: members alone or stacked, penalties, multipliers and corrections."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from baseline_cases import QUICK, SETTINGS, data
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.errors import InvalidInput, InvalidSettings
from experiments.baselines import METHODS, BaselineData, BaselineSettings
from experiments.baselines.enforcing import (
    augmented_terms,
    corrected_logits,
    correction,
    next_multipliers,
    squared_violations,
)
from experiments.baselines.rule import LabelRule
from experiments.baselines.stacks import Model, Stack
from raising import raises

BATCHES = Training(steps=60, learning_rate=2e-2, schedule="onecycle")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("rule", "threshold"), [("margin", 0.05), ("probability", 0.6)])
def test_every_baseline_learns_separable_blobs(name: str, rule: str, threshold: float) -> None:
    easy = data(8, spread=0.1)
    settings = replace(SETTINGS, rule=rule, threshold=threshold, hidden=6, weight=0.01)  # type: ignore[arg-type]
    result = METHODS[name].train(easy, settings, seed=2)
    scores = result.predict(easy.inputs)
    assert scores.shape == (24, 3)
    assert scores.dtype == np.float64
    assert (scores.argmax(1) == easy.labels).mean() > 0.9
    if rule == "probability":
        np.testing.assert_allclose(scores.sum(1), 1.0)


@pytest.mark.parametrize("rule", ["margin", "probability"])
def test_average_is_the_mean_of_single_members(rule: str) -> None:
    blurred = data(6)
    settings = replace(SETTINGS, rule=rule, threshold=0.6, members=3)  # type: ignore[arg-type]
    average = METHODS["average"].train(blurred, settings, seed=4)
    singles = METHODS["single"].fit_all(blurred, [settings], 4, 3)
    mean = np.mean([single.predict(blurred.inputs) for single in singles], axis=0)
    np.testing.assert_allclose(average.predict(blurred.inputs), mean, atol=1e-4)


def test_candidates_of_a_stack_train_as_if_alone() -> None:
    blurred = data(6)
    weak = replace(SETTINGS, weight=0.01, training=replace(QUICK, steps=40))
    strong = replace(weak, weight=1.0)
    together = METHODS["penalty"].fit_all(blurred, [weak, strong], 5, 1)
    for settings, fitted in zip([weak, strong], together, strict=True):
        alone = METHODS["penalty"].train(blurred, settings, seed=5)
        np.testing.assert_allclose(
            fitted.predict(blurred.inputs), alone.predict(blurred.inputs), atol=1e-4
        )


def test_wide_network_has_as_many_neurons_as_all_members() -> None:
    result = METHODS["wide"].train(data(4), replace(SETTINGS, hidden=4, members=5), seed=0)
    assert result.fitted.members.architecture.hidden == (20,)


@pytest.mark.parametrize("name", METHODS)
def test_finished_members_hold_their_blurred_first_layer(name: str) -> None:
    made = np.random.default_rng(0)
    labels = np.arange(12) % 3
    pictures = made.random((12, 36))
    squares = BaselineData(pictures, labels, pictures, labels, 3)
    brief = replace(SETTINGS, training=replace(QUICK, steps=5), members=2, blur=1.5, gain=2.0)
    result = METHODS[name].train(squares, brief, seed=1)
    assert result.fitted.members.architecture.input_size == 36
    assert METHODS[name].used(brief)["blur"] == 1.5

    def roughness(settings: BaselineSettings) -> float:
        first = METHODS[name].train(squares, settings, seed=1).fitted.members.parameters["weight_0"]
        layers = first.reshape(-1, 6, 6)
        return float(layers.diff(dim=-1).abs().mean() / layers.abs().mean())

    assert roughness(brief) < 0.6 * roughness(replace(brief, blur=0.0))
    with raises(InvalidInput, "invalid-input", "pictures"):
        METHODS[name].train(data(4), brief, seed=1)


def test_training_sees_the_blurred_layer_that_is_kept() -> None:
    labels = np.arange(12) % 3
    pictures = np.random.default_rng(0).random((12, 36))
    squares = BaselineData(pictures, labels, pictures, labels, 3)
    stack = Stack(squares, [Model(replace(SETTINGS, blur=1.5, gain=2.0), 0)], seed=1)
    logits = stack.hard_logits(stack.parameters)
    kept = stack.members().outputs(torch.as_tensor(pictures))
    np.testing.assert_allclose(logits.detach(), kept, atol=1e-5)


def test_of_several_starts_the_best_on_training_data_is_kept() -> None:
    blurred = data(8, spread=0.6)
    brief = replace(SETTINGS, training=replace(QUICK, steps=30))
    alone = METHODS["single"].fit_all(blurred, [brief], 6, 4)
    merits = []
    for fitted in alone:
        scores = fitted.predict(blurred.inputs)
        kept = int(brief.label_rule.satisfied(scores, blurred.labels).sum())
        own = scores[np.arange(len(scores)), blurred.labels]
        merits.append((kept, float((own - np.log(np.exp(scores).sum(1))).mean())))
    best = alone[merits.index(max(merits))]
    assert best is not alone[0]
    kept_one = METHODS["single"].train(blurred, replace(brief, starts=4), seed=6)
    np.testing.assert_array_equal(kept_one.predict(blurred.inputs), best.predict(blurred.inputs))


def test_a_warm_up_ignores_the_rule() -> None:
    brief = replace(SETTINGS, training=replace(QUICK, steps=20), weight=10.0)
    settings = replace(brief, warm_up=0.5)
    stack = Stack(data(4), [Model(settings, 0)], seed=1)
    left = stack.warm_up()
    assert left.steps == 10
    half = replace(brief, training=replace(QUICK, steps=10))
    single = METHODS["single"].train(data(4), half, seed=1)
    inputs = torch.as_tensor(data(4).inputs)
    np.testing.assert_allclose(
        stack.members().outputs(inputs)[0], single.predict(inputs), rtol=0, atol=1e-12
    )


def test_penalty_has_no_gradient_where_the_rule_holds() -> None:
    stack = Stack(data(2), [Model(replace(SETTINGS, threshold=0.5), 0)], seed=0)
    own = torch.nn.functional.one_hot(stack.hard_labels, 3).float()
    logits = own.unsqueeze(0).requires_grad_()
    (gradient,) = torch.autograd.grad(squared_violations(stack, logits).sum(), logits)
    assert gradient.abs().max() == 0
    short = (0.4 * own).unsqueeze(0).requires_grad_()
    penalty = squared_violations(stack, short)
    assert penalty.item() == pytest.approx(6 * 0.1**2)
    (gradient,) = torch.autograd.grad(penalty.sum(), short)
    assert (gradient.gather(-1, stack.hard_labels.view(1, -1, 1)) < 0).all()


def test_penalty_raises_the_share_of_kept_rules() -> None:
    """Rules that contradict the training labels: only a method that knows them can keep them."""
    plain = data(8, spread=0.1)
    moved = replace(plain, hard_inputs=plain.inputs[:3], hard_labels=np.array([1, 1, 1]))
    kept = {}
    for name in ("single", "penalty", "lagrangian"):
        settings = replace(SETTINGS, hidden=8, weight=10.0, target=0.5)
        result = METHODS[name].train(moved, settings, seed=1)
        scores = result.predict(moved.hard_inputs)
        kept[name] = settings.label_rule.satisfied(scores, moved.hard_labels).mean()
    assert kept["single"] == 0
    assert kept["penalty"] == 1
    assert kept["lagrangian"] == 1


def test_multipliers_grow_only_where_violated() -> None:
    shortfall = torch.tensor([[0.5, -0.2, -3.0, 0.0]])
    before = torch.tensor([[0.0, 1.0, 1.0, 2.0]])
    after = next_multipliers(shortfall, before, torch.tensor([2.0]))
    assert after.tolist() == [[1.0, pytest.approx(0.6), 0.0, 2.0]]


@hypothesis_settings(deadline=None)
@given(seed=st.integers(0, 10_000))
def test_gradient_of_the_augmented_terms_is_the_next_multiplier(seed: int) -> None:
    made = torch.Generator().manual_seed(seed)
    shortfall = torch.randn(2, 5, generator=made, dtype=torch.float64, requires_grad=True)
    multipliers = torch.rand(2, 5, generator=made, dtype=torch.float64)
    weights = torch.tensor([0.1, 10.0], dtype=torch.float64)
    terms = augmented_terms(shortfall, multipliers, weights)
    (gradient,) = torch.autograd.grad(terms.sum(), shortfall)
    torch.testing.assert_close(gradient, next_multipliers(shortfall.detach(), multipliers, weights))


def test_lagrangian_refuses_no_weight() -> None:
    with raises(InvalidSettings, "invalid-settings"):
        METHODS["lagrangian"].train(data(2), replace(SETTINGS, weight=0.0), seed=0)


@pytest.mark.parametrize("kind", ["margin", "probability"])
@hypothesis_settings(deadline=None)
@given(seed=st.integers(0, 10_000))
def test_one_correction_is_a_gradient_step(kind: str, seed: int) -> None:
    rule = LabelRule(kind, 0.9)  # type: ignore[arg-type]
    made = torch.Generator().manual_seed(seed)
    logits = torch.randn(4, 5, generator=made, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(5, (4,), generator=made)
    violation = rule.violations(logits, labels).square().sum()
    (gradient,) = torch.autograd.grad(violation, logits)
    stepped = corrected_logits(rule, logits, labels, steps=1, rates=0.1)
    torch.testing.assert_close(stepped, logits - 0.1 * gradient)


def test_full_steps_restore_a_margin_and_leave_kept_rules() -> None:
    scores = np.array([[0.0, 1.0, -5.0], [3.0, 0.0, 0.0]])
    correct = correction(BaselineSettings(threshold=0.5, correction_rate=0.25))
    better = correct(scores, np.array([0, 0]))
    np.testing.assert_allclose(better, [[0.75, 0.25, -5.0], [3.0, 0.0, 0.0]])


def test_corrected_probabilities_stay_probabilities() -> None:
    scores = np.array([[0.2, 0.8, 0.0], [0.7, 0.2, 0.1]])
    chosen = BaselineSettings(rule="probability", threshold=0.6, correction_rate=1.0)
    better = correction(chosen)(scores, np.array([0, 0]))
    np.testing.assert_allclose(better.sum(1), 1.0)
    assert better[0, 0] > 0.2
    np.testing.assert_allclose(better[1], scores[1])


def test_augmented_copies_join_the_loss() -> None:
    """Copies far from all training points decide there, and only if they are given."""
    plain = data(6, spread=0.1)
    far = np.tile([4.0, 4.0], (40, 1))
    augmented = replace(plain, soft_inputs=far, soft_labels=np.full(40, 2))
    answers = {}
    for name, used in (("plain", plain), ("augmented", augmented)):
        settings = replace(SETTINGS, hidden=8, training=BATCHES, batch=32, weight=0.01)
        answers[name] = {
            method: int(METHODS[method].train(used, settings, seed=0).predict(far[:1]).argmax())
            for method in METHODS
        }
    assert set(answers["augmented"].values()) == {2}
    assert 2 not in answers["plain"].values()


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"batch": 16}, "onecycle"),
        ({"weight": -1.0}, "weight"),
        ({"nu": 0.0}, "nu"),
        ({"warm_up": 1.0}, "warm_up"),
        ({"members": 0, "rounds": 0}, "rounds"),
        ({"rule": "probability", "threshold": 0.5, "target": 2.0}, "threshold"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object], name: str) -> None:
    with raises(InvalidSettings, "invalid-settings", name):
        BaselineSettings(**wrong)  # type: ignore[arg-type]
