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
        ReportTable,
        SavedRun,
        Section,
        Story,
    )
    from cg4ai.report.tables import cell, csv_text, finite, format_markdown, format_plain
    from cg4ai.report.wording import (
        STOPS,
        describe_closing,
        describe_cut,
        describe_optimality,
        describe_seconds,
        describe_stop,
        format_count,
        list_remarks,
    )
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
                "SavedRun",
                "Section",
                "Story",
                "ReportTable",
            ],
            "cg4ai.report.tables": [
                "cell",
                "csv_text",
                "finite",
                "format_markdown",
                "format_plain",
            ],
            "cg4ai.report.wording": [
                "STOPS",
                "describe_closing",
                "describe_cut",
                "describe_optimality",
                "describe_seconds",
                "describe_stop",
                "format_count",
                "list_remarks",
            ],
        },
    )

__all__ = [
    "STOPS",
    "Code",
    "Drawing",
    "Finding",
    "KeyFigure",
    "Pairs",
    "Part",
    "ReportTable",
    "SavedRun",
    "Section",
    "Story",
    "cell",
    "csv_text",
    "describe_closing",
    "describe_cut",
    "describe_optimality",
    "describe_seconds",
    "describe_stop",
    "finite",
    "format_count",
    "format_markdown",
    "format_plain",
    "list_remarks",
]
