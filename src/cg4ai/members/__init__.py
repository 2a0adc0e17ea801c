"""Members: stacks of trained models of one kind, what columns of the master are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.members.boosted import from_lightgbm, from_xgboost
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.conversion import from_sklearn
from cg4ai.members.equalities import CompletedArchitecture, CompletedMembers
from cg4ai.members.feedback import FeedbackArchitecture, FeedbackMembers, Loads
from cg4ai.members.flows import FlowMembers
from cg4ai.members.fusion import fuse
from cg4ai.members.modules import ModuleArchitecture, ModuleMembers
from cg4ai.members.nested_classes import NestedMembers
from cg4ai.members.networks import NetworkArchitecture, NetworkMembers, affine
from cg4ai.members.output_sets import ArrangedArchitecture, ArrangedMembers
from cg4ai.members.shielded import Shield, ShieldedArchitecture, ShieldedMembers
from cg4ai.members.side_by_side import SideBySideArchitecture, SideBySideMembers
from cg4ai.members.trees import TreeMembers
from cg4ai.members.wrappers import WrappedMembers
from cg4ai.protocols import Members
from cg4ai.records import MemberState

__all__ = [
    "ArrangedArchitecture",
    "ArrangedMembers",
    "CompletedArchitecture",
    "CompletedMembers",
    "ConstantMembers",
    "FeedbackArchitecture",
    "FeedbackMembers",
    "FlowMembers",
    "Loads",
    "ModuleArchitecture",
    "ModuleMembers",
    "NestedMembers",
    "NetworkArchitecture",
    "NetworkMembers",
    "Shield",
    "ShieldedArchitecture",
    "ShieldedMembers",
    "SideBySideArchitecture",
    "SideBySideMembers",
    "TreeMembers",
    "affine",
    "concatenate",
    "from_lightgbm",
    "from_sklearn",
    "from_xgboost",
    "fuse",
    "restore",
]


class _Stack(Members, Protocol):
    """What the members of this package offer beyond the interface."""

    @property
    def kind(self) -> str: ...

    def compatible(self, other: Self) -> bool: ...

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self: ...


_KINDS: tuple[type[_Stack], ...] = (
    NetworkMembers,
    FeedbackMembers,
    SideBySideMembers,
    ModuleMembers,
    TreeMembers,
    ConstantMembers,
    FlowMembers,
)


_WRAPPERS: tuple[type[WrappedMembers[Any]], ...] = (
    ShieldedMembers,
    CompletedMembers,
    ArrangedMembers,
    NestedMembers,
)


def restore(state: MemberState, factories: Mapping[str, Any] | None = None) -> Members:
    """Members from what `members.state()` gave: bit-identical outputs.

    A user's own modules need their factory again, `factories={name: factory}`, and shields of
    rules that are functions in Python their requirement, `{name: requirement}`.
    """
    if state.kind == ModuleMembers.kind:
        return ModuleMembers.restore(state, factories or {})
    for wrapper in _WRAPPERS:
        if state.kind == str(wrapper.kind):
            return wrapper.restore(state, lambda inner: restore(inner, factories), factories or {})
    for kind in (
        NetworkMembers,
        FeedbackMembers,
        SideBySideMembers,
        TreeMembers,
        ConstantMembers,
        FlowMembers,
    ):
        if state.kind == kind.kind:
            return kind.restore(state)
    known = [*(str(kind.kind) for kind in _KINDS), *(str(kind.kind) for kind in _WRAPPERS)]
    raise InvalidInput(
        f"unknown kind of members {state.kind!r}{did_you_mean(str(state.kind), known)}; "
        f"this version reads {', '.join(known)}"
    )


def concatenate(parts: Sequence[Members]) -> Members | None:
    """One stack of several, in order, or None where they cannot be one.

    They can where all are of one kind, architecture and device; trees may differ in size.
    Members of a class that this package does not know stay as they are.
    """
    if not parts:
        raise InvalidInput("concatenate needs at least one stack of members")
    for wrapper in _WRAPPERS:
        around = [part for part in parts if isinstance(part, wrapper)]
        if len(around) == len(parts) and all(around[0].compatible(part) for part in around[1:]):
            inner = concatenate([part.inner for part in around])
            return None if inner is None else around[0].around(inner)
    for kind in _KINDS:
        own = [part for part in parts if isinstance(part, kind)]
        if len(own) == len(parts) and all(own[0].compatible(part) for part in own[1:]):
            return kind.concatenate(own)
    return None
