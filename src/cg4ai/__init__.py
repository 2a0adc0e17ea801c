"""Train models that keep hard rules: convex mixtures by column generation.

The public names below are imported when first used, so that `import cg4ai` and the command line
stay quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cg4ai.certificates import write_certificate
    from cg4ai.certification.certify import certify
    from cg4ai.checker import check
    from cg4ai.ensemble import Ensemble, load
    from cg4ai.errors import Cg4aiError
    from cg4ai.estimators import ConstrainedClassifier, ConstrainedRegressor
    from cg4ai.loop import solve
    from cg4ai.pipelines import fit_with_requirements, transformed
    from cg4ai.problem import Problem, Result
    from cg4ai.records import StopReason
    from cg4ai.regions import Ball, Box, Pool
    from cg4ai.requirements import Concave, Difference, Linear, Margin, Probability, Rate
    from cg4ai.settings import Settings

_HOMES = {
    "Ball": "regions",
    "Box": "regions",
    "Cg4aiError": "errors",
    "Concave": "requirements",
    "ConstrainedClassifier": "estimators",
    "ConstrainedRegressor": "estimators",
    "Difference": "requirements",
    "Ensemble": "ensemble",
    "Linear": "requirements",
    "Margin": "requirements",
    "Pool": "regions",
    "Probability": "requirements",
    "Problem": "problem",
    "Rate": "requirements",
    "Result": "problem",
    "Settings": "settings",
    "StopReason": "records",
    "certify": "certification",
    "check": "checker",
    "fit_with_requirements": "pipelines",
    "load": "ensemble",
    "solve": "loop",
    "transformed": "pipelines",
    "write_certificate": "certificates",
}

__all__ = [  # noqa: RUF022 - grouped as the documentation is
    "ConstrainedClassifier",
    "ConstrainedRegressor",
    "Linear",
    "Probability",
    "Margin",
    "Rate",
    "Difference",
    "Concave",
    "Box",
    "Ball",
    "Pool",
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
    "Cg4aiError",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"cg4ai.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'cg4ai' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
