"""What runs of an experiment side by side need: moments to stop at, errors of one, lean folders."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from cg4ai.errors import Cg4aiError, InvalidInput
from cg4ai.runs.folder import LOCK

# what may go wrong in one run and is nothing to the others; mistakes in a program end them all
OF_ONE_RUN = (Cg4aiError, MemoryError, OSError, RuntimeError)
AGAIN_S = 5.0  # what ends cleanly may take so long, before it is interrupted once more


def cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def moment_after(seconds: float | None) -> float | None:
    """The moment of `time.time`, the same for all processes, so many seconds from now."""
    if seconds is None:
        return None
    if not seconds > 0:
        raise InvalidInput(f"--stop-after must be a positive number of seconds, got {seconds}")
    return time.time() + seconds


def why(error: Exception) -> str:
    """Why one run has no result; an error that is not the package's shows where it came from."""
    if isinstance(error, Cg4aiError):
        return f"no result: {error}"
    traceback.print_exception(error)
    return f"no result: {type(error).__name__}: {error}"


def keep_only(folder: Path, names: Collection[str]) -> None:
    """Remove members, checkpoints and whatever else a run that has ended left in its folder."""
    for path in folder.iterdir() if folder.exists() else ():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in (*names, LOCK):
            path.unlink()


@contextmanager
def stopped_at(moment: float | None) -> Iterator[None]:
    """At that moment what runs here is interrupted as by Ctrl-C, which runs end cleanly on.

    Outside the main thread, where Python delivers no signals, nothing happens.
    """
    if moment is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGALRM, interrupt)
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, max(1e-3, moment - time.time()), AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.signal(signal.SIGINT, heard)
