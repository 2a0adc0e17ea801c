"""`python -m experiments.single brute|digits|routing`: one model in place of a mixture."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import typer

from cg4ai import Result, StopReason, solve
from cg4ai.compile.problem import Problem
from cg4ai.records import IterationRecord
from cg4ai.routing.app import Routing
from cg4ai.routing.settings import RouteSettings
from cg4ai.settings import Settings
from experiments.command import KEPT, NOT_KEPT, Seed, command, say
from experiments.digits.app import DigitsApplication
from experiments.digits.settings import DigitsSettings
from experiments.single.cases import SETTINGS, brute_force, random_case

CLOSE = 1e-6


@dataclass
class Agreement:
    """How many random cases agree with brute force, and what they were."""

    wrong: int = 0
    best: int = 0
    impossible: int = 0
    only_mixtures: int = 0


def brute(cases: int, first: int) -> Agreement:
    found = Agreement()
    for seed in range(first, first + cases):
        case = random_case(seed)
        best = brute_force(case).objective
        result = solve(case.problem, SETTINGS)
        assert result.single is not None
        if best is None:
            mixture = solve(case.problem, replace(SETTINGS, single_model=False))
            found.impossible += 1
            found.only_mixtures += mixture.feasible
            right = result.stop_reason is StopReason.INFEASIBLE and not result.feasible
        else:
            found.best += 1
            right = (
                result.stop_reason is StopReason.OPTIMAL
                and result.feasible
                and abs(result.objective - best) <= CLOSE
            )
        if not right:
            found.wrong += 1
            say(f"case {seed}: brute force {best}, {result.single}")
    return found


def digits(rule: Literal["margin", "probability"], seed: int) -> None:
    app = DigitsApplication()
    asked = DigitsSettings(scenario="hard", n=100, rule=rule, single_model=True, seed=seed)
    prepared = app.prepare(asked, None)
    task = app.problem(prepared)
    result = _solved(task.problem, task.settings)
    images, labels = prepared.split.test_images, prepared.split.test_labels
    answered = result.ensemble.predict(images).argmax(1)
    print(f"digits n = 100, {rule} rule, seed {seed}: {result.single}")
    print(f"  test accuracy {100 * float((answered == labels).mean()):.2f} %")


def routing(guarantee: Literal["attacked", "shielded"], seed: int) -> None:
    app = Routing()
    asked = RouteSettings(
        network="abilene",
        demands=5,
        paths=3,
        path_choice="shortest",
        guarantee=guarantee,
        single_model=True,
        seed=seed,
    )
    task = app.problem(app.prepare(asked, None))
    result = _solved(task.problem, task.settings)
    print(f"abilene 5/3, {guarantee}, seed {seed}: {result.single}")
    for audit in result.audits:
        print(f"  {audit}")


def _solved(problem: Problem, settings: Settings) -> Result:
    started = time.process_time()

    def told(record: IterationRecord) -> None:
        say(
            f"{record.iteration}: objective {record.objective:.5g}, slack {record.slack:.3g}, "
            f"{record.columns} columns, {time.process_time() - started:.0f} s {record.note}"
        )

    result = solve(problem, settings, progress=told)
    stops = Counter(record.note for record in result.history[-1:])
    print(f"{time.process_time() - started:.0f} s of one processor, ended: {next(iter(stops))}")
    return result


def work(
    what: Annotated[str, typer.Argument(help="brute, digits or routing.")],
    cases: Annotated[int, typer.Option(help="Random cases of brute.")] = 200,
    seed: Seed = 0,
) -> None:
    """One model in place of a mixture, beside brute force or the mixture's bound."""
    if what == "brute":
        found = brute(cases, seed)
        print(
            f"{cases} random finite classes of 1 to 3 blocks: {found.wrong} differ from brute "
            f"force; {found.best} have a best choice, {found.impossible} none (of these "
            f"{found.only_mixtures} a mixture that meets the rows)"
        )
        raise typer.Exit(NOT_KEPT if found.wrong else KEPT)
    if what == "digits":
        digits("margin", seed)
        digits("probability", seed)
    elif what == "routing":
        routing("attacked", seed)
        routing("shielded", seed)
    else:
        raise typer.BadParameter(f"{what!r} is none of brute, digits, routing")


if __name__ == "__main__":
    raise SystemExit(command(work, "python -m experiments.single", "brute --cases 200"))
