"""`Probability` and `Margin`: inputs whose class is known and must come out right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cg4ai.data import arrays
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.records import Array, IntArray
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.coefficients import AffineCoefficients
from cg4ai.rules.requirement import (
    InputRule,
    as_class_labels,
    as_whole_number,
    describe_input,
    find_position,
)
from cg4ai.rules.rows import ConcaveRows, LinearRows, Rows, region_origin


@dataclass(frozen=True, eq=False)
class _Labelled(InputRule):
    """Inputs with labels: (m,) whole numbers, one for all over a region."""

    labels: Any
    at_least: Any
    classes: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inputs is None:
            return
        count = 1 if self.over_region else len(self.points)
        if self.over_region and np.size(self.labels) != 1:
            raise InvalidInput(
                f"over {self.inputs} one label holds for all inputs, got shape "
                f"{np.shape(self.labels)}; give one whole number",
                code="shape",
            )
        object.__setattr__(self, "labels", as_class_labels(self.labels, count))
        object.__setattr__(self, "at_least", arrays.as_vector(self.at_least, "at_least", count))
        if self.classes is not None:
            size = as_whole_number(self.classes, "classes", least=1)
            object.__setattr__(self, "output_size", size)
            self._refuse_labels(size)

    def _positions(self, outputs: Sequence[str]) -> dict[str, Any]:
        self.require_place()
        if self.labels.dtype.kind != "U":
            return {}
        found = [find_position(str(one), outputs, self.name, "class") for one in self.labels]
        return {"labels": np.array(found, np.int64)}

    def _refuse_labels(self, classes: int) -> None:
        if self.labels.dtype.kind == "U":
            raise InvalidInput(
                f"{self.name} names the class {str(self.labels[0])!r}; only a classifier knows "
                "names, elsewhere give class numbers 0, 1, ...",
                code="unsupported",
            )
        if self.labels.max() >= classes:
            raise InvalidInput(
                f"labels of {self.name} must be below the number of classes, {classes}, got "
                f"{self.labels.max()}; classes count from 0",
                code="range",
            )

    def check(self, input_size: int, output_size: int) -> None:
        self.require_place()
        self._refuse_labels(output_size)
        self.fit(input_size, output_size)

    def _listed(self, item: IntArray, others: IntArray | None, number: int) -> LinearRows:
        """Row j: class `labels[item[j]]`, minus class `others[j]` if given, at that item."""
        a = np.zeros((len(item), self.known_output_size()))
        a[np.arange(len(item)), self.labels[item]] = 1.0
        if others is not None:
            a[np.arange(len(item)), others] -= 1.0
        rule = np.zeros(len(item), np.int64) if others is None else others
        origin = np.stack([item, rule], axis=1)
        return LinearRows(number, self.points, a, self.at_least[item], item, None, origin)

    def _over_region(self, matrix: Array) -> AffineRules:
        """`matrix` (L, r) times the outputs is at least `at_least`, at every input."""
        bounds = np.repeat(self.at_least, len(matrix))
        coefficients = AffineCoefficients.fixed(matrix)
        return AffineRules.of(coefficients, bounds, ">=", input_size=self.input_size)

    def _label(self, rows: Rows, j: int) -> int:
        listed = rows.origin is not None and rows.origin[j, 0] >= 0
        return int(
            self.labels[rows.origin[j, 0]] if listed and rows.origin is not None else self.labels[0]
        )


@dataclass(frozen=True, eq=False)
class Probability(_Labelled):
    """`f_label(x) >= at_least`: the score of the right class, `at_least` in (0, 1].

    Above one half it implies the right decision if scores are probabilities.
    """

    at_least: Any = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inputs is None:
            return
        low, high = self.at_least.min(), self.at_least.max()
        if not (low > 0 and high <= 1):
            raise InvalidInput(
                f"at_least of {self.name} must be in (0, 1], got {low if low <= 0 else high}",
                code="range",
            )

    def rows(self, number: int) -> LinearRows | None:
        if self.over_region:
            return None
        return self._listed(np.arange(len(self.points)), None, number)

    @cached_property
    def normal_form(self) -> AffineRules:
        matrix = np.eye(self.known_output_size())[self.labels[:1]]
        return self._over_region(matrix)

    def describe(self, rows: Rows, j: int) -> str:
        place, label = describe_input(rows, j), self._label(rows, j)
        return f"{self.name}: {place}, class {label} >= {rows.bounds[j]:.6g}"


@dataclass(frozen=True, eq=False)
class Margin(_Labelled):
    """The right class leads every other by `at_least`.

    form "pairwise" is the rule itself: one linear row `f_y - f_c` per other class c, whose rule
    number is c in `origin`. form "member" is the paper's CG-margin, one row per input: the weighted
    mean of the members' own margins `s_i^y - max over c != y of s_i^c`. It implies the rule for the
    mixture and asks for more, so a run with it never ends as OPTIMAL or INFEASIBLE.
    """

    form: str = field(default="pairwise", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.form not in ("member", "pairwise"):
            hint = did_you_mean(str(self.form), ["member", "pairwise"])
            raise InvalidInput(
                f'form must be "member" or "pairwise", got {self.form!r}{hint}', code="unknown-name"
            )
        if self.classes is not None:
            as_whole_number(self.classes, f"classes of {self.name}", least=2)

    def check(self, input_size: int, output_size: int) -> None:
        if output_size < 2:
            raise InvalidInput(
                f"{self.name} compares classes, but the predictor has {output_size} output",
                code="shape",
            )
        super().check(input_size, output_size)

    def _functional(self, outputs: Tensor, positions: IntArray) -> Tensor:
        return member_margins(outputs, self.labels[positions])

    def _others(self, label: int) -> IntArray:
        return np.delete(np.arange(self.known_output_size()), label)

    def rows(self, number: int) -> Rows | None:
        if self.over_region:
            return None
        positions = np.arange(len(self.points))
        if self.form == "member":
            origin = np.stack([positions, np.zeros_like(positions)], axis=1)
            return ConcaveRows(
                number, self.points, self._functional, self.at_least, positions, origin, jensen=True
            )
        others = np.concatenate([self._others(label) for label in self.labels])
        item = np.repeat(positions, self.known_output_size() - 1)
        return self._listed(item, others, number)

    def rows_at(self, inputs: Array, which: IntArray, number: int) -> Rows:
        self.require_region()
        zeros = np.zeros(len(inputs), np.int64)
        if self.form == "member":
            bounds = np.repeat(self.at_least, len(inputs))
            return ConcaveRows(
                number, inputs, self._functional, bounds, zeros, region_origin(zeros), jensen=True
            )
        rows = super().rows_at(inputs, which, number)
        return replace(rows, origin=region_origin(self._others(int(self.labels[0]))[which]))

    @cached_property
    def normal_form(self) -> AffineRules:
        """The mixture's own margin, class `label` minus each other class, whatever the form."""
        label = int(self.labels[0])
        matrix = -np.delete(np.eye(self.known_output_size()), label, axis=0)
        matrix[:, label] = 1.0
        return self._over_region(matrix)

    def violations(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        each = super().violations(inputs, outputs)
        return each.amax(-1, keepdim=True) if self.form == "member" else each

    def describe(self, rows: Rows, j: int) -> str:
        start = f"{self.name}: {describe_input(rows, j)}, class {self._label(rows, j)}"
        if isinstance(rows, LinearRows) and rows.origin is not None:
            return f"{start} minus class {rows.origin[j, 1]} >= {rows.bounds[j]:.6g}"
        return f"{start} margin >= {rows.bounds[j]:.6g}"


def member_margins(outputs: Tensor, labels: IntArray) -> Tensor:
    """`s^y - max over c != y of s^c`, concave: (..., m, r) and labels (m,) -> (..., m)."""
    y = torch.as_tensor(labels, device=outputs.device).expand(outputs.shape[:-1]).unsqueeze(-1)
    own = outputs.gather(-1, y).squeeze(-1)
    others = outputs.scatter(-1, y, -torch.inf).amax(-1)
    return own - others
