"""Certificates made by hand: true claims are accepted, false and altered ones rejected."""

from __future__ import annotations

import math
import subprocess
import sys

import certificate_cases as cases
import numpy as np
import pytest

import cg4ai
from cg4ai.errors import Cg4aiError, InvalidInput
from cg4ai.rules.regions import Ball, Box
from cg4ai_checker import OutOfTime, Rejected, Unreadable, check, verify
from cg4ai_checker.file import parse_certificate
from cg4ai_checker.run_folder import compare
from raising import raises

INPUTS = 2
ROOM = 0.02


def case(seed=3, depth=4, room=ROOM, region=None):
    """A router with limits a little above its largest values, and its certificate."""
    random = np.random.default_rng(seed)
    ensemble = cases.two_blocks(random, INPUTS)
    slope = np.zeros((2, 5, INPUTS))
    slope[0, [0, 3], [0, 1]] = 1.0
    slope[1, [1, 2, 4], [0, 0, 1]] = 1.0
    rules = cases.AffineRules(np.zeros((2, 5)), slope)
    region = region or Box(np.zeros(INPUTS), np.ones(INPUTS))
    lower, upper = region.bounds()
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 201)] * INPUTS), axis=-1).reshape(-1, INPUTS)
    points = lower + grid * (upper - lower)
    free = cases.requirement(rules, None, None, 1.0, region=region)
    most = cases.values(ensemble, free, points[region.contains(points)]).max(axis=0)
    wanted = cases.requirement(rules, None, None, most + room, region=region)
    return ensemble, wanted, cases.certificate(ensemble, wanted, depth)


def test_a_true_claim_is_proven_and_said_in_words():
    _, _, data = case()
    verdict = check(data)
    assert (verdict.room >= 0).all()
    assert (verdict.room <= ROOM + 1e-3).all()
    assert verdict.leaves == 2 * 16
    text = str(verdict)
    assert "every float64 input of the box of 2 dimensions" in text
    assert "mixture of 4 members in 2 block(s)" in text
    assert verdict.mixture_digest in text
    assert verdict.digest == data.split(b"\n")[0].split()[-1].decode()


def test_the_bound_that_is_printed_is_not_below_the_one_proven():
    verdict = check(case()[2])
    closest = next(line for line in str(verdict).splitlines() if "Closest" in line)
    shown = float(closest.partition("at most ")[2].split(" of ")[0])
    assert shown >= verdict.bounds[verdict.room.argmin()]


def test_a_time_limit_ends_the_check():
    _, _, data = case()
    with raises(OutOfTime, "time-limit", "rule 1"):
        check(data, time_limit_s=0.0)
    assert check(data, time_limit_s=60.0).leaves


def test_a_claim_that_fails_by_a_hair_is_rejected():
    _, _, data = case(room=-1e-6, depth=2)
    with raises(Rejected, "not-proven", "rule 0"):
        check(data)


@pytest.mark.parametrize("norm", [2, math.inf])
def test_balls_leave_out_the_corners_of_their_box(norm):
    ball = Ball(np.array([0.5, 0.4]), 0.4, norm)
    _, _, data = case(region=ball, depth=8)
    verdict = check(data)
    assert "the ball of radius 0.4" in str(verdict)

    def grow(claim, arrays):
        arrays["radius"] += 0.1

    with raises(Rejected, "rejected", "ball"):
        check(cases.altered(data, grow))


# ---- altered files ---------------------------------------------------------------------------


def test_no_flipped_byte_is_accepted():
    _, _, data = case(depth=1)
    random = np.random.default_rng(7)
    first = data.index(b"\n") + 1
    places = [*range(0, first, 2), *random.integers(0, len(data), 160).tolist()]
    for place in places:
        changed = bytearray(data)
        changed[place] ^= int(random.integers(1, 256))
        with raises(Rejected, "altered"):
            check(bytes(changed))
    for other in (data[:-1], data + b"\0", data[first:], b"", data.replace(b"\n", b"\r\n", 1)):
        with pytest.raises(Rejected):
            check(other)


def _set(name, index, value):
    def change(claim, arrays):
        arrays[name][index] = value

    return change


def _drop(name):
    def change(claim, arrays):
        del arrays[name]

    return change


def _say(key, value):
    def change(claim, arrays):
        claim[key] = value

    return change


def _truncated(claim, arrays):
    arrays["tree_dimension"] = arrays["tree_dimension"][:-1]
    arrays["tree_start"][-1] -= 1


def _surplus(claim, arrays):
    arrays["tree_dimension"] = np.append(arrays["tree_dimension"], np.int16(-1))
    arrays["tree_start"][-1] += 1


def _packed(claim, arrays):
    arrays["extra"] = np.zeros(3)


def _single(claim, arrays):
    arrays["part0.weight_0"] = arrays["part0.weight_0"].astype(np.float32)


def _config(key, value):
    def change(claim, arrays):
        claim["parts"][0]["config"][key] = value

    return change


def _weight(claim, arrays):
    arrays["part0.weights"][0] += 3e-9


def _negative(claim, arrays):
    arrays["part0.weights"][[0, 2]] = [-0.5, 1.5]


def _lowered(claim, arrays):
    arrays["limit"] -= ROOM + 1e-4
    arrays["leaf_bound"] -= ROOM + 1e-4


def _louder(claim, arrays):
    arrays["part0.bias_1"][0] += np.array([3.0, 0.0, 0.0])


def _wider(claim, arrays):
    arrays["upper"] *= 1.1


CHANGES = {
    "weight beyond tolerance": (_weight, "weights of block 0 sum to"),
    "negative weight": (_negative, "weights must be positive"),
    "limit lowered": (_lowered, "not proven"),
    "member changed": (_louder, "not proven"),
    "region grown": (_wider, "not proven"),
    "steeper rule": (_set("slope_value", 0, 2.0), "not proven"),
    "tree truncated": (_truncated, "cut off or has surplus"),
    "surplus leaf": (_surplus, "cut off or has surplus"),
    "dimension out of range": (_set("tree_dimension", 0, INPUTS), "halves dimensions"),
    "dimension below -1": (_set("tree_dimension", 0, -2), "halves dimensions"),
    "leaf bound above the limit": (_set("leaf_bound", 0, 9.0), "above the limit"),
    "leaf bound not a number": (_set("leaf_bound", 0, np.nan), "not finite"),
    "leaf bound minus infinity": (_set("leaf_bound", 0, -np.inf), "without a finite bound"),
    "infinite limit": (_set("limit", 0, np.inf), "limit holds inf"),
    "infinite parameter": (_set("part0.weight_0", (0, 0, 0), np.inf), "finite"),
    "absurd parameter": (_set("part0.weight_0", (0, 0, 0), 1e308), r"holds 1e\+308"),
    "index out of range": (_set("slope_output", 0, 5), "slope_output must lie"),
    "starts out of order": (_set("tree_start", 1, 10**6), "tree_start must rise"),
    "scale zero": (_set("part0.normalise_scale", 0, 0.0), "scale of inputs"),
    "array missing": (_drop("limit"), "missing"),
    "member array missing": (_drop("part0.skip"), "missing"),
    "array of no use": (_packed, "of no use"),
    "wrong dtype": (_single, "float64"),
    "unknown activation": (_config("activation", "swish"), "activation"),
    "blocks overlap": (_say("blocks", [[0, 1, 2], [2, 3, 4]]), "exactly once"),
    "rule missing": (_say("rules", [{"name": "a"}]), "shape|rise"),
    "no rules": (_say("rules", []), "no rule"),
    "another size": (_say("input_size", 3), "shape"),
    "text as number": (_say("output_size", "5"), "whole number"),
    "unknown key": (_say("note", ""), "must be an object"),
    "unknown region": (_say("region", {"kind": "cone", "norm": None}), "must be a box"),
    "ball without a centre": (_say("region", {"kind": "ball", "norm": 2}), "centre"),
    "list as a norm": (_say("region", {"kind": "ball", "norm": [2]}), "must be a box"),
    "list as an activation": (_config("activation", ["gelu"]), "activation"),
    "list as an output": (_config("output", ["softmax"]), "unknown output"),
    "negative margin": (_say("margin", -1.0), "margin"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_with_a_fitting_digest_are_rejected(name):
    change, reason = CHANGES[name]
    _, _, data = case(depth=3)
    with pytest.raises(Rejected, match=reason):
        check(cases.altered(data, change))


def test_a_merged_leaf_no_longer_closes_by_itself():
    _, _, data = case(depth=9)
    proven = check(data, halvings=0)
    assert proven.extra_cells == 0

    def merge(claim, arrays):
        arrays["tree_dimension"] = np.full(2, -1, np.int16)
        arrays["leaf_bound"] = arrays["limit"].copy()
        arrays["tree_start"] = arrays["leaf_start"] = np.arange(3)

    merged = cases.altered(data, merge)
    with raises(Rejected, "not-proven"):
        check(merged, halvings=0)
    again = check(merged)  # the claim is true, and the checker may halve on its own
    assert again.extra_cells > 0


def test_random_changes_to_members_never_prove_a_false_claim():
    """Whatever is accepted after a change is true of the changed members."""
    random = np.random.default_rng(11)
    ensemble, wanted, data = case(depth=3)
    limits = wanted.bound
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 41)] * INPUTS), axis=-1).reshape(-1, INPUTS)
    accepted = 0
    for _ in range(8):
        array = ensemble.parts[0].members.parameters["weight_1"].numpy().copy()
        array += random.normal(size=array.shape) * random.choice([1e-3, 0.3])

        def change(claim, arrays, array=array):
            arrays["part0.weight_1"] = array
            arrays.pop("sum_group")  # the path that is missing has a share now

        parameters = {**ensemble.parts[0].members.parameters, "weight_1": array}
        members = type(ensemble.parts[0].members)(
            ensemble.parts[0].members.architecture, parameters
        )
        changed = type(ensemble)(
            (type(ensemble.parts[0])(members, *_rest(ensemble)),), ensemble.layout
        )
        try:
            check(cases.altered(data, change))
        except Rejected:
            continue
        accepted += 1
        assert (cases.values(changed, wanted, grid) <= limits).all()
    assert 0 < accepted < 8


def _rest(ensemble):
    return ensemble.parts[0].blocks, ensemble.parts[0].weights


def test_doubled_keys_and_bare_words_are_no_json():
    _, _, data = case(depth=1)
    content = parse_certificate(data)
    for text in (b'{"title": 1, "title": 2}', b'{"margin": NaN}', b"[", b"\xff"):
        arrays = {**content.arrays, "claim": np.frombuffer(text, np.uint8)}
        with raises(Rejected, "rejected", "JSON"):
            parse_certificate(cases.seal_arrays(arrays))


def test_a_file_that_is_not_there(tmp_path):
    with raises(Unreadable, "unreadable"):
        check(tmp_path / "none")


def test_one_parent_catches_the_errors_of_both_distributions(tmp_path):
    """As users write it around `cg4ai.check`, without a name of the checker."""
    for file, data in (("none", None), ("altered", case(depth=1)[2][:-1])):
        if data is not None:
            (tmp_path / file).write_bytes(data)
        with pytest.raises(cg4ai.Cg4aiError):
            cg4ai.check(tmp_path / file)
    assert issubclass(Rejected, Cg4aiError)
    assert issubclass(InvalidInput, Cg4aiError)


# ---- the shipped mixture ---------------------------------------------------------------------


def test_the_folder_must_hold_the_same_mixture(tmp_path):
    ensemble, _, data = case(depth=3)
    ensemble.save(tmp_path / "same")
    claim = check(data).claim
    assert "members, weights and layout are equal" in compare(claim, tmp_path / "same")[0]
    members = ensemble.parts[0].members
    for name, part in (
        ("weights", (members, ensemble.parts[0].blocks, np.array([0.4, 0.6, 0.6, 0.4]))),
        ("members", (members.take(np.array([2, 1, 0, 3])), *_rest(ensemble))),
    ):
        other = type(ensemble)((type(ensemble.parts[0])(*part),), ensemble.layout)
        other.save(tmp_path / name)
        with raises(Rejected, "altered"):
            compare(claim, tmp_path / name)


def test_checking_never_imports_torch(tmp_path):
    ensemble, _, data = case(depth=3)
    ensemble.save(tmp_path)
    (tmp_path / "certificate.cg4ai").write_bytes(data)
    code = (
        "import sys; from cg4ai.cli.main import main\n"
        f"ended = main(['check', r'{tmp_path / 'certificate.cg4ai'}', '--run', r'{tmp_path}'])\n"
        "heavy = {'torch', 'cg4ai.proofs', 'cg4ai.members', 'cg4ai.ensemble.ensemble'}\n"
        "sys.exit(ended or (9 if heavy & set(sys.modules) else 0))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Proven: 'cap'" in done.stdout


def test_pieces_of_a_proof_are_checked_in_any_way_alike():
    _, _, data = case(depth=2)
    told = []
    alone = check(data, progress=lambda done, rules: told.append((done, rules)))
    assert told == [(1, 2), (2, 2)]
    assert alone.extra_cells > 0
    at_once = check(data, each=lambda work, pieces: [work(piece) for piece in list(pieces)])
    assert np.array_equal(alone.bounds, at_once.bounds)
    assert (alone.leaves, alone.extra_cells) == (at_once.leaves, at_once.extra_cells)


def test_rules_that_need_too_many_cells_together_are_rejected(monkeypatch):
    _, _, data = case(depth=2)
    both = check(data).extra_cells
    monkeypatch.setattr(verify, "BUDGET_START", both - 1)
    monkeypatch.setattr(verify, "BUDGET_PER_LEAF", 0)
    with raises(Rejected, "memory", both):
        check(data)
