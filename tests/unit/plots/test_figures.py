"""Figures against the numbers that they are drawn from: heights, places, widths and colours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from cg4ai.ensemble.slack import Slack
from cg4ai.errors import InvalidInput
from cg4ai.plots import (
    plot_calibration,
    plot_confusion,
    plot_convergence,
    plot_found,
    plot_histogram,
    plot_network,
    plot_over_time,
    plot_predictions,
    plot_ranges,
    plot_slack,
    plot_time,
    plot_utilisation,
    plot_weights,
)
from cg4ai.plots.drawing import BAD, FIRST, LOAD_COLOURS, LOADS, OVERLOADED
from cg4ai.plots.models import compute_reliability
from cg4ai.plots.networks import link_style
from cg4ai.plots.training import has_violation
from cg4ai.routing import instance
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from raising import raises

HISTORY: list[dict[str, Any]] = [
    {"iteration": 0, "objective": 9.0, "slack": 0.5, "columns": 2, "rows": 4, "note": ""},
    {"iteration": 1, "objective": 3.0, "slack": 1e-9, "columns": 5, "rows": 4, "bound": 1.0},
    {"iteration": 2, "objective": 2.0, "slack": 0.0, "columns": 6, "rows": 9, "bound": 1.5},
]


@pytest.fixture
def ax() -> Any:
    return Figure().subplots()


def line(ax: Any, label: str) -> list[list[float]]:
    (found,) = [one for one in ax.lines if one.get_label() == label]
    return [list(map(float, values)) for values in found.get_data()]


# ---- training -----------------------------------------------------------------------------------


def test_objective_and_bound_by_iterations(ax: Any) -> None:
    assert plot_convergence(HISTORY, ax=ax) is ax
    assert line(ax, "objective") == [[0, 1, 2], [9, 3, 2]]
    assert line(ax, "proven bound") == [[1, 2], [1, 1.5]]


def test_objectives_far_apart_are_drawn_by_decades_and_none_is_left_out(ax: Any) -> None:
    far = [{**one, "objective": 10.0 ** -one["iteration"]} for one in HISTORY]
    plot_convergence([*far, {"iteration": 3, "objective": None}], ax=ax)
    assert ax.get_yscale() == "linear"
    further = [*far, {"iteration": 3, "objective": 1e-3}]
    plot_convergence(further, ax=ax)
    assert ax.get_yscale() == "log"


def test_what_lacks_nothing_is_not_drawn(ax: Any) -> None:
    violated = [{**one, "worst_violation": -0.1} for one in HISTORY]
    plot_convergence(violated, "slack", ax=ax)
    assert [one.get_label() for one in ax.lines] == ["lacking in the master"]
    assert has_violation(violated)
    assert not has_violation(violated, tolerance=0.6)
    assert not has_violation(violated[2:])


def test_slack_that_counts_as_met_is_said_and_not_drawn(ax: Any) -> None:
    plot_convergence(HISTORY[1:], "slack", tolerance=1e-6, ax=ax)
    assert not ax.lines
    assert "every row was met" in ax.texts[0].get_text()


def test_columns_are_whole_numbers_from_zero(ax: Any) -> None:
    plot_convergence(HISTORY, "columns", ax=ax)
    assert ax.lines[0].get_ydata().tolist() == [2, 5, 6]
    assert ax.get_ylim()[0] == 0


def test_a_history_comes_from_a_run_folder_too(tmp_path: Path, ax: Any) -> None:
    with Run.create(tmp_path / "run", "route", {}):
        files.append_lines(tmp_path / "run" / "history.jsonl", HISTORY)
    plot_convergence(tmp_path / "run", ax=ax)
    assert line(ax, "objective")[1] == [9, 3, 2]


@pytest.mark.parametrize("source", [3, ["text"], object()])
def test_other_things_have_no_history(source: object, ax: Any) -> None:
    with raises(InvalidInput, "type"):
        plot_convergence(source, ax=ax)


def test_other_quantities_are_refused(ax: Any) -> None:
    with raises(InvalidInput, "unknown-name"):
        plot_convergence(HISTORY, "loss", ax=ax)  # type: ignore[arg-type]


def test_seconds_are_as_long_as_their_bars(ax: Any) -> None:
    plot_time({"pricing_s": 3.0, "master_s": 0.01, "evaluation_s": 1.5, "note": "x"}, ax=ax)
    assert [bar.get_width() for bar in ax.patches] == [1.5, 0.01, 3.0]
    assert [text.get_text() for text in ax.texts] == ["1.5 s", "<0.1 s", "3.0 s"]


def ensemble_file(folder: Path, weights: list[list[float]], blocks: list[list[int]]) -> Path:
    kinds = [
        {"kind": "shielded", "config": {"inner": {"kind": "network", "config": {}}}},
        {"kind": "constant", "config": {}},
    ]
    record = {"members": kinds[: len(weights)], "weights": weights, "blocks": blocks}
    files.write_json(folder / "ensemble.json", record)
    return folder


def test_weights_of_one_block_are_bars_largest_first(tmp_path: Path, ax: Any) -> None:
    plot_weights(ensemble_file(tmp_path, [[0.2, 0.0], [0.8]], [[0, 0], [0]]), ax=ax)
    assert [bar.get_height() for bar in ax.patches if bar.get_width()] == [0.8, 0.2]
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["constant", "shielded network"]


def test_weights_of_blocks_stand_beside_each_other(tmp_path: Path, ax: Any) -> None:
    folder = ensemble_file(tmp_path, [[0.3, 1.0, 0.7]], [[0, 1, 0]])
    plot_weights(folder, names=["a", "b"], ax=ax)
    bars = [(bar.get_y() + 0.4, bar.get_x(), bar.get_width()) for bar in ax.patches]
    np.testing.assert_allclose(bars, [(0, 0, 0.7), (0, 0.7, 0.3), (1, 0, 1.0)], atol=1e-12)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]


def test_of_very_many_members_the_largest_are_shown(tmp_path: Path, ax: Any) -> None:
    weights = [*np.full(150, 0.006), *np.full(50, 0.002)]
    plot_weights(ensemble_file(tmp_path, [weights], [[0] * 200]), ax=ax)
    assert sum(bar.get_height() for bar in ax.patches) == pytest.approx(0.9)
    assert ax.get_title() == "the 150 largest of 200"


# ---- distributions ------------------------------------------------------------------------------


def test_bars_count_what_is_there_and_share_their_bins(ax: Any) -> None:
    first = np.concatenate([np.zeros(30), [1.0], [np.nan]])
    plot_histogram({"one": first, "two": [0.5, 1.0]}, limit=2.0, ax=ax)
    heights = [patch.get_path().vertices[:, 1] for patch in ax.patches]
    assert [float(one.max()) for one in heights] == [30.0, 1.0]
    (limit,) = ax.lines
    assert limit.get_xdata() == [2.0, 2.0]


def counted_above(ax: Any, limit: float) -> list[float]:
    """Of each series what its bars show that end above the limit."""
    outlines = [patch.get_path().vertices for patch in ax.patches]
    return [float(one[one[:, 0] > limit + 1e-12, 1].max(initial=0.0)) for one in outlines]


@pytest.mark.parametrize("rounding", [0.0, 2e-16, 5e-7])
def test_what_reaches_a_limit_stands_on_its_left(ax: Any, rounding: float) -> None:
    """A bar on both sides of the line looked like overloads of a router that has none."""
    kept = np.concatenate([np.linspace(0.9, 1.0, 50), np.full(20, 1 + rounding)])
    plot_histogram({"kept": kept, "plain": [0.93, 1.0031, 1.02]}, limit=1.0, ax=ax)
    assert counted_above(ax, 1.0) == [0.0, 1.0]
    assert any(abs(x - 1.0) < 1e-12 for x in ax.patches[0].get_path().vertices[:, 0])


def test_single_values_are_seen_beside_many(ax: Any) -> None:
    plot_histogram([0.0, 0.0, 1.0], rare=True, ax=ax)
    assert ax.get_yscale() == "linear"
    plot_histogram([*np.zeros(900), 1.0], rare=True, ax=ax)
    assert ax.get_yscale() == "log"


def test_equal_values_have_a_bar(ax: Any) -> None:
    plot_histogram([0.0, 0.0], ax=ax)
    assert ax.patches[0].get_path().vertices[:, 1].max() == 2


def test_nothing_to_count_is_refused(ax: Any) -> None:
    with raises(InvalidInput, "not-finite"):
        plot_histogram([np.nan], ax=ax)


def test_ranges_are_percentiles(ax: Any) -> None:
    values = np.random.default_rng(0).normal(5, 1, (400, 2))
    plot_ranges(values, ["a$b$c", "d"], worst=[9.0, 8.0], ax=ax)
    whole = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches]
    assert whole[0] == pytest.approx((values[:, 0].min(), values[:, 0].max()))
    assert whole[2] == pytest.approx(np.percentile(values[:, 0], [5, 95]))
    assert line(ax, "worst found") == [[9.0, 8.0], [0.0, 1.0]]
    assert ax.get_yticklabels()[0].get_text() == "a$b$c"
    assert not ax.get_yticklabels()[0].get_parse_math()


# ---- rules --------------------------------------------------------------------------------------


def test_missed_rows_lie_left_of_the_bound_in_red(ax: Any) -> None:
    plot_slack([Slack("rule", np.array([-1.0, 0.5, 0.5, 2.0]))], ax=ax)
    bars = {
        (bar.get_x(), bar.get_x() + bar.get_width()): to_hex(bar.get_facecolor())
        for bar in ax.patches
        if bar.get_height()
    }
    assert [colour for (_, end), colour in bars.items() if end <= 1e-9] == [BAD]
    assert {colour for (start, _), colour in bars.items() if start >= -1e-9} == {FIRST}
    assert "25.0% missed" in ax.get_title(loc="left")
    most = max(ax.patches, key=lambda bar: bar.get_height())
    assert most.get_x() <= 0.5 <= most.get_x() + most.get_width()


def test_what_rounding_leaves_is_not_missed(ax: Any) -> None:
    plot_slack([Slack("rule", np.array([-1e-9, 1.0]))], ax=ax)
    assert "missed" not in ax.get_title(loc="left")
    assert {to_hex(bar.get_facecolor()) for bar in ax.patches if bar.get_height()} == {FIRST}


def test_several_rules_have_a_row_each_in_shares_of_their_own(ax: Any) -> None:
    slacks = [Slack("wide $1$", np.array([0.0, 1000.0])), Slack("built", np.zeros(0))]
    plot_slack([*slacks, Slack("narrow", np.array([0.001]))], ax=ax)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["narrow\nleast 0.001", "built", "wide $1$\nleast 0"]
    assert max(bar.get_x() + bar.get_width() for bar in ax.patches) == pytest.approx(1.0)


def test_the_least_that_a_search_found_is_marked(ax: Any) -> None:
    plot_slack([Slack("rule", np.array([0.5, 2.0]), found=0.1)], ax=ax)
    assert [list(one.get_xdata()) for one in ax.lines if one.get_marker() == "D"] == [[0.1]]
    assert "least 0.1" in ax.get_title(loc="left")


def test_slack_needs_rules_or_what_was_computed_of_them(ax: Any) -> None:
    for source in ([], [3.0], 4):
        with raises(InvalidInput, "type"):
            plot_slack(source, ax=ax)


# ---- models -------------------------------------------------------------------------------------


class Told:
    """A classifier that says what it was given."""

    classes_ = np.array(["no", "yes"])

    def predict_proba(self, X: Any) -> Any:
        return np.column_stack([1 - X, X])


def test_calibration_is_the_share_that_came_true(ax: Any) -> None:
    stated = np.array([0.12, 0.18, 0.12, 0.9, 0.95])
    y = np.array(["no", "yes", "no", "yes", "yes"])
    plot_calibration(Told(), stated, y, bins=5, ax=ax)
    places = ax.collections[0].get_offsets().tolist()
    assert places[0] == pytest.approx([0.14, 1 / 3])
    assert places[1] == pytest.approx([0.925, 1.0])
    few, many = sorted(ax.collections[0].get_sizes())
    assert few < many


def test_of_several_classes_the_answer_counts() -> None:
    found = compute_reliability([[0.5, 0.2, 0.3], [0.1, 0.6, 0.3]], [0, 2], bins=2)
    assert found.predicted == pytest.approx([0.55])
    assert found.observed == pytest.approx([0.5])
    assert found.counts.tolist() == [2]


def test_labels_that_are_no_classes_are_refused(ax: Any) -> None:
    with raises(InvalidInput, "unknown-name"):
        plot_calibration(Told(), np.array([0.5]), np.array(["maybe"]), ax=ax)
    with raises(InvalidInput, "shape"):
        compute_reliability(np.zeros((2, 1)), [0, 0])


def test_confusion_counts_each_pair(ax: Any) -> None:
    plot_confusion([0, 0, 1, 1], [0, 1, 1, 1], names=["a", "<b>"], ax=ax)
    counts = {text.get_position(): text.get_text() for text in ax.texts}
    assert counts == {(0, 0): "1", (1, 0): "1", (1, 1): "2"}
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "<b>"]


def test_predictions_stand_over_actual_values(ax: Any) -> None:
    plot_predictions([1.0, 2.0], [1.5, 1.0], name="price", ax=ax)
    assert sorted(ax.collections[0].get_offsets().tolist()) == [[1.0, 1.5], [2.0, 1.0]]
    with raises(InvalidInput, "shape"):
        plot_predictions([1.0], [1.0, 2.0], ax=ax)


# ---- networks -----------------------------------------------------------------------------------


def test_fuller_links_are_wider_and_of_a_higher_class() -> None:
    loads = np.linspace(0, 1, 50)
    styles = [link_style(float(load)) for load in loads]
    widths = [style["linewidth"] for style in styles]
    assert widths == sorted(widths)
    assert len(set(widths)) == len(widths)
    steps = [LOAD_COLOURS.index(style["color"]) for style in styles]
    assert steps == sorted(steps)
    assert set(steps) == set(range(len(LOADS)))
    over = link_style(1.01)
    assert over["color"] == OVERLOADED
    assert over["linewidth"] > widths[-1]
    assert link_style(1 + 1e-9) == link_style(1.0)


def test_a_network_is_drawn_where_its_nodes_are(ax: Any) -> None:
    made = instance("abilene")
    loads = np.linspace(0, 1, len(made.arcs))
    plot_network(made, loads, ax=ax)
    drawn = ax.lines[: len(made.arcs)]
    assert [one.get_linewidth() for one in drawn] == sorted(one.get_linewidth() for one in drawn)
    named = {text.get_text(): text.xy for text in ax.texts}
    assert named.keys() == {node for arc in made.arcs for node in arc} < made.positions.keys()
    west = sorted(named, key=lambda name: named[name][0])
    assert west == sorted(named, key=lambda name: made.positions[name][0])
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["to 10%", "to 25%", "to 50%", "to 75%", "to 90%", "to 100%"]


def test_directions_of_a_link_lie_beside_each_other(ax: Any) -> None:
    made = instance("abilene")
    plot_network(made, np.zeros(len(made.arcs)), ax=ax)
    ends = dict(zip(made.arcs, (one.get_xydata() for one in ax.lines), strict=False))
    there, back = ends["DNVRng", "KSCYng"], ends["KSCYng", "DNVRng"]
    across = there[0] - back[1]
    along = there[1] - there[0]
    assert np.dot(across, along) == pytest.approx(0, abs=1e-9)
    assert np.linalg.norm(across) > 0


def test_without_positions_the_same_layout_comes_again() -> None:
    made = replace(instance("abilene"), positions=None)
    places = [
        np.array(plot_network(made, ax=Figure().subplots()).collections[0].get_offsets())
        for _ in range(2)
    ]
    np.testing.assert_array_equal(places[0], places[1])
    assert len(places[0]) == len({node for arc in made.arcs for node in arc})


def test_utilisation_of_other_links_is_refused(ax: Any) -> None:
    with raises(InvalidInput, "shape"):
        plot_network(instance("abilene"), [1.0], ax=ax)
    with raises(InvalidInput, "shape"):
        plot_utilisation(np.zeros((3, 2)), ["a"], ax=ax)
    with raises(InvalidInput, "shape"):
        plot_utilisation(np.zeros((3, 2)), ["a", "b"], worst=[1.0], ax=ax)


def test_the_fullest_links_come_first(ax: Any) -> None:
    loads = np.array([[0.1, 0.5, 0.3], [0.2, 0.6, 0.9]])
    plot_utilisation(loads, ["a", "b", "c"], worst=[0.4, 1.0, 0.95], shown=2, ax=ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["b", "c"]
    assert line(ax, "worst found")[0] == [1.0, 0.95]


def test_overloads_are_marked_by_who_had_them(ax: Any) -> None:
    plot_found([0, 0, 2], [1.2, 1.1, 1.05], training=[False, True, True], ax=ax)
    assert line(ax, "of the mixture")[1] == [1.2]
    assert sorted(line(ax, "of networks in training")[1]) == [1.05, 1.1]
    assert line(ax, "capacity")[1] == [1.0, 1.0]


def test_far_overloads_leave_the_others_apart(ax: Any) -> None:
    plot_found([0, 0], [1.01, 40.0], ax=ax)
    assert ax.get_yscale() == "log"
    assert ax.get_xlim()[0] < -0.12 < 0 < ax.get_xlim()[1]


def test_no_peak_is_lost_over_time(ax: Any) -> None:
    """A day of a hundred thousand values is thinned to their largest, never to an average."""
    values = np.full(100_000, 0.3)
    values[12_345] = 0.9
    outside = np.zeros(100_000, bool)
    outside[[7, 99_999]] = True
    plot_over_time({"router": values, "optimum": values / 2}, outside=outside, ax=ax)
    at, shown = line(ax, "router")
    assert len(shown) <= 401
    assert max(shown) == 0.9
    assert abs(at[int(np.argmax(shown))] - 12_345) <= 250
    assert max(line(ax, "optimum")[1]) == 0.45
    assert line(ax, "outside the set")[0] == [7, 99_999]


def test_times_name_the_ends_of_the_axis(ax: Any) -> None:
    plot_over_time({"router": [1.0, 2.0, 3.0, 4.0]}, ["mon", "tue", "wed", "thu"], ax=ax)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["mon", "tue", "thu"]
    with raises(InvalidInput, "shape"):
        plot_over_time({"router": [1.0, 2.0]}, ["mon"], ax=ax)
    with raises(InvalidInput, "shape"):
        plot_over_time({"router": [1.0, 2.0], "optimum": [1.0]}, ax=ax)


def test_a_legend_stays_within_its_figure() -> None:
    """Beside long names of links the legend ran out of the picture."""
    from cg4ai.plots.drawing import figure_of, use_page_style

    links = [f"Urbana-Champaign->Salt-Lake-City {number}" for number in range(3)]
    with use_page_style():
        figure = figure_of(
            lambda one: plot_utilisation(np.ones((4, 3)), links, worst=[1] * 3, ax=one)
        )
        figure.draw_without_rendering()
        box = figure.axes[0].get_legend().get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width
