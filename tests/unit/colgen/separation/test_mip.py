"""MixedInteger against all sign patterns, each one linear program of SciPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from cg4ai import ConstrainedRegressor, Ensemble
from cg4ai.colgen.separation import MixedInteger, default_separator
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.members.networks import NetworkArchitecture, affine
from cg4ai.members.relu import ReluNetwork
from cg4ai.proofs import certify
from cg4ai.records import Array
from cg4ai.rules import (
    AffineBound,
    AffineCoefficients,
    Box,
    Largest,
    Linear,
    Margin,
    Probability,
    Quadratic,
)
from cg4ai.rules.regions import Ball, Polytope
from raising import raises

D, R = 3, 3


def mixture(seed: int, *, members: int = 2, hidden: int = 2, **how: Any) -> Ensemble:
    made = torch.Generator().manual_seed(seed)
    architecture = NetworkArchitecture(D, R, hidden=(hidden,), **how)
    weights = np.random.default_rng(seed).dirichlet(np.ones(members))
    stack = architecture.members(architecture.initialise(members, made))
    return Ensemble((Part(stack, np.zeros(members, np.int64), weights),), Layout.single(R))


def brute(network: ReluNetwork, rule: Array, limits: tuple[Array, Array], region: Any) -> float:
    """The largest `rule . y - max_p (limit_p + tilt_p . x)`: one LP for every sign pattern."""
    total, (limit, tilt) = network.combine_outputs(rule), limits
    box = region.box if isinstance(region, Polytope) else Box(*region.bounds())
    best = -np.inf
    for signs in itertools.product([False, True], repeat=len(total.weight)):
        active = np.array(signs)
        slope, constant = total.restrict_to_signs(active)
        side = np.where(active, -1.0, 1.0)[:, None]
        rows = [np.column_stack([side * total.hidden, np.zeros(len(active))])]
        ends = [-side[:, 0] * total.offset]
        rows.append(np.column_stack([tilt - slope, np.ones(len(limit))]))  # t <= each excess
        ends.append(constant - limit)
        if isinstance(region, Polytope):
            rows.append(np.column_stack([region.matrix, np.zeros(len(region.limit))]))
            ends.append(region.limit)
        bounds = [*zip(box.lower, box.upper, strict=True), (None, None)]
        found = linprog(
            [*np.zeros(len(slope)), -1.0], np.concatenate(rows), np.concatenate(ends), bounds=bounds
        )
        if found.status == 0:
            best = max(best, -found.fun)
    return best


def search(ensemble: Any, requirement: Any, **how: Any) -> Any:
    how = {"seed": 1, "limit": 20, "tolerance": -100.0} | how
    return default_separator(requirement, True).find(ensemble, requirement, **how)


def random_region(random: np.random.Generator) -> Any:
    lower = random.uniform(-2, 0, D)
    upper = lower + random.uniform(0, 3, D) * (random.random(D) > 0.2)  # some are fixed
    box = Box(lower, upper)
    kind = random.integers(3)
    if kind == 1:
        return Ball(lower, float(random.uniform(0.1, 2)), np.inf)
    if kind == 2:
        normals = random.normal(size=(2, D))
        return Polytope(box, normals, normals @ box.middle + 0.1)
    return box


@pytest.mark.parametrize("seed", range(25))
def test_it_finds_what_all_sign_patterns_find(seed: int) -> None:
    random = np.random.default_rng(seed)
    ensemble = mixture(seed, members=1 + seed % 3, skip=bool(seed % 2))
    region, rules = random_region(random), random.normal(size=(2, R))
    bounds = [
        Largest([AffineBound(random.normal(), random.normal(size=D)) for _ in range(2)]),
        random.normal(size=2),
    ]
    rule = Linear(region, rules, bounds[seed % 2], "<=", separator="mip")
    found = search(ensemble, rule)
    network, form = ReluNetwork.of(ensemble), rule.normal_form
    assert form is not None
    exact = max(
        brute(network, one, (form.limit[form.piece == k], form.tilt[form.piece == k]), region)
        for k, one in enumerate(form.constant)
    )
    assert found.worst == pytest.approx(exact, abs=1e-6)
    assert found.bound == pytest.approx(exact, abs=1e-5)
    assert found.worst <= found.bound
    assert region.contains(found.rows.inputs).all()


@pytest.mark.parametrize("form", ["member", "pairwise"])
@pytest.mark.parametrize("seed", range(5))
def test_a_margin_is_one_rule_for_every_other_class(seed: int, form: str) -> None:
    ensemble, box = mixture(seed), Box(-np.ones(D), np.ones(D))
    rule = Margin(box, 1, 0.1, form=form, separator="mip")
    found = search(ensemble, rule)
    network, limits = ReluNetwork.of(ensemble), (np.array([-0.1]), np.zeros((1, D)))
    exact = [
        brute(network, np.eye(R)[other] - np.eye(R)[1], limits, box)
        for other in range(R)
        if other != 1
    ]
    assert found.worst == pytest.approx(max(exact), abs=1e-6)


def test_equalities_have_two_sides_and_blocks_their_own_outputs() -> None:
    architecture = NetworkArchitecture(D, 2, hidden=(2,), shift=np.ones(D), scale=np.full(D, 2.0))
    stack = architecture.members(architecture.initialise(2, torch.Generator().manual_seed(0)))
    slopes = np.random.default_rng(0).normal(size=(1, D, 2))
    parts = (
        Part(stack, np.array([0, 1]), np.array([0.5, 1.0])),
        Part(affine(slopes, np.ones((1, 2))), np.zeros(1, np.int64), np.array([0.25])),
        Part(ConstantMembers([[1.0, 2.0]], D), np.zeros(1, np.int64), np.array([0.25])),
    )
    ensemble = Ensemble(parts, Layout((np.array([2, 0]), np.array([1]))))
    inputs = np.random.default_rng(1).normal(size=(50, D))
    network = ReluNetwork.of(ensemble)
    np.testing.assert_allclose(network.outputs(inputs), ensemble.predict(inputs), atol=1e-12)
    box = Box(-np.ones(D), np.ones(D))
    rule = Linear(box, [1.0, -2.0, 1.0], 0.3, "==", separator="mip")
    limits = np.zeros((1, D))
    sides = [
        brute(network, np.array([1.0, -2.0, 1.0]), (np.array([0.3]), limits), box),
        brute(network, -np.array([1.0, -2.0, 1.0]), (np.array([-0.3]), limits), box),
    ]
    assert search(ensemble, rule).bound == pytest.approx(max(sides), abs=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_the_certifier_agrees(seed: int) -> None:
    ensemble, box = mixture(seed), Box(-np.ones(D), np.ones(D))
    largest = search(ensemble, Linear(box, [1.0, 0, -1.0], 0.0, "<=", separator="mip")).bound
    above = certify(ensemble, Linear(box, [1.0, 0, -1.0], largest + 1e-3, "<="))
    below = certify(ensemble, Linear(box, [1.0, 0, -1.0], largest - 1e-3, "<="))
    assert (above.status, below.status) == ("proven", "refuted")


def test_a_rule_that_holds_has_no_rows_and_a_bound_that_says_so() -> None:
    ensemble, box = mixture(0), Box(-np.ones(D), np.ones(D))
    found = search(ensemble, Linear(box, [1.0, 0, 0], 100.0, "<=", separator="mip"), tolerance=1e-9)
    assert found.rows is None
    assert found.worst <= found.bound < 0
    assert found.effort["programs"] == 0  # lines above the units suffice


def test_a_program_that_runs_out_of_time_still_bounds() -> None:
    ensemble, box = mixture(3, members=20, hidden=8), Box(-np.ones(D), np.ones(D))
    rule = Linear(box, [1.0, -1.0, 1.0], 0.0, "<=")
    exact = search(ensemble, Linear(box, [1.0, -1.0, 1.0], 0.0, "<=", separator="mip"))
    brief = MixedInteger(seconds=1e-3).find(ensemble, rule, seed=0, limit=5, tolerance=-9.0)
    assert brief.worst <= exact.worst + 1e-6 <= brief.bound + 2e-6


def refused(ensemble: Any, rule: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        MixedInteger(units=3).find(ensemble, rule, seed=0, limit=5, tolerance=0.0)
    return str(caught.value)


def test_what_no_program_states_is_refused_by_its_reason() -> None:
    box = Box(-np.ones(D), np.ones(D))
    rule = Linear(box, [1.0, 0, 0], 0.0, "<=")
    assert "softmax" in refused(mixture(0, output="softmax"), Probability(box, 0, 0.5))
    assert "hidden layer of tanh" in refused(mixture(0, activation="tanh"), rule)
    assert "maximum norm" in refused(mixture(0), Linear(Ball(np.zeros(D), 1.0), [1.0, 0, 0], 0.0))
    assert "at most 3 units" in refused(mixture(0, members=4), rule)
    slopes = AffineCoefficients.dense(np.zeros((1, R)), np.ones((1, R, D)))
    assert "bilinear" in refused(mixture(0), Linear(box, slopes, 0.0, "<="))
    assert "none" in refused(mixture(0), Quadratic(box, np.eye(R), 1.0))
    with raises(InvalidInput, "type", "milp", "mip"):
        Linear(box, [1.0, 0, 0], 0.0, separator="milp")  # type: ignore[arg-type]


def fitted(activation: str) -> ConstrainedRegressor:
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, size=(60, 2))
    cap = Linear(Box([-1, -1], [1, 1]), [1.0], 1.0, "<=", name="cap", separator="mip")
    return ConstrainedRegressor(
        hidden=(4,),
        activation=activation,
        steps=60,
        iteration_limit=3,
        settings={"guarantee": "attacked", "row_margin": 1e-3},
        random_state=0,
    ).fit(X, X[:, 0] ** 2 + X[:, 1], requirements=[cap])


@pytest.mark.filterwarnings("ignore::cg4ai.errors.FitWarning")
def test_a_run_with_exact_separation_ends_bounded() -> None:
    model = fitted("relu")
    (audit,) = model.audit_
    assert audit.strength == "bounded"
    assert audit.effort["bound"] <= audit.tolerance
    assert "holds (bounded) at every input" in str(audit)
    assert model.predict(np.random.default_rng(1).uniform(-1, 1, (5000, 2))).max() <= 1.0


def test_members_that_no_program_states_are_refused_before_training() -> None:
    with raises(InvalidInput, "unsupported"):
        fitted("tanh")
