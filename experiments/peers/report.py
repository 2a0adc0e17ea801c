"""The figures of all studies as files, and the report that is made from them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import cg4ai
from cg4ai import runs
from experiments.peers.outcomes import OURS, Outcome, table

COSTS = {"train_s": "training, s", "predict_ms": "1,024 predictions, ms"}
BROKEN = {"inequality": "largest violation", "equality": "of equalities"}


@dataclass(frozen=True)
class Section:
    """How one study is told: its tasks with their titles, and the columns of their tables."""

    title: str
    text: str
    tasks: Mapping[str, str]
    columns: Mapping[str, str]
    methods: tuple[str, ...]


SECTIONS = {
    "qp": Section(
        "DC3's quadratic programs",
        "100 variables, 50 equalities `A y = x`, 50 inequalities `G y <= h`, x in [-1, 1]^50, no "
        "labels. Every trained method gets as many steps on fresh inputs by the same optimiser; "
        "the peers' networks have two layers of 200 and a linear skip, ours two of 64, a skip, "
        "completed equalities, and a shield whose anchor is found; training counts the search for "
        "it. Per cent above the optimum at the test inputs. Violations at 100,000 other "
        "inputs, half of them corners of the box. Published for DC3: 10.6 % (convex), 5 to 10 % "
        "(non-convex); HardNet's rules are a square matrix here, badly conditioned.",
        {"convex": "Convex", "non-convex": "Non-convex (p'sin y)"},
        {"mean": "mean %", "max": "max %", **BROKEN, **COSTS},
        (OURS, "DC3", "HardNet", "affine rule", "OSQP"),
    ),
    "rayen": Section(
        "RAYEN's task",
        "Four inputs, four outputs, 2,000 labelled points, six linear rules and an ellipsoid; the "
        "label is the point of the set next to a smooth function. A random task for each seed, the "
        "same for all methods, and the same network (two layers of 64 and a skip) and steps; ours "
        "is a mixture of three, its anchor found. MSE at 1,000 inputs; violations at 100,000.",
        {"without an equality": "Without an equality", "with an equality": "With an equality"},
        {"mse": "MSE", **BROKEN, **COSTS},
        (OURS, "RAYEN", "penalty, then cvxpylayers"),
    ),
    "hardnet": Section(
        "HardNet's piecewise bounds",
        "A function on [-2, 2] with bounds that change from piece to piece. Networks have two "
        "layers of 200; ours is a mixture of four that see the bounds at x beside x, so that the "
        "rules are affine. In one dimension the shield and HardNet's projection are the same map: "
        "what differs is the mixture, its inputs, its activation (GELU; HardNet's is ReLU) and the "
        "training. GELU was chosen on other draws of the labelled points, but of the same "
        "functions. In the third problem the bounds meet in one piece: the shield keeps them and, "
        "to leave a proof room for rounding, bounds wider by 1e-9, which are those proven. MSE "
        "on a grid of 401 points; violations at 100,000.",
        {
            "inner": "50 labelled points in [-1.2, 1.2], one bound per piece",
            "full": "50 labelled points in [-2, 2], one bound per piece",
            "band": "10 labelled points, two bounds per piece",
        },
        {"mse": "MSE", "inequality": BROKEN["inequality"], **COSTS},
        (OURS, "HardNet, as published", "HardNet, trained as ours"),
    ),
    "layers": Section(
        "Layers in one plain torch loop",
        "The network and its start, the optimiser and the steps are the same for all; only the "
        "layer at its end differs. RAYEN and HardNet's problems are those above. HardNet is "
        "trained as published, with a penalty beside its projection and without the projection at "
        "first, on DC3's programs; ours on the loss alone. Violations are largest ones at 100,000 "
        "inputs, in float64 and in float32. Predictions are in float32. RAYEN takes no rules that "
        "change with the input, HardNet no quadratic ones.",
        {
            "without an equality": "Linear and quadratic rules",
            "with an equality": "The same with an equality",
            "convex": "DC3's convex program",
            "non-convex": "DC3's non-convex program",
            "inner": "50 labelled points in [-1.2, 1.2], one bound per piece",
            "full": "50 labelled points in [-2, 2], one bound per piece",
            "band": "10 labelled points, two bounds per piece",
        },
        {
            "mse": "MSE",
            "mean": "mean %",
            "max": "max %",
            "inequality": "violation, float64",
            "inequality_single": "float32",
            "equality": "of equalities, float64",
            "equality_single": "float32 ",
            **COSTS,
        },
        ("ours, a layer",),
    ),
    "routing": Section(
        "Routing",
        "Maximum link utilisation above the optimum on 2,000 random demand vectors, load 0.99. "
        "Cooper trains one network with a multiplier per arc and a pool of the worst vectors "
        "found, for the processor time that ours took.",
        {},
        {
            "mean": "mean gap",
            "max": "largest gap",
            "inequality": "overload found",
            "train_s": "processor, s",
        },
        (OURS, "Cooper"),
    ),
    "monotone": Section(
        "Monotone and bounded",
        "Ours with `Monotone` and `Range`, boosted trees with their monotone constraints. Peers "
        "choose learning rate, size and number of trees by folds of the training rows, ours as it "
        "comes; `fit` is the last fit, `all` with the choice. Five folds of diabetes (body mass, "
        "blood pressure and one serum raise progression), 1,000 rows of friedman1 (two features), "
        "20,000 rows of scores between 0 and 100 that six of twelve features move, smoothly or in "
        "steps. Falling: of 100,000 pairs of inputs, those in which features move up and the "
        "prediction down; outside: pairs with a prediction beyond the range. On the right the "
        "same without rules, peers with the settings chosen above. Classes: 4,000 rows; falling "
        "are pairs in which the chance of some class or a higher one falls. Rows to score on: "
        "20,000, or the fold left out.",
        {
            "diabetes": "Regression: diabetes",
            "friedman1": "Regression: friedman1",
            "scores": "Regression: 20,000 scores",
            "two classes": "Two classes",
            "four classes in order": "Four classes in order",
        },
        {
            "r2": "R2",
            "accuracy": "accuracy",
            "log_loss": "log loss",
            "falling": "falling",
            "outside": "outside",
            "fit_s": "fit, s",
            "train_s": "all, s",
            "r2_free": "R2 without rules",
            "accuracy_free": "accuracy without",
            "falling_free": "falling without",
        },
        (OURS, "HGB", "LightGBM", "XGBoost"),
    ),
    "classes": Section(
        "Monotone with three or more classes",
        "2,000 rows, scored on 20,000. Three classes: the chance of the last rises or falls with "
        "six of twelve features, the others are free. Five classes in order: Friedman's function "
        "cut into five, the chance of a class or a higher one rises with two features. Ours with "
        "`Monotone` as it comes, with all kinds of members that keep it and with one kind alone; "
        "peers as above, with the constraints they have, which are about scores and not about "
        "chances. Falling: of 100,000 pairs of inputs, those in which a chance falls that must "
        "not. On the right the same without the rule.",
        {one: one.capitalize() for one in ("three classes, one bound", "five classes in order")},
        {
            "accuracy": "accuracy",
            "log_loss": "log loss",
            "falling": "falling",
            "fit_s": "fit, s",
            "train_s": "all, s",
            "accuracy_free": "accuracy without",
            "log_loss_free": "log loss without",
            "falling_free": "falling without",
        },
        (OURS, "HGB", "LightGBM", "XGBoost"),
    ),
    "quantiles": Section(
        "Nine quantiles",
        "The quantiles 0.1 to 0.9. Ours is one model with `loss='pinball'`; beside it nine models "
        "each of LightGBM and HGB, whose settings are chosen by folds of the training rows, and a "
        "torch network with nine outputs, whose number of steps is. Pinball loss is the mean over "
        "quantiles on rows not seen; crossings: of 20,000 inputs, those with quantiles out of "
        "order; coverage: rows between the outer quantiles (0.8 is right); off: mean distance of "
        "the share of rows below a quantile from its level. Five folds of diabetes; 2,000 rows of "
        "Friedman's function with skew noise that grows with two inputs, scored on 20,000.",
        {"diabetes": "Diabetes", "uneven noise": "Uneven noise"},
        {
            "pinball": "pinball loss",
            "crossings": "crossings",
            "coverage": "coverage of 0.8",
            "off": "off",
            "train_s": "training, s",
        },
        (OURS, "nine of LightGBM", "nine of HGB", "one network, nine outputs"),
    ),
    "plain": Section(
        "Without rules",
        "Five folds of six data sets, every method as it comes (inputs scaled for linear models "
        "and MLP): accuracy of classes, R2 of numbers; the standard deviation over folds; "
        "seconds of one fit.",
        {
            "digits": "Digits",
            "breast cancer": "Breast cancer",
            "wine": "Wine",
            "iris": "Iris",
            "diabetes": "Diabetes",
            "friedman1": "Friedman1, 1,000 rows",
        },
        {"score": "score", "sd": "over folds", "train_s": "fit, s"},
        (OURS, "linear", "MLP", "random forest", "HGB"),
    ),
    "parity": Section(
        "Rules on groups",
        "20,000 people to train on and as many fresh ones, of two made-up populations whose "
        "features know the group; the group itself is no feature. Decisions: the same base learner "
        "for all, ours as it comes. Gap: the largest difference of two groups' rates, of decisions "
        "or of mean scores. Fairlearn bounds each group's distance from all, so that two may be "
        "twice as far apart: it is given the tolerance, and half of it. Its decisions are random: "
        "changed is the share that another call decides otherwise. ThresholdOptimizer must be told "
        "the group of everyone it decides about. Scores: networks trained on 5,000 rows.",
        {},
        {
            "accuracy": "fresh accuracy",
            "train_gap": "gap, training rows",
            "test_gap": "gap, fresh rows",
            "changed": "changed",
            "train_s": COSTS["train_s"],
        },
        (),
    ),
}


def saved(out: Path, name: str, outcomes: Sequence[Outcome], *, quick: bool) -> None:
    """Keep the figures of a study; those of other methods, tasks and seeds stay as they were."""
    path = out / f"{name}.json"
    kept = stored(path)
    done = {one.key for one in outcomes}
    together = [one for one in kept if one.key not in done] + list(outcomes)
    out.mkdir(parents=True, exist_ok=True)
    runs.write_json(
        path, {"quick": quick, "machine": machine(), "outcomes": [one.record() for one in together]}
    )


def stored(path: Path) -> list[Outcome]:
    if not path.exists():
        return []
    return [Outcome(**entry) for entry in json.loads(path.read_text())["outcomes"]]


def write_report(target: Path, out: Path) -> None:
    """All studies whose figures lie in `out`."""
    lines = [
        "# Ours beside its peers",
        "",
        "Made by `python -m experiments.peers`. Figures are means over seeds, the worst seed in "
        "brackets. Time is processor time of one core.",
        "",
    ]
    for name, section in SECTIONS.items():
        path = out / f"{name}.json"
        outcomes = stored(path)
        if not outcomes:
            continue
        record = json.loads(path.read_text())
        lines += [f"## {section.title}", "", section.text, ""]
        if record["quick"]:
            lines += ["**Few steps only (`--quick`): these figures say nothing.**", ""]
        tasks = section.tasks or {task: task for task in dict.fromkeys(o.task for o in outcomes)}
        for task, title in tasks.items():
            lines += [f"### {title}", "", table(outcomes, task, section.columns, section.methods)]
        lines += [f"Measured on {record['machine']}{_commits(outcomes)}.", ""]
    target.parent.mkdir(parents=True, exist_ok=True)
    runs.write_bytes(target, "\n".join(lines).encode())


def _commits(outcomes: Sequence[Outcome]) -> str:
    """At which commit what was measured, in words."""
    methods: dict[str, list[str]] = {}
    for one in outcomes:
        if one.commit and one.method not in methods.setdefault(one.commit, []):
            methods[one.commit].append(one.method)
    if len(methods) < 2:
        return "".join(f" at {name}" for name in methods)
    return " at " + ", ".join(f"{name} ({', '.join(of)})" for name, of in methods.items())


def machine() -> str:
    """The machine in words."""
    return (
        f"{_processor()}, {os.cpu_count()} cores of which one is used, torch {torch.__version__}, "
        f"cg4ai {cg4ai.__version__}"
    )


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def commit() -> str:
    """That of the code as it is now; read it when a run begins, for it may change meanwhile."""
    answer = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return answer.stdout.strip() or "an unknown commit"
