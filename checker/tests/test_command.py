"""`cg4ai-check`: one answer, its reason, and an exit code that scripts can use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import handmade
from cg4ai_checker.command import INTERRUPTED, PROVEN, REJECTED, UNREADABLE, main

TRUE, FALSE = handmade.largest() + 0.05, handmade.largest() - 0.05


def written(folder: Path, limit: float) -> str:
    file = folder / "certificate.cg4ai"
    file.write_bytes(handmade.certificate(limit))
    return str(file)


def test_a_proof_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    handmade.write_folder(tmp_path)
    assert main([written(tmp_path, TRUE), "--run", str(tmp_path)]) == PROVEN
    out = capsys.readouterr().out
    assert out.startswith("Proven: 'cap' of a network.")
    assert "members, weights and layout are equal" in out


def test_without_a_folder_it_says_what_was_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([written(tmp_path, TRUE)]) == PROVEN
    assert "--run" in capsys.readouterr().out


def test_a_false_claim_ends_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([written(tmp_path, FALSE), "--quiet"]) == REJECTED
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("REJECTED: ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["none"], ["certificate.cg4ai", "--run", "none"]])
def test_what_cannot_be_read_ends_in_one_line(
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written(tmp_path, TRUE)
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == UNREADABLE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: cannot read ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, INTERRUPTED), (MemoryError, 1)])
def test_interrupts_and_lack_of_memory_have_codes(
    error: type[BaseException], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object, **named: object) -> None:
        raise error

    monkeypatch.setattr("cg4ai_checker.verify.verdict", fail)
    assert main([written(tmp_path, TRUE)]) == code


def test_it_runs_as_a_module_and_has_help() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cg4ai_checker", "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "exit codes:" in done.stdout
    assert "cg4ai-check router/certificate.cg4ai --run router" in done.stdout
