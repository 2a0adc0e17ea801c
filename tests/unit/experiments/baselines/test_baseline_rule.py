"""The rule on labels: values by hand, slopes against automatic differentiation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cg4ai.errors import InvalidSettings
from experiments.baselines.rule import LabelRule
from raising import raises

LABELS = torch.tensor([0, 2])
LOGITS = torch.tensor([[2.0, 1.0, -1.0], [0.0, 3.0, 1.0]], dtype=torch.float64)


def test_margin_by_hand() -> None:
    rule = LabelRule("margin", 1.5)
    assert rule.values(LOGITS, LABELS).tolist() == [1.0, -2.0]
    assert rule.violations(LOGITS, LABELS).tolist() == [0.5, 3.5]


def test_probability_by_hand() -> None:
    rule = LabelRule("probability", 0.6)
    powers = np.exp(LOGITS.numpy())
    expected = [powers[0, 0] / powers[0].sum(), powers[1, 2] / powers[1].sum()]
    values = rule.values(LOGITS, LABELS)
    np.testing.assert_allclose(values.numpy(), expected, rtol=1e-12)
    missing = rule.violations(LOGITS, LABELS)
    np.testing.assert_allclose(missing.numpy(), [0.0, 0.6 - expected[1]], rtol=1e-12)


@pytest.mark.parametrize("kind", ["margin", "probability"])
@settings(deadline=None)
@given(seed=st.integers(0, 10_000))
def test_slopes_are_gradients(kind: str, seed: int) -> None:
    rule = LabelRule(kind, 0.5)  # type: ignore[arg-type]
    torch_seed = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 4, 5, generator=torch_seed, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(5, (4,), generator=torch_seed)
    (gradient,) = torch.autograd.grad(rule.values(logits, labels).sum(), logits)
    torch.testing.assert_close(rule.slopes(logits.detach(), labels), gradient)


def test_satisfied_allows_rounding_and_no_more() -> None:
    scores = np.array([[0.3, 0.2, 0.0], [0.3, 0.21, 0.0], [0.1, 0.9, 0.0]])
    labels = np.array([0, 0, 0])
    assert LabelRule("margin", 0.1).satisfied(scores, labels).tolist() == [True, False, False]
    assert LabelRule("probability", 0.3).satisfied(scores, labels).tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("kind", "threshold"),
    [
        ("margins", 0.1),
        ("probability", 0.0),
        ("probability", 1.5),
        ("margin", np.inf),
    ],
)
def test_refused(kind: str, threshold: float) -> None:
    with raises(InvalidSettings, "invalid-settings"):
        LabelRule(kind, threshold)  # type: ignore[arg-type]
