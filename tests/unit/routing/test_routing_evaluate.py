"""Training and evaluation of a router on a network small enough to check by other means."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cg4ai
from cg4ai.apps.folders import ARRAYS
from cg4ai.apps.runner import RunOutcome, perform
from cg4ai.clock import Deadline, Review
from cg4ai.colgen.restricted_master import Workspace
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.objectives import Epigraph
from cg4ai.routing import Instance, evaluate, instance
from cg4ai.routing.app import Routing, RoutingPreparation
from cg4ai.routing.demands.sets import MIXES, MixedDemands
from cg4ai.routing.evaluate import measure_prediction_speed, tight_arrays
from cg4ai.routing.pages.journal import found_overloads
from cg4ai.routing.prove.attack import Attack, attack
from cg4ai.routing.settings import RouteSettings
from cg4ai.routing.train.problem import routing_problem, routing_settings, shielded_problem
from cg4ai.routing.train.rare_demands import GapTail
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from cg4ai.seeds import derive_seed, generator
from experiments.routing import figures as routing_figures
from small_network import make_small_graph

TINY = RouteSettings(
    network="small",
    demands=2,
    threads=1,
    scenarios=30,
    priced=50,
    hidden=(6,),
    first_steps=60,
    later_steps=30,
    batch_size=64,
    validation=500,
    baseline=True,
    guarantee="attacked",
)


class SmallRouting(Routing):
    def prepare(self, settings: RouteSettings, described: object) -> RoutingPreparation:
        return RoutingPreparation(settings, small())


def small() -> Instance:
    return instance(make_small_graph(), 2, 3)


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, RunOutcome[RoutingPreparation]]:
    folder = tmp_path_factory.mktemp("routing") / "run"
    return folder, perform(SmallRouting(), TINY, out=folder)


def test_summary_is_what_predictions_give(
    trained: tuple[Path, RunOutcome[RoutingPreparation]],
) -> None:
    folder, routed = trained
    made, summary = routed.prepared.instance, routed.summary
    router = cg4ai.load(folder)
    vectors = made.sample(400, 77)
    splits = router.predict(vectors)
    assert splits.shape == (400, len(made.path_demand))
    for block in made.blocks:
        np.testing.assert_allclose(splits[:, block].sum(axis=1), 1.0)
    utilisation = made.compute_utilisation(vectors, splits).max(axis=1)
    assert utilisation.max() <= summary["worst_utilisation"] + 1e-9
    gaps = utilisation - made.find_optimal(vectors).mlu
    assert gaps.min() >= -1e-7
    assert gaps.mean() == pytest.approx(summary["mean_mlu_gap"], rel=0.5, abs=2e-3)
    assert summary["worst_utilisation"] <= 1 + 1e-6
    assert summary["strength"] == "attacked"
    for kind in ("batch", "single", "program"):
        assert summary[f"{kind}_answer_s"] > 0
    assert Run.open(folder, read_only=True).summary() == summary


def test_summary_has_all_that_was_promised(
    trained: tuple[Path, RunOutcome[RoutingPreparation]],
) -> None:
    promised = (
        "network demands paths load objective stop_reason iterations columns rows active_members "
        "pricing_s separation_s master_s total_s mean_optimal_mlu mean_mlu_gap max_mlu_gap "
        "p999_mlu_gap by_iteration "
        "split_loss worst_utilisation attack strength plain_worst_utilisation plain_mean_mlu_gap "
        "evaluation_s batch_answer_s single_answer_s program_answer_s scale demand_max constants "
        "active_constants capacity_rows found_rows"
    )
    made, summary = trained[1].prepared.instance, trained[1].summary
    assert set(promised.split()) <= set(summary)
    assert summary["scale"] == made.scale
    assert summary["demand_max"] == made.demand_max.tolist()
    assert summary["load"] == made.load
    assert summary["constants"] == 2  # constant splits to start from
    by_iteration = summary["by_iteration"]
    assert set(by_iteration) == {"objective", "columns", "rows", "slack", "worst_utilisation"}
    assert all(len(values) == summary["iterations"] for values in by_iteration.values())
    assert max(by_iteration["worst_utilisation"]) > 0
    assert summary["time_limit_s"] is None
    assert "Infinity" not in (trained[0] / "summary.json").read_text()


def test_rows_are_counted_by_where_they_come_from(
    trained: tuple[Path, RunOutcome[RoutingPreparation]],
) -> None:
    """What journal and training found is all that was added to the distinct first rows."""
    routed = trained[1]
    problem = routing_problem(routed.prepared.instance, TINY)
    work = Workspace(
        CompiledProblem.from_problem(problem), routing_settings(routed.prepared.instance, TINY)
    )
    work.start()
    summary = routed.summary
    assert summary["capacity_rows"] - summary["found_rows"] == len(work.rows)
    assert 0 <= summary["found_rows"] <= summary["capacity_rows"] <= summary["rows"]


def test_plain_networks_are_trained_as_often_as_groups_were(
    trained: tuple[Path, RunOutcome[RoutingPreparation]],
) -> None:
    result = trained[1].result
    asked = [record.trainings for record in result.history]
    assert all(count is not None and count >= 1 for count in asked)
    one = replace(result.history[0], added_columns=0, trainings=2)  # both were rejected
    old = replace(result.history[0], added_columns=4, trainings=None)
    assert evaluate.count_trained_groups(replace(result, history=(one, old))) == 3


def test_an_overload_is_a_violation_and_no_attack_withstood() -> None:
    found = {"demands": np.zeros(1), "arc": ("a", "b"), "found_by": "", "effort": {}}
    assert Attack(1 + 1e-7, **found).strength == "attacked"  # type: ignore[arg-type]
    assert Attack(1 + 1e-5, **found).strength == "violated"  # type: ignore[arg-type]


class Called:
    """A router and an instance in one, of which only the order of calls matters."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def predict(self, vectors: np.ndarray) -> None:
        self.calls.append(f"{len(vectors)} by ours")

    def find_optimal(self, vectors: np.ndarray) -> None:
        self.calls.append(f"{len(vectors)} by solver")


def test_batch_single_answers_and_programs_take_turns() -> None:
    both: Any = Called()
    measured = measure_prediction_speed(both, both, np.zeros((10, 2)), Review())
    assert both.calls == ["10 by ours", *["1 by ours"] * 10, "10 by solver"] * 3
    assert measured["timed"] == 10
    ratio = measured["program_answer_s"] / measured["batch_answer_s"]
    assert measured["batch_speedup"] == pytest.approx(ratio)
    both.calls.clear()
    late = Review(Deadline(0.0))
    measure_prediction_speed(both, both, np.zeros((10, 2)), late)
    assert len(both.calls) == 12
    assert late.cut == ["speed, to 1 of 3 rounds"]


def test_nlopt_gets_no_more_than_the_time_that_is_left(
    trained: tuple[Path, RunOutcome[RoutingPreparation]],
) -> None:
    """Its steps take long where demands are many: one search went on for 18 s beyond a limit."""
    made, router = trained[1].prepared.instance, trained[1].result.ensemble
    effort: dict[str, Any] = {"seed": 5, "starts": 1, "steps": 2, "random": 10, "vertices": 4}
    assert not attack(made, router, nlopt_starts=1, **effort).hurried
    hurried = attack(made, router, nlopt_starts=1, deadline=Deadline(0.0), **effort)
    assert hurried.hurried
    assert hurried.worst_utilisation > 0


def test_attack_reports_a_utilisation_that_exists(
    trained: tuple[Path, RunOutcome[RoutingPreparation]],
) -> None:
    _, routed = trained
    made = routed.prepared.instance
    router = routed.result.ensemble
    found = attack(made, router, seed=5, starts=4, steps=10, random=200, nlopt_starts=2)
    there = made.compute_utilisation(found.demands[None], router.predict(found.demands[None]))[0]
    assert there.max() == pytest.approx(found.worst_utilisation)
    assert made.arcs[int(there.argmax())] == found.arc
    assert np.all((found.demands >= 0) & (found.demands <= made.demand_max))


def test_tight_vectors_leave_a_hundredth(
    trained: tuple[Path, RunOutcome[RoutingPreparation]],
) -> None:
    _, routed = trained
    made, router = routed.prepared.instance, routed.result.ensemble
    arrays = tight_arrays(made, router, router, 1000, seed=0)
    worst = float(made.find_optimal(made.demand_max[None]).mlu[0])
    assert arrays["tight_optimal"].min() >= 0.99 * worst - 1e-7
    assert np.all(arrays["tight_predicted"] >= arrays["tight_optimal"] - 1e-7)


def test_figures_are_drawn_from_the_folder(
    trained: tuple[Path, RunOutcome[RoutingPreparation]], tmp_path: Path
) -> None:
    folder, _ = trained
    drawn = [
        routing_figures.slack(folder, tmp_path / "slack.png"),
        routing_figures.predicted_mlu(folder, tmp_path / "mlu.png"),
        routing_figures.plain_violations(folder, tmp_path / "plain.png"),
    ]
    if len(found_overloads(files.read_arrays(folder / ARRAYS))["arc"]):
        drawn.append(routing_figures.bottleneck_arc(folder, tmp_path / "arc.png"))
    for path in drawn:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 5000
    assert routing_figures.all_figures(tmp_path, tmp_path / "none").made == []


def test_a_router_is_judged_by_vectors_of_every_mix(
    trained: tuple[Path, RunOutcome[RoutingPreparation]],
) -> None:
    routed = trained[1]
    made, summary, router = routed.prepared.instance, routed.summary, routed.result.ensemble
    mixes = summary["mixes"]
    assert set(mixes) == set(MIXES)
    assert mixes["uniform"]["mean_mlu_gap"] == summary["mean_mlu_gap"]
    seed = derive_seed(TINY.seed, 0, "judged by sparse demands")
    vectors = MixedDemands(made.region, made.ends).draw(
        "sparse", mixes["sparse"]["vectors"], generator(seed)
    )
    best = made.find_optimal(vectors.numpy()).mlu
    mlu = made.compute_utilisation(vectors.numpy(), router.predict(vectors.numpy())).max(axis=1)
    assert mixes["sparse"]["mean_ratio"] == pytest.approx((mlu / best).mean(), rel=1e-9)
    assert mixes["sparse"]["max_ratio"] == pytest.approx((mlu / best).max(), rel=1e-9)


@pytest.mark.parametrize("stated", [routing_problem, shielded_problem])
def test_members_are_chosen_by_vectors_of_every_mix(stated: Any) -> None:
    made = small()
    objective = stated(made, TINY).objective
    assert isinstance(objective, Epigraph)
    assert objective.groups is not None
    counts = np.bincount(objective.groups)
    assert len(counts) == len(MIXES)
    assert (counts[1:] >= 0.1 * counts[0]).all()
    assert made.region.contains(objective.inputs).all()


def test_thresholds_are_shares_of_what_the_demands_load() -> None:
    """Demands of volumes as given may load links but a little, and still tell routers apart."""
    made = small()
    tiny = replace(made, demand_max=1e-3 * made.demand_max)
    whole, part = (shielded_problem(one, TINY).objective for one in (made, tiny))
    assert isinstance(whole, Epigraph)
    assert isinstance(part, Epigraph)
    assert isinstance(whole.tail, GapTail)
    assert isinstance(part.tail, GapTail)
    assert part.tail.allowed == pytest.approx(1e-3 * whole.tail.allowed)
    joint = [routing_settings(one, TINY, joint=True).epsilon for one in (made, tiny)]
    assert joint[1] == pytest.approx(1e-3 * joint[0])


def test_the_papers_protocol_measures_the_distance_from_optimal_splits() -> None:
    asked = replace(TINY, baseline=False, guarantee="shielded", protocol="paper", validation=100)
    summary = perform(SmallRouting(), asked).summary
    assert summary["protocol"] == "paper"
    assert 0 < summary["split_loss"] < 2
    assert "split_loss" not in perform(SmallRouting(), replace(asked, protocol="none")).summary
