"""The shield of a router: no link above capacity at any demand vector, and how often it acts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from cg4ai import Ensemble
from cg4ai.colgen import BlackBox, GradientAscent, derive_seed, generator, predictions
from cg4ai.data import Array
from cg4ai.guarantees import ShieldedEnsemble, record_audited
from cg4ai.routing.demands.sets import FreshDemands
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.pages.link_loads import WorstLoads
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.anchors import anchor, worst_vectors
from cg4ai.routing.train.effort import SHIELDED, count_affordable, count_climbs
from cg4ai.routing.train.problem import capacity
from cg4ai.rules import Box, Linear

SAMPLES = 300  # demand vectors over which the anchor's mean MLU is least
STARTS = 8  # of an ascent for each link
KINDS = ("box", "corner", "vertices", "ascent")


def shield(instance: Instance, ensemble: Ensemble, *, seed: int = 0) -> ShieldedEnsemble:
    """The router, moved towards a constant split where it would overload a link.

    The anchor loads the corner of the box as little as possible, and among such splits has the
    least mean MLU: the more room it has at the corner, the less of it is needed. Load grows with
    the demands under a constant split, so what it keeps at the corner it keeps in the whole box.
    """
    sample = instance.sample(SAMPLES, derive_seed(seed, 0, "shield"))
    return ensemble.apply_shield(
        anchor(instance, sample, reserve=1.0), _capacity(instance, ensemble)
    )


def record_cuts(instance: Instance, ensemble: Ensemble, demands: Array) -> int:
    """Note which of these demand vectors (k, D), violated while training, the router now keeps.

    Returns how many; `predict(..., explain=True)` labels them "audited".
    """
    return record_audited(ensemble, _capacity(instance, ensemble), inputs=demands)


def _capacity(instance: Instance, ensemble: Ensemble) -> Linear:
    return capacity(instance, Recipe(device=str(ensemble.device)))


@dataclass(frozen=True, kw_only=True)
class ShieldReport:
    """What the shield does; gaps are mean MLU minus the least possible, on validation.

    acting: share of validation vectors on which theta > 0; mean_theta, largest_theta: over those,
    0 if there are none. adversarial_acting: the same share among the `inputs` adversarial and
    random vectors, on which worst and worst_unshielded are the highest utilisations and unrouted is
    how far the shares of a demand are from summing to one. links (A,): the highest utilisation of
    each link there, and vector (D,): where one of them is fullest.
    """

    acting: float
    mean_theta: float
    largest_theta: float
    mean_gap: float
    mean_gap_unshielded: float
    inputs: int
    adversarial_acting: float
    worst: float
    worst_unshielded: float
    unrouted: float
    links: Array = field(repr=False)
    vector: Array = field(repr=False)

    def to_summary(self) -> dict[str, Any]:
        """What a summary holds of it."""
        arrays = ("links", "vector")
        return {name: value for name, value in asdict(self).items() if name not in arrays}


def measure_shield(
    instance: Instance,
    shielded: Ensemble,
    *,
    vectors: Array,
    best: Array,
    inputs: int = 20_000,
    seed: int = 0,
    reached: Array | None = None,
) -> ShieldReport:
    """Measure at vectors (n, D) of known least MLU `best` (n,), and at `inputs` adversarial ones.

    Utilisations are recomputed from splits by the instance itself. `reached`: what
    `find_by_ascent` gave for the same seed, for whoever measures more than once.
    """
    mixture = shielded.unshielded
    theta = _theta(shielded, vectors)
    gaps = [
        float((_mlu(instance, router, vectors) - best).mean()) for router in (shielded, mixture)
    ]
    attacked = sample_adversarial(instance, shielded, inputs, seed=seed, reached=reached)
    worst = WorstLoads(instance)
    splits = predictions(shielded, attacked).numpy()
    worst.update(attacked, splits)
    assert worst.vector is not None
    return ShieldReport(
        acting=float((theta > 0).mean()),
        mean_theta=float(theta[theta > 0].mean()) if theta.any() else 0.0,
        largest_theta=float(theta.max()),
        mean_gap=gaps[0],
        mean_gap_unshielded=gaps[1],
        inputs=len(attacked),
        adversarial_acting=float((_theta(shielded, attacked) > 0).mean()),
        worst=float(worst.links.max()),
        worst_unshielded=float(_mlu(instance, mixture, attacked).max()),
        unrouted=instance.compute_unrouted(splits),
        links=worst.links,
        vector=worst.vector,
    )


def sample_adversarial(
    instance: Instance,
    shielded: Ensemble,
    count: int,
    *,
    seed: int,
    reached: Array | None = None,
    brief: bool = False,
) -> Array:
    """`count` demand vectors (count, D), a quarter of each of `KINDS`.

    Uniform in the set; within 5 % of its edge (of the corner of a box); vertices; and points that
    ascent reached on the mixture and on the shielded router, with neighbours at distances from 1e-9
    to 0.1 of the set.
    """
    made = np.random.default_rng(derive_seed(seed, 0, "shield attack"))
    each = [len(part) for part in np.array_split(np.arange(count), len(KINDS))]
    if reached is None:
        reached = find_by_ascent(instance, shielded, seed=seed, brief=brief)
    chosen = reached[made.integers(len(reached), size=each[3])]
    distance = 10.0 ** made.uniform(-9, -1, (each[3], 1))
    distance[: len(reached)] = 0.0
    chosen[: len(reached)] = reached[: each[3]]
    region = instance.region
    lower, upper = region.bounds()
    near = chosen + distance * made.normal(size=chosen.shape) * (upper - lower)
    # what is inside stays as it is, so that vectors that ascent reached do
    near = region.pull(torch.as_tensor(near)).numpy()
    if isinstance(region, Box):
        width = upper - lower
        return np.concatenate(
            [
                lower + made.uniform(0, 1, (each[0], region.size)) * width,
                upper - 0.05 * made.uniform(0, 1, (each[1], region.size)) * width,
                np.where(made.integers(0, 2, (each[2], region.size)) > 0, upper, lower),
                near,
            ]
        )
    drawn = generator(derive_seed(seed, 0, "shield attack"))
    ends = region.extremes(each[2], drawn).numpy()
    edge = FreshDemands(region, edge=1.0)(each[1] + each[2] - len(ends), drawn).numpy()
    return np.concatenate([region.sample(each[0], drawn).numpy(), edge, ends, near])


def edge_vectors(instance: Instance) -> Array:
    """Where links are likely to be full: the corner of a box, or what loads a link of a polytope
    most under the best constant split (k, D).
    """
    if isinstance(instance.region, Box):
        return instance.demand_max[None]
    return worst_vectors(instance, instance.robust.split).vectors


def find_by_ascent(
    instance: Instance, shielded: Ensemble, *, seed: int, brief: bool = False
) -> Array:
    """Where links are likely to be full, and where ascent on both routers found one nearly full.

    `brief`: on the shielded router alone, from one start for each link.
    """
    requirement = _capacity(instance, shielded)
    requirement.check(shielded.input_size, shielded.output_size)
    starts, most, steps = (1, 256, 10) if brief else (STARTS, 4096, 25)
    vertices = count_affordable(most, SHIELDED, len(instance.path_demand))
    climb = GradientAscent(starts=count_climbs(starts, instance), steps=steps, vertices=vertices)
    flat = BlackBox(starts=1, evaluations=50, vertices=min(64, vertices))  # trees have no slope
    found = [
        (climb if router.differentiable else flat).find(
            router, requirement, seed=seed, limit=1000, tolerance=-0.02
        )
        for router in ((shielded,) if brief else (shielded.unshielded, shielded))
    ]
    points = [edge_vectors(instance), *(one.rows.inputs for one in found if one.rows)]
    return np.concatenate(points)


def _theta(shielded: Ensemble, vectors: Array) -> Array:
    """(n,): the share of the constant split in what is predicted."""
    return np.asarray(shielded.predict(vectors, explain=True).theta)


def _mlu(instance: Instance, router: Ensemble, vectors: Array) -> Array:
    splits = predictions(router, vectors).numpy()
    return np.asarray(instance.compute_utilisation(vectors, splits).max(axis=1))
