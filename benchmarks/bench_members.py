"""How fast stacked members are, against a Python loop over the same networks as nn.Sequential.

Run `python benchmarks/bench_members.py`. Both ways use the same dtype and threads, the figure is
the fastest of several alternating rounds, and the outputs are compared before anything is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from cg4ai.members import NetworkArchitecture, NetworkMembers
from cg4ai.members.fusion import fuse

ROUNDS = 7
CASES = {
    "784-4-10, 400 members": (NetworkArchitecture(784, 10, hidden=(4,)), 400),
    "784-4-10 softmax, 400 members": (
        NetworkArchitecture(784, 10, hidden=(4,), output="softmax"),
        400,
    ),
    "15-256-3, 100 members": (NetworkArchitecture(15, 3, hidden=(256,)), 100),
}


def seconds(functions: list[Callable[[], object]]) -> list[float]:
    """The fastest of several rounds for each; rounds alternate so that noise hits all alike."""
    best = [float("inf")] * len(functions)
    for _ in range(ROUNDS + 1):  # the first is a warm-up that the minimum forgets
        for position, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[position] = min(best[position], time.perf_counter() - start)
    return best


def sequential(members: NetworkMembers, dtype: torch.dtype) -> list[nn.Sequential]:
    """The members as separate modules."""
    architecture = members.architecture
    modules = []
    for i in range(len(members)):
        own = {name: tensor[i] for name, tensor in members.parameters.items()}
        first = nn.Linear(architecture.input_size, architecture.hidden[0])
        last = nn.Linear(architecture.hidden[0], architecture.output_size)
        first.load_state_dict({"weight": own["weight_0"], "bias": own["bias_0"]})
        last.load_state_dict({"weight": own["weight_1"], "bias": own["bias_1"]})
        parts = [first, nn.ReLU(), last]
        if architecture.output == "softmax":
            parts.append(nn.Softmax(-1))
        modules.append(nn.Sequential(*parts).to(dtype).eval())
    return modules


def compare(case: str, dtype: torch.dtype, *, inputs: int = 1000) -> list[dict[str, object]]:
    """One row for all outputs and one for the mixture of a case."""
    architecture, count = CASES[case]
    generator = torch.Generator().manual_seed(0)
    parameters = architecture.initialise(count, generator)
    members = architecture.members(parameters)
    modules = sequential(members, dtype)
    x = torch.rand(inputs, architecture.input_size, generator=generator, dtype=dtype)
    weights = torch.rand(count, generator=generator, dtype=dtype)
    weights /= weights.sum()
    fused = fuse(members, weights).to(dtype)
    stacked = {name: tensor.to(dtype) for name, tensor in parameters.items()}

    def loop_outputs() -> Tensor:
        return torch.stack([module(x) for module in modules])

    def stack_outputs() -> Tensor:
        if dtype == torch.float64:
            return members.outputs(x)
        return architecture.forward_in_chunks(stacked, x)

    def loop_mixture() -> Tensor:
        total = weights[0] * modules[0](x)
        for weight, module in zip(weights[1:], modules[1:], strict=True):
            total += weight * module(x)
        return total

    with torch.no_grad():
        torch.testing.assert_close(stack_outputs(), loop_outputs(), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(fused(x), loop_mixture(), rtol=1e-5, atol=1e-5)
        loop, stack, loop_mix, mix = seconds(
            [loop_outputs, stack_outputs, loop_mixture, lambda: fused(x)]
        )
    name = str(dtype).removeprefix("torch.")
    return [
        {
            "case": case,
            "dtype": name,
            "task": task,
            "loop_ms": a * 1e3,
            "ours_ms": b * 1e3,
            "ratio": a / b,
        }
        for task, a, b in (("all outputs", loop, stack), ("fused mixture", loop_mix, mix))
    ]


def rows(*, inputs: int = 1000) -> list[dict[str, object]]:
    """All cases in float64 and float32."""
    return [
        row
        for case in CASES
        for dtype in (torch.float64, torch.float32)
        for row in compare(case, dtype, inputs=inputs)
    ]


def main() -> None:
    print(f"1,000 inputs, {torch.get_num_threads()} threads")
    print(f"{'case':<32}{'dtype':<9}{'task':<15}{'loop ms':>9}{'ours ms':>9}{'ratio':>7}")
    for row in rows():
        print(
            f"{row['case']:<32}{row['dtype']:<9}{row['task']:<15}"
            f"{row['loop_ms']:>9.1f}{row['ours_ms']:>9.1f}{row['ratio']:>7.2f}"
        )


if __name__ == "__main__":
    main()
