"""Ctrl-C before a command has come to its work."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import typer

from cg4ai.cli import program
from cg4ai.cli.program import Command, CommandGroup, add_commands, new_program, run_guarded


@pytest.mark.parametrize("text", ["", "interrupted"])
def test_an_interrupt_is_said_once(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        if text:  # as commands do that say it themselves
            print(text, file=sys.stderr)
            raise typer.Exit(130)
        raise KeyboardInterrupt

    def load(home: str) -> Any:
        return work

    monkeypatch.setattr(program, "_import", load)
    commands = new_program("", cls=CommandGroup)
    names = [Command(f"here:{name}", "Works.", ["here"]) for name in ("work", "rest")]
    add_commands(commands, names)
    assert run_guarded(commands, ["work"], "here") == 130
    assert capsys.readouterr().err == "interrupted\n"
