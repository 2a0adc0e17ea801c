"""Attack the checker's bounds where only rounding is left: cells that are single inputs.

    python benchmarks/soundness.py --checker --seconds 120

The problems are those of `agreement.py`, at extreme scales. At every input the checker's bound must
be at least the value of each rule, computed exactly from what inference returns, for one input and
for a batch, and the value in real arithmetic, with 60 digits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import torch
from agreement import extreme_problem

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.proofs import Certification, OpenCells, RuleProof, find_affine_rules
from cg4ai.proofs.certificate import build_certificate
from cg4ai.rules import Linear
from cg4ai_checker.bound import rule_bound
from cg4ai_checker.cells import Cells
from cg4ai_checker.claim import Claim
from cg4ai_checker.errors import Rejected
from cg4ai_checker.file import parse_certificate
from cg4ai_checker.parts import PartSource

POINTS = 6
FAR = 1000  # beyond it exponentials are below all that is compared
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda t: max(t, mpmath.mpf(0)),
    "tanh": lambda t: mpmath.tanh(max(min(t, FAR), -FAR)),
    "gelu": lambda t: t * mpmath.ncdf(t) if abs(t) < FAR else max(t, mpmath.mpf(0)),
}


def claimed(ensemble: Ensemble, wanted: Linear) -> Claim:
    """The claim of a certificate whose trees are one leaf each."""
    limit = find_affine_rules(wanted, output_size=ensemble.output_size).limit
    proofs = tuple(
        RuleProof(rule, "proven", float(one), float(one), np.array([-1]), np.array([one]), 1)
        for rule, one in enumerate(limit)
    )
    none = OpenCells(np.empty(0, int), np.empty((0, 1)), np.empty((0, 1)), np.empty(0))
    answer = Certification("proven", proofs, None, None, None, none, 1, 0.0, "")
    data = build_certificate(ensemble, requirement=wanted, certification=answer)
    return Claim(parse_certificate(data))


def exact_outputs(source: PartSource, member: int, point: np.ndarray) -> list[Any]:
    """One member at one input in real arithmetic, but for 60 digits."""
    arrays, config = source.arrays, source.config
    if source.kind == "constant":
        return [mpmath.mpf(float(v)) for v in arrays["values"][member]]
    if source.kind == "tree":
        return _tree(source, member, point)
    size = len(point)
    shift = arrays.get("normalise_shift", np.zeros(size))
    scale = arrays.get("normalise_scale", np.ones(size))
    x = [
        (mpmath.mpf(p) - mpmath.mpf(s)) / mpmath.mpf(k)
        for p, s, k in zip(point.tolist(), shift.tolist(), scale.tolist(), strict=True)
    ]
    depth, values = len(config["hidden"]), x
    for layer in range(depth + 1):
        values = _affine(arrays, f"weight_{layer}", f"bias_{layer}", member, values)
        if layer < depth:
            values = [ACTIVATIONS[config["activation"]](v) for v in values]
    if config["skip"]:
        direct = _affine(arrays, "skip", None, member, x)
        values = [a + b for a, b in zip(values, direct, strict=True)]
    groups = {"linear": [], "softmax": [len(values)], "grouped": config["groups"]}[config["output"]]
    return _softmax(values, groups)


def _affine(
    arrays: Any, weight: str, bias: str | None, member: int, values: list[Any]
) -> list[Any]:
    rows = arrays[weight][member].tolist()
    start = [0.0] * len(rows) if bias is None else arrays[bias][member].tolist()
    return [
        mpmath.fsum([mpmath.mpf(b), *(mpmath.mpf(w) * v for w, v in zip(row, values, strict=True))])
        for row, b in zip(rows, start, strict=True)
    ]


def _tree(source: PartSource, member: int, point: np.ndarray) -> list[Any]:
    a = source.arrays
    x = point.astype(np.float32).astype(np.float64) if source.config["single_precision"] else point
    total = [mpmath.mpf(0)] * a["value"].shape[3]
    for tree in range(a["value"].shape[1]):
        at, node = (member, tree), 0
        while a["left"][at][node] != node:
            right = x[a["feature"][at][node]] > a["threshold"][at][node]
            node = int(a["right" if right else "left"][at][node])
        leaf = a["value"][at][node].tolist()
        total = [t + mpmath.mpf(v) for t, v in zip(total, leaf, strict=True)]
    factor = mpmath.mpf(float(a["factor"][member]))
    raw = [
        mpmath.mpf(i) + factor * t
        for i, t in zip(a["initial"][member].tolist(), total, strict=True)
    ]
    return _softmax(raw, [len(raw)] if source.config["link"] == "softmax" else [])


def _softmax(values: list[Any], groups: list[int]) -> list[Any]:
    result, start = [] if groups else values, 0
    for size in groups:
        own = values[start : start + size]
        powers = [mpmath.exp(max(v - max(own), -FAR)) for v in own]
        result += [p / mpmath.fsum(powers) for p in powers]
        start += size
    return result


def attack(seed: int) -> tuple[int, list[str]]:
    """How many values were compared, and which were above their bounds."""
    try:
        ensemble, wanted = extreme_problem(seed)
        with np.errstate(over="ignore", invalid="ignore"):
            claim = claimed(ensemble, wanted)
    except (InvalidInput, Rejected):
        return 0, []
    region = wanted.inputs
    generator = torch.Generator().manual_seed(seed)
    points = torch.cat([region.sample(POINTS, generator), region.extremes(2, generator)]).numpy()
    points = points[region.contains(points)]
    batch = ensemble.predict(points)
    wrong, count = [], 0
    for rule in range(len(claim.limit)):
        with np.errstate(over="ignore", invalid="ignore"):
            bounds = rule_bound(claim.terms(rule), Cells(points, points)).value
        slope = np.zeros((claim.output_size, claim.input_size))
        own = claim.slope_rule == rule
        slope[claim.slope_output[own], claim.slope_input[own]] = claim.slope_value[own]
        for number, point in enumerate(points):
            x = [Fraction(value) for value in point.tolist()]
            coefficients = [
                Fraction(c) + sum(Fraction(s) * v for s, v in zip(row, x, strict=True))
                for c, row in zip(claim.constant[rule].tolist(), slope.tolist(), strict=True)
            ]
            for outputs in (batch[number], ensemble.predict(point[None])[0], None):
                count += 1
                given = _real(claim, point) if outputs is None else map(Fraction, outputs.tolist())
                value = sum(c * y for c, y in zip(coefficients, given, strict=True))
                if np.isfinite(bounds[number]) and value > Fraction(float(bounds[number])):
                    wrong.append(f"seed {seed}: rule {rule} at {point}: {float(value)!r}")
    return count, wrong


def _real(claim: Claim, point: np.ndarray) -> list[Fraction]:
    """All outputs of the mixture in real arithmetic."""
    with mpmath.workdps(60):
        total = [mpmath.mpf(0)] * claim.output_size
        for source in claim.sources:
            for member, weight in enumerate(source.weights.tolist()):
                outputs = exact_outputs(source, member, point)
                block = claim.blocks[source.blocks[member]].tolist()
                for place, output in zip(block, outputs, strict=False):
                    total[place] += mpmath.mpf(weight) * output
        return [_fraction(value) for value in total]


def _fraction(value: Any) -> Fraction:
    sign, mantissa, exponent, _ = value._mpf_
    return (-1) ** sign * Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def campaign(seconds: float, seed: int) -> int:
    """Attack problem after problem; 1 if a bound is below a value."""
    started, compared, problems, wrong = time.perf_counter(), 0, 0, []
    while time.perf_counter() - started < seconds:
        count, found = attack(seed + problems)
        compared, problems = compared + count, problems + 1
        wrong += found
    print(f"{problems} problems, {compared} values at single inputs, {len(wrong)} above the bound")
    print("\n".join(wrong))
    return 1 if wrong else 0
