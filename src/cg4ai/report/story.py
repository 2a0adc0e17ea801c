"""What a run came to, as data: verdicts on the rules, scores, time, then chapters of details.

Every application describes its runs as a `Story`. `terminal` and `html` render it; texts are plain,
and the page escapes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cg4ai.apps.folders import ARRAYS, DESCRIPTION, PATCH_OF, complete
from cg4ai.apps.protocol import Guarantee
from cg4ai.ensemble.verdict import STRENGTHS, Verdict, format_headline
from cg4ai.records import Strength
from cg4ai.report.tables import TableRows
from cg4ai.runs import files
from cg4ai.runs.folder import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Finding:
    """What was established about one rule, and how strongly.

    `statement` has the numbers, `coverage` says in a few words where the rule holds and how that is
    known. `title`: what people read instead of the rule's name. `doubtful`: it holds on the listed
    rows and is likely violated on new ones. `asked`: the stronger guarantee that was asked for and
    is missing, empty where none is.
    """

    rule: str
    strength: Strength
    kept: bool
    statement: str
    more: tuple[str, ...] = ()
    coverage: str = ""
    title: str = ""
    doubtful: bool = False
    asked: str = ""

    @property
    def verdict(self) -> Verdict:
        where = self.coverage or STRENGTHS[self.strength]
        if self.asked:
            where += f"; NOT {self.asked}, as was asked"
        return Verdict(self.title or self.rule, self.kept, self.strength, where, self.doubtful)

    @property
    def guarantee(self) -> Guarantee:
        """The same for programs: of model cards and servers."""
        words = self.statement.removesuffix(".")
        return Guarantee(self.rule, self.kept, str(self.strength), words, doubtful=self.doubtful)


@dataclass(frozen=True)
class KeyFigure:
    """One number that a reader looks for first; `beside`: labels and values to compare it with."""

    value: str
    label: str
    beside: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Drawing:
    """A figure of one axis; `caption` says what it shows, in words enough without it."""

    caption: str
    draw: Callable[[Axes], object]
    height: float = 3.1  # inches, of 5.6 in width


@dataclass(frozen=True)
class ReportTable:
    """Rows as in `cg4ai.report.tables`; floats with so many significant digits."""

    rows: TableRows
    digits: int = 4


@dataclass(frozen=True)
class Pairs:
    """Names and values, many of them."""

    values: Mapping[str, str]


@dataclass(frozen=True)
class Code:
    """Text to be copied."""

    text: str


Part = str | Drawing | ReportTable | Pairs | Code  # a text is a paragraph


@dataclass(frozen=True)
class Section:
    """A chapter of the report; one without parts is left out."""

    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Story:
    """What one run came to; what is common to all applications is added to it.

    `first`: what was scaled, left out, cut short or held constant; nothing stands before it.
    `figures`: scores with and without rules. `closing`: time and size in a sentence or two.
    `remarks`: what a reader must know to take the findings for what they are. `sections`: chapters
    of details. `trained`: sentences on how training went and ended. `blocks`: what the blocks of
    members are called. `nothing`: what is said where there are no findings. `explorable`: whether
    there is an interactive page of the run.
    """

    title: str
    asked: tuple[str, ...]
    findings: tuple[Finding, ...]
    first: tuple[str, ...] = ()
    figures: tuple[KeyFigure, ...] = ()
    closing: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    trained: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    nothing: str = format_headline(())
    explorable: bool = True

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(one.verdict for one in self.findings)

    @property
    def headline(self) -> str:
        """Whether all rules hold, in one line."""
        return format_headline(self.verdicts) if self.findings else self.nothing

    @property
    def data(self) -> dict[str, Any]:
        """The verdicts for programs, alike for every application."""
        rules = [{**asdict(one.verdict), "rule": one.rule} for one in self.findings]
        return {"headline": self.headline, "rules": rules}


class SavedRun:
    """A run's folder, read as far as a report asks for it; nothing in it is changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = Run.open(folder, read_only=True)

    @property
    def name(self) -> str:
        """That of the folder, wherever it is."""
        return self.folder.resolve().name

    @property
    def settings(self) -> dict[str, Any]:
        return {name: value for name, value in self.run.settings.items() if name != DESCRIPTION}

    @property
    def description(self) -> Mapping[str, Any]:
        return self.run.settings.get(DESCRIPTION) or {}

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        return self.run.history()

    @cached_property
    def summary(self) -> dict[str, Any] | None:
        """None while the run has not ended."""
        found = self.run.summary()
        return found if found is not None and complete(found) else None

    @property
    def is_patched(self) -> bool:
        return PATCH_OF in self.description

    @cached_property
    def ensemble(self) -> dict[str, Any] | None:
        """What ensemble.json says; None where there is no mixture yet."""
        file = self.folder / "ensemble.json"
        return files.read_json(file) if os.path.lexists(file) else None

    @cached_property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """What the evaluation kept for figures; nothing of older runs, or where time forbade it."""
        return self.run.reported_arrays(ARRAYS)

    @property
    def certificates(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*.cg4ai"))
