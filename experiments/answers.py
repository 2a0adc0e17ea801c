"""`python -m experiments.answers`: proven gaps of single answers, and what the fallback costs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from cg4ai.report.tables import format_markdown
from cg4ai.routing import CONFIGURATIONS
from cg4ai.routing.app import APPLICATION
from cg4ai.routing.operate.answers import PRICES, LowerBound, improve_answers
from cg4ai.routing.settings import RouteSettings
from cg4ai.rules.violations import predictions
from experiments.command import KEPT, Folder, command, say

VECTORS, GAP = 10_000, 0.02


def answers(
    configurations: Annotated[
        list[str] | None, typer.Argument(metavar="[NETWORK-D-P ...]", help="Which; or all 41.")
    ] = None,
    *,
    out: Folder = Path("answers"),
) -> None:
    """Train routers as usual; at 10,000 vectors: proven gaps, answers improved, the rest solved."""
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for network, demands, paths in CONFIGURATIONS:
        name = f"{network}-{demands}-{paths}"
        if configurations and name not in configurations:
            continue
        asked = RouteSettings(network=network, demands=demands, paths=paths, protocol="paper")
        rows.append({"configuration": name, **measured(asked)})
        say(json.dumps(rows[-1]))
        with (out / "answers.jsonl").open("a") as stream:
            stream.write(json.dumps(rows[-1]) + "\n")
    print(format_markdown(rows))
    raise typer.Exit(KEPT)


def measured(asked: RouteSettings) -> dict[str, Any]:
    """One configuration: shares within the gap, and seconds of the processor."""
    prepared = APPLICATION.prepare(asked, None)
    task, made = APPLICATION.problem(prepared), prepared.instance
    solved = task.solver(task.problem, task.settings, progress=None, run=None)
    started = time.process_time()
    router = APPLICATION.conclude(prepared, task, solved, None).result.ensemble
    storing = time.process_time() - started
    bound = LowerBound(made, np.array(router.about[PRICES]))
    vectors = made.sample(VECTORS, 4321)
    predictions(router, vectors[:10])  # what is made on the first call is no part of the time
    started = time.process_time()
    splits = predictions(router, vectors).numpy()
    predicting = time.process_time() - started
    found = improve_answers(made, vectors, splits, bound=bound, fallback=GAP)
    ours = time.process_time() - started
    started = time.process_time()
    best = made.find_optimal(vectors).mlu  # values alone, warm from vector to vector
    solving = time.process_time() - started
    true = (
        made.compute_utilisation(vectors, found.splits).max(axis=1) / np.maximum(best, 1e-300) - 1
    )
    left = (found.improved | found.solved).mean()
    return {
        "prices": len(bound.prices),
        "router's within 2 %": round(1 - float(left), 4),
        "improved": int(found.improved.sum()),
        "proven within 2 %": round(1 - float(found.solved.mean()), 4),
        "solved": int(found.solved.sum()),
        "largest gap after": round(float(true.max()), 4),
        "storing s": round(storing, 2),
        "predicting s": round(predicting, 3),
        "ours s": round(ours, 3),
        "warm LP s": round(solving, 3),
        "times": round(solving / ours, 1),
    }


if __name__ == "__main__":
    raise SystemExit(
        command(answers, "python -m experiments.answers", "abilene-5-3 --out /tmp/answers")
    )
