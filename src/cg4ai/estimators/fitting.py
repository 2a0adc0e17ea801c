"""What the two scikit-learn estimators share: from parameters and data to a solved problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from cg4ai.ensemble.audit import Audit
from cg4ai.errors import InvalidInput, InvalidSettings, did_you_mean
from cg4ai.estimators.holdout import HeldOutPricer, LabelledData, split
from cg4ai.estimators.kinds import EXACT, Recipe, Task, kinds_of, network, pricers_for
from cg4ai.estimators.simple import SHRINKAGE, simple_members
from cg4ai.members.layout import Layout
from cg4ai.members.modules import picklable
from cg4ai.objectives import LossFunction, Supervised
from cg4ai.protocols import Members, Pricer
from cg4ai.records import Array, IntArray, IterationRecord
from cg4ai.rules import (
    Probability,
    Requirement,
    contradictions,
    improbable,
)
from cg4ai.settings import Settings
from cg4ai.solving.loop import solve
from cg4ai.solving.problem import Problem
from cg4ai.solving.result import Result

FEWEST_ROWS = 15  # with fewer, "auto" holds out none
IMPROVEMENT = 1e-2  # of the held-out loss: less than this is noise, and no reason to go on

PARAMETERS = """
    Parameters
    ----------
    members : what the mixture is made of: "network" (default), "affine" and "stump" (priced
        exactly, so that optimality and infeasibility can be proven), "tree", "forest",
        "boosting", a scikit-learn tree, forest, boosting or linear model, a function without
        arguments that makes a torch module, or a list of these, asked in turn.
    hidden, activation : of networks: hidden layer sizes, and "relu", "gelu" or "tanh".
    objective : "mixture" minimises the loss of the mixture itself, "average" the mean of the
        members' losses (the paper's bound).
    loss : "squared", "absolute", "log_loss", "cross_entropy", "none", or a function of
        (outputs (..., n, r), targets) -> (..., n) in torch; None takes the usual one.
    validation_fraction : share of the rows that no member is trained on. By the loss there
        members are admitted and weighed, which keeps the mixture from learning its training
        rows by heart; requirements bind wherever their inputs come from. "auto" is 0.2, up to a
        third where that is needed to hold out 20 rows, and 0 if there are fewer than 15 rows or
        all members are priced exactly. 0 trains and weighs on all rows, which proofs of
        optimality need.
    weight_decay : of gradient training: one number, or several that take turns; while rows are
        missed it is always the least of them.
    simple_members : give networks a skip from inputs to outputs and start from the simplest of
        them, a constant and shrunken linear models; the mixture keeps what helps on the rows held
        out. Only with probabilities or numbers as outputs, and a column_limit of 20 or more.
    restarts, group, steps, learning_rate, batch_size : of gradient training, per iteration:
        how many members (or groups of members, trained on the loss of their mean) at once, how
        long, how fast, and on how many rows per step (None: all).
    column_limit, iteration_limit, time_limit_s : when to stop with what there is.
    final_weights : "loss", "uniform" or "vertex"; see `cg4ai.Settings`.
    settings : further settings of `cg4ai.Settings` by name, e.g. {"epsilon": 1e-6}.
    random_state : an int makes `fit` repeatable.
    device : "cpu" or "cuda"; predictions are made on the CPU.

    Attributes after `fit`
    ----------------------
    audit_ : what was found for each requirement, recomputed from predictions; print it.
    ensemble_ : the members with their weights, `cg4ai.Ensemble`: save it, audit it, fuse it.
    result_ : `cg4ai.Result`: `feasible`, `loss`, `bound`, `gap`, `note`; `str(result_)` tells all.
    stop_reason_ : why training ended, `cg4ai.StopReason`.
    history_, n_iter_ : one record per iteration, and how many.
    n_held_out_ : how many rows members were weighed by and not trained on; 0: weighed by all.
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.
"""


class ConstrainedEstimator(BaseEstimator):  # type: ignore[misc]
    """What the two estimators share; not public."""

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        if "ensemble_" not in state:  # those who still have to train send functions by cloudpickle
            return state
        several = isinstance(self.members, list | tuple)
        kinds = [picklable(kind) for kind in kinds_of(self.members)]
        return {**state, "members": type(self.members)(kinds) if several else kinds[0]}

    members: Any
    hidden: Any
    activation: str
    objective: str
    loss: str | LossFunction | None
    validation_fraction: float | str
    weight_decay: Any
    simple_members: bool
    restarts: int
    group: int
    steps: int
    learning_rate: float
    batch_size: int | None
    column_limit: int
    iteration_limit: int
    time_limit_s: float
    final_weights: str
    settings: Mapping[str, Any] | None
    random_state: Any
    device: str

    def run_settings(self) -> Settings:
        """The settings that `fit` solves with.

        Call it after `problem`, which has seen y: the defaults of tolerances and penalty are in
        units of y, and runs end earlier where rows are held out.
        """
        own = {
            "column_limit": self.column_limit,
            "iteration_limit": self.iteration_limit,
            "time_limit_s": self.time_limit_s,
            "final_weights": self.final_weights,
            "device": self.device,
            "seed": _seed(self.random_state),
        }
        extra = dict(self.settings or {})
        double = sorted(set(own) & set(extra))
        if double:
            names = ", ".join("random_state" if name == "seed" else name for name in double)
            raise InvalidSettings(
                f"settings holds {', '.join(double)}: set this by the parameter {names}"
            )
        return Settings.from_mapping({**self._default_settings(), **own, **extra})

    def _default_settings(self) -> dict[str, Any]:
        """What suits estimators, with slack and loss measured in the spread of y."""
        usual, unit = Settings(), float(getattr(self, "target_scale_", 1.0))
        loss_unit = {"squared": unit**2, "absolute": unit}.get(str(self.loss or "squared"), 1.0)
        large = max(1.0, unit)
        held_out = getattr(self, "n_held_out_", 0) > 0
        epsilon = IMPROVEMENT if held_out else usual.epsilon
        return {
            "patience": max(1, np.size(self.weight_decay)),  # a turn for each decay
            "improvement_tolerance": IMPROVEMENT if held_out else 0.0,
            "epsilon": float(np.clip(epsilon * loss_unit, 1e-9, 1e6)),
            "feasibility_tolerance": min(1.0, usual.feasibility_tolerance * large),
            "row_margin": min(1.0, usual.row_margin * large),
            "penalty": float(np.clip(usual.penalty * loss_unit / unit, 1e-6, 1e8)),
            "penalty_limit": float(np.clip(usual.penalty_limit * loss_unit / unit, 1.0, 1e9)),
        }

    def fit(
        self,
        X: Any,
        y: Any,
        requirements: Sequence[Requirement] = (),
        sample_weight: Any = None,
        progress: Callable[[IterationRecord], None] | None = None,
    ) -> Self:
        """Train on (X, y) under the requirements.

        `sample_weight` (n,) weighs the rows; a weight of 2 means what two copies mean. `progress`
        is called with the record of each iteration. What does not fit is refused before anything
        is trained. Read `audit_` afterwards: it says which requirements hold, and how it is known.
        """
        problem = self.problem(X, y, requirements, sample_weight)
        return self.adopt(solve(problem, self.run_settings(), progress=progress))

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
        data: LabelledData,
        task: Task,
        requirements: Sequence[Requirement],
        loss: str | LossFunction,
    ) -> Problem:
        kind = one_of(self.objective, "objective", ("mixture", "average"))
        for requirement in requirements:
            self._check_names(requirement)
            if isinstance(requirement, Probability) and task.links != "softmax":
                raise InvalidInput(
                    f"{requirement.name} is a rule on probabilities, but the outputs are "
                    f"{'logits' if task.classification else 'values'}; use scores='probability' "
                    "in a classifier, or Margin or Linear"
                )
        kinds = kinds_of(self.members)
        self.target_scale_ = task.spread
        pricers: Sequence[Pricer] = pricers_for(kinds, self._recipe(), task)
        fraction = self._held_out(kinds, len(data.inputs))
        trained = weighed = data
        if fraction:
            generator = np.random.default_rng(_seed(self.random_state))
            trained, weighed = split(data, fraction, generator)
            if not len(weighed.inputs):
                raise InvalidInput(
                    f"validation_fraction={fraction} of {len(data.inputs)} rows leaves none to "
                    "weigh members by; set validation_fraction=0"
                )
            training = _supervised(trained, loss, kind)
            pricers = [HeldOutPricer(pricer, training) for pricer in pricers]
        self.n_held_out_ = len(weighed.inputs) if fraction else 0
        problem = Problem(
            objective=_supervised(weighed, loss, kind),
            requirements=tuple(requirements),
            pricers=pricers,
            layout=Layout.single(task.outputs),
            start=self._start(kinds, task, trained),
        )
        clashes = contradictions(problem.requirements)
        if clashes:
            more = f" (and {len(clashes) - 1} more such pairs)" if len(clashes) > 1 else ""
            raise InvalidInput(f"the requirements contradict each other: {clashes[0]}{more}")
        if task.links == "softmax" and (beyond := improbable(problem.requirements)):
            raise InvalidInput(f"no probabilities can keep the requirements: {beyond[0]}")
        return problem

    def _check_names(self, requirement: Requirement) -> None:
        """Refuse a requirement whose DataFrame has other columns, or another order, than X."""
        named = getattr(requirement, "feature_names", None)
        known = tuple(map(str, getattr(self, "feature_names_in_", ())))
        if named and known and named != known:
            raise InvalidInput(
                f"{requirement.name} has the columns {list(named)}, but X has {list(known)}; give "
                "the same columns in the same order"
            )

    def _start(
        self, kinds: Sequence[Any], task: Task, trained: LabelledData
    ) -> list[tuple[Members, IntArray]]:
        """Simple members beside networks, where the column limit leaves plenty of room."""
        known = any(isinstance(kind, str) and kind == "network" for kind in kinds)
        room = self.column_limit >= 4 * (1 + len(SHRINKAGE))
        if not (self.simple_members and known and room) or task.output_limit is not None:
            return []
        members = simple_members(network(self._recipe(), task), trained)
        return [(members, np.zeros(len(members), np.int64))]

    def _recipe(self) -> Recipe:
        hidden = [self.hidden] if np.ndim(self.hidden) == 0 else list(self.hidden)
        decay = self.weight_decay
        decays = (decay,) if np.ndim(decay) == 0 else tuple(decay)
        if not decays or not all(_is_number(value) and value >= 0 for value in decays):
            raise InvalidInput(f"weight_decay must be one or more numbers >= 0, got {decay!r}")
        for name in ("restarts", "group", "steps", "batch_size"):
            value = getattr(self, name)
            if value is None and name == "batch_size":
                continue
            if not _is_number(value) or value != int(value) or value < 1:
                raise InvalidInput(f"{name} must be a whole number of at least 1, got {value!r}")
        if not _is_number(self.learning_rate):
            raise InvalidInput(f"learning_rate must be a number > 0, got {self.learning_rate!r}")
        return Recipe(
            hidden=tuple(hidden),
            activation=self.activation,
            skip=self.simple_members,
            restarts=int(self.restarts),
            group=int(self.group),
            steps=int(self.steps),
            learning_rate=float(self.learning_rate),
            batch_size=None if self.batch_size is None else int(self.batch_size),
            weight_decay=decays,
        )

    def _held_out(self, kinds: Sequence[Any], count: int) -> float:
        fraction = self.validation_fraction
        if fraction == "auto":
            exact = all(isinstance(kind, str) and kind in EXACT for kind in kinds)
            return 0.0 if exact or count < FEWEST_ROWS else max(0.2, min(1 / 3, 20 / count))
        if isinstance(fraction, str) or not _is_number(fraction) or not 0 <= fraction < 1:
            raise InvalidInput(
                f'validation_fraction must be "auto" or a number in [0, 1), got {fraction!r}'
            )
        return float(fraction)

    def adopt(self, result: Result) -> Self:
        """Become the fitted estimator of a result that `cg4ai.solve` gave for `problem`."""
        self.result_ = result
        self.ensemble_ = result.ensemble
        self.audit_ = result.audits
        self.history_ = result.history
        self.stop_reason_ = result.stop_reason
        self.n_iter_ = max(1, len(result.history))
        return self

    def audit(self, requirement: Requirement, *, tolerance: float = 1e-6) -> Audit:
        """Recompute any requirement, also one that was not trained for, from predictions."""
        check_is_fitted(self, "ensemble_")
        return self.ensemble_.audit(requirement, tolerance=tolerance)

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self, "ensemble_")
        x = validate_data(self, X, reset=False, dtype=np.float64)
        return np.asarray(self.ensemble_.predict(x))


def _supervised(data: LabelledData, loss: str | LossFunction, kind: str) -> Supervised:
    return Supervised(
        data.inputs,
        data.targets,
        loss,
        "average" if kind == "average" else "mixture",
        None if np.all(data.weights == data.weights[0]) else data.weights,
    )


def row_weights(sample_weight: Any, inputs: Array) -> Array:
    """(n,) weights of the rows, ones by default."""
    if sample_weight is None:
        return np.ones(len(inputs))
    weights: Array = _check_sample_weight(sample_weight, inputs, dtype=np.float64)
    if (weights < 0).any() or not weights.any():
        raise InvalidInput(
            f"sample_weight must be numbers >= 0 that are not all 0, got {weights.min()} to "
            f"{weights.max()}"
        )
    return weights


def checked_requirements(requirements: Any) -> list[Requirement]:
    """The requirements as a list; anything else is refused with what to do."""
    if callable(getattr(requirements, "check", None)):
        raise InvalidInput("requirements must be a list: write requirements=[requirement]")
    if not isinstance(requirements, (list, tuple)):
        raise InvalidInput(
            f"requirements must be a list of requirements, got {type(requirements).__name__}; "
            "if these are weights of the rows, write sample_weight=..."
        )
    for requirement in requirements:
        if not callable(getattr(requirement, "check", None)):
            raise InvalidInput(
                f"requirements must hold Probability, Margin, Linear, Rate and the like, got "
                f"{type(requirement).__name__}"
            )
    return list(requirements)


def one_of(value: Any, name: str, known: tuple[str, ...]) -> str:
    if value not in known:
        hint = did_you_mean(str(value), known)
        raise InvalidInput(f"{name} must be {' or '.join(known)}, got {value!r}{hint}")
    return str(value)


def _is_number(value: Any) -> bool:
    numeric = isinstance(value, (int, float, np.integer, np.floating))
    return numeric and not isinstance(value, bool) and bool(np.isfinite(value))


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
