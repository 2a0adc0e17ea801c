"""The network that a router's folder describes: links, paths, names and the set of demands.

A description that could be read in two ways is refused here: it would be of two networks, and the
proof of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.checker.errors import Rejected
from cg4ai.checker.stored import Check, each, finite, integer, pair_of, region, text

NETWORK: dict[str, Check] = {
    "arcs": each(pair_of(text, text)),
    "paths": each(each(text)),
    "demands": each(text),
    "capacity": each(finite),
    "demand_max": each(finite),
    "path_demand": each(integer),
}
BOX = {"kind", "lower", "upper"}
SETS = {"box": BOX, "polytope": BOX | {"matrix", "limit"}}  # what is said of each kind of set


def links_of(about: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """The number of each link by its ends; Rejected where the network is not as it is written."""
    try:
        for name, check in NETWORK.items():
            check(about[name], name)
        if "demand_set" in about:
            region(about["demand_set"], "the set of demands")
    except ValueError as error:
        raise Rejected(str(error)) from error
    arcs = [(source, target) for source, target in about["arcs"]]
    if len(set(arcs)) < len(arcs):
        raise Rejected("the network names a link twice")
    return {arc: number for number, arc in enumerate(arcs)}


def links_on_paths(about: Mapping[str, Any]) -> list[list[int]]:
    """For each path the numbers of its links."""
    links = links_of(about)
    for path in about["paths"]:
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
