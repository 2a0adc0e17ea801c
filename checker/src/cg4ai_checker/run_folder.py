"""Is a certificate about the mixture that is shipped? Compare it with an ensemble's folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker.caps import CapsClaim
from cg4ai_checker.claim import NAMES, WEIGHT_SUM, Claim
from cg4ai_checker.equality import EXACT, EqualityClaim
from cg4ai_checker.errors import Rejected, Unreadable
from cg4ai_checker.folder_reader import (
    DAMAGED,
    RECORD,
    MemberState,
    below,
    boolean,
    each,
    finite,
    member_state,
    member_states,
    object_of,
    read_folder,
    text,
)
from cg4ai_checker.outputs import OutputClaim
from cg4ai_checker.parts import PartSource
from cg4ai_checker.ratio import RatioClaim
from cg4ai_checker.run_routing import all_routed, compare_capacities, compare_ratio
from cg4ai_checker.run_sums import sums_kept
from cg4ai_checker.shape import ShapeClaim
from cg4ai_checker.tree_sums import TreeSumClaim

SHARED = ("normalise_shift", "normalise_scale")  # one for all members of a stack
BuiltClaim = (
    EqualityClaim | OutputClaim | ShapeClaim | CapsClaim
)  # of rules that members keep by how they are built
# what the arrays of rules are called in a folder, and in a claim
RULES = {
    **{name: name for name in ("constant", "limit", "tilt", "piece")},
    **{name: f"slope_{name}" for name in ("rule", "output", "input", "value")},
}


@dataclass(frozen=True)
class Shipped:
    """A mixture as a folder describes it: stacks with blocks and weights, and the layout."""

    layout: Any
    states: list[MemberState]
    parts: list[PartSource]
    about: dict[str, Any]

    @classmethod
    def read(cls, record: Any, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> Shipped:
        """KeyError, TypeError or ValueError where it is none."""
        states = member_states(record["members"], arrays, prefix)
        parts = [
            PartSource(
                state.kind,
                dict(state.config),
                dict(state.arrays),
                blocks=np.array(own, np.int64),
                weights=np.array(weight, np.float64),
            )
            for state, own, weight in zip(states, record["blocks"], record["weights"], strict=True)
        ]
        for part in parts:
            weights = part.weights
            if weights.ndim != 1 or not (np.isfinite(weights) & (weights >= 0)).all():
                raise ValueError("weights must be finite and at least 0")
        return cls(record["layout"], states, parts, dict(record["about"]))

    @property
    def used(self) -> list[PartSource]:
        return [part for part in map(_used, self.parts) if len(part.weights)]

    @property
    def idle(self) -> int:
        """How many members have no weight."""
        return sum(int((part.weights == 0).sum()) for part in self.parts)


def compare(claim: Claim | BuiltClaim | RatioClaim | TreeSumClaim, folder: str | Path) -> list[str]:
    """What was found equal, in words; Rejected at the first difference."""
    if isinstance(claim, TreeSumClaim):
        raise Rejected(
            "a certificate about trees of another library is about no run folder: audit "
            "the model's own file again with cg4ai audit-model",
            code="unsupported",
        )
    path = Path(folder) / RECORD
    content, arrays = read_folder(folder)
    try:
        shipped = Shipped.read(content, arrays)
        if isinstance(claim, RatioClaim):
            if content.get("shield"):
                raise Rejected(f"the mixture in {folder} is behind a further shield, as a whole")
            said = compare_ratio(claim, shipped, str(folder))
        elif isinstance(claim, BuiltClaim):
            said = _built(claim, content, arrays, shipped, folder)
        else:
            said = _same_subject(claim, content, arrays, shipped, folder)
            if shipped.about.get("application") == "routing":
                said += all_routed(claim, shipped, str(folder))
    except DAMAGED as error:
        if isinstance(error, Rejected):
            raise
        raise Unreadable(f"{path} is damaged or not of these members: {error}") from error
    _same_names(claim, shipped.about, folder)
    if shipped.idle:
        said.append(
            f"That folder also holds {shipped.idle} members of weight 0, which are not used."
        )
    if isinstance(claim, BuiltClaim | RatioClaim):
        return said
    if claim.shield != "mixture" and content.get("shield"):
        said.append(
            "That folder also holds a shield; the certificate is about the mixture without it."
        )
    if shipped.about.get("application") == "routing":
        said.append(compare_capacities(claim, shipped.about, str(folder)))
    elif claim.shield is None:
        said.append(
            "Rules and region were not compared, because that folder does not state them: check "
            "that those above are the ones you mean."
        )
    return said


def _same_subject(
    claim: Claim,
    content: Any,
    arrays: Mapping[str, NDArray[Any]],
    shipped: Shipped,
    folder: str | Path,
) -> list[str]:
    """Whether the folder holds what the claim is about: the mixture itself, or its shield."""
    if claim.shield == "members":
        _behind_shields(claim, shipped, folder)
        said = [
            f"Every active member stored in {folder} is behind a shield with this anchor, these "
            "rules and this region; the weights sum to 1."
        ]
        if claim.sums is not None and sums_kept(claim.sums.groups, shipped, claim.region):
            said.append(
                "Their own outputs sum to 1 in these groups, and the shield moves each as one."
            )
        return said
    if claim.shield == "mixture":
        shield, what = content.get("shield"), f"the shield in {folder}"
        if not shield:
            raise Rejected(f"the mixture in {folder} is not behind a shield")
        anchor = _anchor(shield, arrays)
        _same_parts(anchor, claim, f"the anchor of {what}")
        _same_guard(claim, shield["guards"], arrays, what)
        return [f"The shield stored in {folder} has this anchor, these rules and this region."]
    _same_parts(shipped, claim, f"the mixture in {folder}")
    return [f"The mixture is the one stored in {folder}: members, weights and layout are equal."]


def _anchor(shield: Any, arrays: Mapping[str, NDArray[Any]]) -> Shipped:
    """What a shield of the whole mixture moves to."""
    return Shipped.read(shield["anchor"], arrays, "anchor.")


def _behind_shields(claim: Claim, shipped: Shipped, folder: str | Path) -> None:
    """Rejected unless every member that predicts is shielded as the claim says."""
    if shipped.layout != [list(range(claim.output_size))]:
        raise Rejected(f"the mixture in {folder} is not one block of the certificate's outputs")
    weights: list[float] = []
    for number, (state, part) in enumerate(zip(shipped.states, shipped.parts, strict=True)):
        if not part.weights.any():
            continue
        what = f"part {number} of the mixture in {folder}"
        if state.kind != "shielded":
            raise Rejected(f"{what} is not behind a shield: its members are of kind {state.kind!r}")
        shield, own = state.config["shield"], below(state.arrays, "shield.")
        anchor = member_state(shield["anchor"], below(own, "anchor."))
        _same(_alone(anchor), claim.sources[0], f"the anchor of {what}")
        _same_guard(claim, shield["guards"], own, what)
        weights += part.weights.tolist()
    if abs(math.fsum(weights) - 1) > WEIGHT_SUM:
        raise Rejected(f"the weights in {folder} sum to {math.fsum(weights)!r}, not to 1")


def _built(
    claim: BuiltClaim,
    content: Any,
    arrays: Mapping[str, NDArray[Any]],
    shipped: Shipped,
    folder: str | Path,
) -> list[str]:
    """Whether every member of the folder that predicts keeps the rules by how it is built."""
    mixtures = {"the mixture": shipped}
    if content.get("shield"):
        if isinstance(claim, ShapeClaim | CapsClaim):
            raise Rejected(
                f"the mixture in {folder} is behind a shield, which keeps no shape or limit"
            )
        mixtures["the anchor"] = _anchor(content["shield"], arrays)
    for name, mixture in mixtures.items():
        what = f"{name} in {folder}"
        if mixture.layout != [list(range(claim.output_size))]:
            raise Rejected(f"{what} is not one block of the certificate's outputs")
        total = math.fsum(weight for part in mixture.parts for weight in part.weights.tolist())
        if abs(total - 1) > EXACT:
            raise Rejected(f"the weights of {what} sum to {total!r}, not to 1 within {EXACT:g}")
        for number, (state, part) in enumerate(zip(mixture.states, mixture.parts, strict=True)):
            if part.weights.any():
                claim.verify_stored(state, np.flatnonzero(part.weights), f"part {number} of {what}")
    return [f"Every active member stored in {folder} is of such a form; weights sum to 1."]


def _alone(state: MemberState) -> PartSource:
    """The stack of an anchor: one member in one block with all the weight."""
    return PartSource(
        state.kind,
        dict(state.config),
        dict(state.arrays),
        blocks=np.zeros(1, np.int64),
        weights=np.ones(1),
    )


def _same_guard(claim: Claim, guards: Any, arrays: Mapping[str, NDArray[Any]], what: str) -> None:
    """Rejected unless one of the guards keeps the rules of the claim in its region."""
    for number, guard in enumerate(guards):
        own = below(arrays, f"guard.{number}.")
        if not _same_rules(claim, guard["rules"], own):
            continue
        same = guard.get("everywhere", False) == claim.everywhere
        if same and _same_region(claim, guard["region"]):
            return
    raise Rejected(f"{what} has other rules or regions than the certificate's", code="altered")


def _same_rules(claim: Claim, form: Any, own: Mapping[str, NDArray[Any]]) -> bool:
    """Whether the arrays of a guard are the rules of the claim."""
    if form == "affine":
        return not (len(claim.square_rule) or claim.quadratic is not None) and all(
            np.array_equal(own[name], getattr(claim, stated)) for name, stated in RULES.items()
        )
    of_squares = len(claim.square_rule) or claim.quadratic is not None
    if form != "quadratic" or not of_squares or not claim.plain.all() or len(claim.slope_value):
        return False
    if "square" not in own or claim.quadratic is None:
        raise Rejected(
            "quadratic rules are compared as they were stated, which folders and certificates made "
            "before 0.8 do not hold: certify the rule again"
        )
    return (
        np.array_equal(own["square"], claim.quadratic)
        and np.array_equal(own["linear"], claim.constant)
        and np.array_equal(own["limit"], claim.limit)
    )


def _same_region(claim: Claim, record: Mapping[str, Any]) -> bool:
    region = claim.region
    stated: dict[str, Any] = {"kind": "box", "lower": region.lower, "upper": region.upper}
    if region.centre is not None:
        norm = "max" if region.norm == math.inf else 2
        stated = {"kind": "ball", "centre": region.centre, "radius": region.radius, "norm": norm}
    if region.rows is not None:
        stated |= {"kind": "polytope", "matrix": region.rows, "limit": region.most}
    return set(record) == set(stated) and all(
        np.array_equal(record[name], value) for name, value in stated.items()
    )


def _used(part: PartSource) -> PartSource:
    """A stored stack without the members whose weight is zero, which inference leaves out."""
    chosen = np.flatnonzero(part.weights)
    arrays = {
        name: array if name in SHARED else array[chosen] for name, array in part.arrays.items()
    }
    return replace(part, arrays=arrays, blocks=part.blocks[chosen], weights=part.weights[chosen])


def _same_parts(shipped: Shipped, claim: Claim, what: str) -> None:
    if shipped.layout != [block.tolist() for block in claim.blocks]:
        raise Rejected(f"{what} has other blocks than the certificate's", code="altered")
    used = shipped.used
    if len(used) != len(claim.sources):
        raise Rejected(f"{what} has other members than the certificate's", code="altered")
    for number, (own, stated) in enumerate(zip(used, claim.sources, strict=True)):
        _same(own, stated, f"part {number} of {what}")


def _same_names(
    claim: Claim | BuiltClaim | RatioClaim, about: dict[str, Any], folder: str | Path
) -> None:
    """Which input and output is which: other names would make it a claim about other things."""
    stored = {name: about[name] for name in NAMES if name in about}
    for name in NAMES:
        if stored.get(name) != claim.about.get(name):
            raise Rejected(
                f"the mixture in {folder} has other {name} than the certificate's", code="altered"
            )
    if about.get("application") == "tabular" and about.get("columns") is not None:
        _encoded_as_named(about, folder)


def _column(value: Any, what: str) -> None:
    """ValueError unless it is how a column of a table is encoded, as it is written."""
    fields = {"name": text, "kind": text, "fill": finite, "empty": boolean, "values": each(text)}
    object_of(value, fields, what)


def _encoded_as_named(about: dict[str, Any], folder: str | Path) -> None:
    """Whether columns of tables become the features that they are called after, in this order."""
    named: list[str] = []
    try:
        each(_column)(about["columns"], "columns")
    except ValueError as error:
        raise Unreadable(f"{folder} does not say what its columns are: {error}") from error
    for column in about["columns"]:
        name, values = column["name"], column["values"]
        if column["kind"] not in (("text",) if values else ("number", "boolean")):
            raise Rejected(f"{folder} has a column of no known kind: {column!r:.80}")
        named += [f"{name}={value}" for value in values] or [name]
        named += [f"{name} is empty"] if column["empty"] else []
    if named != about["features"]:
        raise Rejected(f"the columns of tables that {folder} describes are not its features")


def _same(own: PartSource, stated: PartSource, what: str) -> None:
    if (own.kind, own.config) != (stated.kind, stated.config):
        raise Rejected(f"{what} is of another kind or shape than the certificate's", code="altered")
    for name, one, other in (
        ("blocks", own.blocks, stated.blocks),
        ("weights", own.weights, stated.weights),
    ):
        if not np.array_equal(one, other):
            raise Rejected(f"{what} has other {name} than the certificate's", code="altered")
    if set(own.arrays) != set(stated.arrays):
        raise Rejected(f"{what} has other arrays than the certificate's", code="altered")
    for name, array in own.arrays.items():
        if not np.array_equal(array, stated.arrays[name]):
            raise Rejected(f"{what} differs from the certificate's in {name}", code="altered")
