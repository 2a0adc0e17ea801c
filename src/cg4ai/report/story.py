"""What a report tells, before it is a page: what was asked, what was found, figures and tables.

Applications tell their part as a `Story`; texts are plain, and whoever makes the page escapes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cg4ai.apps.folders import ARRAYS, DESCRIPTION, PATCH_OF, complete
from cg4ai.records import Strength
from cg4ai.report.tables import TableRows
from cg4ai.runs import files
from cg4ai.runs.folder import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Finding:
    """What was established about one rule, how strongly, and whether that is what was asked."""

    rule: str
    strength: Strength
    kept: bool
    statement: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class KeyFigure:
    """One number that a reviewer looks for first."""

    value: str
    label: str


@dataclass(frozen=True)
class Drawing:
    """A figure of one axis; `caption` says what it shows, in words enough without it."""

    caption: str
    draw: Callable[[Axes], object]
    height: float = 3.1  # inches, of 5.6 in width


@dataclass(frozen=True)
class Table:
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


Part = str | Drawing | Table | Pairs | Code  # a text is a paragraph


@dataclass(frozen=True)
class Section:
    """A chapter of the report; one without parts is left out."""

    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Story:
    """What one run has to tell; what is common to all applications is added to it.

    `remarks`: what a reader must know to take the findings for what they are. `trained`: sentences
    on how training went and ended. `blocks`: what the blocks of members are called. `nothing`: what
    is said where there are no findings.
    """

    title: str
    asked: tuple[str, ...]
    findings: tuple[Finding, ...]
    figures: tuple[KeyFigure, ...] = ()
    remarks: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    trained: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    nothing: str = "There were no rules, so nothing is guaranteed."


class Saved:
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
    def patched(self) -> bool:
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
