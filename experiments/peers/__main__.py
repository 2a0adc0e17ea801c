"""`python -m experiments.peers`: ours and other methods for hard rules, side by side."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer

from cg4ai.errors import InvalidInput, did_you_mean
from experiments.command import KEPT, NOT_KEPT, Again, command, say
from experiments.peers import classes, monotone, plain, quantiles, studies
from experiments.peers.outcomes import Outcome
from experiments.peers.parity import parity
from experiments.peers.report import commit, saved, stored, write_report
from experiments.peers.studies import Asked

STUDIES: Mapping[str, Callable[[Asked], list[Outcome]]] = {
    "qp": studies.qp,
    "rayen": studies.rayen,
    "hardnet": studies.hardnet,
    "layers": studies.layers_alone,
    "routing": studies.routing,
    "monotone": lambda asked: asked.measure(monotone.cells(asked.seeds)),
    "classes": lambda asked: asked.measure(classes.cells(asked.seeds)),
    "quantiles": lambda asked: asked.measure(quantiles.cells(asked.seeds)),
    "plain": lambda asked: asked.measure(plain.cells(asked.seeds)),
    "parity": parity,
}


def peers(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar=f"[{'|'.join(STUDIES)} ...]", help="Which; all if left out."),
    ] = None,
    *,
    seeds: Annotated[int, typer.Option(min=1, help="How many trainings of each method.")] = 3,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of their seeds.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Few steps, to see that it runs.")] = False,
    only: Annotated[
        str, typer.Option(metavar="METHOD", help="Methods whose name holds this, e.g. ours.")
    ] = "",
    jobs: Annotated[
        int, typer.Option(min=1, help="Cells measured at a time, in studies of tables.")
    ] = 1,
    force: Again = False,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="DC3's test files; a problem of their kind if unset."),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where figures are kept, for later reports.")
    ] = Path("peers-results"),
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Markdown report; DIR/results.md if unset.")
    ] = None,
) -> None:
    """Train ours and its peers on DC3's, RAYEN's and HardNet's problems, on routing and on tables.

    One core each, time as processor time. Figures are kept in DIR, and the report is made from
    all that are there. In studies of tables (monotone, classes, quantiles, plain) only what is
    missing is run; in the others figures of the same method, task and seed are replaced. Exit code
    0: ours broke no rule anywhere; 3: it did.
    """
    for name in names or ():
        if name not in STUDIES:
            raise InvalidInput(
                f"unknown study {name!r}{did_you_mean(name, STUDIES)}; use {', '.join(STUDIES)}"
            )
    torch.set_num_threads(1)
    outcomes: list[Outcome] = []
    begun = commit()
    for name in names or STUDIES:
        found: list[Outcome] = []

        def keep(outcome: Outcome, name: str = name, found: list[Outcome] = found) -> None:
            found.append(outcome if outcome.commit else replace(outcome, commit=begun))
            saved(out, name, found, quick=quick)

        known = [] if force else stored(out / f"{name}.json")
        asked = Asked(
            range(first_seed, first_seed + seeds), quick, only, data, say, keep, jobs, known
        )
        outcomes += STUDIES[name](asked)
    target = report or out / "results.md"
    write_report(target, out)
    print(f"Report: {target}")
    raise typer.Exit(KEPT if all(one.kept for one in outcomes) else NOT_KEPT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return command(peers, "python -m experiments.peers", "qp rayen --seeds 3", arguments)


if __name__ == "__main__":
    sys.exit(main())
