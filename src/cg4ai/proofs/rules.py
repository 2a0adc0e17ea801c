"""Rules in the one form that proofs know: squares of sums of outputs, affine parts, limits.

Rule l reads `sum over s with square_rule[s] == l of (square_factor[s] . y)^2 + value_l(x, y) <=
limit_l(x)`, where values and limits are those of `rules/affine.py`; linear rules have no squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.records import Array, IntArray
from cg4ai.rules import Requirement
from cg4ai.rules.affine import AffineRules, rules_of
from cg4ai.rules.coefficients import AffineCoefficients
from cg4ai.rules.quadratic import Quadratic, QuadraticRules


@dataclass(frozen=True, eq=False)
class ProofRules:
    """`affine` (L rules), and S squares: `square_rule` (S,), `square_factor` (S, r).

    `digest` is that of the normal form from which these were made.
    """

    affine: AffineRules
    square_rule: IntArray
    square_factor: Array
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
        """(L,): what `measured` must not exceed: the limit, or 0 where it depends on the input."""
        return np.where(self.plain, self.affine.limit[self.affine.pieces[:, 0]], 0.0)

    def measured(self, inputs: Array, outputs: Array) -> Array:
        """(n, L): values, and the excess over limits that depend on the input."""
        values = self.affine.values(inputs, outputs)
        if len(self.square_rule):
            squares = (outputs @ self.square_factor.T) ** 2
            np.add.at(values.T, self.square_rule, squares.T)
        if self.plain.all():
            return values
        return np.where(self.plain, values, values - self.affine.bounds(inputs))

    def forms(self, rule: int) -> AffineRules:
        """The sums that are squared in a rule, then minus each of them, as rules of their own."""
        factors = self.square_factor[self.square_rule == rule]
        factors = factors[factors.any(axis=1)]
        both = AffineCoefficients.fixed(np.concatenate([factors, -factors]))
        size = self.affine.input_size
        return AffineRules.of(both, np.zeros(2 * len(factors)), "<=", input_size=size)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All numbers, by the names that certificates use."""
        own = self.affine.arrays
        return {
            "rule_constant": own["constant"],
            **{f"slope_{name}": own[name] for name in ("rule", "output", "input", "value")},
            **{name: own[name] for name in ("limit", "tilt", "piece")},
            "square_rule": self.square_rule,
            "square_factor": self.square_factor,
        }


def proof_rules(rules: AffineRules | QuadraticRules) -> ProofRules:
    """Rules in normal form, as proofs know them."""
    if isinstance(rules, AffineRules):
        none = np.empty(0, np.int64)
        return ProofRules(rules, none, np.empty((0, rules.output_size)), rules.digest)
    count, size, width = rules.factor.shape
    linear = AffineCoefficients.fixed(rules.linear)
    affine = AffineRules.of(linear, rules.limit, "<=", input_size=rules.input_size)
    factor = np.moveaxis(rules.factor, 2, 1).reshape(-1, size)
    return ProofRules(affine, np.repeat(np.arange(count), width), factor, rules.digest)


def proof_rules_of(requirement: Requirement, *, output_size: int) -> ProofRules:
    """The rules of a requirement over a region, or an error that says why there is no proof."""
    if isinstance(requirement, Quadratic) and requirement.normal_form is not None:
        requirement.check(requirement.input_size, output_size)
        return proof_rules(requirement.normal_form)
    return proof_rules(rules_of(requirement, output_size=output_size))
