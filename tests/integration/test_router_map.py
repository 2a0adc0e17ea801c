"""The map of `cg4ai explore` on large networks, and the axis of time of measured traffic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest

import cg4ai
from browser import chromium, emulate
from cg4ai.apps.folders import load_trained
from cg4ai.cli.main import main
from cg4ai.layout import Layout
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.routing import instance
from cg4ai.routing.network.description import Router
from cg4ai.routing.network.layout import draw_network
from cg4ai.routing.pages import explorer
from cg4ai.routing.pages.explorer import make_explorer_page
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from small_network import RING

pytestmark = pytest.mark.usefixtures("quick_evaluation")

NODES, LINKS_EACH, DEMANDS = 60, 3, 8
NEVER = 100


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium(1400, 1000) as opened:
        yield opened


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of constant splits on a network of long names, most of whose links are short."""
    random = np.random.default_rng(5)
    points = random.uniform(0, 100, (NODES, 2))
    names = [f"exchange number {number}" for number in range(NODES)]
    graph = networkx.Graph(name="large")
    for number, name in enumerate(names):
        graph.add_node(name, pos=points[number].tolist())
        apart = np.linalg.norm(points - points[number], axis=1)
        near = [*np.argsort(apart)[1 : LINKS_EACH + 1], (number + 1) % NODES]
        for other in near:
            graph.add_edge(name, names[other], capacity=4.0, length=float(apart[other]))
    pairs = random.permutation(NODES)[: 2 * DEMANDS].reshape(-1, 2)
    graph.graph["demands"] = {names[a]: {names[b]: 1.0} for a, b in pairs}
    made = instance(graph, "all", 2)
    splits = np.concatenate([np.full(len(block), 1 / len(block)) for block in made.blocks])
    members = ConstantMembers(splits[None].tolist(), len(made.demand_max))
    ensemble = cg4ai.Ensemble(
        (Part(members, np.zeros(1, np.int64), np.ones(1)),), Layout.single(len(splits))
    )
    folder = tmp_path_factory.mktemp("large")
    text = make_explorer_page(Router(made), ensemble, folder, {})
    (folder / "page.html").write_text(text, encoding="utf-8")
    return folder / "page.html"


# boxes of texts on the map that are shown: left, right, top, bottom, and whether it is a name
WRITTEN = """
return [...document.querySelectorAll("#map text")]
  .filter(one => getComputedStyle(one).display !== "none" && one.textContent)
  .map(one => [one, one.getBoundingClientRect()])
  .map(([one, box]) => [box.left, box.right, box.top, box.bottom, one.classList.contains("name")]);
"""


@pytest.mark.parametrize("width", [None, 420])
def test_what_is_written_on_a_large_map_does_not_overlap(
    browser: Any, large: Path, width: int | None
) -> None:
    emulate(browser, width=width)
    try:
        browser.get(large.as_uri())
        browser.find_element("css selector", "[data-all=most]").click()
        boxes = browser.execute_script(WRITTEN)
        names = [box for box in boxes if box[4]]
        figures = [box for box in boxes if not box[4]]
        assert len(names) >= 5
        assert len(figures) >= 3
        for number, (left, right, top, bottom, _) in enumerate(boxes):
            for other in boxes[:number]:
                across = min(right, other[1]) - max(left, other[0])
                # lines of text may touch, letters may not
                down = min(bottom, other[3]) - max(top, other[2]) - 0.4 * (bottom - top)
                assert across <= 1 or down <= 0
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        emulate(browser)


def test_what_found_no_room_is_named_when_it_is_pointed_at(browser: Any, large: Path) -> None:
    browser.get(large.as_uri())
    hidden = browser.find_elements("css selector", "#map text.figure.crowded")
    assert hidden
    number = browser.execute_script(
        "return [...document.querySelectorAll('#map text.figure')].indexOf(arguments[0]);",
        hidden[0],
    )
    assert not hidden[0].is_displayed()
    browser.execute_script(
        "document.querySelectorAll('.arc')[arguments[0]].dispatchEvent(new Event('pointerenter'));",
        number,
    )
    assert hidden[0].is_displayed()
    load = browser.execute_script("return explorer.found().loads[arguments[0]];", number)
    assert hidden[0].text == f"{round(100 * load)} %"
    label = browser.find_elements("css selector", ".arc")[number].get_attribute("aria-label")
    shown = {one.text for one in browser.find_elements("css selector", "#map text.name.pointed")}
    assert shown == set(label.split(",")[0].split("\u2192"))


def test_every_class_of_loads_has_a_colour_of_its_own(browser: Any, large: Path) -> None:
    """In both themes, and the legend shows those that links have."""
    strokes = "return getComputedStyle(arguments[0]).stroke;"
    for dark in (False, True):
        emulate(browser, dark=dark)
        browser.get(large.as_uri())
        samples = browser.find_elements("css selector", "#legend line")
        found = [browser.execute_script(strokes, one) for one in samples]
        assert len(found) == len(set(found)) == 7
        loads = browser.execute_script("return Array.from(explorer.found().loads);")
        shown = browser.find_elements("css selector", ".arc .shown")
        for load, one in zip(loads, shown, strict=True):
            level = int(np.searchsorted([0.1, 0.25, 0.5, 0.75, 0.9, 1.0], load))
            assert browser.execute_script(strokes, one) == found[level]
    emulate(browser)


def test_the_colours_of_bars_are_explained(browser: Any, large: Path) -> None:
    browser.get(large.as_uri())
    words = browser.find_element("id", "bars").text
    assert "first path" in words
    assert "second" in words
    assert "third" not in words  # there are two paths each
    first = "return getComputedStyle(document.querySelector(arguments[0])).backgroundColor;"
    sample = browser.execute_script(first, "#bars i")
    assert sample == browser.execute_script(first, "#demands .shares i")


def test_a_link_tells_how_to_find_out_about_its_failure(browser: Any, large: Path) -> None:
    browser.get(large.as_uri())
    browser.execute_script(
        "document.querySelector('.arc').dispatchEvent(new Event('click', { bubbles: true }));"
    )
    told = browser.find_element("id", "told").text
    assert f"cg4ai failures {large.parent.name} " in told
    ends = browser.find_element("css selector", ".arc").get_attribute("aria-label").split(",")[0]
    assert ends.replace("\u2192", "-") in told


# ---- measured traffic ----------------------------------------------------------------------------

MATRICES = 40


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured")
    (folder / "square.csv").write_text(RING)
    random = np.random.default_rng(0)
    volumes = random.uniform(1, 8, (4, 4)) * random.lognormal(0, 0.5, (MATRICES, 4, 4))
    volumes[:, range(4), range(4)] = 0.0
    times = [f"day {number:02d}" for number in range(MATRICES)]
    np.savez(folder / "t.npz", matrices=volumes, nodes=[*"ABCD"], times=times)
    asked = ["route", str(folder / "square.csv"), "--traffic", str(folder / "t.npz"), "--paths"]
    asked += ["2", "--scale-capacities", "auto", "--threads", "1", "--quiet", "--out"]
    quick = {"first_steps": 30, "later_steps": 10, "batch_size": 32, "validation": 20}
    quick |= {"scenarios": 20, "priced": 20}
    changes = [part for name, value in quick.items() for part in ("--set", f"{name}={value}")]
    assert main([*asked, str(folder / "run"), *changes]) == 0
    assert main(["explore", str(folder / "run")]) == 0
    return folder / "run"


def test_later_matrices_are_played_as_the_run_measured_them(browser: Any, measured: Path) -> None:
    ensemble, described = load_trained(measured)
    assert isinstance(described, Router)
    made = described.instance
    arrays = files.read_arrays(measured / "arrays.safetensors")
    vectors = arrays["later_vectors"].astype(np.float64)
    count = len(vectors)
    browser.get((measured / "explorer.html").as_uri())
    for number in (0, count // 2, count - 1):
        told = browser.execute_script("return explorer.time(arguments[0]);", number)
        assert told["ours"] == arrays["later_mlu"][number]
        assert told["fixed"] == arrays["later_static_mlu"][number]
        best = made.find_optimal(vectors[number][None]).mlu[0]
        assert told["optimum"] == pytest.approx(best, rel=1e-5)
        # the map shows the same matrix as the lines do
        splits = ensemble.predict(vectors[number][None], outside="ignore")
        mlu = made.compute_utilisation(vectors[number][None], splits).max()
        assert browser.execute_script("return explorer.found().mlu;") == pytest.approx(mlu)
        assert told["ours"] == pytest.approx(mlu, rel=1e-5)
        words = browser.find_element("id", "timebox").text
        assert f"this router {100 * mlu:.1f} %" in words
        assert browser.find_element("id", "moment").text.startswith(
            f"day {MATRICES - count + number:02d}"
        )
        assert browser.find_element("id", "boundname").text == "Optimum"
    # demands of a reader's own are of no time
    browser.find_element("css selector", "[data-all=usual]").click()
    assert browser.find_element("id", "moment").text == ""
    assert browser.find_element("id", "boundname").text == "Optimum at least"


def test_matrices_play_one_after_the_other(browser: Any, measured: Path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get((measured / "explorer.html").as_uri())
    button = browser.find_element("id", "play")
    button.click()
    assert button.text == "pause"
    WebDriverWait(browser, NEVER).until(
        lambda one: one.find_element("id", "time").get_property("value") == "2"
    )
    button.click()
    assert button.text == "play"


def test_large_pages_leave_matrices_out(monkeypatch: pytest.MonkeyPatch, measured: Path) -> None:
    """A page that would be refused for its size has fewer of them, or none."""
    ensemble, described = load_trained(measured)
    assert isinstance(described, Router)
    summary = Run.open(measured, read_only=True).summary()
    assert summary is not None
    # the router itself is in all of these pages, and takes long to look at
    entry = explorer.make_router_entry(
        described.instance,
        ensemble,
        described.bound,
        strength=None,
        picture=draw_network(described.instance),
    )
    monkeypatch.setattr(explorer, "make_router_entry", lambda *given, **further: entry)
    sizes = []
    for limit, least, most in ((10**7, 12, 12), (0, 0, 0)):
        monkeypatch.setattr(explorer, "PAGE_BYTES", limit)
        page = make_explorer_page(described, ensemble, measured, summary)
        count = page.count('"day ')
        assert least <= count <= most
        sizes.append(len(page.encode()))
    assert "too large to hold the later matrices" in page
    whole, bare = sizes
    monkeypatch.setattr(explorer, "PAGE_BYTES", bare + 1500)
    page = make_explorer_page(described, ensemble, measured, summary)
    assert 2 <= page.count('"day ') < 12
    assert len(page.encode()) <= bare + 1500 < whole


def test_runs_that_kept_no_matrices_have_no_axis_of_time(browser: Any, large: Path) -> None:
    browser.get(large.as_uri())
    assert not browser.find_element("id", "timebox").is_displayed()
