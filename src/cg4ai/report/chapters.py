"""The chapters that every report has, whatever the application: training, members, settings."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cg4ai.apps.folders import format_settings
from cg4ai.apps.registry import program_of, training_command
from cg4ai.plots.sources import recorded_kind, recorded_weights, seconds_of
from cg4ai.plots.training import has_violation, plot_convergence, plot_time, plot_weights
from cg4ai.report.story import Code, Drawing, Pairs, Part, ReportTable, SavedRun, Section
from cg4ai.report.tables import cell

LAST = 12  # iterations that the table shows
FEW = 3  # iterations: of fewer the table says as much as figures of columns and rows
CONVERGENCE = {
    "objective": "Objective of the best mixture, by iteration.",
    "slack": "Slack of the worst row of the master, and the worst violation that a search found. "
    "The scale is logarithmic; values of zero are drawn at its lower edge.",
    "columns": "Members in the master.",
    "rows": "Rows of the master: rules at single inputs, and pieces of the objective.",
}
SHOWN = {
    "iteration": "iteration",
    "objective": "objective",
    "slack": "slack",
    "columns": "members",
    "rows": "rows",
    "total_s": "seconds",
    "note": "note",
}
EMPTY: tuple[Any, ...] = (None, "", [], {})


def write_training(saved: SavedRun, sentences: Sequence[str]) -> Section:
    """The run by iterations."""
    parts: list[Part] = list(sentences)
    tolerance = _tolerance(saved)
    lacking = has_violation(saved.history, tolerance)
    if saved.history and not lacking:
        parts.append("The slack was zero in every iteration.")
    if saved.history:
        parts += [
            Drawing(caption, partial(_converged, saved, what, tolerance))
            for what, caption in CONVERGENCE.items()
            if (lacking if what == "slack" else _grew(saved, what))
        ]
    rows = [
        {name: _known(record.get(key)) for key, name in SHOWN.items()}
        for record in saved.history[-LAST:]
    ]
    if len(saved.history) > LAST:
        parts.append(f"The last {LAST} of {len(saved.history)} iterations:")
    parts += [ReportTable(rows)] if rows else ["No iteration has ended yet."]
    return Section("How training went", tuple(parts))


def _known(value: Any) -> Any:
    """Nothing where there is no such number yet, as an objective before there is a mixture."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _grew(saved: SavedRun, what: str) -> bool:
    """Whether a figure shows more of it than the table does."""
    known = {record.get(what) for record in saved.history} - {None, math.inf}
    return len(known) > 1 and (what == "objective" or len(saved.history) >= FEW)


def _converged(saved: SavedRun, what: Any, tolerance: float | None, ax: Any) -> None:
    plot_convergence(saved.history, what, tolerance=tolerance, ax=ax)


def _tolerance(saved: SavedRun) -> float | None:
    """Below which slack counts as met, where the summary says so."""
    audits = (saved.summary or {}).get("audits") or [{}]
    found = audits[0].get("tolerance") if isinstance(audits[0], Mapping) else None
    return float(found) if isinstance(found, int | float) else None


def time_spent(saved: SavedRun) -> Section:
    summary = saved.summary or {}
    seconds = seconds_of(summary)
    if not seconds:
        return Section("Time spent", ())
    total = sum(seconds.values())
    words = f"{total:.1f} s in total, with the evaluation after training."
    caption = "Wall-clock seconds of each step; searching is for violated inputs."
    return Section("Time spent", (words, Drawing(caption, lambda ax: plot_time(summary, ax=ax))))


def write_members(saved: SavedRun, block_names: Sequence[str] = ()) -> Section:
    """Members of the mixture and their weights."""
    record = saved.ensemble
    if record is None:
        return Section("Members and weights", ())
    weighted = recorded_weights(record)
    blocks = sorted({one.block for one in weighted})
    parts: list[Part] = [ReportTable(list(_stacks(record)))]
    if len(weighted) == len(blocks):
        each = " in each block" if len(blocks) > 1 else ""
        parts.append(f"One member has all the weight{each}.")
    else:
        caption = "Weights of the members; the weights of a block sum to one."
        height = min(6.0, 1.6 + 0.24 * max(len(blocks), 4))
        draw = partial(_weights, saved, block_names)
        parts.append(Drawing(caption, draw, height if len(blocks) > 1 else 3.1))
    return Section("Members and weights", tuple(parts))


def _weights(saved: SavedRun, names: Sequence[str], ax: Any) -> None:
    plot_weights(saved.folder, names=names or None, ax=ax)


def _stacks(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each stack of members of one kind."""
    for stack, weights in zip(record["members"], record["weights"], strict=True):
        used = [weight for weight in weights if weight > 0]
        inner: Mapping[str, Any] = stack
        while isinstance(inner["config"].get("inner", inner["config"].get("network")), Mapping):
            inner = inner["config"].get("inner", inner["config"].get("network"))
        hidden = inner["config"].get("hidden")
        yield {
            "kind": recorded_kind(stack),
            "with weight": len(used),
            "largest weight": max(used, default=0.0),
            "hidden layers": "none" if hidden == [] else " x ".join(map(str, hidden or ())),
            "activation": inner["config"].get("activation", "") if hidden else "",
        }


def write_settings(saved: SavedRun) -> Section:
    """What is needed to repeat the run: settings, versions, digests of the data."""
    given = format_settings(saved.run)
    shown = {name: _value(value) for name, value in given.items() if value not in EMPTY}
    header = saved.run.header
    versions = {name: str(version) for name, version in header.get("packages", {}).items()}
    digests = [
        f"SHA-256 of the {name.removesuffix('_sha256')}: {value}"
        for name, value in saved.description.items()
        if name.endswith("_sha256")
    ]
    command = training_command(saved.run.command)
    started = f"Started {header.get('created', 'at an unknown time')} by {command}."
    parts: list[Part] = [started, Pairs(shown), "Versions of packages:", Pairs(versions), *digests]
    return Section("Settings and versions", tuple(parts))


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, str) and Path(value).is_absolute():
        return Path(value).name  # reports are sent around, and folders are nobody else's
    return cell(value, digits=12)


def write_loading(saved: SavedRun) -> Section:
    """How to use the model."""
    if saved.ensemble is None:
        return Section("How to use it", ())
    name, program = shlex.quote(saved.name), program_of(saved.run.command)
    python = (
        f"import cg4ai\n\nmodel = cg4ai.load({json.dumps(saved.name, ensure_ascii=False)})\n"
        "model.predict(inputs)                # (n, d) -> (n, r)\n"
        "model.predict(inputs, explain=True)  # with the guarantee of each"
    )
    commands = [
        f"{program} predict {name} DATA.csv --explain",
        f"{program} audit {name}",
        f"{program} explore {name}",
        f"{program} serve {name}",
        f"{program} export {name} --onnx model.onnx",
    ]
    commands += [
        f"cg4ai check {shlex.quote(f'{saved.name}/{file}')} --run {name}"
        for file in saved.certificates
    ]
    return Section(
        "How to use it",
        (
            "In Python, from the folder that holds the run's:",
            Code(python),
            "On the command line:",
            Code("\n".join(commands)),
        ),
    )
