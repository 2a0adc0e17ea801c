"""`repair`: a fitted model moved as little as possible, so that it keeps rules at every input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.fitted_models.audit import Rule, find_rows, resolve_region, resolve_rule
from cg4ai.fitted_models.envelopes import Envelopes
from cg4ai.fitted_models.model import FittedModel, Predict
from cg4ai.fitted_models.reading import read_model
from cg4ai.fitted_models.stable import Stable
from cg4ai.layout import Layout
from cg4ai.members.mixture import Part
from cg4ai.members.output_sets import ArrangedMembers, move_into_set
from cg4ai.members.tree_arrays import repair_leaves
from cg4ai.members.trees import TreeMembers
from cg4ai.nn import Shield
from cg4ai.protocols import Members
from cg4ai.records import Array, Strength
from cg4ai.rules import Linear
from cg4ai.rules.output_sets import OutputRule, SumTo, join_output_rules
from cg4ai.rules.regions import Region
from cg4ai.rules.shapes import Monotone, Shape


@dataclass(frozen=True)
class Distance:
    """How far a repaired model is from the model, on rows: differences of outputs."""

    rows: int
    mean: float
    largest: float
    moved: float  # the share of rows whose outputs differ

    def __str__(self) -> str:
        return (
            f"{self.moved:.1%} of {self.rows} rows moved; by {self.mean:.4g} on average over all "
            f"rows, at most {self.largest:.4g}"
        )


@dataclass(frozen=True, eq=False)
class RepairedModel:
    """A model with what moves its outputs; `strengths` says of each rule how it is kept.

    `ensemble` is the repaired model as an ensemble of one member, where `method="leaves"` made one:
    it can be saved, exported and certified.
    """

    model: FittedModel
    strengths: dict[str, Strength]
    distance: Distance | None
    ensemble: Ensemble | None
    _outputs: Predict = field(repr=False)

    def outputs(self, inputs: Any) -> Array:
        """(n, d) -> (n, r): values, or a probability for each class."""
        x = np.asarray(inputs, np.float64)
        if x.ndim != 2 or x.shape[1] != self.model.input_size:
            raise InvalidInput(
                f"inputs must be (n, {self.model.input_size}), got shape {x.shape}", code="shape"
            )
        if not np.isfinite(x).all():
            raise InvalidInput(
                "a repaired model takes finite numbers; fill in missing values first",
                code="missing-values",
            )
        return np.asarray(self._outputs(x))

    def predict(self, inputs: Any) -> Array:
        """Values, (n,) of one output, or classes as the model itself has them."""
        found = self.outputs(inputs)
        if self.model.classes:
            classes = np.asarray(self.model.labels or self.model.outputs)
            return np.asarray(classes[found.argmax(axis=1)])
        return np.asarray(found[:, 0]) if found.shape[1] == 1 else found

    def predict_proba(self, inputs: Any) -> Array:
        if not self.model.classes:
            raise InvalidInput("a regressor has no probabilities; use predict", code="unsupported")
        return self.outputs(inputs)

    def __str__(self) -> str:
        lines = [f"Repaired {self.model.words}."]
        lines += [
            f"  {name}: {WORDS[one].format(self.model)}" for name, one in self.strengths.items()
        ]
        if self.distance is not None:
            lines.append(f"  Distance from the model: {self.distance}.")
        return "\n".join(lines)


WORDS = {
    Strength.CONSTRUCTED: "holds at every input up to {0.largest:g} in size, by construction",
    Strength.SHIELDED: "holds at every input of its region, by a shield",
}


def repair(
    model: Any,
    rules: Rule | Sequence[Rule],
    region: Region | None = None,
    *,
    data: Any = None,
    features: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    method: Literal["envelope", "leaves"] = "envelope",
) -> RepairedModel:
    """The fitted model with its outputs moved so that the rules hold, as near to it as possible.

    `Monotone` of a model of trees: the middle between the two monotone envelopes of its
    predictions. Of one feature no monotone function is nearer, in the largest difference. Or, with
    `method="leaves"`, each tree by itself: its leaves are moved to the middle where a split has
    them out of order; that is an ordinary ensemble, faster, and further away. `Range`, `Ordered`
    and `SumTo`: outputs are moved into the set. Other rules over a region, and `Stable`: a shield
    around the model. Rules of both last kinds go together, and so do monotone ones with `Range` and
    `Ordered`; a shield does not keep shapes. `data` (n, d) are rows on which the distance from the
    model is reported.
    """
    if method not in ("envelope", "leaves"):
        raise InvalidInput(
            f"method must be 'envelope' or 'leaves', got {method!r}", code="unknown-name"
        )
    fitted = read_model(model, features=features, outputs=outputs)
    given = list(rules) if isinstance(rules, Sequence) else [rules]
    if not given:
        raise InvalidInput("there is no rule to repair for; give one or more", code="empty")
    rows = find_rows(data, fitted)
    place = resolve_region(region, fitted, rows)
    kept = [resolve_rule(one, fitted, place, rows) for one in given]
    shapes = [one for one in kept if isinstance(one, Shape)]
    sets = [one for one in kept if isinstance(one, OutputRule)]
    others: list[Any] = [one for one in kept if not isinstance(one, Shape | OutputRule)]
    _refuse_conflicts(shapes, sets, others)
    answer, ensemble = fitted.predict, None
    if shapes and method == "leaves":
        ensemble = _build_ensemble(fitted, _find_signs(shapes, fitted), sets)
        answer = _predict_of(ensemble)
    elif shapes:
        answer = _make_monotone(fitted, _find_signs(shapes, fitted))
    if sets and ensemble is None:
        answer = _arrange(answer, sets, fitted.output_size)
    if others:
        answer = _shield(answer, others, sets, fitted)
    built = [*(one.name for one in shapes), *(one.name for one in sets)]
    strengths = dict.fromkeys(built, Strength.CONSTRUCTED)
    strengths |= dict.fromkeys((one.name for one in others), Strength.SHIELDED)
    distance = _measure(fitted.predict, answer, rows) if len(rows) else None
    return RepairedModel(fitted, strengths, distance, ensemble, answer)


def _refuse_conflicts(
    shapes: Sequence[Shape], sets: Sequence[OutputRule], others: Sequence[Any]
) -> None:
    bent = [one.name for one in shapes if not isinstance(one, Monotone) or one.ordered]
    if bent:
        raise InvalidInput(
            f"{bent[0]}: only plain Monotone rules are repaired; train a ConstrainedRegressor with "
            "this rule instead",
            code="unsupported",
        )
    if shapes and others:
        raise InvalidInput(
            f"{shapes[0].name} and {others[0].name} cannot be repaired together: a shield does not "
            "keep shapes; state limits at every input by Range, or repair for one of them",
            code="conflict",
        )
    if shapes and any(isinstance(one, SumTo) for one in sets):
        raise InvalidInput(
            f"{shapes[0].name} cannot be repaired together with outputs that sum to a total",
            code="conflict",
        )


def _find_signs(shapes: Sequence[Shape], model: FittedModel) -> dict[int, int]:
    """The features, each with its sign, of which all outputs, or the second class, are asked."""
    if model.classes and model.output_size > 2:
        raise InvalidInput(
            "Monotone probabilities of more than two classes are not repaired; train a "
            "ConstrainedClassifier with the rule instead",
            code="unsupported",
        )
    signs: dict[int, int] = {}
    for shape in shapes:
        asked = shape
        if model.classes:
            asked = shape.for_classes(2, logits=False)
        turned = -1 if model.classes and asked.output == 0 else 1
        if not model.classes and asked.output is not None and model.output_size > 1:
            raise InvalidInput(
                f"{shape.name} is about one of {model.output_size} outputs; only rules about all "
                "of them are repaired",
                code="unsupported",
            )
        for feature, sign in asked.features.items():
            if signs.setdefault(int(feature), turned * int(sign)) != turned * int(sign):
                raise InvalidInput(
                    f"feature {model.features[int(feature)]} is to rise and to fall",
                    code="conflict",
                )
    return signs


def _make_monotone(model: FittedModel, signs: dict[int, int]) -> Predict:
    if not model.classes:
        return Envelopes(model, model.predict, signs, model.largest)
    second = Envelopes(model, lambda x: model.predict(x)[:, 1:], signs, model.largest)
    return lambda x: np.concatenate([1 - second(x), second(x)], axis=1)


def _arrange(answer: Predict, sets: Sequence[OutputRule], size: int) -> Predict:
    source = join_output_rules(list(sets), size)
    return lambda x: move_into_set(source, answer(x))


def _shield(
    answer: Predict, others: Sequence[Any], sets: Sequence[OutputRule], model: FittedModel
) -> Predict:
    rules: list[Any] = []
    for one in others:
        if isinstance(one, Stable):
            at = answer(one.row[None])[0]
            matrix, bound = one.find_rows(at, classes=model.classes)
            rules.append(Linear(one.region, matrix, bound, ">=", name=one.name))
        else:
            rules.append(one)
    within: list[Any] = [*sets, *([SumTo(1.0)] if model.classes and not sets else [])]
    layer = Shield(rules, within=within, output_size=model.output_size).double().eval()

    def shielded(inputs: Array) -> Array:
        with torch.no_grad():
            moved = layer(torch.as_tensor(answer(inputs)), torch.as_tensor(inputs))
        return np.asarray(moved.numpy())

    return shielded


def _build_ensemble(
    model: FittedModel, signs: dict[int, int], sets: Sequence[OutputRule]
) -> Ensemble:
    """The model with the leaves of each tree in order."""
    if not isinstance(model.members, TreeMembers):
        raise InvalidInput("method='leaves' is for models of trees", code="unsupported")
    table = np.zeros((model.output_size, model.input_size), np.int64)
    under_two = model.classes
    for feature, sign in signs.items():
        table[1 if under_two else slice(None), feature] = sign
        if under_two and not model.under_softmax:
            table[0, feature] = -sign
    made: Members = repair_leaves(model.members, table, most=np.inf)
    if sets:
        made = ArrangedMembers(made, join_output_rules(list(sets), model.output_size))
    part = Part(made, np.zeros(1, np.int64), np.ones(1))
    about = {"features": list(model.features), "outputs": list(model.outputs)}
    return Ensemble((part,), Layout.single(model.output_size), about=about)


def _predict_of(ensemble: Ensemble) -> Predict:
    return lambda x: np.asarray(ensemble.predict(x))


def _measure(first: Predict, second: Predict, rows: Array) -> Distance:
    apart = np.abs(first(rows) - second(rows)).max(axis=1)
    moved = float((apart > 1e-9 * max(1e-300, float(np.abs(first(rows)).max()))).mean())
    return Distance(len(rows), float(apart.mean()), float(apart.max()), moved)
