"""Run folders: sealed files, checkpoints, history; nothing in them is ever executed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cg4ai.exports import lazy_exports

if TYPE_CHECKING:
    from cg4ai.runs.files import (
        append_lines,
        finite_numbers,
        json_line,
        member_digest,
        read_given,
        read_json,
        read_lines,
        refuse_other,
        to_plain,
        write_arrays,
        write_bytes,
        write_json,
    )
    from cg4ai.runs.folder import Run
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "cg4ai.runs.files": [
                "append_lines",
                "finite_numbers",
                "json_line",
                "member_digest",
                "to_plain",
                "read_given",
                "read_json",
                "read_lines",
                "refuse_other",
                "write_arrays",
                "write_bytes",
                "write_json",
            ],
            "cg4ai.runs.folder": ["Run"],
        },
    )

__all__ = [
    "Run",
    "append_lines",
    "finite_numbers",
    "json_line",
    "member_digest",
    "read_given",
    "read_json",
    "read_lines",
    "refuse_other",
    "to_plain",
    "write_arrays",
    "write_bytes",
    "write_json",
]
