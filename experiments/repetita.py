"""`python -m experiments.repetita FOLDER`: routers of whole matrices on REPETITA's networks.

FOLDER holds `NAME.graph` and `NAME.0000.demands`, `NAME.0001.demands` and so on. The router learns
from the first three of five matrices, in the order of their names, is guaranteed over the set that
is fitted to these alone, and is judged on the others. Of a network with one matrix five are made,
in which each demand has a lognormal factor. Settings are the defaults. Capacities are those of the
files; where no routing carries the whole set at these, a row says so, and the next one has a router
at capacities that are scaled as far as the set needs.

Optima are those of the whole network, over all paths, found by linear programs. Each network runs
in a process of its own, whose processor seconds and peak of memory stand beside. What has been
measured is kept in DIR and not run again.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
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
from cg4ai.routing.prove.unroutable import UnroutableError
from cg4ai.routing.settings import RouteSettings
from cg4ai.runs import files
from experiments.command import KEPT, NOT_KEPT, Folder, Quiet, Seed, Threads, command, say, silent
from experiments.side_by_side import OF_ONE_RUN, why

SPLIT = "0.6"  # three of five matrices are learned from
MADE, SPREAD = 5, 0.3  # matrices where there is one, and the spread of the factors' logarithms
GUARANTEED = "shielded"
REAL, SCALED = "real", CAPACITIES_AUTO


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
    folder: Path, name: str, out: Path, capacities: str, usual: dict[str, Any]
) -> dict[str, Any]:
    """One row: a router of one network, or why there is none."""
    row: dict[str, Any] = {"network": name, "capacities": capacities}
    try:
        settings = RouteSettings(
            network=str(folder / f"{name}.graph"),
            demands=ALL,
            traffic=find_traffic(folder, name, out, usual["seed"]),
            split=SPLIT,
            scale_capacities=None if capacities == REAL else CAPACITIES_AUTO,
            **usual,
        )
        row |= figures_of(settings, out / f"{name}-{capacities}")
    except UnroutableError as error:
        row |= {"guaranteed": "unroutable", "reason": str(error).partition(". ")[0]}
    except OF_ONE_RUN as error:
        row |= {"guaranteed": "no", "reason": why(error)}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return row | {"processor s": round(time.process_time(), 1), "peak MB": memory}


def figures_of(settings: RouteSettings, out: Path) -> dict[str, Any]:
    """Train, evaluate, and judge on the matrices that were not learned from."""
    done = perform(Routing(), settings, out=out, force=True, report=False)
    made, measured, summary = done.prepared.instance, done.prepared.measured, done.summary
    assert measured is not None
    splits = done.result.ensemble.predict(measured.later, outside="ignore")
    reached = made.compute_utilisation(measured.later, splits).max(axis=1)
    ratio = reached / network_optimum(made, measured.later)
    over_paths = reached / made.find_optimal(measured.later).mlu
    factor = made.capacity_factor or float("nan")
    return {
        "nodes": len({node for arc in made.arcs for node in arc}),
        "demands": len(made.demand_max),
        "paths": len(made.path_demand),
        "factor": round(factor, 4),
        "judged": len(reached),
        "inside": int(measured.find_inside(made).sum()),
        "mean ratio": round(float(ratio.mean()), 4),
        "worst ratio": round(float(ratio.max()), 4),
        "over own paths": round(float(over_paths.mean()), 4),
        "guaranteed": "yes" if summary["strength"] == GUARANTEED else summary["strength"],
        "training s": round(summary["pricing_s"], 1),
    }


def measure_networks(
    folder: Path, names: Sequence[str], out: Path, usual: dict[str, Any], *, tell: Any
) -> list[dict[str, Any]]:
    """All rows, of those that are there as they are; a table is written after each network."""
    rows: list[dict[str, Any]] = []
    for name in names:
        for capacities in (REAL, SCALED):
            row = _one_row(folder, name, out, capacities, usual)
            rows.append(row)
            tell(", ".join(f"{key} {value}" for key, value in row.items() if value != ""))
            if row["guaranteed"] != "unroutable":
                break
        write_tables(out, rows)
    return rows


def _one_row(
    folder: Path, name: str, out: Path, capacities: str, usual: dict[str, Any]
) -> dict[str, Any]:
    """Measured in a process of its own, or as it was measured before."""
    known = out / "rows" / f"{name}-{capacities}.json"
    if known.is_file():
        return dict(files.read_json(known))
    row = run_alone(folder, name, out, capacities, usual)
    known.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(known, row)
    return row


def run_alone(*asked: Any) -> dict[str, Any]:
    """`route_network` in a process of its own, so that its peak of memory is its own."""
    alone = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=alone) as pool:
        return pool.submit(route_network, *asked).result()


def write_tables(out: Path, rows: list[dict[str, Any]]) -> None:
    keys = dict.fromkeys(key for row in rows for key in row)
    even = [{key: row.get(key, "") for key in keys} for row in rows]
    out.mkdir(parents=True, exist_ok=True)
    (out / "repetita.csv").write_text(csv_text(even), encoding="utf-8")
    (out / "repetita.md").write_text(format_markdown(even) + "\n", encoding="utf-8")


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
    threads: Threads = 1,
    quiet: Quiet = False,
) -> None:
    """Train, guarantee and judge routers of whole matrices, the smallest networks first.

    Writes repetita.csv and repetita.md into DIR after each network. Exit code 0: every network has
    a router that is guaranteed, at real or scaled capacities; 3: not so; 2: bad input.
    """
    names = list_networks(folder, [one.strip() for one in networks.split(",") if one.strip()])
    usual = {"seed": seed, "threads": threads}
    tell = silent if quiet else say
    rows = measure_networks(folder, names[:smallest], out, usual, tell=tell)
    print(format_plain(rows))
    last = {row["network"]: row["guaranteed"] for row in rows}
    raise typer.Exit(KEPT if set(last.values()) == {"yes"} else NOT_KEPT)


if __name__ == "__main__":
    raise SystemExit(command(repetita, "python -m experiments.repetita", "networks --smallest 10"))
