"""The study of whole networks: a row for each, or the reason why there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cg4ai.errors import InvalidInput
from experiments.networks import whole
from experiments.networks.figures import cost_figure
from experiments.networks.whole import Plan, chosen, one_row, rows_of, run_all
from raising import raises

pytestmark = pytest.mark.usefixtures("quick_evaluation")

TINY: dict[str, Any] = {"scenarios": 20, "priced": 50, "first_steps": 20, "later_steps": 10}
TINY |= {"hidden": (8,), "validation": 20, "threads": 1}


def test_networks_come_in_order_of_their_demands() -> None:
    every = chosen(())
    assert len(every) == 26
    assert (every[0], every[-1]) == ("di-yuan", "brain")
    assert chosen(["geant", "abilene"]) == ["abilene", "geant"]
    with raises(InvalidInput, "invalid-input", "geant", "gant"):
        chosen(["gant"])


@pytest.mark.slow
@pytest.mark.guard
def test_a_network_is_run_once_and_reported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, said = Plan(tmp_path, TINY), list[str]()
    rows = run_all(["di-yuan", "brain"], plan, say=said.append)
    assert [row["network"] for row in rows] == ["di-yuan", "brain"]
    assert rows[0]["guaranteed"] == "yes"
    assert (rows[0]["demands"], rows[0]["paths"], rows[0]["links"]) == (22, 66, 53)
    assert rows[0]["vectors"] == 20
    assert rows[1]["reason"] == "more than 2000 demands"
    assert len(said) == 2
    monkeypatch.setattr(whole, "_trained", lambda *_: pytest.fail("it was there already"))
    assert one_row("di-yuan", plan) == rows[0]
    assert rows_of(tmp_path, plan) == rows
    assert (tmp_path / "whole.md").read_text().count("\n") == 4
    drawn = cost_figure(rows, tmp_path / "whole.png")
    assert drawn is not None
    assert drawn.stat().st_size > 1000
    assert cost_figure(rows[1:], tmp_path / "none.png") is None


def test_what_fails_is_a_reason_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise InvalidInput("no such luck")

    monkeypatch.setattr(whole, "_trained", refused)
    rows = run_all(["polska", "pdh"], Plan(tmp_path, TINY), say=lambda _: None)
    assert [row["reason"] for row in rows] == ["no result: no such luck"] * 2
