"""The arithmetic of stacked networks: units of inputs and outputs, and the layers between them.

Values inside are kept feature-major, (count, width, n): then the first layer of all members is
the single product `weight (count * width, d) @ inputs.T`, without copying any parameter; those
after it are batched products.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cg4ai.data.arrays import is_traced
from cg4ai.errors import InvalidInput
from cg4ai.protocols import Parameters
from cg4ai.records import Array

# relu_ and tanh_ work in place on the product just made, which autograd does not need itself.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "gelu": functional.gelu,  # the exact form with erf, torch's default
    "tanh": torch.tanh_,
}

CPU_CHUNK = 2**17  # values of the widest layer at a time: 1 MB in float64 stays in cache
GPU_CHUNK = 2**26
INPUT_CHUNK = 1024
ERF = "erf"  # the activation that goes with `convert_to_erf`
ERF_INPUTS = 32  # from so many inputs on, scaling the weights for `convert_to_erf` pays
UNITS = ("shift", "scale", "output_shift", "output_scale")


class Form(NamedTuple):
    """What outputs are computed by: hidden layers, activation, sizes of groups under a softmax."""

    depth: int
    activation: str
    groups: tuple[int, ...] = ()


def choose_chunk_steps(count: int, n: int, *, width: int, device: torch.device) -> tuple[int, int]:
    """How many members and inputs to evaluate at a time for layers of `width`."""
    if is_traced():  # one graph for any number of inputs
        return count, n
    budget = CPU_CHUNK if device.type == "cpu" else GPU_CHUNK
    inputs = max(1, min(n, INPUT_CHUNK if device.type == "cpu" else budget // width))
    return max(1, min(count, budget // (inputs * width))), inputs


def slice_members(parameters: Parameters, members: slice) -> Parameters:
    return {name: tensor[members] for name, tensor in parameters.items()}


def compute_first_layer(weight: Tensor, bias: Tensor | None, inputs: Tensor) -> Tensor:
    """weight (count, o, d), bias (count, o), inputs (n, d) or (count, n, d) -> (count, o, n).

    Without a bias inputs are shared, (n, d): it is the last column of weights, see
    `convert_to_erf`.
    """
    count, size, inner = weight.shape
    if bias is None:
        return (weight.reshape(count * size, inner) @ inputs.T).view(count, size, inputs.shape[0])
    if inputs.ndim == 3:
        return torch.baddbmm(bias.unsqueeze(-1), weight, inputs.transpose(1, 2))
    flat = torch.addmm(bias.reshape(count * size, 1), weight.reshape(count * size, inner), inputs.T)
    return flat.view(count, size, inputs.shape[0])


def convert_to_erf(parameters: Parameters, depth: int) -> Parameters:
    """Parameters with which `erf_unit` gives what GELU does with those given.

    `gelu(y) = erf_unit(y / sqrt(2)) / sqrt(2)`, so the roots go into the weights around it. The
    biases that meet the inputs become a last column of weights, for inputs `append_ones`: a product
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


def append_ones(inputs: Tensor) -> Tensor:
    """Inputs (n, d) with a last column of ones."""
    return torch.cat([inputs, inputs.new_ones(inputs.shape[0], 1)], dim=1)


def erf_unit(values: Tensor) -> Tensor:
    """`z (1 + erf(z))`, which overwrites its argument: for inference only."""
    return values.addcmul_(values, torch.erf(values))


def prepare(parameters: Parameters, inputs: Tensor, form: Form) -> tuple[Parameters, Tensor, Form]:
    """Parameters, inputs and form such that they are evaluated fastest, with equal outputs.

    What has been prepared comes back as it is, so those who work in chunks do it once before.
    """
    if form.depth == 0 or not _by_erf(parameters, inputs, form.activation):
        return parameters, inputs, form
    return (
        convert_to_erf(parameters, form.depth),
        append_ones(inputs),
        form._replace(activation=ERF),
    )


def _by_erf(parameters: Parameters, inputs: Tensor, activation: str) -> bool:
    """Whether to evaluate GELU by `erf_unit`.

    torch's float64 GELU on CPUs takes twice as long for values above about 4 as for small ones,
    and was seen to take six times as long until some other vectorised function had run; its erf
    does neither, and on some CPUs takes less than half the time at best.
    """
    return (
        activation == "gelu"
        and not is_traced()  # before anything that looks at the number of inputs
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


def compute_hidden_values(parameters: Parameters, inputs: Tensor, form: Form) -> Tensor:
    """The last hidden layer, (count, width, n), of at least one."""
    activate = erf_unit if form.activation == ERF else ACTIVATIONS[form.activation]
    values = activate(compute_first_layer(parameters["weight_0"], parameters.get("bias_0"), inputs))
    for layer in range(1, form.depth):
        bias = parameters[f"bias_{layer}"].unsqueeze(-1)
        values = activate(torch.baddbmm(bias, parameters[f"weight_{layer}"], values))
    return values


def compute_scores(parameters: Parameters, inputs: Tensor, form: Form) -> Tensor:
    """Outputs before any softmax, (count, r, n)."""
    parameters, inputs, form = prepare(parameters, inputs, form)
    depth = form.depth
    weight, bias = parameters[f"weight_{depth}"], parameters.get(f"bias_{depth}")
    if depth == 0:
        return compute_first_layer(weight, bias, inputs)
    if "skip" in parameters:
        start = compute_first_layer(parameters["skip"], bias, inputs)
    else:
        assert bias is not None
        start = bias.unsqueeze(-1)
    values = compute_hidden_values(parameters, inputs, form)
    product = torch.baddbmm(start, weight, values)
    if product.requires_grad:
        product.register_hook(_laid_out)  # type: ignore[no-untyped-call]
    return product


def _laid_out(gradient: Tensor | None) -> Tensor | None:
    """A gradient in order in memory: batched products of one that came transposed are slow."""
    return None if gradient is None else gradient.contiguous()


def compute_outputs(parameters: Parameters, inputs: Tensor, form: Form) -> Tensor:
    """(count, r, n), in any dtype; inputs are normalised already."""
    return apply_grouped_softmax(compute_scores(parameters, inputs, form), form.groups)


def apply_grouped_softmax(values: Tensor, groups: tuple[int, ...]) -> Tensor:
    """Softmax within each group of outputs; values (count, r, n), no groups means as they are.

    Neighbours of one size are one call: there may be hundreds of groups, and few sizes.
    """
    if not groups:
        return values
    runs = [(size, sum(1 for _ in same)) for size, same in itertools.groupby(groups)]
    if len(runs) == 1:
        return _even_softmax(values, *runs[0])
    parts = torch.split(values, [size * times for size, times in runs], dim=1)
    each = [_even_softmax(part, *run) for part, run in zip(parts, runs, strict=True)]
    return torch.cat(each, dim=1)


def _even_softmax(values: Tensor, size: int, times: int) -> Tensor:
    """Softmax within `times` groups of `size` outputs; values (count, size * times, n)."""
    if times == 1:
        return values.softmax(1)
    count, total, n = values.shape
    return values.reshape(count, times, size, n).softmax(2).view(count, total, n)


def compute_folded_mixture(
    parameters: Parameters, inputs: Tensor, weights: Tensor, form: Form
) -> Tensor:
    """`sum_i weights_i scores_i`, (r, n), for linear outputs: the weights go into the last layer.

    The members' last layers become one product (r, count * width), so no member's outputs are
    ever formed.
    """
    parameters, inputs, form = prepare(parameters, inputs, form)
    depth = form.depth
    last = parameters[f"weight_{depth}"] * weights[:, None, None]
    bias = parameters.get(f"bias_{depth}")
    start = last.new_zeros(()) if bias is None else (weights @ bias).unsqueeze(-1)
    if depth == 0:
        return torch.addmm(start, last.sum(0), inputs.T)
    if "skip" in parameters:
        skip = torch.tensordot(weights, parameters["skip"], dims=1)
        start = torch.addmm(start, skip, inputs.T)
    count, size, width = last.shape
    values = compute_hidden_values(parameters, inputs, form)
    wide = last.permute(1, 0, 2).reshape(size, count * width)
    return torch.addmm(start, wide, values.reshape(count * width, -1))


def compute_weighted_outputs(
    parameters: Parameters, inputs: Tensor, weights: Tensor, form: Form
) -> Tensor:
    """`sum_i weights_i outputs_i`, (r, n).

    With `weights` (blocks, count) one such sum for each of their rows, (blocks, r, n).
    """
    if not form.groups and weights.ndim == 1:
        return compute_folded_mixture(parameters, inputs, weights, form)
    values = compute_outputs(parameters, inputs, form)
    return (weights @ values.flatten(1)).view(*weights.shape[:-1], *values.shape[1:])


def compute_mixture_in_chunks(
    parameters: Parameters, inputs: Tensor, weights: Tensor, form: Form, *, steps: tuple[int, int]
) -> Tensor:
    """`compute_weighted_outputs` of `steps` members and inputs at a time, (n, r) or (blocks, n,
    r).
    """
    *blocks, count = weights.shape
    member_step, input_step = steps
    size = parameters[f"weight_{form.depth}"].shape[1]
    ready, x, form = prepare(parameters, inputs, form)
    if is_traced():  # one graph for any number of inputs
        return compute_weighted_outputs(ready, x, weights, form).transpose(-1, -2)

    def total(part: Tensor) -> Tensor:
        result = part.new_zeros(*blocks, size, len(part))
        for start in range(0, count, member_step):
            own = slice(start, start + member_step)
            result += compute_weighted_outputs(
                slice_members(ready, own), part, weights[..., own], form
            )
        return result.transpose(-1, -2)

    return torch.cat([total(part) for part in torch.split(x, input_step)], dim=-2)


def check_units(values: object, name: str, size: int) -> Array:
    """One finite number for each input or output, read-only; scales are positive."""
    array = np.array(values, dtype=np.float64)
    if array.shape != (size,) or not np.all(np.isfinite(array)):
        raise InvalidInput(
            f"{name} must be ({size},) finite numbers, got {array.shape}", code="not-finite"
        )
    if name.endswith("scale") and np.any(array <= 0):
        raise InvalidInput(f"{name} must be positive; use 1 for what does not vary", code="range")
    array.setflags(write=False)
    return array


class Scaling:
    """The units of one architecture: those of `UNITS` that are given, checked."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.arrays = arrays
        # As tensors, by device and dtype: training must not copy from the host.
        self._tensors: dict[tuple[torch.device, torch.dtype], dict[str, Tensor]] = {}

    @property
    def of_outputs(self) -> bool:
        """Whether outputs have units of their own."""
        return "output_shift" in self.arrays or "output_scale" in self.arrays

    def key(self) -> tuple[bytes | None, ...]:
        """What makes two equal."""
        return tuple(self.arrays[name].tobytes() if name in self.arrays else None for name in UNITS)

    def inputs(self, inputs: Tensor) -> Tensor:
        """`(inputs - shift) / scale` in the dtype and on the device of the inputs."""
        known = self.like(inputs)
        shifted = inputs - known["shift"] if "shift" in known else inputs
        return shifted / known["scale"] if "scale" in known else shifted

    def outputs(self, outputs: Tensor) -> Tensor:
        """`output_shift + output_scale * outputs`, the last axis one entry per output."""
        known = self.like(outputs)
        scaled = outputs * known["output_scale"] if "output_scale" in known else outputs
        return scaled + known["output_shift"] if "output_shift" in known else scaled

    def fold(self, parameters: Parameters, *, depth: int) -> Parameters:
        """Parameters whose last layer gives outputs in their units, float64."""
        scale, shift = self._output_units(parameters[f"bias_{depth}"])
        return _rescaled(parameters, scale, shift, depth=depth)

    def unfold(self, parameters: Parameters, *, depth: int) -> Parameters:
        """The reverse of `fold`."""
        scale, shift = self._output_units(parameters[f"bias_{depth}"])
        return _rescaled(parameters, 1.0 / scale, -shift / scale, depth=depth)

    def _output_units(self, bias: Tensor) -> tuple[Tensor, Tensor]:
        known = self.like(torch.empty(0, dtype=torch.float64, device=bias.device))
        ones = torch.ones(bias.shape[-1], dtype=torch.float64, device=bias.device)
        return known.get("output_scale", ones), known.get("output_shift", 0.0 * ones)

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Scaling:
        """The same units, given as tensors."""
        made = Scaling(self.arrays)
        for tensor in tensors.values():
            made._tensors = {(tensor.device, tensor.dtype): dict(tensors)}
        return made

    def like(self, tensor: Tensor) -> dict[str, Tensor]:
        """The units in the dtype and on the device of a tensor."""
        key = (tensor.device, tensor.dtype)
        if key not in self._tensors:
            # Tensors made under inference mode could not be used in training later.
            with torch.inference_mode(False):
                self._tensors[key] = {
                    name: torch.tensor(array).to(*key) for name, array in self.arrays.items()
                }
        return self._tensors[key]


def _rescaled(parameters: Parameters, scale: Tensor, shift: Tensor, *, depth: int) -> Parameters:
    """The last layer's outputs z as `scale * z + shift`, float64 copies of the rest."""
    result = {name: tensor.detach().double() for name, tensor in parameters.items()}
    for name in (f"weight_{depth}", *(["skip"] if "skip" in parameters else [])):
        result[name] = result[name] * scale.unsqueeze(-1)
    result[f"bias_{depth}"] = result[f"bias_{depth}"] * scale + shift
    return result
