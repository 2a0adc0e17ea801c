"""Rules in the one form that proofs know: squares of sums of outputs, affine parts, limits.

Rule l reads `y' quadratic[l] y + value_l(x, y) <= limit_l(x)`, where values and limits are those of
`rules/affine.py`; linear rules have no quadratic. Bounds are of the sum over s with
`square_rule[s] == l` of `(square_factor[s] . y)^2`, and of `compute_residual`, by which that may
miss.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.records import Array, IntArray
from cg4ai.rules import Requirement
from cg4ai.rules.affine import AffineRules, find_affine_rules
from cg4ai.rules.coefficients import AffineCoefficients
from cg4ai.rules.quadratic import Quadratic, QuadraticRules


@dataclass(frozen=True, eq=False)
class ProofRules:
    """`affine` (L rules), and S squares: `square_rule` (S,), `square_factor` (S, r).

    `quadratic` (L, r, r) is what these squares are of, as given, or (0, r, r) for linear rules.
    `digest` is that of the normal form from which these were made.
    """

    affine: AffineRules
    square_rule: IntArray
    square_factor: Array
    quadratic: Array
    digest: str

    def __len__(self) -> int:
        return len(self.affine)

    @cached_property
    def plain(self) -> NDArray[np.bool_]:
        """(L,): which rules have one number for a limit."""
        rules, count = self.affine, len(self)
        tilted = np.zeros(count, bool)
        tilted[rules.piece[rules.tilt.any(axis=1)]] = True
        return np.asarray((np.bincount(rules.piece, minlength=count) == 1) & ~tilted)

    @cached_property
    def targets(self) -> Array:
        """(L,): what `measure` must not exceed: the limit, or 0 where it depends on the input."""
        return np.where(self.plain, self.affine.limit[self.affine.pieces[:, 0]], 0.0)

    def measure(self, inputs: Array, outputs: Array) -> Array:
        """(n, L): values, and the excess over limits that depend on the input, but for rounding."""
        values = self.affine.values(inputs, outputs)
        if len(self.square_rule):
            squares = (outputs @ self.square_factor.T) ** 2
            np.add.at(values.T, self.square_rule, squares.T)
        if self.plain.all():
            return values
        return np.where(self.plain, values, values - self.affine.bounds(inputs))

    def is_broken(self, rule: int, point: Array, outputs: Array) -> bool:
        """Whether these outputs (r,) at the input (d,) break a rule, in exact numbers."""
        if not np.isfinite(outputs).all():
            return True
        y = [Fraction(value) for value in outputs.tolist()]
        x = [Fraction(value) for value in point.tolist()]
        own = self.affine
        at = np.flatnonzero(own.rule == rule)
        value = _dot(own.constant[rule], y) + sum(
            Fraction(own.value[k]) * x[own.input[k]] * y[own.output[k]] for k in at
        )
        if len(self.quadratic):
            value += sum(
                y[k] * _dot(row, y) for k, row in enumerate(self.quadratic[rule]) if row.any()
            )
        limits = (
            Fraction(own.limit[p]) + _dot(own.tilt[p], x) for p in np.flatnonzero(own.piece == rule)
        )
        return bool(value > max(limits))

    def compute_residual(self, rule: int) -> Array:
        """(r, r) entry by entry at least |quadratic - sum of squares| of a rule, symmetric."""
        if not len(self.quadratic):
            return np.zeros((self.affine.output_size,) * 2)
        given, factor = self.quadratic[rule], self.square_factor[self.square_rule == rule]
        half, size = given / 2 + given.T / 2, np.abs(factor).T @ np.abs(factor)
        slip = (len(factor) + 4) * np.finfo(np.float64).eps
        return np.asarray(np.abs(half - factor.T @ factor) + slip * (np.abs(half) + size))

    def build_forms(self, rule: int) -> AffineRules:
        """The sums that are squared in a rule, then minus each of them, as rules of their own."""
        factors = self.square_factor[self.square_rule == rule]
        both = AffineCoefficients.fixed(np.concatenate([factors, -factors]))
        size = self.affine.input_size
        return AffineRules.of(both, np.zeros(2 * len(factors)), "<=", input_size=size)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All numbers, by the names that certificates use."""
        own = self.affine.arrays
        given = {"quadratic": self.quadratic} if len(self.quadratic) else {}
        return {
            "rule_constant": own["constant"],
            **{f"slope_{name}": own[name] for name in ("rule", "output", "input", "value")},
            **{name: own[name] for name in ("limit", "tilt", "piece")},
            "square_rule": self.square_rule,
            "square_factor": self.square_factor,
            **given,
        }


def _dot(coefficients: Array, values: list[Fraction]) -> Fraction:
    used = np.flatnonzero(coefficients).tolist()
    return sum((Fraction(float(coefficients[k])) * values[k] for k in used), Fraction(0))


def build_proof_rules(rules: AffineRules | QuadraticRules) -> ProofRules:
    """Rules in normal form, as proofs know them."""
    if isinstance(rules, AffineRules):
        none, size = np.empty(0, np.int64), rules.output_size
        flat, whole = np.empty((0, size)), np.empty((0, size, size))
        return ProofRules(rules, none, flat, whole, rules.digest)
    count, size, width = rules.factor.shape
    linear = AffineCoefficients.fixed(rules.linear)
    affine = AffineRules.of(linear, rules.limit, "<=", input_size=rules.input_size)
    factor = np.moveaxis(rules.factor, 2, 1).reshape(-1, size)
    of, used = np.repeat(np.arange(count), width), factor.any(axis=1)
    return ProofRules(affine, of[used], factor[used], rules.square, rules.digest)


def count_rules(requirement: Requirement, *, output_size: int) -> int:
    """How many single rules a requirement over a region states."""
    return len(find_proof_rules(requirement, output_size=output_size))


def find_proof_rules(requirement: Requirement, *, output_size: int) -> ProofRules:
    """The rules of a requirement over a region, or an error that says why there is no proof."""
    if isinstance(requirement, Quadratic) and requirement.normal_form is not None:
        requirement.check(requirement.input_size, output_size)
        return build_proof_rules(requirement.normal_form)
    return build_proof_rules(find_affine_rules(requirement, output_size=output_size))
