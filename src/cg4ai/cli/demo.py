"""`cg4ai demo`: a router of the network Abilene that overloads no link, in half a minute.

The other demonstration, a tumour classifier, is in demo_tumours.py.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from cg4ai.errors import InvalidInput, RunFolderError

INTRODUCTION = """\
Abilene is a research network with 12 cities and 15 links. Each of its 10 largest demands is split
over three paths. A neural network reads the demands and chooses the splits. Rule: no link may be
overloaded at ANY demands between zero and their largest volumes. At the largest volumes even the
best splits load some link to 99 %.

Two routers learn from optimal splits: a plain network, and one trained under the rule.
"""

FOLDER = Path("demo-run")

# as `cg4ai route` trains it, in about half a minute on one core
ASKED = {
    "network": "abilene",
    "demands": 10,
    "protocol": "paper",
    "objective": "split",
    "fallback": None,
    "threads": 1,
    "baseline": True,
}

MEANING = """
What this means: the router answers at once, without solving a program, and no link can be
overloaded. A shield moves splits that would overload a link towards constant splits that fit. The
plain network learned from the same data and can still overload a link, so rarely that tests at
random demands may miss it."""


def demo(
    *,
    data: Annotated[
        str, typer.Option(help="routing, or cancer: a tumour classifier under rules.")
    ] = "routing",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for the run; default: demo-run, which replaces an earlier one.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same result.")] = 0,
) -> None:
    """Train two routers of the network Abilene: without rules, and one that overloads no link."""
    if data not in ("routing", "cancer"):
        raise InvalidInput(f"--data must be routing or cancer, got {data!r}", code="unknown-name")
    folder = FOLDER if out is None else out
    held = (folder / "run.json").exists()
    if held and folder.absolute() != FOLDER.absolute():
        raise RunFolderError(
            f"{folder} already holds a run, which the demonstration does not replace: choose a new "
            f"folder for --out, or leave --out out to replace {FOLDER}",
            code="exists",
        )
    if data == "cancer":
        from cg4ai.cli import demo_tumours

        code, what = demo_tumours.run(folder, seed=seed, force=held), "features"
    else:
        code, what = _route(folder, seed=seed, force=held), "demands"
    _explore(folder, code, what)
    raise typer.Exit(code)


def _route(folder: Path, *, seed: int, force: bool) -> int:
    """Train both, compare them, say what is guaranteed; returns the exit code."""
    from cg4ai.apps.runner import KEPT, execute_command
    from cg4ai.cli.progress import make_progress
    from cg4ai.routing.app import APPLICATION
    from cg4ai.settings import RunOptions

    print(INTRODUCTION, flush=True)
    with make_progress() as screen:
        options = RunOptions(out=folder, force=force)
        code = execute_command(APPLICATION, {**ASKED, "seed": seed}, options, screen)
    if code == KEPT:
        print(MEANING)
    return code


def _explore(folder: Path, code: int, what: str) -> None:
    """Write the page of a run that has ended, and say how to open it and to write it again."""
    from cg4ai.apps.explorer import write_explorer
    from cg4ai.apps.runner import KEPT, NOT_KEPT

    if code in (KEPT, NOT_KEPT):
        page = folder / "explorer.html"
        write_explorer(folder, page)
        print(f"\nMove the {what} yourself: open {page.absolute()} in a browser.")
        print(f"It was written by: {_program()} explore {shlex.quote(str(folder))}")


def _program() -> str:
    """What this command line was started as: its script, or the module where there is none."""
    script = Path(sys.argv[0])
    if script.suffix == ".py":
        return f"{shlex.quote(sys.executable)} -m cg4ai"
    return shlex.quote(str(script))
