"""Certification: prove a requirement at every input of a region, or find where it fails."""

from cg4ai.certification.records import Certification, OpenCells, Progress, RuleProof
from cg4ai.certification.rules import AffineCoefficients, AffineFunctional, Rules, rules_of

__all__ = [
    "AffineCoefficients",
    "AffineFunctional",
    "Certification",
    "OpenCells",
    "Progress",
    "RuleProof",
    "Rules",
    "rules_of",
]
