"""What a rule's value is held against on a cell: limits affine in the input, rows of the region.

Where a rule has several limits, the largest counts, which no mean of them exceeds; and in a
polytope `u . (most - rows x)` is at least 0 for any u >= 0. So with shares of the limits and
multipliers of the rows the excess `value - sum_p share_p (limit_p + tilt_p . x) + u . (most -
rows x)` bounds that of the rule: any choice is sound, good ones are found here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cg4ai.proofs.bounds.rounding import RELATIVE
from cg4ai.proofs.rule_forms import ProofRules
from cg4ai.records import Array
from cg4ai.rules.regions import Polytope, Region

SWEEPS = 3  # over all rows, each time the best multiplier of one
PROGRAMS = 16  # cells of a batch that are worth a linear program each


def find_limiting_rows(region: Region) -> tuple[Array, Array]:
    """(k, d) and (k,): the inputs of the region are those of its box with `rows x <= most`."""
    if isinstance(region, Polytope):
        return region.matrix, region.limit
    return np.zeros((0, region.size)), np.zeros(0)


def find_root_box(region: Region) -> tuple[Array, Array]:
    """The box that is halved into cells: that of the numbers that define the region.

    The smallest box around a polytope would have to be proven to be around it.
    """
    return region.box.bounds() if isinstance(region, Polytope) else region.bounds()


class RuleLines(NamedTuple):
    """The rule's value above its target, to first order: `constant` (B,) + `slope` (B, d) . delta.

    `centre`, `radius` (B, d): delta is the input minus the centre, at most the radius in size.
    """

    constant: Array
    slope: Array
    centre: Array
    radius: Array


class LimitUse(NamedTuple):
    """What each cell makes of limits and rows: shares (B, p) and multipliers (B, k).

    Together they add `constant` (B,) + `slope` (B, d) . delta to the value. `missed` (B,): the
    multipliers show that no input of the region lies in the cell.
    """

    shares: Array
    multipliers: Array
    constant: Array
    slope: Array
    missed: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RuleLimits:
    """One rule's limits, `limit` (p,) and `tilt` (p, d), and the region's `rows` (k, d), `most`.

    A rule whose limit is one number has none here: its value itself is bounded.
    """

    limit: Array
    tilt: Array
    rows: Array
    most: Array

    @classmethod
    def of(cls, rules: ProofRules, rule: int, rows: Array, most: Array) -> RuleLimits:
        given = rules.affine
        own = np.flatnonzero(given.piece == rule)
        if rules.plain[rule]:
            own = own[:0]
        return cls(given.limit[own], given.tilt[own], rows, most)

    @property
    def size(self) -> int:
        """How many numbers say what a cell makes of them."""
        return len(self.limit) + len(self.most)

    @property
    def _first(self) -> Array:
        """(p,): all on the first limit."""
        return np.asarray(np.eye(1, len(self.limit))[0])

    def apply(self, shares: Array, multipliers: Array, lines: RuleLines) -> LimitUse:
        """What these shares and multipliers, each >= 0, add on each cell."""
        room = self.most - lines.centre @ self.rows.T
        offset = self.limit + lines.centre @ self.tilt.T
        up = -(multipliers @ self.rows)
        inside = np.einsum("bk,bk->b", multipliers, room)
        size = np.abs(self.most) + np.abs(self.rows) @ _largest_inputs(lines)
        slip = RELATIVE * (multipliers @ size)
        largest = inside + np.einsum("bd,bd->b", np.abs(up), lines.radius)
        return LimitUse(
            shares,
            multipliers,
            inside + slip - np.einsum("bp,bp->b", shares, offset),
            up - shares @ self.tilt,
            (largest + slip < 0) & multipliers.any(axis=1),
        )

    def choose_use(self, lines: RuleLines) -> LimitUse:
        """The best that is found quickly, and by linear programs for the first open cells."""
        shares = self._best_limit(lines)
        slope = lines.slope - shares @ self.tilt
        multipliers, missed = self._descent(slope, lines)
        use = self.apply(shares, multipliers, lines)
        open_ = np.flatnonzero((self._above(use, lines) > 0) & ~use.missed & ~missed)
        if self.size > 1 and len(open_):
            for cell in open_[:PROGRAMS].tolist():
                shares[cell], multipliers[cell] = self._program(lines, cell)
            use = self.apply(shares, multipliers, lines)
        return use

    def _above(self, use: LimitUse, lines: RuleLines) -> Array:
        """The bound to first order."""
        slope = np.abs(lines.slope + use.slope)
        return np.asarray(
            lines.constant + use.constant + np.einsum("bd,bd->b", slope, lines.radius)
        )

    def _best_limit(self, lines: RuleLines) -> Array:
        """(B, p): all on the limit that leaves most room by itself."""
        shares = np.zeros((len(lines.constant), len(self.limit)))
        if len(self.limit):
            swing = [np.abs(lines.slope - tilt) for tilt in self.tilt]
            least = self.limit + lines.centre @ self.tilt.T
            least = least - np.stack(
                [np.einsum("bd,bd->b", each, lines.radius) for each in swing], axis=1
            )
            shares[np.arange(len(shares)), least.argmax(axis=1)] = 1.0
        return shares

    def _descent(self, slope: Array, lines: RuleLines) -> tuple[Array, NDArray[np.bool_]]:
        """(B, k): the multipliers by the best of one row at a time; (B,) one row misses the cell.

        The bound is `u . room + sum_i radius_i |slope_i - (u rows)_i|`, convex and piecewise linear
        in each multiplier.
        """
        count = len(self.most)
        multipliers = np.zeros((len(slope), count))
        missed = np.zeros(len(slope), bool)
        room = self.most - lines.centre @ self.rows.T
        for _ in range(SWEEPS if count > 1 else count):
            for row in range(count):
                others = slope - multipliers @ self.rows + multipliers[:, [row]] * self.rows[row]
                best, away = _best_multiplier(others, self.rows[row], room[:, row], lines.radius)
                multipliers[:, row] = np.where(missed, multipliers[:, row], best)
                new = away & ~missed
                multipliers[new] = np.eye(count)[row]
                missed |= away
        return multipliers, missed

    def _program(self, lines: RuleLines, cell: int) -> tuple[Array, Array]:
        """Shares and multipliers of one cell, exact to first order."""
        from scipy.optimize import linprog  # slow to import, seldom needed

        centre, radius = lines.centre[cell], lines.radius[cell]
        limit, tilt = (
            (self.limit, self.tilt) if len(self.limit) else (np.zeros(1), 0 * centre[None])
        )
        size, pieces = len(centre), len(limit)
        ends = [*zip(-radius, radius, strict=True)]
        # the largest t that is at most the excess over every limit, at inputs of the region
        above = np.column_stack([tilt - lines.slope[cell], np.ones(pieces)])
        inside = np.column_stack([self.rows, np.zeros(len(self.rows))])
        most = np.concatenate(
            [lines.constant[cell] - limit - tilt @ centre, self.most - self.rows @ centre]
        )
        found = linprog(
            np.append(np.zeros(size), -1.0),
            A_ub=np.concatenate([above, inside]),
            b_ub=most,
            bounds=[*ends, (None, None)],
            method="highs",
        )
        if found.status == 2 and len(self.rows):  # no input of the region: by how much at least
            found = linprog(
                np.append(np.zeros(size), 1.0),
                A_ub=np.column_stack([self.rows, -np.ones(len(self.rows))]),
                b_ub=most[pieces:],
                bounds=[*ends, (None, None)],
                method="highs",
            )
            return self._first, _positive(found.ineqlin.marginals)
        if found.status != 0:  # nothing is lost: any choice is sound
            return self._first, np.zeros(len(self.most))
        duals = _positive(found.ineqlin.marginals)
        shares = duals[:pieces] / max(duals[:pieces].sum(), 1e-300)
        return shares[: len(self.limit)], duals[pieces:]


def _positive(marginals: Array) -> Array:
    return np.asarray(np.maximum(-marginals, 0.0))


def _largest_inputs(lines: RuleLines) -> Array:
    """(d,): the largest inputs of all cells."""
    return np.asarray((np.abs(lines.centre) + lines.radius).max(axis=0))


def _best_multiplier(
    slope: Array, row: Array, room: Array, radius: Array
) -> tuple[Array, NDArray[np.bool_]]:
    """(B,): argmin over t >= 0 of `t room + sum_i radius_i |slope_i - t row_i|`.

    And where that falls without end: there the row alone leaves nothing of the cell.
    """
    used = np.flatnonzero(row)
    if not len(used):
        return np.zeros(len(slope)), room < 0
    turns = slope[:, used] / row[used]
    weight = radius[:, used] * np.abs(row[used])
    order = np.argsort(turns, axis=1, kind="stable")
    turns = np.take_along_axis(turns, order, axis=1)
    passed = np.cumsum(np.take_along_axis(weight, order, axis=1), axis=1)
    total = passed[:, -1]
    # the derivative after each turn; the first that is not negative is the minimum
    rising = room[:, None] - total[:, None] + 2 * passed >= 0
    first = np.where(rising.any(axis=1), rising.argmax(axis=1), len(used) - 1)
    best = np.maximum(turns[np.arange(len(turns)), first], 0.0)
    # nothing is gained where it rises from the start, as in a cell without width
    return np.where(room - total >= 0, 0.0, best), room + total < 0
