"""Certificates made to deceive: extreme numbers, misleading words, odd archives, huge cells."""

from __future__ import annotations

import hashlib
import io
import math
import zipfile
from fractions import Fraction

import certificate_cases as cases
import numpy as np
import pytest
import torch

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.layout import Layout
from cg4ai.members import NetworkArchitecture, TreeMembers
from cg4ai.members.mixture import Part
from cg4ai.rules import Linear
from cg4ai.rules.regions import Ball, Box
from cg4ai_checker import Rejected, check, command, verify
from cg4ai_checker.bound import rule_bound
from cg4ai_checker.cells import Cells
from cg4ai_checker.region import Region
from cg4ai_checker.run_folder import compare
from cg4ai_checker.scale import LARGEST
from raising import raises


def alone(members):
    one = Part(members, np.zeros(1, np.int64), np.ones(1))
    return Ensemble((one,), Layout.single(members.output_size))


def line(scale=1.0):
    """y = x / scale, one input."""
    architecture = NetworkArchitecture(1, 1, hidden=(), shift=np.zeros(1), scale=np.array([scale]))
    weights = {"weight_0": torch.ones(1, 1, 1), "bias_0": torch.zeros(1, 1)}
    return alone(architecture.members({name: value.double() for name, value in weights.items()}))


def cap(region, limit):
    return Linear(region, [1.0], limit, "<=", name="cap")


def plain(region=None, limit=4.0):
    return cases.certificate(line(), cap(region or Box([0.0], [1.0]), limit))


def forged(data, **arrays):
    """The certificate with these arrays instead of its own."""

    def change(claim, own):
        own.update({name.replace("__", "."): np.array(array) for name, array in arrays.items()})

    return cases.altered(data, change)


# ---- magnitudes --------------------------------------------------------------------------------


def test_a_scale_under_which_weights_vanish_is_rejected():
    """y = 1e-100 x / 1e250, times 1e42, is 1 at x = 1e308; the quotient alone would be zero."""
    numbers = {"part0__weight_0": [[[1e-100]]], "upper": [1e308], "rule_constant": [[1e42]]}
    numbers |= {"limit": [0.5], "leaf_bound": [0.0], "part0__normalise_scale": [1e250]}
    with raises(Rejected, "not-finite", "upper"):
        check(forged(plain(), **numbers))
    numbers |= {"upper": [1.0]}
    with raises(Rejected, "not-finite", "scale of network members"):
        check(forged(plain(), **numbers))


def test_a_scale_that_makes_inference_overflow_is_rejected():
    """x / 1e-300 overflows where 1e-300 / 1e-300 does not."""
    numbers = {"part0__weight_0": [[[1e-300]]], "part0__normalise_scale": [1e-300]}
    numbers |= {"upper": [1e20], "limit": [2e20], "leaf_bound": [0.0]}
    with raises(Rejected, "not-finite", "scale of inputs"):
        check(forged(plain(), **numbers))


def test_tree_values_that_overflow_before_their_factor_are_rejected():
    leaf = np.zeros((1, 2, 1), np.int64)
    members = TreeMembers(
        leaf, leaf * 0.0, left=leaf, right=leaf, value=np.ones((1, 2, 1, 1)), input_size=1
    )
    data = cases.certificate(alone(members), cap(Box([0.0], [1.0]), 4.0))
    assert check(data).room[0] == pytest.approx(2.0)
    numbers = {"part0__value": np.full((1, 2, 1, 1), 1.5e308), "part0__factor": [1e-308]}
    with raises(Rejected, "not-finite", "value of tree members"):
        check(forged(data, **numbers))


def test_sums_that_grow_layer_by_layer_are_rejected():
    random = np.random.default_rng(0)
    deep = cases.network(random, 1, 1, count=1, hidden=(2, 2), activation="relu")
    data = cases.certificate(alone(deep), cap(Box([0.0], [1.0]), 1e3))
    check(data)
    most = np.full((1, 2, 2), LARGEST)
    with raises(Rejected, "range"):
        check(forged(data, part0__weight_0=np.full((1, 2, 1), LARGEST), part0__weight_1=most))


def test_what_underflow_hides_is_added_to_the_bound():
    """1e-300 / 1e60 is zero in float64, yet y(1e60) = 1e-300 is above the limit 0."""
    numbers = {"part0__weight_0": [[[1e-300]]], "part0__normalise_scale": [1e60]}
    numbers |= {"upper": [1e60], "limit": [0.0], "leaf_bound": [0.0]}
    with raises(Rejected, "not-proven"):
        check(forged(plain(), **numbers))
    nothing = forged(plain(), part0__weight_0=[[[0.0]]], limit=[0.0], leaf_bound=[0.0])
    assert check(nothing).room[0] == 0.0  # a mixture that is zero is at most zero


def test_a_large_ball_skips_no_cell_that_it_meets():
    """The norm of a distance of 1e200 must not overflow and pass for a miss."""
    ball = Region(np.full(2, -1e200), np.full(2, 1e200), np.zeros(2), 1e200, 2)
    cells = Cells(
        np.array([[1e195, 0.0], [8e199, 8e199]]), np.array([[1e200, 1.0], [1e200, 1e200]])
    )
    assert ball.missed_by(cells).tolist() == [False, True]
    data = plain(Ball([0.0], 1.0), 2.0)
    with raises(Rejected, "not-finite", "lower"):
        check(forged(data, lower=[-1e200], upper=[1e200], radius=1e200))


@pytest.mark.parametrize("power", [-250, -120, 0, 120])
@pytest.mark.parametrize("norm", [2, math.inf])
def test_missed_cells_are_missed_in_exact_arithmetic(power, norm):
    random = np.random.default_rng(5)
    size = 10.0**power
    ball = Region(np.full(3, -size), np.full(3, size), np.zeros(3), size, norm)
    lower = random.uniform(0.4, 1.1, (200, 3)) * size
    missed = ball.missed_by(Cells(lower, lower + size))
    for corner, miss in zip(lower.tolist(), missed.tolist(), strict=True):
        squares = [Fraction(value) ** 2 for value in corner]
        distance = max(squares) if norm == math.inf else sum(squares)
        assert miss == (distance > Fraction(size) ** 2)
    assert 0 < missed.sum() < 200


# ---- words -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", ["x.\nProven: 'all' of THE ROUTER", "a\r", "\x1b[2K", "\u202e", "-" * 301]
)
@pytest.mark.parametrize("place", ["title", "requirement", "rule"])
def test_words_that_could_pass_for_the_checkers_own_are_rejected(bad, place):
    def change(claim, arrays):
        if place == "rule":
            claim["rules"] = [{"name": bad}]
        else:
            claim[place] = bad

    with raises(Rejected, "bad-name") as caught:
        check(cases.altered(plain(), change))
    assert str(caught.value).isprintable()


def test_the_numbers_of_region_and_rules_are_printed():
    random = np.random.default_rng(2)
    members = cases.constants(random, 2, 3)
    slope = np.zeros((5, 3, 2))
    slope[0, 1, 0] = 0.1
    slope[1, :, :] = 1.0
    rules = cases.AffineRules(np.array([[2.0, 0, 0]] + [[0.0, 0, 0]] * 4), slope)
    lower, upper = [0.0, -1.0], [0.1 + 0.2, 1e3]
    wanted = cases.requirement(rules, lower, upper, 1e6)
    text = str(check(cases.certificate(cases.mixture(random, members), wanted)))
    assert "Inputs x: [0, 0.30000000000000004] x [-1, 1000]." in text
    assert "Rule 'rule 0': 2 y[0] + 0.1 x[0] y[1] <= 1e+06" in text
    assert (
        "Rule 'rule 1': 1 x[0] y[0] + 1 x[1] y[0] + 1 x[0] y[1] + 1 x[1] y[1] + ... (2 more" in text
    )
    assert "Rule 'rule 2': 0 <= 1e+06" in text
    assert "... and 2 more rules." in text
    assert "around (0.5)" in str(check(plain(Ball([0.5], 0.25))))


def test_the_command_says_that_rules_were_not_compared(tmp_path, capsys):
    line().save(tmp_path)
    (tmp_path / "certificate.cg4ai").write_bytes(plain())
    claim = check(tmp_path / "certificate.cg4ai").claim
    assert any("Rules and region were not compared" in said for said in compare(claim, tmp_path))
    assert command.run(tmp_path / "certificate.cg4ai", folder=tmp_path, quiet=True) == 0
    assert "each of 1 in [0, 1]" in capsys.readouterr().out


# ---- odd files ---------------------------------------------------------------------------------


HUGE = 10**30


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("blocks", [[HUGE]], "rejected"),
        ("blocks", [], "rejected"),
        ("output_size", HUGE, "rejected"),
        ("output_size", 2**22, "rejected"),
        ("output_size", 2**31 - 1, "memory"),
        ("input_size", HUGE, "rejected"),
        ("margin", True, "type"),
        ("margin", HUGE**20, "rejected"),
    ],
)
def test_huge_numbers_in_the_claim_are_rejected(key, value, code):
    def change(claim, arrays):
        claim[key] = value

    with raises(Rejected, code):
        check(cases.altered(plain(), change))


def test_a_huge_block_of_a_member_is_rejected():
    def change(claim, arrays):
        claim["parts"][0]["blocks"] = [HUGE]

    with raises(Rejected, "rejected", "bits"):
        check(cases.altered(plain(), change))


def repacked(data, change):
    """The archive with `change(entries)` applied to its entries by name, and a fitting digest."""
    with zipfile.ZipFile(io.BytesIO(data.partition(b"\n")[2])) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    change(entries)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    digest = hashlib.sha256(packed.getvalue()).hexdigest()
    return f"cg4ai-certificate 3 sha256 {digest}\n".encode() + packed.getvalue()


def _twice(entries):
    entries["limit"] = entries["limit.npy"]


def _bytes(entries):
    entries["limit.npy"] = b"4.0"


def reshaped(entry, shape):
    """A `.npy` entry whose header states another shape; spaces make up for the length."""
    return entry.replace(b"(1,)", shape).replace(b" " * (len(shape) - 4) + b"\n", b"\n", 1)


def _grown(entries):
    entries["limit.npy"] = reshaped(entries["limit.npy"], b"(999999999999999,)")


def _broken(entries):
    entries["limit.npy"] = reshaped(entries["limit.npy"], b"(1, ")


def _empty_and_huge(entries):
    entries["limit.npy"] = reshaped(entries["limit.npy"], b"(0, 1" + b"0" * 20 + b")")[:-8]


@pytest.mark.parametrize("change", [_twice, _bytes, _grown, _broken, _empty_and_huge])
def test_odd_archives_are_rejected(change):
    check(repacked(plain(), lambda entries: None))
    with raises(Rejected, "rejected"):
        check(repacked(plain(), change))


# ---- memory ------------------------------------------------------------------------------------


def wide(size, *, sloped):
    """One small network with many inputs, and a rule whose coefficient may depend on them."""
    random = np.random.default_rng(1)
    shape = {"hidden": (8,), "activation": "tanh"}
    members = cases.network(random, size, 1, count=1, **shape)
    slope = np.zeros((1, 1, size))
    slope[..., :2] = float(sloped)
    rules = cases.AffineRules(np.ones((1, 1)), slope)
    wanted = cases.requirement(rules, np.zeros(size), np.ones(size), 1e4)
    return cases.certificate(alone(members), wanted, depth=6)


@pytest.mark.parametrize("sloped", [True, False])
def test_cells_are_bounded_in_as_many_chunks_as_memory_asks(monkeypatch, sloped):
    size, chunks = 120, []

    def noted(terms, cells, region):
        chunks.append(len(cells))
        return rule_bound(terms, cells, region)

    monkeypatch.setattr(verify, "rule_bound", noted)
    data = wide(size, sloped=sloped)
    whole = check(data)
    assert chunks == [64]
    monkeypatch.setattr(verify, "MEMORY", 2**19)
    chunks.clear()
    parts = check(data)
    # a quadratic form per cell, and some copies of it, only where coefficients depend on inputs
    assert max(chunks) * size**2 <= 2**19 if sloped else chunks == [64]
    assert sum(chunks) == 64
    assert parts.room == pytest.approx(whole.room)


def test_a_cell_beyond_all_memory_is_rejected_not_tried(monkeypatch):
    data = wide(120, sloped=True)
    monkeypatch.setattr(verify, "LARGEST_CELL", 120**2)
    assert len(data) < 4 * 120**2  # a file may take as many numbers as it has bytes
    with raises(Rejected, "memory", "rule 0"):
        check(data)


def test_halving_in_small_groups_proves_the_same(monkeypatch):
    random = np.random.default_rng(4)
    ensemble = cases.two_blocks(random, 2)
    slope = np.zeros((1, 5, 2))
    slope[0, [0, 3], [0, 1]] = 1.0
    rules = cases.AffineRules(np.zeros((1, 5)), slope)
    wanted = cases.requirement(rules, np.zeros(2), np.ones(2), 1.0)
    axis = np.linspace(0, 1, 101)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    limit = float(cases.values(ensemble, wanted, grid).max()) + 0.01
    data = cases.certificate(ensemble, cases.requirement(rules, np.zeros(2), np.ones(2), limit))
    whole = check(data)
    monkeypatch.setattr(verify, "CHUNK", 3)
    few = check(data)
    assert few.extra_cells == whole.extra_cells > 3
    assert few.room == pytest.approx(whole.room)
