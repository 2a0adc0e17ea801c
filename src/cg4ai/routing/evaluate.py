"""How good a trained router is: attack or shield, gaps to the optimum, speed, plain networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from cg4ai import Ensemble, Problem, Result, clock
from cg4ai.apps import Evaluation
from cg4ai.clock import Deadline, Review
from cg4ai.colgen import Pricer, derive_seed, generator, row_keys
from cg4ai.data import Array
from cg4ai.guarantees import Strength
from cg4ai.members import ConstantMembers, FlowMembers, Part
from cg4ai.routing.demands.scaling import FACTOR
from cg4ai.routing.demands.sets import MIXES, FreshDemands, MixedDemands, describe_set
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.network.optimum import compare_with_network
from cg4ai.routing.operate.answers import LowerBound, improve_answers
from cg4ai.routing.pages.link_loads import WorstLoads, gap_arrays, load_arrays
from cg4ai.routing.prove.attack import FEASIBLE, UNROUTED, Attack, timed_attack
from cg4ai.routing.settings import Recipe, RouteSettings
from cg4ai.routing.train import effort
from cg4ai.routing.train.granular import Granularity, round_splits
from cg4ai.routing.train.optimal import OptimalRouting, find_bottleneck, least_mlu_until
from cg4ai.routing.train.problem import capacity, first_request
from cg4ai.routing.train.shield import (
    edge_vectors,
    find_by_ascent,
    measure_shield,
    sample_adversarial,
)
from cg4ai.routing.train.size_limits import describe_unproven
from cg4ai.rules import Box

RARE = 0.999  # of the vectors: their gaps are no larger than the 99.9th percentile
LABELLED = 1000  # vectors at which splits are compared, where they are not known anyway
FEW = 200  # vectors at which a shielded router is looked at in any case
ROUNDS = 3  # of what is timed, in turns
NO_LOAD = 1e-300  # an optimum below it counts as so much
ROUNDED = 5000  # vectors at which rounding and the fallback are measured
ALONE = 100  # vectors predicted one by one in each
PLAIN = 1.2  # times that of training: what plain networks and their attack take


@runtime_checkable
class PlainTrainer(Protocol):
    """A pricer that can also train its members plainly, for comparison."""

    def make_plain_pricer(self, trainings: int) -> Pricer:
        """The same training without rows, over as many steps as so many calls took."""
        ...


@dataclass(frozen=True)
class Validation:
    """Demand vectors that training never saw, with the best routing of each."""

    vectors: Array = field(repr=False)
    best: OptimalRouting = field(repr=False)

    def compute_gaps(self, instance: Instance, splits: Array, prefix: str = "") -> dict[str, float]:
        """What these splits (n, paths) lose to the best, and how often they overload a link."""
        reached = self.compute_mlu(instance, splits)
        gap = reached - self.best.mlu
        return {
            f"{prefix}mean_mlu_gap": float(gap.mean()),
            f"{prefix}p999_mlu_gap": float(np.quantile(gap, RARE)),
            f"{prefix}max_mlu_gap": float(gap.max()),
            f"{prefix}overloaded": float((reached > FEASIBLE).mean()),
        }

    def compute_mlu(self, instance: Instance, splits: Array) -> Array:
        return np.asarray(instance.compute_utilisation(self.vectors, splits).max(axis=1))


def evaluate(
    instance: Instance, settings: RouteSettings, problem: Problem, result: Result, review: Review
) -> Evaluation:
    """Attack and validate a trained router, and if asked the plain one beside it.

    A shielded one keeps the capacities by closed form, so instead of a long attack it is measured
    what its shield does, at adversarial vectors, too.
    """
    ensemble, seed, whole = result.ensemble, settings.seed, review
    training_s = result.seconds_by_step()["pricing_s"]
    if settings.baseline:  # plain networks train as long once more
        review = replace(review, deadline=review.deadline.reserve(PLAIN * training_s))
    attack_seed = derive_seed(seed, 0, "final attack") % 2**31
    shielded, worst = bool(ensemble.guards), WorstLoads(instance)
    searched = bool(problem.requirements)  # trees keep the capacities by their leaves
    if shielded:
        known = _shielded(instance, ensemble, worst, seed=seed)
    else:
        known = _audited(result) if searched else _at_corners(instance, ensemble, worst)
    summary = {**describe_run(instance, settings, problem, result), **known}
    arrays: dict[str, Array] = {}
    # even its smallest portion takes about as long as the search that training ended with
    needed = result.ending.audits_s
    if searched and review.begin_step("searching for overloads", needed=needed):
        found = timed_attack(instance, ensemble, seed=attack_seed, review=review)
        summary |= _attacked(found)
        worst.merge_loads(found.links, found.demands)
    validation = None
    settings = settings.fill_sample_sizes(len(instance.path_demand))
    if review.begin_step(f"distance from optimal routing on {settings.validation} demand vectors"):
        validation = validate(instance, settings, review)
        splits = ensemble.predict(validation.vectors)
        loads = worst.update(validation.vectors, splits)
        best, reached = validation.best.mlu, loads.max(axis=1)
        arrays |= {"optimal_mlu": best, "predicted_mlu": reached, **load_arrays(loads)}
        arrays |= gap_arrays(validation.vectors, reached, best)
        summary |= {
            "validation": len(validation.vectors),
            "mean_optimal_mlu": float(validation.best.mlu.mean()),
            "unrouted": instance.compute_unrouted(splits),
            **validation.compute_gaps(instance, splits),
        }
        labels = validation.best.splits
        if labels is None and settings.protocol == "paper":  # a column of the paper's table
            few = validation.vectors[:LABELLED]
            found_splits = review.run_step(
                "distance from optimal splits", lambda: instance.find_optimal(few, splits=True)
            )
            labels = None if found_splits is None else found_splits.splits
        if labels is not None:
            distance = ((splits[: len(labels)] - labels) ** 2).sum(1).mean()
            summary["split_loss"] = float(distance)
        if settings.objective == "cost":
            given = validation.vectors
            costs = review.run_step(
                "cost of paths", lambda: cost_arrays(instance, given, splits=splits)
            )
            arrays |= costs or {}
            summary |= {} if costs is None else cost_gaps(costs)
        summary |= _beside_network(instance, settings, validation, reached, review)
        if review.begin_step("distance from optimal routing on other mixes of demands"):
            summary["mixes"] = evaluate_mixes(
                instance, settings, ensemble, review, uniform=validation, worst=worst
            )
    if validation is not None and shielded:
        summary |= _shield_measured(instance, ensemble, settings, validation, review, worst)
        reported = summary.get("shield", {"unrouted": 0.0})
        summary["unrouted"] = max(summary["unrouted"], reported["unrouted"])
    if validation is not None:
        count = effort.count_affordable(
            effort.TIMED_VECTORS, effort.TIMED, len(instance.path_demand)
        )
        timed = validation.vectors[:count]
        summary |= (
            review.run_step(
                "speed", lambda: measure_prediction_speed(instance, ensemble, timed, review)
            )
            or {}
        )
    if settings.baseline and whole.begin_step(
        "plain networks of equal effort, to compare", needed=training_s
    ):
        until = whole.deadline
        if result.cut:  # where the clock ended our training before its last step, theirs alike
            until = Deadline(min(until.ends, Deadline.after(training_s).ends))
        plain = plain_router(problem, settings, result, until)
        if until.passed:
            whole.cut.append("training of plain networks")
        more, drawn = _beside(instance, settings, ensemble, plain, validation, whole)
        summary |= more
        arrays |= drawn
    return conclude_evaluation(summary, arrays, worst)


def evaluate_further(
    instance: Instance, ensemble: Ensemble, found: Evaluation, vectors: Array
) -> Evaluation:
    """The evaluation where the router is looked at at further vectors (n, D) of the set."""
    worst = WorstLoads(instance)
    worst.merge_loads(found.arrays["link_worst"], found.arrays.get("worst_vector"))
    worst.update(vectors, ensemble.predict(vectors, outside="ignore"))
    return conclude_evaluation(dict(found.summary), dict(found.arrays), worst)


def conclude_evaluation(
    summary: dict[str, Any], arrays: Mapping[str, Array], worst: WorstLoads
) -> Evaluation:
    """With the worst utilisation of all that was looked at."""
    if float(worst.links.max()) >= summary["worst_utilisation"]:
        link = int(worst.links.argmax())
        summary["worst_utilisation"] = float(worst.links[link])
        summary["worst_link"] = list(worst.instance.arcs[link])
    kept = summary["worst_utilisation"] <= FEASIBLE and summary.get("unrouted", 0.0) <= UNROUTED
    if not kept:  # a shield holds whatever is measured of it; a violation is one all the same
        summary["strength"] = Strength.VIOLATED
    return Evaluation(summary, kept, {**arrays, **worst.to_arrays()})


def evaluate_mixes(
    instance: Instance,
    settings: RouteSettings,
    ensemble: Ensemble,
    review: Review,
    *,
    uniform: Validation,
    worst: WorstLoads,
) -> dict[str, dict[str, float]]:
    """How far the router is from the best routing on each mix of demands, as far as time allows.

    On vectors of their own, which neither training nor the choice of members has seen.
    """
    drawn = MixedDemands(instance.region, instance.ends, seed=derive_seed(settings.seed, 0, "mix"))
    count = effort.count_affordable(effort.JUDGED, effort.JUDGED_PATHS, len(instance.path_demand))
    found: dict[str, dict[str, float]] = {}
    for mix in MIXES:
        if mix == "uniform":
            vectors, best = uniform.vectors, uniform.best.mlu
        elif found and review.deadline.passed:
            review.cut.append(f"distance from optimal routing on {mix} demands")
            continue
        else:
            made = generator(derive_seed(settings.seed, 0, f"judged by {mix} demands"))
            vectors = drawn.draw(mix, count, made).numpy()
            best = least_mlu_until(instance, vectors, review.deadline)
            if len(best) < len(vectors):
                words = f"distance on {mix} demands, to {len(best)} of {len(vectors)} vectors"
                review.cut.append(words)
                vectors = vectors[: len(best)]
        splits = ensemble.predict(vectors)
        gap = worst.update(vectors, splits).max(axis=1) - best
        over = 1 + gap / np.maximum(best, NO_LOAD)
        found[mix] = {
            "vectors": len(vectors),
            "mean_optimal_mlu": float(best.mean()),
            "mean_mlu_gap": float(gap.mean()),
            "p999_mlu_gap": float(np.quantile(gap, RARE)),
            "max_mlu_gap": float(gap.max()),
            "mean_ratio": float(over.mean()),
            "max_ratio": float(over.max()),
        }
        if settings.objective == "cost":
            costs = cost_arrays(instance, vectors, splits=splits)
            found[mix] |= cost_gaps(costs)
    return found


def validate(instance: Instance, settings: RouteSettings, review: Review) -> Validation:
    """The best routing of as many validation vectors as time allows; all without a limit."""
    drawn = instance.sample(settings.validation, derive_seed(settings.seed, 0, "validation"))
    labelled = settings.baseline or settings.objective == "split"
    if not np.isfinite(review.deadline.ends):
        return Validation(drawn, instance.find_optimal(drawn, splits=labelled))
    # what is left is shared with the speed and the costs, which solve these again
    shares = 4 if settings.objective == "cost" else 2
    soon = Deadline.after(review.deadline.compute_seconds_left() / shares)
    mlu = least_mlu_until(instance, drawn, soon)
    done = len(mlu)
    if done < len(drawn):
        review.cut.append(f"validation, to {done} of {len(drawn)} demand vectors")
    return Validation(drawn[:done], OptimalRouting(mlu))


def _beside_network(
    instance: Instance,
    settings: RouteSettings,
    validation: Validation,
    reached: Array,
    review: Review,
) -> dict[str, Any]:
    """How far the paths, and the router, are from the optimum over all paths of the network."""
    step = "distance from the optimum over all paths of the network"
    if instance.path_source is None or settings.objective == "cost" or not review.begin_step(step):
        return {}
    paths = len(instance.path_demand)
    count = effort.count_affordable(effort.NETWORK_VECTORS, effort.NETWORK_PATHS, paths)
    vectors = validation.vectors[:count]
    deadline = review.take_share(0.25).deadline
    found = compare_with_network(
        instance,
        vectors,
        best=validation.best.mlu[:count],
        reached=reached[:count],
        deadline=deadline,
    )
    if found is None:
        review.cut.append(step)
        return {}
    if found.vectors < len(vectors):
        review.cut.append(f"{step}, to {found.vectors} of {len(vectors)} vectors")
    return {"network_optimum": found.to_summary()}


def describe_run(
    instance: Instance, settings: RouteSettings, problem: Problem, result: Result
) -> dict[str, Any]:
    """What was trained, for what, and out of what the mixture is made."""
    return {
        "network": instance.name,
        "demands": len(instance.demand_max),
        "paths": max(len(block) for block in instance.blocks),
        "links": len(instance.arcs),
        "load": instance.load,
        "scale": instance.scale,
        FACTOR: instance.capacity_factor,
        "notes": [*instance.notes, *_unproven(instance, settings)],
        "corner_mlu": instance.level,
        "demand_max": instance.demand_max.tolist(),
        "demand_set": describe_set(instance.region),
        "objective": settings.objective,
        "from_traffic": settings.traffic is not None,
        "guarantee": settings.guarantee,
        "protocol": settings.protocol,
        **_about_paths(instance),
        "members": settings.members,
        "time_limit_s": settings.time_limit_s,
        "training_limit_s": settings.training_limit_s,
        "threads": settings.threads,
        "seed": settings.seed,
        "constants": count_constants(problem),
        "by_iteration": list_by_iteration(result),
        **capacity_rows(problem, result),
        "active_constants": active_constants(result.ensemble),
    }


def _about_paths(instance: Instance) -> dict[str, Any]:
    """How paths were chosen, and their limits; nothing where an older run does not say."""
    source = instance.path_source
    if source is None:
        return {}
    limits = {"max_hops": source.limits.hops, "max_latency": source.limits.latency}
    return {"path_choice": source.choice, **limits}


def _unproven(instance: Instance, settings: RouteSettings) -> list[str]:
    """Why a shield has no certificate, where it is too large for one."""
    why = describe_unproven(instance) if settings.guarantee == "shielded" else None
    return [] if why is None else [why]


def _audited(result: Result) -> dict[str, Any]:
    """What the end of training found, in case there is no time to search further."""
    worst = max((audit.worst_violation for audit in result.audits), default=float("nan"))
    strength = Strength.ATTACKED if result.feasible else Strength.VIOLATED
    return {"worst_utilisation": 1.0 + float(worst), "strength": strength, "attack": {}}


def _at_corners(instance: Instance, ensemble: Ensemble, worst: WorstLoads) -> dict[str, Any]:
    """The most that the leaves of trees load a link with; what that establishes says the proof."""
    from cg4ai.guarantees import largest_rule_values

    links = largest_rule_values(ensemble, capacity(instance, Recipe()))
    worst.merge_loads(links, None)
    return {"worst_utilisation": float(links.max()), "strength": Strength.UNVERIFIED, "attack": {}}


def _shielded(
    instance: Instance, ensemble: Ensemble, worst: WorstLoads, *, seed: int
) -> dict[str, Any]:
    """What a shield establishes, in case there is no time to measure it: looked at a little."""
    few = instance.sample(FEW, derive_seed(seed, 0, "shielded"))
    vectors = np.concatenate([edge_vectors(instance), few])
    most = float(worst.update(vectors, ensemble.predict(vectors)).max())
    return {"worst_utilisation": most, "strength": Strength.SHIELDED, "attack": {}}


def _shield_measured(
    instance: Instance,
    ensemble: Ensemble,
    settings: RouteSettings,
    validation: Validation,
    review: Review,
    worst: WorstLoads,
) -> dict[str, Any]:
    """How often and how much the shield acts, and what it costs; as far as time allows."""
    found: dict[str, Any] = {}
    paths = len(instance.path_demand)
    inputs = effort.count_affordable(effort.SHIELD_INPUTS, effort.SHIELDED, paths)
    if review.begin_step(f"the shield at {inputs} demand vectors"):
        reached: Array | None = None
        for share in review.iterate_portions("measuring the shield"):
            if reached is None:  # the same for every portion
                reached = find_by_ascent(instance, ensemble, seed=settings.seed)
            count = math.ceil(len(validation.vectors) * share)
            report = measure_shield(
                instance,
                ensemble,
                vectors=validation.vectors[:count],
                best=validation.best.mlu[:count],
                inputs=math.ceil(inputs * share),
                seed=settings.seed,
                reached=reached,
            )
            found = {"shield": report.to_summary()}
            worst.merge_loads(report.links, report.vector)
    return found


def _attacked(found: Attack) -> dict[str, Any]:
    return {
        "worst_utilisation": found.worst_utilisation,
        "attack": {**found.effort, "found_by": found.found_by, "arc": list(found.arc)},
        "strength": found.strength,
    }


def _beside(
    instance: Instance,
    settings: RouteSettings,
    ensemble: Ensemble,
    plain: Ensemble,
    validation: Validation | None,
    review: Review,
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The same figures of the plain networks, and both where hardly any room is left."""
    seed = derive_seed(settings.seed, 0, "final attack") % 2**31
    found = timed_attack(instance, plain, seed=seed, review=review)
    summary: dict[str, Any] = {
        "plain_worst_utilisation": found.worst_utilisation,
        "plain_worst_link": list(found.arc),
    }
    arrays: dict[str, Array] = {}
    tight = review.run_step(
        "both where hardly any room is left",
        lambda: tight_arrays(instance, ensemble, plain, effort.TIGHT_VECTORS, seed=settings.seed),
    )
    arrays |= tight or {}
    if validation is None:
        return summary, arrays
    splits = plain.predict(validation.vectors)
    arrays["plain_mlu"] = validation.compute_mlu(instance, splits)
    summary |= validation.compute_gaps(instance, splits, "plain_")
    if settings.objective == "cost":
        costs = cost_arrays(instance, validation.vectors, splits=splits)
        arrays["plain_cost"] = costs["predicted_cost"]
        summary["plain_mean_cost_gap"] = cost_gaps(costs)["mean_cost_gap"]
    return summary, arrays


def list_by_iteration(result: Result) -> dict[str, list[float | int | None]]:
    """What figures by iterations are drawn from; the columns and rows are those after it.

    `slack` is what the worst row of the master lacked, `worst_utilisation` the highest that a
    search of the mixture found: None where there was none, since a shield keeps the capacities.
    """
    history = result.history
    worst = [one.worst_violation for one in history]
    return {
        "objective": [one.objective for one in history],
        "columns": [one.columns for one in history],
        "rows": [one.rows for one in history],
        "slack": [one.slack for one in history],
        "worst_utilisation": [None if one is None else 1.0 + one for one in worst],
    }


def count_constants(problem: Problem) -> int:
    """How many columns are there from the start, anchors; the others are trained networks."""
    return sum(len(blocks) for _, blocks in problem.start)


def active_constants(ensemble: Ensemble) -> int:
    """How many of the members with weight are anchors: constant splits, or flows for a ratio."""
    return sum(
        int(np.count_nonzero(part.weights))
        for part in ensemble.unshielded.unshielded.parts  # of a ratio behind two shields
        if isinstance(part.members, ConstantMembers | FlowMembers)
    )


def capacity_rows(problem: Problem, result: Result) -> dict[str, int]:
    """Rows of the capacities in the master, and how many of them were found by search.

    The others are there from the start. Nothing where the rows were not counted.
    """
    if result.rule_rows is None:
        return {}
    first = len({key for rows in problem.start_rows for key in row_keys(rows)})
    return {"capacity_rows": result.rule_rows, "found_rows": result.rule_rows - first}


def count_trained_groups(result: Result) -> int:
    """How many groups were trained, those that the master did not take included."""
    return sum(
        int(record.added_columns > 0) if record.trainings is None else record.trainings
        for record in result.history
    )


def plain_router(
    problem: Problem, settings: RouteSettings, result: Result, until: Deadline
) -> Ensemble:
    """The same members trained plainly for as many steps, without master, rows or cuts."""
    pricer = problem.pricers[0]
    assert isinstance(pricer, PlainTrainer)
    plain = pricer.make_plain_pricer(count_trained_groups(result))
    seed = derive_seed(settings.seed, 0, "plain")
    asked = first_request(problem, seed=seed, device=settings.device, attacked=False)
    proposed = plain.price(replace(asked, until=until.ends))
    assert proposed.members is not None
    device = torch.device(settings.device)
    shares = 1 / np.bincount(proposed.blocks)[proposed.blocks]  # a group stands for its mean
    part = Part(proposed.members.to(device), proposed.blocks, shares)
    return Ensemble((part,), problem.layout, device=device)


# ---- further measurements -----------------------------------------------------------------------


def measure_prediction_speed(
    instance: Instance, ensemble: Ensemble, vectors: Array, review: Review
) -> dict[str, float]:
    """Seconds of an answer: in one batch of all vectors, alone, and by a program from a warm start.

    All three take turns, and the median of three rounds counts. Under a time limit there may be
    fewer rounds.
    """
    seconds: list[tuple[float, float, float]] = []
    alone = vectors[:ALONE]
    for done in range(ROUNDS):
        if done and review.deadline.compute_seconds_left() <= max(map(sum, seconds)):
            review.cut.append(f"speed, to {done} of {ROUNDS} rounds")
            break
        seconds.append(
            (
                _seconds(lambda: ensemble.predict(vectors)),
                _seconds(lambda: [ensemble.predict(one) for one in alone[:, None]]),
                _seconds(lambda: instance.find_optimal(vectors)),
            )
        )
    batch, single, program = np.median(np.array(seconds), axis=0).tolist()
    return {
        "timed": len(vectors),
        "batch_answer_s": batch / len(vectors),
        "single_answer_s": single / len(alone),
        "program_answer_s": program / len(vectors),
        "batch_speedup": program / max(batch, 1e-9),
    }


def measure_fallback(
    instance: Instance, ensemble: Ensemble, bound: LowerBound, gap: float, *, seed: int
) -> dict[str, Any]:
    """The share of answers within the set that are not proven within `gap` of the optimum."""
    count = effort.count_affordable(ROUNDED, effort.SHIELDED, len(instance.path_demand))
    vectors = instance.sample(count, derive_seed(seed, 0, "fallback"))
    found = improve_answers(instance, vectors, ensemble.predict(vectors), bound=bound)
    return {"gap": gap, "vectors": count, "share": float((found.gaps > gap).mean())}


def measure_rounding(granular: Granularity, ensemble: Ensemble, seed: int) -> dict[str, Any]:
    """What rounding loses at vectors of the set, as shares of MLU, and the most it loads a link.

    The latter at vectors near the edge, at vertices and where ascent finds links nearly full.
    `anchored`: the share of those at which an answer went towards the anchor.
    """
    made = granular.instance
    count = effort.count_affordable(ROUNDED, effort.SHIELDED, len(made.path_demand))
    vectors = made.sample(count, derive_seed(seed, 0, "rounded"))
    before = ensemble.predict(vectors)
    after = granular.round_answers(vectors, before)
    least = np.maximum(made.compute_utilisation(vectors, before).max(axis=1), NO_LOAD)
    ratio = made.compute_utilisation(vectors, after).max(axis=1) / least
    attacked = sample_adversarial(made, ensemble, count, seed=seed)
    own = ensemble.predict(attacked)
    rounded = granular.round_answers(attacked, own)
    plain = round_splits(own, made.path_demand, granular.parts)
    return {
        "parts": granular.parts,
        "vectors": count,
        "mean_ratio": float(ratio.mean()),
        "max_ratio": float(ratio.max()),
        "worst_utilisation": float(made.compute_utilisation(attacked, rounded).max()),
        "anchored": float((rounded != plain).any(axis=1).mean()),
    }


def _seconds(task: Callable[[], object]) -> float:
    started = clock.now()
    task()
    return clock.now() - started


def tight_arrays(
    instance: Instance, ensemble: Ensemble, plain: Ensemble, count: int, *, seed: int
) -> dict[str, Array]:
    """MLUs at `count` vectors, optimal and of both routers, where hardly any room is left.

    The demands that fill the bottleneck are drawn within a hundredth of their largest volume, the
    others anywhere, so the optimum lies within a hundredth below the largest optimum of the box,
    which is the load: at load 0.99 between 0.9801 and 0.99. Of a polytope, vectors near its edge.
    """
    vectors = _tight_vectors(instance, count, seed=derive_seed(seed, 0, "tight"))
    routers = {"tight_predicted": ensemble, "tight_plain": plain}
    return {
        "tight_optimal": instance.find_optimal(vectors).mlu,
        **{
            name: instance.compute_utilisation(vectors, router.predict(vectors)).max(axis=1)
            for name, router in routers.items()
        },
    }


def _tight_vectors(instance: Instance, count: int, *, seed: int) -> Array:
    region = instance.region
    if not isinstance(region, Box):
        return np.asarray(FreshDemands(region, edge=1.0)(count, generator(seed)).numpy())
    shares = np.random.default_rng(seed).uniform(0, 1, (count, region.size))
    full = find_bottleneck(instance).demands
    shares[:, full] = 0.99 + 0.01 * shares[:, full]
    return np.asarray(region.lower + shares * (region.upper - region.lower))


def cost_arrays(instance: Instance, vectors: Array, *, splits: Array) -> dict[str, Array]:
    """Total path cost (length x flow) of each vector: least possible, and predicted."""
    best = instance.find_optimal(vectors, objective="cost").cost
    assert best is not None
    demands = vectors[:, instance.path_demand]
    return {
        "optimal_cost": best,
        "predicted_cost": np.asarray((demands * splits) @ instance.path_length),
    }


def cost_gaps(arrays: Mapping[str, Array]) -> dict[str, float]:
    """Mean share by which the cost of a router exceeds the least possible."""
    share = (arrays["predicted_cost"] / arrays["optimal_cost"]).mean()
    return {"mean_cost_gap": float(share) - 1.0}
