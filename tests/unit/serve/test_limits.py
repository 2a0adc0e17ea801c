"""Too much is refused before it costs much: bodies, rows, time, and requests at once."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from cg4ai.apps import predictions as predicting
from cg4ai.cli.main import main
from cg4ai.errors import InvalidSettings, SolverFailure
from cg4ai.routing.network.description import Router
from cg4ai.serve.limits import MIB, Refusal, RequestSlots, ServeLimits
from cg4ai.serve.service import Service
from cg4ai.serve.web import make_app
from in_process import InProcess
from raising import raises

ROW = {"a->d": 2.0, "b->d": 1.0}
BODY = json.dumps({"rows": [ROW]}).encode()


def client(finished_runs: Path, **limits: Any) -> InProcess:
    return InProcess(make_app(Service(finished_runs / "route", ServeLimits(**limits))))


async def in_parts(content: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    """A body of which nobody says how long it is."""
    for first in range(0, len(content), size):
        yield content[first : first + size]


@dataclass
class Counted:
    """A body of a hundred parts, that counts how many are read."""

    size: int
    read: int = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(100):
            self.read += 1
            yield b" " * self.size


@dataclass
class Stuck:
    """Has predictions wait, in place of a step that takes long; `begun` counts them."""

    free: threading.Event = field(default_factory=threading.Event)
    begun: int = 0

    def __call__(self, table: Any, outside: Any, missed: Any = (), note: str = "") -> str:
        self.begun += 1
        assert self.free.wait(60)
        return ""


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stuck]:
    made = Stuck()
    monkeypatch.setattr(predicting, "outside_warning", made)
    yield made
    made.free.set()


def error_of(found: httpx.Response) -> str:
    return str(found.json()["error"])


# ---- size --------------------------------------------------------------------------------------


def test_bodies_are_refused_by_their_length_before_they_are_read(finished_runs: Path) -> None:
    body = Counted(MIB)
    with client(finished_runs, body_mib=1) as server:
        headers = {"content-length": str(100 * MIB)}
        found = server.post("/predict", content=body, headers=headers)
    assert found.status_code == 413
    assert "larger than 1 MiB" in error_of(found)
    assert found.headers["connection"] == "close"
    # httpx hands the first part over with the request
    assert body.read <= 1


def test_bodies_without_a_length_are_read_no_further_than_allowed(finished_runs: Path) -> None:
    body = Counted(MIB // 4)
    with client(finished_runs, body_mib=1) as server:
        found = server.post("/predict", content=body)
        assert found.status_code == 413
        assert body.read == 5
        # the place is free again
        assert server.post("/predict", content=in_parts(BODY, 10)).status_code == 200


def test_a_body_of_exactly_the_limit_is_taken(finished_runs: Path) -> None:
    with client(finished_runs, body_mib=1) as server:
        padded = BODY + b" " * (MIB - len(BODY))
        assert server.post("/predict", content=padded).status_code == 200
        assert server.post("/predict", content=in_parts(padded)).status_code == 200
        assert server.post("/predict", content=padded + b" ").status_code == 413


def test_rows_are_counted(finished_runs: Path) -> None:
    with client(finished_runs, rows=3) as server:
        assert server.post("/predict", json={"rows": [ROW] * 3}).status_code == 200
        found = server.post("/explain", json={"rows": [ROW] * 4})
    assert found.status_code == 413
    assert "has 4 rows, this server takes 3 at once" in error_of(found)


def test_compressed_bodies_are_not_opened(finished_runs: Path) -> None:
    with client(finished_runs) as server:
        found = server.post("/predict", content=BODY, headers={"content-encoding": "gzip"})
    assert found.status_code == 415
    assert "compressed" in error_of(found)


# ---- time --------------------------------------------------------------------------------------


def test_a_body_that_does_not_come_is_given_up(finished_runs: Path) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield BODY[:5]
        await asyncio.Event().wait()

    with client(finished_runs, seconds=0.2, waiting=1) as server:
        found = server.post("/predict", content=body())
        assert found.status_code == 408
        assert "did not arrive within 0.2 s" in error_of(found)
        assert server.get("/health").json()["ready"]


def test_health_answers_while_predictions_are_computed(finished_runs: Path, stuck: Stuck) -> None:
    with client(finished_runs, waiting=2) as server:

        async def both() -> httpx.Response:
            asked = asyncio.create_task(server.client.post("/predict", content=BODY))
            while not stuck.begun:
                await asyncio.sleep(0.01)
            assert (await server.client.get("/health")).status_code == 200
            assert not asked.done()
            stuck.free.set()
            return await asked

        assert server.run(both()).status_code == 200


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What `time.perf_counter` says, moved by hand: how long work takes is not what is tested."""
    now = [1000.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_a_computation_that_takes_too_long_is_given_up(
    finished_runs: Path, stuck: Stuck, clock: list[float]
) -> None:
    with client(finished_runs, seconds=0.3) as server:
        found = server.post("/predict", content=BODY)
        assert found.status_code == 504
        assert "no answer within 0.3 s" in error_of(found)
        stuck.free.set()
    with client(finished_runs) as server:
        assert server.post("/predict", content=BODY).status_code == 200


def test_work_gives_up_at_the_next_step_once_its_time_is_over(
    finished_runs: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    """A thousand linear programs must not go on when nobody waits for them any more."""
    service = Service(finished_runs / "route", ServeLimits(seconds=0.3))
    parts = 0
    answered = Router.improve_answers

    def slowly(*given: Any, **named: Any) -> Any:
        nonlocal parts
        parts += 1
        clock[0] += 0.1
        return answered(*given, **named)

    monkeypatch.setattr(Router, "improve_answers", slowly)
    with InProcess(make_app(service)) as server:
        asked = {"rows": [ROW] * 5000, "fallback": 0.5}
        assert server.post("/predict", json=asked).status_code == 504
        server.run(until(lambda: service.places.taken == 0))
    assert 1 < parts < 10


async def until(reached: Any) -> None:
    for _ in range(6000):
        if reached():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it was not reached within a minute")


# ---- many at once ------------------------------------------------------------------------------


def test_more_requests_than_allowed_are_sent_away_at_once(
    finished_runs: Path, stuck: Stuck
) -> None:
    with client(finished_runs, waiting=3) as server:

        async def crowd() -> list[httpx.Response]:
            early = [
                asyncio.create_task(server.client.post("/predict", content=BODY)) for _ in range(3)
            ]
            while not stuck.begun:
                await asyncio.sleep(0.01)
            late = [await server.client.post("/predict", content=BODY) for _ in range(5)]
            late.append(await server.client.post("/reload"))
            stuck.free.set()
            return [*late, *(await asyncio.gather(*early))]

        found = server.run(crowd())
    assert [one.status_code for one in found] == [503] * 6 + [200] * 3
    assert found[0].headers["retry-after"] == "1"
    assert "3 requests are being answered already" in error_of(found[0])


def test_what_was_given_up_keeps_its_place_until_the_worker_is_past_it(
    finished_runs: Path, stuck: Stuck, clock: list[float]
) -> None:
    """Else bodies would pile up behind a step that takes long."""
    service = Service(finished_runs / "route", ServeLimits(seconds=0.1, waiting=2))
    with InProcess(make_app(service)) as server:

        async def two() -> list[int]:
            asked = [server.client.post("/predict", content=BODY) for _ in range(2)]
            return [one.status_code for one in await asyncio.gather(*asked)]

        assert server.run(two()) == [504, 504]
        assert service.places.taken == 2
        assert server.post("/predict", content=BODY).status_code == 503
        server.run(until(lambda: stuck.begun == 1))
        clock[0] += 1
        stuck.free.set()
        server.run(until(lambda: service.places.taken == 0))
        assert stuck.begun == 1  # the other one was not begun when its time was over


def test_places_are_counted() -> None:
    places = RequestSlots(ServeLimits(waiting=1))
    with places, pytest.raises(Refusal) as caught:
        places.acquire()
    assert caught.value.status == 503
    assert places.taken == 0


# ---- what goes wrong inside --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (MemoryError(), 503, "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 503, "not enough memory"),
        (
            SolverFailure("the solver ended with 'x'"),
            503,
            "the solver ended with 'x'; ask for no fallback",
        ),
        (RuntimeError("/srv/secret is broken"), 500, "unexpected failure of the server"),
        (KeyError("/srv/secret"), 500, "unexpected failure of the server"),
    ],
)
def test_failures_are_said_without_details_of_the_machine(
    finished_runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    code: int,
    words: str,
) -> None:
    def fails(*_: Any) -> str:
        raise error

    with client(finished_runs) as server:
        with monkeypatch.context() as patched:
            patched.setattr(predicting, "outside_warning", fails)
            found = server.post("/predict", content=BODY)
        assert found.status_code == code
        assert words in error_of(found)
        assert "secret" not in found.text
        assert server.post("/predict", content=BODY).status_code == 200
        counted = server.get("/metrics").text
        assert f'cg4ai_requests_total{{code="{code}",endpoint="/predict"}} 1.0' in counted


@pytest.mark.parametrize(
    "wrong", [{"rows": 0}, {"seconds": 0.0}, {"body_mib": -1.0}, {"waiting": 0}]
)
def test_limits_that_allow_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with raises(InvalidSettings, "invalid-settings", *wrong):
        ServeLimits(**wrong)


def test_limits_are_refused_by_the_names_of_their_options(
    finished_runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["serve", str(finished_runs / "route")]
    assert main([*command, "--max-body", "0", "--time-limit", "nan", "--max-rows", "0"]) == 2
    assert capsys.readouterr().err == (
        "error: --max-body must lie in [0.001, 1024], got 0.0; --max-rows must be at least 1, "
        "got 0; --time-limit must be a number, got nan\n"
    )
