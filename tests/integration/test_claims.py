"""The first problems of both campaigns that re-check what is claimed by code of their own."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("flint")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def campaign(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module(name)


@pytest.mark.parametrize("name", ["claims", "optima"])
def test_claims_of_random_problems_hold(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one_problem = campaign(name, monkeypatch).one_problem
    found = [one_problem(seed) for seed in range(1, 21)]
    assert [one.notes for one in found if one.false] == []
    assert [one.crashed for one in found if one.crashed] == []
    assert sum(sum(one.claims.values()) for one in found) >= 30


def test_a_false_claim_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = campaign("claims", monkeypatch)
    exact = importlib.import_module("exact")
    rule = exact.Form(claims.np.array([[1.0, 1e-20]]), claims.np.array([[1.0]]))
    x, y = claims.np.zeros(1), claims.np.array([1.0, 1.0])
    assert claims.excesses(rule, x, y) == pytest.approx(1e-20, rel=1e-12)
    square = exact.Square(claims.np.diag([1.0, 1e-16]), claims.np.zeros(2), 1.0)
    assert claims.excesses(square, x, claims.np.array([0.0, 2e8])) == pytest.approx(3.0)


@pytest.mark.slow
@pytest.mark.guard
@pytest.mark.parametrize("name", ["claims", "optima"])
def test_more_claims_of_random_problems_hold(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one_problem = campaign(name, monkeypatch).one_problem
    found = [one_problem(seed) for seed in range(100, 200)]
    assert [one.notes for one in found if one.false] == []
    assert [one.crashed for one in found if one.crashed] == []
