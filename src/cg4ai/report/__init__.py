"""Reports: one HTML page for each run, made from its folder alone, and one for a folder of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cg4ai.exports import lazy_exports

if TYPE_CHECKING:
    from cg4ai.report.story import (
        Code,
        Drawing,
        Finding,
        KeyFigure,
        Pairs,
        Part,
        Saved,
        Section,
        Story,
        Table,
    )
    from cg4ai.report.tables import cell, csv_text, finite, markdown, plain
    from cg4ai.report.wording import counted
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "cg4ai.report.story": [
                "Code",
                "Drawing",
                "Finding",
                "KeyFigure",
                "Pairs",
                "Part",
                "Saved",
                "Section",
                "Story",
                "Table",
            ],
            "cg4ai.report.tables": ["cell", "csv_text", "finite", "markdown", "plain"],
            "cg4ai.report.wording": ["counted"],
        },
    )

__all__ = [
    "Code",
    "Drawing",
    "Finding",
    "KeyFigure",
    "Pairs",
    "Part",
    "Saved",
    "Section",
    "Story",
    "Table",
    "cell",
    "counted",
    "csv_text",
    "finite",
    "markdown",
    "plain",
]
