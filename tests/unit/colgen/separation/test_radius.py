"""largest_radius against one linear program for every sign pattern and other class."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from cg4ai import Ensemble
from cg4ai.colgen.separation.radius import largest_radius
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.mixture import Part
from cg4ai.members.networks import NetworkArchitecture, affine
from cg4ai.members.relu import ReluNetwork
from cg4ai.records import Array
from cg4ai.rules import Box
from raising import raises

D, R = 4, 3
WITHIN = Box(np.zeros(D), np.ones(D))


def mixture(seed: int) -> Ensemble:
    architecture = NetworkArchitecture(D, R, hidden=(3,))
    made = torch.Generator().manual_seed(seed)
    stack = architecture.members(architecture.initialise(2, made))
    return Ensemble((Part(stack, np.zeros(2, np.int64), np.full(2, 0.5)),), Layout.single(R))


def brute(network: ReluNetwork, centre: Array, label: int) -> float:
    """The least r such that another output is as high somewhere within r; inf: nowhere."""
    best = np.inf
    for other in set(range(R)) - {label}:
        total = network.combine_outputs(np.eye(R)[other] - np.eye(R)[label])
        for signs in itertools.product([False, True], repeat=len(total.weight)):
            active = np.array(signs)
            slope, constant = total.restrict_to_signs(active)
            side = np.where(active, -1.0, 1.0)[:, None]
            rows = np.concatenate(
                [
                    np.column_stack([side * total.hidden, np.zeros(len(active))]),
                    np.append(-slope, 0.0)[None],
                    np.column_stack([np.eye(D), -np.ones(D)]),
                    np.column_stack([-np.eye(D), -np.ones(D)]),
                ]
            )
            ends = [-side[:, 0] * total.offset, np.array([constant]), centre, -centre]
            found = linprog([*np.zeros(D), 1.0], rows, np.concatenate(ends), bounds=(0, 1))
            if found.status == 0:
                best = min(best, found.fun)
    return best


@pytest.mark.parametrize("seed", range(12))
def test_the_radius_is_that_of_all_sign_patterns(seed: int) -> None:
    ensemble, centre = mixture(seed), np.random.default_rng(seed).uniform(size=D)
    outputs = ensemble.predict(centre[None])[0]
    label = int(outputs.argmax())
    found = largest_radius(ensemble, centre, label, within=WITHIN)
    exact = brute(ReluNetwork.of(ensemble), centre, label)
    assert found.closed
    assert found.proven <= exact + 1e-7
    if found.other is None:
        assert exact == np.inf
        return
    assert found.broken == pytest.approx(exact, rel=1.5e-4)
    assert np.abs(found.other - centre).max() == pytest.approx(found.broken)
    scores = ensemble.predict(found.other[None])[0]
    assert np.delete(scores, label).max() >= scores[label] - 1e-9


def test_a_wrong_answer_has_no_radius_and_a_constant_one_no_end() -> None:
    slopes, bias = np.zeros((1, D, R)), np.array([[0.0, 1.0, 0.0]])
    constant = Ensemble(
        (Part(affine(slopes, bias), np.zeros(1, np.int64), np.ones(1)),), Layout.single(R)
    )
    centre = np.full(D, 0.5)
    kept = largest_radius(constant, centre, 1, within=WITHIN)
    assert (kept.proven, kept.broken, kept.other) == (0.5, np.inf, None)
    assert "kept everywhere" in str(kept)
    assert largest_radius(constant, centre, 0, within=WITHIN).broken == 0.0
    with raises(InvalidInput, "outside"):
        largest_radius(constant, centre + 1.0, 0, within=WITHIN)
    with raises(InvalidInput, "range"):
        largest_radius(constant, centre, 3, within=WITHIN)


def test_without_time_the_bracket_stays_open_and_true() -> None:
    ensemble, centre = mixture(1), np.full(D, 0.5)
    label = int(ensemble.predict(centre[None])[0].argmax())
    exact = brute(ReluNetwork.of(ensemble), centre, label)
    found = largest_radius(ensemble, centre, label, within=WITHIN, seconds=1e-9)
    assert 0 < found.proven <= exact + 1e-7
    assert found.broken >= exact - 1e-7
