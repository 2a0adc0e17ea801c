"""The certificate of a ratio to the optimum, made from what a router has stored, and checked.

For each cell of the anchor and each link the worst demand vector is found once more; the prices of
links that prove it go into the file, with the network, the flows and the bound of the shield.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from cg4ai import Ensemble, runs
from cg4ai.data import Array, IntArray
from cg4ai.errors import InvalidInput
from cg4ai.guarantees import seal_certificate
from cg4ai.members import FlowMembers, ShieldedMembers
from cg4ai.routing.network.description import format_title
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.prove.flow_cells import FlowPrograms, compute_excess
from cg4ai.routing.prove.ratio import RATIO, RatioAnchor, check_box, rule_prices
from cg4ai.routing.prove.worst import WorstRatio
from cg4ai.rules import Box
from cg4ai_checker import Rejected, verdict

FILE_NAME = "ratio.cg4ai"
TREE = ("feature", "threshold", "left", "right", "slope", "offset")
DIGITS = 12  # to which prices are equal


def write_ratio(
    folder: Path | None, instance: Instance, router: Ensemble, anchor: RatioAnchor
) -> dict[str, Any]:
    """The certificate in the run's folder, if there is one; what the summary says of it."""
    data = ratio_bytes(instance, router, anchor)
    found = {"ratio": anchor.ratio, "ratio_leaves": anchor.leaves, "ratio_whole": anchor.whole}
    try:
        verdict(data)
    except Rejected as error:
        return {**found, "ratio_proof": {"status": "unknown", "note": str(error)}}
    if folder is None:
        return {**found, "ratio_proof": {"status": "proven"}}
    runs.write_bytes(folder / FILE_NAME, data)
    digest = hashlib.sha256(data.partition(b"\n")[2]).hexdigest()
    return {**found, "ratio_proof": {"status": "proven", "file": FILE_NAME, "sha256": digest}}


def ratio_bytes(instance: Instance, router: Ensemble, anchor: RatioAnchor) -> bytes:
    """What `write_ratio` writes: the claim about every member of the router."""
    safe = _safe_split(router)
    largest = instance.demand_max
    region = check_box(instance)
    own = {name: tensor.cpu().numpy() for name, tensor in anchor.members.tensors().items()}
    prices, choice = proving_prices(instance, anchor)
    arrays = {name: own[name][0] for name in TREE}
    arrays |= {
        "ratio": np.array(anchor.ratio),
        "lower": region.lower,
        "upper": region.upper,
        "incidence": instance.incidence,
        "capacity": instance.capacity,
        "path_demand": instance.path_demand,
        "unit": largest,
        "arc_prices": prices,
        "choice": choice,
        "shield_prices": anchor.prices,
        "rule_prices": rule_prices(instance, anchor),
        "safe_split": safe,
    }
    claim = {
        "kind": RATIO,
        "title": format_title(instance),
        "requirement": RATIO,
        "input_size": len(largest),
        "output_size": len(instance.path_demand),
    }
    return seal_certificate(claim, arrays, router)


def _safe_split(router: Ensemble) -> Array:
    """The constant split (P,) that the shield of the capacities moves to."""
    for part in router.used:
        if isinstance(part.members, ShieldedMembers):
            return np.asarray(part.members.shield.anchor.state().arrays["values"][0])
    raise InvalidInput(
        "a ratio is proven of members behind a shield; this router has none", code="unsupported"
    )


def proving_prices(instance: Instance, anchor: RatioAnchor) -> tuple[Array, IntArray]:
    """Prices of links (k, A), and which of them (N, A) proves each link at each node of the tree.

    At a node that is no cell the first is named, and read by no one.
    """
    programs, largest = FlowPrograms(instance), instance.demand_max
    known: dict[bytes, int] = {}
    prices: list[Array] = []
    tree = {name: tensor.cpu().numpy() for name, tensor in anchor.members.tensors().items()}
    choice = np.zeros((tree["slope"].shape[1], len(instance.arcs)), np.int64)

    def get_number(price: Array) -> int:
        """Of this price in the list, to which it is added if need be."""
        key = np.round(price, DIGITS).tobytes()
        if key not in known:
            known[key] = len(prices)
            prices.append(price)
        return known[key]

    get_number(np.full(len(instance.arcs), 1 / len(instance.arcs)))
    for node, box in find_boxes(anchor.members, check_box(instance)).items():
        slope, offset = tree["slope"][0, node] * largest, tree["offset"][0, node]
        loads, fixed = programs.per_share.T @ slope, programs.per_share.T @ offset
        ends = (box.lower / largest, box.upper / largest)
        listed = np.array(prices[-4 * len(loads) :])
        start = len(prices) - len(listed)
        over = compute_excess(
            loads, fixed, programs.demand_prices(listed), box=ends, ratio=anchor.ratio
        )
        worst = WorstRatio(instance, box)
        for arc, best in enumerate(over.argmin(axis=1)):
            choice[node, arc] = start + best
            if over[arc, best] > -1e-8:  # no price so far proves it with room for rounding
                found = worst.find(loads[arc], float(fixed[arc])).arc_prices
                if found.sum() > 0:
                    choice[node, arc] = get_number(found / found.sum())
    return np.array(prices), choice


def find_boxes(members: FlowMembers, region: Box) -> dict[int, Box]:
    """The cell of each leaf of the tree within a box, by its node."""
    tree = {name: tensor[0].tolist() for name, tensor in members.tensors().items() if name in TREE}
    ends = {0: (region.lower, region.upper)}
    found = {}
    for node in range(len(tree["left"])):
        if node not in ends:
            continue
        lower, upper = ends[node]
        if tree["left"][node] == node:
            found[node] = Box(lower, upper)
            continue
        below, above = upper.copy(), lower.copy()
        demand = tree["feature"][node]
        below[demand] = above[demand] = tree["threshold"][node]
        ends[tree["left"][node]], ends[tree["right"][node]] = (lower, below), (above, upper)
    return found
