"""Routers with a proof: the routing problem for the loop, with certified training as its phase."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cg4ai.apps.routing.members import RoutingPricer
from cg4ai.errors import SolverFailure
from cg4ai.proofs import Certification
from cg4ai.proofs.cells import CellMemory
from cg4ai.proofs.phase import ProofPhase, ProofRecipe, proven_requirement
from cg4ai.proofs.pricer import ProofPricer, ProofTraining
from cg4ai.proofs.prover import Prover
from cg4ai.records import IterationRecord
from cg4ai.runs.folder import Run
from cg4ai.settings import Settings
from cg4ai.solving.loop import solve
from cg4ai.solving.problem import Problem
from cg4ai.solving.result import Result


@dataclass(frozen=True)
class CertifiedResult:
    """The loop's result, and the proof of it or how far it came."""

    result: Result
    certification: Certification


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

    `run` keeps history and checkpoints as for any other solve, and a run that is resumed ends
    with the identical result.
    """
    recipe = recipe or ProofRecipe()
    phase = _phase(problem, settings, recipe, training or ProofTraining())
    proving = replace(problem, pricers=(phase.pricer,), phases=lambda: (phase,))
    result = solve(proving, _rounds(settings, recipe), progress=progress, run=run)
    if phase.shown is None:
        raise SolverFailure(
            f"the run ended ({result.stop_reason.value}) before there was a router to prove; "
            "raise the time limit"
        )
    return CertifiedResult(result, phase.shown.certification)


def _phase(
    problem: Problem, settings: Settings, recipe: ProofRecipe, training: ProofTraining
) -> ProofPhase:
    inner = problem.pricers[0]
    assert isinstance(inner, RoutingPricer)
    memory = CellMemory(problem.requirements[proven_requirement(problem)])
    pricer = ProofPricer(
        inner, inner.architecture, memory=memory, training=training, harder=inner.harder
    )
    prover = Prover(memory, cells=recipe.cells, growth=recipe.growth, device=settings.device)
    return ProofPhase(problem, pricer=pricer, prover=prover, recipe=recipe)


def _rounds(settings: Settings, recipe: ProofRecipe) -> Settings:
    """Rounds end by the recipe, not because the objective falls no more: proofs raise it."""
    return replace(settings, iteration_limit=recipe.rounds, improvement_tolerance=0.0)
