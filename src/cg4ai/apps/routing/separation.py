"""The attack on a trained router: how hard it was searched for overloads, and what was found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cg4ai.apps.routing.data import Instance
from cg4ai.apps.routing.problem import Recipe, capacity
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.records import Array
from cg4ai.rules import Linear
from cg4ai.rules.evaluation import region_violations
from cg4ai.separation import BlackBox, GradientAscent

FEASIBLE = 1 + 1e-6  # the highest utilisation that still counts as kept
ALL_VERTICES = 20  # up to so many demands every vertex of the box is looked at


@dataclass(frozen=True)
class Attack:
    """The highest utilisation found, where, and the effort in numbers."""

    worst_utilisation: float
    demands: Array
    arc: tuple[str, str]
    found_by: str
    effort: dict[str, int | str]

    @property
    def strength(self) -> str:
        """What the search alone establishes: "attacked", or "violated" by what it found."""
        return "attacked" if self.worst_utilisation <= FEASIBLE else "violated"


def attack(
    instance: Instance,
    ensemble: Ensemble,
    *,
    seed: int,
    starts: int = 64,
    steps: int = 60,
    random: int = 10_000,
    nlopt_starts: int = 10,
) -> Attack:
    """Search the whole box: ascent per arc, all vertices, random vectors, NLopt from the worst.

    Values are recomputed in float64 from predictions. A search is no proof.
    """
    requirement: Linear = capacity(instance, Recipe(device=str(ensemble.device)))
    requirement.check(ensemble.input_size, ensemble.output_size)
    count = len(instance.demand_max)
    vertices = 2 ** min(count, ALL_VERTICES)
    ascent = GradientAscent(
        starts=starts, steps=steps, vertices=vertices, device=str(ensemble.device)
    )
    climbed = ascent.find(ensemble, requirement, seed=seed, limit=nlopt_starts, tolerance=-np.inf)
    points = [instance.sample(random, seed)]
    assert climbed.rows is not None
    points.append(climbed.rows.inputs)
    names = ["random vectors", "gradient ascent and vertices"]
    worst = region_violations(ensemble, requirement, climbed.rows.inputs)
    rules = worst.argmax(axis=1)
    nlopt = BlackBox(starts=1, evaluations=300)
    # one input at a time is quicker on a CPU
    points.append(nlopt.climb(ensemble.to("cpu"), requirement, climbed.rows.inputs, rules))
    names.append("NLopt from the worst")
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
    )
