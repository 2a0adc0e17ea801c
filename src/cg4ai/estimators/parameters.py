"""What both estimators can be told, stated once: names, defaults, meaning, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from cg4ai.callbacks import check_callbacks
from cg4ai.colgen.master.table import USUAL
from cg4ai.errors import InvalidInput, InvalidSettings, did_you_mean
from cg4ai.estimators.effort import Effort, find_effort
from cg4ai.objectives import LossFunction
from cg4ai.parallel import check_jobs
from cg4ai.settings import Settings

BATCH, FEWEST_STEPS = 64, 200  # of modules of the user's own
MANY_INPUTS = 32
ITERATION_LIMIT = 15  # by "auto", whatever the effort: rules may need more rounds than usual
COLUMN_LIMIT = 100  # members of a mixture, unless the settings say otherwise
FEWEST_ROWS = 15  # with fewer, "auto" holds out none
MOST_HELD_OUT = 10_000  # rows by "auto": the master holds all members' outputs there
IMPROVEMENT = 1e-2  # of the held-out loss: less than this is noise, and no reason to go on

PARAMETERS = """
    Parameters
    ----------
    members : what the mixture is made of: "auto" (default: networks and, from 1,000 rows
        (500 for each class) on where not all rules are rates, one boosted model; for classes one
        of small trees from 300 rows on; with effort="best" none where a rule is about listed
        inputs, rates or regions; where all rules are about decisions, logistic regression and a
        boosted model), "network"; "affine",
        "relu" (networks of ReLU units, for up to 60 rows and 200 numbers in X) and "stump", which
        are priced exactly, so that optimality and infeasibility can be proven ("affine" in a
        classifier of probabilities are linear scores under a softmax, which is trained); "tree",
        "forest", "boosting" (HistGradientBoosting), a tree, forest, boosting or linear model of
        scikit-learn, a model of LightGBM or XGBoost, a function without arguments that makes a
        torch module, or a list of these, asked in turn. A model that is already fitted is a
        member to start from; rows it was fitted to say too much good of it. X may have missing
        values (NaN) where all members are trees, forests or boosted models that take them.
    requirements : the rules, as a list, where they are not given to `fit`: then `clone` takes them
        along and searches can compare lists of them. One of the two places, not both.
    effort : how much to train; what is set by itself wins over it. "fast": one boosted model where
        boosted trees can keep the rules and rows are many, else small networks for a short time,
        too; one round. "default": a boosted model and networks, two rounds. "best": as long as it
        improves, some 10 to 50 times LightGBM's time. Rules are kept, audited and proven alike;
        members that are priced exactly are priced until the optimum is proven, whatever the word.
    hidden, activation : of networks: hidden layer sizes, and "relu", "gelu" or "tanh". "auto" is
        (16,), (64,) with more than 32 inputs, or (32, 32) with many rows, more than 3,000 (6,000
        with effort="best"); and gelu, but tanh where a `Monotone` stands, and relu where a
        `Curvature` does.
    objective : "mixture" minimises the loss of the mixture itself, "average" the mean of the
        members' losses (the paper's bound).
    loss : "squared", "absolute", "pinball" (for quantiles), "log_loss", "cross_entropy", "none",
        or a function of (outputs (..., n, r), targets) -> (..., n) in torch; None takes the usual.
    validation_fraction : share of the rows that no member is trained on. By the loss there
        members are admitted and weighed, which keeps the mixture from learning its training
        rows by heart; requirements bind wherever their inputs come from. "auto" is 0.2 (0.1 for
        modules of your own alone, and under a `DecisionRate`), up to a third where that
        is needed to hold out 20 rows, no more than 10,000 rows, and 0 if there are fewer than 15
        rows or all members are priced exactly. 0 trains and weighs on all rows, which proofs of
        optimality need.
    weight_decay : of gradient training: one number, or several that are all tried at once
        ("auto": 1 and 0 for networks, 0.1 and 0 with many rows, without the 0 if all rules
        are rates; 0 for modules of your own).
    restarts, steps, learning_rate, batch_size : of gradient training, per iteration: how many
        members at once for each weight decay, how long, how fast, and on how many rows per step
        (None: all). "auto" is what suits the effort: for networks 2 restarts, 200 steps, 0.04 and
        all rows or, with many rows, 1 restart, 0.01, 256 rows and 15 steps for each root of a row,
        1,200 to 6,000 (fast: 1 restart, 600 to 2,000; best: 4 restarts, 6,000 steps of 512 rows).
        Two modules of your own (fast: one) are trained once, as one would train each alone: 64 rows
        per step, 60 passes over the rows (fast: 20), 0.01. Under rules the heaviest is trained on
        for a quarter of that at a time.
    iteration_limit, time_limit_s : when to stop with what there is. "auto" is as many rounds as
        `effort` says, or, where rules are not met by then, 15 iterations.
    single_model : True gives one member in place of a mixture, such as one small tree or one linear
        model, that meets the rules alone; `result_.single` says how far from the best it can be.
    warm_start : True goes on from the members of the fit before, under the rules that stand now, if
        features, outputs and `scores` are the same. Rows that those members were trained on say too
        much good of them: on the same rows the same are held out again.
    settings : further settings of `cg4ai.Settings` by name, e.g. {"final_weights": "vertex"}; the
        usual column_limit is 100.
    random_state : an int makes `fit` repeatable.
    device : "cpu" or "cuda"; predictions are made on the CPU.
    n_jobs : how many models are fitted at a time, by joblib, where one call fits several: trees,
        boosted and linear models that trade rules against data in several ways, the models of
        several quantiles, the trees of a forest. The result is the same for any number.
        None: 1, or what `joblib.parallel_config` says; -1: as many as there are cores. It does
        nothing for networks, which are trained side by side in one batch, for kinds of members in
        a list, where each is asked only if those before it improved nothing, and for proofs.
    verbose : 1 prints a line for each iteration, 2 also how far the training of members is.
    callbacks : functions of the record of each iteration, or objects such as
        `cg4ai.callbacks.EarlyStopping()`, in a list; one that returns True ends training. They are
        parameters, so that `clone` and searches give each fit its own copies of them. Pickles of
        fitted models leave them out.

    Attributes
    ----------
    audit_ : what was found for each requirement, recomputed from predictions; print it.
    score_ : how well it predicts rows that no member was trained on, beside a constant, a linear
        model and the best mixture of its members without the rules: `score_.model`,
        `score_.constant`, `score_.linear`, `score_.without_rules`; print it.
    cautions_ : what `fit` warned of (`cg4ai.FitWarning`), as sentences; empty if nothing.
    ensemble_ : the members with their weights, `cg4ai.Ensemble`: save it, audit it, fuse it.
    result_ : `cg4ai.Result`: `feasible`, `loss`, `bound`, `gap`, `estimated_gap`, `note`;
        `str(result_)` tells all.
    stop_reason_ : why training ended, `cg4ai.StopReason`.
    history_, n_iter_ : one record per iteration, and how many.
    n_held_out_ : how many rows members were weighed by and not trained on; 0: weighed by all.
    input_range_ : smallest and largest value of each feature, (2, features).
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.
"""


@dataclass(frozen=True, slots=True)
class TrainingParameters:
    """Gradient training of one kind of member; see `PARAMETERS` for what they mean."""

    restarts: int
    steps: int
    learning_rate: float
    batch_size: int | None
    weight_decay: tuple[float, ...]


@dataclass(eq=False, repr=False, kw_only=True)
class Parameters(BaseEstimator):  # type: ignore[misc]
    """The parameters of both estimators; as scikit-learn wants it, they are checked in `fit`."""

    members: Any = "auto"
    requirements: Sequence[Any] | None = None
    effort: str = "default"
    hidden: int | Sequence[int] | str = "auto"
    activation: str = "auto"
    objective: str = "mixture"
    loss: str | LossFunction | None = None
    validation_fraction: float | str = "auto"
    weight_decay: float | Sequence[float] | str = "auto"
    restarts: int | str = "auto"
    steps: int | str = "auto"
    learning_rate: float | str = "auto"
    batch_size: int | str | None = "auto"
    iteration_limit: int | str = "auto"
    time_limit_s: float = float("inf")
    single_model: bool = False
    warm_start: bool = False
    settings: Mapping[str, Any] | None = None
    random_state: Any = None
    device: str = "cpu"
    n_jobs: int | None = None
    verbose: int = 0
    callbacks: Sequence[Any] | None = None

    @property
    def chosen_effort(self) -> Effort:
        """What the word for effort stands for."""
        return find_effort(self.effort)

    @property
    def most_iterations(self) -> int | str:
        """As given, or the usual; its value is checked with the settings."""
        return ITERATION_LIMIT if _auto(self.iteration_limit) else self.iteration_limit

    def layers(self, rows: int) -> tuple[int, ...]:
        """Hidden layer sizes; their values are checked by the network."""
        hidden: Any = self.hidden
        if _auto(hidden):
            few = (64,) if self._many_inputs else (16,)
            return (32, 32) if rows > self.chosen_effort.many_rows else few
        return (hidden,) if np.ndim(hidden) == 0 else tuple(hidden)

    @property
    def _many_inputs(self) -> bool:
        """More than a few units can take in: "auto" has wider networks then, and fewer of them."""
        return bool(getattr(self, "n_features_in_", 0) > MANY_INPUTS)

    def training_of_networks(self, rows: int, *, rates: bool = False) -> TrainingParameters:
        """On all of few rows, on batches of many: then a step costs the same however many.

        `rates`: all rules are rates, which members without decay would learn by heart.
        """
        free = () if rates else (0.0,)
        work = self.chosen_effort
        restarts = min(work.restarts, 2 if _auto(self.hidden) and self._many_inputs else 4)
        few = TrainingParameters(restarts, 200, 0.04, None, (1.0, *free))
        steps = work.steps_on_batches(rows)
        many = TrainingParameters(1, steps, 0.01, work.batch_size, (0.1, *free))
        return self._training(many if rows > work.many_rows else few)

    def training_of_modules(self, rows: int) -> TrainingParameters:
        """As one trains a module alone: passes over all rows in small batches."""
        steps = max(FEWEST_STEPS, math.ceil(self.chosen_effort.passes * rows / BATCH))
        return self._training(
            TrainingParameters(self.chosen_effort.modules, steps, 0.01, BATCH, (0.0,))
        )

    def _training(self, usual: TrainingParameters) -> TrainingParameters:
        """What is given, and the usual where that is "auto"."""
        given = {
            name: getattr(self, name)
            for name in ("restarts", "steps", "learning_rate", "batch_size", "weight_decay")
            if not _auto(getattr(self, name))
        }
        if "weight_decay" in given and np.ndim(given["weight_decay"]) == 0:
            given["weight_decay"] = (given["weight_decay"],)
        return replace(usual, **given)

    def check_training(self) -> None:
        """Refuse values of gradient training that no number of steps can make sense of."""
        decays = self.training_of_networks(1).weight_decay
        if not len(decays) or not all(is_number(value) and value >= 0 for value in decays):
            raise InvalidInput(
                f"weight_decay must be one or more numbers >= 0, got {self.weight_decay!r}",
                code="range",
            )
        for name in ("restarts", "steps", "batch_size"):
            value = getattr(self, name)
            if (value is None and name == "batch_size") or _auto(value):
                continue
            if not is_number(value) or value != int(value) or value < 1:
                raise InvalidInput(
                    f"{name} must be a whole number of at least 1, got {value!r}", code="range"
                )
        check_jobs(self.n_jobs)
        check_callbacks(self.callbacks)
        if not _auto(self.learning_rate) and not is_number(self.learning_rate):
            raise InvalidInput(
                f"learning_rate must be a number > 0, got {self.learning_rate!r}", code="range"
            )

    def share_held_out(self, count: int, *, exact: bool, least: float) -> float:
        """The share of `count` rows to hold out, at `least` this if it is left to be chosen.

        `exact`: all members are priced exactly.
        """
        fraction = self.validation_fraction
        if fraction == "auto":
            if exact or count < FEWEST_ROWS:
                return 0.0
            return min(max(least, min(1 / 3, 20 / count)), MOST_HELD_OUT / count)
        if isinstance(fraction, str) or not is_number(fraction) or not 0 <= fraction < 1:
            raise InvalidInput(
                f'validation_fraction must be "auto" or a number in [0, 1), got {fraction!r}',
                code="range",
            )
        return float(fraction)

    def draw_seed(self) -> int:
        """A whole number drawn from `random_state`, or that number itself."""
        state = self.random_state
        if isinstance(state, (int, np.integer)):
            return int(state)
        if state is None:
            return int(np.random.default_rng().integers(2**31))
        if isinstance(state, np.random.RandomState):
            return int(state.randint(2**31 - 1))
        if isinstance(state, np.random.Generator):
            return int(state.integers(2**31))
        raise InvalidInput(
            f"random_state must be None, an int or a NumPy generator, got {state!r}", code="type"
        )

    def run_settings(self) -> Settings:
        """The settings that `fit` solves with.

        Call it after `problem`, which has seen y: the defaults of tolerances and penalty are in
        units of y, and runs end earlier where rows are held out.
        """
        own = {
            "iteration_limit": self.most_iterations,
            "time_limit_s": self.time_limit_s,
            "single_model": self.single_model,
            "device": self.device,
            "seed": self.draw_seed(),
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
        """What suits estimators: prices of slack and improvements in units of the loss."""
        work = self.chosen_effort
        usual, unit = Settings(), float(getattr(self, "target_scale_", 1.0))
        # the mean pinball loss of what can be known at all is a tenth of the spread, or so
        units = {"squared": unit**2, "absolute": unit, "pinball": 0.1 * unit}
        loss_unit = units.get(str(self.loss or "squared"), 1.0)
        # slack is priced in units of rows by the master where the loss has a unit of its own
        price = loss_unit / unit if USUAL[0] <= loss_unit <= 10 * USUAL[1] else 1.0
        held_out = getattr(self, "n_held_out_", 0) > 0
        # exact pricers go on until the optimum is proven, whatever the effort
        rounds = 0 if getattr(self, "_exact", False) else work.training_rounds
        epsilon = IMPROVEMENT if held_out else usual.epsilon
        return {
            "column_limit": COLUMN_LIMIT,
            "patience": 1,
            "training_rounds": rounds if _auto(self.iteration_limit) else 0,
            "estimate_restarts": work.estimate_restarts,
            "improvement_tolerance": IMPROVEMENT if held_out else 0.0,
            "epsilon": float(np.clip(epsilon * loss_unit, 1e-30, 1e6)),
            "penalty": float(usual.penalty * price),
            "penalty_limit": float(np.clip(usual.penalty_limit * price, 1.0, 1e9)),
        }


def one_of(value: Any, name: str, known: tuple[str, ...]) -> str:
    if value not in known:
        hint = did_you_mean(str(value), known)
        raise InvalidInput(
            f"{name} must be {' or '.join(known)}, got {value!r}{hint}", code="unknown-name"
        )
    return str(value)


def _auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def is_number(value: Any) -> bool:
    numeric = isinstance(value, (int, float, np.integer, np.floating))
    return numeric and not isinstance(value, bool) and bool(np.isfinite(value))
