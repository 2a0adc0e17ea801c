"""The applications that this process knows, so that a run folder leads to the one that wrote it.

An application registers itself where its package is imported: `cg4ai.apps` that of tables,
`cg4ai.routing` its own, and a package outside of cg4ai in its `__init__.py`. Nothing heavy is
imported here: an application is loaded when a run of it is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cg4ai.errors import InvalidInput, RunFolderError

if TYPE_CHECKING:
    from cg4ai.apps.protocol import Application

PROGRAM = "cg4ai"
# applications of 0.7 that left the package, by name; their runs are read there
MOVED = {"digits": "python -m experiments.digits"}


@dataclass(frozen=True)
class Registration:
    """An application and its command line.

    name: that of the application, which the run folder states as its command.
    kind: what the ensemble in that folder states as its application.
    load: imports the application and returns it.
    program: the command line whose `show`, `predict` and so on read its runs.
    train: the command of it that trains, and resumes with --resume.
    """

    name: str
    kind: str
    load: Callable[[], Application[Any, Any]]
    program: str
    train: str


_REGISTERED: dict[str, Registration] = {}


def register(
    name: str,
    *,
    kind: str,
    load: Callable[[], Application[Any, Any]],
    program: str = PROGRAM,
    train: str | None = None,
) -> None:
    """Make an application known to the runner and to the commands for finished runs.

    Its runs are trained by the command `program name` unless `train` says otherwise. Registering
    again what is registered changes nothing.
    """
    made = Registration(name, kind, load, program, train or f"{program} {name}")
    for other in _REGISTERED.values():
        shared = name == other.name or kind == other.kind
        if shared and (name, kind, program) != (other.name, other.kind, other.program):
            raise InvalidInput(
                f"the application {other.name!r} of kind {other.kind!r} is registered already, by "
                f"{other.program}: choose another name and kind than {name!r} and {kind!r}",
                code="duplicate",
            )
    _REGISTERED[name] = made


def is_registered(name: str) -> bool:
    return name in _REGISTERED


def get_registration(name: str) -> Registration:
    """That of the application with this name."""
    if name not in _REGISTERED:
        raise RunFolderError(describe_unregistered(name), code="unknown-name")
    return _REGISTERED[name]


def registration_of_kind(kind: str) -> Registration:
    """That of the application which an ensemble states."""
    for one in _REGISTERED.values():
        if one.kind == kind:
            return one
    raise RunFolderError(describe_unregistered(kind), code="unknown-name")


def program_of(name: str) -> str:
    """The command line that reads runs of an application, also of one that is not registered."""
    return _REGISTERED[name].program if name in _REGISTERED else MOVED.get(name, PROGRAM)


def training_command(name: str) -> str:
    """The command that trains for an application, also for one that is not registered."""
    if name in _REGISTERED:
        return _REGISTERED[name].train
    return f"{MOVED[name]} train" if name in MOVED else f"{PROGRAM} {name}"


def describe_unregistered(name: str, run: str = "RUN") -> str:
    """In one line how a run of an application that is not registered can be read."""
    if name in MOVED:
        return (
            f"a run of {name!r} belongs to {MOVED[name].split()[-1]}, outside the package: in a "
            f"clone of the repository use {MOVED[name]} show {run} (or predict, audit, report and "
            "so on), or cg4ai.load in Python"
        )
    return (
        f"a run of {name!r} is of none of the applications registered here "
        f"({', '.join(_REGISTERED)}): import the package that it belongs to, such as "
        "cg4ai.routing, or use cg4ai.load in Python"
    )
