"""Members: stacks of trained models of one kind, what columns of the master are made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cg4ai.exports import lazy_exports

if TYPE_CHECKING:
    from cg4ai.ensemble.export import ErfcSeries, erfc_series
    from cg4ai.members.boosted import from_lightgbm, from_xgboost
    from cg4ai.members.capped import CappedArchitecture, CappedMembers
    from cg4ai.members.constants import ConstantMembers
    from cg4ai.members.conversion import from_sklearn
    from cg4ai.members.equalities import CompletedArchitecture, CompletedMembers
    from cg4ai.members.feedback import FeedbackArchitecture, FeedbackMembers, Loads
    from cg4ai.members.flows import FlowMembers
    from cg4ai.members.fusion import fuse
    from cg4ai.members.kinds import concatenate, restore
    from cg4ai.members.mixture import Mixture, Part
    from cg4ai.members.modules import ModuleArchitecture, ModuleMembers
    from cg4ai.members.nested_classes import NestedMembers
    from cg4ai.members.networks import NetworkArchitecture, NetworkMembers, affine
    from cg4ai.members.output_sets import ArrangedArchitecture, ArrangedMembers
    from cg4ai.members.reconciled import ReconciledArchitecture, ReconciledMembers
    from cg4ai.members.shielded import Shield, ShieldedArchitecture, ShieldedMembers
    from cg4ai.members.side_by_side import InputMask, SideBySideArchitecture, SideBySideMembers
    from cg4ai.members.trees import TreeMembers
    from cg4ai.protocols import (
        Architecture,
        ArchitectureDefaults,
        MemberDefaults,
        Members,
        Parameters,
    )
    from cg4ai.records import MemberState
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "cg4ai.ensemble.export": ["ErfcSeries", "erfc_series"],
            "cg4ai.members.boosted": ["from_lightgbm", "from_xgboost"],
            "cg4ai.members.capped": ["CappedArchitecture", "CappedMembers"],
            "cg4ai.members.constants": ["ConstantMembers"],
            "cg4ai.members.conversion": ["from_sklearn"],
            "cg4ai.members.equalities": ["CompletedArchitecture", "CompletedMembers"],
            "cg4ai.members.feedback": ["FeedbackArchitecture", "FeedbackMembers", "Loads"],
            "cg4ai.members.flows": ["FlowMembers"],
            "cg4ai.members.fusion": ["fuse"],
            "cg4ai.members.kinds": ["concatenate", "restore"],
            "cg4ai.members.mixture": ["Mixture", "Part"],
            "cg4ai.members.modules": ["ModuleArchitecture", "ModuleMembers"],
            "cg4ai.members.nested_classes": ["NestedMembers"],
            "cg4ai.members.networks": ["NetworkArchitecture", "NetworkMembers", "affine"],
            "cg4ai.members.output_sets": ["ArrangedArchitecture", "ArrangedMembers"],
            "cg4ai.members.reconciled": ["ReconciledArchitecture", "ReconciledMembers"],
            "cg4ai.members.shielded": ["Shield", "ShieldedArchitecture", "ShieldedMembers"],
            "cg4ai.members.side_by_side": [
                "SideBySideArchitecture",
                "SideBySideMembers",
                "InputMask",
            ],
            "cg4ai.members.trees": ["TreeMembers"],
            "cg4ai.protocols": [
                "Architecture",
                "ArchitectureDefaults",
                "MemberDefaults",
                "Members",
                "Parameters",
            ],
            "cg4ai.records": ["MemberState"],
        },
    )

__all__ = [
    "Architecture",
    "ArchitectureDefaults",
    "ArrangedArchitecture",
    "ArrangedMembers",
    "CappedArchitecture",
    "CappedMembers",
    "CompletedArchitecture",
    "CompletedMembers",
    "ConstantMembers",
    "ErfcSeries",
    "FeedbackArchitecture",
    "FeedbackMembers",
    "FlowMembers",
    "InputMask",
    "Loads",
    "MemberDefaults",
    "MemberState",
    "Members",
    "Mixture",
    "ModuleArchitecture",
    "ModuleMembers",
    "NestedMembers",
    "NetworkArchitecture",
    "NetworkMembers",
    "Parameters",
    "Part",
    "ReconciledArchitecture",
    "ReconciledMembers",
    "Shield",
    "ShieldedArchitecture",
    "ShieldedMembers",
    "SideBySideArchitecture",
    "SideBySideMembers",
    "TreeMembers",
    "affine",
    "concatenate",
    "erfc_series",
    "from_lightgbm",
    "from_sklearn",
    "from_xgboost",
    "fuse",
    "restore",
]
