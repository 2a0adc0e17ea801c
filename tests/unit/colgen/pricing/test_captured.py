"""Training by recorded steps: the same arithmetic as plain training, tried without a GPU."""

from dataclasses import replace
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
import torch

from cg4ai.colgen.pricing.gradient import pricer as pricing
from cg4ai.colgen.pricing.gradient.cuda_graphs import (
    NotRecorded,
    _AdamStep,
    build_segmented_training,
    train_captured,
)
from cg4ai.colgen.pricing.gradient.losses import Trainer
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training, train
from cg4ai.errors import FitWarning, out_of_memory
from cg4ai.layout import Layout
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.objectives import Epigraph, Objective, Supervised
from cg4ai.parallel import fan_out, use_own_stream
from cg4ai.protocols import PricingRequest
from cg4ai.records import Duals
from cg4ai.rules import Concave, Linear
from cg4ai.rules.regions import Box
from cg4ai.rules.rows import RowSet
from cg4ai.seeds import generator

INPUTS = np.linspace(-1.0, 1.0, 40).reshape(20, 2)
TARGETS = INPUTS @ np.array([[1.0, -2.0, 0.5], [0.3, 0.1, 1.0]])
ARCHITECTURE = NetworkArchitecture(2, 3, hidden=(5,), activation="tanh")


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_recorded_steps_are_the_steps_of_plain_training(weight_decay):
    goal = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    start = {"a": torch.zeros(2, 2), "b": torch.ones(2, 2)}
    training = Training(30, 0.05, "onecycle", weight_decay=weight_decay)

    def loss(parameters, step):
        return ((parameters["a"] * parameters["b"] - goal) ** 2).sum(1)

    plain = train(start, loss, training, models=2)
    current = {name: value.clone() for name, value in start.items()}
    step = _AdamStep(current, loss, training, 1)
    for _ in range(30):
        step()
    for name, value in plain.items():
        torch.testing.assert_close(current[name].detach(), value, rtol=1e-4, atol=1e-6)


def trainer(**changes):
    pricer = GradientPricer(
        ARCHITECTURE,
        restarts=2,
        group=2,
        training=Training(20, schedule="onecycle"),
        batch_size=20,
        blend=1.0,
        finish=0.0,
        individual=0.3,
    )
    requirement = Linear(Box([-1.0, -1.0], [1.0, 1.0]), [1.0, 1.0, 0.0], 0.5, sense="<=")
    requirement.check(2, 3)
    rows = RowSet(Layout.single(3), [requirement.rows_at(INPUTS[:6], np.zeros(6, np.int64), 0)])
    request = PricingRequest(
        iteration=0,
        seed=3,
        duals=Duals(np.arange(6.0), np.zeros(1)),
        guide=np.arange(6.0),
        rows=rows,
        objective=Supervised(INPUTS, TARGETS, "squared", "mixture"),
        loss_weight=1.0,
        ensemble=None,
        device="cpu",
        requirements=(requirement,),
    )
    pricer = replace(pricer, **changes)
    return Trainer(pricer, request, generator(3))


def test_the_laid_out_loss_is_the_guided_loss():
    made = trainer()
    parameters = ARCHITECTURE.initialise(4, generator(1))
    made.fixed = made.batch(None)  # all data, as below, whatever their order
    expected = made.compute_guided_loss(parameters, 0)
    data = build_segmented_training(made, 3, 20)
    data.lay_out(1)
    places = data.buffers["inputs"].shape
    assert places == (3, 20, 2)
    data.buffers["inputs"][0] = made.fixed[0].inputs
    data.buffers["targets"][0] = made.fixed[0].targets
    got = data.loss(parameters, torch.zeros(1, dtype=torch.int64))
    torch.testing.assert_close(got, expected)
    assert (expected > 0).all()


def test_inputs_that_follow_the_group_are_laid_out_too():
    made = trainer(attack_every=10, refresh_every=5)
    parameters = ARCHITECTURE.initialise(4, generator(1))
    data = build_segmented_training(made, 5, 20)
    data.lay_out(1)
    shapes = {name: buffer.shape for name, buffer in data.buffers.items()}
    made.attack(parameters, 5)
    assert made.pooled
    made.fixed = made.batch(None)
    data.lay_out(1)
    assert {name: buffer.shape for name, buffer in data.buffers.items()} == shapes
    data.buffers["inputs"][0] = made.fixed[0].inputs
    data.buffers["targets"][0] = made.fixed[0].targets
    got = data.loss(parameters, torch.zeros(1, dtype=torch.int64))
    torch.testing.assert_close(got, made.compute_guided_loss(parameters, 5))


def test_a_step_gets_the_batch_that_plain_training_would_draw():
    data, plain = build_segmented_training(trainer(batch_size=7), 5, 20), trainer(batch_size=7)
    data.lay_out(3)  # of 20 images 3 x 7 are drawn, some of them twice
    for step in range(3):
        batch, _ = plain.batch(7)
        assert torch.equal(data.buffers["inputs"][step], batch.inputs)
        assert torch.equal(data.buffers["targets"][step], batch.targets)
    assert not data.buffers["inputs"][3:].any()


def test_a_sampler_for_any_device_is_asked_once_for_many_steps():
    asked = []

    class Uniform:
        any_device = True

        def __call__(self, count, made):
            asked.append((count, made.device.type))
            return torch.rand(count, 2, generator=made, dtype=torch.float64, device=made.device)

    made = trainer(batch_size=7)
    made.objective = Epigraph(INPUTS, None, sampler=Uniform())
    data = build_segmented_training(made, 5, 20)
    data.lay_out(4)
    assert asked == [(28, "cpu")]
    drawn = data.buffers["inputs"]
    assert drawn.shape == (5, 7, 2)
    assert len(torch.unique(drawn[:4].reshape(-1, 2), dim=0)) == 28
    first = drawn.clone()
    data.lay_out(4)
    assert not torch.equal(first, data.buffers["inputs"])


def test_what_needs_changing_shapes_is_not_laid_out():
    assert build_segmented_training(trainer(batch_size=None), 3, 20) is None


def test_attacks_that_may_find_concave_rows_are_not_laid_out():
    made = trainer(attack_every=5)
    assert build_segmented_training(made, 5, 20) is not None
    concave = Concave(Box([-1.0, -1.0], [1.0, 1.0]), lambda outputs: outputs.amin(-1), 0.0)
    concave.check(2, 3)
    made.request = replace(made.request, requirements=(*made.request.requirements, concave))
    assert build_segmented_training(made, 5, 20) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_training_by_a_graph_agrees_with_plain_training_on_a_gpu():
    goal = torch.tensor([[1.0, -2.0], [0.5, 3.0]], device="cuda")

    class Fixed:
        segment = 20

        def lay_out(self, steps):
            pass

        def loss(self, parameters, step):
            return ((parameters["a"] - goal) ** 2).sum(1)

    training = Training(50, 0.05, "onecycle")
    start = {"a": torch.zeros(2, 2, device="cuda")}
    plain = train(start, lambda p, s: ((p["a"] - goal) ** 2).sum(1), training, models=2)
    graph = train_captured(start, Fixed(), training, models=2)
    torch.testing.assert_close(graph["a"], plain["a"], rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_step_that_cannot_be_recorded_spoils_nothing_after_it():
    class FromHost:
        segment = 5

        def lay_out(self, steps):
            pass

        def loss(self, parameters, step):
            goal = torch.as_tensor([1.0, 2.0], device="cuda")  # copies, which no graph can hold
            return ((parameters["a"] - goal) ** 2).sum(1)

    start = {"a": torch.zeros(1, 2, device="cuda")}
    with pytest.raises(NotRecorded):
        train_captured(start, FromHost(), Training(10, 0.1, "onecycle"), models=1)
    assert torch.ones(3).to("cuda").sum().item() == 3
    test_training_by_a_graph_agrees_with_plain_training_on_a_gpu()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_graphs_of_several_threads_give_what_they_give_one_by_one():
    goals = torch.linspace(-2, 2, 40).reshape(20, 2).to("cuda")

    class Towards:
        segment = 20

        def __init__(self, goal):
            self.goal = goal

        def lay_out(self, steps):
            pass

        def loss(self, parameters, step):
            return ((parameters["a"] - self.goal) ** 2).sum(1)

    def trained(goal):
        with use_own_stream("cuda"):
            start = {"a": torch.zeros(1, 2, device="cuda")}
            return train_captured(start, Towards(goal), Training(60, 0.05, "onecycle"), models=1)

    alone = [trained(goal)["a"].cpu() for goal in goals]
    with joblib.parallel_config("threading"):
        together = fan_out(trained, list(goals), n_jobs=4)
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(one, other["a"].cpu(), rtol=0, atol=0)


# ---- what no graph can hold, without a GPU -------------------------------------------------------

# what torch 2.13 says where a loss calls torch.as_tensor on CUDA
REFUSED = (
    "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is "
    "pinned. Please use tensor.pin_memory() or allocate the tensor with pin_memory=True.\nMore."
)


class Graph:
    """Stands in for a CUDA graph: what runs while it is open may ask whether it is."""

    open = False

    def capture_begin(self, **options):
        Graph.open = True

    def capture_end(self):
        Graph.open = False
        raise RuntimeError("operation failed due to a previous error during capture")


@pytest.fixture
def graph(monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    stream = SimpleNamespace(synchronize=lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: stream)


def refusing(error):
    class Refusing:
        segment = 5

        def lay_out(self, steps):
            pass

        def loss(self, parameters, step):
            if Graph.open:
                raise error
            return ((parameters["a"] - 1.0) ** 2).sum(1)

    return Refusing()


@pytest.mark.usefixtures("graph")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError(REFUSED), NotRecorded),
        (torch.OutOfMemoryError("CUDA out of memory"), torch.OutOfMemoryError),
        (ValueError("of the user's own"), ValueError),
    ],
)
def test_recording_that_fails_leaves_parameters_as_they_were(error, expected):
    start = {"a": torch.zeros(1, 2)}
    with pytest.raises(expected) as caught:
        train_captured(start, refusing(error), Training(10, 0.1, "onecycle"), models=1)
    assert not Graph.open
    assert not start["a"].detach().any()
    assert "previous error" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("graph")
def test_an_objective_that_makes_tensors_is_trained_step_by_step_and_says_so(monkeypatch):
    monkeypatch.setattr(pricing, "RECORDED_ON", "cpu")

    def loss(outputs, inputs):
        if Graph.open:
            raise RuntimeError(REFUSED)
        goal = torch.as_tensor([1.0, -1.0, 0.5], dtype=outputs.dtype, device=outputs.device)
        return ((outputs - goal) ** 2).sum(-1)

    box = Box([-1.0, -1.0], [1.0, 1.0])
    made = trainer(training=Training(200, 0.05, "onecycle"))
    request = replace(made.request, objective=Objective(box, loss, count=50))
    with pytest.warns(FitWarning, match="CUDA cannot record the loss"):
        found = made.pricer.price(request)
    assert "steps were launched one by one" in found.note
    assert found.members is not None
    outputs = found.members.outputs(torch.as_tensor(INPUTS))
    assert float(loss(outputs, None).mean()) < 1.0  # all zeros have 2.25
    assert not out_of_memory(RuntimeError(REFUSED))
