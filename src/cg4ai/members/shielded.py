"""Members behind a shield: each output is moved just far enough towards an anchor to keep rules.

`S(f) = f + theta(x, f) (a(x) - f)` lies in the set C(x) of outputs that keep the rules, whatever f
is. C(x) is convex, so a mixture of shielded members keeps the rules as well, with any weights; and
training a `ShieldedArchitecture` is training through the shield.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.members.checks import checked_inputs, tensor_members
from cg4ai.protocols import Architecture, Members, Parameters
from cg4ai.records import Array, IntArray, MemberState, below
from cg4ai.rules.guards import Guard
from cg4ai.runs import files


@dataclass(frozen=True, eq=False)
class Shield:
    """An anchor, one member that keeps all rules in their regions, and the rules.

    Outputs that no rule reads stay as they are, and outputs that no chain of rules connects are
    moved independently. `coupled` are further sets of outputs that must be moved together, such as
    those of an equality, or probabilities.
    """

    anchor: Members
    guards: tuple[Guard, ...]
    coupled: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if len(self.anchor) != 1 or not self.guards:
            raise InvalidInput(
                f"a shield needs one anchor and one rule or more, got {len(self.anchor)} anchors "
                f"and {len(self.guards)} rules"
            )

    @cached_property
    def digest(self) -> str:
        """Equal for shields that do the same."""
        guards = [str(one.key) for one in self.guards]
        content = [files.member_digest(self.anchor.state()), guards, self.coupled]
        return hashlib.sha256(files.json_line(content)).hexdigest()

    def blend(self, inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """(n, d), (..., n, r) -> restored outputs (..., n, r) and theta (..., n)."""
        anchor = self.anchored(inputs, outputs)
        slacks = [one.rules.slack(inputs, outputs) for one in self.guards]
        return self._blended(inputs, outputs, anchor, slacks)

    def anchored(self, inputs: Tensor, like: Tensor) -> Tensor:
        """The anchor's outputs (n, r) in the precision of `like`."""
        values = self.anchor.outputs(inputs.to(torch.float64))[0]
        # networks lay outputs out by outputs: products with that order would copy it again
        return values[:, : like.shape[-1]].to(like.dtype).contiguous()

    def affine_anchor(self) -> tuple[Array, Array] | None:
        """Slopes (r, d) and offsets (r,) of the anchor; None if it is not affine."""
        size = self.anchor.input_size
        points = torch.cat([torch.zeros(1, size), torch.eye(size), torch.full((1, size), 2.0)])
        values = self.anchor.outputs(points.to(self.anchor.device, torch.float64))[0].cpu().numpy()
        offsets, slopes = values[0], (values[1:-1] - values[0]).T
        at_twos = slopes.sum(1) * 2 + offsets
        scale = 1 + np.abs(values).max()
        return (slopes, offsets) if np.abs(at_twos - values[-1]).max() < 1e-9 * scale else None

    def _blended(
        self, inputs: Tensor, outputs: Tensor, anchor: Tensor, slacks: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        pairs = zip(self.guards, slacks, strict=True)
        each = [one.shares(inputs, own, outputs, anchor) for one, own in pairs]
        needed = each[0] if len(each) == 1 else torch.cat(each, -1)
        parts = self._parts(outputs.device)
        if parts is None:
            theta = needed.amax(-1)
            share = theta.unsqueeze(-1)
        else:
            nothing = needed.new_zeros(*needed.shape[:-1], parts.count)
            place = parts.of_rule.expand(needed.shape)
            moved = nothing.scatter_reduce(-1, place, needed, "amax")
            theta, share = moved.amax(-1), moved.index_select(-1, parts.of_output)
        blended = torch.lerp(outputs, anchor.expand_as(outputs), share)
        if _inferring() and bool(blended.sum().isfinite()):
            return blended, theta  # exact at 0 and 1, and quicker than looking at each
        # at 1 the anchor itself: outputs may hold infinities or no numbers there
        blended = torch.where(share < 1, blended, anchor)
        return torch.where(share > 0, blended, outputs), theta

    @cached_property
    def components(self) -> IntArray:
        """(r,): which outputs are moved together; those that stay as they are form the last."""
        size = self.anchor.output_size
        reads = np.concatenate([one.touched(size) for one in self.guards])
        for group in self.coupled:
            reads = np.concatenate([reads, np.isin(np.arange(size), group)[None]])
        graph = sparse.csr_matrix(reads.astype(np.int64))
        _, labels = connected_components(graph.T @ graph, directed=False)
        read = reads[: len(reads) - len(self.coupled)].any(0)
        ruled = np.isin(labels, labels[read])
        _, numbers = np.unique(np.where(ruled, labels, size), return_inverse=True)
        return np.asarray(numbers.reshape(-1), np.int64)

    def _parts(self, device: torch.device) -> _Components | None:
        """The components as tensors; None if all outputs are moved together."""
        if device not in self._known:
            numbers, size = self.components, self.anchor.output_size
            made = None
            if numbers.any() or not self._reads.any():
                first = [int(np.argmax(row)) for one in self.guards for row in one.touched(size)]
                made = _Components(
                    int(numbers.max()) + 1,
                    torch.as_tensor(numbers[first], device=device),
                    torch.as_tensor(numbers, device=device),
                )
            self._known[device] = made
        return self._known[device]

    @cached_property
    def _reads(self) -> NDArray[np.bool_]:
        size = self.anchor.output_size
        return np.asarray(np.concatenate([one.touched(size) for one in self.guards]).any(0))

    @cached_property
    def _known(self) -> dict[torch.device, _Components | None]:
        return {}

    def restored(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """`blend` for predictions: where all rules are kept, as is usual, nothing else is done."""
        if torch.compiler.is_compiling():
            return self.blend(inputs, outputs)[0]
        slacks = [one.rules.slack(inputs, outputs) for one in self.guards]
        if all(bool(slack.amin() >= 0) for slack in slacks):
            return outputs
        # not a number keeps no rule
        kept = torch.stack([slack.amin(-1) >= 0 for slack in slacks]).all(0)
        rows = (~kept).reshape(-1, len(inputs)).any(0).nonzero()[:, 0]
        if 2 * len(rows) > len(inputs):  # copying so many would take longer than all of them
            return self._blended(inputs, outputs, self.anchored(inputs, outputs), slacks)[0]
        x, part = inputs[rows], outputs.index_select(-2, rows)
        own = [slack.index_select(-2, rows) for slack in slacks]
        found, _ = self._blended(x, part, self.anchored(x, part), own)
        return outputs.index_copy(outputs.ndim - 2, rows, found)

    def to(self, device: torch.device | str) -> Shield:
        if self.anchor.device == torch.empty(0, device=device).device:
            return self
        return Shield(self.anchor.to(device), self.guards, self.coupled)

    def tensors(self) -> dict[str, Tensor]:
        result = {
            f"anchor.{name}": value for name, value in tensor_members(self.anchor).tensors().items()
        }
        for number, one in enumerate(self.guards):
            if callable(getattr(one.rules, "tensors", None)):
                own = one.rules.tensors(self.anchor.device)
                result |= {f"guard.{number}.{name}": tensor for name, tensor in own.items()}
        return result

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Shield:
        anchor = tensor_members(self.anchor).with_tensors(below(tensors, "anchor."))
        guards = [
            replace(one, rules=one.rules.with_tensors(below(tensors, f"guard.{number}.")))
            if callable(getattr(one.rules, "with_tensors", None))
            else one
            for number, one in enumerate(self.guards)
        ]
        return Shield(anchor, tuple(guards), self.coupled)

    def state(self) -> MemberState:
        """Config and arrays, for `restore`; InvalidInput if a rule is a function in Python."""
        anchor = self.anchor.state()
        arrays: dict[str, NDArray[Any]] = {
            f"anchor.{name}": array for name, array in anchor.arrays.items()
        }
        guards = [one.record() for one in self.guards]
        for number, one in enumerate(self.guards):
            arrays |= {f"guard.{number}.{name}": array for name, array in one.arrays().items()}
        coupled = [list(group) for group in self.coupled]
        config = {"anchor": files.member_record(anchor), "guards": guards, "coupled": coupled}
        return MemberState("shield", config, arrays)

    @classmethod
    def restore(
        cls,
        state: MemberState,
        restored: Callable[[MemberState], Members],
        functions: Mapping[str, Any],
    ) -> Shield:
        """The shield that `state` described; `restored` makes the anchor from its own state.

        `functions` are requirements whose rules are functions in Python, by name.
        """
        described = files.member_state(state.config.get("anchor"), below(state.arrays, "anchor."))
        guards = state.config.get("guards")
        if not isinstance(guards, list):
            raise InvalidInput(f"the guards of a shield must be a list, got {guards!r:.80}")
        return cls(
            restored(described),
            tuple(
                Guard.restored(entry, below(state.arrays, f"guard.{number}."), functions)
                for number, entry in enumerate(guards)
            ),
            _coupled(state.config.get("coupled")),
        )


def _coupled(value: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, list) or not all(
        isinstance(group, list) and all(type(one) is int for one in group) for group in value
    ):
        raise InvalidInput(f"coupled must be lists of output numbers, got {value!r:.80}")
    return tuple(tuple(group) for group in value)


@dataclass(frozen=True)
class _Components:
    """How many there are, and of which each rule (L,) and each output (r,) is part."""

    count: int
    of_rule: Tensor
    of_output: Tensor


def _inferring() -> bool:
    return not torch.is_grad_enabled() and not torch.compiler.is_compiling()


class ShieldedMembers:
    """The members of `inner`, every output behind the same shield."""

    kind = "shielded"

    def __init__(self, inner: Members, shield: Shield) -> None:
        self.inner = inner
        self.shield = shield.to(inner.device)
        if inner.input_size != shield.anchor.input_size:
            raise InvalidInput(
                f"members take {inner.input_size} inputs and their anchor "
                f"{shield.anchor.input_size}; the two must agree"
            )
        if inner.output_size != shield.anchor.output_size:
            raise InvalidInput(
                f"members have {inner.output_size} outputs and their anchor "
                f"{shield.anchor.output_size}; the two must agree"
            )

    @property
    def device(self) -> torch.device:
        return self.inner.device

    @property
    def input_size(self) -> int:
        return self.inner.input_size

    @property
    def output_size(self) -> int:
        return self.inner.output_size

    @property
    def differentiable(self) -> bool:
        return self.inner.differentiable and self.shield.anchor.differentiable

    def __len__(self) -> int:
        return len(self.inner)

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (len(self), n, output_size)."""
        x = checked_inputs(inputs, self.input_size, self.device)
        return self.shield.restored(x, self.inner.outputs(x))

    def theta(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (len(self), n): how far each member is moved towards the anchor."""
        x = checked_inputs(inputs, self.input_size, self.device)
        return self.shield.blend(x, self.inner.outputs(x))[1]

    def take(self, indices: IntArray) -> Self:
        return type(self)(self.inner.take(indices), self.shield)

    def to(self, device: torch.device | str) -> Self:
        return type(self)(self.inner.to(device), self.shield)

    def around(self, inner: Members) -> Self:
        """Other members behind the same shield."""
        return type(self)(inner, self.shield)

    def compatible(self, other: Self) -> bool:
        """Whether both can be one stack, as far as their shields go."""
        return self.shield is other.shield or self.shield.digest == other.shield.digest

    def tensors(self) -> dict[str, Tensor]:
        """What outputs are computed from."""
        return {
            **{
                f"inner.{name}": value
                for name, value in tensor_members(self.inner).tensors().items()
            },
            **{f"shield.{name}": value for name, value in self.shield.tensors().items()},
        }

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same members with other tensors of these names, which are not looked at."""
        made = copy.copy(self)
        made.inner = tensor_members(self.inner).with_tensors(below(tensors, "inner."))
        made.shield = self.shield.with_tensors(below(tensors, "shield."))
        return made

    def state(self) -> MemberState:
        inner, shield = self.inner.state(), self.shield.state()
        config = {"inner": files.member_record(inner), "shield": shield.config}
        arrays = {f"inner.{name}": array for name, array in inner.arrays.items()}
        arrays |= {f"shield.{name}": array for name, array in shield.arrays.items()}
        return MemberState(self.kind, config, arrays)

    @classmethod
    def restore(
        cls,
        state: MemberState,
        restored: Callable[[MemberState], Members],
        factories: Mapping[str, Any],
    ) -> Self:
        """Members from a saved state; `restored` makes the members inside."""
        inner = files.member_state(state.config.get("inner"), below(state.arrays, "inner."))
        config = state.config.get("shield")
        if not isinstance(config, dict):
            raise InvalidInput(f"shielded members need a shield, got {config!r:.80}")
        shield = MemberState("shield", config, below(state.arrays, "shield."))
        return cls(restored(inner), Shield.restore(shield, restored, factories))


@dataclass(frozen=True, eq=False)
class ShieldedArchitecture:
    """An architecture whose members are shielded: gradients reach the parameters through it."""

    inner: Architecture
    shield: Shield

    @property
    def input_size(self) -> int:
        return self.inner.input_size

    @property
    def output_size(self) -> int:
        return self.inner.output_size

    @property
    def scale_outputs(self) -> Callable[[Parameters, Tensor], Parameters]:
        scale: Callable[[Parameters, Tensor], Parameters] = self.inner.scale_outputs  # type: ignore[attr-defined]
        return scale

    def initialise(self, count: int, generator: torch.Generator) -> Parameters:
        """Random, with outputs near the anchor where the architecture knows how and that is affine.

        From outside, only the direction from the anchor matters and gradients are small.
        """
        made = self.inner.initialise(count, generator)
        start = getattr(self.inner, "starting_at", None)
        known = None if start is None else self.shield.affine_anchor()
        if start is None or known is None:
            return made
        near: Parameters = start(made, *known)
        return near

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(n, d) -> (count, n, output_size), through the shield."""
        shield, outputs = self.shield.to(inputs.device), self.inner.forward(parameters, inputs)
        if inputs.device.type == "cpu":  # elsewhere looking at the slack would wait for it
            return shield.restored(inputs, outputs)
        return shield.blend(inputs, outputs)[0]

    def members(self, parameters: Parameters) -> ShieldedMembers:
        return ShieldedMembers(self.inner.members(parameters), self.shield)

    def parameters(self, members: Members) -> Parameters | None:
        """Those of members of this architecture, shielded like these or not at all."""
        if isinstance(members, ShieldedMembers):
            if members.shield.digest != self.shield.digest:
                return None
            members = members.inner
        return self.inner.parameters(members)
