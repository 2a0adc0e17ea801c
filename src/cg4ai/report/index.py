"""A page that lists all runs of a folder, with what each established and a link to its report."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from cg4ai.apps.folders import REPORT
from cg4ai.errors import Cg4aiError, RunFolderError
from cg4ai.pages import escape, render_page
from cg4ai.report.html import STYLES, render_verdict
from cg4ai.report.story import SavedRun, Story
from cg4ai.report.write import mark_source, tell_story, write_report
from cg4ai.runs import files

INDEX = "index.html"
DEPTH = 3  # folders below the one that is named
FIGURES = 3  # key figures of each run


@dataclass(frozen=True)
class RunRow:
    """One run of the list; `fault` says why it has no report."""

    name: str
    link: str
    saved: SavedRun | None = None
    story: Story | None = None
    fault: str = ""


def write_index(folder: Path, out: Path | None = None) -> Path:
    """Write the index of all runs below `folder`, and their reports where these are missing."""
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is not a folder: name the folder of a run, or of several")
    patterns = ["/".join(["*"] * depth) + "/run.json" for depth in range(1, DEPTH + 1)]
    runs = sorted(path.parent for pattern in patterns for path in folder.glob(pattern))
    if not runs:
        raise RunFolderError(
            f"{folder} holds no run (no run.json in it, nor up to {DEPTH} folders below): check "
            "the name"
        )
    target = folder / INDEX if out is None else out
    rows = [_row(run, folder, target) for run in runs]
    title = f"{len(rows)} run{'s' if len(rows) != 1 else ''} in {folder.resolve().name}"
    body = "\n".join(
        [
            f"<main>\n<header><h1>{escape(title)}</h1></header>",
            '<div class="wide"><table>',
            "<thead><tr><th>run</th><th>command</th><th>result</th><th>strengths</th>"
            '<th>key figures</th><th class="number">seconds</th><th>started</th></tr></thead>',
            "<tbody>",
            *map(_line, rows),
            "</tbody>\n</table></div>\n</main>",
        ]
    )
    files.write_bytes(target, render_page(f"{title} - cg4ai", body, styles=STYLES).encode())
    return target


def _row(run: Path, folder: Path, target: Path) -> RunRow:
    """One run; a report that is missing, or of what the run was before, is written."""
    name = run.relative_to(folder).as_posix()
    link = quote(Path(os.path.relpath(run / REPORT, target.parent)).as_posix())
    try:
        saved = SavedRun(run)
        story = tell_story(saved)
        if not _current(run):
            write_report(run)
        return RunRow(name, link, saved, story)
    except (Cg4aiError, OSError) as error:
        return RunRow(name, link, fault=str(error))


def _current(run: Path) -> bool:
    made = run / REPORT
    if not made.exists():
        return False
    return files.read_bytes(made).rstrip().endswith(mark_source(run).encode())


def _line(row: RunRow) -> str:
    if row.saved is None or row.story is None:
        return f'<tr><td>{escape(row.name)}</td><td colspan="6">{escape(row.fault)}</td></tr>'
    saved, story = row.saved, row.story
    strengths = ", ".join(dict.fromkeys(str(one.strength) for one in story.findings))
    figures = "; ".join(f"{one.value} {one.label}" for one in story.figures[:FIGURES])
    summary = saved.summary or {}
    seconds = summary.get("total_s", 0.0) + summary.get("evaluation_s", 0.0)
    cells = [
        f'<td><a href="{escape(row.link)}">{escape(row.name)}</a></td>',
        f"<td>{escape(saved.run.command)}</td>",
        f"<td>{render_verdict(saved, story)}</td>",
        f"<td>{escape(strengths)}</td>",
        f'<td class="long">{escape(figures)}</td>',
        f'<td class="number">{seconds:.1f}</td>',
        f"<td>{escape(str(saved.run.header.get('created', ''))[:16].replace('T', ' '))}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>"
