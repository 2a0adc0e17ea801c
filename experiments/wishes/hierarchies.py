"""A hierarchy of demand, drawn: what the wishes about reconciliation share."""

from __future__ import annotations

import numpy as np

from cg4ai.data import Array
from cg4ai.rules import Equality, Range
from experiments.wishes.common import ROUNDING

NAMES = ("total", "north", "south", "n1", "n2", "s1", "s2")
PARTS = 4
SUMS = np.array([[1.0, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]])
SUMMING = np.vstack([SUMS, np.eye(PARTS)])  # (7, 4): all series from those at the bottom
RULES = (
    Equality(None, np.column_stack([np.eye(len(SUMS)), -SUMS]), 0.0, name="hierarchy"),
    Range(0.0, None, name="never negative"),
)


def draw_demand(rows: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Intermittent demand of seven series, (rows, 7), and forecasts of each made on its own."""
    present = random.uniform(size=(rows, PARTS)) < 0.5
    bottom = np.where(present, random.gamma(2.0, 2.0, (rows, PARTS)), 0.0)
    actual = bottom @ SUMMING.T
    noise = random.normal(size=actual.shape) * np.sqrt(SUMMING.sum(axis=1)) * 1.5
    return actual, np.maximum(actual + noise, 0.0)


def below_zero(values: Array) -> int:
    """How many rows have a number below zero, by more than rounding."""
    return int((values.min(axis=-1) < -ROUNDING * np.abs(values).max()).sum())


def incoherent(values: Array) -> int:
    """How many rows do not add up, by more than rounding."""
    gap = np.abs(values[..., : len(SUMS)] - values[..., len(SUMS) :] @ SUMS.T).max(axis=-1)
    return int((gap > ROUNDING * np.abs(values).max()).sum())
