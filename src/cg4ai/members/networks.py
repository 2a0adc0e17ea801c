"""Stacked networks: the members that gradient pricing trains and that mixtures evaluate at once.

An affine model is a network without hidden layers (`affine`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.members import layers, slopes
from cg4ai.members.checks import (
    as_array,
    as_tensor,
    check_inputs,
    check_size,
    check_stack,
    check_weights,
    evaluate_in_chunks,
    read_state_array,
    read_state_field,
    read_state_sizes,
)
from cg4ai.members.single import SoftmaxGroups, as_arrays, plan_scores
from cg4ai.members.stacked import StackedMembers
from cg4ai.members.structure import SPREAD, Ends, Hulls, OutputForm, build_probability_hulls
from cg4ai.protocols import ArchitectureDefaults, Members, Parameters, Single
from cg4ai.records import Array, MemberState
from cg4ai.rules.shapes import Shape

Activation = Literal["relu", "gelu", "tanh"]
Output = Literal["linear", "softmax", "grouped"]
START = 0.1  # of random weights is left where members start near given outputs and must differ
OUTPUTS = ("linear", "softmax", "grouped")


@dataclass(frozen=True, eq=False)
class NetworkArchitecture(ArchitectureDefaults):
    """A feed-forward network; every member has this shape.

    `hidden` are the widths of the hidden layers, () for an affine model. `skip` adds a linear map
    from the inputs to the outputs. `output` is "linear", "softmax" (one probability vector) or
    "grouped" (a softmax within each of `groups`, sizes that sum to `output_size`). Inputs are
    normalised to `(x - shift) / scale` first, where given. Linear outputs are put into the units
    of the targets, `output_shift + output_scale * z`, where given: that eases training, and
    `members` folds it into the last layer, so that finished members have none.

    Parameters, members first: `weight_l` (count, out, in) and `bias_l` (count, out) for layer l,
    and `skip` (count, output_size, input_size).
    """

    input_size: int
    output_size: int
    _: KW_ONLY
    hidden: tuple[int, ...] = (64,)
    activation: Activation = "relu"
    skip: bool = False
    output: Output = "linear"
    groups: tuple[int, ...] = ()
    shift: Array | None = None
    scale: Array | None = None
    output_shift: Array | None = None
    output_scale: Array | None = None
    _scaling: layers.Scaling = field(init=False, repr=False)  # the four above

    def __post_init__(self) -> None:
        check_size(self.input_size, "input_size")
        check_size(self.output_size, "output_size")
        object.__setattr__(self, "hidden", tuple(self.hidden))
        object.__setattr__(self, "groups", tuple(self.groups))
        for width in (*self.hidden, *self.groups):
            check_size(width, "each width of hidden and each size of groups")
        for name, value, known in (
            ("activation", self.activation, tuple(layers.ACTIVATIONS)),
            ("output", self.output, OUTPUTS),
        ):
            if value not in known:
                raise InvalidInput(
                    f"unknown {name} {value!r}{did_you_mean(str(value), known)}; "
                    f"use one of {', '.join(known)}",
                    code="unknown-name",
                )
        if self.skip and not self.hidden:
            raise InvalidInput(
                "skip needs a hidden layer: without one the network is affine", code="conflict"
            )
        if (self.output == "grouped") != bool(self.groups):
            raise InvalidInput(
                "groups are needed for output='grouped', and only there", code="conflict"
            )
        if self.groups and sum(self.groups) != self.output_size:
            raise InvalidInput(
                f"groups {self.groups} sum to {sum(self.groups)}, not to output_size "
                f"{self.output_size}",
                code="shape",
            )
        self._check_normalisation()

    def _check_normalisation(self) -> None:
        arrays: dict[str, Array] = {}
        for name in layers.UNITS:
            values = getattr(self, name)
            if values is not None:
                size = self.output_size if name.startswith("output") else self.input_size
                arrays[name] = layers.check_units(values, name, size)
                object.__setattr__(self, name, arrays[name])
        object.__setattr__(self, "_scaling", layers.Scaling(arrays))
        if self.scales_outputs and self.output != "linear":
            raise InvalidInput(
                "output_shift and output_scale are for output='linear' only", code="conflict"
            )

    def _key(self) -> tuple[object, ...]:
        sizes = (self.input_size, self.output_size, self.hidden, self.groups)
        return (*sizes, self.activation, self.skip, self.output, *self._scaling.key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NetworkArchitecture) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    @property
    def depth(self) -> int:
        """How many hidden layers."""
        return len(self.hidden)

    @property
    def softmax_groups(self) -> tuple[int, ...]:
        """Sizes of the groups under a softmax; empty for linear outputs."""
        return (self.output_size,) if self.output == "softmax" else self.groups

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter of one member."""
        widths = (self.input_size, *self.hidden, self.output_size)
        shapes: dict[str, tuple[int, ...]] = {}
        for layer, (inner, size) in enumerate(pairwise(widths)):
            shapes[f"weight_{layer}"] = (size, inner)
            shapes[f"bias_{layer}"] = (size,)
        if self.skip:
            shapes["skip"] = (self.output_size, self.input_size)
        return shapes

    @property
    def scales_outputs(self) -> bool:
        return self._scaling.of_outputs

    def normalise(self, inputs: Tensor) -> Tensor:
        """`(inputs - shift) / scale` in the dtype and on the device of the inputs."""
        return self._scaling.inputs(inputs)

    def units(self, device: torch.device) -> dict[str, Tensor]:
        """The shift and scale of inputs that are given, float64."""
        return self._scaling.like(torch.empty(0, dtype=torch.float64, device=device))

    def with_units(self, units: Mapping[str, Tensor]) -> NetworkArchitecture:
        """The same architecture, normalising by tensors such as `units` gave."""
        made = copy.copy(self)
        object.__setattr__(made, "_scaling", self._scaling.with_tensors(units))
        return made

    def initialise(self, count: int, generator: torch.Generator) -> Parameters:
        """Uniform weights of variance 2 / inputs before a ReLU or GELU and 1 / inputs elsewhere.

        Biases are uniform within 1 / sqrt(inputs). float32, on the CPU.
        """
        check_size(count, "count")

        def uniform(*shape: int, bound: float) -> Tensor:
            return (torch.rand(count, *shape, generator=generator) * 2 - 1) * bound

        parameters: Parameters = {}
        widths = (self.input_size, *self.hidden, self.output_size)
        for layer, (inner, size) in enumerate(pairwise(widths)):
            variance = 2.0 if layer < self.depth and self.activation != "tanh" else 1.0
            parameters[f"weight_{layer}"] = uniform(
                size, inner, bound=math.sqrt(3.0 * variance / inner)
            )
            parameters[f"bias_{layer}"] = uniform(size, bound=1.0 / math.sqrt(inner))
        if self.skip:
            parameters["skip"] = uniform(
                self.output_size, self.input_size, bound=math.sqrt(3.0 / self.input_size)
            )
        return parameters

    def initialise_near(self, parameters: Parameters, slopes: Array, offsets: Array) -> Parameters:
        """The same with outputs `slopes @ x + offsets`, (r, d) and (r,), at every input.

        The last layer starts at zero and the skip, where there is one, takes the slopes; without
        one outputs are constant. Affine members are near these outputs, so that they differ.
        Outputs that are probabilities stay as they are.
        """
        if self.output != "linear":
            return parameters
        shift, scale = _units(self.shift, self.scale, self.input_size)
        middle, size = _units(self.output_shift, self.output_scale, self.output_size)
        wanted = torch.as_tensor(slopes * scale / size[:, None], dtype=torch.float32)
        level = torch.as_tensor((offsets + slopes @ shift - middle) / size, dtype=torch.float32)
        last, bias, made = f"weight_{self.depth}", f"bias_{self.depth}", dict(parameters)
        made[last] = (0.0 if self.depth else START) * made[last]
        made[bias] = level.expand_as(made[bias]).clone()
        if self.skip:
            made["skip"] = wanted.expand_as(made["skip"]).clone()
        elif not self.depth:
            made[last] = made[last] + wanted
        return made

    def set_output_unit(self, size: float) -> NetworkArchitecture:
        """The same with linear outputs in multiples of `size`, unless they have units already."""
        if self.output != "linear" or self.scales_outputs:
            return self
        return replace(self, output_scale=np.full(self.output_size, size))

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(n, d), or (count, n, d) with inputs of each member's own -> (count, n, output_size).

        In the dtype of parameters and inputs, differentiable in both.
        """
        outputs = layers.compute_outputs(parameters, self.normalise(inputs), self.form).transpose(
            1, 2
        )
        return self._scaling.outputs(outputs)

    @property
    def form(self) -> layers.Form:
        """What `members.layers` computes scores and outputs by."""
        return layers.Form(self.depth, self.activation, self.softmax_groups)

    def _chunk_steps(self, count: int, inputs: Tensor) -> tuple[int, int]:
        width = max(*self.hidden, self.output_size, 1)
        return layers.choose_chunk_steps(count, inputs.shape[0], width=width, device=inputs.device)

    def forward_in_chunks(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """`forward` for shared inputs of any number, with little memory beyond the result.

        The result is a view whose memory is (count, output_size, n), as it was computed.
        """
        x = self.normalise(inputs)
        count = len(parameters["weight_0"])

        def evaluate(members: slice, rows: slice) -> Tensor:
            own = layers.slice_members(parameters, members)
            return layers.compute_outputs(own, x[rows], self.form)

        steps = self._chunk_steps(count, x)
        return evaluate_in_chunks(evaluate, count, x.shape[0], steps=steps, axis=2).transpose(1, 2)

    def mixture(self, parameters: Parameters, inputs: Tensor, weights: Tensor) -> Tensor:
        """`sum_i weights_i forward_i`, (n, output_size), in chunks that fit a cache.

        With `weights` (blocks, count) one such sum for each of their rows, (blocks, n, r).
        """
        x = self.normalise(inputs)
        steps = self._chunk_steps(weights.shape[-1], x)
        return layers.compute_mixture_in_chunks(parameters, x, weights, self.form, steps=steps)

    def scale_outputs(self, parameters: Parameters, factors: Tensor) -> Parameters:
        """Each member's linear outputs times its factor (count,): the last layer and the skip."""
        if self.output != "linear" or self.output_shift is not None:
            raise InvalidInput(
                "only linear outputs without output_shift can be scaled, not probabilities",
                code="conflict",
            )
        result = dict(parameters)
        for name in (
            f"weight_{self.depth}",
            f"bias_{self.depth}",
            *(["skip"] if self.skip else []),
        ):
            value = parameters[name]
            result[name] = value * factors.to(value).reshape(-1, *[1] * (value.ndim - 1))
        return result

    def _finished(self) -> NetworkArchitecture:
        return replace(self, output_shift=None, output_scale=None) if self.scales_outputs else self

    def members(self, parameters: Parameters) -> NetworkMembers:
        if self.scales_outputs:
            check_stack(parameters, self.shapes(), "parameters of a network")
            parameters = self._scaling.fold(parameters, depth=self.depth)
        return NetworkMembers(self._finished(), parameters)

    def parameters(self, members: Members) -> Parameters | None:
        if not isinstance(members, NetworkMembers) or members.architecture != self._finished():
            return None
        if self.scales_outputs:
            return self._scaling.unfold(members.parameters, depth=self.depth)
        return {name: tensor.clone() for name, tensor in members.parameters.items()}

    def config(self) -> dict[str, Any]:
        """All but the normalisation, as JSON."""
        return {
            "input_size": int(self.input_size),
            "output_size": int(self.output_size),
            "hidden": [int(width) for width in self.hidden],
            "activation": self.activation,
            "skip": bool(self.skip),
            "output": self.output,
            "groups": [int(size) for size in self.groups],
        }


class NetworkMembers(StackedMembers[NetworkArchitecture]):
    """A stack of trained networks of one architecture."""

    kind = "network"

    def __init__(self, architecture: NetworkArchitecture, parameters: Mapping[str, Any]) -> None:
        if architecture.scales_outputs:
            raise InvalidInput(
                "members have no output_shift or output_scale; architecture.members(parameters) "
                "folds them into the last layer",
                code="unsupported",
            )
        super().__init__(architecture, parameters)

    def mixture(self, inputs: Tensor, weights: Tensor | Array) -> Tensor:
        """`sum_i weights_i outputs_i`: (n, d), (len(self),) -> (n, output_size).

        For linear outputs the weights are folded into the last layer, so that it costs little
        more than the hidden layers; probabilities are formed for a few members at a time.
        """
        x = check_inputs(inputs, self.input_size, self.device)
        vector = check_weights(weights, len(self), self.device)
        return self.architecture.mixture(self.parameters, x, vector)

    def mixtures(self, inputs: Tensor, shares: Tensor) -> Tensor:
        """Several mixtures of these members at once: shares (k, len(self)) -> (k, n, output_size).

        The shares are taken as they are: looking at them would make a GPU wait.
        """
        x = check_inputs(inputs, self.input_size, self.device)
        if shares.ndim != 2 or shares.shape[1] != len(self):
            raise InvalidInput(
                f"shares must be (mixtures, {len(self)}), got {tuple(shares.shape)}", code="shape"
            )
        return self.architecture.mixture(self.parameters, x, shares)

    def single(self) -> Single | None:
        """None where groups of a softmax are of very different sizes."""
        own = self.architecture
        groups = SoftmaxGroups(own.softmax_groups) if own.softmax_groups else None
        if groups is not None and not groups.affordable:
            return None
        units = as_arrays(own.units(self.device))
        scores = plan_scores(as_arrays(self.parameters), own.form, units=units, groups=groups)
        if groups is None:
            return lambda x: (np.atleast_2d(scores(x)), None)
        return lambda x: (groups.pick_outputs(groups.apply_softmax(scores(x))), None)

    def tensors(self) -> dict[str, Tensor]:
        """What outputs are computed from: the parameters, and `normalise_` shift and scale."""
        units = self.architecture.units(self.device)
        return self.parameters | {f"normalise_{name}": tensor for name, tensor in units.items()}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same members with other tensors of these names, which are not looked at."""
        made = self._known({name: tensors[name] for name in self.parameters})
        units = {name: tensors.get(f"normalise_{name}") for name in ("shift", "scale")}
        given = {name: tensor for name, tensor in units.items() if tensor is not None}
        made.architecture = self.architecture.with_units(given)
        return made

    def gives_shares(self) -> bool:
        return bool(self.architecture.softmax_groups)

    def find_output_forms(self) -> Sequence[OutputForm]:
        """The last layer and what skips the others, in units of the inputs."""
        own = self.architecture
        if own.softmax_groups:
            return ()
        shift, scale = _units(own.shift, own.scale, own.input_size)
        arrays = as_arrays(self.parameters)
        found = []
        for number in range(len(self)):
            basis, offset = arrays[f"weight_{own.depth}"][number], arrays[f"bias_{own.depth}"]
            slope = np.zeros((own.output_size, own.input_size))
            if own.skip:
                slope = arrays["skip"][number]
            elif own.depth == 0:
                slope, basis = basis, np.zeros((own.output_size, 0))
            slope = slope / scale
            found.append(OutputForm(offset[number] - slope @ shift, slope, basis))
        return found

    def find_set_forms(self, matrix: Array) -> Sequence[Hulls]:
        groups = self.architecture.softmax_groups
        return [build_probability_hulls(groups)] if groups else ()

    def find_moves(self, shape: Shape) -> Sequence[slopes.Moves]:
        own = self.architecture
        under = bool(own.softmax_groups)
        if len(own.softmax_groups) > 1 or (under and shape.logits):
            return ()
        rows = slopes.find_asked_rows(shape, own.output_size, softmax=under)
        arrays = as_arrays(self.parameters)
        found = [
            slopes.find_network_moves(
                {name: array[number] for name, array in arrays.items()},
                rows,
                depth=own.depth,
                activation=own.activation,
            )
            for number in range(len(self))
        ]
        return [slopes.apply_softmax(one) for one in found] if under else found

    def find_usual_inputs(self) -> Ends | None:
        """By the units of the inputs, where there are any."""
        own = self.architecture
        middle, size = _units(own.shift, own.scale, own.input_size)
        return None if own.scale is None else (middle - SPREAD * size, middle + SPREAD * size)

    def state(self) -> MemberState:
        arrays = {name: as_array(tensor) for name, tensor in self.tensors().items()}
        return MemberState(self.kind, self.architecture.config(), arrays)

    @classmethod
    def restore(cls, state: MemberState) -> Self:
        """Members from a saved state; anything missing or misshapen is named."""
        normalisation = {
            name: read_state_array(state, f"normalise_{name}").astype(np.float64)
            if f"normalise_{name}" in state.arrays
            else None
            for name in ("shift", "scale")
        }
        architecture = NetworkArchitecture(
            read_state_field(state, "input_size", int),
            read_state_field(state, "output_size", int),
            hidden=read_state_sizes(state, "hidden"),
            activation=read_state_field(state, "activation", str),
            skip=read_state_field(state, "skip", bool),
            output=read_state_field(state, "output", str),
            groups=read_state_sizes(state, "groups"),
            shift=normalisation["shift"],
            scale=normalisation["scale"],
        )
        names = [name for name in state.arrays if not name.startswith("normalise_")]
        return cls(architecture, {name: read_state_array(state, name) for name in names})


def affine(
    weights: Any, bias: Any, *, output: Literal["linear", "softmax"] = "linear"
) -> NetworkMembers:
    """Affine members `x @ weights[i] + bias[i]`: weights (count, d, r), bias (count, r)."""
    slopes, offsets = as_tensor(weights), as_tensor(bias)
    if slopes.ndim != 3 or offsets.shape != (slopes.shape[0], slopes.shape[2]):
        raise InvalidInput(
            "affine members need weights (count, d, r) and bias (count, r), "
            f"got {tuple(slopes.shape)} and {tuple(offsets.shape)}",
            code="shape",
        )
    architecture = NetworkArchitecture(slopes.shape[1], slopes.shape[2], hidden=(), output=output)
    return NetworkMembers(architecture, {"weight_0": slopes.transpose(1, 2), "bias_0": offsets})


def _units(shift: Array | None, scale: Array | None, size: int) -> tuple[Array, Array]:
    return (
        np.zeros(size) if shift is None else np.asarray(shift, np.float64),
        np.ones(size) if scale is None else np.asarray(scale, np.float64),
    )
