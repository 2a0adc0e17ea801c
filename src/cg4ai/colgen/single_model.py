"""One model in place of a mixture: branch and price, once column generation has given the bound.

    choose: the integer master over all columns -> separate -> (new rows: choose again)
    price:  a class that can be listed: its members in the order of their reduced cost;
            others: members trained to meet the rows alone, harder where the best one misses them
    decide: what no better choice can hold is proven, or tries without progress end it

See docs/mathematics.md for why a reduced cost above the gap rules a member out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cg4ai.colgen import tolerances
from cg4ai.colgen.cutting import LAST_SEARCH, run_final_search, separate
from cg4ai.colgen.iteration import (
    ENDING_SHARE,
    SINGLE,
    Continue,
    Decision,
    FinalSolution,
    MasterStep,
    PricingStatus,
    PricingStep,
    Stop,
    build_request,
)
from cg4ai.colgen.master.integer import Choice
from cg4ai.colgen.pricing.exact.listed import Listable
from cg4ai.colgen.single_choices import (
    BestMixture,
    add_collapsed_member,
    add_listed_members,
    build_integral_weights,
    build_own_loss_request,
    choose_columns,
    compute_allowance,
    compute_margin_price,
    convert_choice,
    convert_mixture,
    count_room,
    find_best_mixture,
    find_listable,
    pad_rows,
)
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.errors import InvalidInput
from cg4ai.records import Array, Duals, PartState, SingleModel, StopReason
from cg4ai.rules import DecisionRate
from cg4ai.seeds import derive_seed

if TYPE_CHECKING:
    from cg4ai.colgen.state import RunState

BATCH = 1000  # members of a class listed at a time
FITTED = 50  # of those that are fitted to the rows
TRIES = 8  # trainings in a row without a model that meets the rows
TRIES_MET = 3  # trainings in a row that do not better one that does
PROGRESS = 1e-3  # share of the objective that counts as better
PRESSURE = 4.0  # on the rows at first: one member has nobody to make up for what it misses
RISE, FALL, MOST = 2.0, 0.8, 4096.0  # of the pressure after rows were missed, and met
HARDER = 2.0  # weight of a row after the best model missed it
WORTH = 1e6  # of a block: pricers hold nothing back for its reduced cost


def build_single_phase(problem: CompiledProblem) -> SinglePhase:
    """The phase of this problem; refuses those whose objective is not a sum over blocks."""
    if problem.stated.phases is not None:
        raise InvalidInput(
            "single_model cannot be combined with the guarantee certified: leave single_model "
            "out, or ask for another guarantee",
            code="conflict",
        )
    decided = [one.name for one in problem.asked if isinstance(one, DecisionRate)]
    if decided:
        raise InvalidInput(
            f"single_model gives one model, and decisions under {decided[0]} weigh one for the "
            "classes and one for each group: leave single_model out",
            code="conflict",
        )
    if len(problem.layout) > 1 and not problem.objective.sums_over_outputs:
        raise InvalidInput(
            f"single_model with {len(problem.layout)} blocks needs a loss that is a sum over "
            "outputs (squared, absolute, none, or an Epigraph); use such a loss, or one block",
            code="unsupported",
        )
    return SinglePhase()


class SinglePhase:
    """Chooses one member of each block, and lists or trains more until that is known to be best."""

    name = SINGLE
    charges_loss = True
    binds_rules = True
    ending_share = ENDING_SHARE

    def __init__(self) -> None:
        self.mixture: BestMixture | None = None
        self.choice: Choice | None = None
        self.listed = 0  # members of the class, in the order of their reduced cost
        self.beyond = -math.inf  # what a choice with one that is not listed costs at least
        self.inside = math.inf  # what one with members fitted to the rows costs at least
        self.rows_listed = 0  # how many rows there were then
        self.pressure = PRESSURE
        self.weights = np.empty(0)  # of the rows in training
        self.best = math.inf
        self.tries = 0

    def enter(self, run: RunState) -> None:
        run.work.master.minimise_slack(False)

    # ---- choosing -----------------------------------------------------------------------------

    def weigh(self, run: RunState) -> MasterStep:
        if self.mixture is None:
            self.mixture = find_best_mixture(run)
            add_collapsed_member(run, self.mixture)
        worst = None
        with run.watch.measure_step("master"):
            choice = choose_columns(run)
        seed = derive_seed(run.settings.seed, run.step, "tail")
        if run.work.add_tail(convert_choice(run, choice), seed):
            choice = choose_columns(run)
        for number in range(run.settings.cut_rounds):
            mixture = run.work.columns.ensemble(build_integral_weights(run.work, choice))
            found = separate(run, mixture, f"single {number}")
            worst = found.worst
            if not found.added:
                break
            with run.watch.measure_step("master"):
                choice = choose_columns(run)
        self.choice = choice
        return MasterStep(convert_choice(run, choice), worst)

    def settle(self, run: RunState, reason: StopReason) -> FinalSolution:
        """The choice, searched thoroughly and chosen again until nothing new is found."""
        if self.mixture is None:  # ended before its turn came
            self.mixture = find_best_mixture(run)
        with run.watch.measure_step("weights"):
            choice = choose_columns(run)

        def again() -> Array:
            nonlocal choice
            choice = choose_columns(run)
            return build_integral_weights(run.work, choice)

        reason = run_final_search(
            run, build_integral_weights(run.work, choice), reason, again=again
        ).reason
        self.choice = choice
        with run.watch.measure_step("weights"):
            whole = run.solve_whole_master()
        if reason is StopReason.OPTIMAL and not self._proven(run):
            reason = StopReason.NO_IMPROVING_COLUMN
            run.notes.append("the best model for the rows known before it was searched thoroughly")
        if LAST_SEARCH in run.cut and reason is StopReason.OPTIMAL:
            reason = StopReason.TIME_LIMIT
        compares = not run.phases[0].binds_rules
        solution = convert_choice(run, choice)
        mixture = math.nan if run.has_unmet_rows(whole) else whole.objective
        single = self._statement(run, reason, mixture)
        return FinalSolution(solution, solution.weights, reason, compares, single)

    # ---- pricing ------------------------------------------------------------------------------

    def price(self, run: RunState, weighed: MasterStep) -> PricingStep:
        run.note_time()
        if self._proven(run) or run.training_deadline.passed:
            return PricingStep(PricingStatus.NOTHING, weighed.solution)
        bound, before = self._bound(run), self.listed
        with run.watch.measure_step("pricing"):
            known = find_listable(run)
            added = self._train(run) if known is None else self._list(run, known)
        run.note_time()
        went_on = added or self.listed != before
        outcome = PricingStatus.IMPROVED if went_on else PricingStatus.NOTHING
        return PricingStep(outcome, weighed.solution, admitted=added, bound=bound)

    def _list(self, run: RunState, pricer: Listable) -> int:
        """The next members of the class that a better choice could hold."""
        mixture, choice = self._known()
        if pricer.fits_rows and len(run.work.rows) != self.rows_listed:
            self.listed, self.inside, self.rows_listed = 0, math.inf, len(run.work.rows)
        assert mixture.bound is not None
        assert mixture.lower is not None
        found = pricer.list_members(
            build_own_loss_request(run, convert_mixture(run, mixture)),
            mixture.lower,
            start=self.listed,
            count=min(FITTED if pricer.fits_rows else BATCH, count_room(run)),
            most=(choice.objective if choice.met else math.inf) - mixture.bound,
        )
        added = sum(add_listed_members(run, members, blocks) for members, blocks in found.members)
        self.listed += found.count
        self.inside = min(self.inside, found.inside)
        self.beyond = mixture.bound + found.beyond - compute_allowance(run, mixture)
        return added

    def _train(self, run: RunState) -> int:
        """Members that go on from the best choice, trained harder on the rows that it misses."""
        mixture, choice = self._known()
        self._weigh_rows(run, mixture, choice)
        worth = WORTH * (1.0 + np.abs(mixture.duals.blocks))
        asked = replace(convert_choice(run, choice), duals=Duals(self.weights, worth))
        added = 0
        for number, pricer in enumerate(run.pricers):
            request = build_request(run, asked, self.weights, f"single {number}")
            with run.interrupts.allow_interrupts():
                proposed = pricer.for_single_models(self.pressure).price(request)
            for rows in proposed.rows:
                run.work.add_cuts(rows)
            if proposed.members is not None:
                added += add_listed_members(run, proposed.members, proposed.blocks)
        return added

    def _weigh_rows(self, run: RunState, mixture: BestMixture, choice: Choice) -> None:
        """Prices of the mixture and an even share at first; what the best model misses doubles."""
        ruled = run.work.requirement_rows()
        if not len(self.weights):
            prices = pad_rows(mixture.duals.rows, run) * ruled
            self.weights = prices / max(prices.sum(), 1e-300) + ruled / max(1, ruled.sum())
        usual = self.weights[self.weights > 0].mean() if self.weights.any() else 1.0
        new = np.where(ruled[len(self.weights) :], usual, 0.0)
        self.weights = np.concatenate([self.weights, new])
        tolerance = tolerances.FEASIBILITY_TOLERANCE * run.work.row_sizes
        missed = convert_choice(run, choice).slack > tolerance
        self.weights = self.weights * np.where(missed, HARDER, 1.0)
        self.pressure = float(
            np.clip(self.pressure * (FALL if choice.met else RISE), PRESSURE / 4, MOST)
        )

    # ---- deciding -----------------------------------------------------------------------------

    def decide(self, run: RunState, weighed: MasterStep, priced: PricingStep) -> Decision:
        _, choice = self._known()
        if not priced.admitted and self._proven(run):  # what was added is not chosen from yet
            if choice.met:
                return Stop(StopReason.OPTIMAL, "the best single model")
            run.notes.append("no single model of this kind meets the rows, though a mixture may")
            return Stop(StopReason.INFEASIBLE, "no single model meets the rows")
        if priced.outcome is PricingStatus.NOTHING:
            return Stop(StopReason.NO_IMPROVING_COLUMN, "no further member")
        if find_listable(run) is not None:
            return Continue(f"{priced.admitted} members listed")
        better = choice.met and choice.objective < self.best - PROGRESS * max(abs(self.best), 1e-9)
        if better or (choice.met and self.best == math.inf):
            self.best, self.tries = choice.objective, 0
        self.tries += 1
        if self.tries > (TRIES_MET if choice.met else TRIES):
            return Stop(StopReason.NO_IMPROVING_COLUMN, "no better single model")
        return Continue(f"{priced.admitted} single members trained")

    def _known(self) -> tuple[BestMixture, Choice]:
        assert self.mixture is not None
        assert self.choice is not None
        return self.mixture, self.choice

    def _bound(self, run: RunState) -> float | None:
        """What no single model that meets the rows is below, as far as it is proven."""
        mixture, choice = self._known()
        known = [bound for bound in (run.bound, mixture.bound) if bound is not None]
        if find_listable(run) is not None and mixture.bound is not None:
            known.append(min(choice.bound, self.inside, self.beyond))
        return max(known, default=None)

    def _proven(self, run: RunState) -> bool:
        """Whether the choice is the best, or it is known that none meets the rows."""
        mixture, choice = self._known()
        bound = self._bound(run)
        if bound is None:
            return False
        if not choice.met:
            return bound == math.inf
        allowed = tolerances.GAP_TOLERANCE * max(1.0, abs(choice.objective))
        return choice.objective - bound <= allowed + compute_margin_price(run, mixture)

    def _statement(self, run: RunState, reason: StopReason, mixture: float) -> SingleModel:
        """What is known of the choice; `mixture` is the objective of the best one, or nan."""
        _, choice = self._known()
        ruled = run.work.requirement_rows()
        tolerance = tolerances.FEASIBILITY_TOLERANCE * run.work.row_sizes
        missed = convert_choice(run, choice).slack > tolerance
        bound = self._bound(run)
        if reason is StopReason.INFEASIBLE:
            bound = math.inf
        estimate = None if math.isnan(mixture) else min(mixture, choice.objective)
        return SingleModel(
            objective=choice.objective,
            met=choice.met,
            lacking=choice.lacking,
            missed=int(missed[ruled].sum()),
            rows=int(ruled.sum()),
            blocks=len(run.problem.layout),
            bound=estimate if bound is None else bound,
            proven=bound is not None,
            mixture=mixture,
        )

    # ---- checkpoints --------------------------------------------------------------------------

    def state(self) -> PartState:
        numbers = [self.listed, self.beyond, self.inside, self.rows_listed]
        numbers += [self.pressure, self.best, self.tries]
        arrays: dict[str, NDArray[np.float64]] = {
            "numbers": np.array(numbers, np.float64),
            "weights": self.weights,
        }
        known = self.mixture
        if known is not None:
            arrays |= {
                "mixture": known.weights,
                "rows": known.duals.rows,
                "blocks": known.duals.blocks,
                "values": np.array(
                    [known.objective, np.nan if known.bound is None else known.bound]
                ),
            }
            arrays |= {} if known.lower is None else {"lower": known.lower}
        return PartState({}, arrays)

    def restore(self, state: PartState) -> None:
        arrays = state.arrays
        numbers = arrays["numbers"].tolist()
        self.listed, self.beyond, self.inside = int(numbers[0]), numbers[1], numbers[2]
        self.rows_listed, self.pressure = int(numbers[3]), numbers[4]
        self.best, self.tries = numbers[5], int(numbers[6])
        self.weights, self.mixture, self.choice = arrays["weights"], None, None
        if "mixture" in arrays:
            objective, bound = arrays["values"].tolist()
            self.mixture = BestMixture(
                arrays["mixture"],
                Duals(arrays["rows"], arrays["blocks"]),
                objective,
                None if math.isnan(bound) else bound,
                arrays.get("lower"),
            )
