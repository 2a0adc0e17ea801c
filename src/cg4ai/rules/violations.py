"""Predictions at many inputs, and by how much they break a rule: what searches and audits share."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.records import Array
from cg4ai.rules.regions import Region
from cg4ai.rules.requirement import Requirement

CHUNK = 8192  # inputs evaluated in one call: bounds memory when pools are large
SCREENED = 512  # random inputs looked at before a search: evaluating is cheaper than climbing


class OutputModel(Protocol):
    """All that a separator uses of an ensemble."""

    @property
    def device(self) -> torch.device: ...

    @property
    def differentiable(self) -> bool: ...

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) float64 -> (n, r)."""
        ...


def predictions(mixture: OutputModel, inputs: Array) -> Tensor:
    """Outputs (n, r) in float64 on CPU, without gradients, in chunks."""
    with torch.no_grad():
        parts = [
            mixture.outputs(torch.as_tensor(inputs[start : start + CHUNK], dtype=torch.float64))
            for start in range(0, len(inputs), CHUNK)
        ]
    return torch.cat(parts).to(device="cpu", dtype=torch.float64)


def sample_candidates(region: Region, vertices: int, generator: torch.Generator) -> Array:
    """Inputs to screen, (n, d): the centre, random ones, and up to `vertices` vertices."""
    parts = [torch.as_tensor(region.middle)[None], region.sample(SCREENED, generator)]
    if vertices:
        parts.append(region.extremes(vertices, generator))
    return torch.cat(parts).numpy()


def region_violations(mixture: OutputModel, requirement: Requirement, inputs: Array) -> Array:
    """(n, rules) recomputed in float64; refuses predictions that are no numbers."""
    parts = []
    for start in range(0, len(inputs), CHUNK):
        part = np.array(inputs[start : start + CHUNK], dtype=np.float64)
        with torch.no_grad():
            x = torch.as_tensor(part).to(mixture.device)
            found = requirement.violations(x, mixture.outputs(x).to(torch.float64))
        parts.append(found.cpu().numpy())
    violations = np.concatenate(parts)
    check_finite(violations, requirement.name)
    return violations


def check_finite(values: Array, name: str) -> None:
    if not np.isfinite(values).all():
        raise InvalidInput(
            f"the mixture's values for {name} are not finite at some inputs; look for members "
            "whose training diverged",
            code="not-finite",
        )
