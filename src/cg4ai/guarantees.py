"""Guarantees: anchors, audits, claims, proofs and certificates of a trained mixture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cg4ai.exports import lazy_exports

if TYPE_CHECKING:
    from cg4ai.anchors.affine_maps import AffineMap
    from cg4ai.anchors.search import NoAnchor, check_given, find_anchor
    from cg4ai.conflicts.conflict import Conflict
    from cg4ai.conflicts.outputs import contradiction
    from cg4ai.ensemble.audit import Audit, audit
    from cg4ai.ensemble.claims import record_audited, record_certified
    from cg4ai.ensemble.ensemble import record_regions
    from cg4ai.ensemble.shield import ShieldedEnsemble
    from cg4ai.proofs.cell_bounds import CellBounds
    from cg4ai.proofs.certificate import CERTIFICATE_FILE, verify_certification, write_certificate
    from cg4ai.proofs.certification import certify
    from cg4ai.proofs.leaves import largest_rule_values
    from cg4ai.proofs.phase import ProofRecipe
    from cg4ai.proofs.pricer import ProofTraining
    from cg4ai.proofs.records import Certification, OpenCells, Progress, RuleProof, Totals
    from cg4ai.proofs.rule_forms import count_rules
    from cg4ai.proofs.solve_certified import CertifiedResult, solve_certified
    from cg4ai.proofs.structure_certificates import seal_certificate
    from cg4ai.records import Strength
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "cg4ai.anchors.affine_maps": ["AffineMap"],
            "cg4ai.anchors.search": ["NoAnchor", "check_given", "find_anchor"],
            "cg4ai.conflicts.conflict": ["Conflict"],
            "cg4ai.conflicts.outputs": ["contradiction"],
            "cg4ai.ensemble.audit": ["Audit", "audit"],
            "cg4ai.ensemble.claims": ["record_audited", "record_certified"],
            "cg4ai.ensemble.ensemble": ["record_regions"],
            "cg4ai.ensemble.shield": ["ShieldedEnsemble"],
            "cg4ai.proofs.cell_bounds": ["CellBounds"],
            "cg4ai.proofs.certificate": [
                "CERTIFICATE_FILE",
                "verify_certification",
                "write_certificate",
            ],
            "cg4ai.proofs.certification": ["certify"],
            "cg4ai.proofs.leaves": ["largest_rule_values"],
            "cg4ai.proofs.phase": ["ProofRecipe"],
            "cg4ai.proofs.pricer": ["ProofTraining"],
            "cg4ai.proofs.records": [
                "Certification",
                "OpenCells",
                "Progress",
                "RuleProof",
                "Totals",
            ],
            "cg4ai.proofs.rule_forms": ["count_rules"],
            "cg4ai.proofs.solve_certified": ["CertifiedResult", "solve_certified"],
            "cg4ai.proofs.structure_certificates": ["seal_certificate"],
            "cg4ai.records": ["Strength"],
        },
    )

__all__ = [
    "CERTIFICATE_FILE",
    "AffineMap",
    "Audit",
    "CellBounds",
    "Certification",
    "CertifiedResult",
    "Conflict",
    "NoAnchor",
    "OpenCells",
    "Progress",
    "ProofRecipe",
    "ProofTraining",
    "RuleProof",
    "ShieldedEnsemble",
    "Strength",
    "Totals",
    "audit",
    "certify",
    "check_given",
    "contradiction",
    "count_rules",
    "find_anchor",
    "largest_rule_values",
    "record_audited",
    "record_certified",
    "record_regions",
    "seal_certificate",
    "solve_certified",
    "verify_certification",
    "write_certificate",
]
