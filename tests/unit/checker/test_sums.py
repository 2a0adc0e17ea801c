"""Outputs that sum to one: stated where they do, seen by the checker, else rejected."""

from __future__ import annotations

from typing import Any

import certificate_cases as cases
import numpy as np
import pytest
import torch

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, NetworkArchitecture, Shield, ShieldedMembers
from cg4ai.members.mixture import Part
from cg4ai.proofs import certify
from cg4ai.proofs.certificate import build_certificate, write_certificate
from cg4ai.rules import Linear
from cg4ai.rules.guards import guard_of
from cg4ai.rules.regions import Box
from cg4ai_checker import Rejected, check
from cg4ai_checker.file import parse_certificate
from cg4ai_checker.run_folder import compare
from raising import raises

BOX = Box([0.0, 0.0], [1.0, 1.0])
SHARES = np.array([[0.25, 0.75, 0.5, 0.5, 0.0]])


def bytes_of(ensemble: Ensemble) -> bytes:
    """A certificate of a rule that is true by far."""
    rule = Linear(BOX, np.ones(ensemble.output_size), 1e3, "<=", name="cap")
    return build_certificate(ensemble, requirement=rule, certification=certify(ensemble, rule))


def grouped(count: int = 2) -> Ensemble:
    architecture = NetworkArchitecture(2, 5, hidden=(4,), output="grouped", groups=(2, 3))
    members = architecture.members(architecture.initialise(count, torch.Generator().manual_seed(0)))
    weights = np.full(count, 0.5 / count)
    parts = (
        Part(members, np.zeros(count, np.int64), weights),
        Part(ConstantMembers(SHARES, 2), np.zeros(1, np.int64), np.array([0.5])),
    )
    return Ensemble(parts, Layout.single(5))


def groups_in(data: bytes) -> list[int]:
    return parse_certificate(data).arrays["sum_group"].tolist()


def test_groups_under_a_softmax_are_stated_and_shown() -> None:
    ensemble = grouped()
    data = bytes_of(ensemble)
    assert groups_in(data) == [0, 0, 1, 1, 1]
    points = BOX.sample(100, torch.Generator().manual_seed(0)).numpy()
    found = ensemble.predict(points)
    np.testing.assert_allclose(np.stack([found[:, :2].sum(1), found[:, 2:].sum(1)]), 1, atol=1e-12)
    assert "each of 2 groups, 5 outputs in all, sum to 1 at every input" in str(check(data))


def test_a_demand_with_a_path_less_sums_to_one_as_well() -> None:
    assert groups_in(bytes_of(cases.two_blocks(np.random.default_rng(0), 2))) == [0, 0, 0, 1, 1]


def test_leaves_of_trees_that_are_shares_sum_to_one() -> None:
    made = cases.trees(np.random.default_rng(0), 2, 3, count=1)
    state = made.state()
    value = np.abs(state.arrays["value"])
    arrays = {
        **state.arrays,
        "value": value / value.sum(-1, keepdims=True),
        "initial": np.zeros((1, 3)),
        "factor": np.array([0.5]),  # two trees
    }
    shares = type(made).restore(type(state)(state.kind, state.config, arrays))
    assert groups_in(bytes_of(cases.mixture(np.random.default_rng(0), shares))) == [0, 0, 0]


def test_what_sums_to_nothing_known_states_nothing_and_is_said_nothing_of() -> None:
    random = np.random.default_rng(0)
    for stack in (cases.network(random, 2, 3, hidden=(4,)), cases.trees(random, 2, 3)):
        data = bytes_of(cases.mixture(random, stack))
        assert "sum_group" not in parse_certificate(data).arrays
        assert "sum to 1" not in str(check(data))


@pytest.mark.parametrize(
    ("stated", "code"),
    [
        ([0, 0, 0, 1, 1], "rejected"),
        ([0, 0, 0, 0, 0], "rejected"),
        ([0, 0, 2, 2, 2], "rejected"),
        ([-1, -1, -1, -1, -1], "rejected"),
        ([0, 0, 1, 1, -1], "rejected"),
        ([0, 0, 1, 1], "shape"),
    ],
)
def test_groups_that_do_not_sum_to_one_are_rejected(stated: list[int], code: str) -> None:
    def change(claim: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays["sum_group"] = np.array(stated)

    with raises(Rejected, code):
        check(cases.altered(bytes_of(grouped()), change))


def test_shares_that_miss_one_are_rejected_and_certificates_without_groups_are_read() -> None:
    def spoil(claim: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays["part1.values"] = SHARES * 1.001

    with raises(Rejected, "rejected"):
        check(cases.altered(bytes_of(grouped()), spoil))
    older = check(cases.altered(bytes_of(grouped()), lambda claim, arrays: arrays.pop("sum_group")))
    assert older.claim.sums is None


@pytest.mark.parametrize("coupled", [True, False])
def test_behind_a_shield_the_anchor_is_seen_and_the_folder_says_the_rest(tmp_path, coupled) -> None:
    rule = Linear(BOX, [1.0, 0.0, 0.0, 0.0, 0.0], 0.5, "<=", name="cap")
    groups = ((0, 1), (2, 3, 4))
    shield = Shield(
        ConstantMembers(SHARES, 2), (guard_of(rule, 5),), groups if coupled else groups[1:]
    )
    inner = grouped().parts[0].members
    part = Part(ShieldedMembers(inner, shield), np.zeros(2, np.int64), np.full(2, 0.5))
    ensemble = Ensemble((part,), Layout.single(5))
    answer = certify(ensemble, rule)
    write_certificate(tmp_path / "file", ensemble, requirement=rule, certification=answer)
    ensemble.save(tmp_path)
    verdict = check(tmp_path / "file")
    count = 2 if coupled else 1  # output 0 alone is moved otherwise, and its group is not stated
    assert f"The anchor's outputs of each of {count} groups" in str(verdict)
    assert "Their own outputs sum to 1 in these groups" in " ".join(
        compare(verdict.claim, tmp_path)
    )
    points = BOX.sample(500, torch.Generator().manual_seed(0)).numpy()
    sums = ensemble.predict(points)[:, :2].sum(1)
    assert np.allclose(sums, 1, atol=1e-12) == coupled
