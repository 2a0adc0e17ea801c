"""The checker has the last word: what it rejects is not proven, whatever the search found."""

from __future__ import annotations

from dataclasses import replace

from cg4ai.checker import Rejected, check
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.proofs.certificate import claim_bytes
from cg4ai.proofs.records import Certification
from cg4ai.rules import Requirement
from cg4ai.rules.affine import AffineRules, rules_of
from cg4ai.rules.regions import Ball, Box


def verified(
    certification: Certification, ensemble: Ensemble, requirement: Requirement
) -> Certification:
    """A proven certification as `checked`, or as unknown with the checker's reason in its note.

    What is not proven, or was checked before, comes back as it is.
    """
    region = requirement.region
    if not isinstance(region, Box | Ball):
        raise InvalidInput(
            f"{requirement.name} is not over a Box or Ball; only these are certified"
        )
    rules = rules_of(requirement, output_size=ensemble.output_size)
    return verified_rules(certification, ensemble, rules, region=region)


def verified_rules(
    certification: Certification, ensemble: Ensemble, rules: AffineRules, *, region: Box | Ball
) -> Certification:
    """As `verified`, for rules in normal form and any region."""
    if certification.status != "proven" or certification.checked:
        return certification
    try:
        check(claim_bytes(ensemble, rules, region=region, certification=certification))
    except (Rejected, InvalidInput) as error:
        return replace(
            certification,
            status="unknown",
            rules=tuple(replace(proof, status="unknown") for proof in certification.rules),
            note=f"the search closed every cell, but the checker says: {error}",
            exhausted=True,
        )
    return replace(certification, checked=True)
