"""`largest_radius`: how far every feature of an input may move before the answer changes, exactly.

The distance is the maximum norm, cut with the box of valid inputs, so every question on the way is
about a box: what attacks reach bounds the radius from above, mixed-integer programs from below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cg4ai import clock
from cg4ai.colgen.separation.relu_peak import NODES, Excess, compute_line_bound, maximise_excess
from cg4ai.data import arrays
from cg4ai.errors import InvalidInput
from cg4ai.members.relu import ReluNetwork
from cg4ai.records import Array
from cg4ai.rules.regions import Box
from cg4ai.rules.violations import OutputModel, predictions

BISECTIONS = 40
ROUNDS = 50  # better attacks that programs may find before the search gives up


@dataclass(frozen=True, eq=False)
class Radius:
    """Within `proven` the answer is kept, by a solver's bound; at `broken` it is not.

    `other` (d,) is an input at that distance with another answer, recomputed from predictions;
    None, with `broken` infinite, where no valid input has one. `closed`: the two differ by no more
    than was asked for. `programs` counts the mixed-integer programs solved.
    """

    proven: float
    broken: float
    other: Array | None
    closed: bool
    programs: int
    seconds: float

    def __str__(self) -> str:
        until = "everywhere" if self.other is None else f"up to {self.proven:.6g}"
        found = "" if self.other is None else f", another answer at {self.broken:.6g}"
        return f"kept {until}{found}{'' if self.closed else ' (its limit was reached)'}"


def largest_radius(
    mixture: OutputModel,
    point: Any,
    label: int,
    *,
    within: Box,
    at_least: float = 0.0,
    gap: float = 1e-4,
    nodes: int = NODES,
    seconds: float = math.inf,
) -> Radius:
    """The largest r with every x in `within`, |x - point| <= r answered `label`, in a bracket.

    "Answered" means a lead of more than `at_least` over every other output. The bracket is closed
    to `gap`, relative to the radius, unless a program takes more `nodes` of branch
    and bound, or `seconds`. For mixtures of
    ReLU networks with at most one hidden layer and linear outputs; others are refused.
    """
    started = clock.now()
    centre = arrays.as_vector(point, "point", within.size)
    if not within.contains(centre[None])[0]:
        raise InvalidInput(
            f"the point must lie in {within}; a radius is measured from inside", code="outside"
        )
    network = ReluNetwork.of(mixture)
    count = len(network.bias)
    if not 0 <= label < count:
        raise InvalidInput(
            f"label must be one of {count} outputs counted from 0, got {label}", code="range"
        )
    leads = np.eye(count) - np.eye(count)[label]
    excesses = [
        Excess(network.combine_outputs(lead), np.array([-at_least]), np.zeros((1, len(centre))))
        for lead in np.delete(leads, label, axis=0)
    ]
    search = _Search(excesses, centre, within, gap, nodes=nodes, seconds=seconds)
    found = search.run()
    if found.other is not None:
        outputs = predictions(mixture, found.other[None]).numpy()[0]
        lead = outputs[label] - np.delete(outputs, label).max()
        if lead > at_least + 1e-9 * max(1.0, float(np.abs(outputs).max())):
            raise InvalidInput(
                f"the mixture keeps its answer where its network does not, by {lead:.3g}: its "
                "outputs are too large for float64"
            )
    return replace(found, seconds=clock.now() - started)


class _Search:
    """Brackets the radius: `reached` (d,) breaks the answer at the distance `broken`."""

    def __init__(
        self,
        excesses: list[Excess],
        centre: Array,
        within: Box,
        gap: float,
        *,
        nodes: int,
        seconds: float,
    ) -> None:
        self.excesses, self.centre, self.within = excesses, centre, within
        self.gap, self.nodes, self.seconds = gap, nodes, seconds
        self.full = float(np.maximum(within.upper - centre, centre - within.lower).max())
        self.reached: Array | None = None
        self.broken = np.inf
        self.programs = 0

    def run(self) -> Radius:
        for excess in self.excesses:
            self._attack(excess, self.centre)
        if self.broken == 0.0:
            return Radius(0.0, 0.0, self.reached, True, 0, 0.0)
        for _ in range(ROUNDS):
            tried = min(self.full, self.broken * (1 - self.gap))
            if self._kept(tried):
                return Radius(tried, self.broken, self.reached, True, self.programs, 0.0)
            if self.broken * (1 - self.gap) >= tried:  # neither kept nor broken: at its limit
                break
        proven = self._by_lines()
        return Radius(proven, self.broken, self.reached, False, self.programs, 0.0)

    def ball(self, radius: float) -> Box:
        return Box(
            np.maximum(self.centre - radius, self.within.lower),
            np.minimum(self.centre + radius, self.within.upper),
        )

    def _attack(self, excess: Excess, start: Array) -> None:
        """Bisect for the smallest radius at which climbing from `start` breaks the answer."""
        low, high = 0.0, min(self.full, self.broken)
        for step in range(BISECTIONS):
            radius = high if step == 0 else (low + high) / 2
            found = self._climbed(excess, radius, start)
            if found is None:
                if step == 0:
                    return
                low = radius
            else:
                high = radius
                self.broken, self.reached = float(np.abs(found - self.centre).max()), found

    def _climbed(self, excess: Excess, radius: float, start: Array) -> Array | None:
        """An input in the ball that breaks the answer, from corner to corner; None: none found."""
        ball = self.ball(radius)
        point = np.clip(start, ball.lower, ball.upper)
        value = float(excess.values(point[None])[0])
        while value < 0:
            corner = ball.peaks(excess.slopes(point[None])).inputs[0]
            reached = float(excess.values(corner[None])[0])
            if reached <= value:
                return None
            point, value = corner, reached
        return point

    def _kept(self, radius: float) -> bool:
        """Whether bounds exclude every other answer; an input that has one becomes `reached`."""
        ball, kept = self.ball(radius), True
        for excess in self.excesses:
            if compute_line_bound(excess, ball) < 0:
                continue
            self.programs += 1
            start = np.clip(
                self.centre if self.reached is None else self.reached, ball.lower, ball.upper
            )
            peak = maximise_excess(
                excess,
                ball,
                start=start,
                gap=1e-7,
                nodes=self.nodes,
                seconds=self.seconds,
                units=len(excess.total.weight),
                floor=0.0,
            )
            if peak.value >= 0:
                self.reached = peak.input
                self.broken = float(np.abs(peak.input - self.centre).max())
                self._attack(excess, peak.input)
                return False
            kept = kept and peak.bound <= 0
        return kept

    def _by_lines(self) -> float:
        """The largest radius, to 1e-6 of itself, that lines above all units prove."""
        low, high = 0.0, min(self.full, self.broken)
        while high - low > 1e-6 * high:
            middle = (low + high) / 2
            kept = all(compute_line_bound(one, self.ball(middle)) < 0 for one in self.excesses)
            low, high = (middle, high) if kept else (low, middle)
        return low
