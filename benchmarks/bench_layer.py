"""What a layer of rules costs: milliseconds forward, and forward and backward, beside others.

The rules are one row for every four outputs and a cap on their sum, so tight that about a third of
the outputs that come in break one. Beside the Shield stand a plain Linear layer of the same width,
an OutputSet (ranges and a sum), and two methods of others as written here in a few lines: the step
along a ray of RAYEN (every output is moved, from a point inside), and the projection of HardNet,
which is exact for one row at a time and is given the cap alone.

Run: python benchmarks/bench_layer.py [--device cuda] [--compile]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor, nn

from cg4ai.nn import OutputSet, Shield
from cg4ai.rules import Linear, Range, SumTo

BATCHES, SIZES = (1, 64, 4096), (10, 100, 1000)
DTYPES = (torch.float32, torch.float64)
BROKEN = 1 / 3  # of outputs that come in
LEAST_SECONDS, LEAST_TIMES = 0.15, 5


class AlongRays(nn.Module):
    """Outputs `centre + min(|v|, reach(v)) v / |v|` with the reach of the rows (RAYEN)."""

    rows: Tensor
    room: Tensor

    def __init__(self, matrix: Tensor, bound: Tensor) -> None:
        super().__init__()
        self.register_buffer("rows", matrix.T.contiguous())
        self.register_buffer("room", bound)  # the centre is 0

    def forward(self, y: Tensor) -> Tensor:
        needed = ((y @ self.rows) / self.room).amax(-1, keepdim=True)
        return y / needed.clamp_min(1.0)


class OneRow(nn.Module):
    """Outputs projected onto one half-space (HardNet)."""

    row: Tensor

    def __init__(self, row: Tensor, bound: float) -> None:
        super().__init__()
        self.register_buffer("row", row / row.norm())
        self.bound = bound / float(row.norm())

    def forward(self, y: Tensor) -> Tensor:
        over = (y @ self.row - self.bound).clamp_min(0.0)
        return y - over.unsqueeze(-1) * self.row


def layers(size: int, dtype: torch.dtype) -> dict[str, nn.Module]:
    random = np.random.default_rng(0)
    matrix = np.concatenate([random.normal(size=(max(1, size // 4), size)), np.ones((1, size))])
    tight = norm.ppf((1 - BROKEN) ** (1 / len(matrix)))
    bound = tight * np.linalg.norm(matrix, axis=1)
    rows, most = (torch.tensor(one, dtype=dtype) for one in (matrix, bound))
    total = [Range(-1.0, 3.0), SumTo(float(size) / 4, low=None)]
    return {
        "Linear": nn.Linear(size, size, dtype=dtype),
        "Shield": Shield(Linear(None, matrix, bound, "<=", name="rows")),
        "OutputSet": OutputSet(total, output_size=size),
        "rays (RAYEN)": AlongRays(rows, most),
        "one row (HardNet)": OneRow(torch.ones(size, dtype=dtype), float(bound[-1])),
    }


def milliseconds(call: Callable[[], object], device: str) -> float:
    """The median of several calls."""

    def done() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(3):
        call()
    done()
    times: list[float] = []
    while sum(times) < LEAST_SECONDS or len(times) < LEAST_TIMES:
        start = time.perf_counter()
        call()
        done()
        times.append(time.perf_counter() - start)
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
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    print("Milliseconds per batch, forward / forward and backward.\n")
    names = list(layers(4, torch.float32))
    print("| dtype | outputs | batch |", " | ".join(names), "|")
    print("| --- | ---: | ---: |", " | ".join(["---:"] * len(names)), "|")
    for dtype in DTYPES:
        for size in SIZES:
            made = {name: one.to(chosen.device) for name, one in layers(size, dtype).items()}
            if chosen.compile:
                torch.compiler.reset()
                for one in made.values():
                    one.compile()
            for batch in BATCHES:
                generator = torch.Generator().manual_seed(0)
                y = torch.randn(batch, size, generator=generator).to(chosen.device, dtype)
                cells = [measured(one, y, chosen.device) for one in made.values()]
                shown = " | ".join(f"{first:.3g} / {second:.3g}" for first, second in cells)
                print(f"| {str(dtype)[6:]} | {size} | {batch} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
