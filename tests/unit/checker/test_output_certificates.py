"""Certificates of ranges, orders and sums: accepted where members show them, and only there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

import cg4ai
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.output_sets import keeps_set
from cg4ai.layout import Layout
from cg4ai.members import (
    ArrangedMembers,
    ConstantMembers,
    NetworkArchitecture,
    ShieldedMembers,
    from_sklearn,
)
from cg4ai.members.mixture import Part
from cg4ai.members.shielded import Shield
from cg4ai.rules import Box, Linear, Ordered, OutputRule, Range, SumTo
from cg4ai.rules.guards import guard_of
from cg4ai.rules.output_sets import join_output_rules
from cg4ai_checker import OutputVerdict, Rejected, verdict
from cg4ai_checker.file import Content
from cg4ai_checker.folder_reader import MemberState
from cg4ai_checker.outputs import OutputClaim
from cg4ai_checker.run_folder import compare
from raising import raises

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 2))
RULES = (Range(-1, 1), Ordered(), SumTo(0.5, low=-1))


def stored(state: Any) -> MemberState:
    """As the checker reads it from a folder."""
    return MemberState(state.kind, dict(state.config), dict(state.arrays))


def mixture(*stacks: Any) -> Ensemble:
    weight = 1 / sum(len(one) for one in stacks)
    parts = tuple(
        Part(one, np.zeros(len(one), np.int64), np.full(len(one), weight)) for one in stacks
    )
    return Ensemble(parts, Layout.single(3))


def network() -> Any:
    import torch

    architecture = NetworkArchitecture(2, 3, hidden=(4,))
    return architecture.members(architecture.initialise(2, torch.Generator().manual_seed(0)))


def forest() -> Any:
    data = np.clip(RANDOM.normal(size=(60, 3)), -0.7, 0.7)
    return from_sklearn(RandomForestRegressor(3, random_state=0).fit(X, np.sort(data, axis=1)))


ARRANGED = ArrangedMembers(network(), join_output_rules(RULES, 3))


@pytest.mark.parametrize("rule", [*RULES, Range(-2, 3), Range(0.5, None, [2]), Ordered((0, 2))])
def test_what_the_set_says_is_proven_and_the_rest_is_not(rule: OutputRule, tmp_path: Path) -> None:
    ensemble = mixture(ARRANGED)
    found = cg4ai.certify(ensemble, rule)
    kept = not isinstance(rule, Range) or bool(rule.low[0] < 0)
    assert found.status == ("proven" if kept else "unknown")
    assert keeps_set(ensemble, rule) is kept
    if not kept:
        return
    path = tmp_path / "proof.cg4ai"
    cg4ai.write_certificate(path, ensemble, requirement=rule, certification=found)
    said = verdict(path)
    assert isinstance(said, OutputVerdict)
    assert "At every input" in str(said)
    ensemble.save(tmp_path)
    assert "Every active member" in compare(said.claim, tmp_path)[0]


def test_members_that_show_it_themselves_need_nothing_around_them(tmp_path: Path) -> None:
    constant = ConstantMembers([[-0.5, 0.0, 1.0]], 2)
    ensemble = mixture(ARRANGED, constant, forest())
    for rule, kept in ((Range(-1, 1), True), (Ordered(), True), (SumTo(0.5, low=-1), False)):
        assert keeps_set(ensemble, rule) is kept
        assert cg4ai.certify(ensemble, rule).status == ("proven" if kept else "unknown")
    assert keeps_set(mixture(constant), SumTo(0.5, low=-1))
    ensemble.save(tmp_path)
    proof = tmp_path / "proof.cg4ai"
    found = cg4ai.certify(ensemble, Ordered())
    cg4ai.write_certificate(proof, ensemble, requirement=Ordered(), certification=found)
    claim = verdict(proof).claim
    assert isinstance(claim, OutputClaim)
    compare(claim, tmp_path)
    mixture(ARRANGED, constant, network()).save(tmp_path / "other")
    with raises(Rejected, "rejected"):
        compare(claim, tmp_path / "other")
    mixture(ARRANGED, ConstantMembers([[0.5, 0.0, 1.0]], 2)).save(tmp_path / "broken")
    with raises(Rejected, "not-proven"):
        compare(claim, tmp_path / "broken")


def test_probabilities_lie_between_0_and_1() -> None:
    labels = RANDOM.integers(3, size=60)
    ensemble = mixture(from_sklearn(RandomForestClassifier(3, random_state=0).fit(X, labels)))
    assert keeps_set(ensemble, Range(0, 1))
    assert cg4ai.certify(ensemble, Range(0, 1)).status == "proven"
    assert not keeps_set(ensemble, Range(0.1, 1))


@pytest.mark.parametrize("coupled", [True, False])
def test_a_shield_keeps_what_it_moves_together(coupled: bool) -> None:
    rule = Linear(Box([-1, -1], [1, 1]), [0.0, 0.0, 1.0], 0.9, "<=")
    rule.check(2, 3)
    anchor = ConstantMembers([[0.0, 0.1, 0.4]], 2)
    together = ((0, 1, 2),) if coupled else ()
    shield = Shield(anchor, (guard_of(rule, 3),), together)
    ensemble = mixture(ShieldedMembers(ARRANGED, shield))
    assert keeps_set(ensemble, Range(-1, 1))
    assert keeps_set(ensemble, Ordered()) is coupled
    assert cg4ai.certify(ensemble, Ordered()).status == ("proven" if coupled else "unknown")
    outside = Shield(ConstantMembers([[0.0, -0.1, 0.4]], 2), (guard_of(rule, 3),), ((0, 1, 2),))
    assert not keeps_set(mixture(ShieldedMembers(ARRANGED, outside)), Ordered())


def test_a_bare_network_shows_nothing() -> None:
    found = cg4ai.certify(mixture(network()), Range(-1e9, 1e9))
    assert found.status == "unknown"
    assert "by construction" in found.note


def output_claim(matrix: Any, bound: Any) -> OutputClaim:
    """A claim of these rows, of which nothing is proven yet; its own form is one point."""
    arrays = {
        "matrix": np.array(matrix, np.float64),
        "bound": np.array(bound, np.float64),
        "form0.points": np.zeros((1, np.shape(matrix)[1])),
        "form0.term": np.zeros(1, np.int64),
    }
    claim = {"kind": "outputs", "title": "t", "requirement": "r", "input_size": 2, "forms": 1}
    claim |= {"output_size": np.shape(matrix)[1], "made_by": {"cg4ai": "0"}, "about": {}}
    return OutputClaim(Content("", claim, arrays, 1000))


@pytest.mark.parametrize(
    ("row", "bound", "outputs"),
    [
        ([-1.0, -1.0], -1.0, [1e308, 1e308]),  # the sum overflows: at most 1, it says
        ([1e-81, 0.0], 0.0, [-1.0, 0.0]),  # at least 0, in units in which -1 seems nothing
    ],
)
def test_rows_whose_products_overflow_or_vanish_are_not_proven(
    row: list[float], bound: float, outputs: list[float]
) -> None:
    state = stored(ConstantMembers(np.array([outputs]), 2).state())
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(Rejected):
        output_claim([row], [bound]).verify_stored(state, np.zeros(1, np.int64), "part 0")


def test_ends_of_any_dtype_are_the_numbers_they_are() -> None:
    """The negative of 5 in uint8 is 251: outputs of up to 5 would be at most -251."""
    state = stored(ArrangedMembers(network(), join_output_rules([Range(0, 5)], 3)).state())
    arrays = {**state.arrays, "set.high": state.arrays["set.high"].astype(np.uint8)}
    claim = output_claim([[-1.0, 0.0, 0.0]], [251.0])
    with raises(Rejected, "not-proven"):
        claim.verify_stored(
            MemberState(state.kind, state.config, arrays), np.zeros(1, np.int64), "part 0"
        )
