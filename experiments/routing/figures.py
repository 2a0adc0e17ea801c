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
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from experiments.drawing import new_panels, saved_arrays, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ZOOM_FROM = 10  # iteration from which the second slack figure starts, where there are as many
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
    """What the master's rows lack over the iterations, and the same from iteration 10 on.

    Beside it the worst overload that separation found in each iteration, before it became a row:
    with an anchor in the master nothing lacks, and only that shows what happened.
    """
    history = Run.open(run, read_only=True).history()
    iterations = np.array([record["iteration"] for record in history])
    lacking = np.array([record["slack"] for record in history])
    overload = _overloads(saved_arrays(run), len(history))
    if not lacking.any() and not overload.any():
        raise RunFolderError(f"{run} has neither slack nor an overload: training met none")
    figure, (whole, zoomed) = new_panels(2)
    start = ZOOM_FROM if len(history) > ZOOM_FROM else len(history) // 2
    for axes, first in ((whole, 0), (zoomed, start)):
        axes.plot(iterations[first:], lacking[first:], marker=".", label="slack in the master")
        axes.plot(
            iterations[first:],
            overload[first:],
            marker=".",
            linestyle="--",
            label="worst overload found",
        )
        _whole_numbers(axes)
        axes.set(
            xlabel="iteration",
            ylabel="utilisation above capacity",
            title=f"from iteration {iterations[first]}",
        )
        top = max(1e-3, 1.05 * lacking[first:].max(), 1.05 * overload[first:].max())
        axes.set_ylim(-0.02 * top, top)
    whole.legend()
    return _saved(figure, run, target)


def _overloads(arrays: Arrays, count: int) -> NDArray[Any]:
    """The largest utilisation above 1 that separation found in each iteration, (count,)."""
    worst = np.zeros(count)
    if "cut_iteration" in arrays:
        within = arrays["cut_iteration"] < count  # the last search comes after all iterations
        np.maximum.at(
            worst, arrays["cut_iteration"][within], arrays["cut_utilisation"][within] - 1.0
        )
    return worst


def predicted_mlu(run: Path, target: Path) -> Path:
    """Predicted against optimal MLU on the validation vectors."""
    arrays = saved_arrays(run)
    figure, (axes,) = new_panels(1)
    optimal, predicted = arrays["optimal_mlu"], arrays["predicted_mlu"]
    _against(axes, optimal, predicted, what="MLU")
    axes.axhline(1.0, color="tab:red", linewidth=0.8, label="capacity")
    gaps = predicted - optimal
    axes.set_title(f"gap: mean {gaps.mean():.4f}, largest {gaps.max():.3f}", fontsize="medium")
    axes.legend()
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
        for chosen, colour in ((~over, "tab:blue"), (over, "tab:red")):
            axes.scatter(optimal[chosen], predicted[chosen], s=3, alpha=0.4, color=colour)
        axes.axhline(1.0, color="tab:red", linewidth=0.8, label="capacity")
        ends = [float(optimal.min()), float(optimal.max())]
        axes.plot(ends, ends, color="black", linewidth=0.8, label="optimal")
        axes.set(
            xlabel="optimal MLU",
            ylabel="predicted MLU",
            title=f"{name}: {int(over.sum())} of {len(over)} above capacity",
        )
    low = min(axes.get_ylim()[0] for axes in both)
    high = max(axes.get_ylim()[1] for axes in both)
    for axes in both:
        axes.set_ylim(low, high)
    both[0].legend(loc="upper left")
    figure.supxlabel(
        f"{len(optimal)} demand vectors whose optimum is within 1 % below the largest of the box: "
        f"{optimal.min():.4f} to {optimal.max():.4f}",
        fontsize="small",
    )
    return _saved(figure, run, target)


def bottleneck_arc(run: Path, target: Path) -> Path:
    """The link found overloaded most often: how much, and by which demands."""
    found = _found(saved_arrays(run))
    if not len(found["arc"]):
        raise RunFolderError(f"{run} has no demand vectors from a search: it found no overload")
    about = files.read_json(run / "ensemble.json")["about"]
    arc = int(np.bincount(found["arc"]).argmax())
    here = found["arc"] == arc
    iterations, vectors = found["iteration"][here], found["demands"][here]
    figure, (left, right) = new_panels(2)
    for name, own in (
        ("mixture", ~found["training"][here]),
        ("group in training", found["training"][here]),
    ):
        if own.any():
            left.scatter(iterations[own], found["utilisation"][here][own], s=12, label=name)
    left.axhline(1.0, color="tab:red", linewidth=0.8, label="capacity")
    left.legend()
    _whole_numbers(left)
    name = "->".join(about["arcs"][arc])
    left.set(xlabel="iteration", ylabel="utilisation when found", title=f"link {name}")
    labels = []
    for number, demand in enumerate(about["demands"]):
        captive = all(
            arc in _arcs_of(path, about["arcs"])
            for path, of in zip(about["paths"], about["path_demand"], strict=True)
            if of == number
        )
        labels.append(f"{demand}\n(captive)" if captive else demand)
    _draw_demands(right, vectors / np.array(about["demand_max"]), iterations, labels)
    return _saved(figure, run, target)


def _found(arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Overloads of the mixture and of groups in training, in the order of iterations."""
    parts = [name for name in ("cut", "met") if f"{name}_arc" in arrays]
    fields = ("iteration", "arc", "utilisation", "demands")
    if not parts:
        return {name: np.zeros(0) for name in (*fields, "training")}
    found = {name: np.concatenate([arrays[f"{p}_{name}"] for p in parts]) for name in fields}
    counts = [len(arrays[f"{p}_arc"]) for p in parts]
    found["training"] = np.repeat([p == "met" for p in parts], counts)
    over = found["utilisation"] > 1.0  # attacks while training keep near misses, too
    order = np.flatnonzero(over)[np.argsort(found["iteration"][over], kind="stable")]
    return {name: values[order] for name, values in found.items()}


def _draw_demands(
    axes: Axes, shares: NDArray[Any], iterations: NDArray[Any], labels: list[str]
) -> None:
    """A row per demand, a column per vector found, dark where the demand is at its largest."""
    image = axes.imshow(
        shares.T, aspect="auto", cmap="Blues", vmin=0.0, vmax=1.0, interpolation="none"
    )
    axes.figure.colorbar(image, ax=axes, label="share of the largest demand")
    axes.set_yticks(range(len(labels)), labels, fontsize="x-small")
    starts = np.flatnonzero(np.diff(iterations, prepend=iterations[:1] - 1))
    wide = np.diff(starts, append=len(iterations)) >= len(iterations) / 25
    axes.set_xticks(starts[wide] - 0.5, [str(iterations[start]) for start in starts[wide]])
    for start in starts[1:]:
        axes.axvline(start - 0.5, color="tab:orange", linewidth=0.6)
    axes.set(
        xlabel="demand vectors in the order found, by iteration",
        title=f"the {len(shares)} demand vectors found for it",
    )


def cost(run: Path, target: Path) -> Path:
    """With least path cost as the objective: cost against optimal cost, and the MLU reached."""
    arrays = saved_arrays(run)
    figure, (left, right) = new_panels(2)
    optimal, predicted = arrays["optimal_cost"], arrays["predicted_cost"]
    largest = float(optimal.max())
    _against(left, optimal / largest, predicted / largest, what="cost / largest optimal cost")
    gap = float((predicted / optimal).mean()) - 1.0
    left.set_title(f"sum of length x flow: {100 * gap:.2f} % above optimal on average")
    left.legend()
    right.hist(arrays["predicted_mlu"], bins=60)
    right.axvline(1.0, color="tab:red", linewidth=0.8, label="capacity")
    right.set(
        xlabel="predicted MLU",
        ylabel="demand vectors",
        title="utilisation under the cost objective",
    )
    right.legend(loc="upper left")
    return _saved(figure, run, target)


def _against(axes: Axes, optimal: NDArray[Any], predicted: NDArray[Any], *, what: str) -> None:
    axes.scatter(optimal, predicted, s=3, alpha=0.15, linewidths=0)
    ends = [float(optimal.min()), float(optimal.max())]
    axes.plot(ends, ends, color="black", linewidth=0.8, label="optimal")
    axes.set(xlabel=f"optimal {what}", ylabel=f"predicted {what}")


def _whole_numbers(axes: Axes) -> None:
    """Iterations have no halves."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _arcs_of(path: list[str], arcs: list[list[str]]) -> set[int]:
    hops = list(pairwise(path))
    return {number for number, arc in enumerate(arcs) if tuple(arc) in hops}


def _saved(figure: Figure, run: Path, target: Path) -> Path:
    settings = Run.open(run, read_only=True).settings
    figure.suptitle(
        f"{settings['network']}, {settings['demands']} demands, {settings['paths']} paths"
    )
    return write(figure, target)
