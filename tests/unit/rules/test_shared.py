"""Rules that share a limit against the same rules with pieces of their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cg4ai.errors import InvalidInput
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.bounds import AffineBound, Largest, build_bounds
from cg4ai.rules.coefficients import AffineCoefficients
from cg4ai.rules.guards import Guard, dump_guards, load_guards
from cg4ai.rules.regions import Box
from cg4ai.rules.shared_limits import SharedRules
from raising import raises


def rules() -> tuple[SharedRules, AffineRules]:
    random = np.random.default_rng(0)
    given = AffineCoefficients(
        random.normal(size=(2, 3)),
        np.array([0, 1, 1]),
        np.array([0, 1, 2]),
        np.array([0, 1, 0]),
        random.normal(size=3),
    )
    prices = random.normal(size=(4, 2))
    own = AffineRules.of(given, np.zeros(2), "<=", input_size=2)
    pieces = Largest([AffineBound(0.0, price) for price in prices])
    bound = build_bounds(pieces, "<=", count=2, input_size=2)
    return SharedRules(own, prices), AffineRules.of(given, bound, "<=", input_size=2)


def test_the_slack_is_that_of_rules_with_pieces_of_their_own() -> None:
    shared, single = rules()
    inputs = torch.rand(9, 2, dtype=torch.float64)
    outputs = torch.rand(5, 9, 3, dtype=torch.float64)
    assert torch.allclose(shared.slack(inputs, outputs), single.slack(inputs, outputs))
    again = shared.with_tensors(shared.tensors(torch.device("cpu")))
    assert torch.equal(again.slack(inputs, outputs), shared.slack(inputs, outputs))


@pytest.mark.parametrize("everywhere", [True, False])
def test_a_guard_of_them_is_stored_and_restored(everywhere: bool) -> None:
    guard = Guard("ratio", Box([0, 0], [1, 1]), rules()[0], everywhere)
    record, arrays = dump_guards((guard,))
    again = load_guards(record, arrays, {})[0]
    assert again.key == guard.key
    assert again.everywhere == everywhere


def test_what_is_no_shared_limit_is_refused() -> None:
    shared, single = rules()
    with raises(InvalidInput, "shape", "prices"):
        SharedRules(shared.values, np.zeros((2, 5)))
    with raises(InvalidInput, "conflict"):
        SharedRules(single, shared.prices)
    with raises(InvalidInput, "not-finite", "finite"):
        SharedRules(shared.values, np.full((1, 2), np.nan))
