"""Routers that learn from measured traffic: instance, objective, comparison and a whole run."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from cg4ai.apps.csv_tables import CsvTable
from cg4ai.apps.predictions import PredictionOptions, RunPredictor
from cg4ai.apps.protocol import TrainingOutcome
from cg4ai.apps.runner import RunOutcome, perform
from cg4ai.clock import Deadline, Review
from cg4ai.errors import InvalidInput, InvalidSettings
from cg4ai.members.feedback import FeedbackArchitecture, Loads
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.objectives import Epigraph
from cg4ai.report.card import card_of
from cg4ai.report.story import SavedRun
from cg4ai.report.terminal import render_text
from cg4ai.routing import Traffic, instance
from cg4ai.routing.app import Routing, RoutingPreparation
from cg4ai.routing.demands.measured import (
    MeasuredTraffic,
    measured_instance,
    pick_evenly,
    thin_vectors,
)
from cg4ai.routing.demands.sets import FreshDemands
from cg4ai.routing.network.description import Router, describe_instance, restore_instance
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.operate.later_traffic import (
    LaterComparison,
    compute_figures,
    select_shown,
)
from cg4ai.routing.pages.judged_traffic import (
    OPTIMUM,
    OURS,
    PLAIN,
    STATIC,
    describe_judged_traffic,
    get_mlu_over_time,
    unpack_times,
)
from cg4ai.routing.pages.report import make_routing_story
from cg4ai.routing.prove.unroutable import UnroutableError
from cg4ai.routing.settings import RouteSettings
from cg4ai.routing.train.rare_demands import LeastMlu
from cg4ai.routing.train.shield import edge_vectors
from cg4ai.routing.train.traffic_problem import (
    MeasuredDemands,
    RatioTail,
    RelativeUtilisation,
    node_prices,
    traffic_problem,
)
from cg4ai.rules import Box, Polytope
from cg4ai_checker import verdict
from raising import raises
from small_network import RING, make_ring

pytestmark = pytest.mark.usefixtures("quick_evaluation")

NODES = ("D", "A", "C", "B")
MLU_FIGURES = ("mean_optimal_mlu", "mean_mlu_gap", "max_mlu_gap")


def traffic(count: int = 60) -> Traffic:
    """Volumes that differ by pair and time; B sends nothing."""
    random = np.random.default_rng(0)
    matrices = random.uniform(1, 8, (4, 4)) * random.lognormal(0, 0.4, (count, 4, 4))
    matrices[:, 3] = 0.0
    matrices[:, range(4), range(4)] = 0.0
    return Traffic(tuple(map(str, range(count))), NODES, matrices)


@pytest.fixture(scope="module")
def made() -> Instance:
    return measured_instance(make_ring(), traffic(), paths=2, scale_capacities="auto")


def test_demands_stand_as_in_the_file_in_its_units(made: Instance) -> None:
    names = [f"{s}->{t}" for s in NODES for t in NODES if s != t and s != "B"]
    assert made.demand_names == names
    vectors = traffic().to_vectors(made)
    np.testing.assert_array_equal(
        vectors[5],
        traffic().matrices[5][np.array(NODES) != "B"][
            ~np.eye(4, dtype=bool)[np.array(NODES) != "B"]
        ],
    )
    assert made.region.contains(vectors).all()
    assert made.scale == 1.0
    assert made.level == pytest.approx(0.99)
    assert made.capacity_factor is not None
    np.testing.assert_allclose(made.capacity / 10.0, made.capacity_factor)


def test_fewer_demands_or_capacities_as_they_are() -> None:
    fewer = measured_instance(make_ring(), traffic(), 3, paths=2, scale_capacities=9)
    largest = traffic().largest
    order = sorted((largest[s, t], NODES[s], NODES[t]) for s in range(4) for t in range(4))[-3:]
    assert {*fewer.demand_names} == {f"{s}->{t}" for _, s, t in order}
    assert any("3 largest demands are routed" in note for note in fewer.notes)
    small = Traffic(traffic().times, NODES, traffic().matrices / 100)
    plain = measured_instance(make_ring(), small, paths=2)
    np.testing.assert_array_equal(plain.capacity, 10.0)
    assert plain.level < 0.99
    assert (plain.capacity_factor, plain.load) == (1.0, None)
    with raises(InvalidInput, "range"):
        measured_instance(make_ring(), traffic(), 13)
    with pytest.raises(UnroutableError) as raised:
        measured_instance(make_ring(), traffic())
    check_unroutable(str(raised.value))
    assert raised.value.proof is not None
    assert raised.value.proof["bound"] > 1
    assert {*raised.value.proof["demands"]} == {*plain.demand_names}
    with raises(InvalidInput, "unknown-name"):
        measured_instance(make_ring(), Traffic(("1",), ("A", "X"), np.ones((1, 2, 2))))
    with raises(InvalidInput, "empty"):
        measured_instance(make_ring(), Traffic(("1",), ("A", "B"), np.zeros((1, 2, 2))))


def check_unroutable(message: str) -> None:
    """Whatever the paths, the demands that it names load the ring as it says: an arc-flow LP."""
    bound = float(re.search(r"loads some link to ([\d.]+) of its capacity", message)[1])
    named = re.search(r"must cross them: (.*?)\. Give capacities", message)
    assert named is not None
    demands = [re.match(r"(\w)->(\w) ([\d.e+]+)$", one) for one in named[1].split(", ")]
    arcs = [*make_ring().edges, *((b, a) for a, b in make_ring().edges)]
    count = len(arcs)
    rows, right = [], []
    for place, found in enumerate(demands):
        assert found is not None
        source, target, volume = found.groups()
        for node in NODES:
            row = np.zeros(len(demands) * count + 1)
            for number, (start, end) in enumerate(arcs):
                row[place * count + number] = (start == node) - (end == node)
            rows.append(row)
            right.append(float(volume) * ((node == source) - (node == target)))
    loads = np.hstack([np.tile(np.eye(count), len(demands)) / 10.0, -np.ones((count, 1))])
    cost = np.append(np.zeros(len(demands) * count), 1.0)
    least = linprog(cost, loads, np.zeros(count), np.array(rows), right).fun
    assert least == pytest.approx(bound, rel=1e-4)
    assert least > 1


def test_vectors_are_thinned_evenly() -> None:
    np.testing.assert_array_equal(pick_evenly(10, 4), [0, 3, 6, 9])
    np.testing.assert_array_equal(pick_evenly(3, 9), [0, 1, 2])
    assert len(thin_vectors(np.zeros((100, 2)), 7)) == 7


def test_relative_utilisation_is_over_the_optimum(made: Instance) -> None:
    vectors = traffic().to_vectors(made)
    pieces = RelativeUtilisation(made, LeastMlu(made, vectors).prices)
    best = made.find_optimal(vectors)
    np.testing.assert_allclose(
        pieces.compute_least(torch.as_tensor(vectors)).numpy(), best.mlu, rtol=1e-6
    )
    splits = np.random.default_rng(1).uniform(size=(len(vectors), len(made.path_demand)))
    expected = made.compute_utilisation(vectors, splits) / best.mlu[:, None]
    found = pieces.values(torch.as_tensor(vectors), torch.as_tensor(splits)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    rows = pieces.coefficients(vectors, np.full(len(vectors), 2))
    np.testing.assert_allclose((rows * splits).sum(axis=1), expected[:, 2], rtol=1e-6)


def test_tails_find_large_ratios_near_the_traffic(made: Instance) -> None:
    vectors = traffic().to_vectors(made)
    least = LeastMlu(made, vectors)
    pieces = RelativeUtilisation(made, least.prices)
    drawn = MeasuredDemands(vectors, FreshDemands(made.region))
    few = drawn(200, torch.Generator().manual_seed(0))
    assert few.shape == (200, vectors.shape[1])
    assert made.region.contains(few[-20:].numpy()).all()  # a tenth is drawn from the set
    # factors around one: the mean logarithm of single demands is that of the measured ones
    logs = np.log(drawn(20_000, torch.Generator().manual_seed(1))[:18_000].numpy())
    np.testing.assert_allclose(logs.mean(axis=0), np.log(vectors).mean(axis=0), atol=0.03)
    tail = RatioTail(made, least, drawn=drawn, pieces=pieces, screened=500)
    even = torch.as_tensor(1 / np.bincount(made.path_demand)[made.path_demand])
    found, levels = tail.find(lambda x: even.expand(len(x), -1), seed=3)
    assert tail.limit / 2 < len(found) <= tail.limit
    best = made.find_optimal(found).mlu
    allowed = levels * pieces.compute_least(torch.as_tensor(found)).numpy() / best
    np.testing.assert_allclose(allowed, 1 + tail.allowed, rtol=1e-6)
    ratio = made.compute_utilisation(found, even.numpy()).max(axis=1) / best
    assert (ratio > 1 + tail.allowed - 1e-6).all()
    assert ratio[0] == pytest.approx(ratio.max())


def test_ratios_are_finite_where_no_solved_vector_has_a_demand() -> None:
    """Prices of one corner of the network gave every other vector an optimum of zero."""
    made = measured_instance(make_ring(), traffic(), paths=2, scale_capacities="auto")
    large = replace(made, capacity=1e8 * made.capacity, demand_max=1e8 * made.demand_max)
    count = len(large.demand_max)
    solved = np.where(np.arange(count) == 0, large.demand_max, 0.0)[None]
    alone = np.diag(large.demand_max)
    best = large.find_optimal(alone).mlu
    assert LeastMlu(large, solved).prices[:, 1:].min() == 0.0  # as it was
    prices = node_prices(large)
    bound = (alone @ prices.T).max(axis=1)
    assert (bound > 0.3 * best).all()
    vectors = np.random.default_rng(2).uniform(size=(50, count)) * large.demand_max
    assert ((vectors @ prices.T).max(axis=1) <= large.find_optimal(vectors).mlu * (1 + 1e-9)).all()


def test_problems_of_traffic_have_no_huge_rows(tmp_path: Path) -> None:
    """Traffic between two nodes alone says nothing of links elsewhere, which the set uses."""
    matrices = np.full((12, 4, 4), 0.01)
    matrices[:, range(4), range(4)] = 0.0
    matrices[:, 1, 3] = np.linspace(1, 3, 12)
    known = Traffic(tuple(map(str, range(12))), NODES, matrices)
    made = measured_instance(make_ring(), known, paths=2, scale_capacities="auto")
    measured = MeasuredTraffic.from_traffic(made, *known.split("8"))
    problem = traffic_problem(made, measured, settings(tmp_path))
    objective = problem.objective
    assert isinstance(objective, Epigraph)
    tail, pieces = objective.tail, objective.pieces
    assert isinstance(tail, RatioTail)
    assert isinstance(pieces, RelativeUtilisation)
    drawn = objective.sampler(2000, torch.Generator().manual_seed(5))
    best = made.find_optimal(drawn.numpy()).mlu
    least = pieces.compute_least(drawn).numpy()
    assert (least <= best * (1 + 1e-6)).all()
    assert (least >= best / 10).all()
    even = torch.as_tensor(1 / np.bincount(made.path_demand)[made.path_demand])
    found, levels = tail.find(lambda x: even.expand(len(x), -1), seed=3)
    ratio = made.compute_utilisation(found, even.numpy()).max(axis=1) / made.find_optimal(found).mlu
    assert (ratio > 1 + tail.allowed - 1e-6).all()
    assert (levels < 10 * (1 + tail.allowed)).all()


def test_networks_may_start_near_a_given_answer() -> None:
    network = NetworkArchitecture(3, 4, hidden=(8,), skip=True, output="grouped", groups=(2, 2))
    loads = Loads(np.ones((2, 4)), np.array([0, 0, 1, 1]))
    start = np.array([0.9, 0.1, 1.0, 0.0])
    made = FeedbackArchitecture(network, loads, stages=1, start=start)
    parameters = made.initialise(5, torch.Generator().manual_seed(0))
    answers = made.forward(parameters, torch.rand(50, 3, generator=torch.Generator()))
    np.testing.assert_allclose(answers.mean(dim=(0, 1)).numpy(), start, atol=0.05)
    with raises(InvalidInput, "shape"):
        FeedbackArchitecture(network, loads, start=np.zeros(3))


def test_figures_are_mean_and_percentiles() -> None:
    ratios = np.arange(1, 102, dtype=float)
    assert compute_figures(ratios) == {"mean": 51.0, "p95": 96.0, "p99": 100.0, "worst": 101.0}


def settings(folder: Path, **changes: object) -> RouteSettings:
    (folder / "ring.csv").write_text(RING)
    given = traffic()
    np.savez(folder / "t.npz", matrices=given.matrices, nodes=given.nodes, times=given.times)
    usual: dict[str, object] = {"network": str(folder / "ring.csv"), "traffic": folder / "t.npz"}
    usual |= {"paths": 2, "first_steps": 80, "later_steps": 20, "batch_size": 32, "threads": 1}
    usual |= {"validation": 50, "scenarios": 20}
    return RouteSettings(**(usual | changes))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome[RoutingPreparation]:
    folder = tmp_path_factory.mktemp("measured")
    asked = settings(folder, split="40", baseline=True, scale_capacities="auto")
    return perform(Routing(), asked, out=folder / "run")


def test_a_run_learns_from_earlier_and_is_judged_by_later_matrices(
    done: RunOutcome[RoutingPreparation],
) -> None:
    summary, prepared = done.summary, done.prepared
    found, measured = summary["traffic"], prepared.measured
    assert measured is not None
    assert (len(measured.earlier), len(measured.later)) == (40, 20)
    assert summary["strength"] == "shielded"
    assert summary["worst_utilisation"] <= 1 + 1e-9
    ratio = found["ratio"]
    assert [*ratio][:2] == [OURS, PLAIN]
    assert len(ratio) == 8
    made = prepared.instance
    best = made.find_optimal(measured.later).mlu
    mlu = made.compute_utilisation(
        measured.later, done.result.ensemble.predict(measured.later, outside="ignore")
    ).max(axis=1)
    assert ratio[OURS]["mean"] == pytest.approx((mlu / best).mean())
    assert all(1 - 1e-9 <= row["mean"] <= row["worst"] for row in ratio.values())
    assert ratio[OURS]["mean"] < ratio["shortest paths (ECMP)"]["mean"]
    assert found["inside"] == made.region.contains(measured.later).mean()
    assert found["worst_optimum"] <= found["level"] + 1e-9
    text = render_text(make_routing_story(summary), verbose=True)
    assert "judged on 20 later ones (40 to 59)" in text
    assert "previous optimum" in text
    assert "Demands are in the units of the traffic." in text
    assert "mean ratio of MLU to the optimum on earlier matrices" in text


def test_a_run_keeps_what_it_measured_over_time(done: RunOutcome[RoutingPreparation]) -> None:
    assert done.evaluation is not None
    arrays, ratio = done.evaluation.arrays, done.summary["traffic"]["ratio"]
    best = arrays["later_optimal_mlu"]
    for name, mlu in get_mlu_over_time(arrays).items():
        expected = 1.0 if name == OPTIMUM else ratio[name]["mean"]
        assert (mlu / best).mean() == pytest.approx(expected)
    assert set(get_mlu_over_time(arrays)) == {OURS, OPTIMUM, STATIC}
    assert unpack_times(arrays) == [str(number) for number in range(40, 60)]
    measured = done.prepared.measured
    assert measured is not None
    np.testing.assert_allclose(
        arrays["later_vectors"], measured.later[arrays["later_shown"]], rtol=1e-6
    )


def test_pages_get_as_many_matrices_as_they_have_room_for() -> None:
    few = select_shown(np.ones((4000, 132)))
    assert len(few["later_shown"]) == 500
    assert few["later_shown"][[0, -1]].tolist() == [0, 3999]
    large = select_shown(np.ones((300, 9900)))["later_vectors"]
    assert large.dtype == np.float32
    assert 0 < large.size <= 250_000


def test_the_worst_utilisation_is_of_all_vectors_that_the_run_knows(
    done: RunOutcome[RoutingPreparation],
) -> None:
    """With little effort the headline lay below the optimum that the same report named."""
    app, prepared = Routing(), done.prepared
    made = prepared.instance
    few = replace(prepared.settings, validation=2, baseline=False)
    found = app.evaluate(
        replace(prepared, settings=few),
        app.problem(prepared),
        TrainingOutcome(done.result),
        Review(),
    )
    summary = found.summary
    assert summary["worst_utilisation"] >= summary["traffic"]["worst_optimum"] * (1 - 1e-9)
    known = np.concatenate([edge_vectors(made), prepared.measured.later])
    known = known[made.region.contains(known)]
    router = done.result.ensemble
    loads = made.compute_utilisation(known, router.predict(known)).max(axis=1)
    assert summary["worst_utilisation"] >= loads.max() * (1 - 1e-9)
    at_worst = found.arrays["worst_vector"][None]
    assert made.region.contains(at_worst)[0]
    used = made.compute_utilisation(at_worst, router.predict(at_worst))[0]
    assert summary["worst_utilisation"] == pytest.approx(used.max())
    assert summary["worst_link"] == list(made.arcs[used.argmax()])
    np.testing.assert_array_less(used, found.arrays["link_worst"] + 1e-9)


def used_of(made: Instance, row: Mapping[str, Any], demands: Mapping[str, float]) -> float:
    """The fullest link of the ring by named shares, each link of its own capacity of 10."""
    loads: Counter[tuple[str, str]] = Counter()
    for path in made.paths:
        name = f"{path[0]}->{path[-1]}"
        share = row[f"{name} via {'->'.join(path)}"]
        for hop in pairwise(path):
            loads[hop] += demands[name] * share
    return max(loads.values()) / 10.0


def test_scaled_capacities_are_said_wherever_a_utilisation_stands(
    done: RunOutcome[RoutingPreparation],
) -> None:
    """Every place said 0.205 where a link was at 2.92 of its own capacity."""
    made, summary = done.prepared.instance, done.summary
    folder = Path(done.prepared.settings.network).parent / "run"
    factor = made.capacity_factor
    assert factor is not None
    assert factor > 1.5
    said, rule = f"{factor:.5g}", f"capacity x {factor:.5g}"
    demands = dict(zip(made.demand_names, made.region.middle.tolist(), strict=True))
    table = table_of(demands)
    predictor = RunPredictor.from_folder(folder)
    asked = PredictionOptions(details=True, explain=True)
    (row,) = (found := predictor.predict(table, asked)).rows
    assert row["mlu"] == pytest.approx(used_of(made, row, demands))
    assert row[f"mlu of {rule}"] == pytest.approx(row["mlu"] / factor)
    assert row[f"{rule}: slack"] == pytest.approx(1 - row["mlu"] / factor)
    assert [*found.paths.values()] == [list(path) for path in made.paths]
    lines = render_text(make_routing_story(summary)).splitlines()
    scaled = f"SCALED CAPACITIES: every link is counted with {said} times its capacity"
    assert lines[0].startswith(scaled)
    assert make_routing_story(summary).first[0] == lines[0]
    assert summary["capacity_factor"] == factor
    real = summary["of_real_capacities"]
    for key in ("worst_utilisation", "mean_mlu_gap", "corner_mlu"):
        assert real[key] == pytest.approx(factor * summary[key])
    traffic_of = {"level", "worst_optimum"}  # ratios to the optimum have no unit
    assert real["traffic"] == pytest.approx(
        {name: factor * summary["traffic"][name] for name in traffic_of}
    )
    assert {*real["shield"]} == {"worst", "worst_unshielded", "mean_gap", "mean_gap_unshielded"}
    assert all({*mix} == {*MLU_FIGURES} for mix in real["mixes"].values())
    level = f"{factor * summary['traffic']['level']:.4f}"
    assert any(f"keeps 0.9900 of {rule} ({level} of the real one)" in line for line in lines)
    (kept,) = (one.guarantee for one in make_routing_story(summary).findings)
    assert kept.rule == rule
    assert f"No link carries more than {said} times its real capacity." in kept.words
    card = card_of(folder, predictor)
    assert rule in card.interface.title
    assert card.sentence == f"Kept: {rule} (shielded)."
    told = Routing().story(summary, SavedRun(folder))
    assert told.first[0] == lines[0]
    beside = {value for one in told.figures for _, value in one.beside}
    assert f"{factor * summary['worst_utilisation']:.4f}" in beside
    fresh = RunPredictor.from_folder(folder)  # that has computed nothing yet
    page = fresh.described.explorer(fresh.ensemble, folder, summary)
    assert scaled in page
    assert f'"counted":"{rule}"' in page.replace('": "', '":"')
    checked = verdict(folder / "certificate.cg4ai")
    assert f"'{rule}' of the router of ring, with {rule} on every link" in str(checked)


def test_runs_that_did_not_keep_their_factor_say_so(done: RunOutcome[RoutingPreparation]) -> None:
    """Runs of 0.7 were all scaled, by a factor that is in no file."""
    made = done.prepared.instance
    older = {
        name: one for name, one in describe_instance(made).items() if name != "capacity_factor"
    }
    assert restore_instance(describe_instance(made)).capacity_factor == made.capacity_factor
    assert restore_instance(older).capacity_factor == 1.0
    unknown = restore_instance(older, from_traffic=True)
    assert unknown.capacity_factor is None
    assert describe_instance(unknown) == older
    vectors = traffic().to_vectors(made)[:1]
    splits = done.result.ensemble.predict(vectors)
    (row,) = Router(unknown).predictions(vectors, splits, details=True)
    assert "mlu" not in row
    assert row["mlu of a scaled capacity"] > 0
    summary = {name: one for name, one in done.summary.items() if name != "capacity_factor"}
    text = render_text(make_routing_story(summary), verbose=True)
    assert text.splitlines()[0].startswith("SCALED CAPACITIES: this run, of an earlier version,")
    assert "Of a scaled capacity: no demand vector of the set can overload a link" in text


def test_a_run_on_real_capacities_says_nothing_of_factors(tmp_path: Path) -> None:
    asked = settings(tmp_path, split="40", headroom=0.5, cover=0.5, first_steps=20, later_steps=5)
    asked = replace(asked, churn=0.01)
    with raises(UnroutableError, "infeasible", "scale_capacities"):
        Routing().prepare(replace(asked, headroom=1.25, cover=1.0), None)
    outcome = perform(Routing(), asked, out=tmp_path / "run")
    made = outcome.prepared.instance
    np.testing.assert_array_equal(made.capacity, 10.0)
    assert outcome.summary["capacity_factor"] == 1.0
    assert "of_real_capacities" not in outcome.summary
    text = render_text(make_routing_story(outcome.summary), verbose=True)
    assert "Demands are in the units of the traffic; capacities are as given." in text
    assert "real" not in text
    assert "Changes of at most 1 % of each demand between successive answers" in text
    changes = outcome.summary["churn"]
    assert changes["matrices"] == outcome.summary["traffic"]["later"]
    assert changes["worst_utilisation"] <= 1 + 1e-9
    assert changes["mean_moved"] <= changes["mean_moved_without"]
    demands = dict(zip(made.demand_names, made.region.middle.tolist(), strict=True))
    (row,) = (
        RunPredictor.from_folder(tmp_path / "run")
        .predict(table_of(demands), PredictionOptions(details=True))
        .rows
    )
    assert row["mlu"] == pytest.approx(used_of(made, row, demands))


def table_of(demands: Mapping[str, float]) -> CsvTable:
    names = [*demands]
    return CsvTable(Path("table"), tuple(names), [[repr(demands[name]) for name in names]], [2])


@pytest.mark.parametrize(
    ("inside", "later", "said"),
    [
        (1.0, 16, "all of which lie in the set."),
        (0.0, 16, "all of which lie outside the set: the router"),
        (0.875, 16, "14 of which (87.5%) lie in the set. The other 2 lie outside"),
        (0.9375, 16, "15 of which (93.8%) lie in the set. The other one lies outside"),
        (1.0, 1, "judged on 1 later one (c to d), which lies in the set."),
    ],
)
def test_how_many_matrices_lie_in_the_set_is_said_once(
    inside: float, later: int, said: str
) -> None:
    found = {"earlier": 3, "later": later, "times": list("abcd"), "inside": inside, "level": 0.9}
    text = " ".join(describe_judged_traffic(found | {"ratio": {OURS: {}}}))
    assert said in text
    assert text.count("in the set") + text.count("outside the set") == 1


def test_what_a_run_is_judged_by_comes_first(done: RunOutcome[RoutingPreparation]) -> None:
    """With no time left there are still our own figures, and the report is about traffic."""
    app, prepared = Routing(), done.prepared
    review = Review(deadline=Deadline.after(0))
    summary = app.evaluate(
        prepared, app.problem(prepared), TrainingOutcome(done.result), review
    ).summary
    found = summary["traffic"]
    assert [*found["ratio"]] == [OURS]
    judged = found["judged"]
    assert found["later"] == 20
    assert 1 <= judged < 20
    assert found["inside"] == done.summary["traffic"]["inside"]
    assert f"later matrices, to {judged} of 20" in review.cut
    assert f"MLUs are of {judged} of them" in " ".join(describe_judged_traffic(found))
    whole = {**done.summary, **summary}
    del whole["traffic"]
    text = render_text(make_routing_story(whole), verbose=True)
    assert "Demands are in the units of the traffic" in text
    assert "mean ratio of MLU to the optimum on earlier matrices" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"traffic": None, "split": "0.5"}, "are about traffic; give it"),
        ({"hose": 0.5}, "hose is fitted to the traffic; leave it out"),
        ({"guarantee": "certified"}, "networks behind a shield"),
        ({"members": "tree"}, "leave out members tree"),
    ],
)
def test_settings_that_do_not_go_with_traffic(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidSettings, match=message):
        settings(tmp_path, **changes)


def test_traffic_of_zeros_is_refused() -> None:
    made = instance(ring_with_demands(), 1)
    nothing = Traffic(("1", "2"), ("A", "C"), np.array([[[0.0, 1], [0, 0]], [[0, 0], [0, 0]]]))
    with raises(InvalidInput, "empty"):
        MeasuredTraffic.from_traffic(made, *nothing.split("2"))


def test_later_traffic_that_no_demand_carries_is_counted(made: Instance) -> None:
    """B begins to send at time 55, and nobody sends at times 10, 50 and 51."""
    matrices = traffic().matrices.copy()
    matrices[[10, 50, 51]] = 0.0
    matrices[55:, 3, 0] = 4.0
    given = Traffic(traffic().times, NODES, matrices)
    earlier, later = given.split("40")
    measured = MeasuredTraffic.from_traffic(made, earlier, later, whole=True)
    assert measured.silent == (1, 2)
    assert measured.elsewhere == pytest.approx(20.0 / later.matrices.sum())
    assert made.region.contains(measured.later).all()
    assert measured.find_inside(made).sum() == 18 - 5
    found = LaterComparison(made, measured, Review()).found
    assert found["inside"] == pytest.approx(13 / 18)
    text = " ".join(describe_judged_traffic(found))
    assert "5 later matrices with such traffic count as outside the set" in text
    assert "left out: 1 earlier matrix and 2 later ones" in text
    # where a few demands alone were asked for, others are left out on purpose
    fewer = measured_instance(make_ring(), earlier, 3, paths=2, scale_capacities="auto")
    some = MeasuredTraffic.from_traffic(fewer, earlier, later)
    assert some.find_inside(fewer).sum() == fewer.region.contains(some.later).sum()
    assert some.elsewhere > 0.3


def test_routings_that_see_a_part_of_the_matrices_are_told() -> None:
    found = {"earlier": 301, "later": 501, "times": list("abcd"), "inside": 1.0, "level": 0.9}
    text = " ".join(
        describe_judged_traffic(found | {"ratio": {OURS: {}, "COPE": {}, "previous optimum": {}}})
    )
    assert "Static splits and COPE are made for 300 of the earlier matrices" in text
    assert "The previous optimum is tried at 500 of the later matrices" in text
    assert "300" not in " ".join(describe_judged_traffic(found | {"ratio": {OURS: {}}}))


def ring_with_demands() -> networkx.Graph:
    graph = make_ring()
    graph.graph["demands"] = {"A": {"C": 5.0}}
    return graph


def test_limits_on_sums_are_left_out_where_they_are_too_many_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, Any] = {"paths": 2, "scale_capacities": "auto"}
    assert isinstance(measured_instance(make_ring(), traffic(), **asked).region, Polytope)
    monkeypatch.setattr("cg4ai.routing.train.anchors.MOST_USES", 1)
    made = measured_instance(make_ring(), traffic(), **asked)
    assert isinstance(made.region, Box)
    assert any("left out" in note for note in made.notes)
