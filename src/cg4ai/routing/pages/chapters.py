"""The figures of a routing run: distances from the optimum, links, overloads, traffic, failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.apps import load_trained
from cg4ai.data import Array
from cg4ai.plots import (
    plot_found,
    plot_histogram,
    plot_network,
    plot_over_time,
    plot_utilisation,
)
from cg4ai.report import Drawing, Part, ReportTable, SavedRun, Section
from cg4ai.routing.demands.scaling import (
    factor_of,
    format_multiple,
    format_of_capacity,
    format_scaling_suffix,
)
from cg4ai.routing.network.description import restore_instance
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.operate import failure_study as failures
from cg4ai.routing.options import HISTORY
from cg4ai.routing.pages.journal import found_overloads
from cg4ai.routing.pages.judged_traffic import OPTIMUM, OURS, get_mlu_over_time, unpack_times
from cg4ai.routing.pages.link_loads import WorstLoads, load_arrays
from cg4ai.routing.prove.attack import FEASIBLE
from cg4ai.routing.train.shield import edge_vectors

PLAIN = "plain networks"
FEW = 500  # random vectors at which the links of older runs, which kept no loads, are looked at
NAMED = 6  # demands of a vector that a table names
Arrays = Mapping[str, NDArray[Any]]


def write_chapters(
    saved: SavedRun, *, distances: Section, plain: Section, traffic: Section, speed: Section
) -> Iterator[Section]:
    """Those sections with their figures, and what else is in the run's folder."""
    factor = factor_of(saved.summary or {})
    made, arrays = (
        replace(restore_instance(saved.description), capacity_factor=factor),
        saved.arrays,
    )
    if traffic.parts:  # what such a run is judged by comes first
        yield replace(traffic, parts=(*_over_time(arrays, made), *traffic.parts, *_later(arrays)))
    if HISTORY not in (saved.summary or {}):
        yield _with(distances, _gaps(arrays, made))
    yield _links(saved, made)
    yield _with(plain, _tight(arrays)) if plain.parts else plain
    yield _met(arrays, made)
    yield _failures(saved)
    yield speed


def _with(section: Section, more: Sequence[Part]) -> Section:
    return replace(section, parts=(*section.parts, *more))


# ---- distance from the optimum ------------------------------------------------------------------


def _gaps(arrays: Arrays, made: Instance) -> list[Part]:
    of = format_scaling_suffix(made.capacity_factor)
    if "predicted_mlu" not in arrays:
        return ["It was not measured: the time was over."]
    optimal, reached = arrays["optimal_mlu"], arrays["predicted_mlu"]
    gaps, levels = {OURS: reached - optimal}, {OURS: reached}
    if "plain_mlu" in arrays:
        gaps[PLAIN] = arrays["plain_mlu"] - optimal
    levels[OPTIMUM] = optimal
    parts: list[Part] = [
        f"Measured at {len(optimal):,} random demand vectors that training never saw. A linear "
        f"program gives the optimum of each. MLU is the utilisation of the fullest link{of}.",
        Drawing(
            "MLU above the optimum; large counts are on a logarithmic scale.",
            lambda ax: plot_histogram(
                gaps,
                label=f"MLU above the optimum{of}",
                counted="demand vectors",
                rare=True,
                ax=ax,
            ),
        ),
        Drawing(
            "MLU of the router and of the optimum.",
            lambda ax: plot_histogram(
                levels,
                label=f"MLU{of}",
                counted="demand vectors",
                limit=1.0,
                limit_name=format_multiple(made.capacity_factor) or "capacity",
                ax=ax,
            ),
        ),
    ]
    if "predicted_cost" in arrays:
        costs = 100 * (arrays["predicted_cost"] / arrays["optimal_cost"] - 1)
        parts.append(
            Drawing(
                "Path cost above the cheapest that fits.",
                lambda ax: plot_histogram(
                    costs, label="per cent above the cheapest", counted="demand vectors", ax=ax
                ),
            )
        )
    if "gap_vectors" in arrays:
        parts += ["The vectors furthest above the optimum:", ReportTable(_worst(arrays, made))]
    return parts


def _worst(arrays: Arrays, made: Instance) -> list[dict[str, Any]]:
    factor = made.capacity_factor
    return [
        {
            f"MLU{format_scaling_suffix(factor)}": float(mlu),
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


def _links(saved: SavedRun, made: Instance) -> Section:
    arrays = dict(saved.arrays)
    parts: list[Part] = []
    if "link_worst" not in arrays:
        arrays |= _looked_at(saved, made)
        parts.append(f"This run kept no loads of links. They were computed now at {FEW} vectors.")
    worst, names = arrays["link_worst"], ["->".join(arc) for arc in made.arcs]
    share = format_multiple(made.capacity_factor) or "capacity"
    of = f", in shares of {share}" if made.capacity_factor != 1.0 else ""
    where = "" if made.positions is not None else " The positions of its nodes are not known."
    parts.append(
        Drawing(
            f"Highest utilisation found of each link{of}, at random vectors and by search. Traffic "
            f"of a direction is drawn on its right-hand side.{where}",
            lambda ax: plot_network(made, worst, capacity=share, ax=ax),
            height=4.0,
        )
    )
    if "link_loads" in arrays:
        parts.append(
            Drawing(
                f"The fullest links{of}: range (thin), nine of ten (thick) and median at random "
                "vectors, and the worst that a search found.",
                partial(_fullest, arrays["link_loads"], names, worst, share),
                height=4.0,
            )
        )
    if "worst_vector" in arrays:
        fullest = int(worst.argmax())
        parts.append(
            f"The fullest link found is {names[fullest]}, at "
            f"{format_of_capacity(worst[fullest], made.capacity_factor, '.6f')}; "
            f"demands there: {_shares(arrays['worst_vector'], made)} of their most."
        )
    return Section("Links", tuple(parts))


def _fullest(loads: Array, names: Sequence[str], worst: Array, share: str, ax: Any) -> None:
    plot_utilisation(loads, names, worst=worst, capacity=share, ax=ax)


def _looked_at(saved: SavedRun, made: Instance) -> dict[str, Array]:
    """Loads of a run that kept none, at some vectors."""
    router, _ = load_trained(saved.folder)
    seen = WorstLoads(made)
    vectors = np.concatenate([edge_vectors(made), made.sample(FEW, 0)])
    loads = seen.update(vectors, router.predict(vectors))
    return {**load_arrays(loads), **seen.to_arrays()}


# ---- what only some runs have -------------------------------------------------------------------


def _tight(arrays: Arrays) -> list[Part]:
    if "tight_optimal" not in arrays:
        return []
    tight = {OURS: arrays["tight_predicted"], PLAIN: arrays["tight_plain"]}
    over = {name: int((mlu > FEASIBLE).sum()) for name, mlu in tight.items()}
    counts = ", ".join(f"{name} {count}" for name, count in over.items())
    return [
        Drawing(
            f"MLU at {len(arrays['tight_optimal']):,} vectors whose optimum is nearly the largest "
            f"of the set. Vectors with an overload: {counts}.",
            lambda ax: plot_histogram(
                tight,
                label="MLU",
                counted="demand vectors",
                limit=1.0,
                limit_name="capacity",
                ax=ax,
            ),
        )
    ]


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
            "overloaded a link. They became rows of the master or training cases.",
            Drawing(
                "Utilisation of the overloaded link when it was found, by iterations.",
                lambda ax: plot_found(
                    found["iteration"], found["utilisation"], training=found["training"], ax=ax
                ),
            ),
            ReportTable(most),
        ),
    )


def _over_time(arrays: Arrays, made: Instance) -> list[Part]:
    """MLU on the later matrices, the router's beside those that it is compared with."""
    series = get_mlu_over_time(arrays)
    if OURS not in series:
        return []
    outside = arrays["later_inside"] == 0
    words = f"MLU at {len(series[OURS]):,} later matrices, the router's beside those of "
    words += " and of ".join(f"the {name}" for name in series if name != OURS)
    if outside.any():
        words += f". Marks below: {int(outside.sum()):,} matrices outside the set, no guarantee"
    return [
        Drawing(
            f"{words}.",
            lambda ax: plot_over_time(
                series,
                unpack_times(arrays),
                label=f"MLU{format_scaling_suffix(made.capacity_factor)}",
                outside=outside,
                ax=ax,
            ),
        )
    ]


def _later(arrays: Arrays) -> list[Part]:
    if "later_mlu" not in arrays:
        return []
    over = arrays["later_mlu"] / arrays["later_optimal_mlu"]
    return [
        Drawing(
            "MLU over the optimum of the later matrices.",
            lambda ax: plot_histogram(
                over, label="MLU over the optimum", counted="matrices", rare=True, ax=ax
            ),
        )
    ]


def _failures(saved: SavedRun) -> Section:
    title = "Failures of links"
    if not (saved.folder / failures.FOLDER).is_dir() or not (
        found := failures.read_known_outcomes(saved.folder)
    ):
        return Section(title, ())
    texts = [f"{row['failure']}: {row['text']}" for row in found if row.get("text")]
    table = ReportTable([failures.format_outcome(row) for row in found], digits=3)
    return Section(title, (f"{failures.format_totals(found)}.", table, *texts))
