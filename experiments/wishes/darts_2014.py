"""darts #2014: reconciled forecasts that are never negative."""

from __future__ import annotations

import numpy as np

from cg4ai import ConstrainedRegressor
from experiments.wishes.common import Outcome, Wish, main
from experiments.wishes.hierarchies import NAMES, RULES, below_zero, draw_demand, incoherent

WISH = Wish(
    library="darts",
    package="darts",
    number=2014,
    link="https://github.com/unit8co/darts/issues/2014",
    asked="Reconciliation of a hierarchy with forecasts that stay non-negative.",
    call="ConstrainedRegressor().fit(forecasts, actual, "
    "requirements=[Equality(...), Range(0, None)])",
)
PARENTS = {
    "north": ["total"],
    "south": ["total"],
    "n1": ["north"],
    "n2": ["north"],
    "s1": ["south"],
    "s2": ["south"],
}


def run() -> Outcome:
    from darts import TimeSeries
    from darts.dataprocessing.transformers import MinTReconciliator

    random = np.random.default_rng(0)
    past, fitted = draw_demand(500, random)
    actual, base = draw_demand(2000, random)

    def series(values: np.ndarray) -> TimeSeries:
        return TimeSeries.from_values(values, columns=NAMES).with_hierarchy(PARENTS)

    method = MinTReconciliator(method="mint_cov").fit(series(past - fitted))
    there = method.transform(series(base)).values()
    negative = below_zero(there)
    clipped = np.maximum(there, 0.0)

    model = ConstrainedRegressor(random_state=0).fit(fitted, past, requirements=RULES)
    here = model.predict(base)
    broken = below_zero(here) + incoherent(here)

    def error(values: np.ndarray) -> str:
        return f"error {np.sqrt(np.square(values - actual).mean()):.3f}"

    return Outcome(
        there=f"{negative:,} of {len(there):,} rows are negative, {error(there)}; clipped, "
        f"{incoherent(clipped):,} do not add up, {error(clipped)}",
        fails=negative > 0,
        here=f"{broken} are negative or do not add up, {error(here)}",
        works=broken == 0,
    )


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
