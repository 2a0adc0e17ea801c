"""A run that was cut short and resumed ends bit for bit like one that was left alone."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cg4ai import ConstrainedRegressor, Problem, Result, Settings, StopReason, solve
from cg4ai.colgen import restricted_master, snapshots
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.colgen.pricing.schedules import TwoStagePricer
from cg4ai.colgen.restricted_master import Workspace
from cg4ai.colgen.separation import GradientAscent
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.errors import RunFolderError
from cg4ai.estimators.holdout import HeldOutPricer
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, NetworkArchitecture
from cg4ai.members.modules import ModuleArchitecture
from cg4ai.objectives import Epigraph, Supervised
from cg4ai.records import IterationRecord
from cg4ai.rules import Box, Concave, Linear, Margin, Pool, Requirement
from cg4ai.runs.folder import Run
from raising import raises

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 2))
SETTINGS = Settings(iteration_limit=5, patience=1)


@pytest.fixture(autouse=True, scope="module")
def set_aside_soon() -> Iterator[None]:
    """Rows and columns without use leave HiGHS at once, and come back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restricted_master, "ROW_AGE_LIMIT", 1)
        patch.setattr(restricted_master, "COLUMN_AGE_LIMIT", 1)
        yield


QUICK = Training(steps=25, learning_rate=0.05)
SEARCH = GradientAscent(starts=2, steps=5)


def network(outputs: int, **options: Any) -> NetworkArchitecture:
    return NetworkArchitecture(2, outputs, hidden=(3,), activation="tanh", **options)


def linear_rows() -> Problem:
    """LinearMaster; a list, a pool and a box; several members a call."""
    targets = np.stack([X[:, 0] * X[:, 1], X[:, 0]], axis=1)
    rules = [
        Linear(X[:6], [1.0, 1.0], 0.2, slack="shared"),
        Linear(Pool(X), [1.0, -1.0], 1.0, "<="),
        Linear(Box([-1.0, -1.0], [1.0, 1.0]), [0.0, 1.0], -0.5, separator=SEARCH),
    ]
    pricer = GradientPricer(network(2), restarts=3, training=QUICK, warm_starts=1)
    return Problem(Supervised(X, targets), rules, [pricer], Layout.single(2))


def concave_rows() -> Problem:
    """ConvexMaster; margins, a concave rule over a list and one over a box."""
    labels = (X[:, 0] > 0).astype(np.int64)

    def spread(outputs: Tensor) -> Tensor:
        return 3.0 - outputs.square().sum(-1)

    rules: list[Requirement] = [
        Margin(X[:8], labels[:8], at_least=0.1, form="member"),
        Concave(X[8:12], spread, -1.0),
        Concave(Box([-1.0, -1.0], [1.0, 1.0]), spread, -1.0, separator=SEARCH),
    ]
    pricer = GradientPricer(network(2), restarts=2, training=QUICK, output_limit=5.0)
    objective = Supervised(X, labels, "cross_entropy", "mixture")
    return Problem(objective, rules, [pricer], Layout.single(2))


class Loads:
    """Two links, each used by one output of each of two blocks, scaled by the inputs."""

    count = 2

    def values(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        size = inputs.abs()
        first = size[:, 0] * outputs[..., 0] + size[:, 1] * outputs[..., 2]
        second = size[:, 0] * outputs[..., 1] + size[:, 1] * outputs[..., 3]
        return torch.stack([first, second], dim=-1)

    def coefficients(self, inputs: np.ndarray, which: np.ndarray) -> np.ndarray:
        size = np.abs(inputs)
        table = np.zeros((len(which), 4))
        table[np.arange(len(which)), which] = size[:, 0]
        table[np.arange(len(which)), which + 2] = size[:, 1]
        return table


def epigraph() -> Problem:
    """LinearMaster with lazily added pieces, two blocks, a group per restart and an anchor."""
    layout = Layout((np.array([0, 1]), np.array([2, 3])))
    box = Box([0.1, 0.1], [1.0, 1.0])
    objective = Epigraph(np.abs(X), Loads(), sampler=box.sample)
    pricer = GradientPricer(
        network(2, output="softmax"), restarts=2, group=2, training=QUICK, batch_size=16
    )
    anchor = (ConstantMembers(np.full((2, 2), 0.5), 2), np.array([0, 1]))
    rule = Linear(box, Loads(), 1.2, "<=", separator=SEARCH)
    return Problem(objective, [rule], [pricer], layout, start=[anchor])


def own_module() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))


def own_modules() -> Problem:
    """A user's module class, whose factory only the pricers within wrappers know."""
    architecture = ModuleArchitecture(own_module, 2, 2, "mine")
    training = replace(QUICK, weight_decay=(0.1, 0.0))
    pricer = GradientPricer(architecture, restarts=4, training=training)
    targets = np.stack([X[:, 0] * X[:, 1], X[:, 0]], axis=1)
    objective = Supervised(X[10:], targets[10:])
    held_out = HeldOutPricer(
        TwoStagePricer((pricer, pricer)), Supervised(X[:10], targets[:10]), X[10:]
    )
    rule = Linear(Box([-1.0, -1.0], [1.0, 1.0]), [0.0, 1.0], 0.5, separator=SEARCH)
    return Problem(objective, [rule], [held_out], Layout.single(2))


MAKERS: list[Callable[[], Problem]] = [linear_rows, concave_rows, epigraph, own_modules]


def solved(maker: Callable[[], Problem], folder: Path, **options: Any) -> Result:
    chosen = options.pop("settings", SETTINGS)
    exists = (folder / "run.json").exists()
    run = Run.open(folder) if exists else Run.create(folder, "test", chosen.as_dict())
    with run:
        return solve(maker(), chosen, run=run, **options)


def assert_identical(one: Result, other: Result) -> None:
    assert one.stop_reason is other.stop_reason
    assert one.objective == other.objective
    assert one.loss == other.loss
    assert one.rows == other.rows
    assert one.note == other.note
    assert len(one.ensemble.parts) == len(other.ensemble.parts)
    for mine, theirs in zip(one.ensemble.parts, other.ensemble.parts, strict=True):
        np.testing.assert_array_equal(mine.weights, theirs.weights)
        np.testing.assert_array_equal(mine.blocks, theirs.blocks)
        states = mine.members.state(), theirs.members.state()
        assert states[0].config == states[1].config
        for name, values in states[0].arrays.items():
            np.testing.assert_array_equal(values, states[1].arrays[name])
    timed = {"master_s", "pricing_s", "separation_s", "other_s", "total_s"}
    for records in zip(one.history, other.history, strict=True):
        plain = [
            {name: value for name, value in asdict(record).items() if name not in timed}
            for record in records
        ]
        assert plain[0] == plain[1]


@pytest.fixture(scope="module", params=MAKERS, ids=lambda maker: maker.__name__)
def uninterrupted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Callable[[], Problem], Result]:
    result = solved(request.param, tmp_path_factory.mktemp("whole") / "run")
    assert len(result.history) >= 3
    return request.param, result


@pytest.mark.parametrize("after", [0, 2])
def test_interrupted_and_resumed_ends_the_same(
    uninterrupted: tuple[Callable[[], Problem], Result], after: int, tmp_path: Path
) -> None:
    maker, whole = uninterrupted

    def stop(record: IterationRecord) -> None:
        if record.iteration == after:
            signal.raise_signal(signal.SIGINT)

    early = solved(maker, tmp_path / "run", progress=stop)
    assert early.stop_reason is StopReason.INTERRUPTED
    assert len(early.history) == after + 1
    assert_identical(solved(maker, tmp_path / "run"), whole)


def test_stopped_at_a_limit_and_resumed_with_a_higher_one_ends_the_same(
    uninterrupted: tuple[Callable[[], Problem], Result], tmp_path: Path
) -> None:
    maker, whole = uninterrupted
    lower = Settings(**(SETTINGS.as_dict() | {"iteration_limit": 1}))
    solved(maker, tmp_path / "run", settings=lower)
    assert_identical(solved(maker, tmp_path / "run"), whole)


def test_a_run_that_had_ended_gives_its_result_again(
    uninterrupted: tuple[Callable[[], Problem], Result], tmp_path: Path
) -> None:
    maker, whole = uninterrupted
    solved(maker, tmp_path / "run")
    assert_identical(solved(maker, tmp_path / "run"), whole)


@pytest.mark.parametrize("maker", MAKERS)
def test_a_restored_workspace_continues_like_the_first(maker: Callable[[], Problem]) -> None:
    problem = CompiledProblem.from_problem(maker())
    work = Workspace(problem, SETTINGS)
    work.start()
    if not work.every_block_has_members:
        count = len(problem.layout)
        members = ConstantMembers(RNG.normal(size=(2 * count, 2)), 2)
        work.add_columns(members, np.tile(np.arange(count), 2))
    before = work.solve_master()
    snapshot = snapshots.take(work)
    copies = [snapshots.restore(snapshot, problem, SETTINGS) for _ in range(2)]
    for copy in copies:
        assert len(copy.rows) == len(work.rows)
        np.testing.assert_array_equal(copy.rows.bounds, work.rows.bounds)
        np.testing.assert_array_equal(copy.columns.blocks, work.columns.blocks)
    solutions = [copy.solve_master() for copy in copies]
    np.testing.assert_array_equal(solutions[0].weights, solutions[1].weights)
    np.testing.assert_array_equal(solutions[0].duals.rows, solutions[1].duals.rows)
    assert solutions[0].penalised == pytest.approx(before.penalised, rel=1e-7, abs=1e-7)


def test_an_empty_workspace_can_be_kept_too() -> None:
    for maker in (linear_rows, concave_rows):
        problem = CompiledProblem.from_problem(maker())
        work = Workspace(problem, SETTINGS)
        work.start()
        restored = snapshots.restore(snapshots.take(work), problem, SETTINGS)
        assert len(restored.columns) == 0
        assert len(restored.rows) == len(work.rows)


def test_cuts_already_there_are_known_after_a_restore() -> None:
    problem = CompiledProblem.from_problem(linear_rows())
    work = Workspace(problem, SETTINGS)
    cut = problem.requirements[2].rows_at(np.array([[0.5, 0.5]]), np.zeros(1, int), 2)
    assert work.add_cuts(cut) == 1
    restored = snapshots.restore(snapshots.take(work), problem, SETTINGS)
    assert restored.add_cuts(cut) == 0


def test_a_checkpoint_of_another_problem_or_with_gaps_is_refused() -> None:
    problem = CompiledProblem.from_problem(concave_rows())
    work = Workspace(problem, SETTINGS)
    work.start()
    snapshot = snapshots.take(work)
    rules = problem.requirements

    def other(*requirements: Any) -> CompiledProblem:
        return replace(problem, requirements=requirements)

    with raises(RunFolderError, "altered"):
        snapshots.restore(snapshot, other(rules[0]), SETTINGS)
    with raises(RunFolderError, "altered"):
        snapshots.restore(snapshot, other(Linear(X, [1.0, 1.0], 0.0), rules[1]), SETTINGS)
    for missing in ("rows0.inputs", "rows0.positions", "table", "master.weights"):
        arrays = {name: value for name, value in snapshot.arrays.items() if name != missing}
        torn = snapshots.Snapshot(snapshot.meta, arrays, snapshot.members)
        with raises(RunFolderError, "version", "lacks"):
            snapshots.restore(torn, problem, SETTINGS)


def test_an_estimator_of_own_modules_can_be_solved_in_a_run_folder(tmp_path: Path) -> None:
    def made() -> Problem:
        estimator = ConstrainedRegressor(members=own_module_of_one_output, random_state=0)
        return estimator.problem(X, X[:, 0])

    chosen = Settings(iteration_limit=2)
    whole = solved(made, tmp_path / "whole", settings=chosen)

    def stop(record: IterationRecord) -> None:
        signal.raise_signal(signal.SIGINT)

    solved(made, tmp_path / "run", settings=chosen, progress=stop)
    assert_identical(solved(made, tmp_path / "run", settings=chosen), whole)


def own_module_of_one_output() -> torch.nn.Module:
    return torch.nn.Linear(2, 1)
