"""Members: stacks of trained models of one kind, what columns of the master are made from."""

from __future__ import annotations

from cg4ai.members.boosted import from_lightgbm, from_xgboost
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.conversion import from_sklearn
from cg4ai.members.equalities import CompletedArchitecture, CompletedMembers
from cg4ai.members.feedback import FeedbackArchitecture, FeedbackMembers, Loads
from cg4ai.members.flows import FlowMembers
from cg4ai.members.fusion import fuse
from cg4ai.members.kinds import concatenate, restore
from cg4ai.members.modules import ModuleArchitecture, ModuleMembers
from cg4ai.members.nested_classes import NestedMembers
from cg4ai.members.networks import NetworkArchitecture, NetworkMembers, affine
from cg4ai.members.output_sets import ArrangedArchitecture, ArrangedMembers
from cg4ai.members.shielded import Shield, ShieldedArchitecture, ShieldedMembers
from cg4ai.members.side_by_side import SideBySideArchitecture, SideBySideMembers
from cg4ai.members.trees import TreeMembers
from cg4ai.protocols import ArchitectureDefaults, MemberDefaults, Members
from cg4ai.records import MemberState

__all__ = [
    "ArchitectureDefaults",
    "ArrangedArchitecture",
    "ArrangedMembers",
    "CompletedArchitecture",
    "CompletedMembers",
    "ConstantMembers",
    "FeedbackArchitecture",
    "FeedbackMembers",
    "FlowMembers",
    "Loads",
    "MemberDefaults",
    "MemberState",
    "Members",
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
