"""Routers with a proof: certified training of the routing problem."""

from __future__ import annotations

from collections.abc import Callable

from cg4ai.apps.routing.members import RoutingPricer
from cg4ai.proofs.certified import CertifiedResult, solve_certified
from cg4ai.proofs.phase import ProofRecipe
from cg4ai.proofs.pricer import ProofTraining
from cg4ai.records import IterationRecord
from cg4ai.runs.folder import Run
from cg4ai.settings import Settings
from cg4ai.solving.problem import Problem


def certified(
    problem: Problem,
    settings: Settings,
    *,
    recipe: ProofRecipe | None = None,
    training: ProofTraining | None = None,
    progress: Callable[[IterationRecord], None] | None = None,
    run: Run | None = None,
) -> CertifiedResult:
    """Train until the whole box is proven for the final weights, or a limit ends the run.

    Later groups are trained on demand vectors where the group before was furthest from optimal,
    too. See `cg4ai.proofs.certified.solve_certified`.
    """
    pricer = problem.pricers[0]
    assert isinstance(pricer, RoutingPricer)
    return solve_certified(
        problem,
        settings,
        architecture=pricer.architecture,
        recipe=recipe,
        training=training,
        harder=pricer.harder,
        progress=progress,
        run=run,
    )
