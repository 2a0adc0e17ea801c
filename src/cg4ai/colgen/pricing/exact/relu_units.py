"""The best ReLU unit for given prices: a search over corners, then a program with whole numbers.

A unit maps x to max(0, u . z) with z = [standardised x, 1] and |u_1| + ... + |u_D| <= 1. What it is
worth is `sum_i prices_i max(0, u . z_i)`. That is linear in u between the hyperplanes u . z_i = 0,
so the best units lie where D - 1 of these, or of u_j = 0, meet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sparse

from cg4ai.records import Array, IntArray
from cg4ai.solvers.highs import MixedProgram, solve_mixed

DRAWS = 400  # corners drawn at random for a search
CLIMBED = 6  # of which so many are improved, corner by corner
STEPS = 30  # from corner to corner, at most
TOLERANCE = 1e-9  # of the solver, in numbers whose prices sum to one
FINEST = 1e-9  # gap that programs are solved to, in the same
COARSE = 0.5  # of what a unit is known to be worth: enough while members improve much
NODES = 20_000  # of branch and bound for one program; its bound holds wherever it stops


@dataclass(frozen=True, slots=True)
class Units:
    """Found units (k, D), best first by |worth|, and the worth of each to each output (k, q)."""

    parameters: Array
    worth: Array


@dataclass(frozen=True, slots=True)
class BestUnit:
    """A unit (D,), what it is worth, and what no unit is worth less than."""

    parameters: Array
    worth: float
    bound: float


def compute_worth(units: Array, design: Array, prices: Array) -> Array:
    """(k, q) of units (k, D) at inputs (n, D) with prices (n, q)."""
    return np.asarray(np.maximum(units @ design.T, 0.0) @ prices)


def search(design: Array, prices: Array, seed: int) -> Units:
    """Good units at prices (n, q): corners drawn at random, the best moved to better neighbours."""
    random = np.random.default_rng(seed)
    size = design.shape[1]
    planes = np.concatenate([design, np.eye(size)])
    drawn = np.argsort(random.random((DRAWS, len(planes))), axis=1)[:, : size - 1]
    # features alone, and constants, are corners that chance would miss
    ends = np.array([np.delete(np.arange(size), j) + len(design) for j in range(size)])
    meets = np.concatenate([drawn, ends])
    units = _corners(planes, meets)
    found = [units]
    value = np.abs(compute_worth(units, design, prices)).max(1)
    for place in np.argsort(-value, kind="stable")[:CLIMBED].tolist():
        found.append(_climbed(planes, design, prices, meets[place % len(meets)]))
    return _sorted(np.concatenate(found), design, prices)


def _sorted(units: Array, design: Array, prices: Array) -> Units:
    values = compute_worth(units, design, prices)
    order = np.argsort(-np.abs(values).max(1), kind="stable")
    return Units(units[order], values[order])


def _corners(planes: Array, meets: IntArray) -> Array:
    """Both directions (2 k, D) in which the planes of each of `meets` (k, D - 1) meet."""
    size = planes.shape[1]
    if size == 1:
        return np.array([[1.0], [-1.0]])
    directions = np.linalg.svd(planes[meets])[2][:, -1]
    directions = directions / np.abs(directions).sum(1, keepdims=True)
    return np.concatenate([directions, -directions])


def _climbed(planes: Array, design: Array, prices: Array, meets: IntArray) -> Array:
    """The corners passed by exchanging one plane at a time for the best other."""
    passed, best = [], -np.inf
    for _ in range(STEPS):
        options = np.tile(meets, (len(meets) * len(planes), 1))
        for place in range(len(meets)):
            options[place * len(planes) : (place + 1) * len(planes), place] = np.arange(len(planes))
        units = _corners(planes, options)
        value = np.abs(compute_worth(units, design, prices)).max(1)
        top = int(value.argmax())
        if value[top] <= best * (1 + 1e-12):
            break
        best, meets = value[top], options[top % len(options)]
        passed.append(units[top])
    return np.array(passed).reshape(-1, planes.shape[1])


def find_best_unit(design: Array, prices: Array, start: Array, *, enough: float = 0.0) -> BestUnit:
    """The unit of least worth at prices (n,), from `start`, by branch and bound.

    It ends early once the bound is within a share of `enough`, what members are known to improve
    by: then the bound only says how far the best can be.
    """
    known = float(compute_worth(start[None], design, prices[:, None])[0, 0])
    if known > 0:
        start, known = np.zeros_like(start), 0.0
    total = float(np.abs(prices).sum())
    if total == 0.0:
        return BestUnit(start, 0.0, 0.0)
    program = _program(design, prices / total)
    found = solve_mixed(
        program,
        node_limit=NODES,
        gap=max(FINEST, COARSE * enough / total),
        start=_point(program, design, prices, start),
        tolerance=TOLERANCE,
    )
    # whole numbers may be off by the tolerance, by which units may exceed max(0, u . z)
    margin = 4 * TOLERANCE * (1.0 + float(np.abs(design).max()))
    bound = total * (found.bound - margin)
    if found.values is not None:
        size = design.shape[1]
        unit = found.values[:size] - found.values[size : 2 * size]
        unit = unit / max(1.0, float(np.abs(unit).sum()))
        value = float(compute_worth(unit[None], design, prices[:, None])[0, 0])
        if value < known:
            start, known = unit, value
    return BestUnit(start, known, min(bound, known))


def _program(design: Array, prices: Array) -> MixedProgram:
    """Minimise prices . s over s = max(0, Z u); u is the difference of two vectors >= 0.

    Where the price is positive, s >= Z u and s >= 0 are enough. Elsewhere s would grow without
    limit, and a whole number says which of the two pieces it is on.
    """
    count, size = design.shape
    reach = np.abs(design).max(1)  # of u . z over the units
    paid, earning = np.flatnonzero(prices >= 0), np.flatnonzero(prices < 0)
    signs = len(earning)
    maps = sparse.csr_matrix(np.concatenate([design, -design], axis=1))
    outputs = sparse.identity(count, format="csr")
    limits = sparse.diags(reach[earning], format="csr")
    blocks = [
        [-maps[paid], outputs[paid], sparse.csr_matrix((len(paid), signs))],
        [sparse.csr_matrix((signs, 2 * size)), outputs[earning], -limits],
        [-maps[earning], outputs[earning], limits],
        [np.ones((1, 2 * size)), sparse.csr_matrix((1, count)), sparse.csr_matrix((1, signs))],
    ]
    rows = [sparse.hstack(block, format="csr") for block in blocks if block[0].shape[0]]
    free = np.full(count, np.inf)
    return MixedProgram(
        costs=np.concatenate([np.zeros(2 * size), prices, np.zeros(signs)]),
        lower=np.zeros(2 * size + count + signs),
        upper=np.concatenate([np.ones(2 * size), reach, np.ones(signs)]),
        integer=np.arange(2 * size + count + signs) >= 2 * size + count,
        matrix=sparse.vstack(rows, format="csr"),
        row_lower=np.concatenate([np.zeros(len(paid)), np.full(2 * signs + 1, -np.inf)]),
        row_upper=np.concatenate([free[: len(paid)], np.zeros(signs), reach[earning], [1.0]]),
    )


def _point(program: MixedProgram, design: Array, prices: Array, unit: Array) -> Array:
    """The variables of the program at a unit."""
    active = design @ unit
    outputs = np.maximum(active, 0.0)
    earning = prices < 0
    parts = [np.maximum(unit, 0.0), np.maximum(-unit, 0.0), outputs]
    return np.concatenate([*parts, (active[earning] > 0).astype(np.float64)])
