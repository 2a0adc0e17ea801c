"""Where a server listens, and what it says of that when it starts."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from cg4ai.serving import server
from cg4ai.serving.limits import Limits
from cg4ai.serving.server import Place, local, serve


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *(("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True)),
        *(("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("example.org", False)),
    ],
)
def test_which_hosts_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert local(host) is expected


@pytest.mark.parametrize(
    ("place", "address", "warned"),
    [
        (Place(port=0), "http://127.0.0.1:", False),
        (Place("::1", 0), "http://[::1]:", False),
        (Place("0.0.0.0", 0), "http://0.0.0.0:", True),
        (Place("0.0.0.0", 0, token="secret"), "http://0.0.0.0:", False),
    ],
)
def test_it_says_where_it_listens_what_is_kept_and_who_can_reach_it(
    finished_runs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    place: Place,
    address: str,
    warned: bool,
) -> None:
    listening = []

    async def looked_at(_: Any, __: Any, listener: socket.socket, *___: Any) -> None:
        listening.append(listener.getsockname()[1])
        # without it every answer of two packets waits for the other side, 40 ms as a rule
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    monkeypatch.setattr(server, "_run", looked_at)
    serve(finished_runs / "route", place, Limits())
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
