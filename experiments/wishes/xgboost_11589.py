"""XGBoost #11589: quantiles that do not cross."""

from __future__ import annotations

import numpy as np

from cg4ai import ConstrainedRegressor
from experiments.wishes.common import Outcome, Wish, crossings, draw_prices, main, pinball

WISH = Wish(
    library="XGBoost",
    package="xgboost",
    number=11589,
    link="https://github.com/dmlc/xgboost/issues/11589",
    asked="A larger quantile should have the larger prediction (`quantile_alpha` with several).",
    call='ConstrainedRegressor(loss="pinball", quantiles=...)',
    state="closed, quantiles still cross",
)
QUANTILES = (0.05, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.95)  # those of the request


def run() -> Outcome:
    from xgboost import XGBRegressor

    random = np.random.default_rng(0)
    x, y = draw_prices(random, 1000)
    fresh, truth = draw_prices(random, 20_000)

    there = XGBRegressor(
        objective="reg:quantileerror",
        quantile_alpha=np.array(QUANTILES),
        tree_method="hist",
        learning_rate=0.04,
        max_depth=5,
        n_estimators=100,
        n_jobs=1,
    ).fit(x, y)
    found = there.predict(fresh)
    crossed, lost = crossings(found), pinball(truth, found, QUANTILES)

    here = ConstrainedRegressor(loss="pinball", quantiles=QUANTILES, random_state=0).fit(x, y)
    quantiles = here.predict(fresh)
    left = crossings(quantiles)
    return Outcome(
        there=f"quantiles cross at {crossed:,} of {len(fresh):,} inputs; pinball loss {lost:.3f}",
        fails=crossed > 0,
        here=f"{left} cross; {pinball(truth, quantiles, QUANTILES):.3f}",
        works=left == 0,
    )


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
