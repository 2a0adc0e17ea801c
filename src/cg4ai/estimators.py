"""scikit-learn estimators: fit under requirements, predict with one deterministic mixture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from cg4ai.errors import InvalidInput, InvalidSettings
from cg4ai.kinds import Task, pricers_for
from cg4ai.loop import solve
from cg4ai.objectives import LossFunction, Supervised
from cg4ai.problem import Problem, Result
from cg4ai.records import Array
from cg4ai.requirements import Requirement
from cg4ai.rows import Layout
from cg4ai.settings import Settings

PARAMETERS = """
    members: what the mixture is made of: "network" (default), "affine" (exact pricing), "stump"
        (exact), "tree", "forest", "boosting", any scikit-learn tree, forest, boosting or linear
        estimator, a function that makes a torch module, or a list of these.
    hidden, activation: of networks; hidden layer sizes, and "relu", "gelu" or "tanh".
    objective: "mixture" minimises the loss of the mixture itself, "average" the mean of the
        members' losses (the paper's bound, needed for proofs of optimality).
    loss: a name, or a function of (outputs, targets); None takes the usual one.
    restarts, group, steps, learning_rate, batch_size: of gradient training, per iteration.
    column_limit, iteration_limit, time_limit_s: when to stop with what there is.
    final_weights: "loss", "uniform" or "vertex"; see `cg4ai.Settings`.
    settings: further settings by name, e.g. {"epsilon": 1e-6}.
    random_state: an int makes `fit` repeatable.
    device: "cpu" or "cuda".
    progress: called with each `IterationRecord`.
"""


class _ConstrainedEstimator(BaseEstimator):  # type: ignore[misc]
    """What the two estimators share; not public."""

    def __init__(
        self,
        *,
        members: Any = "network",
        hidden: tuple[int, ...] = (16,),
        activation: str = "gelu",
        objective: str = "mixture",
        loss: str | LossFunction | None = None,
        restarts: int = 4,
        group: int = 1,
        steps: int = 300,
        learning_rate: float = 0.02,
        batch_size: int | None = None,
        column_limit: int = 100,
        iteration_limit: int = 15,
        time_limit_s: float = float("inf"),
        final_weights: str = "loss",
        settings: Mapping[str, Any] | None = None,
        random_state: Any = None,
        device: str = "cpu",
        progress: Any = None,
    ) -> None:
        self.members = members
        self.hidden = hidden
        self.activation = activation
        self.objective = objective
        self.loss = loss
        self.restarts = restarts
        self.group = group
        self.steps = steps
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.column_limit = column_limit
        self.iteration_limit = iteration_limit
        self.time_limit_s = time_limit_s
        self.final_weights = final_weights
        self.settings = settings
        self.random_state = random_state
        self.device = device
        self.progress = progress

    def run_settings(self) -> Settings:
        """The settings that `fit` solves with."""
        own = {
            "column_limit": self.column_limit,
            "iteration_limit": self.iteration_limit,
            "time_limit_s": self.time_limit_s,
            "final_weights": self.final_weights,
            "device": self.device,
            "seed": _seed(self.random_state),
        }
        extra = dict(self.settings or {})
        double = sorted(set(own) & set(extra) - {"seed"})
        if double:
            raise InvalidSettings(
                f"{', '.join(double)} given twice: as parameters and in settings; drop one"
            )
        return Settings.from_mapping({**own, **extra})

    def fit(
        self,
        X: Any,
        y: Any,
        requirements: Sequence[Requirement] = (),
        sample_weight: Any = None,
    ) -> Self:
        """Train on (X, y) under the requirements."""
        problem = self.problem(X, y, requirements, sample_weight)
        return self.adopt(solve(problem, self.run_settings(), progress=self.progress))

    def problem(
        self,
        X: Any,
        y: Any,
        requirements: Sequence[Requirement] = (),
        sample_weight: Any = None,
    ) -> Problem:
        """The problem that `fit` solves: for `cg4ai.solve` with settings or a run of your own."""
        raise NotImplementedError

    def _problem(
        self,
        task: Task,
        weights: Array | None,
        requirements: Sequence[Requirement],
        loss: str | LossFunction,
    ) -> Problem:
        if self.objective not in ("average", "mixture"):
            raise InvalidInput(f"objective must be average or mixture, got {self.objective!r}")
        objective = Supervised(
            task.inputs,
            task.targets,
            loss,
            "average" if self.objective == "average" else "mixture",
            weights,
        )
        return Problem(
            objective=objective,
            requirements=tuple(requirements),
            pricers=pricers_for(self, task),
            layout=Layout.single(task.outputs),
        )

    def adopt(self, result: Result) -> Self:
        """Become the fitted estimator of a result that `cg4ai.solve` gave for `problem`."""
        self.result_ = result
        self.ensemble_ = result.ensemble
        self.audit_ = result.audits
        self.history_ = result.history
        self.stop_reason_ = result.stop_reason
        self.n_iter_ = max(1, len(result.history))
        return self

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self, "ensemble_")
        x = validate_data(self, X, reset=False, dtype=np.float64)
        with torch.no_grad():
            return np.asarray(self.ensemble_.outputs(torch.as_tensor(x)).numpy())


class ConstrainedClassifier(ClassifierMixin, _ConstrainedEstimator):  # type: ignore[misc]
    __doc__ = f"""A classifier whose scores keep hard rules.

    `fit(X, y, requirements=[...])`; requirement inputs are in this estimator's own input space
    (see `cg4ai.transformed` for pipelines) and labels in requirements are positions in
    `classes_`, the sorted distinct values of y.

    scores: "probability" makes every member output probabilities (rules `Probability`, `Rate`,
        and `Margin` on the scale 0 to 1); "logit" makes them output logits, whose scale is free:
        state a margin together with `output_limit`.
    output_limit: largest size of a logit on known inputs; members are scaled down to it.
    {PARAMETERS}"""

    def __init__(
        self,
        *,
        scores: str = "probability",
        output_limit: float | None = 20.0,
        members: Any = "network",
        hidden: tuple[int, ...] = (16,),
        activation: str = "gelu",
        objective: str = "mixture",
        loss: str | LossFunction | None = None,
        restarts: int = 4,
        group: int = 1,
        steps: int = 300,
        learning_rate: float = 0.02,
        batch_size: int | None = None,
        column_limit: int = 100,
        iteration_limit: int = 15,
        time_limit_s: float = float("inf"),
        final_weights: str = "loss",
        settings: Mapping[str, Any] | None = None,
        random_state: Any = None,
        device: str = "cpu",
        progress: Any = None,
    ) -> None:
        super().__init__(
            members=members,
            hidden=hidden,
            activation=activation,
            objective=objective,
            loss=loss,
            restarts=restarts,
            group=group,
            steps=steps,
            learning_rate=learning_rate,
            batch_size=batch_size,
            column_limit=column_limit,
            iteration_limit=iteration_limit,
            time_limit_s=time_limit_s,
            final_weights=final_weights,
            settings=settings,
            random_state=random_state,
            device=device,
            progress=progress,
        )
        self.scores = scores
        self.output_limit = output_limit

    def problem(
        self,
        X: Any,
        y: Any,
        requirements: Sequence[Requirement] = (),
        sample_weight: Any = None,
    ) -> Problem:
        if self.scores not in ("probability", "logit"):
            raise InvalidInput(f"scores must be probability or logit, got {self.scores!r}")
        x, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, targets = np.unique(labels, return_inverse=True)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, x)
        probability = self.scores == "probability"
        outputs = max(2, len(self.classes_))
        task = Task(
            inputs=x,
            outputs=outputs,
            links="softmax" if probability else "linear",
            targets=targets.astype(np.int64),
            output_limit=None if probability else self.output_limit,
        )
        loss = self.loss or ("log_loss" if probability else "cross_entropy")
        return self._problem(task, weights, requirements, loss)

    def decision_function(self, X: Any) -> Array:
        """The mixture's scores (n, classes); for two classes the second minus the first."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> Array:
        """Mixture of probabilities, or softmax of the mixture of logits: (n, classes)."""
        scores = self._scores(X)
        if self.scores == "logit":
            scores = np.exp(scores - scores.max(1, keepdims=True))
            scores = scores / scores.sum(1, keepdims=True)
        return scores[:, : len(self.classes_)]

    def predict(self, X: Any) -> Any:
        """The class of the largest score."""
        scores = self._scores(X)[:, : len(self.classes_)]
        return self.classes_[scores.argmax(1)]


class ConstrainedRegressor(RegressorMixin, _ConstrainedEstimator):  # type: ignore[misc]
    __doc__ = f"""A regressor whose outputs keep hard rules, in the units of y.

    `fit(X, y, requirements=[...])`, y of shape (n,) or (n, outputs); requirement inputs are in
    this estimator's own input space (see `cg4ai.transformed` for pipelines).
    {PARAMETERS}"""

    def problem(
        self,
        X: Any,
        y: Any,
        requirements: Sequence[Requirement] = (),
        sample_weight: Any = None,
    ) -> Problem:
        x, values = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, x)
        self._flat = values.ndim == 1
        targets = np.asarray(values.reshape(len(x), -1), np.float64)
        task = Task(inputs=x, outputs=targets.shape[1], links="linear", targets=targets)
        return self._problem(task, weights, requirements, self.loss or "squared")

    def predict(self, X: Any) -> Array:
        """The mixture's outputs, of the shape y had."""
        scores = self._scores(X)
        return scores[:, 0] if self._flat else scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _seed(random_state: Any) -> int:
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    raise InvalidInput(
        f"random_state must be None, an int or a NumPy generator, got {random_state!r}"
    )
