"""Single predictions explained by the rules of their run: slack, strength, what a shield did.

The words are those of `Ensemble.predict(explain=True)`; a rule of which nothing is recorded is
recomputed at the very input, as an audit does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cg4ai.apps.protocol import Rule
from cg4ai.data.arrays import group_same_inputs, is_among
from cg4ai.ensemble.claims import MOVED, STRENGTH, Explanation
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.records import Array, Strength
from cg4ai.rules import Requirement
from cg4ai.rules.regions import Region
from cg4ai.rules.requirement import InputRule
from cg4ai.rules.row_sizes import compute_requirement_size
from cg4ai.rules.rows import LinearRows, compute_shortfall
from cg4ai.rules.violations import predictions

TOLERANCE = 1e-6  # as of audits, of a rule's size


def explain_predictions(
    ensemble: Ensemble, rules: Sequence[Rule], inputs: Array, found: Explanation
) -> list[dict[str, Any]]:
    """For each input how far a shield moved its outputs, and of each rule slack and strength.

    Slack is None where a rule says nothing of the input.
    """
    columns: dict[str, list[Any]] = {MOVED: found.theta.tolist()}
    outputs = np.asarray(found.outputs)
    stated = [rule.requirement for rule in rules]
    for name in dict.fromkeys([*(rule.name for rule in stated), *found.by_requirement]):
        slack = np.full(len(inputs), np.nan)
        for rule in stated:
            if rule.name == name:
                slack = np.fmin(slack, compute_slack(ensemble, rule, inputs, outputs))
        sizes = [_size(ensemble, rule, outputs) for rule in stated if rule.name == name]
        allowed = TOLERANCE * min(sizes, default=1.0)
        recorded = found.by_requirement.get(name)
        columns[f"{name}: slack"] = [None if np.isnan(one) else float(one) for one in slack]
        columns[f"{name}: {STRENGTH}"] = [
            _strength(one, allowed, None if recorded is None else str(recorded[number]))
            for number, one in enumerate(slack)
        ]
    return [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]


def _size(ensemble: Ensemble, rule: Requirement, outputs: Array) -> float:
    """The least size of its rows; of outputs, for a rule that names no inputs."""
    largest = float(np.abs(outputs).max(initial=0.0)) or 1.0
    if not isinstance(rule, InputRule) or rule.inputs is None:
        return largest
    rule.check(ensemble.input_size, ensemble.output_size)
    return compute_requirement_size(rule, ensemble.output_size, outputs=lambda: largest).least


def _strength(slack: float, allowed: float, recorded: str | None) -> str:
    """What is recorded of the prediction, else what recomputing the rule showed."""
    if slack < -allowed:
        return str(Strength.VIOLATED)
    if recorded not in (None, Strength.UNVERIFIED):
        return str(recorded)
    return str(Strength.UNVERIFIED if np.isnan(slack) else Strength.AUDITED)


def compute_slack(ensemble: Ensemble, rule: Requirement, inputs: Array, outputs: Array) -> Array:
    """(n,): how far outputs (n, r) are from breaking the rule; NaN where it says nothing of them.

    A rule on single outputs or over a region is about each input, in that region; one that lists
    inputs about these; a shape, and a rule that ties inputs together, about none alone.
    """
    rule.check(inputs.shape[1], outputs.shape[1])
    if not rule.is_pointwise:
        return _listed(ensemble, rule, inputs)
    slack = rule.slack_at(torch.as_tensor(inputs), torch.as_tensor(outputs)).detach().numpy()
    if isinstance(rule.region, Region):
        return np.where(rule.region.contains(inputs), slack, np.nan)
    return np.asarray(slack)


def _listed(ensemble: Ensemble, rule: Requirement, inputs: Array) -> Array:
    """The least slack of the rows at inputs that the rule lists."""
    rows = rule.rows(0)
    nothing = rows is None or not is_among(inputs, rows.inputs).any()  # then nothing is recomputed
    known = None if nothing else listed_slack(ensemble, rule)
    if known is None:
        return np.full(len(inputs), np.nan)
    _, which = group_same_inputs(np.concatenate([known.inputs, inputs]))
    least = np.full(which.max() + 1, np.inf)
    np.minimum.at(least, which[: len(known.inputs)], known.slack)
    found = least[which[len(known.inputs) :]]
    return np.where(np.isinf(found) & (found > 0), np.nan, found)


@dataclass(frozen=True, eq=False)
class ListedSlack:
    """Inputs (m, d) that a rule lists, and its least slack (m,) at each."""

    inputs: Array
    slack: Array


def listed_slack(ensemble: Ensemble, rule: Requirement) -> ListedSlack | None:
    """None for a rule that ties inputs together, or lists none."""
    rule.check(ensemble.input_size, ensemble.output_size)
    rows = rule.rows(0)
    if rows is None or not isinstance(rule, InputRule):
        return None
    at: Any = np.arange(len(rows))
    if isinstance(rows, LinearRows):
        if rows.mixing is not None:
            return None
        at = rows.index
    with torch.no_grad():
        own = -compute_shortfall(
            rows.bounds, rows.values(predictions(ensemble, rows.inputs)).numpy()
        )
    least = np.full(len(rows.inputs), np.inf)
    np.minimum.at(least, at, own)
    return ListedSlack(rows.inputs, least)
