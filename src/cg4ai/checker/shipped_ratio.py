"""Is a certificate of a ratio about the router that is shipped? Both shields, and the network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.checker.claim import WEIGHT_SUM
from cg4ai.checker.errors import Rejected
from cg4ai.checker.ratio import TREE, RatioClaim
from cg4ai.checker.shipped_network import demand_set, links_of, links_on_paths, named_by_ends
from cg4ai.checker.shipped_sums import sums_kept
from cg4ai.checker.stored import MemberState, below, member_state

if TYPE_CHECKING:
    from cg4ai.checker.shipped import Shipped


def compare_ratio(claim: RatioClaim, shipped: Shipped, folder: str) -> list[str]:
    """What was found equal, in words; Rejected at the first difference."""
    if shipped.layout != [list(range(claim.output_size))]:
        raise Rejected(f"the mixture in {folder} is not one block of the certificate's outputs")
    weights: list[float] = []
    for number, (state, part) in enumerate(zip(shipped.states, shipped.parts, strict=True)):
        if not part.weights.any():
            continue
        _behind_both(claim, state, f"part {number} of the mixture in {folder}")
        weights += part.weights.tolist()
    if abs(math.fsum(weights) - 1) > WEIGHT_SUM:
        raise Rejected(f"the weights in {folder} sum to {math.fsum(weights)!r}, not to 1")
    groups = [np.flatnonzero(claim.path_demand == number) for number in range(claim.input_size)]
    if not sums_kept(groups, shipped, claim.region):
        raise Rejected(f"not seen: that the shares of every demand in {folder} sum to 1")
    _same_network(claim, shipped.about, folder)
    return [
        f"Every member stored in {folder} that predicts is behind a shield with these flows and "
        "this bound, and that behind one of the capacities; the weights sum to 1.",
        "Their own shares sum to 1 for every demand, which the shields move as one.",
        "Links, capacities, paths and demands are those of the network stored there.",
    ]


def _behind_both(claim: RatioClaim, state: MemberState, what: str) -> None:
    """The outer shield is of the capacities alone, the inner one of the ratio alone."""
    safe, outer, arrays = _shield(state, what)
    if safe.kind != "constant" or not np.array_equal(safe.arrays["values"], claim.safe_split[None]):
        raise Rejected(f"{what}: its shield of the capacities moves to another split")
    own = _only(outer, arrays, "affine", what)
    _same_loads(claim, own, what)
    if not _limits(own, np.ones(claim.arcs)):
        raise Rejected(f"{what}: its outer shield has other limits than the capacities")
    inner = member_state(state.config["inner"], below(state.arrays, "inner."))
    flows, guards, stored = _shield(inner, what)
    _same_flows(claim, flows, what)
    bound = _only(guards, stored, "shared", what)
    _same_loads(claim, bound, what)
    no_other = _limits(bound, np.zeros(claim.arcs))
    if not no_other or not np.array_equal(bound["prices"], claim.rule_prices):
        raise Rejected(f"{what}: its shield has another bound than the certificate's")
    for guard in (outer[0], guards[0]):
        region = guard["region"]
        ends = {"lower": claim.region.lower, "upper": claim.region.upper}
        if region.get("kind") != "box" or not all(
            np.array_equal(region[name], value) for name, value in ends.items()
        ):
            raise Rejected(f"{what}: a shield of it acts in another region")
        if guard.get("everywhere"):  # such a shield leaves alone what is nearly as good as its own
            raise Rejected(f"{what}: a shield of it is not that of a ratio, as it acts everywhere")


def _shield(
    state: MemberState, what: str
) -> tuple[MemberState, list[Any], dict[str, NDArray[Any]]]:
    """The anchor, the guards and the arrays of a stored stack behind a shield."""
    if state.kind != "shielded":
        raise Rejected(f"{what} is not behind two shields: its members are of kind {state.kind!r}")
    own = below(state.arrays, "shield.")
    record = state.config["shield"]
    anchor = member_state(record["anchor"], below(own, "anchor."))
    return anchor, record["guards"], own


def _only(
    guards: list[Any], arrays: Mapping[str, NDArray[Any]], form: str, what: str
) -> dict[str, NDArray[Any]]:
    if len(guards) != 1 or guards[0]["rules"] != form:
        raise Rejected(f"{what}: a shield of it keeps other rules than the certificate's")
    return below(arrays, "guard.0.")


def _limits(own: Mapping[str, NDArray[Any]], stated: NDArray[np.float64]) -> bool:
    """Whether rules have these limits, whatever the demands, and no others."""
    return (
        np.array_equal(own["limit"], stated)
        and np.array_equal(own["piece"], np.arange(len(stated)))
        and not own["tilt"].any()
    )


def _same_loads(claim: RatioClaim, own: Mapping[str, NDArray[Any]], what: str) -> None:
    """The rules are the utilisations of the links."""
    path, arc = np.nonzero(claim.incidence)
    stated = {
        (int(a), int(p), int(claim.path_demand[p])): 1.0 / float(claim.capacity[a])
        for p, a in zip(path, arc, strict=True)
    }
    places = zip(own["rule"].tolist(), own["output"].tolist(), own["input"].tolist(), strict=True)
    found = dict(zip(places, own["value"].tolist(), strict=True))
    shape = (claim.arcs, claim.output_size)
    once = len(found) == len(own["value"])  # of one named twice only the last would be looked at
    if not once or found != stated or own["constant"].any() or own["constant"].shape != shape:
        raise Rejected(f"{what}: a shield of it has other links, capacities or paths")


def _same_flows(claim: RatioClaim, flows: MemberState, what: str) -> None:
    same = flows.kind == "flows" and np.array_equal(flows.arrays["group"], claim.path_demand)
    if not same or not all(
        np.array_equal(flows.arrays[name], claim.tree[name][None]) for name in TREE
    ):
        raise Rejected(f"{what}: its shield moves to other flows than the certificate's")


def _same_network(claim: RatioClaim, about: Mapping[str, Any], folder: str) -> None:
    incidence = np.zeros((len(about["paths"]), len(links_of(about))))
    for row, links in enumerate(links_on_paths(about)):
        incidence[row, links] = 1.0
    stated = demand_set(about)
    same = (
        np.array_equal(incidence, claim.incidence)
        and np.array_equal(about["capacity"], claim.capacity)
        and np.array_equal(about["path_demand"], claim.path_demand)
        and np.array_equal(stated["lower"], claim.region.lower)
        and np.array_equal(stated["upper"], claim.region.upper)
        and named_by_ends(about)
    )
    if not same:
        raise Rejected(f"network or demands are not those that {folder} describes")
