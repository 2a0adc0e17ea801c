"""Affine maps as members, and members that are affine as maps: anchors of shields are such."""

from __future__ import annotations

from cg4ai.anchors.affine_maps import AffineMap
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.networks import NetworkMembers, affine
from cg4ai.protocols import Members


def build_affine_member(source: AffineMap) -> Members:
    """One member that computes it."""
    if source.is_constant:
        return ConstantMembers(source.offsets[None], source.slopes.shape[1])
    return affine(source.slopes.T[None], source.offsets[None])


def find_affine_map(members: Members) -> AffineMap | None:
    """A single member as a map, where it is constant or affine."""
    if isinstance(members, ConstantMembers):
        return AffineMap.constant(members.values[0].cpu().numpy(), members.input_size)
    if isinstance(members, NetworkMembers):
        shape = members.architecture
        if not shape.hidden and shape.output == "linear" and shape.shift is None:
            slopes, offsets = (members.parameters[name][0] for name in ("weight_0", "bias_0"))
            return AffineMap(slopes.cpu().numpy(), offsets.cpu().numpy())
    return None
