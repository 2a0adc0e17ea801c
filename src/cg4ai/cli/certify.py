"""`cg4ai certify`: its options and help; the work is in certify_run.py."""

from __future__ import annotations

from typing import Annotated

import typer

from cg4ai.cli.completion import RunFolder


def certify(
    folder: RunFolder,
    *,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time limit of the proof.")
    ] = 600.0,
    cells: Annotated[int, typer.Option(help="Largest number of cells.")] = 5_000_000,
    memory_limit: Annotated[
        float, typer.Option(metavar="GIB", help="Memory limit of the proof.")
    ] = 4.0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", help="Parts of the proof computed at a time; -1: one per core."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a proof that reached a limit.")
    ] = False,
    unshielded: Annotated[
        bool,
        typer.Option(
            "--unshielded", help="Prove the mixture itself, without the shield around it."
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Prove that no input of the region violates a rule of the run in RUN, or find one that does.

    For a run behind a shield the proof is about the anchor, because the shield moves predictions
    towards it. Writes RUN/certificate.cg4ai when all rules are proven. Exit code 0: proven; 1:
    refuted (the input is printed) or unknown (continue with --resume); 2: bad input.
    """
    from cg4ai.cli import certify_run as certifying

    options = certifying.CertifyOptions(
        time_limit_s=time_limit,
        cells=cells,
        memory_gib=memory_limit,
        device=device,
        jobs=jobs,
        resume=resume,
        unshielded=unshielded,
        quiet=quiet,
    )
    raise typer.Exit(certifying.run(folder, options))
