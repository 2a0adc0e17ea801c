"""What a certification is about, as digests: the mixture, the rules and the region.

A proof holds for these alone; whoever reuses one compares the digests first.
"""

from __future__ import annotations

import hashlib

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.regions import Region
from cg4ai.runs import files


def mixture_digest(ensemble: Ensemble) -> str:
    """SHA-256 of all that the mixture predicts with: members, weights, blocks and layout."""
    parts = [
        [files.member_digest(part.members.state()), part.blocks.tolist(), part.weights.tolist()]
        for part in ensemble.used
    ]
    layout = [block.tolist() for block in ensemble.layout.blocks]
    return hashlib.sha256(files.json_line([parts, layout])).hexdigest()


def subject_digest(ensemble: Ensemble, rules: AffineRules, region: Region) -> str:
    """SHA-256 of mixture, rules and region; a shielded ensemble is refused."""
    refuse_shield(ensemble)
    content = [mixture_digest(ensemble), rules.digest, region.record()]
    return hashlib.sha256(files.json_line(content)).hexdigest()


def refuse_shield(ensemble: Ensemble) -> None:
    """Bounds speak of the mixture; what a shield predicts may be another output."""
    if ensemble.unshielded is not ensemble:
        raise InvalidInput(
            "a shielded ensemble was given, and proofs speak of the mixture behind the shield, "
            "not of what the shield predicts: give ensemble.unshielded"
        )
