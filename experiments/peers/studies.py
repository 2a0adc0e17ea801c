"""The studies: which methods meet on which problem, with which seeds and how many steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from experiments.peers import (
    cells,
    ellipsoid_peers,
    layers,
    ours,
    piecewise_peers,
    quadratic_peers,
    routers,
)
from experiments.peers.cells import Cell
from experiments.peers.ellipsoid import convex_task
from experiments.peers.outcomes import OURS, Outcome
from experiments.peers.piecewise import NAMES, piecewise
from experiments.peers.quadratic import QuadraticProblem, generated, loaded
from experiments.peers.training import Recipe

Work = Callable[[int], Outcome]  # of a seed


@dataclass(frozen=True)
class Asked:
    """What the command asks of every study."""

    seeds: Sequence[int]
    quick: bool
    only: str
    data: Path | None
    say: Callable[[str], None]
    keep: Callable[[Outcome], None]
    jobs: int = 1
    known: Sequence[Outcome] = ()

    def steps(self, usual: int) -> int:
        return 50 if self.quick else usual

    def run(self, method: str, work: Work, *, once: bool = False) -> Iterator[Outcome]:
        """One outcome per seed, or a single one where no seed matters."""
        if self.only.lower() not in method.lower():
            return
        for seed in [0] if once else self.seeds:
            outcome = work(seed)
            self.tell(outcome)
            yield outcome

    def measure(self, every: Sequence[Cell]) -> list[Outcome]:
        """Those cells that are asked for, several at a time; what is known is not run again."""
        known = {one.key: one for one in self.known}
        asked = [cell for cell in every if self.only.lower() in cell.method.lower()]
        missing = [cell for cell in asked if cell.key not in known]
        found = [known[cell.key] for cell in asked if cell.key in known]
        for outcome in cells.measured(missing[:2] if self.quick else missing, self.jobs):
            self.tell(outcome)
            found.append(outcome)
        return found

    def tell(self, outcome: Outcome) -> None:
        """Keep it at once: what comes later may be interrupted."""
        self.keep(outcome)
        shown = ", ".join(f"{name} {value:.3g}" for name, value in outcome.figures.items())
        self.say(f"{outcome.task}: {outcome.method}, seed {outcome.seed}: {shown or outcome.note}")


def qp(asked: Asked) -> list[Outcome]:
    """DC3's convex and non-convex problem."""
    recipe = Recipe(steps=asked.steps(3000))
    found: list[Outcome] = []
    for convex in (True, False):
        problem = _quadratic(asked, convex=convex)
        found += asked.run(OURS, partial(ours.quadratic, problem, recipe))
        for method in ("DC3", "HardNet"):
            found += asked.run(
                method, partial(quadratic_peers.learned, problem, recipe, method=method)
            )
        found += asked.run("affine rule", partial(quadratic_peers.affine_rule, problem), once=True)
        found += asked.run("OSQP", partial(quadratic_peers.solver, problem), once=True)
    return found


def _quadratic(asked: Asked, *, convex: bool) -> QuadraticProblem:
    if asked.data is not None:
        return loaded(asked.data, convex=convex)
    return generated(0, convex=convex, tests=16 if asked.quick else 256)


def rayen(asked: Asked) -> list[Outcome]:
    """Projections onto a set of linear and quadratic rules; a task of its own for each seed."""
    recipe = Recipe(steps=asked.steps(3000))
    methods = {
        OURS: ours.ellipsoid,
        "RAYEN": ellipsoid_peers.rayen,
        "penalty, then cvxpylayers": ellipsoid_peers.projected,
    }
    found: list[Outcome] = []
    for equality in (False, True):
        tasks = {seed: convex_task(seed, equality=equality) for seed in asked.seeds}
        for method, work in methods.items():
            found += asked.run(method, lambda seed, w=work, t=tasks: w(t[seed], recipe, seed))  # type: ignore[misc]
    return found


def hardnet(asked: Asked) -> list[Outcome]:
    """Functions between bounds that change from piece to piece."""
    recipes = {
        "HardNet, as published": Recipe(steps=asked.steps(1000), rate=1e-4, cycle=False),
        "HardNet, trained as ours": Recipe(steps=asked.steps(2000)),
    }
    found: list[Outcome] = []
    for name in NAMES:
        task = piecewise(name)
        found += asked.run(OURS, partial(ours.piecewise, task, Recipe(steps=asked.steps(2000))))
        for method, recipe in recipes.items():
            work = partial(piecewise_peers.hardnet, task, recipe=recipe, method=method)
            found += asked.run(method, work)
    return found


def layers_alone(asked: Asked) -> list[Outcome]:
    """One network in one plain torch loop: which layer stands at its end is all that differs."""
    found: list[Outcome] = []
    longer, shorter = Recipe(steps=asked.steps(3000)), Recipe(steps=asked.steps(2000))
    for equality in (False, True):
        tasks = {seed: convex_task(seed, equality=equality) for seed in asked.seeds}
        for method in (layers.LAYER, layers.RAYEN, layers.NONE):
            found += asked.run(
                method,
                lambda seed, m=method, t=tasks: layers.ellipsoid(t[seed], longer, m, seed),  # type: ignore[misc]
            )
    for convex in (True, False):
        problem = _quadratic(asked, convex=convex)
        for method in (layers.LAYER, layers.HARDNET, layers.NONE):
            found += asked.run(method, partial(layers.quadratic, problem, longer, method))
    for name in NAMES:
        for method in (layers.LAYER, layers.HARDNET, layers.NONE):
            found += asked.run(method, partial(layers.piecewise, piecewise(name), shorter, method))
    return found


def routing(asked: Asked) -> list[Outcome]:
    """Ours as it comes, and Cooper for as long, on three networks."""
    found: list[Outcome] = []
    for configuration in routers.CONFIGURATIONS[: 1 if asked.quick else None]:
        for seed in asked.seeds:
            done = routers.compared(configuration, seed, quick=asked.quick)
            for outcome in done:
                asked.tell(outcome)
            found += done
    return found
