"""The shield of a router, on untrained members that overload links at many demand vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import cg4ai
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.mixture import Part
from cg4ai.routing import Instance, instance
from cg4ai.routing.train.members import SplitNetwork
from cg4ai.routing.train.shield import measure_shield, record_cuts, sample_adversarial, shield
from raising import raises
from small_network import make_small_graph


@pytest.fixture(scope="module")
def made() -> Instance:
    return instance(make_small_graph(), 2, 3)


@pytest.fixture(scope="module")
def router(made: Instance) -> Ensemble:
    network = SplitNetwork(made, hidden=(6,))
    members = network.members(network.initialise(2, torch.Generator().manual_seed(5)))
    return Ensemble((Part(members, np.arange(2), np.ones(2)),), Layout(made.blocks))


def test_no_link_is_overloaded_and_splits_stay_splits(made: Instance, router: Ensemble) -> None:
    shielded = shield(made, router)
    vectors = sample_adversarial(made, shielded, 4000, seed=1)
    assert vectors.shape == (4000, 2)
    assert ((vectors >= 0) & (vectors <= made.demand_max)).all()
    explained = shielded.predict(vectors, explain=True)
    before = made.compute_utilisation(vectors, router.predict(vectors)).max(axis=1)
    after = made.compute_utilisation(vectors, explained.outputs).max(axis=1)
    assert before.max() > 1.05
    assert after.max() <= 1 + 1e-12
    np.testing.assert_array_equal(explained.theta > 0, before > 1)
    # where it acts the most loaded link is filled exactly: less would not do
    np.testing.assert_allclose(after[before > 1], 1.0, atol=1e-9)
    for block in made.blocks:
        np.testing.assert_allclose(explained.outputs[:, block].sum(axis=1), 1.0)
    assert (explained.labels == "shielded").all()


def test_the_anchor_is_proven_at_the_corner(made: Instance, router: Ensemble) -> None:
    check = shield(made, router).checks[0]
    assert check.exact
    corner = float(made.find_optimal(made.demand_max[None]).mlu[0])
    assert check.room == pytest.approx(1 - corner, abs=1e-7)


def test_measures_agree_with_predictions(made: Instance, router: Ensemble) -> None:
    shielded = shield(made, router)
    vectors = made.sample(500, 2)
    best = made.find_optimal(vectors).mlu
    report = measure_shield(made, shielded, vectors=vectors, best=best, inputs=2000, seed=2)
    assert report.inputs == 2000
    assert report.worst <= 1 + 1e-12 < report.worst_unshielded
    assert report.unrouted == pytest.approx(0, abs=1e-12)
    assert made.compute_unrouted(0.9 * shielded.predict(vectors)) == pytest.approx(0.1)
    assert 0 < report.acting < report.adversarial_acting < 1
    assert 0 < report.mean_theta <= report.largest_theta <= 1
    assert report.mean_gap != report.mean_gap_unshielded


def test_a_shielded_router_is_loaded_with_its_shield(
    made: Instance, router: Ensemble, tmp_path: Path
) -> None:
    shielded = shield(made, router)
    loaded = cg4ai.load(shielded.save(tmp_path))
    vectors = made.sample(200, 3)
    np.testing.assert_array_equal(loaded.predict(vectors), shielded.predict(vectors))
    assert loaded.audit(_capacity(made)).holds
    assert not loaded.unshielded.audit(_capacity(made)).holds


def _capacity(made: Instance) -> cg4ai.rules.Linear:
    from cg4ai.routing.settings import Recipe
    from cg4ai.routing.train.problem import capacity

    return capacity(made, Recipe())


def test_stored_cuts_are_labelled_where_they_hold(made: Instance, router: Ensemble) -> None:
    cuts = np.concatenate([made.demand_max[None], made.sample(50, 4)])
    copy = Ensemble(router.parts, router.layout)
    good = made.compute_utilisation(cuts, router.predict(cuts)).max(axis=1) <= 1 + 1e-6
    assert record_cuts(made, copy, cuts) == good.sum()
    labels = copy.predict(cuts, explain=True).labels
    np.testing.assert_array_equal(labels, np.where(good, "audited", "unverified"))
    assert 0 < good.sum() < len(good)


def test_an_anchor_that_overloads_the_corner_is_refused(made: Instance, router: Ensemble) -> None:
    first = np.concatenate([np.eye(len(block))[0] for block in made.blocks])
    assert made.compute_utilisation(made.demand_max, first).max() > 1
    with raises(InvalidInput, "anchor", "capacity"):
        router.apply_shield(first, _capacity(made))
