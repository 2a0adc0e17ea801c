"""Command lines of applications: `cg4ai` is one, and an application of another package has its own.

Both have the same commands for finished runs. Help and completion list commands from their
`Command` records; the module of a command is imported when that command is asked for.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from cg4ai.cli.options import settings_command
from cg4ai.errors import Cg4aiError, SolverFailure, out_of_memory

FAILURE, BAD_INPUT, INTERRUPTED = 1, 2, 130


@dataclass(frozen=True)
class Command:
    """A command of a program.

    `home` is "module:function"; the function's parameters are the options, or else the fields of
    the class of `settings`, "module:class". `words` is the line that help lists.
    """

    home: str
    words: str
    examples: Sequence[str]
    settings: str = ""

    @property
    def name(self) -> str:
        return self.home.partition(":")[2].replace("_", "-")

    def load(self) -> Any:
        """The command itself, which is called in place of the one that help lists."""
        alone = new_program("", add_completion=False)
        epilog = format_epilog(self.examples)
        work = _import(self.home)
        if self.settings:
            kind = _import(self.settings)
            settings_command(alone, kind, work, short_help=self.words, epilog=epilog)
        else:
            alone.command(name=self.name, short_help=self.words, epilog=epilog)(work)
        return typer.main.get_command(alone)


class CommandGroup(TyperGroup):
    """Commands whose callback imports what is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        loaded = command and command.callback and command.callback()
        return name, loaded, rest


RUN_COMMANDS = {
    "predict": "Predict the rows of a table.",
    "serve": "Serve predictions over HTTP.",
    "audit": "Check rules on any data.",
    "patch": "Add rules or cases to a finished run.",
    "show": "Show a run: settings, history, result.",
    "explore": "Write an interactive page of the model.",
    "report": "Write the report of a run, or of all runs in a folder.",
    "certify": "Prove the rules of a run over their whole region.",
    "export": "Export a model to ONNX, torch or agents.",
}


def new_program(
    words: str, *, cls: type[CommandGroup] = CommandGroup, add_completion: bool = True
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


def add_commands(program: typer.Typer, commands: Sequence[Command]) -> None:
    for one in commands:
        program.command(name=one.name, short_help=one.words)(one.load)


def run_commands(examples: Mapping[str, Sequence[str]]) -> list[Command]:
    """The commands for finished runs, each with its examples, of which it has at least one."""
    return [
        Command(f"cg4ai.cli.{name}:{name}", words, examples[name])
        for name, words in RUN_COMMANDS.items()
    ]


def format_epilog(examples: Sequence[str]) -> str:
    """The end of a command's help."""
    title = "Example" if len(examples) == 1 else "Examples"
    return "\n".join(["\b", f"{title}:", *(f"  {one}" for one in examples)])


def _import(home: str) -> Any:
    module, _, name = home.partition(":")
    return vars(import_module(module))[name]


def run_guarded(commands: typer.Typer, arguments: Sequence[str] | None, name: str) -> int:
    """Run commands with every expected error as one line and an exit code."""
    try:
        commands(args=None if arguments is None else list(arguments), prog_name=name)
    except SystemExit as ended:  # typer makes it of a KeyboardInterrupt, too
        code = ended.code if isinstance(ended.code, int) else FAILURE
        if _is_unreported_interrupt(ended):
            print("interrupted", file=sys.stderr)
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


def _is_unreported_interrupt(ended: SystemExit) -> bool:
    """Whether a KeyboardInterrupt reached typer: the command itself has printed nothing of it."""
    reason = ended.__context__
    return reason is not None and isinstance(reason.__cause__, KeyboardInterrupt)


def _one_line(message: str) -> str:
    """A message of several lines joined, so that scripts find the whole error on one."""
    return re.sub(r"\s*\n\s*", "; ", re.sub(r":\s*\n\s*", ": ", message.strip()))
