"""The paper's figures, the method as published, and the tables of all configurations."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cg4ai.apps.folders import open_run
from cg4ai.colgen.loop import solve
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.errors import InvalidInput, InvalidSettings, SolverFailure
from cg4ai.protocols import PricingRequest
from cg4ai.records import Duals, StopReason
from cg4ai.report.tables import csv_text
from cg4ai.routing import CONFIGURATIONS, instance
from cg4ai.routing.app import Routing
from cg4ai.routing.settings import RouteSettings
from cg4ai.routing.train.members import SplitNetwork
from cg4ai.rules.rows import RowSet
from cg4ai.runs.folder import Run
from experiments.routing import reproduce
from experiments.routing.__main__ import main
from experiments.routing.paper import PAPER
from experiments.routing.paper_mode import (
    OneDemandPricer,
    PaperSettings,
    paper_problem,
    paper_settings,
)
from experiments.routing.reproduce import Plan
from raising import raises

SUMMARY = {
    "iterations": 3,
    "columns": 15,
    "rows": 80,
    "pricing_s": 10.0,
    "separation_s": 2.0,
    "total_s": 13.0,
    "mean_optimal_mlu": 0.6,
    "active_members": 9,
    "split_loss": 0.5,
    "p999_mlu_gap": 0.05,
    "max_mlu_gap": 0.1,
    "mean_mlu_gap": 0.01,
    "worst_utilisation": 0.999,
    "strength": "attacked",
    "plain_worst_utilisation": 1.02,
    "plain_mean_mlu_gap": 0.02,
    "evaluation_s": 5.0,
    "batch_speedup": 100.0,
    "stop_reason": "stalled",
}


def test_the_paper_has_every_configuration() -> None:
    assert tuple(PAPER) == CONFIGURATIONS
    assert PAPER["di-yuan", 10, 3].iterations == 999
    assert PAPER["nobel-us", 5, 3].max_difference == 0.05
    assert math.isnan(PAPER["france", 5, 5].validation_loss)
    # pricing and separation are most of the total in every row
    for row in PAPER.values():
        assert row.column_time + row.row_time == pytest.approx(row.total_time, rel=2e-3)


def test_names_stand_for_configurations() -> None:
    usual = {"seed": 4}
    one = reproduce.wanted("nobel-germany-15-3", usual)
    assert (one.network, one.demands, one.paths, one.objective) == ("nobel-germany", 15, 3, "mlu")
    assert one.seed == 4
    ablation = reproduce.wanted(reproduce.ABLATION, usual)
    assert (ablation.network, ablation.paths, ablation.objective) == ("ta1", 2, "cost")
    beside = reproduce.wanted(reproduce.BESIDE, usual)
    assert (beside.network, beside.paths, beside.objective) == ("ta1", 2, "mlu")
    published = reproduce.wanted(reproduce.ABLATION, usual, "paper")
    assert (published.objective, published.hidden) == ("cost", (256,))
    assert len(reproduce.chosen(())) == 43
    with raises(InvalidInput, "invalid-input", "abilene-5-3"):
        reproduce.chosen(("abilene-5-33",))


def test_table_has_the_papers_columns_and_ours() -> None:
    other = SUMMARY | {"worst_utilisation": 1.01, "total_s": 7.0, "mean_mlu_gap": 0.03}
    table = {"abilene-5-3": SUMMARY, "polska-5-3": other}
    totals = reproduce.totals(table)
    assert (totals["configurations"], totals["feasible"], totals["plain_feasible"]) == (2, 1, 0)
    assert totals["total_s"] == 20.0
    assert totals["mean_of_mean_gaps"] == pytest.approx(0.02)
    assert totals["paper_total_s"] == pytest.approx(1160.41 + 61212.43)
    report = reproduce.markdown_report(reproduce.Results(table))
    assert "3 / 211" in report
    assert "Ours / the paper's." in report
    # rows were not counted apart in these runs: all rows are shown, and that is said
    assert "80 / 128" in report
    assert "not counted: abilene-5-3, polska-5-3" in report
    assert "#iter | #cols | #rows | col_time | row_time | tot_time | opt_mlu | #mod" in report


def test_the_ablation_alone_has_no_tables_of_nothing() -> None:
    ablation = SUMMARY | {"mean_cost_gap": 0.031}
    report = reproduce.markdown_report(reproduce.Results({reproduce.ABLATION: ablation}))
    assert "mean cost gap 3.10 % (the paper: 11.20 %)" in report
    assert "|" not in report


def test_tables_are_written_for_what_is_there(tmp_path: Path) -> None:
    reproduce.write_tables(tmp_path, reproduce.Results({"polska-5-3": SUMMARY}))
    rows = list(csv.DictReader(io.StringIO((tmp_path / "table.csv").read_text())))
    assert len(rows) == 1
    assert (rows[0]["#iter"], rows[0]["paper #iter"]) == ("3", "211")
    assert float(rows[0]["worst utilisation"]) == 0.999
    assert csv_text([]) == ""


def test_rows_found_by_search_stand_beside_the_papers() -> None:
    counted = SUMMARY | {"found_rows": 7, "capacity_rows": 60}
    found = reproduce.Results({"polska-5-3": counted}, "paper")
    report = reproduce.markdown_report(found)
    assert "7 / 128" in report
    assert "not counted" not in report
    assert "As published, run here / the paper's figures." in report


def test_the_published_method_may_train_ten_times_as_long_as_ours(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ended(ours / "polska-5-3", "ours", SUMMARY)
    plan = Plan(tmp_path / "published", mode="paper", ours=ours)
    assert plan.wanted("polska-5-3").training_limit_s == pytest.approx(130.0)
    with raises(InvalidInput, "invalid-input"):
        plan.wanted("abilene-5-3")
    told = replace(plan, usual={"training_limit_s": 7.0})
    assert told.wanted("abilene-5-3").training_limit_s == 7.0
    with raises(InvalidInput, "invalid-input", "--mode"):
        replace(plan, mode="ours")
    ended(plan.out / "polska-5-3", "paper", SUMMARY | {"iterations": 9})
    report = reproduce.markdown_report(plan.results())
    assert "9 / 3 / 211" in report
    assert "|  |" not in report


def test_the_published_ablation_learns_splits_of_least_cost() -> None:
    made = instance("abilene", 5, 3)
    asked = PaperSettings(network="abilene", labels=20, objective="cost")
    objective = paper_problem(made, asked).objective
    vectors, splits = objective.inputs, np.asarray(objective.targets)
    flow = splits * vectors[:, np.repeat(np.arange(5), [len(block) for block in made.blocks])]
    best = made.find_optimal(vectors, objective="cost").cost
    np.testing.assert_allclose(flow @ made.path_length, best, rtol=1e-6)


def test_time_that_is_over_leaves_the_rest_for_later(tmp_path: Path) -> None:
    plan = Plan(tmp_path, until=0.0)
    outcome = reproduce.reproduce(["abilene-5-3"], plan, say=lambda text: None)
    assert outcome.interrupted
    assert not outcome.done
    assert not outcome.failed


def test_what_the_paper_leaves_open_is_no_nan(tmp_path: Path) -> None:
    found = reproduce.Results({"france-5-5": SUMMARY}, missing=("polska-5-3",))
    report = reproduce.markdown_report(found)
    assert "0.5 / -" in report
    assert "nan" not in report
    assert "- / 211" in report
    assert "No result: polska-5-3." in report
    reproduce.write_tables(tmp_path, found)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "table.csv").read_text())))
    assert [row["stopped"] for row in rows] == ["stalled", "no result"]
    assert rows[0]["paper max_diff"] == ""


def ended(folder: Path, mode: str, summary: dict[str, object] | None) -> None:
    described = {} if mode == "ours" else {"mode": mode}
    with Run.create(folder, "route", {"description": described}) as run:
        if summary is not None:
            run.finish(summary)


def test_tables_hold_all_that_has_ended_in_this_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended(tmp_path / "abilene-5-3", "ours", SUMMARY)
    ended(tmp_path / "polska-5-3", "ours", None)
    ended(tmp_path / "geant-5-3", "paper", SUMMARY)
    command = ["--out", str(tmp_path), "--report-only"]
    assert main(command) == 3  # polska has no result
    shown = capsys.readouterr()
    assert "No result: polska-5-3" in shown.err
    assert "Not drawn: slack: it is of nobel-us-5-3, which has not ended here" in shown.out
    report = (tmp_path / "table.md").read_text()
    assert "| abilene | 5 | 3 | yes |" in report
    assert "| polska | 5 | 3 | no result |" in report
    assert "geant" not in report
    assert main([*command, "--mode", "paper"]) == 0
    assert main([*command, "abilene-5-3"]) == 2
    assert main([*command[:3], str(tmp_path / "nowhere"), "--report-only"]) == 2


def test_one_that_fails_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(app: Routing, settings: RouteSettings, *, out: Path, **how: bool) -> SimpleNamespace:
        if settings.network == "abilene":
            raise SolverFailure("the run ended before every block had a member")
        ended(out, "ours", SUMMARY)
        return SimpleNamespace(summary=SUMMARY, evaluation=SUMMARY)

    monkeypatch.setattr(reproduce, "perform", train)
    said: list[str] = []
    names = ["abilene-5-3", "polska-5-3"]
    outcome = reproduce.reproduce(names, Plan(tmp_path), say=said.append)
    assert list(outcome.done) == ["polska-5-3"]
    assert "every block" in outcome.failed["abilene-5-3"]
    assert said[0].startswith("[1/2] abilene-5-3: no result: the run ended")
    report = (tmp_path / "table.md").read_text()
    assert "| abilene | 5 | 3 | no result |" in report
    assert "| polska | 5 | 3 | yes |" in report
    # what an earlier call has ended stays in the tables of the next
    reproduce.reproduce(["geant-5-3"], Plan(tmp_path), say=said.append)
    assert "| polska | 5 | 3 | yes |" in (tmp_path / "table.md").read_text()


def test_a_folder_of_another_run_is_refused_before_training(tmp_path: Path) -> None:
    other = reproduce.wanted("abilene-5-3", {"seed": 1})
    app = Routing()
    open_run(
        app, other, app.prepare(other, None), tmp_path / "abilene-5-3", resume=False, force=False
    ).close()
    with raises(InvalidSettings, "invalid-settings", "seed"):
        reproduce.reproduce(["abilene-5-3"], Plan(tmp_path), say=lambda text: None)


def _request(problem: object, iteration: int, made: object) -> PricingRequest:
    layout = problem.layout  # type: ignore[attr-defined]
    requirement = problem.requirements[0]  # type: ignore[attr-defined]
    rows = RowSet(layout)
    inputs = made.demand_max[None]  # type: ignore[attr-defined]
    rows.add(requirement.rows_at(inputs, np.zeros(1, np.int64), 0))
    return PricingRequest(
        iteration=iteration,
        seed=1,
        duals=Duals(np.array([100.0]), np.zeros(len(layout))),
        guide=np.array([100.0]),
        rows=rows,
        objective=problem.objective,  # type: ignore[attr-defined]
        loss_weight=1.0,
        ensemble=None,
        device="cpu",
    )


def test_demands_take_turns_and_follow_prices() -> None:
    """A large price on one arc at the corner drives the demand's share on that arc to zero."""
    made = instance("abilene", 5, 3)
    problem = paper_problem(made, PaperSettings(network="abilene", epochs=1))
    pricer = OneDemandPricer(
        SplitNetwork(made, hidden=(8,), skip=False), Training(200, learning_rate=0.05)
    )
    for iteration in (0, 7):
        proposed = pricer.price(_request(problem, iteration, made))
        assert proposed.blocks.tolist() == [iteration % 5]
        assert proposed.groups.tolist() == [-1]
    # arc 0 is avoidable for some demand that uses it: that one leaves it
    uses = made.incidence[:, 0] > 0
    for demand, block in enumerate(made.blocks):
        if uses[block].any() and not uses[block].all():
            proposed = pricer.price(_request(problem, demand, made))
            assert proposed.members is not None
            share = proposed.members.outputs(torch.as_tensor(made.demand_max[None]))[0, 0]
            assert float(share[torch.as_tensor(uses[block])].sum()) < 0.1
            return
    raise AssertionError("no demand could leave arc 0: choose another")


@pytest.mark.slow
@pytest.mark.guard
def test_published_method_runs_on_the_loop() -> None:
    made = instance("abilene", 5, 3)
    recipe = PaperSettings(network="abilene", epochs=5)
    assert (recipe.hidden, recipe.objective) == ((256,), "split")
    settings = paper_settings(made, recipe)
    assert (settings.cuts, settings.smoothing, settings.iteration_limit) == ("after", 0.0, 999)
    problem = paper_problem(made, recipe)
    assert problem.start == ()
    assert problem.start_rows == ()
    result = solve(problem, replace(settings, iteration_limit=7))
    assert result.stop_reason is StopReason.ITERATION_LIMIT
    assert all(record.added_columns <= 1 for record in result.history)
    assert [record.added_columns for record in result.history][:5] == [1] * 5


def test_networks_outside_the_paper_have_a_table_of_their_own() -> None:
    name = reproduce.OUTSIDE[0]
    assert reproduce.chosen((name,)) == (name,)
    assert name not in reproduce.chosen(())
    shielded = {"acting": 0.0, "adversarial_acting": 0.25}
    summary = SUMMARY | {"strength": "shielded", "shield": shielded}
    report = reproduce.markdown_report(reproduce.Results({name: summary}))
    assert f"| {name} |" in report
    assert "0.25" in report
    totals = reproduce.totals({"polska-5-3": summary, "abilene-5-3": SUMMARY})
    assert (totals["shielded"], totals["certified"]) == (1, 0)
