"""What `solve` is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cg4ai.colgen.pricing.defaults import iterate_pricers
from cg4ai.colgen.separation import is_exact_search
from cg4ai.errors import InvalidInput, check_names, refuse_incomplete
from cg4ai.layout import Layout
from cg4ai.objectives import AnyObjective, Objective, Supervised
from cg4ai.protocols import Architecture, Members, Pricer, Wrapping
from cg4ai.records import Array, IntArray
from cg4ai.rules import Margin, Requirement
from cg4ai.rules.requirement import InputRule
from cg4ai.rules.rows import Rows
from cg4ai.seeds import generator

if TYPE_CHECKING:
    from cg4ai.colgen.phases import Phase
    from cg4ai.compile.compiled import CompiledProblem

LONGEST_RULE_NAME = 300  # what a certificate takes
# what base classes cannot have a default for, of rules and members of other packages
RULE_METHODS = ("check", "rows", "describe")
MEMBER_ATTRIBUTES = (
    *("kind", "device", "input_size", "output_size"),
    *("outputs", "take", "to", "state"),
)


@dataclass(frozen=True)
class Problem:
    """An objective, requirements, pricers that train members, and members to start from.

    `pricers` are asked in order until one proposes a member that improves the master. `start`
    holds members that are in the master from the beginning, such as an anchor that keeps it
    feasible; `start_rows` holds rows known to matter (their `requirement` numbers index
    `requirements`). `phases` makes the phases of a run, anew for each; the first is where it
    begins and ends (None: column generation with cuts, where it makes sense first without the
    rules, see `cg4ai.colgen.phases`).

    Rules over regions and equalities are kept by the members themselves where that is possible
    (see `cg4ai.compile.transformations`). `anchor` is what their shield moves outputs to: numbers
    (r,), slopes and offsets, or a member; None: one is looked for. `probabilities` are the sizes
    of groups of outputs that sum to one, which an anchor must do, too. With `plain_first` members
    that are fitted to labels are first trained without the rules, in up to half of each limit:
    training under them starts from there, and the result says what they cost. `held_out` (n, d)
    are inputs that no member is trained on, at which rates are stated, too. `labelled` are all
    labelled rows, by which decisions under a `DecisionRate` are chosen, where the objective has
    some of them only.

    A problem is what the user states; what is made of it is a `CompiledProblem`.
    """

    objective: AnyObjective
    requirements: Sequence[Requirement]
    pricers: Sequence[Pricer]
    layout: Layout
    start: Sequence[tuple[Members, IntArray]] = ()
    start_rows: Sequence[Rows] = ()
    phases: Callable[[], Sequence[Phase]] | None = None
    anchor: Any = None
    probabilities: tuple[int, ...] = ()
    plain_first: bool = True
    held_out: Array | None = None
    labelled: Supervised | None = None

    def __post_init__(self) -> None:
        if not self.pricers:
            raise InvalidInput("a problem needs at least one pricer to train members", code="empty")
        for pricer in self.pricers:
            if not isinstance(pricer, Pricer):
                raise InvalidInput(
                    f"{type(pricer).__name__} is not a pricer: derive it from "
                    "cg4ai.colgen.PricerDefaults, and give it price(request)",
                    code="type",
                )
        d, r = self.objective.inputs.shape[1], self.layout.output_size
        for requirement in self.requirements:
            refuse_incomplete(requirement, RULE_METHODS, "cg4ai.rules.InputRule")
            check_names([requirement.name], "a rule", longest=LONGEST_RULE_NAME)
            requirement.check(d, r)
            self._check_priceable(requirement)
            self._check_missing(requirement)
        self._check_affordable()
        if isinstance(self.objective, Objective):
            self._refuse_labelled()
        if isinstance(self.objective, Supervised):
            self.objective.check(r)
        for members, blocks in self.start:
            check_fit(members, blocks, self.layout, input_size=d)
        for rows in self.start_rows:
            if not 0 <= rows.requirement < len(self.requirements):
                raise InvalidInput(
                    f"start rows name requirement {rows.requirement}, of "
                    f"{len(self.requirements)} counted from 0",
                    code="range",
                )

    def _check_affordable(self) -> None:
        """Have exact pricers refuse what would take them too long, before anything is trained."""
        for pricer in self.pricers:
            for one in iterate_pricers(pricer):
                one.refuse(self.objective, self.requirements)

    def _refuse_labelled(self) -> None:
        """Refuse pricers that fit labels where the objective has none."""
        asked = [one for pricer in self.pricers for one in iterate_pricers(pricer)]
        fitting = [type(one).__name__ for one in asked if one.capabilities.needs_labels]
        if fitting:
            raise InvalidInput(
                f"{fitting[0]} fits members to labels, and this objective has none; use members "
                "trained by gradient, or a Supervised objective",
                code="unsupported",
            )

    def _check_missing(self, requirement: Requirement) -> None:
        """Refuse inputs with missing values unless every member can take them."""
        if not isinstance(requirement, InputRule) or not len(requirement.missing_features):
            return
        known: list[tuple[type[object], bool]]
        known = [(type(members), members.takes_missing) for members, _ in self.start]
        asked = [one for pricer in self.pricers for one in iterate_pricers(pricer)]
        makers = [one for one in asked if not one.inner_parts()]
        known += [(type(one), one.capabilities.takes_missing) for one in makers]
        for kind, takes_missing in known:
            if not takes_missing:
                requirement.check_missing(f"members of {kind.__name__}")

    def _check_priceable(self, requirement: Requirement) -> None:
        """Refuse rows of the members' own margins for pricers that are exact for linear ones."""
        concave = isinstance(requirement, Margin) and requirement.form == "member"
        asked = [one for pricer in self.pricers for one in iterate_pricers(pricer)]
        strict = [type(one).__name__ for one in asked if one.capabilities.linear_rows_only]
        if concave and strict:
            raise InvalidInput(
                f"{requirement.name} bounds the mean of the members' own margins, but {strict[0]} "
                "prices linear rows only; use form='pairwise', or members trained by gradient",
                code="unsupported",
            )


def check_fit(members: Members, blocks: IntArray, layout: Layout, *, input_size: int) -> None:
    """Refuse members that take other inputs or have too few outputs for their block."""
    refuse_incomplete(members, MEMBER_ATTRIBUTES, "cg4ai.members.MemberDefaults")
    if members.input_size != input_size:
        raise InvalidInput(
            f"a member takes {members.input_size} inputs, the data have {input_size}", code="shape"
        )
    if len(blocks) != len(members):
        raise InvalidInput(
            f"{len(members)} members came with {len(blocks)} block numbers", code="shape"
        )
    for number in np.unique(blocks):
        if not 0 <= number < len(layout):
            raise InvalidInput(
                f"a member names block {number}, of {len(layout)} counted from 0", code="range"
            )
        if members.output_size < len(layout.blocks[number]):
            raise InvalidInput(
                f"a member has {members.output_size} outputs, but its block {number} fills "
                f"{len(layout.blocks[number])}; train members with at least as many",
                code="shape",
            )


def check_exact_separation(problem: CompiledProblem) -> None:
    """Refuse exact separation of rules or members that it cannot state, before anything trains."""
    exact = [one for one in problem.requirements if is_exact_search(one)]
    if not exact:
        return
    from cg4ai.colgen.separation.mip import get_linear_rules
    from cg4ai.members.relu import check_members

    for requirement in exact:
        get_linear_rules(requirement, problem.layout.output_size)
    for one in _architectures(problem):
        check_members(one.members(one.initialise(1, generator(0))))
    for members, _ in problem.start:
        check_members(members)


def find_softmax_groups(problem: Problem | CompiledProblem) -> tuple[int, ...]:
    """Sizes of the groups of outputs that are probabilities, as far as is known."""
    known = [one.softmax_groups for one in _architectures(problem)]
    return problem.probabilities or next((groups for groups in known if groups), ())


def _architectures(problem: Problem | CompiledProblem) -> list[Architecture]:
    """What is trained by gradients, in the order of the pricers."""
    asked = [one for pricer in problem.pricers for one in iterate_pricers(pricer)]
    made = [one.trained_architecture() for one in asked]
    return [one for one in made if one is not None]


def iterate_parts(part: object, key: str = "") -> Iterator[tuple[str, object]]:
    """A part and all that it asks (its `inner_parts`), each with a name of its own."""
    yield key, part
    for number, one in enumerate(part.inner_parts() if isinstance(part, Wrapping) else ()):
        yield from iterate_parts(one, f"{key}.{number}")
