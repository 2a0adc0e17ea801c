"""MAPIE #449: intervals that cover every group, and keep order and shape of their ends."""

from __future__ import annotations

import time

import numpy as np

from cg4ai import ConstrainedRegressor
from cg4ai.rules import Monotone
from experiments.wishes.common import (
    Outcome,
    Wish,
    check_installed,
    draw_prices,
    falls,
    main,
    raised,
)

WISH = Wish(
    library="MAPIE",
    package="mapie",
    number=449,
    link="https://github.com/scikit-learn-contrib/MAPIE/issues/449",
    asked="Intervals with guaranteed coverage in each of several groups, not only on average.",
    call='ConstrainedRegressor(loss="pinball"), then the recipe of docs/guarantees.md',
    state="open; ConditionalSplitConformalRegressor (in 1.6) does it",
)
COVERAGE = 0.9


def run() -> Outcome:
    check_installed("cvxpy")  # of ConditionalSplitConformalRegressor
    from mapie.conditional_conformal_prediction import ConditionalSplitConformalRegressor
    from mapie.regression import SplitConformalRegressor
    from sklearn.ensemble import HistGradientBoostingRegressor

    random = np.random.default_rng(0)
    (x, y), (held, told), (fresh, truth) = (
        draw_prices(random, rows) for rows in (1000, 1000, 20_000)
    )
    groups, new = held[:, 0] > 0.8, fresh[:, 0] > 0.8  # a fifth, whose noise is larger

    model = HistGradientBoostingRegressor(random_state=0).fit(x, y)
    there = SplitConformalRegressor(model, confidence_level=COVERAGE, prefit=True)
    _, found = there.conformalize(held, told).predict_interval(fresh)
    inside = (found[:, 0, 0] <= truth) & (truth <= found[:, 1, 0])
    covered = [inside[new == group].mean() for group in (False, True)]
    few = 500  # it solves a linear program for each row
    started = time.perf_counter()
    since = ConditionalSplitConformalRegressor(
        lambda rows: np.eye(2)[(rows[:, 0] > 0.8).astype(int)],
        model,
        confidence_level=COVERAGE,
        prefit=True,
    )
    _, found = since.conformalize(held, told).predict_interval(fresh[:few])
    seconds = time.perf_counter() - started
    inside = (found[:, 0, 0] <= truth[:few]) & (truth[:few] <= found[:, 1, 0])
    later = [inside[new[:few] == group].mean() for group in (False, True)]

    here = ConstrainedRegressor(loss="pinball", quantiles=(0.05, 0.95), random_state=0)
    here.fit(x, y, requirements=[Monotone({1: +1})])
    ends = here.predict(held)
    missed = np.maximum(ends[:, 0] - told, told - ends[:, 1])
    shifts = []  # one number for each group: how far both ends move outwards
    for group in (False, True):
        own = np.sort(missed[groups == group])
        shifts.append(own[int(np.ceil((len(own) + 1) * COVERAGE)) - 1])
    wider = np.array(shifts)[new.astype(int)]
    low, high = here.predict(fresh).T
    inside = (low - wider <= truth) & (truth <= high + wider)
    kept = [inside[new == group].mean() for group in (False, True)]
    # two standard errors of coverage, which depends on the rows that calibrate
    slack = [2 * np.sqrt(COVERAGE * (1 - COVERAGE) / (groups == one).sum()) for one in (0, 1)]
    broken = falls(here.predict(fresh), here.predict(raised(random, fresh, [1])))
    return Outcome(
        there=f"SplitConformalRegressor covers {covered[0]:.1%} and {covered[1]:.1%} of two groups "
        f"(wanted 90%); ConditionalSplitConformalRegressor {later[0]:.1%} and {later[1]:.1%}, "
        f"{1000 * seconds / few:.0f} ms per row",
        fails=min(later) < COVERAGE - 2 * max(slack),
        here=f"covers {kept[0]:.1%} and {kept[1]:.1%}; {broken} ends fall in a monotone feature",
        works=all(one >= COVERAGE - gap for one, gap in zip(kept, slack, strict=True))
        and broken == 0,
    )


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
