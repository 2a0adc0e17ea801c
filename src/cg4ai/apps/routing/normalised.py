"""MLU over the optimum on measured traffic of later times: a router beside classical routings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cg4ai.apps.protocol import Review
from cg4ai.apps.routing.classical import best_static, cope, equal_cost, oblivious
from cg4ai.apps.routing.data import Instance
from cg4ai.apps.routing.measured import Measured, evenly, thinned
from cg4ai.apps.routing.traffic_sets import worst_optimum
from cg4ai.apps.tables import plain
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.records import Array, IntArray

LEARNED = 300  # earlier vectors that static splits are made for, at most
PREVIOUS = 500  # later vectors at which the optimum of the one before is tried, at most
CLIMBED = 5  # of the earlier vectors of largest optimum, searches for the worst start from so many
OURS, PLAIN = "this router", "plain network"


def figures(ratios: Array) -> dict[str, float]:
    """Of ratios (n,): mean, 95th and 99th percentile, worst."""
    return {
        "mean": float(ratios.mean()),
        "p95": float(np.percentile(ratios, 95)),
        "p99": float(np.percentile(ratios, 99)),
        "worst": float(ratios.max()),
    }


def normalised(
    instance: Instance,
    measured: Measured,
    routers: Mapping[str, Ensemble],
    review: Review,
) -> tuple[dict[str, Any], dict[str, Array]]:
    """What to add to the summary under `traffic`, and arrays of MLUs at the later vectors.

    `routers` come first; what time does not allow of the others is left out.
    """
    later = measured.later
    best = instance.optimal(later).mlu
    inside = measured.inside(instance)
    ratios: dict[str, dict[str, float]] = {}
    arrays = {"later_optimal_mlu": best, "later_inside": inside.astype(np.float64)}
    for name, router in routers.items():
        splits = router.predict(later, outside="ignore")
        mlu = instance.utilisation(later, splits).max(axis=1)
        ratios[name] = figures(mlu / best)
        if name == OURS:
            arrays["later_mlu"] = mlu
    found: dict[str, Any] = {
        "earlier": len(measured.earlier),
        "later": len(later),
        "times": list(measured.times),
        "inside": float(inside.mean()),
        "silent": list(measured.silent),
        "elsewhere": measured.elsewhere,
        "partial": 0 if measured.partial is None else int(measured.partial.sum()),
        "level": instance.level,
    }
    if inside.any() and OURS in routers:
        found["ratio_inside"] = figures((arrays["later_mlu"] / best)[inside])
    if review.begins("the worst optimum of the set"):
        earlier = thinned(measured.earlier, LEARNED)
        hardest = np.argsort(-instance.optimal(earlier).mlu)[:CLIMBED]
        found["worst_optimum"] = worst_optimum(instance, earlier[hardest]).found
    for name, make in _classical(instance, measured).items():
        if review.begins(name):
            mlu, chosen = make()
            ratios[name] = figures(mlu / best[chosen])
    return {**found, "ratio": ratios}, arrays


def _classical(
    instance: Instance, measured: Measured
) -> dict[str, Callable[[], tuple[Array, IntArray]]]:
    """By name, what gives MLUs and the positions (n,) of the later vectors that they are of.

    Those that take longest come last: a limit of time then leaves out no other.
    """
    earlier, later = thinned(measured.earlier, LEARNED), measured.later
    all_of_them = evenly(len(later), len(later))

    def static(split: Callable[[], Array]) -> Callable[[], tuple[Array, IntArray]]:
        def mlu() -> tuple[Array, IntArray]:
            return np.asarray(instance.utilisation(later, split()).max(axis=1)), all_of_them

        return mlu

    def previous() -> tuple[Array, IntArray]:
        chosen = evenly(len(later), PREVIOUS)
        before = np.concatenate([measured.earlier[-1:], later])[chosen]
        splits = instance.optimal(before, splits=True).splits
        assert splits is not None
        return np.asarray(instance.utilisation(later[chosen], splits).max(axis=1)), chosen

    ceiling = max(1.0, instance.level * (1 + 1e-6))
    return {
        "shortest paths (ECMP)": static(lambda: equal_cost(instance).split),
        "best static split": static(lambda: best_static(instance, earlier).split),
        "robust static split": static(lambda: instance.robust.split),
        "previous optimum": previous,
        "COPE": static(
            lambda: cope(instance, earlier, ceiling=ceiling, measure="utilisation").split
        ),
        "oblivious routing": static(lambda: oblivious(instance).split),
    }


def in_words(found: Mapping[str, Any]) -> list[str]:
    """The `traffic` of a summary for people."""
    return [
        "",
        *judged_on(found),
        "MLU over the optimum on the later matrices:",
        plain(rows(found)),
    ]


def rows(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row for each router and routing: MLU over the optimum on the later matrices."""
    return [
        {"": name, **{key: f"{value:.4f}" for key, value in row.items()}}
        for name, row in found["ratio"].items()
    ]


def judged_on(found: Mapping[str, Any]) -> list[str]:
    """The matrices learned from and judged on, and the set that was made of the first."""
    first, last, begin, end = found["times"]
    worst = ""
    if "worst_optimum" in found:
        worst = f"; the worst optimum found in it is {found['worst_optimum']:.4f}"
    outside = 1 - found["inside"]
    said = (
        " All lie in the set."
        if outside == 0
        else f" The other {outside:.2%} lie outside: the router answers there too, but the "
        "guarantee does not cover them."
    )
    return [
        f"Learned from {found['earlier']} matrices ({first} to {last}), judged on {found['later']} "
        f"later ones ({begin} to {end}), of which {found['inside']:.2%} lie in the set.{said}",
        *_left_out(found),
        f"The best constant split keeps {found['level']:.4f} on the whole set{worst}.",
    ]


def _left_out(found: Mapping[str, Any]) -> list[str]:
    """What of the matrices is not judged; older summaries do not say."""
    lines = []
    if found.get("elsewhere"):
        partial = found["partial"]
        counted = f"; {partial} later matrices with such traffic count as outside the set"
        lines.append(
            f"{found['elsewhere']:.2%} of the later traffic is between nodes that no demand joins "
            f"and is not routed{counted if partial else ''}."
        )
    earlier, later = found.get("silent", (0, 0))
    if earlier or later:
        lines.append(
            f"Without any traffic of the demands, and left out: {earlier} earlier and {later} "
            "later matrices."
        )
    return lines
