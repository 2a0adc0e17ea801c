"""`python -m experiments.exact agreement|radii|robust|pricing`: a JSON line per case, a summary."""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy.optimize import linprog

from cg4ai import Ensemble
from cg4ai.colgen.separation import MixedInteger
from cg4ai.layout import Layout
from cg4ai.members.mixture import Part
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.members.relu import ReluNetwork, ReluSum
from cg4ai.rules import Box, Linear
from experiments.digits import DigitsSettings, exact_radius, train
from experiments.exact.pricing import KINDS, pricing

MEMBERS = 20


def random_mixture(seed: int) -> Ensemble:
    """Two or three small ReLU networks of three inputs, some with skips, at random weights."""
    random = np.random.default_rng(seed)
    count, hidden = int(random.integers(2, 4)), int(random.integers(1, 3))
    made = NetworkArchitecture(3, 2, hidden=(hidden,), skip=bool(seed % 2))
    stack = made.members(made.initialise(count, torch.Generator().manual_seed(seed)))
    weights = random.dirichlet(np.ones(count))
    return Ensemble((Part(stack, np.zeros(count, np.int64), weights),), Layout.single(2))


def enumerated(total: ReluSum, box: Box) -> float:
    """The largest value over the box: one linear program for every sign pattern of the units."""
    best = -np.inf
    for signs in itertools.product([False, True], repeat=len(total.weight)):
        slope, constant = total.restrict_to_signs(np.array(signs))
        side = np.where(signs, -1.0, 1.0)
        found = linprog(
            -slope,
            side[:, None] * total.hidden if len(side) else None,
            -side * total.offset if len(side) else None,
            bounds=list(zip(box.lower, box.upper, strict=True)),
        )
        best = max(best, constant - found.fun) if found.status == 0 else best
    return best


def agreement(cases: int) -> Iterator[dict[str, Any]]:
    """MIP against all sign patterns on random mixtures."""
    for seed in range(cases):
        random = np.random.default_rng(1000 + seed)
        lower = random.uniform(-1, 0, 3)
        box, rule = Box(lower, lower + random.uniform(0.2, 2, 3)), random.normal(size=2)
        ensemble = random_mixture(seed)
        total = ReluNetwork.of(ensemble).combine_outputs(rule).restrict_to_box(box.lower, box.upper)
        exact = enumerated(total, box)
        found = MixedInteger().find(
            ensemble, Linear(box, rule, 0.0, "<="), seed=0, limit=1, tolerance=-1e9
        )
        assert found.bound is not None
        yield {
            "case": seed,
            "units": len(total.weight),
            "enumerated": exact,
            "input_off_by": abs(found.worst - exact),
            "bound_off_by": abs(found.bound - exact),
        }


def radii(images: int, seed: int) -> Iterator[dict[str, Any]]:
    """The exact largest radius of training images, n = 100, 20 members 784-4-10."""
    trained = train(
        DigitsSettings(n=100, group=MEMBERS, rounds=1, column_limit=MEMBERS, seed=seed, threads=1)
    )
    split = trained.prepared.split
    for number in range(images):
        started = time.process_time()
        label = int(split.train_labels[number])
        found = exact_radius(trained.result.ensemble, split.train_images[number], label)
        yield {
            "image": number,
            "proven": found.proven,
            "broken": found.broken,
            "closed": found.closed,
            "programs": found.programs,
            "seconds": time.process_time() - started,
        }


def robust(radius: float, rounds: int, seed: int) -> Iterator[dict[str, Any]]:
    """Cuts by MIP until every training image keeps its answer within the radius."""
    started = time.process_time()
    trained = train(
        DigitsSettings(
            scenario="robust",
            n=100,
            group=MEMBERS,
            rounds=rounds,
            radius=radius,
            separator="mip",
            seed=seed,
            threads=1,
        )
    )
    wanted = ("balls", "balls_bounded", "balls_violated", "test_accuracy", "active_members", "rows")
    yield {
        "radius": radius,
        **{name: trained.summary[name] for name in wanted},
        "stop_reason": trained.summary["stop_reason"],
        "iterations": trained.summary["iterations"],
        "seconds": time.process_time() - started,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.exact", description=__doc__)
    parser.add_argument("what", choices=["agreement", "radii", "robust", "pricing"])
    parser.add_argument("--cases", type=int, default=200, help="random mixtures or problems")
    parser.add_argument("--members", choices=KINDS, default="relu", help="priced exactly")
    parser.add_argument("--images", type=int, default=100, help="training images")
    parser.add_argument("--radius", type=float, default=0.02, help="largest change of a pixel")
    parser.add_argument("--rounds", type=int, default=4, help="groups of members at most")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    made = {
        "agreement": lambda: agreement(asked.cases),
        "radii": lambda: radii(asked.images, asked.seed),
        "robust": lambda: robust(asked.radius, asked.rounds, asked.seed),
        "pricing": lambda: pricing(asked.members, asked.cases),
    }[asked.what]()
    lines = []
    for line in made:
        lines.append(line)
        print(json.dumps(line), flush=True)
    numbers = {
        name: np.array([line[name] for line in lines if line[name] is not None], float)
        for name in lines[0]
        if isinstance(lines[0][name], int | float)
    }
    for name, values in numbers.items():
        print(
            f"{name}: mean {values.mean():.6g}, least {values.min():.6g}, most {values.max():.6g}"
        )


if __name__ == "__main__":
    main()
