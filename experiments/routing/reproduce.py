"""All 41 configurations of the paper, each in a run folder of its own, and one table of them.

They run side by side. One that has ended with the same settings is not run again, and one that was
killed goes on where it was. Tables are made from saved summaries alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cg4ai.apps.folders import ARRAYS, DESCRIPTION, check_same, complete
from cg4ai.apps.runner import perform
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.parallel import iterate_as_completed
from cg4ai.records import StopReason, Strength
from cg4ai.report.tables import cell, csv_text, format_markdown
from cg4ai.routing.app import Routing, RoutingPreparation
from cg4ai.routing.network.instance import CONFIGURATIONS
from cg4ai.routing.prove.attack import FEASIBLE
from cg4ai.routing.settings import RouteSettings
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from experiments.routing.paper import PAPER, PaperRow
from experiments.routing.paper_mode import PaperRouting
from experiments.side_by_side import OF_ONE_RUN, keep_only, stopped_at, why

Mode = Literal["ours", "paper"]
APPLICATIONS: dict[Mode, Routing] = {"ours": Routing(), "paper": PaperRouting()}

# the paper's test with another objective, and the usual one beside it; not in its table
ABLATION, BESIDE = "ta1-10-2-cost", "ta1-10-2"
TIMES_OURS = 10.0  # what the published method may train, where our runs say how long ours took
# networks that no setting was ever tried on; run where they are named
OUTSIDE = tuple(
    f"{network}-15-3" for network in ("norway", "cost266", "germany50", "india35", "janos-us")
)
NAMES = tuple(f"{network}-{demands}-{paths}" for network, demands, paths in CONFIGURATIONS)

# column of the paper's table: (field of PaperRow, key of our summary)
PAPER_COLUMNS = {
    "#iter": ("iterations", "iterations"),
    "#cols": ("columns", "columns"),
    "#rows": ("rows", "found_rows"),
    "col_time": ("column_time", "pricing_s"),
    "row_time": ("row_time", "separation_s"),
    "tot_time": ("total_time", "total_s"),
    "opt_mlu": ("optimal_mlu", "mean_optimal_mlu"),
    "#mod": ("models", "active_members"),
    "val. loss": ("validation_loss", "split_loss"),
    "max_diff": ("max_difference", "max_mlu_gap"),
}
OUR_COLUMNS = {
    "strength": "strength",
    "mean gap": "mean_mlu_gap",
    "99.9 % gap": "p999_mlu_gap",
    "max gap": "max_mlu_gap",
    "worst utilisation": "worst_utilisation",
    "plain worst": "plain_worst_utilisation",
    "plain gap": "plain_mean_mlu_gap",
    "total_s": "total_s",
    "evaluation_s": "evaluation_s",
    "batch speedup": "batch_speedup",
    "stopped": "stop_reason",
}
ACTS = {"acts": "acting", "acts, adversarial": "adversarial_acting"}  # of the shield
NO_RESULT = "no result"
# what tables and figures are made from; ensemble.json names links and demands
SHOWN = ("run.json", "summary.json", "history.jsonl", "cuts.jsonl", "ensemble.json", ARRAYS)
Summaries = Mapping[str, Mapping[str, Any]]


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """The configurations named, or all of them and the ablation."""
    usual = (*NAMES, ABLATION, BESIDE)
    known = (*usual, *OUTSIDE)
    for name in names:
        if name not in known:
            raise InvalidInput(
                f"unknown configuration {name!r}{did_you_mean(name, known)}; use NETWORK-D-P, one "
                f"of {', '.join(known)}"
            )
    return tuple(names) or usual


def wanted(name: str, usual: Mapping[str, Any], mode: Mode = "ours") -> RouteSettings:
    """What a configuration's name stands for; the rest is as in `usual`."""
    network, demands, paths = name.removesuffix("-cost").rsplit("-", 2)
    asked = {"baseline": True, "threads": 2, "protocol": "paper", **usual}
    asked |= {"network": network, "demands": int(demands), "paths": int(paths)}
    if name == ABLATION:
        asked["objective"] = "cost"
    return APPLICATIONS[mode].settings.from_mapping(asked)


@dataclass(frozen=True)
class Outcome:
    """`done`: summaries of the configurations asked for; `failed`: why others have none."""

    done: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


@dataclass(frozen=True)
class Plan:
    """Where to, with which settings and by whose method.

    `ours`: a folder of our runs, which stand beside those of mode paper and give them ten times
    their time. `jobs` run at once, none past the moment `until` (of `time.time`). `lean` keeps of
    each run what tables need.
    """

    out: Path
    usual: Mapping[str, Any] = field(default_factory=dict)
    mode: Mode = "ours"
    ours: Path | None = None
    jobs: int = 1
    until: float | None = None
    lean: bool = False

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise InvalidInput(f"jobs must be 1 or more, got {self.jobs}")
        if self.ours is not None and self.mode == "ours":
            raise InvalidInput("--ours names runs to stand beside those of --mode paper")

    def wanted(self, name: str) -> RouteSettings:
        return wanted(name, {**self._limit(name), **self.usual}, self.mode)

    def _limit(self, name: str) -> dict[str, float]:
        if self.ours is None or "training_limit_s" in self.usual:
            return {}
        took = results(self.ours, "ours").summaries.get(name)
        if took is None:
            raise InvalidInput(
                f"{self.ours} holds no run of {name} that has ended: run it with --mode ours "
                "first, or give --time-limit"
            )
        return {"training_limit_s": TIMES_OURS * float(took["total_s"])}

    def results(self, without: tuple[str, ...] = ()) -> Results:
        beside = {} if self.ours is None else results(self.ours, "ours").summaries
        return replace(results(self.out, self.mode, without=without), ours=beside)


def reproduce(
    names: Sequence[str],
    plan: Plan,
    *,
    force: bool = False,
    say: Callable[[str], None] = print,
) -> Outcome:
    """Run what is missing, side by side, and write the tables of all that is there.

    A configuration that ends without a result is said and left: the others go on.
    """
    app, names = APPLICATIONS[plan.mode], chosen(names)
    asked = {name: plan.wanted(name) for name in names}
    outcome = Outcome()
    for name in names if not force else ():
        # or an error, before hours are spent
        done = finished(plan.out / name, app.prepare(asked[name], None), plan.mode)
        if done is not None:
            outcome.done[name] = done
            say(f"{name}: there already; {_line(done)}")
    # the more outputs the longer; where time is short, most of them shall have ended
    left = sorted(
        (name for name in names if name not in outcome.done),
        key=lambda name: (asked[name].demands or 0) * asked[name].paths,
    )
    work = partial(_attempt, plan=plan, force=force)
    jobs = [(name, asked[name]) for name in left]
    started = time.perf_counter()
    try:
        for attempt in iterate_as_completed(work, jobs, n_jobs=plan.jobs):
            outcome = _noted(outcome, attempt, plan)
            if attempt.interrupted and plan.until is None:
                return outcome
            count = len(outcome.done) + len(outcome.failed)
            say(f"[{count}/{len(names)}] {attempt.name}: {attempt.text}")
    except KeyboardInterrupt:
        return replace(outcome, interrupted=True)
    if jobs:
        passed = time.perf_counter() - started
        say(f"{len(jobs)} runs, {plan.jobs} at once, in {passed:.1f} s with their evaluation.")
    write_tables(plan.out, plan.results(tuple(outcome.failed)))
    return outcome


def _noted(outcome: Outcome, attempt: Attempt, plan: Plan) -> Outcome:
    if attempt.interrupted:
        return replace(outcome, interrupted=True)
    if attempt.summary is None:
        outcome.failed[attempt.name] = attempt.text
    else:
        outcome.done[attempt.name] = attempt.summary
        write_tables(plan.out, plan.results(tuple(outcome.failed)))
    return outcome


@dataclass(frozen=True, slots=True)
class Attempt:
    """One configuration's summary, or why there is none: `text` says it either way."""

    name: str
    summary: dict[str, Any] | None
    text: str
    interrupted: bool = False


def _attempt(job: tuple[str, RouteSettings], plan: Plan, *, force: bool) -> Attempt:
    name, asked = job
    if plan.until is not None and time.time() >= plan.until:
        return Attempt(name, None, "left for later, the time is over", interrupted=True)
    folder, app = plan.out / name, APPLICATIONS[plan.mode]
    try:
        with stopped_at(plan.until):
            routed = perform(
                app, asked, out=folder, resume=not force, force=force, report=not plan.lean
            )
    except KeyboardInterrupt:
        return Attempt(name, None, "interrupted", interrupted=True)
    except OF_ONE_RUN as error:
        return Attempt(name, None, why(error))
    if routed.evaluation is None:
        return Attempt(name, None, "interrupted", interrupted=True)
    if plan.lean:
        keep_only(folder, SHOWN)
    return Attempt(name, routed.summary, _line(routed.summary))


@dataclass(frozen=True)
class Results:
    """Summaries by name of the runs of one mode that have ended; `missing` have none.

    `ours`: summaries of our runs, to stand beside those of mode paper.
    """

    summaries: Summaries
    mode: Mode = "ours"
    missing: tuple[str, ...] = ()
    ours: Summaries = field(default_factory=dict)

    @property
    def table(self) -> dict[str, Mapping[str, Any]]:
        """Those that the paper's table has, in its order."""
        return {name: self.summaries[name] for name in NAMES if name in self.summaries}

    @property
    def listed(self) -> list[str]:
        """The same and those without a result."""
        return [name for name in NAMES if name in self.summaries or name in self.missing]


def results(out: Path, mode: Mode, *, without: tuple[str, ...] = ()) -> Results:
    """What lies under `out`, whichever command made it; `without`: known to have no result."""
    summaries, missing = {}, set(without)
    every = (*NAMES, ABLATION, BESIDE, *OUTSIDE)
    for name in every:
        if not (out / name / "run.json").exists():
            continue
        run = Run.open(out / name, read_only=True)
        described = run.settings.get(DESCRIPTION) or {}
        if run.command != Routing.name or described.get("mode", "ours") != mode:
            continue
        summary = run.summary()
        if summary is None or not complete(summary):
            missing.add(name)
        else:
            summaries[name] = summary
    ordered = tuple(name for name in every if name in missing - summaries.keys())
    return Results(summaries, mode, ordered)


def finished(
    folder: Path, prepared: RoutingPreparation, mode: Mode = "ours"
) -> dict[str, Any] | None:
    """The summary of a run that has ended; an error if the folder holds a different run.

    One that ended at another time limit than now has not: it goes on.
    """
    if not (folder / "run.json").exists():
        return None
    run = Run.open(folder, read_only=True)
    check_same(run, APPLICATIONS[mode], prepared.settings, prepared)
    summary = run.summary()
    if summary is None or not complete(summary):
        return None
    if summary["stop_reason"] == StopReason.TIME_LIMIT:
        same_limit = summary["training_limit_s"] == _plain(prepared.settings.training_limit_s)
        return summary if same_limit else None
    return summary


def _plain(limit_s: float) -> float | None:
    """A limit as summaries have it: None for none."""
    return limit_s if np.isfinite(limit_s) else None


def _line(summary: Mapping[str, Any]) -> str:
    beside = ""
    if "plain_worst_utilisation" in summary:
        beside = (
            f" (plain: {summary['plain_worst_utilisation']:.3f}, "
            f"{summary['plain_mean_mlu_gap']:.4f})"
        )
    return (
        f"{summary['total_s']:.1f} s, {summary['strength']}, worst utilisation "
        f"{summary['worst_utilisation']:.6f}, gap mean {summary['mean_mlu_gap']:.4f} max "
        f"{summary['max_mlu_gap']:.3f}{beside}"
    )


def write_tables(out: Path, found: Results) -> None:
    """table.csv, table.md and totals.json, from what has ended so far."""
    rows = [_full_row(name, found.summaries.get(name)) for name in found.listed]
    out.mkdir(parents=True, exist_ok=True)
    files.write_bytes(out / "table.csv", csv_text(rows).encode())
    files.write_bytes(out / "table.md", markdown_report(found).encode())
    files.write_json(out / "totals.json", totals(found.table))


def _full_row(name: str, summary: Mapping[str, Any] | None) -> dict[str, Any]:
    paper = paper_row(name)
    row = _start(paper)
    row |= {title: _ours(summary, key) for title, (_, key) in PAPER_COLUMNS.items()}
    row |= {
        f"paper {title}": _known(getattr(paper, name)) for title, (name, _) in PAPER_COLUMNS.items()
    }
    row |= {title: _ours(summary, key) for title, key in OUR_COLUMNS.items()}
    return row if summary is not None else row | {"stopped": NO_RESULT}


def _start(paper: PaperRow) -> dict[str, Any]:
    return {"instance": paper.instance, "#d": paper.demands, "#p": paper.paths}


def _ours(summary: Mapping[str, Any] | None, key: str) -> Any:
    """A figure of a summary; rows found stand for all rows where they were not counted."""
    if summary is None:
        return None
    return summary.get("found_rows", summary["rows"]) if key == "found_rows" else summary.get(key)


def _known(value: Any) -> Any:
    """None for what the paper prints as NaN."""
    return None if isinstance(value, float) and np.isnan(value) else value


def paper_row(name: str) -> PaperRow:
    network, demands, paths = name.rsplit("-", 2)
    return PAPER[network, int(demands), int(paths)]


def totals(table: Summaries) -> dict[str, Any]:
    """Sums and means over configurations, and the paper's for the same ones."""

    def every(key: str) -> list[float]:
        return [float(summary[key]) for summary in table.values() if key in summary]

    feasible = [value <= FEASIBLE for value in every("worst_utilisation")]
    plain = [value <= FEASIBLE for value in every("plain_worst_utilisation")]
    return {
        "configurations": len(table),
        "feasible": sum(feasible),
        "shielded": sum(one.get("strength") == Strength.SHIELDED for one in table.values()),
        "certified": sum(one.get("strength") == Strength.CERTIFIED for one in table.values()),
        "plain_feasible": sum(plain),
        "total_s": float(np.sum(every("total_s"))),
        "evaluation_s": float(np.sum(every("evaluation_s"))),
        "paper_total_s": float(np.sum([paper_row(name).total_time for name in table])),
        "mean_of_mean_gaps": _mean(every("mean_mlu_gap")),
        "largest_mean_gap": max(every("mean_mlu_gap"), default=None),
        "largest_p999_gap": max(every("p999_mlu_gap"), default=None),
        "largest_max_gap": max(every("max_mlu_gap"), default=None),
        "plain_mean_of_mean_gaps": _mean(every("plain_mean_mlu_gap")),
        "mean_of_max_gaps": _mean(every("max_mlu_gap")),
        "paper_mean_of_max_gaps": _mean([paper_row(name).max_difference for name in table]),
        "max_gap_below_paper": sum(
            table[name]["max_mlu_gap"] <= paper_row(name).max_difference for name in table
        ),
        "mean_batch_speedup": _mean(every("batch_speedup")),
    }


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if np.isfinite(value)]
    return float(np.mean(known)) if known else None


def markdown_report(found: Results) -> str:
    """Both tables and the totals, for people."""
    listed = found.listed
    lines = ["# Routing: the configurations of the paper", ""]
    if listed:
        lines += [
            _note(found),
            "",
            format_markdown([_compared(name, found) for name in listed]),
            "What the paper does not report:",
            "",
            format_markdown([_own(name, found.summaries.get(name)) for name in listed]),
            "Totals:",
            "",
            format_markdown(
                [{"figure": key, "value": value} for key, value in totals(found.table).items()]
            ),
        ]
    if found.missing:
        lines += [
            f"No result: {', '.join(found.missing)}. The run has not ended, or ended before every "
            "demand had a member.",
            "",
        ]
    outside = [name for name in OUTSIDE if name in found.summaries]
    if outside:
        rows = [{"instance": name, **_figures(found.summaries[name])} for name in outside]
        lines += ["Networks outside the paper's:", "", format_markdown(rows)]
    if ABLATION in found.summaries:
        lines += [_ablation(found.summaries[ABLATION]), ""]
    if BESIDE in found.summaries:
        beside = found.summaries[BESIDE]
        lines += [
            f"Least MLU on the same network ({BESIDE}): mean MLU gap {beside['mean_mlu_gap']:.4f}, "
            f"worst utilisation {beside['worst_utilisation']:.6f}.",
            "",
        ]
    return "\n".join(lines)


def _compared(name: str, found: Results) -> dict[str, Any]:
    """Our figure and the paper's in each cell, in mode paper all three; - where there is none."""
    paper = paper_row(name)
    runs = [found.summaries.get(name), *([found.ours.get(name)] if found.ours else [])]
    values = {
        title: [*(_ours(run, key) for run in runs), _known(getattr(paper, field))]
        for title, (field, key) in PAPER_COLUMNS.items()
    }
    return _start(paper) | {
        title: " / ".join("-" if value is None else cell(value, digits=3) for value in of)
        for title, of in values.items()
    }


def _own(name: str, summary: Mapping[str, Any] | None) -> dict[str, Any]:
    start = _start(paper_row(name))
    if summary is None:
        return start | {"feasible": NO_RESULT} | dict.fromkeys((*OUR_COLUMNS, *ACTS), "-")
    return start | _figures(summary)


def _figures(summary: Mapping[str, Any]) -> dict[str, Any]:
    """All of ours, and how often the shield acts: on validation and adversarial vectors."""
    feasible = {"feasible": summary["worst_utilisation"] <= FEASIBLE}
    shield = summary.get("shield") or {}
    acts = {title: shield.get(key) for title, key in ACTS.items()}
    own = {title: summary.get(key) for title, key in OUR_COLUMNS.items()} | acts
    return feasible | {title: "-" if value is None else value for title, value in own.items()}


def _note(found: Results) -> str:
    """What the cells of the first table hold."""
    whose = {
        "ours": "Ours / the paper's.",
        "paper": "As published, run here / the paper's figures.",
    }
    if found.ours:
        whose["paper"] = "As published, run here / ours / the paper's figures."
    uncounted = [name for name, summary in found.table.items() if "found_rows" not in summary]
    rows = "`#rows`: rows of the capacities that a search found, without those from the start"
    if uncounted:
        rows += (
            f" (but all rows of the master where these were not counted: {', '.join(uncounted)})"
        )
    return (
        f"{whose[found.mode]} Times are seconds, on different machines. `#cols`: all columns, "
        f"constant splits too. {rows}. `opt_mlu`: ours is the mean optimal MLU; `val. loss`: "
        "squared distance to one optimal split of several, which ours is not trained for unless "
        "the objective is `split`; `max_diff`: largest gap to the optimal MLU on 10,000 vectors."
    )


def _ablation(summary: Mapping[str, Any]) -> str:
    plain = summary.get("plain_mean_cost_gap")
    beside = "" if plain is None else f", plain networks: {100 * plain:.2f} %"
    return (
        f"Least total path cost instead of least MLU ({ABLATION}): mean cost gap "
        f"{100 * summary['mean_cost_gap']:.2f} % (the paper: 11.20 %{beside}), worst utilisation "
        f"{summary['worst_utilisation']:.6f}."
    )
