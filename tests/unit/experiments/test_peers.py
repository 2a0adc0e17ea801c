"""The problems of the peers against independent solvers, their layers, and the report."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, minimize

import experiments.peers.__main__ as command
from experiments.peers import boosters, layers, tables
from experiments.peers.__main__ import main
from experiments.peers.cells import Cell
from experiments.peers.cones import Cones, Ellipsoid
from experiments.peers.ellipsoid import convex_task
from experiments.peers.outcomes import Outcome, spread, table
from experiments.peers.piecewise import NAMES, piecewise
from experiments.peers.quadratic import generated, loaded
from experiments.peers.quadratic_peers import Dc3, HardNet, robust_rule
from experiments.peers.report import SECTIONS, saved, stored, write_report
from experiments.peers.studies import Asked
from experiments.peers.training import Recipe


def test_projections_agree_with_slsqp():
    rng = np.random.default_rng(0)
    root, centre = np.eye(3) + 0.2 * rng.normal(size=(3, 3)), np.array([0.1, 0.0, -0.1])
    linear, limits = rng.normal(size=(2, 3)), np.array([0.3, 0.4])
    tied, value = rng.normal(size=(1, 3)), np.array([0.1])
    aim = np.array([1.0, -2.0, 1.5])
    found = Cones(tied, linear, Ellipsoid(root, centre, 1.0)).minimise(
        np.eye(3), -aim, value, limits
    )
    answer = minimize(
        lambda y: 0.5 * np.square(y - aim).sum(),
        np.zeros(3),
        constraints=[
            {"type": "ineq", "fun": lambda y: limits - linear @ y},
            {"type": "ineq", "fun": lambda y: 1 - np.square(root @ (y - centre)).sum()},
            {"type": "eq", "fun": lambda y: tied @ y - value},
        ],
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    assert np.allclose(found, answer.x, atol=1e-5)


@pytest.fixture(scope="module")
def problem():
    return generated(3, convex=True, tests=3)


def test_the_affine_rule_keeps_every_rule_at_the_worst_corner(problem):
    slope, offset = robust_rule(problem)
    assert np.allclose(problem.equality @ slope, np.eye(50), atol=1e-8)
    assert np.allclose(problem.equality @ offset, 0, atol=1e-8)
    values = problem.inequality @ slope
    for row in range(0, 50, 10):  # the largest value over the box, by linear programming
        worst = -linprog(-values[row], bounds=[(-1, 1)] * 50).fun
        reached = worst + problem.inequality[row] @ offset
        assert reached <= problem.limit[row] + 1e-6


def test_no_feasible_output_is_better_than_the_optimum(problem):
    slope, offset = robust_rule(problem)
    outputs = torch.as_tensor(problem.inputs @ slope.T + offset)
    above = problem.above(outputs)
    assert above.min() >= -1e-6
    assert above.max() < 5


@pytest.mark.parametrize("kind", [Dc3, HardNet])
def test_layers_keep_equalities_and_hardnet_all_rules(problem, kind):
    torch.manual_seed(0)
    layer = kind(problem).double()
    points = problem.searched(0, count=200)
    with torch.no_grad():
        broken = problem.violation(layer(torch.as_tensor(points)), points)
    assert broken["equality"] < 1e-10
    assert kind is Dc3 or broken["inequality"] < 1e-10


def test_networks_behind_our_layers_keep_the_rules_of_the_tasks(problem):
    torch.manual_seed(0)
    points = problem.searched(0, count=200)
    module = layers.shielded(problem).double()
    with torch.no_grad():
        broken = problem.violation(module(torch.as_tensor(points)), points)
    assert broken["inequality"] == 0
    assert broken["equality"] < 1e-11
    for equality in (False, True):
        task = convex_task(0, equality=equality)
        module = layers.behind_layers(task).double()
        with torch.no_grad():
            found = module(torch.as_tensor(task.searched(0)[:500]))
        broken = task.violation(found.numpy())
        assert broken["inequality"] == 0
        assert broken["equality"] < 1e-12
    band = piecewise("inner")
    outcome = layers.piecewise(band, Recipe(steps=2), layers.LAYER, 0)
    assert outcome.kept
    assert outcome.figures["inequality"] == outcome.figures["inequality_single"] == 0


def test_labels_of_the_convex_task_keep_its_rules_and_data_are_refused_if_missing(tmp_path):
    task = convex_task(0, equality=True)
    broken = task.violation(task.labels)
    assert broken["inequality"] < 1e-6
    assert broken["equality"] < 1e-7
    with pytest.raises(ValueError, match="leave --data out"):
        loaded(tmp_path, convex=True)


@pytest.mark.parametrize("name", NAMES)
def test_targets_lie_between_the_bounds_and_are_labelled_so(name):
    task = piecewise(name)
    assert task.violation(task.grid, task.target(task.grid)) == 0
    assert np.array_equal(task.labels, task.target(task.inputs))
    low, high = task.bounds(task.grid)
    assert (low <= high).all()
    assert task.violation(task.grid, high + 0.25) == pytest.approx(0.25)


def test_tables_show_means_worst_seeds_and_what_is_missing():
    assert spread([1.0, 3.0]) == "2 (3)"
    assert spread([0.5, 0.5]) == "0.5"
    assert spread([]) == "-"
    assert spread([0.91234, 0.5], higher=True) == "0.7062 (0.5)"
    assert spread([12659.0]) == "12,659"
    found = table(
        [
            Outcome("a", "ours", 0, {"mse": 1.0}),
            Outcome("a", "ours", 1, {"mse": 3.0}),
            Outcome("a", "RAYEN", 0, note="not installed"),
            Outcome("b", "ours", 0, {"mse": 9.0}),
        ],
        "a",
        {"mse": "MSE"},
        ["ours", "DC3"],
    )
    assert "| DC3 | - | - | not run |" in found
    assert "| ours | 2 | 2 (3) |" in found
    assert "not installed" in found
    assert "9" not in found


def test_only_ours_must_keep_rules():
    assert Outcome("a", "DC3", 0, {"inequality": 1.0}).kept
    assert not Outcome("a", "ours", 0, {"inequality": 1e-3}).kept
    assert not Outcome("a", "ours", 0, {"equality": 1e-3}).kept
    assert not Outcome("a", "ours", 0, {"falling": 1.0}).kept


def test_reports_join_what_was_measured_at_different_times(tmp_path):
    task = next(iter(SECTIONS["rayen"].tasks))
    saved(tmp_path, "rayen", [Outcome(task, "RAYEN", 0, {"mse": 0.5})], quick=False)
    saved(tmp_path, "rayen", [Outcome(task, "ours", 0, {"mse": 0.25})], quick=False)
    assert {one.method for one in stored(tmp_path / "rayen.json")} == {"RAYEN", "ours"}
    write_report(tmp_path / "report.md", tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "RAYEN" in text
    assert "0.25" in text
    assert SECTIONS["qp"].title not in text


def test_unknown_studies_are_refused(tmp_path, capsys):
    assert main(["hardnets", "--out", str(tmp_path)]) == 2
    assert "did you mean 'hardnet'" in capsys.readouterr().err


def test_pairs_move_only_features_that_raise_the_target_and_boosters_keep_them():
    split = tables.scores(0, rows=300).splits[0]
    signs = {0: 1, 2: -1}
    before, after = tables.pairs(split, signs, 2000, seed=0)
    moved = after - before
    assert (moved[:, 0] >= 0).all()
    assert (moved[:, 2] <= 0).all()
    assert (np.abs(moved[:, [0, 2]]).max(1) > 0).all()
    assert not np.delete(moved, [0, 2], axis=1).any()
    choice = boosters.Choice(0.1, "small", 25)
    model = boosters.fitted(
        "HGB", split.inputs, split.targets, boosters.Asked(signs=signs), choice, seed=0
    )
    assert (model.predict(after) >= model.predict(before) - 1e-9).all()


def test_the_latent_score_moves_as_the_rules_say():
    task = tables.scores(0, rows=300)
    before, after = tables.pairs(task.splits[0], task.signs, 5000, seed=0)
    assert (tables.latent(after) >= tables.latent(before) - 1e-12).all()


def test_settings_are_chosen_by_rows_that_were_not_fitted():
    random = np.random.default_rng(0)
    inputs = random.normal(size=(120, 2))
    noise = random.normal(size=120)  # nothing can be learnt: the fewest, smallest steps are best
    found = boosters.chosen("HGB", inputs, noise, [boosters.Asked()], boosters.squared, seed=0)
    assert found.rate == min(boosters.RATES)
    assert found.count == min(boosters.COUNTS)


def _counted(task: str, method: str, seed: int) -> Outcome:
    return Outcome(task, method, seed, {"score": float(seed)})


def test_cells_that_are_known_are_not_measured_again(tmp_path):
    cells = [Cell("iris", "ours", seed, partial(_counted, "iris", "ours", seed)) for seed in (0, 1)]
    told: list[Outcome] = []
    known = [Outcome("iris", "ours", 0, {"score": 7.0})]
    asked = Asked(range(2), False, "", None, lambda text: None, told.append, 1, known)
    found = asked.measure(cells)
    assert [one.seed for one in told] == [1]
    assert sorted(one.figures["score"] for one in found) == [1.0, 7.0]
    saved(tmp_path, "plain", known, quick=False)
    saved(tmp_path, "plain", told, quick=False)
    assert len(stored(tmp_path / "plain.json")) == 2
    write_report(tmp_path / "report.md", tmp_path)
    assert "4 (1)" in (tmp_path / "report.md").read_text()


def test_figures_carry_the_commit_at_which_their_run_began(tmp_path, monkeypatch):
    commits = iter(["begun", "committed meanwhile"])
    monkeypatch.setattr(command, "commit", lambda: next(commits))
    one = partial(_counted, "iris", "ours", 0)
    monkeypatch.setitem(
        command.STUDIES, "plain", lambda asked: asked.measure([Cell("iris", "ours", 0, one)])
    )
    assert main(["plain", "--out", str(tmp_path)]) == 0
    assert [found.commit for found in stored(tmp_path / "plain.json")] == ["begun"]
