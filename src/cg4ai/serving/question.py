"""The body of a request as a table and what is asked of it, or a refusal that says what is wrong.

Nothing here knows a model: which columns there must be is said when predictions are made.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cg4ai.apps.csvdata import CsvTable, as_number
from cg4ai.apps.jsondata import ROWS, json_table, kind_of, only_known, parsed
from cg4ai.apps.predicting import Asked
from cg4ai.errors import InvalidInput
from cg4ai.serving.limits import Limits, too_many_rows

NAME = "the request"
SWITCHES = ("details", "explain", "refuse_outside")
FALLBACK = "fallback"
KEYS = (ROWS, *SWITCHES, FALLBACK)


@dataclass(frozen=True)
class Question:
    """Rows, and what is wanted for each."""

    table: CsvTable
    asked: Asked


def question_of(body: bytes, limits: Limits, *, explain: bool) -> Question:
    """What a body asks for; `explain` where that is asked for in any case."""
    content = parsed(body, NAME)
    if not isinstance(content, dict):
        raise InvalidInput(
            f'{NAME} is {kind_of(content)}; expected an object such as {{"rows": [{{"column": '
            "1.5, ...}, ...]}"
        )
    only_known(content, KEYS, NAME)
    rows = content.get(ROWS)
    if isinstance(rows, list) and len(rows) > limits.rows:
        raise too_many_rows(len(rows), limits)
    switches = {name: _switch(content.get(name, False), name) for name in SWITCHES}
    if explain:
        switches["explain"] = True
    asked = Asked(**switches, fallback=_gap(content.get(FALLBACK)))
    return Question(json_table(rows, Path(NAME)), asked)


def _switch(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{NAME}, key {name!r} must be true or false, got {_shown(value)}")
    return value


def _gap(value: Any) -> float | None:
    """A number, which came as the text that it was written as."""
    if value is None:
        return None
    number = as_number(value) if isinstance(value, str) else None
    if number is None or number < 0:
        raise InvalidInput(
            f"{NAME}, key {FALLBACK!r} must be a gap of at least 0, such as 0.02, or null, got "
            f"{_shown(value)}"
        )
    return number


def _shown(value: Any) -> str:
    return f"{value:.40}" if isinstance(value, str) else kind_of(value)
