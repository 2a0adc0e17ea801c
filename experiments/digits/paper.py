"""The paper's three tables on digits: its figures as facts, and ours in front of them.

All are per cent, at n = 100 and n = 1000. The first table is a single run (seed 42); in the other
two the baselines are means over three seeds and the mixtures single runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.digits.results import (
    SETTINGS,
    Measure,
    SavedUnits,
    Spread,
    Table,
    accuracy,
    compared,
    satisfied,
)
from experiments.digits.units import VARIANTS, Baseline

PAPER_SIZES = (100, 1000)


@dataclass(frozen=True, slots=True)
class PaperRow:
    """One row: the paper's words, our variant for it, and the figures at both sizes.

    `variant` names a variant of units.py; `base` is the base member of any mixture.
    """

    method: str
    split: str
    variant: str
    figures: tuple[float, float]


ACCURACY = (
    PaperRow("Baseline (CE only)", "", "base", (52.4, 77.3)),
    PaperRow("CG-margin", "all constrained", "margin-only", (57.1, 83.8)),
    PaperRow("CG-proba", "all constrained", "probability-only", (57.5, 85.7)),
    PaperRow("CG-margin", "k_h=2, rest optimize", "margin-split-2", (54.8, 78.7)),
    PaperRow("CG-proba", "k_h=2, rest optimize", "probability-split-2", (68.5, 69.3)),
    PaperRow("CG-margin", "k_h=5, rest optimize", "margin-split-5", (51.7, 66.1)),
    PaperRow("CG-robust", "", "margin-robust", (60.0, 76.7)),
    PaperRow("CG-mis", "", "margin-correct", (61.3, 75.9)),
    PaperRow("CG-relabel", "", "margin-relabel", (38.9, 69.3)),
)
COMPARED_ACCURACY = (
    PaperRow("Baseline (single model, CE)", "", "single", (56.08, 70.98)),
    PaperRow("Penalty (L2)", "", "penalty", (16.18, 52.00)),
    PaperRow("Augmented Lagrangian", "", "lagrangian", (18.80, 61.35)),
    PaperRow("DC3 (5 steps)", "", "dc3", (56.70, 71.73)),
    PaperRow("Projection (oracle)", "", "projection", (82.37, 90.42)),
    PaperRow("CG-margin", "all constrained", "margin-only", (69.70, 86.30)),
    PaperRow("CG-proba", "all constrained", "probability-only", (68.55, 86.05)),
)
COMPARED_SATISFACTION = (
    PaperRow("Baseline", "", "single", (99.7, 99.7)),
    PaperRow("Penalty (L2)", "", "penalty", (7.0, 11.2)),
    PaperRow("Augmented Lagrangian", "", "lagrangian", (9.3, 16.7)),
    PaperRow("DC3", "", "dc3", (99.7, 99.7)),
    PaperRow("CG-margin", "all constrained", "margin-only", (100.0, 69.7)),
    PaperRow("CG-proba", "all constrained", "probability-only", (100.0, 100.0)),
)


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
        key = "accuracy_given_labels" if row.variant == "projection" else "test_accuracy"
        return _both_settings(saved, row, n, mixture=accuracy, key=key)

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
        key = "rows_satisfied_given_labels" if row.variant == "dc3" else "rows_satisfied"
        return _both_settings(saved, row, n, mixture=satisfied, key=key)

    return Table(
        "paper-satisfaction",
        "The paper's third table: rows satisfied on training images",
        "Recomputed from predictions in float64. DC3 corrects with the labels of the hard images.",
        _beside(COMPARED_SATISFACTION, ours),
    )


def _both_settings(
    saved: SavedUnits, row: PaperRow, n: int, *, mixture: Measure, key: str
) -> dict[str, Spread | None]:
    """Our figure for a mixture; for a baseline that of the paper's settings and of chosen ones."""
    if not isinstance(VARIANTS[row.variant], Baseline):
        return {"ours": saved.spread(row.variant, n, mixture)}
    return {
        "ours" if settings == "paper" else f"ours, {settings}": saved.spread(
            row.variant, n, compared(key, settings)
        )
        for settings in SETTINGS
    }
