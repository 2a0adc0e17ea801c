"""Intervals by MAPIE around a model with rules, conformalised group by group."""

from __future__ import annotations

import numpy as np
import pytest

from cg4ai import ConstrainedRegressor
from cg4ai.rules import Monotone

regression = pytest.importorskip("mapie.regression")


def test_intervals_cover_each_group_and_stay_monotone() -> None:
    random = np.random.default_rng(0)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        x = random.uniform(0, 1, (count, 3))
        x[:, 2] = x[:, 2] < 0.3  # the group, whose outputs are noisier
        return x, 2 * x[:, 0] - x[:, 1] + random.normal(0, 0.1 + 0.5 * x[:, 2], count)

    (x, y), (held, actual), (new, later) = draw(300), draw(2000), draw(4000)
    model = ConstrainedRegressor(steps=40, iteration_limit=1, random_state=0)
    model.fit(x, y, requirements=[Monotone({0: +1, 1: -1})])
    for group in (0.0, 1.0):
        own, asked = held[:, 2] == group, new[new[:, 2] == group]
        made = regression.SplitConformalRegressor(model, confidence_level=0.9, prefit=True)
        made.conformalize(held[own], actual[own])
        lower, upper = made.predict_interval(asked)[1][..., 0].T
        targets = later[new[:, 2] == group]
        assert abs(((lower <= targets) & (targets <= upper)).mean() - 0.9) < 0.04
        more = made.predict_interval(asked + np.array([0.1, -0.1, 0.0]))[1][..., 0].T
        assert (more[0] >= lower).all()
        assert (more[1] >= upper).all()
