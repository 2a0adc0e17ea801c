"""What the loop solves: a problem, and what was made of it before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from cg4ai.layout import Layout
from cg4ai.members.shielded import Shield
from cg4ai.objectives import AnyObjective
from cg4ai.protocols import Members, Pricer
from cg4ai.records import IntArray
from cg4ai.rules import Requirement
from cg4ai.rules.rows import Rows
from cg4ai.settings import Guarantee

if TYPE_CHECKING:
    from cg4ai.compile.problem import Problem


@dataclass(frozen=True)
class CompiledProblem:
    """A problem some of whose rules are structure of the members; the others are left to rows.

    `stated` is what the user said, and `guarantee` how strong regions were asked to be kept. The
    loop reads `objective`, `requirements` (those left to the master), `pricers`, `start` and
    `start_rows`, which the transformations changed. `asked` are the rules that audits are about,
    `kept` those of them that every member keeps by construction. `shield` is what members stand
    behind, `unshielded` the same problem with members as they were before. `notes` are remarks
    for the result.
    """

    stated: Problem
    guarantee: Guarantee
    objective: AnyObjective
    requirements: Sequence[Requirement]
    pricers: Sequence[Pricer]
    start: Sequence[tuple[Members, IntArray]]
    start_rows: Sequence[Rows]
    asked: tuple[Requirement, ...]
    kept: tuple[Requirement, ...] = ()
    notes: tuple[str, ...] = ()
    shield: Shield | None = None
    unshielded: CompiledProblem | None = None

    @classmethod
    def from_problem(cls, problem: Problem, guarantee: Guarantee = "every input") -> Self:
        """The problem before the first transformation: every rule is left to the master."""
        return cls(
            stated=problem,
            guarantee=guarantee,
            objective=problem.objective,
            requirements=problem.requirements,
            pricers=problem.pricers,
            start=problem.start,
            start_rows=problem.start_rows,
            asked=tuple(problem.requirements),
        )

    @property
    def layout(self) -> Layout:
        return self.stated.layout

    @property
    def probabilities(self) -> tuple[int, ...]:
        """Sizes of the groups of outputs that sum to one, as far as the user named them."""
        return self.stated.probabilities

    @property
    def has_regions(self) -> bool:
        """Whether some requirement holds over a region or pool, which must be searched."""
        return any(requirement.region is not None for requirement in self.requirements)

    def with_kept_rules(self, kept: Sequence[Requirement], **changes: Any) -> CompiledProblem:
        """The problem, changed, whose members keep these requirements, which leave the master."""
        numbers = [
            number
            for number, one in enumerate(self.requirements)
            if not any(one is other for other in kept)
        ]
        place = {number: new for new, number in enumerate(numbers)}
        return replace(
            self,
            requirements=tuple(self.requirements[number] for number in numbers),
            kept=(*self.kept, *kept),
            start_rows=tuple(
                replace(rows, requirement=place[rows.requirement])
                for rows in self.start_rows
                if rows.requirement in place
            ),
            **changes,
        )
