"""A router that reads windows, judged on later matrices beside DOTE and what knows as little.

DOTE (Perry and others, NSDI 2023) is implemented anew from its description: a plain fully connected
network reads the window and is trained on the utilisation of the next matrix, without a guarantee.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from cg4ai import Ensemble, Problem, Result
from cg4ai.apps import Evaluation
from cg4ai.clock import Review
from cg4ai.colgen import Epigraph, GradientPricer, Training, derive_seed
from cg4ai.data import Array, IntArray
from cg4ai.guarantees import Strength
from cg4ai.members import NetworkArchitecture, Part
from cg4ai.routing.demands.history import MeasuredHistory, make_windows
from cg4ai.routing.demands.measured import MeasuredTraffic
from cg4ai.routing.evaluate import conclude_evaluation, count_trained_groups, describe_run
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.operate.churn import CHURN, ChurnLimit
from cg4ai.routing.operate.later_traffic import LaterComparison
from cg4ai.routing.options import HISTORY
from cg4ai.routing.pages.judged_traffic import DOTE, FIXED, OURS
from cg4ai.routing.pages.link_loads import WorstLoads
from cg4ai.routing.settings import RouteSettings
from cg4ai.routing.train.history_problem import REACH, HistoryPairs, pair_windows
from cg4ai.routing.train.problem import first_request
from cg4ai.routing.train.utilisation import Utilisation

INVENTED = 2000  # windows, most of them unlike any measured one, at which the shield is measured
DOTE_HIDDEN, DOTE_RATE, DOTE_BATCH = (128,) * 5, 1e-3, 32
DOTE_LENGTHS = (0.125, 0.5, 1.0)  # shares of our steps; the held-out matrices choose


def evaluate_history(
    instance: Instance,
    settings: RouteSettings,
    problem: Problem,
    result: Result,
    *,
    measured: MeasuredTraffic,
    history: MeasuredHistory,
    review: Review,
) -> Evaluation:
    """Ratios on later matrices, and the largest utilisation of any returned split over the set.

    The latter is exact for each split: in a box all links are fullest at the corner.
    """
    router = result.ensemble
    later = LaterComparison(instance, measured, review, history)
    features = history.later_features[later.at]
    given = router.evaluate(features)
    later.judge_splits(OURS, given.outputs)
    changes = {}
    if settings.churn is not None and review.begin_step("successive answers under --churn"):
        limit = ChurnLimit(instance, settings.churn, corner=instance.demand_max)
        every = history.later_features
        changes = {CHURN: later.judge_changes(limit, lambda some: router.predict(every[some]))}
    fixed = problem.start[0][0].outputs(torch.as_tensor(features))[0].cpu().numpy()
    later.judge_splits(FIXED, fixed)
    if settings.baseline and review.begin_step("a plain network on the window, to compare"):
        later.judge_splits(DOTE, train_dote(instance, settings, problem, result, history, later.at))
    later.compare(review)
    worst, invented = WorstLoads(instance), invent_windows(instance, settings.seed)
    theirs = router.evaluate(invented)
    splits = np.concatenate([given.outputs, theirs.outputs])
    corner = np.broadcast_to(instance.demand_max, (len(splits), len(instance.demand_max)))
    worst.update(corner, splits)
    plain = router.unshielded.predict(invented, outside="ignore")
    unshielded = instance.compute_utilisation(corner[: len(plain)], plain).max()
    moved = given.theta > 0
    shield = {
        "acting": float(moved.mean()),
        "mean_theta": float(given.theta[moved].mean()) if moved.any() else 0.0,
        "largest_theta": float(given.theta.max()),
        "inputs": len(invented),
        "adversarial_acting": float((theirs.theta > 0).mean()),
        "worst": float(worst.links.max()),
        "worst_unshielded": float(unshielded),
    }
    fitted = len(history.follows) - len(problem.objective.inputs)
    summary: dict[str, Any] = {
        **describe_run(instance, settings, problem, result),
        "agent_scope": settings.agent_scope,
        "worst_utilisation": float(worst.links.max()),
        "strength": Strength.SHIELDED,
        "attack": {},
        "validation": len(later.at),
        "unrouted": instance.compute_unrouted(splits),
        "shield": shield,
        "traffic": later.found,
        **changes,
        HISTORY: {"length": history.length, "learned": fitted, "held_out": len(history.follows)},
    }
    summary[HISTORY]["held_out"] -= fitted
    return conclude_evaluation(summary, later.arrays, worst)


def invent_windows(instance: Instance, seed: int) -> Array:
    """Summaries of windows (n, 4 D) within and far beyond the set, zero and the largest among them.

    Not all are of a real window: what the rules say they say of any numbers.
    """
    random = np.random.default_rng(derive_seed(seed, 0, "windows"))
    upper = np.tile(instance.demand_max, 4)
    size = 10.0 ** random.uniform(-3, math.log10(REACH), (INVENTED - 2, 1))
    drawn = random.uniform(0, 1, (INVENTED - 2, len(upper))) ** 3 * size
    return np.concatenate([np.minimum(drawn, REACH) * upper, 0 * upper[None], REACH * upper[None]])


def train_dote(
    instance: Instance,
    settings: RouteSettings,
    problem: Problem,
    result: Result,
    history: MeasuredHistory,
    at: IntArray,
) -> Array:
    """Splits (n, P) for the later vectors at positions `at` (n,), without any guarantee.

    Trained for as many steps as our networks together at most; the held-out matrices choose among
    three lengths of training.
    """
    pairs = pair_windows(instance, history)
    windows = make_windows(history.before, history.length)[pairs.follows - history.length]
    inputs = windows.reshape(len(windows), -1)
    fit = slice(0, pairs.fitted)
    groups = tuple(len(block) for block in instance.blocks)
    network = NetworkArchitecture(
        inputs.shape[1],
        len(instance.path_demand),
        hidden=DOTE_HIDDEN,
        output="grouped",
        groups=groups,
        scale=np.full(inputs.shape[1], instance.demand_max.max()),
    )
    ours = problem.pricers[0]
    assert isinstance(ours, GradientPricer)
    steps = ours.training.steps * max(1, count_trained_groups(result))
    plain = GradientPricer(
        network,
        restarts=1,
        training=Training(steps, learning_rate=DOTE_RATE, schedule="onecycle"),
        batch_size=DOTE_BATCH,
        blend=1.0,
        finish=0.0,
    )
    objective = Epigraph(inputs[fit], Utilisation(instance), targets=pairs.targets[fit])
    stated = Problem(objective, (), (plain,), problem.layout)
    seed = derive_seed(settings.seed, 0, "DOTE")
    asked = first_request(stated, seed=seed, device=settings.device, attacked=False)
    found: list[tuple[float, Ensemble]] = []
    for share in DOTE_LENGTHS:
        length = max(1, round(share * steps))
        made = replace(plain, training=replace(plain.training, steps=length)).price(asked)
        assert made.members is not None
        part = Part(made.members, made.blocks, np.ones(1))
        router = Ensemble((part,), problem.layout, device=settings.device)
        found.append((_held_out_mean(instance, router, inputs, pairs), router))
    best = min(found, key=lambda one: one[0])[1]
    after = history.windows[at]
    return np.asarray(best.predict(after.reshape(len(after), -1), outside="ignore"))


def _held_out_mean(
    instance: Instance, router: Ensemble, inputs: Array, pairs: HistoryPairs
) -> float:
    splits = router.predict(inputs[pairs.fitted :], outside="ignore")
    return float(
        instance.compute_utilisation(pairs.targets[pairs.fitted :], splits).max(axis=1).mean()
    )
