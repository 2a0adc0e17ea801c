"""Splits in multiples of 1/N: rounding against brute force, and capacities at every vector."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput, InvalidSettings, RunFolderError
from cg4ai.layout import Layout
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.records import Array
from cg4ai.routing import anchor, instance, shielded_problem
from cg4ai.routing.network.description import describe_instance, restore_instance
from cg4ai.routing.network.instance import Instance, round_answers_of
from cg4ai.routing.settings import RouteSettings
from cg4ai.routing.train.granular import (
    Granularity,
    compute_worst_load,
    find_granular_split,
    restore_granularity,
    round_splits,
)
from cg4ai.routing.train.optimal import SplitProgram
from raising import raises

DEMAND = np.array([0, 0, 0, 1, 1, 2])


@given(st.integers(1, 40), st.lists(st.floats(0, 1), min_size=6, max_size=6))
def test_rounding_keeps_sums_and_moves_no_share_by_a_part(parts: int, raw: list[float]) -> None:
    weights = np.array([raw]) + 1e-6
    splits = weights / np.bincount(DEMAND, weights[0])[DEMAND]
    rounded = round_splits(splits, DEMAND, parts)
    counts = rounded * parts
    assert counts == pytest.approx(np.round(counts), abs=1e-9)
    assert np.bincount(DEMAND, rounded[0]) == pytest.approx(np.ones(3))
    assert (np.abs(rounded - splits) < 1 / parts + 1e-9).all()
    assert np.array_equal(round_splits(rounded, DEMAND, parts), rounded)


def test_rounding_is_by_largest_remainders() -> None:
    splits = np.array([[0.5, 0.3, 0.2, 0.55, 0.45, 1.0]])
    assert (4 * round_splits(splits, DEMAND, 4)).tolist() == [[2, 1, 1, 2, 2, 4]]
    assert (3 * round_splits(splits, DEMAND, 3)).tolist() == [[1, 1, 1, 2, 1, 3]]


@pytest.fixture(scope="module", params=[{}, {"hose": 0.7}, {"least": 0.2}], ids=str)
def made(request: pytest.FixtureRequest) -> Instance:
    return instance("dfn-bwin", 10, 3, **request.param)


def bad_splits(made: Instance, count: int, seed: int) -> Array:
    """Optimal splits of other vectors: some overload links, most do not."""
    return SplitProgram(made).solve(made.sample(count, seed))[0]


@pytest.mark.parametrize("parts", [9, 16])
def test_within_the_set_no_rounded_answer_overloads_a_link(made: Instance, parts: int) -> None:
    """Whatever is rounded, at random vectors, vertices and the edge; recomputed from flows."""
    near = anchor(made, made.sample(50, 0), reserve=1.0)
    split = find_granular_split(made, parts, near=near)
    assert split * parts == pytest.approx(np.round(split * parts), abs=1e-9)
    worst = made.region.peaks(np.random.default_rng(0).normal(size=(200, 10))).inputs
    vectors = np.concatenate([made.sample(200, 1), worst])
    splits = bad_splits(made, len(vectors), 2)
    splits[:5] = np.nan
    before = made.compute_utilisation(vectors[5:], splits[5:]).max(axis=1)
    assert (before > 1).any()
    found = Granularity(made, parts, split).round_answers(vectors, splits)
    flows = vectors[:, made.path_demand] * found
    assert ((flows @ made.incidence) <= made.capacity * (1 + 1e-12)).all()
    assert found * parts == pytest.approx(np.round(found * parts), abs=1e-9)
    assert made.compute_unrouted(found) < 1e-9
    alone = Granularity(made, parts, split).round_answers(vectors[-1:], splits[-1:])
    assert np.array_equal(alone[0], found[-1])


def test_the_constant_split_exists_just_where_brute_force_finds_one() -> None:
    """All splits of two demands in fourths and less, at the largest demands."""
    small = instance("abilene", 2, 3)
    for parts, scale in product((1, 2, 3, 4), (0.6, 0.8, 1.0)):
        scaled = replace(small, demand_max=scale * small.demand_max)
        units = [u for u in product(range(parts + 1), repeat=3) if sum(u) == parts]
        assert [len(block) for block in scaled.blocks] == [3, 3]
        every = np.array([a + b for a, b in product(units, units)]) / parts
        corner = np.tile(scaled.demand_max, (len(every), 1))
        fits = bool((scaled.compute_utilisation(corner, every).max(axis=1) <= 1 - 1e-6).any())
        near = scaled.robust.split
        if fits:
            found = find_granular_split(scaled, parts, near=near)
            assert compute_worst_load(scaled, found) <= 1
        else:
            with raises(InvalidInput, "infeasible", "--granularity"):
                find_granular_split(scaled, parts, near=near)


def test_a_shield_moves_towards_a_rounded_split_and_a_run_says_so() -> None:
    whole = round_answers_of(instance("abilene", 3, 3), 8)
    recipe = RouteSettings(network="abilene", scenarios=20, priced=20, granularity=8)
    ((members, _),) = shielded_problem(whole, recipe).start
    restored = restore_instance(describe_instance(whole))
    assert restored.granularity == 8
    part = Part(members, np.zeros(1, np.int64), np.ones(1))
    router = Ensemble((part,), Layout.single(len(whole.path_demand)))
    granular = restore_granularity(restored, router)
    assert granular is not None
    assert compute_worst_load(whole, granular.anchor) <= 1
    even = np.array([1 / len(whole.blocks[demand]) for demand in whole.path_demand])
    bare = Part(ConstantMembers(even[None], 3), np.zeros(1, np.int64), np.ones(1))
    with raises(RunFolderError, "altered"):
        restore_granularity(restored, Ensemble((bare,), Layout.single(len(whole.path_demand))))
    assert restore_granularity(replace(restored, granularity=None), router) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"granularity": 0},
        {"granularity": 8, "guarantee": "certified"},
        {"granularity": 8, "guarantee": "attacked"},
        {"granularity": 8, "agent_scope": "source"},
        {"granularity": 8, "ratio": 1.2, "min_demand": 0.1},
    ],
)
def test_granularity_without_a_shield_for_all_demands_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidSettings, match="granularity"):
        RouteSettings.from_mapping({"network": "abilene", **wrong})
