"""The routing problem: capacity rows, the anchor, first rows and the settings of a recipe."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cg4ai.errors import InvalidSettings
from cg4ai.objectives import Epigraph, Supervised
from cg4ai.routing import Instance, instance
from cg4ai.routing.settings import Recipe, RouteSettings
from cg4ai.routing.train.problem import capacity, choose_margin, first_rows, routing_problem
from raising import raises

TINY = Recipe(scenarios=20, priced=20, first_steps=5, later_steps=5, batch_size=8)


@pytest.fixture(scope="module")
def abilene() -> Instance:
    return instance("abilene", 5, 3)


def test_capacity_rows_are_utilisation(abilene: Instance) -> None:
    requirement = capacity(abilene, Recipe())
    requirement.check(len(abilene.demand_max), len(abilene.path_demand))
    vectors = abilene.sample(7, 0)
    generator = np.random.default_rng(0)
    splits = generator.uniform(0.1, 1, (7, len(abilene.path_demand)))
    for block in abilene.blocks:
        splits[:, block] /= splits[:, block].sum(1, keepdims=True)
    found = requirement.violations(torch.as_tensor(vectors), torch.as_tensor(splits)).numpy()
    np.testing.assert_allclose(found, abilene.compute_utilisation(vectors, splits) - 1)
    arcs = np.arange(7) % len(abilene.arcs)
    rows = requirement.rows_at(vectors, arcs, 0)
    values = rows.values(torch.as_tensor(splits)).numpy()
    np.testing.assert_allclose(rows.bounds - values, found[np.arange(7), arcs])


def test_anchors_keep_every_link_within_capacity(abilene: Instance) -> None:
    """A constant split that fits at the corner fits everywhere: checked at all vertices."""
    problem = routing_problem(abilene, TINY)
    shares = (np.arange(32)[:, None] >> np.arange(5)) & 1
    vertices = shares * abilene.demand_max
    for members, blocks in problem.start:
        assert blocks.tolist() == list(range(5))
        outputs = members.outputs(torch.zeros(1, 5, dtype=torch.float64)).numpy()[:, 0]
        split = np.concatenate([outputs[d, : len(b)] for d, b in enumerate(abilene.blocks)])
        assert abilene.compute_utilisation(vertices, split).max() <= 1 + 1e-9


def test_first_rows_hold_the_corner_and_captives(abilene: Instance) -> None:
    requirement = capacity(abilene, TINY)
    requirement.check(len(abilene.demand_max), len(abilene.path_demand))
    rows = first_rows(abilene, requirement)
    assert rows.origin is not None
    arcs = rows.origin[:, 1]
    assert set(arcs.tolist()) == set(range(len(abilene.arcs)))
    for vector, arc in zip(rows.inputs, arcs, strict=True):
        full = vector > 0
        np.testing.assert_allclose(vector[full], abilene.demand_max[full])
        # whoever is at zero has a path around the arc
        for demand in np.flatnonzero(~full):
            assert abilene.incidence[abilene.blocks[demand], arc].min() == 0


def test_margin_leaves_most_of_the_room() -> None:
    assert choose_margin(instance("abilene", 5, 3, load=0.99)) == pytest.approx(1e-3)
    assert choose_margin(instance("abilene", 5, 3, load=0.999)) == pytest.approx(1e-4)
    assert choose_margin(instance("abilene", 5, 3, load=1.0)) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("objective", "kind"), [("mlu", Epigraph), ("cost", Epigraph), ("split", Supervised)]
)
def test_objectives(abilene: Instance, objective: str, kind: type) -> None:
    recipe = Recipe(objective=objective, scenarios=10, priced=10)  # type: ignore[arg-type]
    assert isinstance(routing_problem(abilene, recipe).objective, kind)


def test_recipes_refuse_nothing_to_do() -> None:
    with raises(InvalidSettings, "invalid-settings", "scenarios"):
        Recipe(scenarios=0)


def test_exact_separation_is_refused_with_its_reason() -> None:
    with raises(InvalidSettings, "invalid-settings", "certified"):
        Recipe(separator="mip")
    with raises(InvalidSettings, "invalid-settings", "bilinear"):
        RouteSettings(network="abilene", separator="mip")


def test_the_papers_protocol_is_fixed_and_contradictions_are_refused_in_one_line() -> None:
    asked = RouteSettings(network="abilene", protocol="paper", paths=2)
    assert (asked.load, asked.paths) == (0.99, 2)
    contradictions = {"load": 0.5, "min_demand": 0.1, "hose": 0.5, "budget": 0.5, "path_file": "p"}
    for name, value in contradictions.items():
        with raises(InvalidSettings, "invalid-settings", name) as caught:
            RouteSettings(network="abilene", protocol="paper", **{name: value})  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)
    with raises(InvalidSettings, "invalid-settings", "load, hose"):
        RouteSettings(network="abilene", protocol="paper", load=None, hose=0.5)
    with raises(InvalidSettings, "invalid-settings", "protocol"):
        RouteSettings(network="abilene", protocol="papers")  # type: ignore[arg-type]
