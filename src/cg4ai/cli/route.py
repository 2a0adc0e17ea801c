"""`cg4ai route`: train a router that overloads no link, and say in words what was established."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cg4ai.apps.routing.data import Instance
from cg4ai.apps.routing.saved import Wanted, open_run, prepare, train_and_save
from cg4ai.apps.routing.separation import FEASIBLE
from cg4ai.cli.progress import progress
from cg4ai.cli.tables import plain
from cg4ai.cli.wording import STOPS
from cg4ai.errors import InvalidInput
from cg4ai.records import StopReason
from cg4ai.runs import files

KEPT, NOT_KEPT, INTERRUPTED = 0, 3, 130
STOPPED = {
    **STOPS,
    StopReason.STALLED: "no overload is left and the mixture hardly improves any more",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteOptions:
    """The options that are not about what to train."""

    out: Path | None = None
    resume: bool = False
    force: bool = False
    progress: str = "auto"


def layers_of(hidden: int | None, layers: int | None) -> tuple[int, ...] | None:
    """Hidden layer sizes from the two options; None if neither was given."""
    if hidden is None and layers is None:
        return None
    for name, value in (("--hidden", hidden), ("--layers", layers)):
        if value is not None and value < 1:
            raise InvalidInput(f"{name} must be 1 or more, got {value}")
    return (32 if hidden is None else hidden,) * (1 if layers is None else layers)


def load_of(text: str) -> float | None:
    """The option --load: a number, or none for the volumes as they are."""
    if text.strip().lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(
            f"--load must be a number above 0 and at most 1, or none, got {text!r}"
        ) from None


def run(wanted: Wanted, options: RouteOptions) -> int:
    """Train, evaluate and report; returns the exit code."""
    if options.out is None and (options.resume or options.force):
        raise InvalidInput("--resume and --force need --out, the folder of the run")
    prepared = prepare(wanted)
    folder = None
    if options.out is not None:
        folder = open_run(options.out, prepared, resume=options.resume, force=options.force)
    try:
        with progress(options.progress) as shown:
            if folder is not None and options.resume:
                shown.message(f"resuming after {len(folder.history())} iterations")
            routed = train_and_save(prepared, folder, progress=shown.update, say=shown.message)
    finally:
        if folder is not None:
            folder.close()
    if routed is None:
        more = "" if options.out is None else f"; continue with --resume --out {options.out}"
        print(f"interrupted{more}", file=sys.stderr)
        return INTERRUPTED
    if options.progress == "json":
        sys.stdout.write(files.json_line({"event": "result", **routed.summary}).decode())
    else:
        print(report(routed.summary, routed.instance))
        if options.out is not None:
            print(
                f"\nSaved in {options.out}; in Python: cg4ai.load({str(options.out)!r}).predict(B)"
            )
    kept = routed.summary["worst_utilisation"] <= FEASIBLE
    return KEPT if kept and routed.summary["strength"] == wanted.guarantee else NOT_KEPT


def report(summary: Mapping[str, Any], instance: Instance) -> str:
    """The result for people: a table, what is guaranteed, where the time went."""
    rows = [
        {
            "": name,
            "worst link utilisation found": f"{summary[f'{key}worst_utilisation']:.6f}",
            "overload found": summary[f"{key}worst_utilisation"] > FEASIBLE,
            "MLU above optimal, mean": f"{summary[f'{key}mean_mlu_gap']:.4f}",
            "largest": f"{summary[f'{key}max_mlu_gap']:.4f}",
        }
        for name, key in (("this mixture", ""), ("plain networks", "plain_"))
    ]
    corner = float(instance.optimal(instance.demand_max[None]).mlu[0])
    lines = [
        f"{summary['network']}: {summary['demands']} demands, up to {summary['paths']} paths each, "
        f"{len(instance.arcs)} links in use; the best routing of the largest demands loads some "
        f"link to {corner:.6g}.",
        _scaling(instance),
        f"Stopped after {summary['iterations']} iterations and {summary['total_s']:.1f} s: "
        f"{STOPPED[StopReason(summary['stop_reason'])]}.",
        "",
        plain(rows),
        guarantee(summary),
        "",
        _members(summary),
        f"Seconds: training {summary['pricing_s']:.1f}, searching overloads "
        f"{summary['separation_s']:.1f}, master {summary['master_s']:.1f}, total "
        f"{summary['total_s']:.1f}; evaluation {summary['evaluation_s']:.1f}.",
        f"Speed: 1,000 demand vectors in {1000 * summary['predict_1000_s']:.1f} ms; solving them "
        f"one by one takes {1000 * summary['highs_1000_s']:.0f} ms "
        f"({summary['speedup']:.0f} times as long).",
    ]
    if "mean_cost_gap" in summary:
        lines.append(
            f"Total path cost: {100 * summary['mean_cost_gap']:.2f} % above the least possible "
            f"on average (plain networks: {100 * summary['plain_mean_cost_gap']:.2f} %)."
        )
    if summary["note"]:
        lines.append(f"Note: {summary['note']}.")
    return "\n".join(lines)


def _scaling(instance: Instance) -> str:
    if instance.load is None:
        return "The largest demands are the network's volumes as given."
    return (
        f"The largest demands are the network's volumes times {instance.scale:.6g} (load "
        f"{instance.load:g})."
    )


def _members(summary: Mapping[str, Any]) -> str:
    """Networks and constant splits apart, and the rows by where they come from."""
    constants, active = summary["constants"], summary["active_constants"]
    rows = f"{summary['rows']} rows in the master"
    if "found_rows" in summary:
        rows += (
            f", {summary['capacity_rows']} of them of capacities, {summary['found_rows']} of "
            "these found by search"
        )
    return (
        f"Members: {summary['columns'] - constants} networks trained beside {constants} constant "
        f"splits; {summary['active_members'] - active} networks and {active} constant splits in "
        f"the mixture; {rows}."
    )


def guarantee(summary: Mapping[str, Any]) -> str:
    """What was established, and how; never more than that."""
    effort = summary["attack"]
    arc = "->".join(effort["arc"])
    search = (
        f"Searched: {effort['ascent_starts']} gradient ascents of {effort['ascent_steps']} steps, "
        f"{effort['vertices']} vertices of the box, {effort['random_vectors']} random vectors, "
        f"NLopt from the {effort['nlopt_starts']} worst. Worst: link {arc}, by "
        f"{effort['found_by']}."
    )
    if summary["worst_utilisation"] <= FEASIBLE:
        verdict = _established(summary)
    else:
        verdict = (
            f"NOT KEPT: a demand vector was found that loads link {arc} to "
            f"{summary['worst_utilisation']:.6f} of its capacity."
        )
    return f"{verdict}\n{search}"


def _established(summary: Mapping[str, Any]) -> str:
    """In one sentence, why no demand vector of the box overloads a link."""
    if summary["strength"] == "certified":
        proof = summary["proof"]
        return (
            "PROVEN: no demand vector of the box overloads a link (certified: "
            f"{proof['cells']} cells bounded in {proof['seconds']:.1f} s; check the certificate "
            "with cg4ai check)."
        )
    if summary["strength"] == "shielded":
        report = summary["shield"]
        return (
            "No demand vector of the box can overload a link (shielded: the router is moved "
            "towards a constant split that fits the whole box where it would; it acted on "
            f"{100 * report['acting']:.2f} % of the validation vectors and costs "
            f"{100 * report['cost']:.0f} % of prediction time)."
        )
    attacked = (
        "No demand vector in the box was found that overloads a link (attacked: a search is no "
        "proof)."
    )
    if "proof" not in summary:
        return attacked
    left = summary["proof"]["resisting"]
    links = ", ".join("->".join(entry["link"]) for entry in left[:5])
    bound = summary["proof"]["best_bound"]
    known = "no bound yet" if bound is None else f"best bound {bound:.4f}"
    return f"NOT PROVEN: {len(left)} links resist ({links}); {known}. {attacked}"
