"""What runs say of themselves: columns of all kinds, regions, and rules kept or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cg4ai.apps.protocol import Guarantee, InputColumn
from cg4ai.apps.tabular.description import TabularModel
from cg4ai.routing import instance
from cg4ai.routing.network.description import Router
from cg4ai.routing.pages.guarantees import list_findings
from experiments.digits.app import APPLICATION as DIGITS
from small_network import NETWORK

COLUMNS = [
    {"name": "age", "kind": "number", "fill": 40.0, "empty": True, "values": []},
    {"name": "smokes", "kind": "boolean", "fill": 0.0, "empty": False, "values": []},
    {"name": "city", "kind": "text", "fill": 0.0, "empty": False, "values": ["Oslo", "Rome"]},
]
DESCRIPTION: dict[str, Any] = {
    "features": ["age", "age is empty", "smokes", "city=Oslo", "city=Rome"],
    "columns": COLUMNS,
    "outputs": ["no", "yes"],
    "lower": [20.0, 0.0, 0.0, 0.0, 0.0],
    "upper": [90.0, 1.0, 1.0, 1.0, 1.0],
    "target": "sick",
    "task": "classification",
    "scores": "probability",
}


def test_columns_of_a_table_are_named_as_they_are_given() -> None:
    made = TabularModel(DESCRIPTION, {}).interface()
    assert made.inputs == (
        InputColumn("age", 55.0, least=20.0, most=90.0, may_be_empty=True),
        InputColumn("smokes", False, "boolean", may_be_empty=True),
        InputColumn("city", "Oslo", "text", values=("Oslo", "Rome"), may_be_empty=True),
    )
    assert made.outputs == ("sick", "probability no", "probability yes")


def test_without_an_encoding_all_columns_are_numbers() -> None:
    plain = {"features": ["a"], "columns": None, "lower": [1 / 3], "upper": [1 / 3]}
    asked = {**DESCRIPTION, **plain, "task": "regression", "outputs": ["low", "high"]}
    made = TabularModel(asked, {}).interface()
    # rounded, the example would lie outside
    assert made.inputs == (InputColumn("a", 1 / 3, least=1 / 3, most=1 / 3),)
    assert made.outputs == ("low", "high")


@pytest.mark.parametrize("limits", [{}, {"budget": 0.4}, {"budget": 0.4, "least": 0.3}])
def test_the_example_of_a_router_lies_in_its_set(tmp_path: Path, limits: dict[str, Any]) -> None:
    (tmp_path / "small.json").write_text(json.dumps(NETWORK))
    made = instance(tmp_path / "small.json", demands=2, **limits)
    described = Router(made).interface()
    example = np.array([[one.example for one in described.inputs]], np.float64)
    assert made.region.covers(example).all()
    assert [one.name for one in described.inputs] == made.demand_names
    assert (" limit" in described.region) == ("budget" in limits)


def test_a_router_that_overloads_a_link_keeps_nothing(finished_runs: Path) -> None:
    summary = json.loads((finished_runs / "route" / "summary.json").read_text())
    (kept,) = (one.guarantee for one in list_findings(summary))
    assert (kept.rule, kept.holds, kept.strength) == ("capacity", True, "shielded")
    (broken,) = list_findings({**summary, "worst_utilisation": 1.2})
    assert (broken.kept, broken.strength) == (False, "violated")
    assert (broken.guarantee.holds, broken.verdict.holds) == (False, False)
    ratio = {"ratio": 1.1, "ratio_leaves": 3, "ratio_whole": 1.2}
    for status, strength in (("proven", "certified"), ("rejected", "unverified")):
        proof = {"status": status, "file": "ratio.cg4ai", "note": "why"}
        _, far = list_findings({**summary, **ratio, "ratio_proof": proof})
        assert (far.rule, far.kept, far.strength) == ("ratio", status == "proven", strength)


def test_images_that_are_answered_otherwise_are_not_kept(finished_runs: Path) -> None:
    summary = json.loads((finished_runs / "digits" / "summary.json").read_text())
    assert DIGITS.story({**summary, "rows": 0}).findings == ()
    (found,) = DIGITS.story({**summary, "rows_satisfied": 19}).findings
    broken = found.guarantee
    assert isinstance(broken, Guarantee)
    assert (broken.holds, broken.strength) == (False, "violated")
    assert "19 of 20" in broken.words
