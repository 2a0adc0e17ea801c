"""Exact pricing of affine members: a convex problem, solved with a proven lower bound.

The class is bounded, as it must be: on inputs standardised by the training data, weights and bias
together lie in a Euclidean ball around 0, so a member's cost stays the plain loss.
"""

from __future__ import annotations

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.members.networks import affine
from cg4ai.objectives import Supervised
from cg4ai.pricing.exact.affine_problem import AffineProblem, Standardiser
from cg4ai.pricing.exact.dual_ascent import around_dual_maximum
from cg4ai.pricing.reduced_cost import reduced_costs
from cg4ai.protocols import Members, PricingRequest
from cg4ai.records import Array, PricingResult


class AffinePricer:
    """Minimises the reduced cost over all affine members whose parameters lie in a ball.

    A member of a block with q outputs maps x to `V^T [z, 1]`, z = (x - mean) / deviation over the
    objective's inputs, with Frobenius norm of V (d + 1, q) at most `radius`. `radius=None` takes
    `10 (1 + ||V_ls||)`, V_ls the least-squares fit of the targets (one-hot for classes); it needs
    targets. Losses must be convex in the outputs: squared is solved in closed form up to a scalar
    equation, others by Newton's method (projected gradient above `newton_size` parameters);
    where that ends early, or a loss is not smooth (absolute), the bound is valid but loose.
    Rows must be linear.

    Besides the best member, a call proposes members that speed up convergence: the current mixture
    collapsed into one affine member (same row values, no higher loss), the best member at the
    smoothed duals, and the best member at the maximum of the dual function with up to `extra`
    neighbours, a group that lets the master find that maximum (see `dual_ascent`; 0: none).
    """

    linear_rows_only = True

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        radius: float | None = None,
        extra: int = 64,
        tolerance: float = 1e-12,
        newton_size: int = 500,
    ) -> None:
        if input_size < 1 or output_size < 1:
            raise InvalidInput(
                f"sizes must be at least 1, got {input_size} inputs and {output_size} outputs"
            )
        if radius is not None and not (np.isfinite(radius) and radius > 0):
            raise InvalidInput(f"radius must be positive and finite, got {radius}")
        if extra < 0:
            raise InvalidInput(f"extra must not be negative, got {extra}")
        self.input_size = input_size
        self.output_size = output_size
        self.radius = radius
        self.extra = extra
        self.tolerance = tolerance
        self.newton_size = newton_size

    def radius_for(self, request: PricingRequest) -> float:
        """The radius in force for a request: state it with every bound."""
        if self.radius is not None:
            return self.radius
        objective = request.objective
        if not isinstance(objective, Supervised):
            raise InvalidInput(
                "an objective without targets gives no default radius; "
                "set AffinePricer(..., radius=...)"
            )
        targets = np.asarray(objective.targets)
        if targets.ndim == 1:
            targets = np.eye(request.rows.layout.output_size)[targets.astype(np.int64)]
        design = Standardiser.of(objective.inputs).design(objective.inputs)
        fit = np.linalg.lstsq(design, targets, rcond=None)[0]
        return 10.0 * (1.0 + float(np.linalg.norm(fit)))

    def price(self, request: PricingRequest) -> PricingResult:
        self._check(request)
        problem = AffineProblem(
            request,
            radius=self.radius_for(request),
            tolerance=self.tolerance,
            newton_size=self.newton_size,
        )
        best = problem.best(request.duals.rows)
        around = around_dual_maximum(problem, best.parameters, limit=self.extra)
        singles = [best.parameters, *problem.collapsed(), *around[:1]]
        singles = _distinct([*singles, problem.best(request.guide).parameters])
        members = self._members([*singles, *around[1:]], problem)
        count = len(request.rows.layout)
        blocks = np.tile(np.arange(count), len(members) // count)
        groups = np.full(len(members), -1)
        # The neighbours pin the duals down only together; where entering whole does not improve,
        # each stands for itself.
        joint = np.arange(len(singles) * count, len(members))
        if len(joint) and reduced_costs(request, members.take(joint), blocks[joint]).sum() < 0:
            groups[joint] = 0
        return PricingResult(
            members=members,
            blocks=blocks,
            groups=groups,
            lower_bound=best.lower_bounds,
        )

    def _check(self, request: PricingRequest) -> None:
        width = request.objective.inputs.shape[1]
        if width != self.input_size:
            raise InvalidInput(
                f"the data have {width} features, the affine pricer was made for {self.input_size}"
            )
        longest = max(len(block) for block in request.rows.layout.blocks)
        if longest > self.output_size:
            raise InvalidInput(
                f"a block has {longest} outputs, the affine pricer was made for "
                f"{self.output_size}; give AffinePricer the size of the largest block"
            )

    def _members(self, proposals: list[Array], problem: AffineProblem) -> Members:
        """One member per proposal and block, padded with zero outputs to a common size."""
        blocks = problem.layout.blocks
        stacked = np.zeros((len(proposals), len(blocks), self.input_size + 1, self.output_size))
        for number, positions in enumerate(blocks):
            stacked[:, number, :, : len(positions)] = np.stack(proposals)[:, :, positions]
        weights, bias = problem.standardiser.original(
            stacked.reshape(-1, self.input_size + 1, self.output_size)
        )
        return affine(weights, bias, output="linear")


def _distinct(proposals: list[Array]) -> list[Array]:
    """Without repetitions, which would only enlarge the master."""
    kept: list[Array] = []
    for proposal in proposals:
        scale = 1e-9 * (1.0 + float(np.abs(proposal).max()))
        if all(np.abs(proposal - other).max() > scale for other in kept):
            kept.append(proposal)
    return kept
