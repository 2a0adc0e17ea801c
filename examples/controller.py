"""A controller's loop: demand matrices come as files, splits go out as JSON with lists of nodes.

Every CSV or JSON file in a folder is answered once by a trained router, in the order of names. Of
each demand the answer has the paths as lists of nodes with their shares, so that nothing has to be
taken apart again. It also says where the answer comes from (the router, or the linear program where
the demands lie outside the set or the router is not proven near the optimum), whether a link is
overloaded, and how many of the last matrices lay outside. What cannot be read is said and set
aside; the loop goes on.

    cg4ai route abilene --demands 5 --paths 3 --out router
    python examples/controller.py router matrices splits          # until interrupted
    python examples/controller.py router matrices splits --once   # what is there now

Without arguments it shows itself on a network of four nodes, trained in a moment.

Run: python examples/controller.py
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

from cg4ai.apps import LastAnswer, PredictionOptions, RunPredictor, perform, read_table
from cg4ai.errors import Cg4aiError
from cg4ai.routing import APPLICATION, RouteSettings

SUFFIXES = (".csv", ".json")
WINDOW = 100  # of the last matrices that drift is looked at over
TOLERATED = 1 + 1e-6  # utilisation that still counts as kept
MOST_FILES = 1000  # answered in one round: a folder that fills faster is no reason to hang


def answer(predictor: RunPredictor, file: Path, before: deque[LastAnswer]) -> list[dict[str, Any]]:
    """For each matrix of a file its demands, their paths with shares, and what is known of them."""
    table = read_table(file)
    # of a router with --churn answers follow the one before
    last = before[-1] if before else None
    found = predictor.predict(table, PredictionOptions(details=True), last=last)
    if found.last is not None:
        before.append(found.last)
    answers = []
    for row, outside in zip(found.rows, found.outside.tolist(), strict=True):
        demands: dict[str, list[dict[str, Any]]] = {}
        for column, nodes in found.paths.items():
            name = column.partition(" via ")[0]
            demands.setdefault(name, []).append({"path": list(nodes), "share": row[column]})
        fallback = "improved" if row.get("improved") else "program" if row.get("solved") else ""
        answers.append(
            {
                "demands": demands,
                "mlu": row["mlu"],
                "answered_by": fallback or "router",
                "outside": outside,
                "overloaded": row.get("overloaded", row["mlu"] > TOLERATED),
            }
        )
    return answers


def write(file: Path, content: Any) -> None:
    """Write whole or not at all, so that no reader meets half a file."""
    part = file.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1), encoding="utf-8")
    os.replace(part, file)


def look(
    predictor: RunPredictor,
    matrices: Path,
    splits: Path,
    recent: deque[bool],
    before: deque[LastAnswer],
) -> tuple[int, int]:
    """Answer the files that have no answer yet; how many were answered, and how many were bad."""
    done = bad = 0
    files = sorted(file for file in matrices.iterdir() if file.suffix in SUFFIXES)
    waiting = [file for file in files if not (splits / f"{file.name}.splits.json").exists()]
    for file in waiting[:MOST_FILES]:
        target = splits / f"{file.name}.splits.json"
        try:
            answers = answer(predictor, file, before)
        except Cg4aiError as error:
            bad += 1
            write(target, {"error": str(error)})
            print(f"{file.name}: {error}")
            continue
        recent.extend(one["outside"] for one in answers)
        done += 1
        write(target, {"drift": sum(recent) / len(recent), "answers": answers})
        worst, drift = max(one["mlu"] for one in answers), sum(recent) / len(recent)
        by = ", ".join(sorted({one["answered_by"] for one in answers}))
        print(
            f"{file.name}: {len(answers)} answered by {by}, worst MLU {worst:.3f}, "
            f"{drift:.0%} of the last {len(recent)} outside the set"
        )
    return done, bad


def run(router: Path, matrices: Path, splits: Path, *, once: bool, every_s: float = 1.0) -> int:
    """Look again and again, or once; how many files were answered."""
    predictor = RunPredictor.from_folder(router)
    splits.mkdir(parents=True, exist_ok=True)
    recent: deque[bool] = deque(maxlen=WINDOW)  # whether a matrix lay outside
    before: deque[LastAnswer] = deque(maxlen=1)
    total = 0
    try:
        while True:
            total += look(predictor, matrices, splits, recent, before)[0]
            if once:
                return total
            time.sleep(every_s)
    except KeyboardInterrupt:
        return total


LINKS = ("a,b", "a,c", "a,d", "b,d", "c,d", "b,c")
QUICK = {"scenarios": 30, "first_steps": 60, "rounds": 2, "batch_size": 64, "validation": 100}


def show(folder: Path) -> dict[str, float]:
    """Train a small router, put matrices into a folder, answer them; what came out, in numbers."""
    (folder / "links.csv").write_text(
        "\n".join(["source,target,capacity", *(f"{link},5" for link in LINKS)]) + "\n"
    )
    (folder / "volumes.csv").write_text("source,target,volume\na,d,4\nb,d,2\n")
    network = {"network": str(folder / "links.csv"), "demand_file": folder / "volumes.csv"}
    settings = RouteSettings.from_mapping({**network, **QUICK, "threads": 1})
    perform(APPLICATION, settings, out=folder / "router", report=False)
    matrices, splits = folder / "matrices", folder / "splits"
    matrices.mkdir()
    (matrices / "1-morning.csv").write_text("a->d,b->d\n3,1\n4,0.5\n")
    (matrices / "2-broken.csv").write_text("a->d,b->d\nmany,1\n")
    (matrices / "3-attack.json").write_text('[{"a->d": 40, "b->d": 1}]')
    total = run(folder / "router", matrices, splits, once=True)
    again = run(folder / "router", matrices, splits, once=True)
    read = [json.loads(file.read_text()) for file in sorted(splits.glob("*.json"))]
    answers = [one for content in read for one in content.get("answers", [])]
    paths = [path for one in answers for path in one["demands"].values()]
    sums = [sum(option["share"] for option in options) for options in paths]
    return {
        "answered": total,
        "answered_again": again,
        "refused": sum("error" in content for content in read),
        "rows": len(answers),
        "outside": sum(one["outside"] for one in answers),
        "overloaded": sum(one["overloaded"] for one in answers),
        "by_program": sum(one["answered_by"] == "program" for one in answers),
        "sum_missed": max(abs(one - 1) for one in sums),
        "paths": sum(len(options) for options in answers[0]["demands"].values()),
    }


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("router", nargs="?", type=Path, help="folder of a run of cg4ai route")
    parser.add_argument("matrices", nargs="?", type=Path, help="folder that matrices come into")
    parser.add_argument("splits", nargs="?", type=Path, help="folder that answers go into")
    parser.add_argument("--once", action="store_true", help="answer what is there, and end")
    given = parser.parse_args(arguments if arguments is not None else [])
    if given.router is None:
        with tempfile.TemporaryDirectory() as folder:
            return show(Path(folder))
    if given.matrices is None or given.splits is None:
        parser.error("give three folders: of the router, of matrices, of splits")
    return {"answered": run(given.router, given.matrices, given.splits, once=given.once)}


if __name__ == "__main__":
    main(sys.argv[1:])
