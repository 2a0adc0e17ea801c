"""The networks of a trained router without the paths that failed: where routers of failures begin.

Scores of lost paths are left out, so that each softmax goes over the paths that are left: shares
are renormalised, in a form that has no zero to divide by, and the stages that answer loads see
the loads of what is left and move splits on.
"""

from __future__ import annotations

import numpy as np
import torch

from cg4ai.apps.routing.failed import Reduced
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.members.feedback import FeedbackArchitecture, FeedbackMembers
from cg4ai.members.shielded import ShieldedArchitecture, ShieldedMembers
from cg4ai.protocols import Members, Parameters
from cg4ai.records import Array


def inherited(
    router: Ensemble, left: Reduced, architecture: ShieldedArchitecture
) -> tuple[list[Members], Array]:
    """Networks of `architecture`, one for each active one of the router, and their weights (k,).

    The architecture is that of the instance that is left. Other members than networks with feedback
    for all demands are passed over; the weights sum to one, if there are any.
    """
    members: list[Members] = []
    weights: list[float] = []
    inner = architecture.inner
    for part in router.used:
        bare = part.members.inner if isinstance(part.members, ShieldedMembers) else part.members
        if not isinstance(bare, FeedbackMembers) or not isinstance(inner, FeedbackArchitecture):
            continue
        kept = without_lost(bare, left)
        if {name: value.shape[1:] for name, value in kept.items()} != inner.shapes():
            continue
        for number in np.flatnonzero(part.weights):
            own = {name: value[number, None] for name, value in kept.items()}
            members.append(architecture.members(own))
            weights.append(float(part.weights[number]))
    shares = np.array(weights)
    return members, shares / shares.sum() if len(shares) else shares


def without_lost(members: FeedbackMembers, left: Reduced) -> Parameters:
    """The parameters (count, ...) that speak of paths and links that are left."""
    paths, arcs = torch.as_tensor(left.paths), torch.as_tensor(left.arcs)
    depth = members.architecture.network.depth
    last = (f"weight_{depth}", f"bias_{depth}", "skip")
    kept: Parameters = {}
    for name, value in members.parameters.items():
        own = value.cpu()
        if name in last:
            own = own[:, paths]
        elif name.startswith("feedback_"):
            own = own[:, paths][:, :, arcs]
        kept[name] = own.to(value.device)
    return kept
