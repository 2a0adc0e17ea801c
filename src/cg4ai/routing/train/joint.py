"""Networks that split all demands: what `cg4ai route` trains, and the pricer that trains them.

Their answers are corrected by the loads that they cause (`members/feedback.py`). Behind a shield
they are moved towards a constant split where they would overload a link (`members/shielded.py`), so
every member keeps the capacities in the whole box, and every mixture of such members does; without
one the capacities are rows of the master.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from cg4ai import clock
from cg4ai.colgen import (
    ArchitecturePricer,
    GradientPricer,
    PricingRequest,
    PricingResult,
    Probe,
    Training,
)
from cg4ai.data import Array
from cg4ai.guarantees import AffineMap, check_given
from cg4ai.members import (
    Architecture,
    ConstantMembers,
    FeedbackArchitecture,
    Loads,
    NetworkArchitecture,
    Shield,
    ShieldedArchitecture,
)
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.train.anchors import anchor
from cg4ai.routing.train.effort import has_gains, has_skip
from cg4ai.routing.train.optimal import utilisation_per_share
from cg4ai.rules import Linear, guard_of

STAGES = 3  # how often a network corrects its splits by the loads that they cause
FIRST_ANSWER = 0.3  # how strongly an untrained network answers the fullest link
LEAST_S = 1e-9  # what steps take at least
TIMED = 20  # steps that are timed where time is limited
SHARE_OF_TIME = 0.8  # of what is left then, for a training that is slower than these
HARD = 0.2  # of every batch: vectors at which what is in training is furthest from the optimum
EASY = 0.3  # share of the first training before they are searched for
BLEND = 0.5  # tau: the share of the network in training in the mixture whose loss is minimised


def joint_network(
    instance: Instance, *, hidden: tuple[int, ...], stages: int = STAGES
) -> FeedbackArchitecture:
    """All demands in, the splits of all demands out."""
    lower, upper = instance.region.bounds()
    network = NetworkArchitecture(
        len(upper),
        len(instance.path_demand),
        hidden=hidden,
        activation="relu",
        skip=has_skip(instance),
        output="grouped",
        groups=tuple(len(block) for block in instance.blocks),
        shift=(lower + upper) / 2,
        scale=(upper - lower) / np.sqrt(12),
    )
    full = utilisation_per_share(instance)  # (paths, links) at the largest demands
    loads = Loads((instance.incidence / instance.capacity).T, instance.path_demand)
    first, gains = -FIRST_ANSWER * full / full.max(), has_gains(instance)
    if gains:  # of a path's links one number is the size of all
        first = first.min(axis=1)
    return FeedbackArchitecture(network, loads, stages=stages, first=first, gains=gains)


def capacity_shield(instance: Instance, requirement: Linear, samples: Array) -> Shield:
    """The constant split of least load at the corner, and the capacities that it keeps.

    The more room it leaves, the less of it is needed; among such splits it is the one of least mean
    MLU over `samples`. Load grows with the demands under a constant split, so what it keeps at the
    corner it keeps in the whole box. The shares of a demand move together, or they would no longer
    sum to one where its paths share no link with each other.
    """
    split = anchor(instance, samples, reserve=1.0)
    guard = guard_of(requirement, len(split))
    check_given((guard,), AffineMap.constant(split, len(instance.demand_max)))
    coupled = tuple(tuple(int(path) for path in block) for block in instance.blocks)
    return Shield(ConstantMembers(split[None], len(instance.demand_max)), (guard,), coupled)


@dataclass(frozen=True)
class JointPricer(ArchitecturePricer):
    """Trains one network on fresh demand vectors by the core's gradient pricing.

    The first learns the objective itself. Later ones go on from the active member of most weight
    and minimise the loss of (1 - blend) x mixture + blend x network, where scenarios of the
    objective's tail weigh what their duals say. A share `hard` of every batch are vectors at which
    that blend is furthest above the optimum: rare large gaps hardly show in a mean.

    row_weight, headroom, attack_every, refresh_every, row_limit: of rows of the capacities and of
    attacks on the network in training, where the problem has such rows; see `GradientPricer`.
    uses_duals: False for the control that trains columns without looking at the master's duals.
    """

    architecture: Architecture
    first: Training
    later: Training
    batch_size: int = 256
    hard: float = HARD
    blend: float = BLEND
    row_weight: float = 0.0
    headroom: float = 0.0
    attack_every: int = 0
    refresh_every: int = 0
    row_limit: int = 256
    uses_duals: bool = True

    def price(self, request: PricingRequest) -> PricingResult:
        warm = self._knows_a_member(request)
        planned = self.later if warm else self.first
        if not self.uses_duals:
            request = replace(request, guide=np.zeros_like(request.guide))
        pricer = self._pricer(planned, warm=warm)
        training = _fit_time(pricer, request)
        found = replace(pricer, training=training).price(request)
        short = training.steps < planned.steps
        notes = [f"the time allowed {training.steps} of {planned.steps} steps"] if short else []
        return replace(found, note="; ".join(filter(None, [*notes, found.note])), short=short)

    def _pricer(self, training: Training, *, warm: bool) -> GradientPricer:
        return GradientPricer(
            self.architecture,
            restarts=1,
            training=training,
            batch_size=self.batch_size,
            blend=self.blend if warm else 1.0,
            row_weight=self.row_weight,
            headroom=self.headroom,
            finish=0.0,
            warm_starts=1 if warm else 0,
            attack_every=self.attack_every,
            refresh_every=self.refresh_every,
            row_limit=self.row_limit,
            tail_share=self.hard,
            tail_from=0.0 if warm else EASY,
            prices_tail=self.uses_duals and warm,
        )

    def _knows_a_member(self, request: PricingRequest) -> bool:
        """Whether an active member is one to go on from."""
        used = () if request.ensemble is None else request.ensemble.used
        return any(self.architecture.parameters(part.members) is not None for part in used)

    def for_single_models(self, pressure: float) -> JointPricer:
        """The same for networks that stand alone, with rows that weigh more."""
        return replace(self, blend=1.0, row_weight=self.row_weight * pressure)

    def for_estimate(self, probe: Probe) -> GradientPricer:
        """Half of the networks go on from active ones; rows are drawn, as many as a batch has."""
        onwards = GradientPricer(
            self.architecture,
            restarts=1,
            training=self.later,
            batch_size=self.batch_size,
            blend=1.0,
            row_limit=self.batch_size,
        )
        return onwards.for_estimate(probe)

    def make_plain_pricer(self, trainings: int) -> JointPricer:
        """The same network without shield, rows or attacks, over the steps of `trainings` calls."""
        steps = self.first.steps + max(0, trainings - 1) * self.later.steps
        bare = self.architecture
        while isinstance(bare, ShieldedArchitecture):
            bare = bare.inner
        first = replace(self.first, steps=steps)
        return replace(self, architecture=bare, first=first, attack_every=0, refresh_every=0)


def _fit_time(pricer: GradientPricer, request: PricingRequest) -> Training:
    """As many steps as the time allows: a learning rate cut off half-way leaves a poor network.

    Without a limit the number of steps does not depend on the machine.
    """
    training = pricer.training
    if math.isinf(request.until):
        return training
    few = replace(training, steps=min(TIMED, training.steps))
    started = clock.now()
    replace(pricer, training=few, warm_starts=0, tail_from=1.0).price(request)
    now = clock.now()
    pace = max(now - started, LEAST_S) / few.steps
    allowed = max(0.0, SHARE_OF_TIME * (request.until - now) / pace)
    return replace(training, steps=max(1, min(training.steps, int(allowed))))
