"""Random rules with an inside, and what outputs leave of them in exact numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from cg4ai.records import Array
from cg4ai.rules import (
    AffineBound,
    AffineCoefficients,
    Ball,
    Box,
    Largest,
    Linear,
    Ordered,
    Polytope,
    Quadratic,
    Range,
    Region,
)

KINDS = ("linear", "tilted", "pieces", "moving", "quadratic", "range", "ordered", "several")


def exact(array: Any) -> list[Fraction]:
    return [Fraction(float(one)) for one in np.ravel(array)]


def dot(one: Any, other: Any) -> Fraction:
    return sum((a * b for a, b in zip(exact(one), exact(other), strict=True)), Fraction(0))


@dataclass(frozen=True)
class Case:
    """Rules, where they hold, and by how much outputs keep the tightest of them, exactly."""

    rules: list[Any]
    region: Region
    slack: Callable[[Array, Array], Fraction]  # x (d,), y (r,)
    size: Callable[[Array, Array], float]  # of the terms of the largest row
    outputs: int
    unit: float


@dataclass(frozen=True)
class _Rows:
    """`(fixed + moving . x) . y <= max over k of (offset[k] + slope[k] . x)`, L rows."""

    fixed: Array  # (L, r)
    moving: Array | None  # (L, r, d)
    offset: Array  # (K, L)
    slope: Array  # (K, L, d)

    def slack(self, x: Array, y: Array) -> Fraction:
        found = []
        for row in range(len(self.fixed)):
            value = dot(self.fixed[row], y)
            if self.moving is not None:
                moved = [dot(one, x) for one in self.moving[row]]
                value += sum(
                    (a * b for a, b in zip(exact(y), moved, strict=True)),
                    Fraction(0),
                )
            limits = [
                Fraction(float(offset[row])) + dot(slope[row], x)
                for offset, slope in zip(self.offset, self.slope, strict=True)
            ]
            found.append(max(limits) - value)
        return min(found)

    def size(self, x: Array, y: Array) -> float:
        coefficients = np.abs(self.fixed)
        if self.moving is not None:
            coefficients = coefficients + np.abs(self.moving) @ np.abs(x)
        limits = np.abs(self.offset) + np.abs(self.slope) @ np.abs(x)
        return float((coefficients @ np.abs(y) + limits.max(0)).max())


def region_of(kind: int, size: int, random: np.random.Generator) -> Region:
    if kind == 0:
        return Box(-np.ones(size), np.ones(size))
    if kind == 1:
        return Ball(np.zeros(size), 0.7)
    return Polytope(Box(-np.ones(size), np.ones(size)), random.normal(size=(2, size)), [0.9, 0.9])


def case(kind: str, outputs: int, seed: int, unit: float = 1.0) -> Case:
    """Rules of a kind on outputs in this unit; all leave room around some point."""
    random = np.random.default_rng(seed)
    inputs = int(random.integers(1, 5))
    region = region_of(int(random.integers(3)), inputs, random)
    inside = random.normal(size=outputs) * unit  # with room around it
    count = int(random.integers(1, 4))
    a = random.normal(size=(count, outputs))
    room = (0.3 + random.random(count)) * unit * np.sqrt(outputs)
    bound = a @ inside + room
    none = np.zeros((1, count, inputs))
    if kind == "quadratic":
        return _quadratic(random, region, inside, unit)
    if kind in ("range", "ordered"):
        return _of_outputs(kind, random, region, inside, unit)
    rows = _Rows(a, None, bound[None], none)
    if kind == "tilted":
        slope = 0.1 * unit * random.normal(size=(1, count, inputs))
        rows = _Rows(a, None, bound[None], slope)
        rule = Linear(region, a, AffineBound(bound, slope[0]), "<=", name=kind)
    elif kind == "pieces":
        slope = 0.1 * unit * random.normal(size=(2, count, inputs))
        offset = np.stack([bound, bound - 0.05 * unit])
        rows = _Rows(a, None, offset, slope)
        pieces = [AffineBound(offset[k], slope[k]) for k in range(2)]
        rule = Linear(region, a, Largest(pieces), "<=", name=kind)
    elif kind == "moving":
        moving = 0.02 * random.normal(size=(count, outputs, inputs))
        bound = bound + 0.1 * np.abs(inside).sum()
        rows = _Rows(a, moving, bound[None], none)
        rule = Linear(region, AffineCoefficients.dense(a, moving), bound, "<=", name=kind)
    else:
        rule = Linear(region, a, bound, "<=", name=kind)
    rules: list[Any] = [rule]
    slack, size = rows.slack, rows.size
    if kind == "several":
        other = _quadratic(random, region, inside, unit)
        rules += other.rules
        both = (rows, other)
        slack = lambda x, y: min(one.slack(x, y) for one in both)  # noqa: E731
        size = lambda x, y: max(one.size(x, y) for one in both)  # noqa: E731
    return Case(rules, region, slack, size, outputs, unit)


def _quadratic(random: np.random.Generator, region: Region, inside: Array, unit: float) -> Case:
    outputs = len(inside)
    factor = random.normal(size=(min(outputs, 4), outputs))
    square = factor.T @ factor / unit
    square = (square + square.T) / 2 + np.eye(outputs) / unit
    linear = random.normal(size=outputs)
    bound = float(inside @ square @ inside + linear @ inside) + unit * outputs

    def slack(x: Array, y: Array) -> Fraction:
        own = exact(y)
        squares = sum(
            (dot(row, y) * one for row, one in zip(square, own, strict=True)), Fraction(0)
        )
        return Fraction(bound) - squares - dot(linear, y)

    def size(x: Array, y: Array) -> float:
        own = np.abs(y)
        spread = float((np.abs(own @ np.abs(factor).T) ** 2).sum() / unit + own @ own / unit)
        return 2 * spread + float(own @ np.abs(linear)) + abs(bound)

    rule = Quadratic(region, square, bound, linear, name="quadratic")
    return Case([rule], region, slack, size, outputs, unit)


def _of_outputs(
    kind: str, random: np.random.Generator, region: Region, inside: Array, unit: float
) -> Case:
    outputs = len(inside)
    low, high = inside - unit * random.random(outputs), inside + unit * random.random(outputs)
    if kind == "range" or outputs == 1:

        def slack(x: Array, y: Array) -> Fraction:
            pairs = zip(exact(y), exact(low), exact(high), strict=True)
            return min(min(one - least, most - one) for one, least, most in pairs)

        rule: Any = Range(low, high, name=kind)
    else:

        def slack(x: Array, y: Array) -> Fraction:
            own = exact(y)
            return min(b - a for a, b in pairwise(own))

        rule = Ordered(name=kind)

    def size(x: Array, y: Array) -> float:
        return float(2 * np.abs(y).max() + np.abs(low).max() + np.abs(high).max())

    return Case([rule], region, slack, size, outputs, unit)
