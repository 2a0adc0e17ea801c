"""Rules whose rows compare or sum outputs at several listed inputs; `Difference` compares pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cg4ai.data import arrays
from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray
from cg4ai.rules.requirement import InputRule, as_whole_number, find_position
from cg4ai.rules.rows import LinearRows, Rows

PAIR_LIMIT = 5000  # each pair is a dense row over all inputs of the list


@dataclass(frozen=True, eq=False)
class MultiInputRule(InputRule):
    """One output at listed inputs, several in each row."""

    output: Any = field(default=0, kw_only=True)  # by position, or name where estimators know it

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.region is not None:
            raise InvalidInput(
                f"a {type(self).__name__} speaks of several listed inputs, got a "
                f"{type(self.inputs).__name__}; give the inputs as an array",
                code="type",
            )
        if not (self.output is None or isinstance(self.output, str)):
            object.__setattr__(self, "output", as_whole_number(self.output, "output", least=0))

    @property
    def column(self) -> int:
        """The output that is looked at."""
        return int(self.output)

    def _positions(self, outputs: Sequence[str]) -> dict[str, Any]:
        if not isinstance(self.output, str):
            return {}
        return {"output": find_position(self.output, outputs, self.name, "output")}

    def check(self, input_size: int, output_size: int) -> None:
        if isinstance(self.output, str):
            raise InvalidInput(
                f"{self.name} names the output {self.output!r}; only estimators know names, "
                "elsewhere give its position",
                code="unsupported",
            )
        if self.column >= output_size:
            raise InvalidInput(
                f"{self.name} looks at output {self.column}, but the predictor has {output_size}; "
                "outputs count from 0",
                code="range",
            )
        self.fit(input_size, output_size)

    def _rows(self, number: int, mixing: Array, bounds: Array, origin: IntArray) -> LinearRows:
        coefficients = np.zeros((len(mixing), self.known_output_size()))
        coefficients[:, self.column] = 1.0
        return LinearRows(number, self.points, coefficients, bounds, None, mixing, origin)


@dataclass(frozen=True, eq=False)
class Difference(MultiInputRule):
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
        low = arrays.as_table(lower, "the lower inputs of a Difference")
        high = arrays.as_table(higher, "the higher inputs of a Difference")
        if low.shape != high.shape:
            raise InvalidInput(
                f"lower and higher inputs are paired one by one, got shapes {low.shape} and "
                f"{high.shape}; give two lists of equal length",
                code="shape",
            )
        first = np.arange(len(low))
        pairs = np.stack([first, first + len(low)], axis=1)
        both: Any = np.concatenate([low, high])
        if hasattr(lower, "columns") and hasattr(higher, "columns"):
            from pandas import concat

            both = concat([lower, higher[list(lower.columns)]])
        return cls(both, pairs, at_least, output=output, name=name)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "pairs", self._checked_pairs())
        least = arrays.as_vector(self.at_least, "at_least", len(self.pairs))
        object.__setattr__(self, "at_least", least)
        self._refuse_equal_inputs()

    def _checked_pairs(self) -> IntArray:
        given = arrays.as_matrix(self.pairs, "pairs")
        if given.shape[1] != 2:
            raise InvalidInput(f"pairs must have shape (m, 2), got {given.shape}", code="shape")
        if len(given) > PAIR_LIMIT:
            raise InvalidInput(
                f"{self.name} has {len(given)} pairs, at most {PAIR_LIMIT} are possible; thin "
                "them out",
                code="memory",
            )
        pairs = given.astype(np.int64)
        if not np.array_equal(pairs, given) or pairs.min() < 0 or pairs.max() >= len(self.points):
            raise InvalidInput(
                f"pairs must be positions 0 to {len(self.points) - 1} in the list of inputs, got "
                f"values from {given.min():g} to {given.max():g}",
                code="range",
            )
        return pairs

    def _refuse_equal_inputs(self) -> None:
        same = (self.points[self.pairs[:, 0]] == self.points[self.pairs[:, 1]]).all(axis=1)
        wrong = np.flatnonzero(same & (self.at_least > 0))
        if len(wrong):
            raise InvalidInput(
                f"{self.name} cannot be met: pair {wrong[0]} compares an input with itself and "
                f"asks for a difference of {self.at_least[wrong[0]]:g}",
                code="infeasible",
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
