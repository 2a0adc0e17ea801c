"""`python -m experiments.peers`: ours and other methods for hard rules, side by side."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer

from cg4ai.errors import InvalidInput, did_you_mean
from experiments.command import KEPT, NOT_KEPT, command, say
from experiments.peers import studies
from experiments.peers.outcomes import Outcome
from experiments.peers.report import saved, write_report
from experiments.peers.studies import Asked

STUDIES: Mapping[str, Callable[[Asked], list[Outcome]]] = {
    "qp": studies.qp,
    "rayen": studies.rayen,
    "hardnet": studies.hardnet,
    "routing": studies.routing,
}


def peers(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[qp|rayen|hardnet|routing ...]", help="Which; all if left out."),
    ] = None,
    *,
    seeds: Annotated[int, typer.Option(min=1, help="How many trainings of each method.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="Few steps, to see that it runs.")] = False,
    only: Annotated[
        str, typer.Option(metavar="METHOD", help="Methods whose name holds this, e.g. ours.")
    ] = "",
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
    """Train ours and its peers on DC3's, RAYEN's and HardNet's problems and on routing.

    One core each, time as processor time. Figures are kept in DIR, where those of the same method
    and task are replaced, and the report is made from all that are there. Exit code 0: ours broke
    no rule anywhere; 3: it did.
    """
    for name in names or ():
        if name not in STUDIES:
            raise InvalidInput(
                f"unknown study {name!r}{did_you_mean(name, STUDIES)}; use {', '.join(STUDIES)}"
            )
    torch.set_num_threads(1)
    outcomes: list[Outcome] = []
    for name in names or STUDIES:
        found: list[Outcome] = []

        def keep(outcome: Outcome, name: str = name, found: list[Outcome] = found) -> None:
            found.append(outcome)
            saved(out, name, found, quick=quick)

        STUDIES[name](Asked(range(seeds), quick, only, data, say, keep))
        outcomes += found
    target = report or out / "results.md"
    write_report(target, out)
    print(f"Report: {target}")
    raise typer.Exit(KEPT if all(one.kept for one in outcomes) else NOT_KEPT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return command(peers, "python -m experiments.peers", "qp rayen --seeds 3", arguments)


if __name__ == "__main__":
    sys.exit(main())
