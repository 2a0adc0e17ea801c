"""Trees beside networks as routers: gaps, processor seconds and seconds of proof, as a table.

`python benchmarks/bench_routing_trees.py abilene-5-3 di-yuan-5-3 ...` trains, for each
configuration, shielded networks, trees that are proven, one tree of as many leaves as these have
together, and both kinds in one master, each with the usual settings, and measures all of them on
the same 10,000 demand vectors that training never saw.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import torch

from cg4ai.colgen.loop import solve
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.members.trees import TreeMembers
from cg4ai.proofs import certify
from cg4ai.routing.app import APPLICATION, RoutingPreparation
from cg4ai.routing.evaluate import Validation
from cg4ai.routing.network.instance import instance
from cg4ai.routing.settings import TREES, RouteSettings
from cg4ai.routing.train.problem import capacity
from cg4ai.seeds import derive_seed

KINDS = ("network", "trees", "one tree", "both")
HEAD = (
    "| configuration | members | mean gap | largest gap | processor s | proof s | strength | "
    "weight of trees |"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configurations", nargs="+", metavar="NETWORK-DEMANDS-PATHS")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--leaves", type=int, default=256)
    parser.add_argument("--validation", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(HEAD)
    print("| --- | --- | ---: | ---: | ---: | ---: | --- | ---: |", flush=True)
    for name in asked.configurations:
        measure(name, asked)


def measure(name: str, asked: argparse.Namespace) -> None:
    leaves, validation, seed = asked.leaves, asked.validation, asked.seed
    network, demands, paths = name.rsplit("-", 2)
    usual = RouteSettings(
        network=network,
        demands=int(demands),
        paths=int(paths),
        protocol="paper",
        leaves=leaves,
        seed=seed,
    )
    made = instance(network, int(demands), int(paths))
    vectors = made.sample(validation, derive_seed(seed, 0, "validation"))
    known = Validation(vectors, made.find_optimal(vectors))
    kinds = {
        "network": usual,
        "trees": replace(usual, members="tree", guarantee="certified"),
        "one tree": replace(
            usual, members="tree", guarantee="certified", leaves=TREES * leaves, rounds=1
        ),
        "both": replace(usual, members="both"),
    }
    for kind in asked.kinds:
        settings = kinds[kind]
        started = time.process_time()
        router = solve(*APPLICATION.training(RoutingPreparation(settings, made))).ensemble
        trained = time.process_time() - started
        gaps = known.compute_gaps(made, router.predict(vectors))
        started = time.process_time()
        proof = certify(router, capacity(made, settings))
        proved = time.process_time() - started
        strength = proof.strength if proof.status == "proven" else proof.status
        print(
            f"| {name} | {kind} | {gaps['mean_mlu_gap']:.5f} | {gaps['max_mlu_gap']:.3f} | "
            f"{trained:.1f} | {proved:.2f} | {strength} | {tree_weight(router):.2f} |",
            flush=True,
        )


def tree_weight(router: Ensemble) -> float:
    """How much of the mixture is trees."""
    inside = [(getattr(part.members, "inner", part.members), part.weights) for part in router.used]
    return sum(float(weights.sum()) for one, weights in inside if isinstance(one, TreeMembers))


if __name__ == "__main__":
    main()
