"""How far rounding can move a prediction or a bound: the margin added to every bound.

A running error analysis over the whole region: docs/mathematics.md states and proves it. It
holds without overflow and underflow, so numbers whose products leave the range of float64 are
refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.members.networks import NetworkMembers
from cg4ai.members.trees import TreeMembers
from cg4ai.proofs.bounds.activations import LIPSCHITZ
from cg4ai.proofs.bounds.terms import Parts
from cg4ai.proofs.rule_forms import ProofRules
from cg4ai.records import Array
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.regions import Ball, Polytope, Region

LARGEST = 1e60  # of any number in members, rules and region
SMALLEST_SCALE = 1e-60  # of what inputs are divided by
UNIT = 2.0**-53
FUNCTION_ULPS = 16  # error assumed of exp, erf, tanh, log1p and their combinations, in units
BOUND_FACTOR = 16.0  # a bound sums the terms of a prediction again for each output, and twice
RELATIVE = 1e-12  # of the largest value the terms can sum to: far above what is proven


def _gamma(terms: int) -> float:
    return terms * UNIT / (1.0 - terms * UNIT)


def _network_error(
    members: NetworkMembers, lower: Array, upper: Array, *, absent: NDArray[np.bool_]
) -> tuple[Tensor, Tensor]:
    """(count, K) each: rounding error and largest size of every output over the box."""
    architecture, parameters = members.architecture, members.parameters
    ends = torch.as_tensor(np.maximum(np.abs(lower), np.abs(upper)), device=members.device)
    shift = 0.0 if architecture.shift is None else torch.as_tensor(np.abs(architecture.shift))
    scale = 1.0 if architecture.scale is None else torch.as_tensor(architecture.scale.copy())
    size = ((ends.cpu() + shift) / scale).to(members.device).expand(len(members), -1)
    inputs, input_error = size, 4.0 * UNIT * size
    error = input_error
    lipschitz = LIPSCHITZ[architecture.activation]
    for layer in range(architecture.depth + 1):
        weight, bias = parameters[f"weight_{layer}"].abs(), parameters[f"bias_{layer}"].abs()
        terms = weight.shape[2] + 4
        product = (weight @ size.unsqueeze(-1)).squeeze(-1) + bias
        error = (weight @ error.unsqueeze(-1)).squeeze(-1)
        if layer == architecture.depth and architecture.skip:
            skip = parameters["skip"].abs()
            product = product + (skip @ inputs.unsqueeze(-1)).squeeze(-1)
            error = error + (skip @ input_error.unsqueeze(-1)).squeeze(-1)
            terms += architecture.input_size
        error, size = error + _gamma(terms) * product, product
        if layer < architecture.depth:
            error, size = lipschitz * error + FUNCTION_ULPS * UNIT * size, lipschitz * size
    if architecture.softmax_groups:
        # each share moves by at most half the largest change of a score that has a share
        error = error.masked_fill(torch.as_tensor(absent, device=error.device), 0.0)
        error = 0.5 * error.amax(1, keepdim=True) + _gamma(FUNCTION_ULPS + size.shape[1])
        return error.expand_as(size), torch.ones_like(size)
    return error, size


def bound_output_errors(
    part: Part, lower: Array, upper: Array, *, absent: NDArray[np.bool_]
) -> tuple[Array, Array]:
    """(count, K) each: rounding error and largest size of every output over the box.

    `absent` (count, K) are the outputs of a softmax that have no share anywhere.
    """
    members = part.members
    if isinstance(members, NetworkMembers):
        with torch.no_grad():
            errors = _network_error(members, lower, upper, absent=absent)
        return errors[0].cpu().numpy(), errors[1].cpu().numpy()
    if isinstance(members, ConstantMembers):
        values = members.values.abs().cpu().numpy()
        return np.zeros_like(values), values
    if isinstance(members, TreeMembers):
        largest = members.value.abs().amax(2).sum(1) * members.factor.abs().unsqueeze(1)
        sizes = (largest + members.initial.abs()).cpu().numpy()
        error: Array = _gamma(members.value.shape[1] + FUNCTION_ULPS) * sizes
        if members.link == "softmax":
            error = np.broadcast_to(0.5 * error.max(1, keepdims=True), sizes.shape)
            return error + _gamma(FUNCTION_ULPS + sizes.shape[1]), np.ones_like(sizes)
        return error, sizes
    raise InvalidInput(
        f"members of kind {type(members).__name__} cannot be certified", code="unsupported"
    )


def compute_margins(members: Parts, rules: AffineRules) -> Array:
    """(L,): what to add to every bound of a rule so that it also covers float64 inference."""
    return _margins(members, rules)[0]


def compute_square_margins(members: Parts, rules: ProofRules) -> Array:
    """(L,): the same for rules with squares: t^2 moves by 2 |t| times what t does.

    Also what the quadratic of a rule may exceed these squares by.
    """
    result = compute_margins(members, rules.affine)
    for rule in np.unique(rules.square_rule).tolist():
        margin, size = _margins(members, rules.build_forms(rule))
        result[rule] += float((2 * size * margin + RELATIVE * size**2).sum())
    if len(rules.quadratic):
        _, size = _sizes(members)
        for rule in range(len(rules)):
            result[rule] += float(size @ rules.compute_residual(rule) @ size) * (1 + RELATIVE)
    return result


def _margins(members: Parts, rules: AffineRules) -> tuple[Array, Array]:
    """(L,) each: margins, and what no value of a rule exceeds in size."""
    parts, layout, lower, upper = members.parts, members.layout, members.lower, members.upper
    error, size = _sizes(members)
    # a mixture of linear outputs may be one sum over all members and hidden units
    terms = sum(len(part.members) * _width(part) for part in parts)
    largest = np.abs(rules.constant)
    ends = np.maximum(np.abs(lower), np.abs(upper))
    at = (rules.rule, rules.output)
    np.add.at(largest, at, np.abs(rules.value) * ends[rules.input])
    limits = np.abs(rules.limit) + np.abs(rules.tilt) @ ends
    total = largest @ size + limits[rules.pieces].max(axis=1)
    summed = _gamma(terms + layout.output_size + rules.input_size + FUNCTION_ULPS) * total
    passes = BOUND_FACTOR * (2 + max(part.members.output_size for part in parts))
    return np.asarray(passes * (largest @ error + summed) + RELATIVE * total), total


def _sizes(members: Parts) -> tuple[Array, Array]:
    """(r,) each: the rounding error and the largest size of every output of the mixture."""
    error, size = (np.zeros(members.layout.output_size) for _ in range(2))
    for part, absent in zip(members.parts, members.absent, strict=True):
        errors, sizes = bound_output_errors(part, members.lower, members.upper, absent=absent)
        for i, block in enumerate(part.blocks):
            positions = members.layout.blocks[int(block)]
            count = len(positions)
            error[positions] += part.weights[i] * errors[i, :count]
            size[positions] += part.weights[i] * sizes[i, :count]
    return error, size


def _width(part: Part) -> int:
    if isinstance(part.members, NetworkMembers):
        return int(max(part.members.architecture.hidden, default=1))
    return 1


def check_magnitudes(ensemble: Ensemble, rules: ProofRules, region: Region) -> None:
    """An error that names the first array with a number out of range."""
    lower, upper = region.bounds()
    _check("the region", np.concatenate([lower, upper]))
    if isinstance(region, Ball):
        _check("the region", np.append(region.centre, region.radius))
    if isinstance(region, Polytope):
        _check("the region", np.column_stack([region.matrix, region.limit]))
    for name, array in rules.arrays.items():
        _check(f"the array {name} of the rules", array)
    for number, part in enumerate(ensemble.used):
        members = part.members
        if members.output_set is not None or members.caps is not None:
            continue  # ends may be infinite, and what bounds cells refuses such members
        for name, array in members.state().arrays.items():
            _check(f"{name} of the members in part {number}", array)
        if isinstance(members, NetworkMembers):
            _check_scale(members, number)


def _check(name: str, array: NDArray[Any]) -> None:
    largest = float(np.abs(array).max(initial=0.0))
    if not largest <= LARGEST:
        raise InvalidInput(
            f"{name} holds a number of size {largest:g}; rounding is accounted for up to "
            f"{LARGEST:g} only: use other units",
            code="range",
        )


def _check_scale(members: NetworkMembers, number: int) -> None:
    architecture = members.architecture
    if architecture.shift is not None:
        _check(f"shift of the members in part {number}", architecture.shift)
    scale = architecture.scale
    if scale is not None and not (scale.min() >= SMALLEST_SCALE and scale.max() <= LARGEST):
        raise InvalidInput(
            f"scale of the members in part {number} runs from {scale.min():g} to {scale.max():g}; "
            f"rounding is accounted for between {SMALLEST_SCALE:g} and {LARGEST:g} only: use "
            "other units",
            code="range",
        )
