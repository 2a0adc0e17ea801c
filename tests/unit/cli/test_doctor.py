"""`cg4ai doctor`: true of a sound installation, and of broken ones."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from typing import Any

import pytest
import torch

from cg4ai.cli import installation as checkup
from cg4ai.cli.main import main
from cg4ai.colgen.master import LinearMaster


def test_a_sound_installation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["works"] is True
    assert [check["fault"] for check in found["checks"]] == [""] * 5
    assert "cpu" in found["machine"]["devices"]
    names = [one["name"] for one in found["packages"]]
    assert len(names) == len(set(names))
    versions = {one["name"]: one["version"] for one in found["packages"]}
    for name in ("torch", "highspy", "scikit-learn", "networkx"):
        assert versions[name] == importlib.metadata.version(name)


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Nothing is tried; the versions of some packages are others (None: missing)."""
    monkeypatch.setattr(checkup, "run_checks", lambda: [checkup.InstallationCheck("all", "", 0.0)])
    true = checkup._version

    def pretend(**versions: str | None) -> None:
        monkeypatch.setattr(
            checkup, "_version", lambda name: versions[name] if name in versions else true(name)
        )

    return pretend


def test_missing_extras_are_named_and_no_failure(
    quickly: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    quickly(topohub=None, matplotlib="3.1")
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (missing,) = (line for line in lines if "topohub" in line)
    assert missing.split()[:4] == ["routing", "topohub", ">=1.4", "missing"]
    assert missing.endswith("pip install 'cg4ai[routing]'")
    (old,) = (line for line in lines if "matplotlib" in line)
    assert "3.1, too old" in old
    assert old.endswith("pip install 'cg4ai[plots]'")
    assert lines[-1] == "The core works."


@pytest.mark.parametrize(("version", "state"), [(None, "missing"), ("1.9.1", "1.9.1, too old")])
def test_a_core_package_that_is_missing_or_old_is_a_failure(
    quickly: Any, capsys: pytest.CaptureFixture[str], version: str | None, state: str
) -> None:
    quickly(torch=version)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert state in out
    assert "pip install 'torch>=2.4'" in out
    assert "The core does not work" in out


def test_versions_are_compared_as_numbers() -> None:
    assert checkup.Package("one", ">=1.10", "1.9.2").state == "too old"
    assert checkup.Package("one", ">=1.9", "1.10.0+cpu").state == "ok"
    assert checkup.Package("one", "", "0.1").state == "ok"


def test_what_fails_is_said_and_the_rest_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any) -> Any:
        raise RuntimeError("no licence\nof any kind")

    monkeypatch.setattr(LinearMaster, "solve", broken)
    monkeypatch.setattr(checkup, "_whole", lambda: "")
    faults = {check.name: check.fault for check in checkup.run_checks()}
    assert faults.pop("HiGHS solves a linear program") == "RuntimeError: no licence"
    assert set(faults.values()) == {""}


def test_numbers_that_are_flushed_to_zero_are_found() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush them")
    try:
        assert "flushes small numbers to zero" in checkup._float64()
    finally:
        torch.set_flush_denormal(False)
    assert checkup._float64() == ""


def test_without_torch_there_is_a_report_and_no_traceback() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from cg4ai.cli.main import main; "
        "sys.exit(main(['doctor']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr == ""
    assert "devices          unknown: ModuleNotFoundError" in done.stdout
    assert "FAILED: ModuleNotFoundError" in done.stdout
