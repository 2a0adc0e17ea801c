"""Fairlearn #444: a stated limit of the gap between groups that the decisions keep."""

from __future__ import annotations

import numpy as np

from cg4ai import ConstrainedClassifier
from cg4ai.rules import DecisionRate
from experiments.peers.people import census
from experiments.wishes.common import Outcome, Wish, gap_of, main

WISH = Wish(
    library="Fairlearn",
    package="fairlearn",
    number=444,
    link="https://github.com/fairlearn/fairlearn/issues/444",
    asked="Which argument makes the demographic parity difference stay below 0.05?",
    call="ConstrainedClassifier with DecisionRate(X, groups, tolerance=0.05)",
)
TOLERANCE = 0.05
SEEDS = 5


def run() -> Outcome:
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient
    from sklearn.tree import DecisionTreeClassifier

    gaps: list[list[float]] = [[], []]
    lots: list[float] = []  # shares of rows that are decided otherwise by a second call
    right: list[list[float]] = [[], []]
    for seed in range(SEEDS):
        people = census(seed, 5000)
        x, y, group = people.inputs, people.labels, people.groups
        there = ExponentiatedGradient(
            DecisionTreeClassifier(min_samples_leaf=10, max_depth=4, random_state=0),
            DemographicParity(difference_bound=TOLERANCE),  # of each group from all, not of two
        ).fit(x, y, sensitive_features=group)
        here = ConstrainedClassifier(random_state=0)
        here.fit(x, y, requirements=[DecisionRate(x, group, tolerance=TOLERANCE)])
        for way, chosen in enumerate((there.predict(x, random_state=0), here.predict(x))):
            gaps[way].append(gap_of(chosen, group))
            right[way].append(float((chosen == y).mean()))
        again = there.predict(x, random_state=1)
        lots.append(float((again != there.predict(x, random_state=0)).mean()))
    over = [sum(one > TOLERANCE for one in found) for found in gaps]
    said = [
        f"gap {np.mean(found):.3f}, worst {max(found):.3f}, above in {many} of {SEEDS} tables; "
        f"accuracy {np.mean(good):.3f}"
        for found, many, good in zip(gaps, over, right, strict=True)
    ]
    return Outcome(
        there=f"{said[0]}; a second call decides {np.mean(lots):.0%} of rows otherwise",
        fails=over[0] > 0,
        here=said[1],
        works=over[1] == 0,
    )


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
