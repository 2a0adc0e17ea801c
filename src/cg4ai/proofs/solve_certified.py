"""`solve_certified`: solve a problem until its rule over a region is proven for the mixture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cg4ai.colgen.interrupts import Interrupted
from cg4ai.colgen.loop import Callbacks, solve
from cg4ai.colgen.result import Result
from cg4ai.compile.problem import Problem
from cg4ai.proofs.certificate import verify_certification
from cg4ai.proofs.phase import ProofPhase, ProofRecipe, find_proven_requirement
from cg4ai.proofs.pricer import Harder, ProofPricer, ProofTraining
from cg4ai.proofs.prover import CellMemory, Prover
from cg4ai.proofs.records import Certification
from cg4ai.protocols import Architecture
from cg4ai.records import IterationRecord
from cg4ai.runs.folder import Run
from cg4ai.settings import Settings


@dataclass(frozen=True)
class CertifiedResult:
    """The loop's result, and the proof of it or how far it came."""

    result: Result
    certification: Certification


def solve_certified(
    problem: Problem,
    settings: Settings,
    *,
    architecture: Architecture,
    recipe: ProofRecipe | None = None,
    training: ProofTraining | None = None,
    harder: Harder | None = None,
    progress: Callable[[IterationRecord], None] | None = None,
    run: Run | None = None,
    callbacks: Callbacks | None = None,
) -> CertifiedResult:
    """Train until the whole region is proven for the final weights, or a limit ends the run.

    The problem's first pricer trains the first group, one member of `architecture` for each block;
    its start members should keep the rule everywhere, since they make up for what the others
    cannot be shown to keep. `harder` chooses the objective of later groups. `run` keeps history
    and checkpoints as for any other solve, and a resumed run ends with the identical result.
    """
    recipe = recipe or ProofRecipe()
    memory = CellMemory(problem.requirements[find_proven_requirement(problem)])
    pricer = ProofPricer(
        problem.pricers[0],
        architecture,
        memory=memory,
        training=training or ProofTraining(),
        harder=harder,
    )
    prover = Prover(memory, cells=recipe.cells, growth=recipe.growth, device=settings.device)
    phase = ProofPhase(problem, pricer=pricer, prover=prover, recipe=recipe)
    proving = replace(problem, pricers=(pricer,), phases=lambda: (phase,))
    # rounds end by the recipe, not because the objective falls no more: proofs raise it
    settings = replace(settings, iteration_limit=recipe.rounds, improvement_tolerance=0.0)
    result = solve(proving, settings, progress=progress, run=run, callbacks=callbacks)
    if phase.current_attempt is None:  # no other limit ends a run before its first iteration does
        raise Interrupted(
            "interrupted before there was a mixture to prove; solve again, or resume the run if "
            "it has a folder"
        )
    # a proof from a checkpoint is checked again; one of this run was when it was found
    proof = verify_certification(
        phase.current_attempt.certification, result.ensemble, memory.requirement
    )
    return CertifiedResult(result, proof)
