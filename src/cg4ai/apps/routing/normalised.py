"""MLU over the optimum on measured traffic of later times: a router beside classical routings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cg4ai import clock
from cg4ai.apps.routing.classical import best_static, cope, equal_cost, oblivious
from cg4ai.apps.routing.data import Instance
from cg4ai.apps.routing.measured import Measured, evenly, thinned
from cg4ai.apps.routing.optimal import least_mlu_until
from cg4ai.apps.routing.traffic_sets import worst_optimum
from cg4ai.apps.tables import plain
from cg4ai.clock import Deadline, Review
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.records import Array, IntArray

LEARNED = 300  # earlier vectors that static splits are made for, at most
PREVIOUS = 500  # later vectors at which the optimum of the one before is tried, at most
FIRST = 10  # later vectors that are solved whatever the time
LEAST_S = 1e-9  # what solving takes at least
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


class Later:
    """Routings on the later vectors, or as many of them as half of the time left allows to solve.

    `found` is for the summary, under `traffic`; `arrays` are MLUs at the vectors that were solved.
    """

    def __init__(self, instance: Instance, measured: Measured, review: Review) -> None:
        self.instance, self.measured = instance, measured
        review.say("evaluating: later matrices")
        self.at, self.best = _solved(instance, measured.later, review)
        self.vectors = measured.later[self.at]
        self.inside = measured.inside(instance)
        self.ratios: dict[str, dict[str, float]] = {}
        self.found: dict[str, Any] = {
            "earlier": len(measured.earlier),
            "later": len(measured.later),
            "judged": len(self.at),
            "times": list(measured.times),
            "inside": float(self.inside.mean()),
            "silent": list(measured.silent),
            "elsewhere": measured.elsewhere,
            "partial": 0 if measured.partial is None else int(measured.partial.sum()),
            "level": instance.level,
            "ratio": self.ratios,
        }
        inside = self.inside[self.at].astype(np.float64)
        self.arrays = {"later_optimal_mlu": self.best, "later_inside": inside}

    def judge(self, name: str, router: Ensemble) -> None:
        """Add a router to the comparison."""
        splits = router.predict(self.vectors, outside="ignore")
        mlu = self.instance.utilisation(self.vectors, splits).max(axis=1)
        self.ratios[name] = figures(mlu / self.best)
        if name == OURS:
            self.arrays["later_mlu"] = mlu
            inside = self.inside[self.at]
            if inside.any():
                self.found["ratio_inside"] = figures((mlu / self.best)[inside])

    def compare(self, review: Review) -> None:
        """Add classical routings, as far as time allows."""
        instance, measured = self.instance, self.measured
        earlier = thinned(measured.earlier, LEARNED)

        def worst() -> float:
            hardest = np.argsort(-instance.optimal(earlier).mlu)[:CLIMBED]
            return worst_optimum(instance, earlier[hardest]).found

        found = review.within("the worst optimum of the set", worst)
        if found is not None:
            self.found["worst_optimum"] = found
        for name, make in self._classical().items():
            known = review.within(name, make)
            if known is not None:
                mlu, chosen = known
                self.ratios[name] = figures(mlu / self.best[chosen])

    def _classical(self) -> dict[str, Callable[[], tuple[Array, IntArray]]]:
        """By name, what gives MLUs and the positions (n,) of the solved vectors that they are of.

        Those that take longest come last: a limit of time then leaves out no other.
        """
        instance, measured = self.instance, self.measured
        earlier = thinned(measured.earlier, LEARNED)
        all_of_them = evenly(len(self.at), len(self.at))

        def static(split: Callable[[], Array]) -> Callable[[], tuple[Array, IntArray]]:
            def mlu() -> tuple[Array, IntArray]:
                loads = instance.utilisation(self.vectors, split())
                return np.asarray(loads.max(axis=1)), all_of_them

            return mlu

        def previous() -> tuple[Array, IntArray]:
            chosen = evenly(len(self.at), PREVIOUS)
            before = np.concatenate([measured.earlier[-1:], measured.later])[self.at[chosen]]
            splits = instance.optimal(before, splits=True).splits
            assert splits is not None
            loads = instance.utilisation(self.vectors[chosen], splits)
            return np.asarray(loads.max(axis=1)), chosen

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


def _solved(instance: Instance, later: Array, review: Review) -> tuple[IntArray, Array]:
    """Positions (n,) of vectors evenly over time, and their optimum: all, or what time allows."""
    at = evenly(len(later), len(later))
    if not math.isinf(review.deadline.ends):
        few, started = evenly(len(later), FIRST), clock.now()
        known = least_mlu_until(instance, later[few], Deadline())
        pace = max(clock.now() - started, LEAST_S) / len(few)
        half = Deadline.after(review.deadline.left() / 2)
        at = evenly(len(later), max(FIRST, int(half.left() / pace)))
        best = least_mlu_until(instance, later[at], half)
        if len(best) < len(few):
            at, best = few, known
        if len(best) < len(later):
            review.cut.append(f"later matrices, to {len(best)} of {len(later)}")
        return at[: len(best)], best
    return at, instance.optimal(later).mlu


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
    judged = found.get("judged", found["later"])  # older summaries: all
    few = "" if judged == found["later"] else f" MLUs are of {judged} of them."
    return [
        f"Learned from {found['earlier']} matrices ({first} to {last}), judged on {found['later']} "
        f"later ones ({begin} to {end}), of which {found['inside']:.2%} lie in the set.{said}{few}",
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
    if found["earlier"] > LEARNED and len(found["ratio"]) > 1:
        lines.append(
            f"Static splits and COPE are made for {LEARNED} of the earlier matrices, evenly over "
            "time."
        )
    if found.get("judged", found["later"]) > PREVIOUS and "previous optimum" in found["ratio"]:
        lines.append(f"The previous optimum is tried at {PREVIOUS} of the later matrices.")
    earlier, later = found.get("silent", (0, 0))
    if earlier or later:
        lines.append(
            f"Without any traffic of the demands, and left out: {earlier} earlier and {later} "
            "later matrices."
        )
    return lines
