"""Some of many rows, chosen by a hash: whatever order they come in, the same ones.

Of equal rows all are chosen or none, so that rows which are held out can be told from others when
they are read again.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.records import Array

Hashes = NDArray[np.uint64]


class Kept:
    """The distinct rows of smallest hashes so far, each with the weight of all its copies."""

    def __init__(self, most: int, seed: int) -> None:
        self.most, self.seed = most, seed
        self.full = False  # whether rows were left out
        self._largest = np.uint64(0)
        self._parts: list[tuple[Array, NDArray[Any], Array, Hashes]] = []

    @property
    def held(self) -> int:
        return sum(len(part[0]) for part in self._parts)

    def add(self, inputs: Array, targets: NDArray[Any], weights: Array) -> None:
        hashes = row_hashes(inputs, targets, self.seed)
        fits = weights > 0
        if self.full:
            fits &= hashes <= self._largest
        if fits.any():
            self._parts.append((inputs[fits], targets[fits], weights[fits], hashes[fits]))
        if self.held > 2 * self.most:  # seldom, for it copies all that are kept
            self._parts = [self.rows()]

    def rows(self) -> tuple[Array, NDArray[Any], Array, Hashes]:
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
