"""Train models that keep hard rules: convex mixtures by column generation.

The names below are what most users need. The rest of the public interface is in submodules:
`rules`, `nn` (layers for any torch network), `members`, `data`, `colgen` (the algorithm and its
parts), `guarantees`, `fitted_models` (those of other libraries), `callbacks`, `errors`, `plots`,
`runs`, and what applications are made of (`apps`, `report`, `solvers`, `clock`), with `routing` as
the one that comes along. All are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cg4ai.exports import lazy_exports

__version__ = "0.8.0"

if TYPE_CHECKING:
    from cg4ai import apps as apps
    from cg4ai import callbacks as callbacks
    from cg4ai import clock as clock
    from cg4ai import colgen as colgen
    from cg4ai import data as data
    from cg4ai import errors as errors
    from cg4ai import fitted_models as fitted_models
    from cg4ai import guarantees as guarantees
    from cg4ai import members as members
    from cg4ai import nn as nn
    from cg4ai import plots as plots
    from cg4ai import report as report
    from cg4ai import routing as routing
    from cg4ai import rules as rules
    from cg4ai import runs as runs
    from cg4ai import solvers as solvers
    from cg4ai.colgen.loop import solve
    from cg4ai.colgen.result import Result
    from cg4ai.compile.problem import Problem
    from cg4ai.ensemble.ensemble import Ensemble
    from cg4ai.ensemble.saved import load
    from cg4ai.errors import Cg4aiError, FitWarning
    from cg4ai.estimators.estimators import ConstrainedClassifier, ConstrainedRegressor
    from cg4ai.estimators.postprocess import postprocess
    from cg4ai.fitted_models.audit import audit_model
    from cg4ai.fitted_models.repairing import repair
    from cg4ai.objectives import Objective
    from cg4ai.proofs.certificate import write_certificate
    from cg4ai.proofs.certification import certify
    from cg4ai.records import StopReason
    from cg4ai.settings import Settings
    from cg4ai_checker import check
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "cg4ai.colgen.loop": ["solve"],
            "cg4ai.colgen.result": ["Result"],
            "cg4ai.compile.problem": ["Problem"],
            "cg4ai.ensemble.ensemble": ["Ensemble"],
            "cg4ai.ensemble.saved": ["load"],
            "cg4ai.errors": ["Cg4aiError", "FitWarning"],
            "cg4ai.estimators.estimators": ["ConstrainedClassifier", "ConstrainedRegressor"],
            "cg4ai.estimators.postprocess": ["postprocess"],
            "cg4ai.fitted_models.audit": ["audit_model"],
            "cg4ai.fitted_models.repairing": ["repair"],
            "cg4ai.objectives": ["Objective"],
            "cg4ai.proofs.certificate": ["write_certificate"],
            "cg4ai.proofs.certification": ["certify"],
            "cg4ai.records": ["StopReason"],
            "cg4ai.settings": ["Settings"],
            "cg4ai_checker": ["check"],
        },
        submodules=[
            "apps",
            "callbacks",
            "clock",
            "colgen",
            "data",
            "errors",
            "fitted_models",
            "guarantees",
            "members",
            "nn",
            "plots",
            "report",
            "routing",
            "rules",
            "runs",
            "solvers",
        ],
        shown=["__version__"],
        moved={
            "cg4ai.data": [
                "Batches",
                "fit_with_requirements",
                "predict_frame",
                ("transformed", "transform_requirement"),
            ],
            "cg4ai.rules": [
                "AffineBound",
                "AffineCoefficients",
                "Ball",
                "Box",
                "Concave",
                "Curvature",
                "DecisionRate",
                "Difference",
                "Equality",
                "Largest",
                "Linear",
                "Margin",
                "Monotone",
                "Ordered",
                "Polytope",
                "Pool",
                "Probability",
                "Quadratic",
                "Range",
                "Rate",
                "Smallest",
                "SumTo",
            ],
        },
    )

__all__ = [  # noqa: RUF022 - grouped as the documentation is
    "ConstrainedClassifier",
    "ConstrainedRegressor",
    "postprocess",
    "Problem",
    "Objective",
    "Settings",
    "solve",
    "Result",
    "StopReason",
    "Ensemble",
    "load",
    "certify",
    "write_certificate",
    "check",
    "audit_model",
    "repair",
    "Cg4aiError",
    "FitWarning",
]
