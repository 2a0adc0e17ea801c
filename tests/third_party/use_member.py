"""Members of another package: chosen by exact pricing, saved and loaded."""

import tempfile
from pathlib import Path

import numpy as np
from extras_of_cg4ai.member import Waves

from cg4ai import Problem, Settings, load, solve
from cg4ai.colgen import FinitePricer, Layout, Supervised
from cg4ai.errors import MissingFactory
from cg4ai.rules import Linear

made = np.random.default_rng(0)
x = made.uniform(-1, 1, (40, 1))
waves = Waves(made.normal(size=(50, 1)), made.normal(size=50), made.normal(size=(50, 1)))
problem = Problem(
    Supervised(x, np.sin(x), "squared", "mixture"),
    [Linear(x[:3], [1.0], 0.2)],
    [FinitePricer([(waves, np.zeros(50, int))], per_call=2)],
    Layout.single(1),
    start=[(waves.take(np.arange(3)), np.zeros(3, int))],
)
result = solve(problem, Settings(seed=0))
assert result.stop_reason == "optimal", result.stop_reason
assert result.feasible
assert {type(part.members) for part in result.ensemble.parts} == {Waves}
assert len(result.ensemble.parts) == 1, "proposals join the stack they belong to"

with tempfile.TemporaryDirectory() as folder:
    saved = result.ensemble.save(Path(folder) / "ensemble")
    refused = ""
    try:
        load(saved)
    except MissingFactory as error:
        refused = str(error)
    assert "waves" in refused
    again = load(saved, factories={"waves": Waves.restore})
np.testing.assert_array_equal(again.predict(x), result.ensemble.predict(x))
print("member: found, saved and loaded")
