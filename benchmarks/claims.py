"""Re-check claims of random problems by exact arithmetic: all kinds of rules, regions and units.

    python benchmarks/claims.py --count 2000 --seed 1 --jobs 2

Each seed draws one problem: rules with members given, anchors behind random shields, mixtures to
certify, or an estimator to fit; inputs, outputs (each its own, now and then) and rules in units
from 1e-9 to 1e9. Whatever is then claimed of a rule is tried at hostile inputs, with the rule
evaluated in rationals by `exact.py`, which imports nothing of the package; outputs are recomputed
from the arrays of the saved ensemble. A claim is false if its rule is missed by more than is said
with it. `--out FILE` keeps a line for each seed, and seeds that stand there are not run again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import exact
import numpy as np
import torch
from exact import Curved, Form, Place, Square, rational, rationals
from sklearn.tree import DecisionTreeRegressor
from torch import Tensor

import cg4ai
from cg4ai.colgen.pricing.defaults import PricerDefaults
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import Cg4aiError
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, NetworkArchitecture, affine, from_sklearn
from cg4ai.members.mixture import Part
from cg4ai.objectives import Supervised
from cg4ai.protocols import Members, PricingRequest
from cg4ai.records import Array, PricingResult
from cg4ai.report.tables import format_markdown
from cg4ai.rules.regions import Ball, Box, Polytope

WORST = 8  # inputs at which a rule is evaluated exactly, those where floats say it is broken most
BUILT = 1e-12  # what rounding may leave of constructed sums, of the sizes of all terms
RECOMPUTED = 1e-9  # by how much predictions may differ from exact ones, of the largest number
Facts = Any  # Form, Square or Curved


# ---- what is drawn -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Units:
    """Of each input (d,), of each output (r,), and of rules."""

    x: Array
    y: Array
    rule: float


@dataclass(frozen=True)
class Rule:
    """A requirement and the same facts for `exact`, one for each listed input or one for all."""

    kind: str
    requirement: Any
    facts: Sequence[Facts]
    place: Place | None = None  # a region; None: `points`, or every input where there are none
    points: Array | None = None


@dataclass
class Drawn:
    """A problem in its units, with the affine function (slopes, offsets) that rules are about."""

    rng: np.random.Generator
    units: Units
    slopes: Array
    offsets: Array

    @property
    def sizes(self) -> tuple[int, int]:
        return self.slopes.shape[1], self.slopes.shape[0]

    def reference(self, points: Array) -> Array:
        """(n, d) in units of 1 -> (n, r) in units of 1."""
        return points @ self.slopes.T + self.offsets

    def room(self) -> float:
        return float(self.rng.choice([-0.2, 0.0, 1e-6, 0.05, 0.5], p=[0.1, 0.1, 0.1, 0.4, 0.3]))


def drawn(rng: np.random.Generator, *, large: bool = True, even: bool = False) -> Drawn:
    """`even`: all outputs in one unit."""
    d = int(rng.integers(1, 5))
    r = int(rng.choice([1, 2, 3, 4, 6, 10, 40]))
    if large and rng.random() < 0.03:
        r = int(rng.choice([100, 250, 500]))

    def unit() -> float:
        return float(10.0 ** rng.integers(-9, 10)) if rng.random() < 0.6 else 1.0

    x = np.full(d, unit()) if rng.random() < 0.7 else np.array([unit() for _ in range(d)])
    y = np.full(r, unit())
    if not even and rng.random() < 0.2:
        y = np.array([unit() for _ in range(r)])
    slopes = rng.normal(size=(r, d)) * rng.choice([0.0, 0.3, 1.0])
    return Drawn(rng, Units(x, y, unit()), slopes, rng.normal(size=r))


def region(d: Drawn) -> tuple[Any, Place, Array]:
    """A region in the problem's units, the same for `exact`, and points of it in units of 1."""
    rng, unit, size = d.rng, d.units.x, d.sizes[0]
    lower = rng.uniform(-1, 1, size)
    upper = lower + rng.choice([0.01, 0.5, 2.0]) * rng.uniform(0, 1, size)
    kind = str(rng.choice(["box", "flat", "ball", "cube", "polytope"]))
    if kind == "flat":
        upper = np.where(rng.random(size) < 0.5, lower, upper)
    ends = lower * unit, upper * unit
    if kind == "ball":
        middle, radius = lower * unit, float(rng.uniform(0.05, 1.0) * unit.min())
        way = rng.normal(size=(400, size))
        way *= (rng.random((400, 1)) ** 0.2) / np.linalg.norm(way, axis=1, keepdims=True)
        place = Place(middle - radius, middle + radius, radius, middle)
        return Ball(middle, radius), place, (middle + radius * way) / unit
    if kind == "cube":
        middle, radius = lower * unit, float(rng.uniform(0.05, 1.0) * unit.min())
        place = Place(middle - radius, middle + radius)
        points = rng.uniform(-1, 1, (400, size)) * radius + middle
        return Ball(middle, radius, np.inf), place, points / unit
    points = lower + (upper - lower) * rng.random((400, size))
    corners = lower + (upper - lower) * (rng.random((64, size)) < 0.5)
    points = np.concatenate([points, corners])
    if kind != "polytope":
        return Box(*ends), Place(*ends), points
    rows = rng.normal(size=(int(rng.integers(1, 3)), size))
    limit = rows @ (lower + upper) / 2 + np.abs(rows) @ (upper - lower) * rng.uniform(
        0.05, 0.5, len(rows)
    )
    inside = (points @ rows.T <= limit).all(1)
    scaled = rows / unit
    place = Place(*ends, rows=scaled, limit=limit)
    return Polytope(Box(*ends), scaled, limit), place, points[inside]


def listed(d: Drawn) -> Array:
    """Points in units of 1."""
    return d.rng.uniform(-1, 1, (int(d.rng.integers(1, 6)), d.sizes[0]))


def linear(d: Drawn, *, over: str, moving: bool = False, tilted: bool = False) -> Rule:
    """Weighted sums; `moving` coefficients and `tilted` bounds depend on the input."""
    rng, unit, (size, outputs) = d.rng, d.units, d.sizes
    rules = int(rng.integers(1, 4))
    matrix = rng.normal(size=(rules, outputs)) / np.sqrt(outputs)
    slope = rng.normal(size=(rules, outputs, size)) / outputs if moving else None
    pieces = int(rng.integers(1, 4)) if tilted else 1
    tilt = rng.normal(size=(pieces, rules, size)) if tilted else None
    sense = str(rng.choice(["<=", ">="]))
    asked, place, points = (None, None, listed(d)) if over == "list" else region(d)
    y = d.reference(points)
    values = y @ matrix.T
    if slope is not None:
        values = values + np.einsum("lrd,nd,nr->nl", slope, points, y)
    room = d.room() * (np.abs(values).max(0) + 0.1)
    matrix = unit.rule * matrix / unit.y
    if over == "list":
        offset = unit.rule * (values + room)
        sign = 1.0 if sense == "<=" else -1.0
        made = cg4ai.rules.Linear(
            points * unit.x, sign * matrix[None], sign * offset, sense, name="rule"
        )
        facts = [Form(matrix, one[None]) for one in offset]
        return Rule("linear, listed", made, facts, None, points * unit.x)
    starts = rng.normal(size=(pieces, rules)) * 0.2 if tilted else np.zeros((1, rules))
    ends = starts[:, None] + (0 if tilt is None else np.einsum("kld,nd->knl", tilt, points))
    offset = starts + (values - ends.max(0)).max(0) + room
    offset = unit.rule * offset
    sign = 1.0 if sense == "<=" else -1.0
    coefficients: Any = sign * matrix
    if slope is not None:
        slope = unit.rule * slope / unit.y[None, :, None] / unit.x
        coefficients = cg4ai.rules.AffineCoefficients.dense(sign * matrix, sign * slope)
    bound: Any = sign * offset[0]
    if tilt is not None:
        tilt = unit.rule * tilt / unit.x
        each = [
            cg4ai.rules.AffineBound(sign * a, sign * b) for a, b in zip(offset, tilt, strict=True)
        ]
        several = cg4ai.rules.Largest if sense == "<=" else cg4ai.rules.Smallest
        bound = several(each) if pieces > 1 else each[0]
    made = cg4ai.rules.Linear(asked, coefficients, bound, sense, name="rule")
    words = ["linear, region", *(["moving"] if moving else []), *(["tilted"] if tilted else [])]
    return Rule(", ".join(words), made, [Form(matrix, offset, slope, tilt)], place)


def quadratic(d: Drawn, *, over: str) -> Rule:
    rng, unit, (_, outputs) = d.rng, d.units, d.sizes
    rank = int(rng.integers(1, min(outputs, 6) + 1))
    factor = rng.normal(size=(outputs, rank)) / np.sqrt(outputs)
    kind = str(rng.choice(["full", "diagonal", "badly scaled"]))
    square = factor @ factor.T if kind == "full" else np.diag(rng.uniform(0, 1, outputs) ** 2)
    if kind == "badly scaled":  # as of outputs that differ in units, whatever theirs are
        spread = 10.0 ** rng.integers(-9, 10, outputs)
        square = square / np.outer(spread, spread) * spread.min() ** 2
    linear = rng.normal(size=outputs) / outputs * rng.choice([0.0, 1.0])
    asked, place, points = (None, None, listed(d)) if over == "list" else region(d)
    y = d.reference(points)
    values = np.einsum("nr,rs,ns->n", y, square, y) + y @ linear
    limit = values + d.room() * (np.abs(values).max() + 0.1)
    square = unit.rule * square / np.outer(unit.y, unit.y)
    square, linear = (square + square.T) / 2, unit.rule * linear / unit.y
    if over == "list":
        limit = unit.rule * limit
        made = cg4ai.rules.Quadratic(points * unit.x, square, limit, linear, name="rule")
        facts = [Square(square, linear, float(one)) for one in limit]
        return Rule(f"quadratic, listed, {kind}", made, facts, None, points * unit.x)
    bound = float(unit.rule * limit.max())
    made = cg4ai.rules.Quadratic(asked, square, bound, linear, name="rule")
    return Rule(f"quadratic, region, {kind}", made, [Square(square, linear, bound)], place)


def concave_function(kind: str, weights: Array, unit: float) -> Callable[[Tensor], Tensor]:
    """What `exact.Curved` is, in torch."""
    w = torch.as_tensor(weights)

    def function(outputs: Tensor) -> Tensor:
        y, own = outputs / unit, w.to(outputs)
        if kind == "absolute":
            return -(own * y.abs()).sum(-1)
        if kind == "norm":
            return -((own * y).square().sum(-1) + 1).sqrt()
        if kind == "exponential":
            return -(own * y).logsumexp(-1)
        return (own + y).amin(-1)

    return function


def concave(d: Drawn, *, over: str) -> Rule:
    rng, unit = d.rng, d.units
    kind = str(rng.choice(["absolute", "norm", "exponential", "lowest"]))
    weights = rng.uniform(0.1, 1.0, d.sizes[1])
    asked, place, points = (None, None, listed(d)) if over == "list" else region(d)
    y = torch.as_tensor(d.reference(points) * unit.y)
    values = concave_function(kind, weights, float(unit.y[0]))(y).numpy()
    bound = values - d.room() * (np.abs(values).max() + 0.1)
    function = concave_function(kind, weights, float(unit.y[0]))
    if over == "list":
        made = cg4ai.rules.Concave(points * unit.x, function, bound, name="rule")
        facts = [Curved(kind, weights, float(unit.y[0]), float(one)) for one in bound]
        return Rule("concave, listed", made, facts, None, points * unit.x)
    least = float(bound.min())
    made = cg4ai.rules.Concave(asked, function, least, name="rule")
    return Rule("concave, region", made, [Curved(kind, weights, float(unit.y[0]), least)], place)


def labelled(d: Drawn, *, over: str, form: str | None) -> Rule:
    """`Margin` of this form, or with None `Probability`."""
    rng, unit, outputs = d.rng, d.units, d.sizes[1]
    asked, place, points = (None, None, listed(d)) if over == "list" else region(d)
    label = int(d.reference(points).mean(0).argmax())
    eye = np.eye(outputs)
    matrix = eye[[label]] - np.delete(eye, label, 0) if form else eye[[label]]
    if form:
        least = float((d.reference(points) @ matrix.T).min() - abs(d.room()))
        least *= float(unit.y[0])
        name = f"margin, {form}"
        where = points * unit.x if over == "list" else asked
        labels = np.full(len(points), label) if over == "list" else label
        made: Any = cg4ai.rules.Margin(where, labels, least, form=form, name="rule")
    else:
        least, name = float(rng.choice([0.2, 0.5, 0.9])), "probability"
        where = points * unit.x if over == "list" else asked
        labels = np.full(len(points), label) if over == "list" else label
        made = cg4ai.rules.Probability(where, labels, least, name="rule")
    fact = Form(-matrix, np.full((1, len(matrix)), -least))
    if over == "list":
        return Rule(f"{name}, listed", made, [fact] * len(points), None, points * unit.x)
    return Rule(f"{name}, region", made, [fact], place)


def random_rule(d: Drawn, *, regions: float = 0.5, probabilities: bool = False) -> Rule:
    rng, over = d.rng, "region" if d.rng.random() < regions else "list"
    even, several = bool((d.units.y == d.units.y[0]).all()), d.sizes[1] > 1
    small = d.sizes[1] <= 40
    kinds = ["linear"]
    kinds += ["moving", "tilted", "both"] if over == "region" and d.sizes[1] <= 100 else []
    kinds += ["quadratic", "quadratic"] if small else []
    kinds += ["concave"] if small and even else []
    kinds += ["margin"] if several and even else []
    if probabilities:
        kinds = ["linear", "probability", "margin", "tilted" if over == "region" else "linear"]
    kind = str(rng.choice(kinds))
    if kind == "margin":
        form = str(rng.choice(["pairwise", "pairwise", "member"]))
        return labelled(d, over=over, form=form)
    if kind == "probability":
        return labelled(d, over=over, form=None)
    if kind in ("quadratic", "concave"):
        return (quadratic if kind == "quadratic" else concave)(d, over=over)
    moving, tilted = kind in ("moving", "both"), kind in ("tilted", "both")
    return linear(d, over=over, moving=moving, tilted=tilted)


# ---- members -------------------------------------------------------------------------------------


def random_members(d: Drawn, *, probabilities: bool = False) -> Members:
    """A stack of one kind about the reference, more or less wild, in the problem's units."""
    rng, unit, (size, outputs) = d.rng, d.units, d.sizes
    kind = str(rng.choice(["network", "network", "affine", "tree", "constant"]))
    wild = float(rng.choice([0.1, 1.0, 30.0]))
    if probabilities:
        kind = "network"
    if kind == "tree":
        X = rng.uniform(-1, 1, (30, size))
        Y = d.reference(X) + wild * rng.normal(size=(30, outputs))
        tree = DecisionTreeRegressor(max_depth=3, random_state=0)
        return from_sklearn(tree.fit(X * unit.x, Y * unit.y))
    count = int(rng.integers(1, 5))
    if kind == "constant":
        values = d.offsets + wild * rng.normal(size=(count, outputs))
        return ConstantMembers(values * unit.y, size)
    if kind == "affine":
        slopes = d.slopes + wild * rng.normal(size=(count, outputs, size))
        offsets = d.offsets + wild * rng.normal(size=(count, outputs))
        moved = (slopes * unit.y[:, None] / unit.x).transpose(0, 2, 1)
        return affine(moved, offsets * unit.y)
    hidden: tuple[int, ...] = ((4,), (5, 4), (8,))[rng.integers(3)]
    architecture = NetworkArchitecture(
        size,
        outputs,
        hidden=hidden,
        activation=str(rng.choice(["relu", "gelu", "tanh"])),  # type: ignore[arg-type]
        skip=bool(rng.integers(2)),
        output="softmax" if probabilities else "linear",
        scale=unit.x,
    )
    seed = torch.Generator().manual_seed(int(rng.integers(2**31)))
    made = {
        name: wild * value.double() for name, value in architecture.initialise(count, seed).items()
    }
    if not probabilities:
        last = f"{len(hidden)}"
        factors = torch.as_tensor(unit.y)
        for name in (f"weight_{last}", f"bias_{last}", "skip"):
            if name in made:
                made[name] = made[name] * (factors if made[name].ndim == 2 else factors[:, None])
        made[f"bias_{last}"] = made[f"bias_{last}"] + torch.as_tensor(d.offsets * unit.y)
    return architecture.members(made)


def mixture(d: Drawn, stacks: Sequence[Members]) -> Ensemble:
    shares = d.rng.dirichlet(np.ones(sum(len(one) for one in stacks)))
    parts, start = [], 0
    for one in stacks:
        own = shares[start : start + len(one)]
        parts.append(Part(one, np.zeros(len(one), np.int64), own))
        start += len(one)
    return Ensemble(tuple(parts), Layout.single(d.sizes[1]))


# ---- hostile inputs ------------------------------------------------------------------------------


def hostile(place: Place, excess: Callable[[Array], Array], rng: np.random.Generator) -> Array:
    """Inputs of a region (n, d), worst first by floats: corners, random, climbed, close ones."""
    size, width = len(place.lower), place.upper - place.lower
    if place.radius is not None:
        way = rng.normal(size=(300, size))
        way /= np.maximum(np.linalg.norm(way, axis=1, keepdims=True), 1e-300)
        share = np.where(rng.random((300, 1)) < 0.6, 1.0, rng.random((300, 1)))
        points = place.middle + place.radius * share * way
    else:
        corners = rng.integers(0, 2, (96, size))
        points = place.lower + width * np.concatenate([corners, rng.random((200, size))])
        points = np.clip(points, place.lower, place.upper)
    for step in range(4):
        points = points[place.screen(points)]
        if not len(points):
            return points
        order = np.argsort(-excess(points), kind="stable")
        points = points[order[:60]]
        if step == 3:
            return points
        scale = 10.0 ** rng.uniform(-15, 0, (160, 1))
        near = np.repeat(points[:8], 20, axis=0) + scale * width * rng.normal(size=(160, size))
        near = np.clip(near, place.lower, place.upper)
        if place.radius is not None:
            away = near - place.middle
            length = np.linalg.norm(away, axis=1, keepdims=True)
            near = place.middle + away * np.minimum(1, place.radius / np.maximum(length, 1e-300))
        some = np.nextafter(points[:8], place.upper), np.nextafter(points[:8], place.lower)
        points = np.concatenate([points, near, *some])
    return points


# ---- checking ------------------------------------------------------------------------------------


@dataclass
class Found:
    """What one problem gave: claims and false ones by (strength, kind), and what went wrong."""

    seed: int
    claims: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    refused: str = ""
    crashed: str = ""
    recomputed: int = 0
    seconds: float = 0.0

    def claim(self, strength: str, kind: str, fault: str = "") -> None:
        name = f"{strength}|{kind}"
        self.claims[name] += 1
        if fault:
            self.false[name] += 1
            self.notes.append(f"{strength}, {kind}: {fault}")


def outputs_of(ensemble: Any, points: Array) -> Array:
    return np.asarray(ensemble.predict(points, outside="ignore"), np.float64)


def excesses(fact: Facts, x: Array, y: Array) -> float:
    """The worst rule's excess at one input, exactly, as a float."""
    if not np.isfinite(y).all():
        return np.inf
    return float(max(exact.centre(one) for one in fact.excess(rationals(x), rationals(y))))


def listed_excess(rule: Rule, ensemble: Any) -> float:
    """The worst at the listed inputs."""
    y = outputs_of(ensemble, rule.points)
    pairs = zip(rule.facts, rule.points, y, strict=True)
    return max(excesses(*one) for one in pairs)


def region_excess(rule: Rule, ensemble: Any, rng: np.random.Generator) -> tuple[float, Array]:
    """The worst that hostile inputs of the region give, and the input."""
    (fact,) = rule.facts

    def quick(points: Array) -> Array:
        with np.errstate(all="ignore"):
            found = fact.quick(points, outputs_of(ensemble, points))
        return np.where(np.isnan(found), np.inf, found)

    points = hostile(rule.place, quick, rng)
    worst, where = -np.inf, np.empty(0)
    checked = 0
    for x, y in zip(points, outputs_of(ensemble, points) if len(points) else [], strict=True):
        if checked >= WORST:
            break
        if not rule.place.holds(rationals(x)):
            continue
        checked += 1
        value = excesses(fact, x, y)
        if value > worst:
            worst, where = value, x
    return worst, where


def judge(found: Found, rule: Rule, audit: Any, ensemble: Any, rng: np.random.Generator) -> None:
    """Hold an audit against the rule as it was drawn."""
    strength = str(audit.strength)
    if rule.points is not None:
        worst, where = listed_excess(rule, ensemble), None
        if not audit.holds:
            fault = "" if worst > 0 else f"said to be violated, exactly {worst:.3g}"
            found.claim("violated", rule.kind, fault)
            return
    else:
        if not audit.holds:
            return
        if strength in ("attacked", "bounded"):
            found.claim("attacked (claims no more)", rule.kind)
            return
        worst, where = region_excess(rule, ensemble, rng)
    fault = ""
    if worst > audit.tolerance:
        at = "" if where is None else f" at {where.tolist()}"
        fault = f"missed by {worst:.3g}, stated tolerance {audit.tolerance:.3g}{at}"
    found.claim(strength, rule.kind, fault)


def recompute(found: Found, ensemble: Ensemble, points: Array) -> None:
    """Compare predictions with those from the arrays on disk."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            ensemble.save(folder)
            saved = exact.Saved(folder)
        except Cg4aiError:  # rules that are functions of Python cannot be stored
            return
        outputs = outputs_of(ensemble, points)
        for x, y in zip(points, outputs, strict=True):
            try:
                known = saved.outputs(x)
            except exact.Unknown:
                return
            ends = zip(rationals(y), known.low, known.high, strict=True)
            missed = [max(low - value, value - high) for value, low, high in ends]
            sizes = [
                max(abs(low), abs(high)) for low, high in zip(known.low, known.high, strict=True)
            ]
            size = max(max(sizes), rational(1e-300))
            found.recomputed += 1
            if max(missed) > rational(RECOMPUTED) * size:
                worst = float(max(missed) / size)
                found.claim("prediction", "arrays", f"differs by {worst:.3g} at {x.tolist()}")
                return
        found.claim("prediction", "arrays")


# ---- problems ------------------------------------------------------------------------------------


class Nothing(PricerDefaults):
    """A pricer that trains no members."""

    def price(self, request: PricingRequest) -> PricingResult:
        return PricingResult(None, np.empty(0, np.int64), np.empty(0, np.int64))


def given(found: Found, rng: np.random.Generator) -> None:
    """Members are given and weighed under rules; over regions they are put behind a shield."""
    probabilities = rng.random() < 0.15
    d = drawn(rng)
    if probabilities:
        r = max(2, min(10, d.sizes[1]))
        unit = Units(d.units.x, np.ones(r), 1.0)
        shares = rng.dirichlet(np.ones(r))
        d = Drawn(rng, unit, np.zeros((r, d.sizes[0])), shares)
    size, outputs = d.sizes
    rules = [random_rule(d, probabilities=probabilities) for _ in range(int(rng.integers(1, 4)))]
    named = [
        Rule(one.kind, renamed(one.requirement, f"rule {k}"), one.facts, one.place, one.points)
        for k, one in enumerate(rules)
    ]
    stacks = [
        random_members(d, probabilities=probabilities) for _ in range(int(rng.integers(1, 3)))
    ]
    inputs = rng.uniform(-1, 1, (12, size))
    targets = d.reference(inputs) + 0.1 * rng.normal(size=(12, outputs))
    kind = "mixture" if rng.random() < 0.3 and outputs <= 10 else "average"
    problem = cg4ai.Problem(
        Supervised(inputs * d.units.x, targets * d.units.y, kind=kind),  # type: ignore[arg-type]
        [one.requirement for one in named],
        [Nothing()],
        Layout.single(outputs),
        start=[(one, np.zeros(len(one), np.int64)) for one in stacks],
        probabilities=(outputs,) if probabilities else (),
    )
    settings = cg4ai.Settings(
        patience=1,
        iteration_limit=6,
        estimate_restarts=0,
        single_model=bool(rng.random() < 0.1),
        final_weights=str(rng.choice(["vertex", "loss", "uniform"])),  # type: ignore[arg-type]
    )
    result = cg4ai.solve(problem, settings)
    for rule, audit in zip(named, result.audits, strict=True):
        judge(found, rule, audit, result.ensemble, rng)
    recompute(found, result.ensemble, inputs[:2] * d.units.x)


def renamed(requirement: Any, name: str) -> Any:
    object.__setattr__(requirement, "name", name)
    return requirement


def shields(found: Found, rng: np.random.Generator) -> None:
    """A finished mixture behind a random anchor: refused, or kept at every input."""
    d = drawn(rng)
    rule = random_rule(d, regions=1.0)
    ensemble = mixture(d, [random_members(d)])
    unit = d.units
    if rng.random() < 0.3:
        anchor: Any = d.offsets * unit.y
    else:
        anchor = affine((d.slopes * unit.y[:, None] / unit.x).T[None], (d.offsets * unit.y)[None])
    shielded = ensemble.apply_shield(anchor, rule.requirement)
    audit = shielded.audit(rule.requirement)
    (check,) = shielded.checks
    if check.exact != (str(audit.strength) == "shielded"):
        found.claim("shielded", rule.kind, f"check {check} beside {audit.strength}")
    judge(found, rule, audit, shielded, rng)
    if check.exact:
        alone = shielded.anchor
        worst, where = region_excess(rule, alone, rng)
        fault = ""
        if worst > audit.tolerance:
            fault = f"the anchor misses by {worst:.3g} at {where.tolist()}; {check}"
        found.claim("anchor keeps it", rule.kind, fault)
    inside = np.atleast_2d((rule.place.lower + rule.place.upper) / 2)
    explained = shielded.predict(inside, explain=True)
    for label, y in zip(explained.labels, explained.outputs, strict=True):
        if label == "shielded" and rule.place.holds(rationals(inside[0])):
            worst = excesses(rule.facts[0], inside[0], y)
            fault = f"missed by {worst:.3g}" if worst > audit.tolerance else ""
            found.claim("label shielded", rule.kind, fault)


def certified(found: Found, rng: np.random.Generator) -> None:
    """Small mixtures, with limits a little above, at or below what they reach."""
    d = drawn(rng, large=False)
    while d.sizes[0] > 3 or d.sizes[1] > 6:
        d = drawn(rng, large=False)
    ensemble = mixture(d, [random_members(d) for _ in range(int(rng.integers(1, 3)))])
    kind = str(rng.choice(["linear", "moving", "tilted", "both", "quadratic", "margin"]))
    if kind == "margin" and (d.sizes[1] < 2 or (d.units.y != d.units.y[0]).any()):
        kind = "linear"
    if kind == "quadratic":
        rule = quadratic(d, over="region")
    elif kind == "margin":
        rule = labelled(d, over="region", form="pairwise")
    else:
        moving, tilted = kind in ("moving", "both"), kind in ("tilted", "both")
        rule = linear(d, over="region", moving=moving, tilted=tilted)
    rule = loosened(rule, ensemble, d)
    answer = cg4ai.certify(ensemble, rule.requirement, time_limit_s=0.6, cell_limit=4000)
    if answer.status == "refuted":
        x = np.asarray(answer.counterexample)
        y = outputs_of(ensemble, x[None])[0]
        inside = rule.place.holds(rationals(x))
        worst = excesses(rule.facts[0], x, y)
        fault = "" if worst > 0 else f"counterexample {x.tolist()} exceeds by {worst:.3g}"
        if not inside and not fault:
            fault = "" if near(rule.place, x) else f"counterexample {x.tolist()} lies outside"
        found.claim("refuted", rule.kind, fault)
    if answer.status != "proven":
        return
    worst, where = region_excess(rule, ensemble, rng)
    fault = f"exceeds by {worst:.3g} at {where.tolist()}" if worst > 0 else ""
    found.claim("certified", rule.kind, fault)
    recompute(found, ensemble, np.atleast_2d((rule.place.lower + rule.place.upper) / 2))


def near(place: Place, x: Array) -> bool:
    """Whether only rounding puts it outside."""
    size = np.abs(place.lower) + np.abs(place.upper)
    inside = ((x >= place.lower - 1e-12 * size) & (x <= place.upper + 1e-12 * size)).all()
    if place.radius is not None:
        return bool(
            np.linalg.norm(x - place.middle) <= place.radius * (1 + 1e-9) + 1e-12 * size.max()
        )
    if place.rows is not None:
        terms = np.abs(place.rows) @ np.abs(x) + np.abs(place.limit)
        inside &= (place.rows @ x <= place.limit + 1e-12 * terms).all()
    return bool(inside)


def loosened(rule: Rule, ensemble: Ensemble, d: Drawn) -> Rule:
    """The rule with its bound near the largest excess that hostile inputs find."""
    (fact,) = rule.facts
    points = hostile(rule.place, lambda x: fact.quick(x, outputs_of(ensemble, x)), d.rng)
    if not len(points):
        return rule
    values = fact.quick(points, outputs_of(ensemble, points))
    size = max(float(np.ptp(values)), 1e-6 * float(np.abs(values).max()), 1e-300)
    more = float(values.max()) + size * float(d.rng.choice([-0.05, 1e-6, 0.01, 0.3]))
    asked = rule.requirement
    if isinstance(fact, Square):
        bound = fact.limit + more
        made: Any = cg4ai.rules.Quadratic(
            asked.inputs, fact.matrix, bound, fact.linear, name="rule"
        )
        return Rule(rule.kind, made, [Square(fact.matrix, fact.linear, bound)], rule.place)
    offset = fact.offset + more
    coefficients: Any = fact.matrix
    if fact.slope is not None:
        coefficients = cg4ai.rules.AffineCoefficients.dense(fact.matrix, fact.slope)
    bounds: Any = offset[0]
    if fact.tilt is not None:
        each = [cg4ai.rules.AffineBound(a, b) for a, b in zip(offset, fact.tilt, strict=True)]
        bounds = cg4ai.rules.Largest(each) if len(each) > 1 else each[0]
    made = cg4ai.rules.Linear(asked.inputs, coefficients, bounds, "<=", name="rule")
    return Rule(rule.kind, made, [Form(fact.matrix, offset, fact.slope, fact.tilt)], rule.place)


# ---- estimators ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Built:
    """A rule that members keep by construction, and what it makes of floats: excess and size."""

    kind: str
    requirement: Any
    excess: Callable[[Array, Array], tuple[float, float]]  # of x (n, d) and outputs (n, r)
    strict: bool = False  # no rounding at all


def sums_of(
    matrix: Array, bound: Array, tilt: Array
) -> Callable[[Array, Array], tuple[float, float]]:
    """|matrix y - bound - tilt x|, and the size of its terms, in rationals."""

    def worst(x: Array, y: Array) -> tuple[float, float]:
        ratio, at = -1.0, (0.0, 1.0)
        for point, values in zip(x, y, strict=True):
            xs, ys = rationals(point), rationals(values)
            for row, end, lean in zip(matrix, bound, tilt, strict=True):
                missed = abs(
                    exact.dot(rationals(row), ys) - rational(end) - exact.dot(rationals(lean), xs)
                )
                size = exact.dot(rationals(abs(row)), [abs(v) for v in ys]) + abs(rational(end))
                size += exact.dot(rationals(abs(lean)), [abs(v) for v in xs])
                if size and float(missed / size) > ratio:
                    ratio, at = float(missed / size), (float(missed), float(size))
        return at

    return worst


def built_rule(rng: np.random.Generator, y: Array, unit: Units, size: int) -> Built:
    """Of the kinds that suit outputs y (n, r) in their units."""
    r = y.shape[1]
    kinds = ["range", "monotone", "curvature"] + ["ordered", "sum", "equality", "equality"] * (
        r > 1
    )
    kind = str(rng.choice(kinds))
    if kind == "range":
        low = float(np.quantile(y, rng.uniform(0, 0.4)))
        high = float(np.quantile(y, rng.uniform(0.6, 1)))
        return Built(
            kind,
            cg4ai.rules.Range(low, high, name="built"),
            lambda _, out: (float(max(low - out.min(), out.max() - high, 0.0)), 1.0),
            strict=True,
        )
    if kind == "ordered":
        return Built(
            kind,
            cg4ai.rules.Ordered(name="built"),
            lambda _, out: (float(max(-np.diff(out, axis=1).min(), 0.0)), 1.0),
            strict=True,
        )
    if kind == "sum":
        total = float(y.sum(1).mean())
        least = None if rng.random() < 0.5 else min(0.0, total) - abs(total)
        made: Any = cg4ai.rules.SumTo(total, low=least, name="built")
        summed = sums_of(np.ones((1, r)), np.array([total]), np.zeros((1, size)))
        return Built(kind, made, summed)
    if kind == "equality":
        rows = int(rng.integers(1, r))
        matrix = rng.normal(size=(rows, r)) * unit.rule / unit.y
        bound = matrix @ y.mean(0)
        tilt = rng.normal(size=(rows, size)) * rng.choice([0.0, 1.0]) * unit.rule / unit.x
        made = cg4ai.rules.Equality(
            None, matrix, cg4ai.rules.AffineBound(bound, tilt), name="built"
        )
        return Built(kind, made, sums_of(matrix, bound, tilt))
    feature, sign = int(rng.integers(size)), int(rng.choice([-1, 1]))
    if kind == "monotone":
        return Built(
            kind, cg4ai.rules.Monotone({feature: sign}, name="built"), shape(feature, sign)
        )
    return Built(kind, cg4ai.rules.Curvature({feature: sign}, name="built"), shape(feature, sign))


def shape(feature: int, sign: int) -> Any:
    """A mark for `fitted`, which compares several inputs."""
    return feature, sign


def shape_excess(
    kind: str, mark: Any, predict: Any, rng: np.random.Generator, x: Array
) -> tuple[float, float]:
    """By how much outputs fall, or bend, the wrong way along a feature; and their size."""
    feature, sign = mark
    one, other = x.copy(), x.copy()
    spread = np.ptp(x[:, feature]) or 1.0
    other[:, feature] += spread * 10.0 ** rng.uniform(-12, 2, len(x))
    a, b = predict(one), predict(other)
    size = float(max(np.abs(a).max(), np.abs(b).max()))
    if kind == "monotone":
        return float(max((sign * (a - b)).max(), 0.0)), size
    middle = (one + other) / 2
    return float(max((sign * (predict(middle) - (a + b) / 2)).max(), 0.0)), size


def fitted(found: Found, rng: np.random.Generator) -> None:
    """An estimator, trained for a few steps."""
    if rng.random() < 0.3:
        classified(found, rng)
        return
    d = drawn(rng, large=False, even=True)
    while d.sizes[1] > 6:
        d = drawn(rng, large=False, even=True)
    size, outputs = d.sizes
    X = rng.uniform(-1, 1, (40, size))
    y = (d.reference(X) + 0.2 * rng.normal(size=(40, outputs)) + X[:, :1] ** 2) * d.units.y
    built = built_rule(rng, y, d.units, size) if rng.random() < 0.7 else None
    rules = [random_rule(d) for _ in range(int(rng.integers(0 if built else 1, 2)))]
    asked = [one.requirement for one in rules] + ([] if built is None else [built.requirement])
    tied = [tie(rng, X * d.units.x, y)] if rng.random() < 0.3 else []
    asked += [one.requirement for one in tied]
    members = "network"
    if built is None or built.kind in ("range", "ordered", "monotone", "sum"):
        members = str(rng.choice(["network", "network", "tree", "affine"]))
    single = outputs == 1 and rng.random() < 0.5
    model = cg4ai.ConstrainedRegressor(
        members=members, hidden=(6,), steps=8, restarts=1, iteration_limit=2, random_state=0,
        weight_decay=0.1, settings={"estimate_restarts": 0},
    )  # fmt: skip
    model.fit(X * d.units.x, y[:, 0] if single else y, requirements=asked)
    ensemble = model.ensemble_
    audits = list(model.audit_)
    for rule, audit in zip(rules, audits[: len(rules)], strict=True):
        judge(found, rule, audit, ensemble, rng)
    for one, audit in zip(tied, audits[len(asked) - len(tied) :], strict=True):
        worst, _ = one.excess(one.requirement.points, outputs_of(ensemble, one.requirement.points))
        fault = ""
        if audit.holds and worst > audit.tolerance:
            fault = f"missed by {worst:.3g}, stated tolerance {audit.tolerance:.3g}"
        found.claim(str(audit.strength) if audit.holds else "violated", one.kind, fault)
    if built is not None:
        check_built(found, built, audits[len(rules)], ensemble, rng, X * d.units.x)
    recompute(found, ensemble, X[:2] * d.units.x)


def check_built(
    found: Found, built: Built, audit: Any, ensemble: Ensemble, rng: np.random.Generator, x: Array
) -> None:
    if str(audit.strength) != "constructed":
        found.claim(f"{audit.strength} (not built)", built.kind)
        return
    far = np.concatenate([x, x * 10.0 ** rng.uniform(-6, 3, (len(x), 1))])
    if isinstance(built.excess, tuple):
        worst, size = shape_excess(
            built.kind, built.excess, lambda z: outputs_of(ensemble, z), rng, far
        )
    else:
        worst, size = built.excess(far, outputs_of(ensemble, far))
    allowed = 0.0 if built.strict else BUILT * size
    fault = f"missed by {worst:.3g} of terms of {size:.3g}" if worst > allowed else ""
    found.claim("constructed", built.kind, fault)


def tie(rng: np.random.Generator, x: Array, y: Array) -> Built:
    """A rule that ties listed inputs together: means of groups, budgets, or differences."""
    points, spread = x[:10], float(np.abs(y).max())
    if rng.random() < 0.5:
        pairs = np.array([[0, 1], [2, 3], [4, 5]])
        least = -float(rng.uniform(0, 0.5)) * spread
        made = cg4ai.rules.Difference(points, pairs, least, name="tied")

        def apart(_: Array, out: Array) -> tuple[float, float]:
            each = [rational(out[a, 0]) - rational(out[b, 0]) + rational(least) for a, b in pairs]
            return float(max(each)), 1.0

        return Built("difference", made, apart)
    group = np.arange(10) % 2
    within = float(rng.uniform(0.0, 0.5)) * spread
    rate = cg4ai.rules.Rate(points, group, output=0, tolerance=within, margin=0.0, name="tied")

    def rates(_: Array, out: Array) -> tuple[float, float]:
        means = [sum(rationals(out[group == g, 0])) / int((group == g).sum()) for g in (0, 1)]
        return float(abs(means[0] - means[1]) - rational(within)), 1.0

    return Built("rate", rate, rates)


def classified(found: Found, rng: np.random.Generator) -> None:
    """A classifier: probabilities are some, decisions keep rates and do not depend on batches."""
    size, classes = int(rng.integers(1, 4)), int(rng.choice([2, 2, 3, 5]))
    unit = 10.0 ** rng.integers(-9, 10, size) if rng.random() < 0.5 else np.ones(size)
    X = rng.uniform(-1, 1, (60, size)) * unit
    scores = (X / unit) @ rng.normal(size=(size, classes)) + 0.3 * rng.normal(size=(60, classes))
    y = scores.argmax(1)
    y[:classes] = np.arange(classes)
    kind = str(rng.choice(["decisions", "probability", "margin", "monotone", "mean scores"]))
    group = rng.random(60) < 0.4
    group[:2] = [True, False]
    within, least = float(rng.uniform(0.05, 0.4)), float(rng.uniform(0.1, 0.6))
    points, label = X[:3], int(y[0])
    made: Any
    if kind == "decisions":
        made = cg4ai.rules.DecisionRate(X, group, tolerance=within, output=classes - 1, name="rule")
    elif kind == "mean scores":
        made = cg4ai.rules.Rate(
            X, group, tolerance=within, output=classes - 1, margin=0.0, name="rule"
        )
    elif kind == "probability":
        made = cg4ai.rules.Probability(points, np.full(3, label), least, name="rule")
    elif kind == "margin":
        made = cg4ai.rules.Margin(points, np.full(3, label), least - 0.3, name="rule")
    else:
        made = cg4ai.rules.Monotone({0: +1}, output=classes - 1, name="rule")
    members = str(rng.choice(["network", "tree"]))
    model = cg4ai.ConstrainedClassifier(
        members=members, hidden=(6,), steps=8, restarts=1, iteration_limit=2, random_state=0,
        weight_decay=0.1, settings={"estimate_restarts": 0},
    )  # fmt: skip
    model.fit(X, y, requirements=[made])
    (audit,) = model.audit_
    p = np.asarray(model.predict_proba(X))
    beyond = float(max(p.max() - 1.0, -p.min(), 0.0))
    found.claim("probabilities", "in [0, 1]", f"beyond by {beyond:.3g}" if beyond > 0 else "")
    decided = np.asarray(model.predict(X))
    alone = np.array([model.predict(one[None])[0] for one in X[:20]])
    differ = int((alone != decided[:20]).sum())
    found.claim("decisions", "alone as in a batch", f"{differ} of 20 differ" if differ else "")
    where = {"decisions": decided == classes - 1, "mean scores": p[:, classes - 1]}
    if kind in where:
        own = [rationals(where[kind][group == g].astype(float)) for g in (True, False)]
        means = [sum(one) / len(one) for one in own]
        worst = float(abs(means[0] - means[1]) - rational(within))
    elif kind == "monotone":
        worst, _ = shape_excess(
            "monotone",
            (0, 1),
            lambda z: np.asarray(model.predict_proba(z))[:, [classes - 1]],
            rng,
            X,
        )
        fault = f"falls by {worst:.3g}" if worst > BUILT else ""
        if str(audit.strength) == "constructed":
            found.claim("constructed", "monotone, probability", fault)
        return
    else:
        eye = np.eye(classes)
        matrix = eye[[label]] - np.delete(eye, label, 0) if kind == "margin" else eye[[label]]
        asked = least - 0.3 if kind == "margin" else least
        fact = Form(-matrix, np.full((1, len(matrix)), -asked))
        worst = max(excesses(fact, *one) for one in zip(X[:3], p[:3], strict=True))
    if not audit.holds:
        fault = "" if worst > 0 else f"said to be violated, exactly {worst:.3g}"
        found.claim("violated", f"{kind}, classes", fault)
        return
    fault = ""
    if worst > audit.tolerance:
        fault = f"missed by {worst:.3g}, stated tolerance {audit.tolerance:.3g}"
    found.claim(str(audit.strength), f"{kind}, classes", fault)


FAMILIES: tuple[tuple[Callable[[Found, np.random.Generator], None], float], ...] = (
    (given, 0.4),
    (shields, 0.2),
    (certified, 0.15),
    (fitted, 0.25),
)


def one_problem(seed: int) -> Found:
    """All that is claimed of one random problem, checked."""
    rng = np.random.default_rng(seed)
    family = rng.choice(len(FAMILIES), p=[share for _, share in FAMILIES])
    found, started = Found(seed), time.perf_counter()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            FAMILIES[family][0](found, rng)
        except Cg4aiError as error:
            found.refused = f"{FAMILIES[family][0].__name__}: {type(error).__name__}: {error}"[:400]
        except Exception:  # noqa: BLE001 - one problem must not end the campaign
            found.crashed = f"{FAMILIES[family][0].__name__}: {traceback.format_exc(limit=-4)}"
    found.seconds = time.perf_counter() - started
    return found


# ---- the campaign --------------------------------------------------------------------------------


def as_line(found: Found) -> str:
    return json.dumps({**vars(found), "claims": dict(found.claims), "false": dict(found.false)})


def from_line(line: str) -> Found:
    read = json.loads(line)
    return Found(**{**read, "claims": Counter(read["claims"]), "false": Counter(read["false"])})


def campaign(
    work: Callable[[int], Found], seeds: Sequence[int], *, jobs: int, out: Path | None
) -> list[Found]:
    """All seeds, those that `out` has from there; each is written down as soon as it is done."""
    done: dict[int, Found] = {}
    if out is not None and out.exists():
        done = {one.seed: one for one in map(from_line, out.read_text().splitlines())}
    left = [seed for seed in seeds if seed not in done]

    def keep(one: Found) -> None:
        done[one.seed] = one
        if out is not None:
            with out.open("a") as file:
                file.write(as_line(one) + "\n")
        for note in one.notes:
            print(f"seed {one.seed}: {note}", flush=True)
        if one.crashed:
            print(f"seed {one.seed}: {one.crashed}", flush=True)

    if jobs == 1:
        for seed in left:
            keep(work(seed))
    else:
        with multiprocessing.get_context("spawn").Pool(jobs) as pool:
            for one in pool.imap_unordered(work, left):
                keep(one)
    return [done[seed] for seed in seeds]


def summary(all_found: Sequence[Found]) -> str:
    """A table of strengths and kinds, and a line of totals."""
    claims, false = Counter[str](), Counter[str]()
    for one in all_found:
        claims.update(one.claims)
        false.update(one.false)
    table = format_markdown(
        [
            {
                "strength": (pair := name.split("|"))[0],
                "rule": pair[1],
                "claims": n,
                "false": false[name],
            }
            for name, n in sorted(claims.items())
        ]
    )
    refused = [one for one in all_found if one.refused]
    crashed = [one.seed for one in all_found if one.crashed]
    return (
        f"{table}\n\n{len(all_found)} problems in {sum(one.seconds for one in all_found):.0f} s: "
        f"{sum(claims.values())} claims, {sum(false.values())} false; {len(refused)} problems "
        f"refused with an error of their own, {len(crashed)} ended in another error "
        f"{crashed or ''}; "
        f"{sum(one.recomputed for one in all_found)} predictions recomputed from stored arrays"
    )


def run(work: Callable[[int], Found], text: str) -> int:
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a line of JSON for each seed; to go on from")
    asked = parser.parse_args()
    seeds = range(asked.seed, asked.seed + asked.count)
    all_found = campaign(work, seeds, jobs=asked.jobs, out=asked.out)
    print(summary(all_found))
    return 1 if any(one.false or one.crashed for one in all_found) else 0


if __name__ == "__main__":
    sys.exit(run(one_problem, __doc__ or ""))
