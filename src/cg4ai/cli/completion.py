"""What the shell completes: folders of runs, networks by name, the values that a setting may have.

Nothing heavy is imported, and no folder is searched in depth: the shell asks at every press of the
tab key. Where nothing is found the shell completes names of files.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import Field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from cg4ai.settings import get_type_hints_of, without_none

RUN_FILES = ("run.json", "ensemble.json")  # one of which every saved run has
PLAIN_NAMES = "sndlib"  # the family whose networks need no prefix

Completion = Callable[[str], list[str]]


def run_folders(incomplete: str) -> list[str]:
    """Folders that hold a run and begin so."""
    head, tail = os.path.split(incomplete)
    try:
        beside = sorted(os.scandir(head or "."), key=lambda entry: entry.name)
        return [
            os.path.join(head, entry.name)
            for entry in beside
            if entry.name.startswith(tail)
            and any(os.path.exists(os.path.join(entry.path, name)) for name in RUN_FILES)
        ]
    except OSError:  # no such folder, or one that may not be read
        return []


def complete_networks(incomplete: str) -> list[str]:
    """The networks that `cg4ai route` knows by name and that begin so."""
    found = find_spec("topohub")
    if found is None or found.origin is None:
        return []
    data = Path(found.origin).parent / "data"
    paths = (path.relative_to(data).with_suffix("") for path in data.rglob("*.json"))
    names = (path.as_posix().removeprefix(f"{PLAIN_NAMES}/") for path in paths)
    # hundreds have a prefix: they are offered once it is begun
    fit = (name for name in names if incomplete or "/" not in name)
    return sorted(name for name in fit if name.startswith(incomplete))


def completion_of(kind: type, one: Field[Any]) -> Completion | None:
    """For the option or argument of a setting; None where the shell knows better."""
    if one.name == "network":
        return complete_networks
    if one.name == "out":
        return run_folders  # to resume or replace one
    choices = without_none(get_type_hints_of(kind)[one.name])
    if get_origin(choices) is Literal:
        values = [str(value) for value in get_args(choices)]
        return lambda incomplete: [value for value in values if value.startswith(incomplete)]
    return None


RunFolder = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="Folder of a run.", autocompletion=run_folders),
]
