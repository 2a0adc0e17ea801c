"""Certified routers on all configurations: time to a proof, gaps, and the independent check.

    python -m benchmarks.bench_certified --out runs/certified [--configurations abilene-5-3 ...]

Each configuration is trained with `--guarantee certified` for at most 270 s, which is what a time
limit of 300 s leaves for it, its certificate is written and checked by the program that shares no
code with the certifier. With `--processor` seconds are those of the processor: on a machine that
is shared the clock would tell of the others' work.
Finished configurations in --out are not run again; the table is made of all that are there.
`--jobs` are proven at once, in processes of their own, which on a GPU share it.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cg4ai.parallel import iterate_as_completed
from cg4ai.report.tables import format_markdown
from cg4ai.routing import instance
from cg4ai.routing.prove.guarantee import proof_summary, train_certified, write_proof
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.problem import routing_problem, routing_settings
from cg4ai.runs import files
from cg4ai.seeds import derive_seed
from cg4ai_checker import check
from cg4ai_checker.errors import Rejected
from experiments.routing.reproduce import NAMES

LIMIT_S = 270.0


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    if options.processor:
        time.perf_counter = time.process_time
    torch.set_num_threads(options.threads)
    if options.device != "cpu":
        torch.empty(0, device=options.device)  # what a process pays once is not of a run
    out, network, demands, paths = options.out, *name.rsplit("-", 2)
    started = time.perf_counter()
    made = instance(network, int(demands), int(paths))
    recipe = Recipe(device=options.device)
    problem = routing_problem(made, recipe)
    limit = options.limit - (time.perf_counter() - started)
    settings = routing_settings(made, recipe, time_limit_s=limit)
    outcome = train_certified(
        problem, settings, progress=lambda r: print(name, r.iteration, r.note, flush=True)
    )
    seconds = time.perf_counter() - started
    ensemble, answer = outcome.result.ensemble, outcome.certification
    vectors = made.sample(10_000, derive_seed(recipe.seed, 0, "validation"))
    gaps = made.compute_utilisation(vectors, ensemble.predict(vectors)).max(axis=1)
    gaps = gaps - made.find_optimal(vectors).mlu
    row: dict[str, Any] = {
        "configuration": name,
        "proven": answer.status == "proven",
        "seconds": seconds,
        "rounds": len(outcome.result.history),
        "cells": answer.cells,
        "proof_s": answer.seconds,
        "members": len(ensemble),
        "mean_gap": float(gaps.mean()),
        "largest_gap": float(gaps.max()),
        "checked": "",
        **_short(proof_summary(made, answer)["proof"]),
    }
    if answer.status == "proven":
        folder = ensemble.save(out / name)
        write_proof(folder, made, ensemble, answer)
        row |= _checked(folder / "certificate.cg4ai")
    files.write_json(out / f"{name}.json", row)
    return row


def _short(proof: dict[str, Any]) -> dict[str, Any]:
    left = proof["resisting"]
    links = ", ".join("->".join(entry["link"]) for entry in left[:3])
    return {"best_bound": proof["best_bound"], "resisting": links}


def _checked(path: Path) -> dict[str, Any]:
    started = time.perf_counter()
    try:
        check(path)
        accepted = "accepted"
    except Rejected as error:
        accepted = f"rejected: {error}"
    return {
        "checked": accepted,
        "check_s": time.perf_counter() - started,
        "certificate_kb": path.stat().st_size / 1000,
    }


def table(out: Path) -> str:
    rows = [json.loads((out / f"{n}.json").read_text()) for n in NAMES if _done(out, n)]
    if not rows:
        return "nothing is finished yet"
    proven = [row for row in rows if row["proven"]]
    gaps = [row["mean_gap"] for row in proven] or [np.nan]
    accepted = sum(row["checked"] == "accepted" for row in rows)
    seconds = sum(row["seconds"] for row in rows)
    return (
        f"{len(proven)} of {len(rows)} proven, {accepted} certificates accepted; mean gap of the "
        f"proven {np.mean(gaps):.4f} on average, at most {np.max(gaps):.4f}; seconds of training "
        f"and proof {seconds:.0f} in sum\n\n{format_markdown(rows)}"
    )


def _done(out: Path, name: str) -> bool:
    return (out / f"{name}.json").exists()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--configurations", nargs="+", default=list(NAMES), metavar="NETWORK-D-P")
    parser.add_argument("--out", type=Path, default=Path("runs/certified"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--jobs", type=int, default=1, help="configurations at once")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of each")
    parser.add_argument("--processor", action="store_true", help="count processor seconds")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    left = [name for name in options.configurations if not _done(options.out, name)]
    started = time.perf_counter()
    for row in iterate_as_completed(partial(measure, options=options), left, n_jobs=options.jobs):
        print(json.dumps(row), flush=True)
    passed = time.perf_counter() - started
    text = f"{len(left)} in {passed:.0f} s, {options.jobs} at once. {table(options.out)}"
    (options.out / "certified.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
