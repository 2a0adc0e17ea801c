"""Finds anchors: predictors, constant or affine in the input, that keep rules on whole regions.

A constant anchor is a linear program (or, with rules that are not linear, a small convex one) over
the inputs at which each rule is tightest, which are added until none is missed. An affine one, a
linear decision rule, makes the rules vary with the input as little as it can and then does the
same; failing that it is the robust counterpart as one linear program. Between the anchor of most
room and what is best for the data lies the one that is used. Room is read from the closed form of
the worst case, never from samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize

from cg4ai.anchors.affine_maps import AffineMap, Space
from cg4ai.anchors.least_loss import MeanLoss, find_slope, minimise_loss
from cg4ai.anchors.responses import ResponseRows, find_sums
from cg4ai.anchors.robust_counterpart import build_counterpart, maximise_last
from cg4ai.anchors.splitting import RegionRows, build_region_rows
from cg4ai.errors import InvalidInput
from cg4ai.records import Array
from cg4ai.rules import Concave
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.guards import FunctionRules, Guard
from cg4ai.rules.quadratic import QuadraticRules
from cg4ai.rules.regions import Ball, Polytope

ROUNDS = 60  # of inputs added to the program of a constant anchor
MOST = 1.0  # room that is worth having, relative to the scale of a guard
SHARE = 0.25  # of the most room there is: an anchor nearer to the data than that has too little
LEAST = 0.02  # room that a rule of least loss leaves: it has chosen where, the others have not
ROOMS = (0.1, 0.03, 0.01)  # asked for in turn where the usual anchors leave less, or none
RESPONSE_ROOMS = (*ROOMS, 0.003, 0.001)
LARGE = 3e8  # rules x inputs x (inputs + outputs) from which on operator splitting takes minutes
BISECTIONS = 20


@dataclass(frozen=True)
class Anchor:
    """An anchor with its least room over all rules and regions, relative to `Guard.scale`.

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

    @property
    def violation(self) -> float:
        """By how much the rule is missed there, in its own units."""
        return -self.room * float(self.guard.scale[self.rule])


def find_tightest(guards: Sequence[Guard], anchor: AffineMap) -> _Tightest | None:
    """Where the anchor has least room, by closed form; None where there is none for some rule."""
    found: list[_Tightest] = []
    for guard in guards:
        worst = find_worst_case(guard, anchor)
        if worst is None:
            return None
        slack, points = worst
        relative = slack / guard.scale
        rule = int(np.argmin(relative))
        found.append(_Tightest(float(relative[rule]), guard, rule, points[rule]))
    return min(found, key=lambda one: one.room)


def find_worst_case(guard: Guard, anchor: AffineMap) -> tuple[Array, Array] | None:
    """Least slack (L,) and where (L, d), or None without a closed form.

    Of quadratic rules and an anchor that moves: slack that is proven, if not the least there is.
    """
    rules = guard.rules
    if isinstance(rules, AffineRules) and anchor.is_constant:
        known = rules.worst(anchor.offsets, guard.region)
        return known.slack, known.points
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
    guards: Sequence[Guard],
    *,
    space: Space,
    reference: AffineMap | None = None,
    loss: MeanLoss | None = None,
) -> Anchor | NoAnchor:
    """An anchor for all guards at once, as good for the data as room for the rules allows.

    The reference is where predictions are expected: an affine fit of the data, say. It must lie in
    the space and need not keep the rules. With a loss the anchor is the decision rule of least mean
    loss that leaves its share of the room; without rows for that, the rule of least mean loss moved
    as far as it must be.
    """
    start = space.outputs(*_nothing(space)) if reference is None else reference
    near = _anchored(guards, start, space)
    if loss is None and near is not None and near.room >= SHARE * MOST:
        return near
    responding = None if loss is None else _find_responding(guards, space, start, loss)
    if responding is not None:
        return responding
    best, failed = _roomiest(guards, space)
    if best is None or (loss is not None and best.room < LEAST / SHARE):
        best = _find_roomier(guards, space, 0.0 if best is None else best.room) or best
    if best is None:
        if near is not None and near.room > 0:
            return near
        assert failed is not None
        return failed
    if loss is None or len(space.least):
        return _between(guards, start, best, SHARE * min(best.room, MOST))
    room = min(LEAST, SHARE * best.room)
    rows = _build_rows(room, guards, space, loss.inputs.mean(0))
    if rows is None:
        room = SHARE * min(best.room, MOST)
    near = _between(guards, start, best, room)
    return _between(guards, minimise_loss(loss, space, near.map, rows), best, room)


def _find_responding(
    guards: Sequence[Guard], space: Space, start: AffineMap, loss: MeanLoss
) -> Anchor | None:
    """An anchor that responds to few sums of the inputs; None where others can be looked for."""
    inputs, count = space.slope.shape[1], sum(len(one.sizes) for one in guards)
    if count * inputs * (inputs + space.basis.shape[1]) < LARGE:
        return None
    sums = find_sums(space)
    if sums is None:
        return None
    slope = find_slope(loss, space, start)
    for room in RESPONSE_ROOMS:
        rows = ResponseRows.build(guards, space, sums, room)
        found = None if rows is None else rows.find_cheap(slope, loss.inputs.mean(0))
        best = None if found is None else _anchored(guards, found, space)
        if best is not None and best.room > SHARE * room:
            break
    else:
        return None
    room = min(LEAST, SHARE * best.room)
    near = _between(guards, start, best, room)
    rows = ResponseRows.build(guards, space, sums, room)
    return _between(guards, minimise_loss(loss, space, near.map, rows), best, room)


def _build_rows(
    room: float, guards: Sequence[Guard], space: Space, centre: Array
) -> RegionRows | tuple[Any, Array] | None:
    """Rows that allow all rules which leave this room; None where none are known."""
    pieces = any(
        isinstance(guard.rules, AffineRules) and len(guard.rules.limit) > len(guard.rules)
        for guard in guards
    )
    if room <= 0 or pieces:
        return None
    if not any(isinstance(guard.region, Polytope) for guard in guards):
        rows = build_region_rows(guards, space, room)
        if rows is not None:
            return rows
    if any(isinstance(guard.region, Ball) and guard.region.norm == 2 for guard in guards):
        return None
    known = build_counterpart(guards, space, centre)
    return build_region_rows(guards, space, room) if known is None else known.leaving(room)


def _nothing(space: Space) -> tuple[Array, Array]:
    free = space.basis.shape[1]
    return np.zeros((free, space.slope.shape[1])), np.zeros(free)


def _anchored(guards: Sequence[Guard], one: AffineMap, space: Space) -> Anchor | None:
    """The map as an anchor if it keeps all rules; None also where that has no closed form."""
    if len(space.least) and (
        not one.is_constant or (space.least @ one.offsets < space.floor).any()
    ):
        return None
    least = find_tightest(guards, one)
    return None if least is None or least.room < 0 else Anchor(one, least.room)


def _between(guards: Sequence[Guard], start: AffineMap, best: Anchor, wanted: float) -> Anchor:
    """The mixture of both that is nearest to the start and has the room wanted.

    Maps that keep the rules are a convex set, and room is concave along the way.
    """
    if find_tightest(guards, start) is None:
        return best
    low, high, found = 0.0, 1.0, best
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        one = start.mix(best.map, middle)
        least = find_tightest(guards, one)
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
    rows = build_counterpart(guards, space) if len(candidates) > 1 or moving else None
    for balanced in [] if rows is None else [False, True]:
        assert rows is not None
        robust = rows.maximise_room(space.slope.shape[1], MOST, balanced=balanced)
        if robust is not None:
            found, _ = _centred(guards, space, robust, balanced=balanced)
            if found is not None:
                return found, None
    if forbidden is None:
        return None, NoAnchor("the room of an anchor has no closed form for these rules")
    shown = ", ".join(f"{value:.4g}" for value in forbidden.point[:6])
    more = ", ..." if len(forbidden.point) > 6 else ""
    reason = (
        f"no constant or affine anchor keeps {forbidden.guard.name} on its region: the best one "
        f"misses rule {forbidden.rule} by {forbidden.violation:.3g} at x = [{shown}{more}]"
    )
    return None, NoAnchor(reason, forbidden.guard.name, forbidden.point)


def _find_roomier(guards: Sequence[Guard], space: Space, known: float) -> Anchor | None:
    """An affine anchor with more room than is known, where one is found by operator splitting."""
    for room in ROOMS:
        rows = build_region_rows(guards, space, room)
        if rows is None or room <= known:
            return None
        found = rows.find_shortest()
        if found is None:
            continue
        one = space.outputs(found[:, :-1], found[:, -1] - found[:, :-1] @ rows.middle)
        least = find_tightest(guards, one)
        if least is not None and least.room > max(known, SHARE * room):
            return Anchor(one, least.room)
    return None


def _centred(
    guards: Sequence[Guard], space: Space, slopes: Array, *, balanced: bool = False
) -> tuple[Anchor | None, _Tightest | None]:
    """With these slopes of z, the constant part of most room, by inputs added one after another."""
    offsets = np.zeros(space.basis.shape[1])
    program = _Program(space, slopes, balanced=balanced)
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
        least = find_tightest(guards, one)
        if least is None:
            return None, None
        if best is None or least.room > best[0]:
            best = (least.room, one)
        if least.room >= min(room, MOST) - 1e-9:
            break
        for guard in guards:
            worst = find_worst_case(guard, one)
            assert worst is not None
            program.add(guard, worst[1])
    if best is None:
        return None, least
    return (Anchor(best[1], best[0]) if best[0] >= 0 else None), find_tightest(guards, best[1])


class _Program:
    """Most room over the inputs known so far, for outputs whose dependence on x is fixed."""

    def __init__(self, space: Space, slopes: Array, *, balanced: bool) -> None:
        self.space, self.slopes, self.balanced = space, slopes, balanced
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
        # in the rule's own units: the solver's tolerances are those of numbers around 1
        own = -rows.coefficients @ self.space.basis / guard.scale[:, None]
        self.rows.append(np.column_stack([own, np.ones(len(rows))]))
        self.limits.append((known - rows.bounds) / guard.scale)

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
        bounds = [(None, None)] * free + [(None, MOST)]
        found = maximise_last(matrix, limits, bounds, balanced=self.balanced)
        return None if found is None else (float(found[-1]), found[:-1])

    def _convex(self, matrix: Array, limits: Array, start: Array) -> tuple[float, Array] | None:
        """The same with rules that are concave in the output: a small smooth program."""
        units = self._units(matrix)
        basis, matrix = self.space.basis * units, matrix * np.append(units, 1.0)

        def outputs(z: Array) -> torch.Tensor:
            return torch.as_tensor(self.space.offset + basis @ z)

        def room(point: Array) -> Array:
            y = outputs(point[:-1])[None]
            with torch.no_grad():
                parts = [
                    one.rules.slack(_centre(one), y)[0].numpy() / one.scale - point[-1]
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
                    own = gradient[0].numpy() @ basis / one.scale[number]
                    rows.append(np.append(own, -1.0)[None])
            return np.concatenate(rows)

        first = np.append(start / units, 0.0)
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
        return float(answer.x[-1]), np.asarray(answer.x[:-1] * units)

    def _units(self, matrix: Array) -> Array:
        """(k,): powers of two in which all rules move alike with each variable."""
        basis = self.space.basis
        largest = np.abs(matrix[:, :-1]).max(axis=0, initial=0.0)
        for one in self.others:
            if isinstance(one.rules, QuadraticRules):
                bent = np.einsum("rk,lrs,sk->lk", basis, one.rules.square, basis)
                largest = np.maximum(
                    largest, np.sqrt(np.maximum(bent, 0.0) / one.scale[:, None]).max(axis=0)
                )
                steep = np.abs(one.rules.linear @ basis) / one.scale[:, None]
                largest = np.maximum(largest, steep.max(axis=0))
        return np.asarray(2.0 ** -np.round(np.log2(np.where(largest > 0, largest, 1.0))))


def _centre(guard: Guard) -> torch.Tensor:
    return torch.as_tensor(guard.region.middle)[None]


def _steadiest(guards: Sequence[Guard], space: Space) -> Array:
    """The slopes of z under which the rules vary least over their regions (least squares)."""
    rows, targets = [], []
    for guard in guards:
        rules = guard.rules
        first = rules.pieces[:, 0]
        rows.append(rules.constant @ space.basis / guard.scale[:, None])
        varying = rules.tilt[first] - rules.constant @ space.slope
        targets.append(varying / guard.scale[:, None])
    matrix, target = np.concatenate(rows), np.concatenate(targets)
    return np.asarray(np.linalg.lstsq(matrix, target, rcond=1e-9)[0])


def check_given(guards: Sequence[Guard], anchor: AffineMap) -> Anchor:
    """An anchor that was given, with its proven room; InvalidInput where it breaks a rule."""
    least = find_tightest(guards, anchor)
    if least is None:
        raise InvalidInput(
            "the room of this anchor has no closed form: a rule multiplies outputs by the input, "
            "or is not linear, and the anchor depends on the input, too; give a constant anchor",
            code="unsupported",
        )
    for guard in guards:
        worst = find_worst_case(guard, anchor)
        assert worst is not None
        if not is_proven(guard, worst, anchor):
            check_anchor_outputs(guard, worst[1], anchor.at(worst[1]))
            raise InvalidInput(
                f"the anchor is not shown to keep {guard.name}: its proven room is "
                f"{worst[0].min():.3g}, though no input is known that breaks it; a shield needs an "
                "anchor with room, such as a constant one",
                code="anchor",
            )
    return Anchor(anchor, max(0.0, least.room))


def is_proven(guard: Guard, worst: tuple[Array, Array], anchor: AffineMap) -> bool:
    """Whether what `find_worst_case` found is at least 0 but for rounding."""
    slack, points = worst
    return bool((slack >= -np.diag(guard.rounding(points, anchor.at(points)))).all())


def check_anchor_outputs(guard: Guard, points: Array, outputs: Array) -> None:
    """InvalidInput if the outputs (n, r) of an anchor break a rule at its input (n, d)."""
    with torch.no_grad():
        slack = guard.rules.slack(torch.as_tensor(points), torch.as_tensor(outputs)).numpy()
    missed = -(slack + guard.rounding(points, outputs)) / guard.scale
    if (missed <= 0).all():
        return
    at, rule = np.unravel_index(int(np.argmax(missed)), missed.shape)
    shown = ", ".join(f"{value:.6g}" for value in points[at][:6])
    more = ", ..." if points.shape[1] > 6 else ""
    raise InvalidInput(
        f"the anchor does not keep {guard.name}: at x = [{shown}{more}] rule {rule} is missed by "
        f"{-slack[at, rule]:.3g}; a shield needs an anchor that keeps every rule on the whole "
        "region",
        code="anchor",
    )
