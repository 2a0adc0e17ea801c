"""The command `cg4ai`: the names of its commands, in the order of help, and how errors end.

Nothing heavy is imported here, so that `cg4ai --help` answers at once. Exit codes: 0 all
requirements met; 1 unexpected failure, for certify and check: not proven, for doctor: it does not
work; 2 bad input; 3 some requirement or guarantee not met; 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from cg4ai.apps.tabular.settings import TrainSettings
from cg4ai.cli.check import check
from cg4ai.cli.demo import demo
from cg4ai.cli.doctor import doctor
from cg4ai.cli.failures import failures
from cg4ai.cli.new_network import NEW_NETWORK_EXAMPLES, new_network
from cg4ai.cli.options import settings_command
from cg4ai.cli.program import add_run_commands, new_program, run_guarded
from cg4ai.cli.training import ROUTE_EXAMPLES, TRAIN_EXAMPLE, route, train
from cg4ai.cli.update import UPDATE_EXAMPLES, update
from cg4ai.routing.settings import RouteSettings

EXAMPLES = {
    "predict": (
        "cg4ai predict run new_patients.csv --output predictions.csv",
        "cg4ai predict router demands.csv --details",
        "cat demands.json | cg4ai predict router - --format json",
    ),
    "serve": (
        "cg4ai serve router",
        "CG4AI_TOKEN=secret cg4ai serve run --host 0.0.0.0 --port 8080 --watch 5",
        "curl --silent localhost:8000/example | curl --silent localhost:8000/predict --data @-",
    ),
    "audit": ("cg4ai audit run --rules rules.json --data new_patients.csv",),
    "patch": ("cg4ai patch run --add rule.json --out patched",),
    "show": ("cg4ai show run",),
    "explore": ("cg4ai explore router", "cg4ai explore run --out model.html"),
    "report": ("cg4ai report run", "cg4ai report runs --out runs.html"),
    "certify": ("cg4ai certify router --time-limit 300",),
    "export": ("cg4ai export run --onnx model.onnx", "cg4ai export router --agents agents"),
}

app = new_program("Train models that keep hard rules, and state what is guaranteed.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` are the process's own if None."""
    return run_guarded(app, arguments, "cg4ai")


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
settings_command(
    app,
    RouteSettings,
    route,
    short_help="Train a router that overloads no link.",
    epilog=ROUTE_EXAMPLES,
)
app.command(
    name="new-network",
    short_help="Check and convert a network file of your own.",
    epilog=NEW_NETWORK_EXAMPLES,
)(new_network)
add_run_commands(app, EXAMPLES)
app.command(
    short_help="Make a router for each failure of links.",
    epilog="\b\nExamples:\n  cg4ai failures router\n  cg4ai failures router a-b,c-d\n"
    "  cg4ai failures router cables.csv --jobs 2",
)(failures)
app.command(
    short_help="Update a router after a change of traffic or network.", epilog=UPDATE_EXAMPLES
)(update)
app.command(
    short_help="Verify a certificate with independent code.",
    epilog="\b\nExample:\n  cg4ai check router/certificate.cg4ai --run router",
)(check)
app.command(
    short_help="Run a demonstration on built-in data (half a minute).",
    epilog="\b\nExample:\n  cg4ai demo --data cancer --out tumours",
)(demo)
app.command(
    short_help="Report what is installed and whether it works.",
    epilog="\b\nExample:\n  cg4ai doctor --json",
)(doctor)


if __name__ == "__main__":
    sys.exit(main())
