"""Which shapes a mixture keeps by the signs in its members' arrays, and what a search finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cg4ai.members import slopes as reach
from cg4ai.members.structure import SPREAD, Ends
from cg4ai.protocols import Members
from cg4ai.records import Array
from cg4ai.rules.shapes import Monotone, Shape
from cg4ai.rules.violations import predictions

if TYPE_CHECKING:
    from cg4ai.ensemble.ensemble import Ensemble

PAIRS = 4096  # of inputs that an audit compares, beside what the arrays say


def keeps(ensemble: Ensemble, shape: Shape) -> bool:
    """Whether every member that is used keeps it at every input, as its arrays show."""
    if len(ensemble.layout) > 1 or ensemble.shield_digest is not None:
        return False
    return not any(find_obstacle(part.members, shape) for part in ensemble.used)


def find_obstacle(members: Members, shape: Shape) -> str:
    """Why these members do not all keep the shape by how they are built; empty if they do."""
    found, kind = members.find_moves(shape), members.kind
    if len(members) and not found:
        return f"members of kind {kind!r} show no shape by how they are built"
    may = reach.find_allowed_moves([shape], members.input_size)
    for number, moves in enumerate(found):
        beyond = (moves & ~may).any(axis=(0, 2))
        if beyond.any():
            feature = int(np.flatnonzero(beyond)[0])
            return f"member {number} of kind {kind!r} may break it in feature {feature}"
    return ""


def find_worst_pairs(ensemble: Ensemble, shape: Shape, pairs: int = PAIRS) -> tuple[Array, Array]:
    """(violations (m,), inputs (m, d)): how far outputs move against the shape, from there on."""
    low, high = _range(ensemble)
    generator = np.random.default_rng(0)
    directions = shape.directions(ensemble.input_size)
    first = generator.uniform(low, high, (pairs, len(low)))
    second = first.copy()
    bound = np.flatnonzero(directions)
    taken = generator.random((pairs, len(bound))) < 0.5
    taken[np.arange(pairs), generator.integers(len(bound), size=pairs)] = True
    other = generator.uniform(low[bound], high[bound], (pairs, len(bound)))
    rows = shape.functionals(ensemble.output_size).T
    if isinstance(shape, Monotone):
        # each feature that is taken moves the way in which outputs must not fall
        step = np.abs(other - first[:, bound]) * directions[bound]
        second[:, bound] += np.where(taken, step, 0.0)
        one, two = (predictions(ensemble, x).numpy() @ rows for x in (first, second))
        return np.asarray((one - two).max(axis=1)), first
    sign = int(directions[bound[0]])
    alike = taken & (directions[bound] == sign)
    alike[:, 0] = True
    second[:, bound] = np.where(alike, other, first[:, bound])
    ends = [predictions(ensemble, x).numpy() @ rows for x in (first, second)]
    middle = predictions(ensemble, (first + second) / 2).numpy() @ rows
    return np.asarray((sign * (middle - (ends[0] + ends[1]) / 2)).max(axis=1)), first


def _range(ensemble: Ensemble) -> Ends:
    """Where inputs are usual, as far as members show it: by their units, or where trees split."""
    found = filter(None, (part.members.find_usual_inputs() for part in ensemble.used))
    ones = np.ones(ensemble.input_size)
    return next(found, (-SPREAD * ones, SPREAD * ones))
