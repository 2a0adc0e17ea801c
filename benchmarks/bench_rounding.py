"""What answers in multiples of 1/N lose, and whether they keep the capacities.

    python -m benchmarks.bench_rounding RUN ... [--parts 8 16 64] [--vectors 2000] [--seed 0]

Of finished runs of `cg4ai route` (shielded, trained without --granularity): the constant split in
multiples of 1/N that fits the whole set is searched anew for each N, and the same answers are
rounded by each. The MLU after rounding is compared with that before at random vectors of the set;
links are looked at near the edge, at vertices and where ascent finds them nearly full.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import cg4ai.routing  # noqa: F401  # routers are loaded by it
from cg4ai.apps.predictions import RunPredictor
from cg4ai.data import Array
from cg4ai.errors import InvalidInput
from cg4ai.report.tables import format_markdown
from cg4ai.routing.train.anchors import anchor
from cg4ai.routing.train.granular import (
    Granularity,
    compute_worst_load,
    find_granular_split,
    round_splits,
)
from cg4ai.routing.train.shield import sample_adversarial


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--parts", nargs="+", type=int, default=(8, 16, 64))
    parser.add_argument("--vectors", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rows = [row for run in given.runs for row in measured(run, given)]
    print(format_markdown(rows))


def measured(run: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    predictor = RunPredictor.from_folder(run)
    router: Any = predictor.described
    made, ensemble = router.instance, predictor.ensemble
    near = anchor(made, made.sample(300, given.seed), reserve=1.0)
    vectors = made.sample(given.vectors, given.seed + 1)
    edge = sample_adversarial(made, ensemble, given.vectors, seed=given.seed)
    own, own_edge = ensemble.predict(vectors), ensemble.predict(edge)

    def mlu(inputs: Array, splits: Array) -> Array:
        return made.compute_utilisation(inputs, splits).max(axis=1)

    rows = []
    for parts in given.parts:
        row: dict[str, Any] = {"run": run.name, "N": parts}
        started = time.process_time()
        try:
            split = find_granular_split(made, parts, near=near)
        except InvalidInput as error:
            rows.append({**row, "refused": str(error).partition(": ")[2].partition(";")[0]})
            continue
        row["search, s"] = time.process_time() - started
        granular = Granularity(made, parts, split)
        started = time.process_time()
        rounded = granular.round_answers(vectors, own)
        row["rounding, us"] = (time.process_time() - started) / len(vectors) * 1e6
        ratio = mlu(vectors, rounded) / mlu(vectors, own)
        at_edge = granular.round_answers(edge, own_edge)
        plain = round_splits(own_edge, made.path_demand, parts)
        row |= {
            "mean ratio": ratio.mean(),
            "worst ratio": ratio.max(),
            "overloads of plain rounding": int((mlu(edge, plain) > 1).sum()),
            "anchored": float((at_edge != plain).any(axis=1).mean()),
            "worst utilisation": mlu(edge, at_edge).max(),
            "worst of anchor": compute_worst_load(made, split),
        }
        rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


if __name__ == "__main__":
    main()
