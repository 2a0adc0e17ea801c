"""LightGBM #5727: quantiles that are in order, and monotone in features as well."""

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
    library="LightGBM",
    package="lightgbm",
    number=5727,
    link="https://github.com/microsoft/LightGBM/issues/5727",
    asked="Several quantiles in order, and monotone constraints, with the quantile objective.",
    call='ConstrainedRegressor(loss="pinball", quantiles=...) with Monotone([1, 1, 0])',
)
QUANTILES = (0.1, 0.5, 0.9)


def run() -> Outcome:
    import lightgbm
    from lightgbm.basic import LightGBMError

    random = np.random.default_rng(0)
    x, y = draw_prices(random, 1000)
    fresh, truth = draw_prices(random, 20_000)
    more = raised(random, fresh, [0, 1])

    plain = {"objective": "quantile", "n_jobs": 1, "verbose": -1}
    try:
        lightgbm.LGBMRegressor(**plain, alpha=0.5, monotone_constraints=[1, 1, 0]).fit(x, y)
        refused = False
    except LightGBMError:
        refused = True
    single = [lightgbm.LGBMRegressor(**plain, alpha=level).fit(x, y) for level in QUANTILES]
    found = np.column_stack([one.predict(fresh) for one in single])
    crossed, lost = crossings(found), pinball(truth, found, QUANTILES)

    here = ConstrainedRegressor(loss="pinball", quantiles=QUANTILES, random_state=0)
    here.fit(x, y, requirements=[Monotone([1, 1, 0])])
    low, high = here.predict(fresh), here.predict(more)
    broken = crossings(low) + crossings(high) + falls(low, high)
    said = "monotone_constraints are refused" if refused else "monotone_constraints are accepted"
    return Outcome(
        there=f"{said}; cross at {crossed:,} of {len(fresh):,} inputs; pinball loss {lost:.3f}",
        fails=refused or crossed > 0,
        here=f"{broken} cross or fall; {pinball(truth, low, QUANTILES):.3f}",
        works=broken == 0,
    )


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
