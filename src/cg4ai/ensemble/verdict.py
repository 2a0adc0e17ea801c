"""Verdicts in words: whether rules hold, at which inputs, and how that was established."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cg4ai.records import Strength

# what a strength says, whatever the rule
STRENGTHS = {
    Strength.VIOLATED: "an input was found at which the rule is violated",
    Strength.UNVERIFIED: "nothing is established",
    Strength.AUDITED: "recomputed at every listed input; other inputs are not covered",
    Strength.ATTACKED: "the region was searched for violations; a search is not a proof",
    Strength.BOUNDED: "a solver's bound excludes violations in the region; nothing checked it",
    Strength.CERTIFIED: "proven at every input of the region",
    Strength.CONSTRUCTED: "guaranteed at every input by the structure of every member",
    Strength.SHIELDED: "guaranteed at every input of the region: a shield corrects predictions",
}
COVERAGE = {
    Strength.UNVERIFIED: "NOT PROVEN at {place}",
    Strength.AUDITED: "on the {place} (recomputed); other inputs are not covered",
    Strength.ATTACKED: "no violation found at {place} (searched, not proven)",
    Strength.BOUNDED: "at every input of {place} (by a solver's bound, not checked)",
    Strength.CERTIFIED: "at every input of {place} (proven)",
    Strength.CONSTRUCTED: "on every possible input (by construction)",
    Strength.SHIELDED: "at every input of {place} (by a shield)",
}
EVERY_INPUT = "every input"  # the place of rules that name none
UNPROVEN = (Strength.UNVERIFIED, Strength.ATTACKED, Strength.BOUNDED)
WIDEST = 32  # letters of a rule's name, for which a column of names is made wider


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one rule holds; `coverage` says at which inputs, and how that was established.

    `doubtful`: it holds on the listed rows, and held-out rows say that it is violated on new ones.
    """

    rule: str
    holds: bool
    strength: Strength
    coverage: str
    doubtful: bool = False


def describe_coverage(
    strength: Strength,
    place: str,
    *,
    holds: bool,
    rows: int = 0,
    satisfied: int = 0,
    worst_violation: float = 0.0,
) -> str:
    """Where a rule holds or is violated; `place` and the counts are those of its audit."""
    if place.startswith("1 listed "):
        place = place.removesuffix("s")
    if holds:
        where = "pairs of inputs" if place == EVERY_INPUT else place
        if strength is Strength.CONSTRUCTED and place != EVERY_INPUT:
            return f"at every input of {place} (by construction)"
        return COVERAGE[strength].format(place=where)
    by = f"by up to {worst_violation:.3g}"
    if strength is Strength.AUDITED:
        return f"VIOLATED on the {place}: {rows - satisfied} of {rows} conditions missed, {by}"
    inputs = "1 input" if rows == 1 else f"{rows} inputs"
    where = "" if place == EVERY_INPUT else f" of {place}"
    return f"VIOLATED at {inputs}{where}, {by}"


def format_headline(verdicts: Sequence[Verdict]) -> str:
    """The first line of a result: whether all rules hold."""
    count = len(verdicts)
    if not count:
        return "There are no rules, so nothing is guaranteed."
    broken = [one.rule for one in verdicts if not one.holds]
    unproven = [one.rule for one in verdicts if one.holds and one.strength in UNPROVEN]
    doubtful = [one.rule for one in verdicts if one.doubtful]
    all_of_them = {1: "The rule holds", 2: "Both rules hold"}.get(count, f"All {count} rules hold")
    if broken and count == 1:
        words = "The rule is NOT kept."
    elif broken:
        are = "is" if len(broken) == 1 else "are"
        words = f"{len(broken)} of {count} rules {are} NOT kept: {', '.join(broken)}."
    elif unproven and count == 1:
        words = "No violation was found, but the rule is NOT PROVEN."
    elif unproven:
        are = "is" if len(unproven) == 1 else "are"
        words = (
            f"No violation was found, but {len(unproven)} of {count} rules {are} NOT PROVEN: "
            f"{', '.join(unproven)}."
        )
    else:
        words = f"{all_of_them}{' on the listed rows' if doubtful else ''}."
    likely = f" LIKELY VIOLATED on new rows: {', '.join(doubtful)}." if doubtful else ""
    return words + likely


def format_coverage(verdicts: Sequence[Verdict]) -> list[str]:
    """A line for each rule: its name, and where it holds."""
    width = min(WIDEST, max((len(one.rule) for one in verdicts), default=0))
    return [
        f"  {one.rule.ljust(width)}   {one.coverage}"
        + ("; LIKELY VIOLATED on new rows" if one.doubtful else "")
        for one in verdicts
    ]
