"""Columns, rows and master of one run, kept in step; the loop decides, this carries out."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.colgen import tolerances
from cg4ai.colgen.columns import NO_WEIGHT, Columns
from cg4ai.colgen.final_weights import choose_final_weights
from cg4ai.colgen.iteration import AdmissionResult
from cg4ai.colgen.master import LinearMaster
from cg4ai.colgen.master.convex import ConvexMaster
from cg4ai.colgen.master.table import NO_SLACK, OWN_SLACK
from cg4ai.colgen.pricing.reduced_cost import (
    compute_all_values,
    compute_block_outputs,
    compute_member_costs,
)
from cg4ai.colgen.scenarios import Scenarios
from cg4ai.colgen.supergradient_cuts import TANGENT_ROUNDS, TangentRows
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.compile.problem import check_fit
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput, SolverFailure
from cg4ai.members.shielded import Shield, ShieldedMembers
from cg4ai.objectives import Batch, Epigraph, Supervised
from cg4ai.protocols import Members
from cg4ai.records import Array, Duals, IntArray, MasterSolution, PricingResult
from cg4ai.rules.row_sizes import RequirementSize, compute_requirement_size, estimate_output_size
from cg4ai.rules.rows import ConcaveRows, LinearRows, Rows, RowSet
from cg4ai.settings import Settings

ROW_AGE_LIMIT, COLUMN_AGE_LIMIT = 10, 20  # solves in a row without use before one is set aside
EPIGRAPH_ROUNDS = 8
ROUNDING = 2e-9  # reduced costs and dummies within the master's own tolerance of zero
MIXED = 0.5  # with less weight than this on each dummy column the answer is a mixture


class Workspace:
    """The restricted master with the members and rows it is made of."""

    def __init__(self, problem: CompiledProblem, settings: Settings) -> None:
        self.problem = problem
        self.settings = settings
        self.objective = problem.objective
        self.layout = problem.layout
        self.columns = Columns(problem.layout, settings.device)
        self.rows = RowSet(problem.layout)
        self.tangents = TangentRows()
        self._row_sizes: list[Array] = []  # of each batch of rows
        self._requirement_sizes: dict[int, RequirementSize] = {}
        self.notes: list[str] = []
        self.master = self._new_master()
        self._seen: set[bytes] = set()
        self.rules_bound = False
        self.incomplete = False  # whether the master lacks pieces of the objective, or tangents
        self.scenarios: Scenarios | None = None
        if isinstance(self.objective, Epigraph):
            self.scenarios = Scenarios(self.objective, settings.device)
            self._add_scenarios(self.scenarios.costs)

    def start(self, *, bind_rules: bool = True) -> None:
        """Put in what the problem starts from: its members and, unless told not to, its rules."""
        source = self.problem if bind_rules else self.problem.unshielded or self.problem
        for members, blocks in source.start:
            self.add_columns(members.to(self.settings.device), np.asarray(blocks, np.int64))
        if bind_rules:
            self._bind_rows()

    def bind_rules(self) -> None:
        """Rules become rows of the master or shields of the members, if they are not yet."""
        if self.rules_bound:
            return
        if self.problem.shield is not None:
            self._shield_members(self.problem.shield)
        self._bind_rows()

    def solve_under_rules(self) -> MasterSolution:
        """What the master would come to with the rules bound; all stays as it is."""
        trial = Workspace(self.problem, self.settings)
        for stack in self.columns.stacks:
            trial.add_columns(stack.members, stack.blocks)
        trial.bind_rules()
        return trial.solve_master()

    def solve_without_rules(self) -> Ensemble:
        """The best mixture of the same members without rows and shields; all stays as it is."""
        trial = Workspace(self.problem, self.settings)
        for stack in self.columns.stacks:
            own = stack.members
            bare = own.inner if isinstance(own, ShieldedMembers) else own
            trial.add_columns(bare, stack.blocks)
        return trial.whole_ensemble(choose_final_weights(trial, trial.solve_master()))

    @property
    def unshielded(self) -> bool:
        """Whether members stand without the shield that they will be behind."""
        return self.problem.shield is not None and not self.rules_bound

    def _shield_members(self, shield: Shield) -> None:
        """All columns keep their numbers; the master learns their outputs and costs anew."""
        for stack in self.columns.stacks:
            stack.members = ShieldedMembers(stack.members, shield)
        blocks, none = self.columns.blocks, np.zeros((0, len(self.columns)))
        self.master = self._new_master()
        if isinstance(self.master, ConvexMaster):
            outputs = self.columns.outputs(self.objective.inputs).cpu().numpy()
            self.master.add_columns(outputs, blocks, none)
            return
        costs = np.empty(len(blocks))
        for stack in self.columns.stacks:
            costs[stack.numbers] = self._costs(stack.members, stack.blocks)
        self.master.add_columns(costs, blocks, none)

    def _bind_rows(self) -> None:
        """Listed rows and known cuts become rows of the master."""
        self.rules_bound = True
        for number, requirement in enumerate(self.problem.requirements):
            if requirement.region is None:
                rows = requirement.rows(number)
                if rows is not None:
                    self._add_rows(rows)
        for rows in self.problem.start_rows:
            self.add_cuts(rows)

    def _new_master(self) -> LinearMaster | ConvexMaster:
        s = self.settings
        if isinstance(self.objective, Supervised) and self.objective.kind == "mixture":
            return ConvexMaster(
                len(self.layout),
                self.compute_mixture_loss,
                penalty=s.penalty,
                penalty_limit=s.penalty_limit,
                usual=self._usual_loss,
                row_size=self._usual_row(),
            )
        return LinearMaster(
            len(self.layout),
            penalty=s.penalty,
            penalty_limit=s.penalty_limit,
            row_age_limit=ROW_AGE_LIMIT,
            column_age_limit=COLUMN_AGE_LIMIT,
            usual=self._usual_loss,
            row_size=self._usual_row(),
        )

    def _usual_row(self) -> float:
        """The least size of a requirement's rows in the master, by which slack is priced."""
        sizes = map(self.compute_size, range(len(self.problem.requirements)))
        return min((one.size / one.scale for one in sizes), default=1.0)

    @cached_property
    def _usual_loss(self) -> float | None:
        """The loss of the mean target, or of zeros where that has none; None without such data."""
        objective = self.objective
        if objective.labels is None:
            return None
        targets = torch.as_tensor(objective.labels)
        if targets.ndim != 2 or not targets.is_floating_point() or not targets.numel():
            return None
        targets = targets.double()
        for constant in (targets.mean(0), torch.zeros(targets.shape[1], dtype=torch.float64)):
            outputs = constant.expand(len(objective.inputs), -1)
            if outputs.shape[1] != self.layout.output_size:
                return None
            with torch.no_grad():
                loss = float(objective.value(self._data("cpu", torch.float64), outputs))
            if loss > 0 and np.isfinite(loss):
                return loss
        return None

    # ---- rows --------------------------------------------------------------------------------

    def add_cuts(self, rows: Rows) -> int:
        """Add rows found by separation, without those already there; how many were new."""
        new = []
        for j, key in enumerate(row_keys(rows)):
            if key not in self._seen:
                self._seen.add(key)
                new.append(j)
        if new:
            self._add_rows(rows.take(np.array(new, np.int64)))
        return len(new)

    def remember(self, rows: Rows) -> None:
        """Rows that are in the master already, so that they are not added again."""
        self._seen.update(row_keys(rows))

    def compute_size(self, number: int) -> RequirementSize:
        """The size of a requirement's rows, which they are scaled and judged by."""
        if number not in self._requirement_sizes:
            self._requirement_sizes[number] = compute_requirement_size(
                self.problem.requirements[number],
                self.layout.output_size,
                outputs=lambda: estimate_output_size(self.objective),
            )
        return self._requirement_sizes[number]

    def _add_rows(self, rows: Rows) -> None:
        """Take rows as they are stated; concave ones wait for mixtures that break them."""
        if rows.requirement < 0:
            assert rows.origin is not None
            none = np.full(len(rows), NO_SLACK)
            self._add_to_master(rows, np.zeros(len(rows)), none, rows.origin[:, 0])
            return
        size = self.compute_size(rows.requirement)
        sizes, rows = size.compute_row_sizes(rows.bounds) / size.scale, rows.scale(size.scale)
        shared = self.problem.requirements[rows.requirement].slack == "shared"
        slack = np.full(len(rows), rows.requirement if shared else OWN_SLACK)
        if isinstance(rows, LinearRows):
            self._add_to_master(rows, sizes, slack)
        elif not rows.jensen:
            first = len(self.problem.requirements) + len(self.tangents)
            own = first + np.arange(len(rows))
            self.tangents.add(rows, sizes, slack if shared else own)
        elif len(self.layout) > 1:
            raise InvalidInput(
                f"requirement {rows.requirement} bounds the mean of the members' own values and "
                f"needs all outputs in one block, got {len(self.layout)} blocks; use the rule "
                "itself (form='pairwise' of a margin), or one block",
                code="unsupported",
            )
        else:
            self._add_to_master(rows, sizes, slack)

    def _add_to_master(
        self, rows: Rows, sizes: Array, slack: IntArray, epigraph: IntArray | None = None
    ) -> None:
        """Rows that are scaled; `sizes` (m,) of each, zero for pieces of the objective."""
        coefficients = self.columns.coefficients(rows)
        bounds = rows.bounds + self.settings.row_margin * sizes
        self.master.add_rows(coefficients, bounds, slack, epigraph)
        self.restore_rows(rows, sizes)

    def restore_rows(self, rows: Rows, sizes: Array) -> None:
        """Rows that the master has."""
        self.rows.add(rows)
        self._row_sizes.append(sizes)

    def sized_batches(self) -> list[tuple[Rows, Array]]:
        """Batches of the master's rows, each with the sizes of its rows."""
        return list(zip(self.rows.batches, self._row_sizes, strict=True))

    @property
    def row_sizes(self) -> Array:
        """(m,): the size of every row of the master, scaled as the row is; 0 of the objective's."""
        return np.concatenate([np.empty(0), *self._row_sizes])

    @property
    def restricted(self) -> bool:
        """Whether some rows ask for more than the rule, so that bounds say nothing about it."""
        return any(isinstance(batch, ConcaveRows) for batch in self.rows.batches)

    def compute_shortfall(self, solution: MasterSolution) -> float:
        """The most that a row lacks, by its size, or the largest weight on a dummy column."""
        sizes = _extended(self.row_sizes, len(solution.slack))
        slack = solution.slack[sizes > 0] / sizes[sizes > 0]
        return float(max(slack.max(initial=0.0), solution.dummy.max(initial=0.0)))

    def compute_shortfall_in_units(self, solution: MasterSolution) -> float:
        """The most that a row lacks in the units of its rule, or the largest dummy weight."""
        slack = self.compute_slack_in_units(solution)
        return float(max(slack.max(initial=0.0), solution.dummy.max(initial=0.0)))

    def compute_slack_in_units(self, solution: MasterSolution) -> Array:
        """What each row lacks in the units of its rule; rows beyond this master's are in them."""
        scales = [
            np.full(
                len(rows),
                1.0 if rows.requirement < 0 else self.compute_size(rows.requirement).scale,
            )
            for rows in self.rows.batches
        ]
        known = np.concatenate([np.empty(0), *scales])
        return np.asarray(solution.slack * _extended(known, len(solution.slack)))

    def compute_margin_price(self, prices: Array) -> float:
        """What asking the rows for a margin adds to the optimum, at these row duals."""
        return self.settings.row_margin * float(prices @ self.row_sizes[: len(prices)])

    def add_tangents(self, weights: Array) -> bool:
        """Cut off this mixture where it breaks concave rules; whether it did."""
        ensemble = self.columns.ensemble(weights) if len(self.tangents) else None
        if ensemble is None:
            return False
        found = self.tangents.find_missing_tangents(
            ensemble,
            device=self.settings.device,
            margin=self.settings.row_margin,
            allowed=self._allowed(weights)[self.tangents.slack],
        )
        for rows, numbers in found:
            self.tangents.source[len(self.rows.batches)] = numbers
            self._add_to_master(rows, self.tangents.sizes[numbers], self.tangents.slack[numbers])
        return bool(found)

    def _allowed(self, weights: Array) -> Array:
        """The slack that these weights need, by the number of its variable."""
        master, numbers = self.master, self.master.slack_numbers
        slack = np.zeros(len(self.problem.requirements) + len(self.tangents))
        shared = numbers >= 0
        short = master.bounds[shared] - master.coefficients[shared] @ weights
        np.maximum.at(slack, numbers[shared], short)
        return slack

    # ---- columns -----------------------------------------------------------------------------

    def add_columns(self, members: Members, blocks: IntArray, values: Array | None = None) -> None:
        """Add members to the master; `values` (m, count) are their coefficients, if known."""
        if values is None:
            values = compute_all_values(self.rows, members, blocks, self.settings.device)
        if isinstance(self.master, ConvexMaster):
            outputs = self._embedded(members, blocks)
            self.master.add_columns(outputs.cpu().numpy(), blocks, values)
        else:
            self.master.add_columns(self._costs(members, blocks), blocks, values)
        if self.scenarios is not None:
            inputs = self.scenarios.inputs
            self.scenarios.add_columns(
                compute_block_outputs(inputs, self.layout, members, blocks, self.settings.device)
            )
        self.columns.add(members, blocks)

    def _embedded(self, members: Members, blocks: IntArray) -> Tensor:
        return compute_block_outputs(
            self.objective.inputs, self.layout, members, blocks, self.settings.device
        )

    def _costs(self, members: Members, blocks: IntArray) -> Array:
        """What a unit of weight on each member costs; nothing while there is no mixture yet.

        Pricers asked after one whose members are the first to enter are asked without one, too.
        """
        gradient = None
        if isinstance(self.master, ConvexMaster):
            if not (self.every_block_has_members and self.master.is_solved):
                return np.zeros(len(members))
            gradient = self.master.gradient()
        return compute_member_costs(
            self.objective,
            self.layout,
            members,
            blocks,
            device=self.settings.device,
            gradient=gradient,
        )

    def admit(
        self, proposed: PricingResult, solution: MasterSolution, *, charge_loss: bool
    ) -> AdmissionResult:
        """Add what really improves.

        Reduced costs are recomputed in float64 from real outputs at the master's true duals. A
        member on its own enters if its own is below -epsilon; a jointly trained group enters whole
        if the sum over blocks of its mean reduced cost is. Where the column limit leaves no room
        for all, the best that fit enter.
        """
        members, blocks = proposed.members, proposed.blocks
        assert members is not None
        check_fit(members, blocks, self.layout, input_size=self.objective.inputs.shape[1])
        members = members.to(self.settings.device)
        values = compute_all_values(self.rows, members, blocks, self.settings.device)
        costs = self._costs(members, blocks) if charge_loss else np.zeros(len(members))
        reduced = solution.duals.reduced_costs(costs, values, blocks)
        reduced = np.where(np.isfinite(reduced), reduced, np.inf)  # what diverged never improves
        candidates = _candidates(reduced, blocks, proposed.groups)
        room = self.settings.column_limit - len(self.columns)
        chosen: list[int] = []
        for value, positions in candidates:
            if value < -self._threshold(proposed) and len(chosen) + len(positions) <= room:
                chosen.extend(positions.tolist())
        if chosen:
            order = np.sort(np.array(chosen, np.int64))
            self.add_columns(members.take(order), blocks[order], values[:, order])
        lowest = np.zeros(len(self.layout))
        np.minimum.at(lowest, blocks, reduced)
        return AdmissionResult(len(chosen), candidates[0][0], lowest)

    @property
    def objective_size(self) -> float:
        """The usual loss of the data, else of members, 1 at most: that of small targets is small.

        The first members may be wild, so that the data are asked first.
        """
        cost = self._usual_loss
        if cost is None:
            cost = self.master.usual_cost() if len(self.columns) else 1.0
        return min(1.0, cost) if np.isfinite(cost) and cost > 0 else 1.0

    def _threshold(self, proposed: PricingResult) -> float:
        """Epsilon; less where a proven bound tells how much small improvements are worth."""
        s = self.settings
        if proposed.lower_bound is None:
            return s.epsilon
        least = min(tolerances.GAP_TOLERANCE, tolerances.FEASIBILITY_TOLERANCE)
        finest = 0.1 * least / len(self.layout)
        finest = max(finest * self.objective_size, ROUNDING * self.unit)
        return max(min(s.epsilon, finest), ROUNDING * self.unit)

    @property
    def unit(self) -> float:
        """The unit of the objective, which rounding of costs is in; 1 while slack is minimised."""
        return 1.0 if self.master.slack_only else self.master.unit

    @property
    def least_improvement(self) -> float:
        """Reduced costs above minus this do not count where nothing is proven."""
        return max(self.settings.epsilon, ROUNDING * self.unit)

    # ---- master ------------------------------------------------------------------------------

    def solve_master(self) -> MasterSolution:
        """Solve; for an epigraph objective add the pieces that matter until none is missing."""
        if isinstance(self.master, ConvexMaster) and not self.every_block_has_members:
            return self._nothing_yet()
        solution = self.master.solve()
        for _ in range(EPIGRAPH_ROUNDS if self.scenarios is not None else TANGENT_ROUNDS):
            mixed = float(solution.dummy.max(initial=0.0)) < MIXED
            self.incomplete = self.add_missing(solution.weights, tangents=mixed)
            if not self.incomplete:
                break
            solution = self.master.solve()
        return solution

    def add_missing(self, weights: Array, *, tangents: bool = True) -> bool:
        """Add the pieces of an epigraph and tangents that this mixture lacks; whether it did.

        No `tangents` where most weight is on dummy columns: such an answer is no mixture.
        """
        rows = (
            None if self.scenarios is None else self.scenarios.find_missing_rows(weights, self.unit)
        )
        if rows is not None:
            self._add_rows(rows)
        return (tangents and self.add_tangents(weights)) or rows is not None

    def add_tail(self, solution: MasterSolution, seed: int) -> int:
        """Look for inputs that the objective's mean hides, and count them in: how many."""
        tail = self.objective.tail
        ensemble = None if tail is None else self.ensemble(solution)
        if self.scenarios is None or tail is None or ensemble is None:
            return 0
        with torch.no_grad():
            inputs, levels = tail.find(ensemble.outputs, seed=seed)
        if len(inputs):
            self.scenarios.extend(inputs, levels, self.columns.outputs(inputs))
            self._add_scenarios(self.scenarios.costs[-len(inputs) :])
        return len(inputs)

    def _add_scenarios(self, costs: Array) -> None:
        assert isinstance(self.master, LinearMaster)
        assert isinstance(self.objective, Epigraph)
        self.master.add_epigraph(costs, self.objective.floor)

    def are_bounds_valid(self, solution: MasterSolution) -> bool:
        """Whether a pricer's bound speaks of this solution.

        Pricers linearise the loss at the mixture that they are shown; with weight left on dummy
        columns that is not the point at which the convex master gave its duals.
        """
        convex = isinstance(self.master, ConvexMaster)
        return not convex or float(solution.dummy.max()) <= ROUNDING

    @property
    def every_block_has_members(self) -> bool:
        return len(np.unique(self.columns.blocks)) == len(self.layout)

    def _nothing_yet(self) -> MasterSolution:
        """All weight on the dummy columns, whose cost makes any member worth having.

        The loss of an empty mixture is not defined, so no convex program is solved for it.
        """
        worth = np.full(len(self.layout), 1e12 * max(1.0, self._usual_loss or 1.0))
        worth[self.columns.blocks] = 0.0  # it is the other blocks' turn
        return MasterSolution(
            weights=np.zeros(len(self.columns)),
            duals=Duals(np.zeros(len(self.rows)), worth),
            objective=np.inf,
            penalised=np.inf,
            slack=np.maximum(self.rows.bounds, 0.0),
            dummy=np.ones(len(self.layout)),
        )

    # ---- mixtures ----------------------------------------------------------------------------

    def ensemble(self, solution: MasterSolution) -> Ensemble | None:
        return self.columns.ensemble(solution.weights) if len(self.columns) else None

    def whole_ensemble(self, weights: Array) -> Ensemble:
        """A mixture in any case: members of a block without weight share it evenly."""
        blocks = self.columns.blocks
        total = np.zeros(len(self.layout))
        np.add.at(total, blocks, np.maximum(weights, 0))
        weights = np.where(total[blocks] <= NO_WEIGHT, 1.0, weights)
        ensemble = self.columns.ensemble(weights)
        if ensemble is None:
            raise SolverFailure("some block has no member yet, so there is no mixture to return")
        return ensemble

    def note_dummies(self, solution: MasterSolution) -> None:
        """Say which blocks have weight on the dummy column, and what is returned instead."""
        for number in np.flatnonzero(solution.dummy > tolerances.FEASIBILITY_TOLERANCE):
            share = float(solution.dummy[number])
            instead = "all its members averaged" if 1 - share <= NO_WEIGHT else "renormalised"
            self.notes.append(
                f"block {number} had weight {share:.3g} on the dummy column, which is no model: "
                f"its weights were {instead}"
            )

    def requirement_rows(self) -> NDArray[np.bool_]:
        """Which rows come from requirements, not from the objective's pieces: (m,) bool."""
        parts = [np.full(len(batch), batch.requirement >= 0) for batch in self.rows.batches]
        return np.concatenate(parts) if parts else np.zeros(0, bool)

    def table(self) -> Array:
        parts = [self.columns.coefficients(batch) for batch in self.rows.batches]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.columns)))

    def compute_mixture_loss(self, outputs: Tensor) -> Tensor:
        """The loss of a mixture with these outputs (n, r) at the objective's inputs."""
        assert isinstance(self.objective, Supervised)
        return self.objective.value(self._data(outputs.device, outputs.dtype), outputs)

    def _data(self, device: torch.device | str, dtype: torch.dtype) -> Batch:
        return self.objective.batch(None, torch.Generator(), device=str(device), dtype=dtype)

    def compute_true_loss(self, ensemble: Ensemble) -> float:
        """The objective of the mixture itself on the objective's own inputs."""
        batch = self._data(self.settings.device, torch.float64)
        with torch.no_grad():
            outputs = ensemble.outputs(batch.inputs)
            return float(self.objective.value(batch, outputs))


def row_keys(rows: Rows) -> list[bytes]:
    """What tells rows apart: their input (nearly), requirement and rule."""
    index = rows.index if isinstance(rows, LinearRows) else None
    where = np.round(rows.inputs[np.arange(len(rows)) if index is None else index], 9)
    rules = np.full(len(rows), -1) if rows.origin is None else rows.origin[:, 1]
    return [
        at.tobytes() + np.array([rows.requirement, rule]).tobytes()
        for at, rule in zip(where, rules, strict=True)
    ]


def _candidates(reduced: Array, blocks: IntArray, groups: IntArray) -> list[tuple[float, IntArray]]:
    """What may enter, best first: members on their own, and groups with their joint value."""
    found = [(float(reduced[i]), np.array([i])) for i in np.flatnonzero(groups < 0)]
    for group in np.unique(groups[groups >= 0]):
        mine = np.flatnonzero(groups == group)
        means = [reduced[mine][blocks[mine] == number].mean() for number in np.unique(blocks[mine])]
        found.append((float(sum(means)), mine))
    return sorted(found, key=lambda candidate: candidate[0])


def _extended(values: Array, count: int) -> Array:
    """The first `count` of these values, followed by ones where there are fewer."""
    return np.concatenate([values[:count], np.ones(max(0, count - len(values)))])
