"""Fewer members at the end: as far as rows and objective allow, and no further."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from cg4ai.colgen.master import OWN_SLACK, LinearMaster
from cg4ai.colgen.restricted_master import Workspace
from cg4ai.colgen.result import MemberPruner
from cg4ai.colgen.tolerances import FEASIBILITY_TOLERANCE
from cg4ai.errors import InvalidSettings
from cg4ai.settings import Settings
from raising import raises


def pruner_of(master: Any, share: float, *, blocks: int = 1) -> MemberPruner:
    columns = SimpleNamespace(blocks=np.zeros(getattr(master, "n_columns", 1), np.int64))
    work = SimpleNamespace(
        columns=columns,
        layout=range(blocks),
        master=master,
        scenarios=None,
        notes=[],
    )
    made = MemberPruner(
        cast(Workspace, work),
        share,
        solve=lambda: master.solve(),
        unmet=lambda solution: bool(solution.slack.max(initial=0) > FEASIBILITY_TOLERANCE),
    )
    made.notes = work.notes  # type: ignore[attr-defined]
    return made


def three_members() -> LinearMaster:
    """min w_1 + 1.001 w_2 with 10 w_1 + 5 w_2 >= 1: a tenth of the second is best."""
    master = LinearMaster(1)
    master.add_columns(np.array([0.0, 1.0, 1.001]), np.zeros(3, int), np.empty((0, 3)))
    master.add_rows(np.array([[0.0, 10.0, 5.0]]), np.array([1.0]), np.array([OWN_SLACK]))
    return master


def test_small_weights_go_where_the_objective_allows() -> None:
    master = three_members()
    whole = master.solve()
    np.testing.assert_allclose(whole.weights, [0.9, 0.1, 0.0], atol=1e-9)
    # without the second member the row cannot be met: barring it would need slack
    kept = pruner_of(master, 0.5).prune(whole)
    np.testing.assert_allclose(kept.weights, whole.weights, atol=1e-9)
    # a weight that only lowers the cost is given up for its price, and not for less
    cheap = LinearMaster(1)
    cheap.add_columns(np.array([1.0, 0.99]), np.zeros(2, int), np.empty((0, 2)))
    cheap.add_rows(np.array([[1.0, -9.0]]), np.array([0.0]), np.array([OWN_SLACK]))
    best = cheap.solve()
    np.testing.assert_allclose(best.weights, [0.9, 0.1], atol=1e-9)
    np.testing.assert_allclose(pruner_of(cheap, 0.01).prune(best).weights, [1.0, 0.0], atol=1e-9)
    best = pruner_of(cheap, 0.0).prune(best)
    np.testing.assert_allclose(best.weights, [0.9, 0.1], atol=1e-9)
    cheap.bar(np.empty(0, int))
    np.testing.assert_allclose(
        pruner_of(cheap, 1e-4).prune(cheap.solve()).weights, [0.9, 0.1], atol=1e-9
    )


def test_members_come_back_for_rows_that_need_them() -> None:
    master = LinearMaster(1)
    master.add_columns(np.array([1.0, 0.99]), np.zeros(2, int), np.empty((0, 2)))
    master.add_rows(np.array([[1.0, -9.0]]), np.array([0.0]), np.array([OWN_SLACK]))
    pruner = pruner_of(master, 0.01)
    alone = pruner.prune(master.solve())
    assert alone.weights[1] == pytest.approx(0.0, abs=1e-12)
    assert pruner.check_solution(alone) is alone
    master.add_rows(np.array([[0.0, 1.0]]), np.array([0.05]), np.array([OWN_SLACK]))
    again = pruner.check_solution(master.solve())
    assert again.weights[1] >= 0.05 - 1e-9
    assert again.slack.max() <= FEASIBILITY_TOLERANCE


def test_every_block_keeps_a_member_and_convex_masters_are_said_to_take_no_part() -> None:
    master = LinearMaster(1)
    even = np.full(10, 0.1)
    master.add_columns(np.zeros(10), np.zeros(10, int), np.empty((0, 10)))
    solution = master.solve()
    spread = pruner_of(master, 0.5)
    spread.prune(
        type(solution)(**{**_fields(solution), "weights": even})
    )  # all are below the first shares, none is barred
    assert len(spread.barred) == 0
    convex = pruner_of(object(), 0.1)
    assert convex.prune(solution) is solution
    assert "only linear masters" in convex.notes[0]  # type: ignore[attr-defined]


def _fields(solution: Any) -> dict[str, Any]:
    return {name: getattr(solution, name) for name in solution.__dataclass_fields__}


def test_lean_asks_for_the_masters_own_weights() -> None:
    with raises(InvalidSettings, "invalid-settings", "prune"):
        Settings(prune=0.1, final_weights="uniform")
    with raises(InvalidSettings, "invalid-settings", "prune"):
        Settings(prune=-0.1, final_weights="vertex")
