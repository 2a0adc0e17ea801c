"""Members from any torch module of the user's own, stacked and evaluated by vmap where possible."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.parameter import is_lazy

from cg4ai.data.arrays import is_traced
from cg4ai.errors import InvalidInput, MissingFactory, did_you_mean
from cg4ai.members.checks import (
    as_array,
    check_indices,
    check_inputs,
    check_size,
    check_stack,
    evaluate_in_chunks,
    find_common_device,
    freeze_tensor,
    read_state_array,
    read_state_field,
)
from cg4ai.members.factories import (
    FAILURES,
    disable_fused_attention,
    format_error_line,
    make_picklable,
    stack_state,
)
from cg4ai.protocols import ArchitectureDefaults, MemberDefaults, Members, Parameters
from cg4ai.records import IntArray, MemberState

Factory = Callable[[], nn.Module]
CHUNK_VALUES = 2**22  # outputs, or inputs where those are wider, over all members at a time


class ModuleArchitecture(ArchitectureDefaults):
    """The kind of module that `factory()` makes: inputs (n, input_size) -> (n, output_size).

    Modules run in eval mode, in training too: no dropout, and buffers (running statistics,
    tables) are constants. Outputs must not depend on the other inputs of a batch. `vectorised`
    says whether all members run in one vmap; if not, a loop over members is used and
    `loop_reason` says why. `name` stands for the factory in saved files.
    """

    def __init__(self, factory: Factory, input_size: int, output_size: int, name: str) -> None:
        if isinstance(factory, nn.Module):
            kind = type(factory).__name__
            raise InvalidInput(
                f"members are made by a function, got one {kind}: each starts from random weights "
                f"of its own, so give a function that makes it, such as lambda: {kind}(...)",
                code="type",
            )
        self.factory = factory
        self.input_size = check_size(input_size, "input_size")
        self.output_size = check_size(output_size, "output_size")
        self.name = str(name)
        self.template = self._build(seed=0).double()
        if any(map(is_lazy, self.template.parameters())):
            raise InvalidInput(
                f"module {name!r} has layers without sizes (lazy ones): state them",
                code="unsupported",
            )
        self._attends = any(isinstance(m, nn.MultiheadAttention) for m in self.template.modules())
        self.shapes = {key: tuple(p.shape) for key, p in self.template.named_parameters()}
        if not self.shapes:
            raise InvalidInput(
                f"module {name!r} has no parameters; use ConstantMembers", code="unsupported"
            )
        self.buffers = {key: b.detach().clone() for key, b in self.template.named_buffers()}
        self._buffers: dict[tuple[torch.device, torch.dtype], Parameters] = {}
        self.vectorised, self.loop_reason = False, ""
        self._check_template()

    def factories(self) -> Mapping[str, Any]:
        return {self.name: self.factory}

    def _build(self, *, seed: int) -> nn.Module:
        """A fresh module; the global random state is left as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                module: object = self.factory()
            except InvalidInput:
                raise
            except FAILURES as error:
                raise InvalidInput(
                    f"factory {self.name!r} fails ({format_error_line(error)}); give a function "
                    "that makes a "
                    "module without arguments, such as lambda: Net(...)",
                    code="unsupported",
                ) from error
        if not isinstance(module, nn.Module):
            raise InvalidInput(
                f"factory {self.name!r} must return a torch.nn.Module, got {type(module).__name__}",
                code="type",
            )
        return module.eval()

    def _check_template(self) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(4, self.input_size, generator=generator, dtype=torch.float64)
        modules = [self.template, self._build(seed=1).double()]
        parameters, buffers = stack_state(modules)
        expected = self._probe(parameters, buffers, x)
        if expected.shape != (2, 4, self.output_size):
            raise InvalidInput(
                f"module {self.name!r} must map (n, {self.input_size}) to "
                f"(n, {self.output_size}), got {tuple(expected.shape[1:])} for n = 4",
                code="shape",
            )
        if not torch.equal(expected, self._probe(parameters, buffers, x)):
            raise InvalidInput(
                f"module {self.name!r} is random in eval mode; outputs must repeat",
                code="unsupported",
            )
        if not torch.allclose(expected[:, :2], self._probe(parameters, buffers, x[:2])):
            raise InvalidInput(
                f"module {self.name!r} mixes the inputs of a batch (batch statistics?); "
                "each output must depend on its own input alone",
                code="unsupported",
            )
        self._gradient(self._looped, parameters, buffers, x)
        if self._attends:
            self.loop_reason = "vmap runs attention member by member itself, with a warning"
            return
        try:
            values = self._vectorised(parameters, buffers, x, buffer_axis=0)
            self._gradient(self._vectorised, parameters, buffers, x)
        except (RuntimeError, InvalidInput) as error:
            self.loop_reason = f"vmap cannot run it: {format_error_line(error)}"
            return
        self.vectorised = bool(torch.allclose(values, expected))
        self.loop_reason = "" if self.vectorised else "vmap gives other outputs than single calls"

    def _probe(self, parameters: Parameters, buffers: Parameters, x: Tensor) -> Tensor:
        try:
            with torch.no_grad():
                return self._looped(parameters, buffers, x, buffer_axis=0)
        except InvalidInput:
            raise
        except FAILURES as error:
            raise InvalidInput(
                f"module {self.name!r} fails on float64 inputs {tuple(x.shape)} "
                f"({format_error_line(error)}); "
                "inputs are rows of numbers: a module for pictures or sequences begins with "
                "nn.Unflatten(1, (...)), one for whole numbers with a cast",
                code="unsupported",
            ) from error

    def _gradient(
        self, run: Callable[..., Tensor], parameters: Parameters, buffers: Parameters, x: Tensor
    ) -> None:
        """InvalidInput where outputs have no gradient in the parameters."""
        own = {key: value.detach().clone().requires_grad_() for key, value in parameters.items()}
        try:
            with torch.enable_grad():
                total = run(own, buffers, x, buffer_axis=0).sum()
            torch.autograd.grad(total, list(own.values()), allow_unused=True)
        except RuntimeError as error:
            raise InvalidInput(
                f"module {self.name!r} cannot be trained: its outputs have no gradient "
                f"({format_error_line(error)})",
                code="unsupported",
            ) from error

    def _call(self, parameters: Parameters, buffers: Parameters, inputs: Tensor) -> Tensor:
        with disable_fused_attention(off=self._attends):
            # functional_call refuses to be traced
            if torch.jit.is_tracing():  # type: ignore[no-untyped-call]
                with _held(self.template, {**parameters, **buffers}):
                    result: object = self.template(inputs)
            else:
                result = functional_call(self.template, (parameters, buffers), (inputs,))
        if not isinstance(result, Tensor):
            raise InvalidInput(
                f"module {self.name!r} returns {type(result).__name__}, not a tensor; wrap it in a "
                "module that returns the outputs alone",
                code="type",
            )
        return result

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "factory": make_picklable(self.factory)}

    def __deepcopy__(self, memo: object) -> ModuleArchitecture:
        return self  # nothing in it changes

    def _vectorised(
        self, parameters: Parameters, buffers: Parameters, x: Tensor, *, buffer_axis: int | None
    ) -> Tensor:
        return vmap(self._call, in_dims=(0, buffer_axis, None))(parameters, buffers, x)

    def _looped(
        self, parameters: Parameters, buffers: Parameters, x: Tensor, *, buffer_axis: int | None
    ) -> Tensor:
        count = len(next(iter(parameters.values())))
        outputs = []
        for i in range(count):
            own = {key: value[i] for key, value in parameters.items()}
            fixed = buffers if buffer_axis is None else {k: b[i] for k, b in buffers.items()}
            outputs.append(self._call(own, fixed, x))
        return torch.stack(outputs) if outputs else x.new_zeros(0, len(x), self.output_size)

    def evaluate(
        self, parameters: Parameters, buffers: Parameters, x: Tensor, *, buffer_axis: int | None
    ) -> Tensor:
        """(count, n, output_size); buffers have members first, or no such axis (None)."""
        empty = len(next(iter(parameters.values()))) == 0  # which vmap cannot run
        plain = empty or is_traced()  # an exported graph has no vmap
        run = self._vectorised if self.vectorised and not plain else self._looped
        return run(parameters, buffers, x, buffer_axis=buffer_axis)

    def initialise(self, count: int, generator: torch.Generator) -> Parameters:
        """The factory's own initialisation, one seed from `generator` for each member."""
        check_size(count, "count")
        seeds = torch.randint(2**62, (count,), generator=generator).tolist()
        parameters, buffers = stack_state([self._build(seed=seed) for seed in seeds])
        for key, stacked in buffers.items():
            own = self.buffers[key].to(stacked.dtype)
            if not torch.equal(stacked, own.expand_as(stacked)):
                raise InvalidInput(
                    f"buffer {key!r} of module {self.name!r} is random; make it a parameter, "
                    "or the same in every module",
                    code="unsupported",
                )
        return parameters

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(n, d) -> (count, n, output_size), differentiable in the parameters and inputs."""
        key = (inputs.device, inputs.dtype)
        if key not in self._buffers:
            # Tensors made under inference mode could not be used in training later.
            with torch.inference_mode(False):
                self._buffers[key] = {
                    name: b.to(*key) if b.is_floating_point() else b.to(inputs.device)
                    for name, b in self.buffers.items()
                }
        return self.evaluate(parameters, self._buffers[key], inputs, buffer_axis=None)

    def members(self, parameters: Parameters) -> ModuleMembers:
        return ModuleMembers(self, parameters)

    def parameters(self, members: Members) -> Parameters | None:
        """None also where the members' buffers differ from a fresh module's."""
        if not isinstance(members, ModuleMembers) or not self.matches(members.architecture):
            return None
        for key, stacked in members.buffers.items():
            if not torch.equal(stacked, self.buffers[key].to(stacked).expand_as(stacked)):
                return None
        return {key: value.clone() for key, value in members.parameters.items()}

    def stack(self, modules: Sequence[nn.Module]) -> ModuleMembers:
        """Members from modules trained elsewhere, each with its own buffers."""
        if not modules:
            raise InvalidInput("stack needs at least one module", code="empty")
        for module in modules:
            if type(module) is not type(self.template):
                raise InvalidInput(
                    f"modules must be {type(self.template).__name__}, as {self.name!r} makes, "
                    f"got {type(module).__name__}",
                    code="type",
                )
        parameters, buffers = stack_state(modules)
        return ModuleMembers(self, parameters, buffers)

    def matches(self, other: ModuleArchitecture) -> bool:
        """The same name, sizes and parameters: the name is the user's word for the factory."""
        own = (self.name, self.input_size, self.output_size, self.shapes)
        return own == (other.name, other.input_size, other.output_size, other.shapes)


@contextmanager
def _held(module: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """While entered, the module computes with these tensors in place of its own."""
    before = []
    for name, tensor in tensors.items():
        path, _, last = name.rpartition(".")
        owner = module.get_submodule(path)
        table: dict[str, Any] = owner._parameters if last in owner._parameters else owner._buffers
        before.append((table, last, table[last]))
        table[last] = tensor
    try:
        yield
    finally:
        for table, last, own in reversed(before):
            table[last] = own


class ModuleMembers(MemberDefaults):
    """A stack of trained modules of one kind, float64 and in eval mode.

    Parameters and buffers are in the module's own order, whatever order they are given in.
    """

    kind = "module"
    differentiable = True

    def __init__(
        self,
        architecture: ModuleArchitecture,
        parameters: Mapping[str, Any],
        buffers: Mapping[str, Any] | None = None,
    ) -> None:
        self.architecture = architecture
        what = f"parameters of module {architecture.name!r}"
        given = {key: freeze_tensor(value, f"parameter {key}") for key, value in parameters.items()}
        self._count = check_stack(given, architecture.shapes, what)
        self.parameters: Parameters = {key: given[key] for key in architecture.shapes}
        self.device = find_common_device(self.parameters)
        if buffers is None:
            buffers = {
                key: b.to(self.device).expand(self._count, *b.shape)
                for key, b in architecture.buffers.items()
            }
        shapes = {key: tuple(b.shape) for key, b in architecture.buffers.items()}
        fixed = {
            key: freeze_tensor(
                value,
                f"buffer {key}",
                architecture.buffers[key].dtype if key in shapes else torch.float64,
            )
            for key, value in buffers.items()
        }
        own = check_stack(fixed, shapes, f"buffers of module {architecture.name!r}")
        self.buffers: Parameters = {key: fixed[key] for key in shapes}
        if self.buffers and own != self._count:
            raise InvalidInput(
                f"{what} are of {self._count} members, its buffers of {own}", code="shape"
            )

    @property
    def input_size(self) -> int:
        return self.architecture.input_size

    @property
    def output_size(self) -> int:
        return self.architecture.output_size

    def __len__(self) -> int:
        return self._count

    def factories(self) -> Mapping[str, Any]:
        return self.architecture.factories()

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (len(self), n, output_size) float64."""
        x = check_inputs(inputs, self.input_size, self.device)

        def evaluate(members: slice, rows: slice) -> Tensor:
            own = {key: value[members] for key, value in self.parameters.items()}
            fixed = {key: value[members] for key, value in self.buffers.items()}
            return self.architecture.evaluate(own, fixed, x[rows], buffer_axis=0)

        width = max(self.input_size, self.output_size)
        input_step = max(1, CHUNK_VALUES // (max(1, len(self)) * width))
        steps = (max(1, len(self)), input_step)
        return evaluate_in_chunks(evaluate, len(self), x.shape[0], steps=steps, axis=1)

    def take(self, indices: IntArray) -> Self:
        positions = check_indices(indices, len(self), self.device)
        return type(self)(
            self.architecture,
            {key: value[positions] for key, value in self.parameters.items()},
            {key: value[positions] for key, value in self.buffers.items()},
        )

    def to(self, device: torch.device | str) -> Self:
        return type(self)(
            self.architecture,
            {key: value.to(device) for key, value in self.parameters.items()},
            {key: value.to(device) for key, value in self.buffers.items()},
        )

    def compatible(self, other: Self) -> bool:
        """Whether both can be one stack."""
        return self.architecture.matches(other.architecture) and self.device == other.device

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """One stack of several that are compatible."""
        first = parts[0]
        return cls(
            first.architecture,
            {key: torch.cat([part.parameters[key] for part in parts]) for key in first.parameters},
            {key: torch.cat([part.buffers[key] for part in parts]) for key in first.buffers},
        )

    def trained_names(self) -> frozenset[str]:
        """Those of `tensors` that training moves."""
        return frozenset(f"parameter:{key}" for key in self.parameters)

    def tensors(self) -> dict[str, Tensor]:
        """What outputs are computed from."""
        own = {f"parameter:{key}": value for key, value in self.parameters.items()}
        return own | {f"buffer:{key}": value for key, value in self.buffers.items()}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same members with other tensors of these names, which are not looked at."""
        made = copy.copy(self)
        made.parameters = {key: tensors[f"parameter:{key}"] for key in self.parameters}
        made.buffers = {key: tensors[f"buffer:{key}"] for key in self.buffers}
        made.device = next(iter(made.parameters.values())).device
        return made

    def state(self) -> MemberState:
        config = {
            "factory": self.architecture.name,
            "input_size": self.input_size,
            "output_size": self.output_size,
        }
        arrays = {name: as_array(tensor) for name, tensor in self.tensors().items()}
        return MemberState(self.kind, config, arrays)

    @classmethod
    def restore(cls, state: MemberState, factories: Mapping[str, Factory]) -> Self:
        """Members from a saved state; the user's factory makes the module again."""
        name = read_state_field(state, "factory", str)
        if name not in factories:
            raise MissingFactory(
                f"these members were made by the factory {name!r}{did_you_mean(name, factories)}; "
                f"give it again: factories={{{name!r}: ...}} (given: {sorted(factories)})"
            )
        architecture = ModuleArchitecture(
            factories[name],
            read_state_field(state, "input_size", int),
            read_state_field(state, "output_size", int),
            name,
        )
        groups: dict[str, dict[str, Any]] = {"parameter": {}, "buffer": {}}
        for full in state.arrays:
            group, _, key = full.partition(":")
            if group not in groups or not key:
                raise InvalidInput(
                    f"saved module members: array {full!r} is not known", code="unknown-name"
                )
            groups[group][key] = read_state_array(state, full)
        return cls(architecture, groups["parameter"], groups["buffer"])
