"""Small pricing requests for the tests of exact and heuristic pricers."""

import numpy as np

from cg4ai.objectives import AnyObjective
from cg4ai.protocols import PricingRequest
from cg4ai.records import Duals
from cg4ai.rules.rows import LinearRows, RowSet


def make_request(
    objective: AnyObjective, rows: RowSet, *, duals, gammas=None, loss_weight=1.0, ensemble=None
) -> PricingRequest:
    duals = np.asarray(duals, dtype=np.float64)
    gammas = np.zeros(len(rows.layout)) if gammas is None else np.asarray(gammas, dtype=np.float64)
    return PricingRequest(
        iteration=0,
        seed=7,
        duals=Duals(duals, gammas),
        guide=duals,
        rows=rows,
        objective=objective,
        loss_weight=loss_weight,
        ensemble=ensemble,
        device="cpu",
    )


def point_rows(inputs, coefficients, bounds) -> LinearRows:
    return LinearRows(0, inputs, coefficients, np.asarray(bounds), index=np.arange(len(inputs)))
