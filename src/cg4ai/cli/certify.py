"""`cg4ai certify`: its options and help; the work is in certify_run.py."""

from __future__ import annotations

from typing import Annotated

import typer

from cg4ai.cli.completion import RunFolder


def certify(
    folder: RunFolder,
    *,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Give up after this time.")
    ] = 600.0,
    cells: Annotated[int, typer.Option(help="Give up after this many cells.")] = 5_000_000,
    memory_limit: Annotated[
        float, typer.Option(metavar="GIB", help="Give up rather than take more memory.")
    ] = 4.0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Parts of the proof worked on at once; -1: as many as cores."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from a search that gave up.")
    ] = False,
    unshielded: Annotated[
        bool,
        typer.Option("--unshielded", help="Prove it of the mixture behind a shield of the whole."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Prove that no input of the region breaks a rule of the run in RUN, or find one that does.

    Of a run behind a shield it is proven that the anchor keeps the rules, on which every
    prediction rests. Writes RUN/certificate.cg4ai once all rules are proven. Exit code 0: proven;
    1: refuted (the input is printed) or unknown (continue with --resume); 2: bad input.
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
