"""Networks that look at the loads of their own answer and correct it: one call, a few stages.

A network gives scores o, and y = softmax(o) within each group is its first answer. Then, stage by
stage, the loads `u_l = sum_k matrix[l, k] x[source[k]] y_k` of the answer are computed, and

    o <- o + feedback_t softmax(exp(sharpness_t) u / max(u)),   y <- softmax(o)

with trained matrices `feedback_t`. Where these would be too large (`gains`), an output answers only
the loads that it adds to: entry (k, l) is gain_t[k] matrix[l, k] / max_l matrix[l, k], one trained
number for each output. The network need not learn what adds up to a load, only how to answer one,
which takes fewer units and far fewer steps. Only ratios of loads matter.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from cg4ai.data.sparse import SparseMatrix, plan_product
from cg4ai.errors import InvalidInput
from cg4ai.members import layers
from cg4ai.members.checks import (
    as_array,
    evaluate_in_chunks,
    read_state_array,
    read_state_field,
)
from cg4ai.members.networks import START, NetworkArchitecture, NetworkMembers
from cg4ai.members.single import MODEST, SoftmaxGroups, as_arrays, plan_feedback, plan_scores
from cg4ai.members.stacked import StackedMembers
from cg4ai.protocols import ArchitectureDefaults, Members, Parameters, Single
from cg4ai.records import Array, IntArray, MemberState, select_prefixed
from cg4ai.runs import files

SHARPNESS = 10.0  # of the first stage and all others, before training
LEAST = 1e-30  # loads below it count as none
FEEDBACK, GAIN = "feedback", "gain"  # parameters of a stage, by matrices or by gains
LEAST_SHARE = 0.01  # of a first answer: from none at all training would not get away


@dataclass(frozen=True, eq=False)
class Loads:
    """`matrix` (L, r) and `source` (r,): load l is the sum of matrix[l, k] x[source[k]] y_k."""

    matrix: Array
    source: IntArray
    _tensors: dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]] = field(
        default_factory=dict, init=False, repr=False
    )
    _sparse: SparseMatrix | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        matrix = np.array(self.matrix, np.float64)
        source = np.array(self.source, np.int64)
        if matrix.ndim != 2 or source.shape != matrix.shape[1:] or not np.all(matrix >= 0):
            raise InvalidInput(
                "loads need a matrix (loads, outputs) of numbers >= 0 and the input that each "
                f"output is multiplied by, got {matrix.shape} and {source.shape}",
                code="shape",
            )
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "_sparse", SparseMatrix.of(matrix))

    def of(self, weighted: Tensor) -> Tensor:
        """Loads (count, L, n) of outputs times their inputs (count, r, n)."""
        if self._sparse is not None and self._sparse.can_multiply(weighted):
            return self._sparse.multiply(weighted)
        return self.like(weighted)[0] @ weighted

    @cached_property
    def key(self) -> bytes:
        """Equal for equal loads."""
        total = hashlib.sha256(repr(self.matrix.shape).encode())
        for array in (self.matrix, self.source):
            total.update(np.ascontiguousarray(array).data)
        return total.digest()

    def answer(self, pressure: Tensor) -> Tensor:
        """How much each output adds to what is under pressure: (count, L, n) -> (count, r, n)."""
        if self._sparse is not None and self._sparse.can_multiply(pressure):
            return self._response.multiply(pressure)
        matrix = self.like(pressure)[0]
        return (matrix.T / matrix.amax(0).clamp_min(LEAST).unsqueeze(1)) @ pressure

    @cached_property
    def _response(self) -> SparseMatrix:
        """(r, L), each output's largest entry one."""
        return SparseMatrix(self.matrix.T / np.maximum(self.matrix.max(0), LEAST)[:, None])

    def like(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """Matrix and source in the dtype and on the device of a tensor."""
        key = (tensor.dtype, tensor.device)
        if key not in self._tensors:
            with torch.inference_mode(False):
                self._tensors[key] = self._made(*key)
        return self._tensors[key]

    def _made(self, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        matrix = torch.tensor(self.matrix, dtype=dtype, device=device)
        return matrix, torch.tensor(self.source, device=device)

    def with_tensors(self, matrix: Tensor, source: Tensor) -> Loads:
        """The same loads, computed by these tensors."""
        made = copy.copy(self)
        object.__setattr__(made, "_tensors", {(matrix.dtype, matrix.device): (matrix, source)})
        object.__setattr__(made, "_sparse", None)
        return made


@dataclass(frozen=True, eq=False)
class FeedbackArchitecture(ArchitectureDefaults):
    """A network of grouped softmax outputs, and `stages` corrections by the loads of its answer.

    `first` (r, L) is what every feedback matrix is before training, `start` (r,) about what the
    network answers then, where given. Parameters are those of the network, `feedback_t`
    (count, r, L) and `sharpness_t` (count, 1). With `gains` they are `gain_t` (count, r), and
    `first` is (r,).
    """

    network: NetworkArchitecture
    loads: Loads
    stages: int = 3
    first: Array | None = None
    start: Array | None = None
    gains: bool = False

    def __post_init__(self) -> None:
        shape = self._feedback_shape
        if not self.network.softmax_groups or self.loads.matrix.shape[1] != self.output_size:
            raise InvalidInput(
                "feedback needs a network of softmax outputs and loads of as many outputs, got "
                f"{self.network.output} outputs and {self.loads.matrix.shape[1]} of "
                f"{self.output_size}",
                code="shape",
            )
        if not np.all((self.loads.source >= 0) & (self.loads.source < self.input_size)):
            raise InvalidInput(
                f"loads must name inputs 0 to {self.input_size - 1} as sources", code="range"
            )
        if self.stages < 1:
            raise InvalidInput(f"stages must be at least 1, got {self.stages}", code="range")
        if self.first is not None and np.shape(self.first) != shape:
            raise InvalidInput(f"first must be {shape}, got {np.shape(self.first)}", code="shape")
        if self.start is not None and np.shape(self.start) != shape[:1]:
            raise InvalidInput(
                f"start must be {shape[:1]}, got {np.shape(self.start)}", code="shape"
            )

    @property
    def feedback(self) -> str:
        """What the trained parameters of a stage are called."""
        return GAIN if self.gains else FEEDBACK

    @property
    def _feedback_shape(self) -> tuple[int, ...]:
        size = self.output_size
        return (size,) if self.gains else (size, len(self.loads.matrix))

    @property
    def input_size(self) -> int:
        return self.network.input_size

    @property
    def output_size(self) -> int:
        return self.network.output_size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FeedbackArchitecture) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return (self.network, self.loads.key, self.stages, self.gains)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter of one member."""
        shapes = self.network.shapes()
        for stage in range(self.stages):
            shapes[f"{self.feedback}_{stage}"] = self._feedback_shape
            shapes[f"sharpness_{stage}"] = (1,)
        return shapes

    def initialise(self, count: int, generator: torch.Generator) -> Parameters:
        parameters = self.network.initialise(count, generator)
        if self.start is not None:
            self._begin_at(parameters, self.start)
        size = (count, *self._feedback_shape)
        first = np.zeros(size[1:]) if self.first is None else self.first
        for stage in range(self.stages):
            start = torch.tensor(first, dtype=torch.float32)
            parameters[f"{self.feedback}_{stage}"] = start.expand(size).clone()
            parameters[f"sharpness_{stage}"] = torch.full((count, 1), math.log(SHARPNESS))
        return parameters

    def _begin_at(self, parameters: Parameters, shares: Array) -> None:
        """Change fresh parameters such that the network's first answer is near `shares` (r,)."""
        last = len(self.network.hidden)
        for name in (f"weight_{last}", "skip"):
            if name in parameters:
                parameters[name] *= START
        scores = torch.tensor(np.log(np.maximum(shares, LEAST_SHARE)), dtype=torch.float32)
        parameters[f"bias_{last}"] = scores.expand_as(parameters[f"bias_{last}"]).clone()

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(n, d) -> (count, n, output_size), differentiable in parameters and inputs."""
        return self._answers(parameters, inputs).transpose(1, 2)

    def forward_in_chunks(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """`forward` for inputs of any number, with little memory beyond the result."""
        count = len(parameters["weight_0"])
        width = max(*self.network.hidden, self.output_size, len(self.loads.matrix), 1)
        steps = layers.choose_chunk_steps(count, inputs.shape[0], width=width, device=inputs.device)

        def evaluate(members: slice, rows: slice) -> Tensor:
            return self._answers(layers.slice_members(parameters, members), inputs[rows])

        return evaluate_in_chunks(evaluate, count, inputs.shape[0], steps=steps, axis=2).transpose(
            1, 2
        )

    def _answers(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(count, r, n): feature-major, as the layers below are."""
        form = self.network.form
        source = self.loads.like(inputs)[1]
        sources = inputs.T.index_select(0, source)
        scores = layers.compute_scores(parameters, self.network.normalise(inputs), form)
        answer = layers.apply_grouped_softmax(scores, form.groups)
        for stage in range(self.stages):
            loads = self.loads.of(answer * sources)
            ratio = loads / loads.amax(1, keepdim=True).clamp_min(LEAST)
            sharpness = parameters[f"sharpness_{stage}"].exp().unsqueeze(-1)
            pressure = (sharpness * ratio).softmax(1)
            if self.gains:
                gain = parameters[f"{GAIN}_{stage}"].unsqueeze(-1)
                scores = torch.addcmul(scores, gain, self.loads.answer(pressure))
            else:
                scores = torch.baddbmm(scores, parameters[f"{FEEDBACK}_{stage}"], pressure)
            answer = layers.apply_grouped_softmax(scores, form.groups)
        return answer

    def members(self, parameters: Parameters) -> FeedbackMembers:
        return FeedbackMembers(self, parameters)

    def parameters(self, members: Members) -> Parameters | None:
        if not isinstance(members, FeedbackMembers) or members.architecture != self:
            return None
        return {name: tensor.clone() for name, tensor in members.parameters.items()}


class FeedbackMembers(StackedMembers[FeedbackArchitecture]):
    """A stack of trained networks with feedback."""

    kind = "feedback"

    def single(self) -> Single | None:
        """None where groups of a softmax are of very different sizes, or a sharpness is huge.

        And where feedback is by gains: there are so many outputs that batches are as quick.
        """
        if self.architecture.gains:
            return None
        own, network = self.architecture, self.architecture.network
        groups, arrays = SoftmaxGroups(network.softmax_groups), as_arrays(self.parameters)
        stages = [
            (groups.lay_out(arrays[f"{FEEDBACK}_{stage}"]), np.exp(arrays[f"sharpness_{stage}"]))
            for stage in range(own.stages)
        ]
        if not groups.affordable or any((sharp > MODEST).any() for _, sharp in stages):
            return None
        units = as_arrays(network.units(self.device))
        matrix = groups.lay_out(own.loads.matrix.T[None])[0].T
        source = groups.lay_out(own.loads.source[None])[0]
        answer = plan_feedback(
            plan_scores(arrays, network.form, units=units, groups=groups),
            groups,
            loads=plan_product(matrix),
            source=source,
            stages=stages,
            least=LEAST,
        )
        return lambda x: (groups.pick_outputs(answer(x)), None)

    def tensors(self) -> dict[str, Tensor]:
        """What outputs are computed from."""
        matrix, source = self.architecture.loads.like(self.parameters["weight_0"])
        units = self.architecture.network.units(self.device)
        named = {f"normalise_{name}": tensor for name, tensor in units.items()}
        return self.parameters | named | {"matrix": matrix, "source": source}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same members with other tensors of these names, which are not looked at."""
        made = self._known({name: tensors[name] for name in self.parameters})
        own = self.architecture
        units = select_prefixed(tensors, "normalise_")
        made.architecture = FeedbackArchitecture(
            own.network.with_units(units),
            own.loads.with_tensors(tensors["matrix"], tensors["source"]),
            own.stages,
            gains=own.gains,
        )
        return made

    def state(self) -> MemberState:
        own = self.architecture
        names = own.network.shapes()
        network = NetworkMembers(own.network, {name: self.parameters[name] for name in names})
        inner = network.state()
        arrays = {f"network.{name}": array for name, array in inner.arrays.items()}
        arrays |= {"matrix": own.loads.matrix, "source": own.loads.source}
        arrays |= {
            name: as_array(tensor) for name, tensor in self.parameters.items() if name not in names
        }
        config = {"network": files.member_record(inner), "stages": own.stages}
        return MemberState(self.kind, config, arrays)

    @classmethod
    def restore(cls, state: MemberState) -> Self:
        """Members from a saved state; anything missing or misshapen is named."""
        inner = files.member_state(
            state.config.get("network"), select_prefixed(state.arrays, "network.")
        )
        network = NetworkMembers.restore(inner)
        loads = Loads(read_state_array(state, "matrix"), read_state_array(state, "source"))
        stages = read_state_field(state, "stages", int)
        if not 1 <= stages <= len(state.arrays):  # each has arrays of its own
            raise InvalidInput(
                f"saved {state.kind} members: there are no {stages} stages", code="bad-file"
            )
        gains = f"{GAIN}_0" in state.arrays
        architecture = FeedbackArchitecture(network.architecture, loads, stages, gains=gains)
        own = {
            name: read_state_array(state, name)
            for name in architecture.shapes()
            if name not in network.parameters
        }
        return cls(architecture, network.parameters | own)
