"""The study of exact separation: its cases agree, and its commands run."""

from __future__ import annotations

import pytest

from experiments.exact.__main__ import agreement
from experiments.exact.pricing import KINDS, pricing


def test_programs_and_enumeration_agree() -> None:
    lines = list(agreement(4))
    assert [line["case"] for line in lines] == [0, 1, 2, 3]
    for line in lines:
        assert line["input_off_by"] == pytest.approx(0, abs=1e-6)
        assert line["bound_off_by"] == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_exact_pricing_ends_at_the_optimum_of_the_class(kind: str) -> None:
    pytest.importorskip("cvxpy")
    for line in pricing(kind, 3):
        assert line["as_expected"]
        assert line["bound_above_optimum"] <= 1e-8
        assert line["objective_above_optimum"] == pytest.approx(0, abs=1e-6)
