"""The weights a run ends with: the master's own, or a convex choice of those that meet the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from cg4ai.colgen import tolerances
from cg4ai.colgen.columns import NO_WEIGHT
from cg4ai.colgen.master import LinearMaster
from cg4ai.colgen.master.convex import FinalWeights, compute_final_weights
from cg4ai.colgen.master.table import OWN_SLACK
from cg4ai.colgen.supergradient_cuts import TANGENT_ROUNDS
from cg4ai.errors import InvalidInput
from cg4ai.objectives import Supervised
from cg4ai.records import Array, MasterSolution

if TYPE_CHECKING:
    from cg4ai.colgen.restricted_master import Workspace


def choose_final_weights(work: Workspace, solution: MasterSolution) -> Array:
    """The master's weights, or the settings' convex choice among weights that meet the rows."""
    choice, objective = work.settings.final_weights, work.objective
    usable = not np.any(solution.dummy > tolerances.FEASIBILITY_TOLERANCE)
    if choice == "vertex" or not usable:
        return solution.weights
    linear = isinstance(objective, Supervised) and objective.loss == "error"
    if choice == "loss" and (objective.kind != "average" or linear):
        return solution.weights  # the master minimised the true loss already
    try:
        chosen = _chosen(work, choice, solution)
        for _ in range(TANGENT_ROUNDS):
            if not work.add_tangents(chosen.weights):
                break
            chosen = _chosen(work, choice, solution)
    except InvalidInput as error:  # an average of losses need not be convex in the mixture
        chosen = FinalWeights(solution.weights, np.inf, f"kept the master's weights: {error}")
    if chosen.note and chosen.note not in work.notes:
        work.notes.append(chosen.note)
    return _within_concave_rules(work, chosen.weights, solution)


def _chosen(
    work: Workspace, choice: Literal["loss", "uniform"], solution: MasterSolution
) -> FinalWeights:
    ruled, by_loss = work.requirement_rows(), choice == "loss"
    return compute_final_weights(
        choice,
        coefficients=work.table()[ruled],
        bounds=(work.rows.bounds + work.settings.row_margin * work.row_sizes)[ruled],
        blocks=work.columns.blocks,
        n_blocks=len(work.layout),
        start=solution.weights,
        loss=work.compute_mixture_loss if by_loss else None,
        outputs=work.columns.outputs(work.objective.inputs).cpu().numpy() if by_loss else None,
    )


def _within_concave_rules(work: Workspace, weights: Array, solution: MasterSolution) -> Array:
    """The weights, moved by the least that keeps concave rules where cuts left a rest.

    They move towards the master's own, or towards some that meet the rows by Jensen: all mixtures
    between two that keep concave rules keep them.
    """
    rest = _concave_room(work, weights)
    if not len(rest) or rest.min() >= -tolerances.FEASIBILITY_TOLERANCE:
        return weights
    for inside in (solution.weights, _jensen_weights(work)):
        room = np.zeros(len(rest)) if inside is None else _concave_room(work, inside)
        if inside is None or (room <= 0)[rest < 0].any() or (room < 0).any():
            continue
        share = float((-rest / (room - rest))[rest < 0].max())
        work.notes.append(f"blended with a share {share:.2g} of weights within concave rules")
        return np.asarray(weights + share * (inside - weights))
    return weights


def _concave_room(work: Workspace, weights: Array) -> Array:
    """What this mixture has to spare in each concave row, by its size."""
    ensemble = work.columns.ensemble(weights) if len(work.tangents) else None
    return np.empty(0) if ensemble is None else work.tangents.room(ensemble, work.settings.device)


def _jensen_weights(work: Workspace) -> Array | None:
    """Weights for which the means of the members' own values meet all rows; None: unknown."""
    if len(work.layout) > 1:
        return None
    s, concave = work.settings, work.tangents.batches
    ruled = work.requirement_rows()
    sizes = np.concatenate([work.row_sizes[ruled], work.tangents.sizes])
    table = np.vstack([work.table()[ruled], *(work.columns.coefficients(b) for b in concave)])
    stated = [work.rows.bounds[ruled], *(b.bounds for b in concave)]
    master = LinearMaster(1)
    count = len(work.columns)
    master.add_columns(np.zeros(count), np.zeros(count, int), np.zeros((0, count)))
    bounds = np.concatenate(stated) + s.row_margin * sizes
    master.add_rows(table, bounds, np.full(len(bounds), OWN_SLACK))
    master.minimise_slack(True)
    found = master.solve()
    met = (found.slack <= tolerances.FEASIBILITY_TOLERANCE * sizes).all()
    return found.weights if met and found.dummy.max() <= NO_WEIGHT else None
