"""The network that a router's folder describes: links, paths, names and the set of demands.

What loads a folder takes names as texts and counts a link once in a path. A description that could
be read otherwise is rejected here: it would be of two networks, and the proof of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.checker.errors import Rejected

BOX = {"kind", "lower", "upper"}
SETS = {"box": BOX, "polytope": BOX | {"matrix", "limit"}}  # what is said of each kind of set


def links_of(about: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """The number of each link by its ends."""
    arcs = [(source, target) for source, target in about["arcs"]]
    _check_texts([*about["demands"], *(node for arc in arcs for node in arc)])
    if len(set(arcs)) < len(arcs):
        raise Rejected("the network names a link twice")
    return {arc: number for number, arc in enumerate(arcs)}


def links_on_paths(about: Mapping[str, Any]) -> list[list[int]]:
    """For each path the numbers of its links."""
    links = links_of(about)
    for path in about["paths"]:
        _check_texts(path)
        if len(set(path)) < len(path):
            raise Rejected(f"a path of the network goes through a node twice: {path!r:.80}")
    return [[links[arc] for arc in pairwise(path)] for path in about["paths"]]


def named_by_ends(about: Mapping[str, Any]) -> bool:
    """Whether demands are called by the ends of their paths: volumes are given by these names."""
    return all(
        about["demands"][demand] == f"{path[0]}->{path[-1]}"
        for path, demand in zip(about["paths"], about["path_demand"], strict=True)
    )


def demand_set(about: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    """The ends of the box of demands, and the limits on sums of them, none if there are none."""
    upper = np.array(about["demand_max"], np.float64)
    box = {"kind": "box", "lower": np.zeros_like(upper), "upper": upper}
    stated = about.get("demand_set", box)
    if set(stated) != SETS.get(stated.get("kind")):
        raise Rejected(f"the set of demands must be one of {sorted(SETS)}, and say no more")
    empty = {"matrix": np.zeros((0, len(upper))), "limit": np.zeros(0)}
    return {
        name: np.array((empty | stated)[name], np.float64)
        for name in ("lower", "upper", "matrix", "limit")
    }


def _check_texts(names: list[Any]) -> None:
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise Rejected(f"the network has names that are no texts, such as {wrong[0]!r:.80}")
