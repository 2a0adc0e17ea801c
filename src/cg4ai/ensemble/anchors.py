"""Finds anchors: predictors, constant or affine in the input, that keep rules on whole regions.

A constant anchor is a linear program (or, with rules that are not linear, a small convex one) over
the inputs at which each rule is tightest, which are added until none is missed. An affine one, a
linear decision rule, makes the rules vary with the input as little as it can and then does the
same; failing that it is the robust counterpart as one linear program. Room is read from the closed
form of the worst case, never from samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.optimize import linprog, minimize

from cg4ai.errors import InvalidInput
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.networks import NetworkMembers, affine
from cg4ai.protocols import Members
from cg4ai.records import Array
from cg4ai.rules import Concave
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.guards import TOLERANCE, FunctionRules, Guard
from cg4ai.rules.regions import Polytope

ROUNDS = 60  # of inputs added to the program of a constant anchor
MOST = 1.0  # room that is worth having, relative to max(1, |bound|)
SHARE = 0.25  # of the most room there is: an anchor nearer to the data than that has too little
LARGEST = 200_000  # entries of the robust counterpart as one program
BISECTIONS = 20


@dataclass(frozen=True, eq=False)
class AffineMap:
    """Outputs `slopes @ x + offsets`, (r, d) and (r,)."""

    slopes: Array
    offsets: Array

    @classmethod
    def constant(cls, outputs: Array, input_size: int) -> AffineMap:
        return cls(np.zeros((len(outputs), input_size)), np.asarray(outputs, np.float64))

    @property
    def is_constant(self) -> bool:
        return not self.slopes.any()

    def members(self) -> Members:
        """One member that computes it."""
        if self.is_constant:
            return ConstantMembers(self.offsets[None], self.slopes.shape[1])
        return affine(self.slopes.T[None], self.offsets[None])

    def towards(self, other: AffineMap, share: float) -> AffineMap:
        """The mixture with `share` of the other."""
        return AffineMap(
            (1 - share) * self.slopes + share * other.slopes,
            (1 - share) * self.offsets + share * other.offsets,
        )


@dataclass(frozen=True, eq=False)
class Space:
    """Outputs `offset + slope x + basis z`: all that members can give; z is free.

    `least` (q, r) and `floor` (q,): further rows `least @ y >= floor` that need no room, such as
    probabilities that are not negative.
    """

    offset: Array
    slope: Array
    basis: Array
    least: Array
    floor: Array

    @classmethod
    def free(cls, output_size: int, input_size: int) -> Space:
        return cls(
            np.zeros(output_size),
            np.zeros((output_size, input_size)),
            np.eye(output_size),
            np.empty((0, output_size)),
            np.empty(0),
        )

    @classmethod
    def probabilities(cls, groups: Sequence[int], input_size: int) -> Space:
        """Outputs that are not negative and sum to one in each of the groups."""
        size = sum(groups)
        sums = np.repeat(np.eye(len(groups)), groups, axis=1)
        offset = np.concatenate([np.full(count, 1.0 / count) for count in groups])
        projector = np.eye(size) - sums.T @ (sums / np.asarray(groups)[:, None])
        return cls(offset, np.zeros((size, input_size)), projector, np.eye(size), np.zeros(size))

    def outputs(self, slopes: Array, offsets: Array) -> AffineMap:
        """The map of `z = slopes x + offsets`."""
        return AffineMap(self.slope + self.basis @ slopes, self.offset + self.basis @ offsets)


@dataclass(frozen=True)
class Anchor:
    """An anchor with its least room over all rules and regions, relative to max(1, |bound|).

    `exact` says whether that is proven by closed form.
    """

    map: AffineMap
    room: float
    exact: bool = True


@dataclass(frozen=True)
class NoAnchor:
    """Why there is none: the rule that forbids it, and an input where it does."""

    reason: str
    rule: str = ""
    input: Array = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True)
class _Tightest:
    """The rule with least room, relative, and an input where it has that."""

    room: float
    guard: Guard
    rule: int
    point: Array


def affine_map(members: Members) -> AffineMap | None:
    """A single member as a map, where it is constant or affine."""
    if isinstance(members, ConstantMembers):
        return AffineMap.constant(members.values[0].cpu().numpy(), members.input_size)
    if isinstance(members, NetworkMembers):
        shape = members.architecture
        if not shape.hidden and shape.output == "linear" and shape.shift is None:
            slopes, offsets = (members.parameters[name][0] for name in ("weight_0", "bias_0"))
            return AffineMap(slopes.cpu().numpy(), offsets.cpu().numpy())
    return None


def tightest(guards: Sequence[Guard], anchor: AffineMap) -> _Tightest | None:
    """Where the anchor has least room, by closed form; None where there is none for some rule."""
    found: list[_Tightest] = []
    for guard in guards:
        worst = worst_case(guard, anchor)
        if worst is None:
            return None
        slack, points = worst
        relative = slack / _scale(guard)
        rule = int(np.argmin(relative))
        found.append(_Tightest(float(relative[rule]), guard, rule, points[rule]))
    return min(found, key=lambda one: one.room)


def _scale(guard: Guard) -> Array:
    return np.asarray(guard.rules.scale(torch.empty(0, dtype=torch.float64)).numpy())


def worst_case(guard: Guard, anchor: AffineMap) -> tuple[Array, Array] | None:
    """Least slack (L,) and where (L, d), or None without a closed form.

    Of quadratic rules and an anchor that moves: slack that is proven, if not the least there is.
    """
    rules = guard.rules
    if isinstance(rules, AffineRules) and not rules.closed_form(anchor.slopes).all():
        return None
    if not isinstance(rules, FunctionRules):
        worst = rules.worst_affine(anchor.slopes, anchor.offsets, guard.region)
        return worst.slack, worst.points
    if not anchor.is_constant or not isinstance(rules.requirement, Concave):
        return None
    # these rules speak of the output alone, so that a constant has one value everywhere
    centre = guard.region.middle
    x, y = torch.as_tensor(centre)[None], torch.as_tensor(anchor.offsets)[None]
    with torch.no_grad():
        slack = rules.slack(x, y)[0].numpy()
    return slack, np.tile(centre, (len(slack), 1))


def find_anchor(
    guards: Sequence[Guard], *, space: Space, reference: AffineMap | None = None
) -> Anchor | NoAnchor:
    """An anchor for all guards at once, as near to the reference as room for the rules allows.

    The reference is where predictions are expected: an affine fit of the data, say. It must lie in
    the space and need not keep the rules.
    """
    start = space.outputs(*_nothing(space)) if reference is None else reference
    near = _anchored(guards, start, space)
    if near is not None and near.room >= SHARE * MOST:
        return near
    best, failed = _roomiest(guards, space)
    if best is None:
        if near is not None and near.room > 0:
            return near
        assert failed is not None
        return failed
    return _between(guards, start, best)


def _nothing(space: Space) -> tuple[Array, Array]:
    free = space.basis.shape[1]
    return np.zeros((free, space.slope.shape[1])), np.zeros(free)


def _anchored(guards: Sequence[Guard], one: AffineMap, space: Space) -> Anchor | None:
    """The map as an anchor if it keeps all rules; None also where that has no closed form."""
    if len(space.least) and (
        not one.is_constant or (space.least @ one.offsets < space.floor).any()
    ):
        return None
    least = tightest(guards, one)
    return None if least is None or least.room < 0 else Anchor(one, least.room)


def _between(guards: Sequence[Guard], start: AffineMap, best: Anchor) -> Anchor:
    """The mixture of both that is nearest to the start and has its share of the room.

    Maps that keep the rules are a convex set, and room is concave along the way.
    """
    if tightest(guards, start) is None:
        return best
    wanted = SHARE * min(best.room, MOST)
    low, high, found = 0.0, 1.0, best
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        one = start.towards(best.map, middle)
        least = tightest(guards, one)
        if least is not None and least.room >= wanted:
            high, found = middle, Anchor(one, least.room)
        else:
            low = middle
    return found


def _roomiest(guards: Sequence[Guard], space: Space) -> tuple[Anchor | None, NoAnchor | None]:
    """The anchor of most room: constant, else affine; or the rule that leaves none."""
    moving = bool(space.slope.any())
    candidates = [] if moving else [_nothing(space)[0]]
    if all(isinstance(guard.rules, AffineRules) for guard in guards) and not len(space.least):
        candidates.append(_steadiest(guards, space))
    forbidden: _Tightest | None = None
    for slopes in candidates:
        found, least = _centred(guards, space, slopes)
        if found is not None:
            return found, None
        forbidden = least or forbidden
    robust = _counterpart(guards, space) if len(candidates) > 1 or moving else None
    if robust is not None:
        found, least = _centred(guards, space, robust)
        if found is not None:
            return found, None
    if forbidden is None:
        return None, NoAnchor("the room of an anchor has no closed form for these rules")
    shown = ", ".join(f"{value:.4g}" for value in forbidden.point[:6])
    more = ", ..." if len(forbidden.point) > 6 else ""
    reason = (
        f"no constant or affine anchor keeps {forbidden.guard.name} on its region: the best one "
        f"misses rule {forbidden.rule} by {-forbidden.room:.3g} (relative to its bound, if that is "
        f"above 1) at x = [{shown}{more}]"
    )
    return None, NoAnchor(reason, forbidden.guard.name, forbidden.point)


def _centred(
    guards: Sequence[Guard], space: Space, slopes: Array
) -> tuple[Anchor | None, _Tightest | None]:
    """With these slopes of z, the constant part of most room, by inputs added one after another."""
    offsets = np.zeros(space.basis.shape[1])
    program = _Program(space, slopes)
    for guard in guards:
        program.add(guard, guard.region.middle[None])
    best: tuple[float, AffineMap] | None = None
    least: _Tightest | None = None
    for _ in range(ROUNDS):
        solved = program.solve(offsets)
        if solved is None:
            break
        room, offsets = solved
        one = space.outputs(slopes, offsets)
        least = tightest(guards, one)
        if least is None:
            return None, None
        if best is None or least.room > best[0]:
            best = (least.room, one)
        if least.room >= min(room, MOST) - 1e-9:
            break
        for guard in guards:
            worst = worst_case(guard, one)
            assert worst is not None
            program.add(guard, worst[1])
    if best is None:
        return None, least
    return (Anchor(best[1], best[0]) if best[0] >= 0 else None), tightest(guards, best[1])


class _Program:
    """Most room over the inputs known so far, for outputs whose dependence on x is fixed."""

    def __init__(self, space: Space, slopes: Array) -> None:
        self.space, self.slopes = space, slopes
        self.rows: list[Array] = []
        self.limits: list[Array] = []
        self.others: list[Guard] = []

    def add(self, guard: Guard, points: Array) -> None:
        """Rows of an affine guard: every rule at its own point, or all at a single one."""
        rules = guard.rules
        if not isinstance(rules, AffineRules):
            if guard not in self.others:
                self.others.append(guard)
            return
        at = np.repeat(points, len(rules), axis=0) if len(points) == 1 else points
        which = np.arange(len(rules))
        rows = rules.rows(at, which, 0)  # -value >= -limit
        moved = self.space.outputs(self.slopes, np.zeros(self.space.basis.shape[1]))
        fixed = moved.offsets + at @ moved.slopes.T
        known = (rows.coefficients * fixed).sum(1)
        self.rows.append(np.column_stack([-rows.coefficients @ self.space.basis, _scale(guard)]))
        self.limits.append(known - rows.bounds)

    def solve(self, start: Array) -> tuple[float, Array] | None:
        """Room and the constant part of z; None if even the rows without room cannot be met."""
        free = self.space.basis.shape[1]
        least = np.column_stack(
            [-self.space.least @ self.space.basis, np.zeros(len(self.space.floor))]
        )
        floor = self.space.least @ self.space.offset - self.space.floor
        matrix = np.concatenate([*self.rows, least]) if self.rows else least
        limits = np.concatenate([*self.limits, floor])
        if self.others:
            return self._convex(matrix, limits, start)
        cost = np.append(np.zeros(free), -1.0)
        bounds = [(None, None)] * free + [(None, MOST)]
        answer = linprog(cost, matrix, limits, bounds=bounds, method="highs")
        if answer.status != 0:
            return None
        return float(answer.x[-1]), np.asarray(answer.x[:-1])

    def _convex(self, matrix: Array, limits: Array, start: Array) -> tuple[float, Array] | None:
        """The same with rules that are concave in the output: a small smooth program."""

        def outputs(z: Array) -> torch.Tensor:
            return torch.as_tensor(self.space.offset + self.space.basis @ z)

        def room(point: Array) -> Array:
            y = outputs(point[:-1])[None]
            with torch.no_grad():
                parts = [
                    one.rules.slack(_centre(one), y)[0].numpy() - point[-1] * _scale(one)
                    for one in self.others
                ]
            return np.concatenate([limits - matrix @ point, *parts])

        def slope(point: Array) -> Array:
            y = outputs(point[:-1])[None].requires_grad_(True)
            rows = [-matrix]
            for one in self.others:
                slack = one.rules.slack(_centre(one), y)[0]
                for number, value in enumerate(slack):
                    (gradient,) = torch.autograd.grad(value, y, retain_graph=True)
                    own = gradient[0].numpy() @ self.space.basis
                    rows.append(np.append(own, -_scale(one)[number])[None])
            return np.concatenate(rows)

        first = np.append(start, 0.0)
        first[-1] = min(0.0, float(room(first).min()) - 1.0)
        cost = np.append(np.zeros(len(start)), -1.0)
        answer = minimize(
            lambda point: -point[-1],
            first,
            jac=lambda point: cost,
            bounds=[(None, None)] * len(start) + [(None, MOST)],
            constraints={"type": "ineq", "fun": room, "jac": slope},
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-10},
        )
        if not np.isfinite(answer.x).all():
            return None
        return float(answer.x[-1]), np.asarray(answer.x[:-1])


def _centre(guard: Guard) -> torch.Tensor:
    return torch.as_tensor(guard.region.middle)[None]


def _steadiest(guards: Sequence[Guard], space: Space) -> Array:
    """The slopes of z under which the rules vary least over their regions (least squares)."""
    rows, targets = [], []
    for guard in guards:
        rules = guard.rules
        first = rules.pieces[:, 0]
        rows.append(rules.constant @ space.basis / _scale(guard)[:, None])
        varying = rules.tilt[first] - rules.constant @ space.slope
        targets.append(varying / _scale(guard)[:, None])
    matrix, target = np.concatenate(rows), np.concatenate(targets)
    return np.asarray(np.linalg.lstsq(matrix, target, rcond=1e-9)[0])


def _counterpart(guards: Sequence[Guard], space: Space) -> Array | None:
    """The slopes of z of most room over the regions, balls by their boxes: one LP.

    The robust counterpart: with multipliers u of a polytope's limits a value `g . x` is at most
    `u . limit` plus that of `g - u . matrix` on the box. Variables: Z (k, d), z (k,),
    |g - u . matrix| (L, d), u, room. None where it would be too large.
    """
    free, size = space.basis.shape[1], space.slope.shape[1]
    rules = sum(len(guard.rules) for guard in guards)
    moving = any(isinstance(g.rules, AffineRules) and len(g.rules.value) for g in guards)
    if moving or len(space.least) or rules * size * (free + 2) > LARGEST:
        return None
    blocks: list[Any] = []
    limits: list[Array] = []
    start = free * size + free
    extra = start + rules * size
    columns = extra + sum(len(guard.rules) * _limits(guard) for guard in guards) + 1
    done = 0
    for guard in guards:
        own, first = guard.rules, guard.rules.pieces[:, 0]
        lower, upper = guard.region.bounds()
        centre, radius = (lower + upper) / 2, (upper - lower) / 2
        matrix = own.constant @ space.basis  # (L, k)
        fixed = own.constant @ space.slope - own.tilt[first]  # (L, d): slopes with Z = 0
        for rule in range(len(own)):
            places = start + done * size + np.arange(size)
            own_limits = slice(extra, extra + _limits(guard))
            done, extra = done + 1, own_limits.stop
            z_rows = sparse.kron(matrix[rule][None], sparse.eye(size))  # row i: slope along x_i
            for sign in (1.0, -1.0):
                block = sparse.lil_matrix((size, columns))
                block[:, : free * size] = sign * z_rows
                block[np.arange(size), places] = -1.0
                if isinstance(guard.region, Polytope):
                    block[:, own_limits] = -sign * guard.region.matrix.T
                blocks.append(block.tocsr())
                limits.append(-sign * fixed[rule])
            whole = sparse.lil_matrix((1, columns))
            whole[0, : free * size] = np.kron(matrix[rule], centre)
            whole[0, free * size : start] = matrix[rule]
            whole[0, places] = radius
            if isinstance(guard.region, Polytope):
                whole[0, own_limits] = guard.region.limit - guard.region.matrix @ centre
            whole[0, columns - 1] = _scale(guard)[rule]
            known = own.constant[rule] @ space.offset + fixed[rule] @ centre
            blocks.append(whole.tocsr())
            limits.append(np.array([own.limit[first[rule]] - known]))
    bounds = [(None, None)] * start + [(0, None)] * (columns - 1 - start) + [(None, MOST)]
    cost = np.append(np.zeros(columns - 1), -1.0)
    answer = linprog(
        cost, sparse.vstack(blocks), np.concatenate(limits), bounds=bounds, method="highs"
    )
    if answer.status != 0:
        return None
    return np.asarray(answer.x[: free * size].reshape(free, size))


def _limits(guard: Guard) -> int:
    return len(guard.region.limit) if isinstance(guard.region, Polytope) else 0


def check_given(guards: Sequence[Guard], anchor: AffineMap) -> Anchor:
    """An anchor that was given, with its proven room; InvalidInput where it breaks a rule."""
    least = tightest(guards, anchor)
    if least is None:
        raise InvalidInput(
            "the room of this anchor has no closed form: a rule multiplies outputs by the input, "
            "or is not linear, and the anchor depends on the input, too; give a constant anchor"
        )
    if least.room < -TOLERANCE:
        shown = ", ".join(f"{value:.6g}" for value in least.point[:6])
        more = ", ..." if len(least.point) > 6 else ""
        raise InvalidInput(
            f"the anchor does not keep {least.guard.name}: at x = [{shown}{more}] rule "
            f"{least.rule} is missed by {-least.room:.3g} (relative to its bound, if that is above "
            "1); a shield needs an anchor that keeps every rule on the whole region"
        )
    return Anchor(anchor, least.room)
