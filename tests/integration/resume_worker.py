"""Runs commands in forked children and ends them early: imports are paid for once.

Reads one JSON request per line, answers with one JSON line. A request names `arguments` and at
most one way to end the child: `signal` after `delay` seconds, `signal` once the file `history` has
a line, or `kill_at`, the number of the file operation (fsync or rename) just before or after which
the child kills itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
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


def child(request: dict[str, Any]) -> NoReturn:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    if "kill_at" in request:
        kill_at_file_operation(request["kill_at"])
    try:
        os._exit(main(request["arguments"]))
    finally:
        os._exit(1)  # an error must not go on to serve the parent's requests


def serve(request: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    process = os.fork()
    if process == 0:
        child(request)
    if "signal" in request:
        time.sleep(request.get("delay", 0.0))
        history = Path(request.get("history", os.devnull))
        while "history" in request and not (history.exists() and history.read_bytes()):
            time.sleep(0.002)
        os.kill(process, getattr(signal, request["signal"]))
    _, status = os.waitpid(process, 0)
    return {
        "killed": os.WIFSIGNALED(status),
        "code": os.waitstatus_to_exitcode(status),
        "seconds": time.perf_counter() - started,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    # a shell's background jobs ignore Ctrl-C and hand that on
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert cg4ai.apps.tabular.app.APPLICATION is not None
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), flush=True)
