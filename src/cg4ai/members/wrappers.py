"""Members and architectures around others of any kind: what completions and shields share.

A layer stands between the members inside and the outputs; layers of one digest do the same.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.members.structure import Ends
from cg4ai.protocols import (
    Architecture,
    ArchitectureDefaults,
    MemberDefaults,
    Members,
    Parameters,
)
from cg4ai.records import IntArray, MemberState, select_prefixed
from cg4ai.runs import files

Restored = Callable[[MemberState], Members]


class HasDigest(Protocol):
    """Something that a digest tells apart."""

    @property
    def digest(self) -> str: ...


class Layer(HasDigest, Protocol):
    """What is put around members, on their device."""

    def tensors(self) -> dict[str, Tensor]: ...

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self: ...

    def state(self) -> MemberState: ...


LayerT = TypeVar("LayerT", bound=Layer)
SourceT = TypeVar("SourceT", bound=HasDigest)


class WrappedMembers(MemberDefaults, ABC, Generic[LayerT]):
    """The members of `inner` with a layer around, which is called `part` in files."""

    kind: ClassVar[str]
    part: ClassVar[str]
    blind: ClassVar[bool] = False  # whether the layer looks at outputs alone

    def __init__(self, inner: Members, layer: LayerT) -> None:
        self.inner, self.layer = inner, layer

    @property
    def device(self) -> torch.device:
        return self.inner.device

    @property
    def takes_missing(self) -> bool:
        """Whether inputs may be NaN: where the layer looks at none, as those inside can."""
        return self.blind and self.inner.takes_missing

    @property
    def input_size(self) -> int:
        return self.inner.input_size

    @property
    def output_size(self) -> int:
        return self.inner.output_size

    @property
    def differentiable(self) -> bool:
        return self.inner.differentiable

    def __len__(self) -> int:
        return len(self.inner)

    @abstractmethod
    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (len(self), n, output_size)."""

    @abstractmethod
    def wrap(self, inner: Members) -> Self:
        """Other members behind the same layer."""

    def take(self, indices: IntArray) -> Self:
        return self.wrap(self.inner.take(indices))

    def to(self, device: torch.device | str) -> Self:
        return self.wrap(self.inner.to(device))

    def compatible(self, other: Self) -> bool:
        """Whether both can be one stack."""
        alike = self.layer is other.layer or self.layer.digest == other.layer.digest
        return alike and can_join([self.inner, other.inner])

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """One stack of several that are compatible."""
        inner = [part.inner for part in parts]
        return parts[0].wrap(type(inner[0]).concatenate(inner))

    def innermost(self) -> Members:
        return self.inner.innermost()

    def factories(self) -> Mapping[str, Any]:
        return self.inner.factories()

    def find_usual_inputs(self) -> Ends | None:
        return self.inner.find_usual_inputs()

    def trained_names(self) -> frozenset[str]:
        """Those of `tensors` that training moves."""
        return frozenset(f"inner.{name}" for name in self.inner.trained_names())

    def tensors(self) -> dict[str, Tensor]:
        """What outputs are computed from."""
        own = self.inner.tensors()
        return _joined({"inner": own, self.part: self.layer.tensors()})

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same members with other tensors of these names, which are not looked at."""
        made = copy.copy(self)
        made.inner = self.inner.with_tensors(select_prefixed(tensors, "inner."))
        made.layer = self.layer.with_tensors(select_prefixed(tensors, f"{self.part}."))
        return made

    def state(self) -> MemberState:
        inner, layer = self.inner.state(), self.layer.state()
        config = {"inner": files.member_record(inner), self.part: layer.config}
        return MemberState(
            self.kind, config, _joined({"inner": inner.arrays, self.part: layer.arrays})
        )

    @classmethod
    @abstractmethod
    def restore(cls, state: MemberState, restored: Restored, factories: Mapping[str, Any]) -> Self:
        """Members from a saved state; `restored` makes the members inside."""

    @classmethod
    def _stored(cls, state: MemberState, restored: Restored) -> tuple[Members, MemberState]:
        """The members inside, which `restored` makes, and the state of the layer."""
        inner = files.member_state(
            state.config.get("inner"), select_prefixed(state.arrays, "inner.")
        )
        config = state.config.get(cls.part)
        if not isinstance(config, dict):
            raise InvalidInput(
                f"{cls.kind} members need a {cls.part}, got {config!r:.80}", code="bad-file"
            )
        layer = MemberState(cls.part, config, select_prefixed(state.arrays, f"{cls.part}."))
        return restored(inner), layer


@dataclass(frozen=True, eq=False)
class WrappedArchitecture(ArchitectureDefaults, Generic[SourceT]):
    """An architecture whose members, of the class `makes`, have `source` around them."""

    inner: Architecture
    source: SourceT

    makes: ClassVar[type[Any]]  # of WrappedMembers
    layered: ClassVar[Any]  # (source, tensor) -> the source as a layer like that tensor
    _layers: dict[tuple[torch.dtype, torch.device], Any] = field(
        init=False, repr=False, default_factory=dict
    )

    def _layer(self, like: Tensor) -> Any:
        """The layer in the dtype and on the device of a tensor, made once for each."""
        key = (like.dtype, like.device)
        if key not in self._layers:
            with torch.inference_mode(False):
                self._layers[key] = type(self).layered(self.source, like)
        return self._layers[key]

    @property
    def input_size(self) -> int:
        return self.inner.input_size

    @property
    def output_size(self) -> int:
        return self.inner.output_size

    def scale_outputs(self, parameters: Parameters, factors: Tensor) -> Parameters:
        """Of the members inside: what the layer decides stays as it is."""
        return self.inner.scale_outputs(parameters, factors)

    def factories(self) -> Mapping[str, Any]:
        return self.inner.factories()

    def initialise(self, count: int, generator: torch.Generator) -> Parameters:
        return self.inner.initialise(count, generator)

    def members(self, parameters: Parameters) -> Any:
        return self.makes(self.inner.members(parameters), self.source)

    def parameters(self, members: Members) -> Parameters | None:
        """Those of members of this architecture, with such a layer or none."""
        if isinstance(members, self.makes):
            if members.layer.digest != self.source.digest:
                return None
            return self.inner.parameters(members.inner)
        return self.inner.parameters(members)


def can_join(parts: Sequence[Members]) -> bool:
    """Whether these stacks can be one: all of one kind, architecture, layer and device."""
    first = parts[0]
    return all(type(one) is type(first) and first.compatible(one) for one in parts[1:])


def _joined(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Names with the name of their part before them."""
    return {f"{part}.{name}": value for part, own in parts.items() for name, value in own.items()}
