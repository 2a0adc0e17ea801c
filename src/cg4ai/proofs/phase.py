"""Certified training on the loop: weigh, attack and prove; then train on the cells that resist.

    weigh: master over cells and points -> attack -> prove -> cells left open, inputs that refute
    price: the next group, trained against the bound on those cells
    decide: proven well enough, or no better for a while -> stop

A proof speaks of one choice of weights, so every iteration proves anew, all of the region, and the
best mixture that was proven is returned, not the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cg4ai import clock
from cg4ai.colgen import tolerances
from cg4ai.colgen.cutting import separate
from cg4ai.colgen.iteration import (
    Continue,
    Decision,
    FinalSolution,
    MasterStep,
    PricingStatus,
    PricingStep,
    SeparationStep,
    Stop,
)
from cg4ai.colgen.result import settle
from cg4ai.colgen.state import RunState
from cg4ai.compile.problem import Problem
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput, SolverFailure
from cg4ai.proofs.phase_weights import CellWeights, weigh_cells
from cg4ai.proofs.pricer import ProofPricer
from cg4ai.proofs.prover import Prover
from cg4ai.proofs.records import Certification, pack_certification, unpack_certification
from cg4ai.protocols import PricingRequest
from cg4ai.records import Array, Duals, MasterSolution, PartState, StopReason
from cg4ai.rules.rows import RowSet
from cg4ai.seeds import derive_seed
from cg4ai.settings import Settings
from cg4ai_checker.words import at_most

COARSEST = 0.016  # an anchor that makes up for more at the corner of the box takes over
REPEATS = 4  # weights that a round tries at most, where each is refuted
PROOF_SHARE = 1 / 3  # of the time left, kept for weights and proof while a group is trained
LIMITS = (
    StopReason.ITERATION_LIMIT,
    StopReason.TIME_LIMIT,
    StopReason.COLUMN_LIMIT,
    StopReason.CALLBACK,
)


@dataclass(frozen=True)
class ProofRecipe:
    """How a mixture is trained for a proof.

    rounds: proofs tried at most, each after a group of members trained for it.
    cells: cells of the first attempt; each later one may take `growth` times more.
    groups: how many of the latest groups the master may mix; each makes proofs dearer.
    coarse: once training on cells has failed, the master keeps cells whose bound is at most this
        far above the limit; the others are left to halving and training. Lowered after a proof,
        raised after an attempt that failed; after `patience` of these, or before the time is over,
        the master keeps all cells once, which the anchors make possible.
    close: a proven mixture is good enough if its objective is within this of what the first
        group reached, which knew of no proof; otherwise training goes on while that helps,
        `patience` rounds being given.
    """

    rounds: int = 40
    cells: int = 200_000
    growth: float = 1.2
    groups: int = 1
    coarse: float = 0.0005
    patience: int = 4
    close: float = 0.0005


@dataclass(frozen=True)
class Attempt:
    """The weights of all columns there were, what they reach, and how far their proof came."""

    weights: Array
    objective: float
    unanchored: float  # the objective that would be reached without cells
    anchored: float  # the share of the members that the problem starts from
    slack: float
    certification: Certification

    @property
    def proven(self) -> bool:
        return self.certification.status == "proven"


class ProofPhase:
    """The one phase of a certified run: `pricer` trains, the master weighs, `prover` proves."""

    name = "proof"
    charges_loss = True
    binds_rules = True
    ending_share = 0.03  # of the time limit: weights that are proven are final

    def __init__(
        self,
        problem: Problem,
        *,
        pricer: ProofPricer,
        prover: Prover,
        recipe: ProofRecipe,
    ) -> None:
        self.number = find_proven_requirement(problem)
        self.pricer, self.prover, self.recipe = pricer, prover, recipe
        self.coarse = 0.0  # halving alone, until that fails
        self.waiting = 0  # rounds since a proof, or a better one
        self.aim = np.nan  # what the first group reached without a proof
        self.began = np.nan  # the moment at which this round did
        self.trainings = 0  # of this iteration
        self.best: Attempt | None = None
        self.latest: Attempt | None = None

    def inner_parts(self) -> Sequence[object]:
        """The prover: checkpoints find the pricer among the problem's own."""
        return (self.prover,)

    @property
    def current_attempt(self) -> Attempt | None:
        """What a run that ended now would return."""
        return self.latest if self.best is None else self.best

    def enter(self, run: RunState) -> None:
        """There is nothing to switch: each round has a master of its own."""

    # ---- one round ----------------------------------------------------------------------------

    def weigh(self, run: RunState) -> MasterStep:
        """Weights that keep the cells, attacked and proven as far as it goes.

        Weights that are refuted are chosen again with rows where they are: the anchors mend small
        violations at far less cost than training. Where time is short and nothing is proven yet,
        all cells are kept.
        """
        self.trainings = 0
        began, self.began = self.began, clock.now()
        if self.pricer.latest is None:  # there is nothing to prove yet
            self._train(run)
        deadline = run.training_deadline
        # for this round to be like the last one, which may have trained the first group, too
        short = deadline.compute_seconds_left() < self.began - began
        for number in range(REPEATS):
            started = clock.now()
            tired = self.waiting >= self.recipe.patience
            safe = self.best is None and (tired or short)
            run.training_cut = run.training_cut or (safe and not tired)
            found = self._weights(run, safe=safe)
            ensemble = run.work.whole_ensemble(found.weights)
            attacked = separate(run, ensemble, f"proof attack {number}")
            another = number + 1 < REPEATS and not deadline.passed
            if another and _broken(attacked, run.settings):
                continue
            answer = self._prove(run, ensemble)
            run.note_time()
            short = short or deadline.compute_seconds_left() < 3 * (clock.now() - started)
            hopeful = answer.status == "refuted" or (short and not safe and self.best is None)
            if answer.status == "proven" or not (another and hopeful):
                break
        self._take_note(run, found, answer, safe=safe)
        return MasterStep(found.solution, attacked.worst)

    def _weights(self, run: RunState, *, safe: bool) -> CellWeights:
        with run.watch.measure_step("master"):
            return weigh_cells(
                run.work,
                self.prover.memory,
                groups=self.recipe.groups,
                size=self.pricer.group_size,
                coarse=np.inf if safe else self.coarse or -np.inf,
            )

    def price(self, run: RunState, weighed: MasterStep) -> PricingStep:
        """The next group, unless no round would follow to prove it."""
        last = run.step + 1 >= run.settings.iteration_limit or run.training_deadline.passed
        if last or self._good_enough():
            return PricingStep(PricingStatus.NOTHING, weighed.solution, trainings=self.trainings)
        self._train(run)
        count = self.pricer.group_size
        return PricingStep(
            PricingStatus.IMPROVED, weighed.solution, count, trainings=self.trainings
        )

    def decide(self, run: RunState, weighed: MasterStep, priced: PricingStep) -> Decision:
        """A proof is improved while the anchors hold it back and rounds still help."""
        note = "" if self.latest is None else _words(self.latest)
        return Stop(StopReason.PROVEN, note) if self._good_enough() else Continue(note)

    def settle(self, run: RunState, reason: StopReason) -> FinalSolution:
        """The best proven weights; without a proof the latest, with a note of what resists."""
        shown = self.current_attempt
        if shown is None:  # ended before there was anything to prove
            return settle(run, reason)
        if shown.proven and reason in LIMITS:
            reason = StopReason.PROVEN
        if not shown.proven:
            run.notes.append(describe_resisting_rules(shown.certification))
        weights = np.zeros(len(run.work.columns))
        weights[: len(shown.weights)] = shown.weights
        return FinalSolution(_solution(run, shown, weights), weights, reason)

    def _train(self, run: RunState) -> None:
        """Ask for the next group and let it in: what it is worth, the proof will tell."""
        with run.watch.measure_step("pricing"):
            with run.interrupts.allow_interrupts():
                request = self._request(run)
                proposed = self.pricer.price(request)
            run.training_cut |= self.prover.cut or clock.now() >= request.until
            if proposed.members is None:
                raise SolverFailure("the pricer of a certified run proposed no members")
            run.work.add_columns(proposed.members, proposed.blocks)
            for rows in proposed.rows:
                run.work.add_cuts(rows)
        self.trainings += 1

    def _request(self, run: RunState) -> PricingRequest:
        """Rows without prices: a group is trained by objective, known rows and cells alone."""
        first = self.pricer.latest is None
        rows = RowSet(run.problem.layout) if first else run.work.rows
        seed = (
            derive_seed(run.settings.seed, 0, "first group")
            if first
            else derive_seed(run.settings.seed, run.step + 1, "proof")
        )
        return PricingRequest(
            iteration=run.step,
            seed=seed,
            duals=Duals(np.zeros(len(rows)), np.zeros(len(run.problem.layout))),
            guide=np.zeros(len(rows)),
            rows=rows,
            objective=run.problem.objective,
            loss_weight=1.0,
            ensemble=None,
            device=run.settings.device,
            requirements=run.problem.requirements,
            until=self._training_ends(run),
        )

    def _training_ends(self, run: RunState) -> float:
        """Members without a proof are of no use: where time is short, both get a share."""
        deadline = run.training_deadline
        return deadline.reserve(PROOF_SHARE * deadline.compute_seconds_left()).ends

    def _prove(self, run: RunState, ensemble: Ensemble) -> Certification:
        self.prover.deadline = run.training_deadline
        with run.watch.measure_step("separation"):
            with run.interrupts.allow_interrupts():
                found = self.prover.find(
                    ensemble,
                    run.problem.requirements[self.number],
                    seed=derive_seed(run.settings.seed, run.step + 1, "cells"),
                    limit=run.settings.cuts_per_round,
                    tolerance=tolerances.FEASIBILITY_TOLERANCE,
                )
            if found.rows is not None:
                run.work.add_cuts(replace(found.rows, requirement=self.number))
        return found.certification

    def _take_note(
        self, run: RunState, found: CellWeights, answer: Certification, *, safe: bool
    ) -> None:
        """What the attempt says of the next: how many cells to keep, and whether to go on."""
        solution = found.solution
        self.latest = Attempt(
            found.weights,
            solution.objective,
            found.unanchored,
            found.anchored,
            solution.lacking,
            answer,
        )
        self.pricer.adapt(answer)
        if np.isnan(self.aim):
            self.aim = found.unanchored
        proven, best = self.latest.proven, self.best
        if proven:
            self.coarse /= 4
        elif not safe and self.waiting:  # after a group that was trained on cells
            self.coarse = min(max(2 * self.coarse, self.recipe.coarse), COARSEST)
        least = np.inf if best is None else best.objective - self.recipe.close / 5
        if proven and self.latest.objective < least:
            self.best, self.waiting = self.latest, 0
        else:
            self.waiting += 1

    def _good_enough(self) -> bool:
        if self.best is None:
            return False
        settled = self.best.objective <= self.aim + self.recipe.close
        return settled or self.waiting >= self.recipe.patience

    # ---- checkpoints --------------------------------------------------------------------------

    def state(self) -> PartState:
        """How careful the next round is, and the attempt to return; trees only of a proof."""
        names = ("coarse", "waiting", "aim")
        values: dict[str, Any] = {**{name: getattr(self, name) for name in names}, "shown": None}
        shown = self.current_attempt
        if shown is None:
            return PartState(values)
        answer = shown.certification
        values["shown"] = {
            name: getattr(shown, name) for name in ("objective", "unanchored", "anchored", "slack")
        }
        values["status"] = answer.status
        kept = answer if shown.proven else _without_trees(answer)
        return PartState(values, {"weights": shown.weights, **pack_certification(kept)})

    def restore(self, state: PartState) -> None:
        for name in ("coarse", "waiting", "aim"):
            setattr(self, name, state.values[name])
        before, self.best, self.latest = self.current_attempt, None, None
        if state.values["shown"] is not None:
            answer = unpack_certification(state.arrays, status=state.values["status"])
            # the loop goes back to its checkpoint at the end, too: one check of a proof is enough
            if before is not None and _same_proof(before.certification, answer):
                answer = before.certification
            shown = Attempt(
                weights=state.arrays["weights"], certification=answer, **state.values["shown"]
            )
            self.best, self.latest = (shown, None) if shown.proven else (None, shown)


def _same_proof(known: Certification, stored: Certification) -> bool:
    """Whether what was checked here is what a checkpoint holds: same subject, same trees."""
    return (
        known.checked
        and known.subject == stored.subject
        and known.status == stored.status
        and len(known.rules) == len(stored.rules)
        and all(
            np.array_equal(own.dimensions, other.dimensions)
            for own, other in zip(known.rules, stored.rules, strict=True)
        )
    )


def _broken(attacked: SeparationStep, settings: Settings) -> bool:
    """Whether a search found violations, and rows for them that the master did not have."""
    worst = -np.inf if attacked.worst is None else attacked.worst
    return attacked.added > 0 and worst > tolerances.FEASIBILITY_TOLERANCE


def find_proven_requirement(problem: Problem) -> int:
    """The number of the one requirement that holds over a region."""
    over = [k for k, one in enumerate(problem.requirements) if one.region is not None]
    if len(over) != 1:
        names = ", ".join(problem.requirements[k].name for k in over) or "none"
        raise InvalidInput(
            f"certified training proves one rule over a region, got {len(over)} ({names}); state "
            "them as one Linear, or train without it and certify each afterwards",
            code="unsupported",
        )
    return over[0]


def describe_resisting_rules(answer: Certification) -> str:
    """Which rules are not proven, and the best bound of each."""
    left = [proof for proof in answer.rules if proof.status != "proven"]
    words = [
        f"rule {proof.rule} ({proof.status}, at most {at_most(proof.bound, proof.limit)})"
        for proof in left
    ]
    shown = ", ".join(words[:5]) + (", ..." if len(words) > 5 else "")
    return f"not proven: {shown}"


def _words(attempt: Attempt) -> str:
    answer = attempt.certification
    left = sum(proof.status != "proven" for proof in answer.rules)
    proof = (
        f"proven in {answer.cells} cells"
        if attempt.proven
        else f"{left} of {len(answer.rules)} rules resist, {len(answer.open_cells)} cells open"
    )
    anchors = f"anchors {100 * attempt.anchored:.0f} %"
    return f"{proof}, {anchors} (without cells {attempt.unanchored:.4f})"


def _without_trees(answer: Certification) -> Certification:
    """The bounds of all rules alone: an unfinished proof is not gone on with, and may be large."""
    no_tree, no_bounds = np.empty(0, np.int16), np.empty(0)
    rules = [replace(p, dimensions=no_tree, leaf_bounds=no_bounds) for p in answer.rules]
    return replace(answer, rules=tuple(rules))


def _solution(run: RunState, shown: Attempt, weights: Array) -> MasterSolution:
    """What the ending reads of the master that chose these weights, which is gone."""
    blocks = len(run.work.layout)
    return MasterSolution(
        weights=weights,
        duals=Duals(np.empty(0), np.zeros(blocks)),
        objective=shown.objective,
        penalised=shown.objective,
        slack=np.append(np.zeros(len(run.work.rows)), shown.slack),
        dummy=np.zeros(blocks),
    )
