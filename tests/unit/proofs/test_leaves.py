"""Rules of mixtures of trees closed by the corners of their leaves, against brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.layout import Layout
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.members.trees import TreeMembers
from cg4ai.proofs import certify
from cg4ai.proofs.certificate import build_certificate
from cg4ai.proofs.leaves import compute_highest, find_leaves
from cg4ai.proofs.rule_forms import find_proof_rules
from cg4ai.records import Array
from cg4ai.rules import Linear
from cg4ai.rules.coefficients import AffineCoefficients
from cg4ai.rules.regions import Box
from cg4ai_checker import Rejected, check
from raising import raises

D, R = 3, 4


class Loads:
    """`sum_k slope_k x_(k mod D) y_k`, one rule."""

    count = 1

    def __init__(self, slope: Array) -> None:
        self.slope = slope

    def values(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        columns = inputs[..., torch.arange(R) % D]
        return (columns * outputs * torch.as_tensor(self.slope)).sum(-1, keepdim=True)

    def coefficients(self, inputs: Array, which: Array) -> Array:
        return np.asarray(inputs[:, np.arange(R) % D] * self.slope)

    def affine(self) -> AffineCoefficients:
        place = np.arange(R)
        return AffineCoefficients(
            np.zeros((1, R)), np.zeros(R, np.int64), place, place % D, self.slope
        )


def random_tree(made: np.random.Generator, depth: int = 4, *, begin: float = 1.0) -> TreeMembers:
    """A whole tree of that depth with thresholds that children may put out of reach."""
    nodes = 2 ** (depth + 1) - 1
    inner = np.arange(nodes) < 2**depth - 1
    own = np.arange(nodes)
    left, right = np.where(inner, 2 * own + 1, own), np.where(inner, 2 * own + 2, own)
    return TreeMembers(
        made.integers(0, D, nodes)[None, None],
        made.uniform(-0.2, 2.2, nodes)[None, None],
        left=left[None, None],
        right=right[None, None],
        value=made.normal(size=(1, 1, nodes, R)),
        input_size=D,
        initial=begin * made.normal(size=(1, R)),
        factor=made.uniform(0.5, 2.0, 1),
    )


def mixture(made: np.random.Generator, trees: int) -> Ensemble:
    weights = made.dirichlet(np.ones(trees + 1))
    block = np.zeros(1, np.int64)
    parts = [Part(random_tree(made), block, weights[i : i + 1]) for i in range(trees)]
    parts.append(Part(ConstantMembers(made.normal(size=(1, R)), D), block, weights[-1:]))
    return Ensemble(tuple(parts), Layout.single(R))


def rule(slope: Array, limit: float) -> Linear:
    return Linear(Box(np.zeros(D), np.full(D, 2.0)), Loads(slope), np.array([limit]), sense="<=")


def corners(ensemble: Ensemble, slope: Array) -> float:
    """The largest value on a grid of all thresholds from either side: exact for one tree."""
    cuts = []
    for demand in range(D):
        found = [0.0, 2.0]
        for part in ensemble.used:
            if isinstance(part.members, TreeMembers):
                at = part.members.feature == demand
                found += part.members.threshold[at].tolist()
        inside = np.array([one for one in found if 0 <= one <= 2])
        cuts.append(np.unique(np.clip(np.concatenate([inside, np.nextafter(inside, 3)]), 0, 2)))
    points = np.stack(np.meshgrid(*cuts), -1).reshape(-1, D)
    columns = points[:, np.arange(R) % D]
    return float(((columns * ensemble.predict(points)) @ slope).max())


@pytest.mark.parametrize("seed", range(40))
def test_one_tree_is_bounded_exactly_and_a_mixture_from_above(seed: int) -> None:
    made = np.random.default_rng(seed)
    slope = made.normal(size=R)
    ensemble = mixture(made, 1 if seed % 2 else 2)
    rules = find_proof_rules(rule(slope, 0.0), output_size=R)
    bound = compute_highest(find_leaves(ensemble, np.zeros(D), np.full(D, 2.0)), rules.affine, 0)
    assert bound >= corners(ensemble, slope) - 1e-12
    tree = Ensemble(
        (Part(random_tree(made, begin=0.0), np.zeros(1, np.int64), np.ones(1)),), Layout.single(R)
    )
    found = find_leaves(tree, np.zeros(D), np.full(D, 2.0))
    assert compute_highest(found, rules.affine, 0) == pytest.approx(corners(tree, slope), abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_certificates_hold_to_the_last_digits_and_not_below(seed: int) -> None:
    made = np.random.default_rng(100 + seed)
    slope, ensemble = made.normal(size=R), mixture(made, 1)
    rules = find_proof_rules(rule(slope, 0.0), output_size=R)
    found = find_leaves(ensemble, np.zeros(D), np.full(D, 2.0))
    bound = compute_highest(found, rules.affine, 0)
    wide = rule(slope, bound + 1e-9)
    answer = certify(ensemble, wide, time_limit_s=20)
    assert answer.status == "proven"
    assert answer.checked
    assert answer.closed_form
    data = build_certificate(ensemble, requirement=wide, certification=answer)
    verdict = check(data)
    assert verdict.bounds[0] == pytest.approx(bound, abs=1e-9)
    members = ensemble.used[0].members
    assert isinstance(members, TreeMembers)
    own = np.arange(members.left.shape[-1])  # a leaf is its own child
    assert 0 < verdict.tree_leaves <= np.sum(np.asarray(members.left) == own)
    assert f"1 rules were bounded at the corners of {verdict.tree_leaves} leaves" in str(verdict)
    assert "cells" not in str(verdict)
    worst = corners(ensemble, slope)
    low = rule(slope, worst - 1e-3)
    assert certify(ensemble, low, time_limit_s=20).status != "proven"


def test_a_changed_leaf_is_rejected() -> None:
    made = np.random.default_rng(5)
    slope, ensemble = np.ones(R), mixture(made, 1)
    rules = find_proof_rules(rule(slope, 0.0), output_size=R)
    bound = compute_highest(find_leaves(ensemble, np.zeros(D), np.full(D, 2.0)), rules.affine, 0)
    stated = rule(slope, bound + 1e-9)
    answer = certify(ensemble, stated)
    other = mixture(np.random.default_rng(5), 1)
    members = other.used[0].members
    assert isinstance(members, TreeMembers)
    members.value[...] += 1.0
    data = build_certificate(other, requirement=stated, certification=replace(answer, subject=""))
    with raises(Rejected, "not-proven"):
        check(data)
