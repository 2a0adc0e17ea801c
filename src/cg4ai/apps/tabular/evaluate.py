"""How good a mixture for a table is, beside a plain model and beside guessing."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from cg4ai.arrays import among
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.estimators.holdout import HeldOutPricer, LabelledData
from cg4ai.estimators.judgement import SHRINKAGE, quantile_score
from cg4ai.estimators.simple import linear_models
from cg4ai.objectives import Pinball, Supervised
from cg4ai.records import Array
from cg4ai.solving.problem import Problem
from cg4ai.solving.result import Result

MOST_ROWS = 20_000  # that the plain model is fitted to: more take long and hardly change it


def held_out_scores(problem: Problem, result: Result, *, classes: int | None) -> dict[str, Any]:
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
    new_x, new_y = np.asarray(weighed.inputs), np.asarray(weighed.targets)
    if problem.held_out is not None:  # votes are weighed by all rows
        kept = among(new_x, problem.held_out)
        new_x, new_y = new_x[kept], new_y[kept]
    name, score = ("accuracy", _accuracy) if classes else ("R2", _r2)
    if isinstance(weighed.loss, Pinball):
        name, score = "D2", partial(_d2, weighed.loss.quantiles)
        guess, plain = _quantiles(x, np.asarray(y, np.float64), new_x, weighed.loss.quantiles)
    else:
        plain, guess = _plain_and_guess(x, y, new_x, classes=classes)

    def reached(ensemble: Ensemble) -> float:
        outputs = ensemble.answers(new_x)
        return score(outputs[:, :classes].argmax(1) if classes else outputs, new_y)

    unruled = result.plain
    return {
        "score": {
            "name": name,
            "rows": len(new_x),
            "held_out": trained is not weighed,
            "mixture": reached(result.ensemble),
            "without_rules": None if unruled is None else reached(unruled.ensemble),
            "plain": score(plain, new_y),
            "guess": score(guess, new_y),
        }
    }


def _plain_and_guess(x: Array, y: Any, new_x: Array, *, classes: int | None) -> tuple[Any, Any]:
    """What a linear model and a constant guess answer at new rows."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if classes is None:
        model = make_pipeline(StandardScaler(), Ridge())
        model.fit(x[:MOST_ROWS], y[:MOST_ROWS])
        return model.predict(new_x).reshape(len(new_x), -1), np.tile(y.mean(0), (len(new_x), 1))
    majority = np.full(len(new_x), np.bincount(y.astype(np.int64)).argmax())
    if len(np.unique(y[:MOST_ROWS])) < 2:
        return majority, majority
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200, tol=1e-3))
    model.fit(x[:MOST_ROWS], y[:MOST_ROWS])
    return model.predict(new_x), majority


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
