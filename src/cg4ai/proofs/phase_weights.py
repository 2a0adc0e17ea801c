"""The master of certified training: weights for which remembered cells and known rows are kept.

The bound of a cell is convex in the weights, so its slopes give cuts; they are added where the
weights found violate them until none does (Kelley's method), and the anchors take what the
trained members cannot be shown to keep. A cut is about the members that are there, so that every
choice of members has a master of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from cg4ai.colgen.restricted_master import Workspace
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.members.mixture import Part
from cg4ai.objectives import Epigraph
from cg4ai.proofs.cell_bounds import CellBounds
from cg4ai.proofs.prover import CellMemory
from cg4ai.proofs.records import RuleCells
from cg4ai.records import Array, IntArray, MasterSolution
from cg4ai.rules.rows import Rows

ROUNDS = 8
CHUNK = 512
SLACK_PRICE = 30.0  # of a unit by which a row is missed, against the objective
LEAST = 1e-4  # weights below this are given to the others: every active member is bounded


@dataclass(frozen=True)
class CellWeights:
    """Weights of all columns, and the solution of the master that chose them among some.

    `anchored`: the share of the members that the problem starts from, on average over the blocks.
    `unanchored`: the objective without rows for cells.
    """

    weights: Array
    solution: MasterSolution
    anchored: float
    unanchored: float


def weigh_cells(
    work: Workspace, memory: CellMemory, *, groups: int, size: int, coarse: float
) -> CellWeights:
    """The objective minimised over weights of anchors and the latest groups, with cuts for cells.

    A group is one member for each block. Cells whose bound for the newest group is more than
    `coarse` above the limit are left out: halving them may do, and keeping them as they are would
    take large shares of the anchors.
    """
    count, blocks = len(work.columns), len(work.layout)
    anchors = sum(len(members) for members, _ in work.problem.start)
    chosen = np.union1d(np.arange(anchors), np.arange(count - groups * size, count))
    parts, numbers = _parts(work, chosen, newest=np.arange(count - size, count))
    master = _master(work, parts)
    bounds = CellBounds(
        Ensemble(parts, work.layout, device=work.settings.device), memory.requirement
    )
    weights = np.concatenate([part.weights for part in parts])
    cells = memory.cells.take(np.flatnonzero(_excess(bounds, memory.cells, weights) <= coarse))
    solution = master.solve_master()
    unanchored = solution.objective
    for number in range(ROUNDS):
        if not _add_cuts(master, bounds, cells, weights, first=number == 0):
            break
        solution = master.solve_master()
        weights = solution.weights
    full = np.zeros(count)
    full[numbers] = np.where(solution.weights < LEAST, 0.0, solution.weights)
    anchored = float(solution.weights[numbers < anchors].sum()) / blocks
    own = np.zeros(len(work.rows))  # the rows here are those of another master
    slack = np.concatenate([own, master.compute_slack_in_units(solution)])
    return CellWeights(full, replace(solution, slack=slack), anchored, unanchored)


def _over_region(work: Workspace, rows: Rows) -> bool:
    requirements = work.problem.requirements
    return rows.requirement >= 0 and requirements[rows.requirement].region is not None


def _parts(
    work: Workspace, chosen: IntArray, *, newest: IntArray
) -> tuple[tuple[Part, ...], IntArray]:
    """The chosen columns stack by stack, and their numbers; the newest share all the weight.

    The newest group alone is where training left off.
    """
    parts, numbers = [], []
    for stack in work.columns.stacks:
        own = np.flatnonzero(np.isin(stack.numbers, chosen))
        if len(own):
            each = len(work.layout) / len(newest)
            weights = each * np.isin(stack.numbers[own], newest).astype(np.float64)
            parts.append(Part(stack.members.take(own), stack.blocks[own], weights))
            numbers.append(stack.numbers[own])
    return tuple(parts), np.concatenate(numbers)


def _master(work: Workspace, parts: tuple[Part, ...]) -> Workspace:
    """A master of these members, with the rows that are known at points of the regions."""
    problem = work.problem
    objective = problem.objective
    if isinstance(objective, Epigraph):  # the tail would count in other inputs every time
        objective = replace(objective, tail=None)
    known = [  # as they were stated: a master scales them by itself
        rows.scale(1 / work.compute_size(rows.requirement).scale)
        for rows in work.rows.batches
        if _over_region(work, rows)
    ]
    restricted = replace(
        problem,
        objective=objective,
        start=tuple((part.members, part.blocks) for part in parts),
        start_rows=tuple(known),
    )
    master = Workspace(restricted, replace(work.settings, penalty=SLACK_PRICE))
    master.start()
    return master


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
    master: Workspace, bounds: CellBounds, cells: RuleCells, weights: Array, *, first: bool
) -> int:
    """Rows for the cells whose bound at these weights exceeds the limit; all cells at `first`."""
    if not first:
        cells = cells.take(np.flatnonzero(_excess(bounds, cells, weights) > 1e-7))
    for start in range(0, len(cells), CHUNK):
        part = cells.take(np.arange(start, min(start + CHUNK, len(cells))))
        slopes = bounds.coefficients(part.rules, part.lower, part.upper, weights=weights)
        own_slack = np.full(len(part), -1)
        master.master.add_rows(-slopes.T, -bounds.rules.limit[part.rules], own_slack)
    return len(cells)
