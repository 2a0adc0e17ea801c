"""How much answers change from one row to the next, and how often a bound on that had to yield."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.records import Array

CHANGED, MOVED, YIELDED = "largest change", "traffic moved", "yielded"  # columns of answers


@dataclass(frozen=True, eq=False)
class LastAnswer:
    """The outputs (r,) of the answer before, by the names of their columns."""

    names: Sequence[str]
    outputs: Array


@dataclass(frozen=True, eq=False)
class LimitedOutputs:
    """Outputs (n, r) of successive rows, none far from the one before.

    All others are (n,). `follows`: whether there was an answer before. `changed`: the largest share
    of a demand that changed path, `moved` that of all traffic, `wanted` that of all traffic from
    the same answer before if nothing were bounded. `limited`: the answer is not what it would be
    without the bound; `yielded`: it moved further than the bound allows. `growth`: the objective
    over that of the answer without the bound.
    """

    outputs: Array
    follows: NDArray[np.bool_]
    changed: Array
    moved: Array
    wanted: Array
    limited: NDArray[np.bool_]
    yielded: NDArray[np.bool_]
    growth: Array


@dataclass(frozen=True)
class ChangeCount:
    """Of the answers for a table: how many follow another one, and what the bound did to these.

    `held` were held back, `yielded` moved further than the bound for the sake of capacities.
    `moved` and `wanted` are means over the answers that follow another one, `changed` the largest.
    """

    bound: float
    rows: int
    follow: int
    held: int
    yielded: int
    changed: float
    moved: float
    wanted: float

    @classmethod
    def from_outputs(cls, bound: float, found: LimitedOutputs) -> ChangeCount:
        after = found.follows
        known = bool(after.any())
        return cls(
            bound,
            rows=len(after),
            follow=int(after.sum()),
            held=int((found.limited & ~found.yielded).sum()),
            yielded=int(found.yielded.sum()),
            changed=float(found.changed[after].max()) if known else 0.0,
            moved=float(found.moved[after].mean()) if known else 0.0,
            wanted=float(found.wanted[after].mean()) if known else 0.0,
        )

    def as_data(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "bound": self.bound,
            "answers": self.rows,
            "following": self.follow,
            "held": self.held,
            "yielded": self.yielded,
            "largest_change": self.changed,
            "mean_moved": self.moved,
            "mean_wanted": self.wanted,
        }

    def format_lines(self) -> list[str]:
        """What the first lines of a result say."""
        return [
            f"churn: {self.held} of {self.rows} answers were held at changes of "
            f"{100 * self.bound:.4g} % of a demand, and {self.yielded} moved further for the sake "
            f"of capacities; on average {100 * self.moved:.3g} % of the traffic changes path"
        ]
