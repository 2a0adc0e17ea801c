"""The problem of a router that reads the last W matrices and splits the next, which it cannot see.

Whatever it reads, every split that it returns fits every demand vector of the set: the load of a
link is linear in the demands, so over a box it is largest at the corner, and a split keeps the
capacities on the whole box exactly where it keeps them there. That is one linear rule for each
link, about the outputs alone. Members stand behind a shield that keeps these rules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from cg4ai import Problem
from cg4ai.colgen import Epigraph, GradientPricer, Layout, Training, derive_seed
from cg4ai.data import Array, IntArray
from cg4ai.errors import InvalidInput
from cg4ai.guarantees import AffineMap, check_given
from cg4ai.members import (
    ConstantMembers,
    FeedbackArchitecture,
    Loads,
    NetworkArchitecture,
    Shield,
    ShieldedArchitecture,
    ShieldedMembers,
)
from cg4ai.routing.demands.history import RECENT, SUMMARIES, MeasuredHistory
from cg4ai.routing.demands.measured import pick_evenly, thin_vectors
from cg4ai.routing.demands.scaling import rule_name
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.anchors import anchor
from cg4ai.routing.train.joint import FIRST_ANSWER
from cg4ai.routing.train.optimal import utilisation_per_share
from cg4ai.routing.train.utilisation import Utilisation
from cg4ai.rules import Box, Linear, guard_of

HELD_OUT = 0.2  # the last of the earlier matrices: by these members are weighed, not trained
REACH = 1000.0  # windows up to so many times the largest demands are in the certificate's region
ROOM_LEFT = 0.5  # of the room that the best constant split leaves, what the anchor leaves
NOISE = 0.3  # by which matrices are multiplied in training: the exponential of so much of a normal
HARDNESS = 1.0  # matrices weigh by this power of their ratio where the anchor is chosen
TAIL, TAIL_FROM = 0.5, 0.95  # weight of what ratios exceed this quantile of the anchor's by
SHIFTED, SHIFT = 2, 0.4  # copies of each pair with other totals of nodes, and by how much
STAGES, HIDDEN = 2, (64, 64)
STEPS, ROUNDS, BATCH, RATE = 1000, 5, 128, 3e-3
SOLVED = 8_000_000  # matrices x paths that the optimum is found of, about
SCENARIOS, MOST_SCENARIOS = 600_000, 1500  # matrices x paths of the master, and matrices
R = TypeVar("R", bound=Recipe)
LEAST = 1e-9  # spread of a number that never changes, as a share of the largest demand


def fill_history_defaults(recipe: R) -> R:
    """The usual of a router that reads a history in place of what is not given."""
    usual: dict[str, Any] = {"hidden": HIDDEN, "first_steps": STEPS, "later_steps": STEPS}
    usual |= {"batch_size": BATCH, "rounds": ROUNDS}
    return replace(recipe, **{name: getattr(recipe, name) or usual[name] for name in usual})


def load_at_corner(instance: Instance) -> Array:
    """(A, P): what a share of one loads each link with where all demands are at their largest."""
    return np.ascontiguousarray(utilisation_per_share(instance).T)


def capacity_of_splits(instance: Instance) -> Linear:
    """No link above its capacity at any vector of the box, whatever the window was."""
    region = instance.region
    if not isinstance(region, Box):
        raise InvalidInput(
            "splits for an unknown matrix are kept within capacities over a box of demands, and "
            "this set has limits on sums; make it with hose=False",
            code="unsupported",
        )
    upper = np.tile(REACH * region.upper, SUMMARIES)
    return Linear(
        Box(np.zeros(len(upper)), upper),
        load_at_corner(instance),
        np.ones(len(instance.arcs)),
        sense="<=",
        name=rule_name(instance.capacity_factor),
    )


def history_shield(instance: Instance, samples: Array) -> Shield:
    """Towards the constant split of least mean ratio over `samples` that leaves half of the room.

    `samples` (n, D) are vectors over their optimum. Those at which the best split for their mean
    does worse weigh more: that costs the mean hardly anything and helps the tail.
    """
    ratio = find_ratios(instance, samples, anchor(instance, samples, reserve=0.0))
    weighed = samples * (ratio**HARDNESS)[:, None]
    room = max(0.0, 1.0 - instance.level)
    split = anchor(instance, weighed, reserve=ROOM_LEFT * room)
    guard = replace(guard_of(capacity_of_splits(instance), len(split)), everywhere=True)
    width = SUMMARIES * len(instance.demand_max)
    check_given((guard,), AffineMap.constant(split, width))
    coupled = tuple(tuple(int(path) for path in block) for block in instance.blocks)
    return Shield(ConstantMembers(split[None], width), (guard,), coupled)


@dataclass(frozen=True, eq=False)
class WindowSampler:
    """Summaries of windows (n, 4 D) with noise, beside what is to be split then (n, D).

    Each number is multiplied by a random factor: that of the last vector by as much as noise would
    change a matrix, that of a mean of k matrices by 1 / sqrt(k) of it.
    """

    features: Tensor
    targets: Tensor
    length: int

    def __call__(self, count: int, generator: torch.Generator) -> Tensor:
        """(count, 4 D + D) float64."""
        pick = torch.randint(len(self.features), (count,), generator=generator)
        sizes = torch.tensor([1.0, 1 / min(RECENT, self.length), 1 / self.length, 1.0]).sqrt()
        demands = self.targets.shape[1]
        noise = torch.randn(count, SUMMARIES, demands, generator=generator, dtype=torch.float64)
        factors = (NOISE * noise * sizes[:, None]).exp().flatten(1)
        return torch.cat([self.features[pick] * factors, self.targets[pick]], dim=-1)


class TailUtilisation(Utilisation):
    """Utilisations u of the links, and beside each u + weight x (u - level).

    The largest of all is max(u) + weight x (max(u) - level)+. The shares of the first demand sum to
    one, so the constant is linear in them.
    """

    def __init__(self, instance: Instance, *, level: float, weight: float = TAIL) -> None:
        super().__init__(instance)
        self.weight, self.level = weight, level
        self._first = (instance.path_demand == 0).astype(np.float64)

    @property
    def count(self) -> int:
        return 2 * super().count

    def values(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        own = super().values(inputs, outputs)
        return torch.cat([own, own + self.weight * (own - self.level)], dim=-1)

    def coefficients(self, inputs: Array, which: IntArray) -> Array:
        links = super().count
        own = super().coefficients(inputs, which % links)
        further = own + self.weight * (own - self.level * self._first)
        return np.where((which >= links)[:, None], further, own)


@dataclass(frozen=True, eq=False)
class HistoryPairs:
    """Windows and what followed them: `features` (n, 4 D) before positions `follows` (n,).

    `targets` (n, D) are the next vectors over their optimum, so that their MLU is the ratio to it.
    The first `fitted` are trained on, the others weigh members.
    """

    features: Array
    follows: IntArray
    targets: Array
    fitted: int


def pair_windows(instance: Instance, history: MeasuredHistory) -> HistoryPairs:
    """All that is learned from, evenly over time where it is much."""
    paths = len(instance.path_demand)
    chosen = pick_evenly(len(history.follows), max(1000, SOLVED // paths))
    follows = history.follows[chosen]
    after = history.before[follows]
    targets = after / instance.find_optimal(after).mlu[:, None]
    fitted = max(1, math.floor((1 - HELD_OUT) * len(follows)))
    return HistoryPairs(history.features[chosen], follows, targets, fitted)


def add_shifted_pairs(instance: Instance, pairs: HistoryPairs, *, seed: int) -> HistoryPairs:
    """Those that are trained on, each beside others in which nodes send and receive more or less.

    The same factors multiply a window and what followed it, so that a network learns to answer what
    it reads where traffic is unlike any that was measured.
    """
    made = np.random.default_rng(derive_seed(seed, 0, "shifts"))
    ends_of_all = dict.fromkeys(node for pair in instance.ends for node in pair)
    nodes = {node: place for place, node in enumerate(ends_of_all)}
    sources, ends = (np.array([nodes[pair[side]] for pair in instance.ends]) for side in (0, 1))
    features, targets = [pairs.features[: pairs.fitted]], [pairs.targets[: pairs.fitted]]
    for _ in range(SHIFTED):
        sent, received = np.exp(SHIFT * made.normal(size=(2, pairs.fitted, len(nodes))))
        factors = sent[:, sources] * received[:, ends]
        after = factors * targets[0]
        targets.append(after / instance.find_optimal(after).mlu[:, None])
        features.append(np.tile(factors, SUMMARIES) * features[0])
    return replace(pairs, features=np.concatenate(features), targets=np.concatenate(targets))


def find_ratios(instance: Instance, targets: Array, split: Array) -> Array:
    """(n,): MLU of a fixed split (P,) over the optimum."""
    return np.asarray(instance.compute_utilisation(targets, split).max(axis=1))


def history_problem(instance: Instance, history: MeasuredHistory, recipe: Recipe) -> Problem:
    """Networks for all demands behind a shield; the held-out matrices choose their mixture."""
    recipe = fill_history_defaults(recipe)
    paths, pairs = len(instance.path_demand), pair_windows(instance, history)
    fitted, count = pairs.fitted, min(MOST_SCENARIOS, max(100, SCENARIOS // paths))
    held = fitted + pick_evenly(len(pairs.follows) - fitted, count)
    shield = history_shield(instance, thin_vectors(pairs.targets[:fitted], count))
    more = add_shifted_pairs(instance, pairs, seed=recipe.seed)
    sampler = WindowSampler(torch.tensor(more.features), torch.tensor(more.targets), history.length)
    zeros = torch.zeros(1, pairs.features.shape[1], dtype=torch.float64)
    split = shield.anchor.outputs(zeros)[0, 0].cpu().numpy()
    network = history_network(instance, pairs.features[:fitted], recipe.hidden, split)
    level = np.quantile(find_ratios(instance, pairs.targets[:fitted], split), TAIL_FROM)
    pieces = TailUtilisation(instance, level=float(level))
    pricer = GradientPricer(
        ShieldedArchitecture(network, shield),
        restarts=1,
        training=Training(recipe.first_steps, learning_rate=RATE, schedule="onecycle"),
        batch_size=recipe.batch_size,
        blend=1.0,
        finish=0.0,
    )
    objective = Epigraph(pairs.features[held], pieces, sampler=sampler, targets=pairs.targets[held])
    return Problem(
        objective=objective,
        requirements=(),
        pricers=(pricer,),
        layout=Layout.single(paths),
        start=((ShieldedMembers(shield.anchor, shield), np.zeros(1, np.int64)),),
    )


def history_network(
    instance: Instance, features: Array, hidden: tuple[int, ...], split: Array
) -> FeedbackArchitecture:
    """What a window says in, all splits out, near the constant split at first.

    It corrects its splits by the loads that the mean of the last few matrices would cause.
    """
    demands, paths = len(instance.demand_max), len(instance.path_demand)
    scale = np.maximum(features.std(axis=0), LEAST * instance.demand_max.max())
    network = NetworkArchitecture(
        features.shape[1],
        paths,
        hidden=hidden,
        activation="relu",
        output="grouped",
        groups=tuple(len(block) for block in instance.blocks),
        shift=features.mean(axis=0),
        scale=scale,
    )
    recent = demands + instance.path_demand
    loads = Loads((instance.incidence / instance.capacity).T, recent)
    full = utilisation_per_share(instance)
    first = -FIRST_ANSWER * full / full.max()
    return FeedbackArchitecture(network, loads, stages=STAGES, first=first, start=split)
