"""`SequentialWithInput`: layers after one another, those of rules with the network's input too."""

from __future__ import annotations

from torch import Tensor, nn

from cg4ai.nn.rule_layer import RuleLayer


class SequentialWithInput(nn.Sequential):
    """As `nn.Sequential`, but layers of `cg4ai.nn` are called with the input of the whole, too.

    For rules that depend on the input:

    >>> model = SequentialWithInput(nn.Linear(3, 2), Shield(cap, region=region))
    """

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for one in self:
            y = one(y, x) if isinstance(one, RuleLayer) else one(y)
        return y
