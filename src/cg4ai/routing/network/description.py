"""A routing instance as plain data and back, and a trained router as the commands ask it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai import Ensemble, runs
from cg4ai.apps import (
    ALL_ARCS,
    NOTES,
    PATH_SOURCE,
    POSITIONS,
    Answers,
    CsvTable,
    Excess,
    InputColumn,
    Interface,
    LastAnswer,
    LimitedOutputs,
    Proposition,
    Rule,
    Signature,
    TrainedDefaults,
)
from cg4ai.data import Array
from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.routing.demands.scaling import FACTOR, format_multiple, format_scaling_suffix, rule_name
from cg4ai.routing.demands.sets import DemandSet, describe_set, measure_excess
from cg4ai.routing.network.instance import Instance, PathSource
from cg4ai.routing.network.network import Position
from cg4ai.routing.network.path_search import PathLimits
from cg4ai.routing.operate.answers import LowerBound, improve_answers
from cg4ai.routing.operate.carried import CarryingProgram
from cg4ai.routing.operate.churn import ChurnLimit
from cg4ai.routing.options import MOST_PARTS
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.agents import BudgetShields
from cg4ai.routing.train.granular import Granularity
from cg4ai.routing.train.optimal import SplitProgram
from cg4ai.routing.train.problem import capacity
from cg4ai.routing.train.utilisation import Utilisation
from cg4ai.rules import Ball, Linear, region_of

GRANULARITY = "granularity"  # in a description: answers are splits in multiples of 1/N
PRIORITIES = "priorities"  # in a description: the class of each demand, 1 is kept first


def describe_instance(made: Instance) -> dict[str, Any]:
    """Demands in, the share of each path out; enough to make the same instance again."""
    return {
        "network": made.name,
        "demands": made.demand_names,
        "demand_max": made.demand_max.tolist(),
        "paths": [list(path) for path in made.paths],
        "path_demand": made.path_demand.tolist(),
        "path_length": made.path_length.tolist(),
        "arcs": [list(arc) for arc in made.arcs],
        "capacity": made.capacity.tolist(),
        "scale": made.scale,
        "load": made.load,
        # what most runs have no need to say is left out, as studies of older ones go by the digest
        **({FACTOR: made.capacity_factor} if made.capacity_factor not in (None, 1.0) else {}),
        **({NOTES: list(made.notes)} if made.notes else {}),
        **({} if made.demand_set is None else {"demand_set": made.demand_set.record()}),
        **(
            {}
            if made.positions is None
            else {POSITIONS: {node: list(place) for node, place in made.positions.items()}}
        ),
        **({} if made.all_arcs is None else {ALL_ARCS: [list(arc) for arc in made.all_arcs]}),
        **({} if made.granularity is None else {GRANULARITY: made.granularity}),
        **({} if made.priorities is None else {PRIORITIES: list(made.priorities)}),
        **({} if made.path_source is None else {PATH_SOURCE: _describe_source(made.path_source)}),
    }


def _describe_source(source: PathSource) -> dict[str, Any]:
    return {
        "choice": source.choice,
        "capacity": source.capacity.tolist(),
        "length": source.length.tolist(),
        "delay": None if source.delay is None else source.delay.tolist(),
        "max_hops": source.limits.hops,
        "max_latency": source.limits.latency,
    }


def restore_instance(description: Mapping[str, Any], *, from_traffic: bool = False) -> Instance:
    """The instance that `describe_instance` was given.

    `from_traffic`: of a run that learned from traffic, in earlier versions of which capacities were
    scaled to the load.
    """
    try:
        capacities, largest, lengths = (
            runs.finite_numbers(description[name], name)
            for name in ("capacity", "demand_max", "path_length")
        )
        if not (capacities > 0).all() or not (largest >= 0).all() or not (lengths >= 0).all():
            raise ValueError("capacities must be above 0, demands and lengths at least 0")
        arcs = [(source, target) for source, target in description["arcs"]]
        position = {arc: number for number, arc in enumerate(arcs)}
        paths = [tuple(path) for path in description["paths"]]
        _check_names(arcs, paths, description["demands"])
        incidence = np.zeros((len(paths), len(arcs)))
        for row, path in enumerate(paths):
            incidence[row, [position[arc] for arc in pairwise(path)]] = 1.0
        load = description["load"]
        made = Instance(
            name=str(description["network"]),
            arcs=arcs,
            capacity=capacities,
            incidence=incidence,
            path_demand=np.array(description["path_demand"], np.int64),
            demand_max=largest,
            path_length=lengths,
            demand_names=list(description["demands"]),
            paths=paths,
            scale=_number(description["scale"], "scale"),
            load=None if load is None else _number(load, "load"),
            capacity_factor=_factor(description, scaled=from_traffic and load is not None),
            notes=tuple(map(str, description.get(NOTES, ()))),
            demand_set=_demand_set(description.get("demand_set")),
            positions=_positions(description.get(POSITIONS), arcs),
            all_arcs=_all_arcs(description.get(ALL_ARCS)),
            path_source=_source(description.get(PATH_SOURCE) if ALL_ARCS in description else None),
            granularity=_granularity(description.get(GRANULARITY)),
            priorities=_priorities(description.get(PRIORITIES), len(largest)),
        )
        _check_sizes(made)
        written = {k: v for k, v in describe_instance(made).items() if k not in ("scale", "load")}
        links = (ALL_ARCS, PATH_SOURCE) if ALL_ARCS in description else ()
        runs.refuse_other(
            description, written, ("demand_set", POSITIONS, GRANULARITY, PRIORITIES, *links)
        )
        return made
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise RunFolderError(
            f"the run does not say what its network is ({error}): name a folder that cg4ai route "
            "has written"
        ) from error


def _number(value: Any, what: str) -> float:
    """A finite number, not as text; early runs have integers, too."""
    if type(value) not in (int, float) or not np.isfinite(value):
        raise ValueError(f"{what} must be a finite number, got {value!r:.80}")
    return float(value)


def _check_names(
    arcs: Sequence[tuple[Any, Any]], paths: Sequence[tuple[Any, ...]], demands: Sequence[Any]
) -> None:
    """Names are texts, and no link or node of a path is named twice: else loads would be others."""
    if not all(isinstance(name, str) for names in (*arcs, *paths, demands) for name in names):
        raise ValueError("names of nodes and demands must be texts")
    if len(set(arcs)) < len(arcs):
        raise ValueError("a link is named twice")
    if any(len(set(path)) < len(path) for path in paths):
        raise ValueError("a path goes through a node twice")


def _factor(description: Mapping[str, Any], *, scaled: bool) -> float | None:
    """`scaled`: whether capacities are, also where no factor is stated."""
    if FACTOR not in description:
        return None if scaled else 1.0
    factor = _number(description[FACTOR], FACTOR)
    if factor <= 0:
        raise ValueError("a factor of capacities must be above 0")
    return factor


def _demand_set(record: Mapping[str, Any] | None) -> DemandSet | None:
    region = None if record is None else region_of(record)
    if isinstance(region, Ball):
        raise ValueError("a set of demands is a box or a polytope")
    return region


def _granularity(value: Any) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= MOST_PARTS:
        raise ValueError(f"{GRANULARITY} must be a whole number from 1 to {MOST_PARTS}")
    return value


def _priorities(record: Any, demands: int) -> tuple[int, ...] | None:
    if record is None:
        return None
    if len(record) != demands or not all(type(one) is int and one >= 1 for one in record):
        raise ValueError(f"{PRIORITIES} must be a whole number of at least 1 for each demand")
    return tuple(record)


def _all_arcs(record: Sequence[Sequence[str]] | None) -> tuple[tuple[str, str], ...] | None:
    """Those of the network; older runs do not say."""
    return (
        None if record is None else tuple((str(source), str(target)) for source, target in record)
    )


def _source(record: Mapping[str, Any] | None) -> PathSource | None:
    """How paths were chosen, among links that are known; older runs do not say."""
    if record is None:
        return None
    hops, latency, delay = record["max_hops"], record["max_latency"], record["delay"]
    return PathSource(
        str(record["choice"]),
        runs.finite_numbers(record["capacity"], "the capacities of all links"),
        runs.finite_numbers(record["length"], "the lengths of all links"),
        None if delay is None else runs.finite_numbers(delay, "delays"),
        PathLimits(
            None if hops is None else int(hops),
            None if latency is None else _number(latency, "max_latency"),
        ),
    )


def _positions(
    record: Mapping[str, Any] | None, arcs: list[tuple[str, str]]
) -> dict[str, Position] | None:
    """Where each node is, those of the arcs at least; runs of before 0.7 do not say."""
    if record is None:
        return None
    nodes = dict.fromkeys([*(node for arc in arcs for node in arc), *record])
    found = {node: (float(record[node][0]), float(record[node][1])) for node in nodes}
    if not np.isfinite(list(found.values())).all():
        raise ValueError("positions must be finite")
    return found


def _check_sizes(made: Instance) -> None:
    demands, paths = len(made.demand_names), len(made.paths)
    fits = (
        made.demand_max.shape == (demands,)
        and made.region.size == demands
        and made.capacity.shape == (len(made.arcs),)
        and made.path_demand.shape == made.path_length.shape == (paths,)
        and np.array_equal(np.unique(made.path_demand), np.arange(demands))
        and (made.path_source is None or _fits(made.path_source, made.all_arcs))
    )
    if not fits:
        raise ValueError("demands, paths and links do not fit each other")


def _fits(source: PathSource, arcs: tuple[tuple[str, str], ...] | None) -> bool:
    known = [source.capacity, source.length, *([] if source.delay is None else [source.delay])]
    return all(one.shape == (len(arcs or ()),) for one in known)


def describe_scaling(made: Instance) -> str:
    """What follows the name of a network whose capacities are not its own."""
    of = format_multiple(made.capacity_factor)
    return f", with {of} on every link" if of else ""


def format_title(made: Instance) -> str:
    """What a certificate calls the router of an instance."""
    return f"the router of {made.name}{describe_scaling(made)}, {len(made.demand_max)} demands"


@dataclass(frozen=True)
class Router(TrainedDefaults):
    """A trained router: demands by name in, shares of paths by name out.

    `local`: the budgets that agents' shields keep, if it consists of such agents. `bound`: what
    the optimum is at least, by the prices of links that the run has stored. `agents`: whether nodes
    split demands by themselves. `gap`: that of the fallback that the run was trained with.
    `granular`: how answers are rounded, if they are. `bound_of_changes`: the share of each demand
    that may change path between successive answers; None: all of it.
    """

    instance: Instance
    local: BudgetShields | None = None
    bound: LowerBound | None = None
    agents: bool = False
    gap: float | None = None
    granular: Granularity | None = None
    bound_of_changes: float | None = None

    @property
    def fallback(self) -> float | None:
        """Above which proven gap answers are improved or solved; None: the router's as they are."""
        return None if self.without_fallback else self.gap

    @property
    def without_fallback(self) -> str:
        """Why no answer can be improved or solved by default; empty where it can be."""
        if self.agents:
            return "each node splits its demands alone, and a fallback needs all demands at once"
        return self.unproven

    @property
    def export_note(self) -> str:
        """What `cg4ai predict` does to the splits of the model."""
        parts = "" if self.granular is None else f"multiples of 1/{self.granular.parts}"
        held = "" if self.churn is None else "the bound on changes"
        fallback = "the fallback" if self.fallback is not None else ""
        missing = [*filter(None, [fallback, parts, held])]
        if not missing:
            return ""
        return f"the model is the router alone, without {' and '.join(missing)} of cg4ai predict"

    @cached_property
    def _carrying(self) -> CarryingProgram:
        """What solves answers that the network cannot carry in whole, made once."""
        return CarryingProgram(self.instance)

    @cached_property
    def _program(self) -> SplitProgram:
        """What solves answers, made once."""
        return SplitProgram(self.instance)

    @cached_property
    def _shares(self) -> list[str]:
        """What the share of each path is called."""
        made = self.instance
        return [
            f"{made.demand_names[demand]} via {'->'.join(path)}"
            for demand, path in zip(made.path_demand, made.paths, strict=True)
        ]

    @cached_property
    def paths(self) -> dict[str, list[str]]:
        """The nodes of the path that each column is the share of."""
        return {
            name: list(path) for name, path in zip(self._shares, self.instance.paths, strict=True)
        }

    def interface(self) -> Interface:
        made, signature = self.instance, self.signature
        middle = made.region.middle
        short = np.array([float(f"{value:.3g}") for value in middle])
        example = short if made.region.covers(short[None])[0] else middle
        ends = signature.lower.tolist(), signature.upper.tolist()
        parts = "" if self.granular is None else f", in multiples of 1/{self.granular.parts}"
        inputs = zip(signature.inputs, example.tolist(), *ends, strict=True)
        return Interface(
            f"the router of {made.name}{describe_scaling(made)}: the share of {len(made.paths)} "
            f"paths in their demands{parts}",
            tuple(InputColumn(name, at, least=low, most=high) for name, at, low, high in inputs),
            tuple(signature.outputs),
            describe_set(made.region),
        )

    @property
    def unproven(self) -> str:
        """Why nothing is known of how far answers are from the optimum; empty where it is."""
        if self.bound is not None:
            return ""
        return (
            "nothing proves how far answers are from the optimum: no prices of links are stored "
            "(by path cost there are none; older runs of agents, splits and failures lack them)"
        )

    def improve_answers(
        self, inputs: Array, outputs: Array, *, fallback: float = np.inf
    ) -> Answers:
        """Splits (n, P), rounded where answers are, with their proven distance from the optimum.

        With a finite `fallback` those above it are improved or solved, and those outside the set
        solved, before they are rounded.
        """
        if self.agents and fallback < np.inf:
            raise InvalidInput(
                "a fallback needs all demands at once, and an agent knows only some; leave it "
                "out, or train with --agent-scope all",
                code="unsupported",
            )
        finite = fallback < np.inf
        found = improve_answers(
            self.instance,
            inputs,
            outputs,
            bound=self.bound,
            fallback=fallback,
            outside=self.outside(inputs) if finite else None,
            program=self._program if finite else None,
            finish=None if self.granular is None else self.granular.round_answers,
        )
        if self.instance.priorities is None or not finite:
            return found
        return self._carrying.keep_first(inputs, found)

    def finish_outputs(self, inputs: Array, outputs: Array) -> Array:
        """Splits (n, P) as they are answered: rounded, where answers are."""
        return outputs if self.granular is None else self.granular.round_answers(inputs, outputs)

    @property
    def churn(self) -> float | None:
        return self.bound_of_changes

    def limit_changes(
        self,
        inputs: Array,
        outputs: Array,
        last: LastAnswer | None,
        *,
        churn: float,
        known: Sequence[Answers] = (),
    ) -> LimitedOutputs:
        """Splits (n, P) for successive demands, each held near the one before.

        Where priorities say what is carried, the new split is taken at once.
        """
        if self.agents:
            raise InvalidInput(
                "how far an answer may move takes all demands to know, and an agent knows only "
                "some; leave out churn, or train with --agent-scope all",
                code="unsupported",
            )
        parts = None if self.granular is None else self.granular.parts
        limit = ChurnLimit(self.instance, churn, parts)
        whole = self.instance.priorities is None or not known
        free = None if whole else np.concatenate([part.overloaded for part in known])
        return limit.limit(inputs, outputs, last, names=tuple(self._shares), free=free)

    def inputs(self, table: CsvTable) -> Array:
        names = self.instance.demand_names
        vectors = table.get_numbers(names)
        if (vectors < 0).any():
            row, place = np.argwhere(vectors < 0)[0].tolist()
            raise InvalidInput(
                f"{table.format_position(row, names[place])} is {vectors[row, place]:g}, but "
                "demands are at "
                "least 0; correct it or remove the row",
                code="range",
            )
        return self.instance.check_vectors(vectors)

    def outside(self, inputs: Array) -> NDArray[np.bool_]:
        """Demands outside the set, such as those above the largest."""
        region = self.instance.region
        return np.asarray(~region.covers(inputs))

    def measure_excess(self, inputs: Array) -> Excess:
        """By which demand or node total each vector is beyond the set most."""
        made = self.instance
        return measure_excess(made.region, inputs, made.demand_names, made.ends)

    def predictions(
        self, inputs: Array, outputs: Array, *, details: bool
    ) -> list[dict[str, float]]:
        """The share of each path; with `details` also the utilisation of each link, and the MLU.

        Names without an addition are of real capacities: of counted ones they say so.
        """
        made, names = self.instance, self._shares
        rows = [dict(zip(names, line, strict=True)) for line in outputs.tolist()]
        if not details:
            return rows
        links = [f"utilisation {source}->{target}" for source, target in made.arcs] + ["mlu"]
        loads, factor = made.compute_utilisation(inputs, outputs), made.capacity_factor
        loads = np.column_stack([loads, loads.max(axis=1)])
        names = [f"{name}{format_scaling_suffix(factor)}" for name in links]
        if factor is not None and factor != 1.0:
            names, loads = [*links, *names], np.column_stack([factor * loads, loads])
        return [
            {**row, **dict(zip(names, line, strict=True))}
            for row, line in zip(rows, loads.tolist(), strict=True)
        ]

    @property
    def signature(self) -> Signature:
        lower, upper = self.instance.region.bounds()
        return Signature(
            "demands", self.instance.demand_names, "shares", self._shares, lower, upper
        )

    def explorer(self, ensemble: Ensemble, folder: Path, summary: Mapping[str, Any]) -> str:
        from cg4ai.routing.pages.explorer import make_explorer_page

        return make_explorer_page(self, ensemble, folder, summary)

    def rules(self, file: Path | None, table: CsvTable | None) -> list[Rule]:
        """Capacity over the whole box, or at the demands of a table."""
        if file is not None:
            raise InvalidInput(
                "a router has one rule, the capacity of its links, so leave out --rules; give "
                "--data to recompute it at demands of yours",
                code="unsupported",
            )
        made = self.instance
        if table is None:
            return [Rule(self.local.rule if self.local else capacity(made, Recipe()), ())]
        ones = np.ones(len(made.arcs))
        inputs = self.inputs(table)
        name = rule_name(made.capacity_factor)
        listed = Linear(inputs, Utilisation(made), ones, "<=", name=name)
        return [
            Rule(
                listed,
                (),
                table,
                np.arange(len(table)),
                names=tuple(self.links),
                outside=self.outside(inputs),
            )
        ]

    def get_own_rules(self, table: CsvTable) -> list[Rule]:
        return self.rules(None, None)

    def propositions(self) -> list[Proposition]:
        made, local = self.instance, self.local
        return [
            Proposition(
                capacity(made, Recipe()) if local is None else local.rule,
                format_title(made),
                self.links if local is None else local.rule_names,
                made.demand_names,
                None if local is None else local.totals,
            )
        ]

    def read_added_rules(self, file: Path, table: CsvTable | None) -> list[Rule]:
        raise InvalidInput(
            "a router cannot be patched: it keeps all capacities at every demand vector of its "
            "set; for other capacities or demands train again with cg4ai route",
            code="unsupported",
        )

    def files(self, file: Path) -> list[Path]:
        return [file]

    def find_failed_run(self, folder: Path, links: Sequence[str]) -> Path:
        """The folder of the router for links that fail together, which a study has made."""
        from cg4ai.routing.operate.failure_study import failed_folder

        return failed_folder(folder, ",".join(links))

    def export_agents(self, ensemble: Ensemble, folder: Path) -> list[str]:
        """Write a policy for each node; what was written, in words."""
        from cg4ai.routing.operate.export import export_agents

        done = export_agents(self.instance, ensemble, folder)
        models = "and as ONNX models" if done.onnx else "(ONNX: pip install 'cg4ai[onnx]')"
        return [
            f"{len(done.files)} agents in {folder} as JSON {models}, with policy.py, which "
            "computes their splits by NumPy alone, and README.md, which says what files hold.",
            f"Their splits are the router's{done.where}: compared at {done.tried} demand vectors, "
            f"the largest difference is {done.difference:.1e}.",
        ]

    @property
    def links(self) -> list[str]:
        """What the rule of each link is called."""
        return [f"link {source}->{target}" for source, target in self.instance.arcs]
