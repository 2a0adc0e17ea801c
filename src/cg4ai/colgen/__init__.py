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
| Algorithm 2, line 8 | stop once nothing is violated | `phases.decide_ending` |
| (2) | training under rules on outputs | `cg4ai.compile.problem.Problem` |
| (3) | convex mixture | `cg4ai.members.mixture.Mixture` |
| (4) | Jensen's bound on the loss | `pricing.reduced_cost.compute_member_costs` |
| (5) | a member's coefficient in a row | `columns.Columns.coefficients` |
| (6)-(10) | restricted master | `master.table.MasterTable`, solved by `master.linear` |
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

from typing import TYPE_CHECKING

from cg4ai.exports import lazy_exports

if TYPE_CHECKING:
    from cg4ai.colgen.iteration import (
        Continue,
        Decision,
        FinalSolution,
        MasterStep,
        PricingStep,
        Stop,
    )
    from cg4ai.colgen.loop import Callbacks
    from cg4ai.colgen.phases import NormalPhase, Phase
    from cg4ai.colgen.pricing.defaults import ArchitecturePricer, PricerDefaults, WrappingPricer
    from cg4ai.colgen.pricing.exact.affine import AffinePricer
    from cg4ai.colgen.pricing.exact.finite import FinitePricer
    from cg4ai.colgen.pricing.exact.relu_networks import ReluPricer
    from cg4ai.colgen.pricing.exact.stumps import StumpPricer
    from cg4ai.colgen.pricing.gradient.cuda_graphs import NotRecorded, train_captured
    from cg4ai.colgen.pricing.gradient.losses import attack_tolerance
    from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
    from cg4ai.colgen.pricing.gradient.training import Pause, Training, train
    from cg4ai.colgen.pricing.probes import Probe
    from cg4ai.colgen.pricing.schedules import InTurn
    from cg4ai.colgen.pricing.trees import TreePricer
    from cg4ai.colgen.restricted_master import row_keys
    from cg4ai.colgen.separation import (
        BlackBox,
        GradientAscent,
        MixedInteger,
        PoolScan,
        default_separator,
    )
    from cg4ai.colgen.separation.radius import largest_radius
    from cg4ai.colgen.state import RunState
    from cg4ai.colgen.tolerances import get_cut_tolerance
    from cg4ai.layout import Layout
    from cg4ai.objectives import (
        AnyObjective,
        Batch,
        Epigraph,
        LinearFunctional,
        Supervised,
        Tail,
        draws_on_any_device,
    )
    from cg4ai.protocols import (
        MemberChange,
        Pricer,
        PricerCapabilities,
        PricingRequest,
        Separator,
        SeparatorDefaults,
        Stateful,
    )
    from cg4ai.records import (
        Duals,
        IterationRecord,
        MasterSolution,
        PartState,
        PricingResult,
        SeparationResult,
    )
    from cg4ai.rules.violations import predictions, region_violations
    from cg4ai.seeds import derive_seed, generator
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "cg4ai.colgen.iteration": [
                "Decision",
                "Continue",
                "PricingStep",
                "FinalSolution",
                "Stop",
                "MasterStep",
            ],
            "cg4ai.colgen.loop": ["Callbacks"],
            "cg4ai.colgen.phases": ["NormalPhase", "Phase"],
            "cg4ai.colgen.pricing.defaults": [
                "ArchitecturePricer",
                "PricerDefaults",
                "WrappingPricer",
            ],
            "cg4ai.colgen.pricing.exact.affine": ["AffinePricer"],
            "cg4ai.colgen.pricing.exact.finite": ["FinitePricer"],
            "cg4ai.colgen.pricing.exact.relu_networks": ["ReluPricer"],
            "cg4ai.colgen.pricing.exact.stumps": ["StumpPricer"],
            "cg4ai.colgen.pricing.gradient.cuda_graphs": ["NotRecorded", "train_captured"],
            "cg4ai.colgen.pricing.gradient.losses": ["attack_tolerance"],
            "cg4ai.colgen.tolerances": ["get_cut_tolerance"],
            "cg4ai.colgen.pricing.gradient.pricer": ["GradientPricer"],
            "cg4ai.colgen.pricing.gradient.training": ["Pause", "Training", "train"],
            "cg4ai.colgen.pricing.probes": ["Probe"],
            "cg4ai.colgen.pricing.schedules": ["InTurn"],
            "cg4ai.colgen.pricing.trees": ["TreePricer"],
            "cg4ai.colgen.restricted_master": ["row_keys"],
            "cg4ai.colgen.separation": [
                "BlackBox",
                "GradientAscent",
                "MixedInteger",
                "PoolScan",
                "default_separator",
            ],
            "cg4ai.colgen.separation.radius": ["largest_radius"],
            "cg4ai.colgen.state": ["RunState"],
            "cg4ai.layout": ["Layout"],
            "cg4ai.objectives": [
                "AnyObjective",
                "Batch",
                "Epigraph",
                "LinearFunctional",
                "Supervised",
                "Tail",
                "draws_on_any_device",
            ],
            "cg4ai.protocols": [
                "MemberChange",
                "Pricer",
                "PricerCapabilities",
                "PricingRequest",
                "Separator",
                "SeparatorDefaults",
                "Stateful",
            ],
            "cg4ai.records": [
                "Duals",
                "IterationRecord",
                "MasterSolution",
                "PartState",
                "PricingResult",
                "SeparationResult",
            ],
            "cg4ai.rules.violations": ["predictions", "region_violations"],
            "cg4ai.seeds": ["derive_seed", "generator"],
        },
    )

__all__ = [
    "AffinePricer",
    "AnyObjective",
    "ArchitecturePricer",
    "Batch",
    "BlackBox",
    "Callbacks",
    "Continue",
    "Decision",
    "Duals",
    "Epigraph",
    "FinalSolution",
    "FinitePricer",
    "GradientAscent",
    "GradientPricer",
    "InTurn",
    "IterationRecord",
    "Layout",
    "LinearFunctional",
    "MasterSolution",
    "MasterStep",
    "MemberChange",
    "MixedInteger",
    "NormalPhase",
    "NotRecorded",
    "PartState",
    "Pause",
    "Phase",
    "PoolScan",
    "Pricer",
    "PricerCapabilities",
    "PricerDefaults",
    "PricingRequest",
    "PricingResult",
    "PricingStep",
    "Probe",
    "ReluPricer",
    "RunState",
    "SeparationResult",
    "Separator",
    "SeparatorDefaults",
    "Stateful",
    "Stop",
    "StumpPricer",
    "Supervised",
    "Tail",
    "Training",
    "TreePricer",
    "WrappingPricer",
    "attack_tolerance",
    "default_separator",
    "derive_seed",
    "draws_on_any_device",
    "generator",
    "get_cut_tolerance",
    "largest_radius",
    "predictions",
    "region_violations",
    "row_keys",
    "train",
    "train_captured",
]
