"""A separator of another package finds the inputs at which a rule over a region is violated."""

import numpy as np
from extras_of_cg4ai.pricer import RidgePricer
from extras_of_cg4ai.separator import Grid

from cg4ai import Problem, Settings, solve
from cg4ai.colgen import Layout, Supervised
from cg4ai.rules import Box, Linear

x = np.random.default_rng(0).uniform(-1, 1, (50, 2))
rule = Linear(Box([-1, -1], [1, 1]), [1.0], 1.2, "<=", name="capped", separator=Grid())
problem = Problem(
    Supervised(x, x.sum(1, keepdims=True), "squared", "average"),
    [rule],
    [RidgePricer()],
    Layout.single(1),
)
result = solve(problem, Settings(seed=0, iteration_limit=60, guarantee="attacked"))
assert result.feasible
assert result.rows > 0
(audit,) = result.audits
assert audit.strength == "attacked"
assert audit.effort["search"] == "grid", audit.effort
print("separator: rows found on the grid")
