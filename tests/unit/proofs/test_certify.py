"""`certify` end to end: proven claims against dense points, refuted with true points, unknown."""

import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from certification_cases import points_in, random_networks, single_block
from scipy.optimize import linprog
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

from cg4ai.ensemble.claims import record_audited
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import (
    ConstantMembers,
    ModuleMembers,
    NetworkArchitecture,
    affine,
    from_sklearn,
)
from cg4ai.members.mixture import Part
from cg4ai.members.modules import ModuleArchitecture
from cg4ai.proofs import certify, find_affine_rules
from cg4ai.proofs import search_rounds as rounds
from cg4ai.proofs.certificate import build_certificate
from cg4ai.rules import Linear, Margin, Probability
from cg4ai.rules.regions import Ball, Box
from cg4ai_checker import check
from raising import raises

certification = sys.modules["cg4ai.proofs.certifier"]
LOWER, UPPER = np.array([-0.8, -0.5]), np.array([0.6, 0.9])
BOX = Box(LOWER, UPPER)


def one(members):
    part = Part(members, np.zeros(1, np.int64), np.ones(1))
    return Ensemble((part,), Layout.single(members.output_size))


def dense(size=301):
    axes = [np.linspace(lo, hi, size) for lo, hi in zip(LOWER, UPPER, strict=True)]
    return np.stack(np.meshgrid(*axes), -1).reshape(-1, 2)


def largest(ensemble, requirement, points):
    rules = find_affine_rules(requirement, output_size=ensemble.output_size)
    return rules.values(points, ensemble.predict(points)).max(0)


KINDS = [
    {"activation": activation, "hidden": hidden, "output": output, "groups": groups}
    for activation, hidden in (("relu", (5,)), ("gelu", (6,)), ("tanh", (4, 3)), ("gelu", ()))
    for output, groups in (("linear", ()), ("softmax", ()), ("grouped", (2, 3)))
]


@pytest.mark.parametrize(
    "kind", KINDS, ids=lambda k: f"{k['activation']}{k['hidden']}{k['output']}"
)
def test_limits_above_the_maximum_are_proven_and_below_it_refuted(kind):
    ensemble = single_block(random_networks(5, outputs=5, skip=True, **kind))
    coefficients = np.array([[1.0, -1.0, 0.5, 0.0, 0.0], [0.0, 0.0, -1.0, 1.0, 2.0]])
    asked = Linear(BOX, coefficients, 0.0, sense="<=")
    top = largest(ensemble, asked, dense())
    room = 0.02 * (1 + np.abs(top))
    kept = Linear(BOX, coefficients, top + room, sense="<=")
    answer = certify(ensemble, kept, time_limit_s=20)
    assert answer.status == "proven"
    assert all(proof.bound <= proof.limit for proof in answer.rules)
    assert np.all(top <= [proof.bound for proof in answer.rules])
    assert len(answer.open_cells) == 0
    broken = Linear(BOX, coefficients, top - 0.05 * room, sense="<=")
    answer = certify(ensemble, broken, time_limit_s=20)
    assert answer.status == "refuted"
    point, rule = answer.counterexample, answer.counterexample_rule
    value = find_affine_rules(broken, output_size=5).values(
        point[None], ensemble.predict(point[None])
    )
    assert value[0, rule] == answer.counterexample_value
    assert value[0, rule] > top[rule] - 0.05 * room[rule]
    assert BOX.contains(point[None])[0]
    assert answer.rules[rule].status == "refuted"


def test_affine_members_are_bounded_exactly():
    generator = np.random.default_rng(0)
    weights, bias = generator.normal(size=(3, 4, 2)), generator.normal(size=(3, 2))
    ensemble = single_block(affine(weights, bias))
    box = Box(np.full(4, -1.0), np.array([1.0, 2.0, 0.5, 3.0]))
    coefficients = np.array([1.0, -2.0])
    shares = ensemble.parts[0].weights
    slope = np.einsum("i,idr,r->d", shares, weights, coefficients)
    best = linprog(-slope, bounds=list(zip(*box.bounds(), strict=True)))
    top = -best.fun + float(shares @ bias @ coefficients)
    answer = certify(ensemble, Linear(box, coefficients, top + 1e-9, sense="<="))
    assert answer.status == "proven"
    assert answer.cells == 1
    assert answer.rules[0].dimensions.tolist() == [-1]
    assert answer.rules[0].bound == pytest.approx(top, abs=1e-10)
    below = Linear(box, coefficients, top - 1e-9, sense="<=")
    assert certify(ensemble, below, tolerance=0.0).status == "refuted"
    within = certify(ensemble, below)
    assert (within.status, within.counterexample) == ("unknown", None)
    assert "1e-09" in within.note
    assert ensemble.audit(below).holds


def test_constants_are_exact_up_to_the_margin():
    members = ConstantMembers([[0.25, 0.75]], 2)
    ensemble = Ensemble((Part(members, np.zeros(1, np.int64), np.ones(1)),), Layout.single(2))
    answer = certify(ensemble, Linear(BOX, [1.0, 1.0], 1.0 + 1e-9, sense="<="))
    assert answer.status == "proven"
    assert answer.rules[0].bound - 1.0 < 1e-10


def test_margins_probabilities_and_both_sides():
    ensemble = single_block(random_networks(2, output="softmax", size=0.6))
    values = ensemble.predict(dense())
    label = int(values.mean(0).argmax())
    least = values[:, label].min()
    assert certify(ensemble, Probability(BOX, label, least - 0.01)).status == "proven"
    assert certify(ensemble, Probability(BOX, label, least + 1e-3)).status == "refuted"
    lead = (values[:, [label]] - np.delete(values, label, 1)).min()
    assert certify(ensemble, Margin(BOX, label, lead - 0.01)).status == "proven"
    middle, half = values[:, 0].mean(), np.abs(values[:, 0] - values[:, 0].mean()).max()
    row = [1.0, 0.0, 0.0]
    assert certify(ensemble, Linear(BOX, row, middle - half - 0.01)).status == "proven"
    both = certify(ensemble, Linear(BOX, row, middle, sense="=="))
    assert both.status == "refuted"
    assert len(both.rules) == 2


def test_probabilities_sum_to_one_is_proven_at_the_root():
    ensemble = single_block(random_networks(2, output="softmax", hidden=(6, 6)))
    answer = certify(ensemble, Linear(BOX, [1.0, 1.0, 1.0], 1.0 + 1e-9, sense="<="))
    assert answer.status == "proven"
    assert answer.cells == 1


@pytest.mark.parametrize("norm", [2, math.inf])
def test_balls(norm):
    ensemble = single_block(random_networks(4, activation="tanh", hidden=(6,)))
    centre, radius = np.array([0.1, 0.2]), 0.7
    ball = Ball(centre, radius, norm=norm)
    inside = dense(401) * 1.5
    inside = inside[ball.contains(inside)]
    edge = ball.extremes(4000, torch.Generator().manual_seed(0)).numpy()
    row = np.array([1.0, -1.0, 0.3])
    top = float((ensemble.predict(np.concatenate([inside, edge])) @ row).max())
    answer = certify(ensemble, Linear(ball, row, top + 0.01, sense="<="))
    assert answer.status == "proven"
    assert top <= answer.rules[0].bound <= top + 0.01
    refuted = certify(ensemble, Linear(ball, row, top - 0.005, sense="<="))
    assert refuted.status == "refuted"
    assert ball.contains(refuted.counterexample[None])[0]
    corners = (ensemble.predict(points_in(*ball.bounds(), 2000)) @ row).max()
    if norm == 2:
        # the box around the ball has larger values: cells outside the ball had to be dropped
        assert corners > top + 0.01
        assert np.isneginf(answer.rules[0].leaf_bounds).any() or answer.cells < 100


def test_mixtures_of_trees_networks_and_constants():
    generator = np.random.default_rng(3)
    X, y = generator.uniform(-1, 1, (80, 2)), generator.normal(size=(80, 2))
    forest = from_sklearn(
        RandomForestRegressor(n_estimators=3, max_depth=3, random_state=0).fit(X, y)
    )
    zero = np.zeros(1, np.int64)
    parts = (
        Part(forest, zero, np.array([0.5])),
        Part(random_networks(1, count=1, outputs=2), zero, np.array([0.3])),
        Part(ConstantMembers([[1.0, 0.0]], 2), zero, np.array([0.2])),
    )
    ensemble = Ensemble(parts, Layout.single(2))
    asked = Linear(BOX, [1.0, -1.0], 0.0, sense="<=")
    top = float(largest(ensemble, asked, dense(801))[0])
    answer = certify(ensemble, Linear(BOX, [1.0, -1.0], top + 0.02, sense="<="), time_limit_s=20)
    assert answer.status == "proven"
    answer = certify(ensemble, Linear(BOX, [1.0, -1.0], top - 1e-3, sense="<="), time_limit_s=20)
    assert answer.status == "refuted"


@pytest.mark.parametrize("categorical", [False, True])
def test_boosted_trees_that_know_missing_values_are_certified_unless_they_ask_for_categories(
    categorical,
):
    generator = np.random.default_rng(3)
    X = np.round(generator.uniform(0, 4, (400, 2)))
    y = X[:, 0] + 3 * (X[:, 1] % 2)
    model = HistGradientBoostingRegressor(
        max_iter=3, max_leaf_nodes=5, categorical_features=[1] if categorical else None
    ).fit(np.where(generator.random(X.shape) < 0.1, np.nan, X), y)
    ensemble = one(from_sklearn(model))
    grid = np.stack(np.meshgrid(*2 * [np.linspace(0, 4, 41)]), -1).reshape(-1, 2)
    top = float(ensemble.predict(grid).max())
    rule = Linear(Box([0.0, 0.0], [4.0, 4.0]), [1.0], top + 1e-6, sense="<=")
    if categorical:
        with raises(InvalidInput, "unsupported"):
            certify(ensemble, rule, time_limit_s=20)
        return
    answer = certify(ensemble, rule, time_limit_s=20)
    assert answer.status == "proven"
    data = build_certificate(ensemble, requirement=rule, certification=answer)
    assert check(data).room.min() >= 0


def hard():
    """A limit a little above the maximum of a wavy mixture: some hundred cells."""
    ensemble = single_block(
        random_networks(6, count=3, hidden=(16, 16), activation="gelu", size=3.0)
    )
    asked = Linear(BOX, [1.0, -1.0, 0.0], 0.0, sense="<=")
    top = float(largest(ensemble, asked, dense())[0])
    return ensemble, Linear(BOX, [1.0, -1.0, 0.0], top + 1e-4 * abs(top), sense="<=")


def test_limits_give_unknown_with_a_proven_bound_and_resume_goes_on():
    ensemble, requirement = hard()
    first = certify(ensemble, requirement, cell_limit=30)
    assert first.status == "unknown"
    assert first.cells == 30
    assert first.excess > 0
    assert len(first.open_cells) == (first.rules[0].leaf_bounds > first.rules[0].limit).sum() > 0
    top = float(largest(ensemble, requirement, dense())[0])
    assert top <= first.rules[0].bound
    assert "open" in first.note
    whole = certify(ensemble, requirement, batch=7)
    rest = certify(ensemble, requirement, batch=7, resume=first)
    assert whole.status == rest.status == "proven"
    assert rest.cells == whole.cells
    assert rest.rules[0].bound <= requirement.bound[0]
    assert certify(ensemble, requirement, time_limit_s=1e-9).status == "unknown"


def test_resuming_something_else_is_refused():
    ensemble, requirement = hard()
    first = certify(ensemble, requirement, cell_limit=5)
    other = Linear(BOX, [1.0, -1.0, 0.0], 5.0, sense="<=")
    with raises(InvalidInput, "altered"):
        certify(ensemble, other, resume=first)
    with raises(InvalidInput, "altered", "rules"):
        certify(ensemble, Margin(BOX, 0, 0.1), resume=first)


def test_proofs_of_another_mixture_or_region_are_not_resumed():
    ensemble, requirement = hard()
    proven = certify(ensemble, requirement, region=Box(LOWER, LOWER + 0.05))
    assert proven.status == "proven"
    other = single_block(random_networks(8, count=3, hidden=(16, 16), size=3.0))
    for given, place in ((other, Box(LOWER, LOWER + 0.05)), (ensemble, BOX)):
        with raises(InvalidInput, "altered"):
            certify(given, requirement, region=place, resume=proven)
    again = certify(ensemble, requirement, region=Box(LOWER, LOWER + 0.05), resume=proven)
    assert again.status == "proven"
    assert again.cells == proven.cells


def test_a_shield_of_other_rules_proves_nothing():
    ensemble = one(affine([[[0.0], [0.0]]], [[0.5]]))
    floor = Linear(Box([0.3, 0.3], [0.301, 0.301]), [1.0], 0.7, ">=", name="floor")
    cap = Linear(BOX, [1.0], 0.6, "<=", name="cap")
    shielded = ensemble.apply_shield([1.0], floor)
    with raises(InvalidInput, "conflict", "floor"):
        certify(shielded, cap)
    assert certify(shielded.unshielded, cap).status == "proven"


def scaled(scale, weight=1.0):
    architecture = NetworkArchitecture(1, 1, hidden=(), shift=np.zeros(1), scale=np.array([scale]))
    weights = {"weight_0": np.array([[[weight]]]), "bias_0": np.zeros((1, 1))}
    return one(architecture.members({k: torch.as_tensor(v) for k, v in weights.items()}))


@pytest.mark.parametrize(
    ("ensemble", "region", "coefficient", "limit", "words"),
    [
        (scaled(1.0), Box([0.0], [1e61]), 1.0, 1.0, "the region"),
        (scaled(1.0), Ball([0.0], 1e200), 1.0, 1.0, "the region"),
        (scaled(1.0), Box([0.0], [1.0]), 1e61, 1.0, "rule_constant"),
        (scaled(1.0), Box([0.0], [1.0]), 1.0, 1e61, "limit"),
        (scaled(1.0, weight=-1e61), Box([0.0], [1.0]), 1.0, 1.0, "weight_0"),
        (scaled(1e-61), Box([0.0], [1.0]), 1.0, 1.0, "scale"),
        (scaled(1e61), Box([0.0], [1.0]), 1.0, 1.0, "scale"),
    ],
)
def test_numbers_out_of_range_are_refused(ensemble, region, coefficient, limit, words):
    with raises(InvalidInput, "range", words):
        certify(ensemble, Linear(region, [coefficient], limit, "<="))


def test_numbers_at_the_ends_of_the_range_are_proven():
    requirement = Linear(Ball([0.0], 1e59), [1.0], 2e59, "<=")
    assert certify(scaled(1.0), requirement).status == "proven"
    requirement = Linear(Box([0.0], [1e-60]), [1.0], 1.1, "<=")
    assert certify(scaled(1e-60), requirement).status == "proven"


def test_cells_too_small_to_halve_end_the_search_and_the_margin_is_named():
    requirement = Linear(Box([1.0], [1.0]), [1.0], 1.0, "<=")
    answer = certify(scaled(1.0), requirement, time_limit_s=1000)
    assert answer.status == "unknown"
    assert answer.exhausted
    assert answer.cells == len(answer.open_cells) == 1
    assert "too small to halve" in answer.note
    assert "margin of up to 2.3e-12 for rounding" in answer.note
    again = certify(scaled(1.0), requirement, time_limit_s=1000, resume=answer)
    assert (again.status, again.cells) == ("unknown", 2)
    # far from the limit the margin is not to blame
    ensemble, requirement = hard()
    unfinished = certify(ensemble, requirement, cell_limit=5)
    assert "margin" not in unfinished.note
    assert not unfinished.exhausted


def test_batches_keep_to_the_memory_limit(monkeypatch):
    architecture = NetworkArchitecture(200, 1, hidden=(8,), activation="tanh")
    parameters = architecture.initialise(1, torch.Generator().manual_seed(0))
    ensemble = one(architecture.members(parameters))
    box = Box(np.zeros(200), np.ones(200))
    root = certify(ensemble, Linear(box, [1.0], 1.5, "<="), cell_limit=1).rules[0].bound
    requirement = Linear(box, [1.0], root - 0.05, "<=")
    taken, bound_cells = [], certification.bound_cells

    def counted(terms, cells, **rest):
        taken.append(len(cells.lower))
        return bound_cells(terms, cells, **rest)

    monkeypatch.setattr(certification, "bound_cells", counted)
    limit = 32 * 2**20
    answer = certify(ensemble, requirement, cell_limit=60, memory_limit=limit)
    assert answer.cells == 60
    # a cell holds several matrices of 200 x 200 numbers, and a batch has half of the memory
    assert 2 <= max(taken) <= limit / 2 / (200 * 200 * 8)
    with raises(InvalidInput, "memory", "memory_limit"):
        certify(ensemble, requirement, memory_limit=2**20)


def test_the_memory_limit_ends_a_search_with_what_is_proven():
    # tens of thousands of cells next to the end, where the value meets its limit
    requirement = Linear(Box([0.0], [1.0]), [1.0], 1.0, "<=")
    answer = certify(scaled(1.0), requirement, memory_limit=2**16)
    assert answer.status == "unknown"
    assert "the memory limit was reached" in answer.note
    assert not answer.exhausted
    assert 1.0 <= answer.rules[0].bound <= 2.0
    assert certify(scaled(1.0), requirement, resume=answer).exhausted


def test_all_rules_are_worked_on_when_asked():
    ensemble, requirement = hard()
    limit = float(requirement.bound[0])
    rows = np.array([[1.0, -1.0, 0.0]] * 3)
    several = Linear(BOX, rows, [limit - 1.0, limit, limit - 0.5], sense="<=")
    first = certify(ensemble, several)
    assert first.status == "refuted"
    assert first.rules[1].status == "unknown"
    every = certify(ensemble, several, all_rules=True)
    assert [proof.status for proof in every.rules] == ["refuted", "proven", "refuted"]
    assert every.counterexample_rule == 0
    assert sorted(every.violations) == [0, 2]
    for rule, point in every.violations.items():
        assert ensemble.predict(point[None])[0] @ rows[rule] > several.bound[rule]
    assert every.counterexample_value > limit - 1.0


def test_progress_is_told_and_text_says_what_was_found(monkeypatch):
    ensemble, requirement = hard()
    told: list[Any] = []
    monkeypatch.setattr(rounds, "TELL_EVERY_S", 0.0)
    monkeypatch.setattr(rounds, "FIRST_ROUND", 50)
    answer = certify(ensemble, requirement, batch=50, progress=told.append)
    assert told[-1].open == 0
    assert told[-1].cells == answer.cells
    assert told[-1].rules_closed == told[-1].rules == 1
    assert len(told) > 2
    assert told[0].excess >= told[-1].excess
    assert str(answer).startswith("proven (rules: 1 proven)")


def test_another_region_can_be_given():
    ensemble, requirement = hard()
    small = Box(LOWER, LOWER + 0.05)
    assert certify(ensemble, requirement, region=small).status == "proven"
    with raises(InvalidInput, "type"):
        certify(ensemble, requirement, region=Box([0.0], [1.0]))


def test_what_cannot_be_certified_and_wrong_limits_are_refused():
    ensemble, requirement = hard()
    for wrong in ({"time_limit_s": 0.0}, {"cell_limit": 0}, {"batch": 0}, {"memory_limit": 0}):
        with raises(InvalidInput, "range", "time_limit_s"):
            certify(ensemble, requirement, **wrong)
    architecture = ModuleArchitecture(lambda: torch.nn.Linear(2, 3), 2, 3, "linear")
    generator = torch.Generator().manual_seed(0)
    modules = architecture.members(architecture.initialise(1, generator))
    assert isinstance(modules, ModuleMembers)
    mixed = Ensemble((Part(modules, np.zeros(1, np.int64), np.ones(1)),), Layout.single(3))
    with raises(InvalidInput, "unsupported", "ModuleMembers"):
        certify(mixed, requirement)


def test_absent_outputs_are_left_out_soundly():
    members = random_networks(7, count=1, output="softmax", outputs=4)
    parameters = {name: value.clone() for name, value in members.parameters.items()}
    parameters["weight_1"][:, 3], parameters["bias_1"][:, 3] = 0.0, -1e4
    ensemble = single_block(members.architecture.members(parameters))
    # the three that exist hold everything, the fourth nothing
    rows = np.array([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    answer = certify(ensemble, Linear(BOX, rows, [1.0 + 1e-9, 1e-9], sense="<="))
    assert answer.status == "proven"
    assert answer.cells == 2


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize(("excess", "holds"), [(2.45e-8, True), (1e-4, False)])
def test_proof_audit_and_claims_agree_in_any_units(unit, excess, holds):
    """What an audit allows is no refutation; what it does not allow is one."""
    ensemble = one(ConstantMembers(np.array([[(1 + excess) * unit]]), 2))
    rule = Linear(BOX, [1.0], unit, sense="<=")
    audit = ensemble.audit(rule)
    assert audit.holds is holds
    answer = certify(ensemble, rule)
    assert answer.status == ("unknown" if holds else "refuted")
    assert certify(ensemble, rule, tolerance=0.0).status == "refuted"
    points = np.array([[0.0, 0.0], [0.1, 0.2]])
    assert record_audited(ensemble, rule, inputs=points) == (2 if holds else 0)
    listed = Linear(points, [1.0], unit, sense="<=")
    assert ensemble.audit(listed).holds is holds
    assert record_audited(ensemble, listed) == (2 if holds else 0)
