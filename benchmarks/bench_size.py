"""Training through a shield at several sizes: DC3's kind of problem, drawn anew for every seed.

    python -m benchmarks.bench_size --outputs 50 100 --seeds 0 1
    python -m benchmarks.bench_size --grid --device cuda --jobs 4      # all sizes, five seeds

Minimise `y'Qy / 2 + p'y` (convex) or `y'Qy / 2 + p'sin(y)` over n outputs y, with n/2 equalities
`A y = x` and n/2 inequalities `G y <= h`, for every input x in [-1, 1]^(n/2). Members are trained
with the settings of `experiments.peers`; nothing is given but the problem. Each line: per cent
above the optimum over `--tests` inputs (mean and largest), the largest violation at 20,000 inputs
and corners, seconds of training, whether the checker accepts the certificate, and what anchor was
found. The optimum of a convex problem is a dual bound, so that figures are never too small; that
of a non-convex one is the best of `--starts` local solutions.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
import torch
from torch import Tensor

import cg4ai
from cg4ai.colgen import GradientPricer, Layout, Training
from cg4ai.data import Array
from cg4ai.members import NetworkArchitecture, ShieldedMembers
from cg4ai.report.tables import format_markdown
from cg4ai.rules import AffineBound, Ball, Box, Equality, Region

SIZES = (50, 100, 200, 400, 1000)
SEEDS = (0, 1, 2, 3, 4)
HIDDEN = (64, 64)
STEPS, RATE, BATCH = 3000, 3e-3, 256  # as in `experiments.peers`
ROUNDS = 3000  # of the solver of optima, at most
SETTLED = 1e-6  # relative gap at which it ends
LOOKED_AT = 20_000  # inputs at which violations are sought
AT_ONCE = 1000  # inputs for which programs are solved side by side


@dataclass(frozen=True, eq=False)
class Drawn:
    """One problem; outputs are in units of `1 / unit`."""

    curvature: Array
    slope: Array
    equality: Array
    inequality: Array
    limit: Array
    convex: bool
    unit: float = 1.0
    ball: bool = False

    @classmethod
    def of(cls, outputs: int, seed: int, *, convex: bool, asked: argparse.Namespace) -> Drawn:
        """As DC3 draws them: `h = sum |G pinv(A)|` leaves room at every input of the box.

        Over a ball, which has the box's mean square, lengths take the place of sums of sizes.
        """
        rng = np.random.default_rng([outputs, seed])
        half, rules = outputs // 2, round(asked.rules * outputs)
        equality, inequality = (rng.normal(size=(count, outputs)) for count in (half, rules))
        least = inequality @ np.linalg.pinv(equality)  # the slopes of the shortest outputs
        limit = np.abs(least).sum(1)
        if asked.ball:
            limit = np.sqrt(half / 3) * np.linalg.norm(least, axis=1)
        curvature, slope = rng.uniform(size=(2, outputs))
        return cls(curvature, slope, equality, inequality, limit, convex, asked.unit, asked.ball)

    @property
    def region(self) -> Region:
        half = len(self.equality)
        if self.ball:
            return Ball(np.zeros(half), np.sqrt(half / 3))
        return Box(np.full(half, -1.0), np.ones(half))

    def inputs(self, count: int, seed: int) -> Array:
        """(count, d), uniform in the region."""
        return self.region.sample(count, torch.Generator().manual_seed(seed)).numpy()

    def loss(self, outputs: Tensor, inputs: Tensor) -> Tensor:
        """(..., n, r) -> (..., n)."""
        q, p = self._on(outputs)
        y = outputs / self.unit
        bent = y if self.convex else y.sin()
        return 0.5 * y.square() @ q + bent @ p

    def _on(self, like: Tensor) -> tuple[Tensor, Tensor]:
        key = (like.dtype, like.device)
        known: dict[Any, tuple[Tensor, Tensor]] = self.__dict__.setdefault("_known", {})
        if key not in known:  # once: a step that is recorded on a GPU must make no tensors
            q, p = (torch.as_tensor(one).to(like) for one in (self.curvature, self.slope))
            known[key] = (q, p)
        return known[key]

    def gradient(self, y: Tensor) -> Tensor:
        q, p = self._on(y)
        return q * y + (p if self.convex else p * y.cos())


class Optima:
    """Many programs at once by ADMM, of outputs `part(x) + N z`, on a device.

    The curvature is that of the objective or, where it is not convex, an upper bound of it, so
    that every round lowers a majorant.
    """

    def __init__(self, problem: Drawn, device: str) -> None:
        self.problem, self.device = problem, device
        left, sizes, right = np.linalg.svd(problem.equality)
        half = len(sizes)
        self.part = self._tensor(right[:half].T @ (left / sizes).T)  # the inverse of A, (r, m)
        basis = right[half:].T
        curved = problem.curvature + (0 if problem.convex else np.abs(problem.slope))
        bent, ruled = basis.T @ (curved[:, None] * basis), problem.inequality @ basis
        weight = np.sqrt(np.trace(bent @ bent)) / np.sqrt(
            np.trace(ruled.T @ ruled @ ruled.T @ ruled)
        )
        self.weight = float(weight)
        self.basis, self.bent, self.ruled = (self._tensor(one) for one in (basis, bent, ruled))
        self.limit, self.inequality = self._tensor(problem.limit), self._tensor(problem.inequality)
        self.inverse = self._tensor(np.linalg.inv(bent + self.weight * ruled.T @ ruled))
        self.unruled = self._tensor(np.linalg.inv(bent))

    def _tensor(self, array: Array) -> Tensor:
        return torch.as_tensor(array, dtype=torch.float64, device=self.device)

    def of(self, inputs: Array, starts: int, seed: int) -> tuple[Array, float]:
        """(n,) and the largest relative gap: a bound below, or the least of the local ones."""
        best, gap = np.full(len(inputs), np.inf), 0.0
        made = np.random.default_rng([seed, 3])
        for first in range(0, len(inputs), AT_ONCE):
            x = self._tensor(inputs[first : first + AT_ONCE])
            for _ in range(1 if self.problem.convex else starts):
                z = self._tensor(made.normal(scale=2.0, size=(len(x), self.basis.shape[1])))
                values, off = self._solved(x, z)
                own = best[first : first + AT_ONCE]
                np.minimum(own, values, out=own)
                gap = max(gap, off)
        return best, gap

    def improve(self, inputs: Array, outputs: Array) -> Array:
        """(n,): the local solutions next to outputs (n, r) that keep the equalities."""
        x = self._tensor(inputs)
        z = (self._tensor(outputs / self.problem.unit) - x @ self.part.T) @ self.basis
        return self._solved(x, z)[0]

    def _solved(self, x: Tensor, z: Tensor) -> tuple[Array, float]:
        fixed = x @ self.part.T
        limit = self.limit - fixed @ self.inequality.T
        rho, relax = self.weight, 1.6 if self.problem.convex else 1.0
        duals, kept = torch.zeros_like(limit), torch.minimum(z @ self.ruled.T, limit)
        for number in range(ROUNDS):
            slope = self.problem.gradient(fixed + z @ self.basis.T) @ self.basis
            aim = z @ self.bent - slope + (rho * kept - duals) @ self.ruled
            z = aim @ self.inverse
            reached = relax * (z @ self.ruled.T) + (1 - relax) * kept
            kept = torch.minimum(reached + duals / rho, limit)
            duals = duals + rho * (reached - kept)
            if number % 100 == 99:
                values, off = self._values(x, fixed, z, duals.clamp_min(0), limit)
                if off < SETTLED:
                    break
        return values.cpu().numpy(), off

    def _values(
        self, x: Tensor, fixed: Tensor, z: Tensor, duals: Tensor, limit: Tensor
    ) -> tuple[Tensor, float]:
        y = fixed + z @ self.basis.T
        found = self.problem.loss(y * self.problem.unit, x)
        bound = found + (duals * (z @ self.ruled.T - limit)).sum(-1)
        slope = self.problem.gradient(y) @ self.basis + duals @ self.ruled
        bound = bound - 0.5 * ((slope @ self.unruled) * slope).sum(-1)
        over = (z @ self.ruled.T - limit).clamp_min(0).amax(-1)
        off = ((found - bound).abs() / bound.abs() + over).amax()
        return bound, float(off)


def solved(problem: Drawn, *, seed: int, steps: int, device: str) -> tuple[cg4ai.Result, list[Any]]:
    """One member, trained through the shield; equalities completed, the anchor found."""
    half, outputs = problem.equality.shape
    region = problem.region
    rules: list[Any] = [
        Equality(None, problem.equality / problem.unit, AffineBound(np.zeros(half), np.eye(half))),
        cg4ai.rules.Linear(region, problem.inequality / problem.unit, problem.limit, "<="),
    ]
    pricer = GradientPricer(
        NetworkArchitecture(half, outputs - half, hidden=HIDDEN, skip=True),
        restarts=1,
        training=Training(steps, RATE, "onecycle"),
        batch_size=BATCH,
        blend=1.0,
        finish=0.0,
    )
    objective = cg4ai.Objective(region, problem.loss)
    asked = cg4ai.Problem(objective, rules, [pricer], Layout.single(outputs), plain_first=False)
    settings = cg4ai.Settings(seed=seed, iteration_limit=1, device=device)
    return cg4ai.solve(asked, settings), rules


def measured(
    outputs: int, seed: int, *, convex: bool, options: argparse.Namespace
) -> dict[str, Any]:
    torch.set_num_threads(options.threads)
    problem = Drawn.of(outputs, seed, convex=convex, asked=options)
    inputs = problem.inputs(options.tests, seed + 1)
    started = time.perf_counter()
    result, rules = solved(problem, seed=seed, steps=options.steps, device=options.device)
    seconds = time.perf_counter() - started
    ensemble = result.ensemble
    optima, x = Optima(problem, options.device), torch.as_tensor(inputs)
    best, gap = optima.of(inputs, options.starts, seed)

    def compare(values: Array) -> Array:
        return np.asarray(100 * (values - best) / np.abs(best))

    found = torch.as_tensor(ensemble.predict(inputs))
    above = compare(problem.loss(found, x).numpy())
    members = ensemble.parts[0].members
    anchored = float("nan")
    if isinstance(members, ShieldedMembers):
        anchored = compare(problem.loss(members.shield.anchor.outputs(x)[0], x).numpy()).mean()
    made = torch.Generator().manual_seed(seed + 2)
    looked = np.concatenate(
        [
            find(LOOKED_AT // 2, made).numpy()
            for find in (problem.region.sample, problem.region.extremes)
        ]
    )
    y = ensemble.predict(looked) / problem.unit
    notes = [one for one in result.note.split("; ") if "anchor" in one or "shield" in one]
    line = {
        "outputs": outputs,
        "problem": "convex" if convex else "non-convex",
        "seed": seed,
        "mean %": float(above.mean()),
        "max %": float(above.max()),
        "anchor %": anchored,
        "left by a solver %": float(compare(optima.improve(inputs, found.numpy())).max()),
        "violation": max(0.0, float((y @ problem.inequality.T - problem.limit).max())),
        "equality": float(np.abs(y @ problem.equality.T - looked).max()),
        "seconds": seconds,
        "certificate": proven(ensemble, rules, options.proof_s),
        "optimum within": gap,
        "anchor": "; ".join(notes),
    }
    print(line, flush=True)
    return line


def proven(ensemble: cg4ai.Ensemble, rules: list[Any], seconds: float) -> str:
    """Whether the separate checker accepts a certificate of every rule."""
    if not seconds:
        return "not asked"
    answers = {cg4ai.certify(ensemble, one, time_limit_s=seconds).status for one in rules}
    return "accepted" if answers == {"proven"} else ", ".join(sorted(answers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--outputs", type=int, nargs="+", default=[100])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--problem", choices=("convex", "non-convex", "both"), default="both")
    parser.add_argument("--grid", action="store_true", help="all sizes, five seeds, both problems")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--unit", type=float, default=1.0, help="outputs are this much larger")
    parser.add_argument("--rules", type=float, default=0.5, help="inequalities for each output")
    parser.add_argument("--ball", action="store_true", help="inputs in a ball instead of a box")
    parser.add_argument("--tests", type=int, default=1000)
    parser.add_argument("--starts", type=int, default=20, help="of the non-convex optimum")
    parser.add_argument("--proof-s", type=float, default=60.0, help="0: no certificate is asked")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    options = parser.parse_args()
    sizes = SIZES if options.grid else options.outputs
    seeds = SEEDS if options.grid else options.seeds
    kinds = {"convex": [True], "non-convex": [False], "both": [True, False]}[options.problem]
    # the longest first, so that none of them is left alone at the end
    cells = [(n, seed, kind) for n in sorted(sizes)[::-1] for seed in seeds for kind in kinds]
    lines = joblib.Parallel(n_jobs=options.jobs)(
        joblib.delayed(measured)(n, seed, convex=kind, options=options) for n, seed, kind in cells
    )
    lines.sort(key=lambda one: (one["outputs"], one["problem"], one["seed"]))
    print(format_markdown(lines, digits=3))


if __name__ == "__main__":
    main()
