"""`python -m experiments.routing.published`: the published method, run to its own end.

Several configurations side by side, each in a process of its own, whose NLopt searches (a job for
each link) and networks (a job for each demand) share `--jobs` processes. A run ends where the
paper's does: no network of any demand improves the master, and no search finds an overload. What is
reached is in DIR/progress.md and DIR/progress.json at any moment, so that a run that is cut off
says how far it came. The same command goes on later.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cg4ai.apps.runner import perform
from cg4ai.report.tables import format_markdown
from cg4ai.runs import files
from experiments.command import INTERRUPTED, KEPT, NOT_KEPT, Folder, Seed, command, say
from experiments.routing.paper import PAPER
from experiments.routing.paper_mode import PaperRouting, PaperSettings
from experiments.routing.reproduce import chosen, paper_row
from experiments.side_by_side import OF_ONE_RUN, stopped_at, why

EVALUATION_S = 60.0  # kept for attack and validation, at most a fifth of all
POLLED_S = 5.0
ENDED = ("no_improving_column", "optimal")  # the paper's own end
NAME = "python -m experiments.routing.published"


def quickest(count: int) -> list[str]:
    """The configurations that the paper reports as solved in the least time."""
    ranked = sorted(PAPER, key=lambda name: PAPER[name].total_time)
    return ["-".join(map(str, name)) for name in ranked[:count]]


def run_one(name: str, out: Path, *, jobs: int, seed: int, until: float) -> None:
    """Train and evaluate one configuration; what is left of the time then is for the evaluation."""
    network, demands, paths = name.rsplit("-", 2)
    left = until - time.time()
    asked = PaperSettings(
        network=network,
        demands=int(demands),
        paths=int(paths),
        seed=seed,
        jobs=jobs,
        threads=1,
        every_demand=True,
        training_limit_s=max(1.0, left - min(EVALUATION_S, left / 5)),
    )
    try:
        with stopped_at(until):
            perform(PaperRouting(), asked, out=out / name, resume=True, report=False)
    except OF_ONE_RUN as error:
        files.write_bytes(out / f"{name}.txt", why(error).encode())


@dataclass(frozen=True)
class Reached:
    """What a run folder says of one configuration, ended or not."""

    name: str
    folder: Path
    fault: str = ""

    def row(self) -> dict[str, Any]:
        history, cuts = (
            read_known_lines(self.folder / file) for file in ("history.jsonl", "cuts.jsonl")
        )
        last: Mapping[str, Any] = history[-1] if history else {}
        summary = self.summary()
        paper = paper_row(self.name)
        stopped = str(summary.get("stop_reason", "running" if not self.fault else self.fault))
        return {
            "configuration": self.name,
            "ended": "as the paper's" if stopped in ENDED else stopped,
            "#iter": len(history),
            "paper #iter": paper.iterations,
            "#cols": last.get("columns"),
            "paper #cols": paper.columns,
            "#rows": last.get("rows"),
            "paper #rows": paper.rows,
            "slack": last.get("slack"),
            "overload found, last": cuts[-1]["utilisation"] if cuts else None,
            "most": max((cut["utilisation"] for cut in cuts), default=None),
            "training s": last.get("total_s"),
            "paper s": paper.total_time,
            "separation s": sum(record["separation_s"] for record in history),
            "worst utilisation, attacked": summary.get("worst_utilisation"),
            "mean gap": summary.get("mean_mlu_gap"),
            "largest gap": summary.get("max_mlu_gap"),
            "val. loss": summary.get("split_loss"),
            "paper val. loss": known(paper.validation_loss),
        }

    def summary(self) -> Mapping[str, Any]:
        """Empty until the run has ended and was evaluated."""
        path = self.folder / "summary.json"
        return files.read_json(path) if path.exists() else {}


def known(value: float) -> float | None:
    """None for what the paper prints as NaN."""
    return None if math.isnan(value) else value


def read_known_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file that another process writes."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def write_progress(names: Sequence[str], out: Path, *, jobs: int, seconds: float) -> str:
    """Table and JSON of what all configurations have reached; returns the table."""
    rows = []
    for name in names:
        said = out / f"{name}.txt"
        rows.append(Reached(name, out / name, said.read_text() if said.exists() else "").row())
    title = (
        f"The method as published: {seconds:.0f} s passed, {jobs} processes for each "
        "configuration, an iteration prices every demand. Beside them the paper's figures."
    )
    shown = [{title: "-" if v is None else v for title, v in row.items()} for row in rows]
    text = f"{title}\n\n{format_markdown(shown)}"
    files.write_bytes(out / "progress.json", json.dumps(rows, indent=1).encode())
    files.write_bytes(out / "progress.md", text.encode())
    return text


def published(
    configurations: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NETWORK-D-P ...]",
            help="Which; the three that the paper solved in the least time if left out.",
        ),
    ] = None,
    *,
    out: Folder = Path("published-routing"),
    jobs: Annotated[
        int, typer.Option(metavar="N", help="Processes of each configuration; -1: all cores.")
    ] = 1,
    seconds: Annotated[
        float, typer.Option(help="In all; the same command goes on later.", min=1)
    ] = 540.0,
    seed: Seed = 0,
    one: Annotated[str | None, typer.Option(hidden=True)] = None,
    until: Annotated[float, typer.Option(hidden=True)] = 0.0,
) -> None:
    """Run the published method on some configurations, side by side, until it ends by itself.

    Exit code 0: all ended as the paper's do, with no overload found; 3: some did not; 130:
    interrupted.
    """
    if one is not None:
        run_one(one, out, jobs=jobs, seed=seed, until=until)
        return
    names = list(chosen(configurations)) if configurations else quickest(3)
    out.mkdir(parents=True, exist_ok=True)
    raise typer.Exit(run(names, out, jobs=jobs, seed=seed, seconds=seconds))


def run(names: Sequence[str], out: Path, *, jobs: int, seed: int, seconds: float) -> int:
    """Start the processes, write what they reach, and end them with the time."""
    started = time.time()
    until = started + seconds
    further = ["--out", str(out), "--jobs", str(jobs), "--seed", str(seed), "--until", str(until)]
    with open(out / "log.txt", "ab") as log:
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "experiments.routing.published", "--one", name, *further],
                stdout=log,
                stderr=log,
            )
            for name in names
        ]
        code = KEPT
        try:
            while any(process.poll() is None for process in running):
                time.sleep(min(POLLED_S, seconds / 10))
                write_progress(names, out, jobs=jobs, seconds=time.time() - started)
        except KeyboardInterrupt:
            code = INTERRUPTED
            for process in running:
                process.terminate()
    say(write_progress(names, out, jobs=jobs, seconds=time.time() - started))
    rows = [Reached(name, out / name).row() for name in names]
    kept = all(
        row["ended"] == "as the paper's" and row["worst utilisation, attacked"] <= 1 + 1e-6
        for row in rows
    )
    return code if code == INTERRUPTED else KEPT if kept else NOT_KEPT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return command(published, NAME, "newyork-5-5 --jobs 5 --seconds 540 --out published", arguments)


if __name__ == "__main__":
    sys.exit(main())
