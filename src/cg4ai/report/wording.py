"""Results in numbers, as a run's summary keeps them, and the words that all applications use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cg4ai.apps.protocol import Rule
from cg4ai.colgen.result import Result
from cg4ai.ensemble.audit import Audit
from cg4ai.ensemble.verdict import describe_coverage
from cg4ai.records import StopReason, Strength
from cg4ai.report.story import Finding

SHOWN = 5  # violated rows of each rule that are named

STOPS = {
    StopReason.OPTIMAL: "proven: no further member of this kind can improve the mixture",
    StopReason.INFEASIBLE: "proven: no mixture of members of this kind can keep all rules",
    StopReason.NO_IMPROVING_COLUMN: "training found no further member that improves the mixture",
    StopReason.PROVEN: "the rules are proven at every input of their regions",
    StopReason.STALLED: "the rules are kept and the objective hardly improves any more",
    StopReason.ROUND_LIMIT: "the rules are kept after as many rounds of training as asked for",
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


def format_count(number: int, what: str) -> str:
    """`1 iteration`, `2 iterations`, `2 matrices`."""
    if number != 1:
        what = what.removesuffix("ix") + "ices" if what.endswith("ix") else f"{what}s"
    return f"{number} {what}"


def describe_stop(summary: Mapping[str, Any], words: Mapping[StopReason, str] = STOPS) -> str:
    """When training ended and why, in these words, or in those about a single model."""
    reason = StopReason(summary["stop_reason"])
    why = SINGLE_STOPS.get(reason, words[reason]) if summary.get("single") else words[reason]
    return (
        f"Stopped after {format_count(summary['iterations'], 'iteration')} and "
        f"{summary['total_s']:.1f} s: {why}."
    )


def describe_optimality(summary: Mapping[str, Any], quantity: str) -> list[str]:
    """How far the quantity that was minimised can be from its optimum; single models say it."""
    if summary.get("single"):
        return []
    return [f"Optimality gap of {quantity}: {summary['distance']}."]


def describe_seconds(summary: Mapping[str, Any], searching: str = "separation") -> str:
    """The seconds of each step."""
    return (
        f"Seconds: preparing {summary['preparing_s']:.1f}, pricing {summary['pricing_s']:.1f}, "
        f"{searching} {summary['separation_s']:.1f}, master {summary['master_s']:.1f}, total "
        f"{summary['total_s']:.1f}; evaluation {summary['evaluation_s']:.1f}."
    )


def describe_closing(summary: Mapping[str, Any], members: str = "") -> str:
    """The time that training took, and how many members the mixture has."""
    count = summary["active_members"]
    model = members or (
        "1 model has all the weight" if count == 1 else f"{count} models in the mixture"
    )
    return f"Trained in {summary['total_s']:.0f} s; {model}."


def describe_cut(summary: Mapping[str, Any]) -> list[str]:
    """One sentence on what the time limit ended or left out, if it did: the first of a result."""
    cut = summary.get("cut")
    return [f"Cut short by the time limit: {'; '.join(cut)}."] if cut else []


def list_remarks(summary: Mapping[str, Any]) -> list[str]:
    """Rules that contradict each other, the one model that was asked for, and notes of the run."""
    conflict, note, single = (summary.get(name) for name in ("conflict", "note", "single"))
    return [
        *([_sentence(single["text"])] if single else []),
        *([f"Conflict: {conflict}."] if conflict else []),
        *([f"Note: {note}."] if note else []),
    ]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


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


def summarise_result(result: Result, rules: Sequence[Rule]) -> dict[str, Any]:
    """What summary.json holds: the result in numbers and words, without the members."""
    return {
        "stop_reason": result.stop_reason.value,
        "stopped_because": (SINGLE_STOPS if result.single is not None else {}).get(
            result.stop_reason, STOPS[result.stop_reason]
        ),
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
        source = "" if origin is None else rule.format_source(int(origin[j, 0]))
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


def finding_of(entry: Mapping[str, Any], *, rule: str = "") -> Finding:
    """What one audit of a summary establishes; of earlier versions' patches the statement alone."""
    strength, kept = Strength(entry["strength"]), bool(entry["holds"])
    doubtful, where = bool(entry.get("doubtful")), ""
    if "place" in entry:
        counts = {name: entry[name] for name in ("rows", "satisfied", "worst_violation")}
        where = describe_coverage(strength, entry["place"], holds=kept, **counts)
    more = [f"missed by {one['missed_by']:.3g}: {_where(one)}" for one in _worst(entry)[:SHOWN]]
    if len(_worst(entry)) > SHOWN:
        more.append(f"and {len(_worst(entry)) - SHOWN} more")
    more += [rate["text"] for rate in entry.get("rates", ())]
    if rates := entry.get("decision_rates"):
        shares = ", ".join(f"{name}: {rate:.4g}" for name, rate in rates.items())
        more.append(f"decisions at one half (not bound by the rule): {shares}")
    return Finding(
        rule=rule or str(entry["requirement"]),
        strength=strength if kept else Strength.VIOLATED,
        kept=kept,
        statement=f"{entry['statement']}.",
        more=tuple(more),
        coverage=where,
        doubtful=doubtful,
    )


def _worst(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(entry.get("violated", ()))


def _where(one: Mapping[str, Any]) -> str:
    return f"{one['text']} ({one['source']})" if one["source"] else str(one["text"])


def class_names(findings: Sequence[Finding], outputs: Sequence[str]) -> list[str]:
    """The names of the classes that rows of violated rules count, where there are some."""
    if len(outputs) < 2 or all(one.kept for one in findings):
        return []
    names = ", ".join(f"{number} = {name}" for number, name in enumerate(outputs))
    return [f"Classes, as violated rows count them: {names}."]


def audit_row(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What a table shows of one audit."""
    listed = entry["strength"] == Strength.AUDITED
    worst, holds = entry["worst_violation"], entry["holds"]
    return {
        "rule": entry["requirement"],
        "holds": "NO" if not holds else "listed rows only" if entry.get("doubtful") else "yes",
        "strength": entry["strength"],
        "rows that hold": f"{entry['satisfied']} of {entry['rows']}" if listed else "",
        "margin": f"{max(0.0, -worst):.3g}" if holds else f"missed by {worst:.3g}",
    }
