"""An ensemble whose weights move as little as further rules need, and what that changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.sparse import bmat, csc_matrix, csr_matrix, identity

from cg4ai.colgen.pricing.reduced_cost import compute_all_values
from cg4ai.conflicts import Conflict, Scope
from cg4ai.conflicts.irreducible import ElasticProgram, System, search
from cg4ai.data import arrays
from cg4ai.ensemble.ensemble import GUARANTEES, Ensemble
from cg4ai.ensemble.shield import ShieldedEnsemble
from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray
from cg4ai.rules import DecisionRate, Requirement
from cg4ai.rules.rows import RowSet
from cg4ai.solvers.highs import OPTIMAL, LinearProgram

TIGHT = 1e-9
MOST_ROWS = 3_000  # among which it is looked for what contradicts each other
ROOM = 1e-8  # rows are asked for this much more, so that recomputed predictions meet them


@dataclass(frozen=True)
class PredictionChanges:
    """How the predictions of two ensembles differ at some inputs.

    `answers` are the positions of inputs that are decided otherwise, which is by the highest output
    unless rules bind decisions; `mean` and `largest` are differences of single outputs.
    """

    inputs: int
    answers: IntArray = field(repr=False)
    mean: float
    largest: float

    def __str__(self) -> str:
        return (
            f"{len(self.answers)} of {self.inputs} answers changed; outputs by {self.mean:.3g} on "
            f"average, {self.largest:.3g} at most"
        )


def compute_changes(before: Ensemble, after: Ensemble, inputs: Any) -> PredictionChanges:
    """What became of the predictions at `inputs` (n, d)."""
    x = arrays.as_table(inputs, "the inputs to compare at")
    old, new = (one.predict(x, outside="ignore") for one in (before, after))
    other = np.empty(0, np.int64)
    if old.shape[1] > 1:
        decided = [one.decide(x, outside="ignore") for one in (before, after)]
        other = np.flatnonzero(decided[0] != decided[1])
    apart = np.abs(new - old)
    return PredictionChanges(len(x), other, float(apart.mean()), float(apart.max(initial=0.0)))


@dataclass(frozen=True)
class PatchResult:
    """The new ensemble, the share of weight that moved, and what changed at the inputs given."""

    ensemble: Ensemble
    moved: float
    changes: PredictionChanges | None = None


def patch_ensemble(
    ensemble: Ensemble, requirements: Sequence[Requirement], *, inputs: Any = None
) -> PatchResult:
    """New weights that keep these requirements and are nearest to the old ones (sum of changes).

    Decisions under a `DecisionRate` have weights of their own and stay as they are.
    InvalidInput where no weights of these members do, with the rows that contradict each other.
    """
    if isinstance(ensemble, ShieldedEnsemble):
        raise InvalidInput(
            "this ensemble has a shield around the whole mixture: patch ensemble.unshielded, then "
            "call apply_shield again",
            code="unsupported",
        )
    rows = _rows(ensemble, requirements)
    table = np.concatenate(
        [
            compute_all_values(rows, part.members, part.blocks, str(ensemble.device))
            for part in ensemble.parts
        ],
        axis=1,
    )
    blocks = np.concatenate([part.blocks for part in ensemble.parts])
    old = np.concatenate([part.weights for part in ensemble.parts])
    convexity = csr_matrix(
        (np.ones(len(blocks)), (blocks, np.arange(len(blocks)))),
        (len(ensemble.layout), len(blocks)),
    )
    new = _nearest(old, table, rows.bounds + ROOM, convexity)
    if new is None:
        system = System(
            csr_matrix(table),
            rows.bounds,
            np.arange(len(rows)),
            np.zeros(len(old)),
            convexity,
            np.ones(len(ensemble.layout)),
        )
        raise InvalidInput(
            f"{_why(system, rows, requirements)}; train further members", code="infeasible"
        )
    made = _reweighted(ensemble, new, blocks)
    found = None if inputs is None else compute_changes(ensemble, made, inputs)
    return PatchResult(made, float(np.abs(new - old).sum() / 2 / len(ensemble.layout)), found)


def _rows(ensemble: Ensemble, requirements: Sequence[Requirement]) -> RowSet:
    rows = RowSet(ensemble.layout)
    if not requirements:
        raise InvalidInput("nothing to patch: give one requirement or more", code="empty")
    for number, one in enumerate(requirements):
        one.check(ensemble.input_size, ensemble.layout.output_size)
        if isinstance(one, DecisionRate):
            _check_decisions(ensemble, one)
            continue
        listed = one.rows(number)
        if listed is None:
            raise InvalidInput(
                f"{one.name} lists no inputs, but a patch keeps rules at listed inputs only: give "
                "inputs, or train again for a rule over a region",
                code="unsupported",
            )
        rows.add(listed)
    return rows


def _check_decisions(ensemble: Ensemble, rule: DecisionRate) -> None:
    """Decisions are not patched: a rule on them is kept already, or refused."""
    if not ensemble.votes:
        raise InvalidInput(
            f"{rule.name} is about decisions, and this ensemble was trained without such a rule: "
            "weights of its scores do not keep it; train anew",
            code="unsupported",
        )
    found = ensemble.audit(rule)
    if not found.holds:
        raise InvalidInput(
            f"decisions are not patched, and {found}; train anew", code="unsupported"
        )


def _nearest(old: Array, table: Array, bounds: Array, convexity: Any) -> Array | None:
    """Weights >= 0 with `table @ w >= bounds`, nearest to `old`; None: there are none.

    minimise sum t subject to -t <= w - old <= t.
    """
    size, none = len(old), np.zeros(len(old))
    program = LinearProgram(TIGHT)
    program.add_columns(
        np.concatenate([none, np.ones(size)]), np.zeros(2 * size), csc_matrix((0, 2 * size))
    )
    one = identity(size)
    matrix = bmat(
        [[csr_matrix(table), None], [convexity, None], [one, one], [-one, one]], format="csr"
    )
    ends = np.ones(convexity.shape[0])
    lower = np.concatenate([bounds, ends, old, -old])
    upper = np.concatenate([np.full(len(bounds), np.inf), ends, np.full(2 * size, np.inf)])
    program.add_rows(lower, upper, matrix)
    if program.run().status != OPTIMAL:
        return None
    return np.asarray(np.maximum(program.solution().values[:size], 0.0))


def _why(system: System, rows: RowSet, requirements: Sequence[Requirement]) -> str:
    owner = np.concatenate([np.full(len(batch), batch.requirement) for batch in rows.batches])
    few = len(owner) <= MOST_ROWS
    found = search(ElasticProgram(system, 1e-9), owner) if few else None
    if found is None:
        return "no weights of these members were found that keep the requirements"

    def text(row: int) -> str:
        number = int(owner[row])
        return requirements[number].describe(
            rows.batches[number], row - int(np.flatnonzero(owner == number)[0])
        )

    return str(Conflict.from_clauses(Scope.MEMBERS, found, requirements, owner=owner, text=text))


def _reweighted(ensemble: Ensemble, weights: Array, blocks: IntArray) -> Ensemble:
    """The same members with other weights; what was established of the old ones is void."""
    total = np.zeros(len(ensemble.layout))
    np.add.at(total, blocks, weights)
    weights = weights / total[blocks]
    ends = np.cumsum([len(part.weights) for part in ensemble.parts])[:-1]
    parts = tuple(
        replace(part, weights=own)
        for part, own in zip(ensemble.parts, np.split(weights, ends), strict=True)
    )
    about = {name: value for name, value in ensemble.about.items() if name != GUARANTEES}
    return Ensemble(parts, ensemble.layout, about=about, device=ensemble.device)
