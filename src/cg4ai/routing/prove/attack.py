"""The attack on a trained router: how hard it was searched for overloads, and what was found."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from cg4ai import Ensemble, clock
from cg4ai.clock import Deadline, Review
from cg4ai.colgen import BlackBox, GradientAscent, region_violations
from cg4ai.data import Array
from cg4ai.guarantees import Strength
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.problem import capacity
from cg4ai.rules import Linear

FEASIBLE = 1 + 1e-6  # the highest utilisation that still counts as kept
UNROUTED = 1e-9  # by so much the shares of a demand may miss one, by rounding
ATTACK_STARTS, ATTACK_STEPS = 64, 60  # of gradient ascent, for each link
ATTACK_VECTORS = 10_000  # drawn at random
NLOPT_STARTS = 10  # the worst of what was found
ALL_VERTICES = 20  # up to so many demands every vertex of the box is looked at


@dataclass(frozen=True)
class Attack:
    """The highest utilisation found, where, and the effort in numbers.

    `hurried`: the time was over before NLopt had ended. `links` (A,): the highest found of each.
    """

    worst_utilisation: float
    demands: Array
    arc: tuple[str, str]
    found_by: str
    effort: dict[str, int | str]
    hurried: bool = False
    links: Array = field(default_factory=lambda: np.zeros(0), repr=False)

    @property
    def strength(self) -> Strength:
        """What the search alone establishes."""
        kept = self.worst_utilisation <= FEASIBLE
        return Strength.ATTACKED if kept else Strength.VIOLATED


def attack(
    instance: Instance,
    ensemble: Ensemble,
    *,
    seed: int,
    starts: int = ATTACK_STARTS,
    steps: int = ATTACK_STEPS,
    random: int = ATTACK_VECTORS,
    nlopt_starts: int = NLOPT_STARTS,
    vertices: int = 2**ALL_VERTICES,
    deadline: Deadline | None = None,
) -> Attack:
    """Search the whole box: ascent per arc, vertices, random vectors, NLopt from the worst.

    Values are recomputed in float64 from predictions. With a deadline NLopt, whose steps take long
    where demands are many, gets half of the time that is left then. A search is no proof.
    """
    requirement: Linear = capacity(instance, Recipe(device=str(ensemble.device)))
    requirement.check(ensemble.input_size, ensemble.output_size)
    vertices = min(vertices, 2 ** min(len(instance.demand_max), ALL_VERTICES))
    ascent = GradientAscent(starts=starts, steps=steps, vertices=vertices)
    climbed = ascent.find(ensemble, requirement, seed=seed, limit=nlopt_starts, tolerance=-np.inf)
    points = [instance.sample(random, seed)]
    assert climbed.rows is not None
    points.append(climbed.rows.inputs)
    names = ["random vectors", "gradient ascent and vertices"]
    worst = region_violations(ensemble, requirement, climbed.rows.inputs)
    rules = worst.argmax(axis=1)
    seconds = math.inf if deadline is None else deadline.compute_seconds_left() / 2 / len(rules)
    nlopt = BlackBox(starts=1, evaluations=300, seconds=seconds)
    climbing = clock.now()
    points.append(nlopt.climb(ensemble, requirement, climbed.rows.inputs, rules))
    names.append("NLopt from the worst")
    hurried = clock.now() - climbing >= seconds
    values = [region_violations(ensemble, requirement, part) for part in points]
    best = int(np.argmax([part.max() for part in values]))
    where, arc = np.unravel_index(int(values[best].argmax()), values[best].shape)
    return Attack(
        worst_utilisation=1.0 + float(values[best].max()),
        demands=points[best][where],
        arc=instance.arcs[int(arc)],
        found_by=names[best],
        effort={
            "ascent_starts": int(climbed.effort["starts"]),
            "ascent_starts_per_arc": starts,
            "ascent_steps": steps,
            "vertices": vertices,
            "random_vectors": random,
            "nlopt_starts": len(rules),
            "seed": seed,
        },
        hurried=hurried,
        links=1.0 + np.max([part.max(axis=0) for part in values], axis=0),
    )


def timed_attack(instance: Instance, ensemble: Ensemble, *, seed: int, review: Review) -> Attack:
    """The attack with the usual effort; under a time limit the part that fits.

    The worst of all that was found is kept, with the effort of the last portion.
    """
    found: Attack | None = None
    for share in review.iterate_portions("attack"):
        now = attack(
            instance,
            ensemble,
            seed=seed,
            starts=_part(ATTACK_STARTS, share),
            steps=ATTACK_STEPS,
            random=_part(ATTACK_VECTORS, share),
            nlopt_starts=_part(NLOPT_STARTS, share),
            vertices=_part(2**ALL_VERTICES, share),
            deadline=review.deadline,
        )
        before = now if found is None else found
        worst = max(now, before, key=lambda one: one.worst_utilisation)
        links = np.maximum(now.links, before.links)
        found = replace(worst, effort=now.effort, hurried=now.hurried, links=links)
    assert found is not None
    if found.hurried:
        review.cut.append("NLopt, to the time that was left for it")
    return found


def _part(whole: int, share: float) -> int:
    return max(1, math.ceil(whole * share))
