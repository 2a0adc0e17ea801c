"""Evaluations of routers in a moment: their effort is constants of the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cg4ai.routing.prove import attack
from cg4ai.routing.train import effort

FEW = {"SHIELD_INPUTS": 400, "TIMED_VECTORS": 20, "TIGHT_VECTORS": 50}
WEAK = {"ATTACK_STARTS": 4, "ATTACK_STEPS": 10, "ATTACK_VECTORS": 200, "NLOPT_STARTS": 1}


@contextmanager
def evaluate_quickly() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        for module, constants in ((effort, FEW), (attack, WEAK)):
            for name, value in constants.items():
                patch.setattr(module, name, value)
        yield patch
