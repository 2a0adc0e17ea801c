"""Pi-net and cvxpylayers beside ours on DC3's kind of problem, drawn as in `bench_size`.

    python benchmarks/bench_size_peers.py --outputs 100 --seeds 0 1 2
    python benchmarks/bench_size_peers.py --outputs 1000 --methods ours pinet --device cuda

Each line: per cent above the optimum over `--tests` inputs, the largest violation at 1,000 inputs
and corners of the box in float64, seconds of training with the steps that were taken, and
milliseconds of 1,024 predictions. `--limit-s` ends a peer's training early; the learning rate has
then not come down. Pi-net: pip install pinet-hcnn (it runs on the device that JAX finds).
cvxpylayers: pip install cvxpylayers; one convex program per input and step.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch
from bench_size import BATCH, RATE, STEPS, Drawn, Optima, solved
from pinet_peer import train_pinet
from torch import Tensor

from cg4ai.colgen import Training
from cg4ai.colgen.pricing.gradient.training import compute_onecycle_rate
from cg4ai.data import Array
from cg4ai.report.tables import format_markdown
from experiments.peers.training import Network

METHODS = {"ours": (), "pinet": ("jax", "pinet"), "cvxpylayers": ("cvxpylayers",)}
TIMED, LOOKED_AT = 1024, 1000
FEW = 16  # inputs of a step with cvxpylayers, whose programs are solved in turn
HIDDEN = (200, 200)


@dataclass(frozen=True)
class Trained:
    predict: Callable[[Array], Array]
    seconds: float
    steps: int


def train(method: str, problem: Drawn, seed: int, options: argparse.Namespace) -> Trained:
    if method == "pinet":
        asked = Training(options.steps, RATE, "onecycle")
        found = train_pinet(problem, seed=seed, training=asked, limit_s=options.limit_s)
        return Trained(found.predict, found.seconds, found.steps)
    if method == "cvxpylayers":
        return train_cvxpylayers(problem, seed, options)
    started = time.perf_counter()
    result, _ = solved(problem, seed=seed, steps=options.steps, device=options.device)
    return Trained(result.ensemble.predict, time.perf_counter() - started, options.steps)


def train_cvxpylayers(problem: Drawn, seed: int, options: argparse.Namespace) -> Trained:
    """The common network before a projection by a conic solver, for as long as is allowed."""
    import cvxpy as cp
    from cvxpylayers.torch import CvxpyLayer

    started = time.perf_counter()
    half, outputs = problem.equality.shape
    y, aim, tied = cp.Variable(outputs), cp.Parameter(outputs), cp.Parameter(half)
    rules = [problem.equality @ y == tied, problem.inequality @ y <= problem.limit]
    program = cp.Problem(cp.Minimize(cp.sum_squares(y - aim)), rules)
    layer = CvxpyLayer(program, parameters=[aim, tied], variables=[y])
    torch.manual_seed(seed)
    network = Network(half, outputs, HIDDEN).double()
    training = Training(options.steps, RATE, "onecycle")
    adam = torch.optim.Adam(network.parameters(), lr=RATE)

    def project(x: Tensor) -> Tensor:
        found: Tensor = layer(network(x), x)[0]
        return found

    taken = 0
    while taken < options.steps and time.perf_counter() - started < options.limit_s:
        for group in adam.param_groups:
            group["lr"] = compute_onecycle_rate(taken, training)
        x = torch.rand(FEW, half, dtype=torch.float64) * 2 - 1
        adam.zero_grad()
        torch.autograd.backward(problem.loss(project(x), x).mean())
        adam.step()
        taken += 1

    def predict(inputs: Array) -> Array:
        with torch.no_grad():
            return np.asarray(project(torch.as_tensor(inputs)).numpy())

    return Trained(predict, time.perf_counter() - started, taken)


def measured(
    method: str, problem: Drawn, seed: int, best: Array, options: argparse.Namespace
) -> dict[str, object]:
    name = {"pinet": "Pi-net"}.get(method, method)
    line: dict[str, object] = {
        "outputs": len(problem.curvature),
        "problem": "convex" if problem.convex else "non-convex",
        "seed": seed,
        "method": name,
    }
    missing = [one for one in METHODS[method] if find_spec(one) is None]
    if missing:
        return {**line, "mean %": f"not installed: {', '.join(missing)}"}
    trained = train(method, problem, seed, options)
    few = options.solved if method == "cvxpylayers" else None
    inputs = problem.inputs(options.tests, seed + 1)[:few]
    made = torch.Generator().manual_seed(seed + 2)
    both = (problem.region.sample, problem.region.extremes)
    looked = np.concatenate([find(LOOKED_AT // 2, made).numpy()[:few] for find in both])
    found = torch.as_tensor(trained.predict(inputs))
    above = problem.loss(found, torch.as_tensor(inputs)).numpy() - best[:few]
    above *= 100 / np.abs(best[:few])
    y = trained.predict(looked)
    timed = np.resize(inputs, (min(TIMED, len(inputs) if few else TIMED), inputs.shape[1]))
    trained.predict(timed)  # compiled, where that is what it does
    started = time.perf_counter()
    trained.predict(timed)
    taken = 1e3 * (time.perf_counter() - started) * TIMED / len(timed)
    line |= {
        "mean %": float(above.mean()),
        "max %": float(above.max()),
        "violation": max(0.0, float((y @ problem.inequality.T - problem.limit).max())),
        "equality": float(np.abs(y @ problem.equality.T - looked).max()),
        "seconds": trained.seconds,
        "steps": trained.steps,
        "1,024 predictions, ms": taken,
    }
    print(line, flush=True)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--outputs", type=int, nargs="+", default=[100])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--problem", choices=("convex", "non-convex", "both"), default="both")
    parser.add_argument("--methods", choices=list(METHODS), nargs="+", default=list(METHODS))
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of {BATCH} inputs each")
    parser.add_argument("--limit-s", type=float, default=300.0, help="seconds of a peer's training")
    parser.add_argument("--tests", type=int, default=1000)
    parser.add_argument("--solved", type=int, default=64, help="of them by cvxpylayers, in turn")
    parser.add_argument("--starts", type=int, default=6, help="of the non-convex optimum")
    parser.add_argument("--device", default="cpu", help="of ours and the optimum: cpu or cuda")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    options.rules, options.ball, options.unit = 0.5, False, 1.0  # as DC3 draws them
    torch.set_num_threads(options.threads)
    kinds = {"convex": [True], "non-convex": [False], "both": [True, False]}[options.problem]
    lines = []
    cells = [(n, seed, kind) for n in options.outputs for seed in options.seeds for kind in kinds]
    for outputs, seed, kind in cells:
        problem = Drawn.of(outputs, seed, convex=kind, asked=options)
        inputs = problem.inputs(options.tests, seed + 1)
        best, _ = Optima(problem, options.device).of(inputs, options.starts, seed)
        lines += [measured(one, problem, seed, best, options) for one in options.methods]
    print(format_markdown(lines, digits=3))


if __name__ == "__main__":
    main()
