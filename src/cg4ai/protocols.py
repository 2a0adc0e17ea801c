"""The few interfaces the loop relies on: anything that has these methods can take part.

How to take part in a run (`cg4ai.colgen.loop`), from the smallest to the largest:

- A `Pricer` trains members, a `Separator` searches for violated inputs. One that wraps another
  shows it as `inner` (one, or a sequence), so that checks and checkpoints look through it.
- A part that remembers something from one iteration to the next is `Stateful`: every checkpoint
  stores its `state()` (JSON-able values and arrays) and `restore`s it, in a resumed run and in one
  that goes on, so that both end alike. Pricers, the separators of requirements and phases, within
  any wrapper, are asked. Such a part belongs to one run: make a new one for each problem.
- A run that weighs, prices or decides in another way brings a phase of its own
  (`cg4ai.colgen.phases.Phase`, given by `Problem.phases`). The loop calls

      weighed = phase.weigh(run)                     # solve the master and cut
      priced = phase.price(run, weighed)             # propose and admit members
      decision = phase.decide(run, weighed, priced)  # GoOn(note, phase) or Stop(reason, note)

  and keeps record, checkpoint, progress, limits and interrupts itself; once the run has ended,
  `settle(run, reason)` of the first phase says which weights to return, and `finish` audits them.
  `run` is the `RunState`: `run.work` (columns, rows, master; `add_columns`, `add_cuts`, `admit`,
  `solve_master`), `run.step`, `run.history`, `run.deadline.left()`, `run.watch.timed(step)` to
  have seconds booked ("master", "pricing", "separation"), `run.interrupts.allowed()` around long
  computations, `run.notes`. A phase that proves its mixture ends by `Stop(StopReason.PROVEN, ...)`
  and keeps the weights of its best proof in its state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

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
    from cg4ai.members.mixture import Mixture
    from cg4ai.objectives import AnyObjective
    from cg4ai.rules import Requirement
    from cg4ai.rules.rows import RowSet


class Members(Protocol):
    """A stack of trained members of one kind, evaluated in one call, always in float64."""

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

    def __len__(self) -> int: ...

    def outputs(self, inputs: Tensor) -> Tensor:
        """`inputs` (n, d) float64 -> (len(self), n, output_size) float64, same device."""
        ...

    def take(self, indices: IntArray) -> Self: ...

    def to(self, device: torch.device | str) -> Self: ...

    def state(self) -> MemberState: ...


Parameters = dict[str, Tensor]


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


class Pricer(Protocol):
    """Trains members for given duals; may prove lower bounds of their reduced cost."""

    def price(self, request: PricingRequest) -> PricingResult: ...


@runtime_checkable
class Refusing(Protocol):
    """A pricer that says before anything is trained what it cannot price in reasonable time."""

    def refuse(self, objective: AnyObjective, requirements: Sequence[Requirement]) -> None: ...


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


@runtime_checkable
class Stateful(Protocol):
    """A pricer, separator or phase whose memory checkpoints keep."""

    def state(self) -> PartState: ...

    def restore(self, state: PartState) -> None: ...
