"""A summary speaks of the ensemble in its folder, or is not believed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cg4ai.apps.patches import patch_run
from cg4ai.apps.predictions import RunPredictor
from cg4ai.cli.main import main
from cg4ai.errors import RunFolderError
from cg4ai.report.card import card_of
from cg4ai.runs import files
from cg4ai.runs.folder import SPEAKS_OF, Run


@pytest.fixture
def folder(finished_runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_runs / "route", tmp_path / "route"))


def code(*arguments: str | Path) -> int:
    return main([str(one) for one in arguments])


def test_a_run_speaks_of_its_own_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened = Run.open(folder, read_only=True)
    assert opened.bound
    assert SPEAKS_OF not in (opened.summary() or {})
    stated = files.read_json(folder / "summary.json")[SPEAKS_OF]
    assert {"ensemble.json", "run.json", "history.jsonl", "arrays.safetensors"} <= set(stated)
    assert code("show", folder) == 0
    assert "shielded" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["summary.json", "ensemble.json", "run.json", "history.jsonl"])
def test_files_of_another_run_are_refused(
    finished_runs: Path, folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with `cp reg/summary.json mix/`: what it says is not of this mixture."""
    shutil.copy(finished_runs / "train" / name, folder)
    if name == "ensemble.json":
        shutil.copy(finished_runs / "train" / "members.safetensors", folder)
    for command in ("show", "report"):
        assert code(command, folder) == 2, command
    capsys.readouterr()
    with pytest.raises(RunFolderError):
        card_of(folder, RunPredictor.from_folder(folder))
    if name == "summary.json":
        assert code("explore", folder, "--out", folder / "page.html") == 2


def test_a_run_of_mixed_files_is_not_patched(finished_runs: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(finished_runs / "train", tmp_path / "train"))
    shutil.copy(finished_runs / "route" / "summary.json", model)
    with pytest.raises(RunFolderError):
        patch_run(model, [])


def test_figures_of_another_run_are_refused(finished_runs: Path, folder: Path) -> None:
    shutil.copy(finished_runs / "digits" / "arrays.safetensors", folder)
    assert code("report", folder) == 2


def test_certificates_of_another_run_are_not_listed(folder: Path, tmp_path: Path) -> None:
    card = card_of(folder, RunPredictor.from_folder(folder))
    assert [one.file for one in card.certificates] == ["certificate.cg4ai"]
    data = bytearray((folder / "certificate.cg4ai").read_bytes())
    data[30:34] = b"0000"  # of its digest
    (folder / "other.cg4ai").write_bytes(data)
    assert card_of(folder, RunPredictor.from_folder(folder)).certificates == card.certificates


def test_a_summary_of_before_claims_nothing(
    finished_runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Versions before 0.8 did not note of which ensemble a summary speaks."""
    folder = Path(shutil.copytree(finished_runs / "route", tmp_path / "mix"))
    old = {k: v for k, v in files.read_json(folder / "summary.json").items() if k != SPEAKS_OF}
    old["mean_mlu_gap"], old["strength"] = 1e-6, "certified"
    files.write_json(folder / "summary.json", old)
    assert not Run.open(folder, read_only=True).bound
    assert code("show", folder) == 0
    said = capsys.readouterr().out
    assert "not bound to this ensemble" in said
    assert "certified" not in said.partition("not bound")[2]
    card = card_of(folder, RunPredictor.from_folder(folder))
    assert {one.strength for one in card.guarantees} == {"shielded"}  # by its own anchor
    assert card.certificates == ()
    assert code("report", folder) == 0
    assert "Not bound to this ensemble" in (folder / "report.html").read_text()


def test_certifying_keeps_a_summary_bound(
    finished_runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(finished_runs / "route", tmp_path / "run"))
    assert code("certify", folder, "--quiet") == 0
    assert code("show", folder) == 0
    assert Run.open(folder, read_only=True).bound
    before = (folder / "summary.json").read_bytes()
    old = {k: v for k, v in files.read_json(folder / "summary.json").items() if k != SPEAKS_OF}
    files.write_json(folder / "summary.json", old)
    assert code("certify", folder, "--quiet") == 0
    assert not Run.open(folder, read_only=True).bound, "it may be of another ensemble"
    assert (folder / "summary.json").read_bytes() != before
    capsys.readouterr()


def test_a_resumed_run_mends_a_summary_of_another(finished_runs: Path, folder: Path) -> None:
    shutil.copy(finished_runs / "train" / "summary.json", folder)
    assert code("route", "--resume", "--quiet", "--no-report", "--out", folder) == 0
    assert code("show", folder) == 0
