"""`python benchmarks/bench_failures.py`: processor seconds of a study of failures, by step.

The network is random: NODES nodes in a plane, a ring through neighbours and the shortest further
links. Its router is trained for a moment, since how good it is does not matter for what a failure
costs. `--profile` lists the functions that take most.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import shutil
import tempfile
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import torch

from cg4ai.apps.runner import perform
from cg4ai.routing.app import APPLICATION
from cg4ai.routing.operate.failure_study import load_whole_router, study
from cg4ai.routing.operate.link_failures import links_of
from cg4ai.routing.operate.rerouting import Effort
from cg4ai.routing.settings import RouteSettings

TRAINED: dict[str, Any] = {"first_steps": 200, "later_steps": 50, "rounds": 1, "priced": 500}
CHORDS = 0.8  # further links per node


def make_network(nodes: int, demands: int, seed: int = 0) -> networkx.Graph:
    """A ring by angle around the middle, and the shortest further links; gravity demands."""
    made = np.random.default_rng(seed)
    places = made.uniform(0, 100, (nodes, 2))
    angle = np.arctan2(*(places - places.mean(axis=0)).T)
    ring = np.argsort(angle)
    links = {tuple(sorted(pair)) for pair in zip(ring, np.roll(ring, 1), strict=True)}
    far = {
        pair: np.linalg.norm(places[pair[0]] - places[pair[1]])
        for pair in combinations(range(nodes), 2)
    }
    for pair in sorted(far, key=far.__getitem__):
        if len(links) >= round((1 + CHORDS) * nodes):
            break
        links.add(pair)
    graph = networkx.Graph(name=f"random{nodes}")
    for source, target in sorted(links):
        length = float(far[tuple(sorted((source, target)))])
        graph.add_edge(
            f"n{source}", f"n{target}", capacity=float(made.choice([10, 40])), length=length
        )
    weight = made.uniform(0.5, 1.5, nodes)
    pairs = [(s, t) for s in range(nodes) for t in range(nodes) if s != t]
    largest = sorted(pairs, key=lambda pair: -weight[pair[0]] * weight[pair[1]])[:demands]
    graph.graph["demands"] = {}
    for s, t in largest:
        volumes = graph.graph["demands"].setdefault(f"n{s}", {})
        volumes[f"n{t}"] = float(weight[s] * weight[t])
    return graph


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("--nodes", type=int, default=30)
    read.add_argument("--demands", type=int, default=20)
    read.add_argument("--failures", type=int, default=6)
    read.add_argument("--seed", type=int, default=0)
    read.add_argument("--profile", action="store_true")
    read.add_argument("--router", type=Path, help="a folder with its router, made if not there")
    given = read.parse_args()
    torch.set_num_threads(1)
    folder = given.router or Path(tempfile.mkdtemp())
    file = folder / "network.json"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        graph = make_network(given.nodes, given.demands, given.seed)
        file.write_text(json.dumps(networkx.node_link_data(graph, edges="links")))
        settings = RouteSettings(
            network=str(file),
            demands=given.demands,
            load=0.5,
            threads=1,
            validation=200,
            path_choice="disjoint",
            **TRAINED,
        )
        perform(APPLICATION, settings, out=folder / "run", report=False)
    shutil.rmtree(folder / "run" / "failures", ignore_errors=True)
    links = links_of(load_whole_router(folder / "run").instance)
    chosen = [links[at] for at in np.linspace(0, len(links) - 1, given.failures).astype(int)]
    profile = cProfile.Profile()
    started = time.process_time()
    if given.profile:
        profile.enable()
    rows = study(folder / "run", ";".join("-".join(link) for link in chosen), Effort())
    profile.disable()
    seconds = time.process_time() - started
    for row in rows:
        gap, largest = row.get("mean_mlu_gap"), row.get("max_mlu_gap")
        figures = "" if gap is None else f": mean gap {gap:.5f}, largest {largest:.4f}"
        print(f"{row['failure']}: {row['outcome']}{figures}")
    print(f"{len(rows)} failures: {seconds:.1f} processor seconds, {seconds / len(rows):.2f} each")
    if given.profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(45)


if __name__ == "__main__":
    main()
