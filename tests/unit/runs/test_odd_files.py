"""Pipes, devices, folders and links where a file should be: refused at once, never waited for."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import cg4ai
from cg4ai.apps.csv_tables import read_csv
from cg4ai.apps.tabular.rulefile import rule_files
from cg4ai.cli.main import main
from cg4ai.errors import Cg4aiError
from cg4ai.routing.demands.traffic_files import read_traffic
from cg4ai.routing.network.parsing import read_text
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from cg4ai_checker import verdict
from cg4ai_checker.folder_reader import read_file, read_folder

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes")


@contextmanager
def soon(seconds: float = 60.0) -> Iterator[None]:
    """A wait for ever becomes an error."""

    def end(*_: Any) -> None:
        raise AssertionError("it waits for the other end of a pipe")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def nowhere(path: Path) -> None:
    path.symlink_to(path.parent / "not there")


ODD = (pipe, endless, nowhere, Path.mkdir)
FILES = ("run.json", "history.jsonl", "summary.json", "ensemble.json", "members.safetensors")


@pytest.mark.parametrize("make", ODD, ids=["pipe", "device", "dangling", "folder"])
@pytest.mark.parametrize("name", FILES)
def test_odd_files_in_a_run_are_refused(
    finished_runs: Path, tmp_path: Path, name: str, make: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(finished_runs / "route", tmp_path / "run"))
    table = tmp_path / "demands.csv"
    names = files.read_json(folder / "ensemble.json")["about"]["demands"]
    table.write_text(",".join(names) + "\n" + ",".join("0" for _ in names) + "\n")
    (folder / name).unlink()
    make(folder / name)
    run_file = name in FILES[:3]
    with soon():
        if name != "members.safetensors":
            assert main(["show", str(folder)]) == 2
        predicted = main(["predict", str(folder), str(table)])
        assert main(["report", str(folder)]) == (0 if name == "members.safetensors" else 2)
        checked = main(["check", str(folder / "certificate.cg4ai"), "--run", str(folder)])
    assert checked == (0 if run_file else 2)
    # predictions ask neither the history nor the summary; a link to nothing is no run
    assert predicted == (0 if name in FILES[1:3] or (make, name) == (nowhere, FILES[0]) else 2)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("make", ODD, ids=["pipe", "device", "dangling", "folder"])
def test_odd_files_that_users_name_are_refused(tmp_path: Path, make: Any) -> None:
    given = tmp_path / "given"
    make(given)
    with soon():
        for read in (read_csv, read_text, rule_files, verdict):
            with pytest.raises(Cg4aiError):
                read(given)
        assert main(["check", str(given), "--quiet"]) == 2
    for ending in (".npz", ".csv", ".tgz", ".zip", ".xml"):
        if make is Path.mkdir:
            continue  # a folder may hold matrices
        other = given.rename(tmp_path / f"traffic{ending}")
        with soon(), pytest.raises(Cg4aiError):
            read_traffic(other)
        given = other


def test_users_may_name_links_to_files(tmp_path: Path) -> None:
    """Inside a run's folder they would lead out of it."""
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "table.csv")
    assert read_csv(tmp_path / "link.csv").names == ("a", "b")
    assert read_file(tmp_path / "link.csv", links=True) == b"a,b\n1,2\n"
    for read in (files.read_bytes, read_file):
        with pytest.raises(OSError, match="symbolic link"):
            read(tmp_path / "link.csv")


def test_a_lock_or_history_that_is_a_pipe_is_refused(finished_runs: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished_runs / "route", tmp_path / "run"))
    (folder / "run.lock").unlink()
    os.mkfifo(folder / "run.lock")
    with soon(), pytest.raises(Cg4aiError):
        Run.open(folder)
    (folder / "other.jsonl").unlink(missing_ok=True)
    os.mkfifo(folder / "other.jsonl")
    with soon(), pytest.raises(Cg4aiError):
        files.append_lines(folder / "other.jsonl", [{"iteration": 1}])


def test_no_more_is_read_than_the_files_size(tmp_path: Path) -> None:
    """Files of systems, such as /proc's, state none."""
    if Path("/proc/self/status").exists():
        assert files.read_given(Path("/proc/self/status")) == b""
    folder = cg4ai.__file__
    assert len(read_file(Path(folder), links=True)) == Path(folder).stat().st_size


def test_both_readers_refuse_a_linked_ensemble(finished_runs: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished_runs / "route", tmp_path / "run"))
    (folder / "ensemble.json").unlink()
    (folder / "ensemble.json").symlink_to(finished_runs / "route" / "ensemble.json")
    for read in (cg4ai.load, read_folder):
        with pytest.raises(Cg4aiError):
            read(folder)
