"""One grid: trained, attacked, proven, and measured beside the optimum and the classical rule."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import cg4ai
from cg4ai.colgen import GradientPricer, Layout, Training
from cg4ai.data import Array
from cg4ai.errors import InvalidInput
from cg4ai.members import NetworkArchitecture
from experiments.opf.dispatch import Dispatch, Violation, measure_violation
from experiments.opf.optimum import Optima, find_optima, search_overload
from experiments.opf.participation import find_participation

HIDDEN = (64, 64)
RATE, BATCH = 3e-3, 256  # as in `experiments.peers`
UNIT = 0.3  # of a generator's range: the unit of what networks give
SINGLE = 200  # answers that are timed one by one
PART = 10_000  # loads at which violations are sought at a time
STARTS = 10  # of the search of loads that no dispatch can serve


@dataclass(frozen=True)
class Asked:
    """What a study is asked for."""

    steps: int
    seed: int
    tests: int
    looked_at: int
    proof_s: float
    device: str


@dataclass(frozen=True, eq=False)
class Trained:
    """A predictor of a grid's dispatch, and the processor seconds of anchor and training."""

    problem: Dispatch
    result: cg4ai.Result
    seconds: float

    def predict(self, loads: Array) -> Array:
        """(n, D) -> (n, G), MW."""
        outputs = self.result.ensemble.predict(self.problem.inputs(loads))
        return self.problem.dispatch(outputs)


def train(problem: Dispatch, asked: Asked) -> Trained:
    """One member behind the shield; balance completed, the anchor found. No labels.

    InvalidInput with the code "anchor" where no anchor is found.
    """
    started = time.process_time()
    region, balance = problem.region, problem.balance
    free = len(problem.span) - len(balance.matrix)
    architecture = NetworkArchitecture(
        len(problem.radius),
        free,
        hidden=HIDDEN,
        skip=True,
        output_scale=np.full(free, UNIT),
    )
    pricer = GradientPricer(
        architecture,
        restarts=1,
        training=Training(asked.steps, RATE, "onecycle"),
        batch_size=BATCH,
        blend=1.0,
        finish=0.0,
    )
    stated = cg4ai.Problem(
        cg4ai.Objective(region, problem.loss),
        [balance, problem.limits],
        [pricer],
        Layout.single(len(problem.span)),
        plain_first=False,
    )
    settings = cg4ai.Settings(
        seed=asked.seed,
        iteration_limit=1,
        device=asked.device,
        guarantee="shielded",
        estimate_restarts=0,  # nobody reads the estimated gap
    )
    result = cg4ai.solve(stated, settings)
    return Trained(problem, result, time.process_time() - started)


def study(problem: Dispatch, asked: Asked, say: Callable[[str], None]) -> dict[str, Any]:
    """One line of the table; all its times are of the processor."""
    grid, line = problem.grid, _describe(problem)
    rng = np.random.default_rng([asked.seed, 1])
    loads = problem.loads(rng.uniform(-1, 1, (asked.tests, len(problem.radius))))
    started = time.process_time()
    optima = find_optima(problem, loads)
    line["HiGHS ms"] = 1000 * (time.process_time() - started) / len(loads)
    say(f"{grid.name}: {len(loads)} optima, {line['HiGHS ms']:.2f} ms each")
    if optima.feasible.any():
        line |= _measure_participation(problem, loads, optima)
    try:
        trained = train(problem, asked)
    except InvalidInput as error:
        if error.code != "anchor":
            raise
        worst = search_overload(problem, starts=STARTS, seed=asked.seed)
        impossible = worst.share > 1e-6
        line["predictor"] = "impossible" if impossible else "no anchor found"
        say(f"{grid.name}: {error}")
        say(_tell_overload(problem, worst.loads, worst.share))
        return line
    line["predictor"] = "guaranteed"
    line["train s"] = trained.seconds
    note = [one for one in trained.result.note.split("; ") if "anchor" in one]
    line["anchor"] = "; ".join(note).removesuffix(", by closed form")
    above = _find_excess(grid.cost(trained.predict(loads)), optima)
    line |= {
        "mean %": float(above.mean()),
        "p99 %": float(np.percentile(above, 99)),
        "max %": float(above.max()),
    }
    say(f"{grid.name}: {above.mean():.4f} % above the optimum, {trained.seconds:.0f} s")
    found = search_violations(trained, asked)
    line |= {
        "line MW": found.line_mw,
        "line %": 100 * found.line_share,
        "generator MW": found.generator_mw,
        "balance MW": found.balance_mw,
    }
    line["certificate"] = prove(trained, asked.proof_s)
    return line | _time_answers(trained, loads)


def _describe(problem: Dispatch) -> dict[str, Any]:
    grid = problem.grid
    return {
        "grid": grid.name,
        "spread %": 100 * float(problem.spread),
        "buses": grid.buses,
        "generators": f"{int(problem.moving.sum())} of {len(grid.lower)}",
        "loads": len(grid.loads),
        "lines kept": f"{int(problem.kept.sum())} of {len(grid.rate)}",
        "costs": "linear" if grid.is_linear else "quadratic",
    }


def _measure_participation(problem: Dispatch, loads: Array, optima: Optima) -> dict[str, Any]:
    if problem.grid.islands > 1:
        return {}
    started = time.process_time()
    rule = find_participation(problem)
    seconds = time.process_time() - started
    if rule is None:
        return {"affine %": float("nan"), "affine s": seconds}
    above = _find_excess(problem.grid.cost(rule.dispatch(problem, loads)), optima)
    return {"affine %": float(above.mean()), "affine s": seconds}


def _find_excess(costs: Array, optima: Optima) -> Array:
    """Per cent above the optimum, where there is one."""
    known = optima.feasible
    best = optima.costs[known]
    return np.asarray(100 * (costs[known] - best) / np.abs(best))


def search_violations(trained: Trained, asked: Asked) -> Violation:
    """At random loads and corners, half of each, in MW and with all lines that have a limit."""
    problem, found = trained.problem, Violation(0.0, 0.0, 0.0, 0.0)
    rng = np.random.default_rng([asked.seed, 2])
    for first in range(0, asked.looked_at, PART):
        x = rng.uniform(-1, 1, (min(PART, asked.looked_at - first), len(problem.radius)))
        x[::2] = np.sign(x[::2])
        loads = problem.loads(x)
        found = found.join(measure_violation(problem.grid, trained.predict(loads), loads))
    return found


def prove(trained: Trained, seconds: float) -> str:
    """Whether the separate checker accepts certificates of balance and limits."""
    if not seconds:
        return "not asked"
    rules = (trained.problem.balance, trained.problem.limits)
    found = [cg4ai.certify(trained.result.ensemble, one, time_limit_s=seconds) for one in rules]
    open_ones = [
        f"{rule.name} {one.status}: {one.note}"
        for rule, one in zip(rules, found, strict=True)
        if one.status != "proven"
    ]
    return "; ".join(open_ones) or "accepted"


def _time_answers(trained: Trained, loads: Array) -> dict[str, float]:
    torch.set_num_threads(1)
    few = loads[:SINGLE]
    trained.predict(few[:1])
    started = time.process_time()
    for one in few:
        trained.predict(one[None])
    single = 1000 * (time.process_time() - started) / len(few)
    many = np.resize(loads, (1000, loads.shape[1]))
    trained.predict(many)
    started = time.process_time()
    trained.predict(many)
    return {"ms": single, "ms per 1,000": 1000 * (time.process_time() - started)}


def _tell_overload(problem: Dispatch, loads: Array, share: float) -> str:
    grid = problem.grid
    if share <= 1e-6:
        return (
            f"{grid.name}: dispatches exist at all loads that were searched, so that a predictor "
            "may exist that is not affine"
        )
    high = loads > grid.loads
    where = "all loads at an end of their range"
    if np.isinf(share):
        return f"{grid.name}: with {where} ({high.sum()} high) generators cannot balance the loads"
    return (
        f"{grid.name}: with {where} ({high.sum()} high) every dispatch overloads a line by "
        f"{100 * share:.3g} % or more: no predictor can keep the limits"
    )
