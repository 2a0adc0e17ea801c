"""What a layer of rules costs: milliseconds forward, and forward and backward, beside others.

The rules are one row for every four outputs and a cap on their sum, so tight that about a third of
the outputs that come in break one. Beside the Shield stand a plain Linear layer of the same width,
an OutputSet (ranges and a sum), RAYEN's own layer where its package is installed (every output is
moved along the ray from a point inside; the same step in a few lines here otherwise), and HardNet's
projection, which has no package: rows that are linearly independent, all at once by their
pseudo-inverse. A second table has the largest violation of what comes out, as a share of the bound.

Run: python benchmarks/bench_layer.py [--device cuda] [--compile]
RAYEN: pip install --no-deps rayen; pip install cvxpylayers colorama tqdm
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor, nn

from cg4ai.data import Array
from cg4ai.nn import OutputSet, Shield
from cg4ai.rules import Linear, Range, SumTo

BATCHES, SIZES = (1, 64, 4096), (10, 100, 1000)
DTYPES = {"float32": torch.float32, "float64": torch.float64}
BROKEN = 1 / 3  # of outputs that come in
LEAST_SECONDS, LEAST_TIMES, WARM_UP = 0.15, 3, 0.02
RULED = ("Shield", "RAYEN", "RAYEN's step", "HardNet")  # those that keep the same rows
LOOKED_AT = 4096  # outputs at which violations are sought


class AlongRays(nn.Module):
    """Outputs `centre + min(|v|, reach(v)) v / |v|` with the reach of the rows: RAYEN's step."""

    rows: Tensor
    room: Tensor

    def __init__(self, matrix: Array, bound: Array, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("rows", torch.tensor(matrix.T.copy(), dtype=dtype))
        self.register_buffer("room", torch.tensor(bound, dtype=dtype))  # the centre is 0

    def forward(self, y: Tensor) -> Tensor:
        needed = ((y @ self.rows) / self.room).amax(-1, keepdim=True)
        return y / needed.clamp_min(1.0)


class Rayen(nn.Module):
    """The package's own layer, with the centre given, as finding it is not what is timed."""

    def __init__(self, matrix: Array, bound: Array, dtype: torch.dtype) -> None:
        super().__init__()
        if "cdd" not in sys.modules and find_spec("cdd") is None:
            sys.modules["cdd"] = ModuleType("cdd")  # for enumerating vertices, which is not used
        from rayen import constraint_module, constraints

        linear = constraints.LinearConstraint(matrix, bound[:, None], None, None)
        rules = constraints.ConvexConstraints(
            lc=linear, do_preprocessing_linear=False, y0=np.zeros((matrix.shape[1], 1))
        )
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            self.layer = constraint_module.ConstraintModule(rules, input_dim=1, create_map=False)
        finally:
            torch.set_default_dtype(before)

    def forward(self, y: Tensor) -> Tensor:
        kept: Tensor = self.layer(y[..., None])[..., 0]
        return kept


class HardNet(nn.Module):
    """Outputs `y - pinv(A) relu(A y - b)`: exact where the rows of A are linearly independent."""

    rows: Tensor
    bound: Tensor
    inverse: Tensor

    def __init__(self, matrix: Array, bound: Array, dtype: torch.dtype) -> None:
        super().__init__()
        inverse = np.linalg.pinv(matrix)
        for name, array in (("rows", matrix.T), ("bound", bound), ("inverse", inverse.T)):
            self.register_buffer(name, torch.tensor(array.copy(), dtype=dtype))

    def forward(self, y: Tensor) -> Tensor:
        return y - (y @ self.rows - self.bound).relu() @ self.inverse


def draw_rows(size: int) -> tuple[Array, Array]:
    random = np.random.default_rng(0)
    matrix = np.concatenate([random.normal(size=(max(1, size // 4), size)), np.ones((1, size))])
    tight = norm.ppf((1 - BROKEN) ** (1 / len(matrix)))
    return matrix, tight * np.linalg.norm(matrix, axis=1)


def layers(size: int, dtype: torch.dtype) -> dict[str, nn.Module]:
    matrix, bound = draw_rows(size)
    total = [Range(-1.0, 3.0), SumTo(float(size) / 4, low=None)]
    there = find_spec("rayen") is not None and find_spec("cvxpylayers") is not None
    rays = Rayen if there else AlongRays
    return {
        "Linear": nn.Linear(size, size, dtype=dtype),
        "Shield": Shield(Linear(None, matrix, bound, "<=", name="rows")),
        "OutputSet": OutputSet(total, output_size=size),
        "RAYEN" if there else "RAYEN's step": rays(matrix, bound, dtype),
        "HardNet": HardNet(matrix, bound, dtype),
    }


def violations(made: dict[str, nn.Module], size: int, device: str, dtype: torch.dtype) -> list[str]:
    """For each layer with the rows the largest `(row y - bound) / bound`, 0 if all are kept."""
    matrix, bound = draw_rows(size)
    y = draw_outputs(LOOKED_AT, size, device, dtype)
    found = []
    for name, one in made.items():
        if name in RULED:
            with torch.no_grad():
                kept = one(y).double().cpu().numpy()
            worst = float((kept @ matrix.T / bound - 1).max())
            found.append(f"{max(0.0, worst):.2g}")
    return found


def draw_outputs(batch: int, size: int, device: str, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(batch, size, generator=generator).to(device, dtype)


def milliseconds(call: Callable[[], object], device: str) -> float:
    """The median of several calls; on the CPU of processor time, whatever else is running."""
    clock = time.perf_counter if device == "cuda" else time.process_time

    def done() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    started = clock()
    while clock() - started < WARM_UP:
        call()
        done()
    times: list[float] = []
    while sum(times) < LEAST_SECONDS or len(times) < LEAST_TIMES:
        start = clock()
        call()
        done()
        times.append(clock() - start)
    return 1000 * statistics.median(times)


def measured(layer: nn.Module, y: Tensor, device: str) -> tuple[float, float]:
    """Milliseconds of a forward, and of a forward with its backward."""

    def forward() -> object:
        with torch.no_grad():
            return layer(y)

    z = y.clone().requires_grad_()

    def both() -> None:
        (slope,) = torch.autograd.grad(layer(z).sum(), z)
        del slope

    return milliseconds(forward, device), milliseconds(both, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    parser.add_argument("--outputs", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--dtypes", choices=list(DTYPES), nargs="+", default=list(DTYPES))
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    print("Milliseconds per batch, forward / forward and backward.\n")
    names = list(layers(4, torch.float32))
    if "RAYEN" not in names:
        print("The package rayen is not installed: its step is written here.\n")
    print("| dtype | outputs | batch |", " | ".join(names), "|")
    print("| --- | ---: | ---: |", " | ".join(["---:"] * len(names)), "|")
    broken: list[str] = []
    for kind in chosen.dtypes:
        dtype = DTYPES[kind]
        for size in chosen.outputs:
            made = {name: one.to(chosen.device) for name, one in layers(size, dtype).items()}
            if chosen.compile:
                torch.compiler.reset()
                for one in made.values():
                    one.compile()
            for batch in chosen.batches:
                y = draw_outputs(batch, size, chosen.device, dtype)
                cells = [measured(one, y, chosen.device) for one in made.values()]
                shown = " | ".join(f"{first:.3g} / {second:.3g}" for first, second in cells)
                print(f"| {kind} | {size} | {batch} | {shown} |", flush=True)
            found = violations(made, size, chosen.device, dtype)
            broken.append(f"| {kind} | {size} | {' | '.join(found)} |")
    ruled = [name for name in names if name in RULED]
    print("\nLargest violation, as a share of the bound.\n")
    print("| dtype | outputs |", " | ".join(ruled), "|")
    print("| --- | ---: |", " | ".join(["---:"] * len(ruled)), "|")
    print("\n".join(broken))


if __name__ == "__main__":
    main()
