"""Limits of single outputs that keep shapes: what clamps monotone outputs leaves them monotone.

A rule `y <= u(x)` over a box R, of an output that must rise with some features, holds there if the
output never exceeds the largest function below u on R that rises with these features as well,

    U(x) = inf { u(z) : z in R, z >= x in the features that it rises with, z = x in all others },

infinite where there is no such z. For affine u and a box it has a closed form. `min(f, U)` rises
where f does, and keeps the rule on R. Lower limits are upper ones of the negated output.
docs/mathematics.md has the proof.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray
from cg4ai.rules.affine import AIM, AffineRules
from cg4ai.rules.output_sets import OutputSet
from cg4ai.rules.regions import Box

FIELDS = ("low", "high", "least", "most", "offset", "slope")
RISE, FALL, UP, DOWN = range(4)  # what outputs may do with a feature, as in members.slopes
OPPOSITE = [FALL, RISE, DOWN, UP]
May = NDArray[np.bool_]  # (features, 4)
ROUNDING = 1e-15  # of the terms of a sum, for each of them


class Unfit(Exception):
    """Why a rule cannot become a limit that keeps the shapes."""


@dataclass(frozen=True, eq=False)
class Caps:
    """m limits of outputs: `output` and `side` (m,), 1 for upper limits and -1 for lower ones.

    Where low <= x <= high, (m, d) each, limit j is the largest (lower limits: the smallest) over
    its K pieces of `offset[j] + slope[j] . clip(x, least[j], most[j])`; elsewhere there is none.
    `share`: the outputs are probabilities, of which only this one has limits, and the others
    share what is left in the proportions that they had.
    """

    output: IntArray
    side: IntArray
    low: Array
    high: Array
    least: Array
    most: Array
    offset: Array
    slope: Array
    output_size: int
    share: int | None = None

    def __post_init__(self) -> None:
        count, size, d = len(self.output), self.output_size, self.low.shape[-1]
        shapes = {getattr(self, name).shape for name in ("low", "high", "least", "most")}
        pieces = self.offset.shape[-1] if self.offset.ndim == 2 else 0
        fits = (
            count > 0
            and shapes == {(count, d)}
            and self.side.shape == (count,)
            and self.offset.shape == (count, pieces)
            and self.slope.shape == (count, pieces, d)
            and pieces > 0
        )
        numbers = [getattr(self, name) for name in FIELDS]
        if (
            not fits
            or not np.isin(self.side, (-1, 1)).all()
            or not ((self.output >= 0) & (self.output < size)).all()
            or any(np.isnan(one).any() for one in numbers)
            or not (np.isfinite(self.offset).all() and np.isfinite(self.slope).all())
            or not (self.least <= self.most).all()
            or not (self.share is None or (self.output == self.share).all())
        ):
            raise InvalidInput("limits of outputs have arrays that do not fit", code="bad-file")

    @property
    def input_size(self) -> int:
        return int(self.low.shape[1])

    @cached_property
    def digest(self) -> str:
        """Equal for limits of the same numbers."""
        total = hashlib.sha256(f"caps {self.output_size} {self.share}".encode())
        for name in ("output", "side", *FIELDS):
            array = np.ascontiguousarray(getattr(self, name))
            total.update(f"{array.shape}".encode())
            total.update((array + 0).tobytes())
        return total.hexdigest()

    def take(self, which: IntArray) -> Caps:
        """The limits of these numbers alone."""
        arrays = {name: getattr(self, name)[which] for name in ("output", "side", *FIELDS)}
        return replace(self, **arrays)

    def find_moves(self) -> NDArray[np.bool_]:
        """(r, d, 4): what clamping to the limits may add to what outputs do."""
        made = np.zeros((self.output_size, self.input_size, 4), bool)
        for one in range(len(self.output)):
            may, upper = made[self.output[one]], self.side[one] > 0
            slope = self.slope[one]
            may[:, RISE] |= (slope > 0).any(0)
            may[:, FALL] |= (slope < 0).any(0)
            begins, ends = np.isfinite(self.low[one]), np.isfinite(self.high[one])
            # behind its end an upper limit is infinite, so that an output may jump up there
            may[:, RISE if upper else FALL] |= ends
            may[:, FALL if upper else RISE] |= begins
            clipped = np.isfinite(self.least[one]) | np.isfinite(self.most[one])
            bent = begins | ends | (clipped & slope.any(0))
            may[:, UP] |= bent
            may[:, DOWN] |= bent
            if len(slope) > 1:  # the largest of several bends up, the smallest down
                may[:, UP if upper else DOWN] |= np.ptp(slope, axis=0) > 0
        return made

    def add_moves(self, moves: NDArray[np.bool_], outputs: Iterable[int]) -> NDArray[np.bool_]:
        """What outputs (k, d, 4) that may do `moves` do once they are clamped."""
        own, made = self.find_moves(), []
        for row, output in zip(moves, outputs, strict=True):
            one = row | own[output]
            moved = one[:, RISE] | one[:, FALL]
            for side, bend in ((1, DOWN), (-1, UP)):
                if ((self.output == output) & (self.side == side)).any():
                    one[:, bend] |= moved
            made.append(one)
        return np.stack(made)

    def find_extremes(self, one: int, largest: int) -> float:
        """The least (-1) or largest (1) that limit `one` is where it acts."""
        found = [
            self._extreme(one, piece, largest) + float(self.offset[one, piece])
            for piece in range(self.offset.shape[1])
        ]
        # least of a largest: at least the largest of the least; and the other way round
        if largest == self.side[one]:
            return max(found) if largest > 0 else min(found)
        return max(found) if self.side[one] > 0 else min(found)

    def _extreme(self, one: int, piece: int, largest: int) -> float:
        low = np.clip(self.low[one], self.least[one], self.most[one])
        high = np.clip(self.high[one], self.least[one], self.most[one])
        slope = self.slope[one, piece]
        used = slope != 0
        ends = np.stack([low[used], high[used]]) * slope[used]
        return float((ends.max(0) if largest > 0 else ends.min(0)).sum())


def compute_gap(caps: Caps, lower: int, upper: int) -> float:
    """The most by which a lower limit exceeds an upper one where both act; -inf if nowhere.

    Of limits with several pieces an upper bound of it.
    """
    low = np.maximum(caps.low[lower], caps.low[upper])
    high = np.minimum(caps.high[lower], caps.high[upper])
    if (low > high).any():
        return -np.inf
    pairs = product(range(caps.offset.shape[1]), repeat=2)
    return min(
        float(
            caps.offset[lower, p]
            - caps.offset[upper, q]
            + sum(
                _most_of_difference(caps, (lower, p), (upper, q), j, (low[j], high[j]))
                for j in range(caps.input_size)
            )
        )
        for p, q in pairs
    )


def _most_of_difference(
    caps: Caps, one: tuple[int, int], other: tuple[int, int], j: int, ends: tuple[float, float]
) -> float:
    """The most that slope . clip of one less that of another is for x_j between ends."""
    (i, p), (k, q) = one, other
    own, theirs = caps.slope[i, p, j], caps.slope[k, q, j]
    if own == 0 and theirs == 0:
        return 0.0
    return most_on_interval(
        [(own, caps.least[i, j], caps.most[i, j]), (-theirs, caps.least[k, j], caps.most[k, j])],
        ends,
    )


def most_on_interval(terms: list[tuple[float, float, float]], ends: tuple[float, float]) -> float:
    """The most of a sum of `slope * clip(x, least, most)` for x between ends, which may be inf."""
    low, high = ends
    corners = [at for _, *bends in terms for at in bends if low < at < high and np.isfinite(at)]
    corners += [at for at in ends if np.isfinite(at)]
    corners = corners or [0.0]
    values = [
        sum(slope * min(max(at, least), most) for slope, least, most in terms) for at in corners
    ]
    for end in (low, high):  # where it goes on without end
        if not np.isfinite(end):
            way = sum(
                slope
                for slope, least, most in terms
                if (most == np.inf if end > 0 else least == -np.inf)
            )
            if way * np.sign(end) > 0:
                return np.inf
    return max(values)


# ---- from rules to limits ------------------------------------------------------------------------


def reduce_to_one_output(row: Array, limit: Array, share: int | None) -> tuple[int, float, Array]:
    """A rule `row . y <= limit` of a single output: its number, its coefficient and the limit.

    Of two probabilities one says all.
    """
    if share is not None and len(row) == 2:
        other = 1 - share
        coefficient = float(row[share] - row[other])
        if coefficient == 0:
            raise Unfit("it says nothing of the difference of two probabilities")
        return share, coefficient, limit - row[other]
    read = np.flatnonzero(row)
    if len(read) != 1 or (share is not None and read[0] != share):
        raise Unfit(
            "it reads several outputs"
            if len(read) != 1
            else f"it is about output {read[0]}, the shapes about output {share}"
        )
    return int(read[0]), float(row[read[0]]), limit


def build_caps(
    rules: AffineRules,
    region: object,
    may: NDArray[np.bool_],
    source: OutputSet | None,
    *,
    share: int | None = None,
) -> Caps:
    """Limits that keep the rules on their box and do to outputs only what they `may` (r, d, 4).

    Unfit if there are none in closed form. Outputs before the one of an upper limit in an order
    have it as well, those behind one of a lower limit, too.
    """
    if not isinstance(region, Box):
        raise Unfit(f"its region is a {type(region).__name__}, and limits need a Box")
    if len(rules.value):
        raise Unfit("its coefficients depend on the input")
    chains = () if source is None else source.chains
    if source is not None and source.totals:
        raise Unfit("outputs that sum to a total move with each other")
    made: list[tuple[int, int, dict[str, Array]]] = []
    for number, row in enumerate(rules.constant):
        own = rules.piece == number
        output, factor, limit = reduce_to_one_output(row, rules.limit[own], share)
        pieces = limit / factor, rules.tilt[own] / factor
        side = 1 if factor > 0 else -1
        chain = next((chain for chain in chains if output in chain), (output,))
        place = chain.index(output)
        reached = chain[: place + 1] if side > 0 else chain[place:]
        allowed = np.asarray(may[list(chain)].all(axis=0))
        found = _envelope(
            side * pieces[0],
            side * pieces[1],
            region,
            allowed if side > 0 else allowed[:, OPPOSITE],
        )
        found |= {name: side * found[name] for name in ("offset", "slope")}
        made += [(one, side, found) for one in reached]
    most = max(len(found["offset"]) for *_, found in made)
    arrays = {
        name: np.stack(
            [
                np.concatenate([found[name], found[name][-1:].repeat(most - len(found[name]), 0)])
                if name in ("offset", "slope")
                else found[name]
                for *_, found in made
            ]
        )
        for name in FIELDS
    }
    outputs, sides = (np.array([one[k] for one in made], np.int64) for k in range(2))
    return Caps(outputs, sides, **arrays, output_size=rules.output_size, share=share)


def join_caps(parts: list[Caps]) -> Caps:
    """All limits as one; pieces are repeated where some have fewer."""
    most = max(one.offset.shape[1] for one in parts)

    def widened(one: Caps, name: str) -> Array:
        array: Array = getattr(one, name)
        if name not in ("offset", "slope"):
            return array
        return np.concatenate([array, array[:, -1:].repeat(most - array.shape[1], 1)], 1)

    arrays: dict[str, Any] = {
        name: np.concatenate([widened(one, name) for one in parts])
        for name in ("output", "side", *FIELDS)
    }
    return replace(parts[0], **arrays)


def _envelope(offset: Array, slope: Array, region: Box, may: May) -> dict[str, Array]:
    """The largest upper limit, below these pieces on the box, that does only what it may.

    Largest where there is one piece and no curvature; else one that is below.
    """
    a, b = region.lower, region.upper
    sizes = np.abs(offset) + np.abs(slope) @ np.maximum(np.abs(a), np.abs(b))
    offset, slope = offset - AIM * sizes, slope.copy()
    d = len(a)
    low, least = (np.full(d, -np.inf) for _ in range(2))
    high, most = (np.full(d, np.inf) for _ in range(2))
    for j in range(d):
        rise, fall, up, down = may[j]
        if not down and (rise or fall):
            raise Unfit("a limit there bends the other way than the shape")
        ends = slope[:, j] * a[j], slope[:, j] * b[j]
        against = np.zeros(len(slope), bool)
        if not rise and not fall:
            against[:], at = True, np.minimum(*ends)
        elif not fall:
            against, at = slope[:, j] < 0, ends[1]
        elif not rise:
            against, at = slope[:, j] > 0, ends[0]
        offset = offset + np.where(against, at if against.any() else 0.0, 0.0)
        slope[against, j] = 0.0
        if not up:  # concave: affine all along this feature
            if np.ptp(slope[:, j]) > 0:
                raise Unfit("limits of several pieces bend the other way than the shape")
            continue
        if rise:
            high[j] = b[j]
        if fall:
            low[j] = a[j]
        if rise and not fall:
            least[j] = a[j]
        if fall and not rise:
            most[j] = b[j]
    return {
        "low": low,
        "high": high,
        "least": least,
        "most": most,
        "offset": offset,
        "slope": slope,
    }


# ---- what limits keep ----------------------------------------------------------------------------


def survives(caps: Caps, source: OutputSet) -> bool:
    """Whether outputs below these limits stay so when they are moved into a set.

    Along an order all before an output must have its upper limits, and all behind its lower ones;
    and no end of a range may lie beyond a limit.
    """
    if source.totals or caps.share is not None:
        return False
    for one in range(len(caps.output)):
        output, side = int(caps.output[one]), int(caps.side[one])
        end = source.low[output] if side > 0 else source.high[output]
        if np.isfinite(end) and side * (caps.find_extremes(one, -side) - end) < 0:
            return False
        for chain in source.chains:
            if output in chain:
                place = chain.index(output)
                reached = chain[:place] if side > 0 else chain[place + 1 :]
                if not all(_has_same(caps, one, other) for other in reached):
                    return False
    return True


def _has_same(caps: Caps, one: int, output: int) -> bool:
    alike = (caps.output == output) & (caps.side == caps.side[one])
    return any(
        all(np.array_equal(getattr(caps, name)[one], getattr(caps, name)[k]) for name in FIELDS)
        for k in np.flatnonzero(alike)
    )


def keeps_rules(caps: Caps, rules: AffineRules, region: object) -> bool:
    """Whether outputs within the limits keep all rules at every input of the box."""
    if not isinstance(region, Box) or len(rules.value):
        return False
    try:
        return all(
            _keeps_rule(caps, rules, number, region) for number in range(len(rules.constant))
        )
    except Unfit:
        return False


def _keeps_rule(caps: Caps, rules: AffineRules, number: int, region: Box) -> bool:
    own = rules.piece == number
    output, factor, limit = reduce_to_one_output(
        rules.constant[number], rules.limit[own], caps.share
    )
    side = 1 if factor > 0 else -1
    stated = list(zip(limit / factor, rules.tilt[own] / factor, strict=True))
    for one in np.flatnonzero((caps.output == output) & (caps.side == side)):
        if (caps.low[one] > region.lower).any() or (caps.high[one] < region.upper).any():
            continue
        pieces = zip(caps.offset[one], caps.slope[one], strict=True)
        if all(
            any(
                side * (offset - bound)
                + _most_beyond(caps, int(one), side * slope, side * tilt, region)
                + _rounding(offset, slope, bound, tilt, region)
                <= 0
                for bound, tilt in stated
            )
            for offset, slope in pieces
        ):
            return True
    return False


def _most_beyond(caps: Caps, one: int, slope: Array, tilt: Array, region: Box) -> float:
    """The most that `slope . clip(x) - tilt . x` is on the box."""
    return sum(
        most_on_interval(
            [(slope[j], caps.least[one, j], caps.most[one, j]), (-tilt[j], -np.inf, np.inf)],
            (region.lower[j], region.upper[j]),
        )
        for j in np.flatnonzero((slope != 0) | (tilt != 0))
    )


def _rounding(offset: float, slope: Array, bound: float, tilt: Array, region: Box) -> float:
    ends = np.maximum(np.abs(region.lower), np.abs(region.upper))
    terms = abs(offset) + abs(bound) + (np.abs(slope) + np.abs(tilt)) @ ends
    return ROUNDING * (len(slope) + 4) * float(terms)
