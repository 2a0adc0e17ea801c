"""`python -m experiments.ratio`: the proven distance from the optimum of the 41 configurations.

For each: optimal oblivious routing, the best static split of the range of demands, the ratio that
cells of affine flows prove, and a router behind that shield, whose certificate the checker reads.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from cg4ai.colgen.loop import solve
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.report.tables import format_markdown
from cg4ai.routing import CONFIGURATIONS, instance
from cg4ai.routing.app import APPLICATION, RoutingPreparation
from cg4ai.routing.operate.classical import find_oblivious
from cg4ai.routing.prove.ratio_proof import ratio_bytes
from cg4ai.routing.settings import RouteSettings
from cg4ai.rules.violations import predictions
from cg4ai_checker import Rejected, verdict
from experiments.command import KEPT, NOT_KEPT, Folder, command, say

LEAST = 0.1
SAMPLES = 10_000
FEW = 5  # demands: those of which all are to be proven


def ratio(
    configurations: Annotated[
        list[str] | None, typer.Argument(metavar="[NETWORK-D-P ...]", help="Which; or all 41.")
    ] = None,
    *,
    out: Folder = Path("ratios"),
    steps: Annotated[
        int, typer.Option(help="Training steps of each router; 0: as many as usual.")
    ] = 0,
    leaves: Annotated[
        int | None, typer.Option(help="Cells of each at most; as usual if left out.")
    ] = None,
) -> None:
    """Prove ratios over [0.1 m, m], one line of DIR/ratios.jsonl each; what is there is kept."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / "ratios.jsonl"
    known = _known(file)
    for network, demands, paths in CONFIGURATIONS:
        name = f"{network}-{demands}-{paths}"
        if (configurations and name not in configurations) or name in known:
            continue
        asked = RouteSettings(
            network=network,
            demands=demands,
            paths=paths,
            path_choice="shortest",
            min_demand=LEAST,
            ratio=1.0,
            ratio_leaves=leaves,
            first_steps=steps,
            rounds=1 if steps else 0,
        )
        known[name] = {"configuration": name, **measured(asked)}
        with file.open("a") as stream:
            stream.write(json.dumps(known[name]) + "\n")
        say(json.dumps(known[name]))
    print(format_markdown(list(known.values())))
    print(words(list(known.values())))
    raise typer.Exit(KEPT if all(row["accepted"] for row in known.values()) else NOT_KEPT)


def _known(file: Path) -> dict[str, dict[str, Any]]:
    if not file.exists():
        return {}
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {row["configuration"]: row for row in rows}


def measured(asked: RouteSettings) -> dict[str, Any]:
    """One configuration: what is proven, by how many cells, and what the router does."""
    made = instance(asked.network, asked.demands, asked.paths, least=asked.min_demand)
    prepared = RoutingPreparation(asked, made)
    started = time.process_time()
    anchor = prepared.ratio
    assert anchor is not None
    proving = time.process_time() - started
    problem, settings = APPLICATION.training(prepared)
    router = solve(problem, settings).ensemble
    accepted = True
    try:
        checked = verdict(ratio_bytes(made, router, anchor)).seconds
    except Rejected as error:
        say(f"{asked.network}: {error}")
        accepted, checked = False, float("nan")
    ratios = _ratios(made, router)
    return {
        "oblivious": round(find_oblivious(made).level, 4),
        "static": round(find_oblivious(made, made.region).level, 4),
        "proven": anchor.ratio,
        "without cells": anchor.whole,
        "cells": anchor.leaves,
        "accepted": accepted,
        "mean": round(float(ratios.mean()), 4),
        "largest": round(float(ratios.max()), 4),
        "CPU s": round(proving, 1),
        "check s": round(checked, 1),
    }


def _ratios(made: Any, router: Ensemble) -> np.ndarray[Any, Any]:
    """MLU / optimum of a router at random demand vectors."""
    vectors = made.sample(SAMPLES, 12345)
    splits = predictions(router, vectors).numpy()
    return np.asarray(
        made.compute_utilisation(vectors, splits).max(axis=1) / made.find_optimal(vectors).mlu
    )


def words(rows: list[dict[str, Any]]) -> str:
    """Counts and means."""
    below = [row for row in rows if row["accepted"] and row["proven"] < row["oblivious"]]
    few = [row for row in below if int(row["configuration"].split("-")[-2]) == FEW]
    mean = float(np.mean([row["proven"] for row in below])) if below else float("nan")
    return (
        f"{len(below)} of {len(rows)} proven, accepted and below the oblivious ratio, "
        f"{len(few)} of them with {FEW} demands; mean {mean:.4f}"
    )


if __name__ == "__main__":
    raise SystemExit(command(ratio, "python -m experiments.ratio", "abilene-5-3 --out /tmp/ratios"))
