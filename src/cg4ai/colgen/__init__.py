"""The paper: column generation for convex mixtures of models under hard rules, with cuts.

Algorithm 1 (column generation) and Algorithm 2 (with cutting planes) are one loop here,
`loop.solve`. It iterates in phases; `phases.NormalPhase` is the algorithm of the paper, and
`cg4ai.Settings.paper()` runs it as printed. Names are modules of this folder, unless they begin
with `cg4ai`.

| paper | what it says | here |
| --- | --- | --- |
| Algorithm 1, line 1 | a dummy column keeps the master feasible | `master.linear.LinearMaster` |
| Algorithm 1, line 3 | master step | `restricted_master.Workspace.solve_master` |
| Algorithm 1, line 4 | pricing step | `iteration.ask_pricers` |
| Algorithm 1, lines 5-7 | add what improves | `restricted_master.Workspace.admit` |
| Algorithm 1, line 8 | stop | `phases.NormalPhase.decide` |
| Algorithm 1, line 9 | the ensemble | `result.finish` |
| Algorithm 2, line 1 | rows to start from | `restricted_master.Workspace.start` |
| Algorithm 2, line 3 | run Algorithm 1 | `phases.NormalPhase`, with `cuts="after"` |
| Algorithm 2, line 4 | separation step | `cutting.separate` |
| Algorithm 2, lines 5-7 | add what is violated | `restricted_master.Workspace.add_cuts` |
| Algorithm 2, line 8 | stop once nothing is violated | `phases.ending` |
| (2) | training under rules on outputs | `cg4ai.compile.problem.Problem` |
| (3) | convex mixture | `cg4ai.members.mixture.Mixture` |
| (4) | Jensen's bound on the loss | `pricing.reduced_cost.member_costs` |
| (5) | a member's coefficient in a row | `columns.Columns.coefficients` |
| (6)-(10) | restricted master | `master.table.Table`, solved by `master.linear.LinearMaster` |
| (11) | reduced cost | `cg4ai.records.Duals.reduced_costs` |
| (12) | pricing problem | `pricing.gradient.pricer.GradientPricer`, `pricing.exact` |
| (13) | separation problem | `separation.default_separator` |

Beyond the paper: the convex master (`master.convex`), the phases around `NormalPhase` (training
without the rules first, least slack alone, one model in place of a mixture), concave rules
(`supergradient_cuts`), conflicts (`unmet_rules`) and the estimated gap (`gap_estimate`).
`state.RunState` is what the steps of a run share, `restricted_master.Workspace` the master with its
columns and rows.
"""

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
