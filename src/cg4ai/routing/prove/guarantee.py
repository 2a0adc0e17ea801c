"""What a routing run was asked to guarantee: trained for, established and written down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cg4ai import Problem, Settings, certify, clock, write_certificate
from cg4ai.colgen import Callbacks, IterationRecord
from cg4ai.guarantees import (
    CERTIFICATE_FILE,
    Certification,
    CertifiedResult,
    ProofRecipe,
    ProofTraining,
    Strength,
    count_rules,
    record_certified,
    solve_certified,
)
from cg4ai.routing.network.description import format_title
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.agents import find_budgets
from cg4ai.routing.train.effort import certified_group, certified_hidden, certified_steps
from cg4ai.routing.train.members import RoutingPricer
from cg4ai.routing.train.problem import capacity, routing_problem
from cg4ai.rules import Linear
from cg4ai.runs import Run

if TYPE_CHECKING:
    from cg4ai import Ensemble

SHIELD_CELLS = 100  # for each rule, of a closed form that takes one or few
FIRST_RATE = 0.03  # of the first group, whose members see fresh vectors only
LEAST_S = 1e-3  # no proof is asked for in less


def fill_certified_defaults(recipe: Recipe, demands: int) -> Recipe:
    """The usual of a certified run in place of what is not given."""
    return replace(
        recipe,
        hidden=recipe.hidden or certified_hidden(demands),
        first_steps=recipe.first_steps or certified_steps(demands),
    ).fill_defaults(demands, joint=False)


def certified_problem(instance: Instance, recipe: Recipe | None = None) -> Problem:
    """Groups of networks for each demand, small enough to be bounded, trained on their mean.

    The mean of several small networks is as accurate as one of many more units, and the bound of
    a cell is a sum over the members.
    """
    demands = len(instance.demand_max)
    problem = routing_problem(instance, fill_certified_defaults(recipe or Recipe(), demands))
    pricer = problem.pricers[0]
    assert isinstance(pricer, RoutingPricer)
    first = replace(pricer.first, learning_rate=FIRST_RATE)
    pricer = replace(pricer, first=first, group=certified_group(demands))
    return replace(problem, pricers=(pricer,))


def train_certified(
    problem: Problem,
    settings: Settings,
    *,
    recipe: ProofRecipe | None = None,
    training: ProofTraining | None = None,
    progress: Callable[[IterationRecord], None] | None = None,
    run: Run | None = None,
    callbacks: Callbacks | None = None,
) -> CertifiedResult:
    """Train until the whole box is proven for the final weights, or a limit ends the run.

    Later groups are trained on demand vectors where the group before was furthest from optimal,
    too. See `cg4ai.proofs.solve_certified.solve_certified`.
    """
    pricer = problem.pricers[0]
    assert isinstance(pricer, RoutingPricer)
    return solve_certified(
        problem,
        settings,
        architecture=pricer.architecture,
        recipe=recipe,
        training=training,
        harder=pricer.make_harder_objective,
        progress=progress,
        run=run,
        callbacks=callbacks,
    )


def proof_summary(instance: Instance, answer: Certification) -> dict[str, Any]:
    """The proof, or how far it came: the best bound and which links resist.

    Without a proof the strength stays what the attack established.
    """
    left = sorted(
        (proof for proof in answer.rules if proof.status != "proven"),
        key=lambda proof: -proof.bound,
    )
    return {
        **({"strength": Strength.CERTIFIED} if answer.status == "proven" else {}),
        "proof": {
            "status": answer.status,
            "cells": answer.cells,
            "seconds": answer.seconds,
            "best_bound": max(proof.bound for proof in answer.rules),
            "resisting": [
                {
                    "link": list(instance.arcs[proof.rule]),
                    "status": proof.status,
                    "bound": proof.bound,
                }
                for proof in left
            ],
        },
    }


def write_shield_proof(
    folder: Path, instance: Instance, router: Ensemble, stated: Linear | None = None
) -> dict[str, Any]:
    """The closed form that a shielded router rests on, as a certificate; nothing if it fails.

    What has to be proven is that the constant split keeps the capacities. Where it fills a link
    to the last digit, rounding may leave that open; the shield is there all the same. `stated`: the
    rule, where it is not about the demands that the router reads.
    """
    local = find_budgets(instance, router)
    rule = stated or capacity(instance, Recipe(device=str(router.device)))
    rule = rule if local is None else local.rule
    rules = count_rules(rule, output_size=router.output_size)
    with clock.review().stage("the certificate of the shield"):
        cells, left = SHIELD_CELLS * rules, clock.review().deadline.compute_seconds_left()
        answer = certify(router, rule, cell_limit=cells, time_limit_s=max(left, LEAST_S))
    if answer.status != "proven" and clock.review().deadline.passed:
        clock.review().cut.append("the certificate of the shield")
    if answer.status != "proven":
        return {}
    return write_proof(folder, instance, router, answer, stated)


def write_proof(
    folder: Path,
    instance: Instance,
    ensemble: Ensemble,
    answer: Certification,
    stated: Linear | None = None,
) -> dict[str, Any]:
    """The certificate in the run's folder, noted in the ensemble; what the summary says of it."""
    local = find_budgets(instance, ensemble)
    if local is None:
        requirement = stated or capacity(instance, Recipe(device=str(ensemble.device)))
        where = "" if stated is None else " at every vector of the set"
        names = [f"link {source}->{target}{where}" for source, target in instance.arcs]
    else:
        requirement, names = local.rule, local.rule_names
    digest = write_certificate(
        folder / CERTIFICATE_FILE,
        ensemble,
        requirement=requirement,
        certification=answer,
        title=format_title(instance) + ("" if stated is None else ", for the next of a window"),
        rule_names=names,
        totals=None if local is None else local.totals,
    )
    record_certified(ensemble, requirement, certification=answer)
    entry = {"file": CERTIFICATE_FILE, "sha256": digest}
    return {"certificate": {**entry, "cells": answer.cells, "seconds": answer.seconds}}
