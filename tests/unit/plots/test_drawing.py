"""Figures within pages: colours by variables, ids of their own, texts as they are."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import cg4ai
from cg4ai.errors import MissingExtra
from cg4ai.pages.page import read_asset
from cg4ai.plots import drawing as colours
from cg4ai.plots import plot_histogram
from cg4ai.plots.drawing import MOST_POINTS, pick_evenly, render_svg
from pages_read import Page
from raising import raises

HOSTILE = '<b>&"$x$ #0b5fa5 id="a" url(#b)'


def drawn(ax: object) -> None:
    plot_histogram([1.0, 2.0, 2.0], limit=3.0, limit_name=HOSTILE, ax=ax)  # type: ignore[arg-type]


def test_figures_have_variables_for_colours_and_texts_as_they_are() -> None:
    text = render_svg(drawn, name="one", title='a <b> & "more"')
    page = Page(text)
    assert page.values("aria-label") == ['a <b> & "more"']
    assert HOSTILE in page.texts["text"]
    tags = "".join(re.findall(r"<[^>]*>", text))
    assert "var(--first)" in tags
    assert "var(--bad)" in tags
    assert colours.FIRST not in tags
    assert "font-family" not in tags
    assert not re.search("<metadata|https?:", text)
    page.check_references()


def test_two_figures_on_a_page_share_no_ids() -> None:
    Page(
        render_svg(drawn, name="one", title="") + render_svg(drawn, name="two", title="")
    ).check_references()


def test_the_same_figure_is_the_same_text() -> None:
    assert render_svg(drawn, name="one", title="") == render_svg(drawn, name="one", title="")


def test_letters_that_the_measuring_font_lacks_are_no_matter() -> None:
    def label(ax: object) -> None:
        plot_histogram([1.0, 2.0], label="価格", ax=ax)  # type: ignore[arg-type]

    assert "価格" in Page(render_svg(label, name="one", title="")).texts["text"]


def test_colours_are_those_of_the_pages_and_each_theme_has_all() -> None:
    style = read_asset("style.css") + read_asset("report.css")
    defined = re.findall(r"(--[\w-]+): (#[0-9a-f]{6})", style)
    for colour, variable in colours.VARIABLES.items():
        light, dark = [value for name, value in defined if name == variable]
        assert light == colour
        assert dark != colour


def lightness(colour: str) -> float:
    """Relative luminance, as contrasts are computed from."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def test_what_grows_gets_darker_on_light_pages_and_brighter_on_dark_ones() -> None:
    defined = re.findall(r"--step-\d: (#[0-9a-f]{6})", read_asset("report.css"))
    light, dark = ([lightness(one) for one in part] for part in (defined[:5], defined[5:]))
    assert len(light) == len(dark) == 5
    assert light == sorted(light, reverse=True)
    assert dark == sorted(dark)


def test_few_points_stand_for_many_with_both_ends() -> None:
    values = np.random.default_rng(0).normal(size=10_000)
    few = values[pick_evenly(values)]
    assert len(few) == MOST_POINTS
    assert (few.min(), few.max()) == (values.min(), values.max())
    assert pick_evenly(np.array([3.0, 1.0])).tolist() == [1, 0]


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with raises(MissingExtra, "missing-extra"):
        plot_histogram([1.0])


def test_importing_the_figures_does_not_import_matplotlib() -> None:
    source = Path(cg4ai.__file__).parent / "plots"
    for file in source.glob("*.py"):
        imports = re.findall(r"^(?:from|import) (\w+)", file.read_text(), re.MULTILINE)
        assert "matplotlib" not in imports, file.name
