"""What a certification is about, as digests: the mixture, the rules and the region.

A proof holds for these alone; whoever reuses one compares the digests first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.rules.affine import Rules
from cg4ai.rules.regions import Ball, Box
from cg4ai.runs import files

RULE_ARRAYS = {
    "constant": np.float64,
    "limit": np.float64,
    "rule": np.int64,
    "output": np.int64,
    "input": np.int64,
    "value": np.float64,
}


def mixture_digest(ensemble: Ensemble) -> str:
    """SHA-256 of all that the mixture predicts with: members, weights, blocks and layout."""
    parts = [
        [files.member_digest(part.members.state()), part.blocks.tolist(), part.weights.tolist()]
        for part in ensemble.parts
    ]
    layout = [block.tolist() for block in ensemble.layout.blocks]
    return hashlib.sha256(files.json_line([parts, layout])).hexdigest()


def rules_digest(rules: Rules) -> str:
    """SHA-256 of the rules in normal form: coefficients and limits, not where they hold."""
    own = rules.coefficients
    return rule_arrays_digest(
        {
            "constant": own.constant,
            "limit": rules.limit,
            "rule": own.rule,
            "output": own.output,
            "input": own.input,
            "value": own.value,
        }
    )


def rule_arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """`rules_digest` from the arrays named in `RULE_ARRAYS`."""
    total = hashlib.sha256()
    for name, kind in RULE_ARRAYS.items():
        array = np.ascontiguousarray(arrays[name], kind)
        total.update(f"{name} {array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def subject_digest(ensemble: Ensemble, rules: Rules, region: Box | Ball) -> str:
    """SHA-256 of mixture, rules and region; a shielded ensemble is refused."""
    refuse_shield(ensemble)
    ends = [end.tolist() for end in region.bounds()]
    place: list[Any] = ["box", *ends]
    if isinstance(region, Ball):
        place = ["ball", *ends, region.centre.tolist(), region.radius, str(float(region.norm))]
    content = [mixture_digest(ensemble), rules_digest(rules), place]
    return hashlib.sha256(files.json_line(content)).hexdigest()


def refuse_shield(ensemble: Ensemble) -> None:
    """Bounds speak of the mixture; what a shield predicts may be another output."""
    if ensemble.unshielded is not ensemble:
        raise InvalidInput(
            "a shielded ensemble was given, and proofs speak of the mixture behind the shield, "
            "not of what the shield predicts: give ensemble.unshielded"
        )
