"""Chooses the anchor of a problem with rules over regions: the user's own, or one that is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from cg4ai.anchors.affine_maps import AffineMap, Space
from cg4ai.anchors.least_loss import MeanLoss
from cg4ai.anchors.search import Anchor, NoAnchor, check_given, find_anchor
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.compile.equalities import find_completion
from cg4ai.compile.output_sets import find_output_set
from cg4ai.compile.problem import find_softmax_groups
from cg4ai.errors import InvalidInput
from cg4ai.members.affine_maps import find_affine_map
from cg4ai.members.output_sets import move_into_set
from cg4ai.objectives import Supervised
from cg4ai.records import Array
from cg4ai.rules import Requirement
from cg4ai.rules.guards import guard_of

AGREES = 1e-9  # rounding that an anchor of the user's own may have
RIDGE = 1e-3  # of the affine fit that anchors stay close to, per row of the data
SAMPLE = 4000  # inputs over which an anchor of least loss is sought
FITTED = ("squared", "log_loss", "error", "none")  # whose best affine fit is known, or is none


def choose_anchor(problem: CompiledProblem, ruled: Sequence[Requirement]) -> Anchor | NoAnchor:
    """The anchor that was given, checked, or one that is found."""
    outputs, inputs = problem.layout.output_size, problem.objective.inputs.shape[1]
    guards = [guard_of(one, outputs) for one in ruled]
    if problem.stated.anchor is not None:
        given = _convert_anchor(problem.stated.anchor, outputs, inputs)
        _check_inside(problem, given)
        return check_given(guards, given)
    space = Space.free(outputs, inputs)
    completion = find_completion(problem)
    if completion is not None:
        space = replace(
            space, offset=completion.offset, slope=completion.slope, basis=completion.basis
        )
    elif (inside := find_output_set(problem)) is not None:
        space = Space.inside(inside, inputs)
    elif groups := find_softmax_groups(problem):
        space = Space.probabilities(groups, inputs)
    return find_anchor(
        guards,
        space=space,
        reference=_find_reference(problem, space),
        loss=_make_mean_loss(problem),
    )


def _check_inside(problem: CompiledProblem, anchor: AffineMap) -> None:
    """Refuse an anchor that could take outputs out of the set that members keep."""
    inside = find_output_set(problem)
    if inside is None:
        return
    matrix, bound = inside.rows
    if not anchor.is_constant or (matrix @ anchor.offsets < bound - AGREES).any():
        raise InvalidInput(
            "the anchor must keep the rules on outputs at every input: give a constant that keeps "
            "them, or no anchor to have one found",
            code="anchor",
        )


def _convert_anchor(anchor: Any, outputs: int, inputs: int) -> AffineMap:
    """An anchor as a map: itself, outputs (r,), slopes with offsets, or a single member."""
    if isinstance(anchor, AffineMap):
        made: AffineMap | None = anchor
    elif callable(getattr(anchor, "outputs", None)):
        made = find_affine_map(anchor)
    elif isinstance(anchor, tuple):
        made = AffineMap(np.asarray(anchor[0], np.float64), np.asarray(anchor[1], np.float64))
    else:
        made = AffineMap.constant(np.asarray(anchor, np.float64), inputs)
    if made is None or made.slopes.shape != (outputs, inputs) or made.offsets.shape != (outputs,):
        raise InvalidInput(
            f"an anchor is {outputs} numbers, (slopes ({outputs}, {inputs}), offsets ({outputs},)) "
            f"or one constant or affine member with these sizes, got {type(anchor).__name__}",
            code="type",
        )
    return made


def _find_reference(problem: CompiledProblem, space: Space) -> AffineMap | None:
    """Where predictions are expected: an affine fit of the targets, or shares of the classes."""
    objective = problem.objective
    if objective.labels is None:
        return None
    targets = np.asarray(objective.labels, np.float64)
    if targets.ndim == 2 and not len(space.least):
        return _move_into(space, _fit_affine_map(objective.inputs, targets))
    if targets.ndim == 2 and (inside := find_output_set(problem)) is not None:
        return AffineMap.constant(move_into_set(inside, targets.mean(0)), objective.inputs.shape[1])
    if targets.ndim == 1 and len(space.least):
        shares = np.bincount(targets.astype(np.int64), minlength=problem.layout.output_size)
        return AffineMap.constant(shares / shares.sum(), objective.inputs.shape[1])
    return None


def _make_mean_loss(problem: CompiledProblem) -> MeanLoss | None:
    """What an anchor should be good at, where no fit of the targets stands for it."""
    objective = problem.objective
    if not isinstance(objective, Supervised) or objective.loss in FITTED:
        return None
    made = torch.Generator().manual_seed(0)
    batch = objective.batch(SAMPLE, made, device="cpu", dtype=torch.float64)
    return MeanLoss(batch.inputs.numpy(), lambda outputs: objective.value(batch, outputs))


def _fit_affine_map(inputs: Array, targets: Array) -> AffineMap:
    centre, middle = inputs.mean(0), targets.mean(0)
    x = inputs - centre
    spread = np.maximum(x.std(0), 1e-12)
    scaled = x / spread
    gram = scaled.T @ scaled + RIDGE * len(x) * np.eye(x.shape[1])
    slopes = np.linalg.solve(gram, scaled.T @ (targets - middle)).T / spread
    return AffineMap(slopes, middle - slopes @ centre)


def _move_into(space: Space, fit: AffineMap) -> AffineMap:
    """The fit moved into the space, orthogonally: its basis is orthonormal or a projector."""
    project = space.basis @ space.basis.T
    return AffineMap(
        space.slope + project @ (fit.slopes - space.slope),
        space.offset + project @ (fit.offsets - space.offset),
    )
