"""Rules `matrix @ y >= bound` at single inputs: ranges, orders, sums, limits, stability."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

from cg4ai.clock import now
from cg4ai.fitted_models.findings import RuleFinding
from cg4ai.fitted_models.model import FittedModel
from cg4ai.fitted_models.question import Question
from cg4ai.fitted_models.sums import SumAudit
from cg4ai.members.trees import TreeMembers
from cg4ai.proofs.certificate import build_certificate
from cg4ai.proofs.certification import certify
from cg4ai.records import Array
from cg4ai.rules import Requirement
from cg4ai.rules.linear import Linear

STARTS, SWEEPS = 6, 4
MOST_VALUES = 48  # of a feature that the search along it tries
HAIR = 1e-14
ROUNDING = 1e-12  # of a bound: a miss that only rounding makes


def judge_values(matrix: Array, bound: Array, ask: Question) -> RuleFinding:
    """Whether `matrix @ y >= bound` for the outputs y at every input."""
    matrix, bound = np.asarray(matrix, np.float64), np.asarray(bound, np.float64)
    model = ask.model
    if isinstance(model.members, TreeMembers):
        rows = find_score_rows(model, matrix, bound)
        if rows is not None and len(rows[0]):
            return _judge_sums(matrix, bound, rows, ask)
    region = ask.require_region()
    return judge_by_cells(Linear(region, matrix, bound, ">=", name=ask.rule), ask)


def find_score_rows(model: FittedModel, matrix: Array, bound: Array) -> tuple[Array, Array] | None:
    """The same about scores before a softmax: (functionals, bounds); None where it is not."""
    if not model.under_softmax:
        return matrix, bound
    size, rows, bounds = model.output_size, [], []
    for row, least in zip(matrix, bound.tolist(), strict=True):
        if (row == row[0]).all():  # of probabilities, which sum to one
            total = float(row[0])
            if total >= least:
                continue
            return None
        used = np.flatnonzero(row)
        if len(used) == 2 and least == 0 and row.sum() == 0:
            rows.append(row / np.abs(row).max())
            bounds.append(0.0)
        elif size == 2:
            found = _find_score_bound(row, least)
            if found is None:
                return None
            if math.isfinite(found[1]):
                rows.append(np.array([-found[0], found[0]]))
                bounds.append(found[1])
        else:
            return None
    return np.array(rows).reshape(-1, size), np.array(bounds)


def _find_score_bound(row: Array, least: float) -> tuple[float, float] | None:
    """`sign * z` is at least this where `row . (1 - p, p) >= least`, p the sigmoid of z.

    A hair more is asked than need be, so that rounding the bound loses nothing. None: no z does.
    """
    slope = float(row[1] - row[0])
    share = (least - float(row[0])) / slope
    if slope < 0:
        share = 1.0 - share  # of the first class
    if share <= 0:
        return 1.0, -math.inf
    if share >= 1:
        return None
    at = math.log(share) - math.log1p(-share)
    slip = HAIR * (1 + abs(at) + 1 / (share * (1 - share)))
    return (1.0 if slope > 0 else -1.0), at + slip


def _judge_sums(
    matrix: Array, bound: Array, rows: tuple[Array, Array], ask: Question
) -> RuleFinding:
    model, (functionals, bounds) = ask.model, rows
    audit = SumAudit.of_values(model, functionals, bounds, ask.ends)
    worst, missed = None, 0.0
    for search in (_search_along, _search_cells):
        for inputs in search(audit, functionals, bounds, ask):
            found = model.predict(inputs)
            by = bound - found @ matrix.T
            size = ask.tolerance * np.maximum(np.abs(bound), np.abs(found) @ np.abs(matrix.T))
            if (by - size).max() > 0 and by.max() > missed and ask.contains(inputs):
                worst, missed = inputs, float(by.max())
        if worst is not None:
            return ask.answer("refuted", missed=missed, bound=math.inf, inputs=worst)
    measure = "scores" if model.under_softmax else "predictions"
    if audit.proven:
        return ask.answer_proven(audit.build_certificate(ask.rule, ask.title, ()))
    note = "the limit of the search was reached; a smaller region or more time may decide it"
    left = audit.compute_bound()
    if left <= max(model.rounding, ROUNDING * float(np.abs(bound).max())):
        note = "it holds but for rounding: ask for a bound a hair wider to have it proven"
    return ask.answer("unknown", bound=left, measure=measure, note=note)


def _search_along(
    audit: SumAudit, functionals: Array, bounds: Array, ask: Question
) -> Iterator[Array]:
    """Inputs that may break the rule, by a search along features in a quarter of the time."""
    start = now()
    until = start + 0.25 * (ask.until - start)
    for functional, bound in zip(functionals, bounds, strict=True):
        point, value = search_along(ask, functional, until)
        if value < bound:
            yield point[None]


def _search_cells(
    audit: SumAudit, functionals: Array, bounds: Array, ask: Question
) -> Iterator[Array]:
    """The same by the search that also proves."""
    for candidate in audit.search(ask.until):
        yield candidate.inputs


def search_along(ask: Question, functional: Array, until: float) -> tuple[Array, float]:
    """An input with a low value of the scores: one feature at a time, from several starts."""
    model, (lower, upper) = ask.model, ask.ends
    known = model.find_probes(256, seed=1)
    starts = np.clip(np.concatenate([ask.data[:256], known]), lower, upper)
    scores = model.read_scores(starts) @ functional
    best, least = starts[int(scores.argmin())], float(scores.min())
    values = [_spread_values(known[:, j], lower[j], upper[j]) for j in range(model.input_size)]
    for at in np.argsort(scores)[:STARTS].tolist():
        point, value = starts[at].copy(), float(scores[at])
        for _ in range(SWEEPS):
            before = value
            for column, tries in enumerate(values):
                trial = np.tile(point, (len(tries), 1))
                trial[:, column] = tries
                own = model.read_scores(trial) @ functional
                if own.min() < value:
                    point, value = trial[int(own.argmin())], float(own.min())
            if value >= before or now() > until:
                break
        if value < least:
            best, least = point, value
        if now() > until:
            break
    return best, least


def _spread_values(known: Array, low: float, high: float) -> Array:
    values = np.unique(np.clip(known, low, high))
    if len(values) > MOST_VALUES:
        values = values[np.linspace(0, len(values) - 1, MOST_VALUES).astype(int)]
    return values


def judge_by_cells(rule: Requirement, ask: Question) -> RuleFinding:
    """As `certify` does; refuted only where the library's own predictions break the rule, too."""
    model = ask.model
    left = max(0.1, ask.until - now())
    found = certify(ask.ensemble, rule, time_limit_s=left, tolerance=ask.tolerance)
    if found.status == "proven":
        certificate = build_certificate(
            ask.ensemble, requirement=rule, certification=found, title=ask.title
        )
        return ask.answer_proven(certificate)
    note, point = found.note, found.counterexample
    if found.status == "refuted" and point is not None:
        point = _single(point, ask) if model.unit > HAIR else point
        by = _compute_miss(rule, point, model)
        if by > 0:
            return ask.answer("refuted", missed=by, inputs=point[None])
        note = "the stored weights break it, the library's own rounding does not show it"
    return ask.answer("unknown", bound=max(0.0, found.excess), note=note)


def _single(point: Array, ask: Question) -> Array:
    """Numbers that float32 has, where they lie in the region."""
    near = point.astype(np.float32).astype(np.float64)
    return near if ask.contains(near[None]) else point


def _compute_miss(rule: Requirement, point: Array, model: FittedModel) -> float:
    found = rule.violations(
        torch.as_tensor(point)[None], torch.as_tensor(model.predict(point[None]))
    )
    return float(found.max())
