"""A routing run in words: what was trained, what was established, and where the time went."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cg4ai.apps.protocol import Guarantee
from cg4ai.records import StopReason, Strength
from cg4ai.report.tables import plain
from cg4ai.report.wording import (
    STOPS,
    cut_short,
    distance_from_optimal,
    preparing,
    remarks,
    single_model,
    stopped_because,
)
from cg4ai.report.wording import counted as number_of
from cg4ai.routing.demands.scaling import (
    both,
    counted,
    factor_of,
    kept,
    of_capacity,
    rule_name,
    said_first,
)
from cg4ai.routing.operate.later_traffic import in_words
from cg4ai.routing.prove.attack import FEASIBLE, UNROUTED
from cg4ai.routing.train.effort import VALIDATION

MIXES_SAID = {
    "uniform": "uniform",
    "sparse": "sparse (a tenth of the demands)",
    "lognormal": "lognormal",
    "gravity": "gravity (weights of nodes)",
    "corner": "near the largest",
}
MEMBERS = {"network": "networks", "tree": "trees", "both": "networks and trees"}
MINIMISED = {
    "mlu": "mean MLU over the training scenarios, rare large gaps counted in",
    "split": "mean squared distance to the optimal splits of the training scenarios",
    "cost": "mean path cost over the training scenarios",
    "traffic": "mean MLU over the optimum of earlier matrices, rare large ratios counted in",
}
BY_MIX = (
    "Distance from the best routing over these paths, by mixes of demands, on vectors that "
    "training never saw"
)
ROUNDING, SMALL = 1e-9, 5e-4  # between these, gaps are told with two digits
SAME = 1e-9  # by which a scale may differ from one and still be none
SET, USUAL_SET = "Demand vectors:", "every demand between zero and its largest volume"
STOPPED = {
    **STOPS,
    StopReason.STALLED: "no overload is left and the mixture hardly improves any more",
}

# what whoever splits a demand reads, and what a shield does then
AGENTS = {
    "all": [],
    "own": ["Agents: each demand is split by what is known of that demand alone."],
    "source": ["Agents: each node splits its demands by what is known of these alone."],
}
BUDGET = "an agent would exceed its budget on one, its splits are moved towards its part of"
MOVED = {
    "all": "the networks would, their splits are moved towards",
    "own": BUDGET,
    "source": BUDGET,
}


def report(summary: Mapping[str, Any]) -> str:
    """The result for people: a table, what is guaranteed, where the time went."""
    scaled = said_first(factor_of(summary))
    lines = [
        *cut_short(summary),
        *scaled,
        returned(summary),
        *about(summary)[len(scaled) :],
        stopped(summary),
        "",
        plain(comparison(summary)),
        *_measured_at(summary),
        *_by_mix(summary),
        *_beside(summary),
        guarantee(summary),
        *ratio(summary),
        *(in_words(summary["traffic"], factor_of(summary)) if "traffic" in summary else ()),
        "",
        *mixture(summary),
        *distance(summary),
        f"Seconds: {preparing(summary)}training {summary['pricing_s']:.1f}, searching overloads "
        f"{summary['separation_s']:.1f}, master {summary['master_s']:.1f}, total "
        f"{summary['total_s']:.1f}; evaluation {summary['evaluation_s']:.1f}.",
        *speed(summary),
        *remarks(summary),
    ]
    return "\n".join(lines)


def about(summary: Mapping[str, Any]) -> list[str]:
    """What the router is for, and what of the user's figures was left out or scaled."""
    factor = factor_of(summary)
    paths = number_of(summary["paths"], "path")
    each = " each" if summary["demands"] > 1 else ""
    return [
        *said_first(factor),
        f"{summary['network']}: {number_of(summary['demands'], 'demand')}, up to {paths}{each}, "
        f"{number_of(summary['links'], 'link')} in use; {_worst_case(summary)} loads some link "
        f"to {both(summary['corner_mlu'], factor, '.6g')}.",
        *_set(summary),
        *AGENTS[summary.get("sees", "all")],
        *(f"{note[0].upper()}{note[1:]}." for note in summary.get("notes", ())),
        *_scaling(summary),
    ]


def stopped(summary: Mapping[str, Any]) -> str:
    """When training ended, and why."""
    return (
        f"Stopped after {number_of(summary['iterations'], 'iteration')} and "
        f"{summary['total_s']:.1f} s: {_reason(summary)}."
    )


def distance(summary: Mapping[str, Any]) -> list[str]:
    """How far from optimal the objective of training can be."""
    minimised = MINIMISED["traffic" if _from_traffic(summary) else summary["objective"]]
    return distance_from_optimal(summary, minimised)


def _from_traffic(summary: Mapping[str, Any]) -> bool:
    """Whether it learned from traffic; older summaries say it by what they judge it on."""
    return bool(summary.get("from_traffic", "traffic" in summary))


def _worst_case(summary: Mapping[str, Any]) -> str:
    if "limits" in summary.get("demand_set", ""):
        return "the best constant split, at its worst vector of the set,"
    return "the best routing of the largest demands over these paths"


def _set(summary: Mapping[str, Any]) -> list[str]:
    """The set of demands, where it is not the usual box."""
    words = summary.get("demand_set", USUAL_SET)
    return [] if words == USUAL_SET else [f"{SET} {words}."]


def ratio(summary: Mapping[str, Any]) -> list[str]:
    """How far from the optimum the router can ever be, where that was asked for."""
    if "ratio" not in summary:
        return []
    words = (
        f"At every demand vector of the set MLU <= {summary['ratio']:g} x the optimum over these "
        "paths, in "
        f"{number_of(summary['ratio_leaves'], 'cell')} of demands (without cells "
        f"{summary['ratio_whole']:g})"
    )
    proof, asked = summary["ratio_proof"], summary.get("ratio_asked")
    missed = (
        "" if asked is None or summary["ratio"] <= asked else f" Asked for was {asked:g}: NOT KEPT."
    )
    if proof["status"] != "proven":
        return [
            f"NOT PROVEN: {words}; the checker did not accept the proof: {proof['note']}.{missed}"
        ]
    if "file" not in proof:
        return [f"{words}: proven, and accepted by the checker; --out keeps the proof.{missed}"]
    return [f"{words}: proven, check it with cg4ai check {proof['file']}.{missed}"]


def ratio_kept(summary: Mapping[str, Any]) -> bool:
    """Whether a ratio is proven, and not above the one that was asked for."""
    most = summary.get("ratio_asked") or math.inf
    return bool(summary["ratio_proof"]["status"] == "proven" and summary["ratio"] <= most)


def _reason(summary: Mapping[str, Any]) -> str:
    reason = StopReason(summary["stop_reason"])
    whole = summary["guarantee"] == "shielded" or summary["members"] == "tree"
    if whole and reason is StopReason.ITERATION_LIMIT:
        return f"as many {MEMBERS[summary['members']]} as planned were trained"
    return stopped_because(reason, single=bool(summary.get("single")), words=STOPPED)


def comparison(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The router, and plain networks where they were trained, a row each."""
    routers, factor = [("this mixture", ""), ("plain networks", "plain_")], factor_of(summary)
    return [
        {
            "": name,
            f"worst link utilisation found{counted(factor)}": (
                f"{summary[f'{key}worst_utilisation']:.6f}"
            ),
            **_real("worst link utilisation", summary[f"{key}worst_utilisation"], factor),
            "overload found": summary[f"{key}worst_utilisation"] > FEASIBLE,
            **_distance(summary, key),
        }
        for name, key in routers
        if f"{key}worst_utilisation" in summary
    ]


def _distance(summary: Mapping[str, Any], key: str) -> dict[str, str]:
    """How far a router is from the best routing, by what it was trained for."""
    if summary["objective"] == "cost":
        gap = summary.get(f"{key}mean_cost_gap")
        known = _known(None) if gap is None else per_cent_above(gap)
        return {"path cost, the cheapest that fits being 0": known}
    factor = factor_of(summary)
    mean, largest = (summary.get(f"{key}{name}_mlu_gap") for name in ("mean", "max"))
    return {
        f"MLU above optimal{counted(factor)}, mean": _known(mean),
        "largest": _known(largest),
        **_real("mean", mean, factor),
        **_real("largest", largest, factor),
    }


def _real(what: str, value: float | None, factor: float | None) -> dict[str, str]:
    """A column more of the real capacity, where another is counted and it is known."""
    if factor is None or factor == 1.0 or value is None:
        return {}
    return {f"{what}, of the real capacity": f"{factor * value:.4f}"}


def _measured_at(summary: Mapping[str, Any]) -> list[str]:
    """At how many vectors distances were measured, where these are fewer than usual."""
    count = summary.get("validation")
    if not count or count >= VALIDATION or summary.get("mean_mlu_gap") is None:
        return []
    return [f"Distances from optimal were measured at {number_of(count, 'demand vector')}."]


def by_mix(summary: Mapping[str, Any]) -> list[dict[str, str]]:
    """How far the router is from the best routing on each mix of demands, a row each."""
    of = counted(factor_of(summary))
    return [
        {
            "demands": MIXES_SAID[mix],
            "vectors": f"{found['vectors']:,}",
            f"MLU{of} above optimal, mean": _known(found["mean_mlu_gap"]),
            "largest": _known(found["max_mlu_gap"]),
            "MLU over the optimum, mean": f"{found['mean_ratio']:.4f}",
            "worst": f"{found['max_ratio']:.4f}",
            **(
                {"path cost above the cheapest": per_cent_above(found["mean_cost_gap"])}
                if "mean_cost_gap" in found
                else {}
            ),
        }
        for mix, found in summary.get("mixes", {}).items()
    ]


def _by_mix(summary: Mapping[str, Any]) -> list[str]:
    """That table, where it was measured."""
    rows = by_mix(summary)
    return [f"{BY_MIX}:", plain(rows)] if rows else []


def _beside(summary: Mapping[str, Any]) -> list[str]:
    """Where plain networks overload, if that was found."""
    worst = summary.get("plain_worst_utilisation")
    if worst is None or worst <= FEASIBLE:
        return []
    often = ""
    if "plain_overloaded" in summary:
        count = summary["validation"]
        hit = round(summary["plain_overloaded"] * count)
        often = f", and some link at {hit:,} of {count:,} validation vectors"
    return [
        f"Plain networks overload link {'->'.join(summary['plain_worst_link'])} to "
        f"{100 * worst:.4g} % of its capacity at the worst vector found{often}.",
        "",
    ]


def _known(value: float | None) -> str:
    """Of lightly loaded links two digits, since four places would say 0; never -0.0000."""
    if value is None:
        return "not measured"
    small = ROUNDING < abs(value) < SMALL
    return f"{value:.2g}" if small else f"{round(value, 4) + 0.0:.4f}"


def per_cent_above(share: float) -> str:
    """A share as per cent more or less; what rounds to nothing has no sign of less."""
    return f"{round(100 * share, 2) + 0.0:+.2f} %"


def _scaling(summary: Mapping[str, Any]) -> list[str]:
    """What demands are of the user's; notes say by what they were multiplied."""
    if _from_traffic(summary):
        as_given = ", capacities as given" if factor_of(summary) == 1.0 else ""
        return [f"Demands are in the units of the traffic{as_given}."]
    if summary["load"] is None:
        return ["The largest demands are the network's volumes as given."]
    if summary.get("notes") and abs(summary["scale"] - 1) > SAME:
        return []
    return [
        f"The largest demands are the network's volumes times {summary['scale']:.6g} (load "
        f"{summary['load']:g})."
    ]


def speed(summary: Mapping[str, Any]) -> list[str]:
    """A batch, a single answer and a program side by side; older runs timed no single answers."""
    if "single_answer_s" not in summary:
        return _older_speed(summary)
    single, batch, program = (
        milliseconds(summary[name])
        for name in ("single_answer_s", "batch_answer_s", "program_answer_s")
    )
    return [
        f"Speed, per answer: {single} for one demand vector alone, {batch} in a batch of "
        f"{summary['timed']:,}; a linear program from a warm start takes {program}."
    ]


def _older_speed(summary: Mapping[str, Any]) -> list[str]:
    if "speedup" not in summary:
        return []
    batch, program = (
        milliseconds(summary[name] / 1000) for name in ("predict_1000_s", "highs_1000_s")
    )
    return [
        f"Speed, per answer: {batch} in a batch; a linear program from a warm start takes "
        f"{program}. Single answers were not timed."
    ]


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.2g} ms" if seconds < 0.1 else f"{1000 * seconds:.0f} ms"


def returned(summary: Mapping[str, Any]) -> str:
    """What predicts: how many trained members and constant splits."""
    constants = summary["active_constants"]
    trained = summary["active_members"] - constants
    anchors = number_of(constants, _anchor(summary))
    if not trained:
        only = "" if "ratio" in summary else ": splits are the same whatever the demands"
        return f"NO TRAINED MEMBER IS RETURNED, but {anchors} alone{only}."
    members = _of_kind(trained, summary)
    return f"Returned: {members} and {anchors}." if constants else f"Returned: {members}."


def _anchor(summary: Mapping[str, Any]) -> str:
    return "flow anchor" if "ratio" in summary else "constant split"


def _of_kind(count: int, summary: Mapping[str, Any]) -> str:
    kind = {"network": "network", "tree": "tree", "both": "network or tree"}[summary["members"]]
    plural = MEMBERS[summary["members"]].replace(" and ", " or ")
    return f"{count} {kind if count == 1 else plural}"


def mixture(summary: Mapping[str, Any]) -> list[str]:
    """Networks and constant splits apart, and the rows by where they come from."""
    constants, active = summary["constants"], summary["active_constants"]
    networks, kept = summary["columns"] - constants, summary["active_members"] - active
    rows = f"{summary['rows']} rows in the master"
    if summary.get("capacity_rows"):
        rows += (
            f", {summary['capacity_rows']} of them of capacities, {summary['found_rows']} of "
            "these found by search"
        )
    elif "found_rows" in summary:
        rows += ", none of them of capacities"
    trained, left = _of_kind(networks, summary), _of_kind(kept, summary)
    anchor = _anchor(summary)
    return [
        f"Members: {trained} trained beside {number_of(constants, anchor)}; {left} and "
        f"{number_of(active, anchor)} in the mixture; {rows}.",
        *single_model(summary),
    ]


def guarantee(summary: Mapping[str, Any]) -> str:
    """What was established, and how; never more than that."""
    missing, factor = summary.get("unrouted", 0.0), factor_of(summary)
    if missing > UNROUTED:
        return f"NOT KEPT: {100 * missing:.3g} % of a demand is not routed, or routed twice."
    within = summary["worst_utilisation"] <= FEASIBLE
    effort = summary["attack"]
    established = kept(_established(summary), factor) if within else ""
    if "shield" in summary and within:
        return f"{established}\n{_shield(summary['shield'], summary)}"
    if within and summary["members"] == "tree" and not effort:
        return established
    if not effort:
        verdict = established or (
            "NOT KEPT: an overload was found, of a link loaded to "
            f"{of_capacity(summary['worst_utilisation'], factor, '.6f')}."
        )
        if "shield" in summary:
            return verdict
        return f"{verdict}\nNot searched any further: the time was over."
    arc = "->".join(effort["arc"])
    search = (
        f"Searched: {number_of(effort['ascent_starts'], 'gradient ascent')} of "
        f"{number_of(effort['ascent_steps'], 'step')}, "
        f"{effort['vertices']} vertices of the box, {effort['random_vectors']} random vectors, "
        f"NLopt from the {effort['nlopt_starts']} worst. Worst: link {arc}, by "
        f"{effort['found_by']}."
    )
    verdict = (
        established
        if within
        else "NOT KEPT: a demand vector was found that loads link "
        f"{'->'.join(summary.get('worst_link', effort['arc']))} to "
        f"{of_capacity(summary['worst_utilisation'], factor, '.6f')}."
    )
    return f"{verdict}\n{search}"


def guarantees(summary: Mapping[str, Any]) -> list[Guarantee]:
    """The one rule of a router, and its distance from the optimum where that was asked for."""
    words, *_ = guarantee(summary).splitlines()
    holds = not words.startswith("NOT KEPT")
    strength = summary["strength"] if holds else Strength.VIOLATED
    found = [Guarantee(rule_name(factor_of(summary)), holds, str(strength), words)]
    for line in ratio(summary):
        proven = summary["ratio_proof"]["status"] == "proven"
        strength = Strength.CERTIFIED if proven else Strength.UNVERIFIED
        found.append(Guarantee("ratio", ratio_kept(summary), str(strength), line))
    return found


def _shield(measured: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """How much of the routing is the shield's work."""
    factor, validation = factor_of(summary), summary.get("validation") or 0
    return (
        f"The shield acts on {_part(measured['acting'], validation)} validation vectors and on "
        f"{_part(measured['adversarial_acting'], measured['inputs'])} adversarial ones "
        "(random, near the largest demands, vertices, gradient ascent). Among these the worst link "
        f"is loaded to {both(measured['worst'], factor, '.6f')}, without the shield to "
        f"{both(measured['worst_unshielded'], factor, '.6f')}."
    )


def _part(share: float, count: int) -> str:
    """How many of a number: `none of 200`, `3 of 200 (1.5 %)`, `all 200`."""
    hit = round(share * count)
    if hit in (0, count):
        return f"all {count:,}" if hit else f"none of {count:,}"
    percent = min(100 * share, 99.9)  # what is not all of them is not rounded up to it
    return f"{hit:,} of {count:,} ({percent:.{3 if percent >= 10 else 2}g} %)"


def _established(summary: Mapping[str, Any]) -> str:
    """In one sentence, why no demand vector of the set overloads a link."""
    if summary["strength"] == Strength.CERTIFIED:
        proof = summary.get("certificate") or summary["proof"]  # `certify` writes the former alone
        return (
            "PROVEN: no demand vector of the set overloads a link (certified: "
            f"{proof['cells']} {'leaves' if summary['members'] == 'tree' else 'cells'} bounded in "
            f"{proof['seconds']:.1f} s; check the certificate with cg4ai check)."
        )
    if summary["strength"] == Strength.SHIELDED:
        proof = "; check the certificate with cg4ai check" if "certificate" in summary else ""
        return (
            "No demand vector of the set can overload a link (shielded: where "
            f"{MOVED[summary.get('sees', 'all')]} a constant split that fits the whole set{proof})."
        )
    attacked = (
        "No demand vector of the set was found that overloads a link (attacked: a search is no "
        "proof)."
    )
    if summary["strength"] == Strength.UNVERIFIED and summary.get("sees", "all") != "all":
        return (
            "NOT PROVEN: no overload was found, but the checker accepts no proof that the agents' "
            "budgets fit the capacities; ask for a smaller --load, which leaves room for one."
        )
    if "proof" not in summary:
        return attacked
    if summary["strength"] == Strength.UNVERIFIED:
        attacked = ""
    left = summary["proof"]["resisting"]
    links = ", ".join("->".join(entry["link"]) for entry in left[:5])
    links += f" and {len(left) - 5} more" if len(left) > 5 else ""
    resist = "1 link resists" if len(left) == 1 else f"{len(left)} links resist"
    bound = summary["proof"]["best_bound"]
    known = "no bound yet" if bound is None else f"best bound {bound:.4f}"
    return f"NOT PROVEN: {resist} ({links}); {known}. {attacked}".rstrip()
