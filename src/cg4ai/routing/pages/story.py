"""A routing run as a report tells it: distances from the optimum, links, traffic, failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.apps.folders import trained
from cg4ai.plots.distributions import plot_histogram
from cg4ai.plots.networks import plot_found, plot_network, plot_utilisation
from cg4ai.records import Array, Strength
from cg4ai.report.story import Drawing, Finding, KeyFigure, Part, Saved, Section, Story, Table
from cg4ai.report.wording import counted as number_of
from cg4ai.report.wording import remarks
from cg4ai.routing.demands.scaling import (
    counted,
    factor_of,
    multiple,
    of_capacity,
    real_figures,
    said_first,
)
from cg4ai.routing.network.description import restored
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.operate import failure_study as failures
from cg4ai.routing.operate.later_traffic import judged_on, rows
from cg4ai.routing.pages.journal import found_overloads
from cg4ai.routing.pages.link_loads import WorstLoads, load_arrays
from cg4ai.routing.pages.report import (
    BY_MIX,
    MIXES_SAID,
    SET,
    USUAL_SET,
    about,
    by_mix,
    comparison,
    distance,
    guarantee,
    milliseconds,
    mixture,
    per_cent_above,
    ratio,
    ratio_kept,
    returned,
    speed,
    stopped,
)
from cg4ai.routing.prove.attack import FEASIBLE, UNROUTED
from cg4ai.routing.train.shield import edge_vectors

OURS, PLAIN, OPTIMUM = "this router", "plain networks", "optimum"
OUTSIDE = (
    "Demand vectors outside this set are answered, too, but nothing is guaranteed there; cg4ai "
    "predict marks them."
)
FEW = 500  # random vectors at which the links of older runs, which kept no loads, are looked at
NAMED = 6  # demands of a vector that a table names
Arrays = Mapping[str, NDArray[Any]]


def story(saved: Saved) -> Story:
    """Of a run that has ended."""
    summary = saved.summary or {}
    factor = factor_of(summary)
    made, arrays = replace(restored(saved.description), capacity_factor=factor), saved.arrays
    counted_demands = number_of(summary["demands"], "demand")
    return Story(
        title=f"Router of {summary['network']}: {counted_demands}, up to "
        f"{number_of(summary['paths'], 'path')} each",
        asked=tuple(_asked(summary)),
        findings=tuple(_findings(summary)),
        figures=tuple(_figures(summary)),
        remarks=(returned(summary), *remarks(summary), *distance(summary), OUTSIDE),
        sections=(
            _gaps(summary, arrays, made),
            _links(saved, made),
            _beside_plain(summary, arrays),
            _met(arrays, made),
            _traffic(summary, arrays),
            _failures(saved),
        ),
        trained=(stopped(summary), *mixture(summary)),
        blocks=tuple(made.demand_names),
    )


def _asked(summary: Mapping[str, Any]) -> Iterator[str]:
    factor = factor_of(summary)
    yield from said_first(factor)
    scaled = f", which is counted as {multiple(factor)}," if factor != 1.0 else ","
    yield (
        f"Split {_each(summary['demands'])} over its paths at once, such that no link ever carries "
        f"more than its capacity{scaled} at any demand vector of the set: "
        f"{summary.get('demand_set', USUAL_SET)}."
    )
    yield " ".join(
        line
        for line in about(summary)
        if not line.startswith(SET) and line not in said_first(factor)
    )


def _each(demands: int) -> str:
    return "the one demand" if demands == 1 else f"each of {demands} demands"


def _findings(summary: Mapping[str, Any]) -> Iterator[Finding]:
    """What was asked for is a guarantee of some strength, or a stronger one; and a ratio."""
    strength, weakest_first = Strength(summary["strength"]), list(Strength)
    statement, *more = guarantee(summary).split("\n")
    kept = summary["worst_utilisation"] <= FEASIBLE and summary.get("unrouted", 0.0) <= UNROUTED
    enough = weakest_first[weakest_first.index(Strength(summary["guarantee"])) :]
    of = counted(factor_of(summary))
    title = f"No link above a utilisation of one{of}" if of else "No link above its capacity"
    yield Finding(title, strength, kept and strength in enough, statement, tuple(more))
    for sentence in ratio(summary):
        proven = summary["ratio_proof"]["status"] == "proven"
        strength = Strength.CERTIFIED if proven else Strength.UNVERIFIED
        yield Finding("Never far above the optimum", strength, ratio_kept(summary), sentence)


def _figures(summary: Mapping[str, Any]) -> Iterator[KeyFigure]:
    if summary.get("mean_cost_gap") is not None:
        above = per_cent_above(summary["mean_cost_gap"])
        yield KeyFigure(above, "path cost above the cheapest")
    of, factor = counted(factor_of(summary)), factor_of(summary)
    real = real_figures(summary, factor) if of and factor is not None else {}
    for key, label in (
        ("mean_mlu_gap", "MLU above the optimum, mean"),
        ("max_mlu_gap", "MLU above the optimum, largest"),
        ("worst_utilisation", "worst link utilisation found"),
    ):
        if summary.get(key) is not None:
            yield KeyFigure(f"{round(summary[key], 4) + 0.0:.4f}", f"{label}{of}")
        if key in real:
            yield KeyFigure(f"{real[key]:.4f}", f"{label}, of the real capacity")
    if summary.get("mixes"):
        mix, worst = max(summary["mixes"].items(), key=lambda item: item[1]["mean_ratio"])
        yield KeyFigure(
            f"{worst['mean_ratio']:.4f}",
            f"MLU over the optimum, mean, on the worst mix of demands: {MIXES_SAID[mix]}",
        )
    if "shield" in summary:
        acting = summary["shield"]["adversarial_acting"]
        yield KeyFigure(f"{100 * acting:.3g} %", "of adversarial vectors moved by the shield")
    if "single_answer_s" in summary:
        batch, program = (
            milliseconds(summary[key]) for key in ("batch_answer_s", "program_answer_s")
        )
        yield KeyFigure(
            milliseconds(summary["single_answer_s"]),
            f"for an answer alone; {batch} each in a batch, {program} by a linear program",
        )
    yield KeyFigure(f"{summary['total_s'] + summary['evaluation_s']:.0f} s", "whole run")


# ---- distance from the optimum ------------------------------------------------------------------


def _gaps(summary: Mapping[str, Any], arrays: Arrays, made: Instance) -> Section:
    title, of = "Distance from the optimum", counted(made.capacity_factor)
    if "predicted_mlu" not in arrays:
        return Section(title, ("It was not measured: the time was over.",))
    optimal, reached = arrays["optimal_mlu"], arrays["predicted_mlu"]
    gaps, levels = {OURS: reached - optimal}, {OURS: reached}
    if "plain_mlu" in arrays:
        gaps[PLAIN] = arrays["plain_mlu"] - optimal
    levels[OPTIMUM] = optimal
    parts: list[Part] = [
        f"Measured at {len(optimal):,} demand vectors at random, which training never saw; the "
        "optimum of each is that of a linear program. MLU is the utilisation of the fullest link"
        f"{of}.",
        Drawing(
            "How far the MLU lies above the least possible; large counts on a logarithmic scale.",
            lambda ax: plot_histogram(
                gaps,
                label=f"MLU above the optimum{of}",
                counted="demand vectors",
                rare=True,
                ax=ax,
            ),
        ),
        Drawing(
            "The MLU itself beside the optimum's.",
            lambda ax: plot_histogram(
                levels,
                label=f"MLU{of}",
                counted="demand vectors",
                limit=1.0,
                limit_name=multiple(made.capacity_factor) or "capacity",
                ax=ax,
            ),
        ),
    ]
    if "predicted_cost" in arrays:
        costs = 100 * (arrays["predicted_cost"] / arrays["optimal_cost"] - 1)
        parts.append(
            Drawing(
                "Path cost above the least possible.",
                lambda ax: plot_histogram(
                    costs, label="per cent above the cheapest", counted="demand vectors", ax=ax
                ),
            )
        )
    if "gap_vectors" in arrays:
        parts += ["The vectors furthest above the optimum:", Table(_worst(arrays, made))]
    if summary.get("mixes"):
        parts += [f"{BY_MIX}:", Table(by_mix(summary))]
    return Section(title, (*parts, *speed(summary)))


def _worst(arrays: Arrays, made: Instance) -> list[dict[str, Any]]:
    factor = made.capacity_factor
    return [
        {
            f"MLU{counted(factor)}": float(mlu),
            "optimum": float(best),
            "above": float(mlu - best),
            **(
                {"MLU of the real capacity": factor * float(mlu)}
                if factor is not None and factor != 1.0
                else {}
            ),
            "largest demands, in shares of their most": _shares(vector, made),
        }
        for vector, (mlu, best) in zip(arrays["gap_vectors"], arrays["gap_mlu"], strict=True)
    ]


def _shares(vector: Array, made: Instance) -> str:
    shares = vector / made.demand_max
    order = np.argsort(-vector, kind="stable")[:NAMED]
    words = [f"{made.demand_names[number]} {shares[number]:.0%}" for number in order]
    more = len(vector) - len(words)
    return ", ".join(words) + (f" and {more} more" if more else "")


# ---- links --------------------------------------------------------------------------------------


def _links(saved: Saved, made: Instance) -> Section:
    arrays = dict(saved.arrays)
    parts: list[Part] = []
    if "link_worst" not in arrays:
        arrays |= _looked_at(saved, made)
        parts.append(f"This run kept no loads of links: they are those at {FEW} vectors, made now.")
    worst, names = arrays["link_worst"], ["->".join(arc) for arc in made.arcs]
    share = multiple(made.capacity_factor) or "capacity"
    of = f", in shares of {share}" if made.capacity_factor != 1.0 else ""
    where = "" if made.positions is not None else " Where its nodes are is not known."
    parts.append(
        Drawing(
            f"The fullest that each link was found{of}, at random vectors and at those of "
            f"searches. Each direction lies to the right of the way it goes.{where}",
            lambda ax: plot_network(made, worst, capacity=share, ax=ax),
            height=4.0,
        )
    )
    if "link_loads" in arrays:
        parts.append(
            Drawing(
                f"The fullest links{of}: at random vectors all (thin), nine of ten (thick) and the "
                "median, and the worst that any search found.",
                partial(_fullest, arrays["link_loads"], names, worst, share),
                height=4.0,
            )
        )
    if "worst_vector" in arrays:
        fullest = int(worst.argmax())
        parts.append(
            f"The fullest link found is {names[fullest]}, at "
            f"{of_capacity(worst[fullest], made.capacity_factor, '.6f')}; "
            f"demands there: {_shares(arrays['worst_vector'], made)} of their most."
        )
    return Section("Links", tuple(parts))


def _fullest(loads: Array, names: Sequence[str], worst: Array, share: str, ax: Any) -> None:
    plot_utilisation(loads, names, worst=worst, capacity=share, ax=ax)


def _looked_at(saved: Saved, made: Instance) -> dict[str, Array]:
    """Loads of a run that kept none, at some vectors."""
    router, _ = trained(saved.folder)
    seen = WorstLoads(made)
    vectors = np.concatenate([edge_vectors(made), made.sample(FEW, 0)])
    loads = seen.see(vectors, router.predict(vectors))
    return {**load_arrays(loads), **seen.arrays()}


# ---- what only some runs have -------------------------------------------------------------------


def _beside_plain(summary: Mapping[str, Any], arrays: Arrays) -> Section:
    if "plain_worst_utilisation" not in summary:
        return Section("Beside plain networks", ())
    parts: list[Part] = [
        "Plain networks were trained for as many steps on the same data, without the rule.",
        Table(comparison(summary)),
    ]
    if "tight_optimal" in arrays:
        tight = {OURS: arrays["tight_predicted"], PLAIN: arrays["tight_plain"]}
        over = {name: int((mlu > FEASIBLE).sum()) for name, mlu in tight.items()}
        parts.append(
            Drawing(
                f"Where hardly any room is left, at {len(arrays['tight_optimal']):,} vectors whose "
                "optimum is nearly the largest of the set: "
                + ", ".join(f"{name} {count} above capacity" for name, count in over.items())
                + ".",
                lambda ax: plot_histogram(
                    tight,
                    label="MLU",
                    counted="demand vectors",
                    limit=1.0,
                    limit_name="capacity",
                    ax=ax,
                ),
            )
        )
    return Section("Beside plain networks", tuple(parts))


def _met(arrays: Arrays, made: Instance) -> Section:
    """Overloads that became rows, or that training was shown."""
    found = found_overloads(arrays)
    if not len(found["arc"]):
        return Section("Overloads found while training", ())
    counts = np.bincount(found["arc"], minlength=len(made.arcs))
    order = np.argsort(-counts, kind="stable")[:NAMED]
    most = [
        {"link": "->".join(made.arcs[arc]), "vectors found": int(counts[arc])}
        for arc in order
        if counts[arc]
    ]
    return Section(
        "Overloads found while training",
        (
            f"{len(found['arc']):,} demand vectors at which the mixture, or networks in training, "
            "overloaded a link. They became rows of the master, or cases to train on.",
            Drawing(
                "Utilisation of the overloaded link when it was found, by iterations.",
                lambda ax: plot_found(
                    found["iteration"], found["utilisation"], training=found["training"], ax=ax
                ),
            ),
            Table(most),
        ),
    )


def _traffic(summary: Mapping[str, Any], arrays: Arrays) -> Section:
    if "traffic" not in summary:
        return Section("Measured traffic", ())
    parts: list[Part] = [*judged_on(summary["traffic"], factor_of(summary))]
    parts += ["MLU over the optimum on the later matrices:", Table(rows(summary["traffic"]))]
    if "later_mlu" in arrays:
        over = arrays["later_mlu"] / arrays["later_optimal_mlu"]
        parts.append(
            Drawing(
                "MLU over the optimum of the later matrices.",
                lambda ax: plot_histogram(
                    over, label="MLU over the optimum", counted="matrices", rare=True, ax=ax
                ),
            )
        )
    return Section("Measured traffic", tuple(parts))


def _failures(saved: Saved) -> Section:
    title = "Failures of links"
    if not (saved.folder / failures.FOLDER).is_dir() or not (found := failures.known(saved.folder)):
        return Section(title, ())
    texts = [f"{row['failure']}: {row['text']}" for row in found if row.get("text")]
    table = Table([failures.shown(row) for row in found], digits=3)
    return Section(title, (f"{failures.totals(found)}.", table, *texts))
