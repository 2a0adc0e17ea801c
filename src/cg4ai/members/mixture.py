"""Members with weights, evaluated as one function: what separators search and pricers improve."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.protocols import Members
from cg4ai.records import Array, IntArray, select_prefixed

# one input (d,) -> outputs (r,), and theta
SingleMixture = Callable[[Array], tuple[Array, float]]


@dataclass(frozen=True, slots=True)
class Part:
    """A stack of members of one kind, with the block and the weight of each member."""

    members: Members
    blocks: IntArray
    weights: Array

    def freeze(self, device: torch.device) -> Part:
        """The same on the device, with blocks and weights of its own that nobody can change."""
        blocks, weights = np.array(self.blocks), np.array(self.weights)
        for array in (blocks, weights):
            array.setflags(write=False)
        there = self.members.device == device
        return Part(self.members if there else self.members.to(device), blocks, weights)

    def select_used(self) -> Part | None:
        """Its members of positive weight; None if there are none."""
        positive = np.flatnonzero(self.weights > 0)
        if len(positive) == len(self.weights):
            return self
        if not len(positive):
            return None
        return Part(self.members.take(positive), self.blocks[positive], self.weights[positive])


class Mixture:
    """`f(x) = sum_i weight_i member_i(x)`, the weights of each block summing to one.

    Outputs are computed in float64 from float64 parameters: what audits and certificates speak of
    is what inference does. Members of weight 0 are in `parts` and never evaluated: 0 times an
    infinite output would be no number. `used` are the others, which all claims are about. All
    members live on `device`; None: where those of the first part do.
    """

    def __init__(
        self,
        parts: tuple[Part, ...],
        layout: Layout,
        *,
        device: torch.device | str | None = None,
    ) -> None:
        if not parts:
            raise InvalidInput("an ensemble needs at least one member", code="empty")
        wanted = parts[0].members.device if device is None else device
        self.device = torch.empty(0, device=wanted).device  # "cuda" becomes "cuda:0"
        self._borrowed = False  # tensors of others, which may change
        self.parts = tuple(part.freeze(self.device) for part in parts)
        self.layout = layout
        self._check()
        self._width = max(len(block) for block in layout.blocks)
        places = layout.places(self._width)
        self._places = None if places is None else torch.as_tensor(places, device=self.device)
        used = (part.select_used() for part in self.parts)
        self.used = tuple(part.freeze(self.device) for part in used if part is not None)
        self._shares = [self._share(part) for part in self.used]

    def _check(self) -> None:
        total = np.zeros(len(self.layout))
        for part in self.parts:
            if not len(part.members) == len(part.blocks) == len(part.weights):
                raise InvalidInput(
                    f"a part has {len(part.members)} members, {len(part.blocks)} blocks and "
                    f"{len(part.weights)} weights; the three must be as many",
                    code="shape",
                )
            if np.any(part.weights < 0):
                raise InvalidInput(
                    f"weights must not be negative, got {part.weights.min()}", code="range"
                )
            self._check_sizes(part)
            np.add.at(total, part.blocks, part.weights)
        if not np.all(np.abs(total - 1) <= 1e-6):
            raise InvalidInput(
                f"the weights of each block must sum to one, got {total.tolist()}", code="range"
            )

    def _check_sizes(self, part: Part) -> None:
        if part.members.input_size != self.input_size:
            raise InvalidInput(
                f"all members must take the same inputs, got some with {self.input_size} and some "
                f"with {part.members.input_size} features",
                code="shape",
            )
        for number in np.unique(part.blocks):
            if not 0 <= number < len(self.layout):
                raise InvalidInput(
                    f"a member names block {number}, of {len(self.layout)} counted from 0",
                    code="range",
                )
            if part.members.output_size < len(self.layout.blocks[number]):
                raise InvalidInput(
                    f"members of block {number} have {part.members.output_size} outputs and must "
                    f"fill {len(self.layout.blocks[number])}",
                    code="shape",
                )

    @property
    def input_size(self) -> int:
        return self.parts[0].members.input_size

    @property
    def output_size(self) -> int:
        return self.layout.output_size

    @property
    def shield_digest(self) -> str | None:
        """What tells the shield apart that the mixture stands behind; None without one."""
        return None

    @property
    def differentiable(self) -> bool:
        return all(part.members.differentiable for part in self.used)

    def __len__(self) -> int:
        """How many members have positive weight."""
        return sum(len(part.weights) for part in self.used)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self)} members, {len(self.layout)} block(s), "
            f"{self.input_size} inputs, {self.output_size} outputs)"
        )

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) float64 -> (n, r) float64, with gradients where the members have them.

        Inputs on another device than the members' are moved there, and the outputs back.
        """
        if inputs.device != self.device:
            return self.outputs(inputs.to(self.device)).to(inputs.device)
        shared = zip(self.used, self._shares, strict=True)
        if len(self.layout) == 1:
            mixed = torch.stack([self._mix(part, share[0], inputs) for part, share in shared]).sum(
                0
            )
            return mixed if self._places is None else mixed.index_select(1, self._places)
        mixed = reduce(add, (self._mix_blocks(part, share, inputs) for part, share in shared))
        values = mixed.transpose(1, 2).flatten(0, 1)  # (blocks * width, n)
        return (values if self._places is None else values.index_select(0, self._places)).T

    def theta(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (n,): the weight of the anchor at each input, where members have shields."""
        if inputs.device != self.device:
            return self.theta(inputs.to(self.device)).to(inputs.device)
        total = torch.zeros(inputs.shape[0], dtype=torch.float64, device=self.device)
        for part, share in zip(self.used, self._shares, strict=True):
            total = total + share.sum(0) @ part.members.theta(inputs) / len(self.layout)
        return total

    def single(self) -> SingleMixture | None:
        """`outputs` and `theta` for one input by NumPy: see `Members.single`.

        None where some members have no such way, where they live on a GPU, and of mixtures whose
        tensors came by `with_tensors`: these may change.
        """
        if self._borrowed or self.device.type != "cpu":
            return None
        known = [part.members.single() for part in self.used]
        members = [one for one in known if one is not None]
        if len(members) < len(known):
            return None
        mix = self._mix_one() if len(self.layout) == 1 else self._mix_one_in_blocks()
        shares = [one.sum(0).numpy() / len(self.layout) for one in self._shares]

        def compute_outputs(x: Array) -> tuple[Array, float]:
            found = [one(x) for one in members]
            moved = [
                float(share.dot(theta))
                for share, (_, theta) in zip(shares, found, strict=True)
                if theta is not None
            ]
            return mix([outputs for outputs, _ in found]), sum(moved)

        return compute_outputs

    def _mix_one(self) -> Callable[[list[Array]], Array]:
        weights = [one[0].numpy() for one in self._shares]
        places = None if self._places is None else self._places.numpy()
        size = self.output_size

        def mix(found: list[Array]) -> Array:
            own = zip(weights, found, strict=True)
            mixed = reduce(add, (weight.dot(outputs[:, :size]) for weight, outputs in own))
            return np.asarray(mixed if places is None else mixed.take(places))

        return mix

    def _mix_one_in_blocks(self) -> Callable[[list[Array]], Array]:
        """The members of each block are added up as neighbours."""
        orders = [np.argsort(part.blocks, kind="stable") for part in self.used]
        sorted_parts = list(zip(self.used, orders, strict=True))
        weights = [part.weights[order, None] for part, order in sorted_parts]
        blocks = [np.unique(p.blocks[order], return_index=True) for p, order in sorted_parts]
        shape, places = (len(self.layout), self._width), self._places
        chosen = np.arange(shape[0] * shape[1]) if places is None else places.numpy()

        def mix(found: list[Array]) -> Array:
            mixed = np.zeros(shape)
            own = zip(found, orders, weights, blocks, strict=True)
            for outputs, order, weight, (block, start) in own:
                narrow = outputs[order, : shape[1]]
                mixed[block, : narrow.shape[1]] += np.add.reduceat(narrow * weight, start, axis=0)
            return mixed.ravel().take(chosen)

        return mix

    def _share(self, part: Part) -> Tensor:
        """The weight of each member in each block, (blocks, members)."""
        share = np.zeros((len(self.layout), len(part.weights)))
        share[part.blocks, np.arange(len(part.weights))] = part.weights
        return torch.as_tensor(share, device=self.device)

    def _mix(self, part: Part, weights: Tensor, inputs: Tensor) -> Tensor:
        return part.members.mixture(inputs, weights)[..., : self.output_size]

    def _mix_blocks(self, part: Part, share: Tensor, inputs: Tensor) -> Tensor:
        """The part's share in each block: (blocks, n, outputs of the widest block)."""
        own = part.members.mixtures(inputs, share)
        lacking = self._width - own.shape[-1]
        return functional.pad(own, (0, lacking)) if lacking > 0 else own[..., : self._width]

    def tensors(self) -> dict[str, Tensor]:
        """All tensors that outputs are computed from, by name, for `with_tensors`."""
        result = {} if self._places is None else {"places": self._places}
        for number, (part, share) in enumerate(zip(self.used, self._shares, strict=True)):
            result[f"shares.{number}"] = share
            for name, tensor in part.members.tensors().items():
                result[f"members.{number}.{name}"] = tensor
        return result

    def trained_names(self) -> frozenset[str]:
        """Those of `tensors` that training moves."""
        return frozenset(
            f"members.{number}.{name}"
            for number, part in enumerate(self.used)
            for name in part.members.trained_names()
        )

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same mixture, computed from other tensors of these names and shapes.

        `parts` stay as they are: they say what the mixture was made of.
        """
        made = copy.copy(self)
        made._borrowed = True
        made.used = tuple(
            replace(
                part,
                members=part.members.with_tensors(select_prefixed(tensors, f"members.{number}.")),
            )
            for number, part in enumerate(self.used)
        )
        made._shares = [tensors[f"shares.{number}"] for number in range(len(self.used))]
        made._places = tensors.get("places")
        made.device = made._shares[0].device
        return made

    def examine(self) -> None:
        """Check tensors that came by `with_tensors` from elsewhere, where that is needed."""
        for part in self.used:
            part.members.examine()

    def to(self, device: torch.device | str) -> Mixture:
        """The same mixture with its members on another device."""
        device = torch.empty(0, device=device).device
        if device == self.device:
            return self
        return Mixture(self.parts, self.layout, device=device)
