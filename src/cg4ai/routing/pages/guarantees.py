"""What a routing run guarantees: no overloaded link, and a ratio to the optimum; never more."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from cg4ai.guarantees import Strength
from cg4ai.report import Finding
from cg4ai.report import format_count as number_of
from cg4ai.routing.demands.scaling import (
    factor_of,
    format_both,
    format_guarantee,
    format_of_capacity,
    format_scaling_suffix,
    rule_name,
)
from cg4ai.routing.options import HISTORY
from cg4ai.routing.prove.attack import FEASIBLE, UNROUTED

USUAL_SET = "every demand between zero and its largest volume"
BUDGET = "an agent would exceed its budget on a link, its splits are moved towards its part of"
MOVED = {
    "all": "splits would overload a link, they are moved towards",
    "own": BUDGET,
    "source": BUDGET,
}


def list_findings(summary: Mapping[str, Any]) -> Iterator[Finding]:
    """No overloaded link, with a guarantee as strong as was asked for or not; and a ratio."""
    factor, holds = factor_of(summary), _holds(summary)
    strength = Strength(summary["strength"]) if holds else Strength.VIOLATED
    asked, weakest_first = Strength(summary["guarantee"]), list(Strength)
    enough = weakest_first.index(strength) >= weakest_first.index(asked)
    of = format_scaling_suffix(factor)
    yield Finding(
        rule_name(factor),
        strength,
        holds,
        describe_guarantee(summary),
        coverage=_coverage(summary) if holds else _overload(summary),
        title=f"utilisation{of} at most 1" if of else "no overloaded link",
        asked=str(asked) if holds and not enough else "",
    )
    if "ratio" in summary:
        proven = summary["ratio_proof"]["status"] == "proven"
        words = "at every demand vector of the set " + ("(proven)" if proven else "(NOT PROVEN)")
        missed = "" if _as_asked(summary) else f"; NOT the {summary['ratio_asked']:g} asked for"
        yield Finding(
            "ratio",
            Strength.CERTIFIED if proven else Strength.UNVERIFIED,
            proven and _as_asked(summary),
            describe_ratio(summary),
            coverage=f"{words}{missed}",
            title=f"MLU at most {summary['ratio']:g} x the optimum",
        )


def _holds(summary: Mapping[str, Any]) -> bool:
    routed = summary.get("unrouted", 0.0) <= UNROUTED
    return bool(routed and summary["worst_utilisation"] <= FEASIBLE)


def _coverage(summary: Mapping[str, Any]) -> str:
    """At which demand vectors no link is overloaded, and how that was established."""
    strength, where = Strength(summary["strength"]), f"for {set_of(summary)}"
    if strength is Strength.UNVERIFIED:
        return f"NOT PROVEN {where}; no overload was found"
    if strength is Strength.ATTACKED:
        return f"none was found {where} (searched, not proven)"
    how = {Strength.CERTIFIED: "proven", Strength.SHIELDED: "by a shield"}.get(strength, strength)
    check = "; verify with cg4ai check" if "certificate" in summary else ""
    return f"{where} ({how}{check})"


def _overload(summary: Mapping[str, Any]) -> str:
    if (missing := summary.get("unrouted", 0.0)) > UNROUTED:
        return f"VIOLATED: {100 * missing:.3g} % of a demand is not routed, or routed twice"
    found = summary.get("worst_link") or summary["attack"].get("arc")
    link = f"link {'->'.join(found)}" if found else "a link"
    loaded = format_of_capacity(summary["worst_utilisation"], factor_of(summary), ".6f")
    return f"VIOLATED: a demand vector loads {link} to {loaded}"


def describe_guarantee(summary: Mapping[str, Any]) -> str:
    """What was established, and by which effort; never more than that."""
    factor, effort = factor_of(summary), summary["attack"]
    if summary.get("unrouted", 0.0) > UNROUTED:
        return f"{_overload(summary)}."
    within = _holds(summary)
    parts = [
        format_guarantee(_established(summary), factor) if within else f"{_overload(summary)}."
    ]
    if "shield" in summary:
        return " ".join([*parts, *([_shield(summary["shield"], summary)] if within else [])])
    if effort:
        parts.append(
            f"Searched: {number_of(effort['ascent_starts'], 'gradient ascent')} of "
            f"{number_of(effort['ascent_steps'], 'step')}, "
            f"{effort['vertices']} vertices of the box, {effort['random_vectors']} random vectors, "
            f"NLopt from the {effort['nlopt_starts']} worst. Worst: link "
            f"{'->'.join(effort['arc'])}, by {effort['found_by']}."
        )
    elif not (within and summary["members"] == "tree"):
        parts.append("The search ended early, at the time limit.")
    return " ".join(parts)


def get_scope(summary: Mapping[str, Any]) -> str:
    """What those who split demands read; versions before 0.8 called it what they see."""
    return str(summary.get("agent_scope", summary.get("sees", "all")))


def _established(summary: Mapping[str, Any]) -> str:
    """In one sentence, why no demand vector of the set overloads a link."""
    strength, scope = Strength(summary["strength"]), get_scope(summary)
    if strength is Strength.CERTIFIED:
        proof = summary.get("certificate") or summary["proof"]  # `certify` writes the former alone
        cells = "leaves" if summary["members"] == "tree" else "cells"
        return (
            "PROVEN: no demand vector of the set overloads a link (certified: "
            f"{proof['cells']} {cells} bounded in {proof['seconds']:.1f} s)."
        )
    if strength is Strength.SHIELDED:
        window = ", whatever the window of matrices was" if HISTORY in summary else ""
        return (
            f"No demand vector of the set can overload a link{window} (shielded: where "
            f"{MOVED[scope]} a constant split that fits the whole set)."
        )
    if strength is Strength.UNVERIFIED and scope != "all":
        return (
            "NOT PROVEN: no overload was found, but the checker accepts no proof that the agents' "
            "budgets fit the capacities. Ask for a smaller --load, which leaves room for one."
        )
    attacked = "No overload was found by search, which is not a proof."
    if "proof" not in summary:
        return attacked
    left, bound = summary["proof"]["resisting"], summary["proof"]["best_bound"]
    links = ", ".join("->".join(entry["link"]) for entry in left[:5])
    links += f" and {len(left) - 5} more" if len(left) > 5 else ""
    known = "no bound yet" if bound is None else f"best bound {bound:.4f}"
    said = f"NOT PROVEN for {number_of(len(left), 'link')} ({links}); {known}."
    return said if strength is Strength.UNVERIFIED else f"{said} {attacked}"


def _shield(measured: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """How often the shield acts, and what links would be loaded to without it."""
    factor, validation = factor_of(summary), summary.get("validation") or 0
    seen, sought = "validation vectors", "adversarial ones"
    if HISTORY in summary:
        seen, sought = "later windows", "invented ones"
    return (
        f"The shield acts on {_part(measured['acting'], validation)} {seen} and on "
        f"{_part(measured['adversarial_acting'], measured['inputs'])} {sought}. Among "
        f"these the worst link utilisation is {format_both(measured['worst'], factor, '.6f')}, "
        "without "
        f"the shield {format_both(measured['worst_unshielded'], factor, '.6f')}."
    )


def _part(share: float, count: int) -> str:
    """How many of a number: `none of 200`, `3 of 200 (1.5 %)`, `all 200`."""
    hit = round(share * count)
    if hit in (0, count):
        return f"all {count:,}" if hit else f"none of {count:,}"
    percent = min(100 * share, 99.9)  # what is not all of them is not rounded up to it
    return f"{hit:,} of {count:,} ({percent:.{3 if percent >= 10 else 2}g} %)"


def describe_operation(summary: Mapping[str, Any]) -> list[str]:
    """How answers are rounded, given by the fallback and held near the ones before, if they are."""
    lines = []
    if "granularity" in summary:
        found = summary["granularity"]
        lines.append(
            f"Answers are splits in multiples of 1/{found['parts']}. Each is checked at its own "
            "demands, or is the constant split that fits the whole set: so none overloads a link "
            f"within the set (worst {found['worst_utilisation']:.6f} of the capacity at "
            f"{found['vectors']:,} adversarial vectors). Rounding adds "
            f"{per_cent(found['mean_ratio'] - 1)} to the MLU on average, at most "
            f"{per_cent(found['max_ratio'] - 1)}."
        )
    if "fallback" in summary:
        found = summary["fallback"]
        lines.append(
            "Fallback: answers outside the set, or not proven to be within "
            f"{per_cent(found['gap'])} of the optimum over the router's paths, are improved or "
            "solved by the linear program: "
            f"{_part(found['share'], found['vectors'])} random vectors of the set."
        )
    for one in summary.get("priorities", ())[:-1]:
        lines.append(
            f"Priority {one['priority']} ({number_of(one['demands'], 'demand')}): answers with the "
            "fallback carry it in full wherever its demands, and those before it, are at most "
            f"{one['fits_up_to']:.4g} times their largest, whatever the others are."
        )
    if "churn" in summary:
        found = summary["churn"]
        words = f"Changes of at most {per_cent(found['bound'])} of each demand between successive "
        lines.append(words + _changes(found))
    return lines


def _changes(found: Mapping[str, Any]) -> str:
    """What a bound on changes does at later matrices, where there are some."""
    if "matrices" not in found:
        return "answers of predict and serve, and further where a link would be overloaded."
    return (
        f"answers: at {_part(found['held'], found['matrices'])} later matrices answers were held "
        f"back, at {_part(found['yielded'], found['matrices'])} they moved further so that no link "
        f"is overloaded. {per_cent(found['mean_moved'])} of the traffic changes path from one "
        f"matrix to the next, {per_cent(found['mean_moved_without'])} without the bound; the MLU "
        f"is {per_cent(found['mean_growth'] - 1)} higher on average, "
        f"{per_cent(found['p99_growth'] - 1)} at the 99th percentile."
    )


def per_cent(share: float) -> str:
    return f"{100 * share:.3g} %"


def describe_ratio(summary: Mapping[str, Any]) -> str:
    """How far from the optimum the router can be, and who checked that."""
    proof = summary["ratio_proof"]
    words = (
        f"At every demand vector of the set MLU <= {summary['ratio']:g} x the optimum over these "
        f"paths, in {number_of(summary['ratio_leaves'], 'cell')} of demands (with one cell "
        f"{summary['ratio_whole']:g})"
    )
    if proof["status"] != "proven":
        words = f"NOT PROVEN: {words}; the checker did not accept the proof: {proof['note']}."
    elif "file" in proof:
        words += f": proven, check it with cg4ai check {proof['file']}."
    else:
        words += ": proven, and accepted by the checker; --out keeps the proof."
    if not _as_asked(summary):
        words += f" Asked for was {summary['ratio_asked']:g}: NOT KEPT."
    return words


def _as_asked(summary: Mapping[str, Any]) -> bool:
    asked = summary.get("ratio_asked")
    return bool(asked is None or summary["ratio"] <= asked)


def is_ratio_kept(summary: Mapping[str, Any]) -> bool:
    """Whether a ratio is proven, and not above the one that was asked for."""
    most = summary.get("ratio_asked") or math.inf
    return bool(summary["ratio_proof"]["status"] == "proven" and summary["ratio"] <= most)


def set_of(summary: Mapping[str, Any]) -> str:
    """The demand vectors that the guarantee covers, in words."""
    return str(summary.get("demand_set", USUAL_SET))
