"""The score of a mixture for a table, with that of a linear model and of guessing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from cg4ai.apps.protocol import Rule
from cg4ai.colgen.result import Result
from cg4ai.compile.problem import Problem
from cg4ai.data.arrays import is_among
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.estimators.holdout import HeldOutPricer, LabelledData
from cg4ai.estimators.score_check import SHRINKAGE, quantile_score
from cg4ai.estimators.simple_members import linear_models
from cg4ai.objectives import Pinball, Supervised
from cg4ai.records import Array

MOST_DRAWN = 1000
Rows = tuple[Array, NDArray[Any]]
MOST_ROWS = 20_000  # that the plain model is fitted to: more take long and hardly change it


def compute_held_out_scores(
    problem: Problem, result: Result, *, classes: int | None, logits: bool = False
) -> dict[str, Any]:
    """Accuracy (classes), R2, or D2 (quantiles) on rows that no member was trained on, or else on
    all rows.

    Beside it the score of the same members mixed without the rules, that of a linear model
    fitted to the rows that members were trained on, and that of always guessing the majority or
    the mean there.
    """
    weighed = problem.objective
    if not isinstance(weighed, Supervised):
        return {}
    trained = next(
        (one.training for one in problem.pricers if isinstance(one, HeldOutPricer)), weighed
    )
    x, y = np.asarray(trained.inputs), np.asarray(trained.targets)
    new_x, new_y = _judged(problem, weighed)
    name, score = ("accuracy", _accuracy) if classes else ("R2", _r2)
    if isinstance(weighed.loss, Pinball):
        name, score = "D2", partial(_d2, weighed.loss.quantiles)
        guess, plain = _quantiles(x, np.asarray(y, np.float64), new_x, weighed.loss.quantiles)
    else:
        plain, guess = _plain_and_guess(x, y, new_x, classes=classes)

    def compute_score(ensemble: Ensemble) -> float:
        outputs = ensemble.answers(new_x)
        return score(outputs[:, :classes].argmax(1) if classes else outputs, new_y)

    unruled = result.plain
    chances = {}
    if classes and len(y):
        outputs = result.ensemble.predict(new_x, outside="ignore")[:, :classes]
        stated = softmax(outputs, axis=1) if logits else outputs
        chances = {"chances": _judge_chances(stated, (x, y), (new_x, new_y), classes)}
    return chances | {
        "score": {
            "name": name,
            "rows": len(new_x),
            "held_out": trained is not weighed,
            "mixture": compute_score(result.ensemble),
            "without_rules": None if unruled is None else compute_score(unruled.ensemble),
            "plain": score(plain, new_y),
            "guess": score(guess, new_y),
        }
    }


def _judge_chances(
    stated: Array, trained: Rows, judged: Rows, classes: int
) -> list[dict[str, Any]]:
    """Log loss and Brier score of the mixture, a linear model, and the shares of the classes."""
    (x, y), (new_x, new_y) = trained, judged
    shares = np.bincount(y.astype(np.int64), minlength=classes) / len(y)
    found = {"mixture": stated}
    linear = _fit_linear_classifier(x, y)
    if linear is not None:
        known = np.zeros((len(new_x), classes))
        known[:, linear.classes_.astype(np.int64)] = linear.predict_proba(new_x)
        found["linear model"] = known
    found["shares of classes"] = np.tile(shares, (len(new_x), 1))
    return [{"of": name} | compute_chance_scores(one, new_y) for name, one in found.items()]


def compute_chance_scores(chances: Array, labels: NDArray[Any]) -> dict[str, float]:
    """Mean log loss, where no chance counts as less than 1e-12, and the Brier score.

    Brier is the mean over rows of the sum over classes of squared errors, halved: of two classes
    the squared error of the chance of one.
    """
    truth = labels.astype(np.int64)
    right = chances[np.arange(len(truth)), truth]
    wanted = np.eye(chances.shape[1])[truth]
    return {
        "log loss": float(-np.log(np.clip(right, 1e-12, 1)).mean()),
        "Brier score": float(np.square(chances - wanted).sum(1).mean() / 2),
    }


def _judged(problem: Problem, weighed: Supervised) -> tuple[Array, NDArray[Any]]:
    """The rows that the mixture is judged on: those that no member was trained on, or all."""
    x, y = weighed.measured
    if problem.held_out is None:
        return x, y
    kept = is_among(x, problem.held_out)  # votes are weighed by all rows
    return x[kept], y[kept]


def figure_arrays(
    problem: Problem, result: Result, rules: Sequence[Rule]
) -> dict[str, NDArray[Any]]:
    """What figures are drawn from: outputs beside targets, and the room of every rule.

    Of rows that the mixture is judged on, at most `MOST_DRAWN`, evenly; of more values of slack as
    many quantiles.
    """
    weighed = problem.objective
    if not isinstance(weighed, Supervised):
        return {}
    x, y = _judged(problem, weighed)
    few = np.linspace(0, len(x) - 1, min(len(x), MOST_DRAWN)).astype(np.int64)
    ensemble = result.ensemble
    outputs = ensemble.predict(x[few], outside="ignore")
    arrays = {"judged_outputs": np.asarray(outputs), "judged_targets": y[few]}
    for number, rule in enumerate(rules):
        values = ensemble.slack(rule.requirement, x).values
        if len(values) > MOST_DRAWN:
            values = np.quantile(values, np.linspace(0, 1, MOST_DRAWN))
        arrays[f"slack_{number}"] = values
    return arrays


def _plain_and_guess(x: Array, y: Any, new_x: Array, *, classes: int | None) -> tuple[Any, Any]:
    """What a linear model and a constant guess answer at new rows."""
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if classes is None:
        model = make_pipeline(StandardScaler(), Ridge())
        model.fit(x[:MOST_ROWS], y[:MOST_ROWS])
        return model.predict(new_x).reshape(len(new_x), -1), np.tile(y.mean(0), (len(new_x), 1))
    majority = np.full(len(new_x), np.bincount(y.astype(np.int64)).argmax())
    linear = _fit_linear_classifier(x, y)
    return majority if linear is None else linear.predict(new_x), majority


def _fit_linear_classifier(x: Array, y: NDArray[Any]) -> Any:
    """Logistic regression of standardised inputs; None where there is one class alone."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if len(np.unique(y[:MOST_ROWS])) < 2:
        return None
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200, tol=1e-3))
    return model.fit(x[:MOST_ROWS], y[:MOST_ROWS])


def _quantiles(x: Array, y: Array, new_x: Array, levels: tuple[float, ...]) -> list[Array]:
    """What a constant and a linear model, moved by quantiles, answer at new rows."""
    few = LabelledData(x[:MOST_ROWS], y[:MOST_ROWS], np.ones(min(len(x), MOST_ROWS)))
    return [one.outputs(new_x) for one in linear_models(few, len(levels), (SHRINKAGE,), levels)]


def _d2(levels: tuple[float, ...], predicted: Array, truth: Array) -> float:
    return quantile_score(truth[:, 0], predicted, levels)


def _accuracy(predicted: Any, truth: Any) -> float:
    return float(np.mean(predicted == truth))


def _r2(predicted: Any, truth: Any) -> float:
    truth = np.asarray(truth).reshape(len(truth), -1)
    spread = ((truth - truth.mean(0)) ** 2).sum()
    return float(1 - ((predicted - truth) ** 2).sum() / spread) if spread > 0 else 0.0
