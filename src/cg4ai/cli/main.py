"""The command `cg4ai`: the names of its commands, in the order of help, and how errors end.

Nothing heavy is imported here, so that `cg4ai --help` answers at once. Exit codes: 0 all
requirements met; 1 unexpected failure, for certify and check: not proven, for doctor: it does not
work; 2 bad input; 3 some requirement or guarantee not met; 4 predict: more drift than allowed; 130
interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import cg4ai.routing  # noqa: F401  # registers its application
from cg4ai.cli.program import Command, add_commands, new_program, run_commands, run_guarded

EXAMPLES = {
    "predict": (
        "cg4ai predict run new_patients.csv --output predictions.csv",
        "cg4ai predict router demands.csv --details",
        "cg4ai predict router hour.csv --fail-on-drift 0.05 --output splits.csv",
        "cg4ai predict router demands.csv --failed Lodz-Warsaw --no-fallback",
        "cg4ai predict router now.csv --churn 0.05 --previous splits.csv",
        "cg4ai predict next matrices.npz --history --output splits.csv",
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

COMMANDS = (
    Command(
        "cg4ai.cli.training:train",
        "Train on a CSV file under rules.",
        ["cg4ai train patients.csv --target diagnosis --rules rules.json --out run"],
        settings="cg4ai.apps.tabular.settings:TrainSettings",
    ),
    Command(
        "cg4ai.cli.training:route",
        "Train a router that overloads no link.",
        [
            "cg4ai route abilene --demands 5 --paths 3 --out router",
            "cg4ai route abilene --demands 15 --guarantee certified --time-limit 900 --out proven",
            "cg4ai route polska --load 0.6 --failures single --out router",
            "cg4ai route abilene --agent-scope source --out agents",
            "cg4ai route mine.json --max-hops 4 --granularity 16 --fallback 0.05 --out router",
            "cg4ai route abilene --traffic matrices.npz --history 12 --out next",
            "cg4ai route mine.json --churn 0.05 --priority-file classes.csv --out router",
            "cg4ai route --resume --out router",
        ],
        settings="cg4ai.routing.settings:RouteSettings",
    ),
    Command(
        "cg4ai.cli.new_network:new_network",
        "Check and convert a network file of your own.",
        [
            "cg4ai new-network topology.graphml --capacity LinkSpeedRaw --demands gravity "
            "--out mine.json",
            "cg4ai new-network links.csv --demands matrix.csv --out mine.json",
            "cg4ai new-network net.graph --demands net.0000.demands --out mine.json",
            "cg4ai new-network graph.gml --default-capacity 10 --directed --out mine.json",
            "cg4ai new-network topozoo/Aarnet --default-capacity 10 --demands gravity "
            "--out aarnet.json",
        ],
    ),
    *run_commands(EXAMPLES),
    Command(
        "cg4ai.cli.failures:failures",
        "Make a router for each failure of links.",
        [
            "cg4ai failures router",
            "cg4ai failures router a-b,c-d",
            "cg4ai failures router cables.csv --jobs 2",
        ],
    ),
    Command(
        "cg4ai.cli.update:update",
        "Update a router after a change of traffic or network.",
        [
            "cg4ai update router --traffic yesterday.npz --out router-today",
            "cg4ai update router --network network.json",
            "cg4ai update router --network network.json --shrink --force",
        ],
    ),
    Command(
        "cg4ai.cli.check:check",
        "Verify a certificate with independent code.",
        ["cg4ai check router/certificate.cg4ai --run router"],
    ),
    Command(
        "cg4ai.cli.demo:demo",
        "Run a demonstration on built-in data (half a minute).",
        ["cg4ai demo --data cancer --out tumours"],
    ),
    Command(
        "cg4ai.cli.doctor:doctor",
        "Report what is installed and whether it works.",
        ["cg4ai doctor --json"],
    ),
)

app = new_program("Train models that keep hard rules, and state what is guaranteed.")
add_commands(app, COMMANDS)


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


if __name__ == "__main__":
    sys.exit(main())
