"""The progress of a run: a live table, plain lines, JSON lines or nothing.

`progress(mode)` picks one. People get the table or the lines on standard error, so that standard
output stays free for the result; programs get JSON lines on standard output.
"""

from __future__ import annotations

import math
import os
import sys
from collections import deque
from typing import TYPE_CHECKING, Self, TextIO

from cg4ai import clock
from cg4ai.apps.runner import Screen
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.records import STAND_IN, IterationRecord
from cg4ai.report.tables import cell
from cg4ai.runs.files import json_line, to_jsonable

if TYPE_CHECKING:
    from rich.table import Table

MODES = ("auto", "quiet", "json")
SHOWN_ROWS = 12
WIDTHS = {
    "iteration": 9,
    "objective": 11,
    "slack": 9,
    "worst violation": 15,
    "columns": 12,
    "rows": 15,
    "reduced cost": 12,
    "seconds": 9,
    "time left": 12,
}
LEAST_WIDTHS = (9, 9, 8, 9, 7, 6, 9, 7, 7)  # in a table, where words may wrap
EVERY_S = 5.0  # between two remarks on how far a group is
FOREVER = 1e7  # seconds: a longer rest is not shown


class ProgressScreen(Screen):
    """Shows nothing itself; the kinds below override `update`, `message` and `close`."""

    iterations: float = math.inf  # of the whole run, at most
    seconds: float = math.inf
    _ends = math.inf
    _group_began = _said = 0.0

    def expect(self, words: str, *, iterations: int, seconds: float) -> None:
        self.iterations, self.seconds = iterations, seconds
        self._ends = clock.now() + seconds
        self.message(words)

    def step(self, done: int, steps: int) -> None:
        """Print now and then how far the training of one group is, and the seconds left."""
        now = clock.now()
        if done == 0:
            self._group_began = self._said = now
        elif now - self._said >= EVERY_S:
            self._said = now
            left_s = (now - self._group_began) * (steps - done) / done
            left = f"about {left_s:.0f} s left of this group"
            if now + left_s > self._ends:
                left = f"at most {max(0.0, self._ends - now):.0f} s left until the time limit"
            self.show_briefly(f"training: step {done} of {steps}, {left}")

    def show_briefly(self, text: str) -> None:
        """Show what is true for a moment."""
        self.message(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class PlainProgress(ProgressScreen):
    """One aligned line per iteration, for files and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._started = False

    def update(self, record: IterationRecord) -> None:
        if not self._started:
            self._line(list(WIDTHS), "")
            self._started = True
        self._line([*format_cells(record), format_time_left(record, self)], record.note)

    def message(self, text: str) -> None:
        # at once: a stage that takes long says so from a thread of its own
        self._stream.write(text + "\n")
        self._stream.flush()

    def _line(self, texts: list[str], note: str) -> None:
        aligned = [text.rjust(width) for text, width in zip(texts, WIDTHS.values(), strict=True)]
        print("  ".join([*aligned, note]).rstrip(), file=self._stream, flush=True)


class JsonProgress(ProgressScreen):
    """One JSON object per line: `event` is "iteration", with the record's fields, or "message"."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def update(self, record: IterationRecord) -> None:
        self._write({"event": "iteration", **to_jsonable(record)})

    def message(self, text: str) -> None:
        self._write({"event": "message", "text": text})

    def _write(self, event: dict[str, object]) -> None:
        self._stream.write(json_line(event).decode())
        self._stream.flush()


class LiveProgress(ProgressScreen):
    """A table of the last iterations, redrawn in place on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._records: deque[IterationRecord] = deque(maxlen=SHOWN_ROWS)
        self._console = Console(file=stream, force_terminal=True)
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def update(self, record: IterationRecord) -> None:
        self._records.append(record)
        self._live.start()  # does nothing if it has begun
        self._live.update(self._table(), refresh=True)

    def message(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._live.stop()

    def show_briefly(self, text: str) -> None:
        from rich.text import Text

        self._live.update(self._table(text) if self._records else Text(text), refresh=True)

    def _table(self, now: str = "") -> Table:
        from rich.table import Table
        from rich.text import Text

        # 80 columns hold it without cutting a number short: headers and "(+3)" may wrap
        table = Table(box=None, pad_edge=False, collapse_padding=True)
        narrow = self._console.width < sum(WIDTHS.values()) + len(WIDTHS)
        widths = LEAST_WIDTHS if narrow else WIDTHS.values()
        for name, width in zip(WIDTHS, widths, strict=True):
            table.add_column(name, justify="right", width=width, overflow="fold")
        for record in self._records:
            table.add_row(*format_cells(record), format_time_left(record, self))
        note = now or self._records[-1].note
        table.caption = Text(note) if note else None
        return table


def make_progress(mode: str = "auto", stream: TextIO | None = None) -> ProgressScreen:
    """The kind for `mode`: "auto" (a live table on terminals, else lines), "quiet" or "json"."""
    if mode == "quiet":
        return ProgressScreen()
    if mode == "json":
        return JsonProgress(stream if stream is not None else sys.stdout)
    if mode != "auto":
        raise InvalidInput(
            f"unknown progress mode {mode!r}{did_you_mean(mode, MODES)}: use one of "
            f"{', '.join(MODES)}",
            code="unknown-name",
        )
    target = stream if stream is not None else sys.stderr
    if target.isatty() and os.environ.get("TERM") != "dumb":
        return LiveProgress(target)
    return PlainProgress(target)


def format_cells(record: IterationRecord) -> list[str]:
    """One text per column of the table."""
    return [
        str(record.iteration),
        _or_dash(record.objective, digits=5),
        cell(record.slack, digits=3),
        _or_dash(record.worst_violation),
        _with_added(record.columns, record.added_columns),
        _with_added(record.rows, record.added_rows),
        _or_dash(record.best_reduced_cost),
        f"{record.total_s:.1f}",
    ]


def format_time_left(record: IterationRecord, shown: ProgressScreen) -> str:
    """Seconds that the rest of training takes at most, at the pace of its iterations so far.

    A dash where nothing limits the iterations.
    """
    done = record.iteration + 1
    rest = (shown.iterations - done) * record.total_s / done
    rest = min(rest, shown.seconds - record.total_s)
    return f"{max(0.0, rest):.0f} s" if math.isfinite(rest) and rest < FOREVER else "-"


def _or_dash(value: float | None, *, digits: int = 3) -> str:
    """A dash for unknown values, and for the placeholders used before the first member."""
    known = value is not None and not abs(value) >= STAND_IN  # NaN is shown
    return cell(value, digits=digits) if known else "-"


def _with_added(count: int, added: int) -> str:
    return f"{count} (+{added})" if added else str(count)
