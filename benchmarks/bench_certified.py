"""Certified routers on all configurations: time to a proof, gaps, and the independent check.

    python -m benchmarks.bench_certified --jobs 16 --threads 1 --time-limit 150 --out runs/certified

Each configuration is trained with `--guarantee certified` for at most nine tenths of --time-limit,
which is what a run of that limit leaves for it; its certificate is written and checked by the
program that shares no code with the certifier. Those with most demands begin, since they take
longest. With `--processor` seconds are those of the processor: on a machine that is shared the
clock would tell of the others' work.
Finished configurations in --out are not run again; certified.md and certified.json there are made
of all that are there, after each that ends.
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
from cg4ai.routing.prove.guarantee import (
    certified_problem,
    proof_summary,
    train_certified,
    write_proof,
)
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.problem import routing_settings
from cg4ai.runs import files
from cg4ai.seeds import derive_seed
from cg4ai_checker import check
from cg4ai_checker.errors import Rejected
from experiments.routing.reproduce import NAMES

LIMIT_S = 300.0
TRAINING_SHARE = 0.9  # of a time limit, the rest is for the evaluation
AIMED_MEAN, AIMED_EACH = 0.004, 0.01


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    if options.processor:
        time.perf_counter = time.process_time
    torch.set_num_threads(options.threads)
    if options.device != "cpu":
        torch.empty(0, device=options.device)  # what a process pays once is not of a run
    out, network, demands, paths = options.out, *name.rsplit("-", 2)
    started = time.perf_counter()
    made = instance(network, int(demands), int(paths))
    recipe = Recipe(device=options.device, seed=options.seed)
    problem = certified_problem(made, recipe)
    limit = TRAINING_SHARE * options.time_limit - (time.perf_counter() - started)
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
        "with_evaluation_s": time.perf_counter() - started,
        "rounds": len(outcome.result.history),
        "groups": sum(record.trainings or 0 for record in outcome.result.history),
        "stop": str(outcome.result.stop_reason),
        "cut": "; ".join(outcome.result.cut),
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
    """Totals against what is aimed at, and a line for each configuration; both as JSON, too."""
    rows = [json.loads((out / f"{n}.json").read_text()) for n in NAMES if _done(out, n)]
    for row in rows:
        row.pop("sha256", None)  # of its file
    if not rows:
        return "nothing is finished yet"
    proven = [row for row in rows if row["proven"]]
    gaps = np.array([row["mean_gap"] for row in proven] or [np.nan])
    seconds = [row["seconds"] for row in rows]
    worst = max(proven, key=lambda row: row["mean_gap"])["configuration"] if proven else ""
    totals: dict[str, Any] = {
        "finished": len(rows),
        "proven": len(proven),
        "accepted": sum(row["checked"] == "accepted" for row in rows),
        "mean_gap": float(gaps.mean()),
        "mean_gap_of_the_worst": float(gaps.max()),
        "worst": worst,
        "within_the_aim": int((gaps <= AIMED_EACH).sum()),
        "largest_gap": max((row["largest_gap"] for row in proven), default=np.nan),
        "longest_s": max(seconds),
        "sum_s": sum(seconds),
    }
    files.write_json(out / "certified.json", {"totals": totals, "configurations": rows})
    return (
        f"{len(proven)} of {len(rows)} proven, {totals['accepted']} certificates accepted.\n"
        f"Mean gap of the proven {gaps.mean():.4f} on average (aim {AIMED_MEAN}), at most "
        f"{gaps.max():.4f} ({worst}); {totals['within_the_aim']} at most {AIMED_EACH}.\n"
        f"Seconds of training and proof {max(seconds):.0f} at most, {sum(seconds):.0f} in sum."
        f"\n\n{format_markdown(rows)}"
    )


def count_demands(name: str) -> int:
    return int(name.rsplit("-", 2)[1])


def _done(out: Path, name: str) -> bool:
    return (out / f"{name}.json").exists()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--configurations", nargs="+", default=list(NAMES), metavar="NETWORK-D-P")
    parser.add_argument("--out", type=Path, default=Path("runs/certified"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--jobs", type=int, default=1, help="configurations at once")
    parser.add_argument("--time-limit", type=float, default=LIMIT_S, help="seconds of each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processor", action="store_true", help="count processor seconds")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    left = [name for name in options.configurations if not _done(options.out, name)]
    left.sort(key=count_demands, reverse=True)
    started = time.perf_counter()
    done = 0
    for row in iterate_as_completed(partial(measure, options=options), left, n_jobs=options.jobs):
        print(json.dumps(row), flush=True)
        done, passed = done + 1, time.perf_counter() - started
        text = f"{done} in {passed:.0f} s, {options.jobs} at once.\n{table(options.out)}"
        (options.out / "certified.md").write_text(text + "\n")
    print(table(options.out))


if __name__ == "__main__":
    main()
