"""`python -m experiments.audit_models`: `audit_model` beside brute force, at size, and repaired."""

from __future__ import annotations

import io
import itertools
import time
import warnings
from collections import defaultdict
from importlib import import_module
from typing import Annotated, Any, Literal

import numpy as np
import typer

from cg4ai import audit_model, repair
from cg4ai.fitted_models import FittedModel, RuleFinding, Stable, read_model
from cg4ai.records import Array
from cg4ai.report.tables import format_markdown
from cg4ai.rules import Box, Monotone, Range
from cg4ai_checker import verdict
from experiments.command import KEPT, NOT_KEPT, command, say

LIBRARIES = ("lightgbm", "xgboost", "catboost", "scikit-learn", "torch", "onnx")
BOX = Box([-1.5] * 3, [1.7] * 3)
TOLERANCE = 1e-6
TIE = 1e-9  # a bound that the least value meets but for rounding


def audit_models(
    part: Annotated[str, typer.Argument(help="small, large, methods or repair.")] = "small",
    *,
    models: Annotated[int, typer.Option(help="Small models in all.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the first model.")] = 0,
) -> None:
    """Audits of small models against brute force; of large ones: seconds; what LightGBM keeps."""
    warnings.simplefilter("ignore")
    parts = {
        "small": lambda: run_small(models, seed),
        "large": run_large,
        "methods": run_methods,
        "repair": run_repairs,
    }
    good = parts[part]()
    raise typer.Exit(KEPT if good else NOT_KEPT)


# ---- small models against brute force ----------------------------------------------------------


def fit_small(library: str, seed: int) -> Any:
    """A small model on 150 rows of three features, some rounded; monotone in the first or not."""
    random = np.random.default_rng(seed)
    x = np.round(random.normal(size=(150, 3)), int(random.integers(0, 4)))
    y = x[:, 0] + np.sin(3 * x[:, 1]) + 0.3 * random.normal(size=150)
    classes = bool(random.integers(2))
    target = (y > 0).astype(int) if classes else y
    rising = int(random.integers(2))
    signs = [rising, 0, 0]
    if library == "lightgbm":
        import lightgbm

        kind = lightgbm.LGBMClassifier if classes else lightgbm.LGBMRegressor
        method = ("basic", "intermediate", "advanced")[seed % 3]
        return kind(
            n_estimators=5,
            num_leaves=6,
            min_child_samples=5,
            verbose=-1,
            n_jobs=1,
            monotone_constraints=signs,
            monotone_constraints_method=method,
        ).fit(x, target)
    if library == "xgboost":
        import xgboost

        kind = xgboost.XGBClassifier if classes else xgboost.XGBRegressor
        return kind(n_estimators=5, max_depth=2, n_jobs=1, monotone_constraints=tuple(signs)).fit(
            x, target
        )
    if library == "catboost":
        catboost = import_module("catboost")

        kind = catboost.CatBoostClassifier if classes else catboost.CatBoostRegressor
        return kind(
            iterations=5,
            depth=2,
            verbose=0,
            thread_count=1,
            allow_writing_files=False,
            monotone_constraints=signs,
        ).fit(x, target)
    if library == "scikit-learn":
        return fit_sklearn(seed, classes, signs).fit(x, target)
    return fit_network(library, seed)


def fit_sklearn(seed: int, classes: bool, signs: list[int]) -> Any:
    from sklearn import ensemble, linear_model, tree
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    end = "Classifier" if classes else "Regressor"
    kinds: list[Any] = [
        getattr(tree, f"DecisionTree{end}")(max_depth=4, monotonic_cst=signs),
        getattr(ensemble, f"RandomForest{end}")(4, max_depth=3, monotonic_cst=signs),
        getattr(ensemble, f"ExtraTrees{end}")(4, max_depth=3),
        getattr(ensemble, f"GradientBoosting{end}")(n_estimators=5, max_depth=2),
        getattr(ensemble, f"HistGradientBoosting{end}")(
            max_iter=5, max_leaf_nodes=5, monotonic_cst=signs
        ),
        linear_model.LogisticRegression() if classes else linear_model.Ridge(),
    ]
    chosen = kinds[seed % len(kinds)]
    return make_pipeline(StandardScaler(), chosen) if seed % 4 == 3 else chosen


def fit_network(library: str, seed: int) -> Any:
    """Three inputs, seven units, weights drawn at random; every other one monotone in the first."""
    import torch

    torch.manual_seed(seed)
    between = torch.nn.ReLU() if seed % 2 else torch.nn.Tanh()
    first, last = torch.nn.Linear(3, 7), torch.nn.Linear(7, 1)
    net = torch.nn.Sequential(first, between, last)
    if seed % 3 == 0:
        with torch.no_grad():
            first.weight[:, 0].abs_()
            last.weight.abs_()
    if library == "torch":
        return net.double() if seed % 5 == 0 else net
    import onnx

    stream: Any = io.BytesIO()
    torch.onnx.export(
        net,
        (torch.zeros(2, 3),),
        stream,
        dynamo=False,
        input_names=["x"],
        dynamic_axes={"x": {0: "n"}},
    )
    return onnx.load_model_from_string(stream.getvalue())


def find_grid(model: FittedModel) -> list[Array]:
    """Values of each feature inside the box: thresholds, just above them, ends and some others."""
    random = np.random.default_rng(1)
    axes = []
    for column in range(3):
        low, high = float(BOX.lower[column]), float(BOX.upper[column])
        if not model.is_trees:
            axes.append(np.linspace(low, high, 31).astype(np.float32).astype(np.float64))
            continue
        probes = np.unique(model.find_probes(400)[:, column])
        values = np.concatenate([probes, [low, high], random.uniform(low, high, 5)])
        axes.append(np.unique(values[(values >= low) & (values <= high)]))
    return [np.clip(one, BOX.lower[k], BOX.upper[k]) for k, one in enumerate(axes)]


def judge_by_brute_force(model: FittedModel, axes: list[Array]) -> tuple[float, float, Array]:
    """The largest fall along the first feature, its size, and predictions of the last output."""
    points = np.array(list(itertools.product(*axes)))
    scores = model.scores(points) if model.is_trees else model.predict(points)
    value = scores[:, -1] - scores[:, 0] if model.classes else scores[:, -1]
    table = value.reshape([len(one) for one in axes])
    highest = np.maximum.accumulate(table, axis=0)
    return float((highest - table).max()), float(np.abs(table).max()), model.predict(points)[:, -1]


def is_reproduced(model: FittedModel, found: RuleFinding, low: float) -> bool:
    """Whether the library itself breaks the rule at the inputs that were found."""
    assert found.inputs is not None
    if found.rule == "range":
        return bool(model.predict(found.inputs)[0, -1] < low)
    by_scores = found.measure == "raw scores"
    values = (model.scores if by_scores else model.predict)(found.inputs)[:, -1]
    above = (found.inputs[1] >= found.inputs[0]).all() and found.inputs[1, 0] > found.inputs[0, 0]
    return bool(above and values[1] < values[0])


def run_small(models: int, seed: int) -> bool:
    counts: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(int))
    wrong = 0
    for number in range(models):
        library = LIBRARIES[number % len(LIBRARIES)]
        model = read_model(fit_small(library, seed + number))
        fall, size, last = judge_by_brute_force(model, find_grid(model))
        random = np.random.default_rng(seed + number)
        low = float(np.quantile(last, 0.02) if random.random() < 0.5 else last.min() - 0.01)
        rules = [
            Monotone({0: 1}, name="rises"),
            Range(low, None, [model.output_size - 1], name="range"),
        ]
        truth = [fall > TOLERANCE * size, last.min() < low - TOLERANCE * max(abs(low), 1e-9)]
        answer = audit_model(model, rules, BOX, time_limit_s=20)
        row = counts[library]
        row["models"] += 1
        for found, broken in zip(answer.findings, truth, strict=True):
            row[found.status] += 1
            row["seconds, most"] = max(row["seconds, most"], round(found.seconds, 2))
            tie = found.status == "unknown" and found.bound <= max(TIE, 2 * model.rounding)
            row["of these by rounding alone"] += tie
            good = found.status == ("refuted" if broken else "proven") or tie
            if not model.is_trees:  # a grid proves nothing
                good = not (found.status == "proven" and broken)
                good &= not (broken and found.status != "refuted")
            if found.status == "refuted":
                shown = is_reproduced(model, found, low)
                row["reproduced"] += shown
                good &= shown
            if found.status == "proven":
                verdict(found.certificate)
                row["accepted"] += 1
            row["agree"] += good
            if not good:
                wrong += 1
                say(f"{number} {library} {found.headline()}; brute force: {fall} {last.min()}")
    names: tuple[str, ...] = ("models", "proven", "accepted", "refuted", "reproduced", "unknown")
    names += ("of these by rounding alone", "agree", "seconds, most")
    print(format_markdown([{"library": k, **{n: v[n] for n in names}} for k, v in counts.items()]))
    return wrong == 0


# ---- large models ------------------------------------------------------------------------------


def draw(rows: int, seed: int, *, missing: float = 0.0) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 10))
    y = x[:, 0] + np.sin(2 * x[:, 1]) + x[:, 2] * x[:, 3] + x[:, 0] * x[:, 4]
    y = y + 0.5 * random.normal(size=rows)
    x[random.random(x.shape) < missing] = np.nan
    return x, y


def run_large() -> bool:
    """Seconds of LightGBM models with 31 leaves a tree on 20,000 rows of ten features."""
    import lightgbm

    rows = []
    for trees, seed in [*itertools.product((500, 1000, 2000), (0, 1, 2))]:
        x, y = draw(20_000, seed)
        for kept in (True, False)[: 2 if seed == 0 else 1]:
            model = lightgbm.LGBMRegressor(
                n_estimators=trees,
                verbose=-1,
                n_jobs=1,
                monotone_constraints=[int(kept), 0, 0, int(kept)] + [0] * 6,
            ).fit(x, y)
            started = time.perf_counter()
            fitted = read_model(model)
            reading = time.perf_counter() - started
            scale = float(np.abs(y).max())
            rules = [
                Monotone({0: 1, 3: 1}),
                Range(-10 * scale, 10 * scale),
                Range(-scale, scale),
                Stable(x[0], 0.02, 0.2 * float(y.std())),
            ]
            answer = audit_model(fitted, rules, data=x[:500], time_limit_s=10)
            for name, found in zip(
                ("monotone", "wide range", "range of the data", "stable"),
                answer.findings,
                strict=True,
            ):
                rows.append(
                    {
                        "trees": trees,
                        "seed": seed,
                        "fitted": "monotone" if kept else "free",
                        "rule": name,
                        "answer": found.status,
                        "missed": f"{found.missed:.3g}",
                        "at most": f"{found.bound:.3g}",
                        "reading, s": round(reading, 1),
                        "audit, s": round(found.seconds, 1),
                    }
                )
                say(str(rows[-1]))
    print(format_markdown(rows))
    return True


# ---- what monotone methods of LightGBM keep ----------------------------------------------------


def run_methods() -> bool:
    """LightGBM's three methods on 20 tables each, with all values and with a fifth missing."""
    import lightgbm

    rows = []
    for missing, method in itertools.product((0.0, 0.2), ("basic", "intermediate", "advanced")):
        refuted, worst, proven = 0, 0.0, 0
        for seed in range(20):
            x, y = draw(3000, seed, missing=missing)
            model = lightgbm.LGBMRegressor(
                n_estimators=60,
                min_child_samples=5,
                verbose=-1,
                n_jobs=1,
                monotone_constraints=[1, 1, 0, 1, -1] + [0] * 5,
                monotone_constraints_method=method,
            ).fit(x, y)
            found = audit_model(model, Monotone({0: 1, 1: 1, 3: 1, 4: -1})).findings[0]
            refuted += found.status == "refuted"
            proven += found.status == "proven"
            worst = max(worst, found.missed / float(y.std()))
        rows.append(
            {
                "missing in training": f"{missing:.0%}",
                "method": method,
                "proven": proven,
                "refuted": refuted,
                "largest fall, standard deviations of y": f"{worst:.3g}",
            }
        )
        say(str(rows[-1]))
    print(f"LightGBM {lightgbm.__version__}\n")
    print(format_markdown(rows))
    return True


# ---- repaired ----------------------------------------------------------------------------------


def run_repairs() -> bool:
    """A model fitted without the rule, repaired; beside it one fitted with the rule."""
    import lightgbm

    rows, good = [], True
    for size, seed in itertools.product((2000, 4000, 8000), (0, 1, 2)):
        x, y = draw(size + 4000, seed)
        train, test = slice(0, size), slice(size, None)
        options: dict[str, Any] = {"n_estimators": 100, "verbose": -1, "n_jobs": 1}
        free = lightgbm.LGBMRegressor(**options).fit(x[train], y[train])
        fitted = lightgbm.LGBMRegressor(**options, monotone_constraints=[1] + [0] * 9).fit(
            x[train], y[train]
        )
        random = np.random.default_rng(seed + 100)
        first = random.normal(size=(2000, 10))
        second = first.copy()
        second[:, 0] += random.exponential(size=2000)
        row: dict[str, Any] = {"rows": size, "seed": seed}
        row["free"] = mean_square(np.asarray(free.predict(x[test])), y[test])
        methods: tuple[Literal["envelope", "leaves"], ...] = ("envelope", "leaves")
        for method in methods:
            made = repair(free, Monotone({0: 1}), data=x[test], method=method)
            assert made.distance is not None
            row[method] = mean_square(made.predict(x[test]), y[test])
            row[f"{method}, moved by"] = f"{made.distance.mean:.3g}"
            falling = int((made.predict(second) < made.predict(first)).sum())
            good &= falling == 0
            row[f"{method}, falling pairs"] = falling
        row["fitted with the rule"] = mean_square(np.asarray(fitted.predict(x[test])), y[test])
        row["free, falling pairs"] = int(
            (np.asarray(free.predict(second)) < np.asarray(free.predict(first))).sum()
        )
        rows.append(row)
        say(str(row))
    print(format_markdown(rows))
    return good


def mean_square(found: Array, wanted: Array) -> float:
    return round(float(np.mean((found - wanted) ** 2)), 4)


if __name__ == "__main__":
    raise SystemExit(command(audit_models, "python -m experiments.audit_models", "small"))
