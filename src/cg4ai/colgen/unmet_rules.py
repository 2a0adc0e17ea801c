"""Why a run ends with rules unmet: the rows that contradict each other, and for whom.

First for any predictor, by the rules alone; then, where every pricer is exact, for all mixtures of
its class; else for the members that were trained, which says nothing of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from cg4ai.colgen import tolerances
from cg4ai.colgen.master import LinearMaster
from cg4ai.colgen.master.table import OWN_SLACK
from cg4ai.colgen.pricing.reduced_cost import compute_all_values
from cg4ai.compile.problem import find_softmax_groups
from cg4ai.conflicts import Conflict, Scope, contradiction
from cg4ai.conflicts.irreducible import ElasticProgram, System, UndecidedError, search
from cg4ai.protocols import PricingRequest
from cg4ai.records import Array, Duals, IntArray, StopReason
from cg4ai.rules import Requirement, Shape
from cg4ai.rules.rates import GroupRates
from cg4ai.rules.regions import Region
from cg4ai.rules.rows import Rows
from cg4ai.seeds import derive_seed

if TYPE_CHECKING:
    from cg4ai.colgen.state import RunState

MOST_ROWS = 2_000  # of which a set is sought at once; of more, among those with a price
MOST_PRICINGS = 300  # by exact pricers, for one conflict


def find_conflict(run: RunState, reason: StopReason) -> Conflict | None:
    """What contradicts each other in a run whose rules are not all met; None: nothing was found."""
    if not run.has_time("the search for what contradicts each other"):
        return None
    found = _of_any_predictor(run, run.problem.asked)
    # that one model keeps no rules says nothing of mixtures, which may
    single = run.turn_of_one_model and reason is StopReason.INFEASIBLE
    if found is not None or single or not run.work.requirement_rows().any():
        return found
    if run.work.restricted:  # rows that ask for more than the rules contradict nothing
        return None
    return _Mixtures(run, exact=reason is StopReason.INFEASIBLE).conflict()


def _of_any_predictor(run: RunState, asked: Sequence[Requirement]) -> Conflict | None:
    """Rules over regions are read at the inputs that cuts were found at, too."""
    problem = run.problem
    groups = find_softmax_groups(problem)
    # whose score a shape is about is known of probabilities alone; members keep it in any case
    plain = [one for one in asked if groups or not isinstance(one, Shape)]
    cuts = [
        batch.inputs
        for batch in run.work.rows.batches
        if batch.requirement >= 0
        and isinstance(problem.requirements[batch.requirement].region, Region)
    ]
    found = contradiction(
        plain,
        input_size=problem.objective.inputs.shape[1],
        output_size=problem.layout.output_size,
        probabilities=groups,
        further=np.concatenate(cuts) if cuts else None,
    )
    if found is None:
        return None
    place = [k for k, one in enumerate(asked) if any(one is other for other in plain)]
    return replace(found, requirements=tuple(place[number] for number in found.requirements))


class _Mixtures:
    """Clauses are rows of the master that come from requirements, variables weights of members.

    `exact`: members that the pricers find are added until their bound proves that none is left.
    """

    def __init__(self, run: RunState, *, exact: bool) -> None:
        self.run, self.exact = run, exact
        asked = _as_asked(run)
        self.asked = run.problem.asked
        self.batches = [
            (_as_stated(run, number, batch, asked[batch.requirement]), asked[batch.requirement])
            for number, batch in enumerate(run.work.rows.batches)
            if batch.requirement >= 0
        ]
        self.rows = np.flatnonzero(run.work.requirement_rows())
        # rows that audits would find to be met are no conflict
        tolerances = run.audit_tolerance * run.work.row_sizes[self.rows]
        self.bounds = _bounds(run, asked) - tolerances
        self.table = run.work.table()[self.rows]
        self.blocks = run.work.columns.blocks
        self.pricings = 0

    def conflict(self) -> Conflict | None:
        numbers = np.concatenate(
            [np.full(len(stated), self._position(one)) for stated, one in self.batches]
        )
        chosen = np.arange(len(self.rows))
        if len(chosen) > MOST_ROWS:
            chosen = self._priced()
        prover = _Weighing(self, chosen)
        found = search(prover, numbers[chosen])
        if found is None:
            return None
        found = replace(found, parts=tuple(chosen[part] for part in found.parts))
        scope = Scope.CLASS if self.exact else Scope.MEMBERS
        return Conflict.from_clauses(scope, found, self.asked, owner=numbers, text=self._text)

    def _position(self, requirement: Requirement) -> int:
        return next((k for k, one in enumerate(self.asked) if one is requirement), -1)

    def _priced(self) -> IntArray:
        """Rows that have a price where slack alone is minimised."""
        count = len(self.run.problem.layout)
        master = LinearMaster(count)
        master.add_columns(np.zeros(len(self.blocks)), self.blocks, np.zeros((0, len(self.blocks))))
        master.add_rows(self.table, self.bounds, np.full(len(self.bounds), OWN_SLACK))
        master.minimise_slack(True)
        return np.flatnonzero(master.solve().duals.rows > 0)

    def _text(self, row: int) -> str:
        for stated, requirement in self.batches:
            if row < len(stated):
                rows, j = stated[row]
                return requirement.describe(rows, j)
            row -= len(stated)
        raise IndexError(row)

    def system(self, chosen: IntArray) -> System:
        """These rows over weights >= 0 that sum to one in every block."""
        size, count = len(self.blocks), len(self.run.problem.layout)
        convexity = csr_matrix((np.ones(size), (self.blocks, np.arange(size))), (count, size))
        return System(
            csr_matrix(self.table[chosen]),
            self.bounds[chosen],
            np.arange(len(chosen)),
            np.zeros(size),
            convexity,
            np.ones(count),
        )

    def price(self, chosen: IntArray, rows: Array, blocks: Array) -> float | None:
        """Ask every pricer at these duals: the sum of bounds on reduced costs, None without one.

        Members that they propose become columns.
        """
        run = self.run
        duals = np.zeros(len(run.work.rows))
        duals[self.rows[chosen]] = rows
        self.pricings += 1
        if self.pricings > MOST_PRICINGS or not run.has_time("naming rules that conflict"):
            raise UndecidedError("the limit on pricing was reached")
        request = PricingRequest(
            iteration=run.step,
            seed=derive_seed(run.settings.seed, self.pricings, "conflict"),
            duals=Duals(duals, blocks),
            guide=duals,
            rows=run.work.rows,
            objective=run.problem.objective,
            loss_weight=0.0,
            ensemble=run.work.whole_ensemble(np.ones(len(run.work.columns))),
            device=run.settings.device,
            requirements=run.problem.requirements,
        )
        lower = np.zeros(len(blocks))
        for pricer in run.pricers:
            found = pricer.price(request)
            if found.lower_bound is None:
                return None
            lower = np.minimum(lower, found.lower_bound)
            if found.members is not None and len(found.members):
                values = compute_all_values(
                    run.work.rows, found.members, found.blocks, run.settings.device
                )
                self.table = np.concatenate([self.table, values[self.rows]], axis=1)
                self.blocks = np.concatenate([self.blocks, found.blocks])
        return float(lower.sum())


class _Weighing:
    """Tells whether mixtures keep some of the rows; with exact pricers, of all members."""

    def __init__(self, mixtures: _Mixtures, chosen: IntArray) -> None:
        self.mixtures, self.chosen = mixtures, chosen
        self.tolerance = tolerances.FEASIBILITY_TOLERANCE
        self._elastic = ElasticProgram(mixtures.system(chosen), self.tolerance)
        self._columns = len(mixtures.blocks)

    def part(self, kept: NDArray[np.bool_]) -> _Weighing:
        return _Weighing(self.mixtures, self.chosen[kept])

    def find_core(self, kept: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        while True:
            self._catch_up()
            least = self._elastic.minimise_slack(kept)
            if least.total <= self.tolerance:
                return None
            if self.mixtures.exact:
                bound = self.mixtures.price(self.chosen, least.rows, least.equal)
                if bound is None:
                    raise UndecidedError("a pricer gave no bound")
                if self._columns < len(self.mixtures.blocks) and (
                    least.total + bound <= self.tolerance
                ):
                    continue
                if least.total + bound <= self.tolerance:
                    raise UndecidedError("no pricer found what its bound allows")
            return self._elastic.find_priced(least, kept)

    def _catch_up(self) -> None:
        """Take in columns that pricing found since."""
        mixtures, before = self.mixtures, self._columns
        self._columns = len(mixtures.blocks)
        if self._columns == before:
            return
        blocks = mixtures.blocks[before:]
        convexity = np.zeros((len(mixtures.run.problem.layout), len(blocks)))
        convexity[blocks, np.arange(len(blocks))] = 1.0
        self._elastic.add_columns(mixtures.table[self.chosen][:, before:], convexity)


def _as_asked(run: RunState) -> Sequence[Requirement]:
    """Requirements as they were asked for: rates are trained for by stricter ones."""
    problem = run.problem
    asked = [one for one in problem.asked if not any(one is other for other in problem.kept)]
    return asked if len(asked) == len(problem.requirements) else problem.requirements


def _bounds(run: RunState, asked: Sequence[Requirement]) -> Array:
    """Of the master's rows of requirements, as they were asked for, scaled as the rows are."""
    found = []
    for batch in run.work.rows.batches:
        if batch.requirement >= 0:
            scale = run.work.compute_size(batch.requirement).scale
            found.append(_asked_bounds(batch, asked[batch.requirement], scale) / scale)
    return np.concatenate(found)


def _asked_bounds(batch: Rows, requirement: Requirement, scale: float) -> Array:
    if not isinstance(requirement, GroupRates) or batch.origin is None:
        return batch.bounds * scale
    return np.asarray(requirement.rows(0).bounds[batch.origin[:, 1]])


def _as_stated(
    run: RunState, number: int, batch: Rows, requirement: Requirement
) -> list[tuple[Rows, int]]:
    """The row, of the rule as it was stated, behind each row of the master's batch `number`."""
    tangents, scale = run.work.tangents, run.work.compute_size(batch.requirement).scale
    if number in tangents.source:
        behind = [tangents.row(row) for row in tangents.source[number].tolist()]
        return [(replace(rows, bounds=rows.bounds * scale), j) for rows, j in behind]
    told = replace(batch, bounds=_asked_bounds(batch, requirement, scale))
    return [(told, j) for j in range(len(batch))]
