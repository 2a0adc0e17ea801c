"""The end of a run: final weights, fewer members, the last look for violations, and audits."""

from __future__ import annotations

from cg4ai.ensemble.audit import audit
from cg4ai.records import StopReason
from cg4ai.solving.cuts import separate
from cg4ai.solving.interrupts import Interrupts
from cg4ai.solving.lean import Lean
from cg4ai.solving.problem import Result
from cg4ai.solving.state import RunState


def finish(state: RunState, reason: StopReason, interrupts: Interrupts) -> Result:
    """Final weights, separated again until nothing is found; then audits of every rule."""
    if state.slack_phase:
        state.work.master.minimise_slack(False)
        state.slack_phase = False
    lean = Lean(state.work, state.settings.lean, solve=state.solve_whole_master, unmet=state.unmet)
    solution = lean.reduced(state.solve_whole_master())
    weights = state.work.final_weights(solution)
    rounds = state.settings.final_rounds - state.returns
    if reason is StopReason.INTERRUPTED:
        rounds = 0
    for number in range(rounds):
        ensemble = state.work.whole_ensemble(weights)
        try:
            _, added = separate(state, ensemble, f"final {number}", interrupts, last=True)
        except KeyboardInterrupt:
            reason = StopReason.INTERRUPTED
            break
        if not added:
            break
        solution = lean.checked(state.solve_whole_master())
        weights = state.work.final_weights(solution)
    if reason is StopReason.OPTIMAL and not state.proven(solution):
        reason = StopReason.NO_IMPROVING_COLUMN
        state.notes.append(
            "optimal but for the members left out (lean)"
            if len(lean.barred)
            else "optimal for the rows known before the final weights were checked"
        )
    state.work.note_dummies(solution)
    ensemble = state.work.whole_ensemble(weights)
    audits = tuple(
        audit(requirement, ensemble, tolerance=10 * state.settings.feasibility_tolerance)
        for requirement in state.problem.requirements
    )
    return Result(
        ensemble=ensemble,
        stop_reason=reason,
        objective=solution.objective,
        loss=state.work.true_loss(ensemble),
        bound=state.bound,
        slack=state.lacking(solution),
        columns=len(state.work.columns),
        rows=len(state.work.rows),
        audits=audits,
        history=tuple(state.history),
        note="; ".join([*state.notes, *state.work.notes]),
        seconds=state.elapsed(),
        rule_rows=int(state.work.requirement_rows().sum()),
    )
