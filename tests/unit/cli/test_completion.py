"""What the shell completes, how quickly it is told, and that it is told at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cg4ai.cli.completion import complete_networks, run_folders

HEAVY = ("torch", "numpy", "sklearn", "pandas", "scipy", "highspy", "matplotlib", "rich")


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, file in (("run-one", "run.json"), ("run-two", "ensemble.json"), ("rest", "x.txt")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "deep").mkdir()
    (tmp_path / "runs" / "deep" / "run.json").write_text("{}")
    (tmp_path / "run.txt").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_folders_of_runs_and_no_others(folders: Path) -> None:
    assert run_folders("") == ["run-one", "run-two"]
    assert run_folders("run-t") == ["run-two"]
    assert run_folders("runs/") == ["runs/deep"]
    assert run_folders(f"{folders}/run-o") == [f"{folders}/run-one"]
    assert run_folders("nowhere/") == []


def test_networks_by_name() -> None:
    assert complete_networks("pol") == ["polska"]
    plain = complete_networks("")
    assert "abilene" in plain
    assert not any("/" in name for name in plain)
    assert "topozoo/Aarnet" in complete_networks("topozoo/A")
    assert complete_networks("no such network") == []


def completed(words: str, place: int) -> list[str]:
    """What the installed command tells bash, and that it imported nothing heavy for it."""
    code = (
        "import sys; from cg4ai.cli.main import main; main(); "
        f"heavy = [name for name in {HEAVY} if name in sys.modules]; sys.exit(repr(heavy))"
    )
    told = {"COMP_WORDS": words, "COMP_CWORD": str(place), "_CG4AI_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | told,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr.strip() == "[]"
    return done.stdout.split()


def test_commands_options_and_their_values(folders: Path) -> None:
    assert completed("cg4ai c", 1) == ["certify", "check"]
    assert completed("cg4ai route --guar", 2) == ["--guarantee"]
    assert completed("cg4ai route --guarantee ", 3) == ["attacked", "certified", "shielded"]
    assert completed("cg4ai route abil", 2) == ["abilene"]
    assert completed("cg4ai show run", 2) == ["run-one", "run-two"]
    assert completed("cg4ai train --resume --out run-o", 4) == ["run-one"]
    assert completed("cg4ai train no", 2) == []  # then the shell completes names of files


def test_help_loads_no_command_and_a_command_no_other() -> None:
    code = (
        "import sys; from cg4ai.cli.main import main; main(sys.argv[1:]); "
        "commands = ('show', 'serve', 'doctor', 'training', 'failures'); "
        "sys.exit(repr([name for name in commands if f'cg4ai.cli.{name}' in sys.modules]))"
    )
    for arguments, loaded in ((["--help"], "[]"), (["show", "--help"], "['show']")):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60
        )
        assert done.stderr.strip() == loaded


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_takes_the_script(folders: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "cg4ai"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cg4ai "$@"\n')
    command.chmod(0o755)
    script = (
        "source <(cg4ai --show-completion bash); COMP_WORDS=(cg4ai show run-t); COMP_CWORD=2; "
        '_cg4ai_completion cg4ai; echo "${COMPREPLY[@]}"; complete -p cg4ai'
    )
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    first, second = done.stdout.splitlines()
    assert first == "run-two"
    assert second == "complete -o default -F _cg4ai_completion cg4ai"
