"""Predictions of a finished run for a table: the one way for the command and for the server.

A table of named columns goes in, a row of names and values comes out for each of its rows, with
what was asked for beside the answer; bad input is refused in the same words for both.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cg4ai.apps.changes import (
    CHANGED,
    MOVED,
    YIELDED,
    ChangeCount,
    LastAnswer,
    LimitedOutputs,
)
from cg4ai.apps.csv_tables import CsvTable, format_list
from cg4ai.apps.drift import Excess, summarise_drift
from cg4ai.apps.explanations import explain_predictions
from cg4ai.apps.fallback import FallbackCount
from cg4ai.apps.folders import load_trained
from cg4ai.apps.json_tables import read_answers
from cg4ai.apps.patches import list_added_rules
from cg4ai.apps.protocol import Answers, Rule, TrainedModel
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.saved import RECORD
from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.records import Array, IntArray
from cg4ai.report.tables import json_text
from cg4ai.runs.files import read_bytes

OUTSIDE = "outside the region"
ABOVE = "above the optimum at most"
IMPROVED, SOLVED, OVERLOADED = "improved", "solved", "overloaded"
OF_RUN: Literal["of the run"] = "of the run"  # the fallback that the run was trained with
TIME, AFTER, WINDOW = "time", "after", "rows in the window"  # of runs that read windows of rows
TOGETHER = 64  # rows that are improved or solved before it is asked whether to go on

Row = Mapping[str, Any]
Pause = Callable[[], None]
OfRun = float | Literal["of the run"] | None


@dataclass(frozen=True)
class PredictionOptions:
    """What is wanted of predictions; see the options of `cg4ai predict`.

    `fallback`: that of the run, another gap, or None for the router's answers as they are. `churn`:
    likewise the most that successive answers may differ by, or None for any.
    """

    details: bool = False
    explain: bool = False
    refuse_outside: bool = False
    fallback: OfRun = OF_RUN
    churn: OfRun = OF_RUN


@dataclass(frozen=True)
class Predictions:
    """A row of names and values for each row of a table.

    `outside` (n,): those outside the region in which some rule was established, of which
    `warning` speaks; it is empty where there are none. `moved`: at how many rows a shield moved the
    answer, None where nobody asked. What is unknown in a row is None. `note`: why it is unknown in
    all of them how far from the optimum they are. `paths`: of a router, the nodes of the path that
    a column is the share of; `paths_json`: the same as text, written once for all answers.
    `fallback`: of a router, where its answers come from. `excess`: by how much rows are beyond
    the region, if some are and its limits have names. `changes`: how far answers moved, where that
    was bounded. `last`: the outputs of the last row. `ignored`: columns that nothing reads.
    """

    rows: Sequence[Row]
    outside: NDArray[np.bool_]
    warning: str
    moved: int | None = None
    note: str = ""
    paths: Mapping[str, Sequence[str]] = field(default_factory=dict)
    paths_json: str = ""
    fallback: FallbackCount | None = None
    excess: Excess | None = None
    changes: ChangeCount | None = None
    last: LastAnswer | None = None
    ignored: str = ""

    @property
    def drift(self) -> dict[str, Any]:
        """How many rows lie outside the region, and what they exceed."""
        return summarise_drift(self.outside, self.excess)

    def mark_rows(self) -> list[Row]:
        """The rows, each with whether it lies outside the region."""
        marks = self.outside.tolist()
        return [{**row, OUTSIDE: mark} for row, mark in zip(self.rows, marks, strict=True)]

    def as_json(self, model: str) -> str:
        """One object, from the command and from the server alike; `model` says who answered."""
        warnings = [text for text in (self.ignored, self.warning, self.note) if text]
        content: dict[str, Any] = {"rows": self.mark_rows(), "warnings": warnings, "model": model}
        if self.fallback is not None:
            content["fallback"] = self.fallback.as_data()
        if self.excess is not None:
            content["drift"] = self.drift
        if self.changes is not None:
            content["churn"] = self.changes.as_data()
        text = json_text(content)
        return f'{text[:-1]},"paths":{self.paths_json}}}' if self.paths else text


@dataclass(frozen=True)
class RunPredictor:
    """A finished run that predicts; `digest` is the SHA-256 of its file ensemble.json.

    What it reads from other files to explain answers, it reads once. `recorded_only`: it reads
    none, and explains by what is recorded with the ensemble.
    """

    ensemble: Ensemble
    described: TrainedModel
    digest: str
    recorded_only: bool = False

    @classmethod
    def from_folder(cls, folder: Path) -> RunPredictor:
        """The run in a folder."""
        before = read_digest(folder)
        found = cls(*load_trained(folder), before)
        if read_digest(folder) != before:
            raise RunFolderError(
                f"{folder} was written while it was read; try again", code="altered"
            )
        return found

    def predict(
        self,
        table: CsvTable,
        asked: PredictionOptions,
        *,
        count_moved: bool = False,
        pause: Pause = lambda: None,
        before: int = 0,
        last: LastAnswer | None = None,
    ) -> Predictions:
        """The answers for a table.

        `pause` is called between steps, and may raise to give up. The first `before` rows are not
        answered: they only precede the others, for a run that reads windows of rows. `last` is what
        was answered before the first row, where changes are bounded.
        """
        inputs = self.described.inputs(table)[before:]
        known = np.arange(before + 1, len(table) + 1)
        table = table.drop_first(before)
        outside = self.described.outside(inputs)
        missed: list[str] = []
        if outside.any():
            beyond = self.ensemble.find_outside_by_rule(inputs).items()
            missed = [name for name, one in beyond if (one & outside).any()]
        warning = outside_warning(table, outside, missed, self.described.outside_note)
        if warning and asked.refuse_outside:
            raise InvalidInput(f"{warning}; correct or remove these rows")
        pause()
        gap = self.described.fallback if asked.fallback == OF_RUN else asked.fallback
        # numbers beyond all ranges overflow in members; what comes of it is outside, and marked
        with np.errstate(all="ignore"):
            made = self._rows(
                table, inputs, asked, gap, pause, known, count_moved=count_moved, last=last
            )
        theta, parts = made.theta, made.parts
        moved = int((theta > 0).sum()) if count_moved else None
        asks = asked.explain and gap is None
        notes = [self._note_short(known), self.described.unproven if asks else ""]
        note = "; ".join(filter(None, notes))
        paths = self._paths
        if gap is not None:
            fallback = FallbackCount.from_answers(gap, parts, outside)
        else:
            why = self.described.without_fallback if asked.fallback == OF_RUN else ""
            fallback = FallbackCount(None, why)
        counted = fallback if paths[0] else None
        excess = self.described.measure_excess(inputs) if outside.any() else None
        last = LastAnswer(tuple(paths[0]), made.outputs[-1].copy()) if paths[0] else None
        return Predictions(
            made.rows,
            outside,
            warning,
            moved,
            note,
            *paths,
            counted,
            excess,
            made.changes,
            last,
            self.note_ignored(table),
        )

    def read_last(self, file: Path) -> LastAnswer:
        """The last row of an earlier output, CSV or JSON."""
        table = read_answers(file)
        names = tuple(self.described.paths)
        splits = table.drop_first(len(table) - 1).get_numbers(names)[0]
        return LastAnswer(names, splits)

    def note_ignored(self, table: CsvTable) -> str:
        """What is said of columns of a router's table that are no demands of it."""
        if not self.described.paths:  # other tables may have as many further columns as they like
            return ""
        known = {*self.described.signature.inputs, *self._inputs, TIME}
        other = [name for name in table.names if name not in known]
        what = "column that is no demand" if len(other) == 1 else "columns that are no demands"
        return f"ignored: {len(other)} {what} of the run: {format_list(other, 5)}" if other else ""

    @cached_property
    def _inputs(self) -> frozenset[str]:
        return frozenset(one.name for one in self.described.interface().inputs)

    def _note_short(self, known: IntArray) -> str:
        """What is said of rows that have no whole window yet; empty where all have one."""
        window, short = self.described.window, int((known < self.described.window).sum())
        if not short:
            return ""
        return (
            f"{short} of {len(known)} rows come before {window} are known: they are answered by "
            "the fixed split that fits the whole set"
        )

    def _rows(
        self,
        table: CsvTable,
        inputs: Array,
        asked: PredictionOptions,
        gap: float | None,
        pause: Pause,
        known: IntArray,
        *,
        count_moved: bool,
        last: LastAnswer | None,
    ) -> _Answered:
        """The rows and what goes with them.

        `known` (n,): of a run that reads windows, how many rows there are up to each.
        """
        found: Any = (
            self.ensemble.predict(inputs, explain=True, outside="ignore")
            if asked.explain
            else self.ensemble.evaluate(inputs, theta=count_moved)
        )
        window = self.described.window
        outputs, theta = found.outputs, found.theta
        if (short := known < window).any():
            outputs = np.where(short[:, None], self.described.first_answer, outputs)
            theta = np.where(short, 1.0, theta)
        pause()
        parts: list[Answers] = []
        if asked.explain or gap is not None:
            parts = self._compared(inputs, outputs, gap, pause)
        if parts:
            outputs = np.concatenate([part.splits for part in parts])
        else:
            outputs = self.described.finish_outputs(inputs, outputs)
        churn = self.described.churn if asked.churn == OF_RUN else asked.churn
        limited, changes = None, None
        if churn is not None:
            limited = self.described.limit_changes(inputs, outputs, last, churn=churn, known=parts)
            outputs, changes = limited.outputs, ChangeCount.from_outputs(churn, limited)
            parts = [_follow_changes(parts, limited)] if parts else []
        rows = self.described.predictions(inputs, outputs, details=asked.details)
        if window:
            rows = join_rows(_describe_windows(table, np.minimum(known, window)), rows)
        if asked.explain:
            pause()
            stated = replace(found, outputs=outputs, theta=theta)
            rows = join_rows(
                rows, explain_predictions(self.ensemble, self.rules(table), inputs, stated)
            )
        if parts:
            rows = join_rows(
                rows, _compared_rows(parts, changed=gap is not None, details=asked.details)
            )
        if limited is not None:
            rows = join_rows(rows, _changed_rows(limited))
        return _Answered(rows, outputs, theta, parts, changes)

    def rules(self, table: CsvTable) -> list[Rule]:
        """The rules by which predictions for a table are explained."""
        if self.recorded_only:
            return []
        return [*self.described.get_own_rules(table), *self._added]

    @cached_property
    def _paths(self) -> tuple[Mapping[str, Sequence[str]], str]:
        """Of a router, and as JSON: they are most of a single answer."""
        paths = self.described.paths
        return paths, json_text(paths)

    @cached_property
    def _added(self) -> list[Rule]:
        return list_added_rules(self.ensemble, self.described)

    def _compared(
        self, inputs: Array, outputs: Array, fallback: float | None, pause: Pause
    ) -> list[Answers]:
        """Outputs, some of them improved or solved, and how far from the optimum each is.

        Nothing where nobody knows an optimum.
        """
        most = np.inf if fallback is None else fallback
        parts: list[Answers] = []
        for first in range(0, len(inputs), TOGETHER):
            some = slice(first, first + TOGETHER)
            part = self.described.improve_answers(inputs[some], outputs[some], fallback=most)
            if part is None and fallback is not None:
                raise InvalidInput(
                    "a fallback is for routers, whose answers can be solved instead",
                    code="unsupported",
                )
            if part is None:
                return []
            parts.append(part)
            pause()
        return parts


@dataclass(frozen=True, eq=False)
class _Answered:
    """The rows of a table with their outputs, how far a shield moved each, where that is asked for,
    what is known of their distances from the optimum, and of their changes.
    """

    rows: Sequence[Row]
    outputs: Array
    theta: Array
    parts: list[Answers]
    changes: ChangeCount | None


def _follow_changes(parts: Sequence[Answers], limited: LimitedOutputs) -> Answers:
    """What is known of answers, of those that are given in their place."""
    gaps, improved, solved, overloaded = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("gaps", "improved", "solved", "overloaded")
    )
    above = np.maximum((1 + gaps) * limited.growth - 1, 0.0)
    carried, each = (
        {name: np.concatenate([getattr(part, kind)[name] for part in parts]) for name in names}
        for kind, names in (
            ("carried", parts[0].carried),
            ("carried_each", parts[0].carried_each),
        )
    )
    return Answers(limited.outputs, above, improved, solved, overloaded, carried, each)


def _changed_rows(limited: LimitedOutputs) -> list[Row]:
    """How far each answer is from the one before; nothing is known of the first."""
    rows = zip(
        *(one.tolist() for one in (limited.follows, limited.changed, limited.moved)),
        limited.yielded.tolist(),
        strict=True,
    )
    return [
        {CHANGED: most if follows else None, MOVED: moved if follows else None, YIELDED: further}
        for follows, most, moved, further in rows
    ]


def _compared_rows(parts: Sequence[Answers], *, changed: bool, details: bool) -> list[Row]:
    """For each answer how far it is from the optimum; `changed`: also where it comes from."""
    gaps = np.concatenate([part.gaps for part in parts]).tolist()
    columns: dict[str, list[Any]] = {ABOVE: [gap if np.isfinite(gap) else None for gap in gaps]}
    if changed:
        columns[IMPROVED] = np.concatenate([part.improved for part in parts]).tolist()
        columns[SOLVED] = np.concatenate([part.solved for part in parts]).tolist()
        columns[OVERLOADED] = np.concatenate([part.overloaded for part in parts]).tolist()
    for name in parts[0].carried:
        columns[name] = np.concatenate([part.carried[name] for part in parts]).tolist()
    for name in parts[0].carried_each if details else ():
        columns[name] = np.concatenate([part.carried_each[name] for part in parts]).tolist()
    lines = zip(*columns.values(), strict=True)
    return [dict(zip(columns, line, strict=True)) for line in lines]


def _describe_windows(table: CsvTable, known: IntArray) -> list[Row]:
    """After which time an answer is for the next step, where that is given, and by how many."""
    rows: list[dict[str, Any]] = [{WINDOW: one} for one in known.tolist()]
    if TIME not in table.names:
        return list(rows)
    times = table.cells_of(TIME)
    return [{AFTER: time, **row} for time, row in zip(times, rows, strict=True)]


def read_digest(folder: Path) -> str:
    """SHA-256 of the file that states the seal of all others; empty where there is none."""
    file = folder / RECORD
    return hashlib.sha256(read_bytes(file)).hexdigest() if os.path.lexists(file) else ""


def join_rows(rows: Sequence[Row], more: Sequence[Row]) -> list[Row]:
    """Rows with the names and values of further ones, one by one."""
    return [{**row, **further} for row, further in zip(rows, more, strict=True)]


def outside_warning(
    table: CsvTable, outside: NDArray[np.bool_], missed: Sequence[str] = (), note: str = ""
) -> str:
    """How many rows lie outside, and the first of them; empty where none does.

    `missed` names the rules that say nothing of some of them, where these are known. `note`: what
    follows from it instead of rules that are not guaranteed.
    """
    if not outside.any():
        return ""
    first = table.format_line(int(outside.argmax()))
    if note:
        return (
            f"{outside.sum()} of {len(outside)} rows lie outside the set, first on {first} of "
            f"{table.path}: {note}"
        )
    names, several = " and ".join(missed) or "the rules", len(missed) != 1
    return (
        f"{outside.sum()} of {len(outside)} rows lie outside the region in which {names} "
        f"{'were' if several else 'was'} established, first on {first} of {table.path}: {names} "
        f"{'are' if several else 'is'} not guaranteed there"
    )
