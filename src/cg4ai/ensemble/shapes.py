"""Which shapes a mixture keeps by the signs in its members' arrays, and what a search finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cg4ai.members import slopes as reach
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.equalities import CompletedMembers
from cg4ai.members.nested_classes import NestedMembers
from cg4ai.members.networks import NetworkMembers
from cg4ai.members.output_sets import ArrangedMembers
from cg4ai.members.trees import TreeMembers
from cg4ai.protocols import Members
from cg4ai.records import Array, IntArray
from cg4ai.rules.shapes import Monotone, Shape
from cg4ai.rules.violations import predictions

if TYPE_CHECKING:
    from cg4ai.ensemble.ensemble import Ensemble

PAIRS = 4096  # of inputs that an audit compares, beside what the arrays say
SPREAD = 3.0  # deviations from the middle at which inputs are tried


def keeps(ensemble: Ensemble, shape: Shape) -> bool:
    """Whether every member that is used keeps it at every input, as its arrays show."""
    if len(ensemble.layout) > 1 or ensemble.shield_digest is not None:
        return False
    return not any(find_obstacle(part.members, shape) for part in ensemble.used)


def find_obstacle(members: Members, shape: Shape) -> str:
    """Why these members do not all keep the shape by how they are built; empty if they do."""
    found = list(_moves(members, shape))
    kind = getattr(members, "kind", type(members).__name__)
    if len(members) and not found:
        return f"members of kind {kind!r} show no shape by how they are built"
    may = reach.find_allowed_moves([shape], members.input_size)
    for number, moves in enumerate(found):
        beyond = (moves & ~may).any(axis=(0, 2))
        if beyond.any():
            feature = int(np.flatnonzero(beyond)[0])
            return f"member {number} of kind {kind!r} may break it in feature {feature}"
    return ""


def _moves(members: Members, shape: Shape) -> Iterator[reach.Moves]:
    """For each member (k, d, 4), what the sums that the shape is about may do; none if unknown."""
    size = members.output_size
    if isinstance(members, ConstantMembers):
        yield from np.zeros((len(members), 1, members.input_size, 4), bool)
    elif isinstance(members, NetworkMembers):
        made = members.architecture
        under = bool(made.softmax_groups)
        if len(made.softmax_groups) > 1 or (under and shape.logits):
            return
        arrays = {name: value.cpu().numpy() for name, value in members.parameters.items()}
        rows = shape.differences(size) if under else shape.functionals(size)
        for number in range(len(members)):
            own = {name: array[number] for name, array in arrays.items()}
            found = reach.find_network_moves(
                own, rows, depth=made.depth, activation=made.activation
            )
            yield reach.apply_softmax(found) if under else found
    elif isinstance(members, TreeMembers):
        under = members.link == "softmax"
        rows = shape.differences(size) if under else shape.functionals(size)
        for number in range(len(members)):
            own = {
                name: getattr(members, name)[number].cpu().numpy()
                for name in ("feature", "left", "right", "value", "factor", "subset")
                if getattr(members, name) is not None
            }
            found = reach.find_tree_moves(own | {"input_size": members.input_size}, rows)
            yield reach.apply_softmax(found) if under else found
    elif isinstance(members, NestedMembers):
        yield from _nested_moves(members, shape)
    elif isinstance(members, ArrangedMembers) and not shape.logits and not shape.ordered:
        every = replace(shape, output=None)  # sorting makes each output one of several
        asked = np.flatnonzero(shape.functionals(size).any(axis=0))
        for found in _moves(members.inner, every):
            whole = np.broadcast_to(found, (size, *found.shape[1:]))
            yield reach.map_into_set(whole, members.layer.source)[asked]
    elif isinstance(members, CompletedMembers) and (folded := members.fold()) is not None:
        yield from _moves(folded, shape)


def _nested_moves(members: NestedMembers, shape: Shape) -> Iterator[reach.Moves]:
    """What is asked of the whole is asked of the columns that are taken from parts as they are."""
    nesting = members.layer
    if not isinstance(shape, Monotone) or shape.logits:
        return
    if (shape.ordered, shape.output) != (nesting.output is None, nesting.output):
        return
    first = np.arange(len(members)) * nesting.parts
    found = [
        list(_moves(members.inner.take(first + part), replace(shape, output=k, ordered=False)))
        for part, k in nesting.bound.items()
    ]
    for parts in zip(*found, strict=True):
        yield np.concatenate(parts)


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


def _range(ensemble: Ensemble) -> tuple[Array, Array]:
    """Where inputs are usual, as far as members show it: by their units, or where trees split."""
    for part in ensemble.used:
        members: Members = getattr(part.members, "inner", part.members)
        if isinstance(members, NetworkMembers) and members.architecture.scale is not None:
            made = members.architecture
            middle = np.zeros(made.input_size) if made.shift is None else made.shift
            assert made.scale is not None
            return middle - SPREAD * made.scale, middle + SPREAD * made.scale
        if isinstance(members, TreeMembers):
            return _splits(members)
    ones = np.ones(ensemble.input_size)
    return -SPREAD * ones, SPREAD * ones


def _splits(members: TreeMembers) -> tuple[Array, Array]:
    low, high = -np.ones(members.input_size), np.ones(members.input_size)
    feature: IntArray = members.feature.cpu().numpy().ravel()
    threshold = members.threshold.cpu().numpy().ravel()
    inner = (members.left != members.right).cpu().numpy().ravel() & np.isfinite(threshold)
    for number in np.unique(feature[inner]):
        own = threshold[inner & (feature == number)]
        room = 0.1 + 0.1 * np.ptp(own)
        low[number], high[number] = own.min() - room, own.max() + room
    return low, high
