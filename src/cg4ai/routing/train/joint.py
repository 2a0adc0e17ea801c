"""One network that splits all demands, trained through the shield: what `cg4ai route` trains.

Its answer is corrected by the loads that it causes (`members/feedback.py`) and moved towards a
constant split where it would overload a link (`members/shielded.py`), so every member keeps the
capacities in the whole box, and every mixture of such members does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cg4ai import clock
from cg4ai.colgen import (
    ArchitecturePricer,
    Batch,
    Epigraph,
    GradientPricer,
    NotRecorded,
    Pause,
    PricingRequest,
    PricingResult,
    Probe,
    Training,
    derive_seed,
    draws_on_any_device,
    generator,
    train,
    train_captured,
)
from cg4ai.data import Array
from cg4ai.guarantees import AffineMap, check_given
from cg4ai.members import (
    Architecture,
    ConstantMembers,
    FeedbackArchitecture,
    Loads,
    NetworkArchitecture,
    Parameters,
    Shield,
    ShieldedArchitecture,
)
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.train.anchors import anchor
from cg4ai.routing.train.effort import has_skip
from cg4ai.routing.train.optimal import utilisation_per_share
from cg4ai.routing.train.rare_demands import GapTail
from cg4ai.rules import Linear, guard_of

STAGES = 3  # how often a network corrects its splits by the loads that they cause
FIRST_ANSWER = 0.3  # how strongly an untrained network answers the fullest link
REFRESHED = 250  # steps between two searches for the vectors that are served worst
SCREENED = 16_384  # vectors looked at in each search
WORST = 512  # of which so many are trained on,
SHARE_OF_WORST = 8  # one of so many at most
REMEMBERED = 4  # searches whose findings are
LEAST_S = 1e-9  # what steps take at least
TIMED = 20  # steps that are timed where time is limited
SHARE_OF_TIME = 0.8  # of what is left then, for a training that is slower than these
HARD = 0.2  # of every batch: vectors of these searches
EASY = 0.3  # share of the steps before the first search: at first every vector is served badly


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
    first = -FIRST_ANSWER * full / full.max()
    return FeedbackArchitecture(network, loads, stages=stages, first=first)


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
    """Trains one network on fresh demand vectors; later ones go on from the one of most weight.

    A share `hard` of every batch comes from vectors at which the network in training is furthest
    above the optimum, searched for again and again: rare large gaps hardly show in a mean.
    """

    architecture: Architecture
    first: Training
    later: Training
    batch_size: int = 256
    hard: float = HARD

    def price(self, request: PricingRequest) -> PricingResult:
        made = generator(request.seed)
        known = self._known(request)
        parameters = self.architecture.initialise(1, made) if known is None else known
        parameters = {
            name: value.to(device=request.device, dtype=torch.float32)
            for name, value in parameters.items()
        }
        planned = self.first if known is None else self.later
        training = self._in_time(planned, parameters, request)
        note = ""
        if training.steps < planned.steps:
            note = f"the time allowed {training.steps} of {planned.steps} steps"
        lesson = _Lesson(self, request, made, steps=training.steps)
        pause = lesson.search if lesson.searches else None
        trained = self._trained(parameters, lesson, training, request.until, pause)
        if not all(bool(value.isfinite().all()) for value in trained.values()):
            nothing = np.empty(0, np.int64)
            return PricingResult(None, nothing, nothing, note="training diverged")
        members = self.architecture.members(trained)
        note = "; ".join(part for part in (note, lesson.note) if part)
        short = training.steps < planned.steps
        return PricingResult(members, np.zeros(1, np.int64), np.full(1, -1), note=note, short=short)

    def _in_time(
        self, training: Training, parameters: Parameters, request: PricingRequest
    ) -> Training:
        """As many steps as the time allows: a learning rate cut off half-way leaves a poor network.

        Without a limit the number of steps does not depend on the machine.
        """
        if math.isinf(request.until):
            return training
        lesson = _Lesson(self, request, generator(request.seed), steps=training.steps)
        few = replace(training, steps=min(TIMED, training.steps))
        started = clock.now()
        self._trained(parameters, lesson, few, request.until)
        now = clock.now()
        pace = max(now - started, LEAST_S) / few.steps
        allowed = max(0.0, SHARE_OF_TIME * (request.until - now) / pace)
        return replace(training, steps=max(1, min(training.steps, int(allowed))))

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

    def _trained(
        self,
        parameters: Parameters,
        lesson: _Lesson,
        training: Training,
        until: float,
        pause: Pause | None = None,
    ) -> Parameters:
        """On CUDA as a recorded graph: launching a step from Python takes ten times its run.

        Where a step cannot be recorded it is launched each time, and `lesson.note` says so.
        """
        cuda = torch.device(lesson.device).type == "cuda"
        if cuda and isinstance(lesson.objective, Epigraph):  # others have targets
            data = _LaidOutLesson(lesson)
            try:
                return train_captured(
                    parameters, data, training, models=1, pause=pause, until=until
                )
            except NotRecorded as error:
                lesson.note = f"steps were launched one by one, recording them failed: {error}"
        return train(parameters, lesson.loss, training, models=1, pause=pause, until=until)

    def make_plain_pricer(self, trainings: int) -> JointPricer:
        """The same network without a shield, over the steps of `trainings` calls."""
        steps = self.first.steps + max(0, trainings - 1) * self.later.steps
        bare = self.architecture
        while isinstance(bare, ShieldedArchitecture):
            bare = bare.inner
        return replace(self, architecture=bare, first=replace(self.first, steps=steps))

    def _known(self, request: PricingRequest) -> Parameters | None:
        """The active member of this kind that has most weight."""
        best: tuple[float, Parameters] | None = None
        for part in () if request.ensemble is None else request.ensemble.used:
            known = self.architecture.parameters(part.members)
            heaviest = int(np.argmax(part.weights))
            if known is not None and (best is None or part.weights[heaviest] > best[0]):
                own = {name: value[heaviest, None] for name, value in known.items()}
                best = (float(part.weights[heaviest]), own)
        return None if best is None else best[1]


class _Lesson:
    """The batches of one training: fresh vectors, and those that are served worst."""

    def __init__(
        self, pricer: JointPricer, request: PricingRequest, made: torch.Generator, *, steps: int
    ) -> None:
        self.architecture, self.objective, self.made = pricer.architecture, request.objective, made
        self.seed, self.device, self.size = request.seed, request.device, pricer.batch_size
        tail = self.objective.tail if isinstance(self.objective, Epigraph) else None
        self.tail = tail if isinstance(tail, GapTail) else None
        self.searches = self.tail is not None and pricer.hard > 0
        self.hard = round(pricer.hard * pricer.batch_size)
        self.begin = EASY * steps
        self.found: list[Tensor] = []
        self.note = ""
        self.pool: Tensor | None = None

    def search(self, parameters: Parameters, step: int) -> None:
        """Now and then, look for vectors that are served badly."""
        if step < self.begin or step % REFRESHED or self.tail is None:
            return

        def predict(vectors: Tensor) -> Tensor:
            return self.architecture.forward(parameters, vectors.float())[0].double()

        with torch.no_grad():
            seed = derive_seed(self.seed, step, "worst")
            count = min(SCREENED, self.tail.most)
            vectors, gaps = self.tail.sample_gaps(predict, count, seed=seed)
            worst = gaps.topk(min(WORST, count // SHARE_OF_WORST)).indices
            worst = vectors[worst].to(self.device, torch.float32)
        self.found = [worst, *self.found][:REMEMBERED]
        self.pool = torch.cat(self.found)

    def loss(self, parameters: Parameters, step: int) -> Tensor:
        size = self.size if self.pool is None else self.size - self.hard
        batch = self.objective.batch(size, self.made, device=self.device, dtype=torch.float32)
        if self.pool is not None:
            pick = torch.randint(len(self.pool), (self.hard,), generator=self.made)
            hard = self.pool[pick.to(self.device)]
            batch = replace(batch, inputs=torch.cat([batch.inputs, hard]))
        outputs = self.architecture.forward(parameters, batch.inputs)
        return self.objective.value(batch, outputs)


class _LaidOutLesson:
    """The batches of the next steps in one tensor, for steps that are recorded once.

    Vectors are drawn on the device where the objective's sampler can, all at once.
    """

    segment = REFRESHED  # so that every search comes before batches are laid out

    def __init__(self, lesson: _Lesson) -> None:
        self.lesson, self.inputs = lesson, torch.empty(0)
        self.made = lesson.made
        objective = lesson.objective
        if isinstance(objective, Epigraph) and draws_on_any_device(objective.sampler):
            seed = int(torch.randint(2**62, (1,), generator=lesson.made))
            self.made = torch.Generator(lesson.device).manual_seed(seed)

    def lay_out(self, steps: int) -> None:
        """The same buffer every time: a recorded step reads from where it is."""
        lesson = self.lesson
        count = steps * lesson.size
        drawn = lesson.objective.batch(
            count, self.made, device=lesson.device, dtype=torch.float32
        ).inputs
        # a sampler may put vectors of one kind first
        order = torch.randperm(count, generator=self.made, device=self.made.device)
        drawn = drawn[order.to(drawn.device)].reshape(steps, lesson.size, -1)
        if lesson.pool is not None:
            shape, place = (steps, lesson.hard), self.made.device
            pick = torch.randint(len(lesson.pool), shape, generator=self.made, device=place)
            drawn[:, : lesson.hard] = lesson.pool[pick.to(drawn.device)]
        if not len(self.inputs):
            self.inputs = drawn.new_zeros(self.segment, *drawn.shape[1:])
        self.inputs[:steps] = drawn

    def loss(self, parameters: Parameters, step: Tensor) -> Tensor:
        """That of step `step` (1,) of those laid out."""
        inputs = self.inputs.index_select(0, step)[0]
        outputs = self.lesson.architecture.forward(parameters, inputs)
        return self.lesson.objective.value(Batch(inputs, None, None), outputs)
