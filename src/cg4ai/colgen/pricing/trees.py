"""Heuristic pricing by scikit-learn estimators, fitted to targets and weights made from duals."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cg4ai.colgen.pricing.defaults import PricerDefaults
from cg4ai.colgen.pricing.exact.finite import find_best_per_block
from cg4ai.colgen.pricing.leaf_values import LeafRefitPricer
from cg4ai.colgen.pricing.monotone_parameters import (
    check_shapes,
    find_signs,
    set_monotone_constraints,
)
from cg4ai.colgen.pricing.nested_classes import (
    check_nesting,
    find_nesting,
    find_part_signs,
    fit_nested_member,
)
from cg4ai.colgen.pricing.probes import Probe
from cg4ai.colgen.pricing.reduced_cost import (
    compute_loss_gradient,
    compute_mixture_outputs,
    compute_price_terms,
    compute_reduced_costs,
    is_loss_linearised,
)
from cg4ai.errors import InvalidInput
from cg4ai.members import concatenate
from cg4ai.members.conversion import from_sklearn
from cg4ai.members.tree_arrays import combine_outputs, move_thresholds_apart, repair_leaves
from cg4ai.members.trees import TreeMembers
from cg4ai.objectives import Supervised
from cg4ai.parallel import fan_out
from cg4ai.protocols import Members, Pricer, PricerCapabilities, PricingRequest
from cg4ai.records import Array, IntArray, PricingResult
from cg4ai.rules.shapes import Monotone, Shape

SCALES = (0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True, slots=True)
class _Sample:
    """A weighted training set for one estimator; `targets` (k, q) numbers or (k,) classes."""

    inputs: Array
    targets: Array | IntArray
    weights: Array


@dataclass(frozen=True, slots=True)
class _Job:
    """One estimator to fit, for the outputs at `positions`, with a seed of its own."""

    sample: _Sample
    positions: IntArray
    seed: int


class TreePricer(PricerDefaults):
    """Fits clones of `estimator` so that they price out, several per call; proves nothing.

    Regressors fit the functional gradient: data pull to their targets (for a mixture, from its
    output along minus the gradient of the loss), row inputs pull from the current mixture's
    output one step along minus their price, with the weight that makes the gradient of the
    weighted squared error there equal to the price. Classifiers solve the cost-sensitive
    reduction: data keep their label, row inputs get the classes that their price favours.

    `scales` trade data against rows, one proposal each: the length of the step (relative to the
    spread of the targets or outputs) for regressors, the weight of the rows for classifiers.
    Concave rows enter by their gradient at the current mixture. Any estimator that `from_sklearn`
    knows will do; `random_state`, where it has one, is set from the request's seed. Where it fits
    one output only, or shapes ask for other signs of each, every output has a model of its own.
    `n_jobs` proposals are fitted at a time (None: 1, or what `joblib.parallel_config` says); each
    has a seed of its own, so that they are the same for any number.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        scales: Sequence[float] = SCALES,
        per_call: int = 4,
        n_jobs: int | None = None,
    ) -> None:
        if not hasattr(estimator, "fit") or not hasattr(estimator, "get_params"):
            raise InvalidInput(
                f"TreePricer needs a scikit-learn estimator, got {type(estimator).__name__}",
                code="type",
            )
        if not scales or min(scales) <= 0:
            raise InvalidInput(
                f"scales must be one or more positive numbers, got {list(scales)}", code="range"
            )
        if per_call < 1:
            raise InvalidInput(f"per_call must be at least 1, got {per_call}", code="range")
        self.estimator = estimator
        self.scales = tuple(float(scale) for scale in scales)
        self.per_call = per_call
        self.n_jobs = n_jobs
        self.shapes: tuple[Monotone, ...] = ()

    @property
    def capabilities(self) -> PricerCapabilities:
        from sklearn.base import is_classifier

        return PricerCapabilities(
            fits_data=True,
            needs_labels=True,
            takes_missing=takes_missing(self.estimator),
            keeps_shapes=True,
            any_classes=is_classifier(self.estimator),
        )

    def with_shapes(self, shapes: Sequence[Shape]) -> TreePricer:
        """The same for trees that keep these shapes at every input, by their own constraints."""
        made = copy.copy(self)
        made.shapes = check_shapes(self.estimator, shapes)
        check_nesting(self.estimator, made.shapes)
        return made

    def for_estimate(self, probe: Probe) -> TreePricer:
        """Fits by fewer scales: as many as there are restarts and work for, one at least."""
        made = copy.copy(self)
        count = min(probe.restarts, round(probe.share * len(self.scales)))
        middle = sorted(self.scales, key=lambda scale: abs(np.log(scale)))
        made.scales = tuple(middle[: max(1, count)])
        return made

    def for_single_models(self, pressure: float) -> Pricer:
        """With leaf values that keep the rows; shapes might be broken by other values."""
        return self if self.shapes else LeafRefitPricer(self)

    def price(self, request: PricingRequest) -> PricingResult:
        jobs: list[_Job] = []
        blocks: list[int] = []
        for block, positions in enumerate(request.rows.layout.blocks):
            for number, scale in enumerate(self._scales(request)):
                sample = self._sample(request, positions, scale)
                if sample is not None:
                    seed = request.seed + block * len(self.scales) + number
                    jobs.append(_Job(sample, positions, seed % 2**31))
                    blocks.append(block)
        members = fan_out(self._fit, jobs, n_jobs=self.n_jobs)
        stack = concatenate(members) if members else None
        numbers = np.array(blocks, dtype=np.int64)
        if members and stack is None:
            raise InvalidInput(
                "the blocks have different numbers of outputs, so their estimators cannot share a "
                f"stack: {[len(positions) for positions in request.rows.layout.blocks]}; "
                "use one pricer per number of outputs",
                code="unsupported",
            )
        if stack is None:
            return PricingResult(None, numbers, np.full(0, -1), tried=0)
        costs = compute_reduced_costs(request, stack, numbers)
        chosen = find_best_per_block(costs, numbers, limit=self.per_call)
        return PricingResult(
            members=stack.take(chosen) if len(chosen) else None,
            blocks=numbers[chosen],
            groups=np.full(len(chosen), -1),
            tried=len(stack),
        )

    def _scales(self, request: PricingRequest) -> tuple[float, ...]:
        """One scale where all give the same training set: there are no rows, and labels stay."""
        from sklearn.base import is_classifier

        trading = len(_row_prices(request)[0]) > 0
        return self.scales if trading or not is_classifier(self.estimator) else self.scales[:1]

    def _fit(self, job: _Job) -> Members:
        from sklearn.base import clone, is_classifier

        sample, positions = job.sample, job.positions
        model = clone(self.estimator)
        if "random_state" in model.get_params():
            model.set_params(random_state=job.seed)
        classes = len(positions) if is_classifier(model) else None
        signs = find_signs(self.shapes, sample.inputs.shape[1], len(positions), classes is not None)
        targets = sample.targets
        # equal weights say nothing, and scikit-learn bins features five times as long for them
        weights = None if np.allclose(sample.weights, 1.0, rtol=1e-12) else sample.weights

        if classes is not None and classes > 2 and signs is not None:
            rows = (sample.inputs, np.asarray(targets, np.int64), weights)
            nesting = find_nesting(self.shapes, classes)
            parts = find_part_signs(self.shapes, nesting, signs)
            return fit_nested_member(model, rows, nesting=nesting, signs=parts)

        def member(one: Any, wanted: Array | IntArray) -> Members:
            one.fit(sample.inputs, wanted, sample_weight=weights)
            made = from_sklearn(one, classes=classes)
            if isinstance(made, TreeMembers):
                return move_thresholds_apart(made, sample.inputs)
            return made

        if classes is not None or (signs is None and fits_several(model)):
            flat = targets.ravel() if targets.ndim == 1 or targets.shape[1] == 1 else targets
            made = member(
                model if signs is None else set_monotone_constraints(model, signs[1]), flat
            )
        else:
            models = [clone(model) for _ in positions]
            if signs is not None:
                models = [
                    set_monotone_constraints(one, own)
                    for one, own in zip(models, signs, strict=True)
                ]
            each = [member(one, own) for one, own in zip(models, targets.T, strict=True)]
            made = each[0] if len(each) == 1 else combine_outputs([_trees(one) for one in each])
        return made if signs is None else repair_leaves(_trees(made), signs)

    def _sample(self, request: PricingRequest, positions: IntArray, scale: float) -> _Sample | None:
        from sklearn.base import is_classifier

        if is_classifier(self.estimator):
            parts = [_labels(request), *_favoured(request, positions, scale)]
        else:
            parts = [_data(request, positions, scale), *_steps(request, positions, scale)]
        kept = [part for part in parts if part is not None and part.weights.any()]
        if not kept:
            return None
        weights = np.concatenate([part.weights for part in kept])
        used = weights > 0
        return _Sample(
            np.concatenate([part.inputs for part in kept])[used],
            np.concatenate([part.targets for part in kept])[used],
            weights[used] / weights[used].mean(),
        )


def takes_missing(model: Any) -> bool:
    """Whether models of this kind take inputs that are NaN."""
    return bool(model.__sklearn_tags__().input_tags.allow_nan)


def fits_several(model: Any) -> bool:
    """Whether it fits several outputs at once."""
    return bool(model.__sklearn_tags__().target_tags.multi_output)


def _trees(members: Members) -> TreeMembers:
    if not isinstance(members, TreeMembers):
        raise InvalidInput(f"expected trees, got members of {type(members).__name__}", code="type")
    return members


def _data_weights(request: PricingRequest, objective: Supervised) -> Array:
    n = len(objective.inputs)
    raw = np.ones(n) if objective.sample_weight is None else objective.sample_weight
    return np.asarray(request.loss_weight * raw / raw.sum())


def _data(request: PricingRequest, positions: IntArray, scale: float) -> _Sample | None:
    """Data for a regressor: the targets, or a step from the mixture against the loss gradient."""
    objective = request.objective
    if not isinstance(objective, Supervised) or objective.loss == "none":
        return None
    weights = _data_weights(request, objective)
    if request.ensemble is not None and (
        is_loss_linearised(request) or np.asarray(objective.targets).ndim == 1
    ):
        outputs = compute_mixture_outputs(request.ensemble, objective.inputs, request.device)
        share = np.maximum(weights, np.finfo(np.float64).tiny)[:, None]
        gradient = request.loss_weight * compute_loss_gradient(objective, outputs) / share
        targets = (outputs - scale * gradient / 2)[:, positions]  # squared, scale 1: the targets
    elif np.asarray(objective.targets).ndim == 2:
        targets = np.asarray(objective.targets, np.float64)[:, positions]
    else:
        size = request.rows.layout.output_size
        targets = np.eye(size)[np.asarray(objective.targets, np.int64)][:, positions]
    return _Sample(objective.inputs, targets, weights)


def _row_prices(request: PricingRequest) -> tuple[Array, Array]:
    """Inputs and prices of the rows alone, at the guiding duals."""
    terms = compute_price_terms(request, request.guide, concave="linearise")
    if not is_loss_linearised(request):
        return terms.inputs, terms.prices
    count = len(terms.inputs) - len(request.objective.inputs)
    return terms.inputs[:count], terms.prices[:count]


def _steps(request: PricingRequest, positions: IntArray, scale: float) -> list[_Sample]:
    inputs, prices = _row_prices(request)
    if len(inputs) == 0:
        return []
    mine = prices[:, positions]
    lengths = np.linalg.norm(mine, axis=1)
    step = scale * _spread(request, positions)
    base = np.zeros_like(mine)
    if request.ensemble is not None:
        base = compute_mixture_outputs(request.ensemble, inputs, request.device)[:, positions]
    direction = mine / np.where(lengths > 0, lengths, 1.0)[:, None]
    return [_Sample(inputs, base - step * direction, lengths / (2 * step))]


def _spread(request: PricingRequest, positions: IntArray) -> float:
    """The size of one step: the standard deviation of the targets, 1 where that says nothing."""
    objective = request.objective
    if isinstance(objective, Supervised) and np.asarray(objective.targets).ndim == 2:
        spread = float(np.asarray(objective.targets, np.float64)[:, positions].std())
        return spread if spread > 0 else 1.0
    return 1.0


def _labels(request: PricingRequest) -> _Sample | None:
    objective = request.objective
    if not isinstance(objective, Supervised) or objective.loss == "none":
        return None
    targets = np.asarray(objective.targets)
    if targets.ndim != 1:
        raise InvalidInput(
            f"a classifier needs class labels (n,), got targets of shape {targets.shape}; "
            "use a regressor",
            code="shape",
        )
    return _Sample(objective.inputs, targets.astype(np.int64), _data_weights(request, objective))


def _favoured(request: PricingRequest, positions: IntArray, scale: float) -> list[_Sample]:
    """Each row input with every class priced below the mean, by how much."""
    inputs, prices = _row_prices(request)
    mine = prices[:, positions]
    gain = np.maximum(mine.mean(1, keepdims=True) - mine, 0.0)
    which, label = np.nonzero(gain)
    if len(which) == 0:
        return []
    return [_Sample(inputs[which], label.astype(np.int64), scale * gain[which, label])]
