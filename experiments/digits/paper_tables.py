"""The paper's three tables on digits, with our figures in front of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from experiments.digits.paper import (
    ACCURACY,
    COMPARED_ACCURACY,
    COMPARED_SATISFACTION,
    PAPER_SIZES,
    PaperRow,
)
from experiments.digits.results import (
    SETTINGS,
    SavedUnits,
    Spread,
    Table,
    accuracy,
    compared,
    satisfied,
)
from experiments.digits.units import VARIANTS, Baseline


def _beside(
    rows: Sequence[PaperRow], ours: Callable[[PaperRow, int], dict[str, Spread | None]]
) -> list[dict[str, Any]]:
    """The paper's rows with our figures in front of its own, size by size."""
    made = []
    for row in rows:
        line: dict[str, Any] = {"method": row.method, "split": row.split or None}
        for n, printed in zip(PAPER_SIZES, row.figures, strict=True):
            line |= {f"n={n} {title}".rstrip(): value for title, value in ours(row, n).items()}
            line[f"n={n} paper"] = printed
        made.append(line)
    return made


def paper_accuracy(saved: SavedUnits) -> Table:
    def ours(row: PaperRow, n: int) -> dict[str, Spread | None]:
        found = saved.base(n) if row.variant == "base" else saved.spread(row.variant, n, accuracy)
        return {"ours": found}

    return Table(
        "paper-accuracy",
        "The paper's first table: test accuracy",
        "The paper's column is a single run with seed 42. Ours: no augmentation; k_h images of "
        "every ten are in the hard set and the others are trained on; robust, mis and relabel with "
        "margin rows; relabelled digits are judged by their original labels.",
        _beside(ACCURACY, ours),
    )


def paper_comparison(saved: SavedUnits) -> Table:
    def ours(row: PaperRow, n: int) -> dict[str, Spread | None]:
        if not isinstance(VARIANTS[row.variant], Baseline):
            return {"ours": saved.spread(row.variant, n, accuracy)}
        key = "accuracy_given_labels" if row.variant == "projection" else "test_accuracy"
        return {
            "ours" if settings == "paper" else f"ours, {settings}": saved.spread(
                row.variant, n, compared(key, settings)
            )
            for settings in SETTINGS
        }

    return Table(
        "paper-comparison-accuracy",
        "The paper's second table: test accuracy of constrained learning methods",
        "`ours`: the paper's settings; `tuned`: settings chosen on a held-out part of the training "
        "images. The projection is told the true labels of the test images, as in the paper, and "
        "is then right by construction. No augmentation.",
        _beside(COMPARED_ACCURACY, ours),
    )


def paper_satisfaction(saved: SavedUnits) -> Table:
    def ours(row: PaperRow, n: int) -> dict[str, Spread | None]:
        if not isinstance(VARIANTS[row.variant], Baseline):
            return {"ours": saved.spread(row.variant, n, satisfied)}
        key = "rows_satisfied_given_labels" if row.variant == "dc3" else "rows_satisfied"
        return {
            "ours" if settings == "paper" else f"ours, {settings}": saved.spread(
                row.variant, n, compared(key, settings)
            )
            for settings in SETTINGS
        }

    return Table(
        "paper-satisfaction",
        "The paper's third table: rows satisfied on training images",
        "Recomputed from predictions in float64. DC3 corrects with the labels of the hard images.",
        _beside(COMPARED_SATISFACTION, ours),
    )
