"""Answers as HTTP has them: JSON, pages, and every error as one line of words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cg4ai.apps.tables import json_text
from cg4ai.errors import InvalidInput, SolverFailure, out_of_memory
from cg4ai.extras import optional
from cg4ai.pages.page import POLICY
from cg4ai.serving.gate import TOKEN, Message, Receive, Send
from cg4ai.serving.limits import Refusal

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response

LONGEST = 1000  # letters of an error: it may quote what was sent
JSON = "application/json"
UNEXPECTED = "unexpected failure of the server; its log says more"
NO_MEMORY = "there is not enough memory for so many rows; send fewer at once"


def body(content: bytes | str, media_type: str) -> Response:
    """Content as it is."""
    made: Response = optional("fastapi").Response(content, media_type=media_type)
    return made


def json(value: Any, code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON."""
    kind = optional("fastapi").Response
    made: Response = kind(json_text(value), code, dict(headers or {}), JSON)
    return made


def html(text: str) -> Response:
    """A page, which the browser is told to fetch nothing for."""
    headers = {"Content-Security-Policy": POLICY, "Vary": "Accept"}
    made: Response = optional("fastapi").Response(text, 200, headers, "text/html")
    return made


def error(words: str, code: int, headers: Mapping[str, str] | None = None) -> Response:
    """One line of words."""
    line = " ".join(words.split())
    short = line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."
    return json({"error": short}, code, headers)


async def without_token(scope: Message, receive: Receive, send: Send) -> None:
    """The answer to whoever has no token, as an ASGI application."""
    words = f"this server asks for the token in {TOKEN}: send Authorization: Bearer TOKEN"
    await error(words, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)


def handle_errors(app: FastAPI) -> None:
    """Have every error answered in words; what is not expected is in the log, too."""
    kinds = (Refusal, InvalidInput, SolverFailure, MemoryError, RuntimeError)
    for kind in kinds:
        app.add_exception_handler(kind, _expected)
    app.add_exception_handler(optional("fastapi.exceptions").StarletteHTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


async def _expected(request: Request, fault: Exception) -> Response:
    if isinstance(fault, Refusal):
        return error(str(fault), fault.code, fault.headers)
    if isinstance(fault, InvalidInput):
        return error(str(fault), 422)
    if isinstance(fault, SolverFailure):
        return error(f"{fault}; leave out the fallback, or send other rows", 503)
    if out_of_memory(fault):
        return error(NO_MEMORY, 503)
    raise fault


async def _http(request: Request, fault: Any) -> Response:
    path = request.scope["path"]  # of request.url, a wrong Host would be an error of its own
    words = f"{request.method} {path}: {fault.detail}; GET /docs lists what there is"
    return error(words, fault.status_code, fault.headers)


async def _unexpected(request: Request, fault: Exception) -> Response:
    return error(UNEXPECTED, 500)
