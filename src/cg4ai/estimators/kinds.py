"""From a word ("network", "tree") or a model of the user's to the pricers that train it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.validation import check_is_fitted
from torch import nn

from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.colgen.pricing.schedules import OneTimePricer, TwoStagePricer
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.estimators.effort import Effort
from cg4ai.estimators.parameters import Parameters, TrainingParameters
from cg4ai.estimators.simple_members import ScaledLogistic
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.protocols import Architecture, Members, Pricer
from cg4ai.records import Array, IntArray
from cg4ai.rules.shapes import Curvature, Shape

if TYPE_CHECKING:
    from cg4ai.members.modules import ModuleArchitecture

KINDS = ("auto", "network", "affine", "relu", "stump", "tree", "forest", "boosting")
EXACT = ("affine", "relu", "stump")  # kinds whose pricers prove bounds
# for quantiles: deep ones for large data, and shallow ones, of which the held-out rows choose
BOOSTED_QUANTILES = (
    HistGradientBoostingRegressor(max_iter=100, learning_rate=0.1, early_stopping=False),
    HistGradientBoostingRegressor(
        max_iter=200, learning_rate=0.05, max_leaf_nodes=8, early_stopping=False
    ),
)
# of each class, or half of those of numbers; with fewer, full trees add seconds, no accuracy
ROWS_FOR_BOOSTING = 500
ROWS_FOR_SHALLOW = 300  # of all classes; from here on "auto" has a boosted model of small trees
TREES = 300  # of the one boosted model of "auto" with many classes, together
MANY_DECIDED = 10_000  # rows from which boosted trees that decide have more leaves
REFINING = 0.25  # of the steps of new modules, half that of networks: to train on under rules


@dataclass(frozen=True, slots=True)
class LearningTask:
    """What members must fit: their inputs, how many outputs, and what the outputs mean."""

    inputs: Array
    outputs: int
    links: Literal["linear", "softmax"]
    targets: Array | IntArray
    output_limit: float | None = None
    quantiles: tuple[float, ...] = ()
    shapes: tuple[Shape, ...] = ()
    rates: bool = False  # whether all rules are rates
    votes: bool = False  # whether one of them is about decisions
    decided: bool = False  # whether all of them are
    rows: bool = False  # whether a rule will bind rows of the master

    @property
    def classification(self) -> bool:
        return not np.issubdtype(self.targets.dtype, np.floating)

    @property
    def classes(self) -> int:
        """How many there are; 0 where targets are numbers."""
        return self.outputs if self.classification else 0

    @property
    def spread(self) -> float:
        """The unit of the outputs: the standard deviation of numeric targets, else 1."""
        spread = float(np.std(self.targets, axis=0).mean()) if not self.classification else 1.0
        return spread if spread > 0 else 1.0


def exact_kinds(task: LearningTask) -> tuple[str, ...]:
    """The kinds whose pricers prove bounds for such outputs."""
    return tuple(kind for kind in EXACT if kind != "affine" or task.links == "linear")


def kinds_of(members: Any) -> list[Any]:
    """`members` as a non-empty list of kinds."""
    kinds = list(members) if isinstance(members, (list, tuple)) else [members]
    if not kinds:
        raise InvalidInput("members is empty: name at least one kind of member", code="empty")
    return kinds


def pricers_for(
    kinds: Sequence[Any], parameters: Parameters, task: LearningTask
) -> tuple[Pricer, ...]:
    """The pricers of each kind of member, in order."""
    found = tuple(pricer for kind in kinds for pricer in _pricers(kind, parameters, task))
    if not found:
        raise InvalidInput(
            "members holds models that are fitted already and nothing to train beside them; add a "
            'kind, e.g. members=[model, "network"], or an unfitted copy (sklearn.base.clone)',
            code="empty",
        )
    return found


def _pricers(kind: Any, parameters: Parameters, task: LearningTask) -> list[Pricer]:
    if isinstance(kind, str):
        return _named(kind, parameters, task)
    if is_fitted(kind):
        return []  # a member to start from
    if isinstance(kind, BaseEstimator):
        if task.quantiles:
            from cg4ai.colgen.pricing.quantiles import QuantilePricer, clone_for_quantile

            clone_for_quantile(kind, 0.5)
            return [QuantilePricer((kind,), task.quantiles, n_jobs=parameters.n_jobs)]
        _check_model(kind, task)
        return [_of_models(kind, task, parameters.n_jobs)]
    if is_module(kind):
        from cg4ai.members.modules import ModuleArchitecture

        factory: Callable[[], nn.Module] = kind
        name = getattr(kind, "__name__", type(kind).__name__)
        size = task.inputs.shape[1]
        architecture = ModuleArchitecture(factory, size, task.outputs, name)
        if task.links == "softmax":
            _check_probabilities(architecture, task.inputs[:8])
        return [_of_modules(architecture, parameters, task)]
    hint = f"; give an instance, {kind.__name__}()" if _unfitted_class(kind) else ""
    raise InvalidInput(
        f"members cannot be made from {kind!r}{hint}; use one of {', '.join(KINDS)}, a "
        "scikit-learn estimator, or a function that makes a torch module",
        code="unknown-name",
    )


def is_fitted(kind: Any) -> bool:
    """Whether it is a trained model, which can be a member as it is."""
    if isinstance(kind, str | type):
        return False
    if not isinstance(kind, BaseEstimator):  # a Booster has no parameters to be fitted with
        return type(kind).__module__.partition(".")[0] in ("lightgbm", "xgboost")
    try:
        check_is_fitted(kind)
    except NotFittedError:
        return False
    return True


def take_missing(members: Any) -> bool:
    """Whether members of all these kinds take inputs that are NaN."""
    kinds = list(members) if isinstance(members, (list, tuple)) else [members]
    return bool(kinds) and all(_takes_missing(kind) for kind in kinds)


def _takes_missing(kind: Any) -> bool:
    if isinstance(kind, str):
        return kind in ("tree", "forest", "boosting")
    if isinstance(kind, BaseEstimator):
        from cg4ai.colgen.pricing.trees import takes_missing

        return takes_missing(kind)
    return is_fitted(kind)  # a Booster


def fitted_member(model: Any, task: LearningTask, labels: Any) -> Members:
    """A trained model as a member, if its inputs, outputs and labels are those of the task."""
    from cg4ai.members.conversion import from_sklearn

    name, members = type(model).__name__, from_sklearn(model)
    sizes = (members.input_size, members.output_size)
    if sizes != (task.inputs.shape[1], task.outputs):
        raise InvalidInput(
            f"{name} takes {sizes[0]} inputs and gives {sizes[1]} outputs; here there are "
            f"{task.inputs.shape[1]} and {task.outputs}",
            code="shape",
        )
    own = getattr(model, "classes_", None)
    if task.classification and not name.startswith(("XGB", "Booster")):
        if own is None or task.links == "linear":
            raise InvalidInput(
                f"{name} gives no probabilities of classes: fit a classifier", code="unsupported"
            )
        if not np.array_equal(own, labels):
            raise InvalidInput(
                f"{name} was fitted to the labels {own!r:.80}, y has {labels!r:.80}",
                code="conflict",
            )
    return members


def _check_probabilities(architecture: ModuleArchitecture, inputs: Array) -> None:
    """Refuse a module whose outputs are not probabilities where rules will take them for such."""
    fresh = architecture.initialise(1, torch.Generator().manual_seed(0))
    with torch.no_grad():
        outputs = architecture.members(fresh).outputs(torch.as_tensor(inputs))[0]
    if bool((outputs < 0).any()) or not torch.allclose(outputs.sum(-1), torch.ones(()).double()):
        raise InvalidInput(
            f"the modules that {architecture.name} makes do not output probabilities (the first "
            f"row sums to {float(outputs[0].sum()):.4g}): end them with nn.Softmax(-1), or set "
            "scores='logit' and output_limit=None",
            code="unsupported",
        )


def is_module(kind: Any) -> bool:
    """Whether it is meant as a function that makes torch modules."""
    known = isinstance(kind, str | BaseEstimator) or _unfitted_class(kind) or is_fitted(kind)
    return callable(kind) and not known


def _unfitted_class(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseEstimator)


def _named(kind: str, parameters: Parameters, task: LearningTask) -> list[Pricer]:
    if kind not in KINDS:
        raise InvalidInput(
            f"unknown kind of member {kind!r}{did_you_mean(kind, KINDS)}; use one of "
            f"{', '.join(KINDS)}, a scikit-learn estimator, or a function that makes a "
            "torch module",
            code="unknown-name",
        )
    if kind == "auto" and task.decided and task.links == "softmax":
        return _quick(task, parameters.n_jobs)
    if kind == "auto":
        work = parameters.chosen_effort
        boosted = _boosted_once(task, parameters.n_jobs, work)
        if boosted and work.boosted_alone and not task.rows and not _has_few_rows(task):
            return boosted
        networks = _named("network", parameters, task)
        return [*boosted, *networks] if work.boosted_first else [*networks, *boosted]
    if kind == "network":
        return [_of_networks(make_network(parameters, task), parameters, task)]
    if kind == "affine" and task.links == "softmax":  # lines under a softmax have no exact pricer
        return [_of_networks(make_network(parameters, task, hidden=()), parameters, task)]
    if kind in ("affine", "relu"):
        if task.links == "softmax":
            raise InvalidInput(
                f"{kind} members give logits, not probabilities: set scores='logit'",
                code="conflict",
            )
        return [_exact(kind, task)]
    if task.classification and task.links == "linear":
        raise InvalidInput(
            f"{kind} members give probabilities: set scores='probability'", code="conflict"
        )
    if kind == "stump":
        return [_exact(kind, task)]
    if task.quantiles:
        from cg4ai.colgen.pricing.quantiles import QuantilePricer

        if kind != "boosting":
            raise InvalidInput(
                f"{kind} members fit means, not quantiles: use 'network' or 'boosting'",
                code="unsupported",
            )
        return [QuantilePricer(BOOSTED_QUANTILES, task.quantiles, n_jobs=parameters.n_jobs)]
    return [_of_models(_tree(kind, task), task, parameters.n_jobs)]


def _exact(kind: str, task: LearningTask) -> Pricer:
    """The pricer of one of the `EXACT` kinds."""
    inputs, outputs = task.inputs.shape[1], task.outputs
    if kind == "affine":
        from cg4ai.colgen.pricing.exact.affine import AffinePricer

        return AffinePricer(inputs, outputs)
    if kind == "relu":
        from cg4ai.colgen.pricing.exact.relu_networks import ReluPricer

        return ReluPricer(inputs, outputs)
    from cg4ai.colgen.pricing.exact.stumps import StumpPricer

    return StumpPricer(inputs, outputs)


def _of_models(model: BaseEstimator, task: LearningTask, jobs: int | None) -> Pricer:
    """Rules are priced by several fits that trade them against data; those on decisions by none.

    A model with jobs of its own, if its user has not said how many, has so many; of others so many
    are fitted at a time.
    """
    from cg4ai.colgen.pricing.trees import SCALES, TreePricer

    scales = (1.0,) if task.decided else SCALES
    if model.get_params().get("n_jobs", 1) is None:
        return TreePricer(clone(model).set_params(n_jobs=jobs), scales=scales)
    return TreePricer(model, scales=scales, n_jobs=jobs)


def _has_few_rows(task: LearningTask) -> bool:
    """Fewer than a boosted model of full trees needs: networks learn more from them."""
    return len(task.inputs) < ROWS_FOR_BOOSTING * max(2, task.classes)


def _boosted_once(task: LearningTask, jobs: int | None, work: Effort) -> list[Pricer]:
    """What "auto" has beside networks: one boosted model, weighed like any other.

    Smaller tables of classes have one of small trees. With effort "best" networks alone learn to
    keep rules that bind rows of the master. Where all rules are rates, a boosted model would learn
    by heart who is in which group.
    """
    unfit = any(isinstance(one, Curvature) for one in task.shapes)
    logits = task.classification and task.links == "linear"
    few = _has_few_rows(task)
    too_few = few and (not task.classification or len(task.inputs) < ROWS_FOR_SHALLOW)
    bound = task.rates or task.votes or (task.rows and not work.boosted_first)
    if too_few or bound or unfit or logits:
        return []
    beside = work.boosted_first
    if task.quantiles:
        from cg4ai.colgen.pricing.quantiles import QuantilePricer

        pricer = QuantilePricer(BOOSTED_QUANTILES, task.quantiles, n_jobs=jobs)
        return [OneTimePricer(pricer, beside=beside)]
    model = _tree("boosting", task)
    if few:  # deep trees would learn so few rows by heart
        model.set_params(max_leaf_nodes=8, learning_rate=0.05)
    if task.classes > 2:
        model.set_params(max_iter=max(20, TREES // task.classes))
    from cg4ai.colgen.pricing.trees import TreePricer

    return [OneTimePricer(TreePricer(model, scales=(1.0,)), beside=beside)]


def _quick(task: LearningTask, jobs: int | None) -> list[Pricer]:
    """Where rules are about decisions alone: a line and boosted trees, which cross-fit in seconds.

    Decisions take the one that predicts rows better that it was not trained on. Trees are small
    where there are few rows: what they know of these by heart is at odds with new ones.
    """
    from cg4ai.colgen.pricing.trees import TreePricer

    line = ScaledLogistic(max_iter=500)
    boosted = HistGradientBoostingClassifier(
        max_iter=60,
        max_leaf_nodes=4 if len(task.inputs) < MANY_DECIDED else 8,
        min_samples_leaf=20,
        early_stopping=False,
    )
    once = OneTimePricer(TreePricer(boosted, scales=(1.0,), n_jobs=jobs))
    return [once] if np.isnan(task.inputs).any() else [TreePricer(line, scales=(1.0,)), once]


def _tree(kind: str, task: LearningTask) -> BaseEstimator:
    if kind == "tree":
        if task.classification:
            # pure leaves of rows that weigh next to nothing would be as sure as any other
            return DecisionTreeClassifier(
                max_depth=4, min_samples_leaf=5, min_weight_fraction_leaf=1e-3
            )
        return DecisionTreeRegressor(max_depth=4, min_samples_leaf=5)
    if kind == "forest":
        if task.classification:
            return RandomForestClassifier(n_estimators=20, max_depth=8)
        return RandomForestRegressor(n_estimators=20, max_depth=8)
    if task.classification:
        return HistGradientBoostingClassifier(early_stopping=False)
    return HistGradientBoostingRegressor(early_stopping=False)


def _check_model(model: BaseEstimator, task: LearningTask) -> None:
    """Refuse, before anything is trained, a model that cannot become a member of this task."""
    from cg4ai.colgen.pricing.trees import fits_several
    from cg4ai.members.conversion import from_sklearn

    name = type(model).__name__
    if is_classifier(model):
        if not task.classification:
            raise InvalidInput(
                f"{name} is a classifier, y holds numbers: give a regressor", code="conflict"
            )
        if task.links == "linear":
            raise InvalidInput(
                f"{name} gives probabilities: set scores='probability'", code="conflict"
            )
    elif is_regressor(model):
        if task.classification and task.links == "softmax":
            raise InvalidInput(
                f"{name} is a regressor, whose outputs are no probabilities: give a classifier, "
                "or set scores='logit'",
                code="conflict",
            )
    else:
        raise InvalidInput(f"{name} is neither a classifier nor a regressor", code="type")
    # Whether it can become a member is seen from a copy fitted to a few rows.
    few = np.arange(40) % len(task.inputs)
    targets: Array | IntArray
    if is_classifier(model):
        targets = np.arange(40, dtype=np.int64) % 2
    elif task.classification:
        targets = np.eye(task.outputs)[task.targets[few]]
    else:
        targets = task.targets[few]
    if targets.ndim == 2 and (targets.shape[1] == 1 or not fits_several(model)):
        targets = targets[:, 0]  # every output has a model of its own
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = clone(model).fit(task.inputs[few], targets)
    from_sklearn(fitted)


def make_network(
    parameters: Parameters, task: LearningTask, *, hidden: tuple[int, ...] | None = None
) -> NetworkArchitecture:
    """Inputs standardised by the training data; linear outputs in the units of the targets.

    A skip from inputs to outputs puts linear models into the class. `hidden` layers are those of
    the parameters if None.
    """
    deviation = task.inputs.std(0)
    hidden = parameters.layers(len(task.inputs)) if hidden is None else hidden
    regression = not task.classification
    scale = task.targets.std(0) if regression else None
    return NetworkArchitecture(
        task.inputs.shape[1],
        task.outputs,
        hidden=hidden,
        activation=_activation(parameters, task),  # type: ignore[arg-type]  # checked there
        skip=bool(hidden),
        output=task.links,
        shift=task.inputs.mean(0),
        scale=np.where(deviation > 0, deviation, 1.0),
        output_shift=task.targets.mean(0) if regression else None,
        output_scale=None if scale is None else np.where(scale > 0, scale, 1.0),
    )


def _activation(parameters: Parameters, task: LearningTask) -> str:
    """What is given; by itself gelu, and what shapes can be built with where they stand."""
    if parameters.activation != "auto":
        return parameters.activation
    if any(isinstance(shape, Curvature) for shape in task.shapes):
        return "relu"
    return "tanh" if task.shapes else "gelu"


def _of_networks(architecture: Architecture, parameters: Parameters, task: LearningTask) -> Pricer:
    """Small networks, a batch of every weight decay at once.

    Regularised members generalise but may be too stiff for a row; free members meet rows but learn
    noise. The master chooses. A rate is met best by what generalises: free members, and those that
    are trained by prices alone, learn by heart who is in which group (at 5,000 rows a gap of 0.02
    was 0.07 on new ones), so none of them is trained where all rules are rates. Under rules they
    begin at random, too: where rules bind noise, those that began from the plain members predicted
    new rows worse. Not where batches are drawn of many rows: those that are there are trained on,
    with rules and without, those of least loss first. The heaviest would not do: just bound, a
    rule may leave most weight to a constant or a line, which have no hidden layer to train.
    """
    recipe = parameters.training_of_networks(len(task.inputs), rates=task.rates)
    pricer = _gradient(architecture, parameters, task, recipe)
    if task.rates:
        pricer = replace(pricer, headroom=0.0, finish=0.0)
    if recipe.batch_size is None or task.shapes:
        return pricer
    refined = replace(_refined(pricer, REFINING / 2), warm_by="loss")
    return TwoStagePricer((pricer, refined), onwards=True)


def _refined(pricer: GradientPricer, share: float) -> GradientPricer:
    """Goes on from the heaviest members, for a share of the steps that new ones take."""
    steps = max(1, round(share * pricer.training.steps))
    training = replace(pricer.training, steps=steps)
    return replace(pricer, warm_starts=pricer.restarts, training=training)


def _of_modules(architecture: Architecture, parameters: Parameters, task: LearningTask) -> Pricer:
    """Modules of the user's own: each trained as one trains such modules alone, and only once.

    Their steps are dear. Under rules the heaviest member is trained on for a while.
    """
    recipe = parameters.training_of_modules(len(task.inputs))
    fresh = replace(_gradient(architecture, parameters, task, recipe), blend=1.0, finish=0.0)
    few = replace(fresh, restarts=len(recipe.weight_decay))
    return TwoStagePricer((fresh, _refined(few, REFINING)), once=True)


def _gradient(
    architecture: Architecture,
    parameters: Parameters,
    task: LearningTask,
    recipe: TrainingParameters,
) -> GradientPricer:
    decays, size = recipe.weight_decay, recipe.batch_size
    return GradientPricer(
        architecture,
        restarts=recipe.restarts * len(decays),
        training=Training(
            steps=recipe.steps,
            learning_rate=recipe.learning_rate,
            schedule="plateau" if size is None else "onecycle",
            weight_decay=decays,
        ),
        batch_size=size,
        headroom=0.05 * task.spread,
        row_weight=2.0 * task.spread,
        output_limit=task.output_limit,
        limit_inputs=task.inputs if task.output_limit is not None else None,
    )
