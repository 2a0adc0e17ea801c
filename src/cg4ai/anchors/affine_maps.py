"""Maps from inputs to outputs that are affine, and the space of those that members can give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cg4ai.records import Array
from cg4ai.rules.output_sets import OutputSet


@dataclass(frozen=True, eq=False)
class AffineMap:
    """Outputs `slopes @ x + offsets`, (r, d) and (r,)."""

    slopes: Array
    offsets: Array

    @classmethod
    def constant(cls, outputs: Array, input_size: int) -> AffineMap:
        # one zero for all slopes: of a large network they would be gigabytes
        slopes = np.broadcast_to(np.zeros(()), (len(outputs), input_size))
        made = cls(slopes, np.asarray(outputs, np.float64))
        vars(made)["is_constant"] = True
        return made

    @cached_property
    def is_constant(self) -> bool:
        return not self.slopes.any()

    def at(self, inputs: Array) -> Array:
        """(n, d) -> (n, r)."""
        if self.is_constant:
            return np.tile(self.offsets, (len(inputs), 1))
        return np.asarray(inputs @ self.slopes.T + self.offsets)

    def mix(self, other: AffineMap, share: float) -> AffineMap:
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

    @classmethod
    def inside(cls, outputs: OutputSet, input_size: int) -> Space:
        """Outputs of a set: those with its totals, and its other rows as `least`."""
        size = outputs.output_size
        offset, projector = np.zeros(size), np.eye(size)
        for one in outputs.totals:
            own = np.isin(np.arange(size), one.outputs)
            offset[own] = one.value / own.sum()
            projector[np.ix_(own, own)] -= 1.0 / own.sum()
        matrix, bound = replace(outputs, totals=()).rows
        return cls(offset, np.zeros((size, input_size)), projector, matrix, bound)

    def outputs(self, slopes: Array, offsets: Array) -> AffineMap:
        """The map of `z = slopes x + offsets`."""
        return AffineMap(self.slope + self.basis @ slopes, self.offset + self.basis @ offsets)
