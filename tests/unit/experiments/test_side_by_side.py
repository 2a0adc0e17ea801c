"""Runs side by side: time that is over interrupts, and lean folders are lean."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from cg4ai.errors import InvalidInput
from experiments.side_by_side import keep_only, moment_after, stopped_at
from raising import raises


def test_what_is_at_work_is_interrupted_when_the_time_is_over() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)
    with pytest.raises(KeyboardInterrupt), stopped_at(time.time() + 0.1):
        time.sleep(30)
    with stopped_at(None):
        pass
    with stopped_at(time.time() + 30):
        pass
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)) == before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_limits_are_checked() -> None:
    assert moment_after(None) is None
    later = moment_after(100)
    assert later is not None
    assert 0 < later - time.time() <= 100
    with raises(InvalidInput, "invalid-input", "seconds"):
        moment_after(-1)


def test_lean_folders_keep_what_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    for name in ("checkpoint/a", "summary.json", "members.safetensors", "run.lock"):
        (tmp_path / name).touch()
    keep_only(tmp_path, ("summary.json",))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.lock", "summary.json"]
    keep_only(tmp_path / "nowhere", ())
