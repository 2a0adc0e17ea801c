"""The shortest simple paths between two nodes, in order: Yen's algorithm with estimates."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import dijkstra

from cg4ai.data import Array, IntArray
from cg4ai.routing.network.path_files import Nodes

DIGITS = 6  # to so many decimals lengths are compared

Found = tuple[float, Nodes]


class SimplePaths:
    """Those of the links `ends` (A, 2) of `size` nodes, with lengths (A,) >= 0.

    They come by length, and those of equal lengths by their nodes. Every set of paths that begin
    alike has an estimate, its length at least, by the distances to the target; only where that is
    the least is the shortest path of the set searched, by A*. So ties cost nothing, however many
    there are, and most paths take a few steps each.
    """

    def __init__(self, ends: IntArray, lengths: Array, size: int) -> None:
        self._backwards: Any = sparse.csr_matrix((lengths, (ends[:, 1], ends[:, 0])), (size, size))
        self._leaving: list[list[tuple[int, float]]] = [[] for _ in range(size)]
        for (source, target), length in zip(ends.tolist(), lengths.tolist(), strict=True):
            self._leaving[source].append((target, length))
        self._target = -1
        self._far: list[float] = []

    def iterate(self, source: int, target: int) -> Iterator[Nodes]:
        """All simple paths; those of one target after another take least time."""
        if target != self._target:
            self._target = target
            self._far = dijkstra(self._backwards, indices=target).tolist()
        far, none = self._far, frozenset[int]()
        if not np.isfinite(far[source]):
            return
        # (length or its estimate, path or its beginning, how much of it all paths of the set have,
        # the nodes that do not come next, whether the path is found)
        sets: list[tuple[float, Nodes, int, frozenset[int], bool]] = []
        heapq.heappush(sets, (round(far[source], DIGITS), (source,), 1, none, False))
        while sets:
            _, nodes, common, excluded, is_found = heapq.heappop(sets)
            if not is_found:
                found = self._search(nodes, excluded, target, far)
                if found is not None:
                    heapq.heappush(sets, (*found, common, excluded, True))
                continue
            yield nodes
            for entry in self._split(nodes, common, excluded, far):
                heapq.heappush(sets, entry)

    def _split(
        self, path: Nodes, common: int, excluded: frozenset[int], far: list[float]
    ) -> Iterator[tuple[float, Nodes, int, frozenset[int], bool]]:
        """The other paths of the set of a path: by how many nodes they begin like it."""
        gone, seen = 0.0, set[int]()
        for position, (node, following) in enumerate(pairwise(path), start=1):
            seen.add(node)
            if position >= common:
                left = excluded | {following} if position == common else frozenset((following,))
                least = min(
                    (
                        length + far[other]
                        for other, length in self._leaving[node]
                        if other not in left and other not in seen
                    ),
                    default=np.inf,
                )
                if least < np.inf:
                    yield round(gone + least, DIGITS), path[:position], position, left, False
            gone += next(length for other, length in self._leaving[node] if other == following)

    def _search(
        self, start: Nodes, excluded: frozenset[int], target: int, far: list[float]
    ) -> Found | None:
        """The shortest path that begins with `start` and then with none of `excluded`."""
        closed = {*start[:-1]}
        gone = sum(
            next(length for other, length in self._leaving[a] if other == b)
            for a, b in pairwise(start)
        )
        heap = [(round(gone + far[start[-1]], DIGITS), start, gone)]
        while heap:
            estimate, nodes, gone = heapq.heappop(heap)
            node = nodes[-1]
            if node == target:
                return estimate, nodes
            if node in closed:
                continue
            closed.add(node)
            left = excluded if len(nodes) == len(start) else ()
            for other, length in self._leaving[node]:
                if other not in closed and other not in left and far[other] < np.inf:
                    further = gone + length
                    entry = (round(further + far[other], DIGITS), (*nodes, other), further)
                    heapq.heappush(heap, entry)
        return None
