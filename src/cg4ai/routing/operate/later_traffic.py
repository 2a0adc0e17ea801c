"""MLU over the optimum on measured traffic of later times: a router beside classical routings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai import Ensemble, clock
from cg4ai.apps import summarise_drift
from cg4ai.clock import Deadline, Review
from cg4ai.data import Array, IntArray
from cg4ai.routing.demands.history import MeasuredHistory
from cg4ai.routing.demands.measured import MeasuredTraffic, pick_evenly, thin_vectors
from cg4ai.routing.demands.sets import measure_excess
from cg4ai.routing.demands.traffic_sets import WorstOptimum, worst_optimum
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.network.optimum import use_shortest_paths
from cg4ai.routing.operate.churn import ChurnLimit
from cg4ai.routing.operate.classical import best_static, equal_cost, find_cope, find_oblivious
from cg4ai.routing.operate.later_changes import judge_changes
from cg4ai.routing.pages.judged_traffic import LEARNED, LIMITED, OF_MEAN, OURS, PREVIOUS, STATIC
from cg4ai.routing.train.optimal import least_mlu_until

FIRST = 10  # later vectors that are solved whatever the time
LEAST_S = 1e-9  # what solving takes at least
MOST_SHOWN = 500  # later vectors that pages play, at most
MOST_VOLUMES = 250_000  # numbers of these vectors: about 1.3 MB of a page
CLIMBED = 5  # of the earlier vectors of largest optimum, searches for the worst start from so many


def compute_figures(ratios: Array) -> dict[str, float]:
    """Of ratios (n,): mean, 95th and 99th percentile, worst."""
    return {
        "mean": float(ratios.mean()),
        "p95": float(np.percentile(ratios, 95)),
        "p99": float(np.percentile(ratios, 99)),
        "worst": float(ratios.max()),
    }


class LaterComparison:
    """Routings on the later vectors, or as many of them as half of the time left allows to solve.

    `found` is for the summary, under `traffic`; `arrays` are MLUs at the vectors that were solved,
    the times of these, and some of them for pages to show (`later_vectors`, `later_shown` where
    they stand among the solved ones). `of_set` (k, D) are the vectors of the set among all solved
    ones, and that of the worst optimum found.
    """

    def __init__(
        self,
        instance: Instance,
        measured: MeasuredTraffic,
        review: Review,
        history: MeasuredHistory | None = None,
    ) -> None:
        self.instance, self.measured, self.history = instance, measured, history
        review.say("evaluating: later matrices")
        self.at, self.best = _solved(instance, measured.later, review)
        self.vectors = measured.later[self.at]
        self.inside = measured.find_inside(instance)
        self.of_set = self.vectors[self.inside[self.at]]
        self.ratios: dict[str, dict[str, float]] = {}
        self.found: dict[str, Any] = {
            "earlier": len(measured.earlier),
            "later": len(measured.later),
            "judged": len(self.at),
            "times": list(measured.times),
            "inside": float(self.inside.mean()),
            "silent": list(measured.silent),
            "drift": summarise_drift(
                ~self.inside,
                measure_excess(
                    instance.region, measured.later, instance.demand_names, instance.ends
                ),
            ),
            "elsewhere": measured.elsewhere,
            "partial": 0 if measured.partial is None else int(measured.partial.sum()),
            "level": instance.level,
            "ratio": self.ratios,
        }
        inside = self.inside[self.at].astype(np.float64)
        self.arrays: dict[str, NDArray[Any]] = {
            "later_optimal_mlu": self.best,
            "later_inside": inside,
            **pack_times(measured.later_times, self.at),
            **({} if history is not None else select_shown(self.vectors)),
        }

    def judge(self, name: str, router: Ensemble) -> None:
        """Add a router that is told each vector to the comparison."""
        self.judge_splits(name, router.predict(self.vectors, outside="ignore"))

    def judge_splits(self, name: str, splits: Array) -> None:
        """Add splits (n, P) of the solved vectors to the comparison."""
        mlu = self.instance.compute_utilisation(self.vectors, splits).max(axis=1)
        self.ratios[name] = compute_figures(mlu / self.best)
        if name == OURS:
            self.arrays["later_mlu"] = mlu
            inside = self.inside[self.at]
            if inside.any():
                self.found["ratio_inside"] = compute_figures((mlu / self.best)[inside])

    def judge_changes(self, limit: ChurnLimit, answer: Callable[[slice], Array]) -> dict[str, Any]:
        """What a bound on changes does to answers for all later vectors, in order of time.

        `answer` gives the splits of some of them.
        """
        judged = judge_changes(limit, self.measured.later, answer, inside=self.inside)
        ratio = compute_figures(judged.mlu[self.at] / self.best)
        self.arrays["later_held_mlu"] = judged.mlu[self.at]
        self.ratios[f"{OURS}, {LIMITED} {100 * limit.bound:.4g} %"] = ratio
        return judged.found

    def compare(self, review: Review) -> None:
        """Add classical routings, as far as time allows.

        Where windows are read, those that know no more: not COPE and oblivious routing, which are
        about the whole set and take longest.
        """
        if self.history is None:
            self._find_worst(review)
        for name, make in self._classical().items():
            known = review.run_step(name, make)
            if known is not None:
                mlu, chosen = known
                self.ratios[name] = compute_figures(mlu / self.best[chosen])
                if name == STATIC:
                    self.arrays["later_static_mlu"] = mlu

    def _find_worst(self, review: Review) -> None:
        instance, measured = self.instance, self.measured
        earlier = thin_vectors(measured.earlier, LEARNED)

        def find_worst() -> WorstOptimum:
            hardest = np.argsort(-instance.find_optimal(earlier).mlu)[:CLIMBED]
            return worst_optimum(instance, earlier[hardest])

        found = review.run_step("the worst optimum of the set", find_worst)
        if found is not None:
            self.found["worst_optimum"] = found.found
            self.of_set = np.concatenate([self.of_set, found.vector[None]])

    def _classical(self) -> dict[str, Callable[[], tuple[Array, IntArray]]]:
        """By name, what gives MLUs and the positions (n,) of the solved vectors that they are of.

        Those that take longest come last: a limit of time then leaves out no other.
        """
        instance, measured = self.instance, self.measured
        earlier = thin_vectors(measured.earlier, LEARNED)
        all_of_them = pick_evenly(len(self.at), len(self.at))

        def make_static(split: Callable[[], Array]) -> Callable[[], tuple[Array, IntArray]]:
            def compute_mlu() -> tuple[Array, IntArray]:
                loads = instance.compute_utilisation(self.vectors, split())
                return np.asarray(loads.max(axis=1)), all_of_them

            return compute_mlu

        def compute_shortest() -> tuple[Array, IntArray]:
            other = use_shortest_paths(instance)
            loads = other.compute_utilisation(self.vectors, equal_cost(other).split)
            return np.asarray(loads.max(axis=1)), all_of_them

        def make_guess(guess: Callable[[IntArray], Array]) -> Callable[[], tuple[Array, IntArray]]:
            """The optimum of what stands in for the vectors at some positions."""

            def compute_mlu() -> tuple[Array, IntArray]:
                chosen = pick_evenly(len(self.at), PREVIOUS)
                splits = instance.find_optimal(guess(self.at[chosen]), splits=True).splits
                assert splits is not None
                loads = instance.compute_utilisation(self.vectors[chosen], splits)
                return np.asarray(loads.max(axis=1)), chosen

            return compute_mlu

        before = np.concatenate([measured.earlier[-1:], measured.later])
        known = {
            "shortest paths (ECMP)": compute_shortest,
            STATIC: make_static(lambda: best_static(instance, earlier).split),
            "robust static split": make_static(lambda: instance.robust.split),
            "previous optimum": make_guess(lambda at: before[at]),
        }
        if self.history is not None:
            windows = self.history.windows
            return known | {OF_MEAN: make_guess(lambda at: windows[at].mean(axis=1))}
        ceiling = max(1.0, instance.level * (1 + 1e-6))
        return known | {
            "COPE": make_static(
                lambda: find_cope(instance, earlier, ceiling=ceiling, measure="utilisation").split
            ),
            "oblivious routing": make_static(lambda: find_oblivious(instance).split),
        }


def select_shown(vectors: Array) -> dict[str, NDArray[Any]]:
    """Vectors (m, D) evenly over time in 32 bits, as many as a page has room for, and which."""
    room = max(1, MOST_VOLUMES // max(1, vectors.shape[1]))
    shown = pick_evenly(len(vectors), min(MOST_SHOWN, room))
    return {"later_shown": shown, "later_vectors": vectors[shown].astype(np.float32)}


def pack_times(times: Sequence[str], at: IntArray) -> dict[str, NDArray[Any]]:
    """The times at these positions as rows of UTF-8 bytes, padded with zeros; none if unknown."""
    if not times:
        return {}
    packed = np.char.encode(np.asarray(times)[at], "utf-8")
    return {"later_times": packed.view(np.uint8).reshape(len(at), -1)}


def _solved(instance: Instance, later: Array, review: Review) -> tuple[IntArray, Array]:
    """Positions (n,) of vectors evenly over time, and their optimum: all, or what time allows."""
    at = pick_evenly(len(later), len(later))
    if not math.isinf(review.deadline.ends):
        few, started = pick_evenly(len(later), FIRST), clock.now()
        known = least_mlu_until(instance, later[few], Deadline())
        pace = max(clock.now() - started, LEAST_S) / len(few)
        half = Deadline.after(review.deadline.compute_seconds_left() / 2)
        at = pick_evenly(len(later), max(FIRST, int(half.compute_seconds_left() / pace)))
        best = least_mlu_until(instance, later[at], half)
        if len(best) < len(few):
            at, best = few, known
        if len(best) < len(later):
            review.cut.append(f"later matrices, to {len(best)} of {len(later)}")
        return at[: len(best)], best
    return at, instance.find_optimal(later).mlu
