"""Routers are trained and evaluated in a moment: their effort is constants of the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cg4ai.routing import evaluate
from cg4ai.routing.operate import answers
from cg4ai.routing.pages import explorer
from cg4ai.routing.prove import attack
from cg4ai.routing.train import effort, rare_demands, traffic_problem

QUICK = {
    effort: {"SHIELD_INPUTS": 400, "TIMED_VECTORS": 20, "TIGHT_VECTORS": 50, "CLIMBED": 400},
    attack: {"ATTACK_STARTS": 4, "ATTACK_STEPS": 10, "ATTACK_VECTORS": 200, "NLOPT_STARTS": 1},
    # of training: where rare demands, prices and cases to look at are searched
    rare_demands: {"SCREENED": 20_000},
    traffic_problem: {"SCREENED_PATHS": 20_000, "PRICED_OF_SET": 20},
    answers: {"LOOKED_AT": 1000, "SOLVED_AT_ONCE": 50, "ROUNDS": 2},
    evaluate: {"ROUNDED": 500, "ALONE": 20},
    explorer: {"SCREENED": 300, "CLIMBED": 5},
}


@contextmanager
def evaluate_quickly() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        for module, constants in QUICK.items():
            for name, value in constants.items():
                patch.setattr(module, name, value)
        yield patch
