"""pyGAM #330: a curvature, or a slope, that is at least a number of one's own.

A function has a curvature of at least rho where what remains without rho / 2 x^2 is convex, and a
slope of at least s where what remains without s x rises. So the remainder is fitted under a rule.
"""

from __future__ import annotations

import numpy as np

from cg4ai import ConstrainedRegressor
from cg4ai.data import Array
from cg4ai.rules import Curvature, Monotone
from experiments.wishes.common import Outcome, Wish, main

WISH = Wish(
    library="pyGAM",
    package="pygam",
    number=330,
    link="https://github.com/dswah/pyGAM/issues/330",
    asked="Curvature, or slope, of at least a given number instead of zero.",
    call="ConstrainedRegressor().fit(X, y - rho / 2 * x**2, requirements=[Curvature({0: +1})])",
)
RHO, SLOPE = 2.0, 0.5
TOLERANCE = 1e-6  # of second differences divided by a squared step, hence of rounding too


def truth(x: Array) -> Array:
    return np.asarray(RHO / 2 * x**2 + np.maximum(x - 0.3, 0) ** 2)


def run() -> Outcome:
    import pygam

    random = np.random.default_rng(0)
    x = np.sort(random.uniform(-1, 1, 150))
    y = truth(x) + random.normal(0, 0.3, len(x))
    grid = np.linspace(x[0], x[-1], 1001)
    step = grid[1] - grid[0]

    def curvature(values: Array) -> Array:
        return np.asarray(np.diff(values, 2) / step**2)

    gam = pygam.LinearGAM(pygam.s(0, constraints="convex"))
    gam.gridsearch(x[:, None], y, progress=False)
    there = gam.predict(grid[:, None])
    lacking = float((curvature(there) < RHO - TOLERANCE).mean())

    model = ConstrainedRegressor(random_state=0)
    model.fit(x[:, None], y - RHO / 2 * x**2, requirements=[Curvature({0: +1})])
    here = model.predict(grid[:, None]) + RHO / 2 * grid**2
    bent = curvature(here).min()

    rising = ConstrainedRegressor(random_state=0)
    noisy = SLOPE * x + np.sin(3 * x) + random.normal(0, 0.3, len(x))
    rising.fit(x[:, None], noisy - SLOPE * x, requirements=[Monotone({0: +1})])
    slope = (np.diff(rising.predict(grid[:, None]) + SLOPE * grid) / step).min()

    def error(values: Array) -> str:
        return f"error {np.sqrt(np.square(values - truth(grid)).mean()):.4f}"

    return Outcome(
        there=f'`constraints="convex"`, no number can be given: curvature below {RHO} at '
        f"{lacking:.0%} of the points, {error(there)}",
        fails=lacking > 0,
        here=f"smallest curvature {bent:.6f} of {RHO}, {error(here)}; smallest slope {slope:.6f} "
        f"of {SLOPE}",
        works=bool(bent >= RHO - TOLERANCE and slope >= SLOPE - TOLERANCE),
    )


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
