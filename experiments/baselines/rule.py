"""The rule that baselines are held to at an input of known class, on logits and on scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.errors import InvalidSettings, did_you_mean
from cg4ai.records import Array, IntArray
from cg4ai.rules.labels import member_margins

RuleKind = Literal["margin", "probability"]
TOLERANCE = 1e-9  # rounding of float64 scores, far below any threshold of use


@dataclass(frozen=True)
class LabelRule:
    """margin: the label's logit leads every other by `threshold`. probability: it has that much."""

    kind: RuleKind
    threshold: float

    def __post_init__(self) -> None:
        if self.kind not in get_args(RuleKind):
            raise InvalidSettings(
                f"rule must be one of {', '.join(get_args(RuleKind))}, got {self.kind!r}"
                f"{did_you_mean(str(self.kind), get_args(RuleKind))}"
            )
        if not np.isfinite(self.threshold) or (
            self.kind == "probability" and not 0 < self.threshold <= 1
        ):
            expected = "in (0, 1]" if self.kind == "probability" else "finite"
            raise InvalidSettings(
                f"threshold of the {self.kind} rule must be {expected}, got {self.threshold!r}"
            )

    @property
    def output(self) -> Literal["linear", "softmax"]:
        """What a member must give for a mean of members to be a mean of scores."""
        return "softmax" if self.kind == "probability" else "linear"

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The left-hand side, margin or probability of the label: (..., m, r) -> (..., m)."""
        if self.kind == "margin":
            return member_margins(logits, labels.numpy(force=True))
        chosen = labels.expand(logits.shape[:-1]).unsqueeze(-1)
        return logits.softmax(-1).gather(-1, chosen).squeeze(-1)

    def violations(self, logits: Tensor, labels: Tensor) -> Tensor:
        """How much is missing to the threshold, 0 where the rule holds: (..., m)."""
        return (self.threshold - self.values(logits, labels)).clamp_min(0)

    def slopes(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Gradient of `values` in the logits (of the margin one subgradient), same shape."""
        own = torch.nn.functional.one_hot(labels, logits.shape[-1]).to(logits)
        if self.kind == "margin":
            rival = logits.masked_fill(own.bool(), -torch.inf).argmax(-1)
            return own - torch.nn.functional.one_hot(rival, logits.shape[-1]).to(logits)
        probabilities = logits.softmax(-1)
        chosen = (probabilities * own).sum(-1, keepdim=True)
        return chosen * (own - probabilities)

    def satisfied(self, scores: Array, labels: IntArray) -> NDArray[np.bool_]:
        """Whether float64 scores (m, r) keep the rule, up to rounding: (m,)."""
        rows = np.arange(len(labels))
        own: Array = scores[rows, labels]
        least = self.threshold - TOLERANCE
        if self.kind == "probability":
            return own >= least
        others = scores.copy()
        others[rows, labels] = -np.inf
        margins: Array = own - others.max(axis=1)
        return margins >= least
