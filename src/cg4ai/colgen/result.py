"""What a run gives back, and the one ending that makes it: final weights, last search, audits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from cg4ai import clock
from cg4ai.colgen import tolerances
from cg4ai.colgen.cutting import LAST_SEARCH, run_final_search
from cg4ai.colgen.decisions import choose_decisions
from cg4ai.colgen.final_weights import choose_final_weights
from cg4ai.colgen.gap_estimate import estimate_distance
from cg4ai.colgen.iteration import FinalSolution
from cg4ai.colgen.master import LinearMaster
from cg4ai.colgen.restricted_master import Workspace
from cg4ai.ensemble.audit import Audit, audit
from cg4ai.ensemble.claims import record_constructed
from cg4ai.ensemble.ensemble import Ensemble, record_regions
from cg4ai.ensemble.frontier import DecisionStudy
from cg4ai.ensemble.verdict import format_coverage, format_headline
from cg4ai.members.shielded import ShieldedMembers
from cg4ai.records import (
    Array,
    EndingRecord,
    GapEstimate,
    IntArray,
    IterationRecord,
    MasterSolution,
    SingleModel,
    StopReason,
    Strength,
)
from cg4ai.rules import DecisionRate, Requirement
from cg4ai.rules.violations import CHUNK

if TYPE_CHECKING:
    from cg4ai.colgen.state import RunState
    from cg4ai.conflicts import Conflict

ENDS = 256  # of each region at which it is looked how often a shield acts
SHARES = (0.2, 0.15, 0.1, 0.05, 0.02)  # weights below which members are left out, tried in turn


@dataclass(frozen=True)
class UnconstrainedMixture:
    """A mixture without the rules, and its true loss on the objective's own inputs."""

    ensemble: Ensemble = field(repr=False)
    loss: float


@dataclass(frozen=True, slots=True)
class ShieldUse:
    """How a shield acts on the objective's own inputs.

    `moved` is the share of them whose prediction it moves, `mean` and `largest` how far towards the
    anchor (0: not at all, 1: all the way), over all members by weight. `edge` is the share moved
    at the ends of the regions: corners of boxes, points of spheres, vertices of polytopes.
    """

    inputs: int
    moved: float
    mean: float
    largest: float
    edge: float = 0.0

    def __str__(self) -> str:
        return (
            f"Shield: moves {100 * self.moved:.1f} % of {self.inputs} inputs of the objective, by "
            f"{self.mean:.3f} of the way to the anchor on average, {self.largest:.3f} at most; "
            f"{100 * self.edge:.1f} % at the ends of the regions"
        )


@dataclass(frozen=True)
class Result:
    """The trained ensemble and what is known about it.

    `objective` is the master's, `loss` the true objective of the returned mixture on the
    objective's own inputs; `bound` is a proven lower bound on what any mixture of members of the
    class can reach (None without exact pricing), `gap = objective - bound`. Without one,
    `estimated` says how far from it the objective may be by the members that further trainings
    found, and what that rests on: no proof, for a better member that none of them found would
    lower it; `estimate` is its number (None: there is a bound, or nothing to estimate by). `audits`
    recompute
    every requirement from predictions; `feasible` is read from them alone. Of the `rows`,
    `rule_rows` come from requirements and not from the objective (None: not counted). The seconds
    of `history` and `ending` add up to `seconds`; `cut` names what the time limit ended or left
    out: where it is empty, no clock had a part in the result. `plain` is the best mixture of the
    same members without the rules (None: it was not sought): what it does better on data that it
    never saw is what the rules cost.
    `shield` says how often and how much the members' shield acts (None: they have none). `single`
    says what is known of the model where one was asked for (`single_model`): `objective`, `bound`
    and `gap` are then about single models. `conflict` names what
    contradicts each other where rules are not met, and for whom: for any predictor, for this kind
    of members, or for those that were trained (None: nothing was found). `decisions` are what
    decisions under a `DecisionRate` were chosen by; its `frontier()` says what tolerances cost.
    """

    ensemble: Ensemble
    stop_reason: StopReason
    objective: float
    loss: float
    bound: float | None
    slack: float
    columns: int
    rows: int
    audits: tuple[Audit, ...]
    history: tuple[IterationRecord, ...] = field(repr=False)
    note: str
    seconds: float
    rule_rows: int | None = None
    ending: EndingRecord = field(default_factory=EndingRecord)
    cut: tuple[str, ...] = ()
    plain: UnconstrainedMixture | None = None
    shield: ShieldUse | None = None
    single: SingleModel | None = None
    conflict: Conflict | None = None
    estimated: GapEstimate | None = None
    decisions: DecisionStudy | None = None

    @property
    def estimate(self) -> float | None:
        """An estimate of the bound where none is proven; None: no estimate."""
        return None if self.estimated is None else self.estimated.value

    @property
    def estimated_gap(self) -> float | None:
        """An estimate of the distance from the best, where none is proven; None: no estimate."""
        if self.estimate is None or self.gap is not None:
            return None
        return max(0.0, self.objective - self.estimate)

    @property
    def distance(self) -> str:
        """In words how far above the best mixture of such members the objective can be."""
        if self.gap is not None:
            return f"at most {max(0.0, self.gap):.2g} (proven)"
        known = self.estimated
        return "not estimated" if known is None else known.describe_distance(self.objective)

    @property
    def gap(self) -> float | None:
        """Proven distance from the best; None without a proof, or where the rules are not kept."""
        if self.bound is None or self.stop_reason is StopReason.INFEASIBLE:
            return None
        gap = self.objective - self.bound
        # an objective below what keeps the rules is no distance from it
        return max(0.0, gap) if self.feasible else None

    @property
    def feasible(self) -> bool:
        """Whether no audit or attack found a violation (not a proof over regions)."""
        return all(audit.holds for audit in self.audits)

    def seconds_by_step(self) -> dict[str, float]:
        """Seconds of the whole run, the last search and audits included; they sum to `seconds`."""
        records, ending = self.history, self.ending
        return {
            "pricing_s": sum(record.pricing_s for record in records) + ending.estimate_s,
            "separation_s": sum(record.separation_s for record in records) + ending.search_s,
            "master_s": sum(record.master_s for record in records)
            + ending.weights_s
            + ending.pruning_s,
            "other_s": sum(record.other_s for record in records) + ending.audits_s + ending.other_s,
        }

    def __str__(self) -> str:
        verdicts = [one.verdict for one in self.audits]
        lines = [format_headline(verdicts)]
        for line, one in zip(format_coverage(verdicts), self.audits, strict=True):
            lines += [line, *(f"  {text}" for text in (*one.describe_missed(), *one.rate_lines()))]
        return "\n".join([*self.cut_short(), *lines, *self.score_and_time(), *self.warnings()])

    def _repr_html_(self) -> str:
        from cg4ai.colgen.notebook import render_result

        return render_result(self)

    def cut_short(self) -> list[str]:
        """What the time limit ended or left out: the first line of a result."""
        return [f"Cut short by the time limit: {'; '.join(self.cut)}."] if self.cut else []

    def score_and_time(self) -> list[str]:
        """The loss with and without the rules, and the time."""
        without = "" if self.plain is None else f" ({self.plain.loss:.6g} without rules)"
        count = len(self.ensemble)
        models = "1 model has all the weight" if count == 1 else f"{count} models in the mixture"
        return [
            f"Loss on the objective's data: {self.loss:.6g}{without}",
            f"Trained in {self.seconds:.1f} s (stopped: {self.stop_reason.value}); {models}.",
        ]

    def warnings(self) -> list[str]:
        """What is known of the one model that was asked for, of conflicts, and notes."""
        single = [] if self.single is None else [f"{self.single}."]
        conflict = [] if self.conflict is None else [f"Conflict: {self.conflict}."]
        return [*single, *conflict, *([f"Note: {self.note}."] if self.note else [])]

    def details(self) -> list[str]:
        """The size of the master, the optimality gap, and how often the shield acts."""
        gap = (
            []
            if self.single is not None
            else [f"Optimality gap of the objective: {self.distance}."]
        )
        return [
            f"{len(self.history)} iterations, {self.columns} columns, {self.rows} rows.",
            *gap,
            *([] if self.shield is None else [f"{self.shield}."]),
        ]


def finish(run: RunState, reason: StopReason) -> Result:
    """The closing phase settles on weights; every rule is audited on their mixture."""
    run.enter(run.closing.name)
    settled = run.phase.settle(run, reason)
    single = settled.single
    run.work.note_dummies(settled.solution)
    ensemble = run.work.whole_ensemble(settled.weights)
    study: DecisionStudy | None = None
    asked = run.problem.asked
    if any(isinstance(one, DecisionRate) for one in asked):
        with run.watch.measure_step("weights"), clock.review().stage("choosing decisions"):
            chosen = choose_decisions(run, ensemble)
        ensemble, study = chosen.ensemble, chosen.study
        run.notes += [chosen.note] if chosen.note else []
    record_regions(ensemble, asked, inputs=run.problem.objective.inputs)
    with run.watch.measure_step("audits"), clock.review().stage("auditing the rules"):
        audits = _audits(run, ensemble, settled.weights, study)
        for requirement, found in zip(asked, audits, strict=True):
            if found.strength == Strength.CONSTRUCTED:
                record_constructed(ensemble, requirement)
        loss = run.work.compute_true_loss(ensemble)
        plain = _plain(run) if settled.compares else None
        shield = _shield_use(ensemble, run.problem.objective.inputs)
        kept = all(one.holds for one in audits) and settled.reason is not StopReason.INFEASIBLE
        idle = kept or settled.reason is StopReason.INTERRUPTED
        conflict = None if idle else _conflict(run, settled.reason)
    rows, ruled = len(run.work.rows), int(run.work.requirement_rows().sum())
    before = run.interrupts.requested
    estimated = estimate_distance(run, settled)
    if run.interrupts.requested and not before:
        settled = replace(settled, reason=StopReason.INTERRUPTED)
    ending = run.record_ending()
    return Result(
        ensemble=ensemble,
        stop_reason=settled.reason,
        objective=settled.solution.objective,
        loss=loss,
        bound=single.bound if single is not None and single.proven else run.bound,
        slack=run.work.compute_shortfall_in_units(settled.solution),
        columns=len(run.work.columns),
        rows=rows,
        audits=audits,
        history=tuple(run.history),
        note="; ".join([*run.notes, *run.work.notes]),
        seconds=ending.total_s,
        rule_rows=ruled,
        ending=ending,
        cut=run.all_cut(),
        plain=plain,
        shield=shield,
        single=single,
        conflict=conflict,
        estimated=estimated,
        decisions=study,
    )


def _conflict(run: RunState, reason: StopReason) -> Conflict | None:
    from cg4ai.colgen.unmet_rules import find_conflict  # few runs need it

    return find_conflict(run, reason)


def _shield_use(ensemble: Ensemble, inputs: Array) -> ShieldUse | None:
    if not any(isinstance(part.members, ShieldedMembers) for part in ensemble.used):
        return None
    theta = _thetas(ensemble, torch.as_tensor(inputs))
    made = torch.Generator().manual_seed(0)
    ends = [guard.region.extremes(ENDS, made) for guard in ensemble.guards]
    edge = float((_thetas(ensemble, torch.cat(ends)) > 0).mean()) if ends else 0.0
    return ShieldUse(
        len(theta), float((theta > 0).mean()), float(theta.mean()), float(theta.max()), edge
    )


def _thetas(ensemble: Ensemble, inputs: Tensor) -> Array:
    with torch.no_grad():
        parts = [ensemble.theta(part) for part in torch.split(inputs, CHUNK)]
    return np.asarray(torch.cat(parts).cpu().numpy())


def _plain(run: RunState) -> UnconstrainedMixture | None:
    if not run.has_time("the mixture without the rules"):
        return None
    ensemble = run.work.solve_without_rules()
    return UnconstrainedMixture(ensemble, run.work.compute_true_loss(ensemble))


def settle(run: RunState, reason: StopReason) -> FinalSolution:
    """Final weights of few members, searched and solved again until nothing new is found.

    What time forbids is left out and noted; the audits that follow look in any case.
    """
    pruner = MemberPruner(
        run.work, run.settings.prune, solve=run.solve_whole_master, unmet=run.has_unmet_rows
    )
    with run.watch.measure_step("weights"), clock.review().stage("final weights"):
        solution = run.solve_whole_master()
        if reason is StopReason.INFEASIBLE:
            solution = _least_slack(run, solution)
    if run.settings.prune and run.has_time("leaving members out"):
        with run.watch.measure_step("pruning"), clock.review().stage("leaving members out"):
            solution = pruner.prune(solution)

    def again() -> Array:
        nonlocal solution
        solution = pruner.check_solution(run.solve_whole_master())
        return _final_weights(run, solution)

    found = run_final_search(run, _final_weights(run, solution), reason, again=again)
    weights, reason = found.weights, found.reason
    if reason is StopReason.OPTIMAL and not run.is_proven(solution):
        reason = StopReason.NO_IMPROVING_COLUMN
        run.notes.append(
            "optimal but for the members left out (prune)"
            if len(pruner.barred)
            else "optimal for the rows known before the final weights were checked"
        )
    return FinalSolution(solution, weights, reason)


def _least_slack(run: RunState, solution: MasterSolution) -> MasterSolution:
    """The mixture that misses the rows least in sum, of those the one of the best objective."""
    master = run.work.master
    master.minimise_slack(True)
    least = run.solve_whole_master()
    master.minimise_slack(False)
    if isinstance(master, LinearMaster):
        while master.raise_penalty():
            pass
        return run.solve_whole_master()
    ensemble = run.work.whole_ensemble(least.weights)
    return replace(least, objective=run.work.compute_true_loss(ensemble))


def _final_weights(run: RunState, solution: MasterSolution) -> Array:
    if run.settings.final_weights != "vertex" and not run.has_time("the choice of final weights"):
        return solution.weights
    with run.watch.measure_step("weights"):
        return choose_final_weights(run.work, solution)


def _decided_anew(study: DecisionStudy | None, rule: Requirement) -> Array | None:
    """Of a rule on decisions: those at its inputs by models that were not trained there."""
    if study is None or not isinstance(rule, DecisionRate):
        return None
    return study.decide_listed(rule)


def _audits(
    run: RunState, ensemble: Ensemble, weights: Array, study: DecisionStudy | None
) -> tuple[Audit, ...]:
    """Every requirement audited; over regions by the last search, if it was of this mixture.

    Where time forbade that search, the audit's own is brief, too.
    """
    last = run.recall_search(weights)
    problem = run.problem
    numbers = {id(one): number for number, one in enumerate(problem.requirements)}
    return tuple(
        audit(
            one,
            ensemble,
            tolerance=run.audit_tolerance,
            found=None if last is None else last.found.get(numbers.get(id(one), -1)),
            brief=LAST_SEARCH in run.cut,
            held_out=problem.stated.held_out,
            fresh=_decided_anew(study, one),
        )
        for one in problem.asked
    )


class MemberPruner:
    """Bars members of a linear master while the others meet all rows and the objective allows.

    A vertex of the master gives many members small weights, which cost as much time at every
    prediction as large ones do. They are barred, the master weighs the others anew, and what that
    costs decides whether it stays so.

    `share` of the objective may be given up, and of its mean over each group of scenarios that it
    names. `solve` solves the master with every piece of the objective that matters, `unmet` says
    whether a solution leaves a row short.
    """

    def __init__(
        self,
        work: Workspace,
        share: float,
        *,
        solve: Callable[[], MasterSolution],
        unmet: Callable[[MasterSolution], bool],
    ) -> None:
        self.share, self.solve, self.unmet = share, solve, unmet
        self.blocks = work.columns.blocks
        self.count = len(work.layout)
        self.tolerance = tolerances.FEASIBILITY_TOLERANCE
        self.master = work.master if isinstance(work.master, LinearMaster) else None
        if share and self.master is None:
            work.notes.append("prune was given, but only linear masters can leave members out")
        self.barred = np.empty(0, np.int64)
        self.scenarios = work.scenarios

    def prune(self, solution: MasterSolution) -> MasterSolution:
        """A solution of fewer members that costs little more, or the one given."""
        if not self.share or self.master is None:
            return solution
        most = solution.penalised + self.share * max(1.0, abs(solution.objective))
        means = self._group_means(solution)
        largest = np.zeros(self.count)
        np.maximum.at(largest, self.blocks, solution.weights)
        for share in SHARES:
            small = solution.weights < np.minimum(share, largest[self.blocks])
            if not np.any(small & (solution.weights > 0)):
                break  # nothing to leave out, and at smaller shares neither
            self._bar(np.flatnonzero(small))
            tried = self.solve()
            worse = self._group_means(tried) > means + self.share * np.abs(means)
            if tried.penalised <= most and not worse.any() and not self._lacking(tried):
                return tried
        return self._with_all(solution)

    def check_solution(self, solution: MasterSolution) -> MasterSolution:
        """The solution, or one of all members if rows found since cannot be met without them."""
        return self._with_all(solution) if self._lacking(solution) else solution

    def _group_means(self, solution: MasterSolution) -> Array:
        return (
            np.empty(0) if self.scenarios is None else self.scenarios.group_means(solution.weights)
        )

    def _lacking(self, solution: MasterSolution) -> bool:
        used = float(solution.weights[self.barred].sum())
        return len(self.barred) > 0 and (used > self.tolerance or self.unmet(solution))

    def _with_all(self, solution: MasterSolution) -> MasterSolution:
        if not len(self.barred):
            return solution
        self._bar(self.barred[:0])
        return self.solve()

    def _bar(self, members: IntArray) -> None:
        assert self.master is not None
        self.barred = members
        self.master.bar(members)
