"""`Conflict`: requirements that contradict each other, in the words of whoever stated them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from cg4ai.conflicts.irreducible import ConflictSets

if TYPE_CHECKING:
    from cg4ai.records import IntArray
    from cg4ai.rules import Requirement

SHOWN = 12  # clauses that a text names


class Scope(StrEnum):
    """Of whom it is known that they cannot keep the clauses together."""

    OUTPUTS = "no predictor"
    PROBABILITIES = "no predictor of probabilities"
    CLASS = "no mixture of members of this kind"
    MEMBERS = "no mixture of the trained members"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Clauses, requirements each at one input, that nothing in `scope` keeps together.

    `requirements` are the positions of the clauses' requirements in the list that was given,
    `clauses` what each says; where very many inputs take part, a clause is a whole requirement.
    With `irreducible` all but any one of them can be kept; without, the search ended early and
    some may be spare.
    """

    scope: Scope
    requirements: tuple[int, ...]
    clauses: tuple[str, ...]
    irreducible: bool = True

    @classmethod
    def from_clauses(
        cls,
        scope: Scope,
        found: ConflictSets,
        requirements: Sequence[Requirement],
        *,
        owner: IntArray,
        text: Callable[[int], str],
    ) -> Conflict:
        """What was found, in words; `owner` (count,) is the requirement of each clause."""
        numbers = [int(owner[part[0]]) for part in found.parts]
        clauses = [
            text(int(part[0]))
            if len(part) == 1
            else f"{requirements[number].name}: all its {len(part)} rows"
            for number, part in zip(numbers, found.parts, strict=True)
        ]
        return cls(scope, tuple(numbers), tuple(clauses), found.irreducible)

    def __len__(self) -> int:
        return len(self.clauses)

    def __str__(self) -> str:
        shown = "; ".join(self.clauses[:SHOWN])
        more = f"; and {len(self) - SHOWN} more" if len(self) > SHOWN else ""
        if len(self) == 1:
            return f"{self.scope} can keep this: {shown}"
        return f"{self.scope} can keep these {len(self)} together: {shown}{more} ({self._spare})"

    @property
    def _spare(self) -> str:
        if not self.irreducible:
            return "perhaps not the smallest such set: the search for it ended early"
        return "without any one of them the others can be kept"
