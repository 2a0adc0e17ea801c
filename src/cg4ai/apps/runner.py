"""How every application is run: opened or resumed, trained, saved, evaluated, reported.

The order is fixed: settings and data are checked before the folder is made; the mixture is saved as
soon as it is trained; only then is it evaluated, within what the time limit leaves.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, cast

from cg4ai.apps.protocol import (
    Application,
    Evaluation,
    P,
    Review,
    RunSettings,
    S,
    Task,
    Trained,
)
from cg4ai.apps.tables import wrapped
from cg4ai.ensemble.saved import load
from cg4ai.errors import InvalidInput, InvalidSettings, RunFolderError
from cg4ai.pricing.gradient.training import step_listener
from cg4ai.records import IterationRecord, StopReason
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from cg4ai.settings import MOST_THREADS, Checked, RunOptions, Settings
from cg4ai.solving.clock import Deadline
from cg4ai.solving.result import Result

KEPT, NOT_KEPT, INTERRUPTED = 0, 3, 130
ARRAYS = "arrays.safetensors"
DESCRIPTION = "description"
APPLICATIONS = {"train": "tabular", "route": "routing", "digits": "digits"}
USUAL_THREADS = 2  # more hardly ever help: members are small


class Screen:
    """Shows people how a run goes on; this one shows nothing."""

    def update(self, record: IterationRecord) -> None:
        """Show one finished iteration."""

    def message(self, text: str) -> None:
        """Show a remark between iterations."""

    def expect(self, words: str, *, iterations: int, seconds: float) -> None:
        """Say what begins now, in words, and what it takes at most."""

    def step(self, done: int, steps: int) -> None:
        """Say how far the training of one group is."""

    def close(self) -> None:
        """Leave the terminal as it should be; may be called twice."""


@dataclass(frozen=True)
class Outcome(Generic[P]):
    """A run that has ended; `evaluation` is None where it was interrupted."""

    prepared: P
    result: Result
    evaluation: Evaluation | None

    @property
    def summary(self) -> dict[str, Any]:
        if self.evaluation is None:
            raise InvalidInput("the run was interrupted, so there is no summary; resume it")
        return self.evaluation.summary


# ---- one command ---------------------------------------------------------------------------------


def execute(
    app: Application[S, P],
    given: Mapping[str, Any],
    options: RunOptions,
    screen: Screen,
    *,
    started: float | None = None,
) -> int:
    """Run one command: train, evaluate and report; returns the exit code.

    `given` holds the settings that were named; the others are usual, or those of the run resumed.
    A time limit counts from `started` (of `time.perf_counter`), by default from now.
    """
    started = time.perf_counter() if started is None else started
    try:
        chosen = choose(app, given, options)
        outcome = perform(
            app,
            chosen.settings,
            out=options.out,
            resume=options.resume,
            force=options.force,
            described=chosen.described,
            screen=screen,
            started=started,
        )
    except KeyboardInterrupt:
        outcome = None
    screen.close()
    if outcome is None or outcome.evaluation is None:
        say_interrupted(app.name, options.out)
        return INTERRUPTED
    if options.json:
        sys.stdout.write(files.json_line({"event": "result", **outcome.summary}).decode())
    else:
        words = app.report(outcome.summary)
        if sys.stdout.isatty():
            words = wrapped(words, shutil.get_terminal_size().columns)
        print(words)
        if options.out is not None:
            print(f"\nSaved in {options.out}; try: cg4ai predict {options.out} DATA.csv")
    return KEPT if outcome.evaluation.kept else NOT_KEPT


def say_interrupted(name: str, out: Path | None) -> None:
    more = ""
    if out is not None:
        more = " before there was anything to save"
        if (out / "run.json").exists():
            more = f"; continue with: cg4ai {name} --resume --out {out}"
    with uninterrupted():
        print(f"interrupted{more}", file=sys.stderr)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """A moment in which another Ctrl-C changes nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@dataclass(frozen=True)
class Chosen(Generic[S]):
    """Settings, and the description of the data where the folder knows it."""

    settings: S
    described: Mapping[str, Any] | None = None


def choose(app: Application[S, P], given: Mapping[str, Any], options: RunOptions) -> Chosen[S]:
    """The settings of a new run; of a resumed one its own, but for those that may differ."""
    make = cast("type[Checked]", app.settings)
    # a run killed before its first file was written is resumed by starting it
    if not options.resume or options.out is None or not (options.out / "run.json").exists():
        if options.resume and not given:
            raise RunFolderError(
                f"{options.out} holds no run (run.json is missing): check the name, or start a "
                "run there without --resume"
            )
        return Chosen(cast(S, make.from_mapping(given)))
    run = Run.open(options.out, read_only=True)
    check_application(run, app.name)
    stored = run.settings
    described = stored.pop(DESCRIPTION, None)
    settings = cast(S, make.from_mapping({**stored, **given}))
    only_longer = all(name in app.may_differ for name in given)
    return Chosen(settings, described if only_longer else None)


def check_application(run: Run, name: str) -> None:
    if run.command != name:
        raise RunFolderError(f"{run.folder} holds a run of {run.command!r}, not of {name!r}")


# ---- one run -------------------------------------------------------------------------------------


def perform(
    app: Application[S, P],
    settings: S,
    *,
    out: Path | None = None,
    resume: bool = False,
    force: bool = False,
    described: Mapping[str, Any] | None = None,
    screen: Screen | None = None,
    started: float | None = None,
) -> Outcome[P]:
    """Train (or go on), save, evaluate; see `Outcome` for what an interrupt leaves."""
    import torch

    screen = screen or Screen()
    started = time.perf_counter() if started is None else started
    if settings.threads is None:
        settings = replace(settings, threads=free_threads())  # type: ignore[type-var]
    # sums depend on how many threads share them, so the number is a setting like the others
    torch.set_num_threads(cast(int, settings.threads))
    if app.preparing:
        screen.message(app.preparing)
    prepared = app.prepare(settings, described)
    run = (
        None if out is None else open_run(app, settings, prepared, out, resume=resume, force=force)
    )
    try:
        return _train(
            app, prepared, run, screen, time_limit_s=settings.time_limit_s, started=started
        )
    finally:
        if run is not None:
            run.close()


def _train(
    app: Application[S, P],
    prepared: P,
    run: Run | None,
    screen: Screen,
    *,
    time_limit_s: float,
    started: float,
) -> Outcome[P]:
    if run is not None and run.history():
        screen.message(f"resuming after {len(run.history())} iterations")
    task = app.problem(prepared, run)
    ready_s = time.perf_counter() - started
    settings = _within(task, time_limit_s, ready_s)
    screen.expect(task.words, iterations=settings.iteration_limit, seconds=settings.time_limit_s)
    progress = _listening(task, screen)
    listening = step_listener.set(screen.step)
    try:
        result = task.solver(task.problem, settings, progress=progress, run=run)
    finally:
        step_listener.reset(listening)
    interrupted = result.stop_reason is StopReason.INTERRUPTED
    if not interrupted:
        result = app.conclude(prepared, task, result, run)
    result.ensemble.about.update(about_of(app, prepared))
    if run is not None:
        result.ensemble.save(run.folder)
    common = outcome_in_numbers(result, preparing_s=ready_s)
    if interrupted:
        if run is not None:
            run.finish(common)
        return Outcome(prepared, result, None)
    evaluated = _evaluate(
        app, prepared, task, result, Review(Deadline(started + time_limit_s), screen.message)
    )
    summary = {**common, **evaluated.summary}
    if run is not None:
        if evaluated.arrays:
            files.write_arrays(run.folder / ARRAYS, evaluated.arrays)
        result.ensemble.save(run.folder)  # evaluation may have recorded what it established
        run.finish(summary)
    return Outcome(prepared, result, replace(evaluated, summary=summary))


def _evaluate(
    app: Application[S, P], prepared: P, task: Task, result: Result, review: Review
) -> Evaluation:
    started = time.perf_counter()
    found = app.evaluate(prepared, task, result, review)
    cut = [*result.cut, *review.cut]
    spent = {"evaluation_s": time.perf_counter() - started, "cut": cut}
    return replace(found, summary={**found.summary, **spent})


def _listening(task: Task, screen: Screen) -> Callable[[IterationRecord], None]:
    def update(record: IterationRecord) -> None:
        task.heard(record)
        screen.update(record)

    return update


def _within(task: Task, time_limit_s: float, ready_s: float) -> Settings:
    """The loop's settings with what the limit of the whole command leaves it."""
    if math.isinf(time_limit_s):
        return task.settings
    kept = min(time_limit_s * task.evaluation_share, task.evaluation_most_s)
    left = max(0.0, time_limit_s - kept - ready_s)
    return replace(task.settings, time_limit_s=min(left, task.settings.time_limit_s))


def about_of(app: Application[S, P], prepared: P) -> dict[str, Any]:
    """What a mixture says of itself: its application, and that one's description."""
    return {"application": APPLICATIONS[app.name], **app.describe(prepared)}


def outcome_in_numbers(result: Result, *, preparing_s: float) -> dict[str, Any]:
    """What every summary holds; the seconds of the steps sum to the total."""
    return {
        "stop_reason": result.stop_reason.value,
        "iterations": len(result.history),
        "columns": result.columns,
        "rows": result.rows,
        "active_members": len(result.ensemble),
        "preparing_s": preparing_s,
        **result.seconds_by_step(),
        "total_s": preparing_s + result.seconds,
        "note": result.note,
    }


def free_threads() -> int:
    """OMP_NUM_THREADS where set; else as many as cores are free now, at most two."""
    told = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if told.isdecimal() and int(told) > 0:
        return min(int(told), MOST_THREADS)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return max(1, min(USUAL_THREADS, int((cores or 1) - busy + 0.5)))


# ---- the folder ----------------------------------------------------------------------------------


def open_run(
    app: Application[S, P], settings: S, prepared: P, out: Path, *, resume: bool, force: bool
) -> Run:
    """A new run, or with `resume` the one that is there if it was started alike."""
    if not resume or not (out / "run.json").exists():
        record = {**_located(settings), DESCRIPTION: app.describe(prepared)}
        created = Run.create(out, app.name, record, force=force)
        for path in [*out.glob("*.cg4ai"), *out.glob("*.jsonl"), out / ARRAYS]:
            path.unlink(missing_ok=True)
        return created
    opened = Run.open(out)
    try:
        check_same(opened, app, settings, prepared)
    except (InvalidSettings, RunFolderError):
        opened.close()
        raise
    if (summary := opened.summary()) is not None and not complete(summary):
        (out / "summary.json").unlink()  # about to be out of date
    return opened


def check_same(run: Run, app: Application[S, P], settings: S, prepared: P) -> None:
    """An error unless the run was started by this application with these settings and data."""
    check_application(run, app.name)
    run.check_settings(
        {**_located(settings), DESCRIPTION: run.settings.get(DESCRIPTION)},
        may_differ=app.may_differ,
    )
    now, then = files.jsonable(app.describe(prepared)), run.settings.get(DESCRIPTION) or {}
    other = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
    if other:
        raise InvalidSettings(
            f"the run in {run.folder} was started with other data: {', '.join(other)} differ; "
            "give the same files to resume it, or start anew in another --out"
        )


def _located(settings: RunSettings) -> dict[str, Any]:
    """The settings with full paths, so that the run can go on from any folder."""
    return {
        name: str(value.absolute()) if isinstance(value, Path) else value
        for name, value in settings.as_dict().items()
    }


def complete(summary: Mapping[str, Any]) -> bool:
    """Whether a summary is that of a run that came to its end."""
    return bool(summary.get("stop_reason") != StopReason.INTERRUPTED.value)


# ---- finished runs -------------------------------------------------------------------------------


def application(name: str) -> Application[Any, Any]:
    """The application whose command has this name."""
    if name not in APPLICATIONS:
        raise RunFolderError(
            f"a run of {name!r} is of none of the applications {', '.join(APPLICATIONS)}; use "
            "cg4ai.load in Python"
        )
    module = import_module(f"cg4ai.apps.{APPLICATIONS[name]}.app")
    return cast("Application[Any, Any]", module.APPLICATION)


def trained(folder: Path) -> tuple[Any, Trained]:
    """The mixture of a finished run of any application, and what it says of itself."""
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is no folder: name one that a run was saved in")
    settings: Mapping[str, Any] = {}
    if (folder / "run.json").exists():
        run = Run.open(folder, read_only=True)
        settings = run.settings
        if not (folder / "ensemble.json").exists():
            raise RunFolderError(
                f"the run in {folder} has not ended, so there is no mixture yet: continue it with "
                f"cg4ai {run.command} --resume --out {folder}"
            )
    ensemble = load(folder)
    about = ensemble.about
    if "application" not in about:
        raise RunFolderError(
            f"the ensemble in {folder} does not say of which application it is, so its inputs have "
            "no names; use cg4ai.load in Python instead"
        )
    commands = [name for name, home in APPLICATIONS.items() if home == about["application"]]
    app = application(commands[0] if commands else str(about["application"]))
    return ensemble, app.restore(ensemble, about, settings)
