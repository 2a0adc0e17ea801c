"""Certified training of any problem: a small regression whose output may not exceed a limit."""

import signal
from dataclasses import replace

import numpy as np
import pytest

from cg4ai import Problem, Settings
from cg4ai.colgen.interrupts import Interrupted
from cg4ai.colgen.pricing.defaults import PricerDefaults
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.colgen.restricted_master import Workspace
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.errors import InvalidInput, SolverFailure
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, NetworkArchitecture
from cg4ai.objectives import Supervised
from cg4ai.proofs import certify
from cg4ai.proofs.certificate import build_certificate
from cg4ai.proofs.phase import ProofRecipe
from cg4ai.proofs.phase_weights import weigh_cells
from cg4ai.proofs.pricer import ProofTraining
from cg4ai.proofs.prover import CellMemory
from cg4ai.proofs.records import RuleCells
from cg4ai.proofs.solve_certified import solve_certified
from cg4ai.protocols import PricingRequest
from cg4ai.records import Duals, PricingResult, StopReason
from cg4ai.rules import Box, Linear
from cg4ai.rules.rows import RowSet
from cg4ai.runs.folder import Run
from cg4ai.seeds import generator
from raising import raises

ARCHITECTURE = NetworkArchitecture(2, 1, hidden=(4,), activation="tanh")
SETTINGS = Settings(penalty=10.0, time_limit_s=600)
TRAINING = ProofTraining(steps=20, batch_size=32, cells=16)


def limited(limit, *rules):
    """Learn a sum that reaches 2 where at most `limit` is allowed; the constant 0 keeps it."""
    inputs = np.random.default_rng(0).random((40, 2))
    rule = Linear(Box(np.zeros(2), np.ones(2)), np.ones((1, 1)), limit, sense="<=", name="limit")
    pricer = GradientPricer(
        ARCHITECTURE, restarts=1, training=Training(60, 0.02, "onecycle"), attack_every=20
    )
    return Problem(
        objective=Supervised(inputs, inputs.sum(1, keepdims=True), "squared", "average"),
        requirements=(rule, *rules),
        pricers=(pricer,),
        layout=Layout.single(1),
        start=((ConstantMembers(np.zeros((1, 1)), 2), np.zeros(1, np.int64)),),
    )


def test_a_rule_over_a_box_is_proven_at_every_input():
    problem = limited(1.2)
    outcome = solve_certified(
        problem,
        SETTINGS,
        architecture=ARCHITECTURE,
        recipe=ProofRecipe(cells=2000),
        training=TRAINING,
    )
    assert outcome.result.stop_reason is StopReason.PROVEN
    assert outcome.certification.status == "proven"
    assert certify(outcome.result.ensemble, problem.requirements[0]).status == "proven"
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 41)] * 2), -1).reshape(-1, 2)
    found = outcome.result.ensemble.predict(grid)
    assert found.max() <= 1.2
    assert found.max() > 0.5  # not the constant alone


def test_the_best_proof_is_returned_not_the_last():
    """With `close` a little below 0 no proof is good enough at once."""
    outcome = solve_certified(
        limited(1.2),
        SETTINGS,
        architecture=ARCHITECTURE,
        recipe=ProofRecipe(rounds=2, cells=2000, close=-1e-9),
        training=replace(TRAINING, learning_rate=2.0),  # later groups are worse
    )
    history = outcome.result.history
    assert len(history) > 1
    proven = [record.objective for record in history if record.note.startswith("proven")]
    assert len(proven) > 1
    assert proven[-1] > min(proven)
    assert outcome.result.objective == min(proven)


def test_a_callback_ends_training_with_the_proof_that_there_is():
    outcome = solve_certified(
        limited(1.2),
        SETTINGS,
        architecture=ARCHITECTURE,
        recipe=ProofRecipe(rounds=5, cells=2000, close=-1e-9),
        training=TRAINING,
        callbacks=[lambda record: record.note.startswith("proven")],
    )
    assert outcome.result.stop_reason is StopReason.PROVEN
    assert [record.note.startswith("proven") for record in outcome.result.history].count(True) == 1
    assert outcome.result.history[0].phase == "proof"


def test_a_resumed_run_writes_the_certificate_of_one_that_was_left_alone(tmp_path):
    problem = limited(1.2)

    def certificate(folder, callbacks=None):
        with Run.open(folder) if folder.exists() else Run.create(folder, "solve", {}) as run:
            outcome = solve_certified(
                problem,
                SETTINGS,
                architecture=ARCHITECTURE,
                recipe=ProofRecipe(rounds=4, cells=2000, close=-1e-9),
                training=TRAINING,
                run=run,
                callbacks=callbacks,
            )
        return build_certificate(
            outcome.result.ensemble,
            requirement=problem.requirements[0],
            certification=outcome.certification,
        )

    whole = certificate(tmp_path / "whole")
    for last in (1, 3):
        stopping = [lambda record, last=last: record.iteration == last]
        certificate(tmp_path / str(last), stopping)
        assert certificate(tmp_path / str(last)) == whole


def test_seconds_and_columns_are_on_record():
    outcome = solve_certified(
        limited(1.2),
        SETTINGS,
        architecture=ARCHITECTURE,
        recipe=ProofRecipe(rounds=3, cells=3, growth=1.0),
        training=TRAINING,
    )
    result = outcome.result
    assert result.stop_reason is StopReason.ITERATION_LIMIT
    assert [record.trainings for record in result.history] == [2, 1, 0]
    assert result.columns == 1 + 3  # the anchor and three groups
    assert sum(record.seconds for record in result.history) + result.ending.seconds == (
        pytest.approx(result.seconds)
    )
    assert all(record.pricing_s > 0 for record in result.history[:2])


def test_groups_of_several_members_share_the_weight():
    pricer = GradientPricer(
        ARCHITECTURE,
        restarts=1,
        group=3,
        training=Training(60, 0.02, "onecycle"),
        attack_every=20,
    )
    outcome = solve_certified(
        replace(limited(1.2), pricers=(pricer,)),
        SETTINGS,
        architecture=ARCHITECTURE,
        recipe=ProofRecipe(rounds=3, cells=2000),
        training=TRAINING,
    )
    assert outcome.certification.status == "proven"
    assert outcome.result.columns % 3 == 1  # the anchor and whole groups


class Partial(PricerDefaults):
    """A pricer that leaves a block without a member."""

    def price(self, request):
        members = ARCHITECTURE.members(ARCHITECTURE.initialise(1, generator(0)))
        return PricingResult(members, np.ones(1, np.int64), np.zeros(1, np.int64))


def test_a_first_group_that_is_not_whole_is_refused():
    with raises(SolverFailure, "solver-status"):
        solve_certified(
            replace(limited(1.2), pricers=(Partial(),)), SETTINGS, architecture=ARCHITECTURE
        )


def test_two_rules_over_regions_are_refused():
    other = Linear(Box(np.zeros(2), np.ones(2)), np.ones((1, 1)), 5.0, sense="<=", name="other")
    with raises(InvalidInput, "unsupported"):
        solve_certified(limited(1.2, other), SETTINGS, architecture=ARCHITECTURE)


class Impatient(PricerDefaults):
    """A pricer at whose first call the user presses Ctrl-C."""

    def price(self, request):
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_before_the_first_group_says_so():
    problem = replace(limited(1.2), pricers=(Impatient(),))
    with raises(Interrupted, "interrupted"):
        solve_certified(problem, SETTINGS, architecture=ARCHITECTURE)


@pytest.mark.parametrize("limit_s", [1e-3, 1e-9])
def test_a_time_limit_still_returns_a_mixture_and_what_resists(limit_s):
    outcome = solve_certified(
        limited(0.3),
        replace(SETTINGS, time_limit_s=limit_s),
        architecture=ARCHITECTURE,
        recipe=ProofRecipe(cells=3),
        training=TRAINING,
    )
    assert outcome.result.stop_reason is StopReason.TIME_LIMIT
    assert len(outcome.result.history) == 1
    assert "not proven: rule 0" in outcome.result.note


@pytest.mark.slow
@pytest.mark.guard
def test_training_leaves_time_for_the_proof():
    endless = GradientPricer(
        ARCHITECTURE, restarts=1, training=Training(10**7, 0.02, "onecycle"), attack_every=50
    )
    outcome = solve_certified(
        replace(limited(1.2), pricers=(endless,)),
        replace(SETTINGS, time_limit_s=3.0),
        architecture=ARCHITECTURE,
        recipe=ProofRecipe(cells=2000),
    )
    assert outcome.certification.status == "proven"


def test_weights_chosen_with_cells_speak_of_the_rows_that_the_run_has():
    """Certified routing runs ended in a traceback: the slack of hundreds of cells was read as that
    of the run's rows, which goes unnoticed only where there is one of these."""
    problem = limited(1.2)
    work = Workspace(CompiledProblem.from_problem(problem), Settings(guarantee="attacked"))
    work.start()
    found = problem.pricers[0].price(first_request(problem))
    work.add_columns(found.members.take(np.zeros(1, np.int64)), np.zeros(1, np.int64))
    rule, memory = problem.requirements[0], CellMemory(problem.requirements[0])
    lower = np.random.default_rng(1).uniform(0, 0.9, (200, 2))
    work.add_cuts(rule.rows_at(lower[:3], np.zeros(3, np.int64), 0))
    memory.cells = RuleCells(np.zeros(200, np.int64), lower, lower + 0.1)
    chosen = weigh_cells(work, memory, groups=1, size=1, coarse=np.inf)
    assert len(chosen.solution.slack) >= len(work.rows)  # of the cells, too
    assert work.compute_shortfall_in_units(chosen.solution) == pytest.approx(0.0, abs=1e-9)
    assert work.compute_shortfall(chosen.solution) == pytest.approx(0.0, abs=1e-9)


def first_request(problem):
    return PricingRequest(
        iteration=0,
        seed=0,
        duals=Duals(np.zeros(0), np.zeros(1)),
        guide=np.zeros(0),
        rows=RowSet(problem.layout),
        objective=problem.objective,
        loss_weight=1.0,
        ensemble=None,
        device="cpu",
        requirements=problem.requirements,
    )
