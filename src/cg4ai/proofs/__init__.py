"""Certification: prove a requirement at every input of a region, or find where it fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cg4ai.exports import lazy_exports

if TYPE_CHECKING:
    from cg4ai.proofs.cell_bounds import CellBounds
    from cg4ai.proofs.certificate import verify_certification
    from cg4ai.proofs.certification import certify
    from cg4ai.proofs.records import Certification, OpenCells, Progress, RuleProof
    from cg4ai.rules.affine import AffineRules, find_affine_rules
    from cg4ai.rules.coefficients import AffineCoefficients, AffineFunctional
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "cg4ai.proofs.cell_bounds": ["CellBounds"],
            "cg4ai.proofs.certificate": ["verify_certification"],
            "cg4ai.proofs.certification": ["certify"],
            "cg4ai.proofs.records": ["Certification", "OpenCells", "Progress", "RuleProof"],
            "cg4ai.rules.affine": ["AffineRules", "find_affine_rules"],
            "cg4ai.rules.coefficients": ["AffineCoefficients", "AffineFunctional"],
        },
    )

__all__ = [
    "AffineCoefficients",
    "AffineFunctional",
    "AffineRules",
    "CellBounds",
    "Certification",
    "OpenCells",
    "Progress",
    "RuleProof",
    "certify",
    "find_affine_rules",
    "verify_certification",
]
