"""The documentation site: every page can be found, every name is there, and faults are seen."""

from __future__ import annotations

import importlib.util
import json
import re
import types
from pathlib import Path
from typing import Any

import pytest

import cg4ai
import cg4ai.plots

yaml = pytest.importorskip("yaml", reason="the extra docs is not installed")
pytest.importorskip("mkdocs", reason="the extra docs is not installed")

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def script(name: str) -> types.ModuleType:
    """A script of the site, which is no package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entries(nav: Any) -> list[str]:
    """The pages that a navigation names, in order."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in entries(part)]


def navigation() -> list[str]:
    return entries(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"])


def written() -> list[str]:
    return sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_navigation_has_every_page_once() -> None:
    pages = script("site_pages")
    made = [*pages.BESIDE.values(), pages.EXAMPLES]
    assert sorted(navigation()) == sorted([*written(), *made])


def test_home_and_the_reference_name_every_page() -> None:
    """Whoever looks for a page finds it from the first one, or from the first of the reference."""

    def named(page: str) -> set[str]:
        return set(re.findall(r"\]\(([\w/-]+\.md)", (DOCS / page).read_text("utf-8")))

    pages = {page for page in written() if "/" not in page and page != "index.md"}
    assert named("index.md") >= pages
    reference = {
        page for page in written() if page.startswith("reference/") and "index" not in page
    }
    assert {f"reference/{page}" for page in named("reference/index.md")} == reference


def test_reference_has_every_public_name() -> None:
    text = "\n".join(page.read_text("utf-8") for page in (DOCS / "reference").glob("*.md"))
    shown = {path.rpartition(".")[2] for path in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    drawing = {name for name in cg4ai.plots.__all__ if name.startswith("plot_")}
    assert set(cg4ai.__all__) | drawing <= shown


def site_of(folder: Path, **pages: str) -> Path:
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(f"<html><body>{body}</body></html>")
    return folder


def test_links_that_lead_somewhere_are_no_faults(tmp_path: Path) -> None:
    site = site_of(
        tmp_path,
        index='<a href="other.html#part">x</a><a href="https://example.org">y</a>'
        '<a href="#top">z</a><p id="top"><img src="data:image/png;base64,AA=="></p>',
        other='<h2 id="part">x</h2><a href="/index.html">home</a>',
    )
    assert script("links").faults(site) == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="missing.html">x</a>', "missing.html does not exist"),
        ('<img src="missing.png">', "missing.png does not exist"),
        ('<a href="other.html#nowhere">x</a>', "other.html#nowhere has no such anchor"),
        ('<script src="https://example.org/a.js"></script>', "is loaded from another host"),
        ('<link rel="stylesheet" href="//example.org/a.css">', "is loaded from another host"),
    ],
)
def test_faults_of_a_site_are_found(tmp_path: Path, body: str, fault: str) -> None:
    (found,) = script("links").faults(site_of(tmp_path, index=body, other="<p></p>"))
    assert found.startswith("index.html: ")
    assert found.endswith(fault)


def test_style_sheets_load_nothing_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text('@import "https://example.org/font.css";')
    assert script("links").faults(tmp_path) == ["a.css: loads from another host"]


def test_docstrings_become_markdown() -> None:
    text = (
        "A rule.\n\n>>> a = 1\n>>> b = 2\n\nMore.\n\nParameters\n----------\n"
        "first, second : what they\n    mean.\nthird : more.\n"
    )
    made = script("docstrings").as_markdown(text)
    assert "```python\na = 1\nb = 2\n```" in made
    assert "**Parameters**" in made
    assert "`first`, `second`\n:   what they\n    mean.\n" in made
    assert "`third`\n:   more.\n" in made


class Page:
    """As much of a page as the hook looks at."""

    def __init__(self, place: str) -> None:
        self.file, self.meta = types.SimpleNamespace(src_uri=place), dict[str, object]()


@pytest.mark.parametrize(
    ("place", "link", "turned"),
    [
        ("serving.md", "[s](../SECURITY.md)", "[s](security.md)"),
        ("tutorial-tables.md", "[e](../examples)", "[e](examples.md)"),
        ("reference/index.md", "[a](../rules.md#balances)", "[a](../rules.md#balances)"),
        ("changelog.md", "[d](docs/data.md)", "[d](data.md)"),
        ("changelog.md", "[docs/data.md](docs/data.md)", "[Data](data.md)"),
        ("training.md", "[results.md](results.md)", "[Results](results.md)"),
        ("results.md", "[study](../experiments/results/exact.md)", "study"),
        ("contributing.md", "[l](LICENSE)", "l"),
        ("rules.md", "[x](https://example.org) [y](#part)", "[x](https://example.org) [y](#part)"),
        ("rules.md", "```\n[s](../SECURITY.md)\n```", "```\n[s](../SECURITY.md)\n```"),
    ],
)
def test_links_of_a_checkout_are_turned_to_pages(place: str, link: str, turned: str) -> None:
    assert script("site_pages").on_page_markdown(link, Page(place)) == turned


def test_gallery_says_where_pictures_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a build, and in one without a browser, no link is broken."""
    pages = script("site_pages")
    text = "<!-- gallery: figures -->\n\n<!-- gallery: router-explorer -->"
    monkeypatch.setattr(pages, "PICTURES", tmp_path / "pictures.json")
    assert pages.on_page_markdown(text, Page("gallery.md")).count(pages.NOT_MADE) == 2
    figure = {"group": "figures", "file": "slack.svg", "caption": "`plot_slack`"}
    (tmp_path / "pictures.json").write_text(json.dumps([figure]))
    made = pages.on_page_markdown(text, Page("gallery.md"))
    assert "![plot_slack](gallery/slack.svg)" in made
    assert made.endswith(pages.NONE_TAKEN)
