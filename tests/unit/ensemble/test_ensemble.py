"""The product: predictions of every kind of input, blocks, saving, loading and damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.tree import DecisionTreeRegressor
from torch import nn

import cg4ai
from cg4ai.ensemble.claims import compute_mixture_digest
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.layout import Layout
from cg4ai.members import (
    ConstantMembers,
    ModuleArchitecture,
    NetworkArchitecture,
    affine,
    from_sklearn,
)
from cg4ai.members.mixture import Part
from cg4ai.rules import Linear
from cg4ai.runs import files
from cg4ai.seeds import generator
from raising import raises

RNG = np.random.default_rng(2)
X = RNG.normal(size=(9, 3))


def networks(count: int, outputs: int = 2) -> Any:
    architecture = NetworkArchitecture(3, outputs, hidden=(4,), activation="tanh")
    return architecture.members(architecture.initialise(count, generator(1)))


def single(members: Any, weights: Any, outputs: int = 2, **more: Any) -> Ensemble:
    part = Part(members, np.zeros(len(members), np.int64), np.array(weights, float))
    return Ensemble((part,), Layout.single(outputs), **more)


def tree(outputs: int) -> Any:
    return from_sklearn(DecisionTreeRegressor(max_depth=2).fit(X, RNG.normal(size=(9, outputs))))


def factory() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 2), nn.Tanh())


def modules(count: int) -> Any:
    architecture = ModuleArchitecture(factory, 3, 2, "own")
    return architecture.members(architecture.initialise(count, generator(0)))


def mixed_kinds() -> Ensemble:
    """Networks, a tree, a constant, a linear model and a user's module in one block."""
    members = [
        networks(2),
        tree(2),
        ConstantMembers([[1.0, -1.0]], 3),
        affine(RNG.normal(size=(1, 3, 2)), RNG.normal(size=(1, 2))),
        modules(1),
    ]
    weights = np.split(np.array([0.1, 0.2, 0.15, 0.25, 0.2, 0.1]), [2, 3, 4, 5])
    parts = tuple(
        Part(stack, np.zeros(len(stack), np.int64), own)
        for stack, own in zip(members, weights, strict=True)
    )
    return Ensemble(parts, Layout.single(2), about={"made": "here"})


def blocks() -> Ensemble:
    """Blocks of 2, 1 and 1 outputs, two kinds of members, surplus outputs, places mixed."""
    layout = Layout((np.array([3, 0]), np.array([1]), np.array([2])))
    return Ensemble(
        (
            Part(networks(3), np.array([0, 2, 0]), np.array([0.25, 1.0, 0.5])),
            Part(tree(2), np.array([0]), np.array([0.25])),
            Part(ConstantMembers([[5.0], [7.0]], 3), np.array([1, 1]), np.array([0.5, 0.5])),
        ),
        layout,
    )


def by_hand(ensemble: Ensemble) -> np.ndarray:
    """Member by member in NumPy."""
    result = np.zeros((len(X), ensemble.output_size))
    for part in ensemble.parts:
        outputs = part.members.outputs(torch.as_tensor(X)).detach().numpy()
        for own, block, weight in zip(outputs, part.blocks, part.weights, strict=True):
            positions = ensemble.layout.blocks[block]
            result[:, positions] += weight * own[:, : len(positions)]
    return result


MAKERS = [mixed_kinds, blocks, lambda: single(networks(3), [0.5, 0.5, 0.0])]


@pytest.mark.parametrize("make", MAKERS)
def test_predictions_are_the_weighted_sum_of_the_members(make: Any) -> None:
    ensemble = make()
    prediction = ensemble.predict(X)
    assert isinstance(prediction, np.ndarray)
    assert prediction.dtype == np.float64
    np.testing.assert_allclose(prediction, by_hand(ensemble), rtol=1e-12, atol=1e-12)


def test_tensors_give_tensors_and_tables_give_arrays() -> None:
    ensemble = mixed_kinds()
    expected = ensemble.predict(X)
    for dtype in (torch.float64, torch.float32):
        tensor = torch.as_tensor(X, dtype=dtype).requires_grad_()
        result = ensemble.predict(tensor)
        assert isinstance(result, torch.Tensor)
        assert result.dtype == torch.float64
        assert not result.requires_grad
        np.testing.assert_allclose(result.numpy(), expected, atol=1e-5)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    np.testing.assert_array_equal(ensemble.predict(frame), expected)
    np.testing.assert_array_equal(ensemble.predict(X.tolist()), expected)


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        (X[:, :2], "shape"),
        (X[0], "shape"),
        (np.zeros((0, 3)), "empty"),
        (np.full((1, 3), np.nan), "not-finite"),
        ([["a", "b", "c"]], "type"),
        (pd.DataFrame({"a": ["x"], "b": [1.0], "c": [2.0]}), "type"),
        (np.zeros((1, 3), complex), "type"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: Any, code: str) -> None:
    with raises(InvalidInput, code):
        mixed_kinds().predict(inputs)


@pytest.mark.parametrize("several", [False, True])
def test_arrays_changed_afterwards_do_not_change_the_mixture(several: bool, tmp_path: Path) -> None:
    members = networks(4, 1)
    numbers = np.array([0, 0, 1, 1]) if several else np.zeros(4, np.int64)
    weights = np.full(4, 0.5 if several else 0.25)
    layout = Layout((np.array([0]), np.array([1]))) if several else Layout.single(1)
    mixture = Ensemble((Part(members, numbers, weights),), layout)
    before = mixture.predict(X)
    weights[:] = [1.0, 0.0, 1.0 if several else 0.0, 0.0]
    numbers[:] = numbers[::-1].copy()
    np.testing.assert_array_equal(mixture.predict(X), before)
    np.testing.assert_array_equal(cg4ai.load(mixture.save(tmp_path)).predict(X), before)
    with pytest.raises(ValueError, match="read-only"):
        mixture.parts[0].weights[0] = 1.0


def test_sizes_and_words() -> None:
    ensemble = single(networks(3), [0.5, 0.5, 0.0])
    assert len(ensemble) == 2
    assert (ensemble.input_size, ensemble.output_size) == (3, 2)
    assert repr(ensemble) == "Ensemble(2 members, 1 block(s), 3 inputs, 2 outputs)"
    assert ensemble.differentiable
    assert not mixed_kinds().differentiable
    assert ensemble.to("cpu") is ensemble


def test_outputs_carry_gradients_where_the_members_have_them() -> None:
    for ensemble in (single(networks(2), [0.5, 0.5]), _differentiable_blocks()):
        x = torch.tensor(X, requires_grad=True)
        outputs = ensemble.outputs(x)
        (gradient,) = torch.autograd.grad(outputs[:, 0].sum(), x)
        step = 1e-6
        moved = X.copy()
        moved[:, 1] += step
        slope = (ensemble.predict(moved) - ensemble.predict(X))[:, 0] / step
        np.testing.assert_allclose(gradient[:, 1].numpy(), slope, rtol=1e-4, atol=1e-6)


def _differentiable_blocks() -> Ensemble:
    layout = Layout((np.array([1]), np.array([0])))
    return Ensemble((Part(networks(2), np.array([0, 1]), np.ones(2)),), layout)


def test_one_block_may_name_its_outputs_in_any_order() -> None:
    part = Part(ConstantMembers([[1.0, 2.0, 3.0]], 3), np.zeros(1, int), np.ones(1))
    ensemble = Ensemble((part,), Layout((np.array([2, 0, 1]),)))
    np.testing.assert_array_equal(ensemble.predict(X[:1]), [[2.0, 3.0, 1.0]])


@pytest.mark.parametrize(
    ("blocks", "weights", "code"),
    [
        ([0, 0], [0.5, 0.4], "range"),
        ([0, 0], [1.5, -0.5], "range"),
        ([0, 0], [np.nan, 0.5], "range"),
        ([0, 0], [1.0], "shape"),
        ([0], [1.0], "shape"),
        ([0, 1], [1.0, 1.0], "range"),
        ([0, -1], [0.5, 0.5], "range"),
    ],
)
def test_weights_and_blocks_that_make_no_mixture_are_refused(
    blocks: list[int], weights: list[float], code: str
) -> None:
    part = Part(networks(2), np.array(blocks), np.array(weights))
    with raises(InvalidInput, code):
        Ensemble((part,), Layout.single(2))


def test_members_that_do_not_fit_together_are_refused() -> None:
    with raises(InvalidInput, "empty"):
        Ensemble((), Layout.single(2))
    with raises(InvalidInput, "shape"):
        single(networks(1), [1.0], outputs=3)
    half = np.array([0.5])
    zero = np.zeros(1, np.int64)
    other = ConstantMembers([[1.0, 1.0]], 4)
    with raises(InvalidInput, "shape"):
        Ensemble((Part(networks(1), zero, half), Part(other, zero, half)), Layout.single(2))
    with raises(InvalidInput, "range"):  # a block without members
        Ensemble((Part(networks(1), zero, np.ones(1)),), Layout((np.array([0]), np.array([1]))))


def test_as_module_predicts_the_same_and_takes_single_precision() -> None:
    ensemble = blocks()
    module = ensemble.as_module()
    assert isinstance(module, nn.Module)
    np.testing.assert_array_equal(module(torch.as_tensor(X)).numpy(), ensemble.predict(X))
    single_precision = module(torch.as_tensor(X, dtype=torch.float32))
    assert single_precision.dtype == torch.float64
    np.testing.assert_allclose(single_precision.numpy(), ensemble.predict(X), atol=1e-5)


def test_fuse_makes_one_network_of_a_mixture_of_networks() -> None:
    ensemble = single(networks(3), [0.2, 0.3, 0.5])
    fused = ensemble.fuse()
    with torch.no_grad():
        values = fused(torch.as_tensor(X)).numpy()
    np.testing.assert_allclose(values, ensemble.predict(X), rtol=1e-10, atol=1e-12)
    with raises(InvalidInput, "unsupported", "as_module"):
        mixed_kinds().fuse()
    with raises(InvalidInput, "unsupported", "as_module"):
        _differentiable_blocks().fuse()
    with raises(InvalidInput, "unsupported", "ConstantMembers"):
        single(ConstantMembers([[1.0, 2.0]], 3), [1.0]).fuse()


def test_audits_can_be_asked_of_an_ensemble() -> None:
    ensemble = single(ConstantMembers([[1.0, 2.0]], 3), [1.0])
    assert ensemble.audit(Linear(X, [0.0, 1.0], 2.0)).holds
    assert not ensemble.audit(Linear(X, [1.0, 0.0], 2.0)).holds


class TestFiles:
    factories = {"own": factory}  # noqa: RUF012

    @pytest.mark.parametrize("make", MAKERS)
    def test_what_is_loaded_is_what_was_saved_to_the_last_bit(
        self, make: Any, tmp_path: Path
    ) -> None:
        ensemble = make()
        folder = ensemble.save(tmp_path / "new" / "place")
        loaded = cg4ai.load(folder, self.factories)
        np.testing.assert_array_equal(loaded.predict(X), ensemble.predict(X))
        assert loaded.about == ensemble.about
        assert len(loaded.parts) == len(ensemble.parts)
        for mine, theirs in zip(ensemble.parts, loaded.parts, strict=True):
            np.testing.assert_array_equal(mine.weights, theirs.weights)
            np.testing.assert_array_equal(mine.blocks, theirs.blocks)
            assert type(mine.members) is type(theirs.members)

    def test_saving_again_replaces_what_was_there(self, tmp_path: Path) -> None:
        mixed_kinds().save(tmp_path)
        other = single(networks(2), [0.5, 0.5])
        other.save(tmp_path)
        np.testing.assert_array_equal(cg4ai.load(tmp_path).predict(X), other.predict(X))

    def test_a_users_module_needs_its_factory(self, tmp_path: Path) -> None:
        folder = mixed_kinds().save(tmp_path)
        with raises(InvalidInput, "missing-factory", "own"):
            cg4ai.load(folder)

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with raises(RunFolderError, "bad-file", "file"):
            single(networks(1), [1.0]).save(tmp_path / "file" / "inside")

    def test_folders_without_an_ensemble_are_refused(self, tmp_path: Path) -> None:
        with raises(RunFolderError, "bad-file", "ensemble"):
            cg4ai.load(tmp_path)
        with raises(RunFolderError, "bad-file", "ensemble"):
            cg4ai.load(tmp_path / "nowhere")
        for content in ("[]", '{"format": "cg4ai-ensemble", "version": 1}'):
            (tmp_path / "ensemble.json").write_text(content)
            with raises(RunFolderError, "bad-file", "version"):
                cg4ai.load(tmp_path)
        files.write_json(tmp_path / "ensemble.json", {"format": "other"})
        with raises(RunFolderError, "bad-file", "other"):
            cg4ai.load(tmp_path)

    def change(self, folder: Path, **values: Any) -> None:
        path = folder / "ensemble.json"
        content = files.read_json(path)
        for name, value in values.items():
            if value is None:
                del content[name]
            else:
                content[name] = value
        files.write_json(path, content)

    @pytest.mark.parametrize("version", [4, "3", None])
    def test_other_formats_are_refused(self, version: Any, tmp_path: Path) -> None:
        folder = blocks().save(tmp_path)
        self.change(folder, version=version)
        with raises(RunFolderError, "version"):
            cg4ai.load(folder)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"weights": None},
            {"blocks": None},
            {"layout": None},
            {"about": None},
            {"weights": [[1.0]]},
            {"weights": [["a", 1, 1], [1], [0.5, 0.5]]},
            {"weights": 3},
            {"blocks": [[0, 2, 9], [0], [1, 1]]},
            {"blocks": [[0, 2], [0], [1, 1]]},
            {"layout": [[0, 1], [1]]},
            {"layout": 7},
        ],
    )
    def test_damage_is_named(self, wrong: dict[str, Any], tmp_path: Path) -> None:
        folder = blocks().save(tmp_path)
        self.change(folder, **wrong)
        with raises(RunFolderError, "bad-file", "ensemble.json"):
            cg4ai.load(folder)

    def test_files_cut_short_or_missing_are_named(self, tmp_path: Path) -> None:
        for name in ("ensemble.json", "members.safetensors"):
            folder = blocks().save(tmp_path / name.replace(".", "-"))
            path = folder / name
            path.write_bytes(path.read_bytes()[:-7])
            with raises(RunFolderError, "bad-file", name):
                cg4ai.load(folder)
            path.unlink()
            with raises(RunFolderError, "bad-file"):
                cg4ai.load(folder)


@pytest.mark.parametrize("several", [False, True])
def test_members_of_weight_zero_are_never_evaluated(several: bool) -> None:
    """Zero times an infinite output would be no number; nor do claims speak of such members."""
    wild = affine(np.full((2, 3, 2), 1e308), np.zeros((2, 2)))  # overflows at these inputs
    layout = Layout((np.array([0]), np.array([1]))) if several else Layout.single(2)
    blocks = np.array([0, 1 if several else 0])
    both = ConstantMembers(np.array([[1.0, 2.0], [2.0, 1.0]]), 3)
    weights = np.ones(2) if several else np.full(2, 0.5)
    rest = Part(both, blocks, weights)
    ensemble = Ensemble((Part(wild, blocks, np.zeros(2)), rest), layout)
    alone = Ensemble((rest,), layout)
    large = np.full((4, 3), 1e3)
    np.testing.assert_array_equal(ensemble.predict(large), alone.predict(large))
    assert compute_mixture_digest(ensemble) == compute_mixture_digest(alone)
    assert len(ensemble) == 2
    within = Part(both, blocks, np.array([1.0, 1.0] if several else [1.0, 0.0]))
    assert np.isfinite(Ensemble((within,), layout).predict(large)).all()
