"""Runs as pages that compute: what all applications share of `cg4ai explore`.

An application says what its page shows (`TrainedModel.explorer`); the program in it is the
ensemble's own graph, with what a page tells beside the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cg4ai.apps.explanations import ListedSlack
from cg4ai.apps.folders import load_trained
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.export import ThetaModule, export_program
from cg4ai.errors import InvalidInput
from cg4ai.pages.page import read_asset, render_page
from cg4ai.pages.program import array_data, pack_program
from cg4ai.rules import Requirement
from cg4ai.rules.regions import Region
from cg4ai.runs import files
from cg4ai.runs.folder import Run

MEGABYTE = 1_000_000
MOST_MB = 5.0  # of one file, where nobody says otherwise
ROUTER_PARTS = ["labels.js", "map.js", "timeline.js", "best_routing.js", "capacities.js"]
OUTPUTS, RULES = (
    0,
    3,
)  # places in what `ExplainedModule` gives: outputs first, rules from the fourth on


def write_explorer(folder: Path, out: Path, *, most_mb: float = MOST_MB) -> float:
    """Write the page of a finished run as one file; returns its size in MB."""
    ensemble, described = load_trained(folder)
    run = Run.open(folder, read_only=True) if (folder / "run.json").exists() else None
    told = None if run is None or not run.bound else run.summary()
    data = described.explorer(ensemble, folder, told or {}).encode()
    size = len(data) / MEGABYTE
    if size > most_mb:
        raise InvalidInput(
            f"the page of {folder} has {size:.1f} MB, more than {most_mb:g}: allow it with "
            f"--most-mb {size + 0.1:.1f}, or export the model with export {folder} --onnx FILE",
            code="range",
        )
    files.write_bytes(out, data)
    return size


def model_page(ensemble: Ensemble, traced: Sequence[Requirement], data: Mapping[str, Any]) -> str:
    """The page of a classifier or regressor: `data` say what its form and outputs are called."""
    module = ExplainedModule(ensemble.to("cpu"), traced)
    further = {
        "program": pack_program(export_program(module, ensemble.input_size, rows=1)),
        "shielded": bool(ensemble.guards),
    }
    return render_explorer("model", {**data, **further})


def render_explorer(kind: Literal["model", "router"], data: Mapping[str, Any]) -> str:
    """The page of this kind as one HTML file; `data["title"]` is its title."""
    drawing = ROUTER_PARTS if kind == "router" else []
    return render_page(
        str(data["title"]),
        read_asset(f"{kind}.html"),
        styles=[f"{kind}.css"],
        scripts=["program.js", *drawing, f"{kind}.js"],
        data=data,
    )


def describe_page(name: str) -> str:
    """The last line of a page that was made from the run of this name."""
    return (
        f"Made by cg4ai from {name}. All numbers are computed in this page in double precision; "
        "nothing is sent anywhere."
    )


def export_page_program(ensemble: Ensemble) -> dict[str, Any]:
    """What a page computes by itself: outputs, and how far the shield moved them."""
    module = ThetaModule(ensemble.to("cpu").as_module())
    return pack_program(export_program(module, ensemble.input_size, rows=1))


def listed_data(known: ListedSlack, labels: Sequence[str]) -> dict[str, Any]:
    """The inputs that a rule lists, as a page compares with them; what each is called."""
    return {
        "inputs": array_data(known.inputs),
        "slack": known.slack.tolist(),
        "labels": list(labels),
    }


class ExplainedModule(nn.Module):
    """Outputs (n, r), how far a shield moved them (n,), scores by which is decided (n, r), then of
    each rule its slack (n,) and whether the input lies where it speaks (n,): what a page computes.
    """

    def __init__(self, ensemble: Ensemble, rules: Sequence[Requirement]) -> None:
        super().__init__()
        self.module, self.rules, self.ensemble = ensemble.as_module(), list(rules), ensemble
        for rule in rules:
            rule.check(ensemble.input_size, ensemble.output_size)

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        outputs = self.module(inputs)
        decisive = self.ensemble.decision_scores(inputs) if self.ensemble.votes else outputs
        found = [outputs, self.module.theta(inputs), decisive]
        for rule in self.rules:
            anywhere = torch.ones_like(inputs[:, 0])
            inside = rule.region.near(inputs) if isinstance(rule.region, Region) else anywhere
            found += [rule.slack_at(inputs, outputs), inside.to(torch.float64)]
        return tuple(found)
