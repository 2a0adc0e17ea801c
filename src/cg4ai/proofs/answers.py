"""What a search of cells established, as a `Certification` in numbers and words."""

from __future__ import annotations

import numpy as np

from cg4ai.proofs.certifier import Certifier
from cg4ai.proofs.records import Certification, OpenCells, RuleProof, Status


def answer_of(work: Certifier, seconds: float, *, limit: str = "a limit") -> Certification:
    """The answer so far; `seconds` are those of earlier calls, too. `limit`: which ended it."""
    proofs = []
    worst = max(
        work.found, key=lambda rule: work.found[rule].value - work.targets[rule], default=None
    )
    found = None if worst is None else work.found[worst]
    for rule, search in enumerate(work.searches):
        status: Status = "unknown" if search.open else "proven"
        if rule in work.found:
            status = "refuted"
        dimensions, leaf_bounds, uses = search.preorder()
        tree = (dimensions, leaf_bounds, search.cells, uses)
        proofs.append(RuleProof(rule, status, search.limit, search.bound, *tree))
    status = "unknown" if any(proof.status == "unknown" for proof in proofs) else "proven"
    if found is not None:
        status = "refuted"
    return Certification(
        status,
        tuple(proofs),
        None if found is None else found.point,
        worst,
        None if found is None else found.value,
        _open_cells(work),
        sum(search.cells for search in work.searches),
        seconds,
        _note(work, status, limit),
        {rule: own.point for rule, own in work.found.items()},
        work.subject,
        all(not search.waiting or work.hopeless(rule) for rule, search in enumerate(work.searches)),
    )


def _note(work: Certifier, status: Status, limit: str) -> str:
    if status == "proven":
        return f"bounds include a margin of up to {work.margins.max():.2g} for rounding"
    if status == "refuted":
        return f"refuted: rules {_listed(sorted(work.found))}; open cells of all rules are kept"
    left = [rule for rule, search in enumerate(work.searches) if search.open]
    if within := [rule for rule in left if rule in work.tight and work.tight[rule].broken]:
        return _within_note(work, within)
    if hopeless := [rule for rule in left if work.hopeless(rule)]:
        return _tight_note(work, hopeless)
    if any(work.searches[rule].waiting for rule in left):
        reached = "the memory limit" if work.full else limit
        note = f"{reached} was reached with rules {_listed(left)} open"
    else:
        note = f"the cells left of rules {_listed(left)} are too small to halve"
    held = {rule: work.searches[rule].held_by_margin() for rule in left}
    held = {rule: count for rule, count in held.items() if count}
    if held:
        margin = max(work.margins[rule] for rule in held)
        note += (
            f"; {sum(held.values())} cells of rules {_listed(list(held))} are open only because "
            f"bounds include a margin of up to {margin:.2g} for rounding: a value so close to its "
            "limit cannot be proven, ask for a limit wider by more than that"
        )
    return note


def _within_note(work: Certifier, rules: list[int]) -> str:
    """Which rules are broken, by no more than an audit allows, and where the first is."""
    first = work.tight[rules[0]]
    place = ", ".join(f"{value:.6g}" for value in first.point[:6])
    more = ", ..." if len(first.point) > 6 else ""
    return (
        f"rules {_listed(rules)} hold within the tolerance at most: rule {rules[0]} exceeds its "
        f"limit by {first.value - work.targets[rules[0]]:.3g} at x = [{place}{more}], and up to "
        f"{first.allowed:.3g} counts as kept, so it is neither refuted nor can be proven: ask for "
        "a limit lower by more than that, or a tolerance of 0"
    )


def _tight_note(work: Certifier, rules: list[int]) -> str:
    """Which rules leave no room at some input, and where the first does."""
    first = work.tight[rules[0]]
    place = ", ".join(f"{value:.6g}" for value in first.point[:6])
    more = ", ..." if len(first.point) > 6 else ""
    return (
        f"rules {_listed(rules)} have no room to be proven: rule {rules[0]} has the value "
        f"{first.value:.12g} at x = [{place}{more}], as good as its limit "
        f"{work.targets[rules[0]]:.12g}, and bounds include a margin of up to "
        f"{max(work.margins[rule] for rule in rules):.2g} for rounding, however small the cells: "
        "ask for a limit wider by more than that"
    )


def _listed(rules: list[int]) -> str:
    shown = ", ".join(str(rule) for rule in rules[:8])
    return f"{shown}, ..." if len(rules) > 8 else shown


def _open_cells(work: Certifier) -> OpenCells:
    size = len(work.lower)
    parts = [(rule, *search.open_cells()) for rule, search in enumerate(work.searches)]
    return OpenCells(
        np.concatenate([np.full(len(bounds), rule) for rule, _, _, bounds in parts]),
        np.concatenate([lower for _, lower, _, _ in parts]).reshape(-1, size),
        np.concatenate([upper for _, _, upper, _ in parts]).reshape(-1, size),
        np.concatenate([bounds for _, _, _, bounds in parts]),
    )
