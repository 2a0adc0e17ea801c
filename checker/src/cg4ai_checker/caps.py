"""Rules over a box that members keep because their outputs are clamped to limits.

A limit is the largest (of a lower one the smallest) of several pieces `offset + slope . clip(x)`,
where low <= x <= high. It keeps a rule on a box on which it acts everywhere and where each of its
pieces lies within some piece of the rule's bound. That is compared in rational numbers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker.bands import Array
from cg4ai_checker.claim import Heading, checked, fields, listed
from cg4ai_checker.errors import Rejected
from cg4ai_checker.file import Content
from cg4ai_checker.folder_reader import MemberState, below, member_state, member_states
from cg4ai_checker.scale import within_scale
from cg4ai_checker.words import exact, linear_sum

KEYS = {
    *("kind", "title", "requirement", "input_size", "output_size", "members"),
    *("made_by", "about"),
}
ENDS = ("low", "high", "least", "most")
NUMBERS = ("offset", "slope")
SHOWN = 6
MOST_COMPARED = 10**6  # pieces of limits and rules times inputs


@dataclass(frozen=True)
class Limit:
    """One limit of an output: where it acts, and its pieces (K,), (K, d) of clipped inputs."""

    output: int
    side: int
    low: Array
    high: Array
    least: Array
    most: Array
    offset: Array
    slope: Array

    def same_as(self, other: Limit) -> bool:
        """Whether it is the same limit, perhaps of another output."""
        return self.side == other.side and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in (*ENDS, *NUMBERS)
        )

    def reaches(self, end: float) -> bool:
        """Whether it may lie beyond an end of a range: below a low one, or above a high one."""
        low, high = (np.clip(one, self.least, self.most) for one in (self.low, self.high))
        for offset, slope in zip(self.offset, self.slope, strict=True):
            worst, used = Fraction(float(offset)), np.flatnonzero(slope)
            for j in used:
                at = low[j] if (slope[j] > 0) == (self.side > 0) else high[j]
                if not np.isfinite(at):
                    return True
                worst += Fraction(float(slope[j])) * Fraction(float(at))
            # of the largest of several pieces one that stays inside is enough
            if self.side * (worst - Fraction(float(end))) >= 0:
                return False
        return True


@dataclass(frozen=True)
class Rule:
    """`side * y[output]` is at most `side` times the best of its pieces of the bound."""

    output: int
    side: int
    factor: Fraction
    pieces: list[tuple[Fraction, Array]]


class CapsClaim(Heading):
    """A validated claim: a box, rules `row . y <= max of pieces`, and the stacks of members."""

    def __init__(self, content: Content) -> None:
        claim = fields(content.claim, KEYS, "the claim")
        super().__init__(claim)
        arrays = dict(content.arrays)

        def take(name: str, shape: tuple[int | None, ...], dtype: Any = np.float64) -> Any:
            if name not in arrays:
                raise Rejected(f"the array {name!r} is missing")
            found = checked(arrays.pop(name), name, shape, dtype)
            if dtype is np.float64:
                within_scale(found, name)
            return found

        d, r = self.input_size, self.output_size
        self.lower: Array = take("lower", (d,))
        self.upper: Array = take("upper", (d,))
        self.constant: Array = take("constant", (None, r))
        self.limit: Array = take("limit", (None,))
        self.tilt: Array = take("tilt", (len(self.limit), d))
        self.piece = take("piece", (len(self.limit),), np.int64)
        if not (self.lower <= self.upper).all() or not len(self.constant):
            raise Rejected("the box is empty, or there is no rule")
        if set(self.piece.tolist()) != set(range(len(self.constant))):
            raise Rejected("each rule needs a piece, and each piece a rule")
        self.states = member_states(listed(claim["members"], "members"), arrays)

    def verify_stored(self, state: MemberState, used: NDArray[np.integer[Any]], what: str) -> None:
        """Rejected unless the limits around a stored stack keep all rules."""
        limits, share = limits_of(state, self.input_size, self.output_size)
        pieces = sum(len(one.offset) for one in limits)
        if pieces * len(self.limit) * self.input_size > MOST_COMPARED:
            raise Rejected("limits and rules have too many pieces to be compared", code="memory")
        for number in range(len(self.constant)):
            rule = self._rule(number, share)
            if not any(self._keeps(limit, rule) for limit in limits):
                raise Rejected(
                    f"not proven: no limit of output {rule.output} of {what} keeps rule {number} "
                    "on the box",
                    code="not-proven",
                )

    def _rule(self, number: int, share: int | None) -> Rule:
        row, own = self.constant[number], np.flatnonzero(self.piece == number)
        moved = Fraction(0)
        if share is not None and len(row) == 2:  # y of the other class is 1 - y
            other = Fraction(float(row[1 - share]))
            output, factor, moved = share, Fraction(float(row[share])) - other, other
        else:
            read = np.flatnonzero(row)
            if len(read) != 1:
                raise Rejected(f"rule {number} reads several outputs, which limits do not keep")
            output, factor = int(read[0]), Fraction(float(row[read[0]]))
        if not factor or (share is not None and output != share):
            raise Rejected(f"rule {number} is about an output that has no limit")
        pieces = [(Fraction(float(self.limit[k])) - moved, self.tilt[k]) for k in own]
        return Rule(output, 1 if factor > 0 else -1, factor, pieces)

    def _keeps(self, limit: Limit, rule: Rule) -> bool:
        if (limit.output, limit.side) != (rule.output, rule.side):
            return False
        if (limit.low > self.lower).any() or (limit.high < self.upper).any():
            return False
        return all(
            any(
                abs(rule.factor) * rule.side * Fraction(float(offset))
                - bound
                + self._most(limit, rule.factor, slope, tilt)
                <= 0
                for bound, tilt in rule.pieces
            )
            for offset, slope in zip(limit.offset, limit.slope, strict=True)
        )

    def _most(self, limit: Limit, factor: Fraction, slope: Array, tilt: Array) -> Fraction:
        """The most of `factor * slope . clip(x) - tilt . x` on the box: at corners or bends."""
        total = Fraction(0)
        for j in np.flatnonzero((slope != 0) | (tilt != 0)):
            low, high = float(self.lower[j]), float(self.upper[j])
            least, most = float(limit.least[j]), float(limit.most[j])
            corners = {low, high, *(at for at in (least, most) if low < at < high)}
            own, theirs = factor * Fraction(float(slope[j])), Fraction(float(tilt[j]))
            total += max(
                own * Fraction(min(max(at, least), most)) - theirs * Fraction(at) for at in corners
            )
        return total


def limits_of(state: MemberState, d: int, r: int) -> tuple[list[Limit], int | None]:
    """The limits that outputs of a stored stack keep; Rejected where a set around breaks them."""
    if state.kind == "capped":
        limits = list(read_limits(below(state.arrays, "caps."), d, r))
        share = state.config["caps"]["share"]
        if state.config["caps"]["outputs"] != r:
            raise Rejected("stored limits are for other outputs than the claim's")
        if share is not None and any(one.output != share for one in limits):
            raise Rejected("of probabilities a single one has limits")
        return limits, share
    if state.kind != "arranged":
        raise Rejected(f"members of kind {state.kind!r} have no limits that keep rules on a box")
    inner = member_state(state.config["inner"], below(state.arrays, "inner."))
    limits, share = limits_of(inner, d, r)
    own, low, high = state.config["set"], state.arrays["set.low"], state.arrays["set.high"]
    if own["totals"] or share is not None or low.shape != (r,) or high.shape != (r,):
        raise Rejected("outputs are moved by more than sorting and clamping")
    for one in limits:
        end = low[one.output] if one.side > 0 else high[one.output]
        if np.isfinite(end) and one.reaches(float(end)):
            raise Rejected("a range around the limits ends beyond one of them")
        for chain in own["chains"]:
            if one.output in chain:
                place = chain.index(one.output)
                reached = chain[:place] if one.side > 0 else chain[place + 1 :]
                if any(
                    not any(k.output == output and one.same_as(k) for k in limits)
                    for output in reached
                ):
                    raise Rejected("outputs are sorted, and not all of them have the limits")
    return limits, share


def read_limits(arrays: Mapping[str, NDArray[Any]], d: int, r: int) -> Iterator[Limit]:
    """The limits that arrays (m, ...) describe."""
    output, side = arrays["output"], arrays["side"]
    ends = [arrays[name] for name in ENDS]
    offset, slope = (arrays[name] for name in NUMBERS)
    count, pieces = len(output), offset.shape[1]
    if (
        side.shape != (count,)
        or any(one.shape != (count, d) or np.isnan(one).any() for one in ends)
        or offset.shape != (count, pieces)
        or slope.shape != (count, pieces, d)
        or not pieces
        or not np.isin(side, (-1, 1)).all()
        or not ((output >= 0) & (output < r)).all()
        or not (ends[2] <= ends[3]).all()
    ):
        raise Rejected("stored limits have arrays that do not fit")
    for name in NUMBERS:
        within_scale(arrays[name], f"{name} of limits")
    for one in range(count):
        numbers = (array[one] for array in (*ends, offset, slope))
        yield Limit(int(output[one]), int(side[one]), *numbers)


def moves_of(limits: list[Limit], output: int, feature: int) -> dict[str, bool]:
    """What clamping an output to its limits may add to what it does with a feature.

    Behind its end an upper limit is infinite, so that an output may jump up there.
    """
    may = dict.fromkeys(("rise", "fall", "up", "down"), False)
    for one in (limit for limit in limits if limit.output == output):
        slope, upper = one.slope[:, feature], one.side > 0
        may["rise"] |= bool((slope > 0).any())
        may["fall"] |= bool((slope < 0).any())
        begins, ends = np.isfinite(one.low[feature]), np.isfinite(one.high[feature])
        may["rise" if upper else "fall"] |= bool(ends)
        may["fall" if upper else "rise"] |= bool(begins)
        clipped = np.isfinite(one.least[feature]) or np.isfinite(one.most[feature])
        bent = bool(begins or ends or (clipped and slope.any()))
        may["up"] |= bent
        may["down"] |= bent
        if len(set(slope.tolist())) > 1:
            may["up" if upper else "down"] = True
    return may


@dataclass(frozen=True)
class CapsVerdict:
    """What has been proven of rules over a box; all else is `Rejected`."""

    claim: CapsClaim
    digest: str
    stacks: int
    seconds: float

    def __str__(self) -> str:
        claim = self.claim
        bounds = [
            " or ".join(
                linear_sum(claim.tilt[k], "x", exact(claim.limit[k]))
                for k in np.flatnonzero(claim.piece == number)
            )
            for number in range(min(len(claim.constant), SHOWN))
        ]
        lines = [
            f"{linear_sum(claim.constant[number], 'y')} <= {bound}"
            for number, bound in enumerate(bounds)
        ]
        if len(claim.constant) > SHOWN:
            lines.append(f"... and {len(claim.constant) - SHOWN} more.")
        ends = ", ".join(
            f"[{exact(low)}, {exact(high)}]"
            for low, high in zip(claim.lower[:SHOWN], claim.upper[:SHOWN], strict=True)
        )
        more = ", ..." if claim.input_size > SHOWN else ""
        return "\n".join(
            [
                f"Proven: {claim.requirement!r} of {claim.title}.",
                f"  At every input of the box {ends}{more}, for every mixture of members of these "
                f"{self.stacks} stacks, whatever they compute.",
                "  Rounding of the prediction is not included: see 'Structure' in "
                "docs/mathematics.md.",
                *(f"  {line}" for line in lines),
                f"  Limits were compared in rational numbers, {self.seconds:.1f} s.",
                f"  Certificate sha256 {self.digest}.",
            ]
        )


def check_caps(content: Content) -> CapsVerdict:
    """Verify a certificate of rules over a box; Rejected unless limits of all members keep them."""
    started = time.perf_counter()
    claim = CapsClaim(content)
    if not claim.states:
        raise Rejected("the certificate has no member")
    for number, state in enumerate(claim.states):
        claim.verify_stored(state, np.empty(0, np.int64), f"stack {number}")
    return CapsVerdict(claim, content.digest, len(claim.states), time.perf_counter() - started)
