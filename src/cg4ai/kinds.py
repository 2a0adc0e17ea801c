"""From a word ("network", "tree") or a model of the user's to the pricer that trains it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from torch import nn

from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.members.modules import ModuleArchitecture
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.pricing.affine import AffinePricer
from cg4ai.pricing.gradient import GradientPricer
from cg4ai.pricing.stumps import StumpPricer
from cg4ai.pricing.training import Training
from cg4ai.pricing.trees import TreePricer
from cg4ai.protocols import Architecture, Pricer
from cg4ai.records import Array, IntArray

if TYPE_CHECKING:
    from cg4ai.estimators import _ConstrainedEstimator

KINDS = ("network", "affine", "stump", "tree", "forest", "boosting")


@dataclass(frozen=True, slots=True)
class Task:
    """What members must fit: their inputs, how many outputs, and what the outputs mean."""

    inputs: Array
    outputs: int
    links: Literal["linear", "softmax"]
    targets: Array | IntArray
    output_limit: float | None = None

    @property
    def classification(self) -> bool:
        return not np.issubdtype(self.targets.dtype, np.floating)


def pricers_for(estimator: _ConstrainedEstimator, task: Task) -> tuple[Pricer, ...]:
    """One pricer per kind of member that the estimator names, in its order."""
    kinds = (
        estimator.members if isinstance(estimator.members, (list, tuple)) else (estimator.members,)
    )
    if not kinds:
        raise InvalidInput("members is empty: name at least one kind of member")
    return tuple(_pricer(kind, estimator, task) for kind in kinds)


def _pricer(kind: Any, estimator: _ConstrainedEstimator, task: Task) -> Pricer:
    d = task.inputs.shape[1]
    if kind == "network":
        return _gradient(_network(estimator, task), estimator, task)
    if kind == "affine":
        if task.links == "softmax":
            raise InvalidInput("affine members give logits, not probabilities: set scores='logit'")
        return AffinePricer(d, task.outputs)
    if task.classification and task.links == "linear" and kind in KINDS:
        raise InvalidInput(f"{kind} members give probabilities: set scores='probability'")
    if kind == "stump":
        return StumpPricer(d, task.outputs)
    if isinstance(kind, str):
        return TreePricer(_tree(kind, task))
    if isinstance(kind, BaseEstimator):
        return TreePricer(kind)
    if callable(kind):
        factory: Callable[[], nn.Module] = kind
        name = getattr(kind, "__name__", type(kind).__name__)
        return _gradient(ModuleArchitecture(factory, d, task.outputs, name), estimator, task)
    raise InvalidInput(
        f"members cannot be made from {kind!r}: use one of {', '.join(KINDS)}, a scikit-learn "
        "estimator, or a function that makes a torch module"
    )


def _tree(kind: str, task: Task) -> BaseEstimator:
    classes: dict[str, tuple[Callable[[], BaseEstimator], Callable[[], BaseEstimator]]] = {
        "tree": (
            lambda: DecisionTreeClassifier(max_depth=4, min_samples_leaf=5),
            lambda: DecisionTreeRegressor(max_depth=4, min_samples_leaf=5),
        ),
        "forest": (
            lambda: RandomForestClassifier(n_estimators=20, max_depth=6),
            lambda: RandomForestRegressor(n_estimators=20, max_depth=6),
        ),
        "boosting": (
            lambda: GradientBoostingClassifier(n_estimators=30, max_depth=3),
            lambda: GradientBoostingRegressor(n_estimators=30, max_depth=3),
        ),
    }
    if kind not in classes:
        raise InvalidInput(
            f"unknown kind of member {kind!r}{did_you_mean(kind, KINDS)}; use one of "
            f"{', '.join(KINDS)}, a scikit-learn estimator, or a function that makes a module"
        )
    return classes[kind][0 if task.classification else 1]()


def _network(estimator: _ConstrainedEstimator, task: Task) -> NetworkArchitecture:
    """Inputs standardised by the training data; linear outputs in the units of the targets."""
    spread = task.inputs.std(0)
    regression = task.links == "linear" and not task.classification
    scale = task.targets.std(0) if regression else None
    return NetworkArchitecture(
        task.inputs.shape[1],
        task.outputs,
        hidden=tuple(estimator.hidden),
        activation=estimator.activation,  # type: ignore[arg-type]  # checked there
        output=task.links,
        shift=task.inputs.mean(0),
        scale=np.where(spread > 0, spread, 1.0),
        output_shift=task.targets.mean(0) if regression else None,
        output_scale=None if scale is None else np.where(scale > 0, scale, 1.0),
    )


def _gradient(
    architecture: Architecture, estimator: _ConstrainedEstimator, task: Task
) -> GradientPricer:
    regression = not task.classification
    spread = float(np.std(task.targets)) if regression else 1.0
    sampled = estimator.batch_size is not None
    return GradientPricer(
        architecture,
        restarts=estimator.restarts,
        group=estimator.group,
        training=Training(
            steps=estimator.steps,
            learning_rate=estimator.learning_rate,
            schedule="onecycle" if sampled else "plateau",
        ),
        batch_size=estimator.batch_size,
        headroom=0.05 * (spread or 1.0),
        row_weight=2.0 * (spread or 1.0),
        output_limit=task.output_limit,
    )
