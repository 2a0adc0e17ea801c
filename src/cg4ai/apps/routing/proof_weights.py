"""The master of a certified run: weights for which remembered cells and points keep the rules.

The bound of a cell is convex in the weights, so its slopes give cuts; they are added where the
weights found violate them until none does (Kelley's method), and the anchors take what the
networks cannot be shown to keep.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from cg4ai.apps.routing.cells import CellMemory, RuleCells
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.master import LinearMaster
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.members.networks import NetworkMembers
from cg4ai.objectives import Epigraph
from cg4ai.proofs import CellBounds
from cg4ai.records import Array
from cg4ai.settings import Settings
from cg4ai.solving.problem import Problem
from cg4ai.solving.workspace import Workspace

ROUNDS = 8
CHUNK = 512
SLACK_PRICE = 30.0  # of a unit of overload, against mean MLU
LEAST = 1e-4  # weights below this are given to the others: every active member is bounded


@dataclass(frozen=True)
class Weighed:
    """The mixture, its mean MLU over the scenarios, and the most that a row lacks.

    `anchored`: the share of the constant splits, on average over the demands. `unanchored`: the
    mean MLU without rows for cells.
    """

    ensemble: Ensemble
    objective: float
    slack: float
    anchored: float
    unanchored: float


def weigh(
    problem: Problem,
    settings: Settings,
    *,
    anchors: list[ConstantMembers],
    groups: list[NetworkMembers],
    memory: CellMemory,
    coarse: float,
) -> Weighed:
    """Mean MLU minimised over weights of anchors and groups, with cuts for the cells.

    Cells whose bound for the newest group is more than `coarse` above the limit are left out:
    halving them may do, and keeping them as they are would take large shares of the anchors.
    """
    count = len(problem.layout)
    blocks = np.arange(count)
    stacks: list[ConstantMembers | NetworkMembers] = [*anchors, *groups]
    assert isinstance(problem.objective, Epigraph)
    rows = (*problem.start_rows, *(() if memory.points is None else (memory.points,)))
    plain = replace(
        problem,
        start=tuple((members, blocks) for members in stacks),
        start_rows=rows,
        objective=replace(problem.objective, tail=None),
    )
    work = Workspace(plain, replace(settings, penalty=SLACK_PRICE))
    work.start()
    bounds = CellBounds(_everyone(stacks, problem, settings.device), problem.requirements[0])
    # the newest group alone is where training left off
    weights = np.concatenate([np.zeros(count * (len(stacks) - 1)), np.ones(count)])
    cells = memory.cells.take(np.flatnonzero(_excess(bounds, memory.cells, weights) <= coarse))
    solution = work.solve_master()
    unanchored = solution.objective
    for number in range(ROUNDS):
        if not _add_cuts(work, bounds, cells, weights, first=number == 0):
            break
        solution = work.solve_master()
        weights = solution.weights
    kept = np.where(solution.weights < LEAST, 0.0, solution.weights)
    slack = float(max(solution.slack.max(initial=0.0), solution.dummy.max(initial=0.0)))
    anchored = float(solution.weights[: count * len(anchors)].sum()) / count
    return Weighed(work.whole_ensemble(kept), solution.objective, slack, anchored, unanchored)


def _everyone(
    stacks: list[ConstantMembers | NetworkMembers], problem: Problem, device: str
) -> Ensemble:
    """All members in the order of the master's columns, the last stack with all the weight."""
    count = len(problem.layout)
    parts = [
        Part(stack.to(device), np.arange(count), np.full(count, float(stack is stacks[-1])))
        for stack in stacks
    ]
    return Ensemble(tuple(parts), problem.layout, device=device)


def _excess(bounds: CellBounds, cells: RuleCells, weights: Array) -> Array:
    """(m,): how far the bound of each cell is above its limit at these weights."""
    mixing = torch.as_tensor(weights, device=bounds.weights.device)
    found = [np.empty(0)]
    for start in range(0, len(cells), CHUNK):
        part = cells.take(np.arange(start, min(start + CHUNK, len(cells))))
        with torch.no_grad():
            upper = bounds.upper(part.rules, part.lower, part.upper, weights=mixing)
        found.append(upper.cpu().numpy() - bounds.rules.limit[part.rules])
    return np.concatenate(found)


def _add_cuts(
    work: Workspace, bounds: CellBounds, cells: RuleCells, weights: Array, *, first: bool
) -> int:
    """Rows for the cells whose bound at these weights exceeds the limit; all cells at `first`."""
    assert isinstance(work.master, LinearMaster)
    if not first:
        cells = cells.take(np.flatnonzero(_excess(bounds, cells, weights) > 1e-7))
    for start in range(0, len(cells), CHUNK):
        part = cells.take(np.arange(start, min(start + CHUNK, len(cells))))
        slopes = bounds.coefficients(part.rules, part.lower, part.upper, weights=weights)
        own_slack = np.full(len(part), -1)
        work.master.add_rows(-slopes.T, -bounds.rules.limit[part.rules], own_slack)
    return len(cells)
