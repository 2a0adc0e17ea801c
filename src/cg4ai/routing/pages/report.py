"""A routing run, described: is any link overloaded, how far from the optimum, what was returned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cg4ai import StopReason
from cg4ai.report import (
    STOPS,
    KeyFigure,
    ReportTable,
    SavedRun,
    Section,
    Story,
    describe_closing,
    describe_cut,
    describe_optimality,
    describe_seconds,
    describe_stop,
    list_remarks,
)
from cg4ai.report import format_count as number_of
from cg4ai.routing.demands.scaling import (
    factor_of,
    format_both,
    format_multiple,
    format_notice,
    format_scaling_suffix,
    real_figures,
)
from cg4ai.routing.network.description import restore_instance
from cg4ai.routing.options import HISTORY
from cg4ai.routing.pages.guarantees import (
    describe_operation,
    get_scope,
    list_findings,
    set_of,
)
from cg4ai.routing.pages.judged_traffic import OURS, describe_judged_traffic, make_rows
from cg4ai.routing.pages.judged_update import describe_before, describe_update, format_original
from cg4ai.routing.prove.attack import FEASIBLE

MIXES_SAID = {
    "uniform": "uniform",
    "sparse": "sparse (a tenth of the demands)",
    "lognormal": "lognormal",
    "gravity": "gravity (weights of nodes)",
    "corner": "near the largest",
}
MEMBERS = {"network": "networks", "tree": "trees", "both": "networks and trees"}
MINIMISED = {
    "mlu": "the mean MLU over the training scenarios, with a penalty on rare large gaps",
    "split": "the mean squared distance to the optimal splits of the training scenarios",
    "cost": "the mean path cost over the training scenarios",
    HISTORY: "the mean ratio of the next matrix's MLU to its optimum on held-out earlier matrices, "
    "with a penalty on large ones",
    "traffic": "the mean ratio of MLU to the optimum on earlier matrices, with a penalty on rare "
    "large ratios",
}
BY_MIX = "Distance from the best routing over these paths, by mixes of unseen demand vectors:"
ROUNDING, SMALL = 1e-9, 5e-4  # between these, gaps are shown with two digits
SAME = 1e-9  # by which a scale may differ from one and still be none
STOPPED = {
    **STOPS,
    StopReason.STALLED: "no overload is left and the mixture hardly improves any more",
}
AGENTS = {
    "own": ["Each demand is split by an agent that sees that demand alone."],
    "source": ["Each node splits its demands and sees these alone."],
}
OUTSIDE = (
    "Demand vectors outside the set get an answer without a guarantee; cg4ai predict marks them."
)


def make_routing_story(summary: Mapping[str, Any], saved: SavedRun | None = None) -> Story:
    """Of a run that has ended; figures are drawn from its folder."""
    sections = {
        "distances": _distances(summary),
        "plain": _beside_plain(summary),
        "traffic": _traffic(summary),
        "speed": Section("Speed", tuple(format_speed(summary))),
    }
    demands = number_of(summary["demands"], "demand")
    chapters = tuple(sections.values())
    if saved is not None:
        from cg4ai.routing.pages.chapters import write_chapters  # draws, with matplotlib

        chapters = tuple(write_chapters(saved, **sections))
    return Story(
        title=f"Router of {summary['network']}: {demands}, up to "
        f"{number_of(summary['paths'], 'path')} each",
        asked=tuple(_asked(summary)),
        findings=tuple(list_findings(summary)),
        first=tuple(_first(summary)),
        figures=tuple(_figures(summary)),
        closing=(
            *_plain_overloads(summary),
            *describe_before(summary),
            *(
                describe_judged_traffic(summary["traffic"], factor_of(summary))
                if "traffic" in summary
                else ()
            ),
            *describe_operation(summary),
            describe_closing(summary, describe_mixture(summary)) + format_original(summary),
        ),
        remarks=(*list_remarks(summary), *([] if saved is None else [OUTSIDE])),
        sections=chapters,
        trained=tuple(_trained(summary)),
        explorable=HISTORY not in summary,
        blocks=() if saved is None else tuple(restore_instance(saved.description).demand_names),
    )


# ---- what stands first --------------------------------------------------------------------------


def _first(summary: Mapping[str, Any]) -> Iterator[str]:
    """What was cut, scaled, left out or held constant."""
    yield from describe_cut(summary)
    yield from describe_update(summary)
    yield from format_notice(factor_of(summary))
    if summary["active_members"] == summary["active_constants"]:
        same = "" if "ratio" in summary else ", the same splits at every demand vector"
        anchors = number_of(summary["active_constants"], _anchor(summary))
        yield f"NO TRAINED MEMBER IS RETURNED, only {anchors}{same}."
    yield from (f"{note[0].upper()}{note[1:]}." for note in summary.get("notes", ()))
    scaled = summary["load"] is not None and not _from_traffic(summary)
    if scaled and not (summary.get("notes") and abs(summary["scale"] - 1) > SAME):
        yield (
            f"The largest demands are the network's volumes times {summary['scale']:.6g} (load "
            f"{summary['load']:g})."
        )


def _asked(summary: Mapping[str, Any]) -> Iterator[str]:
    factor = factor_of(summary)
    which = "the one demand" if summary["demands"] == 1 else f"each of {summary['demands']} demands"
    scaled = f" (counted as {format_multiple(factor)})" if factor != 1.0 else ""
    each = " each" if summary["demands"] > 1 else ""
    yield (
        f"Split {which} over up to {_paths(summary)}{each}. No link may carry "
        f"more than its capacity{scaled} at any demand vector of the set: {set_of(summary)}."
    )
    worst = "The best routing of the largest demands over these paths"
    if "limits" in set_of(summary):
        worst = "The best constant split, at its worst vector of the set,"
    yield (
        f"{summary['network']} has {number_of(summary['links'], 'link')} in use. {worst} loads "
        f"some link to {format_both(summary['corner_mlu'], factor, '.6g')}."
    )
    if HISTORY in summary:
        yield (
            f"The matrix to split is not known: the last {summary[HISTORY]['length']} matrices are "
            "read, and every split fits the whole set."
        )
    yield from AGENTS.get(get_scope(summary), [])
    if _from_traffic(summary):
        as_given = "; capacities are as given" if factor == 1.0 else ""
        yield f"Demands are in the units of the traffic{as_given}."
    elif summary["load"] is None:
        yield "The largest demands are the network's volumes as given."


def _paths(summary: Mapping[str, Any]) -> str:
    """How many paths, of what kind and within what limits; older runs do not say."""
    kind = summary.get("path_choice")
    words = number_of(summary["paths"], f"{kind} path" if kind else "path")
    hops, latency = summary.get("max_hops"), summary.get("max_latency")
    limits = [number_of(hops, "link")] if hops else []
    limits += [f"{latency:g} ms"] if latency else []
    return f"{words} of at most {' and '.join(limits)}" if limits else words


def _from_traffic(summary: Mapping[str, Any]) -> bool:
    """Whether it learned from traffic; older summaries say it by what they judge it on."""
    return bool(summary.get("from_traffic", "traffic" in summary))


def describe_mixture(summary: Mapping[str, Any]) -> str:
    """What predicts: how many trained members and constant splits."""
    constants = summary["active_constants"]
    parts = [_of_kind(summary["active_members"] - constants, summary)]
    parts += [number_of(constants, _anchor(summary))] if constants else []
    return f"{' and '.join(parts)} in the mixture"


def _anchor(summary: Mapping[str, Any]) -> str:
    return "flow anchor" if "ratio" in summary else "constant split"


def _of_kind(count: int, summary: Mapping[str, Any]) -> str:
    kind = {"network": "network", "tree": "tree", "both": "network or tree"}[summary["members"]]
    plural = MEMBERS[summary["members"]].replace(" and ", " or ")
    return f"{count} {kind if count == 1 else plural}"


# ---- scores -------------------------------------------------------------------------------------


def _figures(summary: Mapping[str, Any]) -> Iterator[KeyFigure]:
    """The distance from the optimum and the fullest link, plain networks beside them."""
    factor, count = factor_of(summary), summary.get("validation")
    of, where = (
        format_scaling_suffix(factor),
        f" at {count:,} unseen demand vectors" if count else "",
    )
    real = real_figures(summary, factor) if of and factor is not None else {}
    if summary["objective"] == "cost":
        gaps = {name: summary.get(f"{key}mean_cost_gap") for name, key in ROUTERS.items()}
        known = {name: per_cent_above(gap) for name, gap in gaps.items() if gap is not None}
        label = f"Path cost above the cheapest that fits{where}"
        yield KeyFigure(known.pop(OURS, "not measured"), label, tuple(known.items()))
    elif summary.get("mean_mlu_gap") is not None:
        largest = [
            (f"largest {label}".removesuffix(" "), value)
            for label, value in (
                ("", gap_text(summary["max_mlu_gap"])),
                *_beside(summary, real, "max_mlu_gap"),
            )
        ]
        yield KeyFigure(
            gap_text(summary["mean_mlu_gap"]),
            f"Mean MLU{of} above the optimum{where}",
            (*_beside(summary, real, "mean_mlu_gap"), *largest),
        )
    elif HISTORY not in summary:  # which is judged by later matrices
        yield KeyFigure("not measured", f"MLU{of} above the optimum")
    yield KeyFigure(
        f"{summary['worst_utilisation']:.4f}",
        f"Worst link utilisation{of} found",
        tuple(_beside(summary, real, "worst_utilisation")),
    )
    if "network_optimum" in summary:
        yield _network_figure(summary["network_optimum"])
    if "traffic" in summary:
        by_name = {name: found["mean"] for name, found in summary["traffic"]["ratio"].items()}
        mean = by_name.pop(OURS)
        label = f"Mean MLU over the optimum on {summary['traffic']['later']} later matrices"
        yield KeyFigure(
            f"{mean:.4f}", label, tuple((name, f"{one:.4f}") for name, one in by_name.items())
        )


def _network_figure(found: Mapping[str, Any]) -> KeyFigure:
    """The router and the best routing over its paths, over the optimum of the network."""
    return KeyFigure(
        f"{found['router_mean_ratio']:.4f}",
        f"Mean MLU over the optimum of all paths of the network at {found['vectors']:,} vectors",
        (
            ("99th percentile", f"{found['router_p99_ratio']:.4f}"),
            (
                "best routing over the chosen paths",
                f"{found['paths_mean_ratio']:.4f}, {found['paths_p99_ratio']:.4f}",
            ),
            ("at the worst case of the set", f"{found['paths_worst_case_ratio']:.4f}"),
        ),
    )


def _beside(
    summary: Mapping[str, Any], real: Mapping[str, float], key: str
) -> Iterator[tuple[str, str]]:
    if key in real:
        yield "of the real capacity", f"{real[key]:.4f}"
    if summary.get(f"plain_{key}") is not None:
        yield "plain networks", gap_text(summary[f"plain_{key}"])


def gap_text(value: float | None) -> str:
    """Of lightly loaded links two digits, since four places would say 0; never -0.0000."""
    if value is None:
        return "not measured"
    small = ROUNDING < abs(value) < SMALL
    return f"{value:.2g}" if small else f"{round(value, 4) + 0.0:.4f}"


def per_cent_above(share: float) -> str:
    """A share as per cent more or less; what rounds to nothing has no sign of less."""
    return f"{round(100 * share, 2) + 0.0:+.2f} %"


ROUTERS = {OURS: "", "plain networks": "plain_"}


def _plain_overloads(summary: Mapping[str, Any]) -> list[str]:
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
        f"{100 * worst:.4g} % of its capacity at the worst vector found{often}."
    ]


# ---- details ------------------------------------------------------------------------------------


def _distances(summary: Mapping[str, Any]) -> Section:
    """How far the router is from the best routing on each mix of demands, a row each."""
    of = format_scaling_suffix(factor_of(summary))
    found = [
        {
            "demands": MIXES_SAID[mix],
            "vectors": f"{row['vectors']:,}",
            f"MLU{of} above the optimum, mean": gap_text(row["mean_mlu_gap"]),
            "largest": gap_text(row["max_mlu_gap"]),
            "MLU over the optimum, mean": f"{row['mean_ratio']:.4f}",
            "worst": f"{row['max_ratio']:.4f}",
            **(
                {"path cost above the cheapest": per_cent_above(row["mean_cost_gap"])}
                if "mean_cost_gap" in row
                else {}
            ),
        }
        for mix, row in summary.get("mixes", {}).items()
    ]
    return Section("Distance from the optimum", (BY_MIX, ReportTable(found)) if found else ())


def _beside_plain(summary: Mapping[str, Any]) -> Section:
    """The router and plain networks, where these were trained, a row each."""
    title, factor = "Beside plain networks", factor_of(summary)
    if "plain_worst_utilisation" not in summary:
        return Section(title, ())
    compared = [
        {
            "": name,
            f"worst link utilisation found{format_scaling_suffix(factor)}": (
                f"{summary[f'{key}worst_utilisation']:.6f}"
            ),
            "overload found": summary[f"{key}worst_utilisation"] > FEASIBLE,
            f"MLU{format_scaling_suffix(factor)} above the optimum, mean": gap_text(
                summary.get(f"{key}mean_mlu_gap")
            ),
            "largest": gap_text(summary.get(f"{key}max_mlu_gap")),
        }
        for name, key in ROUTERS.items()
    ]
    if summary["objective"] == "cost":  # whose figure stands among the scores
        compared = [dict(list(row.items())[:3]) for row in compared]
    said = "Plain networks were trained for as many steps on the same data, without the rule."
    return Section(title, (said, ReportTable(compared)))


def _traffic(summary: Mapping[str, Any]) -> Section:
    if "traffic" not in summary:
        return Section("Measured traffic", ())
    table = ReportTable(make_rows(summary["traffic"]))
    return Section("Measured traffic", ("MLU over the optimum on the later matrices:", table))


def format_speed(summary: Mapping[str, Any]) -> list[str]:
    """A batch, a single answer and a linear program; older runs timed no single answers."""
    if "single_answer_s" in summary:
        names = ("single_answer_s", "batch_answer_s", "program_answer_s")
        single, batch, program = (format_milliseconds(summary[name]) for name in names)
        return [
            f"Time per answer: {single} for one demand vector, {batch} in a batch of "
            f"{summary['timed']:,}, {program} for a linear program from a warm start."
        ]
    if "speedup" not in summary:
        return []
    older = ("predict_1000_s", "highs_1000_s")
    batch, program = (format_milliseconds(summary[name] / 1000) for name in older)
    return [
        f"Time per answer: {batch} in a batch, {program} for a linear program from a warm "
        "start. Single answers were not timed."
    ]


def format_milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.2g} ms" if seconds < 0.1 else f"{1000 * seconds:.0f} ms"


def _trained(summary: Mapping[str, Any]) -> Iterator[str]:
    """How training ended, members and rows by where they come from, and the seconds of steps."""
    shielded = summary["guarantee"] == "shielded" or summary["members"] == "tree"
    planned = {StopReason.ITERATION_LIMIT: f"all planned {MEMBERS[summary['members']]} are trained"}
    yield describe_stop(summary, STOPPED | (planned if shielded else {}))
    constants, active = summary["constants"], summary["active_constants"]
    trained = _of_kind(summary["columns"] - constants, summary)
    left = _of_kind(summary["active_members"] - active, summary)
    anchor = _anchor(summary)
    yield (
        f"Members: {trained} trained beside {number_of(constants, anchor)}; {left} and "
        f"{number_of(active, anchor)} in the mixture."
    )
    of_capacities = ""
    if "found_rows" in summary:
        of_capacities = (
            f", {summary.get('capacity_rows', 0)} of them for capacities "
            f"({summary['found_rows']} found by search)"
        )
    yield f"Rows of the master: {summary['rows']}{of_capacities}."
    minimised = MINIMISED["traffic" if _from_traffic(summary) else summary["objective"]]
    minimised = MINIMISED[HISTORY] if HISTORY in summary else minimised
    yield from describe_optimality(summary, minimised)
    yield describe_seconds(summary, searching="search for overloads")
