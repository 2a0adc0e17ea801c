"""Results in words and numbers: the summary that a run keeps, and the report people read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cg4ai.apps.protocol import Guarantee, Rule
from cg4ai.colgen.result import Result
from cg4ai.ensemble.audit import Audit
from cg4ai.records import StopReason, Strength
from cg4ai.report.tables import plain

SHOWN = 5  # violated rows of each requirement that the report names

STOPS = {
    StopReason.OPTIMAL: "proven: no further member of this kind can improve the mixture",
    StopReason.INFEASIBLE: "proven: no mixture of members of this kind can keep all rules",
    StopReason.NO_IMPROVING_COLUMN: "training found no further member that improves the mixture",
    StopReason.PROVEN: "the rules are proven at every input of their regions",
    StopReason.STALLED: "the rules are kept and the objective hardly improves any more",
    StopReason.COLUMN_LIMIT: "the limit on members was reached",
    StopReason.ITERATION_LIMIT: "the limit on iterations was reached",
    StopReason.TIME_LIMIT: "the time limit was reached",
    StopReason.CALLBACK: "a callback ended it",
    StopReason.INTERRUPTED: "it was interrupted",
}
# where one model was asked for, these are about single members
SINGLE_STOPS = {
    StopReason.OPTIMAL: "proven: no single member of this kind that keeps the rules is better",
    StopReason.INFEASIBLE: "proven: no single member of this kind can keep all rules",
    StopReason.NO_IMPROVING_COLUMN: "training found no better single member",
}
STRENGTHS = {
    Strength.VIOLATED: "found broken",
    Strength.UNVERIFIED: "nothing is established",
    Strength.AUDITED: "recomputed at every listed input; says nothing of other inputs",
    Strength.ATTACKED: "violations were searched for in the region; a search is no proof",
    Strength.BOUNDED: "a solver's bound excludes violations in the region; unchecked",
    Strength.CERTIFIED: "proven at every input of the region",
    Strength.CONSTRUCTED: "kept at every input by how every member is built",
    Strength.SHIELDED: "kept at every input of the region by correcting predictions",
}


def counted(number: int, what: str) -> str:
    """`1 iteration`, `2 iterations`, `2 matrices`."""
    if number != 1:
        what = what.removesuffix("ix") + "ices" if what.endswith("ix") else f"{what}s"
    return f"{number} {what}"


def preparing(summary: Mapping[str, Any]) -> str:
    """What came before the first iteration, as the start of a list of seconds."""
    return f"preparing {summary['preparing_s']:.1f}, "


def stopped_because(
    reason: StopReason, *, single: bool, words: Mapping[StopReason, str] = STOPS
) -> str:
    """Why a run ended, in these words, or in those about single members."""
    return SINGLE_STOPS.get(reason, words[reason]) if single else words[reason]


def single_model(summary: Mapping[str, Any]) -> list[str]:
    """One sentence on the one model that was asked for, if it was."""
    single = summary.get("single")
    return [f"{single['text'][0].upper()}{single['text'][1:]}."] if single else []


def cut_short(summary: Mapping[str, Any]) -> list[str]:
    """One sentence on what the time limit ended or left out, if it did: the first of a result."""
    cut = summary.get("cut")
    return [f"Cut short by the time limit: {'; '.join(cut)}."] if cut else []


def contradicting(summary: Mapping[str, Any]) -> list[str]:
    """One sentence on the rules that cannot all be kept, if some were found."""
    conflict = summary.get("conflict")
    return [f"Conflict: {conflict}."] if conflict else []


def remarks(summary: Mapping[str, Any]) -> list[str]:
    """What whoever reads a result must keep in mind, beside what was cut."""
    note = summary.get("note")
    return [
        *contradicting(summary),
        *([f"Note: {note}."] if note else []),
    ]


def outcome_in_numbers(result: Result, *, preparing_s: float = 0.0) -> dict[str, Any]:
    """What every summary holds; the seconds of the steps sum to the total."""
    return {
        "stop_reason": result.stop_reason.value,
        "iterations": len(result.history),
        "columns": result.columns,
        "rows": result.rows,
        "active_members": len(result.ensemble),
        "single": None if result.single is None else result.single.as_data(),
        **_distance(result),
        "preparing_s": preparing_s,
        **result.seconds_by_step(),
        "total_s": preparing_s + result.seconds,
        "note": result.note,
        "conflict": None if result.conflict is None else str(result.conflict),
    }


def _distance(result: Result) -> dict[str, Any]:
    """How far from optimal it is, in words and numbers: what is proven stands under `gap`."""
    known = result.estimated
    least = None if known is None or result.gap is not None else known.proven
    if least is None:
        bound, gap, estimated = result.bound, result.gap, result.estimated_gap
    else:
        bound, gap, estimated = least, max(0.0, result.objective - least), None
    return {
        "bound": bound,
        "gap": gap,
        "estimated_gap": estimated,
        "distance": result.distance,
    }


def distance_from_optimal(summary: Mapping[str, Any], quantity: str) -> list[str]:
    """One sentence on that distance in the quantity minimised; single models have their own."""
    if summary.get("single"):
        return []
    return [f"Distance from optimal, in {quantity}: {summary['distance']}."]


def summary(result: Result, rules: Sequence[Rule]) -> dict[str, Any]:
    """What summary.json holds: the result in numbers and words, without the members."""
    return {
        "stop_reason": result.stop_reason.value,
        "stopped_because": stopped_because(result.stop_reason, single=result.single is not None),
        "feasible": result.feasible,
        "objective": result.objective,
        "loss": result.loss,
        **_distance(result),
        "slack": result.slack,
        "iterations": len(result.history),
        "columns": result.columns,
        "rows": result.rows,
        "active_members": len(result.ensemble),
        "single": None if result.single is None else result.single.as_data(),
        "audits": [
            audit_entry(audit, rule) for audit, rule in zip(result.audits, rules, strict=True)
        ],
        "outputs": list(rules[0].outputs) if rules else [],
        "note": result.note,
        "shield": None if result.shield is None else str(result.shield),
        "seconds": result.seconds,
    }


def audit_entry(audit: Audit, rule: Rule) -> dict[str, Any]:
    """One audit as plain data; violated rows worst first, with the line of the file they are on."""
    statement, *_ = str(audit).splitlines()
    listed_rows = rule.requirement.rows(0)
    origin = None if listed_rows is None else listed_rows.origin
    violated = []
    for j, size, text in zip(audit.violated, audit.violations, audit.descriptions, strict=True):
        source = "" if origin is None else rule.source(int(origin[j, 0]))
        if origin is not None and rule.names:
            text = f"{audit.requirement}: {rule.names[int(origin[j, 1])]}"
        violated.append({"missed_by": float(size), "text": text, "source": source})
    return {
        "requirement": audit.requirement,
        "holds": audit.holds,
        "doubtful": audit.doubtful,
        "strength": audit.strength,
        "place": audit.place,
        "rows": audit.rows,
        "satisfied": audit.satisfied,
        "worst_violation": audit.worst_violation,
        "tolerance": audit.tolerance,
        "statement": statement,
        "violated": violated,
        "rates": [{"text": str(rate), **asdict(rate)} for rate in audit.rates],
        "decision_rates": {str(name): rate for name, rate in audit.decision_rates.items()},
        "effort": dict(audit.effort),
    }


def guarantee_of(entry: Mapping[str, Any]) -> Guarantee:
    """One audit of a summary, for whoever is told what holds."""
    strength = entry["strength"] if entry["holds"] else Strength.VIOLATED
    return Guarantee(
        entry["requirement"],
        entry["holds"],
        str(strength),
        entry["statement"],
        doubtful=bool(entry.get("doubtful")),
    )


def report(result: dict[str, Any]) -> str:
    """The report on a summary."""
    lines = trained(result)
    lines += contradicting(result)
    if result["note"]:
        lines.append(f"Note: {result['note']}.")
    if result["audits"]:
        lines += ["", audit_report(result["audits"], result["outputs"])]
    else:
        lines += ["", "There were no rules, so nothing is guaranteed."]
    return "\n".join(lines)


def trained(result: Mapping[str, Any]) -> list[str]:
    """How training ended, and what came of it."""
    lines = [
        f"Stopped after {counted(result['iterations'], 'iteration')} and "
        f"{result['seconds']:.1f} s: {result['stopped_because']}.",
        f"{_members(result)}; its loss on the data is {result['loss']:.5g}.",
        *single_model(result),
        *distance_from_optimal(result, f"the objective (here {result['objective']:.5g})"),
    ]
    if result.get("shield"):
        lines.append(f"{result['shield'].capitalize()}.")
    return lines


def _members(result: Mapping[str, Any]) -> str:
    """Which of the members that were trained predict."""
    active, trained = result["active_members"], result["columns"]
    if active == 1:
        return f"One of {counted(trained, 'trained member')} makes up the model"
    return f"Of {trained} trained members {active} make up the mixture"


def audit_report(entries: Sequence[dict[str, Any]], outputs: Sequence[str] = ()) -> str:
    """A table of the requirements, what each strength means, and the rows that are violated."""
    table = plain([audit_row(entry) for entry in entries], digits=3)
    broken = [entry for entry in entries if not entry["holds"]]
    met = len(entries) - len(broken)
    lines = [f"{met} of {len(entries)} requirements met", ""]
    lines += [f"  {line}" for line in table.splitlines()]
    searched = [one["requirement"] for one in entries if one["strength"] == "attacked"]
    if searched:
        lines += ["", f"NOT PROVEN at every input: {', '.join(searched)} (searched only)"]
    doubtful = [one["requirement"] for one in entries if one.get("doubtful")]
    if doubtful:
        lines += ["", f"LIKELY VIOLATED on new rows: {', '.join(doubtful)} (by held-out rows)"]
    lines += ["", "What this means"]
    for strength in dict.fromkeys(entry["strength"] for entry in entries):
        lines.append(f"  {strength}: {STRENGTHS[Strength(strength)]}")
    for entry in entries:
        lines.append(f"  - {entry['statement']}")
        lines += [f"    {rate['text']}" for rate in entry["rates"]]
        if entry["decision_rates"]:
            rates = ", ".join(
                f"{name}: {rate:.4g}" for name, rate in entry["decision_rates"].items()
            )
            lines.append(f"    decisions at one half (not bound by the rule): {rates}")
    if broken:
        lines += ["", "Not met, worst first"]
        for entry in broken:
            lines += [f"  {line}" for line in violated(entry)]
        if len(outputs) > 1:
            names = ", ".join(f"{number} = {name}" for number, name in enumerate(outputs))
            lines.append(f"  (classes: {names})")
    return "\n".join(lines)


def audit_row(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What a table shows of one audit."""
    listed = entry["strength"] == Strength.AUDITED
    worst, holds = entry["worst_violation"], entry["holds"]
    return {
        "requirement": entry["requirement"],
        "met": "NO" if not holds else "listed rows only" if entry.get("doubtful") else "yes",
        "strength": entry["strength"],
        "rows met": f"{entry['satisfied']} of {entry['rows']}" if listed else "",
        "closest": f"{max(0.0, -worst):.3g} to spare" if holds else f"missed by {worst:.3g}",
    }


def violated(entry: Mapping[str, Any]) -> list[str]:
    """The worst rows that one requirement misses, and how many there are."""
    lines = []
    for one in entry["violated"][:SHOWN]:
        source = f" ({one['source']})" if one["source"] else ""
        lines.append(f"missed by {one['missed_by']:.3g}: {one['text']}{source}")
    if len(entry["violated"]) > SHOWN:
        lines.append(f"and {len(entry['violated']) - SHOWN} more of {entry['requirement']}")
    return lines
