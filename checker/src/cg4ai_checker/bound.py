"""An upper bound of one rule on cells: `sum_k (constant_k + slope_k . x) y_k(x)` and its limits.

Where the limit is one number the bound is of the rule's value; else of its excess over the largest
of several `limit_p + tilt_p . x`, at most 0 where the rule is kept. Every member's outputs are put
between affine functions of delta = x - centre; times their affine coefficients that is a quadratic
in delta, and the quadratics of all members are added before anything is bounded. A second, plainer
bound multiplies intervals; the smaller one counts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cg4ai_checker.bands import Array
from cg4ai_checker.cells import Cells
from cg4ai_checker.linearised import Linearised
from cg4ai_checker.region import Region
from cg4ai_checker.rule_total import Bounds, Total
from cg4ai_checker.scale import UNIT
from cg4ai_checker.shares import Share, reach
from cg4ai_checker.terms import Coefficients, Group, Member, RuleTerms


def rule_bound(terms: RuleTerms, cells: Cells, region: Region | None = None) -> Bounds:
    """For every input of each cell, and of the region if given, the rule is at most this.

    Rounding is included.
    """
    box = Region(cells.lower.min(axis=0), cells.upper.max(axis=0)) if region is None else region
    total = _summed(terms, cells)
    for above, below in terms.squares:
        _add_square(total, _summed(above, cells), _summed(below, cells), box)
    total.constant += terms.missed
    total.plain += terms.missed
    total.mass = total.mass + terms.missed
    return total.bounds(terms.limits, box)


def _summed(terms: RuleTerms, cells: Cells) -> Total:
    """All members of a rule together."""
    total = Total(cells, sloped=terms.sloped)
    for member, asked in terms.members:
        raw = None if asked.settled else member.part.on(member.index, cells)
        for group in asked.groups:
            _add_reference(total, member, group)
            if raw is not None:
                _add_shares(total, member, group, raw)
        if raw is not None and not asked.groups:
            _add_raw(total, member, asked.own, raw)
    return total


def _add_square(total: Total, above: Total, below: Total, region: Region) -> None:
    """t^2 for a sum t of outputs that `above` bounds, and `below` minus it.

    For t between l and u, t^2 <= (l + u) t - l u, the chord. Rows of the region, whose multipliers
    were chosen for the whole rule, are left out of l and u.
    """
    plain = replace(region, rows=None, most=None)
    high = above.bounds(None, plain).value
    low = -below.bounds(None, plain).value
    rate, largest = low + high, np.maximum(np.abs(low), np.abs(high))
    total.add_times(np.maximum(rate, 0.0), above)
    total.add_times(np.maximum(-rate, 0.0), below)
    # the rounding of l + u, times t, and of l u
    start = -low * high + 8 * UNIT * largest**2
    total.constant += start
    total.plain += start
    total.mass = total.mass + largest**2


def _add_raw(total: Total, member: Member, own: Coefficients, raw: Linearised) -> None:
    """Outputs as they are: coefficients at the centre together, their changes one by one."""
    weight = member.weight
    middle = own.constant + total.centre @ own.slope.T
    lines = raw.functional(middle)
    total.constant += weight * lines.high
    total.linear += weight * lines.slope
    total.plain += weight * (lines.high + reach(lines.slope, total.radius))
    total.blame += weight * lines.blame
    sizes = np.abs(own.constant) + np.abs(own.slope) @ total.largest_input
    mass = member.part.masses[-1][member.index]
    total.count(member, weight * float(sizes @ mass))
    # asked of the numbers themselves, for products of small ones are rounded to zero
    asked = (own.constant != 0) | own.slope.any(axis=1)
    total.nothing &= not (asked & (mass > 0)).any()
    for output in np.flatnonzero(own.slope.any(axis=1)).tolist():
        slope = weight * own.slope[output]
        unit = np.zeros_like(middle)
        unit[:, output] = 1.0
        one = raw.functional(unit)
        centre, half = 0.5 * (one.high + one.low), 0.5 * (one.high - one.low)
        total.constant += total.swing(slope) * half
        total.linear += centre[:, None] * slope
        total.add_square(slope, one.slope)
        largest = np.abs(centre) + half + reach(one.slope, total.radius)
        total.plain += total.swing(slope) * largest
        total.blame += total.swing(slope)[:, None] * one.blame


def _add_reference(total: Total, member: Member, group: Group) -> None:
    """A softmax sums to one: with a reference class r,

    `sum_j A_j P_j = A_r + sum over j != r of (A_j - A_r) P_j`; this adds A_r.
    """
    base = member.weight * group.classes[group.reference]
    value = base[0] + total.centre @ base[1:]
    total.constant += value
    total.linear += base[1:]
    total.plain += value + total.swing(base[1:])
    total.count(member, abs(base[0]) + float(np.abs(base[1:]) @ total.largest_input))
    total.nothing &= not group.classes.any()


def _add_shares(total: Total, member: Member, group: Group, raw: Linearised) -> None:
    """The other classes of a softmax: see `_add_reference`."""
    base = group.classes[group.reference]
    for number, own in enumerate(group.classes):
        if number == group.reference:
            continue
        share = Share(
            raw,
            on=group.outputs[group.which == number],
            off=group.outputs[group.which != number],
            size=member.part.output_size,
            radius=total.radius,
        )
        size = np.abs(own) + np.abs(base)
        total.count(member, member.weight * float(size[0] + size[1:] @ total.largest_input))
        _add_share(total, share, member.weight * (own - base))


def _add_share(total: Total, share: Share, rate: Array) -> None:
    """`A(x) P(x)` with A = rate[0] + rate[1:] . x and P a share in [0, 1].

    A P <= A U where A >= 0 and A L where A <= 0; where A changes sign on the cell,
    A P <= A L + max A max(U - L).
    """
    slope = rate[1:]
    middle, swing = rate[0] + total.centre @ slope, total.swing(slope)
    positive = middle - swing >= 0
    lines = share.upper()
    if not positive.all():
        low = share.lower()
        gap = lines.high - low.low + reach(lines.slope - low.slope, total.radius)
        mixed = ~positive & (middle + swing > 0)
        total.constant += np.where(mixed, (middle + swing) * np.maximum(gap, 0.0), 0.0)
        value = np.where(positive, lines.high, low.low)
        tilt = np.where(positive[:, None], lines.slope, low.slope)
    else:
        value, tilt = lines.high, lines.slope
    total.constant += middle * value
    total.linear += middle[:, None] * tilt + value[:, None] * slope
    total.add_square(slope, tilt)
    total.blame += (np.abs(middle) + swing)[:, None] * lines.blame
    top = middle + swing
    total.plain += np.where(top > 0, top * share.most(), top * share.least())
