"""Attack proven claims: random small mixtures and regions, all activations and kinds of rules.

    python benchmarks/soundness.py --seconds 120

Each case asks for limits a little above, at or below what sampling reaches. Proven claims are then
attacked with random points, corners, points near the worst ones and a grid; refuted claims are
recomputed. Every other case is a shield: wild members behind a random affine or constant anchor,
whose predictions must keep what is proven of the anchor. Prints counts and exits with 1 if any
proven claim is broken or any counterexample is none. With `--checker` the bounds of the separate
checker are attacked, see `checker_attacks.py`.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from sklearn.tree import DecisionTreeRegressor

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.layout import Layout
from cg4ai.members import (
    ConstantMembers,
    NetworkArchitecture,
    Shield,
    ShieldedMembers,
    affine,
    from_sklearn,
)
from cg4ai.members.mixture import Part
from cg4ai.proofs import AffineCoefficients, certify
from cg4ai.proofs.rule_forms import find_proof_rules
from cg4ai.protocols import Members
from cg4ai.report.tables import format_markdown
from cg4ai.rules import Linear, Quadratic
from cg4ai.rules.bounds import AffineBound, Largest
from cg4ai.rules.guards import guard_of
from cg4ai.rules.regions import Ball, Box, Polytope, Region

POINTS = 60_000  # random points per attacked claim; a grid and climbing points come on top
ROUNDING = 1e-13  # that shielded predictions may exceed a limit by, of the sizes of their terms
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
    acted: int = 0  # predictions behind proven shields that keep all rules to the last bit
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


def random_region(generator: np.random.Generator, inputs: int) -> Region:
    lower = generator.uniform(-1, 1, inputs)
    upper = lower + generator.choice([0.05, 0.5, 2.0]) * generator.uniform(0, 1, inputs)
    kind = generator.integers(4)
    if kind == 0:
        norm = 2.0 if generator.integers(3) else math.inf
        return Ball(lower, float(generator.uniform(0.05, 1.0)), norm)
    if kind == 1:  # rows that cut off some of the box and leave its middle
        rows = generator.normal(size=(int(generator.integers(1, 4)), inputs))
        room = np.abs(rows) @ (upper - lower) * generator.uniform(0, 0.5, len(rows))
        return Polytope(Box(lower, upper), rows, rows @ (lower + upper) / 2 + room)
    return Box(lower, upper)


@dataclass
class Asked:
    """A rule of which only the limits are open: `at(limit)` with limit (rules,)."""

    kind: str
    count: int
    at: Callable[[np.ndarray], Linear | Quadratic]


def random_form(generator: np.random.Generator, constant: np.ndarray, inputs: int) -> Sloped:
    rules, outputs = constant.shape
    slope = generator.normal(size=(rules, outputs, inputs)) * (generator.random() < 0.5)
    equal = generator.integers(outputs - 1)  # equal coefficients are merged into one share
    constant[:, equal + 1], slope[:, equal + 1] = constant[:, equal], slope[:, equal]
    return Sloped(constant, slope)


def random_rule(generator: np.random.Generator, region: Region, outputs: int) -> Asked:
    rules, inputs = int(generator.integers(1, 3)), region.size
    constant = generator.normal(size=(rules, outputs)).round(1)
    if generator.integers(4) == 0:
        factor = generator.normal(size=(rules, outputs, int(generator.integers(1, 3))))
        square = factor @ factor.transpose(0, 2, 1)
        return Asked("quadratic", rules, lambda limit: Quadratic(region, square, limit, constant))
    form = random_form(generator, constant, inputs)
    pieces = int(generator.integers(4))
    if pieces == 0:
        return Asked("linear", rules, lambda limit: Linear(region, form, limit, sense="<="))
    tilts = generator.normal(size=(pieces, rules, inputs))
    starts = generator.normal(size=(pieces, rules)) * 0.3

    def at(limit: np.ndarray) -> Linear:
        each = [AffineBound(limit + s, t) for s, t in zip(starts, tilts, strict=True)]
        return Linear(region, form, Largest(each) if pieces > 1 else each[0], sense="<=")

    return Asked(f"{pieces} pieces", rules, at)


def random_mixture(generator: np.random.Generator) -> tuple[list[str], Ensemble]:
    inputs, outputs = int(generator.integers(1, 4)), int(generator.integers(3, 6))
    named = [random_part(generator, inputs, outputs) for _ in range(generator.integers(1, 3))]
    shares = generator.dirichlet(np.ones(sum(len(part.weights) for _, part in named)))
    parts, start = [], 0
    for _, part in named:
        own = shares[start : start + len(part.weights)]
        parts.append(Part(part.members, part.blocks, own))
        start += len(own)
    return [name for name, _ in named], Ensemble(tuple(parts), Layout.single(outputs))


def random_case(generator: np.random.Generator) -> tuple[list[str], Ensemble, Asked]:
    names, ensemble = random_mixture(generator)
    region = random_region(generator, ensemble.input_size)
    asked = random_rule(generator, region, ensemble.output_size)
    return [*names, asked.kind], ensemble, asked


def behind(ensemble: Ensemble, anchor: Members, rule: Linear | Quadratic) -> Ensemble:
    """The same members, each behind a shield of the rule."""
    rule.check(ensemble.input_size, ensemble.output_size)
    shield = Shield(anchor, (guard_of(rule, ensemble.output_size),))
    parts = [
        replace(part, members=ShieldedMembers(part.members, shield)) for part in ensemble.parts
    ]
    return Ensemble(tuple(parts), ensemble.layout)


def random_anchor(generator: np.random.Generator, inputs: int, outputs: int) -> Members:
    if generator.integers(2):
        return ConstantMembers(generator.normal(size=(1, outputs)), inputs)
    slopes = generator.normal(size=(1, inputs, outputs))
    return affine(slopes, generator.normal(size=(1, outputs)))


def attack_points(region: Region, seed: int, near: np.ndarray | None) -> np.ndarray:
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
    names, ensemble, asked = random_case(generator)
    tally.kinds.update(names)
    free = asked.at(np.zeros(asked.count))
    region = free.inputs
    tally.kinds.update([type(region).__name__])
    first = attack_points(region, seed, None)
    if not len(first):
        return
    room = float(generator.choice([1e-1, 1e-2, 1e-3, 0.0, -1e-2]))
    if seed % 2:
        one_shield(seed, tally, ensemble, asked, first, room, generator)
        return
    rules = find_proof_rules(free, output_size=ensemble.output_size)
    values = rules.measure(first, ensemble.predict(first))
    top, spread = values.max(0), values.max(0) - values.min(0)
    limit = top + room * (spread + 1e-3)
    answer = certify(ensemble, asked.at(limit), time_limit_s=3.0, cell_limit=20_000)
    tally.answers[answer.status] += 1
    tally.cells += answer.cells
    rules = find_proof_rules(asked.at(limit), output_size=ensemble.output_size)
    if answer.status == "refuted":
        point = answer.counterexample
        assert point is not None
        assert answer.counterexample_rule is not None
        value = rules.measure(point[None], ensemble.predict(point[None]))[0]
        inside = bool(region.contains(point[None])[0])
        broken = value[answer.counterexample_rule] > rules.targets[answer.counterexample_rule]
        if not inside or not broken:
            tally.wrong.append(f"seed {seed}: a counterexample is none")
    # bounds of rules are proven whatever the answer as a whole
    bounds = np.array([proof.bound for proof in answer.rules])
    if np.isfinite(bounds).any():
        worst = first[np.argsort(-values.max(1))[:50]]
        points = attack_points(region, seed + 10**9, worst)
        points = np.concatenate([points, first])
        points = points[region.covers(points)]
        reached = rules.measure(points, ensemble.predict(points)).max(0)
        tally.points += len(points)
        tally.closest = min(tally.closest, float((bounds - reached).min()))
        if np.any(reached > bounds):
            tally.wrong.append(f"seed {seed}: {names} proven {bounds}, found {reached}")


def one_shield(
    seed: int,
    tally: Tally,
    ensemble: Ensemble,
    asked: Asked,
    first: np.ndarray,
    room: float,
    generator: np.random.Generator,
) -> None:
    """Limits near what a random anchor reaches; predictions of all members behind its shield."""
    anchor = random_anchor(generator, ensemble.input_size, ensemble.output_size)
    free = find_proof_rules(asked.at(np.zeros(asked.count)), output_size=ensemble.output_size)
    values = free.measure(first, anchor.outputs(torch.as_tensor(first))[0].numpy())
    limit = values.max(0) + room * (np.ptp(values, axis=0) + 1e-3)
    rule = asked.at(limit)
    shielded = behind(ensemble, anchor, rule)
    answer = certify(shielded, rule, time_limit_s=3.0, cell_limit=20_000)
    tally.answers[f"shield {answer.status}"] += 1
    tally.cells += answer.cells
    if answer.status != "proven":
        return
    points = np.concatenate([attack_points(rule.inputs, seed + 10**9, None), first])
    points = points[rule.inputs.covers(points)]
    rules = find_proof_rules(rule, output_size=ensemble.output_size)
    plain = ensemble.predict(points)
    excess = rules.measure(points, shielded.predict(points, outside="ignore")) - rules.targets
    sizes = 1 + np.abs(rules.measure(points, np.abs(plain))) + np.abs(rules.targets)
    tally.points += len(points)
    tally.acted += int((excess <= 0).all(1).sum())
    if np.any(excess > ROUNDING * sizes):
        tally.wrong.append(f"seed {seed}: shield exceeds by {excess.max():.3g}")


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
    print(
        format_markdown([{"members": name, "times": n} for name, n in sorted(tally.kinds.items())])
    )
    print(
        f"\n{seed - given.seed} cases, {tally.cells} cells: "
        + ", ".join(f"{n} {status}" for status, n in sorted(tally.answers.items()))
        + f"; proven bounds attacked with {tally.points} points, closest from above by "
        f"{tally.closest:.3g}; {tally.acted} shielded predictions keep all rules to the last bit; "
        f"{len(tally.wrong)} claims broken"
    )
    print("\n".join(tally.wrong))
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
