"""`cg4ai digits`: its options and help."""

from __future__ import annotations

from typing import Annotated

import typer

from cg4ai.cli.options.shared import (
    Device,
    Force,
    GroupLimit,
    Images,
    Json,
    NewFolder,
    Quiet,
    Resume,
    Threads,
    progress_of,
    seconds_of,
)


def digits(
    scenario: Annotated[
        str,
        typer.Argument(metavar="SCENARIO", help="plain, hard, robust, correct or relabel."),
    ],
    *,
    n: Annotated[int, typer.Option("--n", help="Training images, a multiple of 10.")] = 100,
    rule: Annotated[
        str, typer.Option(help="margin (averages logits) or probability (averages those).")
    ] = "margin",
    hard_per_class: Annotated[
        int | None,
        typer.Option(help="Images per class that are rows, others train; unset: all do both."),
    ] = None,
    constraints_only: Annotated[
        bool, typer.Option("--constraints-only", help="Rows alone, no loss.")
    ] = False,
    augment: Annotated[
        bool, typer.Option("--augment", help="Train on affine copies too; they are never rows.")
    ] = False,
    data: Images = None,
    hidden: Annotated[int, typer.Option(help="Hidden neurons of a member.")] = 4,
    attack: Annotated[str, typer.Option(help="For robust: flips, smallest or both.")] = "flips",
    pixels: Annotated[int, typer.Option(help="For robust: pixels that may be flipped.")] = 100,
    out: NewFolder = None,
    time_limit: GroupLimit = None,
    seed: Annotated[int, typer.Option(help="Of the training images and the members.")] = 0,
    device: Device = "cpu",
    threads: Threads = 2,
    resume: Resume = False,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train a mixture of small networks on images of digits, with rules on listed images.

    Scenarios: plain (no rules), hard (listed images must be right), robust (attacked images too),
    correct (what the base member gets wrong), relabel (a 3 becomes a 2). Exit code 0: every
    required image is answered as demanded; 3: some are not; 2: bad input; 130: interrupted.
    """
    from cg4ai.apps.digits.saved import Wanted
    from cg4ai.cli import digits as command

    wanted = Wanted(
        scenario=scenario,  # type: ignore[arg-type]  # checked there
        n=n,
        rule=rule,  # type: ignore[arg-type]
        hard_per_class=hard_per_class,
        constraints_only=constraints_only,
        augment=augment,
        data=data,
        hidden=hidden,
        attack=attack,  # type: ignore[arg-type]
        pixels=pixels,
        seed=seed,
        device=device,
        threads=threads,
        time_limit_s=seconds_of(time_limit),
    )
    options = command.DigitsOptions(
        out=out,
        resume=resume,
        force=force,
        progress=progress_of(json=json, quiet=quiet),
    )
    raise typer.Exit(command.run(wanted, options))
