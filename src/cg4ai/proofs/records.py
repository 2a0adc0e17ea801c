"""What a certification says: status, proven bounds, trees of cells and what was left open.

As named arrays, too, for checkpoints and for proofs to be continued.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cg4ai.records import Array, IntArray, Strength

Status = Literal["proven", "refuted", "unknown"]
STATUSES: tuple[Status, ...] = ("proven", "refuted", "unknown")

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Totals:
    """Sums of rules that a certificate states: the total `of_rule` (L,) each rule is part of.

    The limits of its rules sum to at most `limits` (T,); `names` are those of the totals.
    """

    names: list[str]
    of_rule: IntArray
    limits: Array


@dataclass(frozen=True, eq=False)
class RuleProof:
    """What is known of one rule `value(x) <= limit` over the region.

    `bound` is the best proven upper bound of the value (at most `limit` where proven).
    `dimensions` is the tree of cells in preorder: the coordinate halved at its float64 midpoint
    `0.5 * (lower + upper)`, lower half first, or -1 for a leaf; the root is the box, or the box
    around the ball. `leaf_bounds` are the leaves' bounds in the same order: -inf for leaves that
    do not meet the region, above `limit` for leaves still open. A rule whose limit depends on the
    input has the limit 0 and bounds of its excess; `leaf_uses` (leaves, limits + rows) are the
    shares of its limits, then the multipliers of the region's rows, behind each bound.
    """

    rule: int
    status: Status
    limit: float
    bound: float
    dimensions: NDArray[np.int16] = field(repr=False)
    leaf_bounds: Array = field(repr=False)
    cells: int
    leaf_uses: Array | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class RuleCells:
    """Cells, each of one rule: `rules` (m,), corners `lower` and `upper` (m, d)."""

    rules: IntArray
    lower: Array
    upper: Array

    def __len__(self) -> int:
        return len(self.rules)

    def take(self, which: IntArray) -> RuleCells:
        return RuleCells(self.rules[which], self.lower[which], self.upper[which])

    def join(self, other: RuleCells) -> RuleCells:
        return RuleCells(
            np.concatenate([self.rules, other.rules]),
            np.concatenate([self.lower, other.lower]),
            np.concatenate([self.upper, other.upper]),
        )


@dataclass(frozen=True, eq=False)
class OpenCells(RuleCells):
    """Cells that could not be closed, with their proven bounds (m,)."""

    bounds: Array


@dataclass(frozen=True, eq=False)
class Certification:
    """The answer to "does the requirement hold at every input of the region?".

    proven: every rule holds everywhere, in float64 inference. refuted: at `counterexample` the
    rule `counterexample_rule` has the value `counterexample_value`, recomputed from predictions,
    above its limit by more than the tolerance. unknown: a limit was reached; `open_cells` are left
    and the `bound` of each rule is proven. `cells` counts the cells bounded, over earlier calls too
    when resumed. `violations` holds an input for every rule refuted, the counterexample among them.
    `subject` is the digest of mixture, rules and region, without which a proof is about nothing.
    `exhausted`: no cell left can be halved, so that to resume gains nothing. `checked`: the
    separate checker has verified the certificate that this makes; without it nothing is recorded as
    certified.
    `shield`: the proof is about an anchor, towards which the outputs of "members" or of the
    "mixture" are moved, or about the "completion" of members; empty where it is about the mixture
    itself.
    """

    status: Status
    rules: tuple[RuleProof, ...]
    counterexample: Array | None
    counterexample_rule: int | None
    counterexample_value: float | None
    open_cells: OpenCells = field(repr=False)
    cells: int
    seconds: float
    note: str
    violations: Mapping[int, Array] = field(default_factory=dict, repr=False)
    subject: str = ""
    exhausted: bool = False
    checked: bool = False
    shield: str = ""

    @property
    def strength(self) -> Strength:
        """What a proof establishes; only meant where this is proven."""
        if not self.shield:
            return Strength.CERTIFIED
        return Strength.CONSTRUCTED if self.shield == "completion" else Strength.SHIELDED

    @property
    def closed_form(self) -> bool:
        """Whether one cell for each rule was enough, as of affine anchors."""
        return all(len(proof.dimensions) == 1 for proof in self.rules)

    @property
    def excess(self) -> float:
        """The largest proven `bound - limit` over all rules; at most 0 where proven."""
        return max((proof.bound - proof.limit for proof in self.rules), default=-np.inf)

    def __str__(self) -> str:
        counts = {
            status: sum(proof.status == status for proof in self.rules) for status in STATUSES
        }
        listed = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        rules = f" (rules: {listed})" if listed else ""
        text = f"{self.status}{rules}; {self.cells} cells, {self.seconds:.1f} s"
        if self.status == "refuted":
            text += (
                f"; rule {self.counterexample_rule} reaches {self.counterexample_value:.9g} "
                "at the counterexample"
            )
        if self.status == "unknown" and self.excess > 0:
            text += f"; proven to exceed no limit by more than {self.excess:.3g}"
        return f"{text}; {self.note}" if self.note else text


def build_construction_answer(
    note: str, *, subject: str, input_size: int, seconds: float
) -> Certification:
    """Of a rule that members keep by how they are built; a note says why that is unknown."""
    nothing = np.empty((0, input_size))
    return Certification(
        "unknown" if note else "proven",
        (),
        None,
        None,
        None,
        OpenCells(np.empty(0, np.int64), nothing, nothing, np.empty(0)),
        0,
        seconds,
        note,
        subject=subject,
        exhausted=True,
        checked=not note,
        shield="completion",
    )


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a certification has come: rules closed of all, cells bounded and open, worst excess.

    `excess` is the largest proven bound minus limit among the rules bounded so far.
    """

    rules_closed: int
    rules: int
    cells: int
    open: int
    excess: float
    seconds: float


def pack_trees(certification: Certification) -> Arrays:
    """The trees of cells of all rules, one after the other."""
    trees = [proof.dimensions.astype(np.int16) for proof in certification.rules]
    bounds = [proof.leaf_bounds.astype(np.float64) for proof in certification.rules]
    return {
        "tree_start": np.cumsum([0, *map(len, trees)], dtype=np.int64),
        "tree_dimension": np.concatenate(trees),
        "leaf_start": np.cumsum([0, *map(len, bounds)], dtype=np.int64),
        "leaf_bound": np.concatenate(bounds),
        "leaf_use": np.concatenate([_uses(proof).reshape(-1) for proof in certification.rules]),
    }


def _uses(proof: RuleProof) -> Array:
    """(leaves, limits + rows), without columns where a rule needs none."""
    return np.zeros((len(proof.leaf_bounds), 0)) if proof.leaf_uses is None else proof.leaf_uses


def pack_certification(certification: Certification) -> Arrays:
    """What is known of every rule, and of which mixture; not the counterexamples."""
    proofs = certification.rules
    return {
        **pack_trees(certification),
        "rule": np.array([proof.rule for proof in proofs]),
        "status": np.array([STATUSES.index(proof.status) for proof in proofs]),
        "limit": np.array([proof.limit for proof in proofs]),
        "bound": np.array([proof.bound for proof in proofs]),
        "cells": np.array([proof.cells for proof in proofs]),
        "uses": np.array([_uses(proof).shape[1] for proof in proofs]),
        "total": np.array([certification.cells, certification.seconds]),
        "subject": np.frombuffer(bytes.fromhex(certification.subject), np.uint8),
    }


def unpack_certification(arrays: Mapping[str, NDArray[Any]], *, status: Status) -> Certification:
    """The certification that `pack_certification` took apart; its trees say what is open."""
    trees = np.split(arrays["tree_dimension"], arrays["tree_start"][1:-1])
    bounds = np.split(arrays["leaf_bound"], arrays["leaf_start"][1:-1])
    sizes = np.diff(arrays["leaf_start"]) * arrays["uses"]
    uses = np.split(arrays["leaf_use"], np.cumsum(sizes)[:-1])
    proofs = tuple(
        RuleProof(
            rule=int(arrays["rule"][k]),
            status=STATUSES[int(arrays["status"][k])],
            limit=float(arrays["limit"][k]),
            bound=float(arrays["bound"][k]),
            dimensions=trees[k],
            leaf_bounds=bounds[k],
            cells=int(arrays["cells"][k]),
            leaf_uses=uses[k].reshape(len(bounds[k]), int(arrays["uses"][k])),
        )
        for k in range(len(arrays["rule"]))
    )
    cells, seconds = arrays["total"].tolist()
    nothing = OpenCells(np.empty(0, np.int64), np.empty((0, 0)), np.empty((0, 0)), np.empty(0))
    return Certification(
        status,
        proofs,
        None,
        None,
        None,
        nothing,
        int(cells),
        seconds,
        "",
        subject=arrays["subject"].tobytes().hex(),
    )
