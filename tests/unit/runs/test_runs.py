"""A run folder survives kills and names damage; it never mixes with another run."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cg4ai
from cg4ai.errors import InvalidSettings, RunFolderError
from cg4ai.records import IterationRecord, MemberState
from cg4ai.runs import files
from cg4ai.runs.checkpoint import Checkpoint
from cg4ai.runs.folder import Run
from raising import raises

pytestmark = pytest.mark.usefixtures("quick_disk")

SETTINGS = {"seed": 7, "tolerance": 1e-6, "pricing": {"steps": 10, "rates": [0.1, 0.2]}}


def record(iteration: int, **changes: Any) -> IterationRecord:
    fields: dict[str, Any] = dict.fromkeys(IterationRecord.__dataclass_fields__, 0)
    fields |= {"iteration": iteration, "objective": 1.5, "bound": -math.inf, "note": "é"}
    return IterationRecord(**(fields | changes))


def stack(number: int) -> MemberState:
    return MemberState("network", {"number": number}, {"w": np.full((3, 2), float(number))})


def content(iteration: int) -> dict[str, Any]:
    """What a loop would save: one stack stays, one goes and one comes with each iteration."""
    return {
        "meta": {"iteration": iteration, "penalty": math.inf},
        "arrays": {"basis": np.full(4, iteration, np.int64), "empty": np.empty((0, 2))},
        "members": [stack(0), stack(iteration), stack(iteration + 1)],
    }


def save(run: Run, iteration: int) -> None:
    run.save_checkpoint(iteration, **content(iteration))


def assert_complete(checkpoint: Checkpoint | None, iteration: int) -> None:
    assert checkpoint is not None
    expected = content(iteration)
    assert checkpoint.iteration == iteration
    assert checkpoint.meta == expected["meta"]
    assert checkpoint.arrays.keys() == expected["arrays"].keys()
    for name, array in expected["arrays"].items():
        np.testing.assert_array_equal(checkpoint.arrays[name], array)
        assert checkpoint.arrays[name].dtype == array.dtype
    for loaded, saved in zip(checkpoint.members, expected["members"], strict=True):
        assert (loaded.kind, loaded.config) == (saved.kind, saved.config)
        np.testing.assert_array_equal(loaded.arrays["w"], saved.arrays["w"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out" / "run"


# --- starting and opening


def test_create_writes_what_is_needed_to_repeat_the_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0" if name == "cg4ai" else true(name))
    with Run.create(folder, "digits train", SETTINGS) as run:
        assert run.command == "digits train"
        assert run.settings == SETTINGS
    header = json.loads((folder / "run.json").read_text())
    assert header["format"] == "cg4ai-run"
    assert header["settings"]["seed"] == 7
    assert header["packages"]["numpy"] == np.__version__
    assert header["packages"]["python"] == sys.version.split()[0]
    assert {"torch", "highspy", "clarabel", "cg4ai"} <= header["packages"].keys()
    # of the code that runs, not of what is left of an installation
    assert header["packages"]["cg4ai"] == cg4ai.__version__
    with Run.open(folder) as again:
        assert again.settings == SETTINGS
        assert again.load_checkpoint() is None
        assert again.history() == []
        assert again.summary() is None


def test_an_existing_run_is_kept_unless_forced(folder: Path) -> None:
    with Run.create(folder, "first", SETTINGS) as run:
        run.append_history(record(1))
        save(run, 1)
        run.finish({"objective": 1.0})
    (folder / "notes.txt").write_text("mine")
    (folder / "ensemble.json").write_text("{}")
    with raises(RunFolderError, "exists", "--resume", "first"):
        Run.create(folder, "second", SETTINGS)
    with Run.open(folder) as run:
        assert_complete(run.load_checkpoint(), 1)
    with Run.create(folder, "second", SETTINGS, force=True) as run:
        assert run.load_checkpoint() is None
        assert run.history() == []
        assert run.summary() is None
    assert {path.name for path in folder.iterdir()} == {"run.json", "run.lock", "notes.txt"}


@pytest.mark.parametrize("force", [False, True])
def test_a_foreign_folder_is_left_alone(folder: Path, force: bool) -> None:
    folder.mkdir(parents=True)
    (folder / "thesis.tex").write_text("years of work")
    with raises(RunFolderError, "exists"):
        Run.create(folder, "train", SETTINGS, force=force)
    (folder / "run.json").write_text('{"name": "another program"}')
    with raises(RunFolderError, "bad-file", "run.json"):
        Run.create(folder, "train", SETTINGS, force=force)
    assert {path.name for path in folder.iterdir()} == {"thesis.tex", "run.json"}


def test_places_that_cannot_be_a_folder_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with raises(RunFolderError, "bad-file", "file"):
        Run.create(tmp_path / "file", "train", SETTINGS)
    with raises(RunFolderError, "bad-file"):
        Run.create(tmp_path / "file" / "below", "train", SETTINGS)

    def forbidden(*arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("os.open", forbidden)
        with raises(RunFolderError, "bad-file", "--out"):
            Run.create(tmp_path / "locked", "train", SETTINGS)


def test_open_refuses_what_is_no_run(folder: Path) -> None:
    with raises(RunFolderError, "bad-file", "run.json"):
        Run.open(folder)
    Run.create(folder, "train", SETTINGS).close()
    header = files.read_json(folder / "run.json")
    files.write_json(folder / "run.json", header | {"version": 99})
    with raises(RunFolderError, "version"):
        Run.open(folder)
    (folder / "run.json").write_text("{")
    with raises(RunFolderError, "bad-file", "run.json"):
        Run.open(folder)


def test_a_start_killed_half_way_can_be_repeated(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "run.lock").touch()
    (folder / ".run.json.123.tmp").write_text("{")
    Run.create(folder, "train", SETTINGS).close()
    Run.open(folder).close()
    assert {path.name for path in folder.iterdir()} == {"run.json", "run.lock"}


def test_two_processes_do_not_write_one_folder(folder: Path) -> None:
    run = Run.create(folder, "train", SETTINGS)
    for start in (Run.open, lambda place: Run.create(place, "train", SETTINGS, force=True)):
        with raises(RunFolderError, "exists"):
            start(folder)
    program = f"from cg4ai.runs.folder import Run; Run.open({str(folder)!r})"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "RunFolderError" in other.stderr
    assert f"written by process {os.getpid()}" in other.stderr
    run.close()
    with Run.open(folder) as again, pytest.raises(RunFolderError):
        Run.open(again.folder)


def test_the_lock_goes_with_a_forgotten_run(folder: Path) -> None:
    run: Run | None = Run.create(folder, "train", SETTINGS)
    del run
    with Run.open(folder) as again:
        assert again.settings == SETTINGS


def test_a_running_run_can_be_read_but_not_written(folder: Path) -> None:
    with Run.create(folder, "train", SETTINGS) as run:
        run.append_history(record(1))
        save(run, 1)
        reader = Run.open(folder, read_only=True)
        assert len(reader.history()) == 1
        assert_complete(reader.load_checkpoint(), 1)
        for write in (
            lambda: reader.append_history(record(2)),
            lambda: reader.truncate_history(0),
            lambda: save(reader, 2),
            lambda: reader.finish({}),
        ):
            with raises(RunFolderError, "bad-file", "read-only"):
                write()
    with raises(RunFolderError, "bad-file", "closed"):
        run.append_history(record(2))


def test_every_other_setting_is_listed(folder: Path) -> None:
    with Run.create(folder, "train", SETTINGS) as run:
        run.check_settings(SETTINGS)
        changed = {"seed": 8, "pricing": {"steps": 10, "rates": [0.1]}, "new": math.nan}
        with pytest.raises(InvalidSettings) as caught:
            run.check_settings(changed)
        run.check_settings(SETTINGS | {"tolerance": 1.0}, may_differ={"tolerance"})
    text = str(caught.value)
    assert "seed: the run has 7, now 8" in text
    assert "pricing.rates: the run has [0.1, 0.2], now [0.1]" in text
    assert "tolerance: the run has 1e-06, now 'none'" in text
    assert "new:" in text
    assert "steps" not in text


# --- history


def test_history_keeps_every_field(folder: Path) -> None:
    with Run.create(folder, "train", SETTINGS) as run:
        run.append_history(record(1, worst_violation=None, objective=math.nan))
        run.append_history(record(2))
        first, second = run.history()
    assert first["worst_violation"] is None
    assert math.isnan(first["objective"])
    assert second["bound"] == -math.inf
    assert IterationRecord(**second) == record(2)


def test_a_torn_last_line_is_dropped_and_the_rest_cut_to_the_checkpoint(folder: Path) -> None:
    path = folder / "history.jsonl"
    with Run.create(folder, "train", SETTINGS) as run:
        for iteration in (1, 2, 3):
            run.append_history(record(iteration))
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for length in range(0, len(lines[2]), 7):
        path.write_bytes(lines[0] + lines[1] + lines[2][:length])
        with Run.open(folder) as run:
            assert [entry["iteration"] for entry in run.history()] == [1, 2]
            assert run.truncate_history(2) == 0
            run.append_history(record(3))
        assert path.read_bytes() == whole
    with Run.open(folder) as run:
        assert run.truncate_history(1) == 2
    assert path.read_bytes() == lines[0]


@pytest.mark.parametrize("bad", [b"nonsense\n", b"[]\n", b'{"objective": 1}\n', b"\xff\n", b"\n"])
def test_a_damaged_line_is_named(folder: Path, bad: bytes) -> None:
    with Run.create(folder, "train", SETTINGS) as run:
        run.append_history(record(1))
        path = folder / "history.jsonl"
        path.write_bytes(path.read_bytes() + bad + path.read_bytes())
        with raises(RunFolderError, "bad-file", "history.jsonl", "line 2"):
            run.history()


def test_the_summary_reads_back(folder: Path) -> None:
    with Run.create(folder, "train", SETTINGS) as run:
        run.finish({"objective": np.float64(1.25), "bound": math.inf})
        assert run.summary() == {"objective": 1.25, "bound": math.inf}


# --- checkpoints


def test_checkpoints_follow_each_other_and_leave_no_litter(folder: Path) -> None:
    with Run.create(folder, "train", SETTINGS) as run:
        for iteration in range(1, 6):
            save(run, iteration)
            assert_complete(run.load_checkpoint(), iteration)
    slots = sorted(path.name for path in (folder / "checkpoint").iterdir())
    assert slots == ["00000004", "00000005", "latest.json", "members"]
    stacks = list((folder / "checkpoint" / "members").iterdir())
    assert len(stacks) == 4  # 0, 4, 5 and 6


def test_a_stack_is_written_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    replace = os.replace

    def counting(source: Path, target: Path) -> None:
        written.append(Path(target).name)
        replace(source, target)

    monkeypatch.setattr("os.replace", counting)
    members = [stack(number) for number in range(20)]
    with Run.create(folder, "train", SETTINGS) as run:
        run.save_checkpoint(1, {}, {}, members)
        written.clear()
        run.save_checkpoint(2, {}, {}, [*members, stack(20)])
    assert sum(name.startswith("stack-") for name in written) == 1
    written.clear()
    with Run.open(folder) as run:
        checkpoint = run.load_checkpoint()
        assert checkpoint is not None
        run.save_checkpoint(3, {}, {}, checkpoint.members)
    assert not any(name.startswith("stack-") for name in written)


class Killed(BaseException):
    """Stands for a kill: nothing in the package may catch it."""


class FailingAt:
    """Makes the k-th call of the patched system functions raise instead of doing its work."""

    def __init__(self, k: int, error: Callable[[], BaseException]) -> None:
        self.left = k
        self.error = error

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **keywords: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                raise self.error()
            return function(*arguments, **keywords)

        return called

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("replace", "fsync", "mkdir", "unlink", "rmdir"):
            patch.setattr(os, name, self.wrap(getattr(os, name)))


@pytest.mark.parametrize("error", [Killed, lambda: OSError(28, "No space left on device")])
def test_a_failure_at_any_step_leaves_the_old_or_the_new_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: Callable[[], BaseException]
) -> None:
    with Run.create(folder, "train", SETTINGS) as run:
        save(run, 1)
        save(run, 2)
    seen = set()
    for k in range(1, 200):
        shutil.rmtree(folder.parent / "copy", ignore_errors=True)
        copy = shutil.copytree(folder, folder.parent / "copy")
        failing = FailingAt(k, error)
        with Run.open(copy) as run:
            assert_complete(run.load_checkpoint(), 2)
            with monkeypatch.context() as patch:
                failing.patch(patch)
                with contextlib.suppress(Killed, RunFolderError):
                    save(run, 3)
        with Run.open(copy) as run:
            loaded = run.load_checkpoint()
            assert loaded is not None
            assert loaded.note == ""
            assert_complete(loaded, loaded.iteration)
            seen.add(loaded.iteration)
            save(run, 4)
            assert_complete(run.load_checkpoint(), 4)
        assert len(list((copy / "checkpoint").iterdir())) == 4  # two slots, pointer, members
        if failing.left > 0:
            break
    assert failing.left > 0
    assert k > 20
    assert seen == {2, 3}


def test_the_first_checkpoint_is_there_whole_or_not_at_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for k in range(1, 200):
        failing = FailingAt(k, Killed)
        with Run.create(folder, "train", SETTINGS, force=True) as run:
            with monkeypatch.context() as patch:
                failing.patch(patch)
                with contextlib.suppress(Killed):
                    save(run, 1)
            checkpoint = run.load_checkpoint()
            found.append(checkpoint is not None)
            if checkpoint is not None:
                assert_complete(checkpoint, 1)
        if failing.left > 0:
            break
    assert found[0] is False
    assert found[-1] is True
    assert found == sorted(found)


KILLED_PROGRAM = """
import os, signal, sys
sys.path[:0] = sys.argv[2:]
from test_runs import FailingAt, Run, save

def die():
    os.kill(os.getpid(), signal.SIGKILL)

class Patch:
    setattr = staticmethod(setattr)

os.fsync = lambda descriptor: None
for k in range(1, 40):
    child = os.fork()
    if child == 0:
        run = Run.open(sys.argv[1])
        iteration = run.load_checkpoint().iteration
        FailingAt(k, die).patch(Patch)
        save(run, iteration + 1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    with Run.open(sys.argv[1]) as run:
        checkpoint = run.load_checkpoint()
        print(k, status, checkpoint.iteration, checkpoint.note)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_real_kills_one_after_the_other_never_lose_the_checkpoint(folder: Path) -> None:
    with Run.create(folder, "train", SETTINGS) as run:
        save(run, 1)
    here = Path(__file__).parent
    places = [str(here), str(here.parents[1])]
    arguments = [sys.executable, "-c", KILLED_PROGRAM, str(folder), *places]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert all(len(line) == 3 for line in lines), "no note: the pointed slot was always whole"
    kills = [line for line in lines if int(line[1]) == signal.SIGKILL]
    iterations = [int(line[2]) for line in lines]
    assert len(kills) > 20
    assert iterations == sorted(iterations)
    assert iterations[-1] > 2
    with Run.open(folder) as run:
        assert_complete(run.load_checkpoint(), iterations[-1])
        save(run, 100)
        save(run, 101)
    names = [path.name for path in folder.rglob("*")]
    assert not [name for name in names if name.endswith(".tmp")]
    assert len(list((folder / "checkpoint").iterdir())) == 4


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x04
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize("damage", [flip, truncate, Path.unlink])
@pytest.mark.parametrize("name", ["checkpoint.json", "arrays.safetensors"])
def test_a_damaged_slot_falls_back_to_the_reserve_and_says_so(
    folder: Path, damage: Callable[[Path], None], name: str
) -> None:
    with Run.create(folder, "train", SETTINGS) as run:
        for iteration in (1, 2, 3):
            save(run, iteration)
    damage(folder / "checkpoint" / "00000003" / name)
    with Run.open(folder) as run:
        checkpoint = run.load_checkpoint()
        assert_complete(checkpoint, 2)
        assert checkpoint is not None
        assert "resuming from iteration 2" in checkpoint.note
        assert str(Path("00000003") / name) in checkpoint.note
        save(run, 3)
    # the damaged slot is gone and the one resumed from is now the reserve
    assert not (folder / "checkpoint" / "00000003").exists()
    flip(folder / "checkpoint" / "00000004" / "checkpoint.json")
    with Run.open(folder) as run:
        assert_complete(run.load_checkpoint(), 2)


def test_a_damaged_pointer_costs_nothing(folder: Path) -> None:
    with Run.create(folder, "train", SETTINGS) as run:
        save(run, 1)
        save(run, 2)
    (folder / "checkpoint" / "latest.json").write_text("{")
    with Run.open(folder) as run:
        checkpoint = run.load_checkpoint()
        assert_complete(checkpoint, 2)
        assert checkpoint is not None
        assert "latest.json" in checkpoint.note
    with Run.open(folder) as run:
        save(run, 3)
        assert_complete(run.load_checkpoint(), 3)


def test_a_damaged_stack_is_named_with_what_can_still_be_read(folder: Path) -> None:
    with Run.create(folder, "train", SETTINGS) as run:
        run.append_history(record(1))
        run.append_history(record(2))
        save(run, 1)
        save(run, 2)
    shared = sorted((folder / "checkpoint" / "members").iterdir())
    for path in shared:
        flip(path)
    with Run.open(folder) as run:
        with pytest.raises(RunFolderError) as caught:
            run.load_checkpoint()
        # a stack of the same content is written afresh, not trusted
        save(run, 3)
        assert_complete(run.load_checkpoint(), 3)
    text = str(caught.value)
    assert any(path.name in text for path in shared)
    assert "run.json, 2 records of history.jsonl, 0 of 4 member stacks" in text


def test_a_stack_swapped_for_another_is_noticed(folder: Path) -> None:
    with Run.create(folder, "train", SETTINGS) as run:
        save(run, 1)
    members = folder / "checkpoint" / "members"
    first, second, *_ = sorted(members.iterdir())
    shutil.copy(first, second)
    with (
        Run.open(folder) as run,
        raises(RunFolderError, "bad-file", "saved"),
    ):
        run.load_checkpoint()
