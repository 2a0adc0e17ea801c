"""A pricer of another package trains members under listed rules, and under one over a region."""

import numpy as np
from extras_of_cg4ai.pricer import RidgePricer

from cg4ai import Problem, Settings, solve
from cg4ai.colgen import Layout, Supervised
from cg4ai.rules import Box, Linear

made = np.random.default_rng(0)
x = made.uniform(-1, 1, (50, 2))
y = x.sum(1, keepdims=True)
low = Linear(x[:4], [1.0], 0.5, name="at least a half")
capped = Linear(Box([-1, -1], [1, 1]), [1.0], 1.2, "<=", name="capped")
for rules in ([low], [low, capped]):
    problem = Problem(
        Supervised(x, y, "squared", "average"), rules, [RidgePricer()], Layout.single(1)
    )
    result = solve(problem, Settings(seed=0, iteration_limit=60))
    assert result.feasible, result
    assert result.ensemble.audit(low).satisfied == 4
assert (result.ensemble.predict(made.uniform(-1, 1, (1000, 2))) <= 1.2 + 1e-9).all()
print("pricer: both problems solved")
