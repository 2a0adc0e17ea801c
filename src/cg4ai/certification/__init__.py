"""Certification: prove a requirement at every input of a region, or find where it fails."""

from cg4ai.certification.certify import certify
from cg4ai.certification.records import Certification, OpenCells, Progress, RuleProof
from cg4ai.certification.rules import AffineCoefficients, AffineFunctional, Rules, rules_of
from cg4ai.certification.training import CellBounds

__all__ = [
    "AffineCoefficients",
    "AffineFunctional",
    "CellBounds",
    "Certification",
    "OpenCells",
    "Progress",
    "RuleProof",
    "Rules",
    "certify",
    "rules_of",
]
