"""All kinds of members: how a stack is made again from its state, and several become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from cg4ai.errors import InvalidInput, MissingFactory, did_you_mean
from cg4ai.members.wrappers import can_join
from cg4ai.protocols import Members
from cg4ai.records import MemberState


class Home(NamedTuple):
    """Where the class of a kind is; it is imported when such members are restored."""

    module: str
    name: str

    def load(self) -> Any:
        return vars(import_module(f"cg4ai.members.{self.module}"))[self.name]


# how members are made again from their state, by kind: from that alone, ...
STACKS = {
    "network": Home("networks", "NetworkMembers"),
    "feedback": Home("feedback", "FeedbackMembers"),
    "side by side": Home("side_by_side", "SideBySideMembers"),
    "tree": Home("trees", "TreeMembers"),
    "constant": Home("constants", "ConstantMembers"),
    "flows": Home("flows", "FlowMembers"),
}
# ... with a factory of the user's, ...
MODULES = {"module": Home("modules", "ModuleMembers")}
# ... or from members inside, which are restored first
WRAPPERS = {
    "shielded": Home("shielded", "ShieldedMembers"),
    "completed": Home("equalities", "CompletedMembers"),
    "capped": Home("capped", "CappedMembers"),
    "reconciled": Home("reconciled", "ReconciledMembers"),
    "arranged": Home("output_sets", "ArrangedMembers"),
    "nested": Home("nested_classes", "NestedMembers"),
}


def restore(state: MemberState, factories: Mapping[str, Any] | None = None) -> Members:
    """Members from what `members.state()` gave: bit-identical outputs.

    A user's own modules need their factory again, `factories={name: factory}`, shields of rules
    that are functions in Python their requirement, `{name: requirement}`, and members of a kind of
    one's own what restores them, `{kind: restore}`, `restore(state) -> Members`.
    """
    given, kind = factories or {}, str(state.kind)
    made: Members
    if kind in STACKS:
        made = STACKS[kind].load().restore(state)
    elif kind in MODULES:
        made = MODULES[kind].load().restore(state, given)
    elif kind in WRAPPERS:
        made = WRAPPERS[kind].load().restore(state, lambda inner: restore(inner, given), given)
    elif kind in given:
        made = given[kind](state)
    else:
        raise _unknown_kind(kind)
    return made


def _unknown_kind(kind: str) -> MissingFactory:
    known = [*STACKS, *MODULES, *WRAPPERS]
    return MissingFactory(
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
