"""`python -m experiments.failures`: every single-link failure of some networks, at two loads."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from cg4ai.apps.folders import complete, load_trained
from cg4ai.apps.runner import perform
from cg4ai.errors import InvalidInput
from cg4ai.members.shielded import ShieldedMembers
from cg4ai.report.tables import csv_text, format_markdown, format_plain
from cg4ai.routing.app import APPLICATION
from cg4ai.routing.network.instance import Instance, instance
from cg4ai.routing.network.optimum import network_optimum
from cg4ai.routing.network.path_choice import CHOICES
from cg4ai.routing.network.sndlib import load_by_name
from cg4ai.routing.operate.failure_study import (
    FOLDER,
    format_outcome,
    is_settled,
    load_whole_router,
    name_failure_folder,
    study,
)
from cg4ai.routing.operate.link_failures import (
    Failure,
    failure_of,
    is_connected,
    link_of,
    reduce_instance,
)
from cg4ai.routing.operate.rerouting import Effort, WholeRouter
from cg4ai.routing.prove.unroutable import ROUNDING
from cg4ai.routing.settings import RouteSettings
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from cg4ai.seeds import derive_seed
from experiments.command import KEPT, NOT_KEPT, Device, Folder, Quiet, Seed, command, say, silent

WHOLE = ("abilene", "geant", "nobel-us", "polska")
OUTCOMES = ("routed", "infeasible", "overloaded", "disconnected", "cut")
CONFIGURATIONS = ("abilene-10-3", "geant-10-3", "nobel-us-10-3", "polska-5-3")


def failures(
    configurations: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NETWORK-D-P ...]", help="Which; four networks if left out."),
    ] = None,
    *,
    out: Folder = Path("reproduce-failures"),
    loads: Annotated[str, typer.Option(help="Of the networks without failures.")] = "0.99,0.6",
    steps: Annotated[int, typer.Option(help="Of training on, for each failure.")] = 300,
    vectors: Annotated[int, typer.Option(help="Demand vectors of each comparison.")] = 2000,
    seed: Seed = 0,
    device: Device = "cpu",
    jobs: Annotated[int | None, typer.Option(metavar="N", help="Failures at once.")] = None,
    untrained: Annotated[
        bool,
        typer.Option("--whole", help="Choices of paths for whole matrices; nothing is trained."),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Train a router of each network at each load, and study the failure of every link.

    With --whole, of each NETWORK, count the failures of one link that all demands survive over
    shortest, disjoint and generated paths: whole.md in DIR.

    Writes failures.csv (a line for each failure) and table.md into DIR. What is there is not done
    again. Exit code 0: every failure is routed with a guarantee or shown to be impossible.
    """
    names, tell = configurations or CONFIGURATIONS, silent if quiet else say
    if untrained:
        networks = configurations or list(WHOLE)
        out.mkdir(parents=True, exist_ok=True)
        cases = product(networks, map(float, loads.split(",")))
        counted = [row for case in cases for row in count_survived(*case)]
        files.write_bytes(out / "whole.md", format_markdown(counted, digits=3).encode())
        print(format_plain(counted, digits=3))
        raise typer.Exit(KEPT)
    effort = Effort(steps=steps, validation=vectors, adversarial=vectors, seed=seed, device=device)
    lines: list[dict[str, Any]] = []
    table: list[dict[str, Any]] = []
    for name in names:
        for load in map(float, loads.split(",")):
            folder = out / f"{name}-{load:g}"
            router(folder, name, load, seed=seed, device=device)
            rows = study(folder, "single", effort, n_jobs=jobs, heard=_told(tell, folder))
            whole = load_whole_router(folder)
            for row in rows:
                row["renormalised"] = renormalised(whole, row, folder, effort)
            lines += [{"configuration": name, "load": load, **_line(row)} for row in rows]
            table.append({"configuration": name, "load": load, **summed_up(folder, rows)})
            files.write_bytes(out / "failures.csv", csv_text(lines).encode())
            files.write_bytes(out / "table.md", format_markdown(table, digits=3).encode())
    print(format_plain(table, digits=3))
    kept = all(line["open"] == 0 for line in table)
    raise typer.Exit(KEPT if kept else NOT_KEPT)


def count_survived(network: str, load: float) -> list[dict[str, Any]]:
    """Of the links of a network, each failing alone, what its whole matrix meets over three paths.

    A row for each choice of paths, with the same traffic: without a failure it loads generated
    paths to `load` at its largest. routed: a constant split keeps all capacities on the whole box,
    so there is a shielded router. infeasible: the largest demands fit over the network, but not
    over the paths that are left; overloaded: not over the network either. disconnected: a demand
    has no path left, though the network has a way; cut: the network has none.
    """
    rows, scale = list[dict[str, Any]](), 0.0
    for choice in CHOICES:  # generated ones come first
        started = time.process_time()
        made = instance(network, "all", 3, load, path_choice=choice, disjoint_pairs=True)
        chosen = time.process_time() - started
        scale = scale or made.scale
        made = replace(made, demand_max=scale / made.scale * made.demand_max)
        assert made.all_arcs is not None
        failures = [Failure.of([link]) for link in sorted({link_of(*a) for a in made.all_arcs})]
        outcomes = [find_outcome(made, failure) for failure in failures]
        row: dict[str, Any] = {
            "network": network,
            "demands": len(made.demand_max),
            "load": load,
            "paths": choice,
            "load of these": made.level,
            "links": len(outcomes),
        }
        row |= {what: outcomes.count(what) for what in OUTCOMES}
        row["seconds, choosing paths"] = chosen
        rows.append(row | {"seconds": time.process_time() - started})
    return rows


def find_outcome(made: Instance, failure: Failure) -> str:
    """One of `OUTCOMES`."""
    left = reduce_instance(made, failure)
    if left.instance is not None:
        if left.instance.level <= 1 + ROUNDING:
            return "routed"
        least = float(network_optimum(left.instance, left.instance.demand_max[None])[0])
        return "infeasible" if least <= 1 + ROUNDING else "overloaded"
    ways = all(is_connected(made, failure, demand) for demand in left.lost)
    return "disconnected" if ways else "cut"


def router(folder: Path, name: str, load: float, *, seed: int, device: str) -> None:
    """Train the router without failures, unless it is there."""
    network, demands, paths = _parts(name)
    there = (folder / "run.json").exists()
    if there:
        summary = Run.open(folder, read_only=True).summary()
        if summary is not None and complete(summary):
            return
    settings = RouteSettings(
        network=network,
        demands=demands,
        paths=paths,
        path_choice="shortest",
        load=load,
        seed=seed,
        device=device,
        threads=1,
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    perform(APPLICATION, settings, out=folder, resume=there)


def _parts(name: str) -> tuple[str, int, int]:
    words = name.rsplit("-", 2)
    if len(words) != 3 or not (words[1].isdecimal() and words[2].isdecimal()):
        raise InvalidInput(f"a configuration is NETWORK-DEMANDS-PATHS, got {name!r}")
    return words[0], int(words[1]), int(words[2])


def renormalised(
    whole: WholeRouter, row: Mapping[str, Any], folder: Path, effort: Effort
) -> float | None:
    """The mean gap where the router's shares of paths that are left are renormalised, no more."""
    failure = failure_of(row["failure"], whole.instance)
    left = reduce_instance(whole.instance, failure)
    if row["outcome"] != "shielded" or left.instance is None:
        return None
    made = left.instance
    vectors = made.sample(effort.validation, derive_seed(effort.seed, 0, "validation"))
    shares = whole.router.predict(vectors)[:, left.paths]
    totals = np.zeros((len(vectors), len(made.demand_max)))
    np.add.at(totals.T, made.path_demand, shares.T)
    counts = np.bincount(made.path_demand)[made.path_demand]
    own = totals[:, made.path_demand]
    splits = np.where(own > 1e-9, shares / np.maximum(own, 1e-9), 1 / counts)
    router, _ = load_trained(folder / FOLDER / name_failure_folder(failure))
    behind = router.used[0].members
    assert isinstance(behind, ShieldedMembers)
    safe = behind.shield.repair_outputs(torch.as_tensor(vectors), torch.as_tensor(splits)).numpy()
    return float(
        (made.compute_utilisation(vectors, safe).max(1) - made.find_optimal(vectors).mlu).mean()
    )


def summed_up(folder: Path, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many there are of each outcome, and the gaps of those that are routed."""
    whole = load_whole_router(folder)
    network = load_by_name(whole.instance.name)
    links = {link_of(*(network.nodes[node] for node in arc)) for arc in network.arcs}
    outcomes = [row["outcome"] for row in rows]
    routed = [row for row in rows if row["outcome"] == "shielded"]
    summary = Run.open(folder, read_only=True).summary() or {}
    accepted = sum(bool((row["certificate"] or {}).get("accepted")) for row in routed)
    return {
        "links": len(links),
        "unaffected": len(links) - len(rows) + outcomes.count("unaffected"),
        "shielded": len(routed),
        "certificates": accepted,
        "infeasible": outcomes.count("infeasible"),
        "disconnected": outcomes.count("disconnected"),
        "open": sum(not is_settled([row]) for row in rows),
        "gap without failure": summary.get("mean_mlu_gap"),
        "renormalised": _mean(routed, "renormalised"),
        "inherited": _mean(routed, "inherited_mean_mlu_gap"),
        "mean gap": _mean(routed, "mean_mlu_gap"),
        "largest gap": max((row["max_mlu_gap"] for row in routed), default=None),
        "worst utilisation": max((row["worst_utilisation"] for row in routed), default=None),
        "seconds": sum(row["seconds"] for row in rows),
    }


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if row.get(name) is not None]
    return float(np.mean(values)) if values else None


def _line(row: Mapping[str, Any]) -> dict[str, Any]:
    more = {"renormalised": row["renormalised"], "inherited": row.get("inherited_mean_mlu_gap")}
    return {**format_outcome(row), **more, "seconds": row["seconds"], "why": row.get("text")}


def _told(tell: Any, folder: Path) -> Any:
    def heard(row: Mapping[str, Any]) -> None:
        tell(f"{folder.name}: {row['failure']} {row['outcome']}")

    return heard


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return command(failures, "python -m experiments.failures", "polska-5-3 --loads 0.6", arguments)


if __name__ == "__main__":
    sys.exit(main())
