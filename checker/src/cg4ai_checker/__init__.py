"""The independent checker: verifies a certificate file with NumPy and SciPy alone.

It shares no code with `cg4ai`, so that a mistake there cannot prove itself right here. `verdict`
and `check` verify certificates of every kind, `check` within limits, and `compare` says whether a
claim is about the predictor in a folder. They are imported when first used: errors cost nothing to
import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cg4ai_checker.errors import Cg4aiError, OutOfTime, Rejected, Unreadable

__version__ = "0.8.0"

if TYPE_CHECKING:
    from cg4ai_checker.caps import CapsVerdict
    from cg4ai_checker.equality import EqualityVerdict
    from cg4ai_checker.outputs import OutputVerdict
    from cg4ai_checker.ratio import RatioVerdict
    from cg4ai_checker.run_folder import compare
    from cg4ai_checker.shape import ShapeVerdict
    from cg4ai_checker.tree_sums import TreeSumVerdict
    from cg4ai_checker.verify import Verdict, check, verdict

_HOMES = {
    "CapsVerdict": "caps",
    "EqualityVerdict": "equality",
    "OutputVerdict": "outputs",
    "RatioVerdict": "ratio",
    "ShapeVerdict": "shape",
    "TreeSumVerdict": "tree_sums",
    "Verdict": "verify",
    "check": "verify",
    "compare": "run_folder",
    "verdict": "verify",
}

__all__ = [
    "CapsVerdict",
    "Cg4aiError",
    "EqualityVerdict",
    "OutOfTime",
    "OutputVerdict",
    "RatioVerdict",
    "Rejected",
    "ShapeVerdict",
    "TreeSumVerdict",
    "Unreadable",
    "Verdict",
    "check",
    "compare",
    "verdict",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
