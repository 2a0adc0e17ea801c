"""Trees made as fine as the checker wants them: the search goes on with the checker's own bound.

The checker bounds a cell less tightly than the search, which has lines of two slopes, and halves
what it cannot close by a guess, for so many cells at most. A tree whose leaves it closes at once
is checked in a fraction of the time, and not rejected for want of cells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from cg4ai import clock
from cg4ai.checker.bound import rule_bound
from cg4ai.checker.cells import Cells as CheckedCells
from cg4ai.checker.claim import Claim
from cg4ai.checker.file import parse_certificate
from cg4ai.checker.region import Region as CheckedRegion
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.proofs.bounds.bound import CellBound, Cells
from cg4ai.proofs.bounds.search import Search
from cg4ai.proofs.certificate import claim_bytes
from cg4ai.proofs.records import Certification, RuleProof
from cg4ai.proofs.rules import ProofRules
from cg4ai.records import Array
from cg4ai.rules.regions import Region

BATCH = 1024  # cells bounded at once


def refined(
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
    data = claim_bytes(ensemble, rules, region=region, certification=certification)
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
