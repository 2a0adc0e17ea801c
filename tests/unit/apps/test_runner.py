"""What the runner owns: threads, time, interrupts, and what a folder knows of its run."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cg4ai.apps import runner
from cg4ai.apps.protocol import TrainingTask
from cg4ai.clock import Deadline, Review
from cg4ai.errors import InvalidInput, InvalidSettings, RunFolderError
from cg4ai.routing.app import Routing
from cg4ai.routing.prove import attack
from cg4ai.routing.settings import Guarantee, RouteSettings
from cg4ai.settings import RunOptions, Settings
from raising import raises
from small_network import NETWORK

pytestmark = pytest.mark.usefixtures("quick_evaluation")

TINY: dict[str, Any] = {
    "demands": 2,
    "scenarios": 20,
    "priced": 30,
    "first_steps": 30,
    "later_steps": 20,
    "rounds": 2,
    "batch_size": 32,
    "validation": 100,
}


@pytest.fixture
def network(tmp_path: Path) -> str:
    (tmp_path / "small.json").write_text(json.dumps(NETWORK))
    return str(tmp_path / "small.json")


@pytest.mark.parametrize(
    ("told", "cores", "threads"),
    [("1", 8, 1), ("3", 1, 3), ("", 8, 2), ("", 1, 1), ("none", 1, 1)],
)
@pytest.mark.parametrize("load", [0.1, 30.0])
def test_threads_follow_the_environment_and_the_cores_but_not_their_load(
    monkeypatch: pytest.MonkeyPatch, told: str, cores: int, load: float, threads: int
) -> None:
    """Sums depend on how many threads share them: a busy machine had other results."""
    monkeypatch.setenv("OMP_NUM_THREADS", told)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)))
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert runner.usual_threads() == threads


def test_a_resumed_run_keeps_its_threads(
    network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    runner.perform(Routing(), RouteSettings(network=network, **TINY), out=tmp_path / "run")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    chosen = runner.choose_settings(Routing(), {}, RunOptions(out=tmp_path / "run", resume=True))
    assert chosen.settings.threads == 1


def test_a_folder_knows_its_settings_and_which_may_change(network: str, tmp_path: Path) -> None:
    options = RunOptions(out=tmp_path / "run", resume=True)
    with raises(RunFolderError, "bad-file"):
        runner.choose_settings(Routing(), {}, options)
    app, asked = Routing(), RouteSettings(network=network, threads=1, **TINY)
    whole = runner.perform(app, asked, out=tmp_path / "run")
    alone = runner.choose_settings(app, {}, options)
    assert alone.settings == asked
    Path(network).unlink()
    again = runner.perform(
        app, alone.settings, out=tmp_path / "run", resume=True, described=alone.described
    )
    assert again.result.objective == whole.result.objective
    other = runner.choose_settings(app, {"seed": 1}, options)
    assert other.described is None  # whoever names settings names the network, too
    longer = runner.choose_settings(app, {"time_limit_s": 9.0}, options)
    assert longer.described is not None


def test_the_router_is_saved_before_it_is_evaluated_and_nothing_else_is_trained(
    network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proven router came back minutes late, since plain networks were trained beside it."""
    from cg4ai.routing import evaluate

    said: list[str] = []

    class Listening(runner.Screen):
        def message(self, text: str) -> None:
            if text.startswith("evaluating"):
                assert (tmp_path / "run" / "ensemble.json").exists()
                said.append(text)

    def refused(*given: object) -> None:
        raise AssertionError("plain networks were not asked for")

    monkeypatch.setattr(evaluate, "plain_router", refused)
    settings = RouteSettings(network=network, threads=1, **TINY)
    outcome = runner.perform(Routing(), settings, out=tmp_path / "run", screen=Listening())
    steps = [text.split(":")[1].split()[0] for text in said]
    # of vectors, by mixes of them, and from the optimum over all paths
    assert steps == ["distance", "distance", "distance", "the", "speed"]
    assert "plain_worst_utilisation" not in outcome.summary


@pytest.fixture
def own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits count this process's own time, whatever else the machine does."""
    monkeypatch.setattr(time, "perf_counter", time.process_time)


@pytest.mark.usefixtures("own_time")
def test_a_time_limit_bounds_training_and_evaluation_and_says_what_was_cut(
    network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 3.0
    monkeypatch.setattr(attack, "ATTACK_STARTS", 3 * 10**6)
    endless = {**TINY, "first_steps": 10**7, "validation": 10**6}
    asked = RouteSettings(network=network, threads=1, time_limit_s=limit, **endless)
    started = time.perf_counter()
    outcome = runner.perform(Routing(), asked)
    assert time.perf_counter() - started <= 1.1 * limit + 0.5
    cut = " ".join(outcome.summary["cut"])
    assert "validation, to" in cut
    assert outcome.summary["mean_mlu_gap"] >= -1e-7
    assert Routing().story(outcome.summary).first[0].startswith("Cut short by the time limit")


@pytest.mark.slow
@pytest.mark.guard
@pytest.mark.usefixtures("own_time")
def test_plain_networks_train_no_longer_than_ours_did_under_a_limit(network: str) -> None:
    """They took all steps of a training that the clock had ended early: a minute too many."""
    limit = 10.0
    endless = {**TINY, "first_steps": 10**7, "later_steps": 10**7, "baseline": True}
    asked = RouteSettings(network=network, threads=1, time_limit_s=limit, **endless)
    started = time.perf_counter()
    outcome = runner.perform(Routing(), asked)
    assert time.perf_counter() - started <= 1.1 * limit + 0.5
    cut = " ".join(outcome.summary["cut"])
    assert "plain_worst_utilisation" in outcome.summary or "plain networks" in cut


def test_what_time_does_not_allow_is_noted_instead() -> None:
    said: list[str] = []
    review = Review(Deadline(0.0), said.append)
    assert not review.begin_step("speed")
    assert (review.cut, said) == (["speed"], [])
    assert Review(Deadline(math.inf), said.append).begin_step("speed")
    assert said == ["evaluating: speed"]


def test_a_step_known_to_take_longer_than_is_left_does_not_begin() -> None:
    review = Review(Deadline.after(5.0))
    assert review.begin_step("one", needed=1.0)
    assert not review.begin_step("other", needed=6.0)
    assert review.cut == ["other"]


def test_portions_grow_as_far_as_they_can_be_expected_to_fit() -> None:
    assert list(Review().iterate_portions("attack")) == [1.0]
    ample = Review(Deadline.after(1000.0))
    assert list(ample.iterate_portions("attack")) == [0.001, 0.01, 0.04, 0.16, 1.0]
    assert ample.cut == []
    over = Review(Deadline(0.0))
    assert list(over.iterate_portions("attack")) == [0.001]
    assert over.cut == ["attack, to 0.1 % of its effort"]


def test_a_second_ctrl_c_while_the_first_is_answered_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Pressed(io.StringIO):
        def write(self, text: str) -> int:
            os.kill(os.getpid(), signal.SIGINT)
            return super().write(text)

    shown = Pressed()
    monkeypatch.setattr(sys, "stderr", shown)
    begun, later = tmp_path / "begun", tmp_path / "later"
    begun.mkdir()
    (begun / "run.json").write_text("{}")
    runner.print_interrupted("route", begun)
    assert shown.getvalue() == f"interrupted; continue with: cg4ai route --resume --out {begun}\n"
    runner.print_interrupted("route", later)  # there is nothing yet that could be continued
    assert shown.getvalue().endswith("interrupted before there was anything to save\n")


def test_options_that_contradict_each_other_are_told_together() -> None:
    with pytest.raises(InvalidSettings) as caught:
        RunOptions(resume=True, force=True)
    assert "one of them" in str(caught.value)
    assert "need --out" in str(caught.value)


@pytest.mark.parametrize(
    ("limit", "most", "left"),
    [(300.0, 30.0, 265.0), (100.0, 30.0, 75.0), (1.0, 30.0, 0.0), (math.inf, math.inf, math.inf)],
)
def test_training_gets_what_the_limit_leaves_after_the_evaluation(limit, most, left):
    task = TrainingTask(None, Settings(time_limit_s=math.inf), "", evaluation_most_s=most)
    assert runner._within(task, limit, 5.0).time_limit_s == pytest.approx(left)


@pytest.mark.parametrize("guarantee", ["shielded", "attacked"])
def test_a_problem_that_is_refused_leaves_the_earlier_run_as_it_was(
    network: str, tmp_path: Path, guarantee: Guarantee
) -> None:
    """The folder had been emptied by then: a router was lost for demands that none can carry."""
    asked = RouteSettings(network=network, threads=1, guarantee=guarantee, **TINY)
    runner.perform(Routing(), asked, out=tmp_path / "run")
    before = _files(tmp_path / "run")
    most = {"demands": {"a": {"d": 400.0}, "b": {"d": 200.0}}}
    Path(network).write_text(json.dumps({**NETWORK, "graph": most}))
    hopeless = replace(asked, load=None)
    with pytest.raises(InvalidInput):
        runner.perform(Routing(), hopeless, out=tmp_path / "run", force=True)
    assert _files(tmp_path / "run") == before
    with pytest.raises(InvalidInput):
        runner.perform(Routing(), hopeless, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_was_studied_of_an_earlier_run_goes_with_it(network: str, tmp_path: Path) -> None:
    asked = RouteSettings(network=network, threads=1, **TINY)
    runner.perform(Routing(), asked, out=tmp_path / "run")
    study = tmp_path / "run" / "failures"
    study.mkdir()
    (study / "failures.json").touch()
    runner.perform(Routing(), asked, out=tmp_path / "run", force=True)
    assert not study.exists()


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
