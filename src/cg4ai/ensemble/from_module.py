"""A torch network that ends in layers of `cg4ai.nn`, as an ensemble of one member.

Proofs, audits and files know ensembles; a network of a training loop of one's own gets them so.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cg4ai.anchors.affine_maps import AffineMap
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.affine_maps import build_affine_member
from cg4ai.members.equalities import CompletedMembers
from cg4ai.members.mixture import Part
from cg4ai.members.modules import ModuleArchitecture
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.members.output_sets import ArrangedMembers
from cg4ai.members.shielded import Shield as MemberShield
from cg4ai.members.shielded import ShieldedMembers
from cg4ai.nn import Completion, OutputSet, Shield
from cg4ai.nn.anchoring import build_guards
from cg4ai.nn.rule_layer import RuleLayer
from cg4ai.protocols import Members
from cg4ai.rules.equality import join_equalities
from cg4ai.rules.regions import Region

IGNORED = (nn.Identity, nn.Dropout)  # nothing in evaluation
NAME = "network"  # what stands for code of the user's own in files


def build_ensemble(module: nn.Module, region: Region | None = None) -> Ensemble:
    """The network as an ensemble of one member, in float64 and in evaluation mode.

    `module` is an `nn.Sequential` or a `SequentialWithInput`. Linear layers with one kind of ReLU,
    GELU or Tanh between them, and a softmax behind them, become a network whose outputs can be
    bounded; any other body stays code of the user's own, of which layers at its end prove all that
    is proven. `region` is where rules that name no place are looked at.
    """
    parts = list(_flat(copy.deepcopy(module).cpu().eval()))
    body = [one for one in parts if not isinstance(one, RuleLayer)]
    ends = parts[len(body) :]
    if any(isinstance(one, RuleLayer) for one in parts[: len(body)]):
        raise InvalidInput(
            "layers of cg4ai.nn must stand at the end of a network that is certified", code="type"
        )
    size = _input_size(body, ends, region)
    members = _body_members(body, size, ends)
    for one in ends:
        members = _behind(members, one, region)
    whole = Part(members, np.zeros(1, np.int64), np.ones(1))
    return Ensemble((whole,), Layout.single(members.output_size))


def find_region(module: nn.Module) -> Region | None:
    """The one region that the shields of a network were given for all their rules, if any was."""
    found = [one.region for one in module.modules() if isinstance(one, Shield)]
    given = [one for one in found if one is not None]
    return given[-1] if given else None


def _flat(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of a sequence, one after another."""
    if isinstance(module, RuleLayer):
        yield module
        return
    if not isinstance(module, nn.Sequential):
        raise InvalidInput(
            f"an nn.Sequential or a SequentialWithInput can be certified, got "
            f"{type(module).__name__}: put the layers into one, or certify its ensemble",
            code="type",
        )
    for one in module:
        if isinstance(one, nn.Sequential):
            yield from _flat(one)
        else:
            yield one


def _input_size(body: Sequence[nn.Module], ends: Sequence[nn.Module], region: Region | None) -> int:
    first = next((one for one in body if not isinstance(one, IGNORED)), None)
    if isinstance(first, nn.Linear):
        return first.in_features
    known = [one.input_size for one in ends if isinstance(one, RuleLayer) and one.input_size]
    if region is not None:
        known.append(region.size)
    if not known:
        raise InvalidInput(
            "this network does not say how many inputs it has; give the rule a region",
            code="missing-argument",
        )
    return known[0]


def _body_members(body: Sequence[nn.Module], size: int, ends: Sequence[nn.Module]) -> Members:
    """The layers before those of rules as one member."""
    known = _network_members([one for one in body if not isinstance(one, IGNORED)])
    if known is not None:
        return known
    whole = nn.Sequential(*body).double()
    with torch.no_grad():
        width = int(whole(torch.zeros(2, size, dtype=torch.float64)).shape[-1])
    made = ModuleArchitecture(lambda: copy.deepcopy(whole), size, width, NAME)
    return made.stack([whole])


def _network_members(body: Sequence[nn.Module]) -> Members | None:
    """Of linear layers with activations that proofs know; None where there is anything else."""
    layers = list(body)
    softmax = bool(layers) and isinstance(layers[-1], nn.Softmax) and layers[-1].dim in (-1, 1)
    if softmax:
        layers.pop()
    linear, between = layers[::2], [_activation(one) for one in layers[1::2]]
    wrong = not all(isinstance(one, nn.Linear) for one in linear) or None in between
    if wrong or len(linear) != len(between) + 1 or len(set(between)) > 1:
        return None
    parameters: dict[str, Tensor] = {}
    for number, one in enumerate(linear):
        assert isinstance(one, nn.Linear)
        bias = one.weight.new_zeros(one.out_features) if one.bias is None else one.bias
        parameters[f"weight_{number}"] = one.weight.detach().double()[None]
        parameters[f"bias_{number}"] = bias.detach().double()[None]
    widths = [len(parameters[f"bias_{number}"][0]) for number in range(len(linear))]
    options: dict[str, Any] = {"activation": between[0]} if between else {}
    made = NetworkArchitecture(
        int(parameters["weight_0"].shape[-1]),
        widths[-1],
        hidden=tuple(widths[:-1]),
        output="softmax" if softmax else "linear",
        **options,
    )
    return made.members(parameters)


def _activation(layer: nn.Module) -> str | None:
    if isinstance(layer, nn.GELU) and layer.approximate == "none":
        return "gelu"
    return {nn.ReLU: "relu", nn.Tanh: "tanh"}.get(type(layer))


def _behind(members: Members, layer: nn.Module, region: Region | None) -> Members:
    """Members that end in what the layer does."""
    if isinstance(layer, Completion):
        source = join_equalities(list(layer.requirements), input_size=members.input_size)
        projected = members.output_size == layer.output_size
        return CompletedMembers(members, source.project() if projected else source)
    if isinstance(layer, OutputSet):
        return ArrangedMembers(members, layer.source)
    assert isinstance(layer, Shield)
    place = layer.region or region
    if place is None and not any(one.region.size == members.input_size for one in layer.guards):
        raise InvalidInput(
            "the rules of this Shield name no region; give certify one, region=Box(lower, upper)",
            code="missing-argument",
        )
    guards = build_guards(layer.requirements, region=place, output_size=layer.output_size)
    anchor = layer.anchor
    if anchor.is_constant:
        anchor = AffineMap.constant(anchor.offsets, members.input_size)
    shield = MemberShield(build_affine_member(anchor), guards, layer.within.tied)
    return ShieldedMembers(members, shield)
