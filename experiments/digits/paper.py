"""The figures of the paper's three tables on digits, as facts to compare with.

All are per cent, at n = 100 and n = 1000. The first table is a single run (seed 42); in the other
two the baselines are means over three seeds and the mixtures single runs.
"""

from __future__ import annotations

from dataclasses import dataclass

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
