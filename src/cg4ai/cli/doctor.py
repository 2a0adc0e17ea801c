"""`cg4ai doctor`: what is installed, on what machine, and whether the core works."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cg4ai.cli.installation import InstallationCheck, Package

WORKS, BROKEN = 0, 1


def doctor(
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Report packages, devices and threads, and test the core for a few seconds.

    Please add the output when you report a problem. Missing extras are not failures; the command
    that installs each is printed. Exit code 0: the core works; 1: it does not.
    """
    import warnings

    from cg4ai.cli.installation import describe_machine, list_packages, run_checks

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a model that is trained for a moment only
        known, about, tried = list_packages(), describe_machine(), run_checks()
    works = all(one.state == "ok" for one in known if one.core) and not any(
        one.fault for one in tried
    )
    if json:
        found = {
            "works": works,
            "machine": about,
            "packages": [asdict(one) | {"state": one.state} for one in known],
            "checks": [asdict(one) for one in tried],
        }
        print(json_format.dumps(found, indent=2))
    else:
        print(_report(known, about, tried))
        print("\nThe core works." if works else "\nThe core does not work: see above.")
    raise typer.Exit(WORKS if works else BROKEN)


def _report(known: list[Package], about: dict[str, Any], tried: list[InstallationCheck]) -> str:
    core = [one for one in known if one.core]
    extras = [one for one in known if not one.core]
    parts = [
        _section("Machine", [[name, _value(value)] for name, value in about.items()]),
        _section("Core", [_package(one) for one in core] or [["not installed as a package", ""]]),
        _section("Extras", [[one.extra or "-", *_package(one)] for one in extras]),
        _section("Checks", [[one.name, _outcome(one)] for one in tried]),
    ]
    return "\n\n".join(parts)


def _package(one: Package) -> list[str]:
    state = one.version or one.state if one.state != "too old" else f"{one.version}, too old"
    return [one.name, one.needed, state, one.remedy]


def _outcome(one: InstallationCheck) -> str:
    return f"FAILED: {one.fault}" if one.fault else f"ok, {one.seconds:.1f} s"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return "-" if value is None else str(value)


def _section(title: str, lines: list[list[str]]) -> str:
    """Aligned by hand: what makes tables elsewhere needs packages that may be what is broken."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    body = [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([title, *(f"  {line}" for line in body)])
