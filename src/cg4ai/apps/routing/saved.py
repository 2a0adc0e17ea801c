"""One routing run in a folder: what was asked for, training with resume, evaluation, files.

Beside what every run folder holds (see runs.py) there are `cuts.jsonl`, one line per demand
vector that separation or an attack while training found (see cuts.py), and
`validation.safetensors`, the arrays behind the figures.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from cg4ai.apps.routing.data import Instance, instance
from cg4ai.apps.routing.functional import PathCost
from cg4ai.apps.routing.guarantee import (
    Guarantee,
    proof_summary,
    proven_router,
    shield_summary,
    shielded_router,
    write_proof,
)
from cg4ai.apps.routing.journal import CUTS, CutJournal
from cg4ai.apps.routing.problem import Recipe, RoutingObjective, routing_problem
from cg4ai.apps.routing.shield import record_cuts
from cg4ai.apps.routing.train import LEAN, RoutingResult, evaluate, routing_settings
from cg4ai.ensemble.shield import ShieldedEnsemble
from cg4ai.errors import InvalidInput, InvalidSettings, RunFolderError, did_you_mean
from cg4ai.proofs import Certification
from cg4ai.proofs.certificate import FILE_NAME
from cg4ai.records import IterationRecord, StopReason
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from cg4ai.settings import Settings
from cg4ai.solving.loop import solve
from cg4ai.solving.problem import Problem

Mode = Literal["ours", "paper"]
SeparatorName = Literal["ascent", "nlopt"]
COMMAND = "route"
ARRAYS = "validation.safetensors"
# a resumed run may take longer than was first asked
MAY_DIFFER = ("settings.time_limit_s", "settings.lean")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to train: the instance, and what differs from the usual recipe (None: as usual)."""

    network: str
    demands: int = 5
    paths: int = 3
    load: float | None = 0.99  # None: volumes as given
    demand_file: Path | None = None
    objective: RoutingObjective = "mlu"
    separator: SeparatorName = "ascent"
    hidden: tuple[int, ...] | None = None
    mode: Mode = "ours"
    guarantee: Guarantee = "attacked"
    seed: int = 0
    device: str = "cpu"
    threads: int = 2
    time_limit_s: float = np.inf
    lean: float | None = None  # of the objective, to give up for fewer members; None: the usual
    recipe: Recipe | None = None  # replaces the usual one, e.g. by a quicker one

    def __post_init__(self) -> None:
        for name, known in (
            ("objective", get_args(RoutingObjective)),
            ("separator", get_args(SeparatorName)),
            ("mode", get_args(Mode)),
            ("guarantee", get_args(Guarantee)),
        ):
            value = getattr(self, name)
            if value not in known:
                hint = did_you_mean(str(value), known)
                raise InvalidInput(f"{name} must be one of {', '.join(known)}, got {value!r}{hint}")
        if self.guarantee == "certified" and (self.mode == "paper" or self.objective != "mlu"):
            raise InvalidInput(
                "--guarantee certified trains by the mlu objective, got "
                f"{self.objective if self.mode == 'ours' else 'the paper mode'}; train without "
                "it and prove what came out with cg4ai certify"
            )
        if self.lean and (self.mode == "paper" or self.guarantee == "certified"):
            raise InvalidInput(
                "--lean has no meaning for the paper's mode or --guarantee certified, which choose "
                "their weights otherwise; leave it out"
            )
        if self.lean is not None and not 0 <= self.lean <= 1:
            raise InvalidInput(f"--lean must lie in [0, 1], got {self.lean:g}")
        if self.threads < 1:
            raise InvalidInput(f"threads must be 1 or more, got {self.threads}")
        if not self.time_limit_s > 0:
            raise InvalidInput(f"a time limit must be above 0 seconds, got {self.time_limit_s:g}")
        Settings(seed=self.seed, device=self.device)  # refuses what training could not use
        if self.hidden is not None and (not self.hidden or min(self.hidden) < 1):
            raise InvalidInput(f"hidden layers must have at least 1 unit, got {self.hidden}")


@dataclass(frozen=True)
class Prepared:
    """An instance with its recipe and settings, all checked; nothing is trained yet."""

    wanted: Wanted
    instance: Instance
    recipe: Recipe
    settings: Settings

    @property
    def record(self) -> dict[str, Any]:
        """What run.json keeps: enough to tell whether another run is the same."""
        return {
            "network": self.instance.name,
            "demands": self.wanted.demands,
            "paths": self.wanted.paths,
            "load": self.wanted.load,
            "mode": self.wanted.mode,
            "guarantee": self.wanted.guarantee,
            "threads": self.wanted.threads,
            "seed": self.wanted.seed,
            "instance_sha256": _digest(self.instance),
            "recipe": asdict(self.recipe),
            "settings": self.settings.as_dict(),
        }

    def problem(self) -> Problem:
        if self.wanted.mode == "paper":
            from experiments.routing.paper_mode import paper_problem

            return paper_problem(self.instance, self.recipe)
        return routing_problem(self.instance, self.recipe)


def prepare(wanted: Wanted) -> Prepared:
    """Read the network and check everything that can be checked before training."""
    made = instance(
        wanted.network,
        wanted.demands,
        wanted.paths,
        load=wanted.load,
        demand_file=wanted.demand_file,
    )
    if wanted.mode == "paper":
        from experiments.routing.paper_mode import paper_recipe, paper_settings

        recipe = wanted.recipe or paper_recipe(seed=wanted.seed, device=wanted.device)
        settings = paper_settings(made, recipe, time_limit_s=wanted.time_limit_s)
        return Prepared(wanted, made, recipe, settings)
    if wanted.objective == "cost":
        PathCost(made)  # refuses a network without lengths
    recipe = replace(
        wanted.recipe or Recipe(),
        objective=wanted.objective,
        separator=wanted.separator,
        seed=wanted.seed,
        device=wanted.device,
    )
    if wanted.hidden is not None:
        recipe = replace(recipe, hidden=wanted.hidden)
    lean = LEAN if wanted.lean is None else wanted.lean
    settings = routing_settings(made, recipe, time_limit_s=wanted.time_limit_s, lean=lean)
    return Prepared(wanted, made, recipe, settings)


def open_run(folder: Path, prepared: Prepared, *, resume: bool, force: bool) -> Run:
    """A new run, or with `resume` the one that is there if it was started alike.

    The summary of a run that had ended stays until there is a new one.
    """
    if resume and force:
        raise InvalidInput("--resume continues a run, --force replaces it; give one of them")
    # a run killed before its first file was written is resumed by starting it
    if not resume or not (folder / "run.json").exists():
        created = Run.create(folder, COMMAND, prepared.record, force=force)
        for name in (CUTS, ARRAYS, FILE_NAME):
            (folder / name).unlink(missing_ok=True)
        return created
    opened = Run.open(folder)
    try:
        check_same(opened, prepared)
    except (InvalidSettings, RunFolderError):
        opened.close()
        raise
    return opened


def check_same(run: Run, prepared: Prepared) -> None:
    """An error unless the run was started by this command with these settings."""
    if run.command != COMMAND:
        raise RunFolderError(f"{run.folder} holds a run of {run.command!r}, not of {COMMAND!r}")
    run.check_settings(prepared.record, may_differ=MAY_DIFFER)


def train_and_save(
    prepared: Prepared,
    run: Run | None,
    *,
    progress: Callable[[IterationRecord], None] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> RoutingResult | None:
    """Train (or go on), evaluate and write all files; None if it was interrupted."""
    try:
        return _train_and_save(prepared, run, progress=progress, say=say)
    except KeyboardInterrupt:
        return None


def _train_and_save(
    prepared: Prepared,
    run: Run | None,
    *,
    progress: Callable[[IterationRecord], None] | None,
    say: Callable[[str], None],
) -> RoutingResult | None:
    import torch

    # sums depend on how many threads share them, so the number is a setting like the others
    torch.set_num_threads(prepared.wanted.threads)
    started = time.perf_counter()
    problem = prepared.problem()
    built_s = time.perf_counter() - started
    journal = None if run is None else CutJournal(run, prepared.settings)
    recorded = problem if journal is None else journal.listen(problem)

    def update(record: IterationRecord) -> None:
        if journal is not None:
            journal.iteration = record.iteration + 1
        if progress is not None:
            progress(record)

    proof: Certification | None = None
    if prepared.wanted.guarantee == "certified":
        result, proof = proven_router(recorded, prepared.settings, update, run)
    else:
        result = solve(recorded, prepared.settings, progress=update, run=run)
    if result.stop_reason is StopReason.INTERRUPTED:
        return None
    if prepared.wanted.guarantee == "shielded":
        result = shielded_router(prepared.instance, result, seed=prepared.wanted.seed)
    say("evaluating: attack, validation, plain baseline")
    routed = evaluate(
        prepared.instance,
        prepared.recipe,
        problem=problem,
        result=result,
        total_s=built_s + result.seconds,
    )
    routed.summary["mode"] = prepared.wanted.mode
    routed.summary["time_limit_s"] = prepared.settings.time_limit_s
    routed.summary["guarantee"] = prepared.wanted.guarantee
    if proof is not None:
        routed.summary.update(proof_summary(prepared.instance, proof))
    if isinstance(routed.ensemble, ShieldedEnsemble):
        say("evaluating: a million inputs through the shield")
        report = shield_summary(prepared.instance, routed.ensemble, seed=prepared.wanted.seed)
        routed.summary.update(report)
    if routed.attack.strength == "violated":  # whatever else was established
        routed.summary["strength"] = "violated"
    routed = replace(routed, summary=_finite(routed.summary))
    if run is not None and journal is not None:
        routed.ensemble.about.update(about(prepared.instance))
        if proof is not None and proof.status == "proven":
            written = write_proof(run.folder, prepared.instance, routed.ensemble, proof)
            routed.summary.update(written)
        arrays = {**routed.arrays, **journal.arrays()}
        files.write_arrays(run.folder / ARRAYS, arrays)
        if not isinstance(routed.ensemble, ShieldedEnsemble):
            record_cuts(prepared.instance, routed.ensemble, run.folder)
        routed.ensemble.save(run.folder)
        run.finish(routed.summary)
    return routed


def _finite(value: Any) -> Any:
    """The same with None for NaN and infinity at any depth: JSON has neither."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def about(made: Instance) -> dict[str, Any]:
    """What the folder says of inputs and outputs: demands in, the share of each path out."""
    return {
        "application": "routing",
        "network": made.name,
        "demands": made.demand_names,
        "demand_max": made.demand_max.tolist(),
        "paths": [list(path) for path in made.paths],
        "path_demand": made.path_demand.tolist(),
        "arcs": [list(arc) for arc in made.arcs],
        "capacity": made.capacity.tolist(),
    }


def _digest(made: Instance) -> str:
    """Of all that a router depends on, and of the names by which it is read."""
    digest = hashlib.sha256()
    volumes = (made.path_demand, made.demand_max, made.path_length)
    for array in (made.capacity, made.incidence, *volumes):
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(files.json_line([made.arcs, made.demand_names, made.paths]))
    return digest.hexdigest()
