"""What fewer members would have done, after training: the fewest that meet all rows, one group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import linprog

from cg4ai.apps.protocol import Evaluation, TrainingOutcome, TrainingTask
from cg4ai.clock import Deadline, Review
from cg4ai.colgen.pricing.reduced_cost import compute_row_values
from cg4ai.ensemble.audit import audit
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import SolverFailure
from cg4ai.members.mixture import Part
from cg4ai.records import Array
from experiments.digits.app import DigitsApplication
from experiments.digits.evaluate import TOLERANCE, Prepared, accuracy, required
from experiments.digits.journal import Journal
from experiments.digits.problem import listed

MOST_ROWS = 2000  # with more the programs take longer than the answer is worth
PROGRAM_S, STUDY_S = 10.0, 60.0  # of one program and of all of them; else the count is not known
LIMIT_REACHED = 1  # SciPy's status


class TooLong(SolverFailure):
    """A program was not solved within its time."""


class Study(DigitsApplication):
    """The digits application with the count of columns and its first group in its summary."""

    def evaluate(
        self, prepared: Prepared, task: TrainingTask, solved: TrainingOutcome, review: Review
    ) -> Evaluation:
        found = super().evaluate(prepared, task, solved, review)
        review.say("counting the fewest columns that meet every row")
        further = {**first_group(prepared, task.journal), **counted(prepared, task.journal)}
        return replace(found, summary={**found.summary, **further})


def first_group(prepared: Prepared, journal: Journal) -> Mapping[str, Any]:
    """The members of the first training with equal weights: no duals have had a part in it."""
    members, split = journal.all_members(), prepared.split
    first = min(prepared.settings.group, len(members))
    weights = (np.arange(len(members)) < first) / first
    part = Part(members, np.zeros(len(members), np.int64), weights)
    ensemble = Ensemble((part,), prepared.base.layout)
    images, labels = required(prepared, journal)
    kept = 0
    if len(labels):
        rule = listed(images, labels, prepared.settings, name="required")
        kept = audit(rule, ensemble, tolerance=TOLERANCE).satisfied
    return {
        "first_group_members": first,
        "first_group_accuracy": accuracy(ensemble.predict(split.test_images), split.test_labels),
        "first_group_rows_satisfied": kept,
    }


def counted(prepared: Prepared, journal: Journal) -> Mapping[str, Any]:
    """`fewest_columns`: the first members trained, as few as can meet all rows; None if unknown."""
    images, labels = required(prepared, journal)
    if not 0 < len(labels) <= MOST_ROWS:
        return {"fewest_columns": None}
    rows = listed(images, labels, prepared.settings, name="required").rows(0)
    assert rows is not None  # images are listed
    average = journal.average(prepared.base.layout)
    (part,) = average.parts
    values = compute_row_values(
        rows, average.layout, part.members, part.blocks, str(average.device)
    )
    try:
        return {"fewest_columns": fewest_columns(values, rows.bounds, tolerance=TOLERANCE)}
    except TooLong:
        return {"fewest_columns": None}


def fewest_columns(
    values: Array, bounds: Array, *, tolerance: float, within_s: float = STUDY_S
) -> int | None:
    """The least k such that a mixture of the first k members meets every row; None if none does.

    values (rows, members) holds each member's own value in each row. A mixture of k members is one
    of k + 1 too, so that bisection finds k. TooLong if that takes more than `within_s` seconds.
    """
    deadline = Deadline.after(within_s)
    if shortfall(values, bounds, deadline) > tolerance:
        return None
    low, high = 0, int(values.shape[1])  # low members do not suffice, high do
    while high - low > 1:
        middle = (low + high) // 2
        if shortfall(values[:, :middle], bounds, deadline) > tolerance:
            low = middle
        else:
            high = middle
    return high


def shortfall(values: Array, bounds: Array, deadline: Deadline) -> float:
    """How much the best mixture still lacks in its worst row; 0 if it meets all.

    The program: minimise s >= 0 subject to values . weights + s >= bounds, weights of sum 1.
    """
    rows, members = values.shape
    if bool((values.max(axis=1) < bounds).any()):  # no mixture exceeds its best member
        return float((bounds - values.max(axis=1)).max())
    answer = linprog(
        np.append(1.0, np.zeros(members)),
        A_ub=-np.column_stack([np.ones(rows), values]),
        b_ub=-bounds,
        A_eq=np.append(0.0, np.ones(members))[None],
        b_eq=[1.0],
        method="highs",
        options={"time_limit": min(PROGRAM_S, max(1e-3, deadline.compute_seconds_left()))},
    )
    if answer.status == LIMIT_REACHED or deadline.passed:
        raise TooLong(f"a program of {rows} rows and {members} members took too long")
    if answer.status != 0:
        raise SolverFailure(
            f"HiGHS answered {answer.message!r} to a program of {rows} rows and {members} "
            "members; expected an optimum"
        )
    return max(0.0, float(answer.fun))
