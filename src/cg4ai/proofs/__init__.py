"""Certification: prove a requirement at every input of a region, or find where it fails."""

from cg4ai.proofs.cell_bounds import CellBounds
from cg4ai.proofs.certificate import verify_certification
from cg4ai.proofs.certify import certify
from cg4ai.proofs.records import Certification, OpenCells, Progress, RuleProof
from cg4ai.rules.affine import AffineRules, find_affine_rules
from cg4ai.rules.coefficients import AffineCoefficients, AffineFunctional

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
