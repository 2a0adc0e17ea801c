"""statsmodels #7746: smooth terms that are monotone, convex or concave."""

from __future__ import annotations

import inspect

import numpy as np

from cg4ai import ConstrainedRegressor
from cg4ai.data import Array
from cg4ai.rules import Curvature, Monotone
from experiments.wishes.common import Outcome, Wish, falls, main

WISH = Wish(
    library="statsmodels",
    package="statsmodels",
    number=7746,
    link="https://github.com/statsmodels/statsmodels/issues/7746",
    asked="Splines of a GAM with shapes: monotone, convex, concave.",
    call="ConstrainedRegressor().fit(X, y, requirements=[Monotone({0: +1}), Curvature({0: -1})])",
)
SHAPES = ("monotone", "monotonic", "convex", "concave", "shape")


def truth(x: Array) -> Array:
    return np.asarray(1 - np.exp(-4 * x))


def run() -> Outcome:
    from statsmodels.gam.api import BSplines, GLMGam

    random = np.random.default_rng(0)
    x = np.sort(random.uniform(0, 1, 200))
    y = truth(x) + random.normal(0, 0.25, len(x))
    grid = np.linspace(x[0], x[-1], 2001)

    smoother = BSplines(x[:, None], df=[12], degree=[3])
    words = {*inspect.signature(BSplines).parameters, *inspect.signature(GLMGam).parameters}
    gam = GLMGam(y, exog=np.ones((len(x), 1)), smoother=smoother)
    gam.fit()
    gam.alpha = gam.select_penweight()[0]
    fitted = gam.fit()
    there = fitted.predict(np.ones((len(grid), 1)), exog_smooth=grid[:, None])

    def fit(*rules: Monotone | Curvature) -> Array:
        model = ConstrainedRegressor(random_state=0).fit(x[:, None], y, requirements=rules)
        return np.asarray(model.predict(grid[:, None]))

    monotone, curved = Monotone({0: +1}), Curvature({0: -1})
    rising, concave, both = fit(monotone), fit(curved), fit(monotone, curved)
    fell = falls(rising[:-1], rising[1:]) + falls(both[:-1], both[1:])
    bent = bends(concave) + bends(both)

    def error(values: Array) -> str:
        return f"error {np.sqrt(np.square(values - truth(grid)).mean()):.3f}"

    missing = "no argument for a shape; " if not words.intersection(SHAPES) else ""
    return Outcome(
        there=f"{missing}falls at {falls(there[:-1], there[1:])} and bends upwards at "
        f"{bends(there)} of {len(grid):,} points, {error(there)}",
        fails=falls(there[:-1], there[1:]) + bends(there) > 0,
        here=f"{fell} fall and {bent} bend upwards: Monotone {error(rising)}, Curvature "
        f"{error(concave)}, both {error(both)}",
        works=fell + bent == 0,
    )


def bends(values: Array) -> int:
    """At how many points of an even grid a curve that must be concave is below its neighbours."""
    return falls((values[:-2] + values[2:]) / 2, values[1:-1])


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
