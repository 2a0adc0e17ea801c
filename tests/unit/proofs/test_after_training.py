"""Rules that no shield keeps end certified where a proof is found in the time kept for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cg4ai import ConstrainedRegressor, FitWarning, Settings
from cg4ai.proofs import certify
from cg4ai.proofs.after_training import prove_afterwards
from cg4ai.rules import Box, Concave, Linear


def data() -> tuple[Any, Any]:
    x = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    return x, x[:, 0] + 0.5 * x[:, 1] ** 2


CAP = Linear(Box([-1, -1], [1, 1]), [1.0], 0.6, "<=")


def test_a_rule_in_the_master_ends_certified_and_is_recorded() -> None:
    model = ConstrainedRegressor(members="affine", random_state=0).fit(*data(), [CAP])
    audit = model.audit_[0]
    assert audit.strength == "certified"
    assert "every input of a box" in str(audit)
    corners = np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]], float)
    assert model.predict(corners).max() <= 0.6  # where an affine model is largest
    assert certify(model.ensemble_, CAP).status == "proven"
    assert set(model.ensemble_.predict(corners, explain=True).labels) == {"certified"}
    assert not any("not proven" in caution for caution in model.cautions_)


def test_who_asks_for_less_gets_no_proof() -> None:
    model = ConstrainedRegressor(
        members="affine", random_state=0, settings={"guarantee": "attacked"}
    ).fit(*data(), [CAP])
    assert model.audit_[0].strength == "attacked"


def test_what_cannot_be_proven_says_why() -> None:
    rule = Concave(Box([-1, -1], [1, 1]), lambda y: 1.0 - y[..., 0] ** 4, 0.0)
    model = ConstrainedRegressor(
        hidden=2, steps=20, iteration_limit=2, random_state=0, settings={"guarantee": "attacked"}
    )
    with pytest.warns(FitWarning):
        model.fit(*data(), [rule])
    result = prove_afterwards(model.result_, [rule], Settings())
    assert result.audits[0].strength == "attacked"
    assert "Concave is not proven" in result.note


def test_a_violation_that_the_search_missed_is_in_the_audit() -> None:
    """A proof that refutes by more than an audit allows: the rule no longer counts as held."""
    model = ConstrainedRegressor(
        members="affine", random_state=0, settings={"guarantee": "attacked"}
    ).fit(*data(), [CAP])
    tighter = replace(CAP, bound=0.5, name="tighter")
    blind = replace(model.audit_[0], requirement="tighter")
    result = prove_afterwards(replace(model.result_, audits=(blind,)), [tighter], Settings())
    assert not result.audits[0].holds
    assert not result.feasible
