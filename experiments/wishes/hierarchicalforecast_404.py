"""hierarchicalforecast #404: samples of reconciled forecasts that are never negative.

The nearest coherent demand above zero is a function of the forecasts. It is learned from samples
as inputs and the same samples as targets, under both rules, and then maps any number of samples.
"""

from __future__ import annotations

import numpy as np

from cg4ai import ConstrainedRegressor
from cg4ai.data import Array
from experiments.wishes.common import Outcome, Wish, main
from experiments.wishes.hierarchies import RULES, SUMMING, below_zero, draw_demand, incoherent

WISH = Wish(
    library="hierarchicalforecast",
    package="hierarchicalforecast",
    number=404,
    link="https://github.com/Nixtla/hierarchicalforecast/issues/404",
    asked="Bootstrap samples of reconciled forecasts that are never negative.",
    call="ConstrainedRegressor().fit(samples, samples, "
    "requirements=[Equality(...), Range(0, None)])",
    state="closed: asking for bootstrap intervals beside nonnegative=True is now refused, and "
    "samples drawn after `fit` are negative still",
)
STEPS, SAMPLES = 50, 200


def run() -> Outcome:
    from hierarchicalforecast.methods import MinTrace

    random = np.random.default_rng(0)
    past, fitted = draw_demand(500, random)
    actual, base = draw_demand(STEPS, random)

    def sample(forecasts: Array, count: int) -> Array:
        rest = (past - fitted)[random.integers(0, len(past), (len(forecasts), count))]
        return np.asarray(forecasts[:, None] + rest)

    method = MinTrace("ols", nonnegative=True)
    told = {"S": SUMMING, "y_hat": base.T, "y_insample": past.T, "y_hat_insample": fitted.T}
    options = {"intervals_method": "bootstrap", "num_samples": SAMPLES, "seed": 0}
    try:
        method.fit_predict(**told, level=[80], **options)
        refused = "intervals are computed"
    except ValueError:
        refused = "intervals are refused"
    method.fit(**told, **options)
    there = np.moveaxis(method.sample(SAMPLES), 0, -1).reshape(-1, len(SUMMING))
    negative = below_zero(there)

    known = sample(fitted, 1)[:, 0]
    model = ConstrainedRegressor(random_state=0).fit(known, known, requirements=RULES)
    drawn = sample(base, SAMPLES)
    here = model.predict(drawn.reshape(-1, len(SUMMING)))
    broken = below_zero(here) + incoherent(here)
    low, high = np.quantile(here.reshape(drawn.shape), [0.1, 0.9], axis=1)
    covered = ((low <= actual) & (actual <= high)).mean()
    return Outcome(
        there=f"{refused}; {negative:,} of {len(there):,} samples are negative",
        fails=negative > 0,
        here=f"{broken} of {len(here):,} samples are negative or do not add up; 80% intervals "
        f"cover {covered:.0%}",
        works=broken == 0,
    )


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
