"""Checked calls of HiGHS (linear and mixed-integer programs) and Clarabel (conic ones)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cg4ai.exports import lazy_exports

if TYPE_CHECKING:
    from cg4ai.solvers.highs import (
        INFEASIBLE,
        OPTIMAL,
        LinearProgram,
        MixedProgram,
        solve_mixed,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "cg4ai.solvers.highs": [
                "INFEASIBLE",
                "OPTIMAL",
                "LinearProgram",
                "MixedProgram",
                "solve_mixed",
            ],
        },
    )

__all__ = [
    "INFEASIBLE",
    "OPTIMAL",
    "LinearProgram",
    "MixedProgram",
    "solve_mixed",
]
