"""Signed networks keep shapes whatever they learn, and arrays show it, never wrongly."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestRegressor
from sklearn.tree import DecisionTreeClassifier

from cg4ai.ensemble.shapes import find_obstacle
from cg4ai.errors import InvalidInput
from cg4ai.members.conversion import from_sklearn
from cg4ai.members.networks import NetworkArchitecture, NetworkMembers
from cg4ai.members.signed_networks import SignedArchitecture
from cg4ai.rules import Curvature, Monotone
from cg4ai.rules.shapes import Shape
from raising import raises

D = 3
ARCHITECTURE: Any = NetworkArchitecture  # of words that hypothesis chooses


def wild(architecture: SignedArchitecture, seed: int) -> NetworkMembers:
    """Members of parameters that no training would give."""
    made = torch.Generator().manual_seed(seed)
    parameters = architecture.initialise(3, made)
    return architecture.members(
        {n: 3 * torch.randn(v.shape, generator=made) for n, v in parameters.items()}
    )


def moved(shape: Shape, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs, and the same after steps in the features of the shape."""
    generator = np.random.default_rng(seed)
    first = generator.normal(size=(400, D)) * generator.choice([0.1, 1, 10], size=(400, 1))
    step = generator.exponential(size=first.shape) * shape.directions(D)
    return torch.as_tensor(first), torch.as_tensor(first + step)


def breaks(members: NetworkMembers, shape: Shape, seed: int) -> float:
    """How far some functional moves against the shape, at inputs tried, by definition."""
    rows = torch.as_tensor(shape.functionals(members.output_size)).double().T
    first, second = moved(shape, seed)
    one, two = (members.outputs(x) @ rows for x in (first, second))
    if isinstance(shape, Monotone):
        return float((one - two).max())
    sign = next(iter(shape.features.values()))
    return float((sign * (members.outputs((first + second) / 2) @ rows - (one + two) / 2)).max())


@given(
    seed=st.integers(0, 10**6),
    hidden=st.sampled_from([(), (7,), (6, 5), (4, 4, 4)]),
    activation=st.sampled_from(["relu", "tanh"]),
    directions=st.lists(st.sampled_from([-1, 0, 1]), min_size=D, max_size=D),
    kind=st.sampled_from(["one", "several", "binary", "class", "ordered", "logits"]),
    skip=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_whatever_the_parameters_shapes_are_kept(
    seed: int,
    hidden: tuple[int, ...],
    activation: str,
    directions: list[int],
    kind: str,
    skip: bool,
) -> None:
    features = {j: sign for j, sign in enumerate(directions) if sign} or {0: 1}
    outputs = {"one": 1, "several": 3, "binary": 2, "class": 4, "ordered": 4, "logits": 3}[kind]
    rule = {
        "one": Monotone(features),
        "several": Monotone(features, output=1),
        "binary": Monotone(features, output=0),
        "class": Monotone(features, output=2),
        "ordered": Monotone(features, ordered=True),
        "logits": Monotone(features, output=1, logits=True),
    }[kind]
    link = "softmax" if kind in ("binary", "class", "ordered") else "linear"
    inner = ARCHITECTURE(
        D, outputs, hidden=hidden, activation=activation, skip=skip and bool(hidden), output=link
    )
    members = wild(SignedArchitecture(inner, (rule,)), seed)
    assert find_obstacle(members, rule) == ""
    assert breaks(members, rule, seed) <= 1e-9


@given(seed=st.integers(0, 10**6), depth=st.integers(0, 3), sign=st.sampled_from([-1, 1]))
@settings(max_examples=30, deadline=None)
def test_curvature_is_kept_beside_monotone(seed: int, depth: int, sign: int) -> None:
    inner = ARCHITECTURE(D, 2, hidden=(6,) * depth, activation="relu", skip=depth > 0)
    rules = (Curvature({0: sign}, output=0), Monotone({1: -1}), Monotone({0: 1}, output=1))
    members = wild(SignedArchitecture(inner, rules), seed)
    for rule in rules:
        assert find_obstacle(members, rule) == ""
        assert breaks(members, rule, seed) <= 1e-9 * (
            1 + float(members.outputs(moved(rule, seed)[1]).abs().max())
        )


@given(seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_what_arrays_show_is_true(seed: int) -> None:
    """Random networks with many zeros: where nothing is held against them, nothing breaks."""
    made = torch.Generator().manual_seed(seed)
    inner = ARCHITECTURE(D, 1, hidden=(3, 2), activation="relu")
    parameters = {
        name: value * (torch.rand(value.shape, generator=made) < 0.5)
        for name, value in inner.initialise(1, made).items()
    }
    members = inner.members(parameters)
    for rule in (Monotone({0: 1}), Monotone({1: -1}), Curvature({0: 1}), Curvature({2: -1})):
        if find_obstacle(members, rule) == "":
            assert breaks(members, rule, seed) <= 1e-12


def test_networks_can_bend_both_ways_and_use_what_is_free() -> None:
    """Rising is no limit to curvature: there are convex and concave pieces, and free units."""
    inner = ARCHITECTURE(2, 1, hidden=(8,), activation="relu")
    architecture = SignedArchitecture(inner, (Monotone({0: 1}),))
    code = architecture.codes
    assert (code["weight_0"][:, 0] > 0).any()
    assert (code["weight_0"][:, 0] < 0).any()
    outgoing = code["weight_1"][0]
    assert np.array_equal(outgoing[code["weight_0"][:, 0] == 1], [1] * 3)
    assert set(outgoing.tolist()) == {1, -1, 2}


@pytest.mark.parametrize(("rises", "bends"), [(1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1), (0, -1)])
def test_networks_bend_whichever_way_they_move(rises: int, bends: int) -> None:
    shapes: list[Shape] = [Curvature({0: bends})]
    if rises:
        shapes.append(Monotone({0: rises}))
    found = SignedArchitecture(NetworkArchitecture(1, 1, hidden=(16,)), tuple(shapes))
    line = torch.linspace(-3, 3, 201, dtype=torch.float64)[:, None]
    outputs = wild(found, 0).outputs(line)[..., 0]
    one, two = (outputs[:, at] - outputs[:, at + 1] for at in (0, -2))  # minus the slopes
    assert float((bends * (one - two)).max()) > 1
    if not rises:  # and may fall at one end and rise at the other
        assert float((one * two).min()) < 0


def test_members_can_be_trained_on() -> None:
    for output, rule in (("linear", Monotone({0: 1})), ("softmax", Monotone({0: 1}, ordered=True))):
        size = 1 if output == "linear" else 3
        inner = ARCHITECTURE(D, size, hidden=(5,), activation="tanh", skip=True, output=output)
        architecture = SignedArchitecture(inner, (rule,))
        members = wild(architecture, 3)
        known = architecture.parameters(members)
        assert known is not None
        x = torch.randn(9, D, dtype=torch.float64)
        assert torch.allclose(architecture.forward(known, x), members.outputs(x))
        other = inner.members(inner.initialise(1, torch.Generator().manual_seed(0)))
        assert architecture.parameters(other) is None
        assert "may break it in feature 0" in find_obstacle(other, rule)


@pytest.mark.parametrize(
    ("activation", "output", "rule", "code"),
    [
        ("gelu", "linear", Monotone({0: 1}), "unsupported"),
        ("tanh", "linear", Curvature({0: 1}), "unsupported"),
        ("relu", "softmax", Curvature({0: 1}, output=1), "unsupported"),
        ("relu", "softmax", Monotone({0: 1}), "missing-argument"),
        ("relu", "linear", Monotone({0: 1}, ordered=True), "unsupported"),
    ],
)
def test_what_cannot_be_built_is_refused(
    activation: str, output: str, rule: Shape, code: str
) -> None:
    inner = ARCHITECTURE(D, 3, activation=activation, output=output)
    with raises(InvalidInput, code):
        SignedArchitecture(inner, (rule,))


def test_trees_show_it_where_they_were_grown_so() -> None:
    generator = np.random.default_rng(0)
    x = generator.uniform(size=(300, D))
    y = x[:, 0] - x[:, 1] + 0.5 * generator.normal(size=300)
    rule = Monotone({0: 1, 1: -1})
    grown = RandomForestRegressor(5, max_depth=4, monotonic_cst=[1, -1, 0], random_state=0)
    assert find_obstacle(from_sklearn(grown.fit(x, y)), rule) == ""
    free = RandomForestRegressor(5, max_depth=4, random_state=0).fit(x, y)
    assert "may break" in find_obstacle(from_sklearn(free), rule)
    assert "may break" in find_obstacle(from_sklearn(grown), Curvature({0: 1}))
    label = (y > 0).astype(int)
    tree = DecisionTreeClassifier(max_depth=4, monotonic_cst=[1, -1, 0], random_state=0)
    members = from_sklearn(tree.fit(x, label))
    assert find_obstacle(members, Monotone({0: 1, 1: -1}, output=1)) == ""
    assert "may break" in find_obstacle(members, Monotone({0: 1, 1: -1}, output=0))


def test_categories_have_no_order() -> None:
    boosting = pytest.importorskip("sklearn.ensemble").HistGradientBoostingRegressor
    generator = np.random.default_rng(0)
    x = np.column_stack([generator.integers(4, size=300), generator.uniform(size=300)]).astype(
        float
    )
    y = np.array([0.0, 2.0, 1.0, 3.0])[x[:, 0].astype(int)] + x[:, 1]
    model = boosting(max_iter=5, categorical_features=[0], monotonic_cst=[0, 1]).fit(x, y)
    members = from_sklearn(model)
    assert find_obstacle(members, Monotone({1: 1})) == ""
    assert "feature 0" in find_obstacle(members, Monotone({0: 1}))
