"""`python -m experiments.digits`: digit classifiers trained, used and compared with the paper's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from typer.core import TyperGroup

from cg4ai.cli.options import Given, settings_command
from cg4ai.cli.program import add_run_commands, format_epilog, new_program, run_guarded
from cg4ai.cli.training import train_application
from cg4ai.settings import RunOptions
from experiments.digits import NAME, PROGRAM
from experiments.digits.command import EXAMPLE, ROUNDS_EXAMPLE, reproduce, rounds
from experiments.digits.settings import DigitsSettings

EXAMPLES = {
    "train": (
        f"{PROGRAM} hard --n 100 --rule margin --augment --out classifier",
        f"{PROGRAM} train --resume --out classifier",
    ),
    "predict": (f"{PROGRAM} predict classifier images.csv",),
    "serve": (f"{PROGRAM} serve classifier",),
    "audit": (f"{PROGRAM} audit classifier --data images.csv",),
    "patch": (f"{PROGRAM} patch classifier --add wrong.json --out patched",),
    "show": (f"{PROGRAM} show classifier",),
    "explore": (f"{PROGRAM} explore classifier",),
    "report": (f"{PROGRAM} report classifier",),
    "certify": (f"{PROGRAM} certify classifier",),
    "export": (f"{PROGRAM} export classifier --onnx model.onnx",),
}


class Commands(TyperGroup):
    """What begins with no command's name is for `train`: a scenario, or an option of it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["train", *args]
        return super().parse_args(ctx, args)


def train(given: Given, options: RunOptions) -> int:
    """Train a mixture of small networks on images of digits, with rules on listed images.

    Scenarios: plain (no rules), hard (listed images must be right), robust (attacked images too),
    correct (what the base member gets wrong), relabel (a 3 becomes a 2). Exit code 0: every
    required image is answered as demanded; 3: some are not; 2: bad input; 130: interrupted
    (continue with --resume --out DIR).
    """
    return train_application(NAME, given, options)


app = new_program(
    "Digit classifiers that answer listed images right, and the paper's experiments on them. A "
    "scenario in place of a command trains: see train --help.",
    cls=Commands,
    add_completion=False,  # which is for installed programs
)
settings_command(
    app,
    DigitsSettings,
    train,
    short_help="Train a digit classifier that answers listed images right.",
    epilog=format_epilog(EXAMPLES["train"]),
)
add_run_commands(app, EXAMPLES)
app.command(
    short_help="The paper's experiments: train, tables, figures.", epilog=format_epilog([EXAMPLE])
)(reproduce)
app.command(
    short_help="What small groups priced by duals add, round after round.",
    epilog=format_epilog([ROUNDS_EXAMPLE]),
)(rounds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` are the process's own if None."""
    return run_guarded(app, arguments, PROGRAM)


if __name__ == "__main__":
    sys.exit(main())
