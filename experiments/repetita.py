"""`python -m experiments.repetita FOLDER`: routers of whole matrices on REPETITA's networks.

FOLDER holds `NAME.graph` and `NAME.0000.demands`, `NAME.0001.demands` and so on. The router learns
from the first three of five matrices, in the order of their names, is guaranteed over the set that
is fitted to these alone, and is judged on the others. Of a network with one matrix five are made,
in which each demand has a lognormal factor. Settings are the defaults; capacities are scaled as far
as the whole set needs. *level* is the least load of the fullest link, at the capacities of the file
and the worst vector of the set, that a routing over the chosen paths can have: where it is above 1,
the file's capacities do not carry the set.

Ratios are those of what is answered by default: the router's splits where a matrix is in the set,
and those of a linear program over the same paths where it is not. *router mean* and *router worst*
are the router alone, at all judged matrices, over the best that its paths allow.

Optima are those of the whole network, over all paths, found by linear programs. Each network runs
in a process of its own, whose processor seconds and peak of memory stand beside. What has been
measured is kept in DIR and not run again.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from cg4ai.apps.runner import perform
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.report.tables import csv_text, format_markdown, format_plain
from cg4ai.routing.app import Routing
from cg4ai.routing.demands.traffic import Traffic
from cg4ai.routing.demands.traffic_files import read_traffic
from cg4ai.routing.network.optimum import network_optimum
from cg4ai.routing.network.repetita import DEMANDS, read_repetita
from cg4ai.routing.options import ALL, CAPACITIES_AUTO
from cg4ai.routing.settings import RouteSettings
from cg4ai.runs import files
from experiments.command import (
    KEPT,
    NOT_KEPT,
    Device,
    Folder,
    Jobs,
    Quiet,
    Seed,
    Threads,
    command,
    say,
    silent,
)
from experiments.drawing import new_panels, write
from experiments.side_by_side import OF_ONE_RUN, why

SPLIT = "0.6"  # three of five matrices are learned from
MADE, SPREAD = 5, 0.3  # matrices where there is one, and the spread of the factors' logarithms
GUARANTEED = "shielded"
NEAR = 1.05  # ratio to the optimum that a matrix is counted by


def list_networks(folder: Path, wanted: Sequence[str] = ()) -> list[str]:
    """The networks asked for, or all, those of few nodes first."""
    known = {file.stem: len(read_repetita(file).nodes) for file in folder.glob("*.graph")}
    for name in wanted:
        if name not in known:
            raise InvalidInput(
                f"{folder} has no {name}.graph{did_you_mean(name, known)}", code="unknown-name"
            )
    if not known:
        raise InvalidInput(f"{folder} holds no .graph files", code="empty")
    return sorted(wanted or known, key=lambda name: (known[name], name))


def find_traffic(folder: Path, name: str, out: Path, seed: int) -> Path:
    """The folder of the matrices, or a file of matrices that are made from the only one."""
    matrices = sorted(folder.glob(f"{name}.*{DEMANDS}"))
    if len(matrices) != 1:
        return folder
    only = read_traffic(matrices[0], folder / f"{name}.graph")
    return write_perturbed(only, out / f"{name}.npz", seed)


def write_perturbed(only: Traffic, target: Path, seed: int) -> Path:
    """Matrices in which each volume of `only` has a factor of its own, of mean one."""
    made = np.random.default_rng(seed)
    normal = made.normal(size=(MADE, *only.matrices.shape[1:]))
    matrices = only.matrices * np.exp(SPREAD * normal - SPREAD**2 / 2)
    target.parent.mkdir(parents=True, exist_ok=True)
    np.savez(target, matrices=matrices, nodes=np.array(only.nodes), times=np.arange(MADE))
    return target


def route_network(
    folder: Path, name: str, out: Path, usual: dict[str, Any], train: bool
) -> dict[str, Any]:
    """One row: a router of one network, or why there is none."""
    row: dict[str, Any] = {"network": name}
    began = time.perf_counter()
    try:
        settings = RouteSettings(
            network=str(folder / f"{name}.graph"),
            demands=ALL,
            traffic=find_traffic(folder, name, out, usual["seed"]),
            split=SPLIT,
            scale_capacities=CAPACITIES_AUTO,
            **usual,
        )
        row |= figures_of(settings, out / name, train=train)
    except OF_ONE_RUN as error:
        row |= {"guaranteed": "no", "reason": why(error)}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    passed = {"all s": time.perf_counter() - began, "processor s": time.process_time()}
    return row | {key: round(value, 1) for key, value in passed.items()} | {"peak MB": memory}


def figures_of(settings: RouteSettings, out: Path, *, train: bool) -> dict[str, Any]:
    """Judge on the matrices that were not learned from; the router, too, if it is to be trained."""
    began = time.perf_counter()
    prepared = Routing().prepare(settings, None)
    made, measured = prepared.instance, prepared.measured
    assert measured is not None
    assert made.capacity_factor is not None
    assert settings.load is not None
    figures: dict[str, Any] = {
        "nodes": len({node for arc in made.arcs for node in arc}),
        "links": len(made.arcs),
        "demands": len(made.demand_max),
        "paths": len(made.path_demand),
        "level": round(made.capacity_factor * settings.load, 3),
        "preparing s": round(time.perf_counter() - began, 1),
    }
    inside = measured.find_inside(made)
    best = made.find_optimal(measured.later).mlu
    optimum = network_optimum(made, measured.later)
    answered = best / optimum  # outside the set answers are those of a linear program
    if train:
        done = perform(Routing(), settings, out=out, force=True, report=False)
        splits = done.result.ensemble.predict(measured.later, outside="ignore")
        reached = made.compute_utilisation(measured.later, splits).max(axis=1)
        answered = np.where(inside, reached / optimum, answered)
        strength = done.summary["strength"]
        figures |= {
            "router mean": round(float((reached / best).mean()), 4),
            "router worst": round(float((reached / best).max()), 4),
            "guaranteed": "yes" if strength == GUARANTEED else strength,
            "training s": round(done.summary["pricing_s"], 1),
        }
    return figures | {
        "judged": len(optimum),
        "inside": int(inside.sum()),
        "within 1.05": int((answered <= NEAR).sum()),
        "mean ratio": round(float(answered.mean()), 4),
        "worst ratio": round(float(answered.max()), 4),
    }


def measure_networks(
    folder: Path,
    names: Sequence[str],
    out: Path,
    usual: dict[str, Any],
    *,
    jobs: int = 1,
    train: bool = True,
    tell: Any,
) -> list[dict[str, Any]]:
    """All rows, of those that are there as they are; a table is written after each network."""
    rows: dict[str, dict[str, Any]] = {}
    with ThreadPoolExecutor(jobs) as threads:  # each waits for a process of its own
        asked: dict[Future[dict[str, Any]], str] = {
            threads.submit(_one_row, folder, name, out, usual, train): name for name in names
        }
        for done in as_completed(asked):
            row = rows[asked[done]] = done.result()
            tell(", ".join(f"{key} {value}" for key, value in row.items() if value != ""))
            write_tables(out, [rows[name] for name in names if name in rows])
    return [rows[name] for name in names]


def _one_row(
    folder: Path, name: str, out: Path, usual: dict[str, Any], train: bool
) -> dict[str, Any]:
    """Measured in a process of its own, or as it was measured before."""
    known = out / "rows" / f"{name}{'' if train else '-paths'}.json"
    if known.is_file():
        return {key: value for key, value in files.read_json(known).items() if key != "sha256"}
    row = run_alone(folder, name, out, usual, train)
    known.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(known, row)
    return row


def run_alone(*asked: Any) -> dict[str, Any]:
    """`route_network` in a process of its own, so that its peak of memory is its own."""
    alone = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=alone) as pool:
        return pool.submit(route_network, *asked).result()


def summarise(rows: Sequence[dict[str, Any]]) -> str:
    """How many matrices are near the optimum, and how many routers are guaranteed."""
    judged = [row for row in rows if "judged" in row]
    matrices = sum(row["judged"] for row in judged)
    near = sum(row["within 1.05"] for row in judged)
    trained = [row for row in rows if "guaranteed" in row]
    kept = sum(row["guaranteed"] == "yes" for row in trained)
    share = f" ({near / matrices:.1%})" if matrices else ""
    said = f"{near} of {matrices} matrices{share} at most {NEAR} times the optimum"
    return f"{said}, {kept} of {len(rows)} networks guaranteed" if trained else said


def draw_cost(rows: Sequence[dict[str, Any]], target: Path) -> Path:
    """Processor seconds and memory against demands."""
    judged = sorted((row for row in rows if "judged" in row), key=lambda row: row["demands"])
    figure, panels = new_panels(2)
    for panel, key in zip(panels, ("processor s", "peak MB"), strict=True):
        panel.loglog([row["demands"] for row in judged], [row[key] for row in judged], "o")
        panel.set_xlabel("demands")
        panel.set_ylabel(key)
        panel.grid(visible=True, alpha=0.3)
    return write(figure, target)


def write_tables(out: Path, rows: list[dict[str, Any]]) -> None:
    keys = dict.fromkeys(key for row in rows for key in row)
    even = [{key: row.get(key, "") for key in keys} for row in rows]
    out.mkdir(parents=True, exist_ok=True)
    (out / "repetita.csv").write_text(csv_text(even), encoding="utf-8")
    table = format_markdown(even)
    (out / "repetita.md").write_text(f"{summarise(rows)}\n\n{table}\n", encoding="utf-8")
    if any("judged" in row for row in rows):
        draw_cost(rows, out / "repetita.png")


def repetita(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Of .graph and .demands files.")],
    *,
    networks: Annotated[
        str, typer.Option(metavar="NAMES", help="Which, parted by commas; all if left out.")
    ] = "",
    smallest: Annotated[
        int | None, typer.Option(metavar="N", help="Only so many, those of fewest nodes.", min=1)
    ] = None,
    out: Folder = Path("runs/repetita"),
    seed: Seed = 0,
    device: Device = "cpu",
    threads: Threads = 1,
    jobs: Jobs = 1,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="Only paths, by which matrices outside are routed.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Train, guarantee and judge routers of whole matrices, the smallest networks first.

    Writes repetita.csv and repetita.md into DIR after each network. Exit code 0: every network has
    a router that is guaranteed; 3: not so; 2: bad input.
    """
    names = list_networks(folder, [one.strip() for one in networks.split(",") if one.strip()])
    usual = {"seed": seed, "device": device, "threads": threads}
    tell = silent if quiet else say
    rows = measure_networks(
        folder,
        names[:smallest],
        out,
        usual,
        jobs=jobs or os.cpu_count() or 1,
        train=not untrained,
        tell=tell,
    )
    print(format_plain(rows))
    print(summarise(rows))
    failed = [row for row in rows if row.get("guaranteed", "yes") != "yes"]
    raise typer.Exit(NOT_KEPT if failed else KEPT)


if __name__ == "__main__":
    raise SystemExit(command(repetita, "python -m experiments.repetita", "networks --smallest 10"))
