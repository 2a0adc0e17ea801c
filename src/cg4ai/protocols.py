"""The interfaces of the loop: what a pricer, a kind of member or a separator must offer.

How to take part in a run (`cg4ai.colgen.loop`), from the smallest to the largest:

- A `Separator` searches for violated inputs, a `Pricer` trains `Members`, perhaps by gradients on
  the parameters of an `Architecture`. Each protocol lists all that is asked. Derive from
  `SeparatorDefaults`, `MemberDefaults`, `ArchitectureDefaults` (here) or `PricerDefaults`
  (`cg4ai.colgen.pricing.defaults`), and only the methods without a default have to be written.
- A part that asks another one, as a wrapper does, names it in `inner_parts()`, so that checks and
  checkpoints look through it.
- A part that remembers something from one iteration to the next is `Stateful`: every checkpoint
  stores its `state()` (JSON-able values and arrays) and `restore`s it, in a resumed run and in one
  that goes on, so that both end alike. Pricers, the separators of requirements and phases, within
  any wrapper, are asked. Such a part belongs to one run: make a new one for each problem.
- A run that weighs, prices or decides in another way brings a phase of its own
  (`cg4ai.colgen.phases.Phase`, given by `Problem.phases`). The loop calls

      weighed = phase.weigh(run)                     # solve the master and cut
      priced = phase.price(run, weighed)             # propose and admit members
      decision = phase.decide(run, weighed, priced)  # Continue(note, phase) or Stop(reason, note)

  and keeps record, checkpoint, progress, limits and interrupts itself; once the run has ended,
  `settle(run, reason)` of the first phase says which weights to return, and `finish` audits them.
  `run` is the `RunState`: `run.work` (columns, rows, master; `add_columns`, `add_cuts`, `admit`,
  `solve_master`), `run.step`, `run.history`, `run.deadline.compute_seconds_left()`,
  `run.watch.measure_step(step)` to book seconds ("master", "pricing", "separation"),
  `run.interrupts.allow_interrupts()` around long computations, `run.notes`. A phase that proves
  its mixture ends by `Stop(StopReason.PROVEN, ...)` and keeps the weights of its best proof in its
  state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.records import (
    Array,
    Duals,
    IntArray,
    MemberState,
    PartState,
    PricingResult,
    SeparationResult,
)

if TYPE_CHECKING:
    from cg4ai.colgen.pricing.probes import Probe
    from cg4ai.members.mixture import Mixture
    from cg4ai.members.slopes import Moves
    from cg4ai.members.structure import Ends, OutputForm, SetForm
    from cg4ai.objectives import AnyObjective
    from cg4ai.rules import OutputSet, Requirement
    from cg4ai.rules.caps import Caps
    from cg4ai.rules.rows import RowSet
    from cg4ai.rules.shapes import Shape


Parameters = dict[str, Tensor]
# one input (d,) -> outputs (members, r) and, where a shield moved any, by how much each (members,)
Single = Callable[[Array], tuple[Array, Array | None]]


class Members(Protocol):
    """A stack of trained members of one kind, evaluated in one call, always in float64."""

    @property
    def kind(self) -> str:
        """The name of this kind in saved files."""
        ...

    @property
    def device(self) -> torch.device:
        """Where all of them live, and their inputs must be."""
        ...

    @property
    def input_size(self) -> int: ...

    @property
    def output_size(self) -> int: ...

    @property
    def differentiable(self) -> bool:
        """Whether `outputs` carries gradients to `inputs`."""
        ...

    @property
    def takes_missing(self) -> bool:
        """Whether inputs may be NaN."""
        ...

    def __len__(self) -> int: ...

    def outputs(self, inputs: Tensor) -> Tensor:
        """`inputs` (n, d) float64 -> (len(self), n, output_size) float64, same device."""
        ...

    def take(self, indices: IntArray) -> Self: ...

    def to(self, device: torch.device | str) -> Self: ...

    def state(self) -> MemberState:
        """Kind, JSON-able configuration and arrays, from which they are made again bit for bit."""
        ...

    # ---- with defaults in `MemberDefaults` ----------------------------------------------------

    def mixture(self, inputs: Tensor, weights: Tensor) -> Tensor:
        """`sum_i weights_i outputs_i`: (n, d), (len(self),) -> (n, output_size)."""
        ...

    def mixtures(self, inputs: Tensor, shares: Tensor) -> Tensor:
        """Several mixtures at once: shares (k, len(self)) -> (k, n, output_size)."""
        ...

    def theta(self, inputs: Tensor) -> Tensor:
        """(len(self), n): how far a shield moves each member; 0 without one."""
        ...

    def single(self) -> Single | None:
        """`outputs` and `theta` for one input, computed by NumPy; None where there is no such way.

        What it gives differs by rounding alone. It is made once and then called from any thread:
        it keeps no state, and its results have memory of their own, or are never written to.
        """
        ...

    def innermost(self) -> Members:
        """The members within all layers (completed, shielded, ...): these, if there are none."""
        ...

    def compatible(self, other: Self) -> bool:
        """Whether both can be one stack."""
        ...

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """One stack of several that are compatible, in order."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """What outputs are computed from, by name."""
        ...

    def trained_names(self) -> frozenset[str]:
        """The names of those tensors that training moves; all others are fixed."""
        ...

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same members computed from other tensors of these names, which are not looked at."""
        ...

    def examine(self) -> None:
        """Check tensors that came by `with_tensors` from elsewhere, where that is needed."""
        ...

    def factories(self) -> Mapping[str, Any]:
        """What `cg4ai.load` needs to make them again; see `Pricer.factories`."""
        ...

    # what their arrays show at every input, in `cg4ai.members.structure` and `slopes`

    @property
    def output_set(self) -> OutputSet | None:
        """The set that they were built for."""
        ...

    @property
    def caps(self) -> Caps | None:
        """The limits that their outputs keep, functions of the input."""
        ...

    def gives_shares(self) -> bool:
        """Whether all outputs lie between 0 and 1, but for rounding."""
        ...

    def find_output_forms(self) -> Sequence[OutputForm]:
        """One for each member, or one for all; none where they have no such form."""
        ...

    def find_set_forms(self, matrix: Array) -> Sequence[SetForm]:
        """The same of sets, when the rows `matrix` (m, r) of outputs are asked about."""
        ...

    def find_moves(self, shape: Shape) -> Sequence[Moves]:
        """For each member (k, d, 4), what the sums that the shape is about may do; or none."""
        ...

    def find_usual_inputs(self) -> Ends | None:
        """Where inputs are usual, as far as these arrays say it."""
        ...


class MemberDefaults:
    """Defaults of `Members`: no gradients, layers or joint stacks, mixtures by their outputs.

    Nothing is known of their outputs but what they are at given inputs.
    """

    @property
    def differentiable(self) -> bool:
        return False

    @property
    def takes_missing(self) -> bool:
        return False

    def mixture(self: Members, inputs: Tensor, weights: Tensor) -> Tensor:
        return torch.einsum("m,mnr->nr", weights, self.outputs(inputs))

    def mixtures(self: Members, inputs: Tensor, shares: Tensor) -> Tensor:
        values = self.outputs(inputs)
        return (shares @ values.flatten(1)).view(len(shares), *values.shape[1:])

    def theta(self: Members, inputs: Tensor) -> Tensor:
        return inputs.new_zeros(len(self), len(inputs))

    def single(self) -> Single | None:
        return None

    def innermost(self: Members) -> Members:
        return self

    def compatible(self, other: Self) -> bool:
        return False

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        raise InvalidInput(
            f"stacks of {cls.__name__} cannot be joined; give them concatenate()",
            code="unsupported",
        )

    def tensors(self) -> dict[str, Tensor]:
        raise _no_tensors(self)

    def trained_names(self) -> frozenset[str]:
        raise _no_tensors(self)

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        raise _no_tensors(self)

    def examine(self) -> None:
        pass

    def factories(self) -> Mapping[str, Any]:
        return {}

    @property
    def output_set(self) -> OutputSet | None:
        return None

    @property
    def caps(self) -> Caps | None:
        return None

    def gives_shares(self) -> bool:
        return False

    def find_output_forms(self) -> Sequence[OutputForm]:
        return ()

    def find_set_forms(self, matrix: Array) -> Sequence[SetForm]:
        return ()

    def find_moves(self, shape: Shape) -> Sequence[Moves]:
        return ()

    def find_usual_inputs(self) -> Ends | None:
        return None


def _no_tensors(members: object) -> InvalidInput:
    return InvalidInput(
        f"{type(members).__name__} cannot become part of a torch module: give it the methods "
        "tensors() -> dict of names and tensors, trained_names() -> names of those that "
        "training moves, and with_tensors(tensors) -> members",
        code="unsupported",
    )


class Architecture(Protocol):
    """A differentiable kind of member that gradient pricing can train, many at a time."""

    @property
    def input_size(self) -> int: ...

    @property
    def output_size(self) -> int: ...

    def initialise(self, count: int, generator: torch.Generator) -> Parameters:
        """Fresh random parameters (CPU, float32 or float64) with a leading axis of `count`."""
        ...

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(n, d) -> (count, n, output_size), differentiable in the parameters."""
        ...

    def members(self, parameters: Parameters) -> Members:
        """Freeze parameters (any dtype) into a float64 stack of members."""
        ...

    def parameters(self, members: Members) -> Parameters | None:
        """Parameters to warm-start from, or None if these members are of another architecture."""
        ...

    # ---- with defaults in `ArchitectureDefaults` ----------------------------------------------

    @property
    def softmax_groups(self) -> tuple[int, ...]:
        """Sizes of the groups of outputs under a softmax; empty where they are linear."""
        ...

    def initialise_near(self, parameters: Parameters, slopes: Array, offsets: Array) -> Parameters:
        """The same with outputs near `slopes @ x + offsets`, (r, d) and (r,), where possible."""
        ...

    def set_output_unit(self, size: float) -> Architecture:
        """The same with outputs that come in multiples of `size`, unless it has units of its own.

        So one learning rate serves outputs of any size.
        """
        ...

    def mask_parameters(self, parameters: Parameters) -> Parameters:
        """The same with zeros at the weights of inputs that a member does not see."""
        ...

    def scale_outputs(self, parameters: Parameters, factors: Tensor) -> Parameters:
        """Linear outputs times a factor for each member (count,); InvalidInput if not linear."""
        ...

    def factories(self) -> Mapping[str, Any]:
        """As those of its members."""
        ...


class ArchitectureDefaults:
    """Defaults of `Architecture`: outputs that are neither probabilities nor known to be linear."""

    @property
    def softmax_groups(self) -> tuple[int, ...]:
        return ()

    def initialise_near(self, parameters: Parameters, slopes: Array, offsets: Array) -> Parameters:
        return parameters

    def mask_parameters(self, parameters: Parameters) -> Parameters:
        return parameters

    def set_output_unit(self: Architecture, size: float) -> Architecture:
        return self

    def scale_outputs(self, parameters: Parameters, factors: Tensor) -> Parameters:
        raise InvalidInput(
            "output_limit scales linear outputs down, and these members have none that are known: "
            "set output_limit=None",
            code="conflict",
        )

    def factories(self) -> Mapping[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class PricingRequest:
    """What a pricer is told: the master's prices and the mixture it should improve.

    `duals` are the master's own, in the order of `rows`; `guide` (m,) are the row duals to
    propose by (smoothed, or equal to `duals.rows`). `loss_weight` is 0 in the phase that
    minimises slack alone; `requirements` are the problem's, in order. `seed` is derived from
    (run seed, iteration, pricer). Training that lasts until `until`, a moment of
    `time.perf_counter`, ends there with what it has. Costs are rounded in the `unit` of the
    objective, 1 unless they are very small or large.
    """

    iteration: int
    seed: int
    duals: Duals
    guide: Array
    rows: RowSet
    objective: AnyObjective
    loss_weight: float
    ensemble: Mixture | None
    device: str
    requirements: Sequence[Requirement] = ()
    until: float = math.inf
    unit: float = 1.0


@dataclass(frozen=True, slots=True)
class PricerCapabilities:
    """What a pricer needs of a problem, and what its answers can be used for.

    `fits_data`: its members are fitted to data, so that a run may first train without the rules.
    `needs_labels`: the objective must be `Supervised`. `linear_rows_only`: rows of the members' own
    margins are refused. `takes_missing`: its members take inputs that are NaN. `keeps_shapes`:
    `with_shapes` makes members that keep `Monotone` and `Curvature`. `any_classes`: it fits as many
    classes as the layout of a request has outputs. `proves`: the members over
    which its `lower_bound` is proven, such as "stumps"; empty if it proves none.
    """

    fits_data: bool = False
    needs_labels: bool = False
    linear_rows_only: bool = False
    takes_missing: bool = False
    keeps_shapes: bool = False
    any_classes: bool = False
    proves: str = ""


@dataclass(frozen=True, slots=True)
class MemberChange:
    """Another make of members: how it changes an architecture, and members that are trained."""

    architecture: Callable[[Architecture], Architecture]
    members: Callable[[Members], Members]


@runtime_checkable
class Wrapping(Protocol):
    """A pricer, separator or phase that asks others."""

    def inner_parts(self) -> Sequence[object]: ...


@runtime_checkable
class Pricer(Protocol):
    """Trains members for given duals; may prove lower bounds of their reduced cost.

    All but `price` have defaults in `cg4ai.colgen.pricing.defaults`: `PricerDefaults` for one that
    trains members itself, `ArchitecturePricer` for one that trains an architecture, and
    `WrappingPricer` for one that asks others.
    """

    def price(self, request: PricingRequest) -> PricingResult:
        """Members that improve the mixture, or none."""
        ...

    @property
    def capabilities(self) -> PricerCapabilities: ...

    def inner_parts(self) -> Sequence[Pricer]:
        """The pricers that it asks; empty for one that trains members itself."""
        ...

    def map_inner(self, change: Callable[[Pricer], Pricer]) -> Pricer:
        """The same with each of `inner_parts` changed."""
        ...

    def trained_architecture(self) -> Architecture | None:
        """What it trains by gradients; None if it trains in another way."""
        ...

    def with_members(self, change: MemberChange) -> Pricer:
        """The same for members of another make, such as completed or shielded ones."""
        ...

    def with_shapes(self, shapes: Sequence[Shape]) -> Pricer:
        """The same for members that keep the shapes, if `capabilities.keeps_shapes`; else as is."""
        ...

    def for_estimate(self, probe: Probe) -> Pricer:
        """The same asked briefly, from many starts, for the estimate of the optimality gap."""
        ...

    def for_single_models(self, pressure: float) -> Pricer:
        """The same for members that stand alone, with rows `pressure` times as heavy."""
        ...

    def for_decisions(self) -> Pricer:
        """The same for scores that decide: trained on the labels of the request and no others."""
        ...

    def refuse(self, objective: AnyObjective, requirements: Sequence[Requirement]) -> None:
        """Raise InvalidInput for a problem that it cannot price in reasonable time."""
        ...

    def factories(self) -> Mapping[str, Any]:
        """What makes its members again from a saved state, by name.

        For members of a kind of one's own: `{kind: restore}`, `restore(state) -> Members`.
        """
        ...


class Separator(Protocol):
    """Searches a requirement's region for inputs that a mixture violates."""

    def find(
        self,
        ensemble: Mixture,
        requirement: Requirement,
        *,
        seed: int,
        limit: int,
        tolerance: float,
    ) -> SeparationResult:
        """At most `limit` rows violated by more than `tolerance` (negative: or nearly so)."""
        ...

    def thorough(self) -> Separator:
        """A stronger version of this search, for the last look before a run ends."""
        ...

    def inner_parts(self) -> Sequence[object]:
        """The separators that it asks; empty for one that searches itself."""
        ...


class SeparatorDefaults:
    """Defaults of `Separator`: one that searches itself and has no stronger version."""

    def thorough(self: Separator) -> Separator:
        return self

    def inner_parts(self) -> Sequence[object]:
        return ()

    @property
    def takes_any_rule(self) -> bool:
        """Whether it searches any rule over a region, so that a brief search may take its place.

        A requirement may be one that its own separator alone can search.
        """
        return any(
            isinstance(one, SeparatorDefaults) and one.takes_any_rule for one in self.inner_parts()
        )


@runtime_checkable
class Stateful(Protocol):
    """A pricer, separator or phase whose memory checkpoints keep."""

    def state(self) -> PartState: ...

    def restore(self, state: PartState) -> None: ...
