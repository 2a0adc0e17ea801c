"""`python -m experiments.opf FILE.m ...`: dispatches that keep all limits of your own grids.

Reads MATPOWER cases (version 2). Loads lie within `--spread` of their nominal values, each on its
own. A predictor gives the dispatch of the generators in service: it balances the loads, also their
shunts, in every island, and keeps the limits of all generators and lines (rateA; 0: none) at every
load vector of the box, by the DC model of MATPOWER with taps and phase shifters. Costs are
polynomials of degree 2 at most. Nothing is learned from solved programs.

Left out, as in the study: reactive power, losses, limits of angle differences.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from cg4ai.errors import InvalidInput
from cg4ai.report.tables import format_markdown
from experiments.command import KEPT, NOT_KEPT, Device, Quiet, Seed, Threads, command, say, silent
from experiments.opf.dispatch import Dispatch
from experiments.opf.grid import build_grid
from experiments.opf.matpower import read_case
from experiments.opf.study import Asked, study

STEPS = 3000


def work(
    files: Annotated[list[Path], typer.Argument(metavar="FILE.m ...", help="MATPOWER cases.")],
    *,
    spread: Annotated[
        list[float] | None,
        typer.Option(help="Share by which each load may deviate; several: one for each file."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each file, from --seed on.")] = 1,
    seed: Seed = 0,
    steps: Annotated[int, typer.Option(help="Steps of training.")] = STEPS,
    tests: Annotated[int, typer.Option(help="Random loads whose optimum is solved.")] = 1000,
    looked_at: Annotated[
        int, typer.Option(help="Loads at which violations are sought, half of them corners.")
    ] = 100_000,
    proof_s: Annotated[
        float, typer.Option(help="Seconds for each certificate; 0: none is written.")
    ] = 60.0,
    device: Device = "cpu",
    threads: Threads = 1,
    quiet: Quiet = False,
) -> None:
    """Dispatches that keep all limits of a grid at every load of a box, close to least cost.

    Exit code 0: every grid has a guaranteed predictor; 3: not so; 2: bad input.
    """
    torch.set_num_threads(threads)
    shares = spread or [0.1]
    if len(shares) not in (1, len(files)):
        raise InvalidInput(
            f"give one --spread, or one for each of {len(files)} files; got {len(shares)}",
            code="shape",
        )
    if min(tests, looked_at, seeds) < 1 or steps < 0:
        raise InvalidInput("--tests, --looked-at and --seeds are at least 1", code="range")
    lines = []
    # all files are read first: an error in the last must not cost the runs before it
    grids = [build_grid(read_case(file)) for file in files]
    problems = [
        Dispatch(grid, share)
        for grid, share in zip(grids, np.resize(shares, len(grids)), strict=True)
    ]
    for problem in problems:
        for note in problem.grid.notes:
            say(f"{problem.grid.name}: {note}")
        for number in range(seed, seed + seeds):
            asked = Asked(steps, number, tests, looked_at, proof_s, device)
            line = study(problem, asked, silent if quiet else say)
            lines.append({"seed": number} | line)
            say(str(lines[-1]))
    names = list(dict.fromkeys(name for line in lines for name in line))
    print(
        format_markdown([{name: line.get(name, "-") for name in names} for line in lines], digits=3)
    )
    print(
        "\nLines that are not kept cannot reach their rate at any dispatch within limits that "
        "balances the loads."
    )
    kept = all(line.get("certificate") in ("accepted", "not asked") for line in lines)
    raise typer.Exit(KEPT if kept else NOT_KEPT)


if __name__ == "__main__":
    raise SystemExit(command(work, "python -m experiments.opf", "case118.m --spread 0.1"))
