"""All that a router's folder is asked beyond other folders: is the claim about its network?

Here are links, paths, names and the set of demands; that the rules are the capacities, that all of
every demand is sent, and that the shields are those of a ratio to the optimum.

A description that could be read in two ways is refused here: it would be of two networks, and the
proof of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker.claim import WEIGHT_SUM, Claim
from cg4ai_checker.errors import Rejected, Unreadable
from cg4ai_checker.folder_reader import (
    DAMAGED,
    Check,
    MemberState,
    below,
    each,
    finite,
    integer,
    member_state,
    pair_of,
    region,
    text,
)
from cg4ai_checker.ratio import TREE, RatioClaim
from cg4ai_checker.region import Region
from cg4ai_checker.run_sums import below_zero, sums_kept
from cg4ai_checker.summed_rules import merged_slopes

if TYPE_CHECKING:
    from cg4ai_checker.run_folder import Shipped


HISTORY = "history"  # what a router says that reads the last matrices and splits the next
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
        raise Rejected("the network names a link twice", code="duplicate")
    return {arc: number for number, arc in enumerate(arcs)}


def links_on_paths(about: Mapping[str, Any]) -> list[list[int]]:
    """For each path the numbers of its links."""
    links = links_of(about)
    for path in about["paths"]:
        if len(set(path)) < len(path):
            raise Rejected(
                f"a path of the network goes through a node twice: {path!r:.80}", code="duplicate"
            )
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


def all_routed(claim: Claim, shipped: Shipped, folder: str) -> list[str]:
    """Of a router: what sends nothing overloads no link. Rejected where members may do so."""
    demand = np.array(shipped.about["path_demand"])
    groups = [np.flatnonzero(demand == number) for number in np.unique(demand)]
    if claim.shield == "members":
        if not sums_kept(groups, shipped, claim.region):
            raise Rejected(f"not seen: that the shares of every demand in {folder} sum to 1")
        return []
    if claim.shield is None and any(map(below_zero, claim.sources)):
        raise Rejected(
            f"shares in {folder} may be below 0, and loads of others would be hidden", code="range"
        )
    # sums of a shield's anchor say nothing of what it moves
    known = claim.sums if claim.shield is None else None
    stated = [] if known is None else [own.tolist() for own in known.groups]
    if all(own.tolist() in stated for own in groups):
        return []
    return [
        "It was not seen that the shares of every demand are at least 0 and sum to 1, so that all "
        "of it is sent."
    ]


@contextmanager
def _network_is_read(folder: str) -> Iterator[None]:
    """Whatever is missing or damaged in a description is the folder's fault."""
    try:
        yield
    except (*DAMAGED, ZeroDivisionError) as error:
        if isinstance(error, Rejected):
            raise
        raise Unreadable(
            f"the ensemble in {folder} does not say what its network is: {error}"
        ) from error


def compare_capacities(claim: Claim, about: Mapping[str, Any], folder: str) -> str:
    """A routing run says what its network is: are the rules its capacities, over its demands?"""
    if HISTORY in about:
        return _compare_largest_loads(claim, about, folder)
    with _network_is_read(folder):
        links = len(links_of(about))
        slopes = {
            (link, path, about["path_demand"][path]): 1.0 / about["capacity"][link]
            for path, own in enumerate(links_on_paths(about))
            for link in own
        }
        demands, named = demand_set(about), named_by_ends(about)
    limit = claim.limit if claim.totals is None else claim.totals.limit
    same = (
        _slopes(claim) == slopes
        and named
        and claim.plain.all()
        and len(limit) == links
        and claim.output_size == len(about["paths"])
        and not claim.constant.any()
        and (limit <= 1).all()
        and claim.region.centre is None
        and (_same_set(claim.region, demands) or _around(claim.region, demands))
    )
    if not same:
        raise Rejected(
            f"the rules or the region are not the network's that {folder} describes", code="altered"
        )
    return "The rules are the capacities of the network stored there, over its demands."


def _compare_largest_loads(claim: Claim, about: Mapping[str, Any], folder: str) -> str:
    """Of a router that does not read the demands that it splits: are the rules its capacities?

    Shares s >= 0 load a link most, over all vectors of a box, where all demands are largest: to the
    sum of s times largest demand over capacity. So the rules are about the shares alone, with
    these numbers as coefficients, whatever the inputs are; and what holds on the box around a
    set holds on the set.
    """
    with _network_is_read(folder):
        length = about[HISTORY]["length"]
        integer(length, "the length of the history")
        upper = demand_set(about)["upper"]
        loads = np.zeros((len(links_of(about)), len(about["paths"])))
        for path, own in enumerate(links_on_paths(about)):
            for link in own:
                largest = upper[about["path_demand"][path]]
                loads[link, path] = largest / about["capacity"][link]
        named = named_by_ends(about)
    same = (
        claim.totals is None
        and claim.everywhere  # so that no window is outside
        and not len(claim.slope_value)
        and np.array_equal(claim.constant, loads)
        and bool((upper >= 0).all())
        and bool((np.array(about["capacity"]) > 0).all())
        and length >= 1
        and named
        and claim.plain.all()
        and len(claim.limit) == len(loads)
        and (claim.limit <= 1).all()
    )
    if not same:
        raise Rejected(
            f"the rules are not the capacities that {folder} describes, at its largest demands",
            code="altered",
        )
    return (
        "The rules are the capacities of the network stored there at its largest demands, whatever "
        "matrices were read: no vector of its set loads a link more."
    )


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
        f"Every active member stored in {folder} is behind a shield with these flows and this "
        "bound, and behind a shield of the capacities; the weights sum to 1.",
        "Their own shares sum to 1 for every demand, and the shields move these as one.",
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
        raise Rejected(
            f"{what}: its shield has another bound than the certificate's", code="altered"
        )
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
        raise Rejected(
            f"{what}: a shield of it keeps other rules than the certificate's", code="altered"
        )
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
        raise Rejected(
            f"{what}: a shield of it has other links, capacities or paths", code="altered"
        )


def _same_flows(claim: RatioClaim, flows: MemberState, what: str) -> None:
    same = flows.kind == "flows" and np.array_equal(flows.arrays["group"], claim.path_demand)
    if not same or not all(
        np.array_equal(flows.arrays[name], claim.tree[name][None]) for name in TREE
    ):
        raise Rejected(
            f"{what}: its shield moves to other flows than the certificate's", code="altered"
        )


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
        raise Rejected(f"network or demands are not those that {folder} describes", code="altered")


def _slopes(claim: Claim) -> dict[tuple[int, int, int], float]:
    """By (rule, output, input) of what the claim is about: its totals, if it has any."""
    if claim.totals is not None:
        return merged_slopes(claim, claim.totals)
    places = zip(
        claim.slope_rule.tolist(),
        claim.slope_output.tolist(),
        claim.slope_input.tolist(),
        strict=True,
    )
    return dict(zip(places, claim.slope_value.tolist(), strict=True))


def _around(region: Region, demands: dict[str, NDArray[np.float64]]) -> bool:
    """Whether the region is the whole box around the set: what holds there holds in the set."""
    return region.rows is None and all(
        np.array_equal(getattr(region, name), demands[name]) for name in ("lower", "upper")
    )


def _same_set(region: Region, demands: dict[str, NDArray[np.float64]]) -> bool:
    rows = np.zeros((0, len(region.lower))) if region.rows is None else region.rows
    most = np.zeros(0) if region.most is None else region.most
    own = {"lower": region.lower, "upper": region.upper, "matrix": rows, "limit": most}
    return all(np.array_equal(own[name], demands[name]) for name in own)
