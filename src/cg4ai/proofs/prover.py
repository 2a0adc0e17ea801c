"""`Prover`: a separator that proves; the cells it cannot close are remembered for training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cg4ai import clock
from cg4ai.clock import Deadline
from cg4ai.colgen.separation.scan import collect_violations
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.members.mixture import Mixture
from cg4ai.proofs.bounds.bound import CellBound, Cells
from cg4ai.proofs.bounds.search import Search
from cg4ai.proofs.certificate import build_claim, verify_rules
from cg4ai.proofs.certification import certify
from cg4ai.proofs.records import Certification, RuleCells, RuleProof
from cg4ai.proofs.rule_forms import ProofRules, find_proof_rules
from cg4ai.protocols import SeparatorDefaults
from cg4ai.records import Array, IntArray, PartState, SeparationResult
from cg4ai.rules import Requirement
from cg4ai.rules.regions import Ball, Box, Region
from cg4ai_checker.bound import rule_bound
from cg4ai_checker.cells import Cells as CheckedCells
from cg4ai_checker.claim import Claim
from cg4ai_checker.file import parse_certificate
from cg4ai_checker.region import Region as CheckedRegion

LEAST_S = 0.1  # a proof is tried for this long, even past its deadline
SURVEY = 0.5  # of the cells of a proof, after which it goes on only if
HOPELESS = 0.5  # less than this share of the cells bounded is open
MOST_FINER = 64.0  # times as many cells as there were are trained for at most
AFFORDED = 0.4  # share of the time left that the next proof may take, training being before it
PER_RULE = 250  # cells kept of each rule after a proof was tried
NEAR = 0.01  # closed cells whose bound is no further below the limit count like open ones


def collect_cells(
    answer: Certification, region: Box | Ball, *, seed: int, halvings: int = 0
) -> RuleCells:
    """Cells where a proof is open or tight, as many of every rule: leaves of its trees.

    Training has to lower the bound of the open ones and to leave that of the tight ones where it
    is. Wider cells that were halved on the way say nothing any more. Where the next proof may take
    more cells than this one, leaves are halved further, at random along dimensions in proportion
    to how often the tree was: members would else be trained to need no more cells than before.
    """
    made = np.random.default_rng(seed)
    lower, upper = region.bounds()
    rules, lowers, uppers = [np.empty(0, np.int64)], [lower[None][:0]], [upper[None][:0]]
    for proof in answer.rules:
        counts = (proof.leaf_bounds > proof.limit - NEAR) & np.isfinite(proof.leaf_bounds)
        chosen = np.sort(made.permutation(np.flatnonzero(counts))[:PER_RULE])
        low, high = compute_leaf_corners(proof.dimensions, chosen, lower=lower, upper=upper)
        for _ in range(halvings):
            _halve(low, high, proof.dimensions[proof.dimensions >= 0], made)
        rules.append(np.full(len(chosen), proof.rule))
        lowers.append(low)
        uppers.append(high)
    return RuleCells(np.concatenate(rules), np.concatenate(lowers), np.concatenate(uppers))


def _halvings(room: float, cells: int) -> int:
    """Of a leaf, where `cells` were bounded and there may be about `room`."""
    return round(2 * math.log2(min(max(1.0, room / max(1, cells)), MOST_FINER)))


def _halve(low: Array, high: Array, halved: NDArray[np.int16], made: np.random.Generator) -> None:
    """Replace each cell by a random half of it, along one of the dimensions `halved`."""
    if not len(halved) or not len(low):
        return
    rows, along = np.arange(len(low)), made.choice(halved, len(low))
    middle = 0.5 * (low[rows, along] + high[rows, along])
    upper_half = made.random(len(low)) < 0.5
    low[rows, along] = np.where(upper_half, middle, low[rows, along])
    high[rows, along] = np.where(upper_half, high[rows, along], middle)


def compute_leaf_corners(
    dimensions: NDArray[np.int16], leaves: IntArray, *, lower: Array, upper: Array
) -> tuple[Array, Array]:
    """Corners (m, d) of the leaves with these numbers, of a tree in preorder (see `RuleProof`)."""
    halved = dimensions.tolist()
    above, waiting = [], [(-1, 0)]  # of every node: its parent, and which half of it
    for node, dimension in enumerate(halved):
        above.append(waiting.pop())
        if dimension >= 0:
            waiting += [(node, 1), (node, 0)]
    nodes = np.flatnonzero(dimensions < 0)[leaves]
    low, high = np.tile(lower, (len(nodes), 1)), np.tile(upper, (len(nodes), 1))
    for number, leaf in enumerate(nodes.tolist()):
        path, node = [], leaf
        while node:
            node, half = above[node]
            path.append((halved[node], half))
        for dimension, half in reversed(path):
            end = low if half else high
            end[number, dimension] = 0.5 * (low[number, dimension] + high[number, dimension])
    return low, high


class CellMemory:
    """Cells of a requirement, over a box or ball, where the latest proof was open or tight."""

    def __init__(self, requirement: Requirement) -> None:
        region = requirement.region
        if not isinstance(region, Box | Ball):
            raise InvalidInput(
                f"{requirement.name} is over no Box or Ball, so it has no cells to prove",
                code="unsupported",
            )
        self.requirement, self.region = requirement, region
        size = len(region.bounds()[0])
        self.cells = RuleCells(np.empty(0, np.int64), np.empty((0, size)), np.empty((0, size)))

    def __len__(self) -> int:
        return len(self.cells)

    def learn(self, answer: Certification, *, seed: int, halvings: int = 0) -> None:
        """Take the cells of this proof in place of those of the one before."""
        self.cells = collect_cells(answer, self.region, seed=seed, halvings=halvings)

    def state(self) -> dict[str, NDArray[Any]]:
        """All of it as named arrays, for a checkpoint."""
        return {
            "rules": self.cells.rules,
            "lower": self.cells.lower,
            "upper": self.cells.upper,
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` returned."""
        self.cells = RuleCells(state["rules"], state["lower"], state["upper"])


@dataclass(frozen=True, slots=True)
class ProofResult(SeparationResult):
    """Rows at the inputs that refute a rule, and all that was proven."""

    certification: Certification = field(kw_only=True)


class Prover(SeparatorDefaults):
    """Bounds all cells of the region for one mixture; what stays open goes to `memory`.

    `cells` are bounded by the first proof at most, `growth` times more by each later one: members
    trained for a proof are worth more effort. `deadline` ends a proof early.
    """

    def __init__(self, memory: CellMemory, *, cells: int, growth: float, device: str) -> None:
        self.memory, self.cells, self.growth, self.device = memory, cells, growth, device
        self.tried = 0
        self.deadline = Deadline()
        self.cut = False

    def find(
        self,
        ensemble: Mixture,
        requirement: Requirement,
        *,
        seed: int,
        limit: int,
        tolerance: float,
    ) -> ProofResult:
        """Rows violated at the inputs that refute a rule; none if all are proven.

        `seed` chooses among the cells left open.
        """
        if not isinstance(ensemble, Ensemble):
            raise InvalidInput(
                f"only ensembles can be proven, got a {type(ensemble).__name__}", code="type"
            )
        answer = self._answer(ensemble, requirement, seed=seed)
        self.tried += 1
        effort = {"search": "proof", "cells": answer.cells}
        if not answer.violations:
            return ProofResult(None, np.empty(0), answer.excess, effort, certification=answer)
        points = np.stack(list(answer.violations.values()))
        found = collect_violations(
            ensemble, requirement, points, limit=limit, tolerance=tolerance, effort=effort
        )
        return ProofResult(found.rows, found.violations, found.worst, effort, certification=answer)

    def _answer(self, ensemble: Ensemble, requirement: Requirement, *, seed: int) -> Certification:
        """As far as the search comes, in trees that the checker closes as they are."""
        started, left = clock.now(), max(LEAST_S, self.deadline.compute_seconds_left())
        cell_limit = int(self.cells * self.growth**self.tried)
        until = started + left
        first = math.ceil(SURVEY * cell_limit)
        answer = self._search(ensemble, requirement, cells=first, until=until)
        promising = len(answer.open_cells) < HOPELESS * answer.cells
        if answer.status == "unknown" and promising and clock.now() < until:
            answer = self._search(
                ensemble, requirement, cells=cell_limit - first, until=until, resume=answer
            )
        found = answer
        if answer.status == "proven":
            rules = find_proof_rules(requirement, output_size=ensemble.output_size)
            region = self.memory.region
            answer = refine(
                answer, ensemble, rules, region=region, cell_limit=cell_limit, until=until
            )
            left = until - clock.now()
            answer = verify_rules(answer, ensemble, rules, region=region, time_limit_s=left)
            answer = replace(answer, seconds=clock.now() - started)
        # cells to train on are those of the search: the checker's are smaller
        halvings = self._count_halvings(found.cells, answer, cell_limit)
        self.memory.learn(found, seed=seed, halvings=halvings)
        return answer

    def _count_halvings(self, cells: int, answer: Certification, cell_limit: int) -> int:
        """How much finer cells may be to train on: as the next proof may have, and has time for.

        Hardly any leaf takes all the halves: each doubling of cells allows for two halvings.
        """
        allowed = _halvings(cell_limit, cells)
        left = self.deadline.compute_seconds_left()
        affordable = AFFORDED * left * max(1, answer.cells) / max(answer.seconds, LEAST_S)
        found = min(allowed, _halvings(affordable, cells))
        self.cut = found < allowed
        return found

    def _search(
        self,
        ensemble: Ensemble,
        requirement: Requirement,
        *,
        cells: int,
        until: float,
        resume: Certification | None = None,
    ) -> Certification:
        return certify(
            ensemble,
            requirement,
            time_limit_s=max(LEAST_S, until - clock.now()),
            cell_limit=max(1, cells),
            device=self.device,
            resume=resume,
            all_rules=True,
            verify=False,
            tolerance=0.0,  # what is missed by less is mended, too
        )

    def state(self) -> PartState:
        return PartState({"tried": self.tried}, self.memory.state())

    def restore(self, state: PartState) -> None:
        self.tried = int(state.values["tried"])
        self.memory.restore(state.arrays)


BATCH = 1024  # cells bounded at once


def refine(
    certification: Certification,
    ensemble: Ensemble,
    rules: ProofRules,
    *,
    region: Region,
    cell_limit: int,
    until: float,
) -> Certification:
    """A proven certification with finer trees, as far as `cell_limit` cells and the time go.

    It is as it was where they do not suffice: the checker has the last word in any case. Rules
    with shares or multipliers, which belong to the cells of the search, stay as they are.
    """
    data = build_claim(ensemble, rules, region=region, certification=certification)
    proofs, left = [], cell_limit
    with np.errstate(over="ignore", invalid="ignore"):
        claim = Claim(parse_certificate(data))
        for proof in certification.rules:
            plain = proof.leaf_uses is None or not proof.leaf_uses.size
            proof, spent = _finer(proof, claim, cells=left, until=until) if plain else (proof, 0)
            proofs.append(proof)
            left -= spent
    cells = certification.cells + cell_limit - left
    return replace(certification, rules=tuple(proofs), cells=cells)


def _finer(proof: RuleProof, claim: Claim, *, cells: int, until: float) -> tuple[RuleProof, int]:
    """The proof with every leaf closed by the checker's bound, and how many cells that took."""
    place = claim.region
    search = Search(float(claim.target[proof.rule]), 0.0, lower=place.lower, upper=place.upper)
    search.resume(proof.dimensions, np.full(len(proof.leaf_bounds), np.inf), cells=0)
    bound = _bounder(claim, proof.rule)
    while search.waiting and search.cells < cells and clock.now() < until:
        search.step(BATCH, bound, outside=_outside(place))
    if search.open:
        return proof, search.cells
    dimensions, leaf_bounds, _ = search.preorder()
    finer = replace(
        proof,
        bound=min(proof.bound, search.bound),
        dimensions=dimensions,
        leaf_bounds=leaf_bounds,
        cells=proof.cells + search.cells,
    )
    return finer, search.cells


def _bounder(claim: Claim, rule: int) -> Callable[[Cells], CellBound]:
    terms = claim.terms(rule)

    def bound(cells: Cells) -> CellBound:
        own = CheckedCells(cells.lower.numpy(), cells.upper.numpy())
        found = rule_bound(terms, own, claim.region)
        blame = torch.as_tensor(found.blame)
        return CellBound(torch.as_tensor(found.value), blame, torch.zeros_like(blame))

    return bound


def _outside(region: CheckedRegion) -> Callable[[Array, Array], NDArray[np.bool_]]:
    return lambda lower, upper: np.asarray(region.missed_by(CheckedCells(lower, upper)))
