"""Routers with a proof: train, weigh, prove, and train again on the cells that resist.

    first group -> master over cells and points -> prove -> proven: done
                        ^                            | open cells, violations
                        +--- new group, trained against the bound on those cells

A proof speaks of one choice of weights, so every round proves anew, all of the box.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from cg4ai.apps.routing.cells import CellMemory, cells_of
from cg4ai.apps.routing.members import RoutingPricer
from cg4ai.apps.routing.problem import first_request
from cg4ai.apps.routing.proof_training import ProofTraining, train_against_bound
from cg4ai.apps.routing.proof_weights import Weighed, weigh
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.networks import NetworkMembers
from cg4ai.proofs import Certification, certify
from cg4ai.records import IterationRecord, StopReason
from cg4ai.rules import Linear
from cg4ai.seeds import derived_seed
from cg4ai.separation import GradientAscent
from cg4ai.settings import Settings
from cg4ai.solving.problem import Problem
from cg4ai.solving.result import Result

COARSEST = 0.016  # an anchor that makes up for more at the corner of the box takes over


@dataclass(frozen=True)
class ProofRecipe:
    """How a router is trained for a proof; one set of defaults for all networks.

    rounds: proofs tried at most, each after a group of members trained for it.
    cells: cells of the first attempt; each later one may take `growth` times more.
    groups: how many of the latest groups the master may mix; each makes proofs dearer.
    coarse: the master keeps cells whose bound is at most this far above the limit; the others
        are left to halving and training. Lowered after a proof, raised after an attempt that
        failed; after `patience` of these the master keeps all cells once, which the anchors make
        possible.
    close: a proven mixture is good enough if its mean MLU is within this of what the master
        could reach without cells; otherwise training goes on while that helps, `patience` rounds
        being given.
    training: of the groups after the first.
    """

    rounds: int = 40
    cells: int = 150_000
    growth: float = 1.2
    groups: int = 1
    coarse: float = 0.002
    patience: int = 3
    close: float = 0.003
    training: ProofTraining = field(default_factory=ProofTraining)


@dataclass(frozen=True)
class CertifiedResult:
    """The loop's result, and the proof of it or how far it came."""

    result: Result
    certification: Certification


def certified(
    problem: Problem,
    settings: Settings,
    *,
    recipe: ProofRecipe | None = None,
    progress: Callable[[IterationRecord], None] | None = None,
) -> CertifiedResult:
    """Train until the whole box is proven for the final weights, or a limit ends the run."""
    run = _Proving(problem, settings, recipe or ProofRecipe())
    return run.run(progress)


class _Proving:
    def __init__(self, problem: Problem, settings: Settings, recipe: ProofRecipe) -> None:
        self.problem, self.settings, self.recipe = problem, settings, recipe
        requirement, pricer = problem.requirements[0], problem.pricers[0]
        assert isinstance(requirement, Linear)
        assert isinstance(pricer, RoutingPricer)
        self.requirement, self.pricer = requirement, pricer
        self.anchors = [members for members, _ in problem.start]
        self.groups: list[NetworkMembers] = []
        self.memory = CellMemory(requirement)
        self.coarse = recipe.coarse
        self.history: list[IterationRecord] = []
        self.seconds = {"pricing": 0.0, "separation": 0.0, "master": 0.0}
        self.started = time.perf_counter()

    def run(self, progress: Callable[[IterationRecord], None] | None) -> CertifiedResult:
        best: tuple[Weighed, Certification] | None = None
        waiting = 0  # rounds since a proof, or a better one
        while True:
            before = dict(self.seconds)
            self._train()
            safe = best is None and waiting >= self.recipe.patience
            weighed = self._weigh(np.inf if safe else self.coarse)
            self._attack(weighed.ensemble)
            answer = self._prove(weighed.ensemble)
            self._record(weighed, answer, before)
            if progress is not None:
                progress(self.history[-1])
            proven = answer.status == "proven"
            if not safe:  # leave more to halving as long as that suffices
                self.coarse = self.coarse / 4 if proven else min(2 * self.coarse, COARSEST)
            if proven and (
                best is None or weighed.objective < best[0].objective - self.recipe.close / 10
            ):
                best, waiting = (weighed, answer), 0
            elif proven or best is None:  # failures after a proof say nothing of what is reachable
                waiting += 1
            reason = self._ended(best, waiting)
            if reason is not None:
                final = best if best is not None else (weighed, answer)
                return CertifiedResult(self._result(*final, reason), final[1])
            seed = derived_seed(self.settings.seed, len(self.history), "cells")
            self.memory.add(cells_of(answer, seed=seed), answer.violations)

    def _ended(self, best: tuple[Weighed, Certification] | None, waiting: int) -> StopReason | None:
        """A proof is improved while the anchors hold it back and rounds still help."""
        if best is not None:
            settled = best[0].objective <= best[0].unanchored + self.recipe.close
            if settled or waiting >= self.recipe.patience:
                return StopReason.PROVEN
        limit = None
        if self._elapsed() >= self.settings.time_limit_s:
            limit = StopReason.TIME_LIMIT
        elif len(self.history) >= self.recipe.rounds:
            limit = StopReason.ITERATION_LIMIT
        return StopReason.PROVEN if limit is not None and best is not None else limit

    def _train(self) -> None:
        started = time.perf_counter()
        if not self.groups:
            self.groups.append(self._first())
        else:
            self.groups.append(
                train_against_bound(
                    self.groups[-1],
                    self.pricer,
                    self.problem,
                    memory=self.memory,
                    training=self.recipe.training,
                    seed=derived_seed(self.settings.seed, len(self.history), "proof"),
                )
            )
        self.seconds["pricing"] += time.perf_counter() - started

    def _first(self) -> NetworkMembers:
        """One group trained as the usual loop does, with attacks on itself."""
        seed = derived_seed(self.settings.seed, 0, "first group")
        proposed = self.pricer.price(
            first_request(self.problem, seed=seed, device=self.settings.device, attacked=True)
        )
        for rows in proposed.rows:
            self.memory.add_points(rows)
        members = proposed.members
        if not isinstance(members, NetworkMembers):
            raise RuntimeError("the first group of networks could not be trained")
        return members

    def _weigh(self, coarse: float) -> Weighed:
        started = time.perf_counter()
        weighed = weigh(
            self.problem,
            self.settings,
            anchors=[m for m in self.anchors if isinstance(m, ConstantMembers)],
            groups=self.groups[-self.recipe.groups :],
            memory=self.memory,
            coarse=coarse,
        )
        self.seconds["master"] += time.perf_counter() - started
        return weighed

    def _attack(self, ensemble: Ensemble) -> None:
        started = time.perf_counter()
        search = self.requirement.separator
        assert isinstance(search, GradientAscent)
        found = search.find(
            ensemble,
            self.requirement,
            seed=derived_seed(self.settings.seed, len(self.history), "proof attack"),
            limit=64,
            tolerance=-self.recipe.training.headroom,
        )
        if found.rows is not None:
            self.memory.add_points(found.rows)
        self.seconds["separation"] += time.perf_counter() - started

    def _prove(self, ensemble: Ensemble) -> Certification:
        started = time.perf_counter()
        cells = int(self.recipe.cells * self.recipe.growth ** len(self.history))
        left = max(1.0, self.settings.time_limit_s - self._elapsed())
        answer = certify(
            ensemble,
            self.requirement,
            time_limit_s=left,
            cell_limit=cells,
            device=self.settings.device,
            all_rules=True,
        )
        self.seconds["separation"] += time.perf_counter() - started
        return answer

    def _elapsed(self) -> float:
        return time.perf_counter() - self.started

    def _record(self, weighed: Weighed, answer: Certification, before: dict[str, float]) -> None:
        spent = {name: self.seconds[name] - before[name] for name in before}
        resisting = [proof for proof in answer.rules if proof.status != "proven"]
        note = (
            f"proven in {answer.cells} cells"
            if answer.status == "proven"
            else f"{len(resisting)} of {len(answer.rules)} links resist, "
            f"{len(answer.open_cells)} cells open"
        )
        note += f", anchors {100 * weighed.anchored:.0f} % (without cells {weighed.unanchored:.4f})"
        worst = answer.counterexample_value
        self.history.append(
            IterationRecord(
                iteration=len(self.history),
                objective=weighed.objective,
                slack=weighed.slack,
                worst_violation=None if worst is None else worst - 1.0,
                best_reduced_cost=None,
                bound=None,
                columns=self._columns(),
                rows=len(self.memory),
                added_columns=len(self.problem.layout),
                added_rows=len(answer.open_cells),
                penalty=0.0,
                master_s=spent["master"],
                pricing_s=spent["pricing"],
                separation_s=spent["separation"],
                total_s=self._elapsed(),
                note=note,
            )
        )

    def _columns(self) -> int:
        return (len(self.anchors) + len(self.groups)) * len(self.problem.layout)

    def _result(self, weighed: Weighed, answer: Certification, reason: StopReason) -> Result:
        note = "" if reason is StopReason.PROVEN else resisting_note(answer)
        return Result(
            ensemble=weighed.ensemble,
            stop_reason=reason,
            objective=weighed.objective,
            loss=weighed.objective,
            bound=None,
            slack=weighed.slack,
            columns=self._columns(),
            rows=len(self.memory),
            audits=(),
            history=tuple(self.history),
            note=note,
            seconds=self._elapsed(),
        )


def resisting_note(answer: Certification) -> str:
    """Which rules are not proven, and the best bound of each."""
    left = [proof for proof in answer.rules if proof.status != "proven"]
    words = [f"rule {proof.rule} ({proof.status}, at most {proof.bound:.4f})" for proof in left]
    shown = ", ".join(words[:5]) + (", ..." if len(words) > 5 else "")
    return f"not proven: {shown}"
