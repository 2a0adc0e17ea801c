"""Attack proven claims: random small mixtures and boxes, all activations and kinds of outputs.

    python benchmarks/soundness.py --seconds 120

Each case asks for limits a little above, at or below what sampling reaches. Proven claims are then
attacked with random points, corners, points near the worst ones and a grid; refuted claims are
recomputed. Prints counts and exits with 1 if any proven claim is broken or any counterexample is
none. With `--checker` the bounds of the separate checker are attacked, see `checker_attacks.py`.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch
from sklearn.tree import DecisionTreeRegressor

from cg4ai.apps.tables import markdown
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, NetworkArchitecture, from_sklearn
from cg4ai.members.mixture import Part
from cg4ai.proofs import AffineCoefficients, certify, rules_of
from cg4ai.rules import Linear
from cg4ai.rules.regions import Ball, Box

POINTS = 60_000  # random points per attacked claim; a grid and climbing points come on top
ACTIVATIONS = ("relu", "gelu", "tanh")
HIDDEN = ((), (4,), (8,), (5, 4), (3, 4, 3))
OUTPUTS = ("linear", "softmax", "grouped")


@dataclass
class Sloped:
    """Rules whose coefficients are affine in the input, like demand times share."""

    constant: np.ndarray
    slope: np.ndarray  # (L, r, d)

    @property
    def count(self) -> int:
        return len(self.constant)

    def values(self, inputs: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        constant, slope = torch.as_tensor(self.constant), torch.as_tensor(self.slope)
        coefficients = constant + torch.einsum("lrd,kd->klr", slope, inputs)
        return torch.einsum("klr,...kr->...kl", coefficients, outputs)

    def coefficients(self, inputs: np.ndarray, which: np.ndarray) -> np.ndarray:
        return self.constant[which] + np.einsum("mrd,md->mr", self.slope[which], inputs)

    def affine(self) -> AffineCoefficients:
        rule, output, place = np.nonzero(self.slope)
        return AffineCoefficients(self.constant, rule, output, place, self.slope[self.slope != 0])


@dataclass
class Tally:
    """What the campaign counts."""

    answers: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    points: int = 0
    cells: int = 0
    closest: float = np.inf  # least distance of a proven bound above a value found
    wrong: list[str] = field(default_factory=list)


def random_part(generator: np.random.Generator, inputs: int, outputs: int) -> tuple[str, Part]:
    count = int(generator.integers(1, 4))
    blocks = np.zeros(count, np.int64)
    kind = generator.choice(["network", "network", "network", "tree", "constant"])
    if kind == "constant":
        return "constant", Part(
            ConstantMembers(generator.normal(size=(1, outputs)), inputs), blocks[:1], np.ones(1)
        )
    if kind == "tree":
        X, y = generator.uniform(-1, 1, (40, inputs)), generator.normal(size=(40, outputs))
        tree = DecisionTreeRegressor(max_depth=3, random_state=0).fit(X, y)
        return "tree", Part(from_sklearn(tree), blocks[:1], np.ones(1))
    output = str(generator.choice(OUTPUTS))
    hidden = HIDDEN[generator.integers(len(HIDDEN))]
    activation = str(generator.choice(ACTIVATIONS))
    architecture = NetworkArchitecture(
        inputs,
        outputs,
        hidden=hidden,
        activation=activation,  # type: ignore[arg-type]
        skip=bool(hidden) and bool(generator.integers(2)),
        output=output,  # type: ignore[arg-type]
        groups=(outputs - 2, 2) if output == "grouped" else (),
        shift=generator.normal(size=inputs),
        scale=generator.uniform(0.3, 2.0, inputs),
    )
    seed = torch.Generator().manual_seed(int(generator.integers(2**31)))
    size = float(generator.choice([0.5, 1.5, 4.0]))
    parameters = {k: size * v for k, v in architecture.initialise(count, seed).items()}
    if output == "softmax" and generator.integers(4) == 0:  # an output that does not exist
        parameters[f"weight_{len(hidden)}"][:, -1] = 0.0
        parameters[f"bias_{len(hidden)}"][:, -1] = -1e4
        if architecture.skip:
            parameters["skip"][:, -1] = 0.0
    name = f"{activation if hidden else 'affine'} {len(hidden)} {output}"
    return name, Part(architecture.members(parameters), blocks, np.ones(count))


def random_case(generator: np.random.Generator) -> tuple[list[str], Ensemble, Linear]:
    inputs, outputs = int(generator.integers(1, 4)), int(generator.integers(3, 6))
    named = [random_part(generator, inputs, outputs) for _ in range(generator.integers(1, 3))]
    shares = generator.dirichlet(np.ones(sum(len(part.weights) for _, part in named)))
    parts, start = [], 0
    for _, part in named:
        own = shares[start : start + len(part.weights)]
        parts.append(Part(part.members, part.blocks, own))
        start += len(own)
    ensemble = Ensemble(tuple(parts), Layout.single(outputs))
    lower = generator.uniform(-1, 1, inputs)
    upper = lower + generator.choice([0.05, 0.5, 2.0]) * generator.uniform(0, 1, inputs)
    region: Box | Ball = Box(lower, upper)
    if generator.integers(4) == 0:
        region = Ball(lower, float(generator.uniform(0.05, 1.0)))
    rules = int(generator.integers(1, 3))
    constant = generator.normal(size=(rules, outputs)).round(1)
    slope = generator.normal(size=(rules, outputs, inputs)) * (generator.random() < 0.5)
    equal = generator.integers(outputs - 1)  # equal coefficients are merged into one share
    constant[:, equal + 1], slope[:, equal + 1] = constant[:, equal], slope[:, equal]
    requirement = Linear(region, Sloped(constant, slope), np.zeros(rules), sense="<=")
    requirement.check(inputs, outputs)
    return [name for name, _ in named], ensemble, requirement


def attack_points(region: Box | Ball, seed: int, near: np.ndarray | None) -> np.ndarray:
    generator = torch.Generator().manual_seed(seed)
    parts = [region.sample(POINTS, generator), region.extremes(256, generator)]
    lower, upper = region.bounds()
    per_axis = {1: 20_001, 2: 201, 3: 41}[region.size]
    axes = [np.linspace(lo, hi, per_axis) for lo, hi in zip(lower, upper, strict=True)]
    parts.append(torch.as_tensor(np.stack(np.meshgrid(*axes), -1).reshape(-1, region.size)))
    if near is not None:
        noise = torch.randn(len(near) * 40, region.size, generator=generator, dtype=torch.float64)
        scale = torch.as_tensor(
            10.0 ** np.random.default_rng(seed).uniform(-6, -1, (len(noise), 1))
        )
        parts.append(torch.as_tensor(np.repeat(near, 40, axis=0)) + noise * scale)
    points = region.project(torch.cat(parts)).numpy()
    return np.asarray(points[region.contains(points)])


def one_case(seed: int, tally: Tally) -> None:
    generator = np.random.default_rng(seed)
    names, ensemble, requirement = random_case(generator)
    rules = rules_of(requirement, output_size=ensemble.output_size)
    region = requirement.inputs
    first = attack_points(region, seed, None)
    values = rules.values(first, ensemble.predict(first))
    top, spread = values.max(0), values.max(0) - values.min(0)
    room = float(generator.choice([1e-1, 1e-2, 1e-3, 0.0, -1e-2]))
    limit = top + room * (spread + 1e-3)
    asked = Linear(region, requirement.coefficients, limit, sense="<=")
    answer = certify(ensemble, asked, time_limit_s=3.0, cell_limit=20_000)
    tally.answers[answer.status] += 1
    tally.cells += answer.cells
    tally.kinds.update(names)
    if answer.status == "refuted":
        point = answer.counterexample
        assert point is not None
        assert answer.counterexample_rule is not None
        value = rules.values(point[None], ensemble.predict(point[None]))[0]
        inside = bool(region.contains(point[None])[0])
        if not inside or value[answer.counterexample_rule] <= limit[answer.counterexample_rule]:
            tally.wrong.append(f"seed {seed}: a counterexample is none")
    # bounds of rules are proven whatever the answer as a whole
    bounds = np.array([proof.bound for proof in answer.rules])
    if np.isfinite(bounds).any():
        worst = first[np.argsort(-values.max(1))[:50]]
        points = attack_points(region, seed + 10**9, worst)
        reached = np.maximum(top, rules.values(points, ensemble.predict(points)).max(0))
        tally.points += len(points) + len(first)
        tally.closest = min(tally.closest, float((bounds - reached).min()))
        if np.any(reached > bounds):
            tally.wrong.append(f"seed {seed}: {names} proven {bounds}, found {reached}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checker", action="store_true", help="attack the checker's own bounds")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.checker:
        from checker_attacks import campaign  # which takes its problems from here

        return campaign(given.seconds, given.seed)
    started, tally, seed = time.perf_counter(), Tally(), given.seed
    while time.perf_counter() - started < given.seconds:
        one_case(seed, tally)
        seed += 1
    print(markdown([{"members": name, "times": n} for name, n in sorted(tally.kinds.items())]))
    print(
        f"\n{seed - given.seed} cases, {tally.cells} cells: "
        + ", ".join(f"{n} {status}" for status, n in sorted(tally.answers.items()))
        + f"; proven bounds attacked with {tally.points} points, closest from above by "
        f"{tally.closest:.3g}; {len(tally.wrong)} claims broken"
    )
    print("\n".join(tally.wrong))
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
