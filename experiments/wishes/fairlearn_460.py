"""Fairlearn #460: a gap between groups that is as small on new rows as it was in training."""

from __future__ import annotations

import numpy as np

from cg4ai import ConstrainedClassifier
from cg4ai.rules import DecisionRate
from experiments.peers.people import census
from experiments.wishes.common import Outcome, Wish, gap_of, main

WISH = Wish(
    library="Fairlearn",
    package="fairlearn",
    number=460,
    link="https://github.com/fairlearn/fairlearn/issues/460",
    asked="Demographic parity that still holds on the test set (ExponentiatedGradient overfits).",
    call="ConstrainedClassifier with DecisionRate(X, groups, tolerance=...)",
)
TOLERANCE = 0.02
ROWS, SEEDS = 5000, 5


def run() -> Outcome:
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient
    from sklearn.tree import DecisionTreeClassifier

    trained, fresh, right = np.zeros((3, 2, SEEDS))
    errors = []
    for seed in range(SEEDS):
        people, new = census(seed, ROWS), census(seed + 1000, 20_000)
        x, y, group = people.inputs, people.labels, people.groups
        there = ExponentiatedGradient(  # as in the request
            DecisionTreeClassifier(random_state=0), DemographicParity(difference_bound=TOLERANCE)
        ).fit(x, y, sensitive_features=group)
        here = ConstrainedClassifier(random_state=0)
        here.fit(x, y, requirements=[DecisionRate(x, group, tolerance=TOLERANCE)])
        for way, model in enumerate((there, here)):
            later = {"random_state": 0} if way == 0 else {}
            chosen = model.predict(new.inputs, **later)
            trained[way, seed] = gap_of(model.predict(x, **later), group)
            fresh[way, seed] = gap_of(chosen, new.groups)
            right[way, seed] = (chosen == new.labels).mean()
        rates = np.array([here.predict(x)[group == one].mean() for one in (0, 1)])
        counts = np.array([(group == one).sum() for one in (0, 1)])
        errors.append(float(np.sqrt((rates * (1 - rates) / counts).sum())))
    allowed = TOLERANCE + np.mean(errors)
    said = [
        f"gap {one.mean():.3f} in training, {two.mean():.3f} on new rows (worst {two.max():.3f}); "
        f"accuracy {good.mean():.3f}"
        for one, two, good in zip(trained, fresh, right, strict=True)
    ]
    return Outcome(
        there=said[0],
        fails=bool(fresh[0].mean() > allowed),
        here=f"{said[1]}; allowed {allowed:.3f}",
        works=bool(fresh[1].mean() <= allowed),
    )


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
