"""`Linear`: weighted sums of the outputs stay above, below or at a bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from cg4ai.data import arrays
from cg4ai.errors import InvalidInput
from cg4ai.objectives import LinearFunctional
from cg4ai.records import Array, IntArray
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.bounds import Bounds, build_bounds, depends_on_input
from cg4ai.rules.coefficients import AffineCoefficients
from cg4ai.rules.regions import Box, Region
from cg4ai.rules.requirement import InputRule, describe_input, find_position
from cg4ai.rules.rows import LinearRows, Rows, region_origin


def is_functional(value: Any) -> TypeGuard[LinearFunctional]:
    return callable(getattr(value, "values", None)) and callable(
        getattr(value, "coefficients", None)
    )


@dataclass(frozen=True, eq=False)
class Linear(InputRule):
    """`sum_q a_q f_q(x) >= bound` (or "<=", "==") at every listed input or all over a region.

    For lists: `coefficients` (r,), or (m, r) differing per input, dense or sparse; `bound` one
    number or (m,). With three axes, (1, L, r) or (m, L, r), there are L rules at each input, and
    `bound` is one number, (L,), (m, 1) or (m, L). Over a region: (r,) or (L, r), L rules that hold
    at every input, with `bound` one number or (L,).

    Anywhere, coefficients that depend on the input are `AffineCoefficients` or any
    `objectives.LinearFunctional` of L rules, and bounds that do are `AffineBound`, with "<="
    `Largest` and with ">=" `Smallest` of such.

    In estimators `coefficients` may be {output: number} by name, {"approve": 1.0}; others are 0.

    Rules are numbered 0 .. L-1; with "==" rule L + l is the upper side of rule l.
    """

    coefficients: Any
    bound: Any
    sense: str = ">="

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sense not in (">=", "<=", "=="):
            raise InvalidInput(
                f'sense must be ">=", "<=" or "==", got {self.sense!r}', code="unknown-name"
            )
        if self._open:
            return
        if is_functional(self.coefficients) or depends_on_input(self.bound):
            self.check_missing("rules that depend on the input")
        if not is_functional(self.coefficients):
            matrix = self._over_region() if self.over_region else self._over_list()
            object.__setattr__(self, "coefficients", matrix)
            object.__setattr__(self, "output_size", matrix.shape[-1])
        object.__setattr__(self, "bound", self._bounds())

    @property
    def stated_width(self) -> int | None:
        given = self.coefficients
        if self.output_size is not None or isinstance(given, Mapping):
            return self.output_size
        if isinstance(given, AffineCoefficients):
            return int(given.constant.shape[1])
        return int(np.shape(given)[-1]) if np.ndim(given) else None

    @property
    def _unnamed(self) -> bool:
        """Whether names of outputs or features have still to become positions."""
        box = isinstance(self.inputs, Box) and self.inputs.by_name
        return box or isinstance(self.coefficients, Mapping)

    @property
    def _open(self) -> bool:
        """Whether it has still to be said where the rule holds, or about which outputs."""
        return self.inputs is None or self._unnamed

    def _positions(self, outputs: Sequence[str]) -> dict[str, Any]:
        if not isinstance(self.coefficients, Mapping):
            return {}
        row = np.zeros(max(1, len(outputs)))
        for name, value in self.coefficients.items():
            place = find_position(name, outputs, self.name, "output")
            if place >= len(row):
                raise InvalidInput(
                    f"{self.name} names output {place}; there are {len(row)}", code="range"
                )
            row[place] = value
        return {"coefficients": row}

    def _over_region(self) -> Array:
        """Coefficients as (L, r)."""
        given = arrays.as_numbers(self.coefficients, "coefficients")
        if given.size == 0 or given.ndim not in (1, 2):
            raise InvalidInput(
                f"over a region coefficients must be (r,) or (L, r), got shape {given.shape}",
                code="shape",
            )
        return np.atleast_2d(given)

    def _over_list(self) -> Array:
        """Coefficients as (r,), (m, r), (1, L, r) or (m, L, r)."""
        given = arrays.as_numbers(self.coefficients, "coefficients")
        if given.size == 0 or given.ndim not in (1, 2, 3):
            raise InvalidInput(
                f"coefficients must be (r,), (m, r) or (m, L, r), got shape {given.shape}",
                code="shape",
            )
        count = len(self.points)
        if given.ndim > 1 and len(given) not in (1, count):
            hint = "" if given.ndim == 3 else "; for several rules at every input, (1, L, r)"
            raise InvalidInput(
                f"coefficients of shape {given.shape} do not fit {count} inputs; give one row of "
                f"coefficients, or as many as there are inputs{hint}",
                code="shape",
            )
        return given.ravel() if given.ndim == 2 and len(given) == 1 else given

    def _bounds(self) -> Array | Bounds:
        """Over a region (L,) or `Bounds`; for lists (m,) with one rule each, else (m, L)."""
        rules = self.count
        if isinstance(self.bound, Bounds):  # of a copy, with another name or region
            self.bound.check(rules, self.input_size)
            return self.bound
        if depends_on_input(self.bound):
            bounds = build_bounds(self.bound, self.sense, count=rules, input_size=self.input_size)
            if self.over_region:
                self._need_affine()
                return bounds
            at = bounds.at(self.points)
            return at if self._several else at[:, 0]
        if self.over_region or not self._several:
            count = rules if self.over_region else len(self.points)
            return arrays.as_vector(self.bound, "bound", count)
        return arrays.as_rule_matrix(self.bound, "bound", inputs=len(self.points), rules=rules)

    def _need_affine(self) -> None:
        if is_functional(self.coefficients) and not hasattr(self.coefficients, "affine"):
            raise InvalidInput(
                f"{self.name} has a bound that depends on the input and a functional, "
                f"{type(self.coefficients).__name__}, without a method affine(); give "
                "AffineCoefficients, or a bound of numbers",
                code="unsupported",
            )

    @property
    def _several(self) -> bool:
        """For lists: whether there may be several rules at each input."""
        return is_functional(self.coefficients) or self.coefficients.ndim == 3

    @property
    def count(self) -> int:
        """How many rules there are at each input, the two sides of "==" counted once."""
        given = self.coefficients
        if is_functional(given):
            return int(given.count)
        return int(given.shape[-2]) if self.over_region or given.ndim == 3 else 1

    @property
    def depends_on_inputs(self) -> bool:
        """Whether coefficients or bounds are functions of the input."""
        return is_functional(self.coefficients) or isinstance(self.bound, Bounds)

    @cached_property
    def normal_form(self) -> AffineRules | None:
        given = self.coefficients
        if not self.over_region:
            return None
        if not is_functional(given):
            affine = AffineCoefficients.fixed(given)
        elif getattr(given, "affine", None) is None:
            return None
        else:
            affine = given.affine()  # type: ignore[attr-defined]
        if self.output_size not in (None, affine.constant.shape[1]):
            raise InvalidInput(
                f"{self.name} has coefficients for {affine.constant.shape[1]} outputs, the "
                f"predictor has {self.output_size}",
                code="shape",
            )
        if is_functional(given) and affine is not given:
            self._probe_affine(given, affine)
        return AffineRules.of(affine, self.bound, self.sense, input_size=self.input_size)

    def explain_uncertified(self) -> str:
        if not is_functional(self.coefficients):
            return super().explain_uncertified()
        return (
            f"the functional of {self.name}, {type(self.coefficients).__name__}, cannot be "
            "certified: it has no method affine() that gives its coefficients as affine functions "
            "of the input (cg4ai.rules.AffineCoefficients)"
        )

    def _probe_affine(self, functional: LinearFunctional, affine: AffineCoefficients) -> None:
        """Refuse an `affine()` that disagrees with the functional's own coefficients."""
        count = functional.count
        rules = AffineRules.of(affine, np.zeros(count), "<=", input_size=self.input_size)
        lower, upper = self.inputs.bounds()
        for share in (0.0, 0.3, 1.0):
            points = np.tile(lower + share * (upper - lower), (count, 1))
            expected = functional.coefficients(points, np.arange(count))
            if not np.allclose(
                rules.coefficients(points, np.arange(count)), expected, rtol=1e-9, atol=1e-12
            ):
                raise InvalidInput(
                    f"affine() of the functional of {self.name} disagrees with its "
                    f"coefficients() at x = {points[0, :4]}...",
                    code="conflict",
                )

    def _sides(self, array: Any) -> Any:
        """Along the first axis: as is, negated, or both after one another."""
        if self.sense == "==":
            return np.concatenate([array, -array])
        return -array if self.sense == "<=" else array

    def check(self, input_size: int, output_size: int) -> None:
        self.fit(input_size, output_size)
        if is_functional(self.coefficients):
            self._probe(self.coefficients, output_size)
            _ = self.normal_form  # an affine() that disagrees is refused here

    def _probe(self, functional: LinearFunctional, output_size: int) -> None:
        """At one input: do `values` and `coefficients` agree, and have they the right shapes?"""
        count = functional.count
        if isinstance(self.inputs, Region):
            point = self.inputs.middle[None]
        else:
            point = self.points[:1]
        outputs = torch.linspace(0.5, 1.5, output_size, dtype=torch.float64)[None]
        a = functional.coefficients(np.repeat(point, count, axis=0), np.arange(count))
        values = functional.values(torch.as_tensor(point), outputs).detach()
        if np.shape(a) != (count, output_size) or values.shape != (1, count):
            raise InvalidInput(
                f"the functional of {self.name} gave coefficients {np.shape(a)} and values "
                f"{tuple(values.shape)}, expected {(count, output_size)} and {(1, count)}",
                code="shape",
            )
        expected = a @ outputs[0].numpy()
        if not np.allclose(values[0].numpy(), expected, rtol=1e-6, atol=1e-8):
            raise InvalidInput(
                f"the functional of {self.name} is not linear, or its two methods disagree: "
                f"values {values[0].numpy()[:4]} but coefficients give {expected[:4]}",
                code="unsupported",
            )

    def rows(self, number: int) -> LinearRows | None:
        return None if self.over_region else self._listed(number)

    def _listed(self, number: int) -> LinearRows:
        count, rules, given = len(self.points), self.count, self.coefficients
        index, which = np.repeat(np.arange(count), rules), np.tile(np.arange(rules), count)
        if is_functional(given):
            a = given.coefficients(self.points[index], which)
        else:
            each = given if given.ndim == 3 else given.reshape(-1, 1, given.shape[-1])
            full = np.array(np.broadcast_to(each, (count, rules, given.shape[-1])))
            a = full.reshape(count * rules, -1)
        bounds = self.bound.reshape(-1)
        if self.sense == "==":
            index, which = np.tile(index, 2), np.concatenate([which, which + rules])
        origin = np.stack([index, which], axis=1)
        return LinearRows(
            number, self.points, self._sides(a), self._sides(bounds), index, None, origin
        )

    def rows_at(self, inputs: Array, which: IntArray, number: int) -> Rows:
        if self.normal_form is not None:
            return super().rows_at(inputs, which, number)
        self.require_region()
        a = self.coefficients.coefficients(inputs, which % self.count)
        flipped = (which >= self.count) | (self.sense == "<=")
        return LinearRows(
            number,
            inputs,
            np.where(flipped[:, None], -a, a),
            self._sides(self.bound)[which],
            np.arange(len(inputs)),
            None,
            region_origin(which),
        )

    def violations(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        if self.normal_form is not None:
            return super().violations(inputs, outputs)
        self.require_region()
        bound = torch.as_tensor(self.bound, dtype=outputs.dtype, device=outputs.device)
        short: Tensor = bound - self.coefficients.values(inputs, outputs)
        if self.sense == "==":
            return torch.cat([short, -short], dim=-1)
        return -short if self.sense == "<=" else short

    def describe(self, rows: Rows, j: int) -> str:
        if not isinstance(rows, LinearRows):
            raise InvalidInput(
                f"{self.name} has linear rows only, got {type(rows).__name__}", code="type"
            )
        rule = 0 if rows.origin is None else int(rows.origin[j, 1])
        rules = self.count
        flipped = self.sense == "<=" or rule >= rules
        sign = -1.0 if flipped else 1.0
        text = format_weighted_sum(sign * rows.coefficients[j])
        side = "<=" if flipped else ">="
        which = f", rule {rule % rules}" if rules > 1 else ""
        return (
            f"{self.name}: {describe_input(rows, j)}{which}, {text} {side} "
            f"{sign * rows.bounds[j]:.6g}"
        )


def format_weighted_sum(coefficients: Array) -> str:
    """`2 f0 - f3`, cut after four terms."""
    used = np.flatnonzero(coefficients)
    parts: list[str] = []
    for q in used[:4]:
        size = "" if abs(coefficients[q]) == 1 else f"{abs(coefficients[q]):.4g} "
        minus, plus = ("- ", "+ ") if parts else ("-", "")
        sign = minus if coefficients[q] < 0 else plus
        parts.append(f"{sign}{size}f{q}")
    return " ".join(parts) + (" + ..." if len(used) > 4 else "") if parts else "0"
