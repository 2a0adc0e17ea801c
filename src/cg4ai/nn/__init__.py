"""Layers that keep rules, for any training loop: a network that ends in one keeps them.

`Shield` keeps linear, quadratic and concave rules over a region, `OutputSet` ranges, orders and
sums, `Completion` equalities. The members of cg4ai end in the same functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cg4ai.exports import lazy_exports

if TYPE_CHECKING:
    from cg4ai.nn.completion import Completion
    from cg4ai.nn.output_set import OutputSet
    from cg4ai.nn.sequential import SequentialWithInput
    from cg4ai.nn.shield import Shield
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "cg4ai.nn.completion": ["Completion"],
            "cg4ai.nn.output_set": ["OutputSet"],
            "cg4ai.nn.sequential": ["SequentialWithInput"],
            "cg4ai.nn.shield": ["Shield"],
        },
    )

__all__ = ["Completion", "OutputSet", "SequentialWithInput", "Shield"]
