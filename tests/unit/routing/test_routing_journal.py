"""The journal of overloads: whose they were, what is left out, and lines that come twice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cg4ai.colgen.pricing.gradient.losses import attack_tolerance
from cg4ai.colgen.separation import default_separator
from cg4ai.colgen.tolerances import FEASIBILITY_TOLERANCE
from cg4ai.compile.problem import Problem
from cg4ai.protocols import SeparatorDefaults
from cg4ai.records import SeparationResult
from cg4ai.routing import instance
from cg4ai.routing.pages.journal import CUTS, CutJournal
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.members import RoutingPricer
from cg4ai.routing.train.problem import routing_problem
from cg4ai.rules import Linear
from cg4ai.runs.folder import Run
from cg4ai.settings import Settings

SETTINGS = Settings(row_margin=1e-3)
MIXTURE = FEASIBILITY_TOLERANCE - SETTINGS.row_margin / 2


@dataclass(frozen=True)
class Finds(SeparatorDefaults):
    """A separator that finds arc 2 overloaded by `excess` at the corner."""

    excess: float

    def find(self, ensemble: Any, requirement: Any, **how: Any) -> SeparationResult:
        corner = requirement.region.upper[None]
        rows = requirement.rows_at(corner, np.array([2]), 0)
        return SeparationResult(rows, np.array([self.excess]), self.excess, {})


@pytest.fixture(scope="module")
def problem() -> Problem:
    recipe = Recipe(scenarios=10, priced=20, hidden=(4,))
    return routing_problem(instance("abilene", 5, 3), recipe)


def test_overloads_are_told_apart_by_who_searched(problem: Problem, tmp_path: Path) -> None:
    (pricer,) = problem.pricers
    assert isinstance(pricer, RoutingPricer)
    (rule,) = problem.requirements
    assert isinstance(rule, Linear)
    object.__setattr__(rule, "separator", Finds(0.25))
    with Run.create(tmp_path / "run", "route", {"seed": 0}) as run:
        journal = CutJournal(run, SETTINGS)
        (heard,) = journal.listen(problem).requirements
        assert heard.separator is not None

        def search(tolerance: float) -> None:
            default_separator(heard, True).find(None, heard, seed=0, limit=1, tolerance=tolerance)

        search(MIXTURE)
        search(1e-6)  # an audit
        journal.iteration = 3
        search(attack_tolerance(pricer.headroom))
        search(attack_tolerance(pricer.headroom))  # as a resumed run would
        found = journal.to_arrays()
        assert len((run.folder / CUTS).read_bytes().splitlines()) == 3
    assert found["cut_iteration"].tolist() == [0]
    assert found["met_iteration"].tolist() == [3]
    for name in ("cut", "met"):
        assert found[f"{name}_arc"].tolist() == [2]
        assert found[f"{name}_utilisation"].tolist() == [1.25]
        assert found[f"{name}_demands"].shape == (1, 5)
