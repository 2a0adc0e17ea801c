"""How wide and deep routing networks should be: gaps and seconds by hidden units and layers.

    python -m benchmarks.bench_routing_width --out width-runs abilene-5-3 nobel-us-5-3 polska-5-3

Each combination has a run folder of its own and is not run again once it has ended.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

from cg4ai.apps.runner import perform
from cg4ai.report.tables import format_markdown
from cg4ai.routing.app import APPLICATION
from experiments.routing.reproduce import chosen, finished, wanted

HIDDEN = (8, 16, 32, 64, 128, 256)
LAYERS = (1, 2)
KEYS = (
    *("mean_mlu_gap", "max_mlu_gap", "worst_utilisation", "active_members"),
    *("total_s", "batch_answer_s", "single_answer_s"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["abilene-5-3", "nobel-us-5-3", "polska-5-3"])
    parser.add_argument("--out", type=Path, default=Path("width-runs"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=float("inf"))
    given = parser.parse_args()
    usual = {"threads": given.threads, "training_limit_s": given.time_limit}
    rows = []
    for name, layers, hidden in product(chosen(given.names), LAYERS, HIDDEN):
        asked = wanted(name, {**usual, "hidden": (hidden,) * layers})
        folder = given.out / f"{name}-{layers}x{hidden}"
        summary = finished(folder, APPLICATION.prepare(asked, None))
        if summary is None:
            routed = perform(APPLICATION, asked, out=folder, resume=True)
            if routed.evaluation is None:
                raise SystemExit("interrupted; the same command goes on from here")
            summary = routed.summary
        start = {"configuration": name, "layers": layers, "hidden": hidden}
        rows.append(start | {key: summary[key] for key in KEYS})
        print(rows[-1], flush=True)
    print(format_markdown(rows))


if __name__ == "__main__":
    main()
