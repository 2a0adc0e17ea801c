"""`check --run`: what the folder holds must be what the certificate is about, in every respect."""

from __future__ import annotations

from typing import Any

import certificate_cases as cases
import numpy as np
import pytest

from cg4ai.apps.tabular.description import restore_subject
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.saved import describe, load
from cg4ai.errors import RunFolderError
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.proofs import certify
from cg4ai.proofs.certificate import build_certificate
from cg4ai.rules import Equality, Linear
from cg4ai.rules.regions import Box
from cg4ai.runs import files
from cg4ai_checker import Rejected, Unreadable, check, verdict
from cg4ai_checker.run_folder import compare
from raising import raises

ABOUT = {
    "features": ["age", "income"],
    "outputs": ["no", "yes"],
    "target": "loan",
    "task": "classification",
    "scores": "probability",
}


def mixture(about=ABOUT, values=((0.2, 0.8), (7.0, 0.0)), weights=(1.0, 0.0)):
    members = ConstantMembers(np.array(values), 2)
    part = Part(members, np.zeros(len(weights), np.int64), np.array(weights))
    return Ensemble((part,), Layout.single(2), about=about)


def proof(ensemble):
    wanted = Linear(Box([0.0, 0.0], [1.0, 1.0]), [[1.0, 0.0]], 0.5, "<=", name="cap")
    return check(cases.certificate(ensemble, wanted)).claim


def rewritten(folder, **changes):
    """The saved ensemble with other fields and a fitting seal."""
    content = files.read_json(folder / "ensemble.json")
    files.write_json(folder / "ensemble.json", {**content, **changes})
    return folder


def test_members_of_weight_zero_are_said_and_predict_nothing(tmp_path):
    mixture().save(tmp_path)
    said = compare(proof(mixture()), tmp_path)
    assert any("1 members of weight 0, which are not used" in line for line in said)
    assert load(tmp_path).predict(np.zeros((1, 2))).tolist() == [[0.2, 0.8]]
    alone = mixture(values=[(0.2, 0.8)], weights=[1.0])
    alone.save(tmp_path / "alone")
    assert not any("weight 0" in line for line in compare(proof(alone), tmp_path / "alone"))


@pytest.mark.parametrize("weight", [-1e-9, np.nan, np.inf, "1", None])
def test_weights_that_are_none_are_refused_and_not_left_out(tmp_path, weight):
    claim = proof(mixture())
    mixture().save(tmp_path)
    rewritten(tmp_path, weights=[[1.0, weight]])
    with pytest.raises((Unreadable, Rejected)):
        compare(claim, tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("features", ["income", "age"]),
        ("outputs", ["yes", "no"]),
        ("target", "fraud"),
        ("task", "regression"),
        ("scores", "logits"),
    ],
)
def test_other_names_of_inputs_and_outputs_are_rejected(tmp_path, name, value):
    """With its classes swapped, a folder's "no" is the certificate's "yes"."""
    claim = proof(mixture())
    mixture().save(tmp_path)
    compare(claim, tmp_path)
    rewritten(tmp_path, about={**ABOUT, name: value})
    with raises(Rejected, "altered", name):
        compare(claim, tmp_path)
    rewritten(tmp_path, about={k: v for k, v in ABOUT.items() if k != name})
    with raises(Rejected, "altered", name):
        compare(claim, tmp_path)


TABULAR: dict[str, Any] = {
    **ABOUT,
    "application": "tabular",
    "features": ["age", "town=Ulm"],
    "lower": [0.0, 0.0],
    "upper": [1.0, 1.0],
    "scores": "score",
    "columns": [
        {"name": "age", "kind": "number", "fill": 0.5, "empty": False, "values": []},
        {"name": "town", "kind": "text", "fill": 0.0, "empty": False, "values": ["Ulm"]},
    ],
}


@pytest.mark.parametrize(
    ("number", "change"),
    [
        *((0, {"name": "income"}), (0, {"kind": "text"}), (0, {"empty": True})),
        *((1, {"values": ["Bonn"]}), (1, {"kind": "number"}), (1, {"values": ["Ulm", "Bonn"]})),
        *((1, {"name": "city"}), (1, {"name": "town=Ulm", "values": [], "kind": "text"})),
    ],
)
def test_columns_that_become_other_features_are_rejected(tmp_path, number, change):
    """Else a rule about age would be kept for whatever column the folder reads as age."""
    claim = proof(mixture(TABULAR))
    mixture(TABULAR).save(tmp_path)
    compare(claim, tmp_path)
    assert restore_subject(TABULAR).features == ("age", "town=Ulm")
    columns = [dict(one) for one in TABULAR["columns"]]
    columns[number] |= change
    rewritten(tmp_path, about={**TABULAR, "columns": columns})
    with raises(Rejected, "rejected"):
        compare(claim, tmp_path)
    with raises(RunFolderError, "bad-file", "data"):
        restore_subject({**TABULAR, "columns": columns})


def test_folders_that_have_numbers_alone_or_are_older_name_no_columns(tmp_path):
    without = {name: value for name, value in TABULAR.items() if name != "columns"}
    for number, about in enumerate((without, {**without, "columns": None})):
        mixture(about).save(tmp_path / f"{number}")
        compare(proof(mixture(about)), tmp_path / f"{number}")
        assert restore_subject(about).encoding is None


@pytest.mark.parametrize(
    "about",
    [
        *({"features": ["age"]}, {"outputs": "no, yes"}, {"features": [1, 2]}, {"title": "x"}),
        *({"target": "a\nb"}, {"task": None}, []),
    ],
)
def test_names_that_are_none_are_rejected(about):
    ensemble = mixture()
    wanted = Linear(Box([0.0, 0.0], [1.0, 1.0]), [[1.0, 0.0]], 0.5, "<=", name="cap")

    def change(claim, arrays):
        claim["about"] = about

    with pytest.raises(Rejected, match="must be"):
        check(cases.altered(cases.certificate(ensemble, wanted), change))


def test_an_anchor_behind_a_shield_of_its_own_is_rejected(tmp_path):
    """What moves the anchor moves predictions: here towards 0.9, above the certificate's 0.5."""
    rule = Linear(Box([0.0, 0.0], [1.0, 1.0]), [[1.0, 0.0]], 0.5, "<=", name="cap")
    other = Linear(Box([0.3, 0.3], [0.4, 0.4]), [[1.0, 0.0]], 0.8, ">=", name="other")
    bare = mixture(values=[(0.7, 0.3)], weights=[1.0])
    anchor = mixture(values=[(0.2, 0.8)], weights=[1.0])
    shielded = bare.apply_shield(anchor, rule)
    claim = check(cases.certificate(shielded, rule)).claim
    shielded.save(tmp_path)
    compare(claim, tmp_path)

    moved = describe(anchor.apply_shield([0.9, 0.1], other), "anchor.")
    stored = dict(files.read_arrays(tmp_path / "members.safetensors")) | moved.arrays
    digest = files.write_arrays(tmp_path / "members.safetensors", stored)
    shield = files.read_json(tmp_path / "ensemble.json")["shield"] | {"anchor": moved.record}
    rewritten(tmp_path, arrays=digest, shield=shield)
    with raises(RunFolderError, "bad-file", "shield"):
        load(tmp_path)
    with raises(Unreadable, "unreadable", "shield", "anchor"):
        compare(claim, tmp_path)
    equality = Equality(None, [[1.0, 1.0]], 1.0, name="one")
    answer = certify(bare, equality)
    data = build_certificate(bare, requirement=equality, certification=answer)
    sums = verdict(data).claim
    with raises(Unreadable, "unreadable", "shield", "anchor"):
        compare(sums, tmp_path)
