"""A router of agents taken apart: for each node a file with all that its splits depend on.

What is written is read from the members themselves: a network that has a weight other than zero
for a demand of another node cannot be run apart, whatever it was asked to see.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from cg4ai import Ensemble, runs
from cg4ai.data import Array
from cg4ai.errors import InvalidInput, SolverFailure
from cg4ai.guarantees import ShieldedEnsemble
from cg4ai.members import (
    ConstantMembers,
    NetworkMembers,
    Part,
    Shield,
    ShieldedMembers,
    SideBySideMembers,
)
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.operate import policy
from cg4ai.routing.operate.policy_onnx import onnx_model
from cg4ai.routing.train.agents import (
    Agent,
    AgentLoads,
    BudgetShields,
    agents_of,
    compute_sight,
    find_budgets,
)

TRIED = 500  # demand vectors at which policies must give what the router does
EQUAL = 1e-12
README = """# Agents of {network}

One file for each node that sends: `agent-NODE.json`, all that the node needs to split its demands.
Together they give exactly the splits of the router that they were exported from{where}
(compared at {tried} demand vectors, largest difference {difference:.1e}). {guarantee}

`python policy.py agent-NODE.json VOLUME ...` prints the shares of a node's paths for the volumes of
its demands; `policy.shares(policy.load(file), volumes)` does it for many. It needs NumPy alone.
{onnx}
- `demands`, `lower`, `upper`: the node's demands and the volumes that the guarantee speaks of.
- `paths`, `demand_of_path`: nodes of each path, and the demand that it is of, counted from 0.
- `terms`: what is mixed, the sum of `weight` times what the term's `parts` give.
- A part `writes` some paths: either `constant` shares, or those of a network that `reads` some
  demands: `(x - shift) / scale`, `layers` with `activation` between them, plus `skip` times the
  scaled inputs, then a softmax.
- `shield`: null, or how the shares of each term are moved towards the `anchor`, as far as it takes:
  the sum over paths of `loads` times volume times share must stay within `budgets`, shares of the
  capacities of `links`. Paths with equal numbers in `together` move together.
"""
WITH_ONNX = """
`agent-NODE.onnx` is the same function as a model: `demands` (n, d) in, `shares` (n, p) out.
"""


@dataclass(frozen=True)
class ExportSummary:
    """The policies written, and the largest difference from the router at so many vectors.

    `where`: of which vectors that speaks, in words; empty: of all. `onnx`: whether models in that
    format are among the files.
    """

    files: list[Path]
    difference: float
    tried: int
    where: str
    onnx: bool


def export_agents(instance: Instance, ensemble: Ensemble, folder: Path) -> ExportSummary:
    """Write a policy for every node that sends into a new or empty folder."""
    policies = policies_of(instance, ensemble)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(
            f"{folder} is there and not an empty folder: name another for agents", code="exists"
        )
    beyond = all(guard.everywhere for guard in ensemble.guards)  # not so in early versions
    vectors = _tried(instance, beyond=beyond)
    where = "" if beyond else " at demands up to the largest"
    difference = largest_difference(instance, ensemble, policies, vectors)
    if not difference <= EQUAL:
        raise SolverFailure(
            f"policies differ from the router by up to {difference:.3g}, more than {EQUAL:g}; "
            "nothing was written"
        )
    folder.mkdir(parents=True, exist_ok=True)
    named = _file_names([one["node"] for one in policies])
    onnx = find_spec("onnx") is not None
    for name, one in zip(named, policies, strict=True):
        runs.write_bytes(folder / name, json.dumps(one).encode())
        if onnx:
            runs.write_bytes((folder / name).with_suffix(".onnx"), onnx_model(one))
    source = resources.files("cg4ai.routing.operate").joinpath("policy.py").read_text("utf-8")
    (folder / "policy.py").write_text(source, "utf-8")
    local = find_budgets(instance, ensemble)
    said = (
        "Each node keeps its `budgets` at every demand vector up to `upper`; the budgets of a link "
        "sum to its capacity at most, so no link is overloaded while all nodes' demands are so."
        if local is not None
        else "The certificate in the run's folder says at which demand vectors no link is "
        "overloaded by all of them together."
    )
    words = README.format(
        network=instance.name,
        tried=len(vectors),
        where=where,
        difference=difference,
        guarantee=said,
        onnx=WITH_ONNX if onnx else "",
    )
    (folder / "README.md").write_text(words, "utf-8")
    return ExportSummary([folder / name for name in named], difference, len(vectors), where, onnx)


def policies_of(instance: Instance, ensemble: Ensemble) -> list[dict[str, Any]]:
    """The policy of each node, as plain data; InvalidInput where nodes depend on each other."""
    if isinstance(ensemble, ShieldedEnsemble):
        raise InvalidInput(_refusal("it is behind one shield of the whole"), code="unsupported")
    shields = {
        part.members.shield.digest: part.members.shield
        for part in ensemble.used
        if isinstance(part.members, ShieldedMembers)
    }
    local = find_budgets(instance, ensemble)
    if len(shields) > 1 or (shields and local is None):
        raise InvalidInput(_refusal("its shield looks at whole loads of links"), code="unsupported")
    terms = [term for part in ensemble.used for term in _terms(instance, part)]
    kept = None if local is None else (next(iter(shields.values())), local)
    return [_policy(instance, node, terms, kept) for node in agents_of(instance, "source")]


def largest_difference(
    instance: Instance, ensemble: Ensemble, policies: list[dict[str, Any]], vectors: Array
) -> float:
    """Between the router's shares and the policies', at vectors (n, D)."""
    router = ensemble.predict(vectors, outside="ignore")
    worst = 0.0
    for one, node in zip(policies, agents_of(instance, "source"), strict=True):
        own = np.isin(instance.path_demand, node.demands)
        found = policy.shares(one, vectors[:, list(node.demands)])
        worst = max(worst, float(np.abs(found - router[:, own]).max()))
    return worst


def _tried(instance: Instance, *, beyond: bool) -> Array:
    """Vectors of the set, the corner, and `beyond` it: one demand above its largest, or all."""
    upper = instance.region.bounds()[1]
    drawn = instance.sample(TRIED, 0)
    found = [drawn, upper[None]]
    if beyond:
        above = np.tile(drawn, (3, 1))
        above[TRIED * 2 :] *= 3.0
        which = np.arange(2 * TRIED), np.arange(2 * TRIED) % len(upper)
        above[which] = upper[which[1]] * np.repeat([1.02, 3.0], TRIED)
        found.append(above)
    return np.concatenate(found)


def _refusal(why: str) -> str:
    return (
        f"this router cannot be taken apart into agents: {why}, so what one node does depends on "
        "the demands of others; train with --agent-scope own or --agent-scope source"
    )


@dataclass(frozen=True)
class _Network:
    """A network or constant split (`constant`) of one demand, as arrays of all inputs."""

    demand: int
    constant: Array | None = None
    layers: tuple[tuple[Array, Array], ...] = ()
    skip: Array | None = None
    shift: Array | None = None
    scale: Array | None = None
    activation: str = ""

    def reads(self, size: int) -> list[int]:
        """The inputs with a weight other than zero."""
        if self.constant is not None:
            return []
        used = (self.layers[0][0] != 0).any(axis=0)
        if self.skip is not None:
            used |= (self.skip != 0).any(axis=0)
        return [at for at in range(size) if used[at]]


@dataclass(frozen=True)
class _Term:
    weight: float
    parts: list[_Network]


def _terms(instance: Instance, part: Part) -> list[_Term]:
    """What is mixed, member by member: networks for all demands, or for the member's own."""
    members, weights = part.members, part.weights
    inner = members.inner if isinstance(members, ShieldedMembers) else members
    whole = len(instance.blocks) > 1 and inner.output_size == len(instance.path_demand)
    found = []
    for number in np.flatnonzero(weights).tolist():
        if isinstance(inner, SideBySideMembers):
            stack = inner.networks(number)
            parts = [_network(instance, stack, at, at) for at in range(len(instance.blocks))]
        elif isinstance(inner, ConstantMembers):
            value = inner.values[number].cpu().numpy()
            blocks = instance.blocks if whole else [np.arange(len(value))]
            demands = range(len(blocks)) if whole else [int(part.blocks[number])]
            parts = [
                _Network(demand, value[block][: len(instance.blocks[demand])])
                for demand, block in zip(demands, blocks, strict=True)
            ]
        elif isinstance(inner, NetworkMembers) and not whole:
            parts = [_network(instance, inner, number, int(part.blocks[number]))]
        else:
            raise InvalidInput(
                _refusal(f"its members, {type(inner).__name__}, split all demands"),
                code="unsupported",
            )
        found.append(_Term(float(weights[number]), parts))
    return found


def _network(instance: Instance, stack: NetworkMembers, number: int, demand: int) -> _Network:
    """One network of a stack, without the outputs that its demand has no paths for."""
    shape, size = stack.architecture, len(instance.blocks[demand])
    arrays = {name: value[number].cpu().numpy() for name, value in stack.parameters.items()}
    layers = [(arrays[f"weight_{at}"], arrays[f"bias_{at}"]) for at in range(shape.depth + 1)]
    layers[-1] = (layers[-1][0][:size], layers[-1][1][:size])
    none = np.zeros(shape.input_size)
    made = _Network(
        demand,
        layers=tuple(layers),
        skip=arrays["skip"][:size] if shape.skip else None,
        shift=none if shape.shift is None else shape.shift,
        scale=none + 1 if shape.scale is None else shape.scale,
        activation=shape.activation,
    )
    foreign = set(made.reads(shape.input_size)) - set(
        np.flatnonzero(compute_sight(instance, "source")[demand]).tolist()
    )
    if foreign:
        names = [instance.demand_names[at] for at in sorted(foreign)[:3]]
        why = f"what splits {instance.demand_names[demand]} reads {', '.join(names)}"
        raise InvalidInput(_refusal(why), code="unsupported")
    return made


def _policy(
    instance: Instance, agent: Agent, terms: list[_Term], kept: tuple[Shield, BudgetShields] | None
) -> dict[str, Any]:
    """All that one node needs, numbered by its own demands and paths."""
    demands = list(agent.demands)
    paths = np.flatnonzero(np.isin(instance.path_demand, demands))
    place = {int(path): number for number, path in enumerate(paths)}
    lower, upper = instance.region.bounds()
    own = []
    for term in terms:
        parts = [
            _part(instance, one, demands, place) for one in term.parts if one.demand in demands
        ]
        if parts:
            own.append({"weight": term.weight, "parts": parts})
    return {
        "format": policy.FORMAT,
        "network": instance.name,
        "node": agent.name,
        "demands": [instance.demand_names[demand] for demand in demands],
        "lower": lower[demands].tolist(),
        "upper": upper[demands].tolist(),
        "paths": [list(instance.paths[path]) for path in paths],
        "demand_of_path": [demands.index(int(instance.path_demand[path])) for path in paths],
        "terms": own,
        "shield": None if kept is None else _shield(instance, *kept, paths.tolist()),
    }


def _part(
    instance: Instance, one: _Network, demands: list[int], place: dict[int, int]
) -> dict[str, Any]:
    writes = [place[int(path)] for path in instance.blocks[one.demand]]
    if one.constant is not None:
        return {"writes": writes, "constant": one.constant.tolist()}
    assert one.shift is not None
    assert one.scale is not None
    reads = one.reads(len(instance.demand_max))
    (first, bias), *rest = one.layers
    layers = [(first[:, reads], bias), *rest]
    return {
        "writes": writes,
        "reads": [demands.index(at) for at in reads],
        "shift": one.shift[reads].tolist(),
        "scale": one.scale[reads].tolist(),
        "activation": one.activation,
        "layers": [{"weight": w.tolist(), "bias": b.tolist()} for w, b in layers],
        "skip": None if one.skip is None else one.skip[:, reads].tolist(),
    }


def _shield(
    instance: Instance, shield: Shield, local: BudgetShields, paths: list[int]
) -> dict[str, Any]:
    """The anchor and the budgets of one node's paths."""
    loads = AgentLoads(instance, local.scope).per_flow.T  # (rules, P)
    rules = np.flatnonzero(loads[:, paths].any(axis=1))
    anchor = shield.anchor.state().arrays["values"][0]
    links = [local.totals.names[arc] for arc in local.totals.of_rule[rules]]
    return {
        "anchor": anchor[paths].tolist(),
        "together": shield.blending.components[paths].tolist(),
        "budgets": np.asarray(local.rule.bound, np.float64)[rules].tolist(),
        "links": [name.removeprefix("link ") for name in links],
        "loads": loads[rules][:, paths].tolist(),
    }


def _file_names(nodes: list[str]) -> list[str]:
    """A file for each node, by its name where that is one for files."""
    names: list[str] = []
    for number, node in enumerate(nodes):
        plain = re.sub(r"[^A-Za-z0-9_.-]", "_", node)
        name = f"agent-{plain}.json"
        names.append(f"agent-{plain}-{number}.json" if name in names else name)
    return names
