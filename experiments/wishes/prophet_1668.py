"""Prophet #1668: forecasts of what is never negative, and their intervals."""

from __future__ import annotations

import logging

import numpy as np

from cg4ai import ConstrainedRegressor
from cg4ai.data import Array
from cg4ai.rules import Range
from experiments.wishes.common import ROUNDING, Outcome, Wish, crossings, main

WISH = Wish(
    library="Prophet",
    package="prophet",
    number=1668,
    link="https://github.com/facebook/prophet/issues/1668",
    asked="Forecasts, and the ends of their intervals, that stay positive.",
    call="ConstrainedRegressor().fit(X, y, requirements=[Range(0, None)]), also with "
    'loss="pinball"',
    state="open: advice is to clip, or to change the class",
)
PAST, AHEAD = 730, 180
QUANTILES = (0.1, 0.5, 0.9)


def run() -> Outcome:
    import pandas as pd
    from prophet import Prophet

    logging.getLogger("cmdstanpy").disabled = True
    random = np.random.default_rng(0)
    days = pd.date_range("2023-01-01", periods=PAST + AHEAD)
    number, weekday = np.arange(len(days)), days.dayofweek.to_numpy()
    season = 1 + np.sin(2 * np.pi * number / 365.25 + 4)
    mean = np.maximum(6 * season - 1.5 * number / 365 - 2 + np.isin(weekday, [5, 6]), 0.0)
    sales = random.poisson(mean)

    table = pd.DataFrame({"ds": days, "y": sales, "cap": 1.5 * sales.max(), "floor": 0.0})
    growths = {}
    for growth in ("linear", "logistic"):
        model = Prophet(growth=growth, interval_width=0.8).fit(table[:PAST])
        np.random.seed(0)  # noqa: NPY002 (Prophet draws its intervals from it)
        growths[growth] = model.predict(table[PAST:])[["yhat_lower", "yhat", "yhat_upper"]]
    linear, floored = (one.to_numpy() for one in growths.values())

    x = np.column_stack(
        [number / 365]
        + [wave(2 * np.pi * k * number / 365.25) for k in (1, 2, 3) for wave in (np.sin, np.cos)]
        + [weekday == day for day in range(7)]
    ).astype(float)
    rules = [Range(0.0, None, name="never negative")]
    point = ConstrainedRegressor(members="affine", random_state=0)
    point.fit(x[:PAST], sales[:PAST].astype(float), requirements=rules)
    here = point.predict(x[PAST:])
    interval = ConstrainedRegressor(loss="pinball", quantiles=QUANTILES, random_state=0)
    interval.fit(x[:PAST], sales[:PAST].astype(float), requirements=rules)
    ends = interval.predict(x[PAST:])
    broken = negative(here) + negative(ends) + crossings(ends)

    def error(values: Array) -> str:
        return f"error {np.abs(values - mean[PAST:]).mean():.2f}"

    return Outcome(
        there=f"{negative(linear[:, 1])} of {AHEAD} days below zero, {negative(linear[:, 0])} "
        f"lower ends; with a floor of 0 and logistic growth {negative(floored[:, 1])} and "
        f"{negative(floored[:, 0])}; clipped, {error(np.maximum(linear[:, 1], 0.0))} and "
        f"{error(np.maximum(floored[:, 1], 0.0))}",
        fails=negative(linear) + negative(floored) > 0,
        here=f"{broken} below zero or out of order, {error(here)}",
        works=broken == 0,
    )


def negative(values: Array) -> int:
    """How many numbers are below zero, by more than rounding."""
    return int((values < -ROUNDING * np.abs(values).max()).sum())


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
