"""Batches of sampled objectives: the outputs of the mixture, rare inputs, priced scenarios."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from cg4ai.colgen.pricing.gradient.batches import (
    CurrentMixture,
    PricedScenarios,
    SampledBatches,
    find_priced_scenarios,
)
from cg4ai.colgen.pricing.gradient.losses import Trainer
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.colgen.scenarios import Scenarios
from cg4ai.layout import Layout
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.mixture import Mixture, Part
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.objectives import Epigraph
from cg4ai.protocols import PricingRequest
from cg4ai.records import Array, Duals
from cg4ai.rules.rows import RowSet
from cg4ai.seeds import generator

ARCHITECTURE = NetworkArchitecture(2, 3, hidden=(4,), activation="tanh")
SIZE = 10


class Pieces:
    """Every output times the first input: linear in the outputs."""

    count = 3

    def values(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return inputs[..., :1] * outputs

    def coefficients(self, inputs: Array, which: np.ndarray) -> Array:
        return np.asarray(inputs[:, :1] * np.eye(3)[which])


@dataclass(frozen=True)
class Largest:
    """A tail whose worst inputs are those of largest second component."""

    weight: float = 0.1

    def find(self, predict: Callable[[Tensor], Tensor], *, seed: int) -> tuple[Array, Array]:
        return np.array([[1.0, 9.0]]), np.array([0.0])

    def find_hardest(
        self, predict: Callable[[Tensor], Tensor], *, seed: int, screened: int, kept: int
    ) -> Array:
        drawn = draw(screened, generator(seed))
        assert predict(drawn).shape == (screened, 3)
        return np.asarray(drawn[drawn[:, 1].topk(kept).indices].numpy())


def draw(count: int, made: torch.Generator) -> Tensor:
    return torch.rand(count, 2, generator=made, dtype=torch.float64)


OBJECTIVE = Epigraph(np.full((5, 2), 0.5), Pieces(), sampler=draw, tail=Largest())


def mixture() -> Mixture:
    trained = ARCHITECTURE.members(ARCHITECTURE.initialise(2, generator(4)))
    constant = ConstantMembers(np.array([[0.2, 0.3, 0.5]]), 2)
    none = np.zeros(2, np.int64)
    parts = (Part(trained, none, np.array([0.5, 0.25])), Part(constant, none[:1], np.array([0.25])))
    return Mixture(parts, Layout.single(3))


def request(**changes: object) -> PricingRequest:
    made = PricingRequest(
        iteration=1,
        seed=3,
        duals=Duals(np.zeros(0), np.zeros(1)),
        guide=np.zeros(0),
        rows=RowSet(Layout.single(3)),
        objective=OBJECTIVE,
        loss_weight=1.0,
        ensemble=mixture(),
        device="cpu",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def batches(**changes: object) -> SampledBatches:
    known = CurrentMixture(mixture(), ARCHITECTURE, device="cpu", dtype=torch.float32)
    how: dict[str, object] = {"current": known, "share": 0.0, "begin": 0, "priced": None}
    how |= {"made": generator(1), "device": "cpu", "dtype": torch.float32, "seed": 7}
    return SampledBatches(OBJECTIVE, SIZE, **(how | changes))  # type: ignore[arg-type]


def test_the_current_mixture_is_that_of_the_ensemble() -> None:
    known = CurrentMixture(mixture(), ARCHITECTURE, device="cpu", dtype=torch.float32)
    inputs = draw(5000, generator(0))
    expected = mixture().outputs(inputs).detach()
    torch.testing.assert_close(known(inputs.float()).double(), expected, rtol=1e-5, atol=1e-5)
    assert len(known.known) == len(known.others) == 1


def test_fresh_inputs_come_with_the_outputs_of_the_mixture() -> None:
    made = batches()
    seen = []
    for _ in range(150):  # beyond what is drawn at once
        batch, now = made.next(1000)
        assert now is not None
        assert batch.inputs.shape == (SIZE, 2)
        assert batch.weights is None
        seen.append(batch.inputs)
        torch.testing.assert_close(now.double(), mixture().outputs(batch.inputs.double()).detach())
    assert len(torch.cat(seen[:100]).unique(dim=0)) == 100 * SIZE
    assert len(torch.cat(seen).unique(dim=0)) == 100 * SIZE  # used again


def test_rare_inputs_are_searched_for_now_and_then_and_take_their_share() -> None:
    made = batches(share=0.3, begin=100)
    asked: list[int] = []

    def predict(parameters: object, inputs: Tensor) -> Tensor:
        asked.append(len(inputs))
        return torch.zeros(1, len(inputs), 3)

    made.search({}, 99, predict)
    assert made.pool is None
    for step in (100, 101, 599, 600):
        made.search({}, step, predict)
    assert len([count for count in asked if count > 1]) == 2
    assert made.pool is not None
    assert len(made.pool[0]) == 1024
    batch, now = made.next(1000)
    assert now is not None
    assert len(batch.inputs) == len(now) == SIZE
    assert int((batch.inputs[:, 1] > 0.9).sum()) >= 3
    torch.testing.assert_close(now.double(), mixture().outputs(batch.inputs.double()).detach())
    laid = made.lay_out(4, generator(2))
    assert laid["inputs"].shape == (4, SIZE, 2)
    torch.testing.assert_close(
        laid["now"][3].double(), mixture().outputs(laid["inputs"][3].double()).detach()
    )


def test_scenarios_of_the_tail_weigh_their_duals() -> None:
    scenarios = Scenarios(OBJECTIVE, "cpu")
    scenarios.extend(np.array([[1.0, 9.0], [2.0, 8.0]]), np.zeros(2), None)
    own, tail = (
        scenarios.rows(np.array([0, 1]), np.array([0, 1])),
        scenarios.rows(np.array([5, 5, 6]), np.array([0, 1, 2])),
    )
    rows = RowSet(Layout.single(3), [own, tail])
    duals = Duals(np.array([0.2, 0.2, 0.03, 0.04, 0.0]), np.zeros(1))
    priced = find_priced_scenarios(request(rows=rows, duals=duals))
    np.testing.assert_allclose(priced.inputs, [[1.0, 9.0]])
    np.testing.assert_allclose(priced.duals, [0.07])
    batch, _ = batches(priced=priced).next(10)
    assert batch.weights is not None
    assert batch.inputs[-1].tolist() == [1.0, 9.0]
    outputs = torch.rand(1, SIZE + 1, 3)
    largest = OBJECTIVE.pieces.values(batch.inputs, outputs).amax(-1)[0]
    expected = largest[:SIZE].mean() + 0.07 * largest[SIZE]
    assert float(OBJECTIVE.value(batch, outputs)) == pytest.approx(float(expected), rel=1e-6)
    nothing = PricedScenarios(np.zeros((0, 2)), np.zeros(0))
    assert batches(priced=nothing).next(10)[0].weights is None


@pytest.mark.parametrize("blend", [0.5, 1.0])
def test_the_guided_loss_is_that_of_the_blend(blend: float) -> None:
    pricer = GradientPricer(
        ARCHITECTURE,
        restarts=1,
        training=Training(10, schedule="onecycle"),
        batch_size=SIZE,
        blend=blend,
        finish=0.0,
        tail_share=0.2,
    )
    trainer = Trainer(pricer, request(), generator(5))
    assert trainer.sampled is not None
    batch, now = trainer.sampled.next(10)
    parameters = ARCHITECTURE.initialise(1, generator(6))
    own = ARCHITECTURE.forward(parameters, batch.inputs)
    found = trainer.compute_objective_loss(batch, now, trainer.joint(own))
    mixed = mixture().outputs(batch.inputs.double()).detach()
    blended = (1 - blend) * mixed + blend * own[0].double()
    expected = OBJECTIVE.pieces.values(batch.inputs.double(), blended).amax(-1).mean() / blend
    assert float(found) == pytest.approx(float(expected), rel=1e-5)
