"""`python -m experiments.wishes`: public requests to other libraries, tried there and here."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from cg4ai.errors import InvalidInput, MissingExtra
from cg4ai.report.tables import format_markdown
from experiments.command import KEPT, NOT_KEPT, command, say
from experiments.wishes import WISHES
from experiments.wishes.common import Wish, describe, try_wish

NOT_INSTALLED = 2


def wishes(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME ...]", help="Such as catboost_2938; all if left out."),
    ] = None,
    *,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of wishes.jsonl and the table wishes.md."),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Only what was asked.")] = False,
) -> None:
    """Try each request with the library that was asked and here; exit code 0 if all are fulfilled.

    DIR keeps the rows of wishes that are not named, so that libraries which cannot be installed
    together can be tried one after another.
    """
    chosen = names or list(WISHES)
    if unknown := [one for one in chosen if one not in WISHES]:
        raise InvalidInput(f"wishes are {', '.join(WISHES)}, got {unknown[0]!r}")
    if listed:
        print(
            format_markdown([_asked(import_module(f"{__package__}.{one}").WISH) for one in chosen])
        )
        return
    store = out / "wishes.jsonl" if out else None
    kept = store.read_text().splitlines() if store and store.exists() else []
    found: dict[str, dict[str, str]] = dict(map(json.loads, kept))
    missing = []
    for name in chosen:
        module = import_module(f"{__package__}.{name}")
        try:
            row = describe(module.WISH, try_wish(module.WISH, module.run))
        except MissingExtra as error:
            missing.append(name)
            say(f"{name}: {error}")
            continue
        found[name] = row
        say(f"{name}: {row['fulfilled']}; there: {row['there']}; here: {row['here']}")
        if store:
            store.parent.mkdir(parents=True, exist_ok=True)
            store.write_text("".join(json.dumps(one) + "\n" for one in found.items()))
    table = summarise([found[name] for name in WISHES if name in found])
    print(table)
    if out:
        (out / "wishes.md").write_text(table)
    if any(found[name]["fulfilled"] == "no" for name in chosen if name in found):
        raise typer.Exit(NOT_KEPT)
    raise typer.Exit(NOT_INSTALLED if missing else KEPT)


def _asked(wish: Wish) -> dict[str, str]:
    return {
        "request": f"[{wish.name}]({wish.link})",
        "asked": wish.asked,
        "state there": wish.state,
        "here": f"`{wish.call}`",
    }


def summarise(rows: list[dict[str, Any]]) -> str:
    """The page of results."""
    good = sum(row["fulfilled"] == "yes" for row in rows)
    return (
        "# Twenty wishes\n\n"
        "`python -m experiments.wishes`. Public requests to other libraries: what these do at the "
        "version stated, and what cg4ai does on the same data. *There* is as the library is used "
        f"by its documentation; defaults on both sides unless said. Fulfilled: {good} of "
        f"{len(rows)} tried, {len(WISHES)} in all.\n\n" + format_markdown(rows) + "\n"
    )


if __name__ == "__main__":
    raise SystemExit(command(wishes, "python -m experiments.wishes", "catboost_2938 lightgbm_5727"))
