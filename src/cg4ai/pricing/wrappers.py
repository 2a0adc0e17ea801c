"""Several pricers that take turns, the freest of them whenever rows are missed.

Regularised members generalise but may be too stiff for a row; free members meet rows but learn
noise. Taking turns lets the master choose, and rows do not wait for their turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from cg4ai.protocols import Pricer, PricingRequest
from cg4ai.records import PricingResult
from cg4ai.rules.rows import shortfall

TOLERANCE = 1e-6  # rows missed by more than this, relative to 1 + |bound|, are missed


@dataclass(frozen=True)
class AlternatingPricer:
    """Asks one of `inner` per call: the next by iteration, or `freest` while rows are missed.

    The first call of a run asks for members that fit the data, whatever the prices of rows. Which
    pricer is asked depends on the request alone, so that a resumed run goes on as it would have.
    """

    inner: Sequence[Pricer]
    freest: int

    def price(self, request: PricingRequest) -> PricingResult:
        if request.iteration == 0:
            return self.inner[0].price(_unpriced(request))
        number = request.iteration % len(self.inner)
        if misses_rows(request):
            number = self.freest
        return self.inner[number].price(request)


def _unpriced(request: PricingRequest) -> PricingRequest:
    """Without prices of rows: before anything was trained they only say that slack is dear."""
    zeros = np.zeros_like(request.guide)
    return replace(request, guide=zeros, duals=replace(request.duals, rows=zeros))


def misses_rows(request: PricingRequest) -> bool:
    """Whether the mixture there is now breaks a row; False while there is none."""
    if request.ensemble is None:
        return False
    for rows in request.rows.batches:
        if rows.requirement < 0:  # a piece of the objective
            continue
        inputs = torch.as_tensor(rows.inputs, device=request.device)
        with torch.no_grad():
            values = rows.values(request.ensemble.outputs(inputs)).cpu().numpy()
        if np.any(shortfall(rows.bounds, values) > TOLERANCE * (1.0 + np.abs(rows.bounds))):
            return True
    return False
