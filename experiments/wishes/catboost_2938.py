"""CatBoost #2938: several quantiles at once that are in order and monotone in features."""

from __future__ import annotations

import numpy as np

from cg4ai import ConstrainedRegressor
from cg4ai.rules import Monotone
from experiments.wishes.common import Outcome, Wish, crossings, falls, main

WISH = Wish(
    library="CatBoost",
    package="catboost",
    number=2938,
    link="https://github.com/catboost/catboost/issues/2938",
    asked="Monotone constraints that hold with the loss of several quantiles (MultiQuantile).",
    call='ConstrainedRegressor(loss="pinball", quantiles=...).fit(X, y, requirements=[Monotone(...)])',
)
QUANTILES = (0.05, 0.5, 0.95)


def run() -> Outcome:
    from catboost import CatBoostRegressor

    random = np.random.default_rng(0)
    x = random.uniform(0, 1, (1000, 3))
    y = 2 * np.sqrt(x[:, 0]) + x[:, 1] ** 2 + np.sin(6 * x[:, 2])
    y = y + (0.2 + 0.5 * x[:, 0]) * random.normal(size=len(x))
    fresh = random.uniform(0, 1, (20_000, 3))
    more = fresh.copy()
    more[:, :2] += random.uniform(0, 1, (len(fresh), 2)) * (1 - fresh[:, :2])

    levels = ",".join(map(str, QUANTILES))
    there = CatBoostRegressor(
        loss_function=f"MultiQuantile:alpha={levels}",
        monotone_constraints=[1, 1, 0],
        iterations=200,
        random_seed=0,
        thread_count=1,
        silent=True,
        allow_writing_files=False,
    ).fit(x, y)
    fell, crossed = falls(there.predict(fresh), there.predict(more)), crossings(there.predict(more))

    here = ConstrainedRegressor(loss="pinball", quantiles=QUANTILES, random_state=0)
    here.fit(x, y, requirements=[Monotone({0: +1, 1: +1})])
    low, high = here.predict(fresh), here.predict(more)
    broken = falls(low, high) + crossings(low) + crossings(high)
    return Outcome(
        there=f"{fell:,} of {low.size:,} pairs fall, quantiles cross at {crossed:,} inputs",
        fails=fell + crossed > 0,
        here=f"{broken} fall or cross",
        works=broken == 0,
    )


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
