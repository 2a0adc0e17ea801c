"""The routing problem for the loop: networks for all demands, shielded or with rows of capacities.

Only proofs take a member per demand.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import torch

from cg4ai import Problem, Settings
from cg4ai.colgen import (
    AnyObjective,
    BlackBox,
    Duals,
    Epigraph,
    GradientAscent,
    InTurn,
    Layout,
    Pricer,
    PricingRequest,
    Supervised,
    Training,
    derive_seed,
    generator,
)
from cg4ai.data import Array, IntArray
from cg4ai.members import (
    Architecture,
    ConstantMembers,
    Shield,
    ShieldedArchitecture,
    ShieldedMembers,
)
from cg4ai.routing.demands.scaling import rule_name
from cg4ai.routing.demands.sets import MIXES, MixedDemands
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.prove.ratio import RatioArchitecture
from cg4ai.routing.settings import USUAL_PRUNE, Recipe
from cg4ai.routing.train.agent_members import budget_shield, local_networks
from cg4ai.routing.train.anchors import anchor
from cg4ai.routing.train.effort import (
    PRICED,
    SCENARIOS,
    count_affordable,
    count_restarts,
    is_joint_wide,
    joint_rate,
)
from cg4ai.routing.train.joint import HARD, JointPricer, capacity_shield, joint_network
from cg4ai.routing.train.members import RoutingPricer, SplitNetwork
from cg4ai.routing.train.rare_demands import GapTail, LeastMlu
from cg4ai.routing.train.trees import RoutingTreePricer
from cg4ai.routing.train.utilisation import PathCost, Utilisation
from cg4ai.rules import Linear, Rows, RowSet

# of the worst MLU of the set, since volumes as given may load links but a little: what rare vectors
# may lose uncounted, and by how much a member must improve the mean
SEPARATION_STARTS, SEPARATION_STEPS = 8, 25  # of the search inside the loop, for each link
ALLOWED, EPSILON = 0.04, 1e-6
NEAR_CORNER = 0.1  # share of a shielded network's training where hardly any room is left,
OTHERS = 0.1  # and that of sparse, of lognormal and of gravity demands
EACH_MIX = 0.2  # scenarios of each mix but the uniform one, in shares of those
# hinge on rows of capacities and what they are to be kept by, where no shield keeps them; steps
# between two attacks on a network in training, and between two looks at what these found
ROW_WEIGHT, HEADROOM, ATTACKED, FOLLOWED = 0.5, 0.002, 500, 20
STALLED = 1e-4  # further networks must lower the objective by this share of it


def choose_margin(instance: Instance) -> float:
    """How far below capacity the master keeps every link: a tenth of the room there is, at most.

    What separation misses then rarely reaches the capacity itself.
    """
    return float(min(1e-3, max(0.0, (1.0 - instance.level) / 10)))


def is_on_gpu(recipe: Recipe) -> bool:
    return torch.device(recipe.device).type == "cuda"


def capacity(instance: Instance, recipe: Recipe) -> Linear:
    """No arc above its capacity, at every demand vector of the set."""
    wide = is_on_gpu(recipe)
    search = (
        GradientAscent(
            starts=SEPARATION_STARTS * (4 if wide else 1),
            steps=math.ceil(SEPARATION_STEPS / (2 if wide else 1)),
            vertices=512,
        )
        if recipe.separator == "ascent"
        else BlackBox(starts=1, evaluations=300)
    )
    return Linear(
        instance.region,
        Utilisation(instance),
        np.ones(len(instance.arcs)),
        sense="<=",
        name=rule_name(instance.capacity_factor),
        separator=search,
    )


def routing_settings(
    instance: Instance,
    recipe: Recipe,
    *,
    time_limit_s: float = np.inf,
    prune: float = USUAL_PRUNE,
    joint: bool = False,
) -> Settings:
    """The loop's settings for routing; one set for all networks.

    On a GPU half as many groups of networks take twice the steps each; a network for all demands
    takes larger batches and fewer steps there (`sizes.is_joint_wide`).
    """
    recipe = recipe.fill_defaults(len(instance.demand_max), joint=joint)
    fewer = is_on_gpu(recipe) and not joint
    return Settings(
        epsilon=EPSILON * min(1.0, instance.level),
        row_margin=choose_margin(instance),
        column_limit=1_000_000,
        iteration_limit=math.ceil(recipe.rounds / 2) if fewer else recipe.rounds,
        improvement_tolerance=STALLED if joint else 1e-3,
        improvement_window=1 if joint else 2 if fewer else 3,
        cut_rounds=10,
        cuts_per_round=64,
        guarantee="attacked",  # the router as a whole is shielded, or proven
        final_weights="vertex",
        estimate_restarts=count_restarts(len(instance.path_demand)),
        prune=prune,
        time_limit_s=time_limit_s,
        seed=recipe.seed,
        device=recipe.device,
    )


def routing_problem(instance: Instance, recipe: Recipe | None = None) -> Problem:
    """A network for each demand, as proofs want them: the same rows as `attacked_problem`."""
    recipe = (recipe or Recipe()).fill_defaults(len(instance.demand_max), joint=False)
    requirement = capacity(instance, recipe)
    layout = Layout(instance.blocks)
    requirement.check(len(instance.demand_max), layout.output_size)
    sample = _scenarios(instance, recipe)
    # the best anchor uses all room at the corner, where it could then offset no one's excess
    anchors = [anchor(instance, sample, reserve=share) for share in (choose_margin(instance), 1.0)]
    pricer = RoutingPricer(
        SplitNetwork(instance, hidden=recipe.hidden, scope=recipe.agent_scope),
        first=Training(recipe.first_steps, learning_rate=0.01, schedule="onecycle"),
        later=Training(
            recipe.later_steps * (2 if is_on_gpu(recipe) else 1),
            learning_rate=0.004,
            schedule="onecycle",
        ),
        batch_size=recipe.batch_size,
        refresh_every=50 if is_on_gpu(recipe) else 20,
    )
    return Problem(
        objective=_objective(instance, recipe, sample),
        requirements=(requirement,),
        pricers=(pricer,),
        layout=layout,
        start=tuple(_anchor_members(instance, split) for split in anchors),
        start_rows=(first_rows(instance, requirement),),
    )


def attacked_problem(instance: Instance, recipe: Recipe | None = None) -> Problem:
    """Networks for all demands without a shield: capacities are rows, with cuts from separation.

    Objective, capacity, pricer, two constant splits to start from, and first rows.
    """
    recipe = (recipe or Recipe()).fill_defaults(len(instance.demand_max), joint=True)
    requirement = capacity(instance, recipe)
    layout = Layout.single(len(instance.path_demand))
    requirement.check(len(instance.demand_max), layout.output_size)
    sample = _scenarios(instance, recipe)
    # the best anchor uses all room at the corner, where it could then offset no one's excess
    anchors = [anchor(instance, sample, reserve=share) for share in (choose_margin(instance), 1.0)]
    followed = 50 if is_on_gpu(recipe) else FOLLOWED
    pricer = replace(
        _joint_pricer(instance, recipe, shield=None, ratio=None),
        row_weight=ROW_WEIGHT,
        headroom=HEADROOM,
        attack_every=ATTACKED,
        refresh_every=followed,
    )
    members = ConstantMembers(np.stack(anchors), len(instance.demand_max))
    return Problem(
        objective=_mixed_objective(instance, recipe, sample),
        requirements=(requirement,),
        pricers=(pricer,),
        layout=layout,
        start=((members, np.zeros(2, np.int64)),),
        start_rows=(first_rows(instance, requirement),),
    )


def shielded_problem(
    instance: Instance, recipe: Recipe | None = None, *, ratio: Shield | None = None
) -> Problem:
    """Members for all demands behind a shield, so that the master needs no rows.

    `ratio`: a shield inside that one, which keeps every answer within a ratio of the optimum. The
    outer one does not undo that: where it acts, an answer within the ratio overloads a link, so R
    times the optimum is above one, which no load of what it gives is.
    """
    recipe = (recipe or Recipe()).fill_defaults(len(instance.demand_max), joint=True)
    sample = _scenarios(instance, recipe)
    if recipe.agent_scope == "all":
        shield = capacity_shield(instance, capacity(instance, recipe), sample)
    else:
        shield = budget_shield(instance, recipe.agent_scope, sample)
    objective = _mixed_objective(instance, recipe, sample)
    pricers: dict[str, Pricer] = {}
    if recipe.members != "tree":
        pricers["network"] = _joint_pricer(instance, recipe, shield, ratio)
    if recipe.members != "network":
        pricers["tree"] = _tree_pricer(instance, recipe, objective, shield)
    made = tuple(pricers.values())
    first = shield.anchor if ratio is None else ShieldedMembers(ratio.anchor, ratio)
    return Problem(
        objective=objective,
        requirements=(),
        pricers=made
        if len(made) == 1
        else tuple(InTurn(made, first) for first in range(len(made))),
        layout=Layout.single(len(instance.path_demand)),
        start=((ShieldedMembers(first, shield), np.zeros(1, np.int64)),),
    )


def tree_problem(instance: Instance, recipe: Recipe) -> Problem:
    """Trees that keep the capacities by themselves, so that master and product need neither."""
    recipe = recipe.fill_defaults(len(instance.demand_max), joint=True)
    sample = _scenarios(instance, recipe)
    objective = _objective(instance, recipe, sample)
    split = anchor(instance, sample)
    return Problem(
        objective=objective,
        requirements=(),
        pricers=(_tree_pricer(instance, recipe, objective),),
        layout=Layout.single(len(instance.path_demand)),
        start=((ConstantMembers(split[None], len(instance.demand_max)), np.zeros(1, np.int64)),),
    )


def _tree_pricer(
    instance: Instance, recipe: Recipe, objective: AnyObjective, shield: Shield | None = None
) -> RoutingTreePricer:
    assert isinstance(objective, Epigraph)
    assert isinstance(objective.tail, GapTail)
    return RoutingTreePricer(instance, objective.tail.least, recipe.leaves, shield)


def _joint_pricer(
    instance: Instance, recipe: Recipe, shield: Shield | None, ratio: Shield | None
) -> JointPricer:
    network: Architecture = joint_network(instance, hidden=recipe.hidden)
    if recipe.agent_scope != "all":
        network = local_networks(instance, recipe.agent_scope, hidden=recipe.hidden)
    if ratio is not None:
        network = RatioArchitecture(network, ratio)
    demands = len(instance.demand_max)
    wide = recipe.agent_scope == "all" and is_joint_wide(demands, recipe.device)
    rate = joint_rate(demands, wide=wide)
    if shield is not None:
        network = ShieldedArchitecture(network, shield)
    return JointPricer(
        network,
        first=Training(recipe.first_steps, learning_rate=rate, schedule="onecycle"),
        later=Training(recipe.later_steps, learning_rate=rate / 2, schedule="onecycle"),
        batch_size=recipe.batch_size,
        hard=HARD if recipe.agent_scope == "all" else 0.0,
    )


def first_request(problem: Problem, *, seed: int, device: str, attacked: bool) -> PricingRequest:
    """What a pricer is asked before there is a master: train by the objective alone.

    With `attacked` it also learns the rules, from attacks on what it trains.
    """
    return PricingRequest(
        iteration=0,
        seed=seed,
        duals=Duals(np.zeros(0), np.zeros(len(problem.layout))),
        guide=np.zeros(0),
        rows=RowSet(problem.layout),
        objective=problem.objective,
        loss_weight=1.0,
        ensemble=None,
        device=device,
        requirements=problem.requirements if attacked else (),
    )


def _scenarios(instance: Instance, recipe: Recipe) -> Array:
    count = count_affordable(recipe.scenarios, SCENARIOS, len(instance.path_demand))
    return instance.sample(count, derive_seed(recipe.seed, 0, "scenarios"))


def _mixed_objective(instance: Instance, recipe: Recipe, sample: Array) -> AnyObjective:
    """The objective of networks for all demands, trained on several mixes of them.

    Agents cannot tell rare vectors from others: what is done for these costs them everywhere.
    """
    corner, others = (NEAR_CORNER, OTHERS) if recipe.agent_scope == "all" else (0.0, 0.0)
    return _objective(instance, recipe, sample, corner=corner, others=others)


def _objective(
    instance: Instance,
    recipe: Recipe,
    sample: Array,
    *,
    corner: float = 0.0,
    others: float = 0.0,
) -> AnyObjective:
    """What is minimised over scenarios: `sample`, uniform in the set, and some of each other mix.

    Uniform vectors alone hardly differ where demands are many, and a constant split then looks as
    good as any. `corner` and `others` are shares of the fresh vectors to train on.
    """
    if recipe.objective == "split":
        labelled = instance.sample(1000, derive_seed(recipe.seed, 0, "labels"))
        labels = instance.find_optimal(labelled, splits=True).splits
        assert labels is not None
        return Supervised(labelled, labels, "squared", "average")
    fresh = MixedDemands(instance.region, instance.ends, others=others, edge=corner)
    made = generator(derive_seed(recipe.seed, 0, "mixes"))
    each = math.ceil(EACH_MIX * len(sample))
    mixed = [sample, *(fresh.draw(mix, each, made).numpy() for mix in MIXES[1:])]
    groups = np.repeat(np.arange(len(mixed)), [len(part) for part in mixed])
    scenarios = np.concatenate(mixed)
    if recipe.objective == "cost":
        return Epigraph(scenarios, PathCost(instance), sampler=fresh, groups=groups)
    solved = _priced(instance, recipe, fresh)
    tail = GapTail(
        instance,
        LeastMlu(instance, solved),
        allowed=ALLOWED * instance.level,
        device=recipe.device,
    )
    least = float(tail.least(torch.as_tensor(scenarios)).mean())
    # agents cannot help rare large gaps, which would then outweigh all that they can
    counted = tail if recipe.agent_scope == "all" else None
    pieces = Utilisation(instance)
    return Epigraph(scenarios, pieces, sampler=fresh, tail=counted, least=least, groups=groups)


def _priced(instance: Instance, recipe: Recipe, fresh: MixedDemands) -> Array:
    """Vectors to solve for dual prices: uniform ones, between them some of each other mix.

    In this order, since the last ones are left out where prices repeat.
    """
    count = count_affordable(recipe.priced, PRICED, len(instance.path_demand))
    uniform = instance.sample(count, derive_seed(recipe.seed, 0, "priced"))
    made = generator(derive_seed(recipe.seed, 0, "priced mixes"))
    others = [fresh.draw(mix, math.ceil(EACH_MIX * count), made).numpy() for mix in MIXES[1:]]
    solved = np.concatenate([uniform, *others])
    return np.asarray(solved[torch.randperm(len(solved), generator=made).numpy()][:count])


def _anchor_members(instance: Instance, split: Array) -> tuple[ConstantMembers, IntArray]:
    """The anchor as one constant member per demand."""
    blocks = instance.blocks
    values = np.zeros((len(blocks), max(len(block) for block in blocks)))
    for number, block in enumerate(blocks):
        values[number, : len(block)] = split[block]
    return ConstantMembers(values, len(blocks)), np.arange(len(blocks))


def first_rows(instance: Instance, requirement: Linear) -> Rows:
    """Rows where overloads are likely: the corner, and captive demands at their maximum.

    A demand is captive to an arc if all its paths use it (the paper's observation on Arc 13). For
    each arc with captives: captives at their maximum with the others at 0 and at their maximum;
    and for every arc all demands that can use it at their maximum, the others at 0.
    """
    count = len(instance.demand_max)
    uses = np.zeros((count, len(instance.arcs)))
    captive = np.zeros_like(uses, dtype=bool)
    for number, block in enumerate(instance.blocks):
        uses[number] = instance.incidence[block].max(axis=0)
        captive[number] = instance.incidence[block].min(axis=0) > 0
    inputs, which = [], []
    for arc, kind in product(range(len(instance.arcs)), ("corner", "users", "captives")):
        chosen = {
            "corner": np.ones(count, bool),
            "users": uses[:, arc] > 0,
            "captives": captive[:, arc],
        }[kind]
        if chosen.any():
            inputs.append(chosen.astype(np.float64))
            which.append(arc)
    # as far as the set goes towards them; others are as small as it allows
    wanted = np.array(inputs) * 2 - 1
    return requirement.rows_at(instance.region.peaks(wanted).inputs, np.array(which), 0)
