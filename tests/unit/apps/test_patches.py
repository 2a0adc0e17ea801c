"""Finished runs patched: earlier rows kept, the old folder untouched, changes recomputed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cg4ai
from base_members import base_members_trained_once  # noqa: F401  # a fixture for all tests here
from cg4ai.apps.patches import patch_run
from cg4ai.cli.main import main
from cg4ai.errors import InvalidInput, RunFolderError
from experiments.digits import DigitsSettings, train
from experiments.digits.app import alone
from experiments.digits.data import builtin
from experiments.digits.members import base_member
from raising import raises

TINY: dict[str, Any] = {
    "group": 12,
    "steps": 120,
    "learning_rate": 0.02,
    "batch_size": 32,
    "blur": 0.0,
    "gain": 1.0,
    "rounds": 3,
    "row_weight": 2.0,
    "threads": 1,
}


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits") / "run"
    train(DigitsSettings(scenario="hard", n=20, **TINY), out=folder)
    return folder


def wrong_images(folder: Path, count: int) -> list[int]:
    """Positions of images that the run answers wrongly, none of them for training or testing."""
    images = builtin()
    others = images.split(20, 0).others
    answers = cg4ai.load(folder).predict(images.images[others]).argmax(1)
    return others[answers != images.labels[others]][:count].tolist()


def test_wrong_images_are_answered_right_and_earlier_rows_stay(
    digits_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = wrong_images(digits_run, 2)
    added = tmp_path / "wrong.json"
    added.write_text(json.dumps({"images": chosen}))
    before = {path.name: path.read_bytes() for path in digits_run.glob("*") if path.is_file()}
    out = tmp_path / "patched"
    assert main(["patch", str(digits_run), "--add", str(added), "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert told.startswith("Patched: ")
    assert "earlier: hard holds" in told
    assert "added: wrong holds" in told
    after = {path.name: path.read_bytes() for path in digits_run.glob("*") if path.is_file()}
    assert after == before
    images, old, new = builtin(), cg4ai.load(digits_run), cg4ai.load(out)
    split = images.split(20, 0)
    assert (new.predict(images.images[chosen]).argmax(1) == images.labels[chosen]).all()
    assert (new.predict(split.train_images).argmax(1) == split.train_labels).all()
    summary = json.loads((out / "summary.json").read_text())
    apart = np.abs(new.predict(split.train_images) - old.predict(split.train_images))
    assert summary["changes"]["inputs of the objective"]["largest"] == pytest.approx(apart.max())
    # a further patch keeps the first
    more = tmp_path / "more.json"
    more.write_text(json.dumps({"images": wrong_images(out, 1)}))
    again = patch_run(out, [more])
    assert [one.requirement for one in again.result.audits] == ["hard", "wrong", "more"]
    assert again.kept
    added.unlink()
    with raises(RunFolderError, "bad-file"):
        patch_run(out, [more])


def test_what_cannot_be_patched_is_refused(digits_run: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd.json"
    odd.write_text('{"pictures": [1]}')
    with raises(InvalidInput, "invalid-input", "such"):
        patch_run(digits_run, [odd])
    odd.write_text('{"images": [-1]}')
    with raises(InvalidInput, "invalid-input"):
        patch_run(digits_run, [odd])
    odd.write_text('{"scenario": "robust"}')
    with raises(InvalidInput, "invalid-input", "scenarios"):
        patch_run(digits_run, [odd])
    with raises(InvalidInput, "exists", "--out"):
        patch_run(digits_run, [odd], out=digits_run)


def test_digits_are_relabelled_in_a_finished_run(tmp_path: Path) -> None:
    run, relabel = tmp_path / "run", tmp_path / "relabel.json"
    train(DigitsSettings(scenario="plain", n=20, **TINY), out=run)
    relabel.write_text('{"scenario": "relabel"}')
    made = patch_run(run, [relabel])
    assert made.kept
    split = builtin().split(20, 0)
    answers = made.result.ensemble.predict(split.train_images).argmax(1)
    assert (answers[split.train_labels == 3] == 2).all()
    (_, changed), *_ = made.changes
    threes = np.flatnonzero(split.train_labels == 3)
    assert set(threes) <= set(changed.answers)


def test_what_the_base_member_gets_wrong_is_corrected_in_a_finished_run(tmp_path: Path) -> None:
    asked = DigitsSettings(scenario="plain", n=50, hidden=2, seed=1, **TINY | {"steps": 40})
    before = train(asked, out=tmp_path / "run").result.ensemble
    file = tmp_path / "correct.json"
    file.write_text('{"scenario": "correct"}')
    made = patch_run(tmp_path / "run", [file])
    assert made.kept
    split = builtin().split(50, 1)
    images, labels = split.train_images, split.train_labels
    base = base_member(images, labels, rule="margin", hidden=2, seed=1)
    wrong = alone(base).predict(images).argmax(1) != labels
    assert 0 < wrong.sum() < len(labels)
    assert made.result.audits[-1].rows >= wrong.sum()
    assert (made.result.ensemble.predict(images[wrong]).argmax(1) == labels[wrong]).all()
    assert (before.predict(images[wrong]).argmax(1) != labels[wrong]).any()  # it had to be patched
    (_, changed), *_ = made.changes
    repaired = np.flatnonzero(before.predict(images).argmax(1) != labels)
    assert set(repaired[wrong[repaired]]) <= set(changed.answers)


def test_a_rule_is_added_to_a_run_on_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(0)
    x = random.uniform(0, 1, size=(60, 2)).round(3)
    x[:8, 0] = np.array([0.1, 0.9, 0.2, 0.8, 0.1, 0.9, 0.15, 0.85])
    y = (x[:, 0] > 0.5).astype(int)
    rows = [f"{a},{b},{'yes' if label else 'no'}" for (a, b), label in zip(x, y, strict=True)]
    data = tmp_path / "data.csv"
    data.write_text("\n".join(["a,b,paid", *rows]))
    few = tmp_path / "few.csv"
    few.write_text("\n".join(["a,b,paid", *rows[:3]]))
    rules = tmp_path / "rules.json"
    first = {"rule": "probability", "rows": "few.csv", "at_least": 0.6, "name": "first"}
    rules.write_text(json.dumps([first]))
    run = tmp_path / "run"
    quick = ["--steps", "60", "--iteration-limit", "3", "--quiet"]
    command = ["train", str(data), "--target", "paid", "--rules", str(rules), "--out", str(run)]
    assert main([*command, *quick]) == 0
    more = tmp_path / "more.csv"
    more.write_text("\n".join(["a,b,paid", *rows[5:8]]))
    second = {"rule": "probability", "rows": "more.csv", "at_least": 0.55, "name": "second"}
    added = tmp_path / "added.json"
    added.write_text(json.dumps([second]))
    capsys.readouterr()
    assert main(["patch", str(run), "--add", str(added), "--data", str(data)]) == 0
    told = capsys.readouterr().out
    assert "earlier: first holds" in told
    assert "added: second holds" in told
    assert "Changed at data.csv: " in told
    patched = str(tmp_path / "run-patched")
    assert main(["patch", str(run), "--add", str(added)]) == 2
    assert "already holds a run: choose another --out" in capsys.readouterr().err
    # later commands look at the added rule, too
    assert main(["audit", patched, "--json"]) == 0
    audits = json.loads(capsys.readouterr().out)["audits"]
    assert [one["requirement"] for one in audits] == ["first", "second"]
    assert main(["predict", patched, str(more), "--explain"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    place = head.split(",").index("second: strength")
    assert [line.split(",")[place] for line in lines] == ["audited"] * 3
    assert main(["train", "--resume", "--out", patched]) == 2
    assert "patched run, which is not resumed" in capsys.readouterr().err
    # the added rules are those of this file and of the rows that it names
    more.write_text("\n".join(["a,b,paid", *rows[5:7]]))
    assert main(["audit", patched]) == 2
    assert "has since been changed or removed" in capsys.readouterr().err
    more.write_text("\n".join(["a,b,paid", *rows[5:8]]))
    everywhere = {"rule": "range", "low": 0, "high": 1}
    added.write_text(json.dumps([everywhere]))
    assert main(["patch", str(run), "--add", str(added), "--out", str(tmp_path / "no")]) == 2
