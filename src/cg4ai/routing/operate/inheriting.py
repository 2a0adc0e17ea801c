"""Trained networks carried over to an instance with other demands, paths, links or demand set.

Failures and updates use it. What the new instance has, too, keeps its weights, found by name:
inputs by demand, outputs by path, loads by link. Where nothing has changed the network is the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cg4ai import Ensemble
from cg4ai.data import Array, IntArray
from cg4ai.members import (
    FeedbackArchitecture,
    FeedbackMembers,
    Members,
    NetworkArchitecture,
    Parameters,
    Part,
    ShieldedArchitecture,
    ShieldedMembers,
)
from cg4ai.routing.network.instance import Instance

NEW = -1  # in a mapping: not in the old instance
BLOCK = np.zeros(1, np.int64)


@dataclass(frozen=True, eq=False)
class InstanceMapping:
    """Positions in the old instance of what the new one has; NEW where the old one lacks it.

    `demands` (D,), `paths` (P,) and `arcs` (A,) of the new instance, `path_demand` (P,) its own.
    """

    demands: IntArray
    paths: IntArray
    arcs: IntArray
    path_demand: IntArray

    @classmethod
    def between(cls, old: Instance, new: Instance) -> InstanceMapping:
        return cls(
            find_positions(old.demand_names, new.demand_names),
            find_positions(old.paths, new.paths),
            find_positions(old.arcs, new.arcs),
            new.path_demand,
        )

    def carry_shares(self, splits: Array, lengths: Array) -> Array:
        """Old splits (n, P) as splits of the new instance, without training.

        Shares of paths that are left grow until they sum to one. A demand that has none of its
        paths left, or is new, takes its shortest path; `lengths` are those of the new paths.
        """
        shares = np.where(self.paths == NEW, 0.0, splits[:, self.paths])
        for demand in range(len(self.demands)):
            block = np.flatnonzero(self.path_demand == demand)
            total = shares[:, block].sum(axis=1, keepdims=True)
            shortest = np.arange(len(block)) == lengths[block].argmin()
            known = total > 0
            shares[:, block] = np.where(
                known, shares[:, block] / np.where(known, total, 1), shortest
            )
        return np.asarray(shares)

    def carry_vectors(self, vectors: Array, demands: int) -> Array:
        """Demand vectors (n, D) of the new instance as those of the old one, of `demands`."""
        known = self.demands != NEW
        old = np.zeros((len(vectors), demands))
        old[:, self.demands[known]] = vectors[:, known]
        return old


def find_positions(old: Sequence[Hashable], new: Sequence[Hashable]) -> IntArray:
    """Where in `old` each of `new` is; NEW where it is not."""
    known = {name: position for position, name in enumerate(old)}
    return np.array([known.get(name, NEW) for name in new], np.int64)


@dataclass(frozen=True, eq=False)
class InheritedMembers:
    """Networks that were carried over, one each, and their `weights` (k,), which sum to one."""

    members: list[Members]
    weights: Array

    def make_parts(self, device: str) -> tuple[Part, ...]:
        return tuple(
            Part(member.to(device), BLOCK, np.array([weight]))
            for member, weight in zip(self.members, self.weights, strict=True)
        )


def inherit_members(
    router: Ensemble, mapping: InstanceMapping, architecture: ShieldedArchitecture
) -> InheritedMembers:
    """Networks of `architecture`, that of the new instance, for each active one of the router.

    Other members than networks with feedback for all demands are passed over.
    """
    members: list[Members] = []
    weights: list[float] = []
    inner = architecture.inner
    for part in router.used:
        bare = part.members.inner if isinstance(part.members, ShieldedMembers) else part.members
        if not isinstance(bare, FeedbackMembers) or not isinstance(inner, FeedbackArchitecture):
            continue
        carried = carry_parameters(bare, mapping, inner)
        if {name: value.shape[1:] for name, value in carried.items()} != inner.shapes():
            continue
        for number in np.flatnonzero(part.weights):
            own = {name: value[number, None] for name, value in carried.items()}
            members.append(architecture.members(own))
            weights.append(float(part.weights[number]))
    shares = np.array(weights)
    return InheritedMembers(members, shares / shares.sum() if len(shares) else shares)


def carry_parameters(
    members: FeedbackMembers, mapping: InstanceMapping, architecture: FeedbackArchitecture
) -> Parameters:
    """The parameters (count, ...) of the same networks in an architecture of the new instance.

    Nothing where feedback is of another kind.

    A demand that is gone counts as zero, a new one changes nothing at first, and a new path of a
    known demand starts as the mean of those that are left. Scores of new demands start at zero.
    """
    if members.architecture.gains != architecture.gains:
        return {}
    old, new = members.architecture.network, architecture.network
    last = f"weight_{old.depth}", f"bias_{old.depth}"
    own = {name: value.cpu() for name, value in members.parameters.items()}
    if new.skip and not old.skip:
        count = len(own["weight_0"])
        own["skip"] = torch.zeros(count, old.output_size, old.input_size)
    own["weight_0"], own["bias_0"] = _carry_inputs(
        own["weight_0"], own["bias_0"], mapping, old, new
    )
    if "skip" in own:
        own["skip"], own[last[1]] = _carry_inputs(own["skip"], own[last[1]], mapping, old, new)
    for name in (*last, "skip"):
        if name in own:
            own[name] = _carry_paths(own[name], mapping)
    new_paths = np.flatnonzero(mapping.paths == NEW)
    for stage in range(members.architecture.stages):
        name = f"{architecture.feedback}_{stage}"
        links = own[name] if architecture.gains else _pick(own[name], mapping.arcs, axis=2)
        own[name] = _carry_paths(links, mapping)
        if architecture.first is not None and len(new_paths):
            first = torch.as_tensor(architecture.first[new_paths], dtype=own[name].dtype)
            own[name][:, torch.as_tensor(new_paths)] += first
    return own


def _carry_inputs(
    weight: Tensor,
    bias: Tensor,
    mapping: InstanceMapping,
    old: NetworkArchitecture,
    new: NetworkArchitecture,
) -> tuple[Tensor, Tensor]:
    """Weights (count, k, D) and biases (count, k) of a layer that reads demands.

    Inputs are normalised by the middle and the width of the set, which may have changed.
    """
    (before, width), (after, span) = _units(old), _units(new)
    same = np.array_equal(mapping.demands, np.arange(old.input_size))
    if same and torch.equal(before, after) and torch.equal(width, span):
        return weight, bias
    slopes = weight.double() / width  # per unit of each demand
    at_zero = bias.double() - slopes @ before
    kept = _pick(slopes, mapping.demands, axis=2)
    return (kept * span).to(weight.dtype), (at_zero + kept @ after).to(bias.dtype)


def _units(network: NetworkArchitecture) -> tuple[Tensor, Tensor]:
    """What is subtracted from inputs (D,), and by what they are divided (D,)."""
    shift = np.zeros(network.input_size) if network.shift is None else network.shift
    scale = np.ones(network.input_size) if network.scale is None else network.scale
    return torch.tensor(shift, dtype=torch.float64), torch.tensor(scale, dtype=torch.float64)


def _carry_paths(value: Tensor, mapping: InstanceMapping) -> Tensor:
    """(count, P, ...) of the old paths for the new ones."""
    kept = _pick(value, mapping.paths, axis=1)
    for path in np.flatnonzero(mapping.paths == NEW):
        known = (mapping.path_demand == mapping.path_demand[path]) & (mapping.paths != NEW)
        if known.any():
            kept[:, path] = kept[:, torch.as_tensor(np.flatnonzero(known))].mean(1)
    return kept


def _pick(value: Tensor, positions: IntArray, *, axis: int) -> Tensor:
    """The entries at some positions along an axis; zeros for NEW."""
    kept = value.index_select(axis, torch.as_tensor(np.maximum(positions, 0)))
    kept.index_fill_(axis, torch.as_tensor(np.flatnonzero(positions == NEW)), 0.0)
    return kept
