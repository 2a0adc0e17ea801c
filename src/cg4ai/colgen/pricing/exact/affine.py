"""Exact pricing of affine members: a convex problem, solved with a proven lower bound.

The class is bounded, as it must be: on inputs standardised by the training data, weights and bias
together lie in a Euclidean ball around 0, so a member's cost stays the plain loss.

Besides the best member there are extra ones, around the maximum of the dual function. The master
sees that function, `duals . bounds + sum_g min reduced cost`, only through the columns it has, as
an upper model of tangent planes, and its duals jump between far corners of it. The exact pricer can
evaluate the function itself, so it climbs to the maximum and hands the master the tangent planes
there and in a small neighbourhood, from which it can read the optimum.
"""

from __future__ import annotations

import copy

import numpy as np

from cg4ai.colgen.pricing.defaults import PricerDefaults
from cg4ai.colgen.pricing.exact.affine_problem import AffineProblem, Standardiser
from cg4ai.colgen.pricing.probes import Probe
from cg4ai.colgen.pricing.reduced_cost import compute_reduced_costs
from cg4ai.errors import InvalidInput
from cg4ai.members.networks import affine
from cg4ai.objectives import Supervised
from cg4ai.protocols import Members, PricerCapabilities, PricingRequest
from cg4ai.records import Array, IntArray, PricingResult

GAP = 1e-7  # relative gap aimed at; much closer neighbours drown in the master's tolerances


class AffinePricer(PricerDefaults):
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
    neighbours, a group that lets the master find that maximum (0: none).
    """

    capabilities = PricerCapabilities(
        needs_labels=True, linear_rows_only=True, proves="affine members"
    )

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
                f"sizes must be at least 1, got {input_size} inputs and {output_size} outputs",
                code="range",
            )
        if radius is not None and not (np.isfinite(radius) and radius > 0):
            raise InvalidInput(f"radius must be positive and finite, got {radius}", code="range")
        if extra < 0:
            raise InvalidInput(f"extra must not be negative, got {extra}", code="range")
        self.input_size = input_size
        self.output_size = output_size
        self.radius = radius
        self.extra = extra
        self.tolerance = tolerance
        self.newton_size = newton_size

    def choose_radius(self, request: PricingRequest) -> float:
        """The radius in force for a request: state it with every bound."""
        if self.radius is not None:
            return self.radius
        objective = request.objective
        if not isinstance(objective, Supervised):
            raise InvalidInput(
                "an objective without targets gives no default radius; "
                "set AffinePricer(..., radius=...)",
                code="missing-argument",
            )
        targets = np.asarray(objective.targets)
        if targets.ndim == 1:
            targets = np.eye(request.rows.layout.output_size)[targets.astype(np.int64)]
        design = Standardiser.of(objective.inputs).design(objective.inputs)
        fit = np.linalg.lstsq(design, targets, rcond=None)[0]
        return 10.0 * (1.0 + float(np.linalg.norm(fit)))

    def for_estimate(self, probe: Probe) -> AffinePricer:
        """The best member and its bound, without the others that speed up convergence."""
        made = copy.copy(self)
        made.extra = 0
        return made

    def price(self, request: PricingRequest) -> PricingResult:
        self._check(request)
        problem = AffineProblem(
            request,
            radius=self.choose_radius(request),
            tolerance=self.tolerance,
            newton_size=self.newton_size,
        )
        best = problem.find_best(request.duals.rows)
        around = _around_dual_maximum(problem, best.parameters, limit=self.extra)
        singles = [best.parameters, *problem.collapse_mixture(), *around[:1]]
        singles = _distinct([*singles, problem.find_best(request.guide).parameters])
        members = self._members([*singles, *around[1:]], problem)
        count = len(request.rows.layout)
        blocks = np.tile(np.arange(count), len(members) // count)
        groups = np.full(len(members), -1)
        # The neighbours pin the duals down only together; where entering whole does not improve,
        # each stands for itself.
        joint = np.arange(len(singles) * count, len(members))
        if (
            len(joint)
            and compute_reduced_costs(request, members.take(joint), blocks[joint]).sum() < 0
        ):
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
                f"the data have {width} features, the affine pricer was made for {self.input_size}",
                code="shape",
            )
        longest = max(len(block) for block in request.rows.layout.blocks)
        if longest > self.output_size:
            raise InvalidInput(
                f"a block has {longest} outputs, the affine pricer was made for "
                f"{self.output_size}; give AffinePricer the size of the largest block",
                code="shape",
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


class _DualFunction:
    """The dual function of a problem, warm-started, with the best point seen."""

    def __init__(self, problem: AffineProblem, start: Array) -> None:
        self.problem = problem
        self.bounds = problem.request.rows.bounds
        self.warm = start
        self.best_value = -np.inf
        self.best_duals = problem.request.duals.rows

    def value(self, duals: Array) -> tuple[float, Array]:
        """Value and gradient `bounds - rows` at `duals`."""
        priced = self.problem.find_best_by_loss(duals, self.warm)
        self.warm = priced.parameters
        gammas = self.problem.request.duals.blocks  # constants of the reduced costs, not of this
        value = float(duals @ self.bounds) + float((priced.values + gammas).sum())
        if value > self.best_value:
            self.best_value, self.best_duals = value, duals.copy()
        return value, self.bounds - self.problem.row_values(priced.parameters)

    def run(self) -> None:
        """L-BFGS-B in duals scaled by the size of each row, from the best multiple of the duals."""
        from scipy.optimize import minimize

        duals = self.problem.request.duals.rows
        for factor in 10.0 ** np.arange(-5, 1):
            self.value(factor * duals)
        sizes = np.linalg.norm(self.problem.row_inputs, axis=1)
        sizes = sizes * np.linalg.norm(self.problem.row_outputs, axis=1)
        scale = 1.0 / np.where(sizes > 0, sizes, 1.0)

        def negative(scaled: Array) -> tuple[float, Array]:
            value, gradient = self.value(scaled * scale)
            return -value, -gradient * scale

        # Where no member meets the rows the function has no maximum: stay near the master's duals.
        highest = 10.0 * float(duals.max()) / scale
        minimize(
            negative,
            self.best_duals / scale,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(np.zeros_like(highest), highest, strict=True)),
            options={
                "maxfun": self.problem.evaluations,
                "ftol": 1e-16,
                "gtol": 1e-11,
                "maxcor": 40,
            },
        )


def _around_dual_maximum(problem: AffineProblem, start: Array, *, limit: int) -> list[Array]:
    """The best member at the best duals, then at most `limit` neighbours; nothing if that is 0.

    Neighbours lie both ways along the principal axes of the dual function's curvature on the rows
    that bind, so far out that it falls by f. With all of them in the master, its duals are within
    half that distance along each axis, so the gap is at most f/4 for each binding row.
    Members are best for duals of either sign, so a neighbour may leave the nonnegative duals.
    """
    duals = problem.request.duals.rows
    if limit == 0 or problem.evaluations == 0 or not np.any(duals > 0):
        return []
    climb = _DualFunction(problem, start)
    climb.run()
    top = climb.best_duals
    centre = problem.find_best_by_loss(top, climb.warm).parameters
    binding = np.flatnonzero(top > 1e-9 * top.max())
    binding = np.sort(binding[np.argsort(-top[binding])][: limit // 2])
    found = [centre]
    fall = 4.0 * GAP * (1.0 + abs(climb.best_value)) / max(1, len(binding))
    for step in _principal_steps(problem, top, centre, binding=binding, fall=fall):
        for sign in (1.0, -1.0):
            found.append(problem.find_best_by_loss(top + sign * step, centre).parameters)
    return found


def _principal_steps(
    problem: AffineProblem, top: Array, centre: Array, *, binding: IntArray, fall: float
) -> list[Array]:
    """Steps (m,) from `top` along the axes of curvature, each lowering the function by `fall`."""
    values = problem.row_values(centre)[binding]
    curvature = np.empty((len(binding), len(binding)))
    for number, row in enumerate(binding):
        moved = top.copy()
        moved[row] *= 1.001
        response = problem.row_values(problem.find_best_by_loss(moved, centre).parameters)[binding]
        curvature[:, number] = (response - values) / (moved[row] - top[row])
    sizes, axes = np.linalg.eigh((curvature + curvature.T) / 2)
    steps = []
    for size, axis in zip(sizes, axes.T, strict=True):
        if size > 1e-10 * sizes[-1]:
            step = np.zeros_like(top)
            step[binding] = axis * np.sqrt(2 * fall / size)
            steps.append(step)
    return steps
