"""What a server takes at most, and how it says that something is too much."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from cg4ai.errors import Cg4aiError
from cg4ai.settings import CheckedSettings, setting

MIB = 2**20
BUSY = 503


@dataclass(frozen=True)
class ServeLimits(CheckedSettings):
    """Of one request its body, rows and seconds; how many requests and connections at once.

    drift_window: over how many of the last rows metrics say how many lie outside the region.
    """

    body_mib: float = setting(32.0, least=0.001, most=1024)
    rows: int = setting(10_000, least=1)
    seconds: float = setting(30.0, least=0.001, most=3600)
    waiting: int = setting(64, least=1, most=10_000)
    connections: int = setting(256, least=1, most=10_000)
    drift_window: int = setting(1000, least=1, most=100_000)

    @property
    def body_bytes(self) -> int:
        return int(self.body_mib * MIB)


class Refusal(Cg4aiError):
    """A request that is answered with an error: HTTP's code, words, and further headers."""

    def __init__(self, status: int, words: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(words)
        self.status = status
        self.headers = dict(headers or {})


class RequestSlots:
    """The requests that are being answered, of which there are never more than allowed.

    As a context a place for what is done within; from any thread.
    """

    def __init__(self, limits: ServeLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self.taken = 0

    def acquire(self) -> None:
        """A place for one more, or a refusal."""
        with self._lock:
            if self.taken >= self._limits.waiting:
                raise refuse_when_busy(self._limits)
            self.taken += 1

    def release(self) -> None:
        with self._lock:
            self.taken -= 1

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()


def refuse_large_body(limits: ServeLimits) -> Refusal:
    """What is left of the body is not read, so that the connection is of no more use."""
    return Refusal(
        413,
        f"the request is larger than {limits.body_mib:g} MiB, which is what this server takes; "
        "send its rows in several requests",
        {"Connection": "close"},
    )


def refuse_many_rows(rows: int, limits: ServeLimits) -> Refusal:
    return Refusal(
        413,
        f"the request has {rows} rows, this server takes {limits.rows} at once; send them in "
        "several requests",
    )


def refuse_slow_body(limits: ServeLimits) -> Refusal:
    return Refusal(
        408,
        f"the request did not arrive within {limits.seconds:g} s; send fewer rows at once",
        {"Connection": "close"},
    )


def refuse_long_answer(limits: ServeLimits) -> Refusal:
    return Refusal(
        504,
        f"no answer within {limits.seconds:g} s, which is what this server allows; send fewer "
        "rows at once",
    )


def refuse_when_busy(limits: ServeLimits) -> Refusal:
    return Refusal(
        BUSY,
        f"{limits.waiting} requests are being answered already; try again soon",
        {"Retry-After": "1"},
    )


def refuse_connection(limits: ServeLimits) -> Refusal:
    return Refusal(
        BUSY,
        f"{limits.connections} connections are open already, which is what this server holds; "
        "try again soon",
        {"Retry-After": "1"},
    )
