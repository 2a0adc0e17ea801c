"""What requirements say about outputs at single inputs: rows over points, and whose they are.

Lists and pools are read at their inputs. Rules over regions and at every input are read at those
of them that lie inside, at centres, at some vertices, and in the middle of where two regions meet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse import csr_matrix

from cg4ai.records import Array, IntArray
from cg4ai.rules import Equality, Margin, Monotone, OutputRule
from cg4ai.rules.linear import format_weighted_sum
from cg4ai.rules.regions import Region
from cg4ai.rules.requirement import InputRule, count_rules_over
from cg4ai.rules.rows import LinearRows

if TYPE_CHECKING:
    from cg4ai.rules import Requirement

MOST_ROWS = 200_000  # what would be more is left out, whole rules at a time
MOST_COMPARED = 300  # inputs that a monotone rule is read at, all pairs of them
MOST_REGIONS = 40  # between which it is looked where they meet
VERTICES = 16  # of each region

Words = Callable[[int], str]


class Points:
    """Inputs, each once, in order."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        self._inputs: list[Array] = []

    def __len__(self) -> int:
        return len(self._inputs)

    def numbers(self, inputs: Array) -> IntArray:
        """(k, d) -> (k,): equal for identical inputs."""
        found = np.empty(len(inputs), np.int64)
        for k, x in enumerate(inputs + 0.0):  # so that -0.0 and 0.0 are the same input
            found[k] = self._known.setdefault(x.tobytes(), len(self._inputs))
            if found[k] == len(self._inputs):
                self._inputs.append(x)
        return found

    @property
    def inputs(self) -> Array:
        return np.array(self._inputs)


@dataclass(frozen=True)
class Clauses:
    """Rows `sum_p weights[j, p] (coefficients[j] . outputs at p) >= bounds[j]`.

    `weights` (m, points) is sparse, `owner` (m,) the clause that a row belongs to.
    """

    coefficients: Array
    bounds: Array
    owner: IntArray
    weights: csr_matrix
    count: int
    _starts: IntArray
    _words: tuple[tuple[int, Words], ...]

    @cached_property
    def requirements(self) -> IntArray:
        """(count,): the requirement that each clause is of."""
        numbers = np.array([number for number, _ in self._words], np.int64)
        return np.repeat(numbers, np.diff([*self._starts.tolist(), self.count]))

    def text(self, clause: int) -> str:
        batch = int(np.searchsorted(self._starts, clause, side="right")) - 1
        return self._words[batch][1](clause - int(self._starts[batch]))


class _Collector:
    """Gathers rows until there are too many."""

    def __init__(self, outputs: int) -> None:
        self.outputs = outputs
        self.points = Points()
        self.rows = 0
        self._parts: list[tuple[Array, Array, IntArray]] = []
        self._entries: list[tuple[IntArray, IntArray, Array]] = []
        self._starts: list[int] = []
        self._words: list[tuple[int, Words]] = []
        self._count = 0

    def room(self, rows: int) -> bool:
        return self.rows + rows <= MOST_ROWS

    def add(
        self,
        coefficients: Array,
        bounds: Array,
        entries: tuple[IntArray, IntArray, Array],
        *,
        requirement: int,
        words: Words,
        owner: IntArray | None = None,
    ) -> None:
        """Rows with their `entries` (row, point, weight); `owner` (m,): which share a clause."""
        count = len(bounds)
        if not count or not self.room(count):
            return
        owner = np.arange(count) if owner is None else owner
        self._parts.append((coefficients, bounds, owner + self._count))
        self._entries.append((entries[0] + self.rows, entries[1], entries[2]))
        self._starts.append(self._count)
        self._words.append((requirement, words))
        self.rows += count
        self._count += int(owner.max()) + 1

    def add_rows(
        self, rows: LinearRows, requirement: int, words: Words, owner: IntArray | None = None
    ) -> None:
        places = self.points.numbers(rows.inputs)
        if rows.index is not None:
            row = np.arange(len(rows))
            entries = row, places[rows.index], np.ones(len(rows))
        else:
            assert rows.mixing is not None
            row, column = np.nonzero(rows.mixing)
            entries = row, places[column], rows.mixing[row, column]
        self.add(
            rows.coefficients,
            rows.bounds,
            entries,
            requirement=requirement,
            words=words,
            owner=owner,
        )

    def add_everywhere(
        self, matrix: Array, bounds: Array, requirement: int, words: Words, owner: IntArray
    ) -> None:
        """`matrix @ y >= bounds[p]` (L, r) and (points, L) at every point p."""
        points, rules = bounds.shape
        row = np.arange(points * rules)
        entries = row, np.repeat(np.arange(points), rules), np.ones(len(row))
        self.add(
            np.tile(matrix, (points, 1)),
            bounds.ravel(),
            entries,
            requirement=requirement,
            words=words,
            owner=np.tile(owner, points),
        )

    def clauses(self) -> Clauses:
        none = np.empty(0, np.int64)
        row, point, weight = (
            np.concatenate([none, *(one[k] for one in self._entries)]) for k in range(3)
        )
        return Clauses(
            np.concatenate([np.empty((0, self.outputs)), *(one[0] for one in self._parts)]),
            np.concatenate([np.empty(0), *(one[1] for one in self._parts)]),
            np.concatenate([none, *(one[2] for one in self._parts)]),
            csr_matrix(
                (weight.astype(np.float64), (row, point)), shape=(self.rows, len(self.points))
            ),
            self._count,
            np.array(self._starts, np.int64),
            tuple(self._words),
        )


def collect_clauses(
    requirements: Sequence[Requirement],
    *,
    input_size: int,
    output_size: int,
    classes: str = "",
    further: Array | None = None,
) -> Clauses:
    """What these requirements, which must have been checked, say about outputs at known inputs.

    `classes`: "probabilities" or "logits" where outputs are of classes, which tells whose score a
    monotone rule is about. `further` (k, d) are inputs at which to read rules over regions, too.
    """
    made = _Collector(output_size)
    for number, one in enumerate(requirements):
        if not isinstance(one.region, Region):
            _add_listed(made, number, one)
    # what applications bring themselves may have rules at the inputs that they search out alone
    regional = [
        (number, one)
        for number, one in enumerate(requirements)
        if isinstance(one, InputRule) and one.over_region
    ]
    _add_places(made, [one.region for _, one in regional], further)
    if not len(made.points):
        made.points.numbers(np.zeros((1, input_size)))
    for number, one in regional:
        _add_regional(made, number, one)
    for number, rule in enumerate(requirements):
        if isinstance(rule, OutputRule):
            _add_output_rule(made, number, rule)
        elif isinstance(rule, Equality) and rule.inputs is None:
            _add_equality(made, number, rule, input_size)
        elif isinstance(rule, Monotone):
            _add_monotone(made, number, rule, classes)
    return made.clauses()


def _pairwise(requirement: Requirement) -> Requirement:
    """A rule on members' own margins as the rule on a predictor's, which linear rows say."""
    if not isinstance(requirement, Margin) or requirement.form == "pairwise":
        return requirement
    made = replace(requirement, form="pairwise")
    made.check(requirement.input_size, requirement.known_output_size())
    return made


def _add_listed(made: _Collector, number: int, requirement: Requirement) -> None:
    stated = requirement.rows(number)
    if stated is None:
        return  # it lists no inputs
    rows = stated if isinstance(stated, LinearRows) else _pairwise(requirement).rows(number)
    if not isinstance(rows, LinearRows):
        return  # a concave function of the user's own
    owner = None if rows is stated else rows.index
    made.add_rows(rows, number, lambda j: requirement.describe(stated, j), owner)


def _add_places(made: _Collector, regions: Sequence[Any], further: Array | None) -> None:
    """Points that regions offer: centres, vertices, and where two of them meet."""
    if further is not None and len(further):
        made.points.numbers(further)
    generator = torch.Generator().manual_seed(0)
    for region in regions[:MOST_REGIONS]:
        made.points.numbers(region.middle[None])
        made.points.numbers(region.extremes(VERTICES, generator).numpy())
    for k, one in enumerate(regions[:MOST_REGIONS]):
        for other in regions[:k]:
            lower = np.maximum(one.bounds()[0], other.bounds()[0])
            upper = np.minimum(one.bounds()[1], other.bounds()[1])
            if (lower <= upper).all():
                made.points.numbers((lower + upper)[None] / 2)


def _add_regional(made: _Collector, number: int, requirement: Requirement) -> None:
    region, points = requirement.region, made.points.inputs
    assert isinstance(region, Region)
    linear = _pairwise(requirement)
    rules = count_rules_over(linear, made.outputs)
    inside = points[region.contains(points)]
    if not made.room(len(inside) * rules):
        inside = region.middle[None]
    rows = linear.rows_at(*_each(inside, rules), number)
    if not isinstance(rows, LinearRows):
        return
    if linear is requirement:
        made.add_rows(rows, number, lambda j: requirement.describe(rows, j))
        return
    stated = requirement.rows_at(*_each(inside, 1), number)
    owner = np.repeat(np.arange(len(inside)), rules)
    made.add_rows(rows, number, lambda j: requirement.describe(stated, j), owner)


def _each(inputs: Array, rules: int) -> tuple[Array, IntArray]:
    """Every rule at every input."""
    return np.repeat(inputs, rules, axis=0), np.tile(np.arange(rules), len(inputs))


def _add_output_rule(made: _Collector, number: int, rule: OutputRule) -> None:
    matrix, bound = rule.part(made.outputs).rows

    def words(j: int) -> str:
        negative = bool((matrix[j] <= 0).all())
        sign, side = (-1.0, "<=") if negative else (1.0, ">=")
        total = f"{format_weighted_sum(sign * matrix[j])} {side} {sign * bound[j]:.6g}"
        return f"{rule.name}: at every input, {total}"

    bounds = np.tile(bound, (len(made.points), 1))
    made.add_everywhere(matrix, bounds, number, words, np.arange(len(bound)))


def _add_equality(made: _Collector, number: int, rule: Equality, input_size: int) -> None:
    offset, slope = rule.affine_bound(input_size)
    bounds = offset + made.points.inputs @ slope.T

    def words(j: int) -> str:
        more = " + a part of the input" if slope[j].any() else ""
        total = f"{format_weighted_sum(rule.matrix[j])} == {offset[j]:.6g}{more}"
        return f"{rule.name}: at every input, {total}"

    both = np.concatenate([rule.matrix, -rule.matrix])
    owner = np.tile(np.arange(len(offset)), 2)
    made.add_everywhere(both, np.concatenate([bounds, -bounds], axis=1), number, words, owner)


def _add_monotone(made: _Collector, number: int, rule: Monotone, classes: str) -> None:
    points = made.points.inputs[:MOST_COMPARED]
    if classes:
        rule = rule.for_classes(made.outputs, logits=classes == "logits")
    way = rule.directions(points.shape[1])
    rises = (points[None] - points[:, None]) * np.where(way == 0, 1, way)
    same = (rises[..., way == 0] == 0).all(axis=-1)
    above = same & (rises[..., way != 0] >= 0).all(axis=-1)
    low, high = np.nonzero(above & (rises != 0).any(axis=-1))
    functionals = rule.functionals(made.outputs).astype(np.float64)
    pairs, rules = len(low), len(functionals)
    row = np.arange(pairs * rules)
    entries = (
        np.concatenate([row, row]),
        np.concatenate([np.repeat(high, rules), np.repeat(low, rules)]),
        np.concatenate([np.ones(len(row)), -np.ones(len(row))]),
    )
    made.add(
        np.tile(functionals, (pairs, 1)),
        np.zeros(len(row)),
        entries,
        requirement=number,
        words=lambda j: f"{rule.name}: at every input",
        owner=np.zeros(len(row), np.int64),
    )
