"""The command `cg4ai`: the names of its commands, in the order of help, and how errors end.

Nothing heavy is imported here, so that `cg4ai --help` answers at once. Exit codes: 0 all
requirements met; 1 unexpected failure, for certify and check: not proven, for doctor: it does not
work; 2 bad input; 3 some requirement or guarantee not met; 130 interrupted.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from cg4ai.apps.digits.settings import DigitsSettings
from cg4ai.apps.tabular.settings import TrainSettings
from cg4ai.cli.audit import audit
from cg4ai.cli.certify import certify
from cg4ai.cli.check import check
from cg4ai.cli.demo import demo
from cg4ai.cli.doctor import doctor
from cg4ai.cli.explore import explore
from cg4ai.cli.export import export
from cg4ai.cli.failures import failures
from cg4ai.cli.new_network import NEW_NETWORK_EXAMPLES, new_network
from cg4ai.cli.options import settings_command
from cg4ai.cli.patch import patch
from cg4ai.cli.predict import predict
from cg4ai.cli.report import report
from cg4ai.cli.serve import serve
from cg4ai.cli.show import show
from cg4ai.cli.training import (
    DIGITS_EXAMPLE,
    ROUTE_EXAMPLES,
    TRAIN_EXAMPLE,
    digits,
    route,
    train,
)
from cg4ai.errors import Cg4aiError, SolverFailure, out_of_memory
from cg4ai.routing.settings import RouteSettings

FAILURE, BAD_INPUT, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    help="Train models that keep hard rules, and say what is guaranteed.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` are the process's own if None."""
    return guarded(app, arguments, "cg4ai")


def guarded(commands: typer.Typer, arguments: Sequence[str] | None, name: str) -> int:
    """Run commands with every expected error as one line and an exit code."""
    try:
        commands(args=None if arguments is None else list(arguments), prog_name=name)
    except SystemExit as ended:  # typer makes it of a KeyboardInterrupt, too
        code = ended.code if isinstance(ended.code, int) else FAILURE
        # whoever presses Ctrl-C twice gets no traceback
        if code == INTERRUPTED and arguments is None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return code
    except Cg4aiError as error:
        # notes say in which of several jobs it was
        text = "; ".join([str(error), *getattr(error, "__notes__", ())])
        print(f"error: {_one_line(text)}", file=sys.stderr)
        return FAILURE if isinstance(error, SolverFailure) else BAD_INPUT
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        text = "there is not enough memory; ask for smaller or fewer members or data"
        print(f"error: {text}", file=sys.stderr)
        return FAILURE
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


settings_command(
    app,
    TrainSettings,
    train,
    short_help="Train on a CSV file under rules.",
    epilog=TRAIN_EXAMPLE,
)
app.command(
    short_help="Predict with a trained mixture.",
    epilog="\b\nExamples:\n  cg4ai predict run new_patients.csv --output predictions.csv\n"
    "  cg4ai predict router demands.csv --details\n"
    "  cat demands.json | cg4ai predict router - --format json",
)(predict)
app.command(
    short_help="Answer predictions over HTTP.",
    epilog="\b\nExamples:\n  cg4ai serve router\n"
    "  CG4AI_TOKEN=secret cg4ai serve run --host 0.0.0.0 --port 8080 --watch 5\n"
    "  curl --silent localhost:8000/example | curl --silent localhost:8000/predict --data @-",
)(serve)
app.command(
    short_help="Check rules against a trained mixture.",
    epilog="\b\nExample:\n  cg4ai audit run --rules rules.json --data new_patients.csv",
)(audit)
app.command(
    short_help="Add rules or cases to a finished run.",
    epilog="\b\nExample:\n  cg4ai patch run --add rule.json --out patched",
)(patch)
app.command(
    short_help="Show a run: settings, history, result.",
    epilog="\b\nExample:\n  cg4ai show run",
)(show)
app.command(
    short_help="Write a page to move inputs on and look at a run.",
    epilog="\b\nExamples:\n  cg4ai explore router\n  cg4ai explore run --out model.html",
)(explore)
app.command(
    short_help="Write the report of a run, or of all runs in a folder.",
    epilog="\b\nExamples:\n  cg4ai report run\n  cg4ai report runs --out runs.html",
)(report)
app.command(
    name="new-network",
    short_help="Check a network file of your own and write it for route.",
    epilog=NEW_NETWORK_EXAMPLES,
)(new_network)
settings_command(
    app,
    RouteSettings,
    route,
    short_help="Train a router that overloads no link.",
    epilog=ROUTE_EXAMPLES,
)
app.command(
    short_help="Study what failures of links do to a router.",
    epilog="\b\nExamples:\n  cg4ai failures router\n  cg4ai failures router a-b,c-d\n"
    "  cg4ai failures router cables.csv --jobs 2",
)(failures)
app.command(
    short_help="Prove the rules of a run over their whole region.",
    epilog="\b\nExample:\n  cg4ai certify router --time-limit 300",
)(certify)
app.command(
    short_help="Verify a certificate with independent code.",
    epilog="\b\nExample:\n  cg4ai check router/certificate.cg4ai --run router",
)(check)
app.command(
    short_help="Write a run as ONNX, for torch, or as agents.",
    epilog="\b\nExamples:\n  cg4ai export run --onnx model.onnx\n"
    "  cg4ai export router --agents agents",
)(export)
settings_command(
    app,
    DigitsSettings,
    digits,
    short_help="Train a digit classifier that answers listed images right.",
    epilog=DIGITS_EXAMPLE,
)
app.command(
    short_help="A demonstration on built-in data, in half a minute.",
    epilog="\b\nExample:\n  cg4ai demo --data cancer --out tumours",
)(demo)
app.command(
    short_help="Say what is installed and whether it works.",
    epilog="\b\nExample:\n  cg4ai doctor --json",
)(doctor)


if __name__ == "__main__":
    sys.exit(main())
