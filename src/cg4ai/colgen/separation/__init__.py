"""Search for inputs at which a mixture breaks a requirement; the loop turns them into rows.

The rows in a `SeparationResult` carry requirement number -1: the loop, which knows the number,
fills it in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cg4ai.exports import lazy_exports

if TYPE_CHECKING:
    from cg4ai.colgen.separation.ascent import GradientAscent
    from cg4ai.colgen.separation.blackbox import BlackBox
    from cg4ai.colgen.separation.mip import MixedInteger
    from cg4ai.colgen.separation.scan import PoolScan
    from cg4ai.colgen.separation.separators import (
        brief_separator,
        default_separator,
        is_exact_search,
        training_separator,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "cg4ai.colgen.separation.ascent": ["GradientAscent"],
            "cg4ai.colgen.separation.blackbox": ["BlackBox"],
            "cg4ai.colgen.separation.mip": ["MixedInteger"],
            "cg4ai.colgen.separation.scan": ["PoolScan"],
            "cg4ai.colgen.separation.separators": [
                "brief_separator",
                "default_separator",
                "is_exact_search",
                "training_separator",
            ],
        },
    )

__all__ = [
    "BlackBox",
    "GradientAscent",
    "MixedInteger",
    "PoolScan",
    "brief_separator",
    "default_separator",
    "is_exact_search",
    "training_separator",
]
