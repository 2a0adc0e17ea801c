"""What `solve` is given and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cg4ai.ensemble.audit import Audit
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.members.layout import Layout
from cg4ai.objectives import Objective, Supervised
from cg4ai.protocols import Members, Pricer
from cg4ai.records import IntArray, IterationRecord, StopReason
from cg4ai.rules import Concave, Margin, Requirement
from cg4ai.rules.rows import Rows
from cg4ai.solving.columns import check_fit


@dataclass(frozen=True)
class Problem:
    """An objective, requirements, pricers that train members, and members to start from.

    `pricers` are asked in order until one proposes a member that improves the master. `start`
    holds members that are in the master from the beginning, such as an anchor that keeps it
    feasible; `start_rows` holds rows known to matter (their `requirement` numbers index
    `requirements`).
    """

    objective: Objective
    requirements: Sequence[Requirement]
    pricers: Sequence[Pricer]
    layout: Layout
    start: Sequence[tuple[Members, IntArray]] = ()
    start_rows: Sequence[Rows] = ()

    def __post_init__(self) -> None:
        if not self.pricers:
            raise InvalidInput("a problem needs at least one pricer to train members")
        d, r = self.objective.inputs.shape[1], self.layout.output_size
        for requirement in self.requirements:
            requirement.check(d, r)
            self._check_priceable(requirement)
        if isinstance(self.objective, Supervised):
            self.objective.check(r)
        for members, blocks in self.start:
            check_fit(members, blocks, self.layout, input_size=d)
        for rows in self.start_rows:
            if not 0 <= rows.requirement < len(self.requirements):
                raise InvalidInput(
                    f"start rows name requirement {rows.requirement}, of "
                    f"{len(self.requirements)} counted from 0"
                )

    def _check_priceable(self, requirement: Requirement) -> None:
        """Refuse concave rows for pricers that are exact for linear ones only."""
        concave = isinstance(requirement, Concave) or (
            isinstance(requirement, Margin) and requirement.form == "member"
        )
        asked = [getattr(pricer, "pricer", pricer) for pricer in self.pricers]
        strict = [type(p).__name__ for p in asked if getattr(p, "linear_rows_only", False)]
        if concave and strict:
            raise InvalidInput(
                f"{requirement.name} has rows that are concave in the outputs, but {strict[0]} "
                "prices linear rows only; state a margin with form='pairwise', or use members "
                "trained by gradient"
            )


@dataclass(frozen=True)
class Result:
    """The trained ensemble and what is known about it.

    `objective` is the master's, `loss` the true objective of the returned mixture on the
    objective's own inputs; `bound` is a proven lower bound on what any mixture of members of the
    class can reach (None without exact pricing), `gap = objective - bound`. `audits` recompute
    every requirement from predictions; `feasible` is read from them alone. Of the `rows`,
    `rule_rows` come from requirements and not from the objective (None: not counted).
    """

    ensemble: Ensemble
    stop_reason: StopReason
    objective: float
    loss: float
    bound: float | None
    slack: float
    columns: int
    rows: int
    audits: tuple[Audit, ...]
    history: tuple[IterationRecord, ...] = field(repr=False)
    note: str
    seconds: float
    rule_rows: int | None = None

    @property
    def gap(self) -> float | None:
        """Proven distance from the best; None without a proof, or where no mixture is feasible."""
        if self.bound is None or self.stop_reason is StopReason.INFEASIBLE:
            return None
        return self.objective - self.bound

    @property
    def feasible(self) -> bool:
        """Whether no audit or attack found a violation (not a proof over regions)."""
        return all(audit.holds for audit in self.audits)

    def __str__(self) -> str:
        gap = "" if self.gap is None else f", proven gap {self.gap:.2g}"
        lines = [
            f"stopped: {self.stop_reason.value} after {len(self.history)} iterations, "
            f"{self.columns} columns, {self.rows} rows, {self.seconds:.1f} s",
            f"mixture: {len(self.ensemble)} active members, loss {self.loss:.6g}{gap}",
        ]
        lines += [str(audit) for audit in self.audits]
        if self.note:
            lines.append(f"note: {self.note}")
        return "\n".join(lines)
