"""Tree bounds against brute force over every piece of the cell."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import GradientBoostingClassifier, RandomForestRegressor
from sklearn.tree import DecisionTreeRegressor

from cg4ai.members import from_sklearn
from cg4ai.proofs.bounds import trees as tree_bounds
from cg4ai.proofs.bounds.trees import (
    TreeBound,
    WeightedTrees,
    convert_thresholds,
    remove_input_rounding,
)

SINGLE = float(np.finfo(np.float32).max)
EDGES = [sign * size for sign in (-1, 1) for size in (SINGLE, SINGLE + 1e30, 1e39, 1e300)]
NUMBERS = st.floats(-1e6, 1e6) | st.sampled_from(EDGES)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@settings(max_examples=300, deadline=None)
@given(threshold=NUMBERS, x=NUMBERS, steps=st.integers(-2, 2))
def test_double_thresholds_decide_as_rounding_to_single_precision_does(threshold, x, steps):
    exact = float(convert_thresholds(torch.tensor([threshold], dtype=torch.float64)))
    near = exact
    for _ in range(abs(steps)):
        near = float(np.nextafter(near, np.copysign(np.inf, steps)))
    for value in (x, near):
        assert (np.float64(np.float32(value)) <= threshold) == (value <= exact)


def boosted(seed):
    generator = np.random.default_rng(seed)
    X, y = generator.uniform(-1, 1, (60, 2)), generator.integers(0, 3, 60)
    return from_sklearn(GradientBoostingClassifier(n_estimators=3, max_depth=2).fit(X, y))


def forest(seed, model=RandomForestRegressor):
    generator = np.random.default_rng(seed)
    X, y = generator.uniform(-1, 1, (60, 2)), generator.normal(size=(60, 3))
    options = {"n_estimators": 3} if model is RandomForestRegressor else {}
    return from_sklearn(model(max_depth=3, random_state=0, **options).fit(X, y))


def brute_force(members, constant, slope, lower, upper):
    """max over the box: evaluate at both sides of every threshold and maximise in between."""
    members = remove_input_rounding(members)
    cuts = [np.unique(members.threshold[members.feature == i].numpy()) for i in range(2)]
    inside = [c[(c >= lo) & (c < hi)] for c, lo, hi in zip(cuts, lower, upper, strict=True)]
    ends = [np.append(c, hi) for c, hi in zip(inside, upper, strict=True)]
    starts = [np.append(lo, c) for c, lo in zip(inside, lower, strict=True)]
    best = -np.inf
    for (a, b), (c, d) in product(
        zip(starts[0], ends[0], strict=True), zip(starts[1], ends[1], strict=True)
    ):
        y = members.outputs(torch.tensor([[b, d]], dtype=torch.float64))[0, 0].numpy()
        best = max(best, *[(constant + slope @ [u, v]) @ y for u in (a, b) for v in (c, d)])
    return best


@pytest.mark.parametrize("make", [boosted, forest, lambda s: forest(s, DecisionTreeRegressor)])
@pytest.mark.parametrize("sloped", [False, True])
def test_bounds_equal_brute_force_where_pieces_are_few_and_are_above_it_elsewhere(
    make, sloped, monkeypatch
):
    generator = np.random.default_rng(0)
    for seed in range(4):
        members = make(seed)
        constant = generator.normal(size=3)
        slope = generator.normal(size=(3, 2)) if sloped else np.zeros((3, 2))
        bound = TreeBound(
            [WeightedTrees(remove_input_rounding(members), np.ones(1), constant[None], slope[None])]
        )
        for width in (0.1, 0.5, 2.0):
            lower = generator.uniform(-1, 1, 2)
            upper = lower + width * generator.uniform(0, 1, 2)
            exact = brute_force(members, constant, slope, lower, upper)
            corners = torch.as_tensor(lower)[None], torch.as_tensor(upper)[None]
            monkeypatch.setattr(tree_bounds, "PIECES", 4096)
            assert float(bound.above(*corners)[0]) == pytest.approx(exact, abs=1e-12)
            monkeypatch.setattr(tree_bounds, "PIECES", 0)
            assert float(bound.above(*corners)[0]) >= exact - 1e-12


def test_a_single_tree_is_bounded_exactly_by_its_reachable_leaves(monkeypatch):
    monkeypatch.setattr(tree_bounds, "PIECES", 0)
    members = forest(1, DecisionTreeRegressor)
    constant = np.array([1.0, -1.0, 0.5])
    bound = TreeBound(
        [
            WeightedTrees(
                remove_input_rounding(members), np.ones(1), constant[None], np.zeros((1, 3, 2))
            )
        ]
    )
    lower, upper = np.array([-0.4, -0.2]), np.array([0.5, 0.3])
    exact = brute_force(members, constant, np.zeros((3, 2)), lower, upper)
    above = bound.above(torch.as_tensor(lower)[None], torch.as_tensor(upper)[None])[0]
    assert float(above) == pytest.approx(exact, abs=1e-12)
