"""The rules file itself: JSON without surprises, each object of its list one rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from cg4ai.apps.protocol import Rule
from cg4ai.apps.tabular.rulefile.build import rules_of
from cg4ai.apps.tabular.rulefile.entry import Entry, Subject, kind_of
from cg4ai.errors import InvalidInput


def read_rules(path: str | Path, subject: Subject) -> list[Rule]:
    """All rules of a file, in order; one that has two bounds gives two."""
    path = Path(path)
    content = _parsed(path)
    if not isinstance(content, list):
        raise InvalidInput(
            f"{path} must hold a list of rules, [{{...}}, ...], got {kind_of(content)}"
        )
    rules: list[Rule] = []
    for number, entry in enumerate(content, start=1):
        rules += rules_of(Entry(path, number, entry, subject))
    return rules


def rule_files(path: str | Path) -> list[Path]:
    """The rules file and the row files it names: all that decides what the rules mean."""
    path = Path(path)
    content = _parsed(path)
    entries = content if isinstance(content, list) else []
    places = [entry.get("rows") for entry in entries if isinstance(entry, dict)]
    names = sorted({rows for rows in places if isinstance(rows, str) and rows != "all"})
    return [path, *(path.parent / name for name in names)]


def _parsed(path: Path) -> Any:
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"cannot read the rules file {path}: {reason}") from error
    try:
        return json.loads(text, object_pairs_hook=_no_doubles, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"{path}, line {error.lineno}, column {error.colno} is not valid JSON: {error.msg}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not valid JSON: {error}") from error


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    double = [name for name in names if names.count(name) > 1]
    if double:
        raise ValueError(f"the key {double[0]!r} stands twice in one object")
    return dict(pairs)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")
