"""Made-up people with a sensitive group that their features know of: data for rules on groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cg4ai.data import Array, IntArray

ROWS = 20_000


@dataclass(frozen=True)
class People:
    """Features (n, d), labels (n,) 0 or 1, and the group (n,) of each, which no feature is."""

    inputs: Array
    labels: IntArray
    groups: IntArray


def smooth(seed: int, rows: int = ROWS) -> People:
    """Eight normal features, two of which shift with the group; an interaction matters, too."""
    random = np.random.default_rng(seed)
    groups = random.integers(0, 2, rows)
    inputs = random.normal(size=(rows, 8))
    inputs[:, 0] += 0.8 * groups
    inputs[:, 1] += 0.5 * groups
    score = inputs[:, :3] @ [1.0, 0.7, -0.6] + 0.5 * inputs[:, 3] * inputs[:, 4] - 0.6
    return People(inputs, (score + random.logistic(size=rows) > 0).astype(np.int64), groups)


def census(seed: int, rows: int = ROWS) -> People:
    """Like a census: years, hours, schooling, a skewed gain and jobs as 0/1 columns.

    A third belong to the smaller group, who work fewer hours in other jobs; about a quarter of all
    labels are 1, twice as many of them in the larger group.
    """
    random = np.random.default_rng(10_000 + seed)
    groups = (random.random(rows) < 0.67).astype(np.int64)
    age = np.clip(random.gamma(6.0, 6.5, rows), 17, 90)
    school = np.clip(np.round(random.normal(10 + 0.2 * groups, 2.5)), 1, 16)
    hours = np.clip(random.normal(36 + 6 * groups, 11), 5, 90)
    gain = np.where(random.random(rows) < 0.08, random.lognormal(8, 1, rows), 0.0)
    tilt = np.where(groups == 1, 1.0, -1.0)[:, None] * [0.5, 0.3, 0.0, -0.4, -0.6, 0.1]
    chances = np.exp(tilt + 0.12 * (school[:, None] - 10) * [1.0, 0.5, 0.0, -0.5, -1.0, 0.2])
    draw = random.random((rows, 1)) < np.cumsum(chances / chances.sum(1, keepdims=True), axis=1)
    jobs = np.eye(6)[draw.argmax(1)]
    married = (random.random(rows) < 0.3 + 0.3 * groups).astype(float)
    score = (
        0.03 * (np.minimum(age, 55) - 38) - 0.03 * np.maximum(age - 60, 0)
        + 0.33 * (school - 10) + 0.03 * (hours - 40) + 0.25 * np.log1p(gain)
        + jobs @ [0.7, 0.3, 0.0, -0.4, -0.8, 0.0] + 1.6 * married - 2.6
    )  # fmt: skip
    inputs = np.column_stack([age / 10, school, hours / 10, np.log1p(gain), jobs, married])
    labels = (score + random.logistic(size=rows) > 0).astype(np.int64)
    return People(inputs, labels, groups)


SOURCES: dict[str, Callable[[int, int], People]] = {"smooth": smooth, "census-like": census}


def drawn(name: str, seed: int, rows: int = ROWS) -> tuple[People, People]:
    """Rows to train on, and 20,000 fresh ones."""
    return SOURCES[name](seed, rows), SOURCES[name](seed + 1000, ROWS)
