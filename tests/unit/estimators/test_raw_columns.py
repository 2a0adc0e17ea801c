"""Rules on raw columns, text and missing values among them, hold for raw rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    StandardScaler,
)

from cg4ai import ConstrainedClassifier, ConstrainedRegressor
from cg4ai.data import fit_with_requirements, transform_requirement
from cg4ai.errors import InvalidInput
from cg4ai.rules import (
    Box,
    Curvature,
    DecisionRate,
    Difference,
    Linear,
    Monotone,
    Pool,
    Probability,
)
from raising import raises

pandas = pytest.importorskip("pandas")
QUICK: dict[str, Any] = {"steps": 60, "iteration_limit": 2, "random_state": 0, "restarts": 1}


def table(count: int = 120, seed: int = 0) -> Any:
    """Income and debt with missing values, text with missing values, a code that is a category."""
    random = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "city": random.choice(["Rome", "Oslo", "Bern"], count).astype(object),
            "income": random.uniform(0, 1e5, count),
            "debt": random.normal(0, 1, count),
            "code": random.integers(1, 4, count),
        }
    )
    frame.loc[::7, "income"] = np.nan
    frame.loc[3::11, "city"] = None
    return frame


def target(frame: Any) -> Any:
    income = frame["income"].fillna(5e4).to_numpy() / 1e5
    return np.sqrt(income) - 0.3 * frame["debt"].to_numpy() + (frame["city"] == "Oslo").to_numpy()


def columns(numeric: Any = None, **more: Any) -> ColumnTransformer:
    return ColumnTransformer(
        [
            ("text", make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder()), [0]),
            (
                "numbers",
                numeric or make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()),
                ["income", "debt"],
            ),
            ("code", OrdinalEncoder(), ["code"]),
        ],
        **more,
    )


FRAME = table()
Y = target(FRAME)


@pytest.mark.slow
@pytest.mark.guard
def test_listed_rows_with_text_and_missing_values() -> None:
    labels = (target(FRAME) > np.median(Y)).astype(int)
    hard = FRAME.iloc[:8]
    rule = Probability(hard, 1 - labels[:8], at_least=0.6)
    pipeline = make_pipeline(columns(), ConstrainedClassifier(hidden=(8,), random_state=0))
    model = fit_with_requirements(pipeline, FRAME, labels, [rule])
    probability = model.predict_proba(hard)[np.arange(8), 1 - labels[:8]]
    assert (probability >= 0.6 - 1e-6).all()
    shuffled = Probability(hard[["code", "debt", "income", "city"]], 1 - labels[:8], at_least=0.6)
    for again in (rule, shuffled, Probability(Pool(hard), 1 - labels[:8], at_least=0.6)):
        inner: Any = transform_requirement(again, model)
        np.testing.assert_allclose(inner.points, model[:-1].transform(hard))
        assert model[-1].audit(inner).holds
    with raises(InvalidInput, "missing-values", "fit_with_requirements"):
        ConstrainedClassifier(**QUICK).fit(np.nan_to_num(FRAME[["income"]]), labels, [rule])
    with raises(InvalidInput, "unknown-name", "city"):
        transform_requirement(Probability(hard[["income", "debt", "code"]], labels[:8]), model)
    strange = hard.assign(city="Paris")
    with raises(InvalidInput, "unsupported", "Paris"):
        transform_requirement(Probability(strange, labels[:8]), model)


def test_pairs_and_rates_of_raw_rows() -> None:
    model = make_pipeline(columns(), StandardScaler(with_mean=False)).fit(FRAME)
    rule: Any = transform_requirement(Difference.between(FRAME.iloc[:5], FRAME.iloc[5:10]), model)
    np.testing.assert_allclose(rule.points, model[:-1].transform(FRAME.iloc[:10]))
    groups = FRAME["city"].fillna("none").to_numpy()
    rate: Any = transform_requirement(DecisionRate(FRAME, groups, tolerance=0.1), model)
    np.testing.assert_allclose(rate.points, model[:-1].transform(FRAME))


@pytest.mark.parametrize("sparse", [0.0, 1.0])
def test_monotone_in_raw_columns_holds_for_raw_rows(sparse: float) -> None:
    rule = Monotone({"income": +1, "debt": -1})
    pipeline = make_pipeline(columns(sparse_threshold=sparse), ConstrainedRegressor(**QUICK))
    model = fit_with_requirements(pipeline, FRAME, Y, [rule])
    assert [audit.strength for audit in model[-1].audit_] == ["constructed"]
    inner: Any = transform_requirement(rule, model, FRAME)
    assert inner.features == {3: 1, 4: -1}  # behind three cities; the indicator is not moved
    fresh = table(2000, seed=1).assign(income=lambda one: one["income"].fillna(1e4))
    low = model.predict(fresh)
    richer = fresh.assign(income=fresh["income"] * 1.5 + 10, debt=fresh["debt"] - 0.3)
    assert (model.predict(richer) >= low).all()
    with raises(InvalidInput, "unsupported"):
        transform_requirement(rule, model)


def test_curvature_needs_columns_that_are_linear_in_the_raw_one() -> None:
    steps = make_pipeline(columns(), StandardScaler(with_mean=False)).fit(FRAME)
    inner: Any = transform_requirement(Curvature({"debt": -1}), steps, FRAME)
    assert inner.features == {4: -1}
    bent = make_pipeline(SimpleImputer(), FunctionTransformer(np.cbrt))
    steps = make_pipeline(columns(bent), StandardScaler(with_mean=False)).fit(FRAME)
    rising: Any = transform_requirement(Monotone({"debt": -1}), steps, FRAME)
    assert rising.features == {4: -1}
    with raises(InvalidInput, "unsupported", "debt"):
        transform_requirement(Curvature({"debt": -1}), steps, FRAME)


@pytest.mark.parametrize("name", ["city", "code"])
@pytest.mark.parametrize("rule", [Monotone, Curvature, "box"])
def test_categories_have_no_order(name: str, rule: Any) -> None:
    steps = make_pipeline(columns(), StandardScaler(with_mean=False)).fit(FRAME)
    asked = Linear(Box({name: (0, 1)}), [1.0], 2.0) if rule == "box" else rule({name: +1})
    with raises(InvalidInput, "unsupported", name):
        transform_requirement(asked, steps, FRAME)


def test_other_columns_that_cannot_be_named() -> None:
    steps = make_pipeline(columns(), StandardScaler(with_mean=False)).fit(FRAME)
    with raises(InvalidInput, "unknown-name", "income"):
        transform_requirement(Monotone({"incom": +1}), steps, FRAME)
    with raises(InvalidInput, "unknown-name", "income"):
        transform_requirement(Linear(Box({"incom": (0, 1)}), [1.0], 2.0), steps, FRAME)
    squares = make_pipeline(SimpleImputer(), PolynomialFeatures(2))
    steps = make_pipeline(columns(squares), StandardScaler(with_mean=False)).fit(FRAME)
    with raises(InvalidInput, "unsupported"):
        transform_requirement(Monotone({"debt": +1}), steps, FRAME)


def test_a_box_by_raw_names_holds_for_raw_rows() -> None:
    rule = Linear(Box({"income": (0.0, 2e4), "debt": (0.5, 1.0)}), [1.0], 0.6, "<=")
    pipeline = make_pipeline(columns(), ConstrainedRegressor(**QUICK))
    model = fit_with_requirements(pipeline, FRAME, Y, [rule])
    assert model[-1].audit_[0].holds
    inner: Any = transform_requirement(rule, model, FRAME)
    ends = FRAME.iloc[[0, 0]].assign(income=[0.0, 2e4], debt=[0.5, 1.0])
    images = model[:-1].transform(ends)
    images = images.toarray() if hasattr(images, "toarray") else images
    assert inner.inputs.lower == {
        3: pytest.approx(tuple(images[:, 3])),
        4: pytest.approx(tuple(images[:, 4])),
    }
    random = np.random.default_rng(3)
    inside = table(2000, seed=2).assign(
        income=random.uniform(0, 2e4, 2000), debt=random.uniform(0.5, 1.0, 2000)
    )
    assert model.predict(inside).max() <= 0.6 + 1e-4
    mixed = make_pipeline(columns(make_pipeline(SimpleImputer(), PCA(2))), PCA(2)).fit(FRAME)
    with raises(InvalidInput, "unsupported"):
        transform_requirement(rule, mixed, FRAME)


def inside_of(**values: Any) -> Any:
    """Many raw rows with these values."""
    return table(1000, seed=5).assign(**values)


ENCODERS = [
    OneHotEncoder(),
    OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    OneHotEncoder(drop="first"),
    OrdinalEncoder(),
    OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
]


@pytest.mark.filterwarnings("ignore:this model predicts no better:cg4ai.FitWarning")  # far below Y
@pytest.mark.filterwarnings("ignore::cg4ai.errors.OutsideRegion")
@pytest.mark.parametrize("encoder", ENCODERS, ids=str)
@pytest.mark.parametrize("cities", ["Bern", {"Bern", "Oslo"}], ids=["one", "two"])
def test_a_box_of_categories_and_numbers_holds_for_raw_rows(encoder: Any, cities: Any) -> None:
    text = make_pipeline(SimpleImputer(strategy="most_frequent"), encoder)
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    steps = ColumnTransformer(
        [("numbers", numbers, ["income", "debt"]), ("text", text, ["city"])], sparse_threshold=0
    )
    rule = Linear(Box({"city": cities, "income": (2e4, 9e4)}), [1.0], 0.3, "<=", name="cap")
    model = fit_with_requirements(
        make_pipeline(steps, ConstrainedRegressor(**QUICK)), FRAME, Y, [rule]
    )
    assert model[-1].audit_[0].holds
    least, most = float(FRAME["debt"].min()), float(FRAME["debt"].max())
    random = np.random.default_rng(1)
    for city in [cities] if isinstance(cities, str) else cities:
        rows = inside_of(
            city=city, income=random.uniform(2e4, 9e4, 1000), debt=random.uniform(least, most, 1000)
        )
        assert model.predict(rows).max() <= 0.3 + 1e-6
    free = inside_of(city="Rome", income=8e4, debt=least)
    assert model.predict(free).max() > 0.3 + 1e-3  # it is no rule for all


def test_categories_that_are_numbers_are_named_by_a_set() -> None:
    steps = make_pipeline(columns(), StandardScaler(with_mean=False)).fit(FRAME)
    inner: Any = transform_requirement(Linear(Box({"code": {2}}), [1.0], 2.0), steps, FRAME)
    rows = FRAME.assign(code=2)
    images = steps[:-1].transform(rows)
    last = images.toarray()[:, -1] if hasattr(images, "toarray") else images[:, -1]
    assert inner.inputs.lower == {images.shape[1] - 1: pytest.approx((last[0], last[0]))}


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ({"city": "Olso"}, "Oslo"),
        ({"code": {7}}, "code"),
        ({"debt": "high"}, "high"),
    ],
)
def test_categories_that_the_data_do_not_have_are_refused(box: Any, words: str) -> None:
    steps = make_pipeline(columns(), StandardScaler(with_mean=False)).fit(FRAME)
    with raises(InvalidInput, "unknown-name", words):
        transform_requirement(Linear(Box(box), [1.0], 2.0), steps, FRAME)
    with raises(InvalidInput, "unknown-name"):
        transform_requirement(Linear(Box(box), [1.0], 2.0), steps)


def test_categories_need_a_pipeline_that_encodes_them() -> None:
    numbers = FRAME[["debt", "code"]]
    with raises(InvalidInput, "unsupported", "code", "fit_with_requirements"):
        ConstrainedRegressor(**QUICK).fit(
            numbers, Y, requirements=[Linear(Box({"code": {1}}), [1.0], 2.0)]
        )
    with raises(InvalidInput, "empty"):
        Box({"code": set()})


def test_categories_in_an_order_of_the_users_own_can_be_risen_with() -> None:
    random = np.random.default_rng(2)
    sizes = ["small", "medium", "large"]  # not the order of the alphabet
    frame = pandas.DataFrame({"size": random.choice(sizes, 90), "age": random.normal(size=90)})
    price = frame["size"].map({"small": 3.0, "medium": 1.0, "large": 2.0}) + 0.2 * frame["age"]
    ordered = OrdinalEncoder(
        categories=[sizes], handle_unknown="use_encoded_value", unknown_value=-1
    )
    text = make_pipeline(SimpleImputer(strategy="most_frequent"), ordered)
    steps = ColumnTransformer([("age", StandardScaler(), ["age"]), ("size", text, ["size"])])
    model = fit_with_requirements(
        make_pipeline(steps, ConstrainedRegressor(**QUICK)),
        frame,
        price,
        [Monotone({"size": +1}, name="larger")],
    )
    small, medium, large = (model.predict(frame.assign(size=size)) for size in sizes)
    assert (small <= medium).all()
    assert (medium <= large).all()
    assert (small < large).any()
    fitted = make_pipeline(steps, StandardScaler()).fit(frame)
    with raises(InvalidInput, "unsupported", "size"):
        transform_requirement(Curvature({"size": +1}), fitted, frame)
    alphabet = ColumnTransformer([("size", OrdinalEncoder(), ["size"])])
    with raises(InvalidInput, "unsupported", "OrdinalEncoder"):
        transform_requirement(
            Monotone({"size": +1}), make_pipeline(alphabet, StandardScaler()).fit(frame), frame
        )


def test_listed_rows_may_have_categories_that_the_encoder_ignores() -> None:
    rows = FRAME.iloc[:3].assign(city="Paris")
    rule = Linear(rows, [1.0], 0.2, "<=", name="strangers")
    model = fit_with_requirements(
        make_pipeline(
            ColumnTransformer(
                [
                    ("text", OneHotEncoder(handle_unknown="ignore"), ["city"]),
                    ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["income"]),
                ]
            ),
            ConstrainedRegressor(**QUICK),
        ),
        FRAME,
        Y,
        [rule],
    )
    assert model.predict(rows).max() <= 0.2 + 1e-6
    strict = make_pipeline(columns(), StandardScaler(with_mean=False)).fit(FRAME)
    with raises(InvalidInput, "unsupported", "Paris"):
        transform_requirement(rule, strict, FRAME)


def test_parts_are_found_however_they_are_chosen() -> None:
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    chosen = ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include=float)),
            ("rest", OneHotEncoder(handle_unknown="ignore"), slice("code", "code")),
        ]
    )
    steps = make_pipeline(chosen, StandardScaler(with_mean=False)).fit(FRAME)
    inner: Any = transform_requirement(Monotone({"debt": +1}), steps, FRAME)
    assert inner.features == {1: 1}
    with raises(InvalidInput, "unsupported", "code"):
        transform_requirement(Monotone({"code": +1}), steps, FRAME)
    mask = ColumnTransformer(
        [("number", numbers, [False, True, True]), ("class", OrdinalEncoder(), [0])]
    )
    plain = np.column_stack([np.arange(40) % 3, np.random.default_rng(0).normal(size=(40, 2))])
    steps = make_pipeline(mask, StandardScaler()).fit(plain)
    inner = transform_requirement(Monotone({2: -1}), steps, plain)
    assert inner.features == {1: -1}
    with raises(InvalidInput, "unsupported", "feature 0"):
        transform_requirement(Monotone({0: +1}), steps, plain)


def test_missing_values_may_reach_members_that_take_them() -> None:
    text = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder())
    steps = ColumnTransformer([("text", text, ["city"])], remainder="passthrough")
    trees = ConstrainedRegressor(members="boosting", iteration_limit=2, random_state=0)
    model = fit_with_requirements(
        make_pipeline(steps, trees), FRAME, Y, [Monotone({"income": +1, "debt": -1})]
    )
    known = FRAME.dropna(subset=["income"])
    richer = known.assign(income=known["income"] + 1e4)
    assert (model.predict(richer) >= model.predict(known)).all()
    assert np.isfinite(model.predict(FRAME)).all()
