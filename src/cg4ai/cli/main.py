"""The command `cg4ai`: names and help; the work is done in files beside this one.

Commands with many options have a file of their own in `cg4ai.cli.options`; the others are here, all
in the order in which help lists them.

Nothing heavy is imported here, so that `cg4ai --help` answers at once. Exit codes: 0 all
requirements met; 1 unexpected failure, and for certify and check: not proven; 2 bad input; 3 some
requirement or guarantee not met; 130 interrupted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cg4ai.cli.options.digits import digits
from cg4ai.cli.options.route import route
from cg4ai.cli.options.shared import DataFile, Device, Quiet, RulesFile
from cg4ai.cli.options.train import train
from cg4ai.errors import Cg4aiError, InvalidInput, SolverFailure

FAILURE, BAD_INPUT, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    help="Train models that keep hard rules, and say what is guaranteed.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RunFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder that train wrote.")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` are the process's own if None."""
    return guarded(app, arguments, "cg4ai")


def guarded(commands: typer.Typer, arguments: Sequence[str] | None, name: str) -> int:
    """Run commands with every expected error as one line and an exit code."""
    try:
        commands(args=None if arguments is None else list(arguments), prog_name=name)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else FAILURE
    except Cg4aiError as error:
        print(f"error: {_one_line(str(error))}", file=sys.stderr)
        return FAILURE if isinstance(error, SolverFailure) else BAD_INPUT
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0


def _one_line(message: str) -> str:
    """A message of several lines joined, so that scripts find the whole error on one."""
    return re.sub(r"\s*\n\s*", "; ", re.sub(r":\s*\n\s*", ": ", message.strip()))


def _version(wanted: bool) -> None:
    if wanted:
        from cg4ai import __version__

        print(f"cg4ai {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


app.command(
    short_help="Train on a CSV file under rules.",
    epilog="\b\nExample:\n"
    "  cg4ai train patients.csv --target diagnosis --rules rules.json --out run",
)(train)


@app.command(
    short_help="Predict with a trained mixture.",
    epilog="\b\nExample:\n  cg4ai predict run new_patients.csv --output predictions.csv",
)
def predict(
    folder: RunFolder,
    data: DataFile,
    *,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Write here instead of to stdout.")
    ] = None,
) -> None:
    """Predict each row of DATA.csv; columns are matched by name, further ones are ignored."""
    from cg4ai.cli import predict as command

    command.run(folder, data, output=output)


@app.command(
    short_help="Check rules against a trained mixture.",
    epilog="\b\nExample:\n  cg4ai audit run --rules rules.json --data new_patients.csv",
)
def audit(
    folder: RunFolder,
    *,
    rules: RulesFile,
    data: Annotated[
        Path | None, typer.Option(metavar="DATA.csv", help="Data that the rules' rows refer to.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the audits as JSON.")] = False,
) -> None:
    """Recompute rules from the predictions of the mixture in DIR, on any data.

    Exit code 0: all hold; 3: some do not.
    """
    from cg4ai.cli import audit as command

    raise typer.Exit(command.run(folder, rules, data=data, as_json=json))


@app.command(
    short_help="Show a run: settings, history, result.",
    epilog="\b\nExample:\n  cg4ai show run",
)
def show(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder that train, route or digits wrote.")
    ],
) -> None:
    """Show the settings, the last iterations and the result of a run, finished or not."""
    from cg4ai.cli import show as command

    command.run(folder)


app.command(
    short_help="Train a router that overloads no link.",
    epilog="\b\nExamples:\n  cg4ai route abilene --demands 5 --paths 3 --out router\n"
    "  cg4ai route abilene --demands 15 --guarantee certified --time-limit 900 --out proven",
)(route)


@app.command(
    short_help="Prove the rules of a run over their whole region.",
    epilog="\b\nExample:\n  cg4ai certify router --time-limit 300",
)
def certify(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder that route or train wrote.")
    ],
    *,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Give up after this time.")
    ] = 600.0,
    cells: Annotated[int, typer.Option(help="Give up after this many cells.")] = 5_000_000,
    memory_limit: Annotated[
        float, typer.Option(metavar="GIB", help="Give up rather than take more memory.")
    ] = 4.0,
    device: Device = "cpu",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from a search that gave up.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Prove that no input of the region breaks a rule of the run in RUN, or find one that does.

    Writes RUN/certificate.cg4ai once all rules are proven. Exit code 0: proven; 1: refuted (the
    input is printed) or unknown (continue with --resume); 2: bad input.
    """
    from cg4ai.cli import certify as command

    options = command.CertifyOptions(
        time_limit_s=time_limit,
        cells=cells,
        memory_gib=memory_limit,
        device=device,
        resume=resume,
        quiet=quiet,
    )
    raise typer.Exit(command.run(folder, options))


@app.command(
    short_help="Verify a certificate with independent code.",
    epilog="\b\nExample:\n  cg4ai check router/certificate.cg4ai --run router",
)
def check(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Certificate that certify or route wrote.")
    ],
    *,
    folder: Annotated[
        Path | None,
        typer.Option("--run", metavar="DIR", help="Also compare with the mixture stored here."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Verify FILE from its own content alone, and say what it proves.

    Every bound is recomputed by code that shares nothing with the search that found the proof.
    Exit code 0: all is proven; 1: rejected; 2: the file cannot be read.
    """
    from cg4ai.cli import check as command

    raise typer.Exit(command.run(file, folder=folder, quiet=quiet))


app.command(
    short_help="Train a digit classifier that answers listed images right.",
    epilog="\b\nExample:\n  cg4ai digits hard --n 100 --rule margin --augment --out classifier",
)(digits)


@app.command(
    short_help="A two-minute demonstration on built-in data.",
    epilog="\b\nExample:\n  cg4ai demo --out demo-run",
)
def demo(
    *,
    data: Annotated[
        str, typer.Option(help="routing, or cancer: a tumour classifier under rules.")
    ] = "routing",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the trained mixture here.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same result.")] = 0,
) -> None:
    """Train a router of the network Abilene that overloads no link, beside one that may."""
    if data == "cancer":
        from cg4ai.cli import demo as tumours

        raise typer.Exit(tumours.run(out, seed=seed))
    if data != "routing":
        raise InvalidInput(f"--data must be routing or cancer, got {data!r}")
    from cg4ai.cli import demo_routing

    raise typer.Exit(demo_routing.run(out, seed=seed))


if __name__ == "__main__":
    sys.exit(main())
