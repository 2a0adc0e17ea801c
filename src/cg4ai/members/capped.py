"""Members whose outputs are clamped to limits that depend on the input and keep shapes.

The larger and the smaller of two functions that rise both rise: what is monotone inside stays so
behind limits that are (`rules.caps`), and the rules over regions that they stand for hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.members.checks import check_inputs, read_state_array
from cg4ai.members.slopes import OPPOSITE, Moves
from cg4ai.members.structure import SetForm
from cg4ai.members.wrappers import Restored, WrappedArchitecture, WrappedMembers
from cg4ai.nn.capping import CapTensors
from cg4ai.nn.set_projection import clamp_inward
from cg4ai.protocols import Members, Parameters, Single
from cg4ai.records import Array, MemberState
from cg4ai.rules.caps import FIELDS, Caps
from cg4ai.rules.shapes import Shape


def _check(sizes: tuple[int, int], source: Caps) -> None:
    if sizes != (source.input_size, source.output_size):
        raise InvalidInput(
            f"limits are for {source.input_size} inputs and {source.output_size} outputs, the "
            f"members have {sizes[0]} and {sizes[1]}",
            code="shape",
        )


class CappedMembers(WrappedMembers[CapTensors]):
    """The members of `inner`, whose outputs are clamped to limits."""

    kind = "capped"
    part = "caps"

    def __init__(self, inner: Members, source: Caps) -> None:
        _check((inner.input_size, inner.output_size), source)
        like = torch.empty(0, dtype=torch.float64, device=inner.device)
        super().__init__(inner, CapTensors.of(source, like))

    @property
    def caps(self) -> Caps:
        return self.layer.source

    def wrap(self, inner: Members) -> Self:
        return type(self)(inner, self.layer.source)

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (len(self), n, output_size)."""
        x = check_inputs(inputs, self.input_size, self.device)
        return self.layer.cap_outputs(x, self.inner.outputs(x))

    def single(self) -> Single | None:
        inner, layer = self.inner.single(), self.layer
        if inner is None:
            return None

        def answer(x: Array) -> tuple[Array, None]:
            outputs = torch.from_numpy(inner(x)[0]).unsqueeze(1)
            return layer.cap_outputs(torch.from_numpy(x[None]), outputs)[:, 0].numpy(), None

        return answer

    def gives_shares(self) -> bool:
        return self.caps.share is not None and self.inner.gives_shares()

    def find_set_forms(self, matrix: Array) -> Sequence[SetForm]:
        """Of probabilities, which stay such."""
        return () if self.caps.share is None else self.inner.find_set_forms(matrix)

    def find_moves(self, shape: Shape) -> Sequence[Moves]:
        found, own = self.inner.find_moves(shape), self.caps
        if shape.logits or shape.ordered:
            return ()
        if own.share is None:
            asked = np.flatnonzero(shape.functionals(self.output_size).any(axis=0))
            wide = (np.broadcast_to(one, (len(asked), *one.shape[1:])) for one in found)
            return [own.add_moves(one, asked) for one in wide]
        clamped = own.add_moves(np.zeros((1, own.input_size, 4), bool), [own.share])
        if shape.output != own.share:
            if self.output_size > 2:
                return ()
            clamped = clamped[..., OPPOSITE]
        return [one | clamped for one in found]

    @classmethod
    def restore(cls, state: MemberState, restored: Restored, factories: Mapping[str, Any]) -> Self:
        """Members from a saved state; `restored` makes the members inside."""
        inner, layer = cls._stored(state, restored)
        size, share = layer.config.get("outputs"), layer.config.get("share")
        if type(size) is not int or not (share is None or type(share) is int):
            raise InvalidInput(
                f"capped members need outputs and share, got {layer.config!r:.80}", code="bad-file"
            )
        numbers = {name: read_state_array(layer, name) for name in FIELDS}
        places = {name: read_state_array(layer, name) for name in ("output", "side")}
        return cls(inner, Caps(**places, **numbers, output_size=size, share=share))


@dataclass(frozen=True, eq=False)
class CappedArchitecture(WrappedArchitecture[Caps]):
    """An architecture whose members are capped: gradients reach the parameters through it."""

    makes = CappedMembers
    layered = staticmethod(CapTensors.of)

    def __post_init__(self) -> None:
        _check((self.inner.input_size, self.inner.output_size), self.source)

    @property
    def softmax_groups(self) -> tuple[int, ...]:
        return self.inner.softmax_groups

    def initialise_near(self, parameters: Parameters, slopes: Array, offsets: Array) -> Parameters:
        """As of the architecture inside."""
        return self.inner.initialise_near(parameters, slopes, offsets)

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(n, d), or (count, n, d) with inputs of each member's own -> (count, n, output_size)."""
        outputs = self.inner.forward(parameters, inputs)
        layer: CapTensors = self._layer(outputs)
        if inputs.ndim == 2:
            return layer.cap_outputs(inputs, outputs, clamp_inward)
        each = zip(inputs, outputs, strict=True)
        return torch.stack([layer.cap_outputs(x, y, clamp_inward) for x, y in each])
