"""All kinds of members: how a stack is made again from its state, and several become one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cg4ai.errors import InvalidInput, MissingFactory, did_you_mean
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.equalities import CompletedMembers
from cg4ai.members.feedback import FeedbackMembers
from cg4ai.members.flows import FlowMembers
from cg4ai.members.modules import ModuleMembers
from cg4ai.members.nested_classes import NestedMembers
from cg4ai.members.networks import NetworkMembers
from cg4ai.members.output_sets import ArrangedMembers
from cg4ai.members.shielded import ShieldedMembers
from cg4ai.members.side_by_side import SideBySideMembers
from cg4ai.members.trees import TreeMembers
from cg4ai.members.wrappers import WrappedMembers, can_join
from cg4ai.protocols import Members
from cg4ai.records import MemberState

# how members are made again from their state, by kind; modules need their factory as well
_RESTORED: dict[str, Callable[[MemberState], Members]] = {
    NetworkMembers.kind: NetworkMembers.restore,
    FeedbackMembers.kind: FeedbackMembers.restore,
    SideBySideMembers.kind: SideBySideMembers.restore,
    TreeMembers.kind: TreeMembers.restore,
    ConstantMembers.kind: ConstantMembers.restore,
    FlowMembers.kind: FlowMembers.restore,
}
_WRAPPERS: dict[str, type[WrappedMembers[Any]]] = {
    kind.kind: kind for kind in (ShieldedMembers, CompletedMembers, ArrangedMembers, NestedMembers)
}


def restore(state: MemberState, factories: Mapping[str, Any] | None = None) -> Members:
    """Members from what `members.state()` gave: bit-identical outputs.

    A user's own modules need their factory again, `factories={name: factory}`, shields of rules
    that are functions in Python their requirement, `{name: requirement}`, and members of a kind of
    one's own what restores them, `{kind: restore}`, `restore(state) -> Members`.
    """
    given, kind = factories or {}, str(state.kind)
    if kind == ModuleMembers.kind:
        return ModuleMembers.restore(state, given)
    if kind in _WRAPPERS:
        return _WRAPPERS[kind].restore(state, lambda inner: restore(inner, given), given)
    if kind in _RESTORED:
        return _RESTORED[kind](state)
    if kind in given:
        own: Members = given[kind](state)
        return own
    known = [*_RESTORED, ModuleMembers.kind, *_WRAPPERS]
    raise MissingFactory(
        f"unknown kind of members {kind!r}{did_you_mean(kind, known)}; this version reads "
        f"{', '.join(known)}; for a kind of your own give factories={{{kind!r}: restore}}",
        code="unknown-name",
    )


def concatenate(parts: Sequence[Members]) -> Members | None:
    """One stack of several, in order, or None where they cannot be one.

    They can where all are of one kind, architecture and device; trees may differ in size.
    """
    if not parts:
        raise InvalidInput("concatenate needs at least one stack of members", code="empty")
    return type(parts[0]).concatenate(parts) if can_join(parts) else None
