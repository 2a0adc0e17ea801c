"""`audit_model`: does a fitted model of another library keep rules; proven, refuted or unknown.

Trees are judged by searches over their pieces (`sums`), networks and what remains by `certify`. A
refutation is reported only where the library's own predictions show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cg4ai.clock import now
from cg4ai.errors import InvalidInput
from cg4ai.fitted_models.findings import ModelAudit, RuleFinding
from cg4ai.fitted_models.model import FittedModel
from cg4ai.fitted_models.question import Question
from cg4ai.fitted_models.reading import read_model
from cg4ai.fitted_models.shapes import judge_shape
from cg4ai.fitted_models.stable import Stable
from cg4ai.fitted_models.values import judge_by_cells, judge_values
from cg4ai.members.trees import TreeMembers
from cg4ai.proofs.rule_forms import find_proof_rules
from cg4ai.proofs.structure_certificates import (
    build_construction_certificate,
    certify_construction,
)
from cg4ai.records import Array
from cg4ai.rules import Requirement
from cg4ai.rules.box import Box
from cg4ai.rules.output_sets import OutputRule
from cg4ai.rules.regions import Region
from cg4ai.rules.requirement import InputRule, RequirementDefaults
from cg4ai.rules.shapes import Shape

Rule = Requirement | RequirementDefaults


def audit_model(
    model: Any,
    rules: Rule | Sequence[Rule],
    region: Region | None = None,
    *,
    data: Any = None,
    features: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    time_limit_s: float = 60.0,
    tolerance: float = 1e-6,
) -> ModelAudit:
    """Whether a fitted model of another library keeps each rule: proven, refuted or unknown.

    `model` is a fitted object or a file: LightGBM, XGBoost, CatBoost, trees, forests, boosting,
    linear models and MLPs of scikit-learn (behind scalers, too), an `nn.Sequential` of torch, or an
    ONNX network. `rules` are `Monotone`, `Curvature`, `Range`, `Ordered`, `SumTo`; `Linear`,
    `Probability`, `Margin` and `Quadratic` over regions; and `Stable` around a row. `region` is
    where rules hold that name no place; without it, at all numbers up to 1e38 in size, which
    networks allow for few rules.

    A rule is proven for the exact sums of the numbers that the model stores, and only if the
    independent checker accepts the certificate. It is refuted only where the library itself
    predicts what breaks it by more than `tolerance` x the size of the predictions. Otherwise it is
    unknown, with a proven bound of how far it can be missed. `data` (n, d) are rows from which
    searches start and whose range named boxes have; `time_limit_s` is for each rule.
    """
    if not time_limit_s > 0 or not 0 <= tolerance < 1:
        raise InvalidInput(
            "audit_model needs time_limit_s > 0 and tolerance at least 0 and below 1, got "
            f"{time_limit_s} and {tolerance}",
            code="range",
        )
    fitted = read_model(model, features=features, outputs=outputs)
    given = list(rules) if isinstance(rules, Sequence) else [rules]
    if not given:
        raise InvalidInput("there is no rule to audit; give one or more", code="empty")
    rows = find_rows(data, fitted)
    place = resolve_region(region, fitted, rows)
    prepared = [resolve_rule(one, fitted, place, rows) for one in given]
    findings = [
        _judge(one, fitted, place, rows, limit=time_limit_s, tolerance=tolerance)
        for one in prepared
    ]
    return ModelAudit(fitted, tuple(findings))


def find_rows(data: Any, model: FittedModel) -> Array:
    """Rows (n, d) of finite numbers; those with missing values are left out."""
    if data is None:
        return np.empty((0, model.input_size))
    columns = getattr(data, "columns", None)
    if columns is not None and set(model.features) <= set(map(str, columns)):
        data = data[[one for one in columns if str(one) in model.features]]
    rows = np.asarray(data, np.float64)
    if rows.ndim != 2 or rows.shape[1] != model.input_size:
        raise InvalidInput(
            f"data must be (n, {model.input_size}), as the model takes, got shape {rows.shape}",
            code="shape",
        )
    return np.asarray(rows[np.isfinite(rows).all(axis=1)])


def find_ends(model: FittedModel, rows: Array) -> tuple[Array, Array]:
    """The range of data, or what stands for all numbers."""
    if len(rows):
        return rows.min(axis=0), rows.max(axis=0)
    end = np.full(model.input_size, model.largest)
    return -end, end


def resolve_region(region: Region | None, model: FittedModel, rows: Array) -> Region | None:
    """By positions, and of as many features as the model takes."""
    if region is None:
        return None
    if not isinstance(region, Region):
        raise InvalidInput(
            f"region must be a Box, Ball or Polytope, got {type(region).__name__}", code="type"
        )
    if isinstance(region, Box) and region.by_name:
        region = region.resolve_names(model.features, find_ends(model, rows))
    if region.size != model.input_size:
        raise InvalidInput(
            f"the region has {region.size} features, the model takes {model.input_size}",
            code="shape",
        )
    return region


def resolve_rule(rule: Any, model: FittedModel, region: Region | None, rows: Array) -> Any:
    """By positions and in its place; what the model lacks, or cannot be asked, is refused."""
    if isinstance(rule, Stable):
        rule.check(model.input_size)
        if not model.classes and rule.tolerance is None:
            rule.find_rows(np.zeros(1), classes=False)
        return rule
    if isinstance(rule, Shape):
        made = rule.resolve_names(model.features, model.outputs)
        made.check(model.input_size, model.output_size)
        return made
    if isinstance(rule, OutputRule):
        known = rule.resolve_names(model.features, model.outputs)
        known.check(model.input_size, model.output_size)
        return known
    if isinstance(rule, InputRule):
        resolved: Any = rule.resolve_names(model.features, model.outputs, find_ends(model, rows))
        if resolved.inputs is None and region is not None:
            resolved = resolved.place_over(region)
        resolved.require_place()
        if resolved.over_region:
            resolved.check(model.input_size, model.output_size)
            find_proof_rules(resolved, output_size=model.output_size)
            return resolved
    name = getattr(rule, "name", type(rule).__name__)
    raise InvalidInput(
        f"{name} ({type(rule).__name__}) is not judged for models of others: give rules that hold "
        "over a region or everywhere, not at listed rows",
        code="unsupported",
    )


def _judge(
    rule: Any,
    model: FittedModel,
    region: Region | None,
    rows: Array,
    *,
    limit: float,
    tolerance: float,
) -> RuleFinding:
    started = now()
    own = rule.region if isinstance(rule, InputRule | Stable) else region
    place = own if isinstance(own, Region) else region
    inside = rows if place is None else rows[place.contains(rows)]
    ask = Question(model, rule.name, place, inside, started + limit, tolerance, started)
    if isinstance(rule, Shape):
        return judge_shape(rule, ask)
    if isinstance(rule, OutputRule):
        if certify_construction(ask.ensemble, rule).status == "proven":
            certificate = build_construction_certificate(ask.ensemble, rule, ask.title)
            return ask.answer_proven(certificate, place=model.everywhere)
        return judge_values(*rule.output_set(model.output_size).rows, ask)
    if isinstance(rule, Stable):
        at = model.predict(rule.row[None])[0]
        return judge_values(*rule.find_rows(at, classes=model.classes), ask)
    forms = find_proof_rules(rule, output_size=model.output_size)
    plain = forms.plain.all() and not len(forms.affine.value) and not len(forms.square_rule)
    if plain and isinstance(model.members, TreeMembers):
        return judge_values(-forms.affine.constant, -forms.targets, ask)
    return judge_by_cells(rule, ask)
