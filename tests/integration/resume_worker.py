"""Runs commands in forked children and ends them early: imports are paid for once.

Reads one JSON request per line, answers with one JSON line. A request names `arguments` and at
most one way in which the child ends itself, none of which depends on how busy the machine is:
killed after so many seconds of its own processor time (`cpu`), by a `signal` once the file `seen`
is not empty, or killed just before or after its file operation (fsync or rename) number `kill_at`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.fx.experimental.symbolic_shapes  # else each child imports it while it trains

import cg4ai.apps.tabular.app
from cg4ai.cli.main import main


def kill_at_file_operation(number: int) -> None:
    """Make this process kill itself around its `number`-th fsync or rename, counted from 0."""
    done = 0

    def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            nonlocal done
            if done == number and number % 2 == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            answer = operation(*arguments)
            if done == number:
                os.kill(os.getpid(), signal.SIGKILL)
            done += 1
            return answer

        return wrapped

    os.fsync, os.replace = counted(os.fsync), counted(os.replace)


def signal_once_seen(path: Path, number: int) -> None:
    """Make this process send itself a signal at the first fsync that finds a file not empty."""
    usual, sent = os.fsync, False

    def watched(descriptor: Any) -> None:
        nonlocal sent
        usual(descriptor)
        if not sent and path.exists() and path.stat().st_size:
            sent = True
            os.kill(os.getpid(), number)

    os.fsync = watched  # type: ignore[assignment]


def child(request: dict[str, Any]) -> NoReturn:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    if "kill_at" in request:
        kill_at_file_operation(request["kill_at"])
    if "seen" in request:
        signal_once_seen(Path(request["seen"]), getattr(signal, request["signal"]))
    if "cpu" in request:
        signal.setitimer(signal.ITIMER_PROF, max(request["cpu"], 1e-6))  # SIGPROF kills
    try:
        os._exit(main(request["arguments"]))
    finally:
        os._exit(1)  # an error must not go on to serve the parent's requests


def serve(request: dict[str, Any]) -> dict[str, Any]:
    process = os.fork()
    if process == 0:
        child(request)
    _, status, used = os.wait4(process, 0)
    return {
        "killed": os.WIFSIGNALED(status),
        "code": os.waitstatus_to_exitcode(status),
        "cpu": used.ru_utime + used.ru_stime,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    # a shell's background jobs ignore Ctrl-C and hand that on
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert cg4ai.apps.tabular.app.APPLICATION is not None
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), flush=True)
