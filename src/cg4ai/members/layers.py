"""The arithmetic of stacked networks: one matrix product for the first layer, batched ones after.

Values inside are kept feature-major, (count, width, n): then the first layer of all members is
the single product `weight (count * width, d) @ inputs.T`, without copying any parameter.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Parameters = dict[str, Tensor]

# relu_ and tanh_ work in place on the product just made, which autograd does not need itself.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "gelu": functional.gelu,  # the exact form with erf, torch's default
    "tanh": torch.tanh_,
}

CPU_CHUNK = 2**19  # values of the widest layer at a time: 4 MB in float64 stay in cache
GPU_CHUNK = 2**26
INPUT_CHUNK = 1024


def chunk_steps(count: int, n: int, *, width: int, device: torch.device) -> tuple[int, int]:
    """How many members and inputs to evaluate at a time for layers of `width`."""
    budget = CPU_CHUNK if device.type == "cpu" else GPU_CHUNK
    inputs = max(1, min(n, INPUT_CHUNK if device.type == "cpu" else budget // width))
    return max(1, min(count, budget // (inputs * width))), inputs


def slice_members(parameters: Parameters, members: slice) -> Parameters:
    return {name: tensor[members] for name, tensor in parameters.items()}


def first_product(weight: Tensor, bias: Tensor, inputs: Tensor) -> Tensor:
    """weight (count, o, d), bias (count, o), inputs (n, d) or (count, n, d) -> (count, o, n)."""
    count, size, inner = weight.shape
    if inputs.ndim == 3:
        return torch.baddbmm(bias.unsqueeze(-1), weight, inputs.transpose(1, 2))
    flat = torch.addmm(bias.reshape(count * size, 1), weight.reshape(count * size, inner), inputs.T)
    return flat.view(count, size, inputs.shape[0])


def hidden_values(parameters: Parameters, inputs: Tensor, *, depth: int, activation: str) -> Tensor:
    """The last hidden layer, (count, width, n); `depth` >= 1 hidden layers."""
    activate = ACTIVATIONS[activation]
    values = activate(first_product(parameters["weight_0"], parameters["bias_0"], inputs))
    for layer in range(1, depth):
        bias = parameters[f"bias_{layer}"].unsqueeze(-1)
        values = activate(torch.baddbmm(bias, parameters[f"weight_{layer}"], values))
    return values


def scores(parameters: Parameters, inputs: Tensor, *, depth: int, activation: str) -> Tensor:
    """Outputs before any softmax, (count, r, n)."""
    weight, bias = parameters[f"weight_{depth}"], parameters[f"bias_{depth}"]
    if depth == 0:
        return first_product(weight, bias, inputs)
    if "skip" in parameters:
        start = first_product(parameters["skip"], bias, inputs)
    else:
        start = bias.unsqueeze(-1)
    values = hidden_values(parameters, inputs, depth=depth, activation=activation)
    return torch.baddbmm(start, weight, values)


def grouped_softmax(values: Tensor, groups: tuple[int, ...]) -> Tensor:
    """Softmax within each group of outputs; values (count, r, n), no groups means as they are."""
    if not groups:
        return values
    if len(groups) == 1:
        return values.softmax(1)
    if len(set(groups)) == 1:
        count, size, n = values.shape
        return values.view(count, len(groups), groups[0], n).softmax(2).view(count, size, n)
    return torch.cat([part.softmax(1) for part in torch.split(values, list(groups), dim=1)], dim=1)


def folded_mixture(
    parameters: Parameters, inputs: Tensor, weights: Tensor, *, depth: int, activation: str
) -> Tensor:
    """`sum_i weights_i scores_i`, (r, n), for linear outputs: the weights go into the last layer.

    The members' last layers become one product (r, count * width), so no member's outputs are
    ever formed.
    """
    last = parameters[f"weight_{depth}"] * weights[:, None, None]
    start = (weights @ parameters[f"bias_{depth}"]).unsqueeze(-1)
    if depth == 0:
        return torch.addmm(start, last.sum(0), inputs.T)
    if "skip" in parameters:
        skip = torch.tensordot(weights, parameters["skip"], dims=1)
        start = torch.addmm(start, skip, inputs.T)
    count, size, width = last.shape
    values = hidden_values(parameters, inputs, depth=depth, activation=activation)
    wide = last.permute(1, 0, 2).reshape(size, count * width)
    return torch.addmm(start, wide, values.reshape(count * width, -1))


def weighted_outputs(
    parameters: Parameters,
    inputs: Tensor,
    weights: Tensor,
    *,
    depth: int,
    activation: str,
    groups: tuple[int, ...],
) -> Tensor:
    """`sum_i weights_i outputs_i`, (r, n), in any dtype; inputs are normalised already."""
    if not groups:
        return folded_mixture(parameters, inputs, weights, depth=depth, activation=activation)
    values = grouped_softmax(scores(parameters, inputs, depth=depth, activation=activation), groups)
    return (weights @ values.reshape(len(weights), -1)).view(values.shape[1:])
