"""Agents: each reads its own demands, keeps its budgets, and all together keep the capacities."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import networkx
import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import cg4ai
from cg4ai.apps.folders import load_trained
from cg4ai.apps.runner import perform
from cg4ai.colgen.loop import solve
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput, InvalidSettings
from cg4ai.layout import Layout
from cg4ai.members.mixture import Part
from cg4ai.members.networks import NetworkMembers
from cg4ai.members.shielded import ShieldedMembers
from cg4ai.proofs.phase import ProofRecipe
from cg4ai.proofs.pricer import ProofTraining
from cg4ai.proofs.structure_certificates import encode_claim, seal_arrays
from cg4ai.routing import Instance, instance
from cg4ai.routing.app import APPLICATION
from cg4ai.routing.demands.sets import limit_demands
from cg4ai.routing.network.description import Router
from cg4ai.routing.prove.guarantee import train_certified, write_shield_proof
from cg4ai.routing.settings import AgentScope, Recipe, RouteSettings
from cg4ai.routing.train.agent_members import (
    INTERVALS,
    _Intervals,
    budget_shield,
    budgets_of,
    local_networks,
)
from cg4ai.routing.train.agents import (
    AgentLoads,
    agents_of,
    budget_rule,
    compute_sight,
    find_budgets,
)
from cg4ai.routing.train.problem import routing_problem, routing_settings, shielded_problem
from cg4ai.seeds import generator
from cg4ai_checker import Rejected, check
from cg4ai_checker.file import parse_certificate
from cg4ai_checker.run_folder import compare
from raising import raises
from small_network import make_shared_graph

pytestmark = pytest.mark.usefixtures("quick_evaluation")

TINY = Recipe(scenarios=30, priced=50, hidden=(6,), first_steps=80, later_steps=40, batch_size=64)


@pytest.fixture(scope="module")
def network() -> Instance:
    """Three demands of two nodes that share links; one has two paths, the others three."""
    return instance(make_shared_graph(), 3, 3, load=0.99)


def rough(made: Instance, scope: AgentScope) -> ShieldedMembers:
    """Untrained agents, sharpened so that they would exceed budgets."""
    networks = local_networks(made, scope, hidden=(6,))
    parameters = networks.initialise(2, generator(5))
    live = parameters["bias_1"] > -1e3
    parameters["weight_1"] *= 6 * live[..., None]
    parameters["skip"] *= 6
    shield = budget_shield(made, scope, made.sample(40, 3))
    return ShieldedMembers(networks.members(parameters), shield)


def mixed(members: ShieldedMembers) -> Ensemble:
    weights, blocks = np.array([0.3, 0.7]), np.zeros(2, np.int64)
    part = Part(members, blocks, weights)
    return Ensemble((part,), Layout.single(members.output_size))


def test_agents_are_demands_or_nodes(network: Instance) -> None:
    assert [agent.demands for agent in agents_of(network, "own")] == [(0,), (1,), (2,)]
    nodes = {agent.name: agent.demands for agent in agents_of(network, "source")}
    ends = network.ends
    assert set(nodes) == {"a", "b"}
    assert all(ends[demand][0] == node for node, own in nodes.items() for demand in own)
    assert np.array_equal(compute_sight(network, "own"), np.eye(3, dtype=bool))
    same = np.array([[one[0] == other[0] for other in ends] for one in ends])
    assert np.array_equal(compute_sight(network, "source"), same)
    assert compute_sight(network, "all").all()


@pytest.mark.parametrize("scope", ["own", "source"])
def test_budgets_sum_to_the_capacity_and_the_anchor_keeps_them(
    network: Instance, scope: AgentScope
) -> None:
    found = budgets_of(network, scope, network.sample(60, 1))
    loads = AgentLoads(network, scope)
    total = np.bincount(loads.arc, found.limits)
    assert (total <= 1).all()
    assert total.max() > 0.99  # nothing that someone could use is left
    corner = network.demand_max[network.path_demand] * found.split
    assert (corner @ loads.per_flow < found.limits).all()
    assert np.bincount(network.path_demand, found.split) == pytest.approx(1.0)
    # the parts of a link are its whole load, whatever the splits
    splits = np.random.default_rng(0).uniform(0, 1, len(corner))
    apart = np.bincount(
        loads.arc, (network.demand_max[network.path_demand] * splits) @ loads.per_flow
    )
    whole = network.compute_utilisation(network.demand_max[None], splits[None])[0]
    assert apart == pytest.approx(whole)


def test_budgets_are_of_the_best_agents_on_intervals(network: Instance) -> None:
    """The same program stated at once for scipy: every link at every scenario is a row."""
    samples = network.sample(12, 4)
    program = _Intervals(network, samples, most=0.999)
    shares = program.solve()
    demand, paths = network.path_demand, len(network.path_demand)
    flows = program.vectors[:, demand] * shares[program.place[:, demand], np.arange(paths)]
    reached = (flows @ program.full).max(axis=1).mean()

    arcs, pairs = program.full.shape[1], list(zip(program.demand, program.arc, strict=True))
    width = INTERVALS * paths + len(pairs) + len(samples)
    rows, limits = [], []
    for s in range(len(samples)):
        for arc in range(arcs):
            row = np.zeros(width)
            at = program.place[s, demand] * paths + np.arange(paths)
            row[at] = program.vectors[s, demand] * program.full[:, arc]
            row[INTERVALS * paths + len(pairs) + s] = -1
            rows.append(row)
            limits.append(0.0)
    for number, (owner, link) in enumerate(pairs):
        for k in range(INTERVALS):
            row = np.zeros(width)
            own = demand == owner
            row[k * paths : (k + 1) * paths] = own * program.ends[k] * program.full[:, link]
            row[INTERVALS * paths + number] = -1
            rows.append(row)
            limits.append(0.0)
    for arc in range(arcs):
        row = np.zeros(width)
        for number, pair in enumerate(pairs):
            row[INTERVALS * paths + number] = pair[1] == arc
        rows.append(row)
        limits.append(0.999)
    whole = np.zeros((INTERVALS * 3, width))
    for k in range(INTERVALS):
        for path in range(paths):
            whole[3 * k + demand[path], k * paths + path] = 1
    cost = np.zeros(width)
    cost[-len(samples) :] = 1 / len(samples)
    best = linprog(cost, np.array(rows), limits, whole, np.ones(len(whole)))
    assert reached == pytest.approx(best.fun, abs=1e-6)


@pytest.mark.parametrize("scope", ["own", "source"])
def test_no_vector_overloads_a_link_whatever_agents_want(
    network: Instance, scope: AgentScope
) -> None:
    members = rough(network, scope)
    vectors = np.concatenate(
        [
            network.sample(4000, 2),
            np.array(np.meshgrid(*[[0, 1]] * 3)).reshape(3, -1).T * network.demand_max,
        ]
    )
    x = torch.as_tensor(vectors)
    wanted, kept = members.inner.outputs(x).numpy(), members.outputs(x).numpy()
    assert network.compute_utilisation(vectors, wanted[0]).max() > 1.1
    for splits in kept:
        assert network.compute_utilisation(vectors, splits).max() <= 1.0
        assert network.compute_unrouted(splits) < 1e-12


@pytest.mark.parametrize("others_times", [1.0, 2.0])
@pytest.mark.parametrize("scope", ["own", "source"])
def test_shares_of_an_agent_do_not_change_with_the_demands_of_others(
    network: Instance, scope: AgentScope, others_times: float
) -> None:
    """Not even where these are beyond the largest, which only others can know."""
    router = mixed(rough(network, scope))
    vectors = network.sample(2000, 6)
    vectors[:50] = network.demand_max
    before = router.predict(vectors)
    for agent in agents_of(network, scope):
        others = [d for d in range(3) if d not in agent.demands]
        changed = vectors.copy()
        changed[:, others] = others_times * network.sample(2000, 7)[:, others]
        own = np.isin(network.path_demand, agent.demands)
        after = router.predict(changed, outside="ignore")
        assert np.array_equal(before[:, own], after[:, own])  # to the last bit
        assert not np.array_equal(before[:, ~own], after[:, ~own])


def test_beyond_the_box_rounding_does_not_choose_between_splits_that_load_alike() -> None:
    """A link that all paths of a demand use is loaded by any split of it to the same amount."""
    graph = networkx.DiGraph(name="neck", demands={"a": {"d": 1.0}})
    for source, target in ("ab", "bc", "be", "bd", "cd", "ed"):
        graph.add_edge(source, target, capacity=1.0, length=1.0)
    made = instance(graph, 1, 3, load=0.99)
    shield = budget_shield(made, "own", made.sample(20, 0))
    splits = np.random.default_rng(0).dirichlet(np.ones(3), 500)
    beyond = np.full((500, 1), 1.1) * made.demand_max
    kept = shield.repair_outputs(torch.as_tensor(beyond), torch.as_tensor(splits)).numpy()
    neck = made.arcs.index(("a", "b"))
    assert (made.compute_utilisation(beyond, splits)[:, neck] > 1).all()
    whole = (np.abs(kept - splits).max(axis=1) > 0).mean()
    assert whole < 0.1, "only other links may ask for the anchor"


def test_a_certificate_states_budgets_and_what_they_sum_to(network: Instance, tmp_path) -> None:
    router, path = solved_router(network), tmp_path
    router.about.update(about_of_run(network))
    written = write_shield_proof(path, network, router)
    verdict = check(path / written["certificate"]["file"])
    assert verdict.claim.totals is not None
    assert len(verdict.claim.totals.limit) == len(network.arcs)
    assert "totals" in str(verdict)
    router.save(path)
    assert "capacities of the network" in compare(verdict.claim, path)[-1]

    data = (path / "certificate.cg4ai").read_bytes()
    with raises(Rejected, "rejected", "above"):
        check(forged(data, total_limit=np.full(len(network.arcs), 0.5)))
    more = parse_certificate(data).arrays["limit"] + 0.1  # the anchor keeps these all the more
    with raises(Rejected, "rejected", "above"):
        check(forged(data, limit=more))
    with raises(Rejected, "range", "total_of"):
        check(forged(data, total_of=verdict.claim.totals.of_rule + 1))
    one = np.zeros_like(verdict.claim.totals.of_rule)
    with raises(Rejected, "rejected", "totals"):
        check(forged(data, total_of=one))
    # true, but not of this network's links: rules of one link count for another
    turned = np.roll(np.arange(len(network.arcs)), 1)[verdict.claim.totals.of_rule]
    other = check(forged(data, total_of=turned))
    with raises(Rejected, "altered"):
        compare(other.claim, path)
    # budgets alone are no capacities
    content = parse_certificate(data)
    arrays = {name: a for name, a in content.arrays.items() if not name.startswith("total_")}
    claim = {name: value for name, value in content.claim.items() if name != "totals"}
    alone = check(seal_arrays(arrays | {"claim": encode_claim(claim)}))
    with raises(Rejected, "altered"):
        compare(alone.claim, path)


def forged(data: bytes, **arrays: np.ndarray) -> bytes:
    content = parse_certificate(data)
    return seal_arrays({**content.arrays, **arrays, "claim": encode_claim(content.claim)})


def about_of_run(network: Instance) -> dict[str, object]:
    from cg4ai.routing.network.description import describe_instance

    return {"application": "routing", **describe_instance(network)}


def solved_router(network: Instance) -> Ensemble:
    recipe = replace(TINY, agent_scope="source", rounds=1)
    settings = routing_settings(network, recipe, joint=True)
    return solve(shielded_problem(network, recipe), settings).ensemble


def test_trained_agents_are_better_than_one_split_for_all_demands(network: Instance) -> None:
    router = solved_router(network)
    local = find_budgets(network, router)
    assert local is not None
    assert local.scope == "source"
    vectors = network.sample(2000, 9)
    splits = router.predict(vectors)
    reached = network.compute_utilisation(vectors, splits).max(axis=1)
    assert reached.max() <= 1
    static = budgets_of(network, "source", network.sample(100, 1)).split
    constant = network.compute_utilisation(vectors, np.tile(static, (2000, 1))).max(axis=1)
    assert reached.mean() < constant.mean()


def test_proven_agents_have_weights_of_zero_for_what_they_do_not_see(network: Instance) -> None:
    recipe = replace(TINY, agent_scope="own")
    problem = routing_problem(network, recipe)
    outcome = train_certified(
        problem,
        replace(routing_settings(network, recipe), iteration_limit=2),
        recipe=ProofRecipe(rounds=2, cells=20_000, close=-1.0),
        training=ProofTraining(steps=20, batch_size=32, cells=16),
    )
    assert outcome.certification is not None
    assert outcome.certification.status == "proven"
    unseen = ~np.eye(3, dtype=bool)
    for part in outcome.result.ensemble.parts:
        if isinstance(part.members, NetworkMembers):
            for name in ("weight_0", "skip"):
                by_input = part.members.parameters[name].movedim(-1, 1).numpy()
                assert (by_input[unseen[part.blocks]] == 0).all()
    router, vectors = outcome.result.ensemble, network.sample(300, 1)
    other = vectors.copy()
    other[:, 1] = network.sample(300, 2)[:, 1]
    own = network.path_demand != 1
    assert np.array_equal(router.predict(vectors)[:, own], router.predict(other)[:, own])


def test_a_set_whose_corner_does_not_fit_is_refused_with_the_reason(network: Instance) -> None:
    twice = replace(network, demand_max=2 * network.demand_max)
    box = twice.region
    assert isinstance(box, cg4ai.rules.Box)
    tight = replace(twice, demand_set=limit_demands(box, twice.ends, budget=0.3))
    assert tight.level < 1
    with raises(InvalidInput, "unsupported", "--guarantee"):
        budget_shield(tight, "own", tight.sample(20, 0))


def test_limits_on_sums_are_kept_by_budgets_of_the_box_around(network: Instance) -> None:
    box = network.region
    assert isinstance(box, cg4ai.rules.Box)
    tight = replace(network, demand_set=limit_demands(box, network.ends, budget=0.6))
    shield = budget_shield(tight, "source", tight.sample(20, 0))
    assert shield.guards[0].region.record() == box.record()


def test_settings_refuse_trees_for_agents_and_budgets_of_other_networks(network: Instance) -> None:
    with raises(InvalidSettings, "invalid-settings", "divides"):
        RouteSettings(network="abilene", members="tree", agent_scope="own")
    with raises(InvalidInput, "shape"):
        budget_rule(network, "own", np.ones(2))
    assert RouteSettings(network="abilene", agent_scope="own").joint


@pytest.mark.parametrize(("load", "strength"), [(0.99, "shielded"), (1.0, "unverified")])
def test_a_run_claims_no_more_than_the_checker_accepts(
    load: float, strength: str, tmp_path: Path
) -> None:
    """Where the largest demands fill a link to the last digit, budgets have no room for a proof."""
    settings = RouteSettings(
        **{name: getattr(TINY, name) for name in ("scenarios", "priced", "hidden", "batch_size")},
        network="abilene",
        demands=3,
        paths=2,
        agent_scope="own",
        load=load,
        first_steps=30,
        later_steps=10,
        validation=40,
        threads=1,
    )
    outcome = perform(APPLICATION, settings, out=tmp_path / "run")
    summary = outcome.summary
    assert outcome.evaluation is not None
    assert (summary["strength"], summary["agent_scope"]) == (strength, "own")
    _, router = load_trained(tmp_path / "run")
    assert isinstance(router, Router)
    vectors = router.instance.sample(50, 3)
    splits = outcome.result.ensemble.predict(vectors)
    gaps = router.improve_answers(vectors, splits).gaps
    reached = router.instance.compute_utilisation(vectors, splits).max(axis=1)
    assert (reached / router.instance.find_optimal(vectors).mlu - 1 <= gaps + 1e-9).all()
    assert np.isfinite(gaps).all()
    with raises(InvalidInput, "unsupported"):
        router.improve_answers(vectors, splits, fallback=0.02)
    assert outcome.evaluation.kept == ("certificate" in summary) == (strength == "shielded")
    said = APPLICATION.story(json.loads((tmp_path / "run" / "summary.json").read_text()))
    assert ("NOT PROVEN" in said.headline) == (strength == "unverified")
    router, described = load_trained(tmp_path / "run")
    (rule,) = described.rules(None, None)
    assert rule.requirement.name == "capacity by budgets"
    assert router.audit(rule.requirement).holds


@pytest.mark.parametrize("demands", [100, 200])  # the larger multiplies by a sparse matrix
@pytest.mark.parametrize("scope", ["own", "source"])
def test_loads_of_agents_are_their_own_at_every_size(scope: AgentScope, demands: int) -> None:
    made = grid(demands)
    loads = AgentLoads(made, scope)
    rule = budget_rule(made, scope, np.ones(loads.count))
    rule.check(demands, len(made.path_demand))  # refuses values that disagree with coefficients
    rng = np.random.default_rng(1)
    vectors, splits = made.sample(7, 2), rng.uniform(size=(7, len(made.path_demand)))
    values = loads.values(torch.as_tensor(vectors), torch.as_tensor(splits)).numpy()
    flows = vectors[:, made.path_demand] * splits
    for number, (agent, arc) in enumerate(zip(loads.agent, loads.arc, strict=True)):
        own = np.isin(made.path_demand, agents_of(made, scope)[agent].demands)
        expected = flows[:, own] @ made.incidence[own, arc] / made.capacity[arc]
        np.testing.assert_allclose(values[:, number], expected, rtol=1e-9)
    # and all agents together load a link as the router does
    together = np.zeros((7, len(made.arcs)))
    np.add.at(together.T, loads.arc, values.T)
    np.testing.assert_allclose(together, made.compute_utilisation(vectors, splits), rtol=1e-9)


def grid(demands: int) -> Instance:
    """Five by five nodes, links of random lengths, the first pairs of nodes of a random order."""
    rng = np.random.default_rng(0)
    graph = networkx.DiGraph(networkx.grid_2d_graph(5, 5), name="grid")
    graph = networkx.relabel_nodes(graph, {node: f"n{node[0]}{node[1]}" for node in graph})
    for *_, link in graph.edges(data=True):
        link |= {"capacity": 5.0, "length": float(rng.uniform(1, 2))}
    pairs = [(a, b) for a in sorted(graph) for b in sorted(graph) if a != b]
    volumes: dict[str, dict[str, float]] = {}
    for number in rng.permutation(len(pairs))[:demands]:
        source, target = pairs[number]
        volumes.setdefault(source, {})[target] = float(rng.uniform(1, 3))
    graph.graph["demands"] = volumes
    return instance(graph, "all", 3, load=0.99)
