"""What people read of a routing run: where plain networks overload, and by which measure."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cg4ai.records import StopReason, Strength
from cg4ai.report.terminal import render_text
from cg4ai.routing.operate.failure_study import format_outcome
from cg4ai.routing.pages.report import format_speed, make_routing_story

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


def report(summary: dict[str, Any], *, verbose: bool = True) -> str:
    return render_text(make_routing_story(summary), verbose=verbose)


@pytest.mark.parametrize(("worst", "said"), [(1.19, True), (0.995, False)])
def test_overloads_of_plain_networks_are_told_where_there_are_some(
    worst: float, said: bool
) -> None:
    plain = {"plain_worst_utilisation": worst, "plain_worst_link": ["a", "b"]}
    text = report(SUMMARY | plain | {"plain_overloaded": 0.0014})
    told = "overload link a->b to 119 % of its capacity" in text
    assert told == ("at 14 of 10,000 validation vectors" in text) == said


@pytest.mark.parametrize(
    ("objective", "quantity"), [("mlu", "the mean MLU over"), ("cost", "the mean path cost")]
)
def test_the_distance_from_optimal_names_what_is_minimised(objective: str, quantity: str) -> None:
    text = report(SUMMARY | {"objective": objective, "distance": "about 0.1, estimated"})
    (line,) = [line for line in text.splitlines() if "Optimality gap" in line]
    assert quantity in line
    assert line.endswith("about 0.1, estimated.")


def test_what_a_shield_moves_towards_fits_the_set_which_may_be_no_box() -> None:
    assert "towards a constant split that fits the whole set)." in report(SUMMARY)


def test_a_demand_that_is_not_all_routed_is_no_guarantee() -> None:
    (found,) = make_routing_story(SUMMARY | {"unrouted": 0.67}).findings
    assert (found.kept, found.strength) == (False, Strength.VIOLATED)
    assert "67 % of a demand is not routed" in found.coverage


def test_routers_for_cost_are_compared_by_cost() -> None:
    costs = {"mean_cost_gap": 0.0089, "plain_mean_cost_gap": -0.0141}
    plain = {"plain_worst_utilisation": 1.6, "plain_worst_link": ["a", "b"]}
    text = report(SUMMARY | {"objective": "cost"} | costs | plain)
    assert "+0.89 %" in text
    assert "-1.41 %" in text
    assert "above the optimum" not in text


def test_a_batch_a_single_answer_and_a_program_stand_side_by_side() -> None:
    seconds = {"single_answer_s": 4.9e-4, "batch_answer_s": 3.3e-6, "program_answer_s": 1.9e-4}
    (line,) = format_speed(SUMMARY | seconds | {"timed": 1000})
    assert re.findall(r"[\d.]+ ms", line) == ["0.49 ms", "0.0033 ms", "0.19 ms"]
    assert "in a batch of 1,000" in line
    older = {"predict_1000_s": 0.0033, "highs_1000_s": 0.19, "speedup": 57.6}
    (line,) = format_speed(SUMMARY | older)
    assert "times" not in line
    assert "Single answers were not timed" in line
    assert format_speed(SUMMARY) == []


@pytest.mark.parametrize(
    ("acting", "said"),
    [
        (0.0, "none of 10,000 "),
        (1.0, "all 10,000 "),
        (0.0001, "1 of 10,000 (0.01 %)"),
        (0.9951, "9,951 of 10,000 (99.5 %)"),
        (0.9999, "9,999 of 10,000 (99.9 %)"),
    ],
)
def test_a_shield_is_told_by_what_it_moves_and_not_by_what_it_takes(
    acting: float, said: str
) -> None:
    """Its time was one run's of either, from -18 to 1953 %."""
    shield = {"acting": acting, "adversarial_acting": 0.5, "inputs": 4, "cost": -0.18}
    text = report(SUMMARY | {"shield": shield | {"worst": 0.99, "worst_unshielded": 1.2}})
    assert f"The shield acts on {said}" in text
    assert "2 of 4 (50 %)" in text
    assert "-18" not in text
    assert "prediction time" not in text


def test_the_optimum_is_said_to_be_of_these_paths() -> None:
    """The best routing over any paths was lower by a third."""
    found = {"vectors": 5, "mean_mlu_gap": 0.1, "max_mlu_gap": 0.3, "mean_optimal_mlu": 0.1}
    mixes = {"sparse": found | {"mean_ratio": 1.4, "max_ratio": 2.0}}
    proven: dict[str, Any] = {"ratio": 1.1, "ratio_whole": 1.2, "ratio_leaves": 2}
    proven |= {"ratio_proof": {"status": "proven", "note": ""}}
    lines = report(SUMMARY | {"mixes": mixes} | proven).splitlines()
    (first,) = (line for line in lines if "tiny has" in line)
    (ratio,) = (line for line in lines if "At every demand vector" in line)
    (table,) = (line for line in lines if "by mixes of" in line)
    assert all("over these paths" in line for line in (first, ratio, table))


def test_columns_of_failures_name_the_capacities_that_they_are_of() -> None:
    row = {"failure": "a-b", "outcome": "shielded", "capacity_factor": 0.5}
    row |= {"level": 0.4, "mean_mlu_gap": 0.1, "max_mlu_gap": 0.2, "worst_utilisation": 0.8}
    named = {name for name, value in format_outcome(row).items() if isinstance(value, float)}
    real = {name for name in named if "real" in name}
    assert len(named) == 5
    assert {name.endswith(" of capacity x 0.5") for name in named - real} == {True}
    (name,) = real
    assert format_outcome(row)[name] == 0.4


def test_what_was_left_out_and_scaled_is_in_the_first_lines() -> None:
    notes = ["of 132 demands the 2 largest are routed, 4% of the volume"]
    lines = report(SUMMARY | {"notes": notes, "scale": 1.0}).splitlines()
    assert lines[0] == "Of 132 demands the 2 largest are routed, 4% of the volume."
    assert "(load 0.99)" in lines[1]
    assert lines[2] == make_routing_story(SUMMARY).headline


@pytest.mark.parametrize(("count", "said"), [(1, "(a->b);"), (7, " and 2 more)")])
def test_links_that_resist_a_proof_are_counted(count: int, said: str) -> None:
    left = [{"link": ["a", "b"], "status": "unknown", "bound": 1.1}] * count
    proof = {"proof": {"resisting": left, "best_bound": 1.1}}
    text = report(SUMMARY | proof | {"strength": Strength.ATTACKED, "guarantee": "certified"})
    assert f"NOT PROVEN for {count} link" in text
    (found,) = make_routing_story(
        SUMMARY | {"strength": "attacked", "guarantee": "certified"}
    ).findings
    assert (found.kept, found.asked) == (True, "certified")
    assert said in text


@pytest.mark.parametrize(
    ("active", "constants", "first"),
    [
        (1, 0, "1 network in the mixture."),
        (3, 1, "2 networks and 1 constant split in the mixture."),
        (1, 1, "NO TRAINED MEMBER IS RETURNED, only 1 constant split"),
    ],
)
def test_a_result_says_what_was_returned(active: int, constants: int, first: str) -> None:
    counts = {"active_members": active, "active_constants": constants}
    lines = report(SUMMARY | counts, verbose=False).splitlines()
    assert first in (lines[-1] if active > constants else lines[0])


def test_distances_are_told_by_mixes_of_demands() -> None:
    found = {"vectors": 500, "mean_mlu_gap": 0.02, "max_mlu_gap": 0.3, "mean_optimal_mlu": 0.1}
    mixes = {"sparse": found | {"mean_ratio": 1.47, "max_ratio": 10.4}}
    (line,) = [
        line
        for line in report(SUMMARY | {"mixes": mixes}).splitlines()
        if line.lstrip().startswith("sparse")
    ]
    assert line.split()[-2:] == ["1.4700", "10.4000"]


def test_what_rounds_to_nothing_is_not_less_than_nothing() -> None:
    text = report(SUMMARY | {"mean_mlu_gap": -1e-17})
    assert "-0.0000" not in text
    text = report(SUMMARY | {"objective": "cost", "mean_cost_gap": -1e-9})
    assert "+0.00 %" in text
    row = {"failure": "a-b", "outcome": "shielded", "mean_mlu_gap": -2e-17, "max_mlu_gap": 0.01}
    assert (format_outcome(row)["mean gap"], format_outcome(row)["largest gap"]) == (0.0, 0.01)
