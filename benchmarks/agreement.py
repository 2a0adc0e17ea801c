"""Do certifier and checker agree? Random problems at extreme scales, every proof checked.

    python benchmarks/agreement.py --problems 1030 --seed 0

Inputs, weights, biases and rules are each multiplied by a power of ten between 1e-40 and 1e40.
The search alone closes every cell of some problems that the checker rejects; `certify` must call
none of these proven; exits with 1 if it does.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np
import torch
from soundness import Sloped, random_form, random_mixture, random_region

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.members import NetworkMembers
from cg4ai.members.mixture import Part
from cg4ai.proofs import certify, find_affine_rules
from cg4ai.proofs.certificate import build_certificate
from cg4ai.rules import Linear
from cg4ai.rules.regions import Ball, Box, Polytope
from cg4ai_checker import Rejected, check

LARGEST_POWER = 40
TRIED = 2000  # inputs by which the limit is set
ROOMS = (1e-1, 1e-3, 1e-6, 1e-9, 1e-12)  # what the limit leaves, relative to what is reached


def power(generator: np.random.Generator) -> float:
    """1 as often as not."""
    most = LARGEST_POWER * generator.integers(2)
    return float(10.0 ** generator.uniform(-most, most))


def rescaled(ensemble: Ensemble, generator: np.random.Generator, inputs: float) -> Ensemble:
    """Networks that expect inputs `inputs` times as large, with weights and biases rescaled."""
    parts = []
    for part in ensemble.parts:
        members = part.members
        if isinstance(members, NetworkMembers):
            state = members.state()
            arrays = {
                name: array * (inputs if name.startswith("normalise") else power(generator))
                for name, array in state.arrays.items()
            }
            members = NetworkMembers.restore(type(state)(state.kind, state.config, arrays))
        parts.append(Part(members, part.blocks, part.weights))
    return Ensemble(tuple(parts), ensemble.layout)


def extreme_problem(seed: int) -> tuple[Ensemble, Linear]:
    """A mixture and a rule whose limit is a little above what some inputs reach."""
    generator = np.random.default_rng(seed)
    _, plain = random_mixture(generator)
    size = power(generator)
    ensemble = rescaled(plain, generator, size)
    region = random_region(generator, ensemble.input_size)
    if isinstance(region, Box):
        region = Box(region.lower * size, region.upper * size)
    elif isinstance(region, Ball):
        region = Ball(region.centre * size, region.radius * size, region.norm)
    else:
        box = Box(region.box.lower * size, region.box.upper * size)
        region = Polytope(box, region.matrix, region.limit * size)
    constant = generator.normal(size=(int(generator.integers(1, 3)), ensemble.output_size)).round(1)
    given = random_form(generator, constant, ensemble.input_size)
    factor = power(generator)
    rule = Sloped(given.constant * factor, given.slope * factor / size)
    count = rule.count
    points = region.sample(TRIED, torch.Generator().manual_seed(seed)).numpy()
    rules = find_affine_rules(
        Linear(region, rule, np.zeros(count), sense="<="), output_size=ensemble.output_size
    )
    values = rules.values(points, ensemble.predict(points))
    limit = values.max(axis=0) + generator.choice(ROOMS) * np.abs(values).max(axis=0)
    return ensemble, Linear(region, rule, limit, sense="<=")


def accepted(ensemble: Ensemble, wanted: Linear, answer: object) -> bool:
    try:
        check(build_certificate(ensemble, requirement=wanted, certification=answer))  # type: ignore[arg-type]
    except (Rejected, InvalidInput):
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=1030)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.problems):
        try:
            problem = extreme_problem(seed)
            search = certify(*problem, time_limit_s=2.0, cell_limit=2000, verify=False)
        except InvalidInput:
            found["refused"] += 1
            continue
        found[f"{search.status} by the search"] += 1
        if search.status == "proven":
            agrees = accepted(*problem, search)
            found["of these rejected by the checker"] += not agrees
            said = certify(*problem, time_limit_s=60.0).status == "proven"
            found["of these called proven by certify"] += said and not agrees
            if not agrees:
                print(f"seed {seed}: {certify(*problem, time_limit_s=60.0)}")
    print(f"{given.problems} problems: " + ", ".join(f"{n} {name}" for name, n in found.items()))
    return 1 if found["of these called proven by certify"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
