"""Trees made finer for the checker: it closes every leaf at once, and the region stays covered."""

import math

import numpy as np
import pytest
import torch

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.layout import Layout
from cg4ai.members.mixture import Part
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.proofs.certificate import build_claim, verify_rules
from cg4ai.proofs.certification import certify
from cg4ai.proofs.prover import refine
from cg4ai.proofs.rule_forms import find_proof_rules
from cg4ai.rules import Box, Linear
from cg4ai_checker import check


@pytest.fixture(scope="module")
def proven():
    """A curved network and a rule that the search proves in leaves too wide for the checker."""
    architecture = NetworkArchitecture(3, 2, hidden=(16,), activation="gelu")
    parameters = architecture.initialise(1, torch.Generator().manual_seed(2))
    members = architecture.members({n: 1.5 * v.double() for n, v in parameters.items()})
    ensemble = Ensemble((Part(members, np.zeros(1, np.int64), np.ones(1)),), Layout.single(2))
    box = Box(-np.ones(3), np.ones(3))
    x = box.sample(20_000, torch.Generator().manual_seed(0)).numpy()
    limit = ensemble.predict(x).max(axis=0) + 0.1
    requirement = Linear(box, np.eye(2), limit, sense="<=")
    answer = certify(ensemble, requirement, verify=False)
    assert answer.status == "proven"
    return ensemble, requirement, answer, find_proof_rules(requirement, output_size=2)


def test_the_checker_needs_no_more_cells(proven):
    ensemble, requirement, answer, rules = proven
    box = requirement.region
    before = check(build_claim(ensemble, rules, region=box, certification=answer))
    assert before.extra_cells > 0
    finer = refine(answer, ensemble, rules, region=box, cell_limit=10**6, until=math.inf)
    after = check(build_claim(ensemble, rules, region=box, certification=finer))
    assert after.extra_cells == 0
    assert after.leaves > before.leaves
    assert finer.cells > answer.cells
    assert verify_rules(finer, ensemble, rules, region=box).checked


def test_without_cells_or_time_the_proof_stays_as_it_was(proven):
    ensemble, requirement, answer, rules = proven
    for cells, until in ((1, math.inf), (10**6, -math.inf)):
        same = refine(
            answer, ensemble, rules, region=requirement.region, cell_limit=cells, until=until
        )
        for own, other in zip(same.rules, answer.rules, strict=True):
            np.testing.assert_array_equal(own.dimensions, other.dimensions)
            np.testing.assert_array_equal(own.leaf_bounds, other.leaf_bounds)
