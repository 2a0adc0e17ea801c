"""Dispatch of a grid as a problem with rules: from loads in a box to generators.

Inputs are deviations of the loads, -1 to 1, in units of their spread; outputs are the generators
that can move, in units of their ranges. So all rules and all numbers are around 1, whatever the
grid's units are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.records import Array
from cg4ai.rules import AffineBound, Box, Equality, Linear
from experiments.opf.grid import Extremes, Grid, bound_flows


@dataclass(frozen=True, eq=False)
class Dispatch:
    """A grid whose loads lie within `spread` (a share) of their nominal values, each on its own."""

    grid: Grid
    spread: float

    def __post_init__(self) -> None:
        if not 0 < self.spread < np.inf:
            raise InvalidInput(
                f"the spread must be a positive share, got {self.spread:g}", code="range"
            )
        if not len(self.grid.loads):
            raise InvalidInput(f"{self.grid.name} has no loads", code="empty")
        if self.moving.sum() <= self.grid.islands:
            raise InvalidInput(
                f"{self.grid.name} has {self.moving.sum()} generators that can move, and as many "
                "balances or more: there is nothing to choose",
                code="empty",
            )

    @cached_property
    def moving(self) -> NDArray[np.bool_]:
        """(G,): generators that are not held at one value by their limits."""
        return np.asarray(self.grid.upper > self.grid.lower)

    @cached_property
    def span(self) -> Array:
        return np.asarray((self.grid.upper - self.grid.lower)[self.moving])

    @cached_property
    def radius(self) -> Array:
        """(D,): MW by which each load can deviate."""
        return self.spread * np.abs(self.grid.loads)

    @cached_property
    def extremes(self) -> Extremes:
        return bound_flows(self.grid, self.grid.loads - self.radius, self.grid.loads + self.radius)

    @cached_property
    def kept(self) -> NDArray[np.bool_]:
        """(L,): lines whose limit some dispatch within limits that balances its loads can break.

        The others keep theirs whatever a predictor does that keeps balance and generator limits.
        """
        return self.extremes.can_break(self.grid.rate)

    @property
    def region(self) -> Box:
        return Box(np.full(len(self.radius), -1.0), np.ones(len(self.radius)))

    @cached_property
    def balance(self) -> Equality:
        """One row per island that has generators which can move, over the largest of its ranges."""
        grid, move = self.grid, self.moving
        rows = grid.sums(grid.island_of_generator)
        taken = grid.sums(grid.island_of_load)
        need = grid.fixed + taken @ grid.loads - rows @ grid.lower
        has = rows[:, move].any(1)
        if ((~has) & ((np.abs(need) > 1e-6) | (taken * self.radius).any(1))).any():
            raise InvalidInput(
                f"an island of {grid.name} has loads that deviate and no generator that can move",
                code="infeasible",
            )
        matrix = (rows[:, move] * self.span)[has]
        unit = matrix.max(1)
        bound = AffineBound(need[has] / unit, (taken * self.radius)[has] / unit[:, None])
        return Equality(None, matrix / unit[:, None], bound, name="balance")

    @cached_property
    def limits(self) -> Linear:
        """Generators between 0 and 1, then the lines that are kept, both ways, over their rates."""
        grid, kept = self.grid, self.kept
        rate = grid.rate[kept]
        along = grid.by_generator[kept][:, self.moving] * self.span / rate[:, None]
        level = self._level / rate
        response = -grid.by_load[kept] * self.radius / rate[:, None]
        each, nothing = np.eye(len(self.span)), np.zeros((len(self.span), len(self.radius)))
        ones = np.ones(len(rate))
        return Linear(
            self.region,
            np.concatenate([each, -each, along, -along]),
            AffineBound(
                np.concatenate(
                    [np.ones(len(each)), np.zeros(len(each)), ones - level, ones + level]
                ),
                np.concatenate([nothing, nothing, -response, response]),
            ),
            "<=",
            name="limits",
        )

    @cached_property
    def _level(self) -> Array:
        """Flows of the kept lines at nominal loads with all generators at their least."""
        flows = self.grid.flows(self.grid.lower[None], self.grid.loads[None])
        return np.asarray(flows[0, self.kept])

    def loads(self, inputs: Array) -> Array:
        """(n, D) deviations -> MW."""
        return np.asarray(self.grid.loads + inputs * self.radius)

    def inputs(self, loads: Array) -> Array:
        """MW -> (n, D) deviations."""
        return np.asarray((loads - self.grid.loads) / self.radius)

    def dispatch(self, outputs: Array) -> Array:
        """(n, moving) -> (n, G), MW."""
        result = np.tile(self.grid.lower, (len(outputs), 1))
        result[:, self.moving] += outputs * self.span
        return result

    @cached_property
    def money(self) -> float:
        """What all that can move costs at most: losses are in this unit."""
        squared, linear = (self.grid.costs[:, at] for at in (0, 1))
        ends = np.maximum(np.abs(self.grid.lower), np.abs(self.grid.upper))
        size = float((squared * ends**2 + np.abs(linear) * ends)[self.moving].sum())
        return size or 1.0

    def loss(self, outputs: Tensor, inputs: Tensor) -> Tensor:
        """(..., n, moving) -> (..., n): the cost, but for a constant, over `money`."""
        squared, linear = self._prices(outputs)
        result = outputs @ linear
        if squared is not None:
            result = result + outputs.square() @ squared
        return result

    def _prices(self, like: Tensor) -> tuple[Tensor | None, Tensor]:
        """Kept as tensors: a step that is recorded on a GPU must make none."""
        key = (like.dtype, like.device)
        if key not in self._known:
            move = self.moving
            squared, linear = (self.grid.costs[move, at] for at in (0, 1))
            slope = (2 * squared * self.grid.lower[move] + linear) * self.span / self.money
            bent = squared * self.span**2 / self.money
            own = torch.as_tensor(bent).to(like) if squared.any() else None
            self._known[key] = (own, torch.as_tensor(slope).to(like))
        return self._known[key]

    @cached_property
    def _known(self) -> dict[tuple[torch.dtype, torch.device], tuple[Tensor | None, Tensor]]:
        return {}


@dataclass(frozen=True)
class Violation:
    """The largest over some dispatches; 0 where all limits are kept.

    `line_mw` and `line_share` of a line's rate, `generator_mw`, `balance_mw`.
    """

    line_mw: float
    line_share: float
    generator_mw: float
    balance_mw: float

    def join(self, other: Violation) -> Violation:
        return Violation(*(max(pair) for pair in zip(_values(self), _values(other), strict=True)))


def _values(one: Violation) -> tuple[float, float, float, float]:
    return one.line_mw, one.line_share, one.generator_mw, one.balance_mw


def measure_violation(grid: Grid, dispatch: Array, loads: Array) -> Violation:
    """Of all lines with a limit, not only those that a predictor was told of."""
    over = np.abs(grid.flows(dispatch, loads)) - grid.rate
    beyond = np.maximum(dispatch - grid.upper, grid.lower - dispatch)
    given = dispatch @ grid.sums(grid.island_of_generator).T
    taken = loads @ grid.sums(grid.island_of_load).T + grid.fixed
    return Violation(
        max(0.0, float(over.max(initial=0.0))),
        max(0.0, float((over / grid.rate).max(initial=0.0))),
        max(0.0, float(beyond.max())),
        float(np.abs(given - taken).max()),
    )
