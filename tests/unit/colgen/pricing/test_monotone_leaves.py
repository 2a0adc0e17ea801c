"""Trees that are made monotone afterwards: nothing falls, and what was in order stays."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import GradientBoostingRegressor

from cg4ai import ConstrainedRegressor
from cg4ai.colgen.pricing.quantiles import make_monotone
from cg4ai.errors import InvalidInput
from cg4ai.members.conversion import from_sklearn
from cg4ai.members.trees import TreeMembers
from cg4ai.rules import Curvature, Monotone
from raising import raises

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-1, 1, size=(300, 2))
Y = X[:, 0] - np.sin(4 * X[:, 1]) + 0.3 * RANDOM.normal(size=300)
LOW = RANDOM.uniform(-2, 2, size=(3000, 2))
HIGH = LOW + RANDOM.exponential(size=(3000, 2)) * [1, 0]


@pytest.mark.parametrize("sign", [1, -1])
def test_no_pair_goes_the_wrong_way(sign: int) -> None:
    members = from_sklearn(GradientBoostingRegressor(n_estimators=20).fit(X, Y))
    assert isinstance(members, TreeMembers)
    made = make_monotone(members, np.array([sign, 0]))
    before, after = (made.outputs(torch.as_tensor(at))[0, :, 0].numpy() for at in (LOW, HIGH))
    assert float((sign * (before - after)).max()) <= 0


def test_leaves_in_order_stay_as_they_are() -> None:
    members = from_sklearn(GradientBoostingRegressor(n_estimators=5, max_depth=1).fit(X, X[:, 0]))
    assert isinstance(members, TreeMembers)
    made = make_monotone(members, np.array([1, 1]))
    assert torch.equal(made.value, members.value)


def test_boosted_quantiles_are_monotone_and_in_order() -> None:
    boosting = GradientBoostingRegressor(n_estimators=20)
    model = ConstrainedRegressor(
        members=boosting, loss="pinball", iteration_limit=2, random_state=0
    ).fit(X, Y, requirements=[Monotone({0: 1})])
    before, after = model.predict(LOW), model.predict(HIGH)
    assert float((before - after).max()) <= 1e-12
    assert bool((np.diff(before, axis=1) >= 0).all())
    assert {str(audit.strength) for audit in model.audit_} == {"constructed"}
    with raises(InvalidInput, "unsupported"):
        model.set_params(quantiles=(0.5,)).fit(X, Y, requirements=[Curvature({0: 1})])
