"""The router of one failure: inherited, trained on through its own shield, proven and measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cg4ai import Ensemble, Problem, clock, runs, solve
from cg4ai.apps import ARRAYS
from cg4ai.colgen import derive_seed
from cg4ai.data import Array
from cg4ai.guarantees import CERTIFICATE_FILE, record_regions
from cg4ai.members import ShieldedArchitecture
from cg4ai.routing.demands.measured import MeasuredTraffic, thin_vectors
from cg4ai.routing.demands.scaling import FACTOR, format_of_capacity
from cg4ai.routing.demands.traffic_files import read_traffic
from cg4ai.routing.evaluate import Validation
from cg4ai.routing.network.description import describe_instance
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.network.optimum import network_optimum
from cg4ai.routing.operate.answers import (
    FALLBACK,
    PRICES,
    compute_stored_prices,
    get_known_prices,
)
from cg4ai.routing.operate.churn import CHURN
from cg4ai.routing.operate.inheriting import BLOCK, InstanceMapping, inherit_members
from cg4ai.routing.operate.link_failures import (
    Failure,
    ReducedInstance,
    format_links,
    is_connected,
    reduce_instance,
)
from cg4ai.routing.prove.attack import FEASIBLE, UNROUTED
from cg4ai.routing.prove.guarantee import write_shield_proof
from cg4ai.routing.prove.unroutable import ROUNDING, find_unroutable
from cg4ai.routing.settings import MembersName, RouteSettings
from cg4ai.routing.train.joint import JointPricer
from cg4ai.routing.train.problem import capacity, routing_settings, shielded_problem
from cg4ai.routing.train.shield import sample_adversarial
from cg4ai.routing.train.traffic_problem import traffic_problem
from cg4ai_checker import Rejected, verdict

FAILED = "failed"  # in what a router says of itself: the links that are down
NAMED = 5  # demands that one line names
JUDGED_BY = 200  # vectors by which the inherited router is judged
NEAR = 0.002  # of the optimum: an inherited router so near is not trained further


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How routers of failures are made and measured.

    steps: of training on from the router without the failure, where what is inherited from it is
    not within `NEAR` of the optimum by itself (0: none). validation: vectors at
    which the distance from optimal is measured; adversarial: those at which overloads are looked
    for. seed, device: of both.
    """

    steps: int = 300
    validation: int = 2000
    adversarial: int = 2000
    seed: int = 0
    device: str = "cpu"


@dataclass(frozen=True)
class WholeRouter:
    """The router without a failure: its instance, what it was trained by, and itself."""

    instance: Instance
    settings: RouteSettings
    router: Ensemble

    @cached_property
    def measured(self) -> MeasuredTraffic | None:
        """The traffic that it learned from, where it did."""
        asked = self.settings
        if asked.traffic is None:
            return None
        parts = read_traffic(asked.traffic, asked.network).split(asked.split)
        return MeasuredTraffic.from_traffic(self.instance, *parts)


def reroute(whole: WholeRouter, failure: Failure, effort: Effort, folder: Path) -> dict[str, Any]:
    """What the failure leads to, as plain data; a router, if there is one, is put into `folder`.

    `outcome` is "unaffected" (no path uses the links), "disconnected" (a demand has no path left),
    "infeasible" (some demand vector of the set cannot be routed over the paths that are left:
    prices of links prove it), "open" (neither shown infeasible nor kept by a constant split, so
    that there is no shield), "shielded", or "violated" if a shielded router was found to overload a
    link all the same.
    """
    started, factor = clock.now(), whole.instance.capacity_factor
    left = reduce_instance(whole.instance, failure)
    known: dict[str, Any] = {
        "failure": failure.name,
        "links": [list(link) for link in failure.links],
        "paths_left": len(left.paths),
        "paths": len(whole.instance.path_demand),
        **({} if factor == 1.0 else {FACTOR: factor}),
    }
    made = left.instance
    if made is None:
        known |= _disconnected(whole.instance, left, failure)
    elif len(left.paths) == len(whole.instance.path_demand):
        text = f"no path uses {format_links(failure.links)}: the router stays as it is"
        known |= {"outcome": "unaffected", "text": text}
    else:
        known |= _unroutable(made) or _router(whole, left, made, failure, effort, folder)
    return {**known, "seconds": clock.now() - started}


def _disconnected(instance: Instance, left: ReducedInstance, failure: Failure) -> dict[str, Any]:
    names = [instance.demand_names[demand] for demand in left.lost]
    several = "s" if len(names) > 1 else ""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    text = (
        f"without {format_links(failure.links)} none of the paths of demand{several} "
        f"{', '.join(names[:NAMED])}{more} is left ({len(left.paths)} of "
        f"{len(instance.path_demand)} paths of all demands are); "
        f"{_other_ways(instance, left, failure)}"
    )
    known = {} if instance.all_arcs is None else {"cut": len(_cut(instance, left, failure))}
    return {"outcome": "disconnected", "lost": names, **known, "text": text}


def _cut(instance: Instance, left: ReducedInstance, failure: Failure) -> list[int]:
    """Demands that no path of the network joins any more."""
    return [demand for demand in left.lost if not is_connected(instance, failure, demand)]


def _other_ways(instance: Instance, left: ReducedInstance, failure: Failure) -> str:
    """What helps demands that have lost their paths; older runs do not say all links."""
    advice = "allow more paths, or name one with --path-file"
    if instance.all_arcs is None:
        return advice
    cut = _cut(instance, left, failure)
    if not cut:
        return f"the network has other ways: {advice}"
    names = ", ".join(instance.demand_names[demand] for demand in cut[:NAMED])
    more = f" and {len(cut) - NAMED} more" if len(cut) > NAMED else ""
    return f"the network has no other way for {names}{more}"


def _unroutable(made: Instance) -> dict[str, Any] | None:
    """Why no router can keep the capacities; None where a constant split does."""
    found, factor = find_unroutable(made), made.capacity_factor
    if found is not None:
        record = found.to_record(made)
        links = ", ".join("->".join(link[:2]) for link in record["links"])
        text = (
            f"at some demand vector of the set every routing over the {len(made.paths)} paths that "
            f"are left loads a link to {format_of_capacity(found.bound, factor)} or more; "
            f"the links that make it so: {links}; "
        )
        best = next(iter(network_optimum(made, found.vector[None]).tolist()), None)
        if best is None:
            text += "with more --paths, or a --path-file, it may fit"
        elif best > FEASIBLE:
            of_all = format_of_capacity(best, factor)
            text += f"over all paths of the network it is {of_all}, so that no choice of paths fits"
        else:
            of_all = format_of_capacity(best, factor)
            text += f"over all paths of the network it is {of_all}: allow more --paths"
        return {
            "outcome": "infeasible",
            "level": found.bound,
            "network_optimum": best,
            "blocked_by": links,
            "proof": record,
            "text": text,
        }
    if made.level <= 1 + ROUNDING:
        return None
    links = ", ".join("->".join(made.arcs[arc]) for arc in made.robust.arcs)
    text = (
        f"every constant split loads some link to {format_of_capacity(made.level, factor)} "
        "or more at some vector of the set, so there is no shield, but no vector was "
        f"found that cannot be routed; the links that make it so: {links}"
    )
    return {"outcome": "open", "level": made.level, "text": text}


def _router(
    whole: WholeRouter,
    left: ReducedInstance,
    made: Instance,
    failure: Failure,
    effort: Effort,
    folder: Path,
) -> dict[str, Any]:
    """Train, prove, measure and save."""
    problem, before = _problem(whole, left, made, effort)
    router, steps = before, 0
    if before is None or (effort.steps and not _is_near(whole, made, before, effort)):
        steps = effort.steps
        router = _trained(whole, made, problem, effort, onwards=before is not None)
    assert router is not None
    recipe = _recipe(whole, effort)
    record_regions(router, (capacity(made, recipe),), inputs=problem.objective.inputs)
    links = [list(link) for link in failure.links]
    router.about.update({"application": "routing", **describe_instance(made), FAILED: links})
    if recipe.objective != "cost":
        known = _known_prices(whole, left, problem)
        seed = derive_seed(effort.seed, 0, "prices")
        router.about[PRICES] = compute_stored_prices(made, router, known, seed=seed)
        if FALLBACK in whole.router.about:
            router.about[FALLBACK] = whole.router.about[FALLBACK]
    if CHURN in whole.router.about:
        router.about[CHURN] = whole.router.about[CHURN]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CERTIFICATE_FILE).unlink(missing_ok=True)
    written = write_shield_proof(folder, made, router)
    router.save(folder)
    measured, arrays = _measured(made, router, before, effort, _validation(whole, made, effort))
    runs.write_arrays(folder / ARRAYS, arrays)
    proof = check_certificate(folder, written)
    return {
        **_judged(measured, proof, local=recipe.agent_scope != "all"),
        "level": made.level,
        **measured,
        "members": len(router),
        "steps": steps,
        **proof,
    }


def _judged(measured: dict[str, Any], proof: dict[str, Any], *, local: bool) -> dict[str, str]:
    """The outcome where there is a router; of agents it wants the proof that budgets suffice."""
    if measured["worst_utilisation"] > FEASIBLE or measured["unrouted"] > UNROUTED:
        return {"outcome": "violated"}
    if local and not (proof["certificate"] or {}).get("accepted"):
        text = "no proof was found that the budgets of the agents sum to the capacities at most"
        return {"outcome": "open", "text": text}
    return {"outcome": "shielded"}


def _recipe(whole: WholeRouter, effort: Effort) -> RouteSettings:
    """As the router was trained, behind a shield whatever its own guarantee was."""
    asked = whole.settings
    members: MembersName = "tree" if asked.members == "tree" else "network"
    return replace(
        asked,
        guarantee="shielded",
        members=members,
        separator="ascent",
        later_steps=effort.steps,
        seed=effort.seed,
        device=effort.device,
        baseline=False,
        single_model=False,
        ratio=None,  # it is about the optimum without the failure
        ratio_leaves=None,
        hidden=asked.hidden if asked.joint else (),
    )


def _known_prices(whole: WholeRouter, left: ReducedInstance, problem: Problem) -> Array | None:
    """Prices (k, A) of the links left: those of training, and those of the network as a whole.

    Prices without the failure prove less, but of the links that are left.
    """
    found = get_known_prices(problem)
    stored = whole.router.about.get(PRICES)
    parts = [] if found is None else [found]
    parts += [np.array(stored)[:, left.arcs]] if stored else []
    return np.concatenate(parts) if parts else None


def _problem(
    whole: WholeRouter, left: ReducedInstance, made: Instance, effort: Effort
) -> tuple[Problem, Ensemble | None]:
    """What is to be solved, and what is there before any training, if anything is."""
    recipe, measured = _recipe(whole, effort), whole.measured
    if measured is None:
        problem = shielded_problem(made, recipe)
    else:
        problem = traffic_problem(made, measured, recipe)
    pricer = problem.pricers[0]
    if not isinstance(pricer, JointPricer):
        return problem, None
    assert isinstance(pricer.architecture, ShieldedArchitecture)
    mapping = InstanceMapping.between(whole.instance, made)
    parts = inherit_members(whole.router, mapping, pricer.architecture).make_parts(effort.device)
    if not parts:
        return problem, None
    start = (*problem.start, *((part.members, BLOCK) for part in parts))
    return replace(problem, start=start), Ensemble(parts, problem.layout, device=effort.device)


def _trained(
    whole: WholeRouter, made: Instance, problem: Problem, effort: Effort, *, onwards: bool
) -> Ensemble:
    """By the loop: with networks to go on from one more is trained, else as many as usual."""
    recipe = _recipe(whole, effort)
    if not onwards:
        recipe = replace(recipe, later_steps=0)
    settings = routing_settings(made, recipe, joint=True)
    settings = replace(settings, estimate_restarts=0)
    if onwards:
        settings = replace(settings, iteration_limit=1)
    return solve(problem, settings).ensemble


def _is_near(whole: WholeRouter, made: Instance, router: Ensemble, effort: Effort) -> bool:
    """Whether a router is so good that training it would bring next to nothing."""
    if whole.settings.objective == "cost":
        return False
    vectors = made.sample(JUDGED_BY, derive_seed(effort.seed, 0, "inherited"))
    if whole.measured is not None:
        vectors = thin_vectors(whole.measured.earlier, JUDGED_BY)
    reached = made.compute_utilisation(vectors, router.predict(vectors, outside="ignore"))
    best = made.find_optimal(vectors).mlu
    return float(reached.max(axis=1).sum()) <= (1 + NEAR) * float(best.sum())


def _validation(whole: WholeRouter, made: Instance, effort: Effort) -> Validation:
    """Vectors drawn from the set or, where traffic was learned from, later traffic."""
    vectors = made.sample(effort.validation, derive_seed(effort.seed, 0, "validation"))
    if whole.measured is not None:
        vectors = thin_vectors(whole.measured.later, effort.validation)
    return Validation(vectors, made.find_optimal(vectors))


def _measured(
    made: Instance,
    router: Ensemble,
    before: Ensemble | None,
    effort: Effort,
    validation: Validation,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Distance from optimal, before training on, too; the worst utilisation that was found."""
    vectors = validation.vectors
    splits = router.predict(vectors, outside="ignore")
    # the shield excludes overloads anyway
    attacked = sample_adversarial(made, router, effort.adversarial, seed=effort.seed, brief=True)
    found = router.predict(attacked)
    summary: dict[str, Any] = {
        "mean_optimal_mlu": float(validation.best.mlu.mean()),
        **validation.compute_gaps(made, splits),
        "worst_utilisation": float(made.compute_utilisation(attacked, found).max()),
        "unrouted": max(made.compute_unrouted(splits), made.compute_unrouted(found)),
        "validation": len(vectors),
        "adversarial": len(attacked),
    }
    arrays = {
        "optimal_mlu": validation.best.mlu,
        "predicted_mlu": validation.compute_mlu(made, splits),
    }
    if before is not None:
        summary |= validation.compute_gaps(
            made, before.predict(vectors, outside="ignore"), "inherited_"
        )
    return summary, arrays


def check_certificate(folder: Path, written: dict[str, Any]) -> dict[str, Any]:
    """The certificate, and whether the checker accepts it."""
    if not written:
        return {"certificate": None}
    entry = dict(written["certificate"])
    try:
        verdict(folder / CERTIFICATE_FILE)
    except Rejected as error:
        return {"certificate": {**entry, "accepted": False, "why": str(error)}}
    return {"certificate": {**entry, "accepted": True}}
