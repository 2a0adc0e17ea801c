"""Command lines from settings: each field of a settings class becomes an option or argument.

A command is told which settings were given, and those only; defaults are the settings' own.
Nothing heavy is imported here.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer

from cg4ai.cli.completion import completion_of
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.settings import (
    RunOptions,
    former_names,
    get_setting_info,
    get_type_hints_of,
    rename_former,
    warn_of_former,
    without_none,
)

ASSIGN = "assign"
Given = dict[str, Any]


def settings_command(
    commands: typer.Typer,
    kind: type,
    work: Callable[[Given, RunOptions], int],
    *,
    short_help: str,
    epilog: str,
) -> None:
    """Add a command whose options are the settings of `kind` and those of every run."""

    def run(**values: Any) -> None:
        options = RunOptions.from_mapping(collect_given(RunOptions, values))
        raise typer.Exit(work(collect_given(kind, values), options))

    parameters = [*parameters_of(kind), _assign(), *parameters_of(RunOptions)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__doc__ = work.__doc__
    commands.command(name=work.__name__, short_help=short_help, epilog=epilog)(run)


def parameters_of(kind: type) -> list[inspect.Parameter]:
    """A parameter for each setting that has an option; arguments first.

    Former names of options are accepted, too, but not shown.
    """
    shown = [one for one in fields(kind) if get_setting_info(one).option != ""]
    ordered = sorted(shown, key=lambda one: not get_setting_info(one).argument)
    former = [one for one in shown if get_setting_info(one).former]
    return [_parameter(kind, one) for one in ordered] + [
        _parameter(kind, one, former=True) for one in former
    ]


def _parameter(kind: type, one: Field[Any], *, former: bool = False) -> inspect.Parameter:
    said = get_setting_info(one)
    annotation: Any = _typer_type(kind, one) | None
    default: Any = None
    completion = completion_of(kind, one)
    if said.argument:
        info: Any = typer.Argument(
            metavar=said.metavar or one.name.upper(), help=said.help, autocompletion=completion
        )
    else:
        name = _option(said.former) if former else said.option or _option(one.name)
        if annotation == bool | None:
            annotation, default = bool, False
        info = typer.Option(
            name,
            metavar=said.metavar,
            help=said.help + _usual(one),
            show_default=False,
            hidden=former,
            autocompletion=completion,
        )
    return inspect.Parameter(
        said.former if former else one.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[annotation, info],
    )


def _option(name: str) -> str:
    """What a setting without an option name of its own is called on the command line."""
    return "--" + name.replace("_", "-")


def _assign() -> inspect.Parameter:
    option = typer.Option("--set", metavar="NAME=VALUE", help="Any other setting (repeatable).")
    return inspect.Parameter(
        ASSIGN,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[list[str] | None, option],
    )


def _typer_type(kind: type, one: Field[Any]) -> Any:
    """What typer reads; choices and layer sizes are texts that the settings check themselves."""
    hint = without_none(get_type_hints_of(kind)[one.name])
    if get_setting_info(one).read is None:
        if get_origin(hint) is tuple:
            return list[get_args(hint)[0]]  # type: ignore[misc]
        if hint in (int, float, bool, Path):
            return hint
    return str


def _usual(one: Field[Any]) -> str:
    """The default in words, where it says something."""
    value = one.default
    if value is MISSING or value is None or value is False or value in ("", ()):
        return ""
    if isinstance(value, float) and not math.isfinite(value):
        return ""
    text = ",".join(map(str, value)) if isinstance(value, tuple) else f"{value}"
    return f"  [default: {text}]"


def collect_given(kind: type, values: Mapping[str, Any]) -> Given:
    """The settings that were named, by option or --set."""
    given: Given = {}
    for one in fields(kind):
        said = get_setting_info(one)
        for name in filter(None, (one.name, said.former)):
            value = values.get(name)
            if value is None or value is False or value == []:
                continue
            if name != one.name:
                today = said.option or _option(one.name)
                print(warn_of_former(_option(name), today), file=sys.stderr)
            given[name] = said.read(value) if said.read is not None else value
    given = rename_former(kind, given)
    if kind is not RunOptions:
        _assign_further(kind, values.get(ASSIGN) or (), given)
    return given


def _assign_further(kind: type, pairs: Sequence[str], given: Given) -> None:
    """`--set name=value`: settings without an option, and those that one of them holds by name."""
    by_name = {one.name: get_setting_info(one) for one in fields(kind)}
    free = {name: "" for name, said in by_name.items() if said.option == "" and not said.names}
    for holder, said in by_name.items():
        if said.names is not None:
            free |= {one.name: holder for one in fields(said.names) if one.name not in by_name}
    former = former_names(kind)
    for said in by_name.values():
        former |= {} if said.names is None else former_names(said.names)
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise InvalidInput(f"--set takes name=value, got {pair!r}", code="type")
        if former.get(name) in free:
            print(warn_of_former(f"--set {name}", f"--set {former[name]}"), file=sys.stderr)
        name = former.get(name, name)
        if name in by_name and name not in free:
            said = by_name[name]
            if said.names is not None:
                raise InvalidInput(
                    f"--set {name}: set its fields by their own names instead", code="conflict"
                )
            own = said.option or _option(name)
            raise InvalidInput(f"--set {name}: use {own} for this setting", code="conflict")
        if name not in free:
            raise InvalidInput(
                f"--set {name}: there is no such setting{did_you_mean(name, free)}; there are "
                f"{', '.join(free)}",
                code="unknown-name",
            )
        if free[name]:
            given.setdefault(free[name], {})[name] = _value(text)
        else:
            given[name] = _value(text)


def _value(text: str) -> Any:
    """A JSON value, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
