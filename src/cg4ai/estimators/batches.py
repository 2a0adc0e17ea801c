"""Training on data that are read in batches: the rows kept in memory, and those of each step.

Members are weighed by rows that are held out, and those are few; all that needs the other rows,
gradient training, takes them batch by batch. So one pass over the data finds what must be known of
all of them (ranges, labels, how many), and keeps some, chosen by a hash of the row (holdout.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cg4ai.data.batches import Batches, RawRows, Source
from cg4ai.errors import InvalidInput
from cg4ai.estimators.holdout import Kind, LabelledData, join_rows, merge_rows, split_rows
from cg4ai.estimators.kinds import is_fitted, is_module
from cg4ai.objectives import Batch, LossFunction, Supervised
from cg4ai.records import Array, IntArray

Check = Callable[[Any, Any, bool], tuple[Array, NDArray[Any]]]  # x, y, whether they are the first
TRIES = 1000  # reads in a row that gave nothing to train on


@dataclass(frozen=True)
class DataScan:
    """What one pass over the data found; the rows kept are in order of their hashes.

    `count` rows in all, of `labels` so often `often`; features lie between `low` and `high` (d,).
    `complete`: the rows kept are all that there are, merged. The first `own` of them were given to
    be held out.
    """

    source: Source
    inputs: Array
    targets: NDArray[Any]
    weights: Array
    hashes: Hashes
    salt: int
    count: int
    labels: NDArray[Any]
    often: IntArray
    low: Array
    high: Array
    complete: bool
    own: int = 0
    weighted: bool = False


def scan_data(batches: Batches, check: Check, *, seed: int, labelled: bool) -> DataScan:
    """Read all rows once; `labelled` counts the distinct targets."""
    kept: RowReservoir | None = None
    count, weighted = 0, False
    often: dict[Any, int] = {}
    low = high = np.empty(0)
    for raw in batches.source.parts():
        inputs, targets = _checked(raw, check, count)
        weights, count = _weights(raw, count), count + len(inputs)
        weighted |= raw.weights is not None
        if kept is None:
            kept = RowReservoir(batches.keep, seed)
            low, high = inputs.min(0), inputs.max(0)
        low, high = np.minimum(low, inputs.min(0)), np.maximum(high, inputs.max(0))
        if labelled:
            distinct, times = np.unique(targets, return_counts=True)
            for label, count_of in zip(distinct.tolist(), times.tolist(), strict=True):
                often[label] = often.get(label, 0) + count_of
        kept.add(inputs, targets, weights)
    assert kept is not None  # sources without rows are refused by themselves
    if not kept.row_count:
        raise InvalidInput("no row has a weight above 0", code="range")
    inputs, targets, weights, hashes = kept.get_rows()
    looked = DataScan(
        source=batches.source,
        inputs=inputs,
        targets=targets,
        weights=weights,
        hashes=hashes,
        salt=seed,
        count=count,
        labels=np.array(sorted(often)),
        often=np.array([often[one] for one in sorted(often)], np.int64),
        low=low,
        high=high,
        complete=not kept.full,
        weighted=weighted,
    )
    return looked if batches.held_out is None else _with_own(looked, batches.held_out, check)


def _with_own(looked: DataScan, given: RawRows, check: Check) -> DataScan:
    """With the rows that the user holds out put before those kept."""
    inputs, targets = check(given.inputs, given.targets, False)
    weights = _weights(given, 0)
    unknown = np.setdiff1d(targets, looked.labels) if len(looked.labels) else np.empty(0)
    if unknown.size:
        label = unknown.tolist()[0]
        raise InvalidInput(
            f"held_out has the label {label!r}, which no other row has", code="unknown-name"
        )
    none = np.zeros(len(inputs), np.uint64)
    return replace(
        looked,
        inputs=np.concatenate([inputs, looked.inputs]),
        targets=np.concatenate([targets, looked.targets]),
        weights=np.concatenate([weights, looked.weights]),
        hashes=np.concatenate([none, looked.hashes]),
        own=len(inputs),
        weighted=looked.weighted or given.weights is not None,
    )


def _checked(raw: RawRows, check: Check, before: int) -> tuple[Array, NDArray[Any]]:
    try:
        return check(raw.inputs, raw.targets, before == 0)
    except (TypeError, ValueError) as error:
        last = before + len(raw.inputs) - 1
        code = error.code if isinstance(error, InvalidInput) else None
        raise InvalidInput(f"rows {before} to {last} of the batches: {error}", code=code) from error


def _weights(raw: RawRows, before: int) -> Array:
    if raw.weights is None:
        return np.ones(len(raw.inputs))
    wrong = ~(np.isfinite(raw.weights) & (raw.weights >= 0))
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        raise InvalidInput(
            f"weights must be numbers >= 0, got {raw.weights[place]} in row {before + place}",
            code="range",
        )
    return np.asarray(raw.weights, np.float64)


@dataclass(frozen=True)
class TargetEncoding:
    """What targets and weights become: `targets` maps labels or numbers as they were read.

    `class_weights` (classes,) multiply the weights of rows; None where all are the same.
    """

    targets: Callable[[NDArray[Any]], Array | IntArray]
    class_weights: Array | None = None

    def encode(self, inputs: Array, targets: NDArray[Any], weights: Array) -> LabelledData:
        known = self.targets(targets)
        if self.class_weights is not None:
            weights = weights * self.class_weights[known]
        return LabelledData(inputs, known, weights)


@dataclass(frozen=True)
class FitData:
    """The rows of a fit as they came: all of them, or those kept of the ones `looked` at."""

    inputs: Array
    targets: NDArray[Any]
    weights: Array
    looked: DataScan | None = None

    @classmethod
    def from_scan(cls, looked: DataScan) -> FitData:
        """Where all rows were kept, they are rows like any others."""
        whole = looked.complete and not looked.own
        return cls(looked.inputs, looked.targets, looked.weights, None if whole else looked)

    def count_labels(self) -> tuple[NDArray[Any], IntArray]:
        """The sorted distinct targets, and how often each is there."""
        if self.looked is not None:
            return self.looked.labels, self.looked.often
        return np.unique(self.targets, return_counts=True)

    def make_examples(self, encoding: TargetEncoding) -> Examples:
        data = encoding.encode(self.inputs, self.targets, self.weights)
        if self.looked is not None:
            return Examples(data, self.looked.count, encoding, self.looked)
        data = merge_rows(data)
        return Examples(data, len(data.inputs), encoding)


@dataclass(frozen=True)
class Examples:
    """Rows with their targets, `count` in all; where they were `looked` at, more can be read."""

    data: LabelledData
    count: int
    encoding: TargetEncoding
    looked: DataScan | None = None

    def choose_kinds(self, kinds: list[Any]) -> list[Any]:
        """The kinds of members to train: of "auto" networks alone, where rows are read."""
        if self.looked is None:
            return kinds
        return ["network" if isinstance(kind, str) else kind for kind in kinds]

    def split(
        self, fraction: float, generator: np.random.Generator, *, about: bool = False
    ) -> tuple[LabelledData, LabelledData]:
        """(to train on, to weigh by); `about` so many: fewer where few rows are kept."""
        if self.looked is None:
            trained, weighed = split_rows(self.data, fraction, generator)
            if not len(weighed.inputs):
                raise InvalidInput(
                    f"validation_fraction={fraction} of {len(self.data.inputs)} rows leaves none "
                    "to weigh members by; set validation_fraction=0",
                    code="range",
                )
            return trained, weighed
        most = len(self.data.inputs) // 3 if about else self.count
        first = self.looked.own or min(most, self._held_out(fraction, about=about))
        places = np.arange(len(self.data.inputs))
        return self.data.take(places[first:]), self.data.take(places[:first])

    def _held_out(self, fraction: float, *, about: bool) -> int:
        count, kept = round(fraction * self.count), len(self.data.inputs)
        if count < 1:
            raise InvalidInput(
                f"validation_fraction={fraction} weighs members by all {self.count} rows, which "
                "are not in memory; leave it to 'auto', or give Batches(..., held_out=(X, y))",
                code="memory",
            )
        if count > kept // 2 and not about:
            raise InvalidInput(
                f"validation_fraction={fraction} of {self.count} rows are {count} to hold in "
                f"memory, where {kept} are kept; give Batches(..., keep={4 * count}) or a "
                "smaller share",
                code="memory",
            )
        return count

    def objective(self, trained: LabelledData, loss: str | LossFunction, kind: Kind) -> Supervised:
        """What members are trained by: these rows, or all that can be read."""
        if self.looked is None or self.looked.complete:
            return trained.objective(loss, kind)
        held_out = len(self.data.inputs) - len(trained.inputs)
        return StreamedSupervised(trained, loss, kind, Stream(self.looked, self.encoding, held_out))


def check_kinds(kinds: list[Any]) -> None:
    """Refuse kinds of members that are not trained on batches."""
    for kind in kinds:
        named = isinstance(kind, str) and kind in ("auto", "network")
        if not (named or is_module(kind) or is_fitted(kind)):
            raise InvalidInput(
                f"members={kind!r:.60} are fitted to all rows at once, which Batches are not; use "
                "'network', a function that makes a torch module, or fit to a sample of the rows",
                code="unsupported",
            )


class Stream:
    """The rows to train on, batch by batch, without those that are held out."""

    def __init__(self, looked: DataScan, encoding: TargetEncoding, held_out: int) -> None:
        self.looked, self.encoding = looked, encoding
        self.weighted = looked.weighted or encoding.class_weights is not None
        # rows that the user holds out are not among those that are read
        self.limit = None if looked.own else looked.hashes[held_out - 1]
        self._left: LabelledData | None = None

    def draw(self, size: int, generator: torch.Generator) -> LabelledData:
        """The rows of the next step; what a read gave beyond them is for the one after it."""
        parts = [] if self._left is None else [self._left]
        found, empty = sum(len(part.inputs) for part in parts), 0
        while found < size:
            part = self._read(size - found, generator)
            empty = 0 if len(part.inputs) else empty + 1
            if empty > TRIES:
                raise InvalidInput(
                    "there are no rows to train on beside those held out", code="empty"
                )
            parts.append(part)
            found += len(part.inputs)
        rows = join_rows(parts)
        self._left = rows.take(np.arange(size, found)) if found > size else None
        return rows.take(np.arange(size))

    def _read(self, count: int, generator: torch.Generator) -> LabelledData:
        raw = self.looked.source.take_rows(count, generator)
        inputs, targets = np.asarray(raw.inputs, np.float64), np.asarray(raw.targets)
        weights = np.ones(len(inputs)) if raw.weights is None else raw.weights
        kept = weights > 0
        if self.limit is not None:
            kept &= row_hashes(inputs, targets, self.looked.salt) > self.limit
        return self.encoding.encode(inputs[kept], targets[kept], weights[kept])


class StreamedSupervised(Supervised):
    """The mean loss over data of which `kept` are some, for members that train on batches."""

    stream: Stream

    def __init__(
        self, kept: LabelledData, loss: str | LossFunction, kind: Kind, stream: Stream
    ) -> None:
        object.__setattr__(self, "stream", stream)
        weights = kept.weights if stream.weighted else None
        super().__init__(kept.inputs, kept.targets, loss, kind, weights)

    def batch(
        self, size: int | None, generator: torch.Generator, *, device: str, dtype: torch.dtype
    ) -> Batch:
        """The rows of the next step, or without a size those that are kept."""
        if size is None:
            return super().batch(None, generator, device=device, dtype=dtype)
        rows = self.stream.draw(size, generator)
        drawn = Supervised(
            rows.inputs,
            rows.targets,
            self.loss,
            self.kind,
            rows.weights if self.stream.weighted else None,
        )
        return drawn.batch(None, generator, device=device, dtype=dtype)


Hashes = NDArray[np.uint64]


class RowReservoir:
    """The distinct rows of smallest hashes so far, each with the weight of all its copies."""

    def __init__(self, most: int, seed: int) -> None:
        self.most, self.seed = most, seed
        self.full = False  # whether rows were left out
        self._largest = np.uint64(0)
        self._parts: list[tuple[Array, NDArray[Any], Array, Hashes]] = []

    @property
    def row_count(self) -> int:
        return sum(len(part[0]) for part in self._parts)

    def add(self, inputs: Array, targets: NDArray[Any], weights: Array) -> None:
        hashes = row_hashes(inputs, targets, self.seed)
        fits = weights > 0
        if self.full:
            fits &= hashes <= self._largest
        if fits.any():
            self._parts.append((inputs[fits], targets[fits], weights[fits], hashes[fits]))
        if self.row_count > 2 * self.most:  # seldom, for it copies all that are kept
            self._parts = [self.get_rows()]

    def get_rows(self) -> tuple[Array, NDArray[Any], Array, Hashes]:
        """In order of their hashes, equal ones as one, as many as are kept."""
        inputs, targets, weights, hashes = (
            np.concatenate(parts) for parts in zip(*self._parts, strict=True)
        )
        distinct, first, which = np.unique(hashes, return_index=True, return_inverse=True)
        total = np.zeros(len(distinct))
        np.add.at(total, which.ravel(), weights)
        self.full = self.full or len(distinct) > self.most
        kept = first[: self.most]
        self._largest = distinct[: self.most][-1]
        return inputs[kept], targets[kept], total[: self.most], distinct[: self.most]


def row_hashes(inputs: Array, targets: NDArray[Any], seed: int) -> Hashes:
    """(n, d) and (n, ...) -> (n,): 64 bits that depend on the values of each row alone."""
    parts = [inputs.astype(np.float64) + 0.0]  # no -0.0
    parts.append(_as_numbers(targets).reshape(len(inputs), -1))
    bits = _mixed(np.ascontiguousarray(np.column_stack(parts)).view(np.uint64))
    salts = np.random.default_rng(seed).integers(2**63, size=bits.shape[1], dtype=np.uint64)
    return _mixed(_mixed(bits ^ salts).sum(axis=1, dtype=np.uint64))  # columns are not exchanged


def _as_numbers(targets: NDArray[Any]) -> Array:
    """Labels of any kind as numbers, the same for the same label wherever it stands."""
    if targets.dtype.kind in "biuf":
        return targets.astype(np.float64) + 0.0
    distinct, which = np.unique(targets.astype(str), return_inverse=True)
    digests = [blake2b(one.encode(), digest_size=6).digest() for one in distinct]
    return np.array([int.from_bytes(one) for one in digests], np.float64)[which]


def _mixed(bits: Hashes) -> Hashes:
    """Every bit depends on all: numbers that are whole have zeros for most of theirs."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(bits ^ (bits >> np.uint64(31)))
