"""Colours of figures: those of the pages' light theme, each by the name that pages have for it.

A page swaps them for its variables, so that figures follow the reader's theme; anywhere else they
are what they say.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from cg4ai.extras import import_optional
from cg4ai.records import Array, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PAPER, INK, QUIET, LINE = "#ffffff", "#1a1d21", "#555c66", "#d4d8de"
FIRST, SECOND, THIRD, FOURTH = "#0b5fa5", "#b5520b", "#08704f", "#8a3a83"
SERIES = (FIRST, SECOND, THIRD, FOURTH)
BAD = "#a92323"
# for what grows: each darker than the one before (on dark pages brighter), which is what people
# see who tell no colours apart
STEPS = ("#a3b3c1", "#79a3c4", "#4a89bb", "#1f62a0", "#0b2e63")
# of utilisations up to each of these: the grey, blues, amber, orange and reds of an explorer's map
LOADS = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
LOAD_COLOURS = ("#97a5b3", "#55a8dc", "#1663ad", "#d99a00", "#d9560a", "#a11919")
OVERLOADED = "#7d0048"

VARIABLES = {
    PAPER: "--paper",
    INK: "--ink",
    QUIET: "--quiet",
    LINE: "--line",
    FIRST: "--first",
    SECOND: "--second",
    THIRD: "--third",
    FOURTH: "--fourth",
    BAD: "--bad",
    **{colour: f"--step-{number}" for number, colour in enumerate(STEPS, start=1)},
    **{colour: f"--u{number}" for number, colour in enumerate((*LOAD_COLOURS, OVERLOADED))},
}


LETTERS = 66  # of a legend that fits into one line
SAMPLE_LETTERS = 8  # as wide as the sample beside a name, with its margins
MOST_POINTS = 300  # a page of thousands would be slow, and they would hide each other
TAG = re.compile(r"<[^>]*>")
SIZE = (5.6, 3.1)  # inches: about two beside each other on a page
STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": QUIET,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10.5,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "figure.facecolor": "none",
    "font.size": 10.5,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",  # text stays text, in the page's own font
    "svg.hashsalt": "cg4ai",  # the same figure is the same text
    "text.color": INK,
    "text.parse_math": False,  # names of users may hold dollars
    "xtick.color": QUIET,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 9.5,
    "ytick.color": QUIET,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 9.5,
}


def axis_of(ax: Axes | None) -> Axes:
    """The axis that was given, or a new one of pyplot's, which shows itself as usual."""
    import_optional("matplotlib")
    return import_optional("matplotlib.pyplot").subplots()[1] if ax is None else ax


def whole_numbers(axis: Any) -> None:
    """Ticks at whole numbers: iterations have no halves."""
    ticks = import_optional("matplotlib.ticker").MaxNLocator(integer=True, min_n_ticks=1)
    axis.set_major_locator(ticks)


def set_log_scale(ax: Axes) -> None:
    """A logarithmic scale upwards, with plain numbers: no mathematics to typeset."""
    ticker = import_optional("matplotlib.ticker")
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(ticker.NullFormatter())


def legend_above(ax: Axes, *, right: bool = False) -> None:
    """A legend that lies beside what is drawn, never on it; long names in fewer columns.

    `right`: it ends where the axis ends, and has the room above long names of ticks as well.
    """
    names = ax.get_legend_handles_labels()[1]
    fitting = (columns for columns in (3, 2) if _count_letters(names, columns) <= LETTERS)
    place: Any = ("lower right", (1, 1)) if right else ("lower left", (0, 1))
    ax.legend(loc=place[0], bbox_to_anchor=place[1], ncols=next(fitting, 1), borderaxespad=0.2)


def _count_letters(names: Sequence[str], columns: int) -> int:
    """How wide a legend of so many columns is, which are filled one after the other."""
    rows = -(-len(names) // columns)
    parts = [names[start : start + rows] for start in range(0, len(names), rows)]
    return sum(SAMPLE_LETTERS + max(map(len, part)) for part in parts)


def pick_evenly(values: Array, count: int = MOST_POINTS) -> IntArray:
    """At most `count` positions, evenly over the sorted values, both ends among them."""
    order = np.argsort(values, kind="stable")
    places = np.linspace(0, len(order) - 1, min(len(order), count)).round().astype(np.int64)
    return np.asarray(order[np.unique(places)])


@contextmanager
def use_page_style() -> Iterator[None]:
    """The style of pages, and no complaint about letters that a measuring font lacks."""
    with import_optional("matplotlib").rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=r"Glyph \d+|Matplotlib currently does not support"
        )
        yield


def figure_of(draw: Callable[[Axes], object], size: tuple[float, float] = SIZE) -> Figure:
    """A figure of one axis without a window; call it, and save it, within `use_page_style`."""
    figure: Figure = import_optional("matplotlib.figure").Figure(figsize=size, layout="constrained")
    draw(figure.subplots())
    return figure


def render_svg(draw: Callable[[Axes], object], *, name: str, title: str, size: Any = SIZE) -> str:
    """What `draw` puts on an axis, as an element of a page.

    `name` tells its ids from those of other figures on the page; `title` is what those hear who do
    not see it.
    """
    packed = io.BytesIO()
    with use_page_style():
        canvas = import_optional("matplotlib.backends.backend_svg").FigureCanvasSVG
        canvas(figure_of(draw, size)).print_svg(packed)  # savefig would draw it twice
    return prepare_svg_for_page(packed.getvalue().decode(), name=name, title=title)


def prepare_svg_for_page(text: str, *, name: str, title: str) -> str:
    """Matplotlib's file as an element: colours by variables, ids of its own, nothing fetched."""
    text = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</defs>", "", text, flags=re.DOTALL)
    start = text.index("<svg")
    shape = re.search(r'viewBox="[^"]*"', text[start:])
    body = text[text.index(">", start) + 1 :]
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', "".join(TAG.findall(body))))
    # within tags alone: whatever a text says, it stays
    body = TAG.sub(lambda tag: _for_page(tag[0], used, name), body)
    body = re.sub(r">\s+<", ">\n<", body).strip()
    return f'<svg {shape[0] if shape else ""} role="img" aria-label="{escape(title)}">{body}'


def _for_page(tag: str, used: set[str], name: str) -> str:
    tag = re.sub(
        r' id="([^"]*)"',
        lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "",
        tag,
    )
    tag = re.sub(r'(?:xlink:)?(href="#|url\(#)', rf"\1{name}-", tag)
    tag = tag.replace("xlink:href", "href")
    tag = re.sub(r"#[0-9a-f]{6}\b", lambda found: _variable(found[0]), tag)
    tag = re.sub(r"(\.\d\d)\d+", r"\1", tag)  # hundredths of a point are enough
    tag = re.sub(r' transform="rotate\(-?0 [^"]*"| font-family: [^;"]*;?', "", tag)
    return re.sub(r"\s+", " ", tag).replace("base64, ", "base64,")


def _variable(colour: str) -> str:
    return f"var({VARIABLES[colour]})" if colour in VARIABLES else colour


def render_png(figure: Figure) -> bytes:
    """A picture on white."""
    packed = io.BytesIO()
    figure.savefig(packed, dpi=150, format="png", facecolor="white")
    return packed.getvalue()
