"""Train models that keep hard rules: convex mixtures by column generation.

The public names below are imported when first used, so that `import cg4ai` and the command line
stay quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.8.0"

if TYPE_CHECKING:
    from cg4ai.batches import Batches
    from cg4ai.checker import check
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
    from cg4ai.solving.loop import solve
    from cg4ai.solving.problem import Problem
    from cg4ai.solving.result import Result

_HOMES = {
    "AffineBound": "rules",
    "AffineCoefficients": "rules",
    "Ball": "rules",
    "Batches": "batches",
    "Box": "rules",
    "Cg4aiError": "errors",
    "Concave": "rules",
    "ConstrainedClassifier": "estimators.estimators",
    "ConstrainedRegressor": "estimators.estimators",
    "Curvature": "rules",
    "DecisionRate": "rules",
    "Difference": "rules",
    "Ensemble": "ensemble.ensemble",
    "Equality": "rules",
    "FitWarning": "errors",
    "Largest": "rules",
    "Linear": "rules",
    "Margin": "rules",
    "Monotone": "rules",
    "Objective": "objectives",
    "Ordered": "rules",
    "Polytope": "rules",
    "Pool": "rules",
    "Probability": "rules",
    "Problem": "solving.problem",
    "Quadratic": "rules",
    "Range": "rules",
    "Rate": "rules",
    "Result": "solving.result",
    "Settings": "settings",
    "Smallest": "rules",
    "StopReason": "records",
    "SumTo": "rules",
    "certify": "proofs",
    "check": "checker",
    "fit_with_requirements": "estimators.pipelines",
    "load": "ensemble.saved",
    "predict_frame": "estimators.frames",
    "solve": "solving.loop",
    "transformed": "estimators.pipelines",
    "write_certificate": "proofs.certificate",
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
        value = getattr(import_module(f"cg4ai.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'cg4ai' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
