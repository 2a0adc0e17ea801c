"""Which rules on outputs a mixture keeps by the structure of its members, read from their arrays.

Their forms say where outputs lie whatever the input, and what `row . y` is at least there: rules
are such rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from cg4ai.members.structure import EXACT, SetForm
from cg4ai.nn.set_projection import distribute_remainder
from cg4ai.records import Array
from cg4ai.rules.output_sets import OutputRule, OutputSet

if TYPE_CHECKING:
    from cg4ai.ensemble.ensemble import Ensemble


def keeps_set(ensemble: Ensemble, rule: OutputRule) -> bool:
    """Whether every member that is used keeps it at every input, but for rounding."""
    return _within(ensemble, rule.output_set(ensemble.output_size))


def _within(ensemble: Ensemble, source: OutputSet) -> bool:
    """Whether all members that are used, and anchors, have outputs in the set, but for rounding."""
    matrix, bound = source.rows
    forms = find_set_forms(ensemble, matrix)
    return bool(forms) and all(
        (
            one.compute_least(matrix)
            >= bound - EXACT * (np.abs(bound) + np.abs(matrix) @ one.compute_sizes())
        ).all()
        for one in forms
    )


def find_common_set(ensemble: Ensemble) -> OutputSet | None:
    """A set that all members keep by their structure; None where none is known.

    It is the set that members were built for, or that of numbers between 0 and 1. Sums of weighted
    members leave it by rounding alone, so outputs are put back into it (`correct_rounding`).
    """
    arranged = next(filter(None, (part.members.output_set for part in ensemble.used)), None)
    if arranged is not None and len(ensemble.layout) == 1:
        ends = OutputSet(arranged.low, arranged.high)
        return next((one for one in (arranged, ends) if _within(ensemble, one)), None)
    size = ensemble.output_size
    shares = OutputSet(np.zeros(size), np.ones(size))
    anchored = () if ensemble.anchor is None else ensemble.anchor.used
    given = all(part.members.gives_shares() for part in (*ensemble.used, *anchored))
    return shares if given else None


def correct_rounding(source: OutputSet, outputs: Tensor) -> Tensor:
    """(..., r) -> (..., r): in the set, of outputs that are outside it by rounding alone.

    Ends and orders are kept exactly in the precision of `outputs`, totals as rounding allows. All
    steps are monotone, so that nothing that rises with an input falls by them. Numbers that are
    none stay so.
    """
    low, high = (
        _ends(end, outputs, up=up) for end, up in ((source.low, True), (source.high, False))
    )
    y = outputs.clamp(min=low).clamp(max=high)
    for one in source.totals:
        place = torch.tensor(one.outputs, device=y.device)
        own = y.index_select(-1, place)
        least, most = (
            torch.as_tensor(end, dtype=y.dtype, device=y.device).expand(y.shape[-1])[place]
            for end in (low, high)
        )
        moved = own + distribute_remainder(own.detach(), least, most, one.value)
        y = y.index_copy(-1, place, torch.clamp(moved, least, most))
    for chain in source.chains:
        place = torch.tensor(chain, device=y.device)
        y = y.index_copy(-1, place, y.index_select(-1, place).sort(-1).values)
    return y


def plan_correction(source: OutputSet) -> Callable[[Array], Array]:
    """`correct_rounding` for one output (r,)."""
    low, high = source.low, source.high
    if source.totals or source.chains:
        return lambda y: np.asarray(correct_rounding(source, torch.from_numpy(y)).numpy())
    return lambda y: np.minimum(np.maximum(y, low), high)


def _ends(values: Array, like: Tensor, *, up: bool) -> Any:
    """Ends (r,) in the precision of a tensor, rounded inwards; one number if all are the same."""
    if like.dtype is not torch.float64:
        kind = torch.empty(0, dtype=like.dtype).numpy().dtype
        near = values.astype(kind)
        wrong = near < values if up else near > values
        toward = np.array(np.inf if up else -np.inf, kind)
        values = np.where(wrong, np.nextafter(near, toward), near)
    if (values == values[0]).all():
        return float(values[0])
    return torch.as_tensor(values).to(device=like.device, dtype=like.dtype)


def find_set_forms(ensemble: Ensemble, matrix: Array) -> list[SetForm]:
    """Those of all members that are used, and of anchors; none where some member has no form.

    `matrix` (m, r) are the rows that are asked about: a shield that moves outputs of one row by
    different shares keeps nothing of it.
    """
    anchor = ensemble.anchor
    parts = [*ensemble.used, *(() if anchor is None else anchor.used)]
    found = [part.members.find_set_forms(matrix) for part in parts]
    if len(ensemble.layout) > 1 or not all(found):
        return []
    return [form for forms in found for form in forms]
