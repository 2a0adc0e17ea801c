"""Networks side by side as one member: each sees some of the inputs and gives some of the outputs.

What a network does not see has weights that are exactly zero, from the start and in training, so
its outputs do not depend on it at all: such networks can be run apart, where the others' inputs
are not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.members import layers
from cg4ai.members.checks import as_array, evaluate_in_chunks, read_state_array
from cg4ai.members.networks import NetworkArchitecture, NetworkMembers
from cg4ai.members.single import SoftmaxGroups, as_arrays, plan_scores
from cg4ai.members.stacked import StackedMembers
from cg4ai.protocols import ArchitectureDefaults, Members, Parameters, Single
from cg4ai.records import Array, IntArray, MemberState, select_prefixed
from cg4ai.runs import files

NO_OUTPUT = -1e4  # a score whose softmax is exactly 0 in float64
SEEING = ("weight_0", "skip")  # parameters that meet the inputs, which are their last axis


@dataclass(frozen=True, eq=False)
class InputMask:
    """`seen` (B, d): which of d inputs the networks see; network i is of row i modulo B."""

    seen: NDArray[np.bool_]
    _tensors: dict[tuple[torch.dtype, torch.device], Tensor] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        seen = np.array(self.seen, bool)
        if seen.ndim != 2 or not seen.size:
            raise InvalidInput(
                f"what networks see is (networks, inputs), got {seen.shape}", code="shape"
            )
        object.__setattr__(self, "seen", seen)

    def mask_parameters(self, parameters: Parameters) -> Parameters:
        """The same with zeros where an input is not seen; leading axis B times any number."""
        made = dict(parameters)
        for name in SEEING:
            if name in parameters:
                value = parameters[name]
                mask = self._like(value)
                whole = value.view(-1, len(mask), *value.shape[1:])
                made[name] = (whole * mask[:, None]).view(value.shape)
        return made

    def _like(self, tensor: Tensor) -> Tensor:
        key = (tensor.dtype, tensor.device)
        if key not in self._tensors:
            # tensors made under inference mode could not be used in training later
            with torch.inference_mode(False):
                self._tensors[key] = torch.tensor(self.seen).to(tensor.device, tensor.dtype)
        return self._tensors[key]


@dataclass(frozen=True, eq=False)
class SideBySideArchitecture(ArchitectureDefaults):
    """B networks of one shape, `network`, with softmax outputs of its own each.

    `seen` (B, d) says which inputs each sees, `sizes` (B,) how many outputs it gives; outputs
    follow each other in the order of the networks, and those that a network has to spare are
    exactly 0 and left out. Parameters are those of the network, (count, B, ...).
    """

    network: NetworkArchitecture
    seen: NDArray[np.bool_]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        widest = self.network.output_size
        shape = (len(self.sizes), self.network.input_size)
        if self.network.output != "softmax" or np.shape(self.seen) != shape:
            raise InvalidInput(
                "networks side by side have softmax outputs and say what each of them sees, "
                f"{shape}; got {self.network.output} outputs and {np.shape(self.seen)}",
                code="shape",
            )
        if not all(1 <= size <= widest for size in self.sizes):
            raise InvalidInput(f"sizes must lie in 1 to {widest}, got {self.sizes}", code="range")
        object.__setattr__(self, "sight", InputMask(self.seen))

    sight: InputMask = field(init=False, repr=False)

    @property
    def input_size(self) -> int:
        return self.network.input_size

    @property
    def output_size(self) -> int:
        return sum(self.sizes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SideBySideArchitecture) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return (self.network, self.sight.seen.tobytes(), self.sizes)

    @property
    def places(self) -> IntArray:
        """(output_size,): where each output stands among those of all networks."""
        width = self.network.output_size
        each = [width * number + np.arange(size) for number, size in enumerate(self.sizes)]
        return np.concatenate(each)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter of one member."""
        count = len(self.sizes)
        return {name: (count, *shape) for name, shape in self.network.shapes().items()}

    def initialise(self, count: int, generator: torch.Generator) -> Parameters:
        """Fresh parameters of `count` members, outputs to spare at exactly 0."""
        flat = self.sight.mask_parameters(
            self.network.initialise(count * len(self.sizes), generator)
        )
        made = {name: value.view(count, -1, *value.shape[1:]) for name, value in flat.items()}
        last = self.network.depth
        for number, size in enumerate(self.sizes):
            for name in (f"weight_{last}", *(["skip"] if self.network.skip else [])):
                made[name][:, number, size:] = 0.0
            made[f"bias_{last}"][:, number, size:] = NO_OUTPUT
        return made

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(n, d) -> (count, n, output_size), differentiable in parameters and inputs."""
        flat = self.sight.mask_parameters(
            {name: one.flatten(0, 1) for name, one in parameters.items()}
        )
        found = layers.compute_outputs(flat, self.network.normalise(inputs), self.network.form)
        count, width, n = len(parameters["weight_0"]), self.network.output_size, inputs.shape[0]
        together = found.reshape(count, len(self.sizes) * width, n)
        if together.shape[1] != self.output_size:
            together = together.index_select(1, torch.as_tensor(self.places, device=inputs.device))
        return together.transpose(1, 2)

    def forward_in_chunks(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """`forward` for inputs of any number, with little memory beyond the result."""
        count = len(parameters["weight_0"])
        width = len(self.sizes) * max(*self.network.hidden, self.network.output_size)
        steps = layers.choose_chunk_steps(count, inputs.shape[0], width=width, device=inputs.device)

        def evaluate(members: slice, rows: slice) -> Tensor:
            return self.forward(layers.slice_members(parameters, members), inputs[rows])

        return evaluate_in_chunks(evaluate, count, inputs.shape[0], steps=steps, axis=1)

    def members(self, parameters: Parameters) -> SideBySideMembers:
        return SideBySideMembers(self, parameters)

    def parameters(self, members: Members) -> Parameters | None:
        if not isinstance(members, SideBySideMembers) or members.architecture != self:
            return None
        return {name: tensor.clone() for name, tensor in members.parameters.items()}


class SideBySideMembers(StackedMembers[SideBySideArchitecture]):
    """A stack of trained networks side by side."""

    kind = "side by side"

    def single(self) -> Single | None:
        own, count = self.architecture, len(self)
        flat = {name: value.flatten(0, 1) for name, value in self.parameters.items()}
        groups, places = SoftmaxGroups(own.network.softmax_groups), own.places
        scores = plan_scores(
            as_arrays(own.sight.mask_parameters(flat)),
            own.network.form,
            units=as_arrays(own.network.units(self.device)),
            groups=groups,
        )

        def compute_outputs(x: Array) -> tuple[Array, Array | None]:
            shares = groups.apply_softmax(scores(x)).reshape(count, -1)
            return shares.take(places, axis=1), None

        return compute_outputs

    def tensors(self) -> dict[str, Tensor]:
        """What outputs are computed from."""
        units = self.architecture.network.units(self.device)
        return self.parameters | {f"normalise_{name}": tensor for name, tensor in units.items()}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same members with other tensors of these names, which are not looked at."""
        made = self._known({name: tensors[name] for name in self.parameters})
        own = self.architecture
        network = own.network.with_units(select_prefixed(tensors, "normalise_"))
        made.architecture = SideBySideArchitecture(network, own.seen, own.sizes)
        return made

    def networks(self, member: int) -> NetworkMembers:
        """The networks of one member as a stack of their own."""
        own = {name: value[member] for name, value in self.parameters.items()}
        return NetworkMembers(self.architecture.network, own)

    def state(self) -> MemberState:
        own = self.architecture
        first = self.networks(0).state()
        shared = {f"network.{name}": array for name, array in first.arrays.items()}
        stacked = {f"network.{name}": as_array(value) for name, value in self.parameters.items()}
        config = {"network": files.member_record(first), "sizes": list(own.sizes)}
        return MemberState(
            self.kind, config, shared | stacked | {"seen": own.seen.astype(np.int64)}
        )

    @classmethod
    def restore(cls, state: MemberState) -> Self:
        """Members from a saved state; anything missing or misshapen is named."""
        arrays = select_prefixed(state.arrays, "network.")
        whole = [name for name in arrays if not name.startswith("normalise_")]
        if not whole or any(arrays[name].ndim < 2 or not len(arrays[name]) for name in whole):
            raise InvalidInput(
                f"saved {state.kind} members: parameters are (members, networks, ...)", code="shape"
            )
        first = {name: array[0] if name in whole else array for name, array in arrays.items()}
        inner = files.member_state(state.config.get("network"), first)
        network = NetworkMembers.restore(inner).architecture
        sizes = state.config.get("sizes")
        if not isinstance(sizes, list) or not all(type(size) is int for size in sizes):
            raise InvalidInput(
                f"saved {state.kind} members: sizes must be whole numbers", code="type"
            )
        seen = read_state_array(state, "seen").astype(bool)
        architecture = SideBySideArchitecture(network, seen, tuple(sizes))
        return cls(architecture, {name: arrays[name] for name in whole})
