"""Whole matrices: all demands of each SNDlib network, trained, checked and measured in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cg4ai.apps.folders import complete
from cg4ai.apps.runner import perform
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.proofs.certificate import CERTIFICATE_FILE
from cg4ai.report.tables import csv_text, format_markdown
from cg4ai.routing.app import Routing
from cg4ai.routing.network.sndlib import list_names, load_by_name
from cg4ai.routing.options import ALL
from cg4ai.routing.settings import RouteSettings
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from cg4ai_checker import Rejected, check
from experiments.side_by_side import OF_ONE_RUN, why

EFFORT = "effort.json"  # beside each run: what a summary does not hold
MOST_DEMANDS = 2000
GUARANTEED = "shielded"


@dataclass(frozen=True)
class Plan:
    """Where runs lie, the settings of all of them, and the demands beyond which there is none."""

    out: Path
    usual: Mapping[str, Any] = field(default_factory=dict)
    most_demands: int = MOST_DEMANDS

    def settings(self, network: str) -> RouteSettings:
        return RouteSettings(
            network=network, demands=ALL, **{"path_choice": "shortest", **self.usual}
        )


def chosen(wanted: Sequence[str]) -> list[str]:
    """The networks asked for, or all, those of few demands first."""
    for name in wanted:
        if name not in list_names():
            known = f"use one of {', '.join(list_names())}"
            raise InvalidInput(
                f"unknown network {name!r}{did_you_mean(name, list_names())}; {known}"
            )
    return sorted(wanted or list_names(), key=lambda name: len(load_by_name(name).volumes))


def run_all(
    wanted: Sequence[str], plan: Plan, *, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """A row for each network, written as a table after each; what is there stays."""
    rows: list[dict[str, Any]] = []
    for name in chosen(wanted):
        row = one_row(name, plan)
        rows.append(row)
        write_tables(plan.out, rows)
        say(f"{name}: " + ", ".join(f"{key} {value}" for key, value in row.items() if value != ""))
    return rows


def one_row(name: str, plan: Plan) -> dict[str, Any]:
    """The figures of one network, or why there are none."""
    demands = len(load_by_name(name).volumes)
    blank = {"network": name, "demands": demands, "reason": ""}
    if demands > plan.most_demands:
        return blank | {"reason": f"more than {plan.most_demands} demands"}
    folder = plan.out / name
    try:
        if not _ended(folder):
            _trained(plan.settings(name), folder)
        return blank | figures_of(folder)
    except OF_ONE_RUN as error:
        return blank | {"reason": why(error)}


def _ended(folder: Path) -> bool:
    if not (folder / "run.json").exists() or not (folder / EFFORT).exists():
        return False
    summary = Run.open(folder, read_only=True).summary()
    return summary is not None and complete(summary)


def _trained(settings: RouteSettings, folder: Path) -> None:
    """Train, save and evaluate; then have the certificate checked, and note what that took."""
    spent = time.process_time()
    done = perform(Routing(), settings, out=folder, resume=(folder / "run.json").exists())
    spent = time.process_time() - spent
    began = time.perf_counter()
    accepted = "certificate" in done.summary and _accepted(folder / CERTIFICATE_FILE)
    effort = {
        "processor_s": spent,
        "checking_s": time.perf_counter() - began,
        "accepted": accepted,
        "all_paths": len(done.prepared.instance.path_demand),
    }
    files.write_json(folder / EFFORT, effort)


def _accepted(certificate: Path) -> bool:
    try:
        check(certificate)
    except Rejected:
        return False
    return True


def figures_of(folder: Path) -> dict[str, Any]:
    """One row of the table, from what a run left."""
    summary = Run.open(folder, read_only=True).summary()
    if summary is None:
        raise InvalidInput(f"{folder} holds a run that has not ended; run it again")
    effort = files.read_json(folder / EFFORT)
    return {
        "paths": effort["all_paths"],
        "links": summary["links"],
        "preparing s": round(summary["preparing_s"], 1),
        "training s": round(summary["pricing_s"], 1),
        "ending s": round(summary["total_s"] - summary["preparing_s"] - summary["pricing_s"], 1),
        "evaluation s": round(summary["evaluation_s"], 1),
        "checking s": round(effort["checking_s"], 1),
        "processor s": round(effort["processor_s"], 1),
        "vectors": summary["validation"],
        "mean gap": round(summary["mean_mlu_gap"], 5),
        "largest gap": round(summary["max_mlu_gap"], 4),
        "guaranteed": "yes" if _guaranteed(summary, effort) else "no",
        "LP over batch": round(summary["batch_speedup"], 1),
    }


def _guaranteed(summary: Mapping[str, Any], effort: Mapping[str, Any]) -> bool:
    """At every vector of the box, by a certificate that the checker accepts."""
    return summary["strength"] == GUARANTEED and bool(effort["accepted"])


def rows_of(out: Path, plan: Plan) -> list[dict[str, Any]]:
    """The rows of what has ended under `out`, and the reasons that need no run."""
    rows = []
    for name in chosen(()):
        if _ended(out / name) or len(load_by_name(name).volumes) > plan.most_demands:
            rows.append(one_row(name, plan))
    return rows


def write_tables(out: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """whole.csv and whole.md; the reason comes last."""
    last = [{**row, "reason": row["reason"]} for row in map(_reason_last, rows)]
    out.mkdir(parents=True, exist_ok=True)
    files.write_bytes(out / "whole.csv", csv_text(last).encode())
    files.write_bytes(out / "whole.md", format_markdown(last).encode())


def _reason_last(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in sorted(row, key=lambda key: key == "reason")}
