"""How fast routers predict 1,000 demand vectors, against HiGHS and a plainer way of mixing.

    python benchmarks/bench_prediction.py [NETWORK-D-P-MEMBERS ...] [--threads 2] [--out FILE.md]
    python benchmarks/bench_prediction.py --batches [ROWS ...] [--threads 1]

Parameters are random: the time depends on the number of members alone. Both ways of mixing and
the linear programs, solved one by one from warm starts, take turns, and the fastest round of each
counts. "each member" evaluates every member, GELU by torch's own kernel, and then takes the
weighted sum; the outputs of both are compared before anything is timed.

`--batches` measures instead what it would cost to make a prediction independent of the rows beside
it: all rows at once, as `predict` does, against fixed chunks padded to their size, in turns, by the
median; and how much a row alone differs from the same row in the batch, both ways.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.layout import Layout
from cg4ai.members import NetworkArchitecture, NetworkMembers
from cg4ai.members.mixture import Part
from cg4ai.records import Array
from cg4ai.report.tables import format_markdown
from cg4ai.routing import Instance, instance
from cg4ai.routing.train.members import SplitNetwork

# configuration and active members: about as many as trained routers have, and 100 at the most
CASES = (
    *("abilene-15-3-22", "abilene-15-3-100", "nobel-us-5-3-9", "di-yuan-15-3-74"),
    *("di-yuan-15-3-100", "ta1-15-3-49", "ta1-15-3-100", "dfn-bwin-15-3-79"),
    *("nobel-germany-15-3-52", "nobel-germany-5-5-24"),
)
VECTORS = 1000
ROUNDS = 7
CHUNKS = (8, 1024)  # the largest that was seen to make rows independent, and the usual one
SHIFT = 17
MANY, FEW = 200, 3  # timed rounds of one row, and of more


def router(made: Instance, count: int, *, hidden: int = 32) -> Ensemble:
    """A mixture of `count` members with random parameters and weights, spread over the demands."""
    demands = len(made.demand_max)
    architecture = SplitNetwork(made, hidden=(hidden,))
    whole = architecture.initialise(
        -(-count // demands) * demands, torch.Generator().manual_seed(0)
    )
    members = architecture.members({name: value[:count] for name, value in whole.items()})
    blocks = np.arange(count) % demands
    weights = np.random.default_rng(0).uniform(0.1, 1.0, count)
    weights /= np.bincount(blocks, weights)[blocks]
    return Ensemble((Part(members, blocks, weights),), Layout(made.blocks))


def each_member(ensemble: Ensemble, vectors: Tensor) -> Tensor:
    """The same outputs the plain way, (n, P)."""
    (part,) = ensemble.parts
    assert isinstance(part.members, NetworkMembers)
    own = part.members.parameters
    x = part.members.architecture.normalise(vectors)
    hidden = functional.gelu(own["weight_0"] @ x.T + own["bias_0"].unsqueeze(-1))
    scores = own["weight_1"] @ hidden + own["skip"] @ x.T + own["bias_1"].unsqueeze(-1)
    weighted = scores.softmax(1) * torch.as_tensor(part.weights)[:, None, None]
    blocks = torch.as_tensor(part.blocks)
    mixed = weighted.new_zeros(len(ensemble.layout), *weighted.shape[1:])
    mixed = mixed.index_add(0, blocks, weighted)
    return torch.cat(
        [mixed[number, : len(block)] for number, block in enumerate(ensemble.layout.blocks)]
    ).T


def seconds(functions: list[Callable[[], object]], rounds: int) -> list[float]:
    """The fastest round of each; rounds alternate so that noise hits all alike."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for position, function in enumerate(functions):
            started = time.perf_counter()
            function()
            best[position] = min(best[position], time.perf_counter() - started)
    return best


def classifier(members: int = 8, *, hidden: int = 64) -> Ensemble:
    """A mixture for 28 x 28 images with random parameters and equal weights."""
    architecture = NetworkArchitecture(784, 10, hidden=(hidden,), output="softmax")
    start = architecture.initialise(members, torch.Generator().manual_seed(0))
    weights = np.full(members, 1 / members)
    part = Part(architecture.members(start), np.zeros(members, np.int64), weights)
    return Ensemble((part,), Layout.single(10))


def in_chunks(ensemble: Ensemble, rows: Array, *, size: int) -> Array:
    """Predictions of chunks that always have `size` rows, the last one padded."""
    chunks = [rows[start : start + size] for start in range(0, len(rows), size)]
    short = size - len(chunks[-1])
    chunks[-1] = np.concatenate([chunks[-1], np.repeat(rows[-1:], short, axis=0)])
    return np.concatenate([ensemble.predict(chunk) for chunk in chunks])[: len(rows)]


def largest_difference(predict: Callable[[Array], Array], rows: Array) -> float:
    """Of 50 rows alone, and of rows with others before them left out, from those in the batch."""
    whole = predict(rows)
    found = [
        np.abs(predict(rows[i : i + 1])[0] - whole[i]).max()
        for i in np.unique(np.linspace(0, len(rows) - 1, 50).astype(int))
    ]
    if len(rows) > SHIFT:
        part = slice(SHIFT, SHIFT + 1500)
        found.append(np.abs(predict(rows[part]) - whole[part]).max())
    return float(max(found))


def measure_batches(name: str, ensemble: Ensemble, rows: Array) -> dict[str, object]:
    """One row of the table of `--batches`."""
    ways: list[Callable[[Array], Array]] = [
        ensemble.predict,
        *(partial(in_chunks, ensemble, size=size) for size in CHUNKS),
    ]
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(MANY if len(rows) == 1 else FEW):
        for own, way in zip(times, ways, strict=True):
            started = time.perf_counter()
            way(rows)
            own.append(time.perf_counter() - started)
    differences = [largest_difference(way, rows) for way in ways]
    titles = ["at once", *(f"chunks of {size}" for size in CHUNKS)]
    return {
        "mixture": name,
        "rows": len(rows),
        **{f"{t}, ms": 1e3 * median(own) for t, own in zip(titles, times, strict=True)},
        **{f"{t}, difference": d for t, d in zip(titles, differences, strict=True)},
    }


def batches(counts: Sequence[int]) -> list[dict[str, object]]:
    """A router and a classifier at every number of rows."""
    made = instance("abilene", 15, 3)
    images = np.random.default_rng(1).random((max(counts), 784))
    demands = made.sample(max(counts), seed=1)
    cases = (
        ("abilene 15/3, 22 members", router(made, 22), demands),
        ("digits, 8 members", classifier(), images),
    )
    return [measure_batches(n, e, rows[:count]) for n, e, rows in cases for count in counts]


def measure(case: str, *, rounds: int = ROUNDS) -> dict[str, object]:
    """One row of the table."""
    network, demands, paths, members = case.rsplit("-", 3)
    made = instance(network, int(demands), int(paths))
    ensemble = router(made, int(members))
    vectors = made.sample(VECTORS, seed=1)
    tensor = torch.as_tensor(vectors)
    difference = np.abs(ensemble.predict(vectors) - each_member(ensemble, tensor).numpy()).max()
    plain, ours, solving = seconds(
        [
            lambda: each_member(ensemble, tensor),
            lambda: ensemble.predict(vectors),
            lambda: made.find_optimal(vectors),
        ],
        rounds,
    )
    return {
        "configuration": f"{network} {demands}/{paths}",
        "members": len(ensemble),
        "HiGHS ms": 1e3 * solving,
        "each member ms": 1e3 * plain,
        "ours ms": 1e3 * ours,
        "each member, ratio": solving / plain,
        "ours, ratio": solving / ours,
        "largest difference": float(difference),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=CASES, metavar="NETWORK-D-P-MEMBERS")
    parser.add_argument("--batches", nargs="*", type=int, metavar="ROWS")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, help="write the table here, too")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.batches is not None:
        table = format_markdown(batches(given.batches or (1, 1000, 100_000)), digits=3)
        what = "a row alone and in a batch"
    else:
        with torch.no_grad():
            table = format_markdown(
                [measure(case, rounds=given.rounds) for case in given.cases], digits=3
            )
        what = "1,000 demand vectors"
    text = (
        f"{what}, {given.threads} threads, {platform.machine()}, "
        f"torch {torch.__version__}; load average {os.getloadavg()[0]:.1f} on "
        f"{os.cpu_count()} cores.\n\n{table}"
    )
    print(text)
    if given.out is not None:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
