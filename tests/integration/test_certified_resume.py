"""A certified run killed at any moment and resumed ends with the identical router and proof."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest
import torch

from cg4ai.proofs.certificate import write_certificate
from cg4ai.proofs.phase import ProofRecipe
from cg4ai.proofs.pricer import ProofTraining
from cg4ai.routing import instance
from cg4ai.routing.prove.guarantee import train_certified
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.problem import capacity, routing_problem, routing_settings
from cg4ai.runs.folder import Run
from cg4ai_checker import check

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and POSIX signals"),
    pytest.mark.slow,
    pytest.mark.guard,
]
KILLS = 20
RECIPE = Recipe(scenarios=10, priced=20, hidden=(3,), first_steps=40, later_steps=1, batch_size=32)
# proven at once, and improved for some rounds all the same
PROOF = ProofRecipe(rounds=5, cells=20_000, close=-1e-9)
TRAINING = ProofTraining(steps=20, batch_size=32, cells=16)
ENDED = ("ensemble.json", "members.json", "members.safetensors", "certificate.cg4ai")


def train(folder: Path) -> None:
    """Start or resume the run, and save router and certificate as its ending does."""
    torch.set_num_threads(1)
    made = instance("abilene", 5, 3)
    exists = (folder / "run.json").exists()
    with Run.open(folder) if exists else Run.create(folder, "route", {"seed": 0}) as run:
        outcome = train_certified(
            routing_problem(made, RECIPE),
            routing_settings(made, RECIPE),
            recipe=PROOF,
            training=TRAINING,
            run=run,
        )
    outcome.result.ensemble.save(folder)
    write_certificate(
        folder / "certificate.cg4ai",
        outcome.result.ensemble,
        requirement=capacity(made, RECIPE),
        certification=outcome.certification,
    )


def in_child(folder: Path, *, killed_after: float = 0.0) -> tuple[bool, float]:
    """Whether a process that trains came to its end, and its processor time.

    It is killed after so many seconds of that, which do not depend on what else the machine does.
    """
    process = os.fork()
    if process == 0:
        code = 1
        try:
            signal.setitimer(signal.ITIMER_PROF, killed_after)  # SIGPROF kills; 0: it never comes
            train(folder)
            code = 0
        finally:
            os._exit(code)
    _, status, used = os.wait4(process, 0)
    if not os.WIFSIGNALED(status):
        assert os.waitstatus_to_exitcode(status) == 0
    return not os.WIFSIGNALED(status), used.ru_utime + used.ru_stime


def outcome(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ENDED if (folder / name).exists()}


def test_kills_at_random_moments(tmp_path: Path) -> None:
    ended, seconds = in_child(tmp_path / "whole")
    assert ended
    expected = outcome(tmp_path / "whole")
    assert "certificate.cg4ai" in expected
    check(tmp_path / "whole" / "certificate.cg4ai")
    with Run.open(tmp_path / "whole", read_only=True) as run:
        assert len(run.history()) >= 3
    draw = random.Random(1)
    landed = 0
    for number in range(KILLS):
        folder = tmp_path / str(number)
        # one moment from each slice of the run, so that kills land all over it
        delay = seconds * (number + draw.random()) / KILLS
        landed += not in_child(folder, killed_after=max(delay, 1e-6))[0]
        assert in_child(folder)[0]
        assert outcome(folder) == expected, f"kill {number}"
    assert landed >= KILLS // 2
