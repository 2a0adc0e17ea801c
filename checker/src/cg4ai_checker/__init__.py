"""The independent checker: verifies a certificate file with NumPy and SciPy alone.

It shares no bounding code with `cg4ai.proofs`, so that a mistake there cannot prove
itself right here. `check` is where it starts, `verdict` for certificates of any kind.
"""

from __future__ import annotations

from cg4ai_checker.equality import EqualityVerdict
from cg4ai_checker.errors import OutOfTime, Rejected
from cg4ai_checker.outputs import OutputVerdict
from cg4ai_checker.shape import ShapeVerdict
from cg4ai_checker.verify import Verdict, check, verdict

__all__ = [
    "EqualityVerdict",
    "OutOfTime",
    "OutputVerdict",
    "Rejected",
    "ShapeVerdict",
    "Verdict",
    "check",
    "verdict",
]
