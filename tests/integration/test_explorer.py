"""`cg4ai explore` in a browser: what the page shows is what Python computes."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cg4ai
from browser import chromium, emulate
from cg4ai.apps.csv_tables import read_csv
from cg4ai.apps.explanations import listed_slack
from cg4ai.apps.folders import load_trained
from cg4ai.apps.tabular.description import TabularModel, describe_subject, rules_digest
from cg4ai.apps.tabular.explorer import make_explorer_page
from cg4ai.apps.tabular.rulefile import Subject
from cg4ai.cli.main import main
from cg4ai.layout import Layout
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.pages.program import array_data
from cg4ai.routing.network.description import Router
from cg4ai.routing.pages import explorer
from experiments.digits.__main__ import main as digits_main
from small_network import NETWORK, TINY

pytestmark = pytest.mark.usefixtures("quick_evaluation")

QUICK = {**TINY, "validation": 100}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shielded router that knows two failures: one that it routes around, one that it cannot."""
    folder = tmp_path_factory.mktemp("router")
    given: Any = NETWORK["nodes"]
    nodes = [{**node, "pos": [number % 2, number // 2]} for number, node in enumerate(given)]
    (folder / "small.json").write_text(json.dumps({**NETWORK, "nodes": nodes}))
    settings = [part for name, value in QUICK.items() for part in ("--set", f"{name}={value}")]
    run = str(folder / "run")
    asked = ["route", str(folder / "small.json"), "--demands", "2", "--load", "0.6"]
    assert main([*asked, "--threads", "1", "--out", run, "--quiet", *settings]) == 0
    effort = ["--steps", "10", "--vectors", "40", "--quiet"]
    assert main(["failures", run, "b-d;a-b,a-c,a-d", *effort]) == 0
    assert main(["explore", run, "--out", str(folder / "router.html")]) == 0
    return folder


ANSWERS = """
const [vectors, failure] = arguments;
return vectors.map(one => {
  const found = explorer.answer(one, failure);
  return { ...found, splits: Array.from(found.splits), loads: Array.from(found.loads) };
});
"""


def test_the_router_of_the_page_is_the_router(browser: Any, router: Path) -> None:
    """At 1,000 vectors, some of them outside, splits, loads, bounds and theta agree to 1e-9."""
    ensemble, described = load_trained(router / "run")
    assert isinstance(described, Router)
    made = described.instance
    vectors = np.random.default_rng(0).uniform(0, 1.1, (1000, 2)) * made.demand_max
    browser.get((router / "router.html").as_uri())
    found = browser.execute_script(ANSWERS, vectors.tolist(), 0)
    splits = ensemble.predict(vectors, outside="ignore")
    np.testing.assert_allclose([one["splits"] for one in found], splits, rtol=0, atol=1e-9)
    loads = made.compute_utilisation(vectors, splits)
    np.testing.assert_allclose([one["loads"] for one in found], loads, rtol=0, atol=1e-9)
    assert described.bound is not None
    np.testing.assert_allclose([one["bound"] for one in found], described.bound(vectors), atol=1e-9)
    theta = ensemble.predict(vectors, explain=True).theta
    np.testing.assert_allclose([one["theta"] for one in found], theta, rtol=0, atol=1e-9)
    outside = [bool(one["outside"]) for one in found]
    assert outside == described.outside(vectors).tolist()
    assert 0 < sum(outside) < 1000


def test_failed_links_are_toggled(browser: Any, router: Path) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.get((router / "router.html").as_uri())
    options = browser.find_elements("css selector", "#failure option")
    names = [option.text for option in options]
    number = names.index("b-d")
    ensemble, described = load_trained(router / "run" / "failures" / "b-d")
    assert isinstance(described, Router)
    vectors = described.instance.sample(50, 1)
    found = browser.execute_script(ANSWERS, vectors.tolist(), number)
    splits = ensemble.predict(vectors, outside="ignore")
    np.testing.assert_allclose([one["splits"] for one in found], splits, rtol=0, atol=1e-9)
    options[number].click()
    failed = browser.find_elements("css selector", ".arc.failed")
    told = {one.get_attribute("aria-label") for one in failed}
    assert told
    assert told <= {"b\u2192d, failed", "d\u2192b, failed"}
    assert "failed" in browser.find_element("id", "legend").text.splitlines()
    options[names.index("a-b,a-c,a-d")].click()
    assert "No router for this failure" in browser.find_element("id", "promise").text
    # demands can be pointed at and moved all the same; the log must stay empty
    ActionChains(browser).move_to_element(
        browser.find_element("css selector", "#demands li")
    ).perform()
    slider = browser.find_element("css selector", "#demands input[type=range]")
    slider.send_keys(Keys.END)
    volume = browser.find_element("css selector", "#demands input[type=number]").get_property(
        "value"
    )
    told = browser.find_element("id", "told").text
    assert f": {float(volume):g}" in told
    assert "no router for this failure" in told


def test_routers_of_failures_that_have_no_room_are_named(
    monkeypatch: pytest.MonkeyPatch, router: Path
) -> None:
    ensemble, described = load_trained(router / "run")
    assert isinstance(described, Router)
    monkeypatch.setattr(explorer, "PAGE_BYTES", explorer.RESERVED)
    page = explorer.make_explorer_page(described, ensemble, router / "run", {})
    assert "cg4ai explore run/failures/b-d makes one of it" in page
    assert len(page) < (router / "router.html").stat().st_size


def test_a_link_that_is_clicked_leads_to_its_failure(browser: Any, router: Path) -> None:
    browser.get((router / "router.html").as_uri())
    arcs = browser.find_elements("css selector", ".arc")
    labels = [one.get_attribute("aria-label").split(",")[0] for one in arcs]
    (arc,) = (one for one, name in zip(arcs, labels, strict=True) if name == "b\u2192d")
    clicked = "arguments[0].dispatchEvent(new Event('click', { bubbles: true }));"
    chosen = browser.find_element("id", "failure")
    names = [one.text for one in browser.find_elements("css selector", "#failure option")]
    for number in (names.index("b-d"), 0):
        browser.execute_script(clicked, arc)
        button = browser.find_element("css selector", "#told button")
        browser.execute_script(clicked, button)
        assert chosen.get_property("value") == str(number)
        assert ("failed" in arc.get_attribute("class")) == (number > 0)


def test_a_changed_capacity_tells_what_it_would_give(browser: Any, router: Path) -> None:
    """Loads, the optimum over the paths and the share of the set that fits, as Python has them."""
    ensemble, described = load_trained(router / "run")
    assert isinstance(described, Router)
    made = described.instance
    browser.get((router / "router.html").as_uri())
    vector = 0.9 * made.demand_max
    browser.execute_script("explorer.set(arguments[0]);", vector.tolist())
    splits = ensemble.predict(vector[None])
    number = int(made.compute_utilisation(vector[None], splits)[0].argmax())
    for factor in (0.6, 2.0):
        capacity = float(factor * made.capacity[number])
        found = browser.execute_script("return explorer.capacity(...arguments);", number, capacity)
        changed = made.capacity.copy()
        source, target = made.arcs[number]
        for arc in {(source, target), (target, source)} & set(made.arcs):
            changed[made.arcs.index(arc)] *= factor
        other = replace(made, capacity=changed)
        mlu = other.compute_utilisation(vector[None], splits).max()
        assert found["found"]["mlu"] == pytest.approx(mlu)
        best = other.find_optimal(vector[None]).mlu[0]
        lower, upper = found["anew"]["lower"], found["anew"]["upper"]
        assert lower <= best * (1 + 1e-9)
        assert best * (1 - 1e-9) <= upper <= 1.002 * lower
        # the box is worst at its corner: the optimum there says how much of it can be guaranteed
        times = 1 / other.find_optimal(made.demand_max[None]).mlu[0]
        stated = re.search(r"guarantee ([0-9.]+) times the set", " ".join(found["lines"]))
        assert stated is not None
        assert 0.997 * times - 0.001 <= float(stated[1]) <= times + 1e-9
        told = browser.find_element("id", "promise").text
        assert ("nothing is guaranteed" in told) == (factor < 1)
        assert f"{100 * lower:.1f} %" in browser.find_element("id", "bound").text
    before = browser.execute_script("return explorer.found().mlu;")
    browser.find_element("id", "reset").click()
    own = made.compute_utilisation(vector[None], splits).max()
    assert browser.execute_script("return explorer.found().mlu;") == pytest.approx(own) != before
    assert not browser.find_element("id", "reset").is_displayed()


def test_a_reader_moves_demands_and_reads_what_follows(browser: Any, router: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    ensemble, described = load_trained(router / "run")
    assert isinstance(described, Router)
    made = described.instance
    browser.get((router / "router.html").as_uri())
    before = browser.execute_script("return explorer.demands();")
    slider = browser.find_element("css selector", "#demands input[type=range]")
    slider.send_keys(Keys.END)  # the largest demand first, moved by keyboard
    after = browser.execute_script("return explorer.demands();")
    largest = int(np.argmax(made.demand_max))
    assert after[largest] == made.demand_max[largest]
    assert [a for i, a in enumerate(after) if i != largest] == [
        b for i, b in enumerate(before) if i != largest
    ]
    splits = ensemble.predict(np.array([after]))
    mlu = made.compute_utilisation(np.array([after]), splits).max()
    assert browser.find_element("id", "mlu").text == f"{100 * mlu:.1f} %"
    assert "No link can be overloaded" in browser.find_element("id", "promise").text
    # the line under the map says so, too: on wide screens it stays while the panel leaves
    line = browser.find_element("id", "strip")
    assert line.text.startswith(f"{100 * mlu:.1f} % on the fullest link")
    assert "guaranteed" in line.text
    assert not browser.find_element("id", "sums").is_displayed()
    # what is no volume changes nothing, and does not stay in the field
    typed = browser.find_element("css selector", "#demands input[type=number]")
    typed.clear()
    typed.send_keys("-5", Keys.ENTER)
    assert browser.execute_script("return explorer.demands();") == after
    assert float(typed.get_property("value")) == pytest.approx(after[largest])
    # a demand above its largest, typed: nothing is guaranteed any more
    typed.clear()
    typed.send_keys(str(2 * made.demand_max[largest]), Keys.TAB)
    assert "Nothing is guaranteed here" in browser.find_element("id", "promise").text
    assert "outside the set: nothing is guaranteed" in line.text
    browser.find_element("css selector", "[data-all=least]").click()
    assert browser.find_element("id", "mlu").text == "0.0 %"


def test_buttons_for_all_demands_stay_in_the_set(browser: Any, router: Path) -> None:
    """The same page with a limit on the sum of both demands, which half of random ones break."""
    _, described = load_trained(router / "run")
    assert isinstance(described, Router)
    most = described.instance.demand_max
    limit = float(most.sum() / 1.9)
    limited = {"rows": array_data(np.ones((1, 2))), "ends": [limit]}
    text = (router / "router.html").read_text(encoding="utf-8")
    assert text.count('"set":{}') == 1
    changed = text.replace('"set":{}', f'"set":{json.dumps(limited)}')
    (router / "limited.html").write_text(changed, encoding="utf-8")
    browser.get((router / "limited.html").as_uri())
    browser.execute_script("explorer.set(arguments[0]);", most.tolist())
    assert "their sums" in browser.find_element("id", "promise").text
    vectors = []
    for which in ("least", "usual", "most", *["random"] * 10):
        browser.find_element("css selector", f"[data-all={which}]").click()
        assert browser.execute_script("return explorer.found().outside;") == "", which
        vectors.append(tuple(browser.execute_script("return explorer.demands();")))
    assert sum(vectors[2]) == pytest.approx(limit)
    shares = {f"{100 * value / end:.0f}" for value, end in zip(vectors[2], most, strict=True)}
    told = browser.find_element("id", "sums").text
    assert all(share in told for share in shares)
    assert len(set(vectors)) == len(vectors)


def test_the_worst_demands_of_a_link_are_one_click_away(browser: Any, router: Path) -> None:
    from selenium.webdriver import ActionChains

    browser.get((router / "router.html").as_uri())
    row = browser.find_element("css selector", "#links tbody tr")
    cells = [cell.text for cell in row.find_elements("css selector", "td")]
    browser.execute_script("arguments[0].click()", row.find_element("css selector", "button"))
    now = row.find_elements("css selector", "td")[1].text
    assert now == cells[2]
    assert browser.find_element("css selector", ".arc.chosen")
    # a click on the row of a link chooses it, and another one no more
    for count in (0, 1):
        row.find_element("css selector", "td").click()
        assert len(browser.find_elements("css selector", ".arc.chosen")) == count
    # the text is about the chosen link again once a demand is left
    about = browser.find_element("id", "told").text
    for place in ("#demands li", "#title"):
        target = browser.find_element("css selector", place)
        ActionChains(browser).move_to_element(target).perform()
        same = browser.find_element("id", "told").text == about
        assert same == (place == "#title")
    demands = browser.execute_script("return explorer.demands();")
    _, described = load_trained(router / "run")
    assert isinstance(described, Router)
    assert not described.outside(np.array([demands])).any()


# what stands in the middle of an element's box
SEEN = """
const box = arguments[0].getBoundingClientRect();
const found = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
return found && (found.closest("#map") || found).id;
"""


def test_the_page_fits_small_screens_and_dark_rooms(browser: Any, router: Path) -> None:
    text = (router / "router.html").read_text(encoding="utf-8")
    longer = re.sub(r'"name":"([a-d])","at"', r'"name":"\1, a place of long name","at"', text)
    (router / "names.html").write_text(longer, encoding="utf-8")
    emulate(browser, dark=True, width=400)
    try:
        browser.get((router / "names.html").as_uri())
        wide = browser.execute_script("return document.documentElement.scrollWidth;")
        assert wide <= 400
        paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor;")
        assert paper == "rgb(20, 23, 27)"
        # on paper links have the colours of the light theme, which is what their sheet has
        colour = "return getComputedStyle(document.documentElement).getPropertyValue('--u1');"
        dark = browser.execute_script(colour)
        theme = [{"name": "prefers-color-scheme", "value": "dark"}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": theme})
        assert browser.execute_script(colour) != dark
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": theme})
        # the map and what it says stay in sight while the last demand is moved
        slider = browser.find_elements("css selector", "#demands input[type=range]")[-1]
        browser.execute_script("arguments[0].scrollIntoView({ block: 'end' });", slider)
        seen = browser.execute_script(SEEN, browser.find_element("id", "kept"))
        assert browser.execute_script("return scrollY;") > 100
        assert seen == "map"
        assert browser.execute_script(SEEN, slider) == slider.get_attribute("id")
        mlu = browser.execute_script("return explorer.found().mlu;")
        assert f"{100 * mlu:.1f} %" in browser.find_element("id", "strip").text
        # both directions of a link are wide enough for a finger
        for arc in browser.find_elements("css selector", ".arc .hit"):
            width = browser.execute_script(
                "return arguments[0].getAttribute('stroke-width') * arguments[0].getScreenCTM().a;",
                arc,
            )
            assert width >= 15
        for name in browser.find_elements("css selector", "#map text"):
            box = browser.execute_script("return arguments[0].getBBox();", name)
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 1000
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        emulate(browser)


# ---- tables --------------------------------------------------------------------------------------

RULES = [
    {"rule": "probability", "name": "known", "rows": [0, 1, 2], "at_least": 0.6},
    {
        "rule": "linear",
        "name": "large",
        "box": {"lower": {"size": 0.8}},
        "coefficients": {"yes": 1},
        "at_least": 0.6,
    },
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of numbers with gaps, truth values and texts, under rules of three kinds."""
    folder = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    with (folder / "data.csv").open("w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(["size", "weight", "colour", "old", "label"])
        for number in range(60):
            size, weight = rng.uniform(0, 1, 2)
            colour, old = rng.choice(["red", "green <b>"], p=[0.7, 0.3]), rng.choice(["yes", "no"])
            label = "yes" if size + 0.3 * (colour == "red") > 0.6 else "no"
            shown = "" if number % 10 == 5 else f"{weight:.4f}"
            lines.writerow([size, shown, colour, old, label])
    (folder / "rules.json").write_text(json.dumps(RULES))
    asked = ["train", str(folder / "data.csv"), "--target", "label", "--iteration-limit", "2"]
    asked += ["--rules", str(folder / "rules.json"), "--quiet", "--out", str(folder / "run")]
    assert main(asked) == 0
    assert main(["explore", str(folder / "run")]) == 0
    (folder / "rules.json").rename(folder / "elsewhere.json")
    assert main(["explore", str(folder / "run"), "--out", str(folder / "bare.html")]) == 0
    (folder / "elsewhere.json").rename(folder / "rules.json")
    return folder


MODEL = """
return arguments[0].map(one => {
  const found = explorer.answer(Float64Array.from(one));
  return { ...found, outputs: Array.from(found.outputs) };
});
"""


def test_the_model_of_the_page_is_the_model(browser: Any, table: Path) -> None:
    ensemble, described = load_trained(table / "run")
    assert isinstance(described, TabularModel)
    inputs = described.inputs(read_csv(table / "data.csv"))
    browser.get((table / "run" / "explorer.html").as_uri())
    found = browser.execute_script(MODEL, inputs.tolist())
    outputs = ensemble.predict(inputs, outside="ignore")
    np.testing.assert_allclose([one["outputs"] for one in found], outputs, rtol=0, atol=1e-9)
    assert [one["decided"] for one in found] == outputs.argmax(1).tolist()
    known, large = ([one["rules"][rule] for one in found] for rule in range(2))
    assert [one["speaks"] for one in known] == [number < 3 for number in range(len(inputs))]
    assert all(one["slack"] >= 0 for one in known[:3])
    size = inputs[:, list(described.subject.features).index("size")]
    assert [one["speaks"] for one in large] == (size >= 0.8).tolist()
    column = list(described.subject.outputs).index("yes")
    for one, score, speaks in zip(large, outputs[:, column], size >= 0.8, strict=True):
        assert not speaks or one["slack"] == pytest.approx(score - 0.6, abs=1e-9)


def test_the_page_decides_as_the_model_does(browser: Any, tmp_path: Path) -> None:
    """By the thresholds of a rule on decisions, not by the largest score."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 300)
    x = rng.normal(size=(300, 2)) + 0.8 * group[:, None]
    label = np.where(x[:, 0] + rng.normal(size=300) > 0.4, "yes", "no")
    lines = [f"{a},{b},{g},{y}" for (a, b), g, y in zip(x, group, label, strict=True)]
    (tmp_path / "loans.csv").write_text("\n".join(["income,debt,group,paid", *lines]) + "\n")
    rule = {"rule": "decision_rate", "group_column": "group", "output": "yes", "tolerance": 0.05}
    (tmp_path / "equal.json").write_text(json.dumps([rule]))
    asked = ["train", str(tmp_path / "loans.csv"), "--target", "paid", "--ignore", "group"]
    asked += ["--members", "tree", "--rules", str(tmp_path / "equal.json"), "--quiet"]
    assert main([*asked, "--out", str(tmp_path / "run")]) == 0
    assert main(["explore", str(tmp_path / "run")]) == 0
    ensemble, described = load_trained(tmp_path / "run")
    inputs = described.inputs(read_csv(tmp_path / "loans.csv"))
    browser.get((tmp_path / "run" / "explorer.html").as_uri())
    found = browser.execute_script(MODEL, inputs.tolist())
    assert [one["decided"] for one in found] == ensemble.decide(inputs).tolist()
    outputs = ensemble.predict(inputs)
    assert [one["decided"] for one in found] != outputs.argmax(1).tolist()


def test_rules_that_cannot_be_computed_say_why(browser: Any, table: Path) -> None:
    """Of rules whose file is gone nothing but what was established is told."""
    browser.get((table / "bare.html").as_uri())
    told = [one.text for one in browser.find_elements("css selector", ".rule .now")]
    assert len(told) == 2
    assert all("no slack is shown" in text for text in told)
    assert "rules.json, which is not there; restore it" in browser.find_element("id", "foot").text


def test_every_kind_of_rule_is_told_as_what_it_is(browser: Any, tmp_path: Path) -> None:
    """Quantiles are in order unasked; shapes and means have no slack at one input."""
    rng = np.random.default_rng(0)
    sizes = rng.uniform(0, 1, 60)
    lines = [f"{size},{size + 0.1 * rng.normal()}" for size in sizes]
    (tmp_path / "data.csv").write_text("\n".join(["size,price", *lines]) + "\n")
    rules = [
        {"rule": "monotone", "name": "rising", "features": {"size": 1}},
        {"rule": "rate", "name": "mean", "rows": "all", "output": "price 0.1", "mean_at_most": 9},
    ]
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    asked = ["train", str(tmp_path / "data.csv"), "--target", "price", "--iteration-limit", "1"]
    asked += ["--rules", str(tmp_path / "rules.json"), "--quantiles", "0.1,0.9"]
    asked += ["--steps", "10", "--restarts", "1", "--quiet", "--out", str(tmp_path / "run")]
    assert main(asked) == 0
    assert main(["explore", str(tmp_path / "run")]) == 0
    browser.get((tmp_path / "run" / "explorer.html").as_uri())
    order, rising, mean = (one.text for one in browser.find_elements("css selector", ".rule .now"))
    outputs = browser.execute_script("return Array.from(explorer.found().outputs);")
    (found,) = browser.execute_script(MODEL, [[0.25]])
    assert found["rules"][0]["slack"] == pytest.approx(found["outputs"][1] - found["outputs"][0])
    assert f"{outputs[1] - outputs[0]:.3f}"[:4] in order
    assert "compares inputs" in rising
    assert "many inputs together" in mean


@pytest.mark.parametrize(("tolerance", "words"), [(1e-3, "within the tolerance"), (1e-4, "broken")])
def test_rules_are_judged_by_the_tolerance_of_their_audit(
    browser: Any, tmp_path: Path, tolerance: float, words: str
) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text('[{"rule": "range", "name": "floor", "at_least": 585591.1705}]')
    ends = np.zeros(1), np.ones(1)
    subject = Subject(("size",), ("price",), *ends, target="price", classification=False)
    told = {**describe_subject(subject, scores="score"), "rules_sha256": rules_digest(rules)}
    members = ConstantMembers([[585591.17]], 1)
    parts = (Part(members, np.zeros(1, np.int64), np.ones(1)),)
    audit = {"requirement": "floor", "strength": "audited", "holds": True, "statement": "Kept."}
    page = make_explorer_page(
        TabularModel(told, {"rules": str(rules)}),
        cg4ai.Ensemble(parts, Layout.single(1)),
        "run",
        {"audits": [{**audit, "tolerance": tolerance}]},
    )
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    browser.get((tmp_path / "page.html").as_uri())
    assert words in browser.find_element("css selector", ".rule .now").text
    badge = browser.find_element("css selector", ".rule .badge").text
    assert badge == ("violated" if words == "broken" else "audited")
    assert browser.find_element("id", "answer").text == "price: 585,591.17"


def test_a_form_has_a_field_for_every_column(browser: Any, table: Path) -> None:
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select

    _, described = load_trained(table / "run")
    assert isinstance(described, TabularModel)
    browser.get((table / "run" / "explorer.html").as_uri())
    labels = [one.text for one in browser.find_elements("css selector", "#fields label")]
    assert labels == ["size", "weight", "colour", "old"]
    colour, old = (Select(one) for one in browser.find_elements("css selector", "#fields select"))
    assert [one.text for one in colour.options] == ["green <b>", "red"]
    colours = read_csv(table / "data.csv").cells_of("colour")
    assert colours.count("red") > 30  # the usual one, though not the first
    assert colour.first_selected_option.text == "red"
    colour.select_by_visible_text("green <b>")
    colour.select_by_visible_text("red")
    old.select_by_visible_text("yes")
    weight = browser.find_elements("css selector", "#fields input[type=number]")[1]
    weight.clear()
    weight.send_keys("\t")
    features = browser.execute_script("return Array.from(explorer.features());")
    named = dict(zip(described.subject.features, features, strict=True))
    assert (named["colour=red"], named["colour=green <b>"]) == (1, 0)
    assert (named["old"], named["weight is empty"]) == (1, 1)
    # both ends of a slider are ends of the training data, not beyond them
    size = browser.find_element("css selector", "#fields input[type=range]")
    for key, end in ((Keys.END, described.subject.upper), (Keys.HOME, described.subject.lower)):
        size.send_keys(key)
        assert browser.execute_script("return explorer.features()[0];") == end[0]
        assert browser.find_element("id", "outside").text == ""
    # an input that a rule lists, chosen from the examples
    Select(browser.find_element("id", "example")).select_by_index(1)
    assert "This input is listed (data.csv, line 2)" in browser.find_element("id", "rules").text
    assert "good" in browser.find_element("css selector", ".rule .badge").get_attribute("class")
    # which is no example any more once it was changed
    size.send_keys(Keys.END)
    example = Select(browser.find_element("id", "example"))
    assert example.first_selected_option.text == "examples"
    # where the rule says nothing its strength promises nothing
    badge = browser.find_element("css selector", ".rule .badge")
    assert badge.get_attribute("class") == "badge quiet"
    example.select_by_index(1)
    assert "This input is listed (data.csv, line 2)" in browser.find_element("id", "rules").text


def test_a_form_fits_a_phone(browser: Any, table: Path) -> None:
    """Rules with long names, which stand in the list of examples."""
    text = (table / "run" / "explorer.html").read_text(encoding="utf-8")
    longer = text.replace('"label":"known: ', f'"label":"{"a long name of a rule " * 4}: ')
    assert longer != text
    (table / "long.html").write_text(longer, encoding="utf-8")
    emulate(browser, width=390)
    try:
        browser.get((table / "long.html").as_uri())
        assert browser.execute_script("return document.documentElement.scrollWidth;") <= 390
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        emulate(browser)


def test_pages_are_one_file_of_limited_size(
    router: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (router / "router.html", table / "run" / "explorer.html"):
        assert "https:" not in file.read_text(encoding="utf-8")
    new = tmp_path / "small.html"
    assert main(["explore", str(table / "run"), "--most-mb", "0.01", "--out", str(new)]) == 2
    assert "more than 0.01: allow it with --most-mb" in capsys.readouterr().err
    assert not new.exists()
    assert main(["explore", str(tmp_path)]) == 2


# ---- digits --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.guard
def test_an_image_is_drawn_and_recognised(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.support.ui import Select

    pytest.importorskip("mlxtend")
    small = {"group": 6, "steps": 40, "batch_size": 16}
    further = [part for name, value in small.items() for part in ("--set", f"{name}={value}")]
    run = str(tmp_path / "run")
    digits_main(["hard", "--n", "10", "--seed", "1", "--out", run, "--quiet", *further])
    assert digits_main(["explore", run]) == 0
    ensemble = cg4ai.load(run)
    browser.get((tmp_path / "run" / "explorer.html").as_uri())
    images = np.random.default_rng(0).uniform(0, 1, (20, 784))
    found = browser.execute_script(MODEL, images.tolist())
    np.testing.assert_allclose(
        [one["outputs"] for one in found], ensemble.predict(images), rtol=0, atol=1e-9
    )
    # it opens on the first required image
    assert "Logit of each" in browser.find_element("id", "scores").text
    shown = browser.execute_script("return Array.from(explorer.features());")
    _, described = load_trained(tmp_path / "run")
    (rule,) = described.rules(None, None)
    known = listed_slack(ensemble, rule.requirement)
    assert known is not None
    np.testing.assert_array_equal(shown, known.inputs[0])
    found = browser.execute_script("return explorer.found().rules[0];")
    assert found["slack"] == pytest.approx(known.slack[0], abs=1e-12)
    told = browser.find_element("css selector", ".rule .now").text
    assert told.startswith("This input is listed (required image 0, to be ")
    Select(browser.find_element("id", "example")).select_by_index(2)
    told = browser.find_element("css selector", ".rule .now").text
    assert told.startswith("This input is listed (required image 1, to be ")
    browser.find_element("id", "usual").click()  # clear
    canvas = browser.find_element("id", "image")
    ActionChains(browser).move_to_element(canvas).click_and_hold().move_by_offset(
        30, 0
    ).release().perform()
    drawn = np.array(browser.execute_script("return Array.from(explorer.features());"))
    assert drawn.sum() > 2
    outputs = browser.execute_script("return Array.from(explorer.found().outputs);")
    np.testing.assert_allclose(outputs, ensemble.predict(drawn[None])[0], rtol=0, atol=1e-9)
