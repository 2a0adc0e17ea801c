"""Region and rules in words, from the numbers that were checked and not from their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cg4ai.checker.claim import Claim, Region

DIMENSIONS, RULES, TERMS = 6, 3, 4  # how many are shown


def exact(value: float) -> str:
    """The shortest decimal that is this very float64, so that nothing is rounded away."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def region_words(region: Region) -> str:
    """The ends of a box, coordinate by coordinate, or the centre of a ball."""
    if region.centre is not None:
        place = ", ".join(exact(value) for value in region.centre[:DIMENSIONS].tolist())
        more = f", ... ({len(region.centre) - DIMENSIONS} more)"
        return f"around ({place}{more if len(region.centre) > DIMENSIONS else ''})"
    ends = list(zip(region.lower.tolist(), region.upper.tolist(), strict=True))
    if len(set(ends)) == 1:
        low, high = ends[0]
        return f"each of {len(ends)} in [{exact(low)}, {exact(high)}]"
    shown = [f"[{exact(low)}, {exact(high)}]" for low, high in ends[:DIMENSIONS]]
    more = f" x ... ({len(ends) - DIMENSIONS} more)" if len(ends) > DIMENSIONS else ""
    return " x ".join(shown) + more


def rule_words(claim: Claim) -> list[str]:
    """The first rules as formulas in the inputs x and outputs y."""
    count = len(claim.limit)
    lines = [
        f"Rule {claim.rule_names[rule]!r}: {_formula(claim, rule)} <= {exact(claim.limit[rule])}"
        for rule in range(min(count, RULES))
    ]
    if count > RULES:
        lines.append(f"... and {count - RULES} more rules.")
    return lines


def _formula(claim: Claim, rule: int) -> str:
    own = np.flatnonzero(claim.slope_rule == rule)
    plain = np.flatnonzero(claim.constant[rule])
    terms = [
        f"{exact(claim.constant[rule, output])} y[{output}]" for output in plain[:TERMS].tolist()
    ]
    terms += [
        f"{exact(claim.slope_value[at])} x[{claim.slope_input[at]}] y[{claim.slope_output[at]}]"
        for at in own[:TERMS].tolist()
    ]
    more = len(plain) + len(own) - min(len(terms), TERMS)
    shown = terms[:TERMS] + ([f"... ({more} more terms)"] if more else [])
    return " + ".join(shown) or "0"
