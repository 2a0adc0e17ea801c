"""The pictures of the gallery: figures of small runs, and their pages as a browser shows them.

Written to docs/gallery, which git ignores, with pictures.json, from which site_pages.py makes the
page; `make docs` calls this where they are missing, `make gallery` in any case.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

from cg4ai import ConstrainedClassifier, FitWarning
from cg4ai.cli.main import main as cg4ai
from cg4ai.plots import (
    plot_calibration,
    plot_convergence,
    plot_network,
    plot_slack,
    plot_utilisation,
    plot_weights,
)
from cg4ai.plots.drawing import figure_of, use_page_style
from cg4ai.routing import instance
from cg4ai.rules import Box, Probability

GALLERY = Path(__file__).parents[1] / "gallery"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
LAUNCH_S = 60.0
ROUTE = ("validation=1000", "first_steps=600", "later_steps=300")
VIEWS = (  # name, width, height, dark
    ("wide-light", 1300, 1000, False),
    ("wide-dark", 1300, 1000, True),
    ("narrow-light", 390, 1000, False),
    ("narrow-dark", 390, 1000, True),
)
Pictures = list[dict[str, str]]


def figures() -> Pictures:
    """What `cg4ai.plots` draws of a classifier under rules and of a router."""
    random = np.random.default_rng(0)
    X = random.normal(size=(3000, 2))  # income and debt of applicants
    y = (X[:, 0] - X[:, 1] + random.logistic(0, 0.6, 3000) > 0).astype(int)
    seen, fresh = slice(1000), slice(1000, None)
    good = np.flatnonzero(y[seen] == 1)[:60]
    rules = [
        Probability(X[good], y[good], at_least=0.3, name="repaid before"),
        Probability(Box([1, -3], [3, -1]), 1, at_least=0.8, name="high income, low debt"),
    ]
    model = ConstrainedClassifier(members="network", steps=80, random_state=0)
    model.fit(X[seen], y[seen], requirements=rules)
    stumps = ConstrainedClassifier(members="stump", iteration_limit=12, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # it is to end at this limit
        stumps.fit(X[seen], y[seen], requirements=rules)
    made = instance("abilene", demands=10)
    loads = made.compute_utilisation(made.sample(500, seed=0), made.robust.split)
    links = ["->".join(arc) for arc in made.arcs]
    drawn: list[tuple[str, str, Callable[[Any], object]]] = [
        (
            "convergence",
            "`plot_convergence`: the objective falls to its proven bound as members come",
            lambda ax: plot_convergence(stumps, ax=ax).set_ylim(
                0.4, 0.7
            ),  # first bounds are far below,
        ),
        (
            "slack",
            "`plot_slack`: how much room each rule has; none lies below zero",
            lambda ax: plot_slack(model, rules, X[fresh], ax=ax),
        ),
        (
            "calibration",
            "`plot_calibration`: how often the classifier is right when it says so",
            lambda ax: plot_calibration(model, X[fresh], y[fresh], ax=ax),
        ),
        (
            "weights",
            "`plot_weights`: what the mixture is made of",
            lambda ax: plot_weights(stumps, ax=ax),
        ),
        (
            "network",
            "`plot_network`: links wider and darker the fuller they are",
            lambda ax: plot_network(made, loads.max(axis=0), ax=ax),
        ),
        (
            "utilisation",
            "`plot_utilisation`: the fullest links over 500 demand vectors",
            lambda ax: plot_utilisation(loads, links, ax=ax),
        ),
    ]
    with use_page_style():
        for name, _, draw in drawn:
            figure_of(draw, (5.6, 3.6)).savefig(GALLERY / f"{name}.svg", facecolor="white")
    return [
        {"group": "figures", "file": f"{name}.svg", "caption": caption}
        for name, caption, _ in drawn
    ]


def pages(folder: Path) -> Pictures:
    """The pages of a router and of a classifier, themselves."""
    with contextlib.chdir(folder):  # pages name their run as it was named to the commands
        _command("route", "abilene", "--demands", "10", *_sets(ROUTE), "--out", "router")
        _write_tumours(Path("tumours.csv"), Path("rules.json"))
        train = ["train", "tumours.csv", "--target", "diagnosis", "--rules", "rules.json"]
        _command(*train, "--iteration-limit", "4", "--steps", "80", "--out", "model")
        for run in ("router", "model"):
            _command("explore", run, "--out", GALLERY / f"{run}-explorer.html")
            shutil.copy(f"{run}/report.html", GALLERY / f"{run}-report.html")
    words = {
        "router-explorer": "Explorer of a router: move a demand, and every link follows",
        "router-report": "Report of the same run",
        "model-explorer": "Explorer of a classifier: a form, the prediction, each rule",
        "model-report": "Report of the same run",
    }
    return [
        {"group": "pages", "file": f"{name}.html", "caption": caption}
        for name, caption in words.items()
    ]


def screenshots(shown: Pictures) -> Pictures:
    """Each page wide and narrow, light and dark; none where no Chromium is installed."""
    browser = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if browser is None:
        return []
    taken = []
    for page in shown:
        stem = Path(page["file"]).stem
        for view, width, height, dark in VIEWS:
            target = GALLERY / f"{stem}-{view}.png"
            _shoot(browser, GALLERY / page["file"], target, size=(width, height), dark=dark)
            caption = f"{page['caption']}: {view.replace('-', ', ')}"
            taken.append({"group": stem, "file": target.name, "caption": caption})
    return taken


def _shoot(browser: str, page: Path, target: Path, *, size: tuple[int, int], dark: bool) -> None:
    with tempfile.TemporaryDirectory() as profile:
        theme = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []
        command = [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--disable-background-networking", "--no-first-run", f"--user-data-dir={profile}"),
            *("--virtual-time-budget=2000", *theme, f"--window-size={size[0]},{size[1]}"),
            *(f"--screenshot={target}", page.as_uri()),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=LAUNCH_S)


def _write_tumours(table: Path, rules: Path) -> None:
    """Measured tumours with five columns, and rules about them."""
    data = load_breast_cancer()
    chosen = [0, 1, 4, 7, 20]
    named = np.array(["malignant", "benign"])[data.target]
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(data.feature_names[number] for number in chosen), "diagnosis"])
        for row, diagnosis in zip(data.data[:, chosen], named, strict=True):
            writer.writerow([*row.tolist(), diagnosis])
    asked = [
        {"rule": "probability", "name": "known cases", "rows": list(range(12)), "at_least": 0.7},
        {
            "rule": "linear",
            "name": "large tumours",
            "box": {"lower": {"mean radius": 20.0, "worst radius": 25.0}},
            "coefficients": {"malignant": 1},
            "at_least": 0.9,
        },
    ]
    rules.write_text(json.dumps(asked), "utf-8")


def _sets(pairs: tuple[str, ...]) -> list[str]:
    return [part for pair in pairs for part in ("--set", pair)]


def _command(*words: str | Path) -> None:
    trains = words[0] in ("route", "train")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = cg4ai([*map(str, words), *(["--quiet", "--threads", "1"] if trains else [])])
    if code != 0:
        raise SystemExit(f"{said.getvalue()}\ncg4ai {words[0]} ended with code {code}")


def main() -> None:
    shutil.rmtree(GALLERY, ignore_errors=True)
    GALLERY.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        shown = pages(Path(folder))
    pictures = [*figures(), *shown, *screenshots(shown)]
    (GALLERY / "pictures.json").write_text(json.dumps(pictures, indent=1), "utf-8")
    print(f"{len(pictures)} pictures and pages written to {GALLERY}")


if __name__ == "__main__":
    main()
