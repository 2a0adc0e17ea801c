"""Choices of single members, and the mixture they are measured by, as solutions of the master."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cg4ai.colgen import tolerances
from cg4ai.colgen.iteration import build_request
from cg4ai.colgen.master import LinearMaster
from cg4ai.colgen.master.integer import Choice, choose
from cg4ai.colgen.master.table import MasterTable
from cg4ai.colgen.pricing.defaults import iterate_pricers
from cg4ai.colgen.pricing.exact.listed import Listable
from cg4ai.colgen.pricing.reduced_cost import (
    compute_all_values,
    compute_member_costs,
    compute_reduced_costs,
)
from cg4ai.members.fusion import collapse
from cg4ai.protocols import Members, PricingRequest
from cg4ai.records import Array, Duals, IntArray, MasterSolution

if TYPE_CHECKING:
    from cg4ai.colgen.restricted_master import Workspace
    from cg4ai.colgen.state import RunState


@dataclass(frozen=True, slots=True)
class BestMixture:
    """The optimal mixture that single models are measured by: weights, duals, objective.

    `bound` is what no mixture of the class is below, and `lower` (G,) the least reduced cost of
    each block behind it, where an exact pricer gave them.
    """

    weights: Array
    duals: Duals
    objective: float
    bound: float | None = None
    lower: Array | None = None


def find_best_mixture(run: RunState) -> BestMixture:
    """The optimum of the master as it is, with a proven bound where the class can be listed."""
    with run.watch.measure_step("master"):
        solution = run.solve_whole_master()
    known = BestMixture(solution.weights, solution.duals, solution.objective)
    pricer = find_listable(run)
    if pricer is None:
        return known
    request = build_own_loss_request(run, solution)
    lower = pricer.price(request).lower_bound
    if lower is None:
        return known
    if isinstance(run.work.master, LinearMaster):
        lower = np.minimum(lower, 0.0)
        paid = solution.penalised - run.work.master.gap - run.compute_margin_price(solution)
        return replace(known, bound=paid + float(lower.sum()), lower=lower)
    for stack in run.work.columns.stacks:  # of which some may be of another class
        np.minimum.at(
            lower, stack.blocks, compute_reduced_costs(request, stack.members, stack.blocks)
        )
    duals = solution.duals
    paid = float(duals.rows @ run.work.rows.bounds + duals.blocks.sum())
    return replace(known, bound=paid + float(lower.sum()), lower=lower)


def build_own_loss_request(run: RunState, solution: MasterSolution) -> PricingRequest:
    """The request at these duals in which a member costs its own loss, as it does in a choice.

    That bounds single models more tightly than the derivative of a mixture's loss does.
    """
    request = build_request(run, solution, solution.duals.rows, "list")
    if request.objective.kind != "mixture":
        return request
    own = copy.copy(request.objective)
    object.__setattr__(own, "kind", "average")
    return replace(request, objective=own)


def find_listable(run: RunState) -> Listable | None:
    """The pricer, if it is the only one and its class can be listed."""
    only = run.pricers[0] if len(run.pricers) == 1 else None
    if isinstance(only, Listable) and only.can_list(run.problem.objective, run.problem.layout):
        return only
    return None


def compute_allowance(run: RunState, mixture: BestMixture) -> float:
    """Rows count as met when they lack no more than the tolerance: what that may be worth."""
    prices = mixture.duals.rows
    sizes = run.work.row_sizes[: len(prices)]
    return tolerances.FEASIBILITY_TOLERANCE * float(prices @ sizes)


def compute_margin_price(run: RunState, mixture: BestMixture) -> float:
    return run.work.compute_margin_price(mixture.duals.rows)


def pad_rows(values: Array, run: RunState) -> Array:
    """Values of the rows that there were, 0 for those that came since."""
    return np.concatenate([values, np.zeros(len(run.work.rows) - len(values))])


def convert_mixture(run: RunState, mixture: BestMixture) -> MasterSolution:
    """The mixture as the master's solution: columns and rows that came since count for nothing."""
    weights = np.zeros(len(run.work.columns))
    weights[: len(mixture.weights)] = mixture.weights
    return MasterSolution(
        weights=weights,
        duals=Duals(pad_rows(mixture.duals.rows, run), mixture.duals.blocks),
        objective=mixture.objective,
        penalised=mixture.objective,
        slack=np.zeros(len(run.work.rows)),
        dummy=np.zeros(len(run.problem.layout)),
    )


def choose_columns(run: RunState) -> Choice:
    """The best choice among all columns, with every piece of the objective that it needs."""
    while True:
        choice = choose(
            _table(run.work),
            tolerance=tolerances.FEASIBILITY_TOLERANCE * run.work.row_sizes,
            time_limit_s=max(run.deadline.compute_seconds_left(), 1.0),
        )
        run.has_time("the choice of one model")
        if not run.work.add_missing(build_integral_weights(run.work, choice)):
            return scale_choice(choice, run.work.master.unit)


def scale_choice(choice: Choice, unit: float) -> Choice:
    """The choice from a table in another unit of the objective."""
    return replace(choice, objective=unit * choice.objective, bound=unit * choice.bound)


def _table(work: Workspace) -> MasterTable:
    """Rows and columns of the master, each column at the cost that it has on its own.

    Costs are in the unit of the master's objective.
    """
    master = work.master
    if isinstance(master, LinearMaster):
        return master.table
    table = MasterTable(len(work.layout))
    costs = np.empty(len(work.columns))
    for stack in work.columns.stacks:
        costs[stack.numbers] = _own_costs(work, stack.members, stack.blocks)
    table.add_columns(costs / master.unit, work.columns.blocks, np.zeros((0, len(costs))))
    table.add_rows(master.coefficients, master.bounds, master.slack_numbers, None)
    return table


def _own_costs(work: Workspace, members: Members, blocks: IntArray) -> Array:
    return compute_member_costs(
        work.objective, work.layout, members, blocks, device=work.settings.device
    )


def build_integral_weights(work: Workspace, choice: Choice) -> Array:
    weights = np.zeros(len(work.columns))
    weights[choice.columns] = 1.0
    return weights


def convert_choice(run: RunState, choice: Choice) -> MasterSolution:
    """The choice as a solution of the master, without duals: an integer program has none."""
    work = run.work
    values = np.asarray(work.master.coefficients[:, choice.columns].sum(1))
    slack = np.where(work.requirement_rows(), np.maximum(work.master.bounds - values, 0.0), 0.0)
    return MasterSolution(
        weights=build_integral_weights(work, choice),
        duals=Duals(np.zeros(len(work.rows)), np.zeros(len(work.layout))),
        objective=choice.objective,
        penalised=choice.objective + work.master.unit * work.master.penalty * float(slack.sum()),
        slack=slack,
        dummy=np.zeros(len(work.layout)),
    )


def add_collapsed_member(run: RunState, mixture: BestMixture) -> None:
    """Where all members of the mixture are affine, or constant, it is such a member itself.

    Of classes that can be listed it is none: what was not listed is not of the class.
    """
    work, made = run.work, []
    if any(isinstance(one, Listable) for pricer in run.pricers for one in iterate_pricers(pricer)):
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
        one = collapse(stack.members.take(mine), shares / shares.sum())
        if one is None:
            return
        made.append((one, np.array([block])))
    for members, blocks in made:
        add_listed_members(run, members, blocks)


def add_listed_members(run: RunState, members: Members, blocks: IntArray) -> int:
    """Add what is finite, as far as the limit on columns allows: how many."""
    work = run.work
    members = members.to(run.settings.device)
    values = compute_all_values(work.rows, members, blocks, run.settings.device)
    costs = _own_costs(work, members, blocks)
    sound = np.flatnonzero(np.isfinite(values).all(0) & np.isfinite(costs))[: count_room(run)]
    if len(sound):
        work.add_columns(members.take(sound), blocks[sound], values[:, sound])
    return len(sound)


def count_room(run: RunState) -> int:
    """How many columns the limit still allows."""
    return max(0, run.settings.column_limit - (len(run.work.columns) - run.begun.columns))
