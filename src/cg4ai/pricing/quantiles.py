"""Boosted trees for several quantiles at once: one model each, side by side as one member."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from cg4ai.errors import InvalidInput
from cg4ai.members import concatenate
from cg4ai.members.conversion import from_sklearn
from cg4ai.members.trees import TreeMembers
from cg4ai.objectives import Supervised
from cg4ai.protocols import PricingRequest
from cg4ai.records import PricingResult

# what libraries call a model of one quantile: the loss, and where the quantile goes
NAMES = {
    "HistGradientBoostingRegressor": ({"loss": "quantile"}, "quantile"),
    "GradientBoostingRegressor": ({"loss": "quantile"}, "alpha"),
    "LGBMRegressor": ({"objective": "quantile"}, "alpha"),
    "XGBRegressor": ({"objective": "reg:quantileerror"}, "quantile_alpha"),
}
SHARE = 0.8  # of the rows that all but the first proposals are fitted to, so that they differ


def at_quantile(estimator: Any, quantile: float) -> Any:
    """An unfitted copy of the estimator that fits this quantile."""
    from sklearn.base import clone

    name = type(estimator).__name__
    if name not in NAMES:
        raise InvalidInput(
            f"{name} fits no quantiles; use networks, 'boosting', or one of {', '.join(NAMES)}"
        )
    fixed, where = NAMES[name]
    return clone(estimator).set_params(**fixed, **{where: quantile})


def side_by_side(parts: Sequence[TreeMembers]) -> TreeMembers:
    """One member with as many outputs as there are parts, each a single member with one output."""
    stack = TreeMembers.concatenate(parts)
    count, trees, nodes, _ = stack.value.shape
    value = stack.value.new_zeros(1, count * trees, nodes, count)
    for number in range(count):
        own = stack.value[number, :, :, 0] * stack.factor[number]
        value[0, number * trees : (number + 1) * trees, :, number] = own
    joined: dict[str, Any] = {
        name: array.reshape(1, count * trees, nodes)
        for name, array in stack.tensors().items()
        if name in ("feature", "threshold", "left", "right", "missing", "subset")
    }
    if stack.subset is not None and stack.subsets is not None:
        sets, words = stack.subsets.shape[1:]
        first = torch.arange(count).view(-1, 1, 1) * sets
        own = torch.where(stack.subset >= 0, stack.subset + first, -1)
        joined["subset"] = own.reshape(1, count * trees, nodes)
        joined["subsets"] = stack.subsets.reshape(1, count * sets, words)
    return TreeMembers(
        joined.pop("feature"),
        joined.pop("threshold"),
        left=joined.pop("left"),
        right=joined.pop("right"),
        value=value,
        input_size=stack.input_size,
        initial=stack.initial.reshape(1, count),
        single_precision=stack.single_precision,
        **joined,
    )


@dataclass(frozen=True)
class QuantilePricer:
    """Fits each of `estimators` to every quantile of the targets; rules on rows do not move it.

    The first call fits all rows, later ones a random share each, so that there is something to mix.
    """

    estimators: tuple[Any, ...]
    quantiles: tuple[float, ...]

    fits_data: ClassVar[bool] = True
    needs_labels: ClassVar[bool] = True

    def price(self, request: PricingRequest) -> PricingResult:
        objective = request.objective
        if not isinstance(objective, Supervised) or objective.loss == "none":
            return PricingResult(None, np.empty(0, np.int64), np.empty(0, np.int64))
        random = np.random.default_rng(request.seed)
        members = []
        for estimator in self.estimators:
            rows = np.arange(len(objective.inputs))
            if request.ensemble is not None and self._known(request):
                rows = np.sort(random.permutation(rows)[: max(2, round(SHARE * len(rows)))])
            members.append(self._fitted(estimator, objective, rows, int(random.integers(2**31))))
        stack = concatenate(members)
        assert stack is not None
        count = len(stack)
        return PricingResult(stack, np.zeros(count, np.int64), np.full(count, -1))

    def _known(self, request: PricingRequest) -> bool:
        """Whether the mixture has such members already."""
        ensemble: Any = request.ensemble
        inside = [part.members for part in getattr(ensemble, "parts", ())]
        while any(hasattr(one, "inner") for one in inside):
            inside = [getattr(one, "inner", one) for one in inside]
        return any(isinstance(one, TreeMembers) for one in inside)

    def _fitted(self, estimator: Any, objective: Supervised, rows: Any, seed: int) -> TreeMembers:
        targets = np.asarray(objective.targets, np.float64)[rows, 0]
        weights = None if objective.sample_weight is None else objective.sample_weight[rows]
        parts = []
        for quantile in self.quantiles:
            model = at_quantile(estimator, quantile)
            if "random_state" in model.get_params():
                model.set_params(random_state=seed)
            model.fit(objective.inputs[rows], targets, sample_weight=weights)
            member = from_sklearn(model)
            assert isinstance(member, TreeMembers)
            parts.append(member)
        return side_by_side(parts)
