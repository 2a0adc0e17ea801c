"""Routers that learn from measured traffic: instance, objective, comparison and a whole run."""

import re
from pathlib import Path

import networkx
import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from cg4ai.apps.routing import Traffic, instance
from cg4ai.apps.routing.app import Prepared, Routing
from cg4ai.apps.routing.data import Instance
from cg4ai.apps.routing.demands import FreshDemands
from cg4ai.apps.routing.measured import Measured, evenly, measured_instance, thinned
from cg4ai.apps.routing.normalised import OURS, PLAIN, Later, figures, judged_on
from cg4ai.apps.routing.report import about, distance, report
from cg4ai.apps.routing.settings import RouteSettings
from cg4ai.apps.routing.tail import LeastMlu
from cg4ai.apps.routing.traffic_problem import MeasuredDemands, RatioTail, RelativeUtilisation
from cg4ai.apps.runner import Outcome, perform
from cg4ai.clock import Deadline, Review
from cg4ai.errors import InvalidInput, InvalidSettings
from cg4ai.members.feedback import FeedbackArchitecture, Loads
from cg4ai.members.networks import NetworkArchitecture

NODES = ("D", "A", "C", "B")
LINKS = "source,target,capacity\nA,B,10\nB,C,10\nC,D,10\nD,A,10\nA,C,10\n"


def ring() -> networkx.Graph:
    graph = networkx.Graph(name="ring")
    for line in LINKS.splitlines()[1:]:
        source, target, capacity = line.split(",")
        graph.add_edge(source, target, capacity=float(capacity))
    return graph


def traffic(count: int = 60) -> Traffic:
    """Volumes that differ by pair and time; B sends nothing."""
    random = np.random.default_rng(0)
    matrices = random.uniform(1, 8, (4, 4)) * random.lognormal(0, 0.4, (count, 4, 4))
    matrices[:, 3] = 0.0
    matrices[:, range(4), range(4)] = 0.0
    return Traffic(tuple(map(str, range(count))), NODES, matrices)


@pytest.fixture(scope="module")
def made() -> Instance:
    return measured_instance(ring(), traffic(), paths=2)


def test_demands_stand_as_in_the_file_in_its_units(made: Instance) -> None:
    names = [f"{s}->{t}" for s in NODES for t in NODES if s != t and s != "B"]
    assert made.demand_names == names
    vectors = traffic().vectors(made)
    np.testing.assert_array_equal(
        vectors[5],
        traffic().matrices[5][np.array(NODES) != "B"][
            ~np.eye(4, dtype=bool)[np.array(NODES) != "B"]
        ],
    )
    assert made.region.contains(vectors).all()
    assert made.scale == 1.0
    assert made.level == pytest.approx(0.99)
    factor = made.capacity / 10.0
    np.testing.assert_allclose(factor, factor[0])
    assert any(f"counted as {factor[0]:.4g} times" in note for note in made.notes)


def test_fewer_demands_or_capacities_as_they_are() -> None:
    fewer = measured_instance(ring(), traffic(), 3, paths=2)
    largest = traffic().largest
    order = sorted((largest[s, t], NODES[s], NODES[t]) for s in range(4) for t in range(4))[-3:]
    assert {*fewer.demand_names} == {f"{s}->{t}" for _, s, t in order}
    assert any("3 largest demands are routed" in note for note in fewer.notes)
    small = Traffic(traffic().times, NODES, traffic().matrices / 100)
    plain = measured_instance(ring(), small, paths=2, load=None)
    np.testing.assert_array_equal(plain.capacity, 10.0)
    assert plain.level < 0.99
    with pytest.raises(InvalidInput, match="13 demands were asked for, but the traffic has 9"):
        measured_instance(ring(), traffic(), 13)
    with pytest.raises(InvalidInput, match="a demand vector of the set cannot be routed") as raised:
        measured_instance(ring(), traffic(), load=None)
    check_unroutable(str(raised.value))
    with pytest.raises(InvalidInput, match="names the node 'X', which ring does not have"):
        measured_instance(ring(), Traffic(("1",), ("A", "X"), np.ones((1, 2, 2))))
    with pytest.raises(InvalidInput, match="zero at all times"):
        measured_instance(ring(), Traffic(("1",), ("A", "B"), np.zeros((1, 2, 2))))


def check_unroutable(message: str) -> None:
    """Whatever the paths, the demands that it names load the ring as it says: an arc-flow LP."""
    bound = float(re.search(r"loads some link to ([\d.]+) of its capacity", message)[1])
    named = re.search(r"must cross them: (.*?)\. Set load", message)
    assert named is not None
    demands = [re.match(r"(\w)->(\w) ([\d.e+]+)$", one) for one in named[1].split(", ")]
    arcs = [*ring().edges, *((b, a) for a, b in ring().edges)]
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
    np.testing.assert_array_equal(evenly(10, 4), [0, 3, 6, 9])
    np.testing.assert_array_equal(evenly(3, 9), [0, 1, 2])
    assert len(thinned(np.zeros((100, 2)), 7)) == 7


def test_relative_utilisation_is_over_the_optimum(made: Instance) -> None:
    vectors = traffic().vectors(made)
    pieces = RelativeUtilisation(made, LeastMlu(made, vectors).prices)
    best = made.optimal(vectors)
    np.testing.assert_allclose(pieces.least(torch.as_tensor(vectors)).numpy(), best.mlu, rtol=1e-6)
    splits = np.random.default_rng(1).uniform(size=(len(vectors), len(made.path_demand)))
    expected = made.utilisation(vectors, splits) / best.mlu[:, None]
    found = pieces.values(torch.as_tensor(vectors), torch.as_tensor(splits)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    rows = pieces.coefficients(vectors, np.full(len(vectors), 2))
    np.testing.assert_allclose((rows * splits).sum(axis=1), expected[:, 2], rtol=1e-6)


def test_tails_find_large_ratios_near_the_traffic(made: Instance) -> None:
    vectors = traffic().vectors(made)
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
    assert len(found) == tail.limit
    np.testing.assert_array_equal(levels, 1 + tail.allowed)
    ratio = made.utilisation(found, even.numpy()).max(axis=1) / made.optimal(found).mlu
    assert (ratio > 1 + tail.allowed - 1e-6).all()
    assert ratio[0] == pytest.approx(ratio.max())


def test_networks_may_start_near_a_given_answer() -> None:
    network = NetworkArchitecture(3, 4, hidden=(8,), skip=True, output="grouped", groups=(2, 2))
    loads = Loads(np.ones((2, 4)), np.array([0, 0, 1, 1]))
    start = np.array([0.9, 0.1, 1.0, 0.0])
    made = FeedbackArchitecture(network, loads, stages=1, start=start)
    parameters = made.initialise(5, torch.Generator().manual_seed(0))
    answers = made.forward(parameters, torch.rand(50, 3, generator=torch.Generator()))
    np.testing.assert_allclose(answers.mean(dim=(0, 1)).numpy(), start, atol=0.05)
    with pytest.raises(InvalidInput, match=r"start must be \(4,\), got \(3,\)"):
        FeedbackArchitecture(network, loads, start=np.zeros(3))


def test_figures_are_mean_and_percentiles() -> None:
    ratios = np.arange(1, 102, dtype=float)
    assert figures(ratios) == {"mean": 51.0, "p95": 96.0, "p99": 100.0, "worst": 101.0}


def settings(folder: Path, **changes: object) -> RouteSettings:
    (folder / "ring.csv").write_text(LINKS)
    given = traffic()
    np.savez(folder / "t.npz", matrices=given.matrices, nodes=given.nodes, times=given.times)
    usual: dict[str, object] = {"network": str(folder / "ring.csv"), "traffic": folder / "t.npz"}
    usual |= {"paths": 2, "first_steps": 80, "later_steps": 20, "batch_size": 32, "threads": 1}
    usual |= {"validation": 50, "shield_inputs": 40, "timed": 10, "scenarios": 20}
    return RouteSettings(**(usual | changes))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Outcome[Prepared]:
    folder = tmp_path_factory.mktemp("measured")
    asked = settings(folder, split="40", baseline=True)
    return perform(Routing(), asked, out=folder / "run")


def test_a_run_learns_from_earlier_and_is_judged_by_later_matrices(
    done: Outcome[Prepared],
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
    best = made.optimal(measured.later).mlu
    mlu = made.utilisation(
        measured.later, done.result.ensemble.predict(measured.later, outside="ignore")
    ).max(axis=1)
    assert ratio[OURS]["mean"] == pytest.approx((mlu / best).mean())
    assert all(1 - 1e-9 <= row["mean"] <= row["worst"] for row in ratio.values())
    assert ratio[OURS]["mean"] < ratio["shortest paths (ECMP)"]["mean"]
    assert found["inside"] == made.region.contains(measured.later).mean()
    assert found["worst_optimum"] <= found["level"] + 1e-9
    text = report(summary)
    assert "judged on 20 later ones (40 to 59)" in text
    assert "previous optimum" in text
    assert "Demands are in the units of the traffic; all capacities are counted as" in text
    assert "mean MLU over the optimum of earlier matrices" in text


def test_what_a_run_is_judged_by_comes_first(done: Outcome[Prepared]) -> None:
    """With no time left there are still our own figures, and the report is about traffic."""
    app, prepared = Routing(), done.prepared
    review = Review(deadline=Deadline.after(0))
    summary = app.evaluate(prepared, app.problem(prepared), done.result, review).summary
    found = summary["traffic"]
    assert [*found["ratio"]] == [OURS]
    assert (found["later"], found["judged"]) == (20, 10)
    assert found["inside"] == done.summary["traffic"]["inside"]
    assert "later matrices, to 10 of 20" in review.cut
    assert "MLUs are of 10 of them" in " ".join(judged_on(found))
    del summary["traffic"]
    text = " ".join([*about(summary), *distance(summary | {"distance": "unknown"})])
    assert "Demands are in the units of the traffic" in text
    assert "mean MLU over the optimum of earlier matrices" in text


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
    with pytest.raises(InvalidInput, match="zero at all earlier or later times"):
        Measured.of(made, *nothing.split("2"))


def test_later_traffic_that_no_demand_carries_is_counted(made: Instance) -> None:
    """B begins to send at time 55, and nobody sends at times 10, 50 and 51."""
    matrices = traffic().matrices.copy()
    matrices[[10, 50, 51]] = 0.0
    matrices[55:, 3, 0] = 4.0
    given = Traffic(traffic().times, NODES, matrices)
    earlier, later = given.split("40")
    measured = Measured.of(made, earlier, later, whole=True)
    assert measured.silent == (1, 2)
    assert measured.elsewhere == pytest.approx(20.0 / later.matrices.sum())
    assert made.region.contains(measured.later).all()
    assert measured.inside(made).sum() == 18 - 5
    found = Later(made, measured, Review()).found
    assert found["inside"] == pytest.approx(13 / 18)
    text = " ".join(judged_on(found))
    assert "5 later matrices with such traffic count as outside the set" in text
    assert "left out: 1 earlier and 2 later matrices" in text
    # where a few demands alone were asked for, others are left out on purpose
    fewer = measured_instance(ring(), earlier, 3, paths=2)
    some = Measured.of(fewer, earlier, later)
    assert some.inside(fewer).sum() == fewer.region.contains(some.later).sum()
    assert some.elsewhere > 0.3


def test_routings_that_see_a_part_of_the_matrices_are_told() -> None:
    found = {"earlier": 301, "later": 501, "times": list("abcd"), "inside": 1.0, "level": 0.9}
    text = " ".join(judged_on(found | {"ratio": {OURS: {}, "COPE": {}, "previous optimum": {}}}))
    assert "Static splits and COPE are made for 300 of the earlier matrices" in text
    assert "The previous optimum is tried at 500 of the later matrices" in text
    assert "300" not in " ".join(judged_on(found | {"ratio": {OURS: {}}}))


def ring_with_demands() -> networkx.Graph:
    graph = ring()
    graph.graph["demands"] = {"A": {"C": 5.0}}
    return graph
