"""Several quantiles in one model: they never cross, and cost what a hand-written loss says."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.metrics import mean_pinball_loss

from cg4ai import ConstrainedRegressor
from cg4ai.colgen.pricing.quantiles import clone_for_quantile
from cg4ai.errors import InvalidInput
from cg4ai.members.conversion import from_sklearn
from cg4ai.members.tree_arrays import combine_outputs
from cg4ai.members.trees import TreeMembers
from cg4ai.objectives import Pinball
from cg4ai.rules import Range
from raising import raises

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-1, 1, size=(600, 2))
SPREAD = 0.2 + 0.5 * (X[:, 1] > 0)
Y = 3 * X[:, 0] + SPREAD * RANDOM.normal(size=600)
NEW = RANDOM.uniform(-1, 1, size=(4000, 2))
TRUTH = 3 * NEW[:, 0] + (0.2 + 0.5 * (NEW[:, 1] > 0)) * RANDOM.normal(size=4000)
LEVELS = (0.1, 0.3, 0.5, 0.9)


def pinball(targets: np.ndarray, outputs: np.ndarray) -> float:
    total = 0.0
    for number, level in enumerate(LEVELS):
        for target, output in zip(targets.tolist(), outputs[:, number].tolist(), strict=True):
            share = level if target >= output else level - 1
            total += share * (target - output)
    return total / len(targets) / len(LEVELS)


def test_the_loss_is_the_one_by_hand_and_of_scikit_learn() -> None:
    outputs = RANDOM.normal(size=(50, len(LEVELS)))
    targets = RANDOM.normal(size=50)
    tiled = torch.as_tensor(np.repeat(targets[:, None], len(LEVELS), 1))
    own = float(Pinball(LEVELS)(torch.as_tensor(outputs), tiled).mean())
    scikit = [mean_pinball_loss(targets, outputs[:, k], alpha=q) for k, q in enumerate(LEVELS)]
    assert own == pytest.approx(pinball(targets, outputs)) == pytest.approx(np.mean(scikit))


def test_the_rounded_loss_is_above_by_little_and_convex() -> None:
    outputs = torch.as_tensor(np.linspace(-2, 2, 401))[:, None]
    sharp, rounded = (Pinball((0.3,), width)(outputs, torch.zeros(401, 1)) for width in (0.0, 0.1))
    assert bool((rounded >= sharp).all())
    assert float((rounded - sharp).max()) <= 0.1 * np.log(2) + 1e-12
    assert bool((rounded[2:] - 2 * rounded[1:-1] + rounded[:-2] >= -1e-12).all())


def test_networks_learn_quantiles_that_do_not_cross() -> None:
    model = ConstrainedRegressor(loss="pinball", quantiles=LEVELS, random_state=0).fit(X, Y)
    outputs = model.predict(NEW)
    assert outputs.shape == (4000, 4)
    assert bool((np.diff(outputs, axis=1) >= 0).all())
    assert bool((np.diff(model.predict(1e6 * NEW), axis=1) >= 0).all())
    assert [audit.strength for audit in model.audit_] == ["constructed"]
    covered = (TRUTH[:, None] <= outputs).mean(0)
    np.testing.assert_allclose(covered, LEVELS, atol=0.06)
    normal = np.array([-1.2816, -0.5244, 0.0, 1.2816])
    ideal = 3 * NEW[:, :1] + (0.2 + 0.5 * (NEW[:, 1:] > 0)) * normal
    assert pinball(TRUTH, outputs) < 1.1 * pinball(TRUTH, ideal)
    assert model.score(NEW, TRUTH) > 0.7
    assert model.score_.measure == "D2"
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(NEW), outputs)


def test_boosting_has_a_model_for_each_quantile() -> None:
    members = GradientBoostingRegressor(n_estimators=20)
    model = ConstrainedRegressor(
        loss="pinball", quantiles=LEVELS, members=members, iteration_limit=2, random_state=0
    ).fit(X, Y, requirements=[Range(-2, 2)])
    outputs = model.predict(NEW)
    assert bool((np.diff(outputs, axis=1) >= 0).all())
    assert np.abs(outputs).max() <= 2
    assert [audit.strength for audit in model.audit_] == ["constructed"] * 2


def test_models_side_by_side_predict_what_each_does() -> None:
    models = [
        clone_for_quantile(GradientBoostingRegressor(n_estimators=5), level).fit(X, Y)
        for level in LEVELS
    ]
    parts = [from_sklearn(model) for model in models]
    joined = combine_outputs([part for part in parts if isinstance(part, TreeMembers)])
    found = joined.outputs(torch.as_tensor(NEW))[0].numpy()
    np.testing.assert_allclose(found, np.column_stack([one.predict(NEW) for one in models]))


@pytest.mark.parametrize(
    ("parameters", "y", "code"),
    [
        ({"quantiles": (0.5,)}, Y, "conflict"),
        ({"loss": "pinball", "quantiles": (0.9, 0.1)}, Y, "range"),
        ({"loss": "pinball", "quantiles": (0.0, 0.5)}, Y, "range"),
        ({"loss": "pinball", "quantiles": ()}, Y, "range"),
        ({"loss": "pinball"}, np.column_stack([Y, Y]), "shape"),
        ({"loss": "pinball", "members": "forest"}, Y, "unsupported"),
        ({"loss": "pinball", "members": RandomForestRegressor()}, Y, "unsupported"),
    ],
)
def test_what_makes_no_sense_is_refused(
    parameters: dict[str, object], y: np.ndarray, code: str
) -> None:
    with raises(InvalidInput, code):
        ConstrainedRegressor(**parameters).fit(X, y)  # type: ignore[arg-type]
