"""What the steps of an iteration hand to each other: named, frozen, without behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cg4ai.records import Array, MasterSolution, SeparationResult, StopReason


@dataclass(frozen=True, slots=True)
class Weighed:
    """The master solved, with its cuts.

    `worst` is the largest violation that separation saw (None: it did not look); `raised` says by
    how much inputs that were counted in now raised the objective.
    """

    solution: MasterSolution
    worst: float | None = None
    raised: float = 0.0


@dataclass(frozen=True, slots=True)
class Separated:
    """A search: the worst violation seen, rows added, and what was `found` by requirement."""

    worst: float | None = None
    added: int = 0
    found: Mapping[int, SeparationResult] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Admitted:
    """How many members entered the master, and the best reduced cost of a member or group."""

    count: int
    best: float


class Outcome(StrEnum):
    """What pricing came to."""

    IMPROVED = "improved"  # members entered and more may follow
    NO_ROOM = "no room"  # an improving group does not fit the column limit
    INCOMPLETE = "incomplete"  # pieces of the objective are missing, so the duals were not final
    NOTHING = "nothing"  # no member improves, or the bound is met


@dataclass(frozen=True, slots=True)
class Priced:
    """Pricing of one iteration; `solution` is the master's as pricing left it.

    `best` is the best reduced cost proposed, `bound` what no mixture of the class can be below
    (None: no pricer proved one), `trainings` how often pricers were asked.
    """

    outcome: Outcome
    solution: MasterSolution
    admitted: int = 0
    best: float | None = None
    bound: float | None = None
    trainings: int = 0


@dataclass(frozen=True, slots=True)
class GoOn:
    """Iterate again, in the phase of this name (empty: the same)."""

    note: str = ""
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run."""

    reason: StopReason
    note: str = ""


Decision = GoOn | Stop


@dataclass(frozen=True, slots=True)
class Settled:
    """What a run ends with: the weights of all columns and the master's solution behind them."""

    solution: MasterSolution
    weights: Array
    reason: StopReason
