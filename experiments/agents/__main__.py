"""`python -m experiments.agents`: routers that see own, source or all demands, as guaranteed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import typer

from cg4ai.apps.runner import perform
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.report.tables import format_markdown
from cg4ai.routing import CONFIGURATIONS, instance
from cg4ai.routing.app import APPLICATION
from cg4ai.routing.settings import AgentScope, Guarantee, RouteSettings
from cg4ai.routing.train.agents import agents_of
from cg4ai.routing.train.anchors import anchor
from cg4ai.seeds import derive_seed
from cg4ai_checker.run_folder import compare
from cg4ai_checker.verify import check
from experiments.command import KEPT, NOT_KEPT, Folder, Seed, command, say

USUAL = (
    *("abilene-5-3", "atlanta-5-3", "di-yuan-5-3", "geant-5-3", "newyork-5-3"),
    *("nobel-germany-5-3", "nobel-us-5-3", "polska-5-3", "abilene-5-5", "abilene-10-3"),
)
SCOPES: tuple[AgentScope, ...] = ("own", "source", "all")
GUARANTEES: tuple[Guarantee, ...] = ("shielded", "certified")
SAMPLES = 2000  # demand vectors over which the best constant split is sought
FIGURES = "figures.json"


def agents(
    configurations: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NETWORK-D-P ...]", help="Which; ten of the 41 if left out."),
    ] = None,
    *,
    out: Folder = Path("runs-agents"),
    load: Annotated[float, typer.Option(help="Utilisation at the largest demands.")] = 0.99,
    validation: Annotated[int, typer.Option(help="Demand vectors to measure at.")] = 5000,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Of a run that is to be proven.")
    ] = 300.0,
    seed: Seed = 0,
) -> None:
    """Train, check and measure agents on each configuration; what has ended is not run again.

    Writes table.md into DIR. Exit code 3 if a guarantee was not established.
    """
    chosen = configurations or list(USUAL)
    known = ["-".join(map(str, one)) for one in CONFIGURATIONS]
    for name in chosen:
        if name not in known:
            raise InvalidInput(f"unknown configuration {name}{did_you_mean(name, known)}")
    asked = {"load": load, "validation": validation, "seed": seed}
    rows: list[dict[str, Any]] = []
    for name in chosen:
        rows += measured(name, out, asked, limit=time_limit)
        (out / "table.md").write_text(format_markdown(rows))
    print(format_markdown([*rows, *means(rows)]))
    raise typer.Exit(KEPT if all(row["as asked"] for row in rows) else NOT_KEPT)


def measured(
    name: str, out: Path, asked: dict[str, Any], *, limit: float
) -> Iterator[dict[str, Any]]:
    """A row for the best constant split, then one for each router."""
    network, demands, paths = name.rsplit("-", 2)
    made = instance(network, int(demands), int(paths), load=asked["load"])
    vectors = made.sample(asked["validation"], derive_seed(asked["seed"], 0, "validation"))
    static = anchor(made, made.sample(SAMPLES, derive_seed(asked["seed"], 0, "static")))
    splits = np.tile(static, (len(vectors), 1))
    gap = made.compute_utilisation(vectors, splits).max(axis=1) - made.find_optimal(vectors).mlu
    first = {
        "configuration": name,
        "agent scope": "nothing",
        "guarantee": "constant split",
        "agents": "",
    }
    yield first | {"mean gap": gap.mean(), "largest": gap.max(), "as asked": True}
    for guarantee in GUARANTEES:
        for scope in SCOPES:
            settings = RouteSettings(
                network=network,
                demands=int(demands),
                paths=int(paths),
                path_choice="shortest",
                agent_scope=scope,
                guarantee=guarantee,
                threads=1,
                time_limit_s=limit if guarantee == "certified" else np.inf,
                **asked,
            )
            found = figures(settings, out / f"{name}-{scope}-{guarantee}")
            who = "" if scope == "all" else len(agents_of(made, scope))
            row = {
                "configuration": name,
                "agent scope": scope,
                "guarantee": guarantee,
                "agents": who,
            }
            say(f"{row} {found}")
            yield row | found


def figures(settings: RouteSettings, folder: Path) -> dict[str, Any]:
    """What one run came to, its certificate checked against the folder."""
    known = folder / FIGURES
    if known.exists():
        return cast("dict[str, Any]", json.loads(known.read_text()))
    outcome = perform(APPLICATION, settings, out=folder, force=True)
    summary = outcome.summary
    checked = False
    if "certificate" in summary:
        compare(check(folder / summary["certificate"]["file"]).claim, folder)
        checked = True
    found = {
        "mean gap": summary["mean_mlu_gap"],
        "largest": summary["max_mlu_gap"],
        "worst link": summary["worst_utilisation"],
        "as asked": checked and summary["strength"] == settings.guarantee,
        "seconds": summary["total_s"],
    }
    known.write_text(json.dumps(found))
    return found


def means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mean of the mean gaps over all configurations, and the largest of the largest."""
    kinds = dict.fromkeys((row["agent scope"], row["guarantee"]) for row in rows)
    found = []
    for scope, guarantee in kinds:
        own = [row for row in rows if (row["agent scope"], row["guarantee"]) == (scope, guarantee)]
        found.append(
            {
                "configuration": f"all {len(own)}",
                "agent scope": scope,
                "guarantee": guarantee,
                "mean gap": float(np.mean([row["mean gap"] for row in own])),
                "largest": max(row["largest"] for row in own),
                "as asked": all(row["as asked"] for row in own),
            }
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    return command(agents, "python -m experiments.agents", "abilene-5-3 --out runs", arguments)


if __name__ == "__main__":
    sys.exit(main())
