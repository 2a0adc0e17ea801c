"""`python -m experiments.history --data DIR`: routers that split the next matrix by the last W.

The data are those of `experiments.traffic`. For each network and seed a router is trained with
`--history 12 --baseline` and judged on all later matrices; the table has the mean over the seeds,
with the worst seed in brackets. abilene keeps its real capacities. No split routes the set of
pod_a at its own, so they are counted as the multiple at which the best constant split fills no link
of the set by more than half. With `--choose` the last fifth of the earlier matrices judges instead.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from cg4ai.apps.runner import perform
from cg4ai.report.tables import format_markdown
from cg4ai.routing.app import Routing
from cg4ai.routing.demands.scaling import factor_of, format_notice
from cg4ai.routing.options import CAPACITIES_AUTO
from cg4ai.routing.settings import RouteSettings
from experiments.command import KEPT, NOT_KEPT, Folder, Threads, command, say
from experiments.traffic import HEADROOM, asked

LENGTH = 12
HALF = 0.5  # load of pod_a's worst case: at 0.99 hardly any split but the robust one fits
SCALED = ("pod_a",)
FIGURES = ("mean", "p95", "p99", "worst")


def ask(name: str, data: Path, folder: Path, *, choose: bool, **further: Any) -> RouteSettings:
    """The settings of one network."""
    found = asked(name, data, folder, choose=choose, headroom=HEADROOM[name], **further)
    if name in SCALED:
        return replace(found, load=HALF, scale_capacities=CAPACITIES_AUTO)
    return replace(found, scale_capacities=None)


def table(summaries: list[dict[str, Any]]) -> str:
    """One network in Markdown: mean over seeds, and the worst of them where they differ."""
    first = summaries[0]
    rows = []
    for name in first["traffic"]["ratio"]:
        each = [one["traffic"]["ratio"][name] for one in summaries]
        row = {"": name}
        for figure in FIGURES:
            values = [one[figure] for one in each]
            apart = max(values) - min(values) > 1e-9
            worst = f" ({max(values):.4f})" if apart else ""
            row[figure] = f"{np.mean(values):.4f}{worst}"
        rows.append(row)
    scaled = "".join(f"{line}\n\n" for line in format_notice(factor_of(first)))
    acting = ", ".join(f"{one['shield']['acting']:.2%}" for one in summaries)
    invented = ", ".join(f"{one['shield']['adversarial_acting']:.0%}" for one in summaries)
    most = ", ".join(f"{one['worst_utilisation']:.4f}" for one in summaries)
    bare = ", ".join(f"{one['shield']['worst_unshielded']:.3f}" for one in summaries)
    return (
        f"{scaled}**{first['network']}**, {first['demands']} demands: "
        f"{first['history']['learned']} windows learned from, {first['history']['held_out']} held "
        f"out, {first['traffic']['later']} later matrices, {first['traffic']['inside']:.1%} of "
        f"them in the set. Strength {', '.join(str(one['strength']) for one in summaries)}; the "
        f"shield acts on {acting} of later windows and on {invented} of invented ones; largest "
        f"utilisation over the set of any split {most}, without the shield {bare}.\n\n"
        f"{format_markdown(rows)}\n"
    )


def history(
    data: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the measured traffic.")],
    out: Folder = Path("runs/history"),
    networks: Annotated[str, typer.Option(help="Which, parted by commas.")] = "pod_a,abilene",
    seeds: Annotated[str, typer.Option(help="Parted by commas.")] = "0,1,2",
    length: Annotated[int, typer.Option(help="Matrices of a window.")] = LENGTH,
    choose: Annotated[bool, typer.Option("--choose", help="Judge on held-out days.")] = False,
    threads: Threads = 1,
) -> None:
    """Train on windows of earlier matrices, judge on later ones, print a table for each network."""
    kept = True
    for name in networks.split(","):
        folder = out / ("chosen" if choose else "judged")
        summaries = []
        for seed in map(int, seeds.split(",")):
            settings = ask(
                *(name, data, folder / name),
                choose=choose,
                history=length,
                seed=seed,
                threads=threads,
            )
            say(f"{name}, seed {seed}: training")
            routed = perform(Routing(), settings, out=folder / f"{name}-{seed}", force=True)
            (folder / f"{name}-{seed}.json").write_text(json.dumps(routed.summary, indent=1))
            summaries.append(routed.summary)
            kept &= routed.evaluation is not None and routed.evaluation.kept
        print(table(summaries), flush=True)
    raise typer.Exit(KEPT if kept else NOT_KEPT)


if __name__ == "__main__":
    raise SystemExit(command(history, "python -m experiments.history", "--data DIR"))
