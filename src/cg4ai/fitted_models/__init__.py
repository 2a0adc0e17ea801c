"""Fitted models of other libraries: read exactly, audited for rules, repaired.

`audit_model` and `repair` are also at the top of the package's namespace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cg4ai.exports import lazy_exports

if TYPE_CHECKING:
    from cg4ai.fitted_models.audit import audit_model
    from cg4ai.fitted_models.findings import ModelAudit, RuleFinding
    from cg4ai.fitted_models.model import FittedModel
    from cg4ai.fitted_models.reading import read_model
    from cg4ai.fitted_models.repairing import Distance, RepairedModel, repair
    from cg4ai.fitted_models.stable import Stable
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "cg4ai.fitted_models.audit": ["audit_model"],
            "cg4ai.fitted_models.findings": ["ModelAudit", "RuleFinding"],
            "cg4ai.fitted_models.model": ["FittedModel"],
            "cg4ai.fitted_models.reading": ["read_model"],
            "cg4ai.fitted_models.repairing": ["Distance", "RepairedModel", "repair"],
            "cg4ai.fitted_models.stable": ["Stable"],
        },
    )

__all__ = [
    "Distance",
    "FittedModel",
    "ModelAudit",
    "RepairedModel",
    "RuleFinding",
    "Stable",
    "audit_model",
    "read_model",
    "repair",
]
