"""A finished run of each application, trained in seconds, for tests of what is done with them.

Digits stand for an application outside the package: it is registered where this is imported.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from cg4ai.cli.main import main
from experiments.digits.__main__ import main as digits_main
from quick_evaluation import evaluate_quickly
from small_network import NETWORK

ROUTE = (
    *("scenarios=30", "priced=50", "first_steps=60", "later_steps=30", "batch_size=64"),
    *("rounds=3", "validation=200"),
)
DIGITS = ("group=12", "steps=120", "learning_rate=0.02", "batch_size=32", "blur=0.0", "rounds=2")


def sets(pairs: tuple[str, ...]) -> list[str]:
    return [part for pair in pairs for part in ("--set", pair)]


def train_all(folder: Path) -> None:
    """The runs `train`, `route` and `digits` in a folder, and the data of the first."""
    made = np.random.default_rng(0)
    x = made.uniform(size=(60, 2))
    y = 3 * x[:, 0] - x[:, 1] + 0.1 * made.normal(size=60)
    lines = [f"{a},{b},{c}" for (a, b), c in zip(x.tolist(), y.tolist(), strict=True)]
    (folder / "house.csv").write_text("size,age,price\n" + "\n".join(lines) + "\n")
    rules = [{"rule": "linear", "name": "range", "box": {}, "at_least": -0.5, "at_most": 2.5}]
    (folder / "house.json").write_text(json.dumps(rules))
    (folder / "small.json").write_text(json.dumps(NETWORK))
    common = ["--quiet", "--threads", "1", "--out"]
    train = ["train", str(folder / "house.csv"), "--target", "price", "--steps", "60"]
    train += ["--rules", str(folder / "house.json"), "--hidden", "4", "--iteration-limit", "3"]
    route = ["route", str(folder / "small.json"), "--demands", "2", "--hidden", "6"]
    for name, program, command in (
        ("train", main, train),
        ("route", main, [*route, *sets(ROUTE)]),
        ("digits", digits_main, ["hard", "--n", "20", *sets(DIGITS)]),
    ):
        with evaluate_quickly():
            assert program([*command, *common, str(folder / name)]) == 0
    (folder / "small.json").unlink()  # from now on the folder of the run must do
