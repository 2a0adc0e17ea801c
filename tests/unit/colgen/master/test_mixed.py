"""Programs with whole numbers, against SciPy's own solver."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from cg4ai.solvers.highs import MixedProgram, solve_mixed


def _random(seed: int) -> MixedProgram:
    made = np.random.default_rng(seed)
    n, m = int(made.integers(2, 8)), int(made.integers(1, 5))
    return MixedProgram(
        costs=made.normal(size=n),
        lower=np.zeros(n),
        upper=np.full(n, 3.0),
        integer=made.random(n) < 0.7,
        matrix=sparse.csr_matrix(made.normal(size=(m, n))),
        row_lower=np.full(m, -np.inf),
        row_upper=made.normal(size=m),
    )


@pytest.mark.parametrize("seed", range(40))
def test_agrees_with_scipy(seed: int) -> None:
    program = _random(seed)
    found = solve_mixed(program)
    expected = milp(
        program.costs,
        integrality=program.integer.astype(int),
        bounds=Bounds(program.lower, program.upper),
        constraints=LinearConstraint(program.matrix, program.row_lower, program.row_upper),
        options={"mip_rel_gap": 0.0},
    )
    if not expected.success:
        assert found.infeasible
        assert found.bound == np.inf
        return
    assert found.values is not None
    assert found.objective == pytest.approx(expected.fun, abs=1e-6)
    assert found.bound == pytest.approx(expected.fun, abs=1e-6)
    assert np.all(program.matrix @ found.values <= program.row_upper + 1e-6)


def test_begins_from_a_given_point_and_says_the_bound_when_time_is_over() -> None:
    made = np.random.default_rng(0)
    n = 60
    program = MixedProgram(
        costs=-made.integers(10, 100, n).astype(float),
        lower=np.zeros(n),
        upper=np.ones(n),
        integer=np.ones(n, bool),
        matrix=sparse.csr_matrix(made.integers(10, 100, (30, n)).astype(float)),
        row_lower=np.full(30, -np.inf),
        row_upper=np.full(30, 900.0),
    )
    found = solve_mixed(program, time_limit_s=0.2, start=np.zeros(n))
    assert found.values is not None
    assert found.bound <= found.objective <= 0.0
