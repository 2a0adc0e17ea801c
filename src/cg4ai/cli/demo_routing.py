"""`cg4ai demo`: a router of the research network Abilene that overloads no link, in a minute."""

from __future__ import annotations

from pathlib import Path

from cg4ai.apps.options import RunOptions
from cg4ai.apps.routing.app import APPLICATION
from cg4ai.apps.runner import KEPT, execute
from cg4ai.cli.progress import progress

INTRODUCTION = """\
Abilene, a research network: 12 cities, 15 links. Its 15 largest demands can each be split over
three paths. Neural networks see the demands and choose the splits. They must overload no link,
for EVERY vector of demands between zero and the largest: at the largest, even the best splits
fill some link to 99 %.

Two routers are trained: plain networks, and a mixture of such networks under that rule.
"""

# shorter than `cg4ai route`: a demonstration should take about a minute on one core
ASKED = {
    "network": "abilene",
    "demands": 15,
    "threads": 1,
    "baseline": True,
    "first_steps": 1000,
    "later_steps": 300,
    "priced": 1000,
    "rounds": 4,
}

MEANING = """
What this means: for any demands up to these sizes the splits come at once, without solving
anything, and the search described above found no demands that overload a link. A search is no
proof. The distance from optimal is measured on 10,000 vectors that training never saw."""


def run(out: Path | None, *, seed: int) -> int:
    """Train both, compare them, say what is guaranteed; returns the exit code."""
    print(INTRODUCTION, flush=True)
    with progress() as screen:
        code = execute(APPLICATION, {**ASKED, "seed": seed}, RunOptions(out=out), screen)
    if code == KEPT:
        print(MEANING)
    return code
