"""Requirements over a region in one normal form, `value(x) <= limit`: what is certified.

Rule l reads `sum_k (constant[l, k] + slope[l, k] . x) y_k(x) <= limit[l]` with y the outputs of
the ensemble; rules with ">=" are negated, "==" gives two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.objectives import LinearFunctional
from cg4ai.records import Array, IntArray
from cg4ai.rules import Linear, Margin, Probability, Requirement
from cg4ai.rules.regions import Ball, Box


@dataclass(frozen=True, eq=False)
class AffineCoefficients:
    """Coefficients of outputs that are affine in the input.

    `constant` (L, r); the slopes are sparse: d coefficient[rule, output] / d x[input] = value.
    """

    constant: Array
    rule: IntArray
    output: IntArray
    input: IntArray
    value: Array


class AffineFunctional(LinearFunctional, Protocol):
    """A functional whose coefficients are affine in the input: certificates need this."""

    def affine(self) -> AffineCoefficients: ...


@dataclass(frozen=True, eq=False)
class Rules:
    """All rules of a requirement in normal form, in the order of its rule numbers."""

    coefficients: AffineCoefficients
    limit: Array
    input_size: int

    def __len__(self) -> int:
        return len(self.limit)

    @property
    def output_size(self) -> int:
        return int(self.coefficients.constant.shape[1])

    def slopes(self, rule: int) -> Array:
        """(r, d), dense, of one rule."""
        chosen = self.coefficients.rule == rule
        dense = np.zeros((self.output_size, self.input_size))
        at = (self.coefficients.output[chosen], self.coefficients.input[chosen])
        np.add.at(dense, at, self.coefficients.value[chosen])
        return dense

    def values(self, inputs: Array, outputs: Array) -> Array:
        """(n, d), (n, r) -> (n, L): to be compared with `limit`."""
        a = self.coefficients
        total = outputs @ a.constant.T
        np.add.at(total.T, a.rule, a.value[:, None] * (inputs[:, a.input] * outputs[:, a.output]).T)
        return np.asarray(total)


def rules_of(requirement: Requirement, *, output_size: int) -> Rules:
    """The normal form of a linear requirement over a Box or Ball, or an error that says why not."""
    if not isinstance(requirement.region, Box | Ball):
        raise InvalidInput(
            f"{requirement.name} lists its inputs; a certificate speaks of a Box or Ball. Audit "
            "listed inputs with ensemble.audit(requirement)"
        )
    requirement.check(requirement.input_size, output_size)
    if isinstance(requirement, Linear):
        return _linear(requirement, output_size)
    if isinstance(requirement, Probability):
        lower = np.zeros((1, output_size))
        lower[0, int(requirement.labels[0])] = -1.0
        return _fixed(lower, -requirement.at_least, requirement.input_size)
    if isinstance(requirement, Margin):
        return _margin(requirement, output_size)
    raise InvalidInput(
        f"{requirement.name} ({type(requirement).__name__}) cannot be certified; Linear, "
        "Probability and Margin over a Box or Ball can"
    )


def _fixed(matrix: Array, limit: Array, input_size: int) -> Rules:
    none = np.empty(0, np.int64)
    coefficients = AffineCoefficients(matrix, none, none, none, np.empty(0))
    return Rules(coefficients, np.asarray(limit, np.float64), input_size)


def _margin(requirement: Margin, output_size: int) -> Rules:
    """The mixture's own margin: class `label` minus each other class, whatever the form."""
    label = int(requirement.labels[0])
    matrix = np.delete(np.eye(output_size), label, axis=0)
    matrix[:, label] = -1.0
    limit = np.repeat(-requirement.at_least, output_size - 1)
    return _fixed(matrix, limit, requirement.input_size)


def _linear(requirement: Linear, output_size: int) -> Rules:
    functional = requirement.functional
    given = getattr(functional, "affine", None)
    if given is not None:
        affine: AffineCoefficients = given()
        _probe(requirement, functional, affine)
    elif isinstance(requirement.coefficients, np.ndarray):
        affine = _fixed(requirement.coefficients, requirement.bound, 1).coefficients
    else:
        raise InvalidInput(
            f"the functional of {requirement.name}, {type(functional).__name__}, cannot be "
            "certified: it has no method affine() that gives its coefficients as affine functions "
            "of the input (cg4ai.proofs.AffineCoefficients)"
        )
    if affine.constant.shape[1] != output_size:
        raise InvalidInput(
            f"{requirement.name} has coefficients for {affine.constant.shape[1]} outputs, the "
            f"predictor has {output_size}"
        )
    return _sided(requirement, affine)


def _sided(requirement: Linear, affine: AffineCoefficients) -> Rules:
    """As `<=`: ">=" negated, "==" as its ">=" side followed by its "<=" side."""
    upper = Rules(affine, requirement.bound, requirement.input_size)
    if requirement.sense == "<=":
        return upper
    negated = AffineCoefficients(
        -affine.constant, affine.rule, affine.output, affine.input, -affine.value
    )
    lower = Rules(negated, -requirement.bound, requirement.input_size)
    if requirement.sense == ">=":
        return lower
    count = len(requirement.bound)
    both = AffineCoefficients(
        np.concatenate([negated.constant, affine.constant]),
        np.concatenate([affine.rule, affine.rule + count]),
        np.tile(affine.output, 2),
        np.tile(affine.input, 2),
        np.concatenate([negated.value, affine.value]),
    )
    return Rules(both, np.concatenate([lower.limit, upper.limit]), requirement.input_size)


def _probe(requirement: Linear, functional: LinearFunctional, affine: AffineCoefficients) -> None:
    """Refuse an `affine()` that disagrees with the functional's own coefficients."""
    count = functional.count
    rules = Rules(affine, np.zeros(count), requirement.input_size)
    lower, upper = requirement.inputs.bounds()
    for share in (0.0, 0.3, 1.0):
        point = lower + share * (upper - lower)
        expected = functional.coefficients(np.tile(point, (count, 1)), np.arange(count))
        got = affine.constant + np.stack([rules.slopes(rule) @ point for rule in range(count)])
        if not np.allclose(got, expected, rtol=1e-9, atol=1e-12):
            raise InvalidInput(
                f"affine() of the functional of {requirement.name} disagrees with its "
                f"coefficients() at x = {point[:4]}..."
            )
