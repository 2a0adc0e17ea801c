"""What every request passes first: the token, and the counters on its way back."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from cg4ai import clock
from cg4ai.errors import InvalidInput
from cg4ai.serve.metrics import Metrics

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Message, Receive, Send], Awaitable[None]]

TOKEN = "CG4AI_TOKEN"
OPEN = "/health"  # whoever watches over the server has no token
OTHER = "other"
DEADLINE = "deadline"  # of a request, in the state that its scope carries
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
)


def read_token(given: str | None) -> str | None:
    """The token from the environment; None where there is none, refused where it cannot be sent."""
    if given is None:
        return None
    if not given or not given.isascii() or not given.isprintable() or " " in given:
        raise InvalidInput(
            f"the token in {TOKEN} must be printable ASCII without spaces, and not empty; correct "
            "it, or unset it to serve without a token",
            code="bad-name",
        )
    return given


class TokenGate:
    """An ASGI application around another: refuses requests without the token, and counts all."""

    def __init__(
        self,
        app: Asgi,
        *,
        token: str | None,
        metrics: Metrics,
        endpoints: Collection[str],
        refused: Asgi,
    ) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._metrics = metrics
        self._endpoints = frozenset(endpoints)
        self._refused = refused

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, code = clock.now(), 500

        async def send_counted(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        try:
            allowed = scope["path"] == OPEN or self._knows(scope["headers"])
            await (self._app if allowed else self._refused)(scope, receive, send_counted)
        finally:
            endpoint = scope["path"] if scope["path"] in self._endpoints else OTHER
            self._metrics.count_answer(endpoint, code, clock.now() - started)

    def _knows(self, headers: Collection[tuple[bytes, bytes]]) -> bool:
        """Whether the request has the token, if one is asked for."""
        if self._token is None:
            return True
        given = [value for name, value in headers if name == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(b" ")
        # takes as long for a token that is nearly right
        return hmac.compare_digest(token.strip(), self._token) and scheme.lower() == b"bearer"
