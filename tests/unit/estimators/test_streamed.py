"""Data that are read in batches: the same model where they fit in memory, bounded elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pandas import DataFrame, Series
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from cg4ai import ConstrainedClassifier, ConstrainedRegressor, solve
from cg4ai.compile.problem import iterate_parts
from cg4ai.data import Batches, fit_with_requirements
from cg4ai.data.batches import LEAST_KEPT, choose_batch_rows
from cg4ai.errors import InvalidInput
from cg4ai.estimators.batches import DataScan, StreamedSupervised, row_hashes, scan_data
from cg4ai.rules import Box, DecisionRate, Linear, Probability
from cg4ai.runs.folder import Run
from raising import raises

QUICK: dict[str, Any] = {
    "members": "network",
    "hidden": (6,),
    "steps": 60,
    "iteration_limit": 2,
    "random_state": 0,
}
RANDOM = np.random.default_rng(0)
SMALL = RANDOM.normal(size=(90, 3))
LABELS = np.where(SMALL[:, 0] + SMALL[:, 1] ** 2 > 0.5, "yes", "no")
VALUES = SMALL[:, 0] + SMALL[:, 1] ** 2
WEIGHTS = RANDOM.integers(1, 3, 90).astype(float)
MANY = RANDOM.normal(size=(24_000, 3))
MANY_VALUES = MANY[:, 0] + MANY[:, 1] ** 2

pytestmark = pytest.mark.filterwarnings("ignore::cg4ai.FitWarning")


class Lazy:
    """Rows of a file: they can be sliced and indexed, and never read whole."""

    def __init__(self, rows: Any) -> None:
        self.rows, self.shape, self.largest = rows, rows.shape, 0

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, places: Any) -> Any:
        taken = self.rows[places]
        self.largest = max(self.largest, len(taken))
        return taken

    def __array__(self, *args: Any, **more: Any) -> Any:
        raise AssertionError("all rows were read at once")


class Pairs(Dataset[Any]):
    """A torch Dataset that gives NumPy rows one by one."""

    def __init__(self, *columns: Any) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, place: int) -> Any:
        return tuple(column[place] for column in self.columns)


def parts(*columns: Any, size: int = 32) -> list[Any]:
    count = len(columns[0])
    return [tuple(one[k : k + size] for one in columns) for k in range(0, count, size)]


def looked_at(batches: Batches, *, labelled: bool = False) -> DataScan:
    def check(inputs: Any, targets: Any, first: bool) -> Any:
        return np.asarray(inputs, float), np.asarray(targets)

    return scan_data(batches, check, seed=0, labelled=labelled)


def streamed(problem: Any) -> StreamedSupervised:
    """What the members of a problem are trained by."""
    (found,) = (
        one.training
        for pricer in problem.pricers
        for _, one in iterate_parts(pricer)
        if hasattr(one, "training") and isinstance(one.training, StreamedSupervised)
    )
    return found


# ---- where all fits in memory --------------------------------------------------------------------


@pytest.mark.parametrize(
    "batches",
    [
        Batches(SMALL, VALUES, WEIGHTS),
        Batches(Lazy(SMALL), VALUES, WEIGHTS),
        Batches(Pairs(SMALL, VALUES, WEIGHTS)),
        Batches(parts(SMALL, VALUES, WEIGHTS)),
        Batches(lambda: iter(parts(SMALL, VALUES, WEIGHTS, size=7))),
        Batches(DataLoader(Pairs(SMALL, VALUES, WEIGHTS), batch_size=16, shuffle=True)),
        TensorDataset(*map(torch.as_tensor, (SMALL, VALUES, WEIGHTS))),
        DataLoader(Pairs(SMALL, VALUES, WEIGHTS), batch_size=40),
    ],
    ids=["arrays", "lazy", "dataset", "list", "function", "loader", "bare dataset", "bare loader"],
)
def test_the_model_is_that_of_arrays(batches: Any) -> None:
    whole = ConstrainedRegressor(**QUICK).fit(SMALL, VALUES, sample_weight=WEIGHTS)
    read = ConstrainedRegressor(**QUICK).fit(batches)
    np.testing.assert_array_equal(read.predict(SMALL), whole.predict(SMALL))
    assert read.n_held_out_ == whole.n_held_out_


def test_labels_weights_of_classes_names_and_rules_are_those_of_tables() -> None:
    table = DataFrame(SMALL, columns=["a", "b", "c"])
    rule = Probability(table[:4], LABELS[:4], at_least=0.7)
    settings = QUICK | {"class_weight": "balanced"}
    whole = ConstrainedClassifier(**settings).fit(table, LABELS, requirements=[rule])
    batches = Batches([(table[k : k + 20], LABELS[k : k + 20]) for k in range(0, 90, 20)])
    read = ConstrainedClassifier(**settings).fit(batches, requirements=[rule])
    np.testing.assert_array_equal(read.predict_proba(table), whole.predict_proba(table))
    assert list(read.feature_names_in_) == ["a", "b", "c"]
    assert list(read.classes_) == ["no", "yes"]


# ---- where it does not ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem() -> Any:
    model = ConstrainedRegressor(**QUICK)
    data = Lazy(MANY)
    made = model.problem(Batches(data, MANY_VALUES, keep=LEAST_KEPT))
    return model, data, made


def test_no_more_is_read_at_once_than_is_said(problem: Any) -> None:
    _, data, made = problem
    streamed(made).batch(512, torch.Generator(), device="cpu", dtype=torch.float32)
    assert data.largest <= choose_batch_rows(3) < len(MANY)
    kept = len(streamed(made).inputs) + len(made.objective.inputs)
    assert kept == LEAST_KEPT


def test_rows_held_out_are_never_trained_on_and_all_others_are(problem: Any) -> None:
    _, _, made = problem
    held = {row.tobytes() for row in made.objective.inputs}
    generator = torch.Generator().manual_seed(0)
    drawn = streamed(made).batch(200_000, generator, device="cpu", dtype=torch.float64).inputs
    seen = {row.tobytes() for row in drawn.numpy()}
    assert len(drawn) == 200_000
    assert not held & seen
    assert len(held) == LEAST_KEPT // 3
    assert held | seen == {row.tobytes() for row in MANY}


def test_it_learns_from_all_rows_under_rules_over_their_whole_range() -> None:
    rules = [
        Linear(MANY[:20], [1.0], 1.5, "<=", name="listed"),
        Linear(Box({2: (-5.0, 5.0)}), [1.0], 6.0, "<=", name="region"),
    ]
    model = ConstrainedRegressor(**QUICK | {"steps": 300, "iteration_limit": 3})
    model.fit(Batches(Lazy(MANY), MANY_VALUES, keep=LEAST_KEPT), requirements=rules)
    assert [audit.holds for audit in model.audit_] == [True, True]
    assert model.predict(MANY[:20]).max() <= 1.5 + 1e-6
    assert model.predict(MANY).max() <= 6.0 + 1e-6
    assert model.input_range_[:, 2].tolist() == [MANY[:, 2].min(), MANY[:, 2].max()]
    assert model.score(MANY, MANY_VALUES) > model.score_.linear + 0.1
    assert model.score_.rows == model.n_held_out_ == LEAST_KEPT // 3


def test_a_resumed_run_ends_as_it_would_have(tmp_path: Path) -> None:
    def solved(run: Run, *callbacks: Any) -> Any:
        model = ConstrainedRegressor(**QUICK | {"iteration_limit": 3})
        rule = Linear(MANY[:20], [1.0], 1.0, "<=")
        made = model.problem(Batches(MANY, MANY_VALUES, keep=LEAST_KEPT), None, [rule])
        with run:
            return solve(made, model.run_settings(), run=run, callbacks=callbacks).ensemble

    solved(Run.create(tmp_path / "one", "train", {}), lambda record: record.iteration == 0)
    resumed = solved(Run.open(tmp_path / "one"))
    whole = solved(Run.create(tmp_path / "other", "train", {}))
    np.testing.assert_array_equal(resumed.predict(MANY), whole.predict(MANY))


def test_of_few_rows_kept_a_third_is_held_out() -> None:
    model = ConstrainedRegressor(**QUICK)
    twice = np.concatenate([MANY, -MANY])  # 48,000 rows: a fifth would be most of those kept
    made = model.problem(Batches(twice, np.tile(MANY_VALUES, 2), keep=LEAST_KEPT))
    assert model.n_held_out_ == len(made.objective.inputs) == LEAST_KEPT // 3


def test_series_and_labels_of_any_kind_go_by_position() -> None:
    order = np.random.default_rng(3).permutation(90)
    frame = DataFrame(SMALL, columns=["a", "b", "c"], index=order)
    labels = Series(LABELS.astype(object), index=order)
    whole = ConstrainedClassifier(**QUICK).fit(SMALL, LABELS)
    for batches in (Batches(frame, labels), Batches(parts(SMALL, LABELS.astype(object)))):
        read = ConstrainedClassifier(**QUICK).fit(batches)
        chances = read.ensemble_.predict(SMALL)
        np.testing.assert_array_equal(chances, whole.predict_proba(SMALL))


def test_modules_of_the_users_own_are_trained_on_batches() -> None:
    def small() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))

    data = Lazy(MANY)
    model = ConstrainedRegressor(**QUICK | {"members": small, "steps": 400})
    model.fit(Batches(data, MANY_VALUES, keep=LEAST_KEPT))
    assert data.largest <= choose_batch_rows(3)
    assert model.score_.model > model.score_.linear


def test_the_same_rows_are_held_out_in_whatever_order_they_come() -> None:
    order = np.random.default_rng(1).permutation(len(MANY))
    one = looked_at(Batches(MANY, MANY_VALUES, keep=LEAST_KEPT))
    other = looked_at(Batches(parts(MANY[order], MANY_VALUES[order], size=777), keep=LEAST_KEPT))
    np.testing.assert_array_equal(one.inputs, other.inputs)
    np.testing.assert_array_equal(one.targets, other.targets)
    assert not one.complete


def test_copies_of_a_row_are_one_row_of_their_weight_on_one_side() -> None:
    few = np.repeat(MANY[:15_000], 2, axis=0)
    values, weights = np.repeat(MANY_VALUES[:15_000], 2), np.tile([1.0, 0.5], 15_000)
    found = looked_at(Batches(few, values, weights, keep=LEAST_KEPT))
    assert len(found.inputs) == LEAST_KEPT
    np.testing.assert_array_equal(found.weights, np.full(LEAST_KEPT, 1.5))
    assert found.count == 30_000


def test_rows_of_the_users_own_are_what_members_are_weighed_by() -> None:
    own = RANDOM.normal(size=(300, 3))
    batches = Batches(MANY, MANY_VALUES, held_out=(own, own[:, 0]), keep=LEAST_KEPT)
    model = ConstrainedRegressor(**QUICK)
    made = model.problem(batches)
    np.testing.assert_array_equal(made.objective.inputs, own)
    assert model.n_held_out_ == 300
    assert len(streamed(made).inputs) == LEAST_KEPT  # all others may be trained on
    small = ConstrainedRegressor(**QUICK)
    made = small.problem(Batches(SMALL, VALUES, held_out=(own, own[:, 0])))
    np.testing.assert_array_equal(made.objective.inputs, own)


def test_weights_of_classes_reach_every_batch() -> None:
    labels = (MANY[:, 0] > 1.0).astype(int)
    weights = np.where(MANY[:, 1] > 0, 2.0, 1.0)
    model = ConstrainedClassifier(**QUICK | {"class_weight": {1: 3.0}})
    made = model.problem(Batches(MANY, labels, weights, keep=LEAST_KEPT))
    batch = streamed(made).batch(400, torch.Generator(), device="cpu", dtype=torch.float64)
    assert batch.targets is not None
    assert batch.weights is not None
    expected = np.where(batch.inputs[:, 1] > 0, 2.0, 1.0) * np.where(batch.targets == 1, 3.0, 1.0)
    np.testing.assert_array_equal(batch.weights, expected)
    np.testing.assert_array_equal(batch.targets, (batch.inputs[:, 0] > 1.0).long())


def test_a_loader_is_read_on_from_batch_to_batch_and_again_from_the_start() -> None:
    order: list[int] = []

    def batches() -> Iterator[Any]:
        for number, part in enumerate(parts(MANY, MANY_VALUES, size=3000)):
            order.append(number)
            yield part

    model = ConstrainedRegressor(**QUICK)
    objective = streamed(model.problem(Batches(batches, keep=LEAST_KEPT)))
    order.clear()
    for _ in range(8):
        objective.batch(4000, torch.Generator(), device="cpu", dtype=torch.float32)
    assert order == [*range(8), *range(len(order) - 8)]
    assert len(order) > 8


# ---- hashes --------------------------------------------------------------------------------------


def test_hashes_tell_rows_apart_and_spread_evenly() -> None:
    grid = np.stack(np.meshgrid(np.arange(300.0), np.arange(300.0)), -1).reshape(-1, 2)
    labels = np.zeros(len(grid), np.int64)
    hashes = row_hashes(grid, labels, 0)
    assert len(np.unique(hashes)) == len(grid)
    shares = np.histogram(hashes.astype(float), bins=10, range=(0, 2.0**64))[0] / len(grid)
    np.testing.assert_allclose(shares, 0.1, atol=0.005)
    assert (row_hashes(grid, labels + 1, 0) != hashes).all()
    assert (row_hashes(grid, labels, 1) != hashes).all()
    np.testing.assert_array_equal(
        row_hashes(-0.0 * grid, labels, 0), row_hashes(0 * grid, labels, 0)
    )


# ---- what is refused -----------------------------------------------------------------------------


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield SMALL[0], VALUES[0]


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: Batches(SMALL), "missing-argument"),
        (lambda: Batches(SMALL, VALUES[:3]), "shape"),
        (lambda: Batches(SMALL[:, 0], VALUES), "shape"),
        (lambda: Batches(SMALL.tolist(), VALUES), "shape"),
        (lambda: Batches(parts(SMALL, VALUES), weights=WEIGHTS), "conflict"),
        (lambda: Batches(Endless()), "type"),
        (lambda: Batches(iter(parts(SMALL, VALUES))), "type"),
        (lambda: Batches(7), "type"),
        (lambda: Batches(SMALL, VALUES, keep=10), "range"),
        (lambda: Batches(Pairs([])), "empty"),
    ],
)
def test_what_are_no_batches_is_refused(make: Any, code: str) -> None:
    with raises(InvalidInput, code):
        make()


def broken() -> Any:
    wrong = MANY.copy()
    wrong[20_000, 1] = np.nan
    return wrong


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (
            Batches(broken(), MANY_VALUES),
            "missing-values",
        ),
        (Batches([{"x": SMALL}]), "type"),
        (Batches([(SMALL, VALUES, WEIGHTS, 1)]), "type"),
        (Batches([(SMALL, VALUES[:5])]), "shape"),
        (Batches([(SMALL.reshape(-1, 3, 1), VALUES)]), "shape"),
        (Batches([(SMALL, VALUES), (SMALL[:, :2], VALUES)]), "invalid-input"),
        (Batches(SMALL, VALUES, -WEIGHTS), "range"),
        (Batches(SMALL, VALUES, 0 * WEIGHTS), "range"),
        (Batches([]), "empty"),
    ],
)
def test_data_that_cannot_be_read_are_refused_before_training(data: Any, code: str) -> None:
    with raises(InvalidInput, code):
        ConstrainedRegressor(**QUICK).fit(data)


LARGE = Batches(MANY, MANY_VALUES, keep=LEAST_KEPT)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"members": "forest"}, "unsupported"),
        ({"members": ["network", "affine"]}, "unsupported"),
        ({"batch_size": None}, "memory"),
        ({"validation_fraction": 0}, "memory"),
        ({"validation_fraction": 0.5}, "memory"),
    ],
)
def test_what_needs_all_rows_is_refused(changes: dict[str, Any], code: str) -> None:
    with raises(InvalidInput, code):
        ConstrainedRegressor(**QUICK | changes).fit(LARGE)


def test_targets_beside_batches_decisions_and_pipelines_are_refused() -> None:
    with raises(InvalidInput, "conflict"):
        ConstrainedRegressor(**QUICK).fit(LARGE, MANY_VALUES)
    labels = (MANY[:, 0] > 0).astype(int)
    rate = DecisionRate(MANY[:100], MANY[:100, 1] > 0, tolerance=0.1)
    batches = Batches(MANY, labels, keep=LEAST_KEPT)
    with raises(InvalidInput, "unsupported", "Rate"):
        ConstrainedClassifier(**QUICK).fit(batches, requirements=[rate])
    pipeline = make_pipeline(StandardScaler(), ConstrainedRegressor(**QUICK))
    with raises(InvalidInput, "unsupported"):
        fit_with_requirements(pipeline, LARGE, None, [])
    with raises(InvalidInput, "invalid-input", "rows 0"):
        ConstrainedClassifier(**QUICK).fit(LARGE)
    with raises(InvalidInput, "unknown-name", "held_out"):
        ConstrainedClassifier(**QUICK).fit(Batches(MANY, labels, held_out=(MANY[:3], [0, 1, 7])))


# ---- predictions ---------------------------------------------------------------------------------


def test_files_are_predicted_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labelled = ConstrainedClassifier(**QUICK).fit(SMALL, LABELS)
    np.save(tmp_path / "X.npy", MANY.astype(np.float32))
    file = np.load(tmp_path / "X.npy", mmap_mode="r")
    seen: list[int] = []
    checked = labelled._validated

    def count(X: Any, *y: Any, **checks: Any) -> Any:
        seen.append(len(X))
        return checked(X, *y, **checks)

    monkeypatch.setattr(labelled, "_validated", count)
    predicted, chances = labelled.predict(file), labelled.predict_proba(file)
    assert max(seen) == 16_384
    monkeypatch.undo()
    np.testing.assert_array_equal(predicted, labelled.predict(np.array(file)))
    np.testing.assert_array_equal(chances, labelled.predict_proba(np.array(file)))
