"""Records that the steps of the loop exchange: small and frozen.

Sign convention, used everywhere: the master minimises, every row reads
`value(mixture) + slack >= bound`, so row duals `beta` are >= 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from cg4ai.protocols import Members
    from cg4ai.rules.rows import Rows

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Value = TypeVar("Value")
PLAIN = "plain"  # the phase in which members are trained without the rules
STAND_IN = 1e11  # values from here on stand for infinity


class StopReason(StrEnum):
    """Why a run ended. Only the first three are proofs."""

    PROVEN = "proven"  # the final mixture keeps the rules at every input of their regions
    OPTIMAL = "optimal"  # an exact pricer proved that no member of the class improves
    INFEASIBLE = "infeasible"  # proven: no mixture of members of the class meets the rows
    NO_IMPROVING_COLUMN = "no_improving_column"  # training found none; says nothing of others
    STALLED = "stalled"  # rows met, but the objective hardly improves any more
    ROUND_LIMIT = "round_limit"  # rows met, after as many rounds of training as were asked for
    COLUMN_LIMIT = "column_limit"
    ITERATION_LIMIT = "iteration_limit"
    TIME_LIMIT = "time_limit"
    CALLBACK = "callback"  # a callback of the user's returned True
    INTERRUPTED = "interrupted"


class Strength(StrEnum):
    """What is established about a rule; docs/guarantees.md says how."""

    VIOLATED = "violated"  # it was found broken
    UNVERIFIED = "unverified"  # nothing is recorded about this prediction
    ATTACKED = "attacked"  # a search of the region found no violation
    BOUNDED = "bounded"  # a solver's bound excludes violations; nothing else checked it
    AUDITED = "audited"  # recomputed at every listed input
    SHIELDED = "shielded"  # predictions are corrected towards an anchor that keeps it
    CERTIFIED = "certified"  # proven on cells of the region
    CONSTRUCTED = "constructed"  # by the structure of every member


@dataclass(frozen=True, slots=True)
class Duals:
    """`rows` (m,) >= 0 for the rows of the master in order, `blocks` (G,) free in sign."""

    rows: Array
    blocks: Array

    def reduced_costs(self, costs: Array, coefficients: Array, blocks: IntArray) -> Array:
        """`cost - sum_j beta_j coefficient_j - gamma[block]` of each column: the one definition.

        `costs` (c,), `coefficients` (m, c) and `blocks` (c,) are the columns'.
        """
        return np.asarray(costs - coefficients.T @ self.rows - self.blocks[blocks])


@dataclass(frozen=True, slots=True)
class MasterSolution:
    """An optimal solution of the complete master: rows and columns set aside are checked too.

    `dummy` (G,) is the weight left on each block's dummy column (no mixture while positive);
    `slack` (m,) is what each row lacks, with `slack = max(0, bound - value)`.
    """

    weights: Array
    duals: Duals
    objective: float  # without penalties
    penalised: float  # with penalties: what the solver minimised
    slack: Array
    dummy: Array
    active_rows: int = 0
    active_columns: int = 0
    solver_iterations: int = 0

    @property
    def lacking(self) -> float:
        """The most that a row lacks, or the largest weight left on a dummy column; 0: all met."""
        return float(max(self.slack.max(initial=0.0), self.dummy.max(initial=0.0)))


@dataclass(frozen=True, slots=True)
class SingleModel:
    """One member of each block in place of a mixture, and how far from the best that can be.

    `met` says whether every known row is met, `lacking` what the worst lacks of it, `missed` how
    many of `rows` are not. No single model of this kind that meets the rows has an objective below
    `bound` (inf: none meets them) where that is `proven`; else it is an estimate, the objective of
    the best mixture that training found, or None where that misses rows, too. `mixture` is that
    objective in any case, nan where it misses rows.
    """

    objective: float
    met: bool
    lacking: float
    missed: int
    rows: int
    blocks: int
    bound: float | None
    proven: bool
    mixture: float

    @property
    def gap(self) -> float | None:
        """`objective - bound`; None where rows are missed or no bound is known."""
        if self.bound is None or not self.met:
            return None
        return max(0.0, self.objective - self.bound)

    def as_data(self) -> dict[str, Any]:
        """For summaries; what is not finite is None, `text` says all in words."""
        named = {one.name: getattr(self, one.name) for one in fields(self)} | {"gap": self.gap}
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in named.items()
        }
        return {**finite, "text": str(self)}

    def __str__(self) -> str:
        what = "one model" if self.blocks == 1 else f"one model for each of {self.blocks} blocks"
        if not self.met:
            known = (
                "proven: no single model of this kind meets all rows"
                if self.proven and self.bound == math.inf
                else "no single model that meets all rows was found, which does not rule one out"
            )
            return (
                f"single model: {known}; the best found misses {self.missed} of {self.rows} rows, "
                f"by {self.lacking:.3g} at most"
            )
        rows = f"meets all {self.rows} rows" if self.rows else "without rows to meet"
        return f"single model: {what}, {rows}; objective {self.objective:.6g}, {self._distance()}"

    def _distance(self) -> str:
        if self.bound is None:
            return "no bound is known"
        if self.proven:
            best = "proven to be the best" if (self.gap or 0.0) < 1e-9 else "proven"
            return f"{best}: none of this kind is below {self.bound:.6g} (gap {self.gap:.2g})"
        return (
            f"the mixture of all trained members reaches {self.bound:.6g} (gap {self.gap:.2g}, "
            "an estimate: training proves no bound)"
        )


@dataclass(frozen=True, slots=True)
class GapEstimate:
    """What a run that proves no bound can say of its distance from optimal, and by what.

    `value` estimates the bound, None where nothing does (`why`). It is what the bound would be if
    no member had a lower reduced cost at the final duals than the `restarts` trained there and the
    `earlier` ones that pricing tried at the same duals before (`last`: at duals before the final
    ones, nothing being tried there); `short`: time cut these trainings. The kinds `exact` were
    priced exactly: mixtures of the members that there are and any others of these kinds are not
    below `bound`. That, and that no mixture at all is below `floor`, is proven.
    """

    value: float | None = None
    why: str = ""
    restarts: int = 0
    earlier: int = 0
    last: bool = False
    short: bool = False
    exact: tuple[str, ...] = ()
    bound: float | None = None
    floor: float | None = None

    @property
    def proven(self) -> float | None:
        """The floor where no estimate of the bound is above it: what is said then is proven."""
        if self.floor is None or (self.value is not None and self.value > self.floor):
            return None
        return self.floor

    def describe_distance(self, objective: float) -> str:
        """In words how far this objective may be from the best."""
        if (floor := self.proven) is not None:
            words = (
                f"at most {max(0.0, objective - floor):.2g} (proven: no mixture is below "
                f"{floor:.6g}); "
            )
            words += (
                f"not estimated more closely: {self.why}"
                if self.value is None
                else f"an estimate from the best of {self.basis} adds nothing"
            )
        elif self.value is None:
            words = f"not estimated: {self.why}"
        elif objective - self.value < 1e-9:
            words = f"0, estimated: none of {self.basis} improves it"
        else:
            words = f"about {objective - self.value:.2g}, estimated from the best of {self.basis}"
        return words + self._exact_part(objective)

    @property
    def basis(self) -> str:
        """What the estimate rests on, in words."""
        parts = [_restarts(self.restarts, "at the final duals")] if self.restarts else []
        if self.earlier:
            where = "by the last pricing, at duals before the final ones"
            parts.append(_restarts(self.earlier, where if self.last else "just before"))
        parts += [f"all {one}" for one in self.exact]
        return " and ".join(parts) + (", cut short by the time limit" if self.short else "")

    def _exact_part(self, objective: float) -> str:
        if self.bound is None:
            return ""
        most = max(0.0, objective - self.bound)
        kinds = " and ".join(self.exact)
        return f"; proven of {kinds}: with more of them it would fall by {most:.2g} at most"


def _restarts(count: int, where: str) -> str:
    return f"{count} {'restart' if count == 1 else 'restarts'} {where}"


@dataclass(frozen=True, slots=True)
class PricingResult:
    """Members proposed by a pricer, one block index each.

    `groups` (count,) puts members that were trained jointly under one number (>= 0); -1 stands
    alone. `lower_bound` (G,), if not None, is proven: no member of the pricer's class in block g
    has a reduced cost below it at the request's true duals. `rows` are rows of the requirements
    that mattered while training; the master takes them as cuts. `note` goes into the iteration's.
    `tried` says how many were trained where not all of them are proposed, `short` whether a time
    limit shortened the training. With `others_too` the pricers that come next are asked even where
    these members enter.
    """

    members: Members | None
    blocks: IntArray
    groups: IntArray
    lower_bound: Array | None = None
    note: str = ""
    rows: tuple[Rows, ...] = ()
    tried: int | None = None
    short: bool = False
    others_too: bool = False

    @property
    def trained(self) -> int:
        """How many members, or jointly trained groups, were trained."""
        if self.tried is not None:
            return self.tried
        grouped = self.groups >= 0
        return len(np.unique(self.groups[grouped])) + int((~grouped).sum())


@dataclass(frozen=True, slots=True)
class SeparationResult:
    """Violated rows found by a separator, with the violation of each, worst first.

    `worst` is the largest violation seen (negative: how far from violated); `effort` says in
    numbers how hard the search was. No input of the region is violated by more than `bound`; None
    where that is not known, as after a search.
    """

    rows: Rows | None
    violations: Array
    worst: float
    effort: Mapping[str, Any]
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class IterationRecord:
    """One line of a run's history.

    Its seconds are all that passed since the record before: `other_s` are those of no step, such as
    setting up, progress and the last checkpoint. `total_s` is the sum over all records so far.
    `phase` names how it was made: "plain" without the rules, "normal" and "slack" under them,
    "single" where one model is sought, or a phase of the problem's own.
    """

    iteration: int
    objective: float
    slack: float
    worst_violation: float | None
    best_reduced_cost: float | None
    bound: float | None
    columns: int
    rows: int
    added_columns: int
    added_rows: int
    penalty: float
    master_s: float
    pricing_s: float
    separation_s: float
    total_s: float
    note: str = ""
    raised: float = 0.0  # what inputs newly counted into the objective added to it
    trainings: int | None = None  # how often pricers were asked; None: not counted
    other_s: float = 0.0
    phase: str = ""
    rows_met: bool = True  # whether every row lacks at most the tolerance, by its own size

    @property
    def seconds(self) -> float:
        """All seconds of this iteration."""
        return self.master_s + self.pricing_s + self.separation_s + self.other_s


@dataclass(frozen=True, slots=True)
class EndingRecord:
    """Seconds of a run's ending, which follow those of its last iteration.

    `weights_s` went to final weights, `search_s` to the last search, `pruning_s` to leaving members
    out, `audits_s` to audits and the true loss, `estimate_s` to the estimate of how far from
    optimal it is; `total_s` are all of the run.
    """

    weights_s: float = 0.0
    search_s: float = 0.0
    pruning_s: float = 0.0
    audits_s: float = 0.0
    other_s: float = 0.0
    total_s: float = 0.0
    estimate_s: float = 0.0

    @property
    def seconds(self) -> float:
        """All seconds of the ending."""
        settled = self.weights_s + self.search_s + self.pruning_s
        return settled + self.audits_s + self.estimate_s + self.other_s


@dataclass(frozen=True, slots=True)
class PartState:
    """What a pricer, separator or phase remembers: JSON-able `values` and named `arrays`."""

    values: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemberState:
    """A stack of members as plain data: JSON-able `config` and named `arrays`."""

    kind: str
    config: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def select_prefixed(named: Mapping[str, Value], prefix: str) -> dict[str, Value]:
    """Those whose names begin so, by the rest of their names."""
    return {
        name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)
    }
