"""`Rate` and `Difference`: rules whose rows compare or sum outputs at several listed inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cg4ai import arrays
from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray
from cg4ai.rules.place import Placed, whole_number
from cg4ai.rules.rows import LinearRows, Rows

PAIR_LIMIT = 5000  # each pair is a dense row over all inputs of the list


@dataclass(frozen=True, eq=False)
class _Summed(Placed):
    """One output at listed inputs, several in each row."""

    output: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.region is not None:
            raise InvalidInput(
                f"a {type(self).__name__} speaks of several listed inputs, got a "
                f"{type(self.inputs).__name__}; give the inputs as an array"
            )
        object.__setattr__(self, "output", whole_number(self.output, "output", least=0))

    def check(self, input_size: int, output_size: int) -> None:
        if self.output >= output_size:
            raise InvalidInput(
                f"{self.name} looks at output {self.output}, but the predictor has {output_size}; "
                "outputs count from 0"
            )
        self.fit(input_size, output_size)

    def _rows(self, number: int, mixing: Array, bounds: Array, origin: IntArray) -> LinearRows:
        coefficients = np.zeros((len(mixing), self.known_output_size()))
        coefficients[:, self.output] = 1.0
        return LinearRows(number, self.points, coefficients, bounds, None, mixing, origin)


@dataclass(frozen=True, slots=True)
class _Rule:
    """`weights . scores >= bound` over all inputs, with its description."""

    weights: Array
    bound: float
    text: str


@dataclass(frozen=True, eq=False)
class Rate(_Summed):
    """The mean of output `output` over each group; every row sums over many inputs.

    `groups` (m,) names the group of each input (numbers or text); None is one group of all.
    `tolerance`: means of two groups differ by at most this, for the pair `between` or for all
    pairs. `mean_at_least`, `mean_at_most`: a budget for the mean of each group. The rows bind mean
    scores; `decision_rates` says what thresholded decisions make of them.
    """

    groups: Any = None
    output: int = field(default=1, kw_only=True)
    tolerance: float | None = field(default=None, kw_only=True)
    between: tuple[Any, Any] | None = field(default=None, kw_only=True)
    mean_at_least: float | None = field(default=None, kw_only=True)
    mean_at_most: float | None = field(default=None, kw_only=True)

    @classmethod
    def budget(
        cls,
        inputs: Any,
        groups: Any = None,
        *,
        mean_at_least: float | None = None,
        mean_at_most: float | None = None,
        output: int = 1,
    ) -> Rate:
        """The mean score, of all inputs or of each group, stays within the two ends."""
        return cls(
            inputs, groups, output=output, mean_at_least=mean_at_least, mean_at_most=mean_at_most
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        count = len(self.points)
        given = np.zeros(count, np.int64) if self.groups is None else _names(self.groups, count)
        object.__setattr__(self, "groups", given)
        for what in ("tolerance", "mean_at_least", "mean_at_most"):
            self._one_number(what)
        self._refuse_bounds()

    def _one_number(self, what: str) -> None:
        value = getattr(self, what)
        if value is not None:
            number = arrays.numbers(value, what)
            if number.ndim != 0:
                raise InvalidInput(f"{what} must be one number, got shape {number.shape}")
            object.__setattr__(self, what, float(number))

    def _refuse_bounds(self) -> None:
        low, high = self.mean_at_least, self.mean_at_most
        if self.tolerance is None and low is None and high is None:
            raise InvalidInput(
                f"{self.name} asks for nothing; give tolerance, mean_at_least or mean_at_most"
            )
        if low is not None and high is not None and low > high:
            raise InvalidInput(
                f"{self.name} contradicts itself: mean_at_least {low} > mean_at_most {high}"
            )
        if self.between is not None and self.tolerance is None:
            raise InvalidInput("between names two groups to compare; give their tolerance too")
        if self.tolerance is None:
            return
        known = self.names
        if self.tolerance < 0:
            raise InvalidInput(f"tolerance must be >= 0, got {self.tolerance}")
        if len(known) < 2:
            raise InvalidInput(f"tolerance compares groups, but there is only {known}")
        if self.between is not None and (
            len(self.between) != 2
            or self.between[0] == self.between[1]
            or not set(self.between) <= set(known)
        ):
            raise InvalidInput(
                f"between must name two different groups of {known}, got {self.between!r}"
            )

    @property
    def names(self) -> list[Any]:
        """The groups, sorted."""
        return list(np.unique(self.groups).tolist())

    def _shares(self, name: Any) -> Array:
        member = np.asarray(self.groups == name, dtype=np.float64)
        return np.asarray(member / member.sum())

    def _rules(self) -> list[_Rule]:
        rules = []
        score = f"mean of output {self.output}"
        if self.tolerance is not None:
            pairs = [self.between] if self.between else list(combinations(self.names, 2))
            for a, b in pairs:
                gap = self._shares(a) - self._shares(b)
                text = f"{score}, group {a!r} minus group {b!r}"
                rules.append(_Rule(gap, -self.tolerance, f"{text} >= {-self.tolerance:.6g}"))
                rules.append(_Rule(-gap, -self.tolerance, f"{text} <= {self.tolerance:.6g}"))
        for name in self.names:
            whom = f"group {name!r}" if len(self.names) > 1 else "all inputs"
            if self.mean_at_least is not None:
                text = f"{score}, {whom} >= {self.mean_at_least:.6g}"
                rules.append(_Rule(self._shares(name), self.mean_at_least, text))
            if self.mean_at_most is not None:
                text = f"{score}, {whom} <= {self.mean_at_most:.6g}"
                rules.append(_Rule(-self._shares(name), -self.mean_at_most, text))
        return rules

    def rows(self, number: int) -> LinearRows:
        rules = self._rules()
        mixing = np.stack([rule.weights for rule in rules])
        bounds = np.array([rule.bound for rule in rules])
        origin = np.stack([np.full(len(rules), -1), np.arange(len(rules))], axis=1)
        return self._rows(number, mixing, bounds, origin)

    def describe(self, rows: Rows, j: int) -> str:
        rule = j if rows.origin is None else int(rows.origin[j, 1])
        return f"{self.name}: {self._rules()[rule].text}"

    def decision_rates(self, outputs: Array, threshold: float = 0.5) -> dict[Any, float]:
        """Share of each group whose score reaches `threshold`; `outputs` (m, r) at the inputs."""
        decided = np.asarray(outputs)[:, self.output] >= threshold
        return {name: float(decided[self.groups == name].mean()) for name in self.names}


def _names(groups: Any, count: int) -> NDArray[Any]:
    """(count,) group names: whole numbers or text, nothing missing."""
    plain = groups.detach().cpu().numpy() if isinstance(groups, Tensor) else np.asarray(groups)
    if plain.shape != (count,):
        raise InvalidInput(
            f"groups must name one group for each of {count} inputs, got shape {plain.shape}"
        )
    if plain.dtype == object:
        odd = [entry for entry in plain if not isinstance(entry, str | int | np.integer)]
        if odd:
            raise InvalidInput(f"groups must be whole numbers or text, got {odd[0]!r}")
        text = any(isinstance(entry, str) for entry in plain)
        plain = plain.astype(str if text else np.int64)
    if plain.dtype.kind == "f":
        plain = arrays.labels(plain, "groups", count)
    if plain.dtype.kind not in "iubU":
        raise InvalidInput(f"groups must be whole numbers or text, got dtype {plain.dtype}")
    return np.array(plain)


@dataclass(frozen=True, eq=False)
class Difference(_Summed):
    """`f_output(inputs[b]) - f_output(inputs[a]) >= at_least` for each pair (a, b).

    `pairs` (m, 2) are positions in the list `inputs`; `at_least` is one number or (m,). With 0 the
    output must not fall from a to b: monotonicity at the listed pairs. Pairs in both directions
    with `at_least` -d keep two outputs within d of each other. Nothing is said of other pairs.
    """

    pairs: Any
    at_least: Any = 0.0

    @classmethod
    def between(
        cls, lower: Any, higher: Any, at_least: Any = 0.0, *, output: int = 0, name: str = ""
    ) -> Difference:
        """`f(higher[k]) - f(lower[k]) >= at_least` for two lists (m, d) of equal length."""
        low = arrays.matrix(lower, "the lower inputs of a Difference")
        high = arrays.matrix(higher, "the higher inputs of a Difference")
        if low.shape != high.shape:
            raise InvalidInput(
                f"lower and higher inputs are paired one by one, got shapes {low.shape} and "
                f"{high.shape}; give two lists of equal length"
            )
        first = np.arange(len(low))
        pairs = np.stack([first, first + len(low)], axis=1)
        return cls(np.concatenate([low, high]), pairs, at_least, output=output, name=name)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "pairs", self._checked_pairs())
        least = arrays.vector(self.at_least, "at_least", len(self.pairs))
        object.__setattr__(self, "at_least", least)
        self._refuse_equal_inputs()

    def _checked_pairs(self) -> IntArray:
        given = arrays.matrix(self.pairs, "pairs")
        if given.shape[1] != 2:
            raise InvalidInput(f"pairs must have shape (m, 2), got {given.shape}")
        if len(given) > PAIR_LIMIT:
            raise InvalidInput(
                f"{self.name} has {len(given)} pairs, at most {PAIR_LIMIT} are possible; thin "
                "them out"
            )
        pairs = given.astype(np.int64)
        if not np.array_equal(pairs, given) or pairs.min() < 0 or pairs.max() >= len(self.points):
            raise InvalidInput(
                f"pairs must be positions 0 to {len(self.points) - 1} in the list of inputs, got "
                f"values from {given.min():g} to {given.max():g}"
            )
        return pairs

    def _refuse_equal_inputs(self) -> None:
        same = (self.points[self.pairs[:, 0]] == self.points[self.pairs[:, 1]]).all(axis=1)
        wrong = np.flatnonzero(same & (self.at_least > 0))
        if len(wrong):
            raise InvalidInput(
                f"{self.name} cannot be met: pair {wrong[0]} compares an input with itself and "
                f"asks for a difference of {self.at_least[wrong[0]]:g}"
            )

    def rows(self, number: int) -> LinearRows:
        each = np.arange(len(self.pairs))
        mixing = np.zeros((len(each), len(self.points)))
        mixing[each, self.pairs[:, 1]] += 1.0
        mixing[each, self.pairs[:, 0]] -= 1.0
        origin = np.stack([self.pairs[:, 0], each], axis=1)
        return self._rows(number, mixing, self.at_least, origin)

    def describe(self, rows: Rows, j: int) -> str:
        a, b = self.pairs[j if rows.origin is None else int(rows.origin[j, 1])]
        return f"{self.name}: f{self.output} at input {b} minus input {a} >= {rows.bounds[j]:.6g}"
