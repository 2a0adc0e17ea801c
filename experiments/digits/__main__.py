"""`python -m experiments.digits`: digit classifiers trained, used and compared with the paper's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from cg4ai.cli.program import (
    Command,
    CommandGroup,
    add_commands,
    new_program,
    run_commands,
    run_guarded,
)
from experiments.digits import PROGRAM

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


class Commands(CommandGroup):
    """What begins with no command's name is for `train`: a scenario, or an option of it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["train", *args]
        return super().parse_args(ctx, args)


app = new_program(
    "Digit classifiers that answer listed images right, and the paper's experiments on them. A "
    "scenario in place of a command trains: see train --help.",
    cls=Commands,
    add_completion=False,  # which is for installed programs
)
add_commands(
    app,
    [
        Command(
            "experiments.digits.command:train",
            "Train a digit classifier that answers listed images right.",
            EXAMPLES["train"],
            settings="experiments.digits.settings:DigitsSettings",
        ),
        *run_commands(EXAMPLES),
        Command(
            "experiments.digits.command:reproduce",
            "The paper's experiments: train, tables, figures.",
            [f"{PROGRAM} reproduce main --seeds 42 --sizes 100 --out runs"],
        ),
        Command(
            "experiments.digits.command:rounds",
            "What small groups priced by duals add, round after round.",
            [f"{PROGRAM} rounds --constraints-only --out rounds"],
        ),
    ],
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` are the process's own if None."""
    return run_guarded(app, arguments, PROGRAM)


if __name__ == "__main__":
    sys.exit(main())
