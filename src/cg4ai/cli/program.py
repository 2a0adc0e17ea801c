"""Command lines of applications: `cg4ai` is one, and an application of another package has its own.

Both have the same commands for finished runs. Nothing heavy is imported here.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Mapping, Sequence

import typer
from typer.core import TyperGroup

from cg4ai.cli.audit import audit
from cg4ai.cli.certify import certify
from cg4ai.cli.explore import explore
from cg4ai.cli.export import export
from cg4ai.cli.patch import patch
from cg4ai.cli.predict import predict
from cg4ai.cli.report import report
from cg4ai.cli.serve import serve
from cg4ai.cli.show import show
from cg4ai.errors import Cg4aiError, SolverFailure, out_of_memory

FAILURE, BAD_INPUT, INTERRUPTED = 1, 2, 130

RUN_COMMANDS = (
    (predict, "Predict the rows of a table."),
    (serve, "Serve predictions over HTTP."),
    (audit, "Check rules on any data."),
    (patch, "Add rules or cases to a finished run."),
    (show, "Show a run: settings, history, result."),
    (explore, "Write an interactive page of the model."),
    (report, "Write the report of a run, or of all runs in a folder."),
    (certify, "Prove the rules of a run over their whole region."),
    (export, "Export a model to ONNX, torch or agents."),
)


def new_program(
    words: str, *, cls: type[TyperGroup] | None = None, add_completion: bool = True
) -> typer.Typer:
    """A command line without commands yet; `words` are its help."""
    return typer.Typer(
        cls=cls,
        add_completion=add_completion,
        help=words,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def add_run_commands(commands: typer.Typer, examples: Mapping[str, Sequence[str]]) -> None:
    """Add the commands for finished runs, each with its examples, of which it has at least one."""
    for work, words in RUN_COMMANDS:
        name = work.__name__
        commands.command(short_help=words, epilog=format_epilog(examples[name]))(work)


def format_epilog(examples: Sequence[str]) -> str:
    """The end of a command's help."""
    title = "Example" if len(examples) == 1 else "Examples"
    return "\n".join(["\b", f"{title}:", *(f"  {one}" for one in examples)])


def run_guarded(commands: typer.Typer, arguments: Sequence[str] | None, name: str) -> int:
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
