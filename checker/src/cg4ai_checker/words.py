"""What was proven, in words made from the numbers that were checked and not from their names."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context

import numpy as np

from cg4ai_checker.bands import Array
from cg4ai_checker.claim import Claim
from cg4ai_checker.region import Region

BETTER = 1e-9  # how much worse than its anchor a shield that acts everywhere leaves a rule
DIGITS = 9  # of a bound that is shown
DIMENSIONS, RULES, TERMS, PIECES = 6, 3, 4, 3  # how many are shown


def exact(value: float) -> str:
    """The shortest decimal that is this very float64, so that nothing is rounded away."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def at_most(bound: float, limit: float) -> str:
    """`bound` in few digits and never below it, in full where few would pass the limit it keeps."""
    upwards = Context(prec=DIGITS, rounding=ROUND_CEILING)
    short = float(upwards.create_decimal(repr(bound)))
    return exact(bound) if bound <= limit < short else f"{short:.{DIGITS}g}"


def predicted(claim: Claim, digest: str) -> list[str]:
    """Of what the rules are proven: the mixture that is bounded, or all that is shielded by it."""
    if claim.shield is None:
        return [
            f"This holds for float64 predictions of the mixture of {claim.member_count} members "
            f"in {len(claim.blocks)} block(s) with sha256 {digest}."
        ]
    moved = {
        "members": "every mixture of members behind a shield of these rules",
        "mixture": "every predictor behind a shield of these rules",
    }
    more = []
    if claim.everywhere:
        more = [
            "This shield also acts outside the region. It does not move outputs that miss a limit",
            f"by at most {BETTER:g} (in the units of the rule).",
        ]
    return [
        f"This holds for {moved[claim.shield]} whose anchor",
        f"has the sha256 {digest}, because the anchor keeps the rules.",
        "Rounding of the prediction is not included: see 'Shields' in docs/mathematics.md.",
        *more,
    ]


def shape(region: Region) -> str:
    size = len(region.lower)
    if region.rows is not None:
        return f"the polytope of {region.row_count} rows within a box of {size} dimensions"
    if region.centre is None:
        return f"the box of {size} dimensions"
    name = "maximum" if region.norm == math.inf else "Euclidean"
    return f"the ball of radius {exact(region.radius)} ({name} norm) in {size} dimensions"


def ends(region: Region) -> str:
    """The ends of a box, coordinate by coordinate, or the centre of a ball; the first rows."""
    if region.centre is not None:
        place = ", ".join(exact(value) for value in region.centre[:DIMENSIONS].tolist())
        more = f", ... ({len(region.centre) - DIMENSIONS} more)"
        return f"around ({place}{more if len(region.centre) > DIMENSIONS else ''})"
    return _box(region) + "".join(_row_words(region))


def _box(region: Region) -> str:
    pairs = list(zip(region.lower.tolist(), region.upper.tolist(), strict=True))
    if len(set(pairs)) == 1:
        low, high = pairs[0]
        return f"each of {len(pairs)} in [{exact(low)}, {exact(high)}]"
    shown = [f"[{exact(low)}, {exact(high)}]" for low, high in pairs[:DIMENSIONS]]
    more = f" x ... ({len(pairs) - DIMENSIONS} more)" if len(pairs) > DIMENSIONS else ""
    return " x ".join(shown) + more


def _row_words(region: Region) -> list[str]:
    if region.rows is None or region.most is None:
        return []
    lines = [
        f", {linear_sum(row, 'x')} <= {exact(most)}"
        for row, most in zip(region.rows[:RULES], region.most[:RULES].tolist(), strict=True)
    ]
    left = region.row_count - len(lines)
    return [*lines, f" and {left} more rows"] if left else lines


def formulas(claim: Claim) -> list[str]:
    """The first rules in the inputs x and outputs y."""
    count = len(claim.target)
    lines = [
        f"Rule {claim.rule_names[rule]!r}: {_value(claim, rule)} <= {_limit(claim, rule)}"
        for rule in range(min(count, RULES))
    ]
    if count > RULES:
        lines.append(f"... and {count - RULES} more rules.")
    return lines


def closest(claim: Claim, rule: int, bound: float) -> str:
    name, target = claim.rule_names[rule], float(claim.target[rule])
    if claim.shield is not None:
        name = f"{name} at the anchor"
    if claim.plain[rule]:
        return f"{name}, at most {at_most(bound, target)} of {exact(target)}"
    return f"{name}, at most {at_most(bound, target)} above its limit"


def _value(claim: Claim, rule: int) -> str:
    own = np.flatnonzero(claim.slope_rule == rule)
    plain = np.flatnonzero(claim.constant[rule])
    terms = [
        f"{exact(claim.constant[rule, output])} y[{output}]" for output in plain[:TERMS].tolist()
    ]
    terms += [
        f"{exact(claim.slope_value[at])} x[{claim.slope_input[at]}] y[{claim.slope_output[at]}]"
        for at in own[:TERMS].tolist()
    ]
    count = len(plain) + len(own)
    if claim.quadratic is not None:
        given = claim.quadratic[rule]
        pairs = np.argwhere(given)
        products = [
            f"{exact(given[i, j])} y[{i}]" + ("^2" if i == j else f" y[{j}]")
            for i, j in pairs[:TERMS].tolist()
        ]
        return _cut([*products, *terms], len(pairs) + count) or "0"
    squares = np.flatnonzero((claim.square_rule == rule) & claim.square_factor.any(axis=1))
    sums = [f"({linear_sum(claim.square_factor[at], 'y')})^2" for at in squares[:TERMS].tolist()]
    return _cut([*sums, *terms], len(squares) + count) or "0"


def _limit(claim: Claim, rule: int) -> str:
    if claim.plain[rule]:
        return exact(claim.target[rule])
    pieces = np.flatnonzero(claim.piece == rule)
    shown = [
        linear_sum(claim.tilt[p], "x", exact(claim.limit[p])) for p in pieces[:PIECES].tolist()
    ]
    if len(pieces) == 1:
        return shown[0]
    more = [f"... ({len(pieces) - PIECES} more)"] if len(pieces) > PIECES else []
    return f"max({', '.join([*shown, *more])})"


def linear_sum(coefficients: Array, name: str, constant: str = "0") -> str:
    """`2 x[0] + 3 x[4] + constant`, cut after a few terms."""
    used = np.flatnonzero(coefficients)
    terms = [f"{exact(coefficients[at])} {name}[{at}]" for at in used[:TERMS].tolist()]
    words = [_cut(terms, len(used)), "" if constant == "0" else constant]
    return " + ".join(word for word in words if word) or "0"


def _cut(terms: list[str], count: int) -> str:
    """A sum of the first of `count` terms."""
    shown = terms[:TERMS]
    more = [f"... ({count - len(shown)} more terms)"] if count > len(shown) else []
    return " + ".join([*shown, *more])
