"""A run folder that was damaged or made by hand gives the same answer, or one clear error."""

from __future__ import annotations

import copy
import math
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.tree import DecisionTreeRegressor
from torch import nn

import cg4ai
from cg4ai.ensemble.claims import record_audited
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import Cg4aiError, RunFolderError
from cg4ai.layout import Layout
from cg4ai.members import (
    ConstantMembers,
    ModuleArchitecture,
    NetworkArchitecture,
    affine,
    from_sklearn,
)
from cg4ai.members.mixture import Part
from cg4ai.protocols import Members
from cg4ai.records import IterationRecord
from cg4ai.rules import Ball, Box, Linear
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from raising import raises

# regions at the end of the range of floats may warn of overflow
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.usefixtures("quick_disk"),
]
X = np.random.default_rng(0).uniform(-0.2, 1.2, (6, 2))
FACTORIES = {"own": lambda: nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))}
HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 3, 2**63 + 1, 0.5, 1e308, math.nan, math.inf),
    *("", "../../x", "/etc/passwd", "stack", [], [[]], [None], {}, {"kind": None}),
)


def ensemble() -> Ensemble:
    """Every kind of members, two blocks, a shield."""
    rng = np.random.default_rng(1)
    scaled = NetworkArchitecture(2, 2, hidden=(3,), shift=np.zeros(2), scale=np.ones(2))
    tree = from_sklearn(DecisionTreeRegressor(max_depth=2).fit(X, X))
    own = ModuleArchitecture(FACTORIES["own"], 2, 2, "own")
    parts: list[tuple[Members, list[int], list[float]]] = [
        (scaled.members(scaled.initialise(2, torch.Generator())), [0, 1], [0.25, 0.5]),
        (tree, [0], [0.5]),
        (affine(rng.normal(size=(1, 2, 2)), np.zeros((1, 2)), output="softmax"), [1], [0.25]),
        (ConstantMembers([[0.1, 0.2]], 2), [0], [0.25]),
        (own.members(own.initialise(1, torch.Generator())), [1], [0.25]),
    ]
    kept = tuple(Part(one, np.array(blocks), np.array(weights)) for one, blocks, weights in parts)
    mixture = Ensemble(kept, Layout((np.array([0, 3]), np.array([2, 1]))), about={"name": "test"})
    rules = [
        Linear(Box([0, 0], [1, 1]), [1.0, 0.0, 0.0, 1.0], 0.3, "<=", name="sum"),
        Linear(Ball([0.5, 0.5], 0.4), [0.0, 1.0, 0.0, 0.0], 0.5, "<=", name="disc"),
    ]
    shielded = mixture.apply_shield([0.0, 0.0, 0.0, 0.0], rules)
    loose = Linear(Box([0, 0], [1, 1]), [1.0, 0.0, 0.0, 0.0], 9.0, "<=", name="loose")
    assert record_audited(shielded, loose, inputs=np.clip(X[:2], 0, 1)) == 2
    return shielded


def record(iteration: int) -> IterationRecord:
    fields: dict[str, Any] = dict.fromkeys(IterationRecord.__dataclass_fields__, 0)
    return IterationRecord(**(fields | {"iteration": iteration, "bound": -math.inf, "note": "é"}))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "run"
    trained = ensemble()
    with Run.create(folder, "train", {"seed": 1, "names": ["a", "b"]}) as run:
        for iteration in range(2):
            run.append_history(record(iteration))
            states = [part.members.state() for part in trained.parts]
            run.save_checkpoint(iteration, {"loop": {"bound": 1.5}}, {"guide": X}, states)
        trained.save(folder)
        run.finish({"objective": 1.5, "strength": "shielded", "bound": math.nan})
    (folder / "run.lock").unlink()
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "run")


def of_run(folder: Path) -> str:
    """All that a run says of itself, as text, so that NaN equals itself."""
    run = Run.open(folder, read_only=True)
    saved = run.load_checkpoint()
    assert saved is not None
    members = [files.member_digest(state) for state in saved.members]
    return repr((run.header, run.summary(), run.history(), saved.iteration, saved.meta, members))


def of_ensemble(folder: Path) -> str:
    """All that its ensemble says, as text."""
    loaded = cg4ai.load(folder, FACTORIES)
    explained = loaded.predict(X, explain=True)
    return repr((loaded, explained.outputs.tolist(), explained.labels.tolist(), loaded.about))


def answer(path: Path) -> str:
    """What is read from a file of a run, and from those that go with it."""
    product = path.name in ("ensemble.json", "members.safetensors")
    folder = path.parent if product else next(p for p in path.parents if p.name == "run")
    return of_ensemble(folder) if product else of_run(folder)


def reads(path: Path) -> bool:
    """Whether a file can be read; any error must be one of ours, in one line."""
    try:
        answer(path)
    except Cg4aiError as error:
        text = str(error)
        assert text
        assert "\n" not in text
        return False
    return True


def test_a_flipped_bit_changes_no_answer(folder: Path) -> None:
    rng = random.Random(0)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    assert {"run.json", "summary.json", "history.jsonl", "ensemble.json"} <= {p.name for p in paths}
    noticed = 0
    for path in paths:
        data, expected = path.read_bytes(), answer(path)
        for at in {0, len(data) - 1, *rng.sample(range(len(data)), min(25, len(data)))}:
            damaged = bytearray(data)
            damaged[at] ^= 1 << rng.randrange(8)
            path.write_bytes(damaged)
            try:
                # a damaged checkpoint falls back to its reserve, which is another iteration
                same = answer(path) == expected or "checkpoint" in str(path)
                assert same, f"{path.name}, byte {at}"
            except RunFolderError as error:
                assert any(word in str(error) for word in ("damaged", "format", "speaks of"))  # noqa: PT017
                noticed += 1
        path.write_bytes(data)
        assert answer(path) == expected
    assert noticed > 150


def test_files_exchanged_with_those_of_another_run_are_noticed(folder: Path) -> None:
    other = folder.parent / "other"
    Ensemble(
        (Part(ConstantMembers([[1.0]], 2), np.zeros(1, np.int64), np.ones(1)),), Layout.single(1)
    ).save(other)
    shutil.copy(other / "members.safetensors", folder)
    with raises(RunFolderError, "bad-file", "members.safetensors"):
        cg4ai.load(folder, FACTORIES)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place inside nested JSON."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


def changed(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at one place; `...` takes the entry out, "twice" repeats it."""
    result = copy.deepcopy(content)
    inner = result
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[path[-1]]
    elif value == "twice":
        if isinstance(inner, list):
            inner.append(inner[path[-1]])
    else:
        inner[path[-1]] = value
    return result


JSON_FILES = (
    *("run.json", "summary.json", "ensemble.json"),
    *("checkpoint/latest.json", "checkpoint/00000002/checkpoint.json"),
)


@pytest.mark.slow
@pytest.mark.guard
@pytest.mark.parametrize("name", JSON_FILES)
def test_sealed_nonsense_is_one_error(folder: Path, name: str) -> None:
    path = folder / name
    content = files.read_json(path)
    rng = random.Random(1)
    for place in places(content):
        for value in (*rng.sample(HOSTILE, 2), ..., "twice"):
            files.write_json(path, changed(content, place, value))
            try:
                reads(path)
            except Exception as error:
                raise AssertionError(f"{name} with {value!r} at {place}: {error!r}") from error
    files.write_json(path, content)
    assert reads(path)


def test_sealed_nonsense_in_history_is_one_error(folder: Path) -> None:
    (folder / "summary.json").unlink()  # it speaks of the history
    for value in HOSTILE:
        path = folder / "history.jsonl"
        path.unlink()
        files.append_lines(path, [{"iteration": value}])
        assert reads(path) == (type(value) is int)


def hostile_arrays(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    yield from (array[None], array[:0], array.ravel()[:-1], np.zeros(()), np.zeros((0, 0)))
    yield from (array.astype(kind) for kind in (np.float16, np.bool_, np.uint8))
    for value in (math.nan, math.inf, -1, 10**6, -(2**62)):
        if array.dtype.kind == "f" or math.isfinite(value):
            with np.errstate(all="ignore"):
                yield np.full_like(array, value)


def test_sealed_arrays_of_nonsense_are_one_error(folder: Path) -> None:
    path, stated = folder / "members.safetensors", folder / "ensemble.json"
    arrays, content = files.read_arrays(path), files.read_json(stated)
    rng = random.Random(2)

    def store(changed: dict[str, Any], what: str) -> None:
        digest = files.write_arrays(path, changed)
        files.write_json(stated, content | {"arrays": digest})
        try:
            reads(path)
        except Exception as error:
            raise AssertionError(f"{what}: {error!r}") from error

    for name, array in arrays.items():
        store({key: own for key, own in arrays.items() if key != name}, f"without {name}")
        for other in rng.sample(list(hostile_arrays(array)), 3):
            store(arrays | {name: other}, f"{name} as {other.dtype} {other.shape} {other.flat[:3]}")
    store({**arrays, "0.surplus": np.ones(1), "99.weight_0": np.ones(1)}, "surplus")


def test_names_in_files_cannot_leave_the_folder(folder: Path) -> None:
    outside = folder.parent / "outside"
    shutil.move(folder / "checkpoint" / "00000002", outside)
    for slot in ("../../outside", str(outside), "..", "00000002/../../../outside"):
        files.write_json(folder / "checkpoint" / "latest.json", {"slot": slot})
        saved = Run.open(folder, read_only=True).load_checkpoint()
        assert saved is not None
        assert saved.iteration == 0  # the reserve
        assert "eight digits" in saved.note
    (folder / "checkpoint" / "00000002").symlink_to(outside)
    saved = Run.open(folder, read_only=True).load_checkpoint()
    assert saved is not None
    assert saved.iteration == 0
    shutil.move(folder / "ensemble.json", outside / "ensemble.json")
    (folder / "ensemble.json").symlink_to(outside / "ensemble.json")
    with raises(RunFolderError, "bad-file", "symbolic"):
        cg4ai.load(folder, FACTORIES)
