"""skpro #131: quantiles that cross, and how to handle that."""

from __future__ import annotations

import numpy as np

from cg4ai import ConstrainedRegressor
from cg4ai.data import Array
from experiments.wishes.common import Outcome, Wish, crossings, main, pinball

WISH = Wish(
    library="skpro",
    package="skpro",
    number=131,
    link="https://github.com/sktime/skpro/issues/131",
    asked="Several quantiles of a regression that do not cross.",
    call='ConstrainedRegressor(loss="pinball", quantiles=...).fit(X, y)',
    state="open; `sort_quantiles=True` sorts them, and is off by default",
)
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def draw(rows: int, random: np.random.Generator) -> tuple[Array, Array]:
    x = random.uniform(0, 1, (rows, 4))
    spread = 0.2 + 0.6 * x[:, 2]
    return x, np.sin(5 * x[:, 0]) + x[:, 1] + spread * random.normal(size=rows)


def run() -> Outcome:
    import pandas as pd
    from sklearn.ensemble import GradientBoostingRegressor
    from skpro.regression.multiquantile import MultipleQuantileRegressor

    random = np.random.default_rng(0)
    x, y = draw(600, random)
    fresh, actual = draw(20_000, random)

    def theirs(**more: bool) -> Array:
        model = MultipleQuantileRegressor(
            GradientBoostingRegressor(loss="quantile", random_state=0), alpha=QUANTILES, **more
        ).fit(pd.DataFrame(x), pd.DataFrame(y))
        return np.asarray(model.predict_quantiles(pd.DataFrame(fresh), alpha=list(QUANTILES)))

    there, patched = theirs(), theirs(sort_quantiles=True)
    model = ConstrainedRegressor(loss="pinball", quantiles=QUANTILES, random_state=0).fit(x, y)
    here = model.predict(fresh)
    crossed = crossings(here)

    def loss(quantiles: Array) -> str:
        return f"loss {pinball(actual, quantiles, QUANTILES):.4f}"

    return Outcome(
        there=f"quantiles cross at {crossings(there):,} of {len(fresh):,} inputs, {loss(there)}; "
        f"sorted afterwards {crossings(patched)}, {loss(patched)}",
        fails=crossings(there) > 0,
        here=f"{crossed} cross, {loss(here)}",
        works=crossed == 0,
    )


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
