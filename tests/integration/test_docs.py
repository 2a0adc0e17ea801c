"""The documentation is true: its snippets run, print what is shown, and cover all public names."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import fields
from pathlib import Path

import pytest

import cg4ai

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)")


def blocks(page: Path) -> list[tuple[str, str, int]]:
    """Language, text and first line number of every fenced block."""
    text = page.read_text(encoding="utf-8")
    return [
        (found[1], found[2], text.count("\n", 0, found.start(2)) + 1)
        for found in BLOCK.finditer(text)
    ]


def shown(pattern: str) -> re.Pattern[str]:
    """Expected output, in which `...` stands for anything within a line."""
    parts = [re.escape(part) for part in pattern.strip().split("...")]
    return re.compile("[^\n]*".join(parts))


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if any(block[0] == language for block in blocks(page))]


@pytest.mark.parametrize("page", pages_with("python"), ids=lambda page: page.name)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python blocks of a page run in order in one namespace; a `text` block is their output."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "snippets"}
    printed = ""
    for language, text, line in blocks(page):
        if language == "python":
            # blank lines put the snippet on its own lines of the page in tracebacks
            code = compile("\n" * (line - 1) + text, str(page), "exec")
            stream = io.StringIO()
            with contextlib.redirect_stdout(stream):
                exec(code, namespace)
            printed = stream.getvalue()
        elif language == "text":
            assert shown(text).search(printed), f"{page.name}:{line} shows\n{text}got\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def headings() -> list[str]:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    return re.findall(r"^### `?(\w+)", text, re.MULTILINE)


def test_every_public_name_has_a_heading() -> None:
    assert sorted(set(cg4ai.__all__) - set(headings())) == []


def test_every_setting_is_documented_with_its_default() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", text, re.MULTILINE))
    for field in fields(cg4ai.Settings):
        assert field.name in documented, f"docs/api.md lacks the setting {field.name}"
        assert documented[field.name] == repr(field.default).replace("'", '"'), field.name


def test_every_stop_reason_is_explained() -> None:
    for page in ("tutorial.md", "api.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        missing = [reason.name for reason in cg4ai.StopReason if f"`{reason.name}`" not in text]
        assert missing == [], page
