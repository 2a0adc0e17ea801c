"""The paper's routing figures, drawn from saved runs alone: nothing is trained here.

Each function takes run folders that `cg4ai route` or `python -m experiments.routing` wrote and
returns the PNG file it made. `all_figures` draws those whose runs are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.errors import RunFolderError
from cg4ai.plots import plot_convergence, plot_found, plot_histogram, plot_ranges
from cg4ai.plots.drawing import BAD, FIRST, legend_above
from cg4ai.plots.training import has_violation
from cg4ai.routing.pages.journal import found_overloads
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from experiments.drawing import new_panels, saved_arrays, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Figures:
    """The files `made`, and by name why each of the others is `missing`."""

    made: list[Path] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


def all_figures(runs: Path, out: Path) -> Figures:
    """Every figure whose run folder exists under `runs` and has ended."""
    wanted: list[tuple[str, str, Callable[[Path, Path], Path]]] = [
        ("nobel-us-5-3", "slack", slack),
        ("nobel-us-5-3", "overloads", overloads),
        ("di-yuan-15-3", "overloads-di-yuan", overloads),
        ("nobel-germany-15-3", "mlu-nobel-germany", predicted_mlu),
        ("newyork-5-3", "mlu-newyork", predicted_mlu),
        ("nobel-us-10-3", "plain-violations", plain_violations),
        ("newyork-5-3", "plain-violations-newyork", plain_violations),
        ("polska-5-3", "bottleneck-arc", bottleneck_arc),
        ("ta1-10-2-cost", "cost", cost),
    ]
    figures = Figures()
    for folder, name, draw in wanted:
        if not (runs / folder / "summary.json").exists():
            figures.missing[name] = f"it is of {folder}, which has not ended here"
            continue
        out.mkdir(parents=True, exist_ok=True)
        try:
            figures.made.append(draw(runs / folder, out / f"{name}.png"))
        except RunFolderError as error:  # a run may hold nothing to draw, such as no overload
            figures.missing[name] = str(error)
    return figures


def slack(run: Path, target: Path) -> Path:
    """What the master's rows lack over the iterations, as far as they lack anything.

    Beside it the worst overload of the mixture that was found in each iteration.
    """
    history = Run.open(run, read_only=True).history()
    found = _overloads(saved_arrays(run), len(history))
    records = [
        {**record, "worst_violation": float(overload)}
        for record, overload in zip(history, found, strict=True)
    ]
    if not has_violation(records):
        raise RunFolderError(f"{run} has neither slack nor an overload: training met none")
    figure, (axes,) = new_panels(1)
    plot_convergence(records, "slack", ax=axes)
    axes.set_ylabel("utilisation above capacity")
    if not any(record["slack"] > 0 for record in records):
        axes.set_title("no row of the master lacked anything", fontsize="medium", pad=24)
    return _saved(figure, run, target)


def overloads(run: Path, target: Path) -> Path:
    """The highest utilisation of the mixture that a search found in each iteration, and its size.

    Beside it the columns and rows of the master. A shielded mixture is not searched.
    """
    history = Run.open(run, read_only=True).history()
    found = [
        (record["iteration"], 1.0 + record["worst_violation"])
        for record in history
        if record["worst_violation"] is not None
    ]
    if not found:
        raise RunFolderError(f"{run} has no search of its mixture: a shield keeps the capacities")
    figure, (left, right) = new_panels(2)
    at, worst = np.array(found).T
    left.plot(at, worst, "o-", color=FIRST, markersize=4, label="mixture")
    left.axhline(1.0, color=BAD, linewidth=0.8, label="capacity")
    left.set(xlabel="iteration", ylabel="highest utilisation found")
    legend_above(left)
    for what in ("columns", "rows"):
        counts = [record[what] for record in history]
        right.plot(range(len(counts)), counts, "o-", markersize=4, label=what)
    right.set(xlabel="iteration", ylabel="in the master", yscale="log")
    legend_above(right)
    return _saved(figure, run, target)


def _overloads(arrays: Arrays, count: int) -> NDArray[Any]:
    """The largest utilisation above 1 of the mixture found in each iteration, (count,)."""
    found, worst = found_overloads(arrays), np.zeros(count)
    # the last search comes after all iterations; networks in training are no mixture
    own = (found["iteration"] < count) & ~found["training"].astype(bool)
    iterations = found["iteration"][own].astype(np.int64)
    np.maximum.at(worst, iterations, found["utilisation"][own] - 1.0)
    return worst


def predicted_mlu(run: Path, target: Path) -> Path:
    """Predicted against optimal MLU on the validation vectors."""
    arrays = saved_arrays(run)
    figure, (axes,) = new_panels(1)
    optimal, predicted = arrays["optimal_mlu"], arrays["predicted_mlu"]
    _against(axes, optimal, predicted, what="MLU")
    axes.axhline(1.0, color=BAD, linewidth=0.8, label="capacity")
    gaps = predicted - optimal
    axes.set_title(
        f"gap: mean {gaps.mean():.4f}, largest {gaps.max():.3f}", fontsize="medium", pad=24
    )
    legend_above(axes)
    return _saved(figure, run, target)


def plain_violations(run: Path, target: Path) -> Path:
    """Plain networks and ours where hardly any room is left.

    The demand vectors are those whose optimum lies within a hundredth below the largest of the
    box, which is the load that the demands were scaled to.
    """
    arrays = saved_arrays(run)
    if "tight_optimal" not in arrays:
        raise RunFolderError(f"{run} has no plain networks to compare: run it with --baseline")
    optimal = arrays["tight_optimal"]
    figure, both = new_panels(2)
    for axes, key, name in zip(
        both, ("tight_plain", "tight_predicted"), ("plain networks", "mixture"), strict=True
    ):
        predicted = arrays[key]
        over = predicted > 1 + 1e-6
        for chosen, colour in ((~over, FIRST), (over, BAD)):
            axes.scatter(optimal[chosen], predicted[chosen], s=3, alpha=0.4, color=colour)
        axes.axhline(1.0, color=BAD, linewidth=0.8, label="capacity")
        ends = [float(optimal.min()), float(optimal.max())]
        axes.plot(ends, ends, color="black", linewidth=0.8, label="optimal")
        axes.set(
            xlabel="optimal MLU",
            ylabel="predicted MLU",
        )
        axes.set_title(f"{name}: {int(over.sum())} of {len(over)} above capacity", pad=24)
    low = min(axes.get_ylim()[0] for axes in both)
    high = max(axes.get_ylim()[1] for axes in both)
    for axes in both:
        axes.set_ylim(low, high)
        legend_above(axes)
    figure.supxlabel(
        f"{len(optimal)} demand vectors whose optimum is within 1 % below the largest of the box: "
        f"{optimal.min():.4f} to {optimal.max():.4f}",
        fontsize="small",
    )
    return _saved(figure, run, target)


def bottleneck_arc(run: Path, target: Path) -> Path:
    """The link found overloaded most often: how much, and by which demands."""
    found = found_overloads(saved_arrays(run))
    if not len(found["arc"]):
        raise RunFolderError(f"{run} has no demand vectors from a search: it found no overload")
    about = files.read_json(run / "ensemble.json")["about"]
    arc = int(np.bincount(found["arc"]).argmax())
    here = {name: values[found["arc"] == arc] for name, values in found.items()}
    figure, (left, right) = new_panels(2)
    plot_found(here["iteration"], here["utilisation"], training=here["training"], ax=left)
    left.set_title(f"link {'->'.join(about['arcs'][arc])}", pad=24, parse_math=False)
    labels = [
        f"{demand} (captive)" if _captive(about, number, arc) else demand
        for number, demand in enumerate(about["demands"])
    ]
    shares = here["demands"] / np.array(about["demand_max"])
    plot_ranges(shares, labels, label="share of the largest demand", vectors="vectors", ax=right)
    right.set_title(f"the {len(shares)} demand vectors found for it", pad=24)
    return _saved(figure, run, target)


def _captive(about: Mapping[str, Any], demand: int, arc: int) -> bool:
    """Whether every path of the demand crosses the link."""
    return all(
        arc in _arcs_of(path, about["arcs"])
        for path, of in zip(about["paths"], about["path_demand"], strict=True)
        if of == demand
    )


def cost(run: Path, target: Path) -> Path:
    """With least path cost as the objective: cost against optimal cost, and the MLU reached."""
    arrays = saved_arrays(run)
    figure, (left, right) = new_panels(2)
    optimal, predicted = arrays["optimal_cost"], arrays["predicted_cost"]
    largest = float(optimal.max())
    _against(left, optimal / largest, predicted / largest, what="cost / largest optimal cost")
    gap = float((predicted / optimal).mean()) - 1.0
    left.set_title(f"sum of length x flow: {100 * gap:.2f} % above optimal on average", pad=24)
    legend_above(left)
    plot_histogram(
        arrays["predicted_mlu"],
        label="predicted MLU",
        counted="demand vectors",
        limit=1.0,
        limit_name="capacity",
        ax=right,
    )
    right.set_title("utilisation under the cost objective", pad=24)
    return _saved(figure, run, target)


def _against(axes: Axes, optimal: NDArray[Any], predicted: NDArray[Any], *, what: str) -> None:
    axes.scatter(optimal, predicted, s=3, alpha=0.15, linewidths=0, color=FIRST)
    ends = [float(optimal.min()), float(optimal.max())]
    axes.plot(ends, ends, color="black", linewidth=0.8, label="optimal")
    axes.set(xlabel=f"optimal {what}", ylabel=f"predicted {what}")


def _arcs_of(path: list[str], arcs: list[list[str]]) -> set[int]:
    hops = list(pairwise(path))
    return {number for number, arc in enumerate(arcs) if tuple(arc) in hops}


def _saved(figure: Figure, run: Path, target: Path) -> Path:
    settings = Run.open(run, read_only=True).settings
    figure.suptitle(
        f"{settings['network']}, {settings['demands']} demands, {settings['paths']} paths"
    )
    return write(figure, target)
