"""DataFrames in and out: columns of every type, targets, and predictions that keep their index."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from cg4ai import ConstrainedClassifier, ConstrainedRegressor, FitWarning, load
from cg4ai.data import fit_with_requirements, predict_frame
from cg4ai.errors import InvalidInput
from cg4ai.rules import Box, Linear
from raising import raises

pandas = pytest.importorskip("pandas")
QUICK: dict[str, Any] = {
    "members": "network",
    "hidden": (4,),
    "steps": 20,
    "iteration_limit": 1,
    "random_state": 0,
}
RANDOM = np.random.default_rng(0)
ROWS = pandas.Index([f"row {k}" for k in range(60)], name="id")
FRAME = pandas.DataFrame(
    {
        "a": RANDOM.normal(size=60),
        "b": RANDOM.integers(0, 5, 60),
        "c": RANDOM.random(60) > 0.5,
    },
    index=ROWS,
)
GRADE = pandas.Series(np.where(FRAME["a"] + FRAME["b"] > 2, "good", "bad"), ROWS, name="grade")
# predictions of rows beyond the rules of these tests are compared all the same
pytestmark = pytest.mark.filterwarnings("ignore::cg4ai.errors.OutsideRegion")
DAYS = pandas.Timestamp("2020-01-01") + pandas.to_timedelta(FRAME["b"], unit="D")


@pytest.fixture(scope="module")
def model() -> ConstrainedClassifier:
    rule = Linear(Box({"a": (-1.0, 1.0)}), {"good": 1.0}, 0.9, "<=", name="cap")
    return ConstrainedClassifier(**QUICK).fit(FRAME, GRADE, requirements=[rule])


def changed(**columns: Any) -> Any:
    return FRAME.assign(**columns)


# ---- in ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "same",
    [
        changed(b=FRAME["b"].astype("Int64"), c=FRAME["c"].astype("boolean")),
        changed(b=FRAME["b"].astype("category")),
        changed(a=FRAME["a"].astype("Float64"), b=FRAME["b"].astype("uint8")),
        FRAME.astype(object),
    ],
    ids=["nullable", "numbers as categories", "unsigned", "objects"],
)
def test_columns_of_numbers_may_have_any_type(model: Any, same: Any) -> None:
    np.testing.assert_array_equal(model.predict_proba(same), model.predict_proba(FRAME))
    again = ConstrainedClassifier(**QUICK).fit(same, GRADE)
    plain = ConstrainedClassifier(**QUICK).fit(FRAME, GRADE)
    np.testing.assert_array_equal(again.predict_proba(FRAME), plain.predict_proba(FRAME))


@pytest.mark.parametrize(
    "missing",
    [
        FRAME["b"].astype("Int64").where(FRAME["b"] > 0),
        FRAME["b"].astype(object).where(FRAME["b"] > 0, pandas.NA),
        FRAME["b"].astype(object).where(FRAME["b"] > 0, None),
        FRAME["b"].where(FRAME["b"] > 0),
    ],
    ids=["nullable", "pd.NA", "None", "NaN"],
)
def test_missing_numbers_are_missing_whatever_stands_for_them(missing: Any) -> None:
    frame = changed(b=missing)
    with raises(InvalidInput, "missing-values", "NaN", "SimpleImputer"):
        ConstrainedClassifier(**QUICK).fit(frame, GRADE)
    trees = QUICK | {"members": "tree"}
    one = ConstrainedClassifier(**trees).fit(frame, GRADE)
    other = ConstrainedClassifier(**trees).fit(changed(b=FRAME["b"].where(FRAME["b"] > 0)), GRADE)
    np.testing.assert_array_equal(one.predict_proba(frame), other.predict_proba(frame))


@pytest.mark.parametrize(
    ("column", "what"),
    [
        (DAYS, "dates"),
        (DAYS.dt.tz_localize("UTC"), "dates"),
        (DAYS - DAYS.min(), "dates"),
        (DAYS.dt.date, "dates"),
        (DAYS.dt.to_period("D"), "dates"),
        (FRAME["b"].map(str), "text"),
        (FRAME["b"].map(str).astype(object), "text"),
        (FRAME["b"].map(str).astype("category"), "categories"),
        (FRAME["a"].astype(complex), "complex numbers"),
        (pandas.cut(FRAME["a"], 3), "categories"),
    ],
)
def test_columns_that_hold_no_numbers_are_refused_by_name(
    model: Any, column: Any, what: str
) -> None:
    for act in (lambda X: ConstrainedClassifier(**QUICK).fit(X, GRADE), model.predict):
        with raises(InvalidInput, "type", f"'b' ({what})"):
            act(changed(b=column))


def test_all_of_them_are_named_at_once() -> None:
    frame = changed(when=DAYS, city="Rome")
    with raises(InvalidInput, "type", "when", "city"):
        ConstrainedClassifier(**QUICK).fit(frame, GRADE)
    with raises(InvalidInput, "type"):
        ConstrainedClassifier(**QUICK).fit(DAYS.to_numpy()[:, None], GRADE)


def test_a_name_that_stands_twice_is_refused() -> None:
    twice = pandas.concat([FRAME, FRAME[["a"]]], axis=1)
    with raises(InvalidInput, "duplicate"):
        ConstrainedClassifier(**QUICK).fit(twice, GRADE)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (FRAME[["b", "a", "c"]], "same order"),
        (FRAME[["a", "b"]], "now missing:\n- c"),
        (changed(d=1), "unseen at fit time:\n- d"),
    ],
)
def test_other_columns_are_refused_by_the_model_its_rules_and_its_ensemble(
    model: Any, wrong: Any, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        model.predict(wrong)
    with raises(InvalidInput, "conflict"):
        model.ensemble_.predict(wrong)
    rule = Linear(wrong[:2], [1.0, 0.0], 0.5)
    with raises(InvalidInput, "conflict"):
        ConstrainedClassifier(**QUICK).fit(FRAME, GRADE, requirements=[rule])


def test_a_saved_ensemble_knows_its_columns(model: Any, tmp_path: Path) -> None:
    model.ensemble_.save(tmp_path)
    again = load(tmp_path)
    np.testing.assert_array_equal(again.predict(FRAME), model.predict_proba(FRAME))
    with raises(InvalidInput, "conflict"):
        again.predict(FRAME[["c", "b", "a"]])


# ---- targets -------------------------------------------------------------------------------------


def test_targets_of_pandas_own_types_are_what_they_hold() -> None:
    good = GRADE == "good"
    for dtype, kind in (("Int64", "i"), ("boolean", "b"), ("Float64", "f")):
        fitted = ConstrainedClassifier(**QUICK).fit(FRAME, good.astype(dtype))
        assert fitted.classes_.dtype.kind == kind
        assert fitted.predict(FRAME).dtype.kind == kind


@pytest.mark.parametrize("dtype", ["string", "object", "category"])
def test_missing_targets_are_counted_and_found(dtype: str) -> None:
    lacking = GRADE.astype(dtype).where(FRAME["b"] > 0)
    first = int(np.flatnonzero(FRAME["b"] == 0)[0])
    count = int((FRAME["b"] == 0).sum())
    with raises(InvalidInput, "missing-values", count, first):
        ConstrainedClassifier(**QUICK).fit(FRAME, lacking)


def test_dates_are_no_targets() -> None:
    with raises(InvalidInput, "type"):
        ConstrainedRegressor(**QUICK).fit(FRAME, DAYS)


@pytest.mark.filterwarnings("ignore:this model predicts no better:cg4ai.FitWarning")
def test_an_index_in_another_order_is_warned_of() -> None:
    shuffled = GRADE.sample(frac=1, random_state=0)
    with pytest.warns(FitWarning, match=r"same index in another order.*y.loc\[X.index\]"):
        fitted = ConstrainedClassifier(**QUICK).fit(FRAME, shuffled)
    assert fitted.cautions_[0].startswith("X and y have the same index")
    other = ConstrainedClassifier(**QUICK).fit(FRAME, GRADE.reset_index(drop=True))
    assert not any("index" in caution for caution in other.cautions_)


# ---- out -----------------------------------------------------------------------------------------


def test_predictions_keep_index_and_names(model: Any) -> None:
    frame = model.predict_frame(FRAME)
    assert frame.index.equals(ROWS)
    assert list(frame) == ["grade", "probability bad", "probability good"]
    np.testing.assert_array_equal(frame["grade"], model.predict(FRAME))
    np.testing.assert_array_equal(frame.iloc[:, 1:], model.predict_proba(FRAME))
    with pytest.warns(UserWarning, match="valid feature names"):  # as scikit-learn has it
        plain = model.predict_frame(FRAME.to_numpy(dtype=float))
    assert list(plain.index) == list(range(60))


def test_predictions_are_explained_beside_them(model: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # rows outside are marked, and not warned of as well
        frame = model.predict_frame(FRAME, explain=True)
    explained = model.ensemble_.predict(FRAME, explain=True)
    assert list(frame)[3:] == [
        "strength",
        "cap: strength",
        "moved by the shield",
        "outside the region",
    ]
    np.testing.assert_array_equal(frame["strength"], explained.labels)
    np.testing.assert_array_equal(frame["moved by the shield"], explained.theta)
    outside = FRAME["a"].abs() > 1.0
    np.testing.assert_array_equal(frame["outside the region"], outside)
    assert set(frame.loc[~outside, "cap: strength"]) == {"shielded"}
    table = explained.to_frame()
    assert table.index.equals(ROWS)
    assert list(table)[:3] == ["bad", "good", "strength"]
    np.testing.assert_array_equal(table["good"], frame["probability good"])


def test_values_quantiles_and_several_outputs_have_names() -> None:
    price = pandas.Series(FRAME["a"] + FRAME["b"], name="price")
    one = ConstrainedRegressor(**QUICK).fit(FRAME, price)
    assert list(one.predict_frame(FRAME)) == ["price"]
    np.testing.assert_array_equal(one.predict_frame(FRAME)["price"], one.predict(FRAME))
    bands = ConstrainedRegressor(loss="pinball", quantiles=(0.1, 0.9), **QUICK).fit(FRAME, price)
    assert list(bands.predict_frame(FRAME)) == ["quantile 0.1", "quantile 0.9"]
    both = ConstrainedRegressor(**QUICK).fit(FRAME, FRAME[["a", "b"]])
    assert list(both.predict_frame(FRAME)) == ["a", "b"]
    unnamed = ConstrainedRegressor(**QUICK).fit(FRAME, FRAME[["a", "b"]].to_numpy())
    assert list(unnamed.predict_frame(FRAME)) == ["output 0", "output 1"]
    alone = ConstrainedRegressor(**QUICK).fit(FRAME, price.to_numpy())
    assert list(alone.predict_frame(FRAME)) == ["prediction"]


def test_pipelines_predict_frames_of_raw_rows() -> None:
    raw = FRAME.assign(city=np.where(FRAME["c"], "Rome", "Oslo"))
    steps = make_column_transformer(
        (OneHotEncoder(), ["city"]), (StandardScaler(), ["a", "b"]), sparse_threshold=0
    )
    rule = Linear(Box({"city": "Rome"}), [0.0, 1.0], 0.8, "<=", name="cap")
    fitted = fit_with_requirements(
        make_pipeline(steps, ConstrainedClassifier(**QUICK)), raw, GRADE, [rule]
    )
    frame = predict_frame(fitted, raw, explain=True)
    assert frame.index.equals(ROWS)
    np.testing.assert_array_equal(frame["probability good"], fitted.predict_proba(raw)[:, 1])
    assert frame.loc[raw["city"] == "Rome", "probability good"].max() <= 0.8 + 1e-9
    with raises(InvalidInput, "type", "LinearRegression"):
        predict_frame(LinearRegression(), raw)
