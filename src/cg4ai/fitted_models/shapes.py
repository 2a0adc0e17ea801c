"""`Monotone` and `Curvature` of fitted models: by structure, by steps, by search."""

from __future__ import annotations

import numpy as np
import torch

from cg4ai.clock import now
from cg4ai.fitted_models.findings import RuleFinding
from cg4ai.fitted_models.model import FittedModel
from cg4ai.fitted_models.question import Question
from cg4ai.fitted_models.slopes import bound_fall
from cg4ai.fitted_models.sums import SumAudit
from cg4ai.members.networks import NetworkMembers
from cg4ai.members.trees import TreeMembers
from cg4ai.proofs.structure_certificates import (
    build_construction_certificate,
    certify_construction,
)
from cg4ai.records import Array
from cg4ai.rules.shapes import Monotone, Shape

MOST_NODES = 500_000  # of trees whose structure is looked at before their steps
CHECKED = 24  # candidates that the library is asked about before the worst is reported
STARTS, STEPS = 256, 60


def judge_shape(shape: Shape, ask: Question) -> RuleFinding:
    """Whether outputs rise, fall or bend as they should, between any two or three inputs."""
    model = ask.model
    if model.classes:
        shape = shape.for_classes(model.output_size, logits=False)
    shape.check(model.input_size, model.output_size)
    members = model.members
    small = not isinstance(members, TreeMembers) or members.value[..., 0].numel() <= MOST_NODES
    if small and certify_construction(ask.ensemble, shape).status == "proven":
        certificate = build_construction_certificate(ask.ensemble, shape, ask.title)
        return ask.answer_proven(certificate, place=model.everywhere)
    if not isinstance(members, TreeMembers):
        return _judge_network(shape, ask)
    if isinstance(shape, Monotone):
        return _judge_steps(shape, ask)
    return _judge_bends(shape, ask)


def find_functionals(shape: Shape, model: FittedModel) -> Array:
    """(k, r): sums of scores of which each must have the shape."""
    if model.under_softmax:
        return shape.differences(model.output_size).astype(np.float64)
    return shape.functionals(model.output_size).astype(np.float64)


class _Measure:
    """What the library predicts of a shape's outputs: scores of two classes, or predictions."""

    def __init__(self, shape: Shape, model: FittedModel) -> None:
        self.model = model
        trees = isinstance(model.members, TreeMembers)
        self.by_scores = trees and model.under_softmax and model.output_size == 2
        if self.by_scores:
            self.rows = find_functionals(shape, model)
        else:
            self.rows = shape.functionals(model.output_size).astype(np.float64)
        self.words = "raw scores" if self.by_scores else "predictions"

    def __call__(self, inputs: Array) -> Array:
        """(n, k)."""
        ask = self.model.scores if self.by_scores else self.model.predict
        return np.asarray(ask(inputs) @ self.rows.T)


def _judge_steps(shape: Monotone, ask: Question) -> RuleFinding:
    model, measure = ask.model, _Measure(shape, ask.model)
    features = sorted((int(j), int(sign)) for j, sign in shape.features.items())
    audit = SumAudit.of_steps(model, find_functionals(shape, model), features, ask.ends)
    worst, missed, near = None, 0.0, 0.0
    for tried, candidate in enumerate(audit.search(ask.until)):
        found = measure(candidate.inputs)
        drop = float((found[0] - found[1]).max())
        near = max(near, candidate.missed)
        allowed = ask.tolerance * float(np.abs(found).max())
        if drop > max(missed, allowed, 0.0) and ask.contains(candidate.inputs):
            worst, missed = candidate.inputs, drop
        if worst is not None and tried >= CHECKED:
            break
    if worst is not None:
        return ask.answer(
            "refuted",
            missed=missed,
            bound=max(missed, audit.compute_bound()),
            inputs=worst,
            measure=measure.words,
            note=_moved(worst, shape, model),
        )
    if audit.proven:
        return ask.answer_proven(audit.build_certificate(ask.rule, ask.title, features))
    note = f"the time limit left {_open(audit)} of {len(audit.jobs)} steps open"
    if near:
        note = (
            f"exact sums miss the rule by {near:.3g}, which the library's own predictions do not "
            f"show beyond the tolerance of {ask.tolerance:g}"
        )
        if model.under_softmax and model.output_size > 2:
            note = "scores of classes are not ordered as a proof needs; probabilities may be"
    return ask.answer(
        "unknown", bound=audit.compute_bound(), measure="raw scores or values", note=note
    )


def _open(audit: SumAudit) -> int:
    return sum(one is None or not one.proven for one in audit.found)


def _moved(inputs: Array, shape: Shape, model: FittedModel) -> str:
    column = int(np.flatnonzero(inputs[0] != inputs[1])[0])
    name = model.features[column]
    first, last = inputs[0, column], inputs[-1, column]
    return f"with {name} going from {first:.6g} to {last:.6g} it goes the wrong way"


def _judge_bends(shape: Shape, ask: Question) -> RuleFinding:
    """Steps are neither convex nor concave: any of them breaks the rule at three inputs."""
    model, measure = ask.model, _Measure(shape, ask.model)
    functionals = shape.functionals(model.output_size).astype(np.float64)
    worst, missed, bound = None, 0.0, 0.0
    for feature, bend in sorted(shape.features.items()):
        for sign in (1, -1):
            audit = SumAudit.of_steps(model, functionals, [(int(feature), sign)], ask.ends)
            for tried, candidate in enumerate(audit.search(ask.until)):
                three = _bend(audit, candidate.inputs, int(feature), int(bend))
                three = np.clip(three, *ask.ends)
                found = measure(three)
                share = (three[1, feature] - three[0, feature]) / max(
                    three[2, feature] - three[0, feature], np.finfo(float).tiny
                )
                level = found[0] + (found[2] - found[0]) * share
                by = float((bend * (found[1] - level)).max())
                allowed = ask.tolerance * float(np.abs(found).max())
                if 0 < share < 1 and by > max(missed, allowed) and ask.contains(three):
                    worst, missed = three, by
                if worst is not None and tried >= CHECKED:
                    break
            bound = max(bound, audit.compute_bound())
    if worst is not None:
        note = f"three values of {model.features[_moving(worst)]} on a line, the middle one is off"
        return ask.answer(
            "refuted",
            missed=missed,
            bound=max(missed, bound),
            inputs=worst,
            measure=measure.words,
            note=note,
        )
    note = "sums of trees are steps, which bend only where they do not move"
    return ask.answer("unknown", bound=bound, measure=measure.words, note=note)


def _moving(inputs: Array) -> int:
    return int(np.flatnonzero(inputs[0] != inputs[-1])[0])


def _bend(audit: SumAudit, pair: Array, feature: int, bend: int) -> Array:
    """Three inputs around a step, of which the middle lies on the wrong side of the others."""
    pair = pair[np.argsort(pair[:, feature])]
    values = audit.model.read_scores(pair)
    rises = bool(((values[1] - values[0]) @ audit.jobs[0].functional) > 0)
    low, high = float(pair[0, feature]), float(pair[1, feature])
    three = np.stack([pair[0], pair[1], pair[1]])
    if rises == (bend > 0):  # the middle lies just above the step, the last one beyond it
        middle = low + (high - low) / 4 if high > low else high
        if audit.trees.single:
            middle = float(np.float32(middle))
        three[:, feature] = (low, middle, middle + (middle - low))
        return three
    cuts = [t for t in audit.trees.thresholds(feature) if t < low]
    start = cuts[-1] if cuts else max(low - 4.0, float(audit.trees.lower[feature]))
    first = low - (low - start) / 4
    if audit.trees.single:
        first = float(np.float32(first))
    above = np.nextafter(np.float32(low), np.float32(np.inf)) if audit.trees.single else 0.0
    last = float(above) if audit.trees.single else float(np.nextafter(low, np.inf))
    three[:, feature] = (first, low, min(high, max(last, low + (low - first) / 4)))
    return three


def _judge_network(shape: Shape, ask: Question) -> RuleFinding:
    """Search pairs, or threes, by gradients; what structure does not show stays unknown."""
    region, model = ask.require_region(), ask.model
    measure = _Measure(shape, model)
    worst, missed = None, 0.0
    lower, upper = region.bounds()
    rows = torch.as_tensor(measure.rows)
    generator = torch.Generator().manual_seed(0)
    for feature, sign in sorted(shape.features.items()):
        base = region.sample(STARTS, generator)
        ends = torch.rand(STARTS, 2, generator=generator, dtype=torch.float64)
        ends, _ = (lower[feature] + ends * (upper[feature] - lower[feature])).sort(dim=1)
        for _ in range(STEPS):
            base, ends = base.requires_grad_(), ends.requires_grad_()
            inputs = _spread(base, ends, int(feature), isinstance(shape, Monotone))
            loss = _misses(model, inputs, rows, int(sign)).amax(-1)
            slope, end_slope = torch.autograd.grad(loss.sum(), (base, ends))
            width = torch.as_tensor(upper - lower) / 20
            with torch.no_grad():
                base = region.project(base + width * slope.sign())
                moved = ends + width[int(feature)] * end_slope.sign()
                ends = moved.clamp(float(lower[feature]), float(upper[feature])).sort(dim=1)[0]
        with torch.no_grad():
            inputs = _spread(base, ends, int(feature), isinstance(shape, Monotone))
            loss = _misses(model, inputs, rows, int(sign)).amax(-1)
        for at in loss.argsort(descending=True)[:CHECKED].tolist():
            points = inputs[:, at].numpy().astype(np.float32).astype(np.float64)
            points = np.clip(points, lower, upper)
            found = measure(points)
            by = float(_combine(found, int(sign)).max())
            allowed = ask.tolerance * float(np.abs(found).max())
            if by > max(missed, allowed) and ask.contains(points):
                worst, missed = points, by
        if now() > ask.until:
            break
    if worst is not None:
        return ask.answer(
            "refuted",
            missed=missed,
            inputs=worst,
            measure=measure.words,
            note=_moved(worst, shape, model),
        )
    note = "weights do not show it, and a search by gradients found no violation"
    if not isinstance(shape, Monotone) or not isinstance(model.members, NetworkMembers):
        return ask.answer("unknown", measure=measure.words, note=note)
    falls = [
        bound_fall(model.members, int(sign) * row, int(feature), lower, upper, ask.until)
        for row in find_functionals(shape, model)
        for feature, sign in shape.features.items()
    ]
    if max(falls) == 0:
        note = "intervals of slopes show that it holds, which the checker does not verify"
    return ask.answer(
        "unknown",
        bound=max(falls),
        measure="scores" if model.under_softmax else measure.words,
        note=note,
    )


def _spread(base: torch.Tensor, ends: torch.Tensor, feature: int, pair: bool) -> torch.Tensor:
    """(2 or 3, n, d): the same inputs with values of the feature at both ends, and between."""
    values = [ends[:, 0], ends[:, 1]] if pair else [ends[:, 0], ends.mean(dim=1), ends[:, 1]]
    unit = torch.zeros(base.shape[1], dtype=base.dtype)
    unit[feature] = 1.0
    return torch.stack([base * (1 - unit) + one[:, None] * unit for one in values])


def _misses(
    model: FittedModel, inputs: torch.Tensor, rows: torch.Tensor, sign: int
) -> torch.Tensor:
    found = torch.stack([model.members.outputs(one)[0] @ rows.T for one in inputs])
    if len(found) == 2:
        return sign * (found[0] - found[1])
    return sign * (found[1] - (found[0] + found[2]) / 2)


def _combine(found: Array, sign: int) -> Array:
    if len(found) == 2:
        return np.asarray(sign * (found[0] - found[1]))
    return np.asarray(sign * (found[1] - (found[0] + found[2]) / 2))
