"""Splits keep the test images out; IDX files are read as written and refused when damaged."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from cg4ai.errors import InvalidInput
from experiments.digits.data import CLASSES, TEST_FILES, TRAIN_FILES, Digits, digits
from raising import raises


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_splits_are_balanced_and_disjoint(n: int) -> None:
    split = digits().split(n, 42)
    assert np.bincount(split.train_labels).tolist() == [n // CLASSES] * CLASSES
    assert np.bincount(split.test_labels).tolist() == [200] * CLASSES
    parts = np.concatenate([split.train, split.test, split.others])
    np.testing.assert_array_equal(np.sort(parts), np.arange(5000))
    assert split.train_images.min() == 0
    assert split.train_images.max() == 1


def test_seeds_change_the_training_images_only() -> None:
    one, again, two = (digits().split(100, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.train, again.train)
    assert not np.array_equal(one.train, two.train)
    np.testing.assert_array_equal(one.test, two.test)


def test_validation_is_taken_from_training_images() -> None:
    split = digits().split(100, 3)
    part = split.validation(0.2)
    assert np.bincount(part.test_labels).tolist() == [2] * CLASSES
    np.testing.assert_array_equal(
        np.sort(np.concatenate([part.train, part.test])), np.sort(split.train)
    )
    with raises(InvalidInput, "invalid-input", "training"):
        digits().split(10, 3).validation()
    with raises(InvalidInput, "invalid-input"):
        split.validation(1.0)


@pytest.mark.parametrize("n", [0, 5, 15, 3010])
def test_impossible_sizes_are_refused(n: int) -> None:
    with raises(InvalidInput, "invalid-input", "from"):
        digits().split(n, 0)


def write_pair(
    folder: Path, names: tuple[str, str], labels: list[int], *, packed: bool = False
) -> np.ndarray:
    images = np.random.default_rng(len(labels)).integers(0, 256, (len(labels), 784), np.uint8)
    contents = (
        struct.pack(">4I", 2051, len(labels), 28, 28) + images.tobytes(),
        struct.pack(">2I", 2049, len(labels)) + bytes(labels),
    )
    for name, content in zip(names, contents, strict=True):
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content, 1))
        else:
            (folder / name).write_bytes(content)
    return images


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_pair(tmp_path, TRAIN_FILES, [c for c in range(10) for _ in range(3)])
    write_pair(tmp_path, TEST_FILES, [c for c in range(10) for _ in range(201)], packed=True)
    return tmp_path


def test_idx_files_plain_and_packed(folder: Path) -> None:
    train = write_pair(folder, TRAIN_FILES, [*range(10), *range(10), *([7] * 10)])
    found: Digits = digits(folder)
    split = found.split(20, 0)
    assert np.bincount(split.train_labels).tolist() == [2] * CLASSES
    assert split.train.max() < 30
    np.testing.assert_allclose(found.images[:30], train / 255.0)
    assert split.test.min() >= 30  # from the t10k files
    assert len(split.others) == 10
    # all at once are as they are
    assert np.bincount(found.split(30, 0).train_labels).tolist() == [2] * 7 + [12, 2, 2]


def test_a_class_with_too_few_images_is_refused_by_name(folder: Path) -> None:
    write_pair(folder, TRAIN_FILES, [*range(10), *range(9), *([7] * 11)])
    with raises(InvalidInput, "invalid-input", "every"):
        digits(folder).split(20, 0)
    write_pair(folder, TRAIN_FILES, [c for c in range(9) for _ in range(10)])
    for n in (10, 90):
        with raises(InvalidInput, "invalid-input"):
            digits(folder).split(n, 0)


def test_without_a_test_part_the_last_images_are_held_out(tmp_path: Path) -> None:
    write_pair(tmp_path, TRAIN_FILES, [k % 10 for k in range(10_050)], packed=True)
    split = digits(tmp_path).split(50, 0)
    assert split.train.max() < 50 <= split.test.min()
    assert len(split.others) == 0
    with raises(InvalidInput, "invalid-input", "from"):
        digits(tmp_path).split(60, 0)


def test_damaged_idx_files_are_refused_by_name(folder: Path) -> None:
    images, labels = (folder / name for name in TRAIN_FILES)
    whole = images.read_bytes()
    cases = [
        (struct.pack(">4I", 2052, 30, 28, 28) + whole[16:], "2052"),
        (struct.pack(">4I", 2051, 30, 27, 28) + whole[16:], "(27, 28)"),
        (whole[:-1], "30"),
        (whole[:10], "16"),
        (struct.pack(">4I", 2051, 29, 28, 28) + whole[16:-784], "29"),
    ]
    for content, fact in cases:
        images.write_bytes(content)
        with raises(InvalidInput, "invalid-input", fact, TRAIN_FILES[0]):
            digits(folder)
    images.write_bytes(whole)
    labels.write_bytes(labels.read_bytes()[:-1] + b"\x0b")
    with raises(InvalidInput, "invalid-input"):
        digits(folder)


def test_unreadable_folders_are_refused(folder: Path, tmp_path: Path) -> None:
    with raises(InvalidInput, "invalid-input", "folder"):
        digits(tmp_path / "nowhere")
    (folder / f"{TEST_FILES[0]}.gz").write_bytes(b"not packed")
    with raises(InvalidInput, "invalid-input"):
        digits(folder)
    (folder / TRAIN_FILES[1]).unlink()
    with raises(InvalidInput, "invalid-input"):
        digits(folder)
