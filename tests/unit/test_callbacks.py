"""Callbacks: what they are told and when, how they end training, and what their errors leave."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from cg4ai import ConstrainedRegressor, Problem, Settings, StopReason, solve
from cg4ai.callbacks import EarlyStopping, MLflow, TensorBoard
from cg4ai.colgen.pricing.defaults import PricerDefaults
from cg4ai.colgen.pricing.exact.finite import FinitePricer
from cg4ai.errors import InvalidInput, MissingExtra, SolverFailure
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers
from cg4ai.objectives import Supervised
from cg4ai.protocols import PricingRequest
from cg4ai.records import IterationRecord, PricingResult
from cg4ai.rules import Linear
from cg4ai.runs.folder import Run
from raising import raises

LIMITS = Settings(row_margin=0.0, smoothing=0.0, patience=1, guarantee="attacked")


class Falling(PricerDefaults):
    """Proposes the constants 4, 3, 2, ... of which each fits the target 0 better, then nothing."""

    def price(self, request: PricingRequest) -> PricingResult:
        value = 4.0 - request.iteration
        if value <= 0:
            return PricingResult(None, np.empty(0, np.int64), np.empty(0, np.int64))
        members = ConstantMembers(np.array([[value]]), 1)
        return PricingResult(members, np.zeros(1, np.int64), np.full(1, -1))


def falling(*rules: Any, pricer: Any = None) -> Problem:
    objective = Supervised(np.zeros((1, 1)), np.zeros((1, 1)))
    return Problem(objective, rules, [pricer or Falling()], Layout.single(1))


def prediction(result: Any) -> float:
    return float(result.ensemble.predict(np.zeros((1, 1)))[0, 0])


class Recorder:
    """Keeps what it is told; answers as `ends` says."""

    def __init__(self, ends: Callable[[IterationRecord], Any] = lambda record: None) -> None:
        self.ends = ends
        self.told: list[tuple[str, Any]] = []

    def on_start(self, history: Sequence[IterationRecord]) -> None:
        self.told.append(("start", len(history)))

    def on_iteration(self, record: IterationRecord) -> Any:
        self.told.append(("iteration", record.iteration))
        return self.ends(record)

    def on_end(self, result: Any) -> None:
        self.told.append(("end", None if result is None else result.stop_reason))


# ---- what they are told --------------------------------------------------------------------------


def test_they_are_told_of_the_start_of_every_iteration_and_of_the_end() -> None:
    recorder, records = Recorder(), list[IterationRecord]()
    result = solve(falling(), LIMITS, callbacks=[recorder, records.append])
    assert tuple(records) == result.history
    numbers = [("iteration", number) for number in range(len(result.history))]
    assert recorder.told == [("start", 0), *numbers, ("end", result.stop_reason)]


def test_an_iteration_is_saved_before_they_are_told_of_it(tmp_path: Path) -> None:
    saved: list[tuple[int, int]] = []
    with Run.create(tmp_path / "run", "train", {}) as run:

        def look(record: IterationRecord) -> None:
            checkpoint = run.load_checkpoint()
            assert checkpoint is not None
            saved.append((record.iteration, checkpoint.iteration))

        solve(falling(), LIMITS, run=run, callbacks=[look])
    assert saved
    assert all(told == stored for told, stored in saved)


# ---- ending training -----------------------------------------------------------------------------


def test_true_ends_training_with_all_that_a_limit_leaves() -> None:
    rule = Linear([[0.0]], [1.0], 1.0, name="floor")
    late, after = Recorder(lambda record: record.iteration == 1), Recorder()
    stopped = solve(falling(rule), LIMITS, callbacks=[late, after])
    limited = solve(falling(rule), Settings(**(LIMITS.as_dict() | {"iteration_limit": 2})))
    assert stopped.stop_reason is StopReason.CALLBACK
    assert "the callback Recorder ended training" in stopped.note
    assert prediction(stopped) == prediction(limited) == 3.0
    assert [audit.holds for audit in stopped.audits] == [True]
    assert after.told == [*late.told[:-1], ("end", StopReason.CALLBACK)]  # all are told of all


@pytest.mark.parametrize("answer", [1, "stop", [0], np.float64(1.0), False, None])
def test_only_true_ends_training(answer: Any) -> None:
    result = solve(falling(), LIMITS, callbacks=[lambda record: answer])
    assert result.stop_reason is StopReason.NO_IMPROVING_COLUMN


def test_a_comparison_of_numpy_numbers_is_true_as_well() -> None:
    callbacks = [lambda record: np.float64(record.columns) >= 2]
    result = solve(falling(), LIMITS, callbacks=callbacks)
    assert result.stop_reason is StopReason.CALLBACK
    assert result.columns == 2


def test_with_one_model_asked_for_it_ends_the_whole_run() -> None:
    numbers = np.array([[0.0], [3.0]])
    pricer = FinitePricer([(ConstantMembers(numbers, 1), np.zeros(2, np.int64))])
    rule = Linear([[0.0]], [1.0], 1.0)
    settings = Settings(**(LIMITS.as_dict() | {"single_model": True}))
    phases: list[str] = []

    def first(record: IterationRecord) -> bool:
        phases.append(record.phase)
        return True

    result = solve(falling(rule, pricer=pricer), settings, callbacks=[first])
    assert result.stop_reason is StopReason.CALLBACK
    assert phases == ["normal"]
    assert prediction(result) in (0.0, 3.0)  # still one of the members


def test_before_there_is_a_mixture_it_is_a_clear_error() -> None:
    members = ConstantMembers(np.array([[1.0]]), 1)
    first = PricingResult(members, np.array([0]), np.array([-1]))

    class Once(PricerDefaults):
        def price(self, request: PricingRequest) -> PricingResult:
            return first

    two = Problem(
        Supervised(np.zeros((1, 1)), np.zeros((1, 2))),
        [],
        [Once()],
        Layout((np.array([0]), np.array([1]))),
    )
    with raises(SolverFailure, "solver-status", "callback"):
        solve(two, LIMITS, callbacks=[lambda record: True])


def test_the_first_iteration_is_made_in_any_case() -> None:
    eager = SimpleNamespace(on_start=lambda history: True)
    result = solve(falling(), LIMITS, callbacks=[eager])
    assert result.stop_reason is StopReason.NO_IMPROVING_COLUMN


# ---- errors and run folders ----------------------------------------------------------------------


def test_an_error_passes_with_a_note_and_the_run_can_be_resumed(tmp_path: Path) -> None:
    def fails(record: IterationRecord) -> None:
        if record.iteration == 1:
            raise ConnectionError("no server")

    before = Recorder()
    with (
        Run.create(tmp_path / "run", "train", {}) as run,
        pytest.raises(ConnectionError, match="no server") as caught,
    ):
        solve(falling(), LIMITS, run=run, callbacks=[before, fails])
    assert "fails at iteration 1" in caught.value.__notes__[0]
    assert before.told[-1] == ("end", None)
    again = Recorder()
    with Run.open(tmp_path / "run") as run:
        resumed = solve(falling(), LIMITS, run=run, callbacks=[again])
    whole = solve(falling(), LIMITS)
    assert again.told[:2] == [("start", 2), ("iteration", 2)]
    assert prediction(resumed) == prediction(whole)
    assert [one.objective for one in resumed.history] == [one.objective for one in whole.history]


def test_an_error_at_the_end_still_ends_the_others() -> None:
    class Fails:
        def on_end(self, result: Any) -> None:
            raise OSError("disk full")

    last = Recorder()
    callbacks: list[Any] = [Fails(), last]
    with pytest.raises(OSError, match="disk full") as caught:
        solve(falling(), LIMITS, callbacks=callbacks)
    assert "Fails at the end" in caught.value.__notes__[0]
    assert last.told[-1] == ("end", StopReason.NO_IMPROVING_COLUMN)


def test_those_that_never_started_are_not_ended() -> None:
    class Fails:
        def on_start(self, history: Any) -> None:
            raise OSError("no folder")

    first, second = Recorder(), Recorder()
    callbacks: list[Any] = [first, Fails(), second]
    with pytest.raises(OSError, match="no folder"):
        solve(falling(), LIMITS, callbacks=callbacks)
    assert first.told == [("start", 0), ("end", None)]
    assert second.told == []


def test_a_run_that_was_ended_goes_on_without_the_callback_and_stays_ended_with_it(
    tmp_path: Path,
) -> None:
    stopping = EarlyStopping(1, min_change=8.0)  # objectives 16, 9, 4: the third brings too little
    with Run.create(tmp_path / "run", "train", {}) as run:
        first = solve(falling(), LIMITS, run=run, callbacks=[stopping])
    assert first.stop_reason is StopReason.CALLBACK
    with Run.open(tmp_path / "run") as run:
        same = solve(falling(), LIMITS, run=run, callbacks=[EarlyStopping(1, min_change=8.0)])
    assert same.stop_reason is StopReason.CALLBACK
    assert len(same.history) == len(first.history)
    assert prediction(same) == prediction(first)
    with Run.open(tmp_path / "run") as run:
        whole = solve(falling(), LIMITS, run=run)
    assert whole.stop_reason is StopReason.NO_IMPROVING_COLUMN
    assert prediction(whole) == 1.0


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        (EarlyStopping(), "callbacks=[EarlyStopping]"),
        (print, "callbacks=[print]"),
        ("all", "str"),
        ([EarlyStopping], "EarlyStopping(...)"),
        ([3], "3"),
    ],
)
def test_what_is_no_callback_is_refused(given: Any, fact: str) -> None:
    with raises(InvalidInput, "type", fact):
        solve(falling(), LIMITS, callbacks=given)
    with raises(InvalidInput, "type", fact):
        ConstrainedRegressor(callbacks=given).fit([[0.0], [1.0]], [0.0, 1.0])


# ---- early stopping ------------------------------------------------------------------------------


def record(objective: float, slack: float = 0.0, phase: str = "normal") -> IterationRecord:
    values: dict[str, Any] = {one.name: 0 for one in fields(IterationRecord)}
    values |= {"objective": objective, "slack": slack, "phase": phase, "note": ""}
    return IterationRecord(**values)


def ended_at(stopping: EarlyStopping, *records: IterationRecord) -> int | None:
    stopping.on_start(())
    answers = [stopping.on_iteration(one) for one in records]
    return answers.index(True) if True in answers else None


def test_patience_counts_iterations_in_a_row_that_bring_nothing() -> None:
    objectives = [5.0, 4.0, 4.0, 3.0, 3.0, 3.5, 2.0]
    assert ended_at(EarlyStopping(2), *map(record, objectives)) == 5
    assert ended_at(EarlyStopping(3), *map(record, objectives)) is None
    assert ended_at(EarlyStopping(1, min_change=1.0), *map(record, objectives)) == 1


def test_rules_that_lack_less_are_progress_whatever_the_objective() -> None:
    rising = [record(1.0, 0.5), record(2.0, 0.3), record(3.0, 0.0), record(3.0, 0.0)]
    assert ended_at(EarlyStopping(1), *rising) == 3
    noise = [record(3.0, 0.0), record(2.0, 2e-16), record(1.0, 1e-15), record(1.0, 0.0)]
    assert ended_at(EarlyStopping(1), *noise) == 3
    # a lower objective that breaks a rule is none
    assert ended_at(EarlyStopping(1), record(3.0, 0.0), record(1.0, 0.2)) == 1


def test_training_without_the_rules_does_not_count() -> None:
    plain = [record(1.0, phase="plain")] * 5
    assert ended_at(EarlyStopping(1), *plain, record(3.0), record(2.0), record(2.0)) == 7


def test_a_new_phase_starts_afresh() -> None:
    records = [record(1.0), record(9.0, phase="single"), record(9.0, phase="single")]
    assert ended_at(EarlyStopping(1), *records) == 2


@pytest.mark.parametrize(
    "wrong", [{"patience": 0}, {"patience": 1.5}, {"patience": True}, {"min_change": -1.0}]
)
def test_values_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with raises(InvalidInput, "range", *wrong):
        EarlyStopping(**wrong)


# ---- estimators ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    inputs = np.random.default_rng(0).normal(size=(80, 2))
    return inputs, inputs[:, 0] ** 2 + inputs[:, 1]


def quick(**values: Any) -> ConstrainedRegressor:
    return ConstrainedRegressor(**({"steps": 40, "restarts": 1, "random_state": 0} | values))


def test_an_estimator_ended_by_a_callback_is_fitted_and_can_be_pickled(data: Any) -> None:
    model = quick(callbacks=[lambda record: True]).fit(*data)
    assert model.stop_reason_ is StopReason.CALLBACK
    assert model.n_iter_ == 1
    assert model.cautions_ == ()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(data[0]), model.predict(data[0]))
    assert again.callbacks is None


def test_clones_and_searches_have_callbacks_of_their_own(data: Any) -> None:
    stopping = EarlyStopping(1)
    model = quick(callbacks=[stopping], iteration_limit=3)
    assert model.get_params()["callbacks"] == [stopping]
    assert clone(model).callbacks[0] is not stopping
    search = GridSearchCV(model, {"callbacks": [None, [EarlyStopping(2)]]}, cv=2).fit(*data)
    assert stopping._best is None  # nobody trained with this one
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


# ---- loggers -------------------------------------------------------------------------------------


class Writer:
    """Stands for torch's SummaryWriter."""

    made: list[Writer]

    def __init__(self, log_dir: str, purge_step: int | None = None) -> None:
        self.log_dir, self.purge_step = log_dir, purge_step
        self.scalars: list[tuple[str, float, int]] = []
        self.texts: dict[str, str] = {}
        self.closed = False
        self.made.append(self)

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.scalars.append((tag, value, step))

    def add_text(self, tag: str, text: str, step: int) -> None:
        self.texts[tag] = text

    def flush(self) -> None: ...

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def tensorboard(monkeypatch: pytest.MonkeyPatch) -> list[Writer]:
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setitem(sys.modules, "tensorboard", ModuleType("tensorboard"))
    Writer.made = []
    return Writer.made


def test_tensorboard_gets_every_number_that_is_known(tensorboard: list[Writer]) -> None:
    result = solve(falling(), LIMITS, callbacks=[TensorBoard("logs", prefix="run")])
    (writer,) = tensorboard
    assert (writer.log_dir, writer.purge_step, writer.closed) == ("logs", None, True)
    objectives = [entry for entry in writer.scalars if entry[0] == "run/objective"]
    known = [one for one in result.history if one.objective < 1e11]
    assert objectives == [("run/objective", one.objective, one.iteration) for one in known]
    assert all(np.isfinite(value) for _, value, _ in writer.scalars)
    assert "stopped: no_improving_column" in writer.texts["run/result"]


def test_a_resumed_run_goes_on_in_its_log(tmp_path: Path, tensorboard: list[Writer]) -> None:
    with Run.create(tmp_path / "run", "train", {}) as run:
        solve(falling(), LIMITS, run=run, callbacks=[lambda record: record.iteration == 1])
    with Run.open(tmp_path / "run") as run:
        solve(falling(), LIMITS, run=run, callbacks=[TensorBoard(tmp_path / "logs")])
    (writer,) = tensorboard
    assert writer.purge_step == 2
    assert min(step for _, _, step in writer.scalars) == 2


def test_a_log_is_closed_after_an_error(tensorboard: list[Writer]) -> None:
    def fails(record: IterationRecord) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        solve(falling(), LIMITS, callbacks=[TensorBoard("logs"), fails])
    assert tensorboard[0].closed
    assert "cg4ai/result" not in tensorboard[0].texts


class Server(ModuleType):
    """Stands for the module mlflow: what it was told, and one run at a time."""

    def __init__(self, active: str | None = None) -> None:
        super().__init__("mlflow")
        self.active, self.ended = active, list[str]()
        self.metrics: list[tuple[dict[str, float], int | None]] = []
        self.tags: dict[str, str] = {}

    def active_run(self) -> str | None:
        return self.active

    def start_run(self, run_name: str | None) -> None:
        self.active = run_name or "unnamed"

    def end_run(self, status: str) -> None:
        self.ended.append(status)
        self.active = None

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.metrics.append((metrics, step))

    def set_tag(self, key: str, value: str) -> None:
        self.tags[key] = value


def test_mlflow_gets_a_run_with_metrics_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    monkeypatch.setitem(sys.modules, "mlflow", server)
    result = solve(falling(), LIMITS, callbacks=[MLflow("first")])
    steps = [step for metrics, step in server.metrics if "slack" in metrics]
    assert steps == [one.iteration for one in result.history]
    assert server.metrics[-1] == (
        {"final_loss": result.loss, "final_feasible": 1.0, "final_seconds": result.seconds},
        None,
    )
    assert server.tags == {"stop_reason": "no_improving_column"}
    assert server.ended == ["FINISHED"]


def test_mlflow_leaves_a_run_of_the_users_open(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(active="theirs")
    monkeypatch.setitem(sys.modules, "mlflow", server)
    solve(falling(), LIMITS, callbacks=[MLflow()])
    assert server.active == "theirs"
    assert server.ended == []


def test_mlflow_ends_its_run_as_failed_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    monkeypatch.setitem(sys.modules, "mlflow", server)

    def fails(record: IterationRecord) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        solve(falling(), LIMITS, callbacks=[MLflow(), fails])
    assert server.ended == ["FAILED"]


@pytest.mark.parametrize(
    ("make", "package"), [(lambda: TensorBoard("logs"), "tensorboard"), (MLflow, "mlflow")]
)
def test_a_missing_package_is_named_at_once(
    make: Callable[[], Any], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with raises(MissingExtra, "missing-extra", package):
        make()
