"""One decision for each input, where rules bind decisions: thresholds on scores.

The class decided for is that of the largest `sum_i w_i s_i(x) + offsets`, with weights of the
members' scores s_i that are chosen for decisions alone. Of two classes that is a threshold on one
score. A decision depends on rounding only where two classes are next to equal (`NEAR`), which is
counted against rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.mixture import Mixture, Part
from cg4ai.records import Array, IntArray

NEAR = 1e-9  # of the size of scores: how far rounding moves them, with room
AGREED = 1e-6  # by how much a class must lead in the scores of each member for all to agree on it
CHUNK = 16_384  # inputs at once: members hold more numbers inside than they put out


class Decisions(NamedTuple):
    """The classes decided for (n,), and for which of them rounding may change that (n, r)."""

    classes: IntArray
    unsure: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Decider:
    """How an ensemble decides: `weights` (m,) of all its members in order, `offsets` (r,).

    With `agreement` a class that leads in every member's scores is decided for in any case. So what
    rules over regions say of each member's largest score holds for decisions.
    """

    weights: Array
    offsets: Array
    agreement: bool = False

    def record(self) -> dict[str, Any]:
        """Plain data, for `Decider.of`."""
        return {
            "weights": self.weights.tolist(),
            "offsets": self.offsets.tolist(),
            "agreement": self.agreement,
        }

    @classmethod
    def of(cls, record: Any, members: int, classes: int) -> Decider:
        """What `record` gave, for so many members and classes."""
        if isinstance(record, Mapping) and "seed" in record:
            raise InvalidInput(
                "this ensemble decides by a hash of its input, as versions before 0.8 did; such "
                "decisions changed with the last bits of an input and are not made any more. Its "
                "scores can be predicted; for decisions train it again",
                code="version",
            )
        try:
            weights, offsets = (
                np.array(record[name], np.float64) for name in ("weights", "offsets")
            )
            agreement = record["agreement"]
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(
                f"how this ensemble decides cannot be read ({error})", code="bad-file"
            ) from error
        if (
            weights.shape != (members,)
            or offsets.shape != (classes,)
            or not (np.isfinite(weights).all() and np.isfinite(offsets).all())
            or (weights < 0).any()
            or not abs(weights.sum() - 1) <= 1e-6
            or not isinstance(agreement, bool)
        ):
            raise InvalidInput(
                f"decisions need {members} weights that sum to one, {classes} offsets and "
                f"whether agreement decides, got {record!r:.120}",
                code="bad-file",
            )
        return cls(weights, offsets, agreement)

    def mixture(self, parts: Sequence[Part], layout: Layout) -> Mixture:
        """The members, weighed as decisions weigh them."""
        ends = np.cumsum([len(part.weights) for part in parts])[:-1]
        own = [
            Part(part.members, part.blocks, weights)
            for part, weights in zip(parts, np.split(self.weights, ends), strict=True)
        ]
        return Mixture(tuple(own), layout)


def compute_decision_scores(decider: Decider, mixture: Mixture, inputs: Tensor) -> Tensor:
    """(n, d) -> (n, r): the class of the largest is decided for, of equal ones the first.

    Infinite for a class on which all members agree, where agreement decides.
    """
    scores = mixture.outputs(inputs) + torch.as_tensor(decider.offsets).to(inputs.device)
    if not decider.agreement:
        return scores
    return torch.where(compute_least_leads(mixture, inputs) > AGREED, torch.inf, scores)


def compute_least_leads(mixture: Mixture, inputs: Tensor) -> Tensor:
    """(n, r): by how much each class leads all others, in the scores of the member least for it."""
    found = [compute_leads(part.members.outputs(inputs)).amin(0) for part in mixture.used]
    return torch.stack(found).amin(0)


def compute_leads(scores: Tensor) -> Tensor:
    """(..., r) -> (..., r): each class's score minus the largest of the others."""
    best = scores.topk(2, -1).values
    return scores - torch.where(scores >= best[..., :1], best[..., 1:], best[..., :1])


def decide(decider: Decider, mixture: Mixture, inputs: Array) -> Decisions:
    """(n, d) -> decisions at inputs that were checked."""
    parts = [_decided(decider, mixture, x) for x in torch.split(torch.as_tensor(inputs), CHUNK)]
    return Decisions(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _decided(decider: Decider, mixture: Mixture, inputs: Tensor) -> Decisions:
    x = inputs.to(mixture.device)
    with torch.no_grad():
        scores = compute_decision_scores(replace(decider, agreement=False), mixture, x).cpu()
        classes, near = scores.argmax(-1), NEAR * scores.abs().amax(-1).clamp_min(1.0)
        unsure = compute_leads(scores).abs() <= near[:, None]
        if decider.agreement:
            least = compute_least_leads(mixture, x).cpu()
            most, best = least.max(-1)
            agreed = most > AGREED
            unsure &= ~agreed[:, None]
            # where all but agree on another class, rounding decides whether they do
            edge = ((most - AGREED).abs() <= near) & (best != classes)
            rows = edge.nonzero()[:, 0]
            unsure[rows, best[rows]] = unsure[rows, classes[rows]] = True
            classes = torch.where(agreed, best, classes)
    return Decisions(classes.numpy(), unsure.numpy())
