"""Equalities behind a shield that moves outputs in several components."""

import numpy as np
import pytest

from cg4ai import Ensemble
from cg4ai.ensemble.constructed import is_constructed
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, Shield, ShieldedMembers, affine
from cg4ai.members.equalities import CompletedMembers
from cg4ai.members.mixture import Part
from cg4ai.proofs.structure_certificates import certify_construction
from cg4ai.rules import Box, Linear
from cg4ai.rules.equality import Equality
from cg4ai.rules.guards import guard_of

BOX = Box([-1.0], [1.0])
SUM = Equality(None, [[1.0, 1.0, 0.0]], 1.0, name="sum")


def mixture(coupled):
    """y0 + y1 = 1 by completion, y0 <= 0.6 by a shield; y2 is free."""
    generator = np.random.default_rng(0)
    inner = affine(3 * generator.normal(size=(2, 1, 3)), generator.normal(size=(2, 3)))
    members = CompletedMembers(inner, SUM.completion(1).project())
    cap = Linear(BOX, [1.0, 0.0, 0.0], 0.6, "<=", name="cap")
    cap.check(1, 3)
    shield = Shield(ConstantMembers([[0.5, 0.5, 0.0]], 1), (guard_of(cap, 3),), coupled)
    part = Part(ShieldedMembers(members, shield), np.zeros(2, np.int64), np.full(2, 0.5))
    return Ensemble((part,), Layout.single(3))


@pytest.mark.parametrize(("coupled", "kept"), [(((0, 1),), True), ((), False)])
def test_equalities_are_claimed_only_if_their_outputs_move_together(coupled, kept):
    ensemble = mixture(coupled)
    outputs = ensemble.predict(np.linspace(-1, 1, 200)[:, None])
    assert outputs[:, 0].max() <= 0.6
    off = np.abs(outputs[:, :2].sum(1) - 1).max()
    assert (off < 1e-12) == kept
    assert is_constructed(ensemble, SUM) == kept
    assert (certify_construction(ensemble, SUM).status == "proven") == kept
