"""A run's story as text: whether the rules hold, the scores, the time; details where asked for."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from cg4ai.ensemble.verdict import format_coverage
from cg4ai.report.story import Drawing, Finding, KeyFigure, Pairs, Part, ReportTable, Section, Story
from cg4ai.report.tables import format_plain

UNBROKEN = 1 << 16  # a width that no sentence has


def render_text(story: Story, *, verbose: bool = False, width: int = UNBROKEN) -> str:
    """The result for people; with `verbose` all chapters of the report but for drawings.

    Sentences are broken between words at `width` columns; tables are left alone.
    """
    figures = map(_figure, story.figures)
    lines = [*story.first, story.headline]
    blocks = [_broken(lines, width), list(finding_lines(story.findings, width))]
    blocks.append(_broken([*figures, *story.closing, *story.remarks], width))
    if verbose:
        established = [one.statement for one in story.findings]
        chapters = [
            Section("What was asked", story.asked),
            Section("What was established", tuple(established)),
            *story.sections,
            Section("How training went", story.trained),
        ]
        blocks += [list(_chapter(one, width)) for one in chapters]
    return "\n".join(line for block in blocks for line in block)


def finding_lines(findings: Sequence[Finding], width: int = UNBROKEN) -> Iterator[str]:
    """A line for each rule, and below it the worst rows that violate it, or its rates."""
    lines = format_coverage([one.verdict for one in findings])
    for line, one in zip(lines, findings, strict=True):
        yield from _broken([line], width, indent=4)
        yield from _broken([f"    {more}" for more in one.more], width, indent=6)


def _figure(one: KeyFigure) -> str:
    beside = ", ".join(f"{label} {value}" for label, value in one.beside)
    return f"{one.label}: {one.value}{f' ({beside})' if beside else ''}"


def _chapter(section: Section, width: int) -> Iterator[str]:
    parts = [part for part in section.parts if not isinstance(part, Drawing)]
    if parts:
        yield from ("", section.title)
    for part in parts:
        yield from (f"  {line}".rstrip() for line in _part(part, width - 2))


def _part(part: Part, width: int) -> list[str]:
    if isinstance(part, str):
        return _broken([part], width)
    if isinstance(part, ReportTable):
        return ["", *format_plain(part.rows, digits=part.digits).splitlines(), ""]
    if isinstance(part, Pairs):
        return [f"{name} = {value}" for name, value in part.values.items()]
    return [] if isinstance(part, Drawing) else part.text.splitlines()


def _broken(lines: Sequence[str], width: int, *, indent: int = 0) -> list[str]:
    """Lines broken between words, what follows of each `indent` columns to the right."""
    wrapper = textwrap.TextWrapper(
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [part for line in lines for part in wrapper.wrap(line)]
