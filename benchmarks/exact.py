"""Rules and predictions in exact or 200-bit arithmetic, by code that imports nothing of `cg4ai`.

Floats are taken as the rational numbers they are. Rules are evaluated on rationals (balls of 200
bits where a function is not rational), predictions anew from the arrays of a saved ensemble.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flint import arb, ctx, fmpq
from numpy.typing import NDArray
from safetensors.numpy import load_file

Array = NDArray[np.float64]
Number = Any  # of python-flint, which has no types: fmpq, or arb
Numbers = list[Number]
ctx.prec = 200


def rational(value: float) -> Number:
    """The number that a float is."""
    above, below = float(value).as_integer_ratio()
    return fmpq(above, below)


def rationals(values: Any) -> Numbers:
    return [rational(value) for value in np.asarray(values, np.float64).reshape(-1).tolist()]


def centre(value: Number) -> Number:
    """The rational in the middle of a ball."""
    if isinstance(value, fmpq):
        return value
    man, exp = value.mid().man_exp()
    return fmpq(man, 1) * (fmpq(2) ** int(exp))


def dot(one: Sequence[Number], other: Sequence[Number]) -> Number:
    total = fmpq(0)
    for a, b in zip(one, other, strict=True):
        if a != 0:
            total += a * b
    return total


# ---- where ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Inputs in a box, cut by a ball or by rows: what a region is, by its own numbers."""

    lower: Array
    upper: Array
    radius: float | None = None  # Euclidean, about `middle`
    middle: Array | None = None
    rows: Array | None = None
    limit: Array | None = None

    def holds(self, x: Numbers) -> bool:
        """Whether an input lies inside, exactly."""
        if self.radius is not None:
            assert self.middle is not None
            away = [a - b for a, b in zip(x, rationals(self.middle), strict=True)]
            return bool(dot(away, away) <= rational(self.radius) ** 2)
        ends = zip(x, rationals(self.lower), rationals(self.upper), strict=True)
        if not all(low <= value <= high for value, low, high in ends):
            return False
        if self.rows is None or self.limit is None:
            return True
        sums = (dot(rationals(row), x) for row in self.rows)
        return all(s <= end for s, end in zip(sums, rationals(self.limit), strict=True))

    def screen(self, points: Array) -> NDArray[np.bool_]:
        """The same in floats, for choosing."""
        if self.radius is not None:
            return np.asarray(np.linalg.norm(points - self.middle, axis=1) <= self.radius)
        inside = ((points >= self.lower) & (points <= self.upper)).all(1)
        if self.rows is not None:
            inside &= (points @ self.rows.T <= self.limit).all(1)
        return np.asarray(inside)


# ---- what ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """`(matrix + slope . x) y <= max over pieces of (offset + tilt . x)`, one rule per row.

    `matrix` (L, r), `slope` (L, r, d) or None, `offset` (K, L), `tilt` (K, L, d) or None.
    """

    matrix: Array
    offset: Array
    slope: Array | None = None
    tilt: Array | None = None

    def excess(self, x: Numbers, y: Numbers) -> Numbers:
        found = []
        for rule, row in enumerate(self.matrix):
            weights = rationals(row)
            if self.slope is not None:
                moving = [dot(rationals(s), x) for s in self.slope[rule]]
                weights = [a + b for a, b in zip(weights, moving, strict=True)]
            ends = [rational(piece[rule]) for piece in self.offset]
            if self.tilt is not None:
                ends = [
                    end + dot(rationals(tilt[rule]), x)
                    for end, tilt in zip(ends, self.tilt, strict=True)
                ]
            found.append(dot(weights, y) - max(ends))
        return found

    def quick(self, x: Array, y: Array) -> Array:
        values = y @ self.matrix.T
        if self.slope is not None:
            values = values + np.einsum("lrd,nd,nr->nl", self.slope, x, y)
        ends = self.offset[:, None, :]
        if self.tilt is not None:
            ends = ends + np.einsum("kld,nd->knl", self.tilt, x)
        return np.asarray((values - ends.max(0)).max(1))


@dataclass(frozen=True)
class Square:
    """`y' matrix y + linear . y <= limit`."""

    matrix: Array
    linear: Array
    limit: float

    def excess(self, x: Numbers, y: Numbers) -> Numbers:
        total = dot(rationals(self.linear), y) - rational(self.limit)
        for row, value in zip(self.matrix, y, strict=True):
            total += value * dot(rationals(row), y)
        return [total]

    def quick(self, x: Array, y: Array) -> Array:
        return np.asarray(
            np.einsum("nr,rs,ns->n", y, self.matrix, y) + y @ self.linear - self.limit
        )


@dataclass(frozen=True)
class Curved:
    """`bound - value(y / unit)` of a concave function by name; `weights` (r,) are its own."""

    kind: str
    weights: Array
    unit: float
    bound: float

    def value(self, y: Numbers) -> Number:
        """The function in 200 bits; `concave` of `claims.py` is the same in torch."""
        scaled = [arb(v) / arb(rational(self.unit)) for v in y]
        each = list(zip(rationals(self.weights), scaled, strict=True))
        if self.kind == "absolute":
            return -sum((arb(w) * abs(v) for w, v in each), arb(0))
        if self.kind == "norm":
            return -(sum(((arb(w) * v) ** 2 for w, v in each), arb(1))).sqrt()
        if self.kind == "exponential":
            return -sum(((arb(w) * v).exp() for w, v in each), arb(0)).log()
        lowest = arb(each[0][0]) + each[0][1]
        for w, v in each[1:]:
            lowest = lowest.min(arb(w) + v)
        return lowest

    def excess(self, x: Numbers, y: Numbers) -> Numbers:
        return [centre(arb(rational(self.bound)) - self.value(y))]

    def quick(self, x: Array, y: Array) -> Array:
        return np.array([float(self.excess([], rationals(one))[0]) for one in y])


# ---- predictions from stored arrays --------------------------------------------------------------


class Unknown(Exception):
    """A kind of member that is not recomputed here."""


@dataclass(frozen=True)
class Between:
    """Outputs known up to a shield: each between a member's own and its anchor's."""

    low: Numbers
    high: Numbers


class Saved:
    """An ensemble folder, evaluated by its numbers."""

    def __init__(self, folder: str | Path) -> None:
        self.record = json.loads((Path(folder) / "ensemble.json").read_text())
        self.arrays = load_file(str(Path(folder) / "members.safetensors"))

    def outputs(self, point: Array) -> Between:
        """Where each output of the mixture lies at one input (d,)."""
        size = 1 + max(max(block) for block in self.record["layout"])
        low, high = ([fmpq(0)] * size for _ in range(2))
        stacks = zip(
            self.record["members"], self.record["blocks"], self.record["weights"], strict=True
        )
        for number, (member, blocks, weights) in enumerate(stacks):
            found = self._stack(member, f"{number}.", point, len(weights))
            for one, block, weight in zip(found, blocks, weights, strict=True):
                share = rational(weight)
                for place, a, b in zip(
                    self.record["layout"][block], one.low, one.high, strict=True
                ):
                    low[place] += share * a
                    high[place] += share * b
        return Between(low, high)

    def _stack(self, member: Any, prefix: str, point: Array, count: int) -> list[Between]:
        kind, config = member["kind"], member["config"]
        if kind == "shielded":
            own = self._stack(config["inner"], f"{prefix}inner.", point, count)
            anchor = config["shield"]["anchor"]
            (other,) = self._stack(anchor, f"{prefix}shield.anchor.", point, 1)
            return [_hull(one, other) for one in own]
        return [
            Between(exact := [centre(v) for v in values], exact)
            for values in self._plain(kind, config, prefix, point, count)
        ]

    def _plain(
        self, kind: str, config: Any, prefix: str, point: Array, count: int
    ) -> list[Numbers]:
        x = rationals(point)
        if kind == "constant":
            return [rationals(values) for values in self.arrays[f"{prefix}values"]]
        if kind == "network":
            return [self._network(config, prefix, x, k) for k in range(count)]
        if kind == "tree":
            return [self._tree(config, prefix, point, k) for k in range(count)]
        if kind == "completed":
            inner = config["inner"]
            found = self._plain(inner["kind"], inner["config"], f"{prefix}inner.", point, count)
            return [self._completed(f"{prefix}completion.", x, values) for values in found]
        if kind == "arranged":
            inner = config["inner"]
            found = self._plain(inner["kind"], inner["config"], f"{prefix}inner.", point, count)
            return [self._arranged(config["set"], f"{prefix}set.", values) for values in found]
        raise Unknown(kind)

    def _network(self, config: Any, prefix: str, x: Numbers, member: int) -> Numbers:
        if f"{prefix}normalise_shift" in self.arrays:
            shift = rationals(self.arrays[f"{prefix}normalise_shift"])
            x = [a - b for a, b in zip(x, shift, strict=True)]
        if f"{prefix}normalise_scale" in self.arrays:
            scale = rationals(self.arrays[f"{prefix}normalise_scale"])
            x = [a / b for a, b in zip(x, scale, strict=True)]
        inner: Numbers = [arb(v) for v in x]
        depth = len(config["hidden"])
        for layer in range(depth + 1):
            weights = self.arrays[f"{prefix}weight_{layer}"][member]
            bias = self.arrays[f"{prefix}bias_{layer}"][member]
            made = [
                sum((arb(float(w)) * v for w, v in zip(row, inner, strict=True)), arb(float(b)))
                for row, b in zip(weights, bias, strict=True)
            ]
            inner = [_bent(config["activation"], v) for v in made] if layer < depth else made
        if config["skip"]:
            rows = self.arrays[f"{prefix}skip"][member]
            inner = [
                value + sum((arb(float(w)) * arb(v) for w, v in zip(row, x, strict=True)), arb(0))
                for value, row in zip(inner, rows, strict=True)
            ]
        if config["output"] == "linear":
            return inner
        groups = config["groups"] if config["output"] == "grouped" else [len(inner)]
        made, start = [], 0
        for size in groups:
            made += _softmax(inner[start : start + size])
            start += size
        return made

    def _tree(self, config: Any, prefix: str, point: Array, member: int) -> Numbers:
        own = {
            name: self.arrays[f"{prefix}{name}"][member]
            for name in ("feature", "threshold", "left", "right", "value", "initial", "factor")
        }
        if f"{prefix}subset" in self.arrays:
            raise Unknown("categories")
        x = point.astype(np.float32).astype(np.float64) if config["single_precision"] else point
        total = [fmpq(0)] * own["value"].shape[-1]
        for tree in range(len(own["feature"])):
            node = 0
            while own["left"][tree, node] != node:
                goes = x[own["feature"][tree, node]] <= own["threshold"][tree, node]
                node = int(own["left" if goes else "right"][tree, node])
            leaf = rationals(own["value"][tree, node])
            total = [a + b for a, b in zip(total, leaf, strict=True)]
        factor = rational(own["factor"])
        scores = [a + factor * b for a, b in zip(rationals(own["initial"]), total, strict=True)]
        return scores if config["link"] == "identity" else _softmax([arb(v) for v in scores])

    def _completed(self, prefix: str, x: Numbers, free: Numbers) -> Numbers:
        exact = [centre(value) for value in free]
        parts = (self.arrays[f"{prefix}{name}"] for name in ("offset", "slope", "basis"))
        return [
            rational(offset) + dot(rationals(slope), x) + dot(rationals(basis), exact)
            for offset, slope, basis in zip(*parts, strict=True)
        ]

    def _arranged(self, config: Any, prefix: str, values: Numbers) -> Numbers:
        z = [centre(value) for value in values]
        for chain in config["chains"]:
            for place, value in zip(chain, sorted(z[k] for k in chain), strict=True):
                z[place] = value
        low, high = (self.arrays[f"{prefix}{end}"].tolist() for end in ("low", "high"))
        found = [_clamped(v, a, b) for v, a, b in zip(z, low, high, strict=True)]
        for positions, total in config["totals"]:
            ends = [(low[k], high[k]) for k in positions]
            made = _summing([z[k] for k in positions], ends, rational(total))
            for place, value in zip(positions, made, strict=True):
                found[place] = value
        return found


def _hull(one: Between, other: Between) -> Between:
    low = [min(a, b) for a, b in zip(one.low, other.low, strict=True)]
    high = [max(a, b) for a, b in zip(one.high, other.high, strict=True)]
    return Between(low, high)


def _bent(activation: str, value: Number) -> Number:
    if activation == "tanh":
        return value.tanh()
    if activation == "gelu":
        return value * (1 + (value / arb(2).sqrt()).erf()) / 2
    return value.max(arb(0))


def _softmax(scores: Numbers) -> Numbers:
    top = max(float(score) for score in scores)
    each = [(score - arb(top)).exp() for score in scores]
    whole = sum(each, arb(0))
    return [one / whole for one in each]


def _clamped(value: Number, low: float, high: float) -> Number:
    if math.isfinite(low):
        value = max(value, rational(low))
    return min(value, rational(high)) if math.isfinite(high) else value


def _summing(z: Numbers, ends: list[tuple[float, float]], total: Number) -> Numbers:
    """`clamp(z - tau)` with the sum `total`, tau by bisection to far below any float."""

    def at(tau: Number) -> Numbers:
        return [_clamped(v - tau, *pair) for v, pair in zip(z, ends, strict=True)]

    spread = max(abs(v) for v in z) + abs(total) + 1
    spread += sum(rational(abs(end)) for pair in ends for end in pair if math.isfinite(end))
    low, high = -spread, spread
    for _ in range(160):
        middle = (low + high) / 2
        if sum(at(middle), fmpq(0)) >= total:
            low = middle
        else:
            high = middle
    return at(low)
