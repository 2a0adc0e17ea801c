"""Column generation: the loop, its state and what it ends with."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cg4ai.colgen.pricing.defaults import ArchitecturePricer, PricerDefaults, WrappingPricer
    from cg4ai.colgen.pricing.exact.finite import FinitePricer
    from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
    from cg4ai.colgen.pricing.gradient.training import Training
    from cg4ai.layout import Layout
    from cg4ai.objectives import Supervised
    from cg4ai.protocols import (
        MemberChange,
        Pricer,
        PricerCapabilities,
        PricingRequest,
        Separator,
        SeparatorDefaults,
    )
    from cg4ai.records import PricingResult, SeparationResult

__all__ = [
    "ArchitecturePricer",
    "FinitePricer",
    "GradientPricer",
    "Layout",
    "MemberChange",
    "Pricer",
    "PricerCapabilities",
    "PricerDefaults",
    "PricingRequest",
    "PricingResult",
    "SeparationResult",
    "Separator",
    "SeparatorDefaults",
    "Supervised",
    "Training",
    "WrappingPricer",
]

_HOMES = {
    "cg4ai.colgen.pricing.defaults": ["ArchitecturePricer", "PricerDefaults", "WrappingPricer"],
    "cg4ai.colgen.pricing.exact.finite": ["FinitePricer"],
    "cg4ai.colgen.pricing.gradient.pricer": ["GradientPricer"],
    "cg4ai.colgen.pricing.gradient.training": ["Training"],
    "cg4ai.layout": ["Layout"],
    "cg4ai.objectives": ["Supervised"],
    "cg4ai.protocols": [
        "MemberChange",
        "Pricer",
        "PricerCapabilities",
        "PricingRequest",
        "Separator",
        "SeparatorDefaults",
    ],
    "cg4ai.records": ["PricingResult", "SeparationResult"],
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
