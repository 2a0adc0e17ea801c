"""Decisions under rules for models that are fitted already."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import cg4ai
from cg4ai.errors import InvalidInput, SmallGroups
from cg4ai.plots import plot_frontier
from cg4ai.rules import DecisionRate
from raising import raises


def people(count: int, seed: int) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(seed)
    group = random.integers(0, 2, count)
    inputs = random.normal(size=(count, 3))
    inputs[:, 0] += group
    score = inputs @ [1.0, 0.8, -0.5] - 0.5 + random.logistic(size=count)
    return inputs, np.where(score > 0, "yes", "no"), group


X, Y, G = people(4000, 0)
LATE, LATE_Y, LATE_G = people(4000, 1)
NEW, NEW_Y, NEW_G = people(20_000, 2)
MODEL = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)


def gap(decided: Any, group: Any) -> float:
    yes = decided == "yes"
    return abs(float(yes[group == 1].mean() - yes[group == 0].mean()))


def test_a_fitted_pipeline_decides_under_parity() -> None:
    rule = DecisionRate(LATE, LATE_G, tolerance=0.05)
    fair = cg4ai.postprocess(MODEL, rule, LATE, LATE_Y)
    decided = fair.predict(NEW)
    assert gap(MODEL.predict(NEW), NEW_G) > 0.15
    assert gap(decided, NEW_G) <= 0.05
    assert fair.score(NEW, NEW_Y) > 0.55
    np.testing.assert_array_equal(fair.predict_proba(NEW), MODEL.predict_proba(NEW))
    assert (np.concatenate([fair.predict(NEW[k : k + 1]) for k in range(50)]) == decided[:50]).all()
    assert (pickle.loads(pickle.dumps(fair)).predict(NEW) == decided).all()
    assert abs(fair.rates_[-1].held_out.value) <= 0.05
    assert fair.frontier([0.05, 0.2]).points[0].gap < 0.1


def test_a_known_group_has_a_threshold_of_its_own() -> None:
    columns = ["income", "debt", "age", "sex"]

    def frame(inputs: Any, group: Any) -> Any:
        made = pd.DataFrame(inputs, columns=columns[:3])
        return made.assign(sex=np.where(group == 1, "f", "m"))

    encoded = make_column_transformer(
        (OneHotEncoder(drop="if_binary"), ["sex"]), remainder="passthrough"
    )
    model = make_pipeline(encoded, LogisticRegression()).fit(frame(X, G), Y)
    table = frame(LATE, LATE_G)
    for of, tolerance in (("selection", 0.05), ("equalised odds", 0.08)):
        rule = DecisionRate(table, tolerance=tolerance, of=of, labels=LATE_Y, group_feature="sex")
        fair = cg4ai.postprocess(model, rule, table)
        decided = fair.predict(frame(NEW, NEW_G))
        kept = [np.ones(len(NEW), bool)] if of == "selection" else [NEW_Y == "yes", NEW_Y == "no"]
        assert max(gap(decided[one], NEW_G[one]) for one in kept) <= tolerance
        assert (decided == NEW_Y).mean() > 0.65


def test_small_groups_are_told() -> None:
    rule = DecisionRate(LATE[:200], LATE_G[:200], tolerance=0.02)
    with pytest.warns(SmallGroups):
        cg4ai.postprocess(MODEL, rule, y=LATE_Y[:200])


def test_a_frontier_is_drawn() -> None:
    rule = DecisionRate(LATE, LATE_G, tolerance=0.05, labels=LATE_Y)
    found = cg4ai.postprocess(MODEL, rule).frontier([0.05, 0.2])
    axis = plot_frontier(found)
    assert axis.get_xlabel().startswith("gap")
    assert "tolerance" in str(found)
    with raises(InvalidInput, "type"):
        plot_frontier(3)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"model": LogisticRegression()}, "unsupported"),
        ({"model": LinearRegression()}, "type"),
        ({"rule": "parity"}, "type"),
        ({"y": None}, "missing-argument"),
        ({"y": np.where(LATE_Y == "yes", "maybe", "no")}, "unknown-name"),
        ({"y": LATE_Y[:-1]}, "shape"),
        ({"X": LATE[:-1]}, "shape"),
        ({"model": LogisticRegression().fit(X, G + (X[:, 1] > 1))}, "unsupported"),
    ],
)
def test_what_does_not_fit_is_refused(change: Any, code: str) -> None:
    rule = DecisionRate(LATE, LATE_G, tolerance=0.05)
    given = {"model": MODEL, "rule": rule, "X": LATE, "y": LATE_Y, **change}
    with raises(InvalidInput, code):
        cg4ai.postprocess(**given)
