"""`cg4ai serve` as a process of its own: under load, through reloads, to its end."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest

from cg4ai.cli.main import main
from cg4ai.ensemble.saved import load
from cg4ai.routing import instance
from cg4ai.runs.folder import Run

DOCUMENT = Path(__file__).parents[2] / "docs" / "serving.md"
ROW = {"a->d": 2.0, "b->d": 1.0}
TOKEN = "token-of-the-test"


@dataclass
class Server:
    """A process that serves a copy of a run."""

    process: subprocess.Popen[str]
    folder: Path
    address: str
    line: str

    def end(self, number: int) -> tuple[int, str]:
        """Exit code and what it said on standard error, after this signal."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=120)
        return self.process.returncode, said


def started(folder: Path, *options: str, **variables: str) -> subprocess.Popen[str]:
    """As a script starts it in the background, where shells have SIGINT ignored."""
    command = [sys.executable, "-m", "cg4ai", "serve", str(folder), "--port", "0", *options]
    return subprocess.Popen(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )


@pytest.fixture(scope="module")
def servers(
    finished_runs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Server]]:
    """One for anybody and one that asks for a token; both start at once, for that takes seconds."""
    made = {}
    for name, options in (("open", {}), ("token", {"CG4AI_TOKEN": TOKEN})):
        folder = tmp_path_factory.mktemp("serve") / name
        shutil.copytree(finished_runs / "route", folder)
        host = ["--host", "0.0.0.0"] if name == "token" else []
        made[name] = folder, started(folder, *host, **options)
    found = {}
    for name, (folder, process) in made.items():
        assert process.stdout is not None
        line = process.stdout.readline()
        where = re.search(r"http://\S+", line)
        assert where is not None, process.communicate()[1]
        found[name] = Server(process, folder, where[0].replace("0.0.0.0", "127.0.0.1"), line)
    yield found
    for server in found.values():
        if server.process.poll() is None:
            server.process.kill()
            server.process.communicate()


def change(folder: Path) -> None:
    """The same router, that says something more of itself."""
    router = load(folder)
    router.about["remark"] = router.about.get("remark", 0) + 1
    router.save(folder)
    with Run.open(folder) as run:  # whose summary speaks of what it is now
        run.finish(run.summary(compared=False) or {})


class Callers:
    """Threads that ask without a pause, and note every answer."""

    def __init__(self, address: str, count: int) -> None:
        self.address = address
        self.models: list[str] = []
        self.faults: list[object] = []
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        with httpx.Client(base_url=self.address) as client:
            while not self._done.is_set():
                try:
                    found = client.post("/predict", json={"rows": [ROW]})
                except httpx.HTTPError as error:
                    self.faults.append(error)
                    return
                if found.status_code != 200:
                    self.faults.append(found.text)
                else:
                    self.models.append(found.json()["model"])

    def stop(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()


def test_what_the_documentation_sends_is_answered(servers: dict[str, Server]) -> None:
    address = servers["open"].address
    page = DOCUMENT.read_text(encoding="utf-8").replace("http://127.0.0.1:8000", address)
    script, *_ = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(script, str(DOCUMENT), "exec"), {})
    loads = [line.split() for line in printed.getvalue().splitlines()]
    assert [mark for _, mark in loads] == ["False", "False"]
    assert all(0 < float(load) < 1 for load, _ in loads)
    (block,) = re.findall(r"^## Calling it\n\n```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    *general, written_out = re.split(r"^(?=curl )", block, flags=re.MULTILINE)[1:]
    # columns of the router that the page speaks of; they were of another one
    network = instance("abilene", demands=5, paths=3)
    (row,) = json.loads(written_out.split("'")[1])["rows"]
    assert list(row) == network.demand_names
    assert (np.array(list(row.values())) <= network.demand_max).all()
    assert len(general) == 2
    if shutil.which("curl") is None:
        return
    for command in general:
        said = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
        assert json.loads(said.stdout)["rows"], command


def test_reloads_under_load_lose_no_request_and_sigterm_ends_it(
    servers: dict[str, Server],
) -> None:
    server = servers["open"]
    assert "the router of small" in server.line
    assert "Kept: capacity (shielded)" in server.line
    assert server.address.startswith("http://127.0.0.1:")
    callers = Callers(server.address, 3)
    models = [httpx.get(f"{server.address}/health").json()["model"]]
    for number in range(4):
        change(server.folder)
        if number % 2:
            server.process.send_signal(signal.SIGHUP)
        else:
            assert httpx.post(f"{server.address}/reload").json()["changed"] is True
        models.append(_other_than(models[-1], server.address))
    callers.stop()
    assert callers.faults == []
    assert len(set(models)) == 5
    assert set(callers.models) <= set(models)
    assert len(set(callers.models)) > 1
    # a body that is too large, in parts of which nobody says how many there are
    with httpx.Client(base_url=server.address) as client:
        found = client.post("/predict", content=(b" " * 2**20 for _ in range(40)))
        assert found.status_code == 413
        assert client.post("/predict", json={"rows": [ROW]}).status_code == 200
    for path, expected in (("/", b" 200 "), ("/absent", b" 404 "), ("/health/", b" 404 ")):
        odd = f"GET {path} HTTP/1.1\r\nHost: [\r\n\r\n".encode()
        assert expected in _asked_by_socket(server.address, odd)
    assert b" 400 " in _asked_by_socket(server.address, b"\x00\x01\x02\r\n\r\n")
    _hang_up(server.address, b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
    counted = httpx.get(f"{server.address}/metrics").text
    assert 'code="400",endpoint="/predict"' in counted
    assert 'code="500"' not in counted
    code, said = server.end(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in said


def _other_than(model: str, address: str) -> str:
    for _ in range(3000):
        now = str(httpx.get(f"{address}/health").json()["model"])
        if now != model:
            return now
        time.sleep(0.02)
    pytest.fail("the new run was not loaded within a minute")


def _connected(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def _asked_by_socket(address: str, data: bytes) -> bytes:
    """The first bytes of the answer to bytes that no client would send."""
    with _connected(address) as connection:
        connection.sendall(data)
        return connection.recv(1000)


def _hang_up(address: str, data: bytes) -> None:
    """Begin a request, and be gone; returns when the server has noticed."""
    with _connected(address) as connection:
        connection.sendall(data)
    for _ in range(3000):
        if 'code="400"' in httpx.get(f"{address}/metrics").text:
            return
        time.sleep(0.02)


def test_the_token_is_asked_for_and_ctrl_c_ends_it_without_a_traceback(
    servers: dict[str, Server],
) -> None:
    server = servers["token"]
    body = {"rows": [ROW]}
    assert httpx.post(f"{server.address}/predict", json=body).status_code == 401
    header = {"Authorization": f"Bearer {TOKEN}"}
    assert httpx.post(f"{server.address}/predict", json=body, headers=header).status_code == 200
    assert httpx.get(f"{server.address}/health").status_code == 200
    code, said = server.end(signal.SIGINT)
    assert (code, said) == (130, "")


@pytest.mark.parametrize(
    ("options", "token", "words"),
    [
        (["--port", "{taken}"], None, "cannot listen on 127.0.0.1, port {taken}: Address already"),
        (["--host", "no.such.host.invalid", "--port", "0"], None, "cannot listen on no.such.host"),
        (["--port", "0", "--max-rows", "0"], None, "rows must be at least 1"),
        (["--port", "0"], "", "CG4AI_TOKEN"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(
    finished_runs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    token: str | None,
    words: str,
) -> None:
    if token is not None:
        monkeypatch.setenv("CG4AI_TOKEN", token)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        given = [one.format(taken=port) for one in options]
        assert main(["serve", str(finished_runs / "route"), *given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words.format(taken=port) in line


def test_a_folder_without_a_run_is_not_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path), "--port", "0"]) == 2
    assert "holds no ensemble" in capsys.readouterr().err
