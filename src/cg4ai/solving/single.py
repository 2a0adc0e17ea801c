"""One model in place of a mixture: branch and price, once column generation has given the bound.

    choose: the integer master over all columns -> separate -> (new rows: choose again)
    price:  a class that can be listed: its members in the order of their reduced cost;
            others: members trained to meet the rows alone, harder where the best one misses them
    decide: what no better choice can hold is proven, or tries without progress end it

See docs/mathematics.md for why a reduced cost above the gap rules a member out.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cg4ai.errors import InvalidInput
from cg4ai.master import LinearMaster
from cg4ai.master.integer import Choice, choose
from cg4ai.master.table import Table
from cg4ai.members.fusion import collapsed
from cg4ai.objectives import Objective, Supervised
from cg4ai.pricing.exact.listed import Listable
from cg4ai.pricing.reduced_cost import all_values, member_costs, reduced_costs
from cg4ai.pricing.single import alone
from cg4ai.protocols import Members, PricingRequest
from cg4ai.records import Array, Duals, IntArray, MasterSolution, PartState, SingleModel, StopReason
from cg4ai.seeds import derived_seed
from cg4ai.solving.problem import Problem, unwrapped
from cg4ai.solving.steps import (
    LAST_SEARCH,
    SINGLE,
    Decision,
    GoOn,
    Outcome,
    Priced,
    Settled,
    Stop,
    Weighed,
    request_for,
    search_in_time,
    separate,
)

if TYPE_CHECKING:
    from cg4ai.solving.state import RunState
    from cg4ai.solving.workspace import Workspace

BATCH = 1000  # members of a class listed at a time
FITTED = 50  # of those that are fitted to the rows
TRIES = 8  # trainings in a row without a model that meets the rows
TRIES_MET = 3  # trainings in a row that do not better one that does
PROGRESS = 1e-3  # share of the objective that counts as better
PRESSURE = 4.0  # on the rows at first: one member has nobody to make up for what it misses
RISE, FALL, MOST = 2.0, 0.8, 4096.0  # of the pressure after rows were missed, and met
HARDER = 2.0  # weight of a row after the best model missed it
WORTH = 1e6  # of a block: pricers hold nothing back for its reduced cost


def single_phase(problem: Problem) -> SinglePhase:
    """The phase of this problem; refuses those whose objective is not a sum over blocks."""
    objective = problem.objective
    if problem.phases is not None:
        raise InvalidInput(
            "single_model chooses by rows of the master, and this run has phases of its own "
            "(guarantee certified): leave single_model out, or ask for another guarantee"
        )
    several = len(problem.layout) > 1 and isinstance(objective, Supervised)
    by_output = isinstance(objective, Supervised) and objective.loss in ("squared", "absolute")
    free = isinstance(objective, Supervised) and objective.loss == "none"
    if several and (isinstance(objective, Objective) or not (by_output or free)):
        raise InvalidInput(
            f"single_model with {len(problem.layout)} blocks needs a loss that is a sum over "
            "outputs (squared, absolute, none, or an Epigraph): of others no block has its own "
            "part; use one block"
        )
    return SinglePhase()


@dataclass(frozen=True, slots=True)
class Mixture:
    """The optimal mixture that single models are measured by: weights, duals, objective.

    `bound` is what no mixture of the class is below, and `lower` (G,) the least reduced cost of
    each block behind it, where an exact pricer gave them.
    """

    weights: Array
    duals: Duals
    objective: float
    bound: float | None = None
    lower: Array | None = None


class SinglePhase:
    """Chooses one member of each block, and lists or trains more until that is known to be best."""

    name = SINGLE
    charges_loss = True
    binds_rules = True

    def __init__(self) -> None:
        self.mixture: Mixture | None = None
        self.choice: Choice | None = None
        self.listed = 0  # members of the class, in the order of their reduced cost
        self.beyond = -math.inf  # what a choice with one that is not listed costs at least
        self.inside = math.inf  # what one with members fitted to the rows costs at least
        self.rows_listed = 0  # how many rows there were then
        self.pressure = PRESSURE
        self.weights = np.empty(0)  # of the rows in training
        self.best = math.inf
        self.tries = 0

    def enter(self, run: RunState) -> None:
        run.work.master.minimise_slack(False)

    # ---- choosing -----------------------------------------------------------------------------

    def weigh(self, run: RunState) -> Weighed:
        if self.mixture is None:
            self.mixture = _mixture(run)
            _add_collapsed(run, self.mixture)
        worst = None
        with run.watch.timed("master"):
            choice = chosen(run)
        seed = derived_seed(run.settings.seed, run.step, "tail")
        if run.work.add_tail(_solution(run, choice), seed):
            choice = chosen(run)
        for number in range(run.settings.cut_rounds):
            mixture = run.work.columns.ensemble(_integral(run.work, choice))
            found = separate(run, mixture, f"single {number}")
            worst = found.worst
            if not found.added:
                break
            with run.watch.timed("master"):
                choice = chosen(run)
        self.choice = choice
        return Weighed(_solution(run, choice), worst)

    def settle(self, run: RunState, reason: StopReason) -> Settled:
        """The choice, searched thoroughly and chosen again until nothing new is found."""
        if self.mixture is None:  # ended before its turn came
            self.mixture = _mixture(run)
        with run.watch.timed("weights"):
            choice = chosen(run)
        while reason is not StopReason.INTERRUPTED and run.returns < run.settings.final_rounds:
            try:
                found = search_in_time(run, _integral(run.work, choice))
            except KeyboardInterrupt:
                reason = StopReason.INTERRUPTED
                break
            if not found.added:
                break
            run.returns += 1
            with run.watch.timed("weights"):
                choice = chosen(run)
        self.choice = choice
        with run.watch.timed("weights"):
            whole = run.solve_whole_master()
        if reason is StopReason.OPTIMAL and not self._proven(run):
            reason = StopReason.NO_IMPROVING_COLUMN
            run.notes.append("the best model for the rows known before it was searched thoroughly")
        if LAST_SEARCH in run.cut and reason is StopReason.OPTIMAL:
            reason = StopReason.TIME_LIMIT
        compares = not run.phases[0].binds_rules
        solution = _solution(run, choice)
        mixture = math.nan if run.unmet(whole) else whole.objective
        single = self._statement(run, reason, mixture)
        return Settled(solution, solution.weights, reason, compares, single)

    # ---- pricing ------------------------------------------------------------------------------

    def price(self, run: RunState, weighed: Weighed) -> Priced:
        if self._proven(run) or run.training_deadline.passed:
            return Priced(Outcome.NOTHING, weighed.solution)
        bound, before = self._bound(run), self.listed
        with run.watch.timed("pricing"):
            listable = _listable(run)
            added = self._train(run) if listable is None else self._list(run, listable)
        went_on = added or self.listed != before
        outcome = Outcome.IMPROVED if went_on else Outcome.NOTHING
        return Priced(outcome, weighed.solution, admitted=added, bound=bound)

    def _list(self, run: RunState, pricer: Listable) -> int:
        """The next members of the class that a better choice could hold."""
        mixture, choice = self._known()
        if pricer.fits_rows and len(run.work.rows) != self.rows_listed:
            self.listed, self.inside, self.rows_listed = 0, math.inf, len(run.work.rows)
        assert mixture.bound is not None
        assert mixture.lower is not None
        found = pricer.listed(
            _by_own_loss(run, _as_solution(run, mixture)),
            mixture.lower,
            start=self.listed,
            count=min(FITTED if pricer.fits_rows else BATCH, _room(run)),
            most=(choice.objective if choice.met else math.inf) - mixture.bound,
        )
        added = sum(_take_in(run, members, blocks) for members, blocks in found.members)
        self.listed += found.count
        self.inside = min(self.inside, found.inside)
        self.beyond = mixture.bound + found.beyond - _allowance(run, mixture)
        return added

    def _train(self, run: RunState) -> int:
        """Members that go on from the best choice, trained harder on the rows that it misses."""
        mixture, choice = self._known()
        self._weigh_rows(run, mixture, choice)
        worth = WORTH * (1.0 + np.abs(mixture.duals.blocks))
        asked = replace(_solution(run, choice), duals=Duals(self.weights, worth))
        added = 0
        for number, pricer in enumerate(run.pricers):
            request = request_for(run, asked, self.weights, f"single {number}")
            with run.interrupts.allowed():
                proposed = alone(pricer, self.pressure).price(request)
            for rows in proposed.rows:
                run.work.add_cuts(rows)
            if proposed.members is not None:
                added += _take_in(run, proposed.members, proposed.blocks)
        return added

    def _weigh_rows(self, run: RunState, mixture: Mixture, choice: Choice) -> None:
        """Prices of the mixture and an even share at first; what the best model misses doubles."""
        ruled = run.work.requirement_rows()
        if not len(self.weights):
            prices = _padded(mixture.duals.rows, run) * ruled
            self.weights = prices / max(prices.sum(), 1e-300) + ruled / max(1, ruled.sum())
        usual = self.weights[self.weights > 0].mean() if self.weights.any() else 1.0
        new = np.where(ruled[len(self.weights) :], usual, 0.0)
        self.weights = np.concatenate([self.weights, new])
        missed = _solution(run, choice).slack > run.settings.feasibility_tolerance
        self.weights = self.weights * np.where(missed, HARDER, 1.0)
        self.pressure = float(
            np.clip(self.pressure * (FALL if choice.met else RISE), PRESSURE / 4, MOST)
        )

    # ---- deciding -----------------------------------------------------------------------------

    def decide(self, run: RunState, weighed: Weighed, priced: Priced) -> Decision:
        _, choice = self._known()
        if not priced.admitted and self._proven(run):  # what was added is not chosen from yet
            if choice.met:
                return Stop(StopReason.OPTIMAL, "the best single model")
            run.notes.append("no single model of this kind meets the rows, though a mixture may")
            return Stop(StopReason.INFEASIBLE, "no single model meets the rows")
        if priced.outcome is Outcome.NOTHING:
            return Stop(StopReason.NO_IMPROVING_COLUMN, "no further member")
        if _listable(run) is not None:
            return GoOn(f"{priced.admitted} members listed")
        better = choice.met and choice.objective < self.best - PROGRESS * max(abs(self.best), 1e-9)
        if better or (choice.met and self.best == math.inf):
            self.best, self.tries = choice.objective, 0
        self.tries += 1
        if self.tries > (TRIES_MET if choice.met else TRIES):
            return Stop(StopReason.NO_IMPROVING_COLUMN, "no better single model")
        return GoOn(f"{priced.admitted} single members trained")

    def _known(self) -> tuple[Mixture, Choice]:
        assert self.mixture is not None
        assert self.choice is not None
        return self.mixture, self.choice

    def _bound(self, run: RunState) -> float | None:
        """What no single model that meets the rows is below, as far as it is proven."""
        mixture, choice = self._known()
        known = [bound for bound in (run.bound, mixture.bound) if bound is not None]
        if _listable(run) is not None and mixture.bound is not None:
            known.append(min(choice.bound, self.inside, self.beyond))
        return max(known, default=None)

    def _proven(self, run: RunState) -> bool:
        """Whether the choice is the best, or it is known that none meets the rows."""
        mixture, choice = self._known()
        bound = self._bound(run)
        if bound is None:
            return False
        if not choice.met:
            return bound == math.inf
        allowed = run.settings.gap_tolerance * max(1.0, abs(choice.objective))
        return choice.objective - bound <= allowed + _price_of_margin(run, mixture)

    def _statement(self, run: RunState, reason: StopReason, mixture: float) -> SingleModel:
        """What is known of the choice; `mixture` is the objective of the best one, or nan."""
        _, choice = self._known()
        ruled = run.work.requirement_rows()
        slack = _solution(run, choice).slack[ruled]
        bound = self._bound(run)
        if reason is StopReason.INFEASIBLE:
            bound = math.inf
        estimate = None if math.isnan(mixture) else min(mixture, choice.objective)
        return SingleModel(
            objective=choice.objective,
            met=choice.met,
            lacking=choice.lacking,
            missed=int((slack > run.settings.feasibility_tolerance).sum()),
            rows=int(ruled.sum()),
            blocks=len(run.problem.layout),
            bound=estimate if bound is None else bound,
            proven=bound is not None,
            mixture=mixture,
        )

    # ---- checkpoints --------------------------------------------------------------------------

    def state(self) -> PartState:
        numbers = [self.listed, self.beyond, self.inside, self.rows_listed]
        numbers += [self.pressure, self.best, self.tries]
        arrays: dict[str, NDArray[np.float64]] = {
            "numbers": np.array(numbers, np.float64),
            "weights": self.weights,
        }
        known = self.mixture
        if known is not None:
            arrays |= {
                "mixture": known.weights,
                "rows": known.duals.rows,
                "blocks": known.duals.blocks,
                "values": np.array(
                    [known.objective, np.nan if known.bound is None else known.bound]
                ),
            }
            arrays |= {} if known.lower is None else {"lower": known.lower}
        return PartState({}, arrays)

    def restore(self, state: PartState) -> None:
        arrays = state.arrays
        numbers = arrays["numbers"].tolist()
        self.listed, self.beyond, self.inside = int(numbers[0]), numbers[1], numbers[2]
        self.rows_listed, self.pressure = int(numbers[3]), numbers[4]
        self.best, self.tries = numbers[5], int(numbers[6])
        self.weights, self.mixture, self.choice = arrays["weights"], None, None
        if "mixture" in arrays:
            objective, bound = arrays["values"].tolist()
            self.mixture = Mixture(
                arrays["mixture"],
                Duals(arrays["rows"], arrays["blocks"]),
                objective,
                None if math.isnan(bound) else bound,
                arrays.get("lower"),
            )


# ---- the mixture, and choices as solutions of the master -----------------------------------------


def _mixture(run: RunState) -> Mixture:
    """The optimum of the master as it is, with a proven bound where the class can be listed."""
    with run.watch.timed("master"):
        solution = run.solve_whole_master()
    known = Mixture(solution.weights, solution.duals, solution.objective)
    pricer = _listable(run)
    if pricer is None:
        return known
    request = _by_own_loss(run, solution)
    lower = pricer.price(request).lower_bound
    if lower is None:
        return known
    if isinstance(run.work.master, LinearMaster):
        lower = np.minimum(lower, 0.0)
        paid = solution.penalised - run.price_of_margin(solution)
        return replace(known, bound=paid + float(lower.sum()), lower=lower)
    for stack in run.work.columns.stacks:  # of which some may be of another class
        np.minimum.at(lower, stack.blocks, reduced_costs(request, stack.members, stack.blocks))
    duals = solution.duals
    paid = float(duals.rows @ run.work.rows.bounds + duals.blocks.sum())
    return replace(known, bound=paid + float(lower.sum()), lower=lower)


def _by_own_loss(run: RunState, solution: MasterSolution) -> PricingRequest:
    """The request at these duals in which a member costs its own loss, as it does in a choice.

    That bounds single models more tightly than the derivative of a mixture's loss does.
    """
    request = request_for(run, solution, solution.duals.rows, "list")
    if request.objective.kind != "mixture":
        return request
    own = copy.copy(request.objective)
    object.__setattr__(own, "kind", "average")
    return replace(request, objective=own)


def _listable(run: RunState) -> Listable | None:
    """The pricer, if it is the only one and its class can be listed."""
    only = run.pricers[0] if len(run.pricers) == 1 else None
    if isinstance(only, Listable) and only.can_list(run.problem.objective, run.problem.layout):
        return only
    return None


def _allowance(run: RunState, mixture: Mixture) -> float:
    """Rows count as met when they lack no more than the tolerance: what that may be worth."""
    return run.settings.feasibility_tolerance * float(mixture.duals.rows.sum())


def _price_of_margin(run: RunState, mixture: Mixture) -> float:
    prices = mixture.duals.rows
    prices = prices[run.work.requirement_rows()[: len(prices)]]
    return run.settings.row_margin * float(prices.sum())


def _padded(values: Array, run: RunState) -> Array:
    """Values of the rows that there were, 0 for those that came since."""
    return np.concatenate([values, np.zeros(len(run.work.rows) - len(values))])


def _as_solution(run: RunState, mixture: Mixture) -> MasterSolution:
    """The mixture as the master's solution: columns and rows that came since count for nothing."""
    weights = np.zeros(len(run.work.columns))
    weights[: len(mixture.weights)] = mixture.weights
    return MasterSolution(
        weights=weights,
        duals=Duals(_padded(mixture.duals.rows, run), mixture.duals.blocks),
        objective=mixture.objective,
        penalised=mixture.objective,
        slack=np.zeros(len(run.work.rows)),
        dummy=np.zeros(len(run.problem.layout)),
    )


def chosen(run: RunState) -> Choice:
    """The best choice among all columns, with every piece of the objective that it needs."""
    while True:
        choice = choose(
            _table(run.work),
            tolerance=run.settings.feasibility_tolerance,
            time_limit_s=max(run.deadline.left(), 1.0),
        )
        if not run.work.add_pieces(_integral(run.work, choice)):
            return choice


def _table(work: Workspace) -> Table:
    """Rows and columns of the master, each column at the cost that it has on its own."""
    master = work.master
    if isinstance(master, LinearMaster):
        return master.table
    table = Table(len(work.layout))
    costs = np.empty(len(work.columns))
    for stack in work.columns.stacks:
        costs[stack.numbers] = _own_costs(work, stack.members, stack.blocks)
    table.add_columns(costs, work.columns.blocks, np.zeros((0, len(costs))))
    table.add_rows(master.coefficients, master.bounds, master.slack_numbers, None)
    return table


def _own_costs(work: Workspace, members: Members, blocks: IntArray) -> Array:
    return member_costs(work.objective, work.layout, members, blocks, device=work.settings.device)


def _integral(work: Workspace, choice: Choice) -> Array:
    weights = np.zeros(len(work.columns))
    weights[choice.columns] = 1.0
    return weights


def _solution(run: RunState, choice: Choice) -> MasterSolution:
    """The choice as a solution of the master, without duals: an integer program has none."""
    work = run.work
    values = np.asarray(work.master.coefficients[:, choice.columns].sum(1))
    bounds = _table_bounds(work)
    slack = np.where(work.requirement_rows(), np.maximum(bounds - values, 0.0), 0.0)
    return MasterSolution(
        weights=_integral(work, choice),
        duals=Duals(np.zeros(len(work.rows)), np.zeros(len(work.layout))),
        objective=choice.objective,
        penalised=choice.objective + work.master.penalty * float(slack.sum()),
        slack=slack,
        dummy=np.zeros(len(work.layout)),
    )


def _table_bounds(work: Workspace) -> Array:
    master = work.master
    return master.table.bounds if isinstance(master, LinearMaster) else master.bounds


def _add_collapsed(run: RunState, mixture: Mixture) -> None:
    """Where all members of the mixture are affine, or constant, it is such a member itself.

    Of classes that can be listed it is none: what was not listed is not of the class.
    """
    work, made = run.work, []
    if any(isinstance(one, Listable) for pricer in run.pricers for _, one in unwrapped(pricer)):
        return
    for block in range(len(work.layout)):
        used = []
        for stack in work.columns.stacks:
            mine = np.flatnonzero((stack.blocks == block) & (mixture.weights[stack.numbers] > 0))
            used += [(stack, mine)] if len(mine) else []
        if len(used) != 1:
            return
        stack, mine = used[0]
        shares = mixture.weights[stack.numbers[mine]]
        one = collapsed(stack.members.take(mine), shares / shares.sum())
        if one is None:
            return
        made.append((one, np.array([block])))
    for members, blocks in made:
        _take_in(run, members, blocks)


def _take_in(run: RunState, members: Members, blocks: IntArray) -> int:
    """Add what is finite, as far as the limit on columns allows: how many."""
    work = run.work
    members = members.to(run.settings.device)
    values = all_values(work.rows, members, blocks, run.settings.device)
    costs = _own_costs(work, members, blocks)
    sound = np.flatnonzero(np.isfinite(values).all(0) & np.isfinite(costs))[: _room(run)]
    if len(sound):
        work.add_columns(members.take(sound), blocks[sound], values[:, sound])
    return len(sound)


def _room(run: RunState) -> int:
    """How many columns the limit still allows."""
    return max(0, run.settings.column_limit - (len(run.work.columns) - run.begun.columns))
