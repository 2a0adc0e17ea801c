"""Refuses numbers so large or small that products of them leave the range of float64.

The margin for rounding is proven without overflow and underflow: within these limits neither
decides anything.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.members.networks import NetworkMembers
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.regions import Ball, Box

LARGEST = 1e60  # of any number in members, rules and region
SMALLEST_SCALE = 1e-60  # of what inputs are divided by


def check_magnitudes(ensemble: Ensemble, rules: AffineRules, region: Box | Ball) -> None:
    """An error that names the first array with a number out of range."""
    lower, upper = region.bounds()
    _check("the region", np.concatenate([lower, upper]))
    if isinstance(region, Ball):
        _check("the region", np.append(region.centre, region.radius))
    _check("the rules' constant coefficients", rules.constant)
    _check("the rules' slopes", rules.value)
    _check("the rules' limits", rules.limit)
    for number, part in enumerate(ensemble.used):
        members = part.members
        for name, array in members.state().arrays.items():
            _check(f"{name} of the members in part {number}", array)
        if isinstance(members, NetworkMembers):
            _check_scale(members, number)


def _check(name: str, array: NDArray[Any]) -> None:
    largest = float(np.abs(array).max(initial=0.0))
    if not largest <= LARGEST:
        raise InvalidInput(
            f"{name} holds a number of size {largest:g}; rounding is accounted for up to "
            f"{LARGEST:g} only: use other units"
        )


def _check_scale(members: NetworkMembers, number: int) -> None:
    architecture = members.architecture
    if architecture.shift is not None:
        _check(f"shift of the members in part {number}", architecture.shift)
    scale = architecture.scale
    if scale is not None and not (scale.min() >= SMALLEST_SCALE and scale.max() <= LARGEST):
        raise InvalidInput(
            f"scale of the members in part {number} runs from {scale.min():g} to {scale.max():g}; "
            f"rounding is accounted for between {SMALLEST_SCALE:g} and {LARGEST:g} only: use "
            "other units"
        )
