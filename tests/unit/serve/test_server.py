"""Where a server listens, what it says of that when it starts, and the signals that end it."""

from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cg4ai.errors import InvalidInput
from cg4ai.serve import server
from cg4ai.serve.limits import ServeLimits
from cg4ai.serve.server import ServerOptions, is_local, serve
from raising import raises


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *(("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True)),
        *(("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("example.org", False)),
    ],
)
def test_which_hosts_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert is_local(host) is expected


@pytest.mark.parametrize(
    ("place", "address", "warned"),
    [
        (ServerOptions(port=0), "http://127.0.0.1:", False),
        (ServerOptions("::1", 0), "http://[::1]:", False),
        (ServerOptions("0.0.0.0", 0), "http://0.0.0.0:", True),
        (ServerOptions("0.0.0.0", 0, token="secret"), "http://0.0.0.0:", False),
    ],
)
def test_it_says_where_it_listens_what_is_kept_and_who_can_reach_it(
    finished_runs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    place: ServerOptions,
    address: str,
    warned: bool,
) -> None:
    listening = []

    async def looked_at(_: Any, __: Any, listener: socket.socket, *___: Any) -> None:
        listening.append(listener.getsockname()[1])
        # without it every answer of two packets waits for the other side, 40 ms as a rule
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    monkeypatch.setattr(server, "_run", looked_at)
    serve(finished_runs / "route", place, ServeLimits())
    shown = capsys.readouterr()
    (line,) = shown.out.splitlines()
    assert f"the router of small: the share of 5 paths in their demands on {address}" in line
    assert f":{listening[0]} (model " in line
    assert "Kept: capacity (shielded)." in line
    assert ("warning" in shown.err) is warned
    assert ("CG4AI_TOKEN" in shown.err) is warned
    assert "secret" not in shown.out + shown.err
    with socket.create_server(("127.0.0.1", listening[0])):
        pass  # it was given back


# ---- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGINT, pytest.raises(KeyboardInterrupt)), (signal.SIGTERM, nullcontext())],
)
def test_a_signal_that_comes_with_the_first_line_ends_the_server_as_any_other_does(
    finished_runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    expected: Any,
    ignored: bool,
) -> None:
    """Also where SIGINT is ignored, as it is in the background jobs of a shell's script."""
    monkeypatch.setattr(server, "_say", lambda *_: signal.raise_signal(number))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if ignored else None
    found = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    try:
        with expected:
            serve(finished_runs / "route", ServerOptions(port=0), ServeLimits())
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == found
    finally:
        if ignored:
            signal.signal(signal.SIGINT, before)


def test_a_signal_while_the_run_is_loaded_ends_it_at_once(
    finished_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "Service", lambda *_: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit) as ended:
        serve(finished_runs / "route", ServerOptions(port=0), ServeLimits())
    assert ended.value.code == 0


def test_a_new_run_that_is_announced_early_is_loaded_once_the_server_runs(
    finished_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def noted(_: Any) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(server, "try_reload", noted)
    monkeypatch.setattr(server, "_say", lambda *_: signal.raise_signal(signal.SIGHUP))
    serve(finished_runs / "route", ServerOptions(port=0), ServeLimits())


def test_a_second_ctrl_c_does_not_wait_for_requests() -> None:
    stopped = SimpleNamespace(should_exit=False, force_exit=False)
    with server.SignalHandlers() as signals:
        signals.server = stopped
        signal.raise_signal(signal.SIGTERM)
        assert (stopped.should_exit, stopped.force_exit) == (True, False)
        signal.raise_signal(signal.SIGINT)
        assert stopped.force_exit
    assert signals.ended_by == signal.SIGTERM


def test_more_connections_than_files_are_refused(
    finished_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 1000))
    asked = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: asked.append(both))
    with raises(InvalidInput, "invalid-input", "--max-connections"):
        serve(finished_runs / "route", ServerOptions(port=0), ServeLimits(connections=1000))
    monkeypatch.setattr(server, "_run", lambda *_: asyncio.sleep(0))
    serve(finished_runs / "route", ServerOptions(port=0), ServeLimits(connections=100))
    assert asked == [(200 + server.OTHER_FILES, 1000)]
