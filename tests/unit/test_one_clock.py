"""What comes out depends on no clock but where a time limit cuts, and then the first line says so.

The package's clock is put in place of the wall's: one that runs twenty times faster, or one that is
moved by hand.
"""

from __future__ import annotations

import ast
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cg4ai
from cg4ai import ConstrainedRegressor, FitWarning, Settings, clock, solve
from cg4ai.apps import runner
from cg4ai.clock import Deadline, Review
from cg4ai.colgen.pricing.defaults import PricerDefaults
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.compile.problem import Problem
from cg4ai.errors import TimeIsOver
from cg4ai.layout import Layout
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.objectives import Supervised
from cg4ai.proofs.phase import ProofRecipe
from cg4ai.proofs.pricer import ProofTraining
from cg4ai.proofs.solve_certified import solve_certified
from cg4ai.records import StopReason
from cg4ai.report.story import SavedRun
from cg4ai.report.write import tell_story
from cg4ai.routing.app import Routing
from cg4ai.routing.settings import RouteSettings
from cg4ai.rules import Box, Linear

pytestmark = pytest.mark.usefixtures("quick_evaluation")

PACKAGE = Path(cg4ai.__file__).parent
READINGS = {
    ("time", name) for name in ("perf_counter", "monotonic", "time", "process_time", "thread_time")
}
AMPLE = 1e6  # seconds that nothing here takes, at any speed


class Hand:
    """A clock that only moves when it is read, by `tick`, and when it is told to."""

    def __init__(self, tick: float = 0.0) -> None:
        self.seconds, self.tick = 100.0, tick

    def __call__(self) -> float:
        self.seconds += self.tick
        return self.seconds


@pytest.fixture
def faster(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes the package's clock run twenty times faster from now on."""

    def hurry() -> None:
        began, real = time.perf_counter(), time.perf_counter
        monkeypatch.setattr(clock, "now", lambda: began + 20 * (real() - began))
        since, wall = time.time(), time.time
        monkeypatch.setattr(clock, "wall", lambda: since + 20 * (wall() - since))

    return hurry


def test_the_clock_is_read_in_one_place() -> None:
    """The checker, which shares no code, has its own."""
    readers = []
    for file in PACKAGE.rglob("*.py"):
        place = file.relative_to(PACKAGE)
        if place.parts[0] == "checker" or place == Path("clock.py"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                named = (node.value.id, node.attr)
                readers += [f"{place}:{node.lineno}"] * (named in READINGS)
            if isinstance(node, ast.ImportFrom) and node.module == "time":
                readers.append(f"{place}:{node.lineno}")
    assert readers == []


# ---- the same bits on a slow and on a fast machine -----------------------------------------------


def certified_problem() -> tuple[Problem, NetworkArchitecture]:
    x = np.random.default_rng(0).uniform(0, 1, (40, 2))
    y = (x[:, :1] + x[:, 1:]) / 2
    network = NetworkArchitecture(2, 1, hidden=(6,), activation="relu")
    pricer = GradientPricer(network, restarts=1, training=Training(steps=60, learning_rate=0.05))
    rule = Linear(Box([0, 0], [1, 1]), [1.0], 0.7, "<=", name="cap")
    start = ((ConstantMembers(np.zeros((1, 1)), 2), np.zeros(1, np.int64)),)
    problem = Problem(Supervised(x, y, "squared"), [rule], [pricer], Layout.single(1), start=start)
    return problem, network


@pytest.mark.parametrize("limit", [math.inf, AMPLE])
def test_certified_training_does_not_depend_on_the_clock(
    limit: float, faster: Callable[[], None]
) -> None:
    def trained() -> Any:
        problem, network = certified_problem()
        settings = Settings(guarantee="attacked", time_limit_s=limit)
        recipe = ProofRecipe(rounds=3, cells=2000)
        training = ProofTraining(steps=30)
        return solve_certified(
            problem, settings, architecture=network, recipe=recipe, training=training
        )

    slow = trained()
    faster()
    fast = trained()
    assert same_bits(slow.result, fast.result)
    assert slow.certification.cells == fast.certification.cells
    assert slow.result.cut == fast.result.cut == ()


def test_proofs_after_a_fit_are_bounded_by_cells_and_not_by_seconds(
    faster: Callable[[], None],
) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    y = x[:, 0] + 0.5 * x[:, 1] ** 2
    # so close to what the members reach that cells stay open
    cap = Linear(Box([-1, -1], [1, 1]), [1.0], 0.6, "<=")

    def fitted() -> Any:
        model = ConstrainedRegressor(
            hidden=8, steps=60, iteration_limit=2, random_state=0, single_model=True
        )
        with pytest.warns(FitWarning):
            return model.fit(x, y, [cap]).result_

    slow = fitted()
    faster()
    fast = fitted()
    assert same_bits(slow, fast)
    assert [one.strength for one in slow.audits] == [one.strength for one in fast.audits]
    known = [{k: v for k, v in one.effort.items() if k != "seconds"} for one in slow.audits]
    assert known == [{k: v for k, v in one.effort.items() if k != "seconds"} for one in fast.audits]


def same_bits(one: Any, other: Any) -> bool:
    parts = zip(one.ensemble.used, other.ensemble.used, strict=True)
    return one.stop_reason == other.stop_reason and all(
        np.array_equal(a.weights, b.weights)
        and all(
            np.array_equal(array, b.members.state().arrays[name])
            for name, array in a.members.state().arrays.items()
        )
        for a, b in parts
    )


# ---- what a limit cuts is said first -------------------------------------------------------------


def test_a_limit_that_ends_training_is_in_the_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = Hand(tick=0.01)
    monkeypatch.setattr(clock, "now", hand)
    problem, _ = certified_problem()
    plain = Problem(problem.objective, (), problem.pricers, problem.layout)
    result = solve(plain, Settings(time_limit_s=1.0))
    assert result.stop_reason is StopReason.TIME_LIMIT
    assert any(one.startswith("training") for one in result.cut)
    assert str(result).splitlines()[0].startswith("Cut short by the time limit: training")


def test_a_training_that_time_ends_is_no_proof_that_nothing_improves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It said that training found no further member, whatever it might have found."""
    hand = Hand()
    monkeypatch.setattr(clock, "now", hand)
    problem, _ = certified_problem()

    class Late(PricerDefaults):
        """Finds nothing, because its time was over."""

        def price(self, request: Any) -> Any:
            found = problem.pricers[0].price(request)
            if request.iteration == 0:
                return found
            hand.seconds += 10.0
            return type(found)(None, found.blocks[:0], found.groups[:0])

    late = Problem(problem.objective, (), (Late(),), problem.layout)
    result = solve(late, Settings(time_limit_s=5.0, patience=1))
    assert result.stop_reason is StopReason.TIME_LIMIT
    assert result.cut[0].startswith("training")


def test_fitting_counts_what_states_the_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = Hand()
    monkeypatch.setattr(clock, "now", hand)
    given = ConstrainedRegressor.problem

    def slow(self: Any, *args: Any, **more: Any) -> Any:
        hand.seconds += 100.0
        return given(self, *args, **more)

    monkeypatch.setattr(ConstrainedRegressor, "problem", slow)
    x = np.linspace(0, 1, 40)[:, None]
    model = ConstrainedRegressor(steps=20, time_limit_s=50.0, random_state=0)
    with pytest.warns(FitWarning, match="time_limit_s=50"):
        model.fit(x, x[:, 0] ** 2)
    assert model.stop_reason_ is StopReason.TIME_LIMIT
    assert len(model.history_) == 1


# ---- stages --------------------------------------------------------------------------------------


def test_a_stage_that_takes_long_says_so_and_a_short_one_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clock, "LONG_S", 0.0)
    said: list[str] = []
    review = Review(say=said.append, what="preparing")
    with review.stage("paths of 5 demands"):
        while not said:
            time.sleep(0.001)
    assert said == ["preparing: paths of 5 demands"]
    monkeypatch.setattr(clock, "LONG_S", 60.0)
    with review.stage("something else"):
        pass
    assert len(said) == 1


def test_a_stage_ends_in_time_and_is_noted_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = Hand()
    monkeypatch.setattr(clock, "now", hand)
    said: list[str] = []
    review = Review(Deadline(110.0), said.append, what="preparing", latest=Deadline(120.0))
    with review.stage("prices") as stage, review.stage("paths", needed=True) as needed:
        assert stage.is_in_time(1, 10)
        hand.seconds = 106.0
        assert stage.is_in_time(4, 10)
        assert said == ["preparing: prices, 4 of 10"]
        hand.seconds = 110.0
        assert not stage.is_in_time(7, 10)
        assert review.cut == ["prices, to 7 of 10"]
        assert needed.is_in_time(3, 10)
        hand.seconds = 120.0
        with pytest.raises(TimeIsOver):
            needed.is_in_time(4, 10)
    assert review.run_step("speed", lambda: 1) is None
    assert review.cut[-1] == "speed"


def test_what_a_program_is_in_knows_its_limit() -> None:
    assert clock.review().deadline.compute_seconds_left() == math.inf
    with Review(Deadline(0.0)).activate():
        assert clock.review().deadline.passed
        with pytest.raises(TimeIsOver):
            clock.refuse_overtime("it")
    assert not clock.review().deadline.passed


# ---- preparation ---------------------------------------------------------------------------------


def towns(folder: Path, measured: int) -> dict[str, Any]:
    """A ring of towns with a chord, and traffic between them."""
    lines = ["source,target,capacity,length"]
    names = ["Arn", "Bur", "Cham", "Dorf", "Egg"]
    links = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 4)]
    lines += [f"{names[a]},{names[b]},30,10" for a, b in links]
    (folder / "towns.csv").write_text("\n".join(lines) + "\n")
    made = np.random.default_rng(0)
    matrices = made.lognormal(0, 0.4, (measured, 5, 5)) * (1 - np.eye(5))
    times = np.array([f"2026-03-{day + 1:02d}" for day in range(measured)])
    np.savez(folder / "traffic.npz", matrices=matrices, times=times, nodes=np.array(names))
    small = {"first_steps": 20, "later_steps": 10, "scenarios": 20, "validation": 20}
    few = {"rounds": 1, "threads": 1}
    files = {"network": str(folder / "towns.csv"), "traffic": str(folder / "traffic.npz")}
    return {**files, **small, **few}


def test_a_limit_bounds_the_preparation_and_what_there_is_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With measured traffic of 50 nodes nothing was said and nothing there after the limit."""
    from cg4ai.routing.train import anchors as robust
    from cg4ai.routing.train import optimal

    hand = Hand()
    monkeypatch.setattr(clock, "now", hand)
    best = optimal.best_split

    def slow(*args: Any, **more: Any) -> Any:
        hand.seconds += 60.0
        return best(*args, **more)

    monkeypatch.setattr(robust, "best_split", slow)
    asked = RouteSettings.from_mapping({**towns(tmp_path, 20), "time_limit_s": 100.0})
    outcome = runner.perform(Routing(), asked, out=tmp_path / "run")
    cut = outcome.summary["cut"]
    assert any("constant split" in one for one in cut)
    assert (tmp_path / "run" / "summary.json").exists()
    assert (tmp_path / "run" / "ensemble.json").exists()
    first = Routing().story(outcome.summary).first[0]
    assert first.startswith("Cut short by the time limit:")
    assert outcome.summary["strength"] == "shielded"
    assert tell_story(SavedRun(tmp_path / "run")).first[0] == first


def test_a_preparation_that_nothing_comes_out_of_ends_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cg4ai.routing.network import instance as data

    hand = Hand()
    monkeypatch.setattr(clock, "now", hand)
    shortest = data.shortest_paths

    def slow(*args: Any) -> Any:
        hand.seconds += 10.0
        return shortest(*args)

    monkeypatch.setattr(data, "shortest_paths", slow)
    asked = RouteSettings.from_mapping(
        {**towns(tmp_path, 20), "path_choice": "shortest", "time_limit_s": 50.0}
    )
    with pytest.raises(TimeIsOver):
        runner.perform(Routing(), asked, out=tmp_path / "run")
    assert hand.seconds <= 100.0 + 50.0
    assert not (tmp_path / "run").exists()
