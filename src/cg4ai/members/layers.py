"""The arithmetic of stacked networks: one matrix product for the first layer, batched ones after.

Values inside are kept feature-major, (count, width, n): then the first layer of all members is
the single product `weight (count * width, d) @ inputs.T`, without copying any parameter.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from cg4ai.protocols import Parameters

# relu_ and tanh_ work in place on the product just made, which autograd does not need itself.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "gelu": functional.gelu,  # the exact form with erf, torch's default
    "tanh": torch.tanh_,
}

CPU_CHUNK = 2**17  # values of the widest layer at a time: 1 MB in float64 stays in cache
GPU_CHUNK = 2**26
INPUT_CHUNK = 1024
ERF = "erf"  # the activation that goes with `erf_form`
ERF_INPUTS = 32  # from so many inputs on, scaling the weights for `erf_form` pays


def chunk_steps(count: int, n: int, *, width: int, device: torch.device) -> tuple[int, int]:
    """How many members and inputs to evaluate at a time for layers of `width`."""
    if torch.compiler.is_compiling():  # one graph for any number of inputs
        return count, n
    budget = CPU_CHUNK if device.type == "cpu" else GPU_CHUNK
    inputs = max(1, min(n, INPUT_CHUNK if device.type == "cpu" else budget // width))
    return max(1, min(count, budget // (inputs * width))), inputs


def slice_members(parameters: Parameters, members: slice) -> Parameters:
    return {name: tensor[members] for name, tensor in parameters.items()}


def first_product(weight: Tensor, bias: Tensor | None, inputs: Tensor) -> Tensor:
    """weight (count, o, d), bias (count, o), inputs (n, d) or (count, n, d) -> (count, o, n).

    Without a bias inputs are shared, (n, d): it is the last column of weights, see `erf_form`.
    """
    count, size, inner = weight.shape
    if bias is None:
        return (weight.reshape(count * size, inner) @ inputs.T).view(count, size, len(inputs))
    if inputs.ndim == 3:
        return torch.baddbmm(bias.unsqueeze(-1), weight, inputs.transpose(1, 2))
    flat = torch.addmm(bias.reshape(count * size, 1), weight.reshape(count * size, inner), inputs.T)
    return flat.view(count, size, inputs.shape[0])


def erf_form(parameters: Parameters, *, depth: int) -> Parameters:
    """Parameters with which `erf_unit` gives what GELU does with those given.

    `gelu(y) = erf_unit(y / sqrt(2)) / sqrt(2)`, so the roots go into the weights around it. The
    biases that meet the inputs become a last column of weights, for inputs `with_ones`: a product
    that starts from a bias first copies it to every input, which took a third of the time.
    """
    root = math.sqrt(0.5)
    scaled = dict(parameters)
    for layer in range(depth + 1):
        inner, outer = (root if layer > 0 else 1.0), (root if layer < depth else 1.0)
        scaled[f"weight_{layer}"] = parameters[f"weight_{layer}"] * (inner * outer)
        scaled[f"bias_{layer}"] = parameters[f"bias_{layer}"] * outer
    scaled["weight_0"] = _joined(scaled["weight_0"], scaled.pop("bias_0"))
    if "skip" in scaled:
        scaled["skip"] = _joined(scaled["skip"], scaled.pop(f"bias_{depth}"))
    return scaled


def _joined(weight: Tensor, bias: Tensor) -> Tensor:
    return torch.cat([weight, bias.unsqueeze(-1)], dim=-1)


def with_ones(inputs: Tensor) -> Tensor:
    """Inputs (n, d) with a last column of ones."""
    return torch.cat([inputs, inputs.new_ones(len(inputs), 1)], dim=1)


def erf_unit(values: Tensor) -> Tensor:
    """`z (1 + erf(z))`, which overwrites its argument: for inference only."""
    return values.addcmul_(values, torch.erf(values))


def prepared(
    parameters: Parameters, inputs: Tensor, *, depth: int, activation: str
) -> tuple[Parameters, Tensor, str]:
    """Parameters, inputs and activation in the form that is evaluated fastest, with equal outputs.

    What has been prepared comes back as it is, so those who work in chunks do it once before.
    """
    if depth == 0 or not _by_erf(parameters, inputs, activation):
        return parameters, inputs, activation
    return erf_form(parameters, depth=depth), with_ones(inputs), ERF


def _by_erf(parameters: Parameters, inputs: Tensor, activation: str) -> bool:
    """Whether to evaluate GELU by `erf_unit`.

    torch's float64 GELU on CPUs takes twice as long for values above about 4 as for small ones,
    and was seen to take six times as long until some other vectorised function had run; its erf
    does neither, and on some CPUs takes less than half the time at best.
    """
    return (
        activation == "gelu"
        and not torch.compiler.is_compiling()  # before anything that looks at the number of inputs
        and inputs.device.type == "cpu"
        and inputs.dtype == torch.float64
        and inputs.ndim == 2
        and len(inputs) >= ERF_INPUTS
        and not _needs_gradient(parameters, inputs)
    )


def _needs_gradient(parameters: Parameters, inputs: Tensor) -> bool:
    return torch.is_grad_enabled() and (
        inputs.requires_grad or any(tensor.requires_grad for tensor in parameters.values())
    )


def hidden_values(parameters: Parameters, inputs: Tensor, *, depth: int, activation: str) -> Tensor:
    """The last hidden layer, (count, width, n); `depth` >= 1 hidden layers."""
    activate = erf_unit if activation == ERF else ACTIVATIONS[activation]
    values = activate(first_product(parameters["weight_0"], parameters.get("bias_0"), inputs))
    for layer in range(1, depth):
        bias = parameters[f"bias_{layer}"].unsqueeze(-1)
        values = activate(torch.baddbmm(bias, parameters[f"weight_{layer}"], values))
    return values


def scores(parameters: Parameters, inputs: Tensor, *, depth: int, activation: str) -> Tensor:
    """Outputs before any softmax, (count, r, n)."""
    parameters, inputs, activation = prepared(
        parameters, inputs, depth=depth, activation=activation
    )
    weight, bias = parameters[f"weight_{depth}"], parameters.get(f"bias_{depth}")
    if depth == 0:
        return first_product(weight, bias, inputs)
    if "skip" in parameters:
        start = first_product(parameters["skip"], bias, inputs)
    else:
        assert bias is not None
        start = bias.unsqueeze(-1)
    values = hidden_values(parameters, inputs, depth=depth, activation=activation)
    product = torch.baddbmm(start, weight, values)
    if product.requires_grad:
        product.register_hook(_laid_out)  # type: ignore[no-untyped-call]
    return product


def _laid_out(gradient: Tensor | None) -> Tensor | None:
    """A gradient in order in memory: batched products of one that came transposed are slow."""
    return None if gradient is None else gradient.contiguous()


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
    parameters, inputs, activation = prepared(
        parameters, inputs, depth=depth, activation=activation
    )
    last = parameters[f"weight_{depth}"] * weights[:, None, None]
    bias = parameters.get(f"bias_{depth}")
    start = last.new_zeros(()) if bias is None else (weights @ bias).unsqueeze(-1)
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
    """`sum_i weights_i outputs_i`, (r, n), in any dtype; inputs are normalised already.

    With `weights` (blocks, count) one such sum for each of their rows, (blocks, r, n).
    """
    if not groups and weights.ndim == 1:
        return folded_mixture(parameters, inputs, weights, depth=depth, activation=activation)
    values = grouped_softmax(scores(parameters, inputs, depth=depth, activation=activation), groups)
    return (weights @ values.flatten(1)).view(*weights.shape[:-1], *values.shape[1:])


def mixture_in_chunks(
    parameters: Parameters,
    inputs: Tensor,
    weights: Tensor,
    *,
    depth: int,
    activation: str,
    groups: tuple[int, ...],
    steps: tuple[int, int],
) -> Tensor:
    """`weighted_outputs` of `steps` members and inputs at a time, (n, r) or (blocks, n, r)."""
    *blocks, count = weights.shape
    member_step, input_step = steps
    size = parameters[f"weight_{depth}"].shape[1]
    ready, x, activation = prepared(parameters, inputs, depth=depth, activation=activation)
    if torch.compiler.is_compiling():  # one graph for any number of inputs
        whole = weighted_outputs(
            ready, x, weights, depth=depth, activation=activation, groups=groups
        )
        return whole.transpose(-1, -2)

    def total(part: Tensor) -> Tensor:
        result = part.new_zeros(*blocks, size, len(part))
        for start in range(0, count, member_step):
            members = slice(start, start + member_step)
            result += weighted_outputs(
                slice_members(ready, members),
                part,
                weights[..., members],
                depth=depth,
                activation=activation,
                groups=groups,
            )
        return result.transpose(-1, -2)

    return torch.cat([total(part) for part in torch.split(x, input_step)], dim=-2)
