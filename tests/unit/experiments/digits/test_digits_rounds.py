"""Small groups priced by duals, wrong images corrected, attacks until nothing is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from base_members import base_members_trained_once  # noqa: F401  # a fixture for all tests here
from cg4ai.apps.protocol import solve_plainly
from cg4ai.apps.runner import perform
from cg4ai.ensemble.audit import audit
from cg4ai.records import IterationRecord, StopReason
from cg4ai.runs import files
from experiments.digits import DigitsSettings, train
from experiments.digits import __main__ as cli
from experiments.digits.app import DigitsApplication
from experiments.digits.patience import FewerBroken, solve_attacked
from experiments.digits.problem import digits_problem
from experiments.digits.rounds import SMALL_GROUPS, means_of, rows_of, studies, study
from experiments.digits.separation import PixelFlips, broken, checked

TINY: dict[str, Any] = {
    "steps": 60,
    "learning_rate": 0.03,
    "batch_size": 32,
    "blur": 0.0,
    "gain": 1.0,
    "threads": 1,
}


@pytest.mark.parametrize(
    ("asked", "group", "rounds"),
    [
        ({"n": 100}, 100, 4),
        ({"n": 100, "small_groups": True}, 1, 60),
        ({"n": 500, "small_groups": True}, 2, 60),
        ({"scenario": "robust"}, 20, 300),
        ({"scenario": "robust", "radius": 0.02}, 100, 4),
    ],
)
def test_usual_groups(asked: dict[str, Any], group: int, rounds: int) -> None:
    settings = DigitsSettings(**asked)
    assert (settings.group, settings.rounds) == (group, rounds)


def test_rounds_of_small_groups_beside_their_controls() -> None:
    asked = DigitsSettings(n=20, small_groups=True, group=2, seed=3, **TINY)
    found = list(studies(asked))
    assert [one.way for one in found] == [*SMALL_GROUPS, "one group", "longer"]
    by_duals, _, _, whole, longer = found
    assert whole.columns == by_duals.columns
    assert longer.columns == 2
    assert by_duals.columns == 2 * (by_duals.columns // 2) > 2  # one group does not suffice here
    # the first group is trained before there are duals: all small groups begin alike
    assert len({one.rounds[0] for one in found[:3]}) == 1
    for one in found[:3]:
        assert [each.rows_met for each in one.rounds][-1] >= one.rounds[0].rows_met
    assert [line["way"] for line in means_of(found)] == [one.way for one in found]
    assert len(rows_of([*found, *found])) == 2 * len(found)


def test_without_a_loss_a_mixture_has_nothing_to_add() -> None:
    asked = DigitsSettings(n=20, small_groups=True, constraints_only=True, seed=3, **TINY)
    equal, alone = (
        study(replace(asked, rounds=4), w, SMALL_GROUPS[w]) for w in ("equal rows", "alone")
    )
    assert equal.rounds == alone.rounds
    assert "alone" not in [one.way for one in studies(replace(asked, rounds=2))]


def test_the_command_writes_what_it_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["rounds", "--n", "20", "--seeds", "5", "--group", "2", "--quick", "--quiet"]
    assert cli.main([*options, "--out", str(tmp_path)]) == 0
    text = (tmp_path / "rounds.md").read_text()
    assert text.strip() == capsys.readouterr().out.strip()
    assert len(files.read_json(tmp_path / "rounds.json")["studies"]) == 5


def test_what_an_imperfect_base_member_gets_wrong_is_corrected() -> None:
    asked = DigitsSettings(
        scenario="correct", n=100, seed=42, small_groups=True, **{**TINY, "steps": 200}
    )
    assert asked.base_epochs == 200
    application = DigitsApplication()
    prepared = application.prepare(asked, None)
    split = prepared.split
    wrong = broken(prepared.base, split.train_images, split.train_labels)
    assert 5 <= wrong.sum() <= 50
    assert prepared.demand.rows is not None
    assert np.array_equal(prepared.demand.rows[0], split.train_images[wrong])
    outcome = perform(application, asked, out=None)
    assert outcome.summary["rows"] == outcome.summary["rows_satisfied"] == wrong.sum()
    first = outcome.result.history[0]
    # the base member is the first column, and misses every row
    assert first.columns - first.added_columns == 1
    assert first.slack > 0 or not first.rows_met
    assert not broken(
        outcome.result.ensemble, split.train_images[wrong], split.train_labels[wrong]
    ).any()


def test_attacks_end_when_they_find_nothing() -> None:
    asked = DigitsSettings(
        scenario="robust", n=20, seed=1, pixels=8, **{**TINY, "steps": 150, "group": 10}
    )
    outcome = train(asked)
    assert outcome.result.stop_reason is StopReason.NO_IMPROVING_COLUMN
    split = outcome.prepared.split
    attacked = checked(
        PixelFlips(8), outcome.result.ensemble, split.train_images, split.train_labels, 0
    )
    assert not broken(outcome.result.ensemble, attacked, split.train_labels).any()
    assert outcome.summary["withstand_train_after"] == 1.0
    assert outcome.summary["rows"] == outcome.summary["rows_satisfied"] > 0


def test_attacks_end_when_they_get_nowhere() -> None:
    record = _record(0)
    waiting = FewerBroken(patience=3)
    heard = [waiting.on_iteration(replace(record, added_rows=rows)) for rows in (9, 9, 5, 0, 6, 7)]
    assert not any(heard)
    assert waiting.on_iteration(replace(record, added_rows=5))
    again = FewerBroken(patience=3)
    history = [replace(record, added_rows=rows) for rows in (9, 9, 9, 9)]
    assert again.on_start(history)
    assert not again.on_start(history[:2])


def test_runs_that_attack_are_the_ones_that_may_get_nowhere() -> None:
    application = DigitsApplication()
    for asked, solver in (
        (DigitsSettings(scenario="robust", n=20, pixels=2, **TINY), solve_attacked),
        (DigitsSettings(n=20, **TINY), solve_plainly),
    ):
        assert application.problem(application.prepare(asked, None)).solver is solver


def _record(iteration: int) -> IterationRecord:
    return IterationRecord(
        iteration, 1.0, 0.0, None, None, None, 1, 1, 0, 0, 10.0, 0.0, 0.0, 0.0, 0.0
    )


def test_a_rule_with_a_search_of_its_own_is_audited_by_it_in_haste() -> None:
    asked = DigitsSettings(scenario="robust", n=20, seed=1, pixels=40, **TINY)
    prepared = DigitsApplication().prepare(asked, None)
    withstand = digits_problem(prepared.demand, asked, base=prepared.base).requirements[0]
    found = audit(withstand, prepared.base, brief=True)
    assert found.effort["search"] == "attacks"
