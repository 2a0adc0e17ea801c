"""Rows of results as text: tables for summaries, reports and benchmark output; CSV and JSON.

Rows are dicts; the columns are all their keys in the order first seen, and a missing value is an
empty cell. Columns that hold only numbers are aligned to the right.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from cg4ai.pages import escape

TableRows = Sequence[Mapping[str, Any]]
LONG = 60  # characters: such a column is not made narrow, so that its rows stay low


def format_markdown(rows: TableRows, *, digits: int = 5) -> str:
    """A Markdown table; floats with `digits` significant digits."""
    if not rows:
        return ""
    names = _columns(rows)
    marks = ["---:" if _numeric(rows, name) else "---" for name in names]
    body = [[cell(row.get(name), digits=digits) for name in names] for row in rows]
    cells = [[_piped(text) for text in line] for line in [names, *body]]
    lines = [cells[0], marks, *cells[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def format_plain(rows: TableRows, *, digits: int = 5) -> str:
    """Columns aligned by spaces under their names."""
    if not rows:
        return ""
    names = _columns(rows)
    body = [[cell(row.get(name), digits=digits) for name in names] for row in rows]
    lines = [[" ".join(text.split()) for text in line] for line in [names, *body]]
    widths = [max(len(line[index]) for line in lines) for index in range(len(names))]
    right = [_numeric(rows, name) for name in names]
    aligned = [
        "  ".join(
            text.rjust(width) if numeric else text.ljust(width)
            for text, width, numeric in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    ]
    return "\n".join(aligned) + "\n"


def format_html(rows: TableRows, *, digits: int = 5) -> str:
    """An HTML table; whatever cells say, it is text."""
    if not rows:
        return ""
    names = _columns(rows)
    kind = {name: _class(rows, name) for name in names}
    head = "".join(f"<th{kind[name]}>{format_unbroken(name)}</th>" for name in names)
    lines = [f"<tr>{head}</tr>"]
    for row in rows:
        cells = [
            (kind[name], format_unbroken(cell(row.get(name), digits=digits))) for name in names
        ]
        lines.append(f"<tr>{''.join(f'<td{mark}>{text}</td>' for mark, text in cells)}</tr>")
    body = "\n".join(lines[1:])
    return f"<table>\n<thead>{lines[0]}</thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def format_unbroken(text: object) -> str:
    """Escaped, with arrows that no line ends in: a->d is one name."""
    return escape(text).replace("-&gt;", '<span class="arrow">-&gt;</span>')


def _class(rows: TableRows, name: str) -> str:
    """How a page lays out the cells of a column."""
    if _numeric(rows, name):
        return ' class="number"'
    return ' class="long"' if any(len(cell(row.get(name))) > LONG for row in rows) else ""


def csv_text(rows: TableRows) -> str:
    """Comma-separated values with a header; floats in full, so that they read back exactly."""
    if not rows:
        return ""
    names = _columns(rows)
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_exact(row.get(name)) for name in names] for row in rows)
    return target.getvalue()


def json_text(value: Any) -> str:
    """One line of strict JSON; NaN and infinity, which it has not, are null."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:  # rare, and looking at every number first would take as long again
        return json.dumps(finite(value), allow_nan=False, separators=(",", ":"))


def finite(value: Any) -> Any:
    """The same with None for NaN and infinity at any depth: JSON has neither."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def cell(value: object, *, digits: int = 5) -> str:
    """One value as people read it."""
    if value is None:
        return ""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return f"{float(value):.{digits}g}"
    return str(value)


def _columns(rows: TableRows) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _numeric(rows: TableRows, name: str) -> bool:
    values = [row[name] for row in rows if row.get(name) is not None]
    return bool(values) and all(
        isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        for value in values
    )


def _exact(value: object) -> object:
    if isinstance(value, float | np.floating):
        return repr(float(value))
    return cell(value)


def _piped(text: str) -> str:
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").split())
