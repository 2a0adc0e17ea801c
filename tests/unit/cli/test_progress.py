"""Progress fits where it is shown: a table on terminals, lines in files, JSON for programs."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from typing import Any

import numpy as np
import pytest

from cg4ai.cli.progress import LiveProgress, PlainProgress, make_progress
from cg4ai.errors import InvalidInput
from cg4ai.records import IterationRecord, StopReason
from cg4ai.report.tables import csv_text, format_markdown, format_plain
from raising import raises


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def record(iteration: int, **changes: Any) -> IterationRecord:
    fields: dict[str, Any] = dict.fromkeys(IterationRecord.__dataclass_fields__, 0)
    fields |= {"iteration": iteration, "objective": 1 / 3, "note": "", "total_s": 1.25}
    return IterationRecord(**(fields | changes))


def test_lines_are_aligned_one_per_iteration() -> None:
    stream = io.StringIO()
    with make_progress("auto", stream) as shown:
        assert isinstance(shown, PlainProgress)
        shown.message("anchor found")
        shown.update(record(1, worst_violation=None, columns=3, added_columns=3))
        shown.update(record(120, best_reduced_cost=-1.5e-7, rows=100000, added_rows=99999))
        shown.update(record(121, objective=math.nan, worst_violation=-math.inf))
    message, header, *lines = stream.getvalue().splitlines()
    assert message == "anchor found"
    assert len(lines) == 3
    for name in ("iteration", "columns", "seconds"):
        end = header.index(name) + len(name)
        assert all(line[end - 1] not in " " for line in lines)
        assert all(line[end : end + 2].strip() == "" for line in lines)
    assert lines[0].split() == ["1", "0.33333", "0", "-", "3", "(+3)", "0", "0", "1.2", "-"]
    assert "100000 (+99999)" in lines[1]
    assert "-1.5e-07" in lines[1]
    assert "nan" in lines[2]


def test_a_note_ends_its_line() -> None:
    stream = io.StringIO()
    with make_progress("auto", stream) as shown:
        shown.update(record(1, note="penalty raised"))
    assert stream.getvalue().splitlines()[1].endswith("  penalty raised")


def test_json_lines_are_strict_json() -> None:
    stream = io.StringIO()
    with make_progress("json", stream) as shown:
        shown.update(record(1, bound=-math.inf, worst_violation=None))
        shown.message('say "hello"\n')
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["event"] == "iteration"
    assert first["iteration"] == 1
    assert first["bound"] == "-Infinity"
    assert first["worst_violation"] is None
    assert set(first) == {"event", *IterationRecord.__dataclass_fields__}
    assert second == {"event": "message", "text": 'say "hello"\n'}


def test_streams_by_mode(capsys: pytest.CaptureFixture[str]) -> None:
    for mode in ("auto", "json", "quiet"):
        with make_progress(mode) as shown:
            shown.message(f"from {mode}")
            shown.update(record(1))
    out, err = capsys.readouterr()
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["message", "iteration"]
    assert err.startswith("from auto\n")
    assert len(err.splitlines()) == 3


def test_a_terminal_gets_the_last_rows_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "140")
    stream = Terminal()
    with make_progress("auto", stream) as shown:
        assert isinstance(shown, LiveProgress)
        for iteration in range(1000, 1020):
            shown.update(record(iteration, note="[bold]not markup"))
        before = len(stream.getvalue())
        shown.message("[red] stays as it is")
        shown.update(record(1020))
    last = stream.getvalue()[before:]
    assert "[red] stays as it is" in last
    table = last.split("worst violation")[-1]
    assert [number for number in range(1000, 1021) if str(number) in table] == list(
        range(1009, 1021)
    )
    assert "[bold]not markup" in stream.getvalue()
    shown.close()


def test_no_number_is_cut_short_on_a_terminal_of_80_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    with make_progress("auto", stream) as shown:
        shown.expect("training", iterations=12, seconds=math.inf)
        shown.update(
            record(3, columns=1147, added_columns=128, rows=2019, added_rows=330, slack=7.88e-15)
        )
    assert "…" not in stream.getvalue()
    for part in ("objective", "1147", "(+128)", "2019", "(+330)", "7.88e-15", " left", "2 s"):
        assert part in stream.getvalue()


def test_the_cursor_comes_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()

    def stopped() -> None:
        with make_progress("auto", stream) as shown:
            shown.update(record(1))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert stream.getvalue().rstrip().endswith("\x1b[?25h")


def test_the_time_left_of_a_group_is_that_of_the_limit_where_it_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`--time-limit 60` was told "about 458 s left of this group"."""
    now = 100.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    stream = io.StringIO()
    shown = make_progress("auto", stream)
    shown.expect("training", iterations=4, seconds=60.0)
    shown.step(0, 2500)
    now = 110.0
    shown.step(50, 2500)
    now = 155.0
    shown.step(2000, 2500)
    now = 165.0
    shown.step(2499, 2500)
    assert stream.getvalue().splitlines()[1:] == [
        "training: step 50 of 2500, at most 50 s left until the time limit",
        "training: step 2000 of 2500, at most 5 s left until the time limit",
        "training: step 2499 of 2500, at most 0 s left until the time limit",
    ]


def test_dumb_terminals_get_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_progress("auto", Terminal()), PlainProgress)


def test_an_unknown_mode_is_refused() -> None:
    with raises(InvalidInput, "unknown-name", "quiet"):
        make_progress("quite")


ROWS = [
    {"method": "a|b", "loss": 0.123456789, "rows": 10, "feasible": True},
    {"method": "longer\nname", "loss": np.float32(12.5), "stop": StopReason.OPTIMAL},
]


def test_markdown() -> None:
    assert format_markdown(ROWS) == (
        "| method | loss | rows | feasible | stop |\n"
        "| --- | ---: | ---: | --- | --- |\n"
        "| a\\|b | 0.12346 | 10 | yes |  |\n"
        "| longer name | 12.5 |  |  | optimal |\n"
    )


def test_plain() -> None:
    assert format_plain(ROWS, digits=3) == (
        "method        loss  rows  feasible  stop\n"
        "a|b          0.123    10  yes\n"
        "longer name   12.5                  optimal\n"
    )


def test_csv_reads_back_exactly() -> None:
    back = list(csv.DictReader(io.StringIO(csv_text(ROWS))))
    assert [row["method"] for row in back] == ["a|b", "longer\nname"]
    assert float(back[0]["loss"]) == 0.123456789
    assert back[1]["stop"] == "optimal"
    assert back[1]["rows"] == ""


def test_no_rows_make_no_table() -> None:
    assert format_markdown([]) == format_plain([]) == csv_text([]) == ""
