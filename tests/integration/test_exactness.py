"""With an exact pricer the loop ends at the optimum over all members, or proves there is none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import clarabel
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog, minimize
from torch import Tensor

from cg4ai import Problem, Result, Settings, StopReason, solve
from cg4ai.colgen import tolerances
from cg4ai.colgen.pricing.exact.affine import AffinePricer
from cg4ai.colgen.pricing.exact.finite import FinitePricer
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, affine
from cg4ai.objectives import Epigraph, Supervised
from cg4ai.protocols import Members
from cg4ai.records import IntArray
from cg4ai.rules import Linear

Array = NDArray[np.float64]
INPUTS = 2  # features
USUAL_GAP = tolerances.GAP_TOLERANCE
EXACT = Settings(
    row_margin=0.0,
    epsilon=1e-9,
    column_limit=10_000,
    iteration_limit=2_000,
    final_weights="vertex",
)


@pytest.fixture(autouse=True, scope="module")
def close_gaps() -> Iterator[None]:
    """Optima are compared to more digits than runs usually are proven to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tolerances, "GAP_TOLERANCE", 1e-10)
        yield


def outputs_of(parameters: Array, blocks: IntArray, layout: Layout, inputs: Array) -> Array:
    """(M, k, r) from parameters (M, d + 1, width), written out without the package."""
    extended = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
    result = np.zeros((len(parameters), len(inputs), layout.output_size))
    for i, (own, block) in enumerate(zip(parameters, blocks, strict=True)):
        positions = layout.blocks[block]
        result[i][:, positions] = (extended @ own)[:, : len(positions)]
    return result


@dataclass(frozen=True)
class Finite:
    """Parameters of a finite set of affine and constant members, and what is asked of them."""

    layout: Layout
    parameters: Array
    blocks: IntArray
    constant: NDArray[np.bool_]
    data: Array
    targets: Array
    requirements: list[Linear]

    def stacks(self) -> list[tuple[Members, IntArray]]:
        found: list[tuple[Members, IntArray]] = []
        moving = np.flatnonzero(~self.constant)
        if len(moving):
            own = self.parameters[moving]
            found.append((affine(own[:, :-1], own[:, -1]), self.blocks[moving]))
        still = np.flatnonzero(self.constant)
        if len(still):
            values = self.parameters[still, -1]
            found.append((ConstantMembers(values, INPUTS), self.blocks[still]))
        return found

    def outputs(self, inputs: Array) -> Array:
        return outputs_of(self.parameters, self.blocks, self.layout, inputs)

    def costs(self) -> Array:
        """Mean squared error of each member in its own block's outputs."""
        outputs = self.outputs(self.data)
        costs = np.empty(len(outputs))
        for i, block in enumerate(self.blocks):
            positions = self.layout.blocks[block]
            costs[i] = np.mean(np.sum((outputs[i] - self.targets)[:, positions] ** 2, axis=1))
        return costs

    def rows(self) -> tuple[Array, Array, list[int]]:
        """All rows as `table @ weights >= bounds`, and the slack variable of each."""
        table, bounds, slacks = [], [], 0
        slack_of: list[int] = []
        for requirement in self.requirements:
            outputs = self.outputs(requirement.points)
            values = np.einsum("mkr,kr->km", outputs, np.atleast_2d(requirement.coefficients))
            sides = {">=": (1.0,), "<=": (-1.0,), "==": (1.0, -1.0)}[requirement.sense]
            for sign in sides:
                table.append(sign * values)
                bounds.append(sign * requirement.bound)
            count = len(sides) * len(values)
            shared = requirement.slack == "shared"
            slack_of += [slacks] * count if shared else range(slacks, slacks + count)
            slacks += 1 if shared else count
        return np.concatenate(table), np.concatenate(bounds), slack_of


def program(finite: Finite, *, costs: Array | None) -> float:
    """The optimum of the LP over all members with hard rows; without costs, the least slack."""
    table, bounds, slack_of = finite.rows()
    size, slacks = len(finite.blocks), max(slack_of) + 1
    blocks = np.equal.outer(np.arange(len(finite.layout)), finite.blocks).astype(float)
    if costs is None:
        lacking = np.equal.outer(slack_of, np.arange(slacks)).astype(float)
        answer = linprog(
            np.concatenate([np.zeros(size), np.ones(slacks)]),
            A_ub=-np.hstack([table, lacking]),
            b_ub=-bounds,
            A_eq=np.hstack([blocks, np.zeros((len(blocks), slacks))]),
            b_eq=np.ones(len(blocks)),
        )
    else:
        answer = linprog(costs, A_ub=-table, b_ub=-bounds, A_eq=blocks, b_eq=np.ones(len(blocks)))
    assert answer.status == 0, answer.message
    return float(answer.fun)


LAYOUTS = (
    Layout.single(1),
    Layout.single(3),
    Layout((np.array([0, 2]), np.array([1]))),
    Layout((np.array([2]), np.array([0, 3]), np.array([1]))),
)


def make_requirement(
    rng: np.random.Generator, outputs: Array, points: Array, *, reachable: bool
) -> Linear:
    """A rule whose bound a random mixture (with outputs `outputs` (k, r)) meets, or may not."""
    sense = str(rng.choice([">=", "<=", "=="]))
    coefficients = rng.integers(-3, 4, outputs.shape[-1]).astype(float)
    coefficients[rng.integers(len(coefficients))] = rng.choice([-1.0, 1.0, 2.0])
    bound = outputs @ coefficients
    room = np.zeros(len(points)) if sense == "==" else rng.choice([0.0, 0.3, 2.0], len(points))
    if not reachable:
        room = room - rng.choice([0.0, 1.0, 4.0], len(points))
    bound = bound + room if sense == "<=" else bound - room
    return Linear(points, coefficients, bound, sense, slack=str(rng.choice(["row", "shared"])))


@st.composite
def finite_sets(draw: st.DrawFn) -> Finite:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    layout = LAYOUTS[draw(st.integers(0, len(LAYOUTS) - 1))]
    per_block = draw(st.integers(1, 8))
    blocks = np.tile(np.arange(len(layout)), per_block)
    width = max(len(positions) for positions in layout.blocks)
    parameters = rng.integers(-9, 10, (len(blocks), INPUTS + 1, width)) / 4.0
    constant = rng.random(len(blocks)) < draw(st.sampled_from([0.0, 0.3]))
    parameters[constant, :-1] = 0.0
    order = np.argsort(constant, kind="stable")  # as `stacks` lists them
    blocks, parameters, constant = blocks[order], parameters[order], constant[order]
    data = rng.integers(-4, 5, (5, INPUTS)) / 2.0
    targets = rng.integers(-4, 5, (5, layout.output_size)) / 2.0
    weights = rng.random(len(blocks))
    for block in range(len(layout)):
        weights[blocks == block] /= weights[blocks == block].sum()
    finite = Finite(layout, parameters, blocks, constant, data, targets, [])
    for _ in range(draw(st.integers(1, 3))):
        points = rng.normal(size=(draw(st.integers(1, 3)), INPUTS)).round(2)
        mixture = np.einsum("m,mkr->kr", weights, finite.outputs(points))
        reachable = draw(st.booleans()) or draw(st.booleans())
        finite.requirements.append(make_requirement(rng, mixture, points, reachable=reachable))
    return finite


@st.composite
def ways(draw: st.DrawFn) -> tuple[Settings, int]:
    """Settings that must not change the answer, and how many members a call proposes."""
    changed = EXACT.as_dict() | {
        "smoothing": draw(st.sampled_from([0.0, 0.5, 0.9])),
        "penalty": draw(st.sampled_from([0.01, 10.0, 1000.0])),
        "seed": draw(st.integers(0, 5)),
    }
    return Settings(**changed), draw(st.sampled_from([1, 4]))


@pytest.mark.slow
@pytest.mark.guard
@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(finite_sets(), ways())
def test_the_loop_ends_at_the_optimum_over_all_members(
    finite: Finite, way: tuple[Settings, int]
) -> None:
    chosen, per_call = way
    least = program(finite, costs=None)
    assume(least <= 1e-10 or least > 1e-5)  # between them it is a matter of tolerances
    problem = Problem(
        Supervised(finite.data, finite.targets),
        finite.requirements,
        [FinitePricer(finite.stacks(), per_call=per_call)],
        finite.layout,
    )
    result = solve(problem, chosen)
    if least > 1e-5:
        assert result.stop_reason is StopReason.INFEASIBLE
        assert not result.feasible
        return
    assert result.stop_reason is StopReason.OPTIMAL
    best = program(finite, costs=finite.costs())
    assert result.objective == pytest.approx(best, rel=1e-8, abs=1e-8)
    assert result.bound is not None
    assert best - 1e-7 <= result.bound <= best + 1e-8
    assert result.feasible


class Sides:
    """Pieces `matrix @ outputs + 0`, the same at every input."""

    def __init__(self, matrix: Array) -> None:
        self.matrix = matrix

    @property
    def count(self) -> int:
        return len(self.matrix)

    def values(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return outputs @ torch.as_tensor(self.matrix, dtype=outputs.dtype).T

    def coefficients(self, inputs: Array, which: IntArray) -> Array:
        return self.matrix[which]


def epigraph_optimum(finite: Finite, matrix: Array, floor: float) -> float:
    """Mean over the data of the largest piece, at least `floor`, with all pieces and rows."""
    table, bounds, _ = finite.rows()
    size, scenarios = len(finite.blocks), len(finite.data)
    pieces = np.einsum("mkr,pr->kpm", finite.outputs(finite.data), matrix).reshape(-1, size)
    above = np.repeat(np.eye(scenarios), len(matrix), axis=0)
    blocks = np.equal.outer(np.arange(len(finite.layout)), finite.blocks).astype(float)
    answer = linprog(
        np.concatenate([np.zeros(size), np.full(scenarios, 1.0 / scenarios)]),
        A_ub=np.block([[pieces, -above], [-table, np.zeros((len(table), scenarios))]]),
        b_ub=np.concatenate([np.zeros(len(pieces)), -bounds]),
        A_eq=np.hstack([blocks, np.zeros((len(blocks), scenarios))]),
        b_eq=np.ones(len(blocks)),
        bounds=[(0, None)] * size + [(floor, None)] * scenarios,
    )
    assert answer.status == 0, answer.message
    return float(answer.fun)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(finite_sets(), ways(), st.integers(0, 1000))
def test_epigraph_objectives_end_at_the_optimum_over_all_members_and_pieces(
    finite: Finite, way: tuple[Settings, int], seed: int
) -> None:
    least = program(finite, costs=None)
    assume(least <= 1e-10 or least > 1e-5)
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-3, 4, (4, finite.layout.output_size)).astype(float)
    problem = Problem(
        Epigraph(finite.data, Sides(matrix), floor=-50.0),
        finite.requirements,
        [FinitePricer(finite.stacks(), per_call=way[1])],
        finite.layout,
    )
    result = solve(problem, way[0])
    if least > 1e-5:
        assert result.stop_reason is StopReason.INFEASIBLE
        return
    assert result.stop_reason is StopReason.OPTIMAL
    best = epigraph_optimum(finite, matrix, -50.0)
    # pieces missed by up to 1e-7 stay out of the master
    assert result.objective == pytest.approx(best, rel=1e-8, abs=2e-7)
    assert result.loss == pytest.approx(best, rel=1e-8, abs=2e-7)
    assert result.feasible


def mixture_optimum(finite: Finite) -> float:
    """Least mean squared error of a mixture that meets the rows, by scipy."""
    table, bounds, _ = finite.rows()
    outputs = finite.outputs(finite.data)
    blocks = np.equal.outer(np.arange(len(finite.layout)), finite.blocks).astype(float)

    def loss(weights: Array) -> tuple[float, Array]:
        error = np.einsum("m,mkr->kr", weights, outputs) - finite.targets
        slope = 2.0 * np.einsum("kr,mkr->m", error, outputs) / len(error)
        return float(np.mean(np.sum(error**2, axis=1))), slope

    start = linprog(
        np.zeros(len(finite.blocks)), A_ub=-table, b_ub=-bounds, A_eq=blocks, b_eq=blocks.sum(1) > 0
    )
    assert start.status == 0, start.message
    answer = minimize(
        loss,
        start.x,
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * len(finite.blocks),
        constraints=[
            {"type": "eq", "fun": lambda w: blocks @ w - 1, "jac": lambda w: blocks},
            {"type": "ineq", "fun": lambda w: table @ w - bounds, "jac": lambda w: table},
        ],
        options={"ftol": 1e-12, "maxiter": 500},
    )
    return float(answer.fun)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(finite_sets(), ways())
def test_the_loss_of_the_mixture_ends_at_its_optimum(
    finite: Finite, way: tuple[Settings, int]
) -> None:
    least = program(finite, costs=None)
    assume(least <= 1e-10 or least > 1e-5)
    problem = Problem(
        Supervised(finite.data, finite.targets, kind="mixture"),
        finite.requirements,
        [FinitePricer(finite.stacks(), per_call=way[1])],
        finite.layout,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tolerances, "GAP_TOLERANCE", 1e-7)
        result = solve(problem, way[0])
    if least > 1e-5:
        assert result.stop_reason is StopReason.INFEASIBLE
        return
    assert result.stop_reason is StopReason.OPTIMAL
    best = mixture_optimum(finite)
    assert result.loss == pytest.approx(best, rel=1e-5, abs=1e-5)
    assert result.bound is not None
    assert result.bound <= best + 1e-6
    assert result.gap is not None
    assert result.gap <= 1e-6
    assert result.feasible


RADIUS = 5.0


@dataclass(frozen=True)
class AffineCase:
    """Data, targets and rules for affine members `V^T [z, 1]`, z standardised, ||V|| <= RADIUS."""

    data: Array
    targets: Array
    rules: list[Linear]

    def design(self, inputs: Array) -> Array:
        z = (inputs - self.data.mean(0)) / self.data.std(0)
        return np.concatenate([z, np.ones((len(z), 1))], axis=1)

    def rows(self) -> tuple[Array, Array]:
        """`table @ V.ravel() >= bounds`."""
        table, bounds = [], []
        for rule in self.rules:
            sign = -1.0 if rule.sense == "<=" else 1.0
            design = self.design(rule.points)
            table.append(np.einsum("kp,r->kpr", design, sign * rule.coefficients))
            bounds.append(sign * rule.bound)
        joined = np.concatenate(table)
        return joined.reshape(len(joined), -1), np.concatenate(bounds)


def direct_optimum(case: AffineCase) -> float | None:
    """The least mean squared error of one affine member under the rules, by a conic solver.

    A mixture of affine members is affine and in the same ball, so this is the answer for mixtures
    too. None if no member meets the rules.
    """
    design, (table, bounds) = case.design(case.data), case.rows()
    outputs, count = case.targets.shape[1], len(case.data)
    whole = np.kron(design, np.eye(outputs))
    size = whole.shape[1]
    P = sparse.csc_matrix(np.triu(2.0 * whole.T @ whole / count))
    q = -2.0 * whole.T @ case.targets.ravel() / count
    ball = np.concatenate([np.zeros((1, size)), -np.eye(size)])
    A = sparse.csc_matrix(np.concatenate([-table, ball]))
    b = np.concatenate([-bounds, [RADIUS], np.zeros(size)])
    cones = [clarabel.NonnegativeConeT(len(bounds)), clarabel.SecondOrderConeT(size + 1)]
    options = clarabel.DefaultSettings()
    options.verbose = False
    answer = clarabel.DefaultSolver(P, q, A, b, cones, options).solve()
    if "Infeasible" in str(answer.status):
        return None
    assert str(answer.status) == "Solved"
    error = whole @ np.array(answer.x) - case.targets.ravel()
    return float(error @ error) / count


def affine_case(seed: int, *, shift: float) -> AffineCase:
    """Rules that cut off the best fit: outputs are to be `shift` above or below what they are."""
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(25, 3)) * [1.0, 4.0, 0.3] + 1.0
    targets = np.stack([np.sin(data[:, 0]), 0.2 * data[:, 1]], axis=1)
    rules = []
    for sense, sign in ((">=", 1.0), ("<=", -1.0)):
        points = data[rng.choice(len(data), 4, replace=False)] + 0.1 * rng.normal(size=(4, 3))
        coefficients = rng.normal(size=2)
        bound = np.stack([np.sin(points[:, 0]), 0.2 * points[:, 1]], axis=1) @ coefficients
        slack = str(rng.choice(["row", "shared"]))
        rules.append(Linear(points, coefficients, bound + sign * shift, sense, slack=slack))
    return AffineCase(data, targets, rules)


def solve_affine(case: AffineCase, kind: Literal["average", "mixture"]) -> Result:
    problem = Problem(
        Supervised(case.data, case.targets, kind=kind),
        case.rules,
        [AffinePricer(3, 2, radius=RADIUS)],
        Layout.single(2),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tolerances, "GAP_TOLERANCE", USUAL_GAP)  # at its usual value
        return solve(problem, Settings(column_limit=3000))


@pytest.mark.slow
@pytest.mark.guard
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shift", [0.1, 1.0])
def test_affine_members_end_at_the_constrained_least_squares_fit(seed: int, shift: float) -> None:
    case = affine_case(seed, shift=shift)
    best = direct_optimum(case)
    result = solve_affine(case, "average")
    assert best is not None
    assert result.stop_reason is StopReason.OPTIMAL
    assert result.feasible
    assert result.gap is not None
    assert result.gap <= 1e-6 * max(1.0, best) + 1e-7  # and what the margin of the rows costs
    assert result.loss == pytest.approx(best, rel=1e-5, abs=1e-5)
    assert result.bound is not None
    assert result.bound <= best + 1e-7


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shift", [0.1, 1.0])
def test_the_mixture_objective_reaches_the_fit_and_claims_no_more_than_its_gap(
    seed: int, shift: float
) -> None:
    case = affine_case(seed, shift=shift)
    best = direct_optimum(case)
    result = solve_affine(case, "mixture")
    assert best is not None
    assert result.feasible
    assert result.loss == pytest.approx(best, rel=1e-5, abs=1e-5)
    assert result.bound is not None
    assert result.bound <= best + 1e-7
    assert result.gap is not None
    if result.stop_reason is StopReason.OPTIMAL:
        assert result.gap <= 1e-6 * max(1.0, best) + 1e-7
    else:  # the convex master cannot always tell near copies of a member apart
        assert result.stop_reason is StopReason.NO_IMPROVING_COLUMN
        assert USUAL_GAP * result.objective < result.gap < 1e-3


@pytest.mark.parametrize(("seed", "kind"), [(0, "average"), (1, "average"), (1, "mixture")])
def test_rules_that_no_affine_member_can_keep_are_proven_infeasible(
    seed: int, kind: Literal["average", "mixture"]
) -> None:
    case = affine_case(seed, shift=40.0)
    assert direct_optimum(case) is None
    result = solve_affine(case, kind)
    assert result.stop_reason is StopReason.INFEASIBLE
    assert "no mixture of members of this class meets the rows" in result.note
    assert not result.feasible
