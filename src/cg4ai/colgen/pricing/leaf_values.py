"""Values of a tree's leaves fitted anew, so that the tree alone keeps the rows: a convex program.

Outputs are linear in the values, so the program is a master: a leaf is a block, its members the
extreme values that it may take, and their weights say which value it takes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.colgen.master.convex import ConvexMaster
from cg4ai.colgen.pricing.defaults import WrappingPricer
from cg4ai.members import concatenate
from cg4ai.members.trees import TreeMembers
from cg4ai.objectives import Supervised
from cg4ai.protocols import Pricer, PricingRequest
from cg4ai.records import Array, IntArray, PricingResult

FLOOR = 1e-3  # the least probability of a class in a leaf
TOLERANCE = 1e-7  # what a row may lack
MOST_LEAVES = 64
MOST_NUMBERS = 50_000_000  # in the outputs of all extreme values


@dataclass(frozen=True)
class LeafRefitPricer(WrappingPricer):
    """Proposes the trees of `inner`, and each of them with leaf values that keep the rows.

    Only single trees with outputs as they are, in one block, under linear rows; others stay alone.
    """

    inner: Pricer

    def price(self, request: PricingRequest) -> PricingResult:
        found = self.inner.price(request)
        trees = found.members
        if not isinstance(trees, TreeMembers) or not _can_refit(trees, request):
            return found
        fitted = [refit_leaves(trees.take(np.array([k])), request) for k in range(len(trees))]
        members = concatenate([trees, *(one for one in fitted if one is not None)])
        if members is None:
            return found
        none = np.zeros(len(members), np.int64)
        return replace(found, members=members, blocks=none, groups=none - 1, lower_bound=None)


def _can_refit(trees: TreeMembers, request: PricingRequest) -> bool:
    return (
        trees.value.shape[1] == 1
        and trees.link == "identity"
        and len(request.rows.layout) == 1
        and isinstance(request.objective, Supervised)
        and all(rows.linear for rows in request.rows.batches)
    )


@dataclass(frozen=True, slots=True)
class LeafFit:
    """A tree with its new leaf values, what a row lacks at most, and what none costs less than.

    `bound` (inf: no values keep the rows) is proven up to the gap of the program.
    """

    tree: TreeMembers
    lacking: float
    bound: float


def refit_leaves(tree: TreeMembers, request: PricingRequest) -> TreeMembers | None:
    """The tree (one member) with the leaf values of least loss that keep the rows, or miss least.

    None where there are too many leaves or inputs for the program.
    """
    objective, size = request.objective, request.rows.layout.output_size
    assert isinstance(objective, Supervised)
    count = int(_leaves(tree).sum())
    targets = np.asarray(objective.targets)
    if count > MOST_LEAVES or 2 * count * size**2 * len(objective.inputs) > MOST_NUMBERS:
        return None
    if targets.ndim == 1:
        return fit_leaves(tree, request, build_probability_extremes(count, size, FLOOR)).tree
    least, most = targets.min(0), targets.max(0)
    wide = np.maximum(most - least, 1e-6)
    return fit_leaves(tree, request, build_range_extremes(count, least - wide, most + wide)).tree


def fit_leaves(tree: TreeMembers, request: PricingRequest, extremes: Extremes) -> LeafFit:
    """The best values of the leaves of one tree under all rows of the request."""
    objective = request.objective
    assert isinstance(objective, Supervised)
    leaves = np.flatnonzero(_leaves(tree))
    member, blocks = _membership(tree, leaves), extremes.blocks
    batch = objective.batch(None, torch.Generator(), device="cpu", dtype=torch.float64)
    master = ConvexMaster(int(blocks.max()) + 1, lambda z: objective.value(batch, z))
    outputs = _outputs(member, extremes.values, objective.inputs)
    master.add_columns(outputs, blocks, np.zeros((0, len(blocks))))
    for rows in request.rows.batches:
        values = rows.values(_outputs(member, extremes.values, rows.inputs)).numpy().T
        master.add_rows(values, rows.bounds, np.full(len(rows), -1))
    solution = master.solve()
    while solution.lacking > TOLERANCE and master.raise_penalty():
        solution = master.solve()
    bound = solution.penalised - master.gap
    if solution.lacking > TOLERANCE:
        master.minimise_slack(True)
        least = master.solve()
        bound = np.inf if least.penalised - master.gap > TOLERANCE else bound
    total = np.zeros(master.n_blocks)
    np.add.at(total, blocks, solution.weights)
    weights = solution.weights / np.where(total > 0, total, 1.0)[blocks]
    value = tree.value.clone()
    value[0, 0, torch.as_tensor(leaves)] = torch.as_tensor(
        np.tensordot(weights, extremes.values, 1)
    )
    return LeafFit(_with_values(tree, value), solution.lacking, float(bound))


@dataclass(frozen=True, slots=True)
class Extremes:
    """`values` (columns, leaves, r) of one leaf each, 0 in the others; `blocks` (columns,).

    Leaf values are the mixtures of those of one block, summed over blocks.
    """

    values: Array
    blocks: IntArray


def build_probability_extremes(leaves: int, size: int, floor: float) -> Extremes:
    """Of every class at least `floor`: a leaf is a block."""
    values = np.zeros((leaves, size, leaves, size))
    for leaf in range(leaves):
        values[leaf, :, leaf] = floor + (1 - size * floor) * np.eye(size)
    return Extremes(values.reshape(-1, leaves, size), np.repeat(np.arange(leaves), size))


def build_range_extremes(leaves: int, least: Array, most: Array) -> Extremes:
    """Every output between its `least` and `most` (r,): each output of a leaf is a block."""
    size = len(least)
    values = np.zeros((leaves, size, 2, leaves, size))
    for leaf in range(leaves):
        for output in range(size):
            values[leaf, output, :, leaf, output] = least[output], most[output]
    blocks = np.repeat(np.arange(leaves * size), 2)
    return Extremes(values.reshape(-1, leaves, size), blocks)


def _leaves(tree: TreeMembers) -> NDArray[np.bool_]:
    """Which nodes are leaves that an input can reach: (nodes,)."""
    left, right = tree.left[0, 0].numpy(), tree.right[0, 0].numpy()
    nodes = np.arange(len(left))
    reached = np.zeros(len(nodes), bool)
    reached[0] = True
    for node in nodes:  # children come after their parents
        if reached[node]:
            reached[left[node]] = reached[right[node]] = True
    return np.asarray(reached & (left == nodes))


def _membership(tree: TreeMembers, leaves: IntArray) -> TreeMembers:
    """The same tree whose outputs say which leaf an input is in."""
    value = torch.zeros((*tree.value.shape[:3], len(leaves)), dtype=torch.float64)
    value[0, 0, torch.as_tensor(leaves), torch.arange(len(leaves))] = 1.0
    return _with_values(tree, value)


def _outputs(member: TreeMembers, extremes: Array, inputs: Array) -> Tensor:
    """Of each extreme at each input: (columns, n, r)."""
    inside = member.outputs(torch.as_tensor(inputs))[0]
    return torch.einsum("nl,clr->cnr", inside, torch.as_tensor(extremes))


def _with_values(tree: TreeMembers, value: Tensor) -> TreeMembers:
    return TreeMembers(
        tree.feature,
        tree.threshold,
        left=tree.left,
        right=tree.right,
        value=value,
        input_size=tree.input_size,
        missing=tree.missing,
        subset=tree.subset,
        subsets=tree.subsets,
        single_precision=tree.single_precision,
    )
