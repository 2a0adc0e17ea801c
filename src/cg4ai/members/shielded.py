"""Members behind a shield: each output is moved just far enough towards an anchor to keep rules.

`S(f) = f + theta(x, f) (a(x) - f)` lies in the set C(x) of outputs that keep the rules, whatever f
is. C(x) is convex, so a mixture of shielded members keeps the rules as well, with any weights; and
training a `ShieldedArchitecture` is training through the shield.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from cg4ai.anchors.affine_maps import AffineMap
from cg4ai.errors import InvalidInput
from cg4ai.members.checks import check_inputs
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.structure import OutputForm, SetForm, cross_forms
from cg4ai.members.wrappers import Restored, WrappedArchitecture, WrappedMembers
from cg4ai.nn.blending import Blend, Coupled
from cg4ai.protocols import Members, Parameters, Single
from cg4ai.records import Array, MemberState, select_prefixed
from cg4ai.rules.guards import Guard, dump_guards, load_guards
from cg4ai.rules.output_sets import OutputSet
from cg4ai.runs import files

HOLD = 0.1  # of what the way from the anchor changes in the loss, per unit of log r
LARGEST_SHARE = 1 - 1e-6  # of the anchor that is still told from all of it in single precision


@dataclass(frozen=True, eq=False)
class Shield:
    """An anchor, one member that keeps all rules in their regions, and the rules.

    `coupled` are sets of outputs that must be moved together; see `Blend`.
    """

    anchor: Members
    guards: tuple[Guard, ...]
    coupled: Coupled = ()
    _elsewhere: dict[torch.device, Shield] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.anchor) != 1 or not self.guards:
            raise InvalidInput(
                f"a shield needs one anchor and one rule or more, got {len(self.anchor)} anchors "
                f"and {len(self.guards)} rules",
                code="shape",
            )

    @cached_property
    def digest(self) -> str:
        """Equal for shields that do the same."""
        guards = [str(one.key) for one in self.guards]
        content = [files.member_digest(self.anchor.state()), guards, self.coupled]
        return hashlib.sha256(files.json_line(content)).hexdigest()

    @cached_property
    def blending(self) -> Blend:
        """How outputs are moved."""
        return Blend(self.guards, self.anchor.output_size, self.coupled)

    def blend(self, inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """(n, d), (..., n, r) -> restored outputs (..., n, r) and theta (..., n)."""
        return self.blending.blend_outputs(inputs, outputs, self._anchored(outputs)(inputs))

    def blend_from_anchor(self, inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The outputs and theta of `blend`, and the anchor's outputs (n, r)."""
        anchor = self._anchored(outputs)(inputs)
        return *self.blending.blend_outputs(inputs, outputs, anchor), anchor

    def repair_outputs(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """The outputs of `blend`, sooner where most keep all rules."""
        return self.blending.repair_outputs(inputs, outputs, self._anchored(outputs))

    def _anchored(self, like: Tensor) -> Callable[[Tensor], Tensor]:
        """The anchor's outputs (n, r) at inputs (n, d), in the precision of `like`."""

        def compute_anchor(inputs: Tensor) -> Tensor:
            values = self.anchor.outputs(inputs.to(torch.float64))[0]
            # networks lay outputs out by outputs: products with that order would copy it again
            return values[:, : like.shape[-1]].to(like.dtype).contiguous()

        return compute_anchor

    def affine_anchor(self) -> tuple[Array, Array] | None:
        """Slopes (r, d) and offsets (r,) of the anchor; None if it is not affine."""
        size = self.anchor.input_size
        if isinstance(self.anchor, ConstantMembers):
            known = AffineMap.constant(self.anchor.values[0].cpu().numpy(), size)
            return known.slopes, known.offsets
        points = torch.cat([torch.zeros(1, size), torch.eye(size), torch.full((1, size), 2.0)])
        values = self.anchor.outputs(points.to(self.anchor.device, torch.float64))[0].cpu().numpy()
        offsets, slopes = values[0], (values[1:-1] - values[0]).T
        at_twos = slopes.sum(1) * 2 + offsets
        scale = 1 + np.abs(values).max()
        return (slopes, offsets) if np.abs(at_twos - values[-1]).max() < 1e-9 * scale else None

    def to(self, device: torch.device | str) -> Shield:
        """The same there; made once, for training asks at every step."""
        place = torch.empty(0, device=device).device
        if self.anchor.device == place:
            return self
        if place not in self._elsewhere:
            self._elsewhere[place] = Shield(self.anchor.to(place), self.guards, self.coupled)
        return self._elsewhere[place]

    def tensors(self) -> dict[str, Tensor]:
        own = self.anchor.tensors()
        rules = self.blending.tensors(self.anchor.device)
        return {f"anchor.{name}": value for name, value in own.items()} | rules

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Shield:
        anchor = self.anchor.with_tensors(select_prefixed(tensors, "anchor."))
        return replace(self, anchor=anchor, guards=self.blending.with_tensors(tensors).guards)

    def state(self) -> MemberState:
        """Config and arrays, for `restore`; InvalidInput if a rule is a function in Python."""
        anchor = self.anchor.state()
        guards, arrays = dump_guards(self.guards)
        coupled = [list(group) for group in self.coupled]
        config = {"anchor": files.member_record(anchor), "guards": guards, "coupled": coupled}
        own = {f"anchor.{name}": array for name, array in anchor.arrays.items()}
        return MemberState("shield", config, own | arrays)

    @classmethod
    def restore(
        cls, state: MemberState, restored: Restored, functions: Mapping[str, Any]
    ) -> Shield:
        """The shield that `state` described; `restored` makes the anchor from its own state.

        `functions` are requirements whose rules are functions in Python, by name.
        """
        described = files.member_state(
            state.config.get("anchor"), select_prefixed(state.arrays, "anchor.")
        )
        guards = load_guards(state.config.get("guards"), state.arrays, functions)
        anchor = restored(described)
        coupled = _coupled(state.config.get("coupled"), anchor.output_size)
        return cls(anchor, guards, coupled)


def _coupled(value: Any, size: int) -> Coupled:
    if not isinstance(value, list) or not all(
        isinstance(group, list) and all(type(one) is int and 0 <= one < size for one in group)
        for group in value
    ):
        raise InvalidInput(
            f"coupled must be lists of output numbers below {size}, got {value!r:.80}", code="type"
        )
    return tuple(tuple(group) for group in value)


class ShieldedMembers(WrappedMembers[Shield]):
    """The members of `inner`, every output behind the same shield."""

    kind = "shielded"
    part = "shield"

    def __init__(self, inner: Members, shield: Shield) -> None:
        super().__init__(inner, shield.to(inner.device))
        sizes = [(one.input_size, one.output_size) for one in (inner, shield.anchor)]
        if sizes[0] != sizes[1]:
            raise InvalidInput(
                "members have {} inputs and {} outputs, their anchor {} and {}; the two must "
                "agree".format(*sizes[0], *sizes[1]),
                code="shape",
            )

    @property
    def shield(self) -> Shield:
        return self.layer

    @property
    def differentiable(self) -> bool:
        return super().differentiable and self.shield.anchor.differentiable

    def wrap(self, inner: Members) -> Self:
        return type(self)(inner, self.shield)

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (len(self), n, output_size)."""
        x = check_inputs(inputs, self.input_size, self.device)
        return self.shield.repair_outputs(x, self.inner.outputs(x))

    def theta(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (len(self), n): how far each member is moved towards the anchor."""
        x = check_inputs(inputs, self.input_size, self.device)
        return self.shield.blend(x, self.inner.outputs(x))[1]

    def single(self) -> Single | None:
        """None where the members, their anchor or a rule of the shield have no such way."""
        inner, anchor = self.inner.single(), self.shield.anchor.single()
        move = self.shield.blending.single()
        if inner is None or anchor is None or move is None:
            return None
        size = self.output_size
        return lambda x: move(x, inner(x)[0], lambda: anchor(x)[0][:, :size])

    @property
    def output_set(self) -> OutputSet | None:
        return self.inner.output_set

    def gives_shares(self) -> bool:
        return self.inner.gives_shares() and self.shield.anchor.gives_shares()

    def find_output_forms(self) -> Sequence[OutputForm]:
        own, anchors = (one.find_output_forms() for one in (self.inner, self.shield.anchor))
        crossed = cross_forms(own, anchors, self.shield.blending.components)
        return [*own, *anchors, *crossed] if own and anchors else ()

    def find_set_forms(self, matrix: Array) -> Sequence[SetForm]:
        """None where some row reads outputs that the shield moves by different shares."""
        own, anchors = (one.find_set_forms(matrix) for one in (self.inner, self.shield.anchor))
        components = self.shield.blending.components
        together = all(len(np.unique(components[row != 0])) <= 1 for row in matrix)
        return [*own, *anchors] if own and anchors and together else ()

    @classmethod
    def restore(cls, state: MemberState, restored: Restored, factories: Mapping[str, Any]) -> Self:
        """Members from a saved state; `restored` makes the members inside, and the anchor."""
        inner, layer = cls._stored(state, restored)
        return cls(inner, Shield.restore(layer, restored, factories))


@dataclass(frozen=True, eq=False)
class ShieldedArchitecture(WrappedArchitecture[Shield]):
    """An architecture whose members are shielded: gradients reach the parameters through it.

    `holds_length`: what lies beyond the rules is drawn back while it is trained, see `HeldLength`;
    for members whose outputs nothing else bounds.
    """

    holds_length: bool = field(default=False, kw_only=True)

    makes = ShieldedMembers

    def initialise(self, count: int, generator: torch.Generator) -> Parameters:
        """Random, but starting at the anchor where it is affine and the architecture knows how.

        From outside, only the direction from the anchor matters and gradients are small.
        """
        made = super().initialise(count, generator)
        known = self.source.affine_anchor()
        return made if known is None else self.inner.initialise_near(made, *known)

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(n, d) -> (count, n, output_size), through the shield."""
        shield, outputs = self.source.to(inputs.device), self.inner.forward(parameters, inputs)
        if self.holds_length and torch.is_grad_enabled():
            return _hold_length(*shield.blend_from_anchor(inputs, outputs))
        if inputs.device.type == "cpu":  # elsewhere looking at the slack would wait for it
            return shield.repair_outputs(inputs, outputs)
        return shield.blend(inputs, outputs)[0]


def _hold_length(moved: Tensor, theta: Tensor, anchor: Tensor) -> Tensor:
    beyond = -torch.log1p(-theta.clamp_max(LARGEST_SHARE))
    change = (moved - anchor).detach()
    held: Tensor = HeldLength.apply(moved, beyond, change)  # type: ignore[no-untyped-call]
    return held


class HeldLength(torch.autograd.Function):
    """Outputs `a + d / max(1, r)` as they are, with a gradient that holds the length of d.

    Where a rule is broken only the direction of d counts: steps across it make d longer and
    longer, and gradients shrink with its length. To the gradient of any loss this adds that of

        HOLD * (mean over inputs of |loss' . change|) * (mean over inputs of log r), r > 1,

    with change = d / max(1, r): the factor is what the way from the anchor changes in the loss, to
    first order, so that the weight has the loss's own unit, whatever the units of loss and outputs.
    Members that d / r gives as well lose nothing by it. The value of the loss stays what it is.
    """

    @staticmethod
    def forward(ctx: Any, moved: Tensor, beyond: Tensor, change: Tensor) -> Tensor:
        """Outputs (..., n, r), log r (..., n) and the change (..., n, r) -> the outputs."""
        ctx.save_for_backward(change)
        return moved.view_as(moved)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor, None]:
        (slope,), (change,) = slopes, ctx.saved_tensors
        size = (slope * change).sum(-1).abs().mean(-1, keepdim=True)
        return slope, (HOLD * size).expand(change.shape[:-1]), None
