"""Audits of models of other libraries: answers as brute force gives them, proofs, refusals."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingClassifier
from sklearn.linear_model import LinearRegression, PoissonRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from cg4ai import audit_model
from cg4ai.cli.main import main
from cg4ai.errors import InvalidInput
from cg4ai.fitted_models import FittedModel, Stable, read_model
from cg4ai.fitted_models.least import find_least
from cg4ai.fitted_models.pieces import TreeSum
from cg4ai.records import Array
from cg4ai.rules import Box, Curvature, Linear, Monotone, Ordered, Probability, Range
from cg4ai_checker import Rejected, verdict
from raising import raises

BOX = Box([-1.5] * 3, [1.7] * 3)
RANDOM = np.random.default_rng(0)
X = np.round(RANDOM.normal(size=(200, 3)), 1)
Y = X[:, 0] + np.sin(3 * X[:, 1]) + 0.3 * RANDOM.normal(size=200)


def lightgbm_model(**options: Any) -> Any:
    lightgbm = pytest.importorskip("lightgbm")
    given = {"n_estimators": 5, "num_leaves": 6, "verbose": -1, "n_jobs": 1, **options}
    return lightgbm.LGBMRegressor(**given).fit(X, Y)


def xgboost_model(**options: Any) -> Any:
    xgboost = pytest.importorskip("xgboost")
    return xgboost.XGBRegressor(n_estimators=5, max_depth=2, n_jobs=1, **options).fit(X, Y)


def catboost_model(**options: Any) -> Any:
    catboost = pytest.importorskip("catboost")
    given = {"iterations": 5, "depth": 2, "verbose": 0, "thread_count": 1, **options}
    return catboost.CatBoostRegressor(**given, allow_writing_files=False).fit(X, Y)


MODELS = {
    "lightgbm": lightgbm_model,
    "lightgbm monotone": lambda: lightgbm_model(monotone_constraints=[1, 0, 0]),
    "xgboost": xgboost_model,
    "xgboost monotone": lambda: xgboost_model(monotone_constraints=(1, 0, 0)),
    "catboost": catboost_model,
    "scikit-learn": lambda: GradientBoostingRegressor(n_estimators=5, max_depth=2).fit(X, Y),
    "behind a scaler": lambda: make_pipeline(
        StandardScaler(), DecisionTreeRegressor(max_depth=4)
    ).fit(X, Y),
    "two classes": lambda: HistGradientBoostingClassifier(max_iter=5, max_leaf_nodes=6).fit(
        X, Y > 0
    ),
}


def evaluate_grid(model: FittedModel) -> tuple[Array, Array]:
    """Inputs inside the box with every threshold and what follows it; scores of the library."""
    axes = []
    for column in range(3):
        values = np.unique(np.clip(model.find_probes(300)[:, column], -1.5, 1.7))
        axes.append(np.unique(np.append(values, [-1.5, 1.7])))
    points = np.array(list(itertools.product(*axes)))
    scores = model.scores(points)
    value = scores[:, -1] - (scores[:, 0] if model.classes else 0)
    return points, value.reshape([len(one) for one in axes])


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_brute_force(name: str) -> None:
    model = read_model(MODELS[name]())
    points, table = evaluate_grid(model)
    falls = (np.maximum.accumulate(table, axis=0) - table).max() > 1e-6 * np.abs(table).max()
    last = model.predict(points)[:, -1]
    outputs = [model.output_size - 1]
    rules = [
        Monotone({0: 1}),
        Range(last.min() - 1e-3, None, outputs),
        Range(float(last.min()) + 1e-3, None, outputs),
    ]
    answer = audit_model(model, rules, BOX, time_limit_s=20)
    wanted = ["refuted" if falls else "proven", "proven", "refuted"]
    assert [one.status for one in answer.findings] == wanted
    for one in answer.findings:
        if one.status == "proven":
            assert "Proven" in str(verdict(one.certificate))
        else:
            assert one.inputs is not None
            assert BOX.contains(one.inputs).all()
            assert one.missed > 0
    low = answer.findings[2]
    assert low.inputs is not None
    assert model.predict(low.inputs)[0, -1] < last.min() + 1e-3
    assert str(answer).splitlines()[0].startswith(wanted[0].upper())


def test_the_least_of_pieces_is_that_of_a_grid() -> None:
    model = read_model(GradientBoostingRegressor(n_estimators=6, max_depth=3).fit(X, Y))
    points, table = evaluate_grid(model)
    trees = TreeSum(model.members, BOX.lower, BOX.upper)  # type: ignore[arg-type]
    functional = np.ones(1)
    found = find_least(trees.find_value_pieces(functional), Fraction(10**9))
    reached = trees.factor * found.bound + trees.initial[0]
    assert found.attained == pytest.approx(found.bound)
    assert reached == pytest.approx(table.min(), abs=1e-12)
    steps = np.diff(table, axis=0)
    least = min(
        find_least(trees.find_step_pieces(functional, 0, t, 1), Fraction(10**9)).bound
        for t in trees.thresholds(0)
    )
    assert trees.factor * least == pytest.approx(steps.min(), abs=1e-12)
    assert len(points)


def test_the_advanced_method_of_lightgbm_falls_where_training_had_missing_values() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    random = np.random.default_rng(8)
    x = random.normal(size=(3000, 5))
    y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 1]) - x[:, 2] + x[:, 3] * x[:, 4]
    y = y + 0.3 * random.normal(size=3000)
    x[random.random(x.shape) < 0.2] = np.nan
    rule, found = Monotone({0: 1, 1: 1, 3: 1, 4: -1}), {}
    for method in ("basic", "advanced"):
        model = lightgbm.LGBMRegressor(
            n_estimators=60,
            min_child_samples=5,
            verbose=-1,
            n_jobs=1,
            monotone_constraints=[1, 1, 0, 1, -1],
            monotone_constraints_method=method,
        ).fit(x, y)
        found[method] = audit_model(model, rule).findings[0]
    assert found["basic"].status == "proven"
    broken = found["advanced"]
    assert broken.status == "refuted"
    assert broken.inputs is not None
    first, last = model.predict(broken.inputs)
    moved = np.flatnonzero(broken.inputs[0] != broken.inputs[1])
    assert len(moved) == 1
    up = broken.inputs[1, moved[0]] > broken.inputs[0, moved[0]]
    assert up == (moved[0] != 4)
    assert first - last == pytest.approx(broken.missed)
    assert broken.missed > 0.01


def test_networks_linear_models_and_stability() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.ReLU(), torch.nn.Linear(6, 1))
    wide, tight = Range(-50, 50), Stable(np.zeros(3), 1.0, 1e-4, name="tight")
    answer = audit_model(net, [wide, tight, Monotone({0: 1, 1: 1})], BOX, time_limit_s=20)
    assert [one.status for one in answer.findings] == ["proven", "refuted", "refuted"]
    with raises(InvalidInput, "missing-argument"):
        audit_model(net, wide)
    linear = LinearRegression().fit(X, Y)
    answer = audit_model(linear, [Monotone({0: 1}), Curvature({0: 1})])
    assert answer.holds
    small = Stable(X[0], 1e-6, 1e-3)
    trees = GradientBoostingRegressor(n_estimators=5).fit(X, Y)
    answer = audit_model(trees, [small, Curvature({0: 1}), Linear(BOX, [1.0], 9.0, "<=")])
    assert [one.status for one in answer.findings] == ["proven", "refuted", "proven"]
    bent = answer.findings[1]
    assert bent.inputs is not None
    low, middle, high = trees.predict(bent.inputs)
    share = (bent.inputs[1, 0] - bent.inputs[0, 0]) / (bent.inputs[2, 0] - bent.inputs[0, 0])
    assert middle > low + share * (high - low)


def test_probabilities_of_classes() -> None:
    model = HistGradientBoostingClassifier(max_iter=5, max_leaf_nodes=6).fit(X, Y > 0)
    least = model.predict_proba(X)[:, 1].min()
    rules = [Range(0, 1), Probability(BOX, 1, 0.01), Probability(BOX, 1, least + 0.05), Ordered()]
    answer = audit_model(model, rules)
    statuses = [one.status for one in answer.findings]
    assert statuses == ["proven", "proven", "refuted", "refuted"]
    at = answer.findings[2].inputs
    assert at is not None
    assert model.predict_proba(at)[0, 1] < least + 0.05


# ---- what is refused ---------------------------------------------------------------------------


def test_rules_and_models_that_do_not_fit_are_refused() -> None:
    model = DecisionTreeRegressor(max_depth=2).fit(X, Y)
    cases: list[tuple[str, Any]] = [
        ("range", lambda: audit_model(model, Monotone({7: 1}))),
        ("unknown-name", lambda: audit_model(model, Monotone({"age": 1}))),
        ("unknown-name", lambda: audit_model(model, Range(0, 1, [3]))),
        ("unsupported", lambda: audit_model(model, Linear(X[:5], [1.0], 9.0, "<="))),
        ("missing-argument", lambda: audit_model(model, Linear(None, [1.0], 9.0, "<="))),
        ("missing-argument", lambda: audit_model(model, Stable(X[0], 0.1))),
        ("shape", lambda: audit_model(model, Range(0, 1), Box([0.0], [1.0]))),
        ("type", lambda: audit_model(model, Range(0, 1), "everywhere")),  # type: ignore[arg-type]
        ("empty", lambda: audit_model(model, [])),
        ("range", lambda: audit_model(model, Range(0, 1), time_limit_s=0)),
        ("unsupported", lambda: read_model(DecisionTreeRegressor())),
        ("unsupported", lambda: read_model(PoissonRegressor().fit(X, np.abs(Y)))),
        ("unsupported", lambda: read_model(make_pipeline(PolynomialFeatures(), model).fit(X, Y))),
        ("unsupported", lambda: read_model(torch.nn.Sequential(torch.nn.BatchNorm1d(3)))),
        ("unsupported", lambda: read_model(3)),
        ("range", lambda: Stable(X[0], 0.0)),
    ]
    for code, call in cases:
        with raises(InvalidInput, code):
            call()


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("model.pkl", b"\x80\x04K\x01.", "unsupported"),
        ("model.txt", b"hello", "bad-file"),
        ("model.json", b'{"a": 1}', "bad-file"),
        ("model.json", b"{", "bad-file"),
        ("model.cbm", b"CBM1?", "bad-file"),
        ("model.txt", b"tree\nversion=v9\n", "bad-file"),
    ],
)
def test_files_that_are_no_models_are_refused(
    tmp_path: Path, name: str, content: bytes, code: str
) -> None:
    if content.startswith(b"CBM1"):
        pytest.importorskip("catboost")
    if content.startswith(b"tree"):
        pytest.importorskip("lightgbm")
    (tmp_path / name).write_bytes(content)
    with raises(InvalidInput, code):
        read_model(tmp_path / name)


def test_lightgbm_files_of_other_versions_or_cut_off_are_refused(tmp_path: Path) -> None:
    text = lightgbm_model().booster_.model_to_string()
    for content in (
        text.replace("version=v4", "version=v9"),
        text[: len(text) // 3],
        text.replace("leaf_value=", "leaf_value=0.5 ", 1),
    ):
        (tmp_path / "model.txt").write_text(content)
        with raises(InvalidInput, "bad-file"):
            read_model(tmp_path / "model.txt")
    (tmp_path / "model.txt").write_text(text)
    assert read_model(tmp_path / "model.txt").input_size == 3


def test_a_scaler_of_tiny_numbers_limits_the_inputs_that_are_judged() -> None:
    model = make_pipeline(StandardScaler(), DecisionTreeRegressor(max_depth=4)).fit(X * 1e-6, Y)
    found = audit_model(model, Monotone({1: 1}))
    assert found.findings[0].status == "refuted"
    assert read_model(model).largest == pytest.approx(1e32)


def test_a_reading_that_differs_from_the_library_is_refused() -> None:
    model = read_model(DecisionTreeRegressor(max_depth=2).fit(X, Y))
    other = FittedModel(
        model.words,
        model.members,
        model.features,
        model.outputs,
        False,
        model.predict,
        lambda x: model.predict(x) + 1.0,
    )
    with raises(InvalidInput, "unsupported"):
        other.verify()


def test_what_is_read_is_what_the_estimator_predicts() -> None:
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    stopped = xgboost.XGBRegressor(
        n_estimators=50, n_jobs=1, callbacks=[xgboost.callback.EarlyStopping(rounds=2)]
    ).fit(X, Y, eval_set=[(X, -Y)], verbose=False)
    np.testing.assert_array_equal(read_model(stopped).predict(X)[:, 0], stopped.predict(X))
    hasty = lightgbm.LGBMClassifier(
        n_estimators=20,
        verbose=-1,
        n_jobs=1,
        pred_early_stop=True,  # sums end where a score is clear
        pred_early_stop_freq=1,
        pred_early_stop_margin=0.1,
    ).fit(X, Y > 0)
    zeros = xgboost.XGBRegressor(n_estimators=2, n_jobs=1, missing=0.0).fit(X, Y)
    for model in (hasty, zeros):
        with raises(InvalidInput, "unsupported"):
            read_model(model)


# ---- certificates ------------------------------------------------------------------------------


def test_the_checker_rejects_what_does_not_follow() -> None:
    from cg4ai.fitted_models.sums import SumAudit
    from cg4ai.proofs.structure_certificates import encode_claim, seal_arrays
    from cg4ai_checker.file import parse_certificate

    model = read_model(GradientBoostingRegressor(n_estimators=4, max_depth=2).fit(X, Y))
    _, table = evaluate_grid(model)
    bound = np.array([table.min() - 1e-6])
    audit = SumAudit.of_values(model, np.eye(1), bound, BOX.bounds())
    assert not list(audit.search(np.inf))
    assert audit.proven
    content = parse_certificate(audit.build_certificate("least", "a model", ()))

    def changed(claim: dict[str, Any] | None = None, **arrays: Any) -> bytes:
        told = {**content.claim, **(claim or {})}
        return seal_arrays({**content.arrays, **arrays, "claim": encode_claim(told)})

    verdict(changed())
    cuts, value = content.arrays["cut_feature"].copy(), content.arrays["0.value"].copy()
    value[value == value.min()] -= 1.0
    cases: list[tuple[str, bytes]] = [
        ("not-proven", changed(bound=bound + 1e-3)),
        ("not-proven", changed(None, **{"0.value": value})),
        (
            "not-proven",
            changed(
                cut_start=np.array([0, 1]),
                cut_feature=cuts[-1:] * 0 - 1,
                cut_value=np.zeros(1),
                bound=np.array([table.min() + 1.0]),
            ),
        ),
        (
            "rejected",
            changed(cut_feature=np.where(cuts >= 0, 99, cuts))
            if (cuts >= 0).any()
            else changed({"form": "most"}),
        ),
        ("rejected", changed({"form": "monotone"})),
        ("shape", changed(lower=np.zeros(2))),
        ("empty", changed(lower=BOX.upper + 1.0)),
        ("range", changed(upper=np.full(3, np.inf))),
        ("rejected", changed(extra=np.zeros(1))),
    ]
    for code, data in cases:
        with raises(Rejected, code):
            verdict(data)


# ---- the command -------------------------------------------------------------------------------


def test_the_command_says_verdicts_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = lightgbm_model(monotone_constraints=[1, 0, 0])
    model.booster_.save_model(tmp_path / "model.txt")
    table = "\n".join(["a,b,c", *(",".join(map(str, row)) for row in X.tolist())])
    (tmp_path / "table.csv").write_text(table)
    good = [
        {"rule": "monotone", "features": {"a": 1}, "name": "rises"},
        {"rule": "stable", "row": 0, "radius": 1e-6, "tolerance": 1e-3},
    ]
    (tmp_path / "good.json").write_text(json.dumps(good))
    bad = [{"rule": "monotone", "features": {"b": 1}, "name": "b rises"}]
    (tmp_path / "bad.json").write_text(json.dumps(bad))
    (tmp_path / "lacks.json").write_text('[{"rule": "monotone", "features": {"z": 1}}]')
    start = ["audit-model", str(tmp_path / "model.txt"), "--data", str(tmp_path / "table.csv")]
    proof = tmp_path / "proof.cg4ai"
    told = [*start, "--rules", str(tmp_path / "good.json")]
    assert main([*told, "--certificate", str(proof)]) == 0
    assert capsys.readouterr().out.startswith("PROVEN   rises")
    assert main(["check", str(proof)]) == 0
    assert main(["check", str(proof.with_name("proof.2.cg4ai"))]) == 0
    capsys.readouterr()
    assert main([*start, "--rules", str(tmp_path / "bad.json"), "--json"]) == 3
    printed = json.loads(capsys.readouterr().out)
    assert [one["status"] for one in printed["findings"]] == ["refuted"]
    assert main([*told, "--region", "a=0:1,b=2"]) == 2
    assert main([*told, "--region", "a=0:1,z=0:1"]) == 2
    assert main([*start, "--rules", str(tmp_path / "lacks.json")]) == 2
    assert "'z'" in capsys.readouterr().err


@pytest.mark.parametrize("activation", ["ReLU", "Tanh", "GELU"])
def test_networks_fall_by_no_more_than_the_bound(activation: str) -> None:
    from cg4ai.fitted_models.slopes import bound_fall

    torch.manual_seed(4)
    between = getattr(torch.nn, activation)()
    net = torch.nn.Sequential(torch.nn.Linear(2, 4), between, torch.nn.Linear(4, 1)).double()
    with torch.no_grad():
        next(net.parameters())[:, 0].abs_()  # it falls by output weights below zero alone
    model = read_model(net)
    lower, upper = -np.ones(2), np.ones(2)
    bound = bound_fall(model.members, np.ones(1), 0, lower, upper, np.inf)  # type: ignore[arg-type]
    line = np.linspace(-1, 1, 201)
    table = model.predict(np.array(list(itertools.product(line, line))))[:, 0].reshape(201, 201)
    assert bound >= (np.maximum.accumulate(table, axis=0) - table).max()
    found = audit_model(net, Monotone({0: 1}), Box(lower, upper)).findings[0]
    assert found.status in ("refuted", "unknown")
    assert found.status == "refuted" or found.bound == pytest.approx(bound)
