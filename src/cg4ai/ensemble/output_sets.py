"""Which rules on outputs a mixture keeps by the structure of its members, read from their arrays.

A form says where outputs lie whatever the input: in an output set, or in a sum of hulls of points.
The least that `row . y` can be there is known in closed form, and rules are such rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.members.constants import ConstantMembers
from cg4ai.members.nested_classes import NestedMembers
from cg4ai.members.networks import NetworkMembers
from cg4ai.members.output_sets import ArrangedMembers
from cg4ai.members.shielded import ShieldedMembers
from cg4ai.members.trees import TreeMembers
from cg4ai.nn.set_projection import distribute_remainder
from cg4ai.protocols import Members
from cg4ai.records import Array, IntArray
from cg4ai.rules.output_sets import OutputRule, OutputSet

if TYPE_CHECKING:
    from cg4ai.ensemble.ensemble import Ensemble

EXACT = 1e-12  # of the sizes of all terms: to which rules hold


class Hulls(NamedTuple):
    """Outputs `sum_t h_t`, each h_t a mixture of the points (V, r) whose `term` (V,) is t."""

    points: Array
    term: IntArray


class Arrangement(NamedTuple):
    """Outputs of a set: ends (r,), place in a chain and in a total (r,), values of totals (t,).

    `chain` and `total` are -1 for outputs in none; `rank` (r,) rises along a chain.
    """

    low: Array
    high: Array
    chain: IntArray
    rank: IntArray
    total: IntArray
    value: Array


Form = Hulls | Arrangement


def keeps_set(ensemble: Ensemble, rule: OutputRule) -> bool:
    """Whether every member that is used keeps it at every input, but for rounding."""
    return _within(ensemble, rule.output_set(ensemble.output_size))


def _within(ensemble: Ensemble, source: OutputSet) -> bool:
    """Whether all members that are used, and anchors, have outputs in the set, but for rounding."""
    matrix, bound = source.rows
    forms = find_output_forms(ensemble, matrix)
    return bool(forms) and all(
        (
            compute_least(one, matrix)
            >= bound - EXACT * (np.abs(bound) + np.abs(matrix) @ _sizes(one))
        ).all()
        for one in forms
    )


def find_common_set(ensemble: Ensemble) -> OutputSet | None:
    """A set that all members keep by their structure; None where none is known.

    It is the set that members were built for, or that of numbers between 0 and 1. Sums of weighted
    members leave it by rounding alone, so outputs are put back into it (`correct_rounding`).
    """
    arranged = next(filter(None, (_built_for(part.members) for part in ensemble.used)), None)
    if arranged is not None and len(ensemble.layout) == 1:
        ends = OutputSet(arranged.low, arranged.high)
        return next((one for one in (arranged, ends) if _within(ensemble, one)), None)
    size = ensemble.output_size
    shares = OutputSet(np.zeros(size), np.ones(size))
    if all(_shares(part.members) for part in ensemble.used):
        anchored = ensemble.anchor
        if anchored is None or all(_shares(part.members) for part in anchored.used):
            return shares
    return None


def _built_for(members: Members) -> OutputSet | None:
    if isinstance(members, ShieldedMembers):
        return _built_for(members.inner)
    return members.output_set if isinstance(members, ArrangedMembers) else None


def _shares(members: Members) -> bool:
    """Whether all outputs lie between 0 and 1, but for rounding."""
    if isinstance(members, ShieldedMembers):
        return _shares(members.inner) and _shares(members.shield.anchor)
    if isinstance(members, NestedMembers):
        return _shares(members.inner)
    if isinstance(members, ArrangedMembers):
        ends = members.output_set
        return bool((ends.low >= 0).all() and (ends.high <= 1).all())
    if isinstance(members, NetworkMembers):
        return bool(members.architecture.softmax_groups)
    if isinstance(members, TreeMembers):
        if members.link == "softmax":
            return True
        factor = members.factor[:, None, None, None]
        leaves = members.value * factor
        least, most = (members.initial + end.sum(1) for end in (leaves.amin(2), leaves.amax(2)))
    elif isinstance(members, ConstantMembers):
        least = most = members.values
    else:
        return False
    return bool((least >= -EXACT).all() and (most <= 1 + EXACT).all())


def correct_rounding(source: OutputSet, outputs: Tensor) -> Tensor:
    """(..., r) -> (..., r): in the set, of outputs that are outside it by rounding alone.

    Ends and orders are kept exactly in the precision of `outputs`, totals as rounding allows. All
    steps are monotone, so that nothing that rises with an input falls by them. Numbers that are
    none stay so.
    """
    low, high = (
        _ends(end, outputs, up=up) for end, up in ((source.low, True), (source.high, False))
    )
    y = outputs.clamp(min=low).clamp(max=high)
    for one in source.totals:
        place = torch.tensor(one.outputs, device=y.device)
        own = y.index_select(-1, place)
        least, most = (
            torch.as_tensor(end, dtype=y.dtype, device=y.device).expand(y.shape[-1])[place]
            for end in (low, high)
        )
        moved = own + distribute_remainder(own.detach(), least, most, one.value)
        y = y.index_copy(-1, place, torch.clamp(moved, least, most))
    for chain in source.chains:
        place = torch.tensor(chain, device=y.device)
        y = y.index_copy(-1, place, y.index_select(-1, place).sort(-1).values)
    return y


def plan_correction(source: OutputSet) -> Callable[[Array], Array]:
    """`correct_rounding` for one output (r,)."""
    low, high = source.low, source.high
    if source.totals or source.chains:
        return lambda y: np.asarray(correct_rounding(source, torch.from_numpy(y)).numpy())
    return lambda y: np.minimum(np.maximum(y, low), high)


def _ends(values: Array, like: Tensor, *, up: bool) -> Any:
    """Ends (r,) in the precision of a tensor, rounded inwards; one number if all are the same."""
    if like.dtype is not torch.float64:
        kind = torch.empty(0, dtype=like.dtype).numpy().dtype
        near = values.astype(kind)
        wrong = near < values if up else near > values
        toward = np.array(np.inf if up else -np.inf, kind)
        values = np.where(wrong, np.nextafter(near, toward), near)
    if (values == values[0]).all():
        return float(values[0])
    return torch.as_tensor(values).to(device=like.device, dtype=like.dtype)


def find_output_forms(ensemble: Ensemble, matrix: Array) -> list[Form]:
    """Those of all members that are used, and of anchors; none where some member has no form.

    `matrix` (m, r) are the rows that are asked about: a shield that moves outputs of one row by
    different shares keeps nothing of it.
    """
    anchor = ensemble.anchor
    parts = [*ensemble.used, *(() if anchor is None else anchor.used)]
    found = [list(_forms(part.members, matrix)) for part in parts]
    if len(ensemble.layout) > 1 or not all(found):
        return []
    return [form for forms in found for form in forms]


def compute_least(form: Form, matrix: Array) -> Array:
    """(m,): what `matrix @ y` is at least for all outputs of the form."""
    if isinstance(form, Hulls):
        values = form.points @ matrix.T
        found = np.full((int(form.term.max()) + 1, len(matrix)), np.inf)
        np.minimum.at(found, form.term, values)
        return np.asarray(found.sum(0))
    ends = np.where(matrix > 0, form.low, form.high)
    box = np.where(matrix != 0, matrix * np.where(matrix != 0, ends, 0.0), 0.0).sum(1)
    return np.asarray(np.maximum(box, [_tied(form, row) for row in matrix]))


def _sizes(form: Form) -> Array:
    """(r,): of what outputs are sums of; ends, orders and totals of a set are exact."""
    if not isinstance(form, Hulls):
        return np.zeros(len(form.low))
    found = np.zeros((int(form.term.max()) + 1, form.points.shape[1]))
    np.maximum.at(found, form.term, np.abs(form.points))
    return np.asarray(found.sum(0))


def _tied(form: Arrangement, row: Array) -> float:
    """What order or total say of a row: a difference along a chain, or a multiple of a sum."""
    read = np.flatnonzero(row)
    if len(read) == 2 and row[read].sum() == 0:
        lower, upper = read if row[read[1]] > 0 else read[::-1]
        if form.chain[lower] == form.chain[upper] >= 0 and form.rank[lower] < form.rank[upper]:
            return 0.0
    numbers = np.unique(form.total[read])
    alike = len(numbers) == 1 and numbers[0] >= 0 and len(np.unique(row[read])) == 1
    if alike and np.array_equal(read, np.flatnonzero(form.total == numbers[0])):
        return float(row[read[0]] * form.value[numbers[0]])
    return -np.inf


def build_arrangement(source: OutputSet) -> Arrangement:
    """The set in arrays."""
    size = source.output_size
    chain, rank, total = (np.full(size, -1, np.int64) for _ in range(3))
    for number, one in enumerate(source.chains):
        chain[list(one)], rank[list(one)] = number, np.arange(len(one))
    for number, single in enumerate(source.totals):
        total[list(single.outputs)] = number
    values = np.array([one.value for one in source.totals])
    return Arrangement(source.low, source.high, chain, rank, total, values)


def _forms(members: Members, matrix: Array) -> Iterator[Form]:
    """One for each member, or one for all; none where the members have no such form."""
    if isinstance(members, ShieldedMembers):
        own, anchors = (list(_forms(one, matrix)) for one in (members.inner, members.shield.anchor))
        if own and anchors and _together(matrix, members.shield.blending.components):
            yield from (*own, *anchors)
    elif isinstance(members, ArrangedMembers):
        yield build_arrangement(members.output_set)
    elif isinstance(members, ConstantMembers):
        for values in members.values.cpu().numpy():
            yield Hulls(values[None], np.zeros(1, np.int64))
    elif isinstance(members, TreeMembers):
        if members.link == "softmax":
            yield _probabilities((members.output_size,))
        else:
            yield from _leaves(members)
    elif isinstance(members, NetworkMembers) and members.architecture.softmax_groups:
        yield _probabilities(members.architecture.softmax_groups)


def _together(matrix: Array, components: IntArray) -> bool:
    """Whether no row reads outputs that a shield moves by different shares."""
    return all(len(np.unique(components[row != 0])) <= 1 for row in matrix)


def _probabilities(groups: tuple[int, ...]) -> Hulls:
    return Hulls(np.eye(sum(groups)), np.repeat(np.arange(len(groups)), groups))


def _leaves(members: TreeMembers) -> Iterator[Hulls]:
    """The values of all leaves, tree by tree, and where the sum begins."""
    left, right, value, initial, factor = (
        getattr(members, name).cpu().numpy()
        for name in ("left", "right", "value", "initial", "factor")
    )
    for number in range(len(members)):
        points, terms = [initial[number][None]], [np.zeros(1, np.int64)]
        for tree in range(value.shape[1]):
            leaf = _reached_leaves(left[number, tree], right[number, tree])
            points.append(factor[number] * value[number, tree][leaf])
            terms.append(np.full(int(leaf.sum()), tree + 1))
        yield Hulls(np.concatenate(points), np.concatenate(terms))


def _reached_leaves(left: IntArray, right: IntArray) -> NDArray[np.bool_]:
    """(nodes,): leaves that are the root or some node's child; all others are padding."""
    own = np.arange(len(left))
    inner = left != own
    reached = own == 0
    reached[left[inner]] = reached[right[inner]] = True
    return np.asarray(reached & ~inner)
