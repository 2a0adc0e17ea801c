"""Rows that no predictor can meet together: same input, same direction, lower above upper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cg4ai.records import Array, IntArray
from cg4ai.rules.labels import Margin
from cg4ai.rules.place import Placed, rows_at_centre
from cg4ai.rules.rows import LinearRows, Rows

if TYPE_CHECKING:
    from cg4ai.rules.place import Requirement


def contradictions(requirements: Sequence[Requirement]) -> list[str]:
    """One line for each pair of listed rows that exclude each other whatever the outputs are.

    Looks at lists, pools and the centres of regions, at identical inputs with coefficients that
    are multiples of each other: an empty answer does not mean that the requirements can be met.
    Requirements must have been checked, since some learn from `check` how many outputs there are.
    """
    return opposed(list(_known_rows(requirements)))


def _known_rows(requirements: Sequence[Requirement]) -> Iterator[tuple[Requirement, Rows]]:
    """The rows of lists and pools, and over a region those at its centre."""
    for number, requirement in enumerate(requirements):
        rows = requirement.rows(number)
        if rows is None and isinstance(requirement, Placed) and requirement.over_region:
            rows = rows_at_centre(requirement, requirement.known_output_size(), number)
        if rows is not None:
            yield requirement, rows


def improbable(requirements: Sequence[Requirement]) -> list[str]:
    """One line for each rule that no probabilities can keep: outputs >= 0 that sum to one.

    Looks at each row by itself, and at lower bounds of single probabilities at one input, which
    must not sum to more than one. As above, an empty answer promises nothing.
    """
    texts = []
    lowest: dict[bytes, dict[int, tuple[float, str]]] = {}
    for requirement, rows in _known_rows(requirements):
        if not isinstance(rows, LinearRows) or rows.index is None:
            if isinstance(requirement, Margin) and np.max(requirement.at_least) > 1:
                texts.append(f"{requirement.name}: a margin between probabilities is at most 1")
            continue
        most = rows.coefficients.max(axis=1)
        beyond = most < rows.bounds - 1e-9
        for j in np.flatnonzero(beyond).tolist():
            text = requirement.describe(rows, j)
            texts.append(f"{text}, but probabilities reach at most {most[j]:.4g}")
        alone = (rows.coefficients != 0).sum(axis=1) == 1
        for j in np.flatnonzero(alone & ~beyond & (most > 0) & (rows.bounds > 0)).tolist():
            label = int(rows.coefficients[j].argmax())
            lower = float(rows.bounds[j] / most[j])
            known = lowest.setdefault((rows.inputs[rows.index[j]] + 0.0).tobytes(), {})
            if label not in known or lower > known[label][0]:
                known[label] = (lower, requirement.describe(rows, j))
    for known in lowest.values():
        total = sum(lower for lower, _ in known.values())
        if total > 1 + 1e-9:
            both = " and ".join(text for _, text in known.values())
            texts.append(f"{both}, but these probabilities would sum to {total:.4g}")
    return texts


def opposed(batches: Sequence[tuple[Requirement, Rows]]) -> list[str]:
    """The same for batches of rows; rows that sum over inputs are left out."""
    single = [
        (requirement, rows)
        for requirement, rows in batches
        if isinstance(rows, LinearRows) and rows.index is not None and len(rows)
    ]
    if not single:
        return []
    places = _input_numbers([rows for _, rows in single])
    coefficients = np.concatenate([rows.coefficients for _, rows in single])
    bounds = np.concatenate([rows.bounds for _, rows in single])
    ends = np.cumsum([len(rows) for _, rows in single])

    def describe(j: int) -> str:
        batch = int(np.searchsorted(ends, j, side="right"))
        requirement, rows = single[batch]
        return requirement.describe(rows, j - int(ends[batch] - len(rows)))

    scale = np.abs(coefficients).max(axis=1)
    impossible = np.flatnonzero((scale == 0) & (bounds > 0))
    texts = [f"{describe(j)}, although all coefficients are zero" for j in impossible.tolist()]
    used = np.flatnonzero(scale > 0)
    for low, high in _clashes(
        places[used], coefficients[used] / scale[used, None], bounds[used] / scale[used]
    ):
        texts.append(f"{describe(int(used[low]))}, but {describe(int(used[high]))}")
    return texts


def _input_numbers(batches: Sequence[LinearRows]) -> IntArray:
    """A number for the input of every row, equal for identical inputs."""
    known: dict[bytes, int] = {}
    numbers = []
    for rows in batches:
        plain = rows.inputs + 0.0  # so that -0.0 and 0.0 are the same input
        own = np.array([known.setdefault(x.tobytes(), len(known)) for x in plain], np.int64)
        numbers.append(own[rows.index])
    return np.concatenate(numbers)


def _clashes(places: IntArray, coefficients: Array, bounds: Array) -> list[tuple[int, int]]:
    """Pairs (row with the highest lower end, row with the lowest upper end) that exclude."""
    if len(places) == 0:
        return []
    first = np.take_along_axis(
        coefficients, (coefficients != 0).argmax(axis=1)[:, None], axis=1
    ).ravel()
    sign = np.sign(first)
    keys = np.column_stack([places, np.round(coefficients * sign[:, None], 12) + 0.0])
    _, group = np.unique(keys, axis=0, return_inverse=True)
    group = group.ravel()
    lower = np.full(group.max() + 1, -np.inf)
    upper = np.full(group.max() + 1, np.inf)
    np.maximum.at(lower, group[sign > 0], bounds[sign > 0])
    np.minimum.at(upper, group[sign < 0], -bounds[sign < 0])
    pairs = []
    for g in np.flatnonzero(lower > upper + 1e-9 * (1 + np.abs(upper))).tolist():
        low = np.flatnonzero((group == g) & (sign > 0) & (bounds == lower[g]))[0]
        high = np.flatnonzero((group == g) & (sign < 0) & (-bounds == upper[g]))[0]
        pairs.append((int(low), int(high)))
    return pairs
