"""Train models that keep hard rules: convex mixtures by column generation.

The public names below are imported when first used, so that `import cg4ai` and the command line
stay quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.8.0"

if TYPE_CHECKING:
    from cg4ai.colgen.loop import solve
    from cg4ai.colgen.result import Result
    from cg4ai.compile.problem import Problem
    from cg4ai.data.batches import Batches
    from cg4ai.ensemble.ensemble import Ensemble
    from cg4ai.ensemble.saved import load
    from cg4ai.errors import Cg4aiError, FitWarning
    from cg4ai.estimators.estimators import ConstrainedClassifier, ConstrainedRegressor
    from cg4ai.estimators.frames import predict_frame
    from cg4ai.estimators.pipelines import fit_with_requirements, transformed
    from cg4ai.objectives import Objective
    from cg4ai.proofs.certificate import write_certificate
    from cg4ai.proofs.certify import certify
    from cg4ai.records import StopReason
    from cg4ai.rules import (
        AffineBound,
        AffineCoefficients,
        Concave,
        Curvature,
        DecisionRate,
        Difference,
        Equality,
        Largest,
        Linear,
        Margin,
        Monotone,
        Ordered,
        Probability,
        Quadratic,
        Range,
        Rate,
        Smallest,
        SumTo,
    )
    from cg4ai.rules.regions import Ball, Box, Polytope, Pool
    from cg4ai.settings import Settings
    from cg4ai_checker import check

_HOMES = {
    "AffineBound": "cg4ai.rules",
    "AffineCoefficients": "cg4ai.rules",
    "Ball": "cg4ai.rules",
    "Batches": "cg4ai.data.batches",
    "Box": "cg4ai.rules",
    "Cg4aiError": "cg4ai.errors",
    "Concave": "cg4ai.rules",
    "ConstrainedClassifier": "cg4ai.estimators.estimators",
    "ConstrainedRegressor": "cg4ai.estimators.estimators",
    "Curvature": "cg4ai.rules",
    "DecisionRate": "cg4ai.rules",
    "Difference": "cg4ai.rules",
    "Ensemble": "cg4ai.ensemble.ensemble",
    "Equality": "cg4ai.rules",
    "FitWarning": "cg4ai.errors",
    "Largest": "cg4ai.rules",
    "Linear": "cg4ai.rules",
    "Margin": "cg4ai.rules",
    "Monotone": "cg4ai.rules",
    "Objective": "cg4ai.objectives",
    "Ordered": "cg4ai.rules",
    "Polytope": "cg4ai.rules",
    "Pool": "cg4ai.rules",
    "Probability": "cg4ai.rules",
    "Problem": "cg4ai.compile.problem",
    "Quadratic": "cg4ai.rules",
    "Range": "cg4ai.rules",
    "Rate": "cg4ai.rules",
    "Result": "cg4ai.colgen.result",
    "Settings": "cg4ai.settings",
    "Smallest": "cg4ai.rules",
    "StopReason": "cg4ai.records",
    "SumTo": "cg4ai.rules",
    "certify": "cg4ai.proofs",
    "check": "cg4ai_checker",
    "fit_with_requirements": "cg4ai.estimators.pipelines",
    "load": "cg4ai.ensemble.saved",
    "predict_frame": "cg4ai.estimators.frames",
    "solve": "cg4ai.colgen.loop",
    "transformed": "cg4ai.estimators.pipelines",
    "write_certificate": "cg4ai.proofs.certificate",
}

__all__ = [  # noqa: RUF022 - grouped as the documentation is
    "ConstrainedClassifier",
    "ConstrainedRegressor",
    "Batches",
    "Linear",
    "AffineCoefficients",
    "AffineBound",
    "Largest",
    "Smallest",
    "Probability",
    "Margin",
    "Rate",
    "DecisionRate",
    "Difference",
    "Quadratic",
    "Concave",
    "Equality",
    "Monotone",
    "Curvature",
    "Range",
    "Ordered",
    "SumTo",
    "Box",
    "Ball",
    "Polytope",
    "Pool",
    "Objective",
    "Problem",
    "Settings",
    "solve",
    "Result",
    "StopReason",
    "Ensemble",
    "load",
    "certify",
    "write_certificate",
    "check",
    "transformed",
    "fit_with_requirements",
    "predict_frame",
    "Cg4aiError",
    "FitWarning",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'cg4ai' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
