"""`python -m experiments.updates`: updates of a router against training anew.

A router of abilene at load 0.45 is updated after the capacity of a link was halved, and after a
link was added; both changed networks are also trained anew. Seconds are of the processor,
evaluation included. With `--data`, a folder with abilene.npz (matrices, times, nodes), also a
router that learned from a week of traffic and is updated by the day after it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import networkx
import numpy as np
import typer

from cg4ai.apps.runner import perform
from cg4ai.errors import InvalidInput
from cg4ai.report.tables import format_markdown, format_plain
from cg4ai.routing.app import APPLICATION
from cg4ai.routing.network.sndlib import load_by_name
from cg4ai.routing.operate.updates import UpdatePlan, UpdateRequest, UpdateRouting, plan_update
from cg4ai.routing.settings import RouteSettings
from cg4ai.runs import files
from experiments.command import Folder, Seed, command, say

HALVED, ADDED = ("DNVRng", "KSCYng"), ("LOSAng", "CHINng")
LOAD = 0.45  # so that half of a capacity is enough
WEEK, DAY = 2016, 288  # five-minute matrices


def updates(
    *,
    out: Folder = Path("reproduce-updates"),
    data: Annotated[Path | None, typer.Option(help="Folder with abilene.npz.")] = None,
    demands: Annotated[int, typer.Option(help="Of the router of abilene.")] = 5,
    seed: Seed = 0,
) -> None:
    """Train, change, update and train anew; writes updates.md into DIR."""
    out.mkdir(parents=True, exist_ok=True)
    rows = network_rows(out, demands, seed)
    if data is not None:
        rows += [traffic_row(out, data, seed)]
    print(format_plain(rows, digits=4))
    files.write_bytes(out / "updates.md", format_markdown(rows, digits=4).encode())


def network_rows(out: Path, demands: int, seed: int) -> list[dict[str, Any]]:
    """A link of half its capacity, then a link more."""
    volumes = write_network(out / "abilene.json")
    given: dict[str, Any] = {"demands": demands, "load": LOAD, "seed": seed, "threads": 1}
    first = RouteSettings(network=volumes, **given)
    base = measure(lambda: perform(APPLICATION, first, out=out / "router", report=False).summary)
    rows = []
    for name, how in (("halved", {"halved": HALVED}), ("added", {"added": ADDED})):
        network = write_network(out / f"{name}.json", **how)
        request = UpdateRequest(folder=out / "router", out=out / name, network=network)
        found = measure(partial(update, request))
        plan = plan_update(replace(request, out=out / f"{name}-anew"))
        assert isinstance(plan, UpdatePlan)
        anew = measure(partial(train_anew, plan))
        rows.append(_row(name, found, base["processor_s"], anew))
        say(str(rows[-1]))
    return rows


def train_anew(plan: UpdatePlan) -> dict[str, Any]:
    """The same instance, from nothing."""

    class Anew(UpdateRouting):
        def _inherited(self, problem: Any) -> tuple[()]:
            return ()

    return perform(Anew(plan), plan.settings, out=plan.request.out, report=False).summary


def traffic_row(out: Path, data: Path, seed: int) -> dict[str, Any]:
    with np.load(data / "abilene.npz") as held:
        arrays = {name: held[name] for name in ("matrices", "times", "nodes")}
    for name, part in (("week", slice(0, WEEK)), ("day", slice(WEEK, WEEK + DAY))):
        taken = {key: arrays[key][part] for key in ("matrices", "times")}
        np.savez(out / f"{name}.npz", nodes=arrays["nodes"], **taken)
    asked = RouteSettings(
        network="abilene",
        traffic=out / "week.npz",
        split="0.8",
        path_choice="shortest",
        scale_capacities="auto",
        seed=seed,
        threads=1,
    )
    base = measure(lambda: perform(APPLICATION, asked, out=out / "week", report=False).summary)
    request = UpdateRequest(folder=out / "week", out=out / "day", traffic=out / "day.npz")
    return _row("day", measure(lambda: update(request)), base["processor_s"], None)


def update(request: UpdateRequest) -> dict[str, Any]:
    plan = plan_update(request)
    if not isinstance(plan, UpdatePlan):
        raise InvalidInput(plan.text)
    return perform(UpdateRouting(plan), plan.settings, out=request.out, report=False).summary


def write_network(
    file: Path,
    *,
    halved: tuple[str, str] | None = None,
    added: tuple[str, str] | None = None,
) -> str:
    """abilene as JSON, changed."""
    network = load_by_name("abilene")
    graph = networkx.DiGraph(name="abilene", demands={})
    names = network.nodes
    for (source, target), arc in network.arcs.items():
        ends = names[source], names[target]
        share = 0.5 if halved is not None and set(ends) == set(halved) else 1.0
        graph.add_edge(*ends, capacity=share * arc.capacity, length=arc.length)
    if added is not None:
        lengths = [arc.length for arc in network.arcs.values()]
        most = max(arc.capacity for arc in network.arcs.values())
        for ends in (added, added[::-1]):
            graph.add_edge(*ends, capacity=most, length=float(np.median(lengths)))
    for (source, target), volume in network.volumes.items():
        graph.graph["demands"].setdefault(names[source], {})[names[target]] = volume
    file.write_text(json.dumps(networkx.node_link_data(graph, edges="links")))
    return str(file)


def measure(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    started = time.process_time()
    found = work()
    return {**found, "processor_s": time.process_time() - started}


def _row(
    name: str, found: dict[str, Any], first_s: float, anew: dict[str, Any] | None
) -> dict[str, Any]:
    told = found["update"]
    figure = "mean_ratio" if name == "day" else "mean_mlu_gap"
    return {
        "change": name,
        "first training s": round(first_s, 1),
        "anew s": None if anew is None else round(anew["processor_s"], 1),
        "update s": round(found["processor_s"], 1),
        "figure": figure,
        "before": told["before"][figure],
        "after": told["after"][figure],
        "anew": None if anew is None else anew["mean_mlu_gap"],
        "largest before": told["before"]["worst_ratio" if name == "day" else "max_mlu_gap"],
        "largest after": told["after"]["worst_ratio" if name == "day" else "max_mlu_gap"],
        "overloaded before": told["before"].get("overloaded"),
        "guarantee": bool(told["certificate_accepted"]),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return command(updates, "python -m experiments.updates", "--demands 5", arguments)


if __name__ == "__main__":
    sys.exit(main())
