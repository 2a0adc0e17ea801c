"""Gradient pricing: what is minimised, by whom, from where, and what comes back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pricing_requests import make_request, point_rows
from scipy.optimize import minimize
from torch import Tensor, nn

from cg4ai.colgen.pricing.gradient import losses
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.colgen.pricing.reduced_cost import compute_reduced_costs
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, ModuleArchitecture, NetworkArchitecture
from cg4ai.members.mixture import Part
from cg4ai.objectives import Epigraph, Supervised
from cg4ai.protocols import ArchitectureDefaults, PricingRequest
from cg4ai.records import Array, IntArray, PricingResult
from cg4ai.rules.rows import ConcaveRows, RowSet
from cg4ai.seeds import generator
from raising import raises

RNG = np.random.default_rng(5)
X = RNG.normal(size=(30, 2))
LABELS = ((X[:, 0] + 0.8 * RNG.normal(size=30)) > 0).astype(np.int64)
AFFINE = NetworkArchitecture(2, 2, hidden=(), output="softmax")
NONE = Training(steps=0)  # members as they were initialised


def rows_of(layout: Layout, *batches: Any) -> RowSet:
    return RowSet(layout, list(batches))


def classes_request(**changes: Any) -> PricingRequest:
    """Log loss of a softmax, with prices on the probability of class 1 at four inputs."""
    rows = rows_of(
        Layout.single(2), point_rows(X[:4], np.tile([0.0, 1.0], (4, 1)), np.full(4, 0.8))
    )
    request = make_request(
        Supervised(X, LABELS, "log_loss"), rows, duals=[0.5, 0.2, 0.8, 0.1], gammas=[0.3]
    )
    return replace(request, **changes)


def costs_of(request: PricingRequest, result: PricingResult) -> Array:
    assert result.members is not None
    return compute_reduced_costs(request, result.members, result.blocks)


def by_scipy(request: PricingRequest) -> float:
    """The least reduced cost of an affine softmax, from many starts, by NumPy formulas."""

    def cost(flat: Array) -> float:
        weights, bias = flat[:4].reshape(2, 2), flat[4:]

        def probabilities(inputs: Array) -> Array:
            scores = inputs @ weights + bias
            exponents = np.exp(scores - scores.max(1, keepdims=True))
            return exponents / exponents.sum(1, keepdims=True)

        loss = -np.log(probabilities(X)[np.arange(len(X)), LABELS]).mean()
        priced = probabilities(X[:4])[:, 1] @ request.duals.rows
        return float(loss - priced - request.duals.blocks[0])

    starts = np.random.default_rng(0).normal(size=(6, 6))
    return min(minimize(cost, start, method="BFGS").fun for start in starts)


def test_paper_mode_minimises_the_reduced_cost_itself() -> None:
    request = classes_request()
    pricer = GradientPricer(
        AFFINE, restarts=4, finish=1.0, training=Training(steps=800, learning_rate=0.05)
    )
    found = costs_of(request, pricer.price(request))
    best = by_scipy(request)
    assert found.min() == pytest.approx(best, abs=1e-4)
    assert bool((found >= best - 1e-5).all())


def test_training_lowers_the_reduced_cost_of_every_restart() -> None:
    request = classes_request()
    architecture = NetworkArchitecture(2, 2, hidden=(5,), output="softmax")
    for finish in (0.5, 1.0):
        before, after = (
            costs_of(
                request,
                GradientPricer(architecture, finish=finish, training=training).price(request),
            )
            for training in (NONE, Training(steps=150, learning_rate=0.03))
        )
        assert bool((after < before - 0.05).all())


def test_the_guide_leads_and_not_the_duals() -> None:
    away = classes_request(guide=np.zeros(4))
    toward = classes_request(guide=np.full(4, 50.0))
    pricer = GradientPricer(
        AFFINE, restarts=1, finish=1.0, training=Training(steps=300, learning_rate=0.05)
    )
    values = []
    for request in (away, toward):
        members = pricer.price(request).members
        assert members is not None
        values.append(float(members.outputs(torch.as_tensor(X[:4]))[0, :, 1].min()))
    assert values[1] > 0.9 > values[0]


def test_without_a_loss_only_the_rows_count() -> None:
    request = classes_request(loss_weight=0.0)
    pricer = GradientPricer(
        AFFINE, restarts=1, finish=1.0, training=Training(steps=300, learning_rate=0.1)
    )
    members = pricer.price(request).members
    assert members is not None
    assert float(members.outputs(torch.as_tensor(X[:4]))[0, :, 1].min()) > 0.95


@pytest.mark.parametrize("headroom", [0.0, 0.15])
def test_the_hinge_asks_for_the_bound_and_some_headroom(headroom: float) -> None:
    request = classes_request()
    pricer = GradientPricer(
        AFFINE,
        restarts=1,
        finish=0.0,
        row_weight=100.0,
        headroom=headroom,
        training=Training(steps=1500, learning_rate=0.05, patience=200),
    )
    members = pricer.price(request).members
    assert members is not None
    lowest = float(members.outputs(torch.as_tensor(X[:4]))[0, :, 1].min())
    assert lowest == pytest.approx(0.8 + headroom, abs=0.02)


def test_of_more_rows_than_the_limit_those_of_most_weight_count() -> None:
    clash = point_rows(X[:2] * 0.0, np.array([[0.0, 1.0], [1.0, 0.0]]), np.zeros(2))
    request = make_request(
        Supervised(X, LABELS, "none"), rows_of(Layout.single(2), clash), duals=[1.0, 0.9]
    )
    training = Training(steps=200, learning_rate=0.1)
    pricer = GradientPricer(AFFINE, restarts=1, finish=1.0, row_limit=1, training=training)
    members = pricer.price(request).members
    assert members is not None
    assert members.outputs(torch.zeros(1, 2, dtype=torch.float64))[0, 0, 1] > 0.95


def test_concave_rows_are_trained_by_each_members_own_value() -> None:
    def least(outputs: Tensor, positions: IntArray) -> Tensor:
        return outputs.amin(-1)

    rows = ConcaveRows(0, X[:5], least, np.full(5, 0.4), np.arange(5))
    request = make_request(
        Supervised(X, LABELS, "none"), rows_of(Layout.single(2), rows), duals=np.ones(5)
    )
    training = Training(steps=300, learning_rate=0.05)
    members = GradientPricer(AFFINE, restarts=2, training=training).price(request).members
    assert members is not None
    assert float(members.outputs(torch.as_tensor(X[:5])).amin()) > 0.4


class TestGroups:
    targets = np.stack([np.sin(2 * X[:, 0]), X[:, 1] ** 2], axis=1)
    architecture = NetworkArchitecture(2, 2, hidden=(4,), activation="tanh")

    def request(self, kind: Any = "mixture") -> PricingRequest:
        return make_request(
            Supervised(X, self.targets, kind=kind), rows_of(Layout.single(2)), duals=[]
        )

    def losses(self, result: PricingResult, group: int) -> tuple[float, float]:
        """Loss of the mean of the first group, and mean loss of its members."""
        assert result.members is not None
        outputs = result.members.outputs(torch.as_tensor(X)).numpy()[:group]
        error = (outputs - self.targets) ** 2
        mean_error = (outputs.mean(0) - self.targets) ** 2
        return float(mean_error.sum(-1).mean()), float(error.sum(-1).mean())

    def test_numbers_of_groups_and_blocks(self) -> None:
        pricer = GradientPricer(self.architecture, restarts=2, group=3, training=NONE)
        result = pricer.price(self.request())
        np.testing.assert_array_equal(result.groups, [0, 0, 0, 1, 1, 1])
        np.testing.assert_array_equal(result.blocks, np.zeros(6))
        alone = GradientPricer(self.architecture, restarts=2, training=NONE).price(self.request())
        np.testing.assert_array_equal(alone.groups, [-1, -1])
        assert alone.lower_bound is None

    def test_a_group_is_trained_on_the_loss_of_its_mean(self) -> None:
        training = Training(steps=400, learning_rate=0.03)
        jointly = GradientPricer(self.architecture, restarts=1, group=4, training=training)
        mean, own = self.losses(jointly.price(self.request()), 4)
        assert mean < 0.2
        assert own > 3 * mean
        careful = replace(jointly, individual=1.0)
        _, steadier = self.losses(careful.price(self.request()), 4)
        assert steadier < own

    def test_for_the_average_each_member_is_trained_on_its_own_loss(self) -> None:
        training = Training(steps=400, learning_rate=0.03)
        pricer = GradientPricer(self.architecture, restarts=1, group=2, training=training)
        mean, own = self.losses(pricer.price(self.request("average")), 2)
        assert own < 0.4
        assert own < 3 * mean

    def test_members_are_trained_to_complete_the_mixture(self) -> None:
        """With half the weight to come, a member should make up for what the mixture lacks."""
        now = np.array([[1.0, -1.0]])
        ensemble = Ensemble(
            (Part(ConstantMembers(now, 2), np.zeros(1, int), np.ones(1)),), Layout.single(2)
        )
        objective = Supervised(X, np.zeros((30, 2)), kind="mixture")
        request = make_request(objective, rows_of(Layout.single(2)), duals=[], ensemble=ensemble)
        affine = NetworkArchitecture(2, 2, hidden=())
        training = Training(steps=600, learning_rate=0.05)
        for blend, expected in ((0.5, -now), (0.25, -3 * now), (1.0, 0 * now)):
            pricer = GradientPricer(affine, restarts=1, blend=blend, training=training)
            members = pricer.price(request).members
            assert members is not None
            outputs = members.outputs(torch.as_tensor(X))[0].numpy()
            np.testing.assert_allclose(outputs, np.tile(expected, (30, 1)), atol=0.02)


class TestBlocks:
    layout = Layout((np.array([2]), np.array([0, 3]), np.array([1])))
    architecture = NetworkArchitecture(2, 2, hidden=())  # more outputs than some blocks need
    training = Training(steps=600, learning_rate=0.05)

    def mixture(self, result: PricingResult, group: int) -> Ensemble:
        assert result.members is not None
        count = group * len(self.layout)
        members = result.members.take(np.arange(count))
        part = Part(members, result.blocks[:count], np.full(count, 1.0 / group))
        return Ensemble((part,), self.layout)

    @pytest.mark.parametrize("group", [1, 2])
    @pytest.mark.parametrize("kind", ["average", "mixture"])
    def test_outputs_of_all_blocks_go_to_their_places(self, group: int, kind: Any) -> None:
        targets = np.stack([X[:, 0], 2 * X[:, 1], 3 + 0 * X[:, 0], X[:, 0] - X[:, 1]], axis=1)
        request = make_request(
            Supervised(X, targets, kind=kind), rows_of(self.layout), duals=[], gammas=np.zeros(3)
        )
        pricer = GradientPricer(self.architecture, restarts=2, group=group, training=self.training)
        result = pricer.price(request)
        np.testing.assert_array_equal(result.blocks, np.tile([0, 1, 2], 2 * group))
        np.testing.assert_array_equal(result.groups, np.repeat([0, 1], 3 * group))
        prediction = self.mixture(result, group).predict(X)
        np.testing.assert_allclose(prediction, targets, atol=0.05)

    def test_blocks_in_order_are_placed_alike(self) -> None:
        targets = np.stack([X[:, 0], 2 * X[:, 1], 0 * X[:, 0] + 3, X[:, 1]], axis=1)
        layout = Layout((np.array([0, 1]), np.array([2, 3])))
        request = make_request(
            Supervised(X, targets), rows_of(layout), duals=[], gammas=np.zeros(2)
        )
        result = GradientPricer(self.architecture, restarts=1, training=self.training).price(
            request
        )
        assert result.members is not None
        part = Part(result.members, result.blocks, np.ones(2))
        np.testing.assert_allclose(Ensemble((part,), layout).predict(X), targets, atol=0.05)

    def test_a_single_block_may_name_its_outputs_in_any_order(self) -> None:
        targets = np.stack([X[:, 0], 0 * X[:, 0] + 3], axis=1)
        layout = Layout((np.array([1, 0]),))
        request = make_request(Supervised(X, targets), rows_of(layout), duals=[])
        result = GradientPricer(self.architecture, restarts=1, training=self.training).price(
            request
        )
        assert result.members is not None
        part = Part(result.members, result.blocks, np.ones(1))
        np.testing.assert_allclose(Ensemble((part,), layout).predict(X), targets, atol=0.05)
        costs = costs_of(request, result)
        assert float(costs[0]) == pytest.approx(0.0, abs=0.01)


class TestWarmStarts:
    def stack(self, count: int, *, outputs: int = 2) -> Any:
        architecture = NetworkArchitecture(2, outputs, hidden=(3,))
        return architecture, architecture.members(architecture.initialise(count, generator(9)))

    def test_the_heaviest_members_come_first_and_the_rest_stay_random(self) -> None:
        architecture, members = self.stack(3)
        weights = np.array([0.2, 0.5, 0.3])
        ensemble = Ensemble((Part(members, np.zeros(3, int), weights),), Layout.single(2))
        request = classes_request(ensemble=ensemble)
        cold = GradientPricer(architecture, restarts=4, training=NONE)
        warm = replace(cold, warm_starts=2)
        found, random = warm.price(request).members, cold.price(request).members
        assert found is not None
        assert random is not None
        x = torch.as_tensor(X)
        expected = members.outputs(x)[[1, 2]]
        torch.testing.assert_close(found.outputs(x)[:2], expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found.outputs(x)[2:], random.outputs(x)[2:])

    def test_by_loss_the_best_on_the_data_come_first_however_light(self) -> None:
        architecture = NetworkArchitecture(2, 2, hidden=(3,), output="softmax")
        members = architecture.members(architecture.initialise(3, generator(9)))
        chance = members.outputs(torch.as_tensor(X)).numpy()[:, np.arange(len(X)), LABELS]
        order = np.argsort(-np.log(chance).mean(1))
        weights = np.array([0.1, 0.3, 0.6])[np.argsort(order)]  # the better, the lighter
        ensemble = Ensemble((Part(members, np.zeros(3, int), weights),), Layout.single(2))
        warm = GradientPricer(
            architecture, restarts=2, warm_starts=2, warm_by="loss", training=NONE
        )
        found = warm.price(classes_request(ensemble=ensemble)).members
        assert found is not None
        x = torch.as_tensor(X)
        expected = members.outputs(x)[order[:2].copy()]
        torch.testing.assert_close(found.outputs(x), expected, rtol=1e-5, atol=1e-6)

    def test_fewer_active_members_than_places_are_not_copied_twice(self) -> None:
        architecture, members = self.stack(1)
        ensemble = Ensemble((Part(members, np.zeros(1, int), np.ones(1)),), Layout.single(2))
        warm = GradientPricer(architecture, restarts=3, warm_starts=3, training=NONE)
        found = warm.price(classes_request(ensemble=ensemble)).members
        assert found is not None
        outputs = found.outputs(torch.as_tensor(X))
        assert not torch.allclose(outputs[1], outputs[0])
        assert not torch.allclose(outputs[2], outputs[0])

    def test_each_block_starts_from_its_own_members(self) -> None:
        architecture, members = self.stack(4, outputs=1)
        layout = Layout((np.array([1]), np.array([0])))
        blocks, weights = np.array([0, 0, 1, 1]), np.array([0.4, 0.6, 0.9, 0.1])
        ensemble = Ensemble((Part(members, blocks, weights),), layout)
        request = make_request(
            Supervised(X, np.zeros((30, 2))),
            rows_of(layout),
            duals=[],
            gammas=np.zeros(2),
            ensemble=ensemble,
        )
        warm = GradientPricer(architecture, restarts=2, warm_starts=2, training=NONE)
        found = warm.price(request).members
        assert found is not None
        x = torch.as_tensor(X)
        expected = members.outputs(x)[[1, 2, 0, 3]]
        torch.testing.assert_close(found.outputs(x), expected, rtol=1e-5, atol=1e-6)

    def test_members_of_other_kinds_are_passed_over(self) -> None:
        architecture, _ = self.stack(1)
        part = Part(ConstantMembers(np.ones((1, 2)), 2), np.zeros(1, int), np.ones(1))
        request = classes_request(ensemble=Ensemble((part,), Layout.single(2)))
        cold = GradientPricer(architecture, restarts=2, training=NONE)
        warm = replace(cold, warm_starts=2)
        x = torch.as_tensor(X)
        one, other = warm.price(request).members, cold.price(request).members
        assert one is not None
        assert other is not None
        torch.testing.assert_close(one.outputs(x), other.outputs(x))


def test_output_limit_scales_members_down_on_all_known_inputs() -> None:
    far = point_rows(np.array([[40.0, -40.0]]), np.array([[1.0, -1.0]]), [0.0])
    request = make_request(
        Supervised(X, LABELS, "cross_entropy"), rows_of(Layout.single(2), far), duals=[5.0]
    )
    architecture = NetworkArchitecture(2, 2, hidden=(4,), skip=True)
    training = Training(steps=150, learning_rate=0.1)
    inputs = torch.as_tensor(np.concatenate([X, far.inputs]))
    for limit, bites in ((3.0, True), (1e6, False)):
        pricer = GradientPricer(architecture, output_limit=limit, training=training)
        members = pricer.price(request).members
        assert members is not None
        largest = members.outputs(inputs).abs().amax((1, 2))
        assert bool((largest <= limit * (1 + 1e-5)).all())
        assert bool((largest > 0.99 * limit).all()) == bites


def test_restarts_are_independent_of_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pricer's first restarts do not change when others are trained beside them."""
    monkeypatch.setattr(losses, "TRAINED_IN", torch.float64)
    request = classes_request()
    architecture = _Fixed()
    training = Training(steps=120, learning_rate=0.05, patience=9)
    few, many = (
        GradientPricer(architecture, restarts=count, training=training).price(request).members
        for count in (1, 4)
    )
    assert few is not None
    assert many is not None
    x = torch.as_tensor(X)
    torch.testing.assert_close(few.outputs(x)[0], many.outputs(x)[0], rtol=1e-7, atol=1e-9)


class _Fixed(ArchitectureDefaults):
    """An affine softmax whose i-th member always starts from the same parameters."""

    input_size, output_size = 2, 2

    def initialise(self, count: int, made: torch.Generator) -> dict[str, Tensor]:
        each = [AFFINE.initialise(1, generator(number)) for number in range(count)]
        return {name: torch.cat([one[name] for one in each]) for name in each[0]}

    def forward(self, parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return AFFINE.forward(parameters, inputs)

    def members(self, parameters: dict[str, Tensor]) -> Any:
        return AFFINE.members(parameters)

    def parameters(self, members: Any) -> Any:
        return AFFINE.parameters(members)


def test_the_seed_decides() -> None:
    pricer = GradientPricer(AFFINE, training=Training(steps=20), batch_size=8)
    x = torch.as_tensor(X)
    outputs = []
    for seed in (1, 1, 2):
        members = pricer.price(classes_request(seed=seed)).members
        assert members is not None
        outputs.append(members.outputs(x))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2])


class Both:
    """The two outputs, each scaled by the size of one input."""

    count = 2

    def values(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return inputs.abs() * outputs

    def coefficients(self, inputs: Array, which: IntArray) -> Array:
        return np.abs(inputs) * np.eye(2)[which]


def test_epigraphs_are_learnt_from_fresh_samples() -> None:
    """max(|x0| p, |x1| (1 - p)) is least at p = |x1| / (|x0| + |x1|)."""

    def sampler(count: int, made: torch.Generator) -> Tensor:
        return 0.2 + torch.rand(count, 2, generator=made, dtype=torch.float64)

    fixed = sampler(10, generator(0)).numpy()
    request = make_request(Epigraph(fixed, Both(), sampler), rows_of(Layout.single(2)), duals=[])
    pricer = GradientPricer(
        NetworkArchitecture(2, 2, hidden=(8,), activation="tanh", output="softmax"),
        restarts=1,
        batch_size=64,
        finish=0.0,
        training=Training(steps=400, learning_rate=0.02, schedule="onecycle"),
    )
    members = pricer.price(request).members
    assert members is not None
    new = sampler(200, generator(1))
    p = members.outputs(new)[0].numpy()
    reached = (new.numpy() * p).max(1)
    best = new.numpy().prod(1) / new.numpy().sum(1)
    assert float(np.mean(reached - best)) < 0.01


def test_epigraphs_without_pieces_yet_are_trained_by_their_own_loss() -> None:
    """Before there are members no piece is a row, so there are no prices to finish by."""
    fixed = 0.2 + RNG.random((10, 2))
    request = make_request(Epigraph(fixed, Both()), rows_of(Layout.single(2)), duals=[])
    losses = []
    for steps in (0, 200):
        members = GradientPricer(AFFINE, 1, training=Training(steps, 0.05)).price(request).members
        assert members is not None
        inputs = torch.as_tensor(fixed)
        losses.append(float(Both().values(inputs, members.outputs(inputs)).amax(-1).mean()))
    assert losses[1] < losses[0]


def test_a_users_own_module_can_be_trained() -> None:
    def factory() -> nn.Module:
        return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))

    architecture = ModuleArchitecture(factory, 2, 2, "own")
    objective = Supervised(X, np.stack([X[:, 0], X[:, 1]], axis=1))
    request = make_request(objective, rows_of(Layout.single(2)), duals=[])
    pricer = GradientPricer(
        architecture, restarts=2, training=Training(steps=300, learning_rate=0.03)
    )
    assert float(costs_of(request, pricer.price(request)).max()) < 0.2


def test_restarts_that_diverge_are_left_out() -> None:
    class Diverging(_Fixed):
        def forward(self, parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
            outputs = super().forward(parameters, inputs)
            broken = torch.zeros(len(outputs), 1, 1, dtype=outputs.dtype)
            broken[list(self.which)] = torch.nan
            return outputs + broken * outputs

        which: tuple[int, ...] = (1,)

    training = Training(steps=5, schedule="onecycle")
    architecture = Diverging()
    result = GradientPricer(architecture, restarts=3, training=training).price(classes_request())
    assert result.members is not None
    assert len(result.members) == len(result.blocks) == len(result.groups) == 2
    assert result.note == "1 of 3 trainings diverged"
    architecture.which = (0, 1, 2)
    nothing = GradientPricer(architecture, restarts=3, training=training).price(classes_request())
    assert nothing.members is None
    assert nothing.note == "3 of 3 trainings diverged"


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"restarts": 0}, "range"),
        ({"group": 0}, "range"),
        ({"warm_starts": -1}, "range"),
        ({"warm_starts": 5}, "range"),
        ({"row_limit": 0}, "range"),
        ({"blend": 0.0}, "range"),
        ({"blend": 1.1}, "range"),
        ({"finish": -0.1}, "range"),
        ({"batch_size": 0}, "range"),
        ({"output_limit": 1.0}, "conflict"),
        (
            {"output_limit": 0.0, "architecture": NetworkArchitecture(2, 2, hidden=())},
            "range",
        ),
        ({"output_limit": 1.0, "architecture": _Fixed()}, "conflict"),
    ],
)
def test_what_does_not_fit_is_refused_before_training(wrong: dict[str, Any], code: str) -> None:
    with raises(InvalidInput, code):
        GradientPricer(**({"architecture": AFFINE} | wrong))
