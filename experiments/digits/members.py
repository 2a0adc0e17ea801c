"""Members that read an image: small networks with smooth first layers, and the base member."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from cg4ai.colgen.pricing.defaults import PricerDefaults, WrappingPricer
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training, train
from cg4ai.colgen.pricing.probes import Probe
from cg4ai.colgen.pricing.reduced_cost import compute_row_values
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import concatenate
from cg4ai.members.mixture import Mixture, Part
from cg4ai.members.networks import NetworkArchitecture, NetworkMembers
from cg4ai.objectives import compute_cross_entropy
from cg4ai.protocols import (
    Architecture,
    ArchitectureDefaults,
    MemberChange,
    Members,
    Parameters,
    Pricer,
    PricingRequest,
)
from cg4ai.records import Array, IntArray, PricingResult
from cg4ai.rules.rows import Rows
from cg4ai.seeds import derive_seed, generator
from experiments.digits.data import CLASSES, PIXELS
from experiments.digits.settings import EPOCHS, Rule

SIDE = 28
FIRST = "weight_0"
ALONE = 16  # members trained at a time where one is to meet all rows


def network(rule: Rule, hidden: int) -> NetworkArchitecture:
    """The paper's member: 784-h-10 with ReLU; probabilities out, or logits for margins."""
    output: Literal["linear", "softmax"] = "linear" if rule == "margin" else "softmax"
    return NetworkArchitecture(PIXELS, CLASSES, hidden=(hidden,), output=output)


def picture_side(pixels: int) -> int:
    """The side of a square picture of so many pixels; other numbers are refused."""
    side = math.isqrt(pixels)
    if side * side != pixels:
        raise InvalidInput(
            f"a blurred first layer reads square pictures, got {pixels} inputs; use blur 0"
        )
    return side


def blurred(parameters: Parameters, *, blur: float, gain: float) -> Parameters:
    """The same network with `gain` times its first layer, blurred by `blur` pixels; 0: unchanged.

    Each neuron's weights are a picture, blurred along both axes by a Gaussian.
    """
    if blur == 0:
        return parameters
    first = parameters[FIRST]
    side = picture_side(first.shape[-1])
    kernel = _blur_matrix(blur, side).to(first)
    pictures = first.reshape(*first.shape[:-1], side, side)
    smooth = gain * (kernel @ pictures @ kernel)
    return {**parameters, FIRST: smooth.reshape(first.shape)}


def _blur_matrix(sigma: float, side: int) -> Tensor:
    """(side, side), symmetric: row i spreads pixel i over its line as a Gaussian; edges lose."""
    place = torch.arange(side, dtype=torch.float64)
    distance = (place[:, None] - place[None, :]) / sigma
    return torch.exp(-0.5 * distance.square()) / (sigma * math.sqrt(2 * math.pi))


@dataclass(frozen=True)
class SmoothNetwork(ArchitectureDefaults):
    """The paper's member, trained through a first layer that is blurred; 0 is no blur.

    Training moves free weights V; the network's first layer is `gain * blur(V)`, a Gaussian blur
    of `blur` pixels over each neuron's 28 x 28 weights. Neighbouring pixels then get similar
    weights, which few images alone do not teach. A finished member holds the blurred weights: it
    is a plain 784-h-10 network. `gain` makes up for the size that blurring takes away.
    """

    rule: Rule
    hidden: int = 4
    blur: float = 0.0
    gain: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.blur < SIDE or not self.gain > 0:
            raise InvalidInput(
                f"blur must lie in [0, {SIDE}) pixels and gain be positive, got {self.blur} and "
                f"{self.gain}"
            )

    @cached_property
    def network(self) -> NetworkArchitecture:
        return network(self.rule, self.hidden)

    @property
    def input_size(self) -> int:
        return PIXELS

    @property
    def output_size(self) -> int:
        return CLASSES

    def initialise(self, count: int, generator: torch.Generator) -> Parameters:
        return self.network.initialise(count, generator)

    def blurred(self, parameters: Parameters) -> Parameters:
        """The network's own parameters: the first layer blurred along both axes."""
        return blurred(parameters, blur=self.blur, gain=self.gain)

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        return self.network.forward(self.blurred(parameters), inputs)

    def members(self, parameters: Parameters) -> NetworkMembers:
        return self.network.members(self.blurred(parameters))

    def parameters(self, members: Members) -> Parameters | None:
        """None under a blur: it cannot be undone reliably, so there are no warm starts."""
        return self.network.parameters(members) if self.blur == 0 else None

    def scale_outputs(self, parameters: Parameters, factors: Tensor) -> Parameters:
        return self.network.scale_outputs(parameters, factors)


@dataclass(frozen=True)
class DigitPricer(PricerDefaults):
    """Trains groups jointly until there is too little left to gain, then proposes nothing.

    Losses are at least 0, so a mixture whose rows are all met and whose loss is at most `enough`
    cannot be improved by more than that: no further group is trained to find out.
    """

    training: GradientPricer
    enough: float = 0.05

    def trained_architecture(self) -> Architecture:
        return self.training.architecture

    def with_members(self, change: MemberChange) -> Pricer:
        changed = change.architecture(self.training.architecture)
        return replace(self, training=replace(self.training, architecture=changed))

    def price(self, request: PricingRequest) -> PricingResult:
        if request.ensemble is not None and self._enough(request, request.ensemble):
            none = np.empty(0, np.int64)
            return PricingResult(None, none, none, note="all rows met, loss at most enough")
        return self.training.price(request)

    def for_single_models(self, pressure: float) -> Pricer:
        """New members that stand alone, several in one batch, and the best one trained on."""
        fresh = self.training
        one = replace(fresh, architecture=self._unblurred, restarts=1)
        return Both(
            (
                replace(fresh, restarts=ALONE).for_single_models(pressure),
                one.for_single_models(pressure),
            )
        )

    def for_estimate(self, probe: Probe) -> GradientPricer:
        """Looks though little is left to gain; half of the members go on from active ones."""
        return replace(self.training, architecture=self._unblurred).for_estimate(probe)

    @property
    def _unblurred(self) -> Architecture:
        """A blur keeps members that there are from being taken up."""
        own = self.training.architecture
        return own.network if isinstance(own, SmoothNetwork) else own

    def _enough(self, request: PricingRequest, mixture: Mixture) -> bool:
        """Whether the mixture meets every row and its loss on the objective's images is small.

        A new row of a cut has no dual yet; it is evaluated here like all others.
        """
        for rows in request.rows.batches:
            reached = sum(
                _values(rows, part, request.device) @ part.weights for part in mixture.parts
            )
            if np.any(reached < rows.bounds):
                return False
        objective = request.objective
        everything = objective.batch(None, generator(0), device=request.device, dtype=torch.float64)
        with torch.no_grad():
            loss = objective.value(everything, mixture.outputs(everything.inputs))
        return float(loss) <= self.enough


@dataclass(frozen=True)
class Both(WrappingPricer):
    """Asks all of `inner`, whose members are of one kind, and proposes what they propose."""

    inner: tuple[Pricer, ...]

    def price(self, request: PricingRequest) -> PricingResult:
        answers = [one.price(request) for one in self.inner]
        found = [one.members for one in answers if one.members is not None]
        members = concatenate(found) if found else None
        count = 0 if members is None else len(members)
        rows = tuple(rows for one in answers for rows in one.rows)
        return PricingResult(members, np.zeros(count, np.int64), np.full(count, -1), rows=rows)


def _values(rows: Rows, part: Part, device: str) -> Array:
    """(len(rows), members): each member's own row value."""
    return compute_row_values(rows, Layout.single(CLASSES), part.members, part.blocks, device)


def base_member(
    images: Array, labels: IntArray, *, rule: Rule, hidden: int, seed: int, epochs: int = EPOCHS
) -> NetworkMembers:
    """One member alone, trained as in the paper: cross-entropy, Adam at 1e-3, early stopping.

    The baseline of all scenarios, and the member whose mistakes are corrected or attacked.
    """
    logits = network("margin", hidden)
    x = torch.as_tensor(images, dtype=torch.float32)
    y = torch.as_tensor(labels)

    def loss(parameters: Parameters, step: int) -> Tensor:
        return compute_cross_entropy(logits.forward(parameters, x), y).mean(-1)

    start = logits.initialise(1, generator(derive_seed(seed, 0, "base member")))
    usual = Training(epochs, learning_rate=1e-3, schedule="plateau", patience=50, decay=1.0)
    return network(rule, hidden).members(train(start, loss, usual, models=1))
