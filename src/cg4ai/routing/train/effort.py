"""How much large instances get of what takes longer with every path: vectors, steps, rates.

Up to about 75 paths everything is as it was found best there. Beyond, what is done at many demand
vectors is done at fewer: their links' loads are sums over so many demands that single vectors
differ less, and a program of thousands of paths takes a hundredth of a second.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cg4ai.routing.network.instance import Instance

LEAST_VECTORS = 100
# beyond so many paths in all, as of several thousand demands, it is fewer again: a program of all
# of them takes seconds
MANY_PATHS, FEWEST_VECTORS = 20_000, 20
# vectors times paths: of linear programs, and of predictions
SOLVED, PRICED, TIMED, SCENARIOS = 2_000_000, 900_000, 400_000, 300_000
SCREENED, SHIELDED, CLIMBED = 4_000_000, 4_000_000, 400_000
VALIDATION, SHIELD_INPUTS, TIMED_VECTORS = 10_000, 20_000, 1000  # where paths are few
TIGHT_VECTORS = 1000  # near where links are full, to compare with plain networks
JUDGED, JUDGED_PATHS = 500, 200_000  # vectors of each further mix of demands, and times paths
NETWORK_VECTORS, NETWORK_PATHS = 500, 100_000  # beside routing over all paths, and times paths
MOST_SKIPPED = 100_000  # weights of a linear path from all demands to all splits
MOST_FEEDBACK = 2_000_000  # weights of what answers all links by all paths, for each stage
RESTARTS, RESTARTED_PATHS = 8, 40_000  # of an estimate, and times paths
FEW_STEPS, STEPS_EACH = 3000, 375
LARGE_STEPS, LEAST_STEPS, MORE_STEPS, MOST_STEPS = 200_000, 500, 0.7, 1500
LATER = 6  # a later network takes one of so many steps
RATE, LEAST_RATE, FEW_DEMANDS = 0.02, 0.01, 30
# vectors of a step, of several mixes of demands or of one; of a wide one so many times more, of
# which there are fewer
MIXED_BATCH, BATCH = 384, 256
BATCH_DEMANDS, LEAST_BATCH = 2_000_000, 32  # vectors times demands at most, and vectors at least
WIDE_BATCH, WIDE_STEPS, WIDE_RATE = 4, 2, 1.5

# demands up to which a proof takes few cells, and beyond which each member of a group is one too
# many; steps of the first group of a certified run
FEW_CELLS, MANY_CELLS = 5, 10
MOST_FIRST, LEAST_FIRST, FEWER_FIRST = 3000, 1500, 200


def count_affordable(wanted: int, budget: int, paths: int) -> int:
    """Demand vectors: as many as wanted, or so many that with paths they stay within the budget."""
    least = max(FEWEST_VECTORS, LEAST_VECTORS * MANY_PATHS // max(paths, MANY_PATHS))
    return min(wanted, max(least, budget // paths))


def count_climbs(wanted: int, instance: Instance) -> int:
    """Starts of an ascent for each link."""
    paths, arcs = instance.incidence.shape
    return max(1, min(wanted, int(CLIMBED // (paths * arcs))))


def joint_steps(demands: int, *, wide: bool = False) -> int:
    """Of a network for all demands: 3,000 and 375 for each demand, fewer again beyond 19.

    Beyond five hundred they rise once more: so many parameters take longer to find their places.
    From about two thousand on each step takes longer instead.
    """
    slow = min(MOST_STEPS, round(MORE_STEPS * demands))
    large = max(LEAST_STEPS, LARGE_STEPS // demands, slow)
    steps = min(FEW_STEPS + STEPS_EACH * demands, large)
    return steps // WIDE_STEPS if wide else steps


def joint_batch(*, mixed: bool = True, wide: bool = False, demands: int = 1) -> int:
    """Vectors of one step; `mixed`: drawn from several mixes of demands, which takes more.

    Of thousands of demands fewer, so that a step takes a bounded number of figures.
    """
    usual = (MIXED_BATCH if mixed else BATCH) * (WIDE_BATCH if wide else 1)
    return max(LEAST_BATCH, min(usual, BATCH_DEMANDS // demands))


def joint_rate(demands: int, *, wide: bool = False) -> float:
    """The learning rate of such a network: what suits few demands makes hundreds swing."""
    rate = max(LEAST_RATE, RATE * min(1.0, math.sqrt(FEW_DEMANDS / demands)))
    return rate * WIDE_RATE if wide else rate


def is_joint_wide(demands: int, device: str) -> bool:
    """Whether it takes large batches: on a GPU they cost nothing, and half the steps are enough."""
    return device.startswith("cuda") and demands <= FEW_DEMANDS


def certified_group(demands: int) -> int:
    """Members of each demand that are trained together for a proof; each makes cells dearer."""
    return 3 if demands <= MANY_CELLS else 2


def certified_hidden(demands: int) -> tuple[int, ...]:
    """Hidden units of each member: where proofs take few cells they may be many."""
    return (32,) if demands <= FEW_CELLS else (16,)


def certified_steps(demands: int) -> int:
    """Of the first group; later ones, trained on cells, improve the objective, too."""
    return max(LEAST_FIRST, MOST_FIRST - FEWER_FIRST * max(0, demands - FEW_CELLS))


def count_restarts(paths: int) -> int:
    """Networks that are trained at once to estimate how far from optimal a run is."""
    return max(1, min(RESTARTS, RESTARTED_PATHS // paths))


def has_choice(instance: Instance) -> bool:
    """Whether any demand has two paths: in a tree there is nothing to learn."""
    return len(instance.path_demand) > len(instance.demand_max)


def has_gains(instance: Instance) -> bool:
    """Whether feedback is a number for each path: a matrix of paths and links would be too large.

    Its parameters would then be most of the network, and take most of a step.
    """
    return instance.incidence.size > MOST_FEEDBACK


def has_skip(instance: Instance) -> bool:
    """Whether it has a linear path: of no use for many demands, where it would cost most."""
    return len(instance.demand_max) * len(instance.path_demand) <= MOST_SKIPPED
