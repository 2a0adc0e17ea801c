"""What a certification says: status, proven bounds, trees of cells and what was left open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cg4ai.records import Array, IntArray

Status = Literal["proven", "refuted", "unknown"]


@dataclass(frozen=True, eq=False)
class RuleProof:
    """What is known of one rule `value(x) <= limit` over the region.

    `bound` is the best proven upper bound of the value (at most `limit` where proven).
    `dimensions` is the tree of cells in preorder: the coordinate halved at its float64 midpoint
    `0.5 * (lower + upper)`, lower half first, or -1 for a leaf; the root is the box, or the box
    around the ball. `leaf_bounds` are the leaves' bounds in the same order: -inf for leaves that
    do not meet the ball, above `limit` for leaves still open.
    """

    rule: int
    status: Status
    limit: float
    bound: float
    dimensions: NDArray[np.int16] = field(repr=False)
    leaf_bounds: Array = field(repr=False)
    cells: int


@dataclass(frozen=True, eq=False)
class OpenCells:
    """Cells that could not be closed: rule (m,), corners (m, d) each, proven bounds (m,)."""

    rules: IntArray
    lower: Array
    upper: Array
    bounds: Array

    def __len__(self) -> int:
        return len(self.rules)


@dataclass(frozen=True, eq=False)
class Certification:
    """The answer to "does the requirement hold at every input of the region?".

    proven: every rule holds everywhere, in float64 inference. refuted: at `counterexample` the
    rule `counterexample_rule` has the value `counterexample_value`, recomputed from predictions,
    above its limit. unknown: a limit was reached; `open_cells` are left and the `bound` of each
    rule is proven. `cells` counts the cells bounded, over earlier calls too when resumed.
    `violations` holds an input for every rule refuted, the counterexample among them. `subject` is
    the digest of mixture, rules and region, without which a proof is about nothing. `exhausted`:
    no cell left can be halved, so that to resume gains nothing. `checked`: the separate checker
    has verified the certificate that this makes; without it nothing is recorded as certified.
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

    @property
    def excess(self) -> float:
        """The largest proven `bound - limit` over all rules; at most 0 where proven."""
        return max(proof.bound - proof.limit for proof in self.rules)

    def __str__(self) -> str:
        counts = {
            status: sum(proof.status == status for proof in self.rules)
            for status in ("proven", "refuted", "unknown")
        }
        listed = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        text = f"{self.status}: rules {listed}; {self.cells} cells, {self.seconds:.1f} s"
        if self.status == "refuted":
            text += (
                f"; rule {self.counterexample_rule} reaches {self.counterexample_value:.9g} "
                "at the counterexample"
            )
        if self.status == "unknown" and self.excess > 0:
            text += f"; proven to exceed no limit by more than {self.excess:.3g}"
        return f"{text}; {self.note}" if self.note else text


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
