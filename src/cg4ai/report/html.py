"""A run's story as one HTML page; nothing is fetched, and every text of a run is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from cg4ai.apps.registry import training_command
from cg4ai.errors import MissingExtra
from cg4ai.pages import escape, render_page
from cg4ai.plots.drawing import SIZE, render_svg
from cg4ai.records import Strength
from cg4ai.report import tables
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

STYLES = ("report.css",)
# what data that do not fit each other end in, of which other figures know nothing
FAULTS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
TONES = {
    Strength.VIOLATED: "bad",
    Strength.UNVERIFIED: "warn",
    Strength.ATTACKED: "warn",
    Strength.BOUNDED: "warn",  # nothing has checked the solver's word
    Strength.AUDITED: "good",
    Strength.SHIELDED: "good",
    Strength.CERTIFIED: "good",
    Strength.CONSTRUCTED: "good",
}


def report_page(saved: SavedRun, story: Story) -> str:
    """The whole page."""
    sections = [section for section in story.sections if section.parts]
    drawn = _FigureNumbering()
    chapters = "\n".join(_section(section, drawn) for section in sections)
    body = "\n".join(
        [
            "<main>",
            _head(saved, story),
            _contents(sections),
            _summary(story, drawn.missing),
            chapters,
            "</main>",
        ]
    )
    return render_page(f"{story.title} - cg4ai report", body, styles=STYLES)


def render_verdict(saved: SavedRun, story: Story) -> str:
    """A badge with the whole in three words; a search is no proof, and is not called one."""
    tone, words = "good", "All rules hold"
    if saved.summary is None:
        tone, words = "warn", "Not ended"
    elif not saved.run.bound:
        tone, words = "warn", "Not bound to this ensemble"
    elif not story.findings:
        tone, words = "warn", "No rules"
    elif not all(finding.kept for finding in story.findings):
        tone, words = "bad", "Not all rules hold"
    elif any(finding.asked for finding in story.findings):
        tone, words = "bad", "Not as strong as was asked"
    elif any(TONES[finding.strength] != "good" for finding in story.findings):
        tone, words = "warn", "No violation found, not proven"
    elif any(finding.doubtful for finding in story.findings):
        tone, words = "warn", "Likely violated on new rows"
    return f'<span class="badge {tone}">{words}</span>'


def _head(saved: SavedRun, story: Story) -> str:
    command = training_command(saved.run.command)
    made = f"{command} in {saved.name}, {saved.run.header.get('created', '')[:10]}"
    return (
        f'<header>\n<p class="quiet">{escape(made)}</p>\n'
        f"<h1>{escape(story.title)} {render_verdict(saved, story)}</h1>\n</header>"
    )


def _contents(sections: Sequence[Section]) -> str:
    links = [("Summary", "summary")] + [(one.title, _anchor(one.title)) for one in sections]
    items = "".join(f'<li><a href="#{anchor}">{escape(name)}</a></li>' for name, anchor in links)
    return f'<nav class="contents" aria-label="Contents"><ul>{items}</ul></nav>'


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z]+", "-", title.lower()).strip("-")


def _summary(story: Story, missing: str) -> str:
    remarks = [*story.remarks, *([missing] if missing else [])]
    items = "\n".join(f"<li>{tables.format_unbroken(text)}</li>" for text in remarks)
    findings = "\n".join(map(_finding, story.findings))
    parts = [
        '<section id="summary">',
        _paragraphs(story.first),
        "<h2>What was established</h2>",
        f"<p><strong>{escape(story.headline)}</strong></p>",
        f'<ul class="findings">\n{findings}\n</ul>' if findings else "",
        _figures(story.figures),
        _paragraphs(story.closing),
        f'<ul class="remarks">\n{items}\n</ul>' if remarks else "",
        "<h2>What was asked</h2>",
        _paragraphs(story.asked),
    ]
    return "\n".join([*filter(None, parts), "</section>"])


def _paragraphs(texts: Sequence[str]) -> str:
    return "\n".join(f"<p>{tables.format_unbroken(text)}</p>" for text in texts)


def _finding(found: Finding) -> str:
    tone = TONES[found.strength] if found.kept and not found.asked else "bad"
    tone = "warn" if found.doubtful and tone == "good" else tone
    verdict, details = found.verdict, (found.statement, *found.more)
    more = "".join(f'<p class="quiet">{tables.format_unbroken(text)}</p>' for text in details)
    return (
        f'<li class="{tone}"><p><span class="badge {tone}">{escape(found.strength)}</span> '
        f"<strong>{escape(verdict.rule)}</strong>: {tables.format_unbroken(verdict.coverage)}</p>\n"
        f"{more}</li>"
    )


def _figures(figures: Sequence[KeyFigure]) -> str:
    if not figures:
        return ""
    cards = "\n".join(map(_card, figures))
    return f'<dl class="cards">\n{cards}\n</dl>'


def _card(one: KeyFigure) -> str:
    beside = "".join(
        f'<dd class="beside">{escape(label)} <span>{escape(value)}</span></dd>'
        for label, value in one.beside
    )
    return f"<div><dt>{escape(one.label)}</dt><dd>{escape(one.value)}</dd>{beside}</div>"


def _section(section: Section, drawn: _FigureNumbering) -> str:
    lines = [f'<section id="{_anchor(section.title)}">', f"<h2>{escape(section.title)}</h2>"]
    for is_drawing, parts in groupby(section.parts, lambda part: isinstance(part, Drawing)):
        if is_drawing:
            figures = "\n".join(filter(None, (drawn.figure(part) for part in parts)))
            lines += [f'<div class="figures">\n{figures}\n</div>'] if figures else []
        else:
            lines += map(_part, parts)
    return "\n".join([*lines, "</section>"])


def _part(part: Part) -> str:
    if isinstance(part, ReportTable):
        return f'<div class="wide">{tables.format_html(part.rows, digits=part.digits)}</div>'
    if isinstance(part, Pairs):
        pairs = "\n".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
            for name, value in part.values.items()
        )
        return f'<dl class="pairs">\n{pairs}\n</dl>'
    if isinstance(part, Code):
        return f"<pre>{escape(part.text)}</pre>"
    return f"<p>{tables.format_unbroken(part)}</p>"


class _FigureNumbering:
    """The figures of one page, numbered; without matplotlib there are none, and it is said."""

    def __init__(self) -> None:
        self.count = 0
        self.missing = ""

    def figure(self, part: object) -> str:
        assert isinstance(part, Drawing)
        if self.missing:
            return ""
        self.count += 1
        name = f"figure{self.count}"
        try:
            picture = render_svg(
                part.draw, name=name, title=part.caption, size=(SIZE[0], part.height)
            )
        except MissingExtra as error:
            self.missing = f"There are no figures: {error}."
            return ""
        except FAULTS as error:
            picture = f"<p>This figure could not be drawn: {escape(error)}</p>"
        return f"<figure>\n{picture}\n<figcaption>{escape(part.caption)}</figcaption>\n</figure>"
