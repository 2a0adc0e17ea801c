"""Certified routers: cells that resist, weights that keep them, and a run that ends proven."""

import signal
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from cg4ai.colgen.restricted_master import Workspace
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.members.mixture import Part
from cg4ai.proofs import CellBounds, certify
from cg4ai.proofs.phase import ProofRecipe
from cg4ai.proofs.phase_weights import weigh_cells
from cg4ai.proofs.pricer import ProofPricer, ProofTraining
from cg4ai.proofs.prover import SURVEY, CellMemory, Prover
from cg4ai.proofs.records import RuleCells
from cg4ai.records import StopReason
from cg4ai.routing import instance
from cg4ai.routing.prove.guarantee import certified_problem, train_certified
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.effort import certified_group, certified_hidden, certified_steps
from cg4ai.routing.train.members import RoutingPricer
from cg4ai.routing.train.problem import first_request, routing_problem, routing_settings
from cg4ai.runs.folder import Run
from cg4ai.seeds import generator

RECIPE = Recipe(
    scenarios=30, priced=100, hidden=(6,), first_steps=150, later_steps=30, batch_size=64
)
QUICK = ProofRecipe(rounds=6, cells=20_000)
TRAINING = ProofTraining(steps=60, batch_size=64, cells=32)
# for runs that are killed and resumed the members need not be good
TINY = replace(RECIPE, scenarios=10, priced=20, first_steps=20, hidden=(3,))
# too few cells for networks; constant splits are proven at the corner
FEW_CELLS = ProofRecipe(rounds=3, cells=600, growth=1.0, groups=2, close=-1.0)
NEVER_CLOSE = ProofRecipe(rounds=3, cells=20_000, close=-1.0)  # goes on once it is proven
BRIEF = ProofTraining(steps=8, batch_size=16, cells=16)


@pytest.fixture(scope="module")
def abilene():
    return instance("abilene", 5, 3)


@pytest.fixture(scope="module")
def problem(abilene):
    return routing_problem(abilene, RECIPE)


def rough_group(problem, sharpness=4.0):
    """Untrained members, sharpened so that they overload links and resist proofs."""
    architecture = problem.pricers[0].architecture
    count = len(problem.layout)
    parameters = architecture.initialise(count, generator(3))
    parameters["weight_1"][:, :3] *= sharpness
    return architecture.members(parameters)


def alone(members, problem):
    count = len(problem.layout)
    return Ensemble((Part(members, np.arange(count), np.ones(count)),), problem.layout)


def upper_cells(requirement):
    """For every link the cells between 0.9 and 1, and 0.8 and 0.9, of all largest demands."""
    rules = np.arange(len(requirement.bound))
    top = np.tile(requirement.region.upper, (len(rules), 1))
    return RuleCells(
        np.concatenate([rules, rules]),
        np.concatenate([0.9 * top, 0.8 * top]),
        np.concatenate([top, 0.9 * top]),
    )


def test_a_certified_run_ends_with_a_proof_of_its_own_mixture(abilene, problem):
    settings = routing_settings(abilene, RECIPE)
    outcome = train_certified(problem, settings, recipe=QUICK, training=TRAINING)
    assert outcome.result.stop_reason is StopReason.PROVEN
    assert outcome.certification.status == "proven"
    assert outcome.result.feasible
    # another proof of the same mixture, from scratch, agrees; and no input breaks the rule
    again = certify(outcome.result.ensemble, problem.requirements[0], time_limit_s=60)
    assert again.status == "proven"
    assert again.subject == outcome.certification.subject
    demands = np.concatenate([abilene.sample(2000, 1), abilene.demand_max[None]])
    loads = abilene.compute_utilisation(demands, outcome.result.ensemble.predict(demands))
    assert loads.max() <= 1.0


def test_groups_of_several_members_are_proven_together(abilene):
    problem = certified_problem(abilene, RECIPE)
    pricer = problem.pricers[0]
    assert isinstance(pricer, RoutingPricer)
    group = pricer.group
    assert group > 1
    settings = routing_settings(abilene, RECIPE)
    outcome = train_certified(problem, settings, recipe=QUICK, training=TRAINING)
    assert outcome.certification.status == "proven"
    blocks = len(problem.layout)
    rounds = sum(record.trainings for record in outcome.result.history)
    assert outcome.result.columns == (2 + group * rounds) * blocks  # two anchors of each block
    again = certify(outcome.result.ensemble, problem.requirements[0], time_limit_s=60)
    assert again.status == "proven"


def test_what_is_given_takes_the_place_of_the_usual_of_certified_runs(abilene):
    pricer = certified_problem(abilene, RECIPE).pricers[0]
    assert isinstance(pricer, RoutingPricer)
    assert pricer.architecture.hidden == RECIPE.hidden
    assert pricer.first.steps == RECIPE.first_steps
    usual = certified_problem(abilene, Recipe(scenarios=30, priced=100)).pricers[0]
    assert isinstance(usual, RoutingPricer)
    assert usual.architecture.hidden == certified_hidden(5)
    assert usual.first.steps == certified_steps(5)


@pytest.mark.parametrize("demands", [1, 5, 10, 15, 30, 200])
def test_more_demands_have_no_more_members_units_and_steps(demands):
    for size in (certified_group, lambda d: certified_hidden(d)[0], certified_steps):
        assert size(2 * demands) <= size(demands)
        assert size(demands) > 1


def test_a_hopeless_proof_is_given_up_early(problem):
    prover = Prover(CellMemory(problem.requirements[0]), cells=8000, growth=1.0, device="cpu")
    rough = alone(rough_group(problem), problem)
    found = prover.find(rough, problem.requirements[0], seed=0, limit=8, tolerance=1e-6)
    assert found.certification.status != "proven"
    assert found.certification.cells <= SURVEY * 8000 + 1


def test_a_run_that_may_not_go_on_says_what_resists(abilene, problem):
    recipe = ProofRecipe(rounds=1, cells=5)
    outcome = train_certified(problem, routing_settings(abilene, RECIPE), recipe=recipe)
    assert outcome.result.stop_reason is StopReason.ITERATION_LIMIT
    assert "not proven" in outcome.result.note
    assert len(outcome.certification.open_cells) > 0
    assert outcome.result.history[0].trainings == 1  # none that no round would follow


class Killed(Exception):
    """In place of a kill: nothing after it is written."""


def certified_run(abilene, folder, recipe, *, kill_in=None):
    """A certified run in a folder, opened if it is there, that dies in iteration `kill_in`."""

    def progress(record):
        if record.iteration == kill_in:
            raise Killed

    # made anew, as another process would
    problem, settings = routing_problem(abilene, TINY), routing_settings(abilene, TINY)
    exists = (folder / "run.json").exists()
    with Run.open(folder) if exists else Run.create(folder, "route", {"seed": 0}) as run:
        return train_certified(
            problem, settings, recipe=recipe, training=BRIEF, progress=progress, run=run
        )


def saved(outcome, folder):
    """The files of the ensemble, and all of history but seconds."""
    outcome.result.ensemble.save(folder)
    files = {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file()}
    steps = [
        {name: value for name, value in asdict(record).items() if not name.endswith("_s")}
        for record in outcome.result.history
    ]
    return files, steps, outcome.result.stop_reason, outcome.result.note


@pytest.mark.parametrize(
    "recipe", [FEW_CELLS, NEVER_CLOSE], ids=["few cells", "proven, then improved"]
)
def test_a_killed_run_resumes_to_the_identical_router(abilene, tmp_path, recipe):
    whole = certified_run(abilene, tmp_path / "whole", recipe)
    expected = saved(whole, tmp_path / "whole saved")
    rounds = len(whole.result.history)
    assert rounds >= 3
    assert whole.certification.status == "proven"
    for number in range(1, rounds):
        folder = tmp_path / str(number)
        with pytest.raises(Killed):
            certified_run(abilene, folder, recipe, kill_in=number)
        resumed = certified_run(abilene, folder, recipe)
        assert saved(resumed, tmp_path / f"{number} saved") == expected
        assert resumed.certification.subject == whole.certification.subject
    # and once more at its end, which has the router and its proof without training
    again = certified_run(abilene, tmp_path / "whole", recipe)
    assert saved(again, tmp_path / "again saved") == expected
    kept = [(p.status, p.bound) for p in again.certification.rules]
    assert kept == [(p.status, p.bound) for p in whole.certification.rules]
    assert again.certification.status == whole.certification.status


def test_an_interrupt_keeps_what_was_reached(abilene, tmp_path):
    """Ctrl-C ends the run with the rounds that are complete, and resuming completes it."""
    whole = certified_run(abilene, tmp_path / "whole", FEW_CELLS)
    folder = tmp_path / "run"
    problem, settings = routing_problem(abilene, TINY), routing_settings(abilene, TINY)

    def progress(record):
        if record.iteration == 1:
            signal.raise_signal(signal.SIGINT)

    with Run.create(folder, "route", {"seed": 0}) as run:
        outcome = train_certified(
            problem, settings, recipe=FEW_CELLS, training=BRIEF, progress=progress, run=run
        )
    assert outcome.result.stop_reason is StopReason.INTERRUPTED
    assert len(outcome.result.history) == 2
    resumed = certified_run(abilene, folder, FEW_CELLS)
    assert saved(resumed, tmp_path / "a") == saved(whole, tmp_path / "b")


def test_training_lowers_the_bound_on_the_cells_it_is_given(problem):
    members = rough_group(problem)
    requirement = problem.requirements[0]
    memory = CellMemory(requirement)
    memory.cells = upper_cells(requirement)
    cells = memory.cells
    training = ProofTraining(steps=80, batch_size=32, cells=64, bound_weight=50.0)
    inner = problem.pricers[0]
    pricer = ProofPricer(
        inner,
        inner.architecture,
        memory=memory,
        training=training,
        harder=inner.make_harder_objective,
    )
    pricer.latest = members
    trained = pricer.price(first_request(problem, seed=1, device="cpu", attacked=True)).members

    def excess(group):
        bounds = CellBounds(alone(group, problem), requirement)
        with torch.no_grad():
            upper = bounds.upper(cells.rules, cells.lower, cells.upper).numpy()
        return np.maximum(upper - 1.0, 0.0).mean()

    assert excess(trained) < 0.5 * excess(members)


def test_the_master_gives_the_anchors_what_a_group_cannot_be_shown_to_keep(abilene, problem):
    requirement = problem.requirements[0]
    memory = CellMemory(requirement)
    memory.cells = upper_cells(requirement)
    work = Workspace(CompiledProblem.from_problem(problem), routing_settings(abilene, RECIPE))
    work.start()
    work.add_columns(rough_group(problem), np.arange(len(problem.layout)))
    weighed = weigh_cells(work, memory, groups=1, size=len(problem.layout), coarse=np.inf)
    assert weighed.solution.slack.max() < 1e-6
    bounds = CellBounds(work.whole_ensemble(weighed.weights), requirement)
    cells = memory.cells
    with torch.no_grad():
        upper = bounds.upper(cells.rules, cells.lower, cells.upper).numpy()
    assert upper.max() <= 1.0 + 1e-4
    size = len(problem.layout)
    free = weigh_cells(work, CellMemory(requirement), groups=1, size=size, coarse=0.0)
    assert free.solution.objective <= weighed.solution.objective + 1e-9
    assert free.solution.objective == pytest.approx(weighed.unanchored, abs=1e-9)


def test_the_master_mixes_the_latest_groups_only(abilene, problem):
    work = Workspace(CompiledProblem.from_problem(problem), routing_settings(abilene, RECIPE))
    work.start()
    blocks = np.arange(len(problem.layout))
    anchors = len(work.columns)
    for _ in range(3):
        work.add_columns(rough_group(problem, sharpness=0.1), blocks)
    memory = CellMemory(problem.requirements[0])
    found = weigh_cells(work, memory, groups=2, size=len(blocks), coarse=0.0)
    first = found.weights[anchors : anchors + len(blocks)]
    assert not first.any()
    assert found.weights.sum() == pytest.approx(len(blocks), abs=1e-3)
