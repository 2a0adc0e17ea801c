"""Shares of votes, the numbers that decide on them, and what survives files."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from cg4ai import load
from cg4ai.ensemble.ensemble import DECISIONS, Ensemble
from cg4ai.layout import Layout
from cg4ai.members import affine
from cg4ai.members.draws import decisions, draws
from cg4ai.members.mixture import Part

GOLDEN = [
    [0.29348428058414666, 0.2888180006410668, 0.5671132632203884],
    [0.5703010355633918, 0.4304825810299965, 0.5992493842163534],
]
INPUTS = np.array([[0.0, 1.0], [1.5, -2.25], [1e300, 3.0]])


def ensemble(weights: list[float]) -> Ensemble:
    """Two members: the first votes 1 where x0 > 0, the second where x1 > 0."""
    slopes = np.zeros((2, 2, 2))
    slopes[0, 0, 1] = slopes[1, 1, 1] = 1.0
    voters = affine(slopes, np.zeros((2, 2)))
    return Ensemble((Part(voters, np.zeros(2, np.int64), np.array(weights)),), Layout.single(2))


def test_shares_are_the_weights_of_those_with_that_largest_score() -> None:
    model = ensemble([0.25, 0.75])
    inputs = torch.tensor([[1.0, -1.0], [0.0, 2.0], [3.0, 3.0], [0.0, 0.0]], dtype=torch.float64)
    assert model.shares(inputs)[:, 1].tolist() == [0.25, 0.75, 1.0, 0.0]
    assert model.outputs(inputs)[:, 1].tolist() == [-0.5, 1.5, 3.0, 0.0], "scores stay scores"


def test_draws_never_change() -> None:
    """Golden values: decisions of models that are in use depend on them."""
    assert draws(INPUTS, 0).tolist() == GOLDEN[0]
    assert draws(INPUTS, 7).tolist() == GOLDEN[1]


def test_draws_are_what_the_documentation_says() -> None:
    key = (7).to_bytes(8, "little")
    digest = blake2b(INPUTS[1].astype("<f8").tobytes(), digest_size=8, key=key).digest()
    number = int.from_bytes(digest, "little") >> 11
    assert draws(INPUTS, 7)[1] == number / 2**53


def test_negative_zero_is_zero_and_rows_do_not_depend_on_each_other() -> None:
    assert draws(-INPUTS * 0.0, 3).tolist() == draws(INPUTS * 0.0, 3).tolist()
    together = draws(INPUTS, 5)
    assert [draws(row[None], 5)[0] for row in INPUTS] == together.tolist()
    assert draws(np.asfortranarray(INPUTS), 5).tolist() == together.tolist()


def test_draws_spread_evenly() -> None:
    found = draws(np.random.default_rng(0).normal(size=(20_000, 3)), 1)
    counts, _ = np.histogram(found, bins=10, range=(0, 1))
    assert ((counts - 2000) ** 2 / 2000).sum() < 27.9, "chi square with 9 degrees, 0.1 %"


@given(share=st.floats(0, 1), seed=st.integers(0, 2**64 - 1))
def test_of_two_classes_the_second_wins_if_its_share_exceeds_the_draw(
    share: float, seed: int
) -> None:
    shares = np.array([[1 - share, share]])
    expected = share > draws(INPUTS[:1], seed)[0]
    if 1e-9 < share < 1 - 1e-9:
        assert decisions(shares, INPUTS[:1], seed)[0] == int(expected)


def test_classes_are_decided_for_as_often_as_they_have_votes() -> None:
    inputs = np.random.default_rng(1).normal(size=(30_000, 2))
    shares = np.tile([0.2, 0.5, 0.3], (len(inputs), 1))
    found = np.bincount(decisions(shares, inputs, 0), minlength=3) / len(inputs)
    assert np.abs(found - [0.2, 0.5, 0.3]).max() < 0.01


def test_decisions_survive_saving(tmp_path: Path) -> None:
    model = ensemble([0.4, 0.6])
    model.about[DECISIONS] = {"seed": 11}
    inputs = np.random.default_rng(2).normal(size=(500, 2))
    before = model.decide(inputs)
    shares = (inputs > 0) @ [0.4, 0.6]
    assert before.tolist() == (shares > draws(inputs, 11)).astype(int).tolist()
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.votes
    assert again.decide(inputs).tolist() == before.tolist()
    assert again.decide(inputs[::-1]).tolist() == before[::-1].tolist()


def test_without_votes_the_largest_score_decides() -> None:
    members = affine(np.array([[[0.0, 1.0], [0.0, 0.0]]]), np.zeros((1, 2)))
    plain = Ensemble((Part(members, np.zeros(1, np.int64), np.ones(1)),), Layout.single(2))
    assert not plain.votes
    assert plain.decide([[1.0, 0.0], [-1.0, 0.0]]).tolist() == [1, 0]
