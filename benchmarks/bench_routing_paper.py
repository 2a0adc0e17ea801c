"""This package's routing recipe against the method as published, given ten times its time.

    python -m benchmarks.bench_routing_paper --out paper-runs

Trains each configuration with our recipe, then as published (`--mode paper`) with `--factor` times
our seconds as its limit, on the same machine with the same threads, and attacks and validates both
alike: same seeds, same effort. Run folders lie under --out; what has ended is not run again, so the
same command goes on after an interrupt. The table is printed and written to OUT/comparison.md.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from cg4ai.apps.runner import perform
from cg4ai.errors import SolverFailure
from cg4ai.report.tables import format_markdown
from cg4ai.routing.prove.attack import FEASIBLE
from cg4ai.runs import files
from experiments.routing.reproduce import APPLICATIONS, Mode, finished, wanted

CONFIGURATIONS = ("dfn-bwin-5-3", "nobel-germany-10-3", "nobel-us-5-3")
METHODS: dict[Mode, str] = {"ours": "ours", "paper": "as published"}


def summary_of(name: str, mode: Mode, usual: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Train and evaluate, or read what an earlier call left."""
    app, asked = APPLICATIONS[mode], wanted(name, usual, mode)
    done = finished(folder, app.prepare(asked, None), mode)
    if done is not None:
        return done
    routed = perform(app, asked, out=folder, resume=True)
    if routed.evaluation is None:
        raise SystemExit("interrupted; the same command goes on from here")
    return routed.summary


def row(name: str, mode: Mode, summary: dict[str, Any], limit_s: float | None) -> dict[str, Any]:
    return {
        "configuration": name,
        "method": METHODS[mode],
        "overload found": summary["worst_utilisation"] > FEASIBLE,
        "worst utilisation": summary["worst_utilisation"],
        "mean gap": summary["mean_mlu_gap"],
        "largest gap": summary["max_mlu_gap"],
        "limit s": limit_s,
        "total s": summary["total_s"],
        "iterations": summary["iterations"],
        "members": summary["columns"],
        "rows": summary["rows"],
        "ended": summary["stop_reason"],
    }


def compare(
    name: str, out: Path, usual: Mapping[Mode, Mapping[str, Any]], *, factor: float
) -> list[dict[str, Any]]:
    """Two rows: our recipe, and the published method with `factor` times our seconds."""
    ours = summary_of(name, "ours", usual["ours"], out / f"{name}-ours")
    limit_s = factor * ours["total_s"]
    other = {**usual["paper"], "training_limit_s": limit_s}
    rows = [row(name, "ours", ours, None)]
    try:
        rows.append(
            row(name, "paper", summary_of(name, "paper", other, out / f"{name}-paper"), limit_s)
        )
    except SolverFailure as failure:  # some demand had no network yet when the time was over
        failed = {"configuration": name, "method": METHODS["paper"], "limit s": limit_s}
        rows.append({**failed, "ended": f"no result: {failure}"})
    return rows


def report(rows: Sequence[dict[str, Any]], threads: int, *, factor: float) -> str:
    return "\n".join(
        [
            f"Our recipe, and the method as published with {factor:g} times our seconds as its "
            f"limit (an iteration begun is ended), load 0.99, seed 0, "
            f"{threads} threads of {platform.machine()}, torch {torch.__version__}. Worst "
            "utilisation: the highest found by the same attack; gaps: predicted minus optimal MLU "
            "on the same validation vectors.",
            "",
            format_markdown(rows),
        ]
    )


def main(
    arguments: Sequence[str] | None = None,
    *,
    usual: Mapping[Mode, Mapping[str, Any]] | None = None,
) -> str:
    """The text that was printed; `usual` holds further settings of either method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--configurations", nargs="+", default=CONFIGURATIONS, metavar="NETWORK-D-P"
    )
    parser.add_argument("--factor", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=Path("paper-runs"))
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args(arguments)
    further: Mapping[Mode, Mapping[str, Any]] = usual or {}
    usual = {mode: {**further.get(mode, {}), "threads": given.threads} for mode in METHODS}
    given.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for name in given.configurations:
        rows += compare(name, given.out, usual, factor=given.factor)
        text = report(rows, given.threads, factor=given.factor)
        files.write_bytes(given.out / "comparison.md", text.encode())
        print(format_markdown(rows[-2:]), flush=True)
    print(text)
    return text


if __name__ == "__main__":
    main()
