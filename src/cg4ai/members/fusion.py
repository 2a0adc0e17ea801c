"""A mixture as one thing: a torch module for inference elsewhere, or where it is one, a member."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from cg4ai.data.arrays import is_traced
from cg4ai.errors import InvalidInput
from cg4ai.members import layers
from cg4ai.members.checks import check_weights
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.networks import NetworkArchitecture, NetworkMembers
from cg4ai.protocols import Members
from cg4ai.records import Array

HIDDEN_CHUNK = 512  # hidden units at a time: with INPUT_CHUNK inputs they stay in cache


def fuse(members: NetworkMembers, weights: Tensor | Array) -> nn.Module:
    """A module (n, d) -> (n, r) equal to `sum_i weights_i outputs_i`; float64, `.float()` to lower.

    Linear outputs with at most one hidden layer give one network with one wide hidden layer
    (`WideNetwork`). Otherwise the first layers become one wide layer and the rest stays stacked
    (`StackedNetwork`). Members of weight zero are left out.
    """
    vector = check_weights(weights, len(members), members.device).detach()
    active = np.flatnonzero(vector.cpu().numpy())
    if len(active) == 0:
        raise InvalidInput("all weights are zero: there is no mixture to fuse", code="range")
    kept, vector = members.take(active), vector[torch.as_tensor(active, device=members.device)]
    if kept.architecture.depth <= 1 and not kept.architecture.softmax_groups:
        return WideNetwork(kept, vector)
    return StackedNetwork(kept, vector)


def collapse(members: Members, weights: Array) -> Members | None:
    """The one member that a mixture of affine or of constant members is; None for other kinds."""
    shares = torch.as_tensor(weights, device=members.device)
    if isinstance(members, ConstantMembers):
        return ConstantMembers((shares @ members.values)[None], members.input_size)
    if isinstance(members, NetworkMembers):
        architecture = members.architecture
        if architecture.depth == 0 and not architecture.softmax_groups:
            mean = {n: torch.tensordot(shares, v, 1)[None] for n, v in members.parameters.items()}
            return NetworkMembers(architecture, mean)
    return None


class Normalisation(nn.Module):
    """`(x - shift) / scale`, moved and cast with the module it is part of."""

    shift: Tensor
    scale: Tensor

    def __init__(self, architecture: NetworkArchitecture, like: Tensor) -> None:
        super().__init__()
        size = architecture.input_size
        shift = np.zeros(size) if architecture.shift is None else architecture.shift
        scale = np.ones(size) if architecture.scale is None else architecture.scale
        self.register_buffer("shift", torch.tensor(shift).to(like))
        self.register_buffer("scale", torch.tensor(scale).to(like))

    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs - self.shift) / self.scale


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(
        weight.shape[1],
        weight.shape[0],
        bias=bias is not None,
        device=weight.device,
        dtype=weight.dtype,
    )
    with torch.no_grad():
        layer.weight.copy_(weight)
        if bias is not None:
            layer.bias.copy_(bias)
    return layer


class WideNetwork(nn.Module):
    """`direct(x) + readout(activation(hidden(x)))`: all members side by side in one hidden layer.

    `direct` is the weighted sum of the skip connections (None without), or of whole affine
    members, which have no `hidden` and `readout`.
    """

    def __init__(self, members: NetworkMembers, weights: Tensor) -> None:
        super().__init__()
        architecture, parameters = members.architecture, members.parameters
        depth = architecture.depth
        self.activation, self.output_size = architecture.activation, architecture.output_size
        unscaled = architecture.shift is None and architecture.scale is None
        self.normalise = nn.Identity() if unscaled else Normalisation(architecture, weights)
        bias = weights @ parameters[f"bias_{depth}"]
        last = parameters[f"weight_{depth}"] * weights[:, None, None]
        self.hidden: nn.Linear | None = None
        self.readout: nn.Linear | None = None
        self.direct: nn.Linear | None = None
        if depth == 0:
            self.direct = _linear(last.sum(0), bias)
            return
        if architecture.skip:
            self.direct = _linear(torch.tensordot(weights, parameters["skip"], dims=1), None)
        count, size, width = last.shape
        first = parameters["weight_0"].reshape(count * width, -1)
        self.hidden = _linear(first, parameters["bias_0"].reshape(-1))
        self.readout = _linear(last.permute(1, 0, 2).reshape(size, -1), bias)

    def forward(self, inputs: Tensor) -> Tensor:
        # Slices keep the hidden values in cache; for export, one batch is one graph.
        if is_traced() or len(inputs) <= layers.INPUT_CHUNK:
            return self._forward(inputs)
        return torch.cat([self._forward(part) for part in torch.split(inputs, layers.INPUT_CHUNK)])

    def _forward(self, inputs: Tensor) -> Tensor:
        x = self.normalise(inputs)
        nothing = x.new_zeros(self.output_size, len(x))
        total: Tensor = nothing if self.direct is None else self.direct(x).T
        if self.hidden is None or self.readout is None:
            return total.T
        activate = layers.ACTIVATIONS[self.activation]
        total = total + self.readout.bias.unsqueeze(-1)
        for first in range(0, self.hidden.out_features, HIDDEN_CHUNK):
            part = slice(first, first + HIDDEN_CHUNK)
            bias = self.hidden.bias[part].unsqueeze(-1)
            values = activate(torch.addmm(bias, self.hidden.weight[part], x.T))
            total = torch.addmm(total, self.readout.weight[:, part], values)
        return total.T


class StackedNetwork(nn.Module):
    """The mixture of deep or probability members: their parameters stacked, and their weights."""

    weights: Tensor

    def __init__(self, members: NetworkMembers, weights: Tensor) -> None:
        super().__init__()
        self.architecture = members.architecture
        self.stack = nn.ParameterDict(
            {name: nn.Parameter(tensor) for name, tensor in members.parameters.items()}
        )
        self.register_buffer("weights", weights.clone())

    def forward(self, inputs: Tensor) -> Tensor:
        return self.architecture.mixture(dict(self.stack.items()), inputs, self.weights)
