"""Single answers of a router with a proven distance from the optimum, improved where it is large.

A run stores prices of links from dual solutions of the routing program. Whatever they are, prices
w >= 0 that sum to one prove that no routing of demands b has a maximum link utilisation below the
sum over demands of b_d times what their cheapest path costs; a few hundred of them come close to
the optimum nearly everywhere, and take a matrix product instead of a linear program.

Answers above the distance asked for are improved by a few steps of entropic mirror descent, many
at once, and what is left by the linear program. So are all of vectors outside the set, for which
nothing was trained or proven.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from cg4ai import Ensemble, Problem, clock
from cg4ai.apps import Answers
from cg4ai.colgen import Epigraph, predictions
from cg4ai.data import Array, IntArray
from cg4ai.errors import InvalidInput
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.prove.attack import FEASIBLE
from cg4ai.routing.train.effort import PRICED, SCREENED, count_affordable
from cg4ai.routing.train.optimal import SplitProgram, arc_prices, dual_prices
from cg4ai.routing.train.rare_demands import GapTail

PRICES = "arc_prices"  # what an ensemble says of itself: prices of links
FALLBACK = "fallback"  # the same: the proven gap above which its answers are improved or solved
MOST_STORED = 2**18  # numbers: what a run stores of prices at most
AT_ONCE = 2**22  # numbers of products that are held at once
# steps of mirror descent between two looks at what is near enough, and how often
STEPS, LOOKS = 10, 4
STEP, SHARPNESS, LEAST_SHARE = 0.1, 100.0, 1e-6
# where prices are looked for: at vectors with a gap of more than this, so many of so many
LOOSE, SOLVED_AT_ONCE, LOOKED_AT, ROUNDS = 0.01, 400, 20_000, 4
WORTH = 1e-3  # what new prices must prove more, as a share, at some vector
ROUNDING = 1e-6  # by which shares may miss their sum, or be below 0
TINIEST = -500  # power of two of the largest demand, below which numbers lose digits
SOLVABLE = 1e9  # times the largest demand: far beyond it the solver takes demands for infinite


class LowerBound:
    """What the optimum is at least, by prices of links (k, A)."""

    def __init__(self, instance: Instance, arc_prices: Array) -> None:
        prices = np.asarray(arc_prices, np.float64)
        if (
            prices.ndim != 2
            or prices.shape[1] != len(instance.arcs)
            or not np.isfinite(prices).all()
        ):
            raise InvalidInput(
                f"prices of links must be finite and (k, {len(instance.arcs)}), got {prices.shape}",
                code="not-finite",
            )
        total = prices.sum(axis=1)
        if (prices < 0).any() or not (total > 0).all():
            raise InvalidInput(
                "prices of links must be at least 0, and not all of a vector 0", code="range"
            )
        per_path = (prices / total[:, None]) @ (instance.incidence / instance.capacity).T
        cheapest = [per_path[:, block].min(axis=1) for block in instance.blocks]
        self.prices: Array = np.stack(cheapest, axis=1)

    def __call__(self, vectors: Array) -> Array:
        """(n, D) -> (n,)."""
        parts = [proven.max(axis=1) for proven in self._each(vectors)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def count_uses(self, vectors: Array) -> IntArray:
        """(k,): at how many vectors (n, D) each proves most."""
        counts = np.zeros(len(self.prices), np.int64)
        for proven in self._each(vectors):
            counts += np.bincount(proven.argmax(axis=1), minlength=len(counts))
        return counts

    def _each(self, vectors: Array) -> Iterator[Array]:
        """What each price proves, (rows, k), some vectors at a time."""
        step = max(1, AT_ONCE // len(self.prices))
        for first in range(0, len(vectors), step):
            yield vectors[first : first + step] @ self.prices.T


def improve_answers(
    instance: Instance,
    vectors: Array,
    splits: Array,
    *,
    bound: LowerBound | None,
    fallback: float = np.inf,
    outside: NDArray[np.bool_] | None = None,
    program: SplitProgram | None = None,
    finish: Callable[[Array, Array], Array] | None = None,
) -> Answers:
    """The router's splits (n, P) of vectors (n, D), others where the gap is above `fallback`.

    Without a bound nothing is known of gaps, and all are solved where a fallback is given; so are
    those `outside` (n,), whatever their gap. `program`: for whoever asks more than once.
    `finish`: what is done to splits (n, P) of vectors (n, D) at the end, such as rounding; gaps are
    of what it gives.
    """
    if not fallback >= 0:
        raise InvalidInput(
            f"fallback must be a gap of at least 0, such as 0.02, got {fallback}", code="range"
        )
    given, (vectors, lifted) = vectors, _lifted(vectors)
    reached = instance.compute_utilisation(vectors, splits).max(axis=1)
    # less than all of a demand, or less than nothing over a path, is no routing
    reached[~_routed(instance, splits)] = np.nan
    least = np.zeros(len(vectors)) if bound is None else bound(vectors)
    improved, solved = np.zeros((2, len(vectors)), bool)
    gaps = _gaps(reached, least)
    beyond = np.zeros(len(vectors), bool) if outside is None else outside
    above = np.flatnonzero((gaps > fallback) | beyond)
    if len(above):  # most single answers end before this
        splits = splits.copy()
        far = above[~beyond[above] & (least[above] > 0) & (reached[above] > 0)]
        if len(far):
            splits[far], now = _nearer(
                instance, vectors[far], splits[far], least[far], aim=fallback
            )
            improved[far], reached[far] = now < reached[far], now
            above = above[beyond[above] | (_gaps(reached[above], least[above]) > fallback)]
        _refuse_unsolvable(instance, given[above])
    if len(above):
        program = SplitProgram(instance) if program is None else program
        found, prices = program.solve(vectors[above])
        now = instance.compute_utilisation(vectors[above], found).max(axis=1)
        # small demands may be lost in the solver's tolerance: its word is no proof, its prices are
        least[above] = np.maximum(least[above], _proven_by(instance, prices, vectors[above]))
        lower = ~(now >= reached[above])  # than no number, too
        chosen = above[lower]
        splits[chosen], reached[chosen] = found[lower], now[lower]
        improved[chosen], solved[chosen] = False, True
    if finish is not None:
        splits = finish(given, splits)
        reached = instance.compute_utilisation(vectors, splits).max(axis=1)
    if finish is not None or improved.any() or len(above):
        gaps = _gaps(reached, least)
    overloaded = ~(reached <= FEASIBLE) & ~lifted
    return Answers(splits, gaps, improved, solved, overloaded)


def _refuse_unsolvable(instance: Instance, vectors: Array) -> None:
    """An error that names the first demand of vectors (n, D) that no program can be solved for."""
    beyond = np.argwhere(vectors > SOLVABLE * instance.demand_max)
    if len(beyond):
        row, demand = beyond[0].tolist()
        raise InvalidInput(
            f"demand {instance.demand_names[demand]} is {vectors[row, demand]:g}, more than "
            f"{SOLVABLE:g} times its largest, which is beyond the precision of the solver; correct "
            "it, or ask for no fallback",
            code="range",
        )


def _lifted(vectors: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Vectors (n, D), the tiniest times powers of two, and which (n,) these are.

    No gap changes by that, and no product vanishes.
    """
    power = np.frexp(vectors.max(axis=1, initial=0.0))[1]
    tiny = power < TINIEST
    return np.asarray(np.ldexp(vectors, np.where(tiny, -power, 0)[:, None])), tiny


def _routed(instance: Instance, splits: Array) -> NDArray[np.bool_]:
    """(n,): whether splits (n, P) send all of every demand, and nothing backwards."""
    sums = np.add.reduceat(splits, instance.starts, axis=1)
    whole = (np.abs(sums - 1) <= ROUNDING).all(axis=1) & (splits >= -ROUNDING).all(axis=1)
    return np.asarray(whole)


def _proven_by(instance: Instance, prices: Array, vectors: Array) -> Array:
    """(n,): what the optimum of each vector (n, D) is at least, by prices (n, A) of its own."""
    known = prices.sum(axis=1) > 0
    least = np.zeros(len(vectors))
    if known.any():
        least[known] = (LowerBound(instance, prices[known]).prices * vectors[known]).sum(axis=1)
    return least


def _gaps(reached: Array, least: Array) -> Array:
    """How far MLUs (n,) are above their lower bounds (n,), as shares."""
    known = ((least > 0) | (reached == 0)) & np.isfinite(reached)  # of no number nothing is known
    above = np.maximum(reached / np.where(least > 0, least, 1.0) - 1, 0)
    return np.where(known, above, np.inf)


def _nearer(
    instance: Instance, vectors: Array, splits: Array, least: Array, *, aim: float
) -> tuple[Array, Array]:
    """Splits (n, P) of less MLU by mirror descent from given ones, and what they reach (n,).

    A step multiplies each share by exp(-step x what the path adds to a soft maximum of loads). The
    best splits met are kept, so nothing gets worse; those within `aim` take no further steps.
    """
    per_flow, demand = instance.incidence / instance.capacity, instance.path_demand
    starts = instance.starts
    scores, flows = np.log(np.maximum(splits, LEAST_SHARE)), vectors[:, demand]
    loads = (flows * splits) @ per_flow
    best, reached, left = splits.copy(), loads.max(axis=1), np.arange(len(vectors))
    for number in range(STEPS * LOOKS):
        top = loads.max(axis=1, keepdims=True)
        soft = np.exp(SHARPNESS * (loads / top - 1))
        slope = flows * (soft @ per_flow.T) / (top * soft.sum(axis=1, keepdims=True))
        scores -= STEP / (1 + number / STEPS) * slope
        shares = _shares(scores, starts, demand)
        loads = (flows * shares) @ per_flow
        now = loads.max(axis=1)
        lower = now < reached[left]
        best[left[lower]], reached[left[lower]] = shares[lower], now[lower]
        if (number + 1) % STEPS == 0:
            on = _gaps(reached[left], least[left]) > aim
            left, scores, flows, loads = left[on], scores[on], flows[on], loads[on]
            if not len(left):
                break
    return best, reached


def _shares(scores: Array, starts: NDArray[np.int64], demand: NDArray[np.int64]) -> Array:
    """Softmax (n, P) of scores within each demand, whose paths are neighbours."""
    scores = scores - np.maximum.reduceat(scores, starts, axis=1)[:, demand]
    powers = np.exp(scores)
    return np.asarray(powers / np.add.reduceat(powers, starts, axis=1)[:, demand])


def get_known_prices(problem: Problem) -> Array | None:
    """Prices of links (k, A) that training has found already."""
    tail = problem.objective.tail if isinstance(problem.objective, Epigraph) else None
    return tail.least.arc_prices if isinstance(tail, GapTail) else None


def compute_stored_prices(
    instance: Instance, router: Ensemble, known: Array | None = None, *, seed: int
) -> list[list[float]]:
    """Prices of links (k, A) by which later answers are compared with the optimum.

    From `known` ones of these links, whatever they were found for, or of vectors that are drawn; at
    most `MOST_STORED` numbers, of those that prove most at most vectors.
    """
    paths, arcs = instance.incidence.shape
    if known is not None:
        known = known[known.sum(axis=1) > 0]
    if known is None or not len(known):
        drawn = instance.sample(count_affordable(SOLVED_AT_ONCE, PRICED, paths), seed)
        known = arc_prices(instance, drawn)
    if not len(known):
        return []

    def splits(vectors: Array) -> Array:
        return np.asarray(predictions(router, vectors).cpu().numpy())

    found = further_prices(instance, known, splits, seed=seed)
    most = max(1, MOST_STORED // arcs)
    if len(found) > most:
        vectors = instance.sample(count_affordable(LOOKED_AT, SCREENED, paths), seed)
        used = LowerBound(instance, found).count_uses(vectors)
        found = found[np.sort(np.argsort(-used, kind="stable")[:most])]
    listed: list[list[float]] = found.tolist()
    return listed


def further_prices(
    instance: Instance, arc_prices: Array, splits_of: Callable[[Array], Array], *, seed: int
) -> Array:
    """Prices (k, A) and those of vectors at which they prove too little of a router's answers.

    `splits_of`: (n, D) -> (n, P). What is solved has a gap by the given prices, so that where the
    router is near the optimum and they show it, nothing is.
    """
    paths = len(instance.path_demand)
    count, most = (
        count_affordable(LOOKED_AT, SCREENED, paths),
        count_affordable(SOLVED_AT_ONCE, PRICED, paths),
    )
    for number in range(ROUNDS):
        if number and clock.review().deadline.passed:
            break  # prices are given without it, too, and the next round would have been noted
        vectors = instance.sample(count, seed + number)
        reached = instance.compute_utilisation(vectors, splits_of(vectors)).max(axis=1)
        least = LowerBound(instance, arc_prices)(vectors)
        loose = np.flatnonzero(_gaps(reached, least) > LOOSE)[:most]
        if not len(loose):
            break
        found = dual_prices(instance, vectors[loose])[1]
        found = found[found.sum(axis=1) > 0]
        if not len(found):
            break
        new = LowerBound(instance, found)
        proven = vectors[loose] @ new.prices.T
        worth = np.unique(proven.argmax(axis=1)[proven.max(axis=1) > (1 + WORTH) * least[loose]])
        if not len(worth):
            break
        arc_prices = np.concatenate([arc_prices, found[worth]])
    return arc_prices
