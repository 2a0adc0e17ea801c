"""Problems with rules over regions: members are trained through a shield, and keep the rules."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from cg4ai import Objective, Problem, Settings, solve
from cg4ai.colgen.pricing.exact.affine import AffinePricer
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.compile.shield import shield_members
from cg4ai.ensemble.saved import load
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import NetworkArchitecture, ShieldedMembers
from cg4ai.members.shielded import ShieldedArchitecture
from cg4ai.objectives import Supervised
from cg4ai.rules import Box, Linear, Probability
from raising import raises

BOX = Box([-1.0, -1.0], [1.0, 1.0])
X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
Y = np.column_stack([2 * X[:, 0], X[:, 1] ** 2])
CAP = Linear(BOX, [1.0, 0.0], 1.0, "<=", name="cap")
SHORT = Settings(iteration_limit=4, seed=3)


def pricer(steps=300, output="linear"):
    shape = NetworkArchitecture(2, 2, hidden=(16,), skip=True, output=output)
    training = Training(steps, learning_rate=0.02, schedule="onecycle")
    return GradientPricer(shape, restarts=1, training=training, finish=0.0, blend=1.0)


def regression(*rules, pricers=None, **more):
    return Problem(
        Supervised(X, Y, "squared", "mixture"),
        rules,
        pricers or [pricer()],
        Layout.single(2),
        **more,
    )


def compiled(problem: Problem, guarantee: Any = "every input") -> Any:
    return shield_members(CompiledProblem.from_problem(problem, guarantee))


def test_the_mixture_keeps_the_rule_at_every_input_and_says_so(tmp_path):
    result = solve(regression(CAP), SHORT)
    assert result.audits[0].strength == "shielded"
    assert result.audits[0].holds
    assert result.rows == 0
    everywhere = np.random.default_rng(1).uniform(-1, 1, (20_000, 2))
    outputs = result.ensemble.predict(everywhere)
    assert outputs[:, 0].max() <= 1.0
    # the best that can be done: the first output capped at 1
    best = np.column_stack([np.minimum(Y[:, 0], 1.0), Y[:, 1]])
    np.testing.assert_allclose(result.ensemble.predict(X), best, atol=0.2)
    told = result.ensemble.predict(everywhere[:500], explain=True)
    assert set(told.labels) == {"shielded"}
    assert 0 < (told.theta > 0).mean() < 1
    result.ensemble.save(tmp_path)
    again = load(tmp_path)
    np.testing.assert_array_equal(again.predict(everywhere), outputs)
    assert again.audit(CAP).strength == "shielded"


@pytest.mark.slow
@pytest.mark.guard
def test_listed_rules_stay_with_the_master():
    listed = Linear(np.array([[0.5, 0.5]]), [0.0, 1.0], 0.9, name="listed")
    result = solve(regression(CAP, listed), Settings(iteration_limit=8, seed=3))
    assert [one.requirement for one in result.audits] == ["cap", "listed"]
    assert [one.strength for one in result.audits] == ["shielded", "audited"]
    assert result.feasible


def test_what_a_shielded_rule_costs_is_told_and_training_starts_from_the_plain_members():
    asked = []

    class Asking(GradientPricer):
        def price(self, request):
            asked.append(isinstance(self.architecture, ShieldedArchitecture))
            return super().price(request)

    trained = pricer()
    watched = Asking(**{one.name: getattr(trained, one.name) for one in fields(trained)})
    result = solve(regression(CAP, pricers=[watched]), SHORT)
    assert asked[0] is False, "the first members were trained without the rule"
    assert asked[-1] is True
    assert result.plain is not None
    assert not any(
        isinstance(part.members, ShieldedMembers) for part in result.plain.ensemble.parts
    )
    # targets reach 2, the cap is 1: what it costs is at least the squares above it
    beyond = np.maximum(Y[:, 0] - 1.0, 0.0)
    assert result.loss - result.plain.loss == pytest.approx(np.mean(beyond**2), rel=0.3)
    assert result.plain.ensemble.predict(X)[:, 0].max() > 1.5
    assert result.ensemble.predict(X)[:, 0].max() <= 1.0
    assert f"({result.plain.loss:.6g} without rules)" in str(result)
    assert solve(regression(CAP, plain_first=False), SHORT).plain is None


def test_a_shielded_rule_that_is_kept_anyway_costs_nothing():
    high = Linear(BOX, [1.0, 0.0], 5.0, "<=", name="high")
    result = solve(regression(high), Settings(iteration_limit=10, epsilon=0.02, seed=3))
    assert "kept without training under them" in result.history[-1].note
    assert result.plain is not None
    assert result.loss == pytest.approx(result.plain.loss, rel=1e-6)
    assert result.audits[0].strength == "shielded"


def test_attacked_must_be_asked_for():
    result = solve(regression(CAP), Settings(iteration_limit=2, guarantee="attacked"))
    assert result.audits[0].strength == "attacked"
    assert not any(isinstance(part.members, ShieldedMembers) for part in result.ensemble.parts)


def test_exact_pricers_keep_their_bounds_and_the_master_its_rows():
    problem = regression(CAP, pricers=[AffinePricer(2, 2)])
    made = compiled(problem)
    assert made.requirements == problem.requirements
    assert "AffinePricer proves bounds" in made.notes[0]
    assert made.shield is None


@pytest.mark.parametrize("guarantee", ["every input", "shielded"])
def test_the_problem_without_the_shield_is_kept_beside_the_other(guarantee):
    problem = regression(CAP)
    made = compiled(problem, guarantee)
    assert made.stated is problem
    assert (made.kept, made.asked, made.requirements) == ((CAP,), (CAP,), ())
    assert made.unshielded.requirements == problem.requirements
    assert made.unshielded.pricers == problem.pricers


def test_rules_stay_with_the_master_where_no_shield_is_asked_for():
    asked = CompiledProblem.from_problem(regression(CAP), "attacked")
    assert shield_members(asked) is asked
    own_phases = CompiledProblem.from_problem(regression(CAP, phases=lambda: ()), "shielded")
    assert shield_members(own_phases) is own_phases


def test_a_rule_without_an_anchor_is_named_and_stays_with_the_master():
    rows = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]
    made = compiled(regression(Linear(BOX, rows, [-1, -1, 0], "<=", name="impossible")))
    assert [one.name for one in made.requirements] == ["impossible"]
    assert "no constant or affine anchor keeps impossible" in made.notes[0]
    rule = Linear(BOX, rows, [-1, -1, 0], "<=", name="impossible")
    with raises(InvalidInput, "anchor"):
        solve(regression(rule), Settings(guarantee="shielded"))


def test_a_given_anchor_is_used_or_refused():
    made = compiled(regression(CAP, anchor=[0.5, 0.0]))
    assert "constant anchor with room 0.5" in made.notes[0]
    with raises(InvalidInput, "anchor", "anchor", "cap"):
        compiled(regression(CAP, anchor=[1.5, 0.0]))
    with raises(InvalidInput, "type", "anchor"):
        compiled(regression(CAP, anchor=[1.5, 0.0, 3.0]))


def test_probabilities_stay_probabilities_behind_the_shield():
    labels = (X[:, 0] > 0).astype(np.int64)
    rule = Probability(BOX, 1, 0.6, name="likely")
    problem = Problem(
        Supervised(X, labels, "log_loss", "mixture"),
        [rule],
        [pricer(output="softmax")],
        Layout.single(2),
    )
    outputs = solve(problem, SHORT).ensemble.predict(X)
    np.testing.assert_allclose(outputs.sum(1), 1.0, atol=1e-12)
    assert outputs.min() >= 0
    assert outputs[:, 1].min() >= 0.6


def test_without_labels_the_loss_of_the_shielded_output_is_minimised():
    """min (y0 - 2)^2 + (y1 - x0)^2 subject to y0 <= 1: y = (1, x0)."""

    def loss(outputs, inputs):
        return (outputs[..., 0] - 2).square() + (outputs[..., 1] - inputs[..., 0]).square()

    problem = Problem(Objective(BOX, loss, count=100), [CAP], [pricer(600)], Layout.single(2))
    outputs = solve(problem, SHORT).ensemble.predict(X)
    np.testing.assert_allclose(outputs[:, 0], 1.0, atol=1e-3)
    np.testing.assert_allclose(outputs[:, 1], X[:, 0], atol=0.1)
    assert torch.get_default_dtype() == torch.float32


def test_without_labels_the_anchor_is_the_rule_of_least_loss():
    """min (y0 - 2)^2 + (y1 - x0)^2 subject to y0 <= 1: y = (0.98, x0) has a room of 0.02."""

    def loss(outputs, inputs):
        return (outputs[..., 0] - 2).square() + (outputs[..., 1] - inputs[..., 0]).square()

    problem = Problem(Objective(BOX, loss, count=100), [CAP], [pricer(1)], Layout.single(2))
    made = compiled(problem)
    assert "affine anchor with room 0.02" in made.notes[0]
    network: Any = made.pricers[0]
    anchor = network.architecture.source.anchor.outputs(torch.as_tensor(X))[0].numpy()
    np.testing.assert_allclose(anchor, np.column_stack([np.full(len(X), 0.98), X[:, 0]]), atol=1e-3)


def test_an_objective_without_labels_refuses_pricers_that_fit_labels():
    def loss(outputs, inputs):
        return outputs.square().sum(-1)

    with raises(InvalidInput, "unsupported", "AffinePricer"):
        Problem(Objective(BOX, loss, count=10), [], [AffinePricer(2, 2)], Layout.single(2))
