"""One definition of reduced cost: the loop, the master and the pricers see the same number."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import cg4ai
from cg4ai import Problem, Settings
from cg4ai.colgen.pricing.exact.finite import FinitePricer
from cg4ai.colgen.pricing.reduced_cost import (
    compute_outputs,
    compute_price_terms,
    compute_reduced_costs,
)
from cg4ai.colgen.restricted_master import Workspace
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, NetworkArchitecture
from cg4ai.objectives import Supervised
from cg4ai.protocols import PricingRequest
from cg4ai.records import Duals, PricingResult
from cg4ai.rules import Linear, Margin, Requirement

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2))
LABELS = (X[:, 0] > 0).astype(np.int64)


def test_the_formula() -> None:
    duals = Duals(np.array([2.0, 0.5]), np.array([1.0, -3.0]))
    table = np.array([[1.0, 0.0, 4.0], [2.0, 2.0, 0.0]])
    found = duals.reduced_costs(np.array([10.0, 20.0, 30.0]), table, np.array([0, 1, 1]))
    np.testing.assert_allclose(found, [10 - 3 - 1, 20 - 1 + 3, 30 - 8 + 3])


@pytest.mark.parametrize("kind", ["average", "mixture"])
@pytest.mark.parametrize("form", ["member", "pairwise"])
def test_the_loop_admits_by_what_pricers_are_told(kind: str, form: str) -> None:
    network = NetworkArchitecture(2, 2, hidden=(3,))
    members = network.members(network.initialise(5, torch.Generator().manual_seed(1)))
    blocks = np.zeros(5, np.int64)
    pricer = FinitePricer([(members, blocks)])
    rules: list[Requirement] = [
        Margin(X[:4], LABELS[:4], at_least=0.1, form=form),
        Linear(X[4:], [1.0, -1.0], -9.0),
    ]
    objective = Supervised(X, LABELS, "cross_entropy", kind)  # type: ignore[arg-type]
    start = [(ConstantMembers(np.array([[0.5, 0.5]]), 2), np.zeros(1, np.int64))]
    problem = Problem(objective, rules, [pricer], Layout.single(2), start=start)
    work = Workspace(
        CompiledProblem.from_problem(problem), Settings(column_limit=1)
    )  # no room: nothing enters
    work.start()
    solution = work.solve_master()
    assert solution.duals.rows.any()
    request = PricingRequest(
        iteration=0,
        seed=0,
        duals=solution.duals,
        guide=solution.duals.rows,
        rows=work.rows,
        objective=objective,
        loss_weight=1.0,
        ensemble=work.ensemble(solution),
        device="cpu",
    )
    told = compute_reduced_costs(request, members, blocks)
    for number, expected in enumerate(told):
        alone = PricingResult(members.take(np.array([number])), blocks[:1], np.full(1, -1))
        admitted = work.admit(alone, solution, charge_loss=True)
        assert admitted.best == pytest.approx(expected, rel=1e-9, abs=1e-9)
    if form == "pairwise":  # linear rows: prices by output give the same number
        terms = compute_price_terms(request)
        outputs = members.outputs(torch.as_tensor(terms.inputs)).numpy()
        linear = np.einsum("mkr,kr->m", outputs, terms.prices)
        own = (
            terms.charge
            * objective.costs(members.outputs(torch.as_tensor(X)), np.arange(2)).numpy()
        )
        np.testing.assert_allclose(
            linear + own - request.duals.blocks[0], told, rtol=1e-9, atol=1e-9
        )


def test_block_duals_are_subtracted_in_one_place() -> None:
    source = Path(cg4ai.__file__).parent
    formula = re.compile(r"-\s*(self|\w*\.?duals)\.blocks\[")
    places = [
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if formula.search(path.read_text())
    ]
    assert places == ["records.py"]


@pytest.mark.parametrize("change", [lambda y: y[:, :, 0], lambda y: y.float(), lambda y: y[:0]])
def test_outputs_of_another_shape_or_dtype_are_refused(
    change: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Kinds of members come from other packages, too."""

    class Odd(ConstantMembers):
        def outputs(self, inputs: torch.Tensor) -> torch.Tensor:
            return change(super().outputs(inputs))

    odd, x = Odd([[1.0, 2.0]], 2), torch.zeros(3, 2, dtype=torch.float64)
    with pytest.raises(InvalidInput, match="Odd"):
        compute_outputs(odd, x)
    assert compute_outputs(ConstantMembers([[1.0, 2.0]], 2), x).shape == (1, 3, 2)
