"""Data that do not fit in memory: where rows are read from, some at a time.

A source gives all rows once, in parts, when training begins, and then the rows of one step after
the other. What is kept of them, and how members are trained on them, is in estimators/batches.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from cg4ai.errors import InvalidInput

KEPT = 30_000  # rows in memory: up to 10,000 to weigh members by, the others to begin from
LEAST_KEPT = 10_000  # fewer would be trained on as small tables are
PART = 16_384  # rows read at once,
NUMBERS = 2**22  # and numbers at most, where rows are wide


class RawRows(NamedTuple):
    """Rows as they were read: inputs (m, d), an array or a DataFrame, targets, weights or None."""

    inputs: Any
    targets: Any
    weights: Any = None


class Source(Protocol):
    """Where rows come from."""

    def parts(self) -> Iterator[RawRows]:
        """All rows once, some at a time, in any order."""
        ...

    def take_rows(self, count: int, generator: torch.Generator) -> RawRows:
        """Rows to train on next: `count` random ones, or what comes next."""
        ...


class Batches:
    """Rows that are read some at a time, for `fit` of members that are torch modules.

    >>> model.fit(Batches(np.load("X.npy", mmap_mode="r"), y), requirements=[rule])
    >>> model.fit(Batches(loader))

    data: inputs (n, d) that can be sliced and indexed, such as a memory-mapped array, with
        `targets` (n,) or (n, r) and, if any, `weights` (n,) beside them; or a torch `Dataset` of
        (x, y) or (x, y, weight); or batches of these, (m, d), (m,) and (m,), in anything that can
        be read more than once: a `DataLoader`, a list, a function that returns an iterator. They
        should be shuffled.
    held_out: (X, y) or (X, y, weights) in memory, to weigh members by. Needed where rows differ
        each time they are read, as augmented ones do. None takes rows of the data themselves; those
        are never trained on, nor are equal ones.
    keep: how many different rows are held in memory.
    """

    def __init__(
        self,
        data: Any,
        targets: Any = None,
        weights: Any = None,
        *,
        held_out: Any = None,
        keep: int = KEPT,
    ) -> None:
        self.source = _source(data, targets, weights)
        self.held_out = None if held_out is None else _raw(held_out, "held_out")
        if not isinstance(keep, int | np.integer) or keep < LEAST_KEPT:
            raise InvalidInput(
                f"keep must be a whole number >= {LEAST_KEPT}, got {keep!r}", code="range"
            )
        self.keep = int(keep)

    def __repr__(self) -> str:
        return f"Batches({self.source!r}, keep={self.keep})"


def as_batches(data: Any) -> Batches | None:
    """The `Batches` that an estimator is given, also as a bare loader or dataset; else None."""
    if isinstance(data, Batches):
        return data
    return Batches(data) if isinstance(data, DataLoader | Dataset) else None


def _source(data: Any, targets: Any, weights: Any) -> Source:
    if targets is not None:
        return _Arrays(data, targets, weights)
    if weights is not None:
        raise InvalidInput(
            "weights stand beside targets: write Batches(X, y, weights)", code="conflict"
        )
    if isinstance(data, IterableDataset):
        raise InvalidInput(
            "an IterableDataset gives single rows: put it into a DataLoader", code="type"
        )
    if isinstance(data, Dataset):
        return _Items(data)
    if isinstance(data, Iterator):
        raise InvalidInput(
            f"{type(data).__name__} can be read once only, and training reads the data many "
            "times: give a DataLoader, or a function that returns a new iterator",
            code="type",
        )
    if hasattr(data, "shape"):
        raise InvalidInput("the targets are missing: write Batches(X, y)", code="missing-argument")
    if callable(data) or hasattr(data, "__iter__"):
        return _Stream(data)
    raise InvalidInput(
        f"Batches are made of arrays, a torch Dataset or batches of (x, y), got "
        f"{type(data).__name__}",
        code="type",
    )


class _Arrays:
    """Arrays that are read where they lie."""

    def __init__(self, inputs: Any, targets: Any, weights: Any) -> None:
        shapes = [getattr(one, "shape", None) for one in (inputs, targets)]
        if shapes[0] is None or len(shapes[0]) != 2:
            raise InvalidInput(
                f"Batches(X, y) reads arrays where they lie: X must have the shape (n, d), got "
                f"{type(inputs).__name__ if shapes[0] is None else shapes[0]}",
                code="shape",
            )
        if shapes[1] is None or hasattr(targets, "iloc"):  # a Series is indexed by its labels
            targets = np.asarray(targets)
        lengths = {"X": shapes[0][0], "y": len(targets)}
        if weights is not None:
            weights = np.asarray(weights, np.float64)
            lengths["weights"] = len(weights)
        if len(set(lengths.values())) > 1 or not lengths["X"]:
            raise InvalidInput(
                f"X, y and weights must have the same number of rows, got {lengths}", code="shape"
            )
        self.inputs, self.targets, self.weights = inputs, targets, weights
        self.count = int(lengths["X"])

    def parts(self) -> Iterator[RawRows]:
        size = choose_batch_rows(int(self.inputs.shape[1]))
        for start in range(0, self.count, size):
            yield self._at(slice(start, start + size))

    def take_rows(self, count: int, generator: torch.Generator) -> RawRows:
        drawn = torch.randint(self.count, (count,), generator=generator).numpy()
        # files want positions in order, and each of them once
        places, which = np.unique(drawn, return_inverse=True)
        return self._at(places, which.ravel())

    def _at(self, places: Any, which: Any = slice(None)) -> RawRows:
        weights = None if self.weights is None else self.weights[places][which]
        frame = getattr(self.inputs, "iloc", None)
        inputs = self.inputs[places] if frame is None else frame[places]
        taken = np.asarray(inputs)[which] if frame is None else inputs.iloc[which]
        return RawRows(taken, np.asarray(self.targets[places])[which], weights)

    def __repr__(self) -> str:
        return f"arrays of {self.count} rows"


class _Items:
    """A torch Dataset, from which rows are taken one by one."""

    def __init__(self, data: Any) -> None:
        self.data = data
        try:
            self.count = len(data)
        except TypeError as error:
            raise InvalidInput(
                "the Dataset does not say how long it is (__len__)", code="type"
            ) from error
        if not self.count:
            raise InvalidInput("the Dataset is empty", code="empty")

    def parts(self) -> Iterator[RawRows]:
        size = choose_batch_rows(int(np.prod(np.shape(self._at([0]).inputs)[1:])))
        for start in range(0, self.count, size):
            yield self._at(range(start, min(start + size, self.count)))

    def take_rows(self, count: int, generator: torch.Generator) -> RawRows:
        return self._at(torch.randint(self.count, (count,), generator=generator).tolist())

    def _at(self, places: Any) -> RawRows:
        together: Callable[[Any], Any] | None = getattr(self.data, "__getitems__", None)
        items = [self.data[k] for k in places] if together is None else together(list(places))
        return _raw(default_collate(items), "the Dataset")

    def __repr__(self) -> str:
        return f"{type(self.data).__name__} of {self.count} rows"


class _Stream:
    """Batches one after the other, from the beginning again when they are over."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self._going: Iterator[Any] | None = None

    def _open(self) -> Iterator[Any]:
        return iter(self.data() if callable(self.data) else self.data)

    def parts(self) -> Iterator[RawRows]:
        empty = True
        for batch in self._open():
            empty = False
            yield _raw(batch, "every batch")
        if empty:
            raise InvalidInput(
                "there are no batches to read; a function must return a new iterator each time",
                code="empty",
            )

    def take_rows(self, count: int, generator: torch.Generator) -> RawRows:
        if self._going is None:
            self._going = self._open()
        batch = next(self._going, None)
        if batch is None:
            self._going = self._open()
            batch = next(self._going, None)
        if batch is None:
            raise InvalidInput(
                "the batches were read once and are now empty: give a DataLoader, or a function "
                "that returns a new iterator",
                code="empty",
            )
        return _raw(batch, "every batch")

    def __repr__(self) -> str:
        return f"batches of {getattr(self.data, '__name__', type(self.data).__name__)}"


def choose_batch_rows(width: int) -> int:
    """How many rows of so many numbers are read at once."""
    return max(1, min(PART, NUMBERS // max(1, width)))


def _raw(batch: Any, what: str) -> RawRows:
    """A batch as arrays, whatever it was made of."""
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        got = f"{len(batch)} parts" if isinstance(batch, tuple | list) else type(batch).__name__
        raise InvalidInput(f"{what} must be (x, y) or (x, y, weights), got {got}", code="type")
    inputs, targets, *weights = (_plain(part) for part in batch)
    if np.ndim(inputs) != 2:
        raise InvalidInput(
            f"inputs of {what} must have the shape (m, d), got {np.shape(inputs)}; flatten each "
            "input, and begin a module of your own with nn.Unflatten",
            code="shape",
        )
    lengths = {len(inputs), len(targets), *map(len, weights)}
    if len(lengths) > 1:
        raise InvalidInput(
            f"{what} must have parts of one length, got {sorted(lengths)}", code="shape"
        )
    return RawRows(inputs, targets, np.asarray(weights[0], np.float64) if weights else None)


def _plain(value: Any) -> Any:
    """Tensors and lists as arrays; DataFrames keep their names."""
    if isinstance(value, Tensor):
        return (value.double() if value.is_floating_point() else value).detach().cpu().numpy()
    return value if hasattr(value, "columns") else np.asarray(value)
