"""`cg4ai train`: its options and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cg4ai.cli.options.shared import (
    DataFile,
    Device,
    Force,
    Json,
    Quiet,
    Resume,
    RulesFile,
    Seed,
    progress_of,
)


def train(
    data: DataFile,
    *,
    target: Annotated[str, typer.Option(metavar="COLUMN", help="Column to predict.")],
    rules: RulesFile,
    out: Annotated[Path, typer.Option(metavar="DIR", help="New folder for the run.")],
    task: Annotated[
        str | None,
        typer.Option(metavar="TASK", help="classification or regression; guessed if left out."),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column that is no feature (repeatable)."),
    ] = None,
    members: Annotated[
        str, typer.Option(help="network, affine, stump, tree, forest or boosting; or several: a,b.")
    ] = "network",
    scores: Annotated[
        str, typer.Option(help="Classification scores: probability or logit.")
    ] = "probability",
    hidden: Annotated[str, typer.Option(help="Hidden layer sizes of networks, e.g. 32,16.")] = "16",
    restarts: Annotated[int, typer.Option(help="Networks trained per iteration.")] = 4,
    steps: Annotated[int, typer.Option(help="Training steps per network.")] = 300,
    column_limit: Annotated[int, typer.Option(help="Stop at this many members.")] = 100,
    iteration_limit: Annotated[int, typer.Option(help="Stop after this many iterations.")] = 15,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Begin no iteration after this.")
    ] = None,
    final_weights: Annotated[str, typer.Option(help="loss, uniform or vertex.")] = "loss",
    seed: Seed = 0,
    device: Device = "cpu",
    threads: Annotated[
        int, typer.Option(help="CPU threads; more than 1 pays off for large data only.")
    ] = 1,
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting (repeatable)."),
    ] = None,
    resume: Resume = False,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train a mixture of models on DATA.csv that keeps the rules of RULES.json.

    Prints what is guaranteed and how that was established. Exit code 0: all requirements are met;
    3: some are not; 2: bad input; 130: interrupted (continue with --resume).
    """
    from cg4ai.cli import train as command

    options = command.TrainOptions(
        data=data,
        target=target,
        rules=rules,
        out=out,
        task=task,
        ignore=tuple(ignore or ()),
        members=members,
        scores=scores,
        hidden=hidden,
        restarts=restarts,
        steps=steps,
        column_limit=column_limit,
        iteration_limit=iteration_limit,
        time_limit=time_limit,
        final_weights=final_weights,
        seed=seed,
        device=device,
        threads=threads,
        assign=tuple(assign or ()),
        resume=resume,
        force=force,
        progress=progress_of(json=json, quiet=quiet),
    )
    raise typer.Exit(command.run(options))
