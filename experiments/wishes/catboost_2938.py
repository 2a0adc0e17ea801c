"""CatBoost #2938: several quantiles at once that are in order and monotone in features."""

from __future__ import annotations

import numpy as np

from cg4ai import ConstrainedRegressor
from cg4ai.rules import Monotone
from experiments.wishes.common import (
    Outcome,
    Wish,
    crossings,
    draw_prices,
    falls,
    main,
    pinball,
    raised,
)

WISH = Wish(
    library="CatBoost",
    package="catboost",
    number=2938,
    link="https://github.com/catboost/catboost/issues/2938",
    asked="Monotone constraints that hold with the loss of several quantiles (MultiQuantile).",
    call='ConstrainedRegressor(loss="pinball", quantiles=...) with Monotone({...})',
)
QUANTILES = (0.05, 0.5, 0.95)


def run() -> Outcome:
    from catboost import CatBoostRegressor

    random = np.random.default_rng(0)
    x, y = draw_prices(random, 1000)
    fresh, truth = draw_prices(random, 20_000)
    more = raised(random, fresh, [0, 1])

    there = CatBoostRegressor(
        loss_function=f"MultiQuantile:alpha={','.join(map(str, QUANTILES))}",
        monotone_constraints=[1, 1, 0],
        iterations=200,
        random_seed=0,
        thread_count=1,
        silent=True,
        allow_writing_files=False,
    ).fit(x, y)
    before = there.predict(fresh)
    fell, lost = falls(before, there.predict(more)), pinball(truth, before, QUANTILES)

    here = ConstrainedRegressor(loss="pinball", quantiles=QUANTILES, random_state=0)
    here.fit(x, y, requirements=[Monotone({0: +1, 1: +1})])
    low, high = here.predict(fresh), here.predict(more)
    broken, crossed = falls(low, high), crossings(low) + crossings(high)
    return Outcome(
        there=f"{fell:,} of {low.size:,} pairs fall; pinball loss {lost:.3f}",
        fails=fell > 0,
        here=f"{broken} fall, {crossed} cross; {pinball(truth, low, QUANTILES):.3f}",
        works=broken + crossed == 0,
    )


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
