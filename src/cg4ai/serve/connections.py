"""The connections of a server: how many there are, and how long each may take over a request.

uvicorn waits for the rest of a request, and for whoever reads no answers, as long as it takes. Here
a request has to arrive within the time of the limits, counted from its first byte (of a new
connection: from its beginning), an answer has to be taken within the same, and connections beyond
the limits are told so and closed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cg4ai.clock import Deadline
from cg4ai.extras import import_optional
from cg4ai.serve.gate import DEADLINE, OTHER
from cg4ai.serve.limits import Refusal, ServeLimits, refuse_connection, refuse_slow_body
from cg4ai.serve.metrics import Metrics

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol
else:
    H11Protocol = object  # `bounded_connections` puts it below, where it is installed

GRACE_S = 5.0  # for the words of a refusal to be read, before the connection is cut
LINGER_S = 1.0  # the same for connections beyond the limit, which are to be gone soon


class Connection(H11Protocol):
    """What makes of uvicorn's connection one that is freed in time, whatever its client does."""

    def __init__(
        self,
        *given: Any,
        limits: ServeLimits,
        metrics: Metrics,
        turned_away: set[RefusingProtocol],
        **named: Any,
    ) -> None:
        super().__init__(*given, **named)
        self.app_state = dict(self.app_state)  # each request finds its own deadline there
        self._limits = limits
        self._metrics = metrics
        self._turned_away = turned_away
        self._states = import_optional("h11")
        self._arrival: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    # ---- its beginning and its end ---------------------------------------------------------------

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        if len(self.connections) < self._limits.connections:
            super().connection_made(transport)
            self._expect_request()
            return
        self._metrics.count_answer(OTHER, HTTPStatus.SERVICE_UNAVAILABLE, 0.0)
        if len(self._turned_away) < self._limits.connections:
            transport.set_protocol(RefusingProtocol(transport, self._turned_away, self._limits))
        else:  # not even words, or refusals would hold what connections may not
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_arrival()
        self._cancel_reading()
        super().connection_lost(exc)

    # ---- requests --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._arrival is None:
            self._expect_request()
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        self._expect_request()  # the next one may be there already
        super().on_response_complete()
        self._follow()

    def _expect_request(self) -> None:
        """The time of a request begins."""
        self._cancel_arrival()
        self.app_state[DEADLINE] = Deadline.after(self._limits.seconds)
        self._arrival = self.loop.call_later(self._limits.seconds, self._is_late)

    def _follow(self) -> None:
        """Stop the time of a request that is there, or of which there is nothing yet."""
        if self.transport.is_closing():
            self._cut_after(GRACE_S)
        elif self.conn.their_state is self._states.SEND_BODY:
            pass
        elif self.conn.their_state is not self._states.IDLE or not self.conn.trailing_data[0]:
            self._cancel_arrival()

    def _is_late(self) -> None:
        """Say so of a head that has not come; of a body it is said by whoever waits for it."""
        if self.conn.their_state is self._states.IDLE and not self.transport.is_closing():
            self._metrics.count_answer(OTHER, HTTPStatus.REQUEST_TIMEOUT, self._limits.seconds)
            self.transport.write(format_refusal(refuse_slow_body(self._limits)))
            self.transport.close()
        self._cut_after(GRACE_S)

    def _cut_after(self, seconds: float) -> None:
        self._cancel_arrival()
        self._arrival = self.loop.call_later(seconds, self.transport.abort)

    def _cancel_arrival(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    # ---- answers that nobody takes ---------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._cancel_reading()
        self._reading = self.loop.call_later(self._limits.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_reading()

    def _cancel_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._cut_after(GRACE_S)


class RefusingProtocol(asyncio.Protocol):
    """A connection too many: it is told so, and what it sends is thrown away until it is cut.

    Closed at once, with bytes that nobody has read, it would be reset before its client has the
    answer.
    """

    def __init__(
        self, transport: asyncio.Transport, others: set[RefusingProtocol], limits: ServeLimits
    ) -> None:
        self._others = others
        others.add(self)
        transport.write(format_refusal(refuse_connection(limits)))
        self._end = asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end.cancel()
        self._others.discard(self)


def bounded_connections(limits: ServeLimits, metrics: Metrics) -> Callable[..., Connection]:
    """What makes the connections of one server, in place of uvicorn's own class."""
    own = import_optional("uvicorn.protocols.http.h11_impl").H11Protocol
    kind = type("Connection", (Connection, own), {})
    return partial(kind, limits=limits, metrics=metrics, turned_away=set())


def format_refusal(refusal: Refusal) -> bytes:
    """A refusal as HTTP has it, where no request has reached the application."""
    body = json.dumps({"error": str(refusal)}).encode()
    headers = {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **refusal.headers,
        "Connection": "close",
    }
    lines = [f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
