"""Clients that send slowly, or read nothing, hold no connection longer than is allowed."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cg4ai.serve import connections
from cg4ai.serve.limits import ServeLimits
from cg4ai.serve.server import _uvicorn
from cg4ai.serve.service import Service
from cg4ai.serve.web import make_app

BODY = json.dumps({"rows": [{"a->d": 2.0, "b->d": 1.0}]}).encode()
ASKED = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
HALF = ASKED[:25]
PATIENCE_S = 30  # of a test that would fail


def post(path: str, length: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()


@dataclass
class Running:
    """A server in a thread of this process."""

    service: Service
    server: Any
    port: int

    def connected(self, data: bytes = b"") -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        made.sendall(data)
        return made

    def asked(self, data: bytes) -> tuple[int, Any]:
        with self.connected(data) as connection:
            return answer(connection)

    def until(self, reached: Callable[[], bool]) -> None:
        for _ in range(PATIENCE_S * 100):
            if reached():
                return
            time.sleep(0.01)
        pytest.fail("it was not reached")

    @property
    def held(self) -> int:
        return len(self.server.server_state.connections)


def answer(connection: socket.socket) -> tuple[int, Any]:
    """Code and JSON of one answer."""
    with connection.makefile("rb") as stream:
        code = int(stream.readline().split()[1])
        length = 0
        while line := stream.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split()[1])
        return code, json.loads(stream.read(length))


def fed(connection: socket.socket, byte: bytes) -> tuple[int, Any] | None:
    """Send one byte again and again, each long before the time is over; then the answer, if any."""
    for _ in range(PATIENCE_S * 100):
        ready, _, _ = select.select([connection], [], [], 0.01)
        try:
            if ready:
                return answer(connection) if connection.recv(1, socket.MSG_PEEK) else None
            connection.sendall(byte)
        except ConnectionError:
            return None
    pytest.fail("it was never ended")


@pytest.fixture
def running(finished_runs: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    service = Service(finished_runs / "route", ServeLimits(**request.param))
    server = _uvicorn(make_app(service), service)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            yield Running(service, server, listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()


@pytest.mark.parametrize("running", [{"seconds": 0.5, "connections": 5}], indirect=True)
def test_half_sent_heads_are_given_up_and_others_are_told_that_it_is_full(
    running: Running,
) -> None:
    half = [running.connected(HALF) for _ in range(4)] + [running.connected()]
    running.until(lambda: running.held == 5)
    code, said = running.asked(ASKED)
    assert code == 503
    assert "5 connections are open already" in said["error"]
    for connection in half:
        code, said = answer(connection)
        assert (code, connection.recv(1)) == (408, b"")
        assert "did not arrive within 0.5 s" in said["error"]
        connection.close()
    running.until(lambda: running.held == 0)
    assert running.asked(ASKED)[0] == 200
    counted = running.service.metrics.format_text().decode()
    assert 'cg4ai_requests_total{code="408",endpoint="other"} 5.0' in counted
    assert 'cg4ai_requests_total{code="503",endpoint="other"} 1.0' in counted


@pytest.mark.parametrize("running", [{"connections": 2}], indirect=True)
def test_refusals_themselves_hold_no_more_than_as_many(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LINGER_S", PATIENCE_S)
    held = [running.connected() for _ in range(2)]
    running.until(lambda: running.held == 2)
    told = [running.connected(ASKED) for _ in range(2)]
    assert [answer(one)[0] for one in told] == [503, 503]
    with running.connected() as cut, suppress(ConnectionError):
        assert cut.recv(1) == b""  # no words
    for connection in (*held, *told):
        connection.close()
    running.until(lambda: running.held == 0)
    assert running.asked(ASKED)[0] == 200


@pytest.mark.parametrize("running", [{"seconds": 0.5}], indirect=True)
@pytest.mark.parametrize(
    ("begun", "byte"), [(b"GET /health HTTP/1.1\r\nX: ", b"x"), (post("/predict", 10**6), b" ")]
)
def test_a_byte_now_and_then_gains_no_time(running: Running, begun: bytes, byte: bytes) -> None:
    with running.connected(begun) as connection:
        found = fed(connection, byte)
    assert found is not None
    assert found[0] == 408
    running.until(lambda: running.held == 0)


@pytest.mark.parametrize("running", [{"seconds": 0.5}], indirect=True)
@pytest.mark.parametrize(
    ("begun", "code"), [(post("/absent", 10**6), 404), (post("/predict", 10**9), 413)]
)
def test_bodies_that_are_not_read_hold_no_connection(
    running: Running, monkeypatch: pytest.MonkeyPatch, begun: bytes, code: int
) -> None:
    monkeypatch.setattr(connections, "GRACE_S", 0.2)
    with running.connected(begun) as connection:
        assert answer(connection)[0] == code
        assert fed(connection, b" ") is None
    running.until(lambda: running.held == 0)


@pytest.mark.parametrize("running", [{"seconds": 0.5}], indirect=True)
def test_answers_that_nobody_reads_hold_no_connection(running: Running) -> None:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", running.port))
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
        running.until(lambda: running.held == 1)
        running.until(lambda: running.held == 0)


@pytest.mark.parametrize("running", [{"seconds": 0.3}], indirect=True)
def test_a_connection_that_waits_is_kept_and_each_request_has_its_own_time(
    running: Running,
) -> None:
    with running.connected() as connection:
        for _ in range(2):
            connection.sendall(post("/predict", len(BODY)) + BODY)
            assert answer(connection)[0] == 200
            time.sleep(0.5)
        # two at once, and half a third one
        connection.sendall((post("/predict", len(BODY)) + BODY) * 2 + HALF)
        with connection.makefile("rb") as stream:
            assert stream.read().count(b"HTTP/1.1 200 ") == 2
