"""Rules closed at once for mixtures of trees and constants: by the corners of their leaves.

On a leaf outputs are constant and a rule is affine in the input, largest at a corner of the leaf's
box. Mixtures are bounded by the sum of what their trees are at most, each over its own partition:
exact for one tree, and enough where every tree keeps the rule by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.trees import TreeMembers
from cg4ai.proofs.certifier import Certifier
from cg4ai.proofs.rule_forms import find_proof_rules
from cg4ai.protocols import Members
from cg4ai.records import Array, IntArray
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.regions import Box
from cg4ai.rules.requirement import Requirement

CLOSED = np.full(1, -1, np.int16)  # a tree of cells that is one leaf


@dataclass(frozen=True, eq=False)
class Leaves:
    """Boxes (n, d) that inputs reach, and the outputs (n, r) that a tree adds there."""

    lower: Array
    upper: Array
    values: Array

    def most(self, constant: Array, slope: Array) -> float:
        """The largest value of `(constant + slope x) . y`, constant (r,), slope (r, d)."""
        tilt = self.values @ slope
        ends = np.maximum(tilt * self.lower, tilt * self.upper)
        return float((self.values @ constant + ends.sum(axis=1)).max())


def close_by_leaves(work: Certifier) -> None:
    """Close the rules that no leaf breaks, as far as members and region allow; leaves the others.

    What a search has begun stays as it is.
    """
    if not isinstance(work.region, Box):
        return
    found = find_leaves(work.ensemble, work.lower, work.upper)
    for rule, search in enumerate(work.searches):
        eligible = work.rules.plain[rule] and rule not in work.rules.square_rule
        if not found or not eligible or search.cells:
            continue
        bound = compute_highest(found, work.rules.affine, rule) + float(work.margins[rule])
        if bound <= search.limit:
            cells = sum(len(one.lower) for one in found)
            search.resume(CLOSED, np.array([bound]), cells=cells)


def largest_rule_values(ensemble: Ensemble, requirement: Requirement) -> Array:
    """What the value of each rule (P,) is at most over the requirement's box, but for rounding.

    For mixtures of trees and constants alone.
    """
    region = requirement.region
    if not isinstance(region, Box):
        raise InvalidInput(
            f"{requirement.name} must hold over a Box, it has {region!r:.80}", code="unsupported"
        )
    found = find_leaves(ensemble, *region.bounds())
    if not found:
        raise InvalidInput("leaves bound mixtures of trees and constants alone", code="unsupported")
    rules = find_proof_rules(requirement, output_size=ensemble.output_size)
    return np.array([compute_highest(found, rules.affine, rule) for rule in range(len(rules))])


def compute_highest(found: list[Leaves], rules: AffineRules, rule: int) -> float:
    """What the value of a rule is at most, but for rounding."""
    return sum(one.most(rules.constant[rule], rules.slopes(rule)) for one in found)


def find_leaves(ensemble: Ensemble, lower: Array, upper: Array) -> list[Leaves]:
    """One for each tree of each member that is used; none where some members are no such trees."""
    found: list[Leaves] = []
    for part in ensemble.used:
        for number in range(len(part.members)):
            own = list(_own(part.members, number, Leaves(lower[None], upper[None], np.empty(0))))
            if not own:
                return []
            positions = ensemble.layout.blocks[int(part.blocks[number])]
            for one in own:
                values = np.zeros((len(one.lower), ensemble.output_size))
                values[:, positions] = part.weights[number] * one.values[:, : len(positions)]
                found.append(replace(one, values=values))
    return found


def _own(members: Members, number: int, whole: Leaves) -> Iterator[Leaves]:
    """What one member adds up: a constant everywhere, and the leaves of each of its trees."""
    if isinstance(members, ConstantMembers):
        yield replace(whole, values=members.values[number, None].cpu().numpy())
    elif isinstance(members, TreeMembers) and _plain(members):
        yield replace(whole, values=members.initial[number, None].cpu().numpy())
        for tree in range(members.value.shape[1]):
            yield _tree(members, number, tree, whole)


def _plain(members: TreeMembers) -> bool:
    """Whether inputs are compared as they are, with thresholds, and leaves are added up."""
    return members.link == "identity" and not members.single_precision and members.subset is None


def _tree(members: TreeMembers, number: int, tree: int, whole: Leaves) -> Leaves:
    """The boxes of leaves, level by level; closed, so that thresholds lie on both sides."""
    arrays = (members.feature, members.threshold, members.left, members.right)
    feature, threshold, left, right = (one[number, tree].cpu().numpy() for one in arrays)
    node, lower, upper = np.zeros(1, np.int64), whole.lower, whole.upper
    done: list[tuple[IntArray, Array, Array]] = []
    while len(node):
        is_leaf = left[node] == node
        done.append((node[is_leaf], lower[is_leaf], upper[is_leaf]))
        node, lower, upper = node[~is_leaf], lower[~is_leaf], upper[~is_leaf]
        at = (np.arange(len(node)), feature[node])
        below, above = upper.copy(), lower.copy()
        below[at] = np.minimum(below[at], threshold[node])
        above[at] = np.maximum(above[at], threshold[node])
        node = np.concatenate([left[node], right[node]])
        lower, upper = np.concatenate([lower, above]), np.concatenate([below, upper])
        reached = (lower <= upper).all(axis=1)
        node, lower, upper = node[reached], lower[reached], upper[reached]
    node, lower, upper = (np.concatenate(parts) for parts in zip(*done, strict=True))
    values = members.value[number, tree].cpu().numpy()[node]
    return Leaves(lower, upper, float(members.factor[number]) * values)
