"""Requests to a server in the same process: no socket, and a loop that goes on between them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

import httpx


class InProcess:
    """An HTTP client of an ASGI application; `run` awaits what is to happen in the same loop."""

    def __init__(self, app: Any, **headers: str) -> None:
        # what goes wrong in the application comes back as its answer, as from a real server
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(
            transport=transport, base_url="http://testserver", headers=headers
        )
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._runner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.run(self.client.aclose())
        self._runner.__exit__(kind, error, trace)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def get(self, path: str, **how: Any) -> httpx.Response:
        found: httpx.Response = self.run(self.client.get(path, **how))
        return found

    def post(self, path: str, **how: Any) -> httpx.Response:
        found: httpx.Response = self.run(self.client.post(path, **how))
        return found
