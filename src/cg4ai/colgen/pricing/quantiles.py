"""Boosted trees for several quantiles at once: one model each, side by side as one member."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cg4ai.colgen.pricing.defaults import PricerDefaults
from cg4ai.colgen.pricing.monotone_parameters import find_signs
from cg4ai.colgen.pricing.trees import takes_missing
from cg4ai.errors import InvalidInput
from cg4ai.members import concatenate
from cg4ai.members.conversion import from_sklearn
from cg4ai.members.tree_arrays import combine_outputs
from cg4ai.members.trees import TreeMembers
from cg4ai.objectives import Supervised
from cg4ai.parallel import fan_out
from cg4ai.protocols import PricerCapabilities, PricingRequest
from cg4ai.records import Array, IntArray, PricingResult
from cg4ai.rules.shapes import Monotone, Shape

# what libraries call a model of one quantile: the loss, and where the quantile goes
NAMES = {
    "HistGradientBoostingRegressor": ({"loss": "quantile"}, "quantile"),
    "GradientBoostingRegressor": ({"loss": "quantile"}, "alpha"),
    "LGBMRegressor": ({"objective": "quantile"}, "alpha"),
    "XGBRegressor": ({"objective": "reg:quantileerror"}, "quantile_alpha"),
}
SHARE = 0.8  # of the rows that all but the first proposals are fitted to, so that they differ


def clone_for_quantile(estimator: Any, quantile: float) -> Any:
    """An unfitted copy of the estimator that fits this quantile."""
    from sklearn.base import clone

    name = type(estimator).__name__
    if name not in NAMES:
        raise InvalidInput(
            f"{name} fits no quantiles; use networks, 'boosting', or one of {', '.join(NAMES)}",
            code="unsupported",
        )
    fixed, where = NAMES[name]
    return clone(estimator).set_params(**fixed, **{where: quantile})


@dataclass(frozen=True)
class QuantilePricer(PricerDefaults):
    """Fits each of `estimators` to every quantile of the targets; rules on rows do not move it.

    The first call fits all rows, later ones a random share each, so that there is something to mix.
    """

    estimators: tuple[Any, ...]
    quantiles: tuple[float, ...]
    shapes: tuple[Any, ...] = ()  # of Monotone
    n_jobs: int | None = None

    def price(self, request: PricingRequest) -> PricingResult:
        objective = request.objective
        if not isinstance(objective, Supervised) or objective.loss == "none":
            return PricingResult(None, np.empty(0, np.int64), np.empty(0, np.int64))
        random = np.random.default_rng(request.seed)
        fits: list[_Fit] = []
        for estimator in self.estimators:
            rows = np.arange(len(objective.inputs))
            if request.ensemble is not None and self._known(request):
                rows = np.sort(random.permutation(rows)[: max(2, round(SHARE * len(rows)))])
            fits += self._fits(estimator, objective, rows, int(random.integers(2**31)))
        models = fan_out(_Fit.model, fits, n_jobs=self.n_jobs)
        count = len(self.quantiles)
        each = [models[first : first + count] for first in range(0, len(models), count)]
        stack = concatenate([self._member(one, objective.inputs.shape[1]) for one in each])
        assert stack is not None
        count = len(stack)
        return PricingResult(stack, np.zeros(count, np.int64), np.full(count, -1))

    @property
    def capabilities(self) -> PricerCapabilities:
        return PricerCapabilities(
            fits_data=True,
            needs_labels=True,
            takes_missing=all(map(takes_missing, self.estimators)),
            keeps_shapes=True,
        )

    def with_shapes(self, shapes: Sequence[Shape]) -> QuantilePricer:
        """The same for trees that keep these shapes at every input."""
        return replace(self, shapes=require_monotone(shapes))

    def _known(self, request: PricingRequest) -> bool:
        """Whether the mixture has such members already."""
        parts = () if request.ensemble is None else request.ensemble.parts
        return any(isinstance(part.members.innermost(), TreeMembers) for part in parts)

    def _fits(self, estimator: Any, objective: Supervised, rows: Any, seed: int) -> list[_Fit]:
        """What is to be fitted, one model for each quantile."""
        targets = np.asarray(objective.targets, np.float64)[rows, 0]
        weights = None if objective.sample_weight is None else objective.sample_weight[rows]
        inputs = objective.inputs[rows]
        return [
            _Fit(clone_for_quantile(estimator, one), inputs, targets, weights, seed)
            for one in self.quantiles
        ]

    def _member(self, models: Sequence[Any], features: int) -> TreeMembers:
        """One member of the models of all quantiles."""
        signs = find_signs(self.shapes, features, len(self.quantiles), False)
        parts: list[TreeMembers] = []
        for model in models:
            member = from_sklearn(model)
            assert isinstance(member, TreeMembers)
            if signs is not None:
                member = make_monotone(member, signs[len(parts)])
            parts.append(member)
        return combine_outputs(parts)


@dataclass(frozen=True, slots=True)
class _Fit:
    """One model to be fitted, inputs (n, d), targets and weights (n,), with a seed of its own."""

    unfitted: Any
    inputs: Array
    targets: Array
    weights: Array | None
    seed: int

    def model(self) -> Any:
        """The fitted model."""
        if "random_state" in self.unfitted.get_params():
            self.unfitted.set_params(random_state=self.seed)
        return self.unfitted.fit(self.inputs, self.targets, sample_weight=self.weights)


def require_monotone(shapes: Sequence[Shape]) -> tuple[Monotone, ...]:
    """The shapes, if leaves can be made to keep them."""
    for shape in shapes:
        if not isinstance(shape, Monotone) or shape.logits:
            raise InvalidInput(
                f"{shape.name} cannot be built into boosted quantiles, which are sums of steps: "
                "use networks",
                code="unsupported",
            )
    return tuple(one for one in shapes if isinstance(one, Monotone))


def make_monotone(members: TreeMembers, directions: IntArray) -> TreeMembers:
    """The same trees, of one output, with leaves clipped so that each moves as `directions` (d,).

    At a node that splits on such a feature both sides are clipped at the middle between the largest
    leaf of the lower side and the smallest of the upper, where these are in the wrong order. That
    leaves all values within the range they had, so that no other node is undone.
    """
    arrays = {name: array.clone() for name, array in members.tensors().items()}
    value = arrays["value"].numpy()
    feature, left, right = (arrays[name].numpy() for name in ("feature", "left", "right"))
    split = left != np.arange(left.shape[2])
    asked = split & (directions[feature] != 0)
    if members.subset is not None and (asked & (members.subset.numpy() >= 0)).any():
        raise InvalidInput(
            "a feature of categories cannot be monotone: leave it out of Monotone", code="conflict"
        )
    for member, tree, node in np.argwhere(asked):
        sides = [
            _leaves(left[member, tree], right[member, tree], int(start))
            for start in (left[member, tree, node], right[member, tree, node])
        ]
        lower, upper = sides[:: int(directions[feature[member, tree, node]])]
        _part(value[member, tree, :, 0], lower, upper)
    return members._rebuild(arrays)


def _part(values: Array, lower: IntArray, upper: IntArray) -> None:
    most, least = values[lower].max(), values[upper].min()
    if most > least:
        middle = (most + least) / 2
        values[lower] = np.minimum(values[lower], middle)
        values[upper] = np.maximum(values[upper], middle)


def _leaves(left: IntArray, right: IntArray, start: int) -> IntArray:
    """All leaves below a node."""
    found, waiting = [], [start]
    while waiting:
        node = waiting.pop()
        if left[node] == node:
            found.append(node)
        else:
            waiting += [int(left[node]), int(right[node])]
    return np.array(found, np.int64)
