"""Rows made ready for training give the values and weights of the rows they stand for."""

import numpy as np
import pytest
import torch

from cg4ai.colgen.pricing.gradient.rows import SimpleRows, join_rows, prepare_rows
from cg4ai.rules import Margin, Rate
from cg4ai.rules.rows import LinearRows

MADE = np.random.default_rng(0)


def linear(count, inputs, *, index=None):
    return LinearRows(
        0,
        MADE.normal(size=(inputs, 2)),
        MADE.normal(size=(count, 3)),
        MADE.normal(size=count),
        np.arange(count) if index is None else np.array(index),
    )


def made_ready(rows, hinge=None, guide=None):
    hinge = MADE.random(len(rows)) if hinge is None else hinge
    guide = MADE.random(len(rows)) if guide is None else guide
    return prepare_rows((rows, hinge, guide), torch.as_tensor, headroom=0.5, weight=2.0)


def outputs_at(rows):
    """(4, k, 3): outputs of four members, any function of the inputs will do."""
    drawn = torch.Generator().manual_seed(1)
    weights = torch.randn(4, 2, 3, generator=drawn, dtype=torch.float64)
    return torch.tanh(torch.as_tensor(rows.inputs) @ weights)


CASES = [
    lambda: linear(4, 4),
    lambda: linear(5, 3, index=[2, 0, 0, 1, 2]),
    lambda: linear(2, 2, index=[1, 0]),
]


@pytest.mark.parametrize("case", CASES)
def test_simple_rows_keep_values_bounds_and_weights(case):
    rows = case()
    hinge, guide = MADE.random(len(rows)), MADE.random(len(rows))
    found = made_ready(rows, hinge, guide)
    assert isinstance(found, SimpleRows)
    outputs = outputs_at(rows)
    expected = rows.values(outputs)
    torch.testing.assert_close(found.values(outputs), expected)
    spread = found.spread()
    assert len(spread.inputs) == len(rows)
    torch.testing.assert_close(spread.values(outputs_at(spread)), expected)
    np.testing.assert_allclose(found.needed, rows.bounds + 0.5)
    np.testing.assert_allclose(found.hinge, 2.0 * hinge)
    np.testing.assert_allclose(found.scale(3.0).hinge, 6.0 * hinge)
    np.testing.assert_allclose(found.guide, guide)


def test_joined_rows_are_all_rows_in_order():
    parts = [case() for case in CASES]
    entries = [made_ready(rows) for rows in parts]
    (one,) = join_rows(entries)
    expected = torch.cat([rows.values(outputs_at(rows)) for rows in parts], dim=-1)
    torch.testing.assert_close(one.values(outputs_at(one)), expected)
    for name in ("needed", "hinge", "guide"):
        together = torch.cat([getattr(entry, name) for entry in entries])
        assert torch.equal(getattr(one, name), together)


def test_rows_of_other_kinds_stay_apart():
    inputs = MADE.normal(size=(6, 2))
    rate = Rate.budget(inputs, mean_at_least=0.2)
    concave = Margin(inputs, np.arange(6) % 3, 0.1, form="member")
    batches = []
    for requirement in (rate, concave):
        requirement.check(2, 3)
        batches.append(requirement.rows(0))
    simple = made_ready(linear(4, 4))
    entries = [made_ready(rows) for rows in batches]
    assert not any(isinstance(entry, SimpleRows) for entry in entries)
    first, *others = join_rows([entries[0], simple, entries[1]])
    assert isinstance(first, SimpleRows)
    assert others == entries
    for entry, rows in zip(entries, batches, strict=True):
        outputs = outputs_at(rows)
        torch.testing.assert_close(entry.values(outputs), rows.values(outputs))
    assert join_rows([]) == []
