"""`python -m experiments.traffic --data DIR`: routers that learn from measured traffic.

DIR holds `abilene.npz` and `geant.npz` (matrices, times, nodes: SNDlib's dynamic matrices) and
`pod_a.npz` (train and test matrices of a Facebook pod with its own tunnels, from FIGRET). For each
network the set of demands comes from the earlier matrices alone, and the later ones judge. With
`--choose` the last fifth of the earlier ones judges instead, and the later ones are not looked at:
for choices of settings. Capacities are scaled to a load of 0.99 on the set; ratios to the optimum
do not depend on that.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from cg4ai.apps.runner import perform
from cg4ai.report.tables import format_markdown
from cg4ai.routing.app import Routing
from cg4ai.routing.demands.scaling import factor_of, format_both, format_notice
from cg4ai.routing.options import CAPACITIES_AUTO
from cg4ai.routing.settings import RouteSettings
from experiments.command import KEPT, NOT_KEPT, Device, Folder, Seed, Threads, command, say

SPLIT = 0.7  # of abilene's and geant's matrices are earlier ones
HELD_OUT = 0.2  # of the earlier ones judge with --choose
NETWORKS = ("pod_a", "abilene", "geant")
# the least of 1.25, 1.5 and 2 by which the set of the first 80 % of the earlier matrices contains
# 97 % of the others of them
HEADROOM = {"pod_a": 1.25, "abilene": 1.5, "geant": 1.5}


def pod_files(data: Path, folder: Path) -> dict[str, Path]:
    """Links, tunnels and traffic of the pod as files that `cg4ai route` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    with np.load(data / "pod_a.npz") as held:
        pod = {name: held[name] for name in held.files}
    links = [
        f"{source},{target},{capacity},no"
        for (source, target), capacity in zip(pod["arcs"], pod["capacity"], strict=True)
    ]
    (folder / "pod_a.csv").write_text("\n".join(["source,target,capacity,both", *links]))
    paths = []
    for line in filter(None, map(str, pod["tunnels"])):
        ends, listed = line.split(":")
        source, target = ends.split()
        paths += [f"{source},{target},{one.replace('-', ';')}" for one in listed.split(",")]
    (folder / "tunnels.csv").write_text("\n".join(["source,target,path", *paths]))
    matrices = np.concatenate([pod["train"], pod["test"]])
    nodes, times = np.arange(matrices.shape[1]).astype(str), np.arange(len(matrices)).astype(str)
    np.savez(folder / "traffic.npz", matrices=matrices, times=times, nodes=nodes)
    return {name: folder / file for name, file in _POD.items()} | {
        "first_test": Path(str(len(pod["train"])))
    }


_POD = {"network": "pod_a.csv", "path_file": "tunnels.csv", "traffic": "traffic.npz"}


def asked(name: str, data: Path, folder: Path, *, choose: bool, **further: Any) -> RouteSettings:
    """The settings of one network."""
    if name == "pod_a":
        files = pod_files(data, folder / "files")
        split = str(files.pop("first_test"))
        where: dict[str, Any] = {**files, "network": str(files["network"])}
    else:
        where = {"network": name, "traffic": data / f"{name}.npz", "path_choice": "shortest"}
        split = str(SPLIT)
    if choose:
        where["traffic"], split = _earlier(where["traffic"], split, folder / f"{name}-earlier.npz")
    where |= {"split": split, "scale_capacities": CAPACITIES_AUTO}
    return RouteSettings(**where, baseline=True, **further)


def _earlier(traffic: Path, split: str, target: Path) -> tuple[Path, str]:
    """A file of the earlier matrices alone, and where to split them."""
    from cg4ai.routing.demands.traffic_files import read_traffic

    target.parent.mkdir(parents=True, exist_ok=True)
    kept, _ = read_traffic(traffic).split(split)
    np.savez(target, matrices=kept.matrices, times=kept.times, nodes=kept.nodes)
    return target, str(1 - HELD_OUT)


def tables(summary: dict[str, Any]) -> str:
    """One network in Markdown."""
    found = summary["traffic"]
    rows = [
        {"": name, **{key: f"{value:.4f}" for key, value in row.items()}}
        for name, row in found["ratio"].items()
    ]
    inside, factor = found.get("ratio_inside", {}), factor_of(summary)
    worst, level = (
        format_both(found.get(key, 0), factor, ".3f") for key in ("worst_optimum", "level")
    )
    scaled = "".join(f"{line}\n\n" for line in format_notice(factor))
    return (
        f"{scaled}"
        f"**{summary['network']}**, {summary['demands']} demands, {summary['links']} links: "
        f"{found['earlier']} earlier matrices, {found['later']} later ones, "
        f"{found['inside']:.2%} of which lie in the set (mean there {inside.get('mean', 0):.4f}). "
        f"Strength {summary['strength']}; the set's worst optimum lies between "
        f"{worst} and {level}. Training "
        f"{summary['total_s']:.0f} s, evaluation {summary['evaluation_s']:.0f} s.\n\n"
        f"{format_markdown(rows)}\n"
    )


def traffic(
    data: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the measured traffic.")],
    out: Folder = Path("runs/traffic"),
    networks: Annotated[str, typer.Option(help="Which, parted by commas.")] = ",".join(NETWORKS),
    choose: Annotated[bool, typer.Option("--choose", help="Judge on held-out days.")] = False,
    time_limit: Annotated[float, typer.Option(help="Seconds of each network.")] = float("inf"),
    seed: Seed = 0,
    threads: Threads = 1,
    device: Device = "cpu",
) -> None:
    """Train on earlier matrices, judge on later ones, and print a table for each network."""
    kept = True
    for name in networks.split(","):
        folder = out / ("chosen" if choose else "judged")
        settings = asked(
            *(name, data, folder),
            choose=choose,
            headroom=HEADROOM[name],
            time_limit_s=time_limit,
            seed=seed,
            threads=threads,
            device=device,
        )
        say(f"{name}: training")
        routed = perform(Routing(), settings, out=folder / name, force=True)
        (folder / f"{name}.json").write_text(json.dumps(routed.summary, indent=1))
        print(tables(routed.summary), flush=True)
        kept &= routed.evaluation is not None and routed.evaluation.kept
    raise typer.Exit(KEPT if kept else NOT_KEPT)


if __name__ == "__main__":
    raise SystemExit(command(traffic, "python -m experiments.traffic", "--data DIR"))
