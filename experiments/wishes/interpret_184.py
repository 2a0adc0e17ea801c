"""interpret #184: additive models that are monotone, and concave, in a feature."""

from __future__ import annotations

import numpy as np

from cg4ai import ConstrainedRegressor
from cg4ai.rules import Curvature, Monotone
from experiments.wishes.common import Outcome, Wish, draw_prices, falls, main, raised

WISH = Wish(
    library="interpret",
    package="interpret",
    number=184,
    link="https://github.com/interpretml/interpret/issues/184",
    asked="Monotone models, and (later in the thread) concave and convex ones.",
    call="ConstrainedRegressor with Monotone({...}) and Curvature({...})",
    state="closed: monotone since 0.4 (`monotonize`), concave not",
)


def run() -> Outcome:
    from interpret.glassbox import ExplainableBoostingRegressor

    random = np.random.default_rng(0)
    x, y = draw_prices(random, 1000)
    fresh, truth = draw_prices(random, 20_000)
    more, right = raised(random, fresh, [0]), fresh.copy()
    right[:, 0] = random.uniform(0, 1, len(fresh))
    middle = (fresh + right) / 2

    there = ExplainableBoostingRegressor(
        monotone_constraints=[1, 1, 0], outer_bags=4, n_jobs=1, random_state=0
    ).fit(x, y)
    here = ConstrainedRegressor(random_state=0)
    here.fit(x, y, requirements=[Monotone({0: +1, 1: +1}), Curvature({0: -1})])

    fell, bent, score = [], [], []
    for model in (there, here):
        fell.append(falls(model.predict(fresh), model.predict(more)))
        chord = (model.predict(fresh) + model.predict(right)) / 2
        bent.append(falls(chord, model.predict(middle)))
        score.append(model.score(fresh, truth))
    return Outcome(
        there=f"{fell[0]:,} of {len(fresh):,} pairs fall; not concave at {bent[0]:,}; "
        f"R2 {score[0]:.3f}",
        fails=fell[0] + bent[0] > 0,
        here=f"{fell[1]} fall, {bent[1]} not concave; R2 {score[1]:.3f}",
        works=fell[1] + bent[1] == 0,
    )


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
