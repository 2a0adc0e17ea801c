"""Exact pricing of small ReLU networks: the best unit by a program with whole numbers.

Members have one hidden unit, which loses nothing: their mixtures are all the one-hidden-layer
networks, of any width, whose weights along all paths from inputs to outputs sum to `radius` at most
(docs/mathematics.md). Prices are linear in a member's outputs, so its constant and its unit are
chosen apart, and the unit for one output at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cg4ai.colgen.pricing.defaults import PricerDefaults
from cg4ai.colgen.pricing.exact.affine_problem import ROUNDING, Standardiser
from cg4ai.colgen.pricing.exact.relu_units import BestUnit, Units, find_best_unit, search
from cg4ai.colgen.pricing.reduced_cost import compute_price_terms
from cg4ai.errors import InvalidInput
from cg4ai.members.networks import NetworkArchitecture, NetworkMembers
from cg4ai.objectives import AnyObjective, Supervised
from cg4ai.protocols import PricerCapabilities, PricingRequest
from cg4ai.records import Array, PricingResult
from cg4ai.rules import Requirement

MOST_INPUTS = 60  # at which outputs may have a price: each is a whole number of the programs
MOST_NUMBERS = 200  # of those inputs, x features


@dataclass(frozen=True, slots=True)
class _Range:
    """Outputs in units (r,) of their own, around a centre (r,)."""

    centre: Array
    unit: Array

    @classmethod
    def of(cls, objective: AnyObjective, size: int) -> _Range:
        """Mean and deviation of numeric targets; 0 and 1 for logits and without targets."""
        targets = np.asarray(objective.targets) if isinstance(objective, Supervised) else None
        if targets is None or targets.ndim != 2 or targets.shape[1] != size:
            return cls(np.zeros(size), np.ones(size))
        deviation = targets.std(0)
        return cls(targets.mean(0), np.where(deviation > 0, deviation, 1.0))


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A member of a block: its constant (q,), its unit (D,) and what that adds to outputs (q,)."""

    constant: Array
    unit: Array
    weight: Array


def _has_loss(objective: AnyObjective) -> bool:
    return isinstance(objective, Supervised) and objective.loss != "none"


class ReluPricer(PricerDefaults):
    """Minimises the reduced cost over all members `c + v max(0, w . z + b)`, with a proven bound.

    z is the input, standardised over the objective's inputs; |w_1| + ... + |w_d| + |b| <= 1. In
    units of the targets' deviation (1 for logits and without targets) |v_1| + ... + |v_q| is at
    most `radius`, and c at most `radius` from the targets' mean. Rows must be linear, and the
    objective `mixture`, `epigraph` or without a loss: then prices are linear in outputs, and there
    is one program for each output and sign of v. A program that reaches its limit of nodes still
    has a bound, then a looser one. A call proposes the best unit of each program and, of those
    that searching found, up to `per_call` others for each block.
    """

    capabilities = PricerCapabilities(linear_rows_only=True, proves="ReLU networks")

    def __init__(
        self, input_size: int, output_size: int, *, radius: float = 10.0, per_call: int = 8
    ) -> None:
        if input_size < 1 or output_size < 1:
            raise InvalidInput(
                f"sizes must be at least 1, got {input_size} inputs and {output_size} outputs",
                code="range",
            )
        if not (np.isfinite(radius) and radius > 0):
            raise InvalidInput(f"radius must be positive and finite, got {radius}", code="range")
        if per_call < 0:
            raise InvalidInput(f"per_call must not be negative, got {per_call}", code="range")
        self.input_size, self.output_size = input_size, output_size
        self.radius, self.per_call = float(radius), per_call

    def refuse(self, objective: AnyObjective, requirements: Sequence[Requirement]) -> None:
        """Refuse what cannot be priced exactly in reasonable time, before anything is trained."""
        averaged = isinstance(objective, Supervised) and objective.kind == "average"
        if averaged and _has_loss(objective):
            raise InvalidInput(
                "ReLU members are priced exactly where their prices are linear in outputs: "
                'for objective="mixture" and epigraphs, not for the "average" of their own '
                'losses; set objective="mixture", or use members="network"',
                code="unsupported",
            )
        listed = [rows.inputs for one in requirements if (rows := one.rows(0)) is not None]
        count = len(np.unique(np.concatenate([objective.inputs, *listed]), axis=0))
        most = min(MOST_INPUTS, MOST_NUMBERS // self.input_size)
        if count > most:
            raise InvalidInput(
                f"{count} different inputs of {self.input_size} features are too many to price "
                f"ReLU members exactly: taken are up to {MOST_INPUTS} inputs, and up to "
                f"{MOST_NUMBERS} inputs x features, here {most} inputs (near that a run may end "
                "with a proven gap that is left); take fewer rows, or use "
                'members="network", which proves no bound',
                code="memory",
            )

    def price(self, request: PricingRequest) -> PricingResult:
        self._check(request)
        layout = request.rows.layout
        scale = _Range.of(request.objective, layout.output_size)
        standardiser = Standardiser.of(request.objective.inputs)
        terms = compute_price_terms(request)
        if terms.charge and _has_loss(request.objective):
            return self._first(request, scale, standardiser)
        inputs, where = np.unique(terms.inputs, axis=0, return_inverse=True)
        prices = np.zeros((len(inputs), layout.output_size))
        np.add.at(prices, where.reshape(-1), terms.prices)
        design = standardiser.design(inputs)
        chosen: list[_Chosen] = []
        blocks: list[int] = []
        bounds = np.empty(len(layout))
        for block, positions in enumerate(layout.blocks):
            block_scale = _Range(scale.centre[positions], scale.unit[positions])
            gamma = float(request.duals.blocks[block])
            best = self._best(design, prices[:, positions], block_scale, gamma, request.seed)
            chosen += best.members
            blocks += [block] * len(best.members)
            bounds[block] = best.bound
        return PricingResult(
            members=self._members(chosen, standardiser),
            blocks=np.array(blocks, np.int64),
            groups=np.full(len(chosen), -1),
            lower_bound=bounds,
        )

    def _check(self, request: PricingRequest) -> None:
        width = request.objective.inputs.shape[1]
        longest = max(len(block) for block in request.rows.layout.blocks)
        if width != self.input_size or longest > self.output_size:
            raise InvalidInput(
                f"the ReLU pricer was made for {self.input_size} features and blocks of up to "
                f"{self.output_size} outputs, the problem has {width} and {longest}",
                code="shape",
            )

    def _first(
        self, request: PricingRequest, scale: _Range, standardiser: Standardiser
    ) -> PricingResult:
        """Constants to begin from: there is no mixture yet at which the loss has a gradient."""
        none = np.zeros(self.input_size + 1)
        chosen = [
            _Chosen(scale.centre[positions], none, np.zeros(len(positions)))
            for positions in request.rows.layout.blocks
        ]
        return PricingResult(
            members=self._members(chosen, standardiser),
            blocks=np.arange(len(chosen)),
            groups=np.full(len(chosen), -1),
        )

    def _best(
        self, design: Array, prices: Array, scale: _Range, gamma: float, seed: int
    ) -> _Priced:
        """The best members of a block at prices (n, q), and a bound of their reduced costs."""
        total = prices.sum(0)
        constant = scale.centre - self.radius * scale.unit * np.sign(total)
        paid = float(total @ constant) - gamma
        scaled = prices * scale.unit  # what a unit of v costs where outputs have that unit
        known = search(design, scaled, seed)
        gain = self.radius * float(np.abs(known.worth).max()) - paid  # of the best member known
        enough = max(0.0, gain) / self.radius
        found = [
            (output, sign, find_best_unit(design, sign * scaled[:, output], start, enough=enough))
            for output, sign, start in _starts(known)
        ]
        least = min(unit.bound for _, _, unit in found)
        size = float(np.abs(prices).sum(0) @ (np.abs(scale.centre) + 2 * self.radius * scale.unit))
        bound = paid + self.radius * least - ROUNDING * (size + abs(gamma))
        units = [*found, *self._others(known)]
        members = []
        for output, sign, unit in units:
            weight = np.zeros(len(total))
            weight[output] = sign * self.radius * scale.unit[output]
            members.append(_Chosen(constant, unit.parameters, weight))
        return _Priced(members, bound)

    def _others(self, known: Units) -> list[tuple[int, float, BestUnit]]:
        """Some of the good units that are worth about different amounts: so they differ."""
        outputs = np.abs(known.worth).argmax(1)
        values = np.round(np.take_along_axis(known.worth, outputs[:, None], 1)[:, 0], 12)
        _, first = np.unique(values, return_index=True)
        picked = np.sort(first)[: self.per_call].tolist()
        return [
            (
                int(outputs[one]),
                -1.0 if values[one] > 0 else 1.0,
                BestUnit(known.parameters[one], -abs(float(values[one])), -np.inf),
            )
            for one in picked
        ]

    def _members(self, chosen: list[_Chosen], standardiser: Standardiser) -> NetworkMembers:
        """Networks of one unit, padded with zero outputs to a common size."""
        count = len(chosen)
        units = np.array([one.unit for one in chosen]).reshape(count, self.input_size + 1, 1)
        slopes, offsets = standardiser.original(units)
        weights = np.zeros((count, self.output_size, 1))
        constants = np.zeros((count, self.output_size))
        for number, one in enumerate(chosen):
            weights[number, : len(one.weight), 0] = one.weight
            constants[number, : len(one.constant)] = one.constant
        architecture = NetworkArchitecture(self.input_size, self.output_size, hidden=(1,))
        named = {
            "weight_0": slopes.transpose(0, 2, 1),
            "bias_0": offsets,
            "weight_1": weights,
            "bias_1": constants,
        }
        return NetworkMembers(architecture, named)


@dataclass(frozen=True, slots=True)
class _Priced:
    members: list[_Chosen]
    bound: float


def _starts(known: Units) -> list[tuple[int, float, Array]]:
    """For each output and sign of its weight, the best unit that searching found."""
    return [
        (output, sign, known.parameters[int((sign * known.worth[:, output]).argmin())])
        for output in range(known.worth.shape[1])
        for sign in (1.0, -1.0)
    ]
