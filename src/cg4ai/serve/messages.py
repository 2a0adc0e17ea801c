"""The body of a request as a table and what is asked of it, or a refusal that says what is wrong.

Nothing here knows a model: which columns there must be is said when predictions are made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cg4ai.apps.csv_tables import CsvTable, as_number
from cg4ai.apps.json_tables import ROWS, json_table, kind_of, parse_json, refuse_unknown_keys
from cg4ai.apps.predictions import OF_RUN, OfRun, PredictionOptions
from cg4ai.errors import InvalidInput, SolverFailure, out_of_memory
from cg4ai.extras import import_optional
from cg4ai.pages.page import POLICY
from cg4ai.report.tables import json_text
from cg4ai.serve.gate import TOKEN, Message, Receive, Send
from cg4ai.serve.limits import Refusal, ServeLimits, refuse_many_rows

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response


NAME = "the request"
SWITCHES = ("details", "explain", "refuse_outside")
FALLBACK, CHURN, FAILED = "fallback", "churn", "failed"
KEYS = (ROWS, *SWITCHES, FALLBACK, CHURN, FAILED)
MOST_FAILED = 100  # links of one failure


@dataclass(frozen=True)
class Question:
    """Rows, and what is wanted for each; `failed`: links that are down, in order."""

    table: CsvTable
    asked: PredictionOptions
    failed: tuple[str, ...] = ()


def question_of(body: bytes, limits: ServeLimits, *, explain: bool) -> Question:
    """What a body asks for; `explain` where that is asked for in any case."""
    content = parse_json(body, NAME)
    if not isinstance(content, dict):
        raise InvalidInput(
            f'{NAME} is {kind_of(content)}; expected an object such as {{"rows": [{{"column": '
            "1.5, ...}, ...]}",
            code="type",
        )
    refuse_unknown_keys(content, KEYS, NAME)
    rows = content.get(ROWS)
    if isinstance(rows, list) and len(rows) > limits.rows:
        raise refuse_many_rows(len(rows), limits)
    switches = {name: _switch(content.get(name, False), name) for name in SWITCHES}
    if explain:
        switches["explain"] = True
    asked = PredictionOptions(**switches, fallback=_gap(content), churn=_churn(content))
    return Question(json_table(rows, Path(NAME)), asked, _links(content.get(FAILED)))


def _links(value: Any) -> tuple[str, ...]:
    """Names of links, each once; none where the key is missing."""
    if value is None:
        return ()
    named = isinstance(value, list) and len(value) <= MOST_FAILED
    if not named or not all(isinstance(one, str) and one.strip() for one in value):
        raise InvalidInput(
            f'{NAME}, key {FAILED!r} must be a list of up to {MOST_FAILED} links, such as ["A-B"], '
            f"got {_shown(value)}",
            code="type",
        )
    return tuple(sorted({one.strip() for one in value}))


def _switch(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(
            f"{NAME}, key {name!r} must be true or false, got {_shown(value)}", code="type"
        )
    return value


def _gap(content: Mapping[str, Any]) -> OfRun:
    return _number(content, FALLBACK, "a gap of at least 0, such as 0.02", most=math.inf)


def _churn(content: Mapping[str, Any]) -> OfRun:
    return _number(content, CHURN, "a share from 0 to 1 of each demand, such as 0.05", most=1.0)


def _number(content: Mapping[str, Any], key: str, expected: str, *, most: float) -> OfRun:
    """A number, which came as the text that it was written as; that of the run if not given."""
    if key not in content:
        return OF_RUN
    value = content[key]
    if value is None:
        return None
    number = as_number(value) if isinstance(value, str) else None
    if number is None or not 0 <= number <= most:
        raise InvalidInput(
            f"{NAME}, key {key!r} must be {expected}, or null, got {_shown(value)}", code="range"
        )
    return number


def _shown(value: Any) -> str:
    return f"{value:.40}" if isinstance(value, str) else kind_of(value)


LONGEST = 1000  # letters of an error: it may quote what was sent
JSON = "application/json"
UNEXPECTED = "unexpected failure of the server; its log says more"
NO_MEMORY = "there is not enough memory for so many rows; send fewer at once"


def make_body(content: bytes | str, media_type: str) -> Response:
    """Content as it is."""
    made: Response = import_optional("fastapi").Response(content, media_type=media_type)
    return made


def make_json(value: Any, code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON."""
    kind = import_optional("fastapi").Response
    made: Response = kind(json_text(value), code, dict(headers or {}), JSON)
    return made


def make_html(text: str) -> Response:
    """A page, which the browser is told to fetch nothing for."""
    headers = {"Content-Security-Policy": POLICY, "Vary": "Accept"}
    made: Response = import_optional("fastapi").Response(text, 200, headers, "text/html")
    return made


def make_error(words: str, code: int, headers: Mapping[str, str] | None = None) -> Response:
    """One line of words."""
    line = " ".join(words.split())
    short = line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."
    return make_json({"error": short}, code, headers)


async def make_token_refusal(scope: Message, receive: Receive, send: Send) -> None:
    """The answer to whoever has no token, as an ASGI application."""
    words = f"this server asks for the token in {TOKEN}: send Authorization: Bearer TOKEN"
    await make_error(words, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)


def handle_errors(app: FastAPI) -> None:
    """Have every error answered in words; what is not expected is in the log, too."""
    kinds = (Refusal, InvalidInput, SolverFailure, MemoryError, RuntimeError)
    for kind in kinds:
        app.add_exception_handler(kind, _expected)
    app.add_exception_handler(import_optional("fastapi.exceptions").StarletteHTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


async def _expected(request: Request, fault: Exception) -> Response:
    if isinstance(fault, Refusal):
        return make_error(str(fault), fault.status, fault.headers)
    if isinstance(fault, InvalidInput):
        return make_error(str(fault), 422)
    if isinstance(fault, SolverFailure):
        return make_error(f"{fault}; ask for no fallback (null), or send other rows", 503)
    if out_of_memory(fault):
        return make_error(NO_MEMORY, 503)
    raise fault


async def _http(request: Request, fault: Any) -> Response:
    path = request.scope["path"]  # of request.url, a wrong Host would be an error of its own
    words = f"{request.method} {path}: {fault.detail}; GET /docs lists what there is"
    return make_error(words, fault.status_code, fault.headers)


async def _unexpected(request: Request, fault: Exception) -> Response:
    return make_error(UNEXPECTED, 500)
