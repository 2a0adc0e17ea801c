"""Other methods on DC3's problems: DC3's own, HardNet's, an affine rule, a solver per input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import qr
from torch import Tensor, nn

from cg4ai.data import Array
from experiments.peers.cones import Cones
from experiments.peers.outcomes import (
    MISSING,
    REPEATS,
    Clock,
    Outcome,
    chunks,
    installed,
    milliseconds,
)
from experiments.peers.quadratic import QuadraticProblem
from experiments.peers.training import Network, Recipe, fit

HIDDEN = (200, 200)
PENALTY = 5.0  # of squared violations, as DC3 is published
ROUNDS = 6  # of the affine rule for the non-convex problem
SLOWLY = 1000  # inputs at which a solver is asked for violations
WARM_UP = 0.1  # share of HardNet's steps with that penalty and no projection, as published
Predict = Callable[[Tensor], Tensor]


def measured(
    problem: QuadraticProblem,
    method: str,
    seed: int,
    train_s: float,
    predict: Predict,
    *,
    slow: bool = False,
) -> Outcome:
    """Figures of a trained method at the test inputs, and its violations at many others."""
    tests = torch.as_tensor(problem.inputs)
    points = problem.searched(seed)[: SLOWLY if slow else None]
    with torch.no_grad():
        above = problem.above(predict(tests))
        found = torch.cat([predict(part) for part in chunks(points)])
        taken = milliseconds(lambda: predict(tests), 1 if slow else REPEATS)
    figures = {
        "mean": float(above.mean()),
        "max": float(above.max()),
        **problem.violation(found, points),
        "train_s": train_s,
        "predict_ms": taken * 1024 / len(tests),
    }
    return Outcome(problem.name, method, seed, figures)


class Dc3(nn.Module):
    """Half of the variables predicted, the others completed, then steps against violations.

    Which half: the completed ones are those of the best conditioned columns, by pivoting.
    """

    def __init__(self, problem: QuadraticProblem, *, steps: int = 10) -> None:
        super().__init__()
        count, size = problem.equality.shape
        self.network = Network(count, size - count, HIDDEN)
        self.steps, self.rate, self.momentum = steps, 1e-7, 0.5
        order = qr(problem.equality, mode="r", pivoting=True)[1]
        rest, free = order[:count], order[count:]
        self.back = torch.as_tensor(np.argsort(np.concatenate([free, rest])))
        inverse = np.linalg.inv(problem.equality[:, rest])
        response = inverse @ problem.equality[:, free]
        own, other = problem.inequality[:, free], problem.inequality[:, rest]
        self.inverse, self.response = _two(inverse), _two(response)
        self.reduced, self.moved = _two(own - other @ response), _two(other @ inverse)
        self.limit = _two(problem.limit)

    def forward(self, inputs: Tensor) -> Tensor:
        z, speed = self.network(inputs), 0.0
        kind = inputs.dtype
        reduced = self.reduced[kind]
        room = self.limit[kind] - inputs @ self.moved[kind].T
        for _ in range(self.steps):
            slope = 2 * (z @ reduced.T - room).relu() @ reduced
            speed = self.rate * slope + self.momentum * speed
            z = z - speed
        completed = inputs @ self.inverse[kind].T - z @ self.response[kind].T
        return torch.cat([z, completed], -1)[:, self.back]


class HardNet(nn.Module):
    """One projection for all rules `lower <= M y <= upper`, closed form as M has full row rank."""

    def __init__(self, problem: QuadraticProblem) -> None:
        super().__init__()
        self.network = Network(len(problem.equality), problem.equality.shape[1], HIDDEN)
        self.projecting = True
        rules = np.vstack([problem.equality, problem.inequality])
        self.rules, self.inverse = _two(rules), _two(np.linalg.pinv(rules))
        self.limit = _two(problem.limit)

    def forward(self, inputs: Tensor) -> Tensor:
        y: Tensor = self.network(inputs)
        if not self.projecting:
            return y
        kind = inputs.dtype
        limit = self.limit[kind].expand(len(inputs), -1)
        upper = torch.cat([inputs, limit], -1)
        lower = torch.cat([inputs, torch.full_like(limit, -torch.inf)], -1)
        values = y @ self.rules[kind].T
        return y + ((lower - values).relu() - (values - upper).relu()) @ self.inverse[kind].T


def _two(array: NDArray[Any]) -> dict[torch.dtype, Tensor]:
    """To train in single precision and predict in double."""
    return {kind: torch.tensor(array, dtype=kind) for kind in (torch.float32, torch.float64)}


def penalised(problem: QuadraticProblem, outputs: Tensor, inputs: Tensor) -> Tensor:
    """Mean loss plus squared violations."""
    G = torch.as_tensor(problem.inequality, dtype=outputs.dtype)
    A = torch.as_tensor(problem.equality, dtype=outputs.dtype)
    h = torch.as_tensor(problem.limit, dtype=outputs.dtype)
    broken = (outputs @ G.T - h).relu().square().sum(-1)
    broken = broken + (outputs @ A.T - inputs).square().sum(-1)
    return (problem.loss(outputs, inputs) + PENALTY * broken).mean()


def trained(
    problem: QuadraticProblem, kind: type[Dc3] | type[HardNet], recipe: Recipe, seed: int
) -> tuple[Dc3 | HardNet, float]:
    """A network behind the layer of `kind`, in float64, and the processor seconds it took."""
    torch.manual_seed(seed)
    module = kind(problem)

    def loss_of(step: int) -> Tensor:
        if isinstance(module, HardNet):
            module.projecting = step >= WARM_UP * recipe.steps
        inputs = torch.rand(recipe.batch, problem.inputs.shape[1]) * 2 - 1
        return penalised(problem, module(inputs), inputs)

    with Clock() as clock:
        fit(module, loss_of, recipe)
    return module.double().eval(), clock.seconds


def learned(problem: QuadraticProblem, recipe: Recipe, seed: int, method: str) -> Outcome:
    """DC3 or HardNet."""
    kind = {"DC3": Dc3, "HardNet": HardNet}[method]
    module, seconds = trained(problem, kind, recipe, seed)
    return measured(problem, method, seed, seconds, module)


def affine_rule(problem: QuadraticProblem, seed: int) -> Outcome:
    """The best y = B x + c that keeps all rules on the whole box."""
    with Clock() as clock:
        slope, offset = robust_rule(problem)
    B, c = torch.as_tensor(slope), torch.as_tensor(offset)
    return measured(problem, "affine rule", seed, clock.seconds, lambda x: x @ B.T + c)


def robust_rule(problem: QuadraticProblem) -> tuple[Array, Array]:
    """B and c of least mean loss over the box that keep every rule on all of it.

    p'sin(y) is taken as if y were normal, E sin = exp(-v / 2) sin c with v the variance of y, and
    made quadratic around the rule found before, a program for each of a few rounds.
    """
    if problem.convex:
        return _robust(problem, problem.curvature, problem.slope)
    q, p = problem.curvature, problem.slope
    slope, offset = _robust(problem, q, p)
    for _ in range(ROUNDS):
        damped = p * np.exp(-np.square(slope).sum(1) / 6)
        curvature = np.maximum(q - damped * np.sin(offset), 0.05)
        pull = q * offset + damped * np.cos(offset) - curvature * offset
        slope, offset = _robust(problem, curvature, pull)
    return slope, offset


def _robust(problem: QuadraticProblem, curvature: Array, pull: Array) -> tuple[Array, Array]:
    """One program: with B = pinv(A) + N K and c = N k, row j needs G_j c + |G_j B|_1 <= h_j."""
    A, G = problem.equality, problem.inequality
    count = len(A)
    particular, free = np.linalg.pinv(A), np.linalg.svd(A)[2][count:].T
    width, each = free.shape[1], sparse.identity(count)
    effect = sparse.kron(G @ free, each)  # of K, by rows, on the entries of G B
    bounds = sparse.identity(len(G) * count)
    sums = sparse.kron(sparse.identity(len(G)), np.ones((1, count)))
    nothing = sparse.csc_matrix((len(G) * count, width))
    inequality = sparse.bmat(
        [
            [effect, nothing, -bounds],
            [-effect, nothing, -bounds],
            [sparse.csc_matrix((len(G), width * count)), G @ free, sums],
        ]
    )
    entries = (G @ particular).ravel()
    weighted = free.T * curvature
    square = weighted @ free
    whole = sparse.block_diag(
        [sparse.kron(square / 3, each), square, sparse.csc_matrix(bounds.shape)]
    )
    slope = np.concatenate(
        [(weighted @ particular / 3).ravel(), free.T @ pull, np.zeros(len(entries))]
    )
    program = Cones(sparse.csc_matrix((0, len(slope))), inequality)
    limits = np.concatenate([-entries, entries, problem.limit])
    found = program.minimise(whole, slope, np.zeros(0), limits)
    response, shift = found[: width * count].reshape(width, count), found[width * count :][:width]
    return particular + free @ response, free @ shift


def solver(problem: QuadraticProblem, seed: int) -> Outcome:
    """OSQP, one program per input: exact, and what a network is quicker than."""
    if not problem.convex:
        return Outcome(problem.name, "OSQP", seed, note="solves convex programs only")
    if not installed("osqp"):
        return Outcome(problem.name, "OSQP", seed, note=MISSING)
    outcome = measured(problem, "OSQP", seed, 0.0, _Osqp(problem), slow=True)
    return replace(outcome, note=f"violations searched at {SLOWLY:,} inputs, for its time")


class _Osqp:
    """Solves at each input, from the solution at the one before."""

    def __init__(self, problem: QuadraticProblem) -> None:
        import osqp

        self.problem, self.solver = problem, osqp.OSQP()
        rules = sparse.csc_matrix(np.vstack([problem.equality, problem.inequality]))
        self.free = np.full(len(problem.limit), -np.inf)
        first = np.zeros(len(problem.equality))
        self.solver.setup(
            sparse.diags(problem.curvature, format="csc"), problem.slope, rules,
            np.concatenate([first, self.free]), np.concatenate([first, problem.limit]),
            verbose=False, eps_abs=1e-6, eps_rel=1e-6, max_iter=20_000,
        )  # fmt: skip

    def __call__(self, inputs: Tensor) -> Tensor:
        return torch.as_tensor(np.array(list(self._each(inputs.numpy()))))

    def _each(self, inputs: Array) -> Iterator[Array]:
        for point in inputs:
            self.solver.update(
                l=np.concatenate([point, self.free]), u=np.concatenate([point, self.problem.limit])
            )
            yield self.solver.solve().x
