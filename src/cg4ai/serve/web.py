"""The endpoints of a server, and the application that they make up."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cg4ai.extras import import_optional
from cg4ai.serve import messages as replies
from cg4ai.serve import openapi
from cg4ai.serve.gate import DEADLINE, OPEN, TokenGate
from cg4ai.serve.limits import Refusal
from cg4ai.serve.pages import card_page, endpoints_page
from cg4ai.serve.service import Service

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response

HOST = re.compile(r"[\w.-]+(:\d+)?|\[[0-9a-fA-F:]+\](:\d+)?", re.ASCII)
MOST_DIGITS = 18  # of a body's length

Endpoint = Callable[["Request"], Awaitable["Response"]]


def make_app(service: Service, *, token: str | None = None, address: str = "") -> FastAPI:
    """The application that serves a run; `address` is where, for those who do not name it."""
    fastapi = import_optional("fastapi")

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        service.close()

    # no pages of FastAPI's own: they load scripts from elsewhere
    app: FastAPI = fastapi.FastAPI(
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # to where the client says that the server is
        lifespan=lifespan,
    )
    endpoints = Endpoints(service, app, address=address, token=token is not None)
    paths = endpoints.add()
    replies.handle_errors(app)
    app.add_middleware(
        TokenGate,
        token=token,
        metrics=service.metrics,
        endpoints=paths,
        refused=replies.make_token_refusal,
    )
    return app


@dataclass(frozen=True)
class Endpoints:
    """What is answered at each path."""

    service: Service
    app: FastAPI
    address: str
    token: bool

    def add(self) -> list[str]:
        """Put all of them into the application; returns their paths."""
        self._route("/predict", self.predict, **openapi.describe_predictions())
        self._route("/explain", self.explain, **openapi.describe_predictions())
        self._route("/reload", self.reload, **openapi.describe_reload())
        for path, endpoint, kind in (
            ("/", self.card, "text/html"),
            ("/example", self.example, replies.JSON),
            ("/health", self.health, replies.JSON),
            ("/metrics", self.metrics, "text/plain"),
            ("/openapi.json", self.openapi, replies.JSON),
            ("/docs", self.docs, "text/html"),
        ):
            self._route(path, endpoint, **openapi.describe_lookup(kind, token=path != OPEN))
            # not described: whatever can be looked at answers it, without a body
            self._route(path, endpoint, methods=["HEAD"], include_in_schema=False)
        return [str(getattr(route, "path", "")) for route in self.app.routes]

    def _route(self, path: str, endpoint: Endpoint, **said: Any) -> None:
        """FastAPI reads the types of a function, which here are those of an optional package."""
        fastapi = import_optional("fastapi")

        async def call_endpoint(request: Any) -> Any:
            return await endpoint(request)

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        request = inspect.Parameter("request", kind, annotation=fastapi.Request)
        call_endpoint.__signature__ = inspect.Signature([request])  # type: ignore[attr-defined]
        words = {"summary": inspect.getdoc(endpoint), "operation_id": path.strip("/") or "card"}
        self.app.add_api_route(
            path, call_endpoint, response_class=fastapi.Response, **(words | said)
        )

    async def card(self, request: Request) -> Response:
        """The model card: a page, or JSON for those who accept that instead."""
        loaded, accept = self.service.current, request.headers.get("accept", "")
        if replies.JSON in accept and "text/html" not in accept:
            notes = [loaded.note] if loaded.note else []
            return replies.make_json(
                {**loaded.card.as_data(), "notes": notes}, 200, {"Vary": "Accept"}
            )
        limits, address = self.service.limits, self._address(request)
        return replies.make_html(
            card_page(loaded.card, limits, address=address, token=self.token, note=loaded.note)
        )

    def _address(self, request: Request) -> str:
        """Where the client has called, as far as that is an address."""
        host = request.headers.get("host", "")
        return f"{request.scope['scheme']}://{host}" if HOST.fullmatch(host) else self.address

    async def predict(self, request: Request) -> Response:
        """Predictions for each row."""
        return await self._answered(request, explain=False)

    async def explain(self, request: Request) -> Response:
        """Predictions for each row, and of each rule how strongly it is kept there."""
        return await self._answered(request, explain=True)

    async def _answered(self, request: Request, *, explain: bool) -> Response:
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise Refusal(415, "the request is compressed; send its body as it is")
        length = request.headers.get("content-length", "")
        declared = int(length) if re.fullmatch(rf"[0-9]{{1,{MOST_DIGITS}}}", length) else 0
        answer = await self.service.answer(
            _body(request),
            declared=declared,
            explain=explain,
            deadline=request.scope.get("state", {}).get(DEADLINE),
        )
        return replies.make_body(answer, replies.JSON)

    async def example(self, request: Request) -> Response:
        """A body for /predict, with one row inside the region."""
        return replies.make_json({"rows": [self.service.current.card.example]})

    async def health(self, request: Request) -> Response:
        """Whether the server lives and is ready, and which run it has loaded."""
        card = self.service.current.card
        return replies.make_json(
            {
                "live": True,
                "ready": True,
                "model": card.model,
                "application": card.application,
                "version": card.version,
                "reload_failed": self.service.trouble or None,
            }
        )

    async def reload(self, request: Request) -> Response:
        """Load the run in the folder anew; requests go on meanwhile, by the old one."""
        changed = await self.service.reload()
        return replies.make_json({"model": self.service.current.card.model, "changed": changed})

    async def metrics(self, request: Request) -> Response:
        """Counters for Prometheus."""
        metrics = self.service.metrics
        return replies.make_body(metrics.format_text(), metrics.content_type)

    async def openapi(self, request: Request) -> Response:
        """This description, for programs."""
        return replies.make_json(self._document())

    async def docs(self, request: Request) -> Response:
        """This description, for people."""
        return replies.make_html(endpoints_page(self._document()))

    def _document(self) -> dict[str, Any]:
        return openapi.make_document(self.app, self.service.current.card, token=self.token)


async def _body(request: Request) -> AsyncIterator[bytes]:
    """The parts of a body as they come."""
    try:
        async for part in request.stream():
            yield part
    except import_optional("starlette.requests").ClientDisconnect:
        raise Refusal(400, "the connection was closed before the whole request had come") from None
