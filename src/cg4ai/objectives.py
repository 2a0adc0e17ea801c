"""The three objectives of a master.

`average` is the paper's Jensen bound, sum of weight x mean loss of each member. `mixture` is the
mean loss of the mixture itself, convex in the weights. `epigraph` is the mean over scenarios of
the largest of several functions that are linear in the outputs, e.g. maximum link utilisation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from cg4ai.data.arrays import as_matrix
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.records import Array, IntArray

LossFunction = Callable[[Tensor, Tensor], Tensor]


def compute_squared_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Sum over outputs of squared differences; `targets` (n, r)."""
    return (outputs - targets).square().sum(-1)


def compute_absolute_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Sum over outputs of absolute differences; `targets` (n, r)."""
    return (outputs - targets).abs().sum(-1)


def compute_log_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Minus log of the probability of the right class; `targets` (n,) classes.

    Probabilities below 1e-12 are continued by the tangent there, so the loss stays finite, convex
    and with a useful gradient.
    """
    labels = targets.long().expand(outputs.shape[:-1]).unsqueeze(-1)
    p = outputs.gather(-1, labels).squeeze(-1)
    floor = 1e-12
    return torch.where(p > floor, -p.clamp_min(floor).log(), 1 - math.log(floor) - p / floor)


def compute_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of logits; `targets` (n,) classes."""
    labels = targets.long().expand(outputs.shape[:-1]).unsqueeze(-1)
    return outputs.logsumexp(-1) - outputs.gather(-1, labels).squeeze(-1)


def compute_votes(outputs: Tensor) -> Tensor:
    """Scores (..., r) -> votes (..., r): 1 for the first of the largest, else 0."""
    return functional.one_hot(outputs.argmax(-1), outputs.shape[-1]).to(outputs.dtype)


def compute_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 where the vote is not for the right class, else 0; `targets` (n,) classes."""
    return (outputs.argmax(-1) != targets.long()).to(outputs.dtype)


def compute_zero_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Zero: learn from the rows alone."""
    return outputs.sum(-1) * 0.0


@dataclass(frozen=True)
class Pinball:
    """The mean over outputs, one for each of `quantiles`, of the pinball loss; `targets` (n, q).

    With a `width` above 0 the corner is rounded, `width * softplus(u / width)` in place of
    max(u, 0), which is at most 0.7 width more: then it has a curvature, by which masters converge.
    """

    quantiles: tuple[float, ...]
    width: float = 0.0

    def __post_init__(self) -> None:
        levels = self.quantiles
        if (
            not levels
            or not all(0 < one < 1 for one in levels)
            or list(levels) != sorted(set(levels))
        ):
            raise InvalidInput(
                f"quantiles must be rising numbers between 0 and 1, got {list(levels)!r:.80}",
                code="range",
            )
        object.__setattr__(self, "_known", {})

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        excess = outputs - targets
        over = excess.clamp_min(0.0)
        if self.width:
            over = self.width * functional.softplus(excess / self.width)
        return (over - self._levels(outputs) * excess).mean(-1)

    def _levels(self, like: Tensor) -> Tensor:
        known: dict[Any, Tensor] = self._known  # type: ignore[attr-defined]
        key = (like.dtype, like.device)
        if key not in known:
            with torch.inference_mode(False):
                known[key] = torch.tensor(self.quantiles, dtype=like.dtype, device=like.device)
        return known[key]

    def __getstate__(self) -> dict[str, Any]:
        return {"quantiles": self.quantiles, "width": self.width, "_known": {}}


LOSSES: dict[str, LossFunction] = {
    "squared": compute_squared_loss,
    "absolute": compute_absolute_loss,
    "log_loss": compute_log_loss,
    "cross_entropy": compute_cross_entropy,
    "error": compute_error,
    "none": compute_zero_loss,
}


def get_loss_function(loss: str | LossFunction) -> LossFunction:
    """A loss by name, or the user's own: (outputs (..., n, r), targets (n, ...)) -> (..., n)."""
    if callable(loss):
        return loss
    if loss not in LOSSES:
        raise InvalidInput(
            f"unknown loss {loss!r}{did_you_mean(loss, LOSSES)}; "
            f"use one of {', '.join(LOSSES)} or a function of (outputs, targets)",
            code="unknown-name",
        )
    return LOSSES[loss]


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs to train on; `targets` is None where the objective needs no labels.

    `positions` are those in the objective's own inputs, where all were drawn from there.
    """

    inputs: Tensor
    targets: Tensor | None
    weights: Tensor | None
    positions: Tensor | None = None


@dataclass(frozen=True)
class Supervised:
    """Weighted mean loss over labelled data, as `average` of members or of the `mixture`.

    `soft` holds further labelled data (augmented copies, say) that members are trained on but
    that is not in the master's objective. Means, not sums as in the paper, so that penalties and
    epsilon keep their meaning when the data grow. The last `prior_rows` are no data: they state a
    prior on what is predicted, and nothing is measured by them.
    """

    inputs: Array
    targets: Array | IntArray
    loss: str | LossFunction = "squared"
    kind: Literal["average", "mixture"] = "average"
    sample_weight: Array | None = None
    soft: tuple[NDArray[np.floating], Array | IntArray] | None = None
    prior_rows: int = 0

    def __post_init__(self) -> None:
        get_loss_function(self.loss)
        if self.kind not in ("average", "mixture"):
            raise InvalidInput(
                f'kind must be "average" or "mixture", got {self.kind!r}', code="unknown-name"
            )
        shapes = np.shape(self.inputs), np.shape(self.targets)
        if len(shapes[0]) != 2 or 0 in shapes[0] or shapes[1][:1] != shapes[0][:1]:
            raise InvalidInput(
                "a supervised objective needs inputs (n, d) and n targets, got shapes "
                f"{shapes[0]} and {shapes[1]}",
                code="shape",
            )
        if self.loss in ("squared", "absolute") and len(shapes[1]) != 2:
            raise InvalidInput(
                f"the loss {self.loss} needs targets (n, r), got {shapes[1]}; for one output use "
                "targets.reshape(-1, 1)",
                code="shape",
            )
        self._check_weights(shapes[0][0])

    def _check_weights(self, count: int) -> None:
        weights = self.sample_weight
        if weights is None:
            return
        if np.shape(weights) != (count,) or not np.all(weights >= 0) or not weights.sum() > 0:
            raise InvalidInput(
                f"sample_weight must be {count} numbers >= 0 that are not all 0, got shape "
                f"{np.shape(weights)} with values {np.unique(weights)[:4]}",
                code="shape",
            )

    def check(self, output_size: int) -> None:
        """InvalidInput if the loss does not give one number per row of the data."""
        shape = (1, len(self.inputs))
        outputs = torch.full((*shape, output_size), 1.0 / output_size, dtype=torch.float64)
        targets = torch.as_tensor(self.targets)
        if targets.is_floating_point():
            targets = targets.to(outputs.dtype)
        losses = self.function()(outputs, targets)
        if not isinstance(losses, Tensor) or losses.shape != shape:
            found = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise InvalidInput(
                f"the loss must give one number per row, {shape} for outputs "
                f"{tuple(outputs.shape)}, but gave {found}; do not take the mean inside it",
                code="shape",
            )

    def function(self) -> LossFunction:
        return get_loss_function(self.loss)

    @property
    def measured(self) -> tuple[Array, NDArray[Any]]:
        """Inputs and targets of the rows that are data."""
        count = len(self.inputs) - self.prior_rows
        return np.asarray(self.inputs)[:count], np.asarray(self.targets)[:count]

    @property
    def labels(self) -> NDArray[Any] | None:
        """The targets; None where nothing is labelled."""
        return np.asarray(self.targets)

    @property
    def sampler(self) -> Sampler | None:
        """What draws fresh inputs; None where there are these alone."""
        return None

    @property
    def tail(self) -> Tail | None:
        return None

    @property
    def sums_over_outputs(self) -> bool:
        """Whether each block of outputs has a part of its own in the loss."""
        return self.loss in ("squared", "absolute", "none")

    def _normalised_weights(self, like: Tensor) -> Tensor:
        n = len(self.inputs)
        weights = np.full(n, 1.0) if self.sample_weight is None else self.sample_weight
        return torch.as_tensor(weights / weights.sum(), dtype=like.dtype, device=like.device)

    def costs(self, outputs: Tensor, positions: IntArray) -> Tensor:
        """Mean loss of each member: `outputs` (count, n, block outputs) -> (count,).

        With several blocks the loss must be a sum over outputs (squared, absolute): a member is
        charged for its own block's outputs alone.
        """
        targets = torch.as_tensor(self.targets, device=outputs.device)
        if targets.is_floating_point():
            targets = targets.to(outputs.dtype)
        if targets.ndim == 2:
            targets = targets[:, torch.as_tensor(positions, device=outputs.device)]
        return self.function()(outputs, targets) @ self._normalised_weights(outputs)

    def value(self, batch: Batch, outputs: Tensor) -> Tensor:
        """Mean loss of a mixture (or of several): `outputs` (..., n, r) -> (...)."""
        assert batch.targets is not None
        losses = self.function()(outputs, batch.targets)
        if batch.weights is None:
            return losses.mean(-1)
        return (losses * batch.weights).sum(-1) / batch.weights.sum()

    def batch(
        self, size: int | None, generator: torch.Generator, *, device: str, dtype: torch.dtype
    ) -> Batch:
        """All data (size None, without `soft`) or a random draw from data and `soft` together."""
        inputs, targets, weights = self.inputs, self.targets, self.sample_weight
        if size is not None and self.soft is not None:
            inputs = np.concatenate([inputs, self.soft[0]])
            targets = np.concatenate([targets, self.soft[1]])
            weights = (
                None if weights is None else np.concatenate([weights, np.ones(len(self.soft[0]))])
            )
        x = torch.as_tensor(inputs)
        y = torch.as_tensor(targets)
        w = None if weights is None else torch.as_tensor(weights)
        pick: Tensor | None = None
        if size is not None and size < len(x):
            pick = torch.randint(len(x), (size,), generator=generator)
            x, y, w = x[pick], y[pick], None if w is None else w[pick]
        return Batch(
            x.to(device=device, dtype=dtype),
            y.to(device=device, dtype=dtype if y.is_floating_point() else torch.int64),
            None if w is None else w.to(device=device, dtype=dtype),
            pick if self.soft is None else None,
        )


Sampler = Callable[[int, torch.Generator], Tensor]
DRAWN = 2000  # inputs over which a sampled objective is the mean, in the master and in results


def draws_on_any_device(sampler: Sampler | None) -> bool:
    """Whether a sampler says by `any_device` that it draws where its generator is.

    Samplers may be plain functions of the user's, which say nothing and draw on the CPU.
    """
    return bool(getattr(sampler, "any_device", False))


class Objective(Supervised):
    """The mean of `loss(outputs, inputs)` over inputs: nothing is labelled.

    >>> Objective(Box(lower, upper), lambda y, x: 0.5 * (y @ Q * y).sum(-1) + y @ p)

    inputs: (n, d), or where they come from: a region, whose inputs are drawn uniformly, or
        `sampler(count, generator) -> (count, d)`. Those get fresh inputs at every step of training
        with a batch size, and `count` fixed ones in the master.
    loss: outputs (..., n, r), inputs (n, d) -> (..., n), differentiable in the outputs.
    kind: "mixture" minimises the loss of the mixture, for which it must be convex in the outputs;
        "average" its Jensen bound, the mean of the members' losses. None: "mixture", unless random
        chords show that the loss is not convex.
    """

    _sampler: Sampler | None
    _probed: bool

    def __init__(
        self,
        inputs: Any,
        loss: LossFunction,
        *,
        kind: Literal["average", "mixture"] | None = None,
        count: int = DRAWN,
        seed: int = 0,
    ) -> None:
        if not callable(loss):
            raise InvalidInput(
                f"loss must be a function of (outputs, inputs), got {loss!r}", code="type"
            )
        sampler: Sampler | None = getattr(inputs, "sample", None)
        if sampler is None and callable(inputs):
            sampler = inputs
        given = inputs
        if sampler is not None:
            given = sampler(count, torch.Generator().manual_seed(seed))
        points = as_matrix(given, "the inputs of an objective")
        object.__setattr__(self, "_sampler", sampler)
        object.__setattr__(self, "_probed", kind is not None)
        super().__init__(points, points, loss, kind or "mixture")

    @property
    def labels(self) -> None:
        return None

    @property
    def sampler(self) -> Sampler | None:
        return self._sampler

    @property
    def sums_over_outputs(self) -> bool:
        return False

    def check(self, output_size: int) -> None:
        super().check(output_size)
        if not self._probed:
            convex = _looks_convex(self.function(), self.inputs, output_size)
            object.__setattr__(self, "kind", "mixture" if convex else "average")

    def costs(self, outputs: Tensor, positions: IntArray) -> Tensor:
        """Mean loss of each member, whose outputs are all there are: (count, n, r) -> (count,)."""
        inputs = torch.as_tensor(self.inputs, dtype=outputs.dtype, device=outputs.device)
        return self.function()(outputs, inputs).mean(-1)

    def batch(
        self, size: int | None, generator: torch.Generator, *, device: str, dtype: torch.dtype
    ) -> Batch:
        """Fresh inputs where there is a sampler and a size, which are their own targets."""
        if size is None or self.sampler is None:
            return super().batch(size, generator, device=device, dtype=dtype)
        x = self.sampler(size, generator).to(device=device, dtype=dtype)
        return Batch(x, x, None)


def _looks_convex(loss: LossFunction, inputs: Array, output_size: int) -> bool:
    """Whether random chords all lie above the loss."""
    made = torch.Generator().manual_seed(0)
    x = torch.as_tensor(inputs[:256])
    sizes = torch.logspace(-1, 1, len(x), dtype=torch.float64)[:, None]
    one, other = (
        sizes * torch.randn(len(x), output_size, generator=made, dtype=torch.float64)
        for _ in range(2)
    )
    with torch.no_grad():
        ends = (loss(one, x) + loss(other, x)) / 2
        middle = loss((one + other) / 2, x)
    return bool((middle <= ends + 1e-9 * (1 + ends.abs())).all())


class LinearFunctional(Protocol):
    """Several functions of (input, output), each linear in the output."""

    @property
    def count(self) -> int: ...

    def values(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """(k, d), (..., k, r) -> (..., k, count), differentiable in both."""
        ...

    def coefficients(self, inputs: Array, which: IntArray) -> Array:
        """(m, d), (m,) -> (m, r): the coefficients of function `which[j]` at `inputs[j]`."""
        ...


class Tail(Protocol):
    """Finds inputs at which a mixture's largest piece is above the level it should keep there.

    A mean hardly sees rare inputs of large value, and where it does not, a master chooses freely.
    Each input found adds `weight` x (largest piece - level)+ to the objective from then on.
    """

    @property
    def weight(self) -> float: ...

    def find(self, predict: Callable[[Tensor], Tensor], *, seed: int) -> tuple[Array, Array]:
        """Inputs (k, d) and levels (k,), k = 0 if none; `predict` maps (n, d) to (n, r)."""
        ...

    def find_hardest(
        self, predict: Callable[[Tensor], Tensor], *, seed: int, screened: int, kept: int
    ) -> Array:
        """Of `screened` inputs at most, the `kept` at most (k, d) that are worst: to train on."""
        ...


@dataclass(frozen=True)
class Epigraph:
    """Mean over scenarios of the largest piece; `sampler` gives fresh scenarios to train on.

    `sampler(count, generator) -> (count, d)` float64, with a generator of the CPU; one with an
    attribute `any_device` that is true must draw on the device of the generator that it gets,
    which is the GPU's where steps are recorded as a graph. In the master each scenario has one
    variable t_s and lazily added rows `t_s - piece(mixture at x_s) >= 0`. `tail` adds inputs at
    which the mixture is much worse than it need be. `groups` (n,) are kinds of scenarios, numbered
    from 0: what `prune` gives up for fewer members is then bounded in each of them.

    Pieces read the inputs, unless there are `targets` (n, k): what they read in place of the input
    of the same row, which members do not see, such as what follows the input. A sampler then gives
    inputs and targets side by side, (count, d + k).
    """

    inputs: Array
    pieces: LinearFunctional
    sampler: Callable[[int, torch.Generator], Tensor] | None = None
    floor: float = 0.0  # a lower bound of every piece's maximum, e.g. 0 for utilisation
    tail: Tail | None = None
    least: float | None = None  # a lower bound of the mean over `inputs`, where a better is known
    groups: IntArray | None = None
    targets: Array | None = None

    kind: Literal["epigraph"] = "epigraph"

    labels: ClassVar[None] = None
    sums_over_outputs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.targets is None:
            return
        if self.targets.ndim != 2 or len(self.targets) != len(self.inputs):
            raise InvalidInput(
                f"targets of {len(self.inputs)} inputs have shape ({len(self.inputs)}, k), got "
                f"{self.targets.shape}",
                code="shape",
            )
        if self.tail is not None:
            raise InvalidInput(
                "a tail finds inputs and knows no targets of them; leave out one of the two",
                code="conflict",
            )

    @property
    def read(self) -> Array:
        """(n, d) or (n, k): what the pieces read at each of `inputs`."""
        return self.inputs if self.targets is None else self.targets

    def value(self, batch: Batch, outputs: Tensor) -> Tensor:
        """Of a mixture: the mean largest piece, or its sum with the batch's weights (n,)."""
        read = batch.inputs if batch.targets is None else batch.targets
        largest = self.pieces.values(read, outputs).amax(-1)
        return largest.mean(-1) if batch.weights is None else largest @ batch.weights

    def batch(
        self, size: int | None, generator: torch.Generator, *, device: str, dtype: torch.dtype
    ) -> Batch:
        y = None if self.targets is None else torch.as_tensor(self.targets)
        if size is None:
            x = torch.as_tensor(self.inputs)
        elif self.sampler is not None:
            x = self.sampler(size, generator)
            if y is not None:
                own = self.inputs.shape[1]
                x, y = x[:, :own], x[:, own:]
        else:
            pick = torch.randint(len(self.inputs), (size,), generator=generator)
            x = torch.as_tensor(self.inputs)[pick]
            y = None if y is None else y[pick]
        read = None if y is None else y.to(device=device, dtype=dtype)
        return Batch(x.to(device=device, dtype=dtype), read, None)


AnyObjective = Supervised | Epigraph
