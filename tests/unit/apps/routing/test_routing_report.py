"""What people read of a routing run: where plain networks overload, and by which measure."""

from __future__ import annotations

from typing import Any

import pytest

from cg4ai.apps.routing.report import report
from cg4ai.records import StopReason, Strength

SUMMARY: dict[str, Any] = {
    "network": "tiny",
    "demands": 2,
    "paths": 2,
    "links": 3,
    "corner_mlu": 0.99,
    "load": 0.99,
    "scale": 1.0,
    "objective": "mlu",
    "guarantee": "shielded",
    "members": "network",
    "strength": Strength.SHIELDED,
    "iterations": 2,
    "stop_reason": StopReason.ITERATION_LIMIT,
    "distance": "not estimated",
    "note": "",
    "attack": {},
    "constants": 1,
    "active_constants": 0,
    "columns": 3,
    "active_members": 1,
    "rows": 4,
    "preparing_s": 0.1,
    "pricing_s": 1.0,
    "separation_s": 0.0,
    "master_s": 0.0,
    "total_s": 1.1,
    "evaluation_s": 2.0,
    "worst_utilisation": 1.0,
    "validation": 10_000,
    "mean_mlu_gap": 0.001,
    "max_mlu_gap": 0.01,
    "overloaded": 0.0,
}


@pytest.mark.parametrize(("worst", "said"), [(1.19, True), (0.995, False)])
def test_overloads_of_plain_networks_are_told_where_there_are_some(
    worst: float, said: bool
) -> None:
    plain = {"plain_worst_utilisation": worst, "plain_worst_link": ["a", "b"]}
    text = report(SUMMARY | plain | {"plain_overloaded": 0.0014})
    told = "overload link a->b to 119 % of its capacity" in text
    assert told == ("at 14 of 10,000 validation vectors" in text) == said


@pytest.mark.parametrize(
    ("objective", "quantity"), [("mlu", "mean MLU over the training"), ("cost", "mean path cost")]
)
def test_the_distance_from_optimal_names_what_is_minimised(objective: str, quantity: str) -> None:
    text = report(SUMMARY | {"objective": objective, "distance": "about 0.1, an ESTIMATE"})
    (line,) = [line for line in text.splitlines() if line.startswith("Distance from optimal")]
    assert quantity in line
    assert line.endswith("about 0.1, an ESTIMATE.")
    assert "training scenarios, rare large gaps counted in: not estimated." in report(SUMMARY)


def test_what_a_shield_moves_towards_fits_the_set_which_may_be_no_box() -> None:
    assert "towards a constant split that fits the whole set)." in report(SUMMARY)


def test_a_demand_that_is_not_all_routed_is_no_guarantee() -> None:
    text = report(SUMMARY | {"unrouted": 0.67})
    assert "NOT KEPT: 67 % of a demand is not routed" in text


def test_routers_for_cost_are_compared_by_cost() -> None:
    costs = {"mean_cost_gap": 0.0089, "plain_mean_cost_gap": -0.0141}
    plain = {"plain_worst_utilisation": 1.6, "plain_worst_link": ["a", "b"]}
    text = report(SUMMARY | {"objective": "cost"} | costs | plain)
    assert "+0.89 %" in text
    assert "-1.41 %" in text
    assert "MLU above optimal" not in text


@pytest.mark.parametrize(
    ("active", "constants", "first"),
    [
        (1, 0, "Returned: 1 network."),
        (3, 1, "Returned: 2 networks and 1 constant split."),
        (1, 1, "NO TRAINED MEMBER IS RETURNED, but 1 constant split alone"),
    ],
)
def test_the_first_line_says_what_was_returned(active: int, constants: int, first: str) -> None:
    counts = {"active_members": active, "active_constants": constants}
    assert report(SUMMARY | counts).splitlines()[0].startswith(first)


def test_distances_are_told_by_mixes_of_demands() -> None:
    found = {"vectors": 500, "mean_mlu_gap": 0.02, "max_mlu_gap": 0.3, "mean_optimal_mlu": 0.1}
    mixes = {"sparse": found | {"mean_ratio": 1.47, "max_ratio": 10.4}}
    (line,) = [
        line
        for line in report(SUMMARY | {"mixes": mixes}).splitlines()
        if line.startswith("sparse")
    ]
    assert line.split()[-2:] == ["1.4700", "10.4000"]
