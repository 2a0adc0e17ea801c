"""A mixture of one-hidden-layer ReLU networks as one such network in arrays, for exact oracles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cg4ai.errors import InvalidInput
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.mixture import Mixture, Part
from cg4ai.members.networks import NetworkMembers
from cg4ai.records import Array


@dataclass(frozen=True, eq=False)
class ReluSum:
    """`slope . x + constant + sum_j weight_j max(0, hidden_j . x + offset_j)`, a number.

    `hidden` (h, d), `offset` and `weight` (h,), `slope` (d,).
    """

    slope: Array
    constant: float
    hidden: Array
    offset: Array
    weight: Array

    def values(self, inputs: Array) -> Array:
        """(n, d) -> (n,)."""
        units = np.maximum(inputs @ self.hidden.T + self.offset, 0.0)
        return np.asarray(inputs @ self.slope + self.constant + units @ self.weight)

    def ranges(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """The least and largest value of each unit before it is cut off, (h,) each.

        Over a box they are attained, so that no linear program could tighten them.
        """
        rising, falling = np.maximum(self.hidden, 0.0), np.minimum(self.hidden, 0.0)
        low = rising @ lower + falling @ upper + self.offset
        return low, rising @ upper + falling @ lower + self.offset

    def restrict_to_box(self, lower: Array, upper: Array) -> ReluSum:
        """The same function on the box, with only those units whose sign changes there."""
        low, high = self.ranges(lower, upper)
        linear = self.weight * (low >= 0)
        kept = (low < 0) & (high > 0) & (self.weight != 0)
        return ReluSum(
            self.slope + linear @ self.hidden,
            self.constant + float(linear @ self.offset),
            self.hidden[kept],
            self.offset[kept],
            self.weight[kept],
        )

    def restrict_to_signs(self, active: NDArray[np.bool_]) -> tuple[Array, float]:
        """Slope (d,) and constant of the piece on which exactly the units `active` (h,) count."""
        counted = self.weight * active
        return self.slope + counted @ self.hidden, self.constant + float(counted @ self.offset)


@dataclass(frozen=True, eq=False)
class ReluNetwork:
    """`direct @ x + bias + readout @ max(0, hidden @ x + offset)`: all members side by side.

    `hidden` (h, d), `offset` (h,), `readout` (r, h), `direct` (r, d), `bias` (r,).
    """

    hidden: Array
    offset: Array
    readout: Array
    direct: Array
    bias: Array

    def outputs(self, inputs: Array) -> Array:
        """(n, d) -> (n, r), as the mixture's but for rounding."""
        units = np.maximum(inputs @ self.hidden.T + self.offset, 0.0)
        return np.asarray(inputs @ self.direct.T + self.bias + units @ self.readout.T)

    def combine_outputs(self, direction: Array) -> ReluSum:
        """`direction . outputs`, for direction (r,)."""
        return ReluSum(
            direction @ self.direct,
            float(direction @ self.bias),
            self.hidden,
            self.offset,
            direction @ self.readout,
        )

    @classmethod
    def of(cls, mixture: object) -> ReluNetwork:
        """The mixture as one network; InvalidInput says which member stands in the way, and why."""
        if not isinstance(mixture, Mixture) or mixture.shield_digest is not None:
            raise InvalidInput(
                f"{_REFUSED}, got {type(mixture).__name__}; what a shield corrects keeps its rules "
                "without a search, and other predictors are searched by GradientAscent or BlackBox",
                code="unsupported",
            )
        return _joined([_one(part, mixture) for part in mixture.used])


_REFUSED = (
    "exact separation is for mixtures of ReLU networks with at most one hidden layer and linear "
    "outputs"
)


def _joined(parts: Sequence[ReluNetwork]) -> ReluNetwork:
    return ReluNetwork(
        np.concatenate([part.hidden for part in parts]),
        np.concatenate([part.offset for part in parts]),
        np.concatenate([part.readout for part in parts], axis=1),
        np.sum([part.direct for part in parts], axis=0),
        np.sum([part.bias for part in parts], axis=0),
    )


def _one(part: Part, mixture: Mixture) -> ReluNetwork:
    """A stack of members with its weights, its outputs where the blocks of the layout lie."""
    members = part.members
    places = np.zeros((len(part.weights), mixture.output_size, members.output_size))
    for member, (block, weight) in enumerate(zip(part.blocks, part.weights, strict=True)):
        positions = mixture.layout.blocks[block]
        places[member, positions, np.arange(len(positions))] = weight
    check_members(members)
    if isinstance(members, ConstantMembers):
        values = members.values.cpu().numpy()
        return _affine(np.zeros((*values.shape, members.input_size)), values, places)
    assert isinstance(members, NetworkMembers)
    return _networks(members, places)


def _elsewhere(members: object) -> str:
    kind = type(members).__name__
    if "Tree" in kind:
        return "trees are proven in cells by cg4ai.proofs.certification"
    if "Shield" in kind:
        return "a shield keeps its rules at every input already"
    return "search it by GradientAscent or BlackBox, or prove it by cg4ai.proofs.certification"


def check_members(members: object) -> None:
    """Refuse members that are no such networks, with the reason."""
    if isinstance(members, ConstantMembers):
        return
    if not isinstance(members, NetworkMembers):
        raise InvalidInput(
            f"{_REFUSED}, got {type(members).__name__}; {_elsewhere(members)}", code="unsupported"
        )
    made = members.architecture
    if made.softmax_groups:
        raise InvalidInput(
            f"{_REFUSED}; these networks end in a softmax (probabilities, shares of routing), "
            "which no program with linear rows states. certify() bounds them in cells",
            code="unsupported",
        )
    if made.depth > 1 or (made.depth == 1 and made.activation != "relu"):
        raise InvalidInput(
            f"{_REFUSED}, got {made.depth} hidden layer{'s' * (made.depth > 1)} of "
            f"{made.activation}; use hidden=(width,) and activation='relu', or "
            "cg4ai.proofs.certification, which bounds them in cells",
            code="unsupported",
        )


def _networks(members: NetworkMembers, places: Array) -> ReluNetwork:
    made = members.architecture
    stack = {name: tensor.cpu().numpy() for name, tensor in members.parameters.items()}
    shift = np.zeros(made.input_size) if made.shift is None else made.shift
    scale = np.ones(made.input_size) if made.scale is None else made.scale
    first = stack["weight_0"] / scale
    start = stack["bias_0"] - first @ shift
    if made.depth == 0:
        return _affine(first, start, places)
    skip = stack["skip"] / scale if made.skip else np.zeros((len(first), made.output_size, 1))
    slopes = np.broadcast_to(skip, (len(first), made.output_size, made.input_size))
    direct = _affine(slopes, stack["bias_1"] - slopes @ shift, places)
    readout = places @ stack["weight_1"]  # (members, r, width)
    return ReluNetwork(
        first.reshape(-1, made.input_size),
        start.reshape(-1),
        readout.transpose(1, 0, 2).reshape(len(direct.bias), -1),
        direct.direct,
        direct.bias,
    )


def _affine(slopes: Array, offsets: Array, places: Array) -> ReluNetwork:
    """Members `slopes[i] @ x + offsets[i]`, (count, own outputs, d) and (count, own outputs)."""
    size, inputs = places.shape[1], slopes.shape[-1]
    return ReluNetwork(
        np.empty((0, inputs)),
        np.empty(0),
        np.empty((size, 0)),
        np.einsum("mrk,mkd->rd", places, slopes),
        np.einsum("mrk,mk->r", places, offsets),
    )
