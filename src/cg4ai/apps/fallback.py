"""Where the answers of a router come from: its own, improved ones, or those of a linear program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.apps.protocol import Answers


@dataclass(frozen=True)
class FallbackCount:
    """How many answers for a table are the router's own, and how many are not.

    `gap`: above which proven distance from the optimum answers are improved or solved; None: there
    is no fallback, and `why` says so where one is usual. `outside`: rows outside the set, for each
    of which the program was solved; `overloaded` of them load a link above its capacity even so.
    `in_full`: at how many of these each class of demands is carried in full all the same.
    """

    gap: float | None
    why: str = ""
    router: int = 0
    improved: int = 0
    solved: int = 0
    outside: int = 0
    overloaded: int = 0
    in_full: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_answers(
        cls, gap: float, parts: Sequence[Answers], outside: NDArray[np.bool_]
    ) -> FallbackCount:
        """Counts over the parts of a table, whose rows (n,) outside the set are marked."""
        improved = np.concatenate([part.improved for part in parts])
        solved = np.concatenate([part.solved for part in parts])
        overloaded = np.concatenate([part.overloaded for part in parts])
        others = int(improved.sum()), int(solved.sum())
        carried = {
            name: np.concatenate([part.carried[name] for part in parts])
            for name in parts[0].carried
        }
        return cls(
            gap,
            router=len(outside) - sum(others),
            improved=others[0],
            solved=others[1],
            outside=int(outside.sum()),
            overloaded=int((overloaded & outside).sum()),
            in_full={
                name: int((share >= 1)[overloaded & outside].sum())
                for name, share in carried.items()
            },
        )

    def as_data(self) -> dict[str, Any]:
        """As JSON."""
        if self.gap is None:
            return {"gap": None, "why": self.why or "switched off"}
        counts = {"router": self.router, "improved": self.improved, "solved": self.solved}
        beyond: dict[str, Any] = {"outside": self.outside, "outside_overloaded": self.overloaded}
        if self.in_full and self.overloaded:
            beyond |= {"in_full": dict(self.in_full)}
        words = {"statement": self.statement} if self.outside else {}
        return {"gap": self.gap, **counts, **beyond, **words}

    @property
    def statement(self) -> str:
        """What is known of answers outside the set; empty where all are inside."""
        if not self.outside:
            return ""
        fit = self.outside - self.overloaded
        return (
            f"{self.outside} {'row' if self.outside == 1 else 'rows'} outside the set: the best "
            "split of these very demands, by the linear program; nothing is guaranteed of "
            f"neighbouring demands. The capacities hold at {fit} of {self.outside}"
            + (f" and are exceeded at {self.overloaded}." if self.overloaded else ".")
            + self._kept_first
        )

    @property
    def _kept_first(self) -> str:
        """Which classes are carried in full where not all can be."""
        if not self.in_full or not self.overloaded:
            return ""
        each = ", ".join(
            f"{name.removeprefix('carried, ')} at {count} of {self.overloaded}"
            for name, count in self.in_full.items()
        )
        return f" There demands are carried by priority, in full: {each}."

    def format_lines(self) -> list[str]:
        """What the first lines of a result say; nothing where no fallback was to be expected."""
        if self.gap is None:
            return [f"no fallback: {self.why}"] if self.why else []
        rows = self.router + self.improved + self.solved
        line = (
            f"{self.router} of {rows} answers are the router's, {self.improved} were improved and "
            f"{self.solved} solved by the linear program (outside the set, or not proven to be "
            f"within {100 * self.gap:.4g} % of the optimum over the router's paths)"
        )
        return [line, self.statement] if self.outside else [line]
