"""Predictions outside the region of a guarantee are marked, warned of once, refused on request."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cg4ai
from cg4ai import ConstrainedRegressor
from cg4ai.ensemble.claims import record_certified
from cg4ai.ensemble.ensemble import Ensemble, record_regions
from cg4ai.errors import InvalidInput, OutsideRegion
from cg4ai.layout import Layout
from cg4ai.members import affine
from cg4ai.members.mixture import Part
from cg4ai.proofs import certify
from cg4ai.routing import instance
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.problem import capacity
from cg4ai.rules import Ball, Box, Linear
from raising import raises

UNIT = Box([0.0, 0.0], [1.0, 1.0])
CAP = Linear(UNIT, [1.0], 3.0, "<=", name="cap")
MIDDLE = np.random.default_rng(0).uniform(0, 1, (20, 2))
INSIDE, BEYOND = np.array([[0.5, 0.5], [0.0, 1.0]]), np.array([[0.5, 0.5], [0.5, 1.3]])


def total() -> Ensemble:
    """The sum of two inputs."""
    members = affine(np.ones((1, 2, 1)), np.zeros((1, 1)))
    return Ensemble((Part(members, np.zeros(1, np.int64), np.ones(1)),), Layout.single(1))


def trained(*rules: Any) -> Ensemble:
    ensemble = total()
    record_regions(ensemble, rules or (CAP,), inputs=MIDDLE)
    return ensemble


def quietly(ensemble: Ensemble, inputs: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return ensemble.predict(inputs, **options)


def test_outside_the_box_a_prediction_is_marked_and_warned_of_once() -> None:
    ensemble = trained()
    assert not quietly(ensemble, INSIDE, explain=True).outside.any()
    with pytest.warns(OutsideRegion, match=r"1 of 2 inputs, the first at position 1, .* cap"):
        outputs = ensemble.predict(BEYOND)
    np.testing.assert_allclose(outputs[:, 0], [1.0, 1.8])
    assert quietly(ensemble, BEYOND, explain=True).outside.tolist() == [False, True]


def test_the_warning_names_the_line_of_the_caller() -> None:
    with pytest.warns(OutsideRegion) as caught:
        trained().predict(BEYOND)
    assert Path(caught[0].filename) == Path(__file__)


def test_outside_can_be_refused_or_ignored() -> None:
    ensemble = trained()
    with raises(InvalidInput, "outside", "cap"):
        ensemble.predict(BEYOND, outside="refuse")
    np.testing.assert_allclose(quietly(ensemble, INSIDE, outside="refuse")[:, 0], 1.0)
    quietly(ensemble, BEYOND, outside="ignore")
    with raises(InvalidInput, "unknown-name", "refuse", "refused"):
        ensemble.predict(BEYOND, outside="refused")  # type: ignore[arg-type]


def test_rounding_puts_no_input_outside() -> None:
    ensemble = trained()
    quietly(ensemble, [[1.0 + 1e-13, -1e-13]], outside="refuse")


def test_a_rule_about_a_neighbourhood_is_not_missed_elsewhere() -> None:
    near = Linear(Ball([0.5, 0.5], 0.1), [1.0], 3.0, "<=", name="near")
    quietly(trained(near), BEYOND, outside="refuse")
    with raises(InvalidInput, "outside", "cap"):
        trained(near, CAP).predict(BEYOND, outside="refuse")


def test_regions_are_saved_with_the_ensemble(tmp_path: Path) -> None:
    trained().save(tmp_path)
    with pytest.warns(OutsideRegion):
        cg4ai.load(tmp_path).predict(BEYOND)


def test_shields_and_certificates_of_other_ensembles_count_too() -> None:
    with raises(InvalidInput, "outside", "cap"):
        total().apply_shield([0.0], CAP).predict(BEYOND, outside="refuse")
    proven = total()
    record_certified(proven, CAP, certification=certify(proven, CAP))
    with raises(InvalidInput, "outside", "cap"):
        proven.predict(BEYOND, outside="refuse")
    quietly(total(), BEYOND, outside="refuse")


def test_damaged_records_are_named() -> None:
    ensemble = trained()
    for records in ([{"requirement": "cap"}], [3], [{"requirement": "a", "region": {"kind": 1}}]):
        ensemble.about["regions"] = records
        with raises(InvalidInput, "bad-file"):
            ensemble.predict(INSIDE)
    ensemble.about["regions"] = [{"requirement": "a", "region": Box([0.0], [1.0]).record()}]
    with raises(InvalidInput, "bad-file", "takes"):
        ensemble.predict(INSIDE)
    del ensemble.about["regions"]
    for claims in ([3], 3):
        ensemble.about["guarantees"] = claims
        with raises(InvalidInput, "bad-file"):
            ensemble.predict(INSIDE)


def test_a_regressor_that_was_trained_under_a_rule_over_a_box_warns() -> None:
    model = ConstrainedRegressor(members="affine", random_state=0)
    model.fit(MIDDLE, MIDDLE.sum(axis=1), requirements=[CAP])
    model.predict(MIDDLE)
    with pytest.warns(OutsideRegion):
        model.predict(1.3 * np.ones((1, 2)))


def test_a_router_says_that_demands_above_the_box_are_not_covered() -> None:
    """Its utilisation may be above one there, without a word until now."""
    network = instance("abilene", 5, 3)
    size = len(network.path_demand)
    even = np.concatenate([np.full(len(block), 1 / len(block)) for block in network.blocks])
    members = affine(np.zeros((1, 5, size)), even[None])
    part = Part(members, np.zeros(1, np.int64), np.ones(1))
    router = Ensemble((part,), Layout.single(size))
    record_regions(router, [capacity(network, Recipe())], inputs=network.sample(50, seed=0))
    demands = network.demand_max[None]
    quietly(router, demands, outside="refuse")
    with pytest.warns(OutsideRegion, match="1 of 1 inputs"):
        router.predict(torch.as_tensor(1.3 * demands))
