"""`Concave`: any concave function of the outputs stays above a bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cg4ai.data import arrays
from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray
from cg4ai.rules.requirement import InputRule, describe_input
from cg4ai.rules.rows import ConcaveRows, Rows, region_origin


@dataclass(frozen=True, eq=False)
class Concave(InputRule):
    """`functional(f(x)) >= bound`, functional concave: (..., m, r) -> (..., m) in torch.

    Each value must depend on the outputs at its own input alone. `bound` is one number, or (m,)
    for lists. Once the number of outputs is known (`check`), random chords are tried and a
    functional seen to be convex somewhere is refused with the witness; passing that is no proof
    of concavity, and the guarantee rests on it. `domain` says which outputs to try: "any", or
    "probabilities" for a functional that is concave only there.
    """

    functional: Callable[[Tensor], Tensor]
    bound: Any
    domain: str = field(default="any", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inputs is None:
            return
        if not callable(self.functional):
            raise InvalidInput(
                f"functional must be a function, got {self.functional!r}", code="type"
            )
        if self.domain not in ("any", "probabilities"):
            raise InvalidInput(
                f'domain must be "any" or "probabilities", got {self.domain!r}', code="unknown-name"
            )
        count = 1 if self.over_region else len(self.points)
        object.__setattr__(self, "bound", arrays.as_vector(self.bound, "bound", count))

    def check(self, input_size: int, output_size: int) -> None:
        self.fit(input_size, output_size)
        probe_concavity(self.functional, output_size, domain=self.domain, name=self.name)

    def _apply(self, outputs: Tensor, positions: IntArray) -> Tensor:
        return self.functional(outputs)

    def rows(self, number: int) -> ConcaveRows | None:
        if self.over_region:
            return None
        positions = np.arange(len(self.points))
        origin = np.stack([positions, np.zeros_like(positions)], axis=1)
        return ConcaveRows(number, self.points, self._apply, self.bound, positions, origin)

    def rows_at(self, inputs: Array, which: IntArray, number: int) -> ConcaveRows:
        self.require_region()
        zeros = np.zeros(len(inputs), np.int64)
        bounds = np.repeat(self.bound, len(inputs))
        return ConcaveRows(number, inputs, self._apply, bounds, zeros, region_origin(zeros))

    def violations(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        self.require_region()
        return float(self.bound[0]) - self.functional(outputs).unsqueeze(-1)

    def describe(self, rows: Rows, j: int) -> str:
        return f"{self.name}: {describe_input(rows, j)}, functional >= {rows.bounds[j]:.6g}"


def probe_concavity(
    functional: Callable[[Tensor], Tensor], output_size: int, *, domain: str, name: str
) -> None:
    """Try random chords; raise InvalidInput with a witness if one lies above the function."""
    generator = torch.Generator().manual_seed(0)
    one, other = (_probes(output_size, domain, generator) for _ in range(2))
    other[1::2] = one[1::2] + 0.1 * (other[1::2] - one[1::2])  # near pairs see local bumps
    share = torch.rand(len(one), 1, generator=generator, dtype=torch.float64)
    between = share * one + (1 - share) * other
    with torch.no_grad():
        ends = functional(torch.stack([one, other]))
        middle = functional(between)
        alone = functional(between[:1])
    z = between.clone().requires_grad_()
    with torch.enable_grad():
        values = functional(z)
    if ends.shape != (2, len(one)) or middle.shape != (len(one),):
        raise InvalidInput(
            f"the functional of {name} must map (..., m, r) to (..., m); for outputs of shape "
            f"{(2, *one.shape)} it gave {tuple(ends.shape)}",
            code="shape",
        )
    if not torch.allclose(alone, middle[:1], equal_nan=True):
        raise InvalidInput(
            f"the functional of {name} gives another value for an input when other inputs are "
            "beside it; each value must depend on the outputs at its own input alone",
            code="unsupported",
        )
    # minus infinity is a legal concave value, "not a number" says the probe is off the domain
    usable = torch.isfinite(ends).all(0)
    if not usable.any():
        raise InvalidInput(
            f"the functional of {name} is not finite at any of {len(one)} random outputs; if it "
            'is meant for probabilities, say domain="probabilities"',
            code="not-finite",
        )
    chord = share[:, 0] * ends[0] + (1 - share[:, 0]) * ends[1]
    slack = 1e-7 * (1 + ends.abs().amax(0))
    above = usable & ~(middle >= chord - slack)
    if above.any():
        k = int(above.nonzero()[0, 0])
        raise InvalidInput(
            f"the functional of {name} is not concave: at {_show(one[k])} it is "
            f"{ends[0, k]:.6g}, at {_show(other[k])} {ends[1, k]:.6g}, but at their mixture with "
            f"weight {float(share[k, 0]):.4g} on the first it is {middle[k]:.6g}, below the mean "
            f"{chord[k]:.6g}; only concave functionals keep the guarantee for a mixture",
            code="not-convex",
        )
    _probe_slopes(z, values, one, ends[0], name=name)


def _probe_slopes(at: Tensor, values: Tensor, ends: Tensor, there: Tensor, *, name: str) -> None:
    """Raise InvalidInput if the functional's gradient is no supergradient: cuts are made of it.

    `ends` (n, r) with values `there` (n,) must lie below the tangents at `at` (n, r).
    """
    if values.requires_grad:
        (slopes,) = torch.autograd.grad(values.sum(), at, allow_unused=True)
    else:
        slopes = torch.zeros_like(at)
    tangent = values + (slopes * (ends - at)).sum(-1)
    usable = torch.isfinite(there) & torch.isfinite(tangent)
    below = usable & (there > tangent + 1e-7 * (1 + there.abs() + tangent.abs()))
    if below.any():
        k = int(below.nonzero()[0, 0])
        raise InvalidInput(
            f"the gradient that torch finds of the functional of {name} is wrong: from "
            f"{_show(at[k])} it predicts at most {tangent[k]:.6g} at {_show(ends[k])}, where the "
            f"functional is {there[k]:.6g}; state it by differentiable operations of torch "
            "(without detach, item or numpy)"
        )


def _probes(output_size: int, domain: str, generator: torch.Generator) -> Tensor:
    """(count, r): points of the simplex, and for any outputs normal draws of several sizes."""
    share = torch.rand(256, output_size, generator=generator, dtype=torch.float64)
    simplex = -torch.log1p(-share) + 1e-12
    simplex = simplex / simplex.sum(-1, keepdim=True)
    if domain == "probabilities":
        return simplex
    draws = torch.randn(768, output_size, generator=generator, dtype=torch.float64)
    sizes = torch.tensor([0.1, 1.0, 10.0], dtype=torch.float64).repeat_interleave(256)
    return torch.cat([simplex, draws * sizes[:, None]])


def _show(point: Tensor) -> str:
    numbers = ", ".join(f"{value:.4g}" for value in point[:6].tolist())
    return f"[{numbers}{', ...' if len(point) > 6 else ''}]"
