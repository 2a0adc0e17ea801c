"""How every application is run: opened or resumed, trained, saved, evaluated, reported.

The order is fixed: settings, data and problem are checked before a folder is made or emptied; the
mixture is saved as soon as it is trained; only then is it evaluated, within what the time limit
leaves.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Generic, cast

from cg4ai import clock
from cg4ai.apps.folders import (
    ARRAYS,
    DESCRIPTION,
    REPORT,
    UPDATE_OF,
    check_application,
    describe_mixture,
    open_run,
)
from cg4ai.apps.protocol import Application, Evaluation, P, S, TrainingTask
from cg4ai.apps.registry import get_registration, program_of, training_command
from cg4ai.callbacks import TensorBoard
from cg4ai.clock import Deadline, Review
from cg4ai.colgen.loop import Callbacks
from cg4ai.colgen.pricing.gradient.training import step_listener
from cg4ai.colgen.result import Result
from cg4ai.compile.transformations import compile_problem
from cg4ai.errors import Cg4aiError, InvalidInput, RunFolderError
from cg4ai.parallel import use_own_stream
from cg4ai.records import IterationRecord, StopReason
from cg4ai.report.terminal import UNBROKEN, render_text
from cg4ai.report.wording import outcome_in_numbers
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from cg4ai.settings import MOST_THREADS, CheckedSettings, RunOptions, Settings

KEPT, NOT_KEPT, INTERRUPTED = 0, 3, 130
PREPARING_SHARE = 0.5  # of a time limit: what is not prepared by then is done without
NEEDED_SHARE = 0.8  # and of what nothing comes out without
REPORT_S = 1.0  # kept of a time limit for the report, a tenth of short ones;
BYTES_PER_S = 1e6  # more where what the report reads first is large
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
class RunOutcome(Generic[P]):
    """A run that has ended; `evaluation` is None where it was interrupted."""

    prepared: P
    result: Result
    evaluation: Evaluation | None
    unreported: str = ""  # why there is no report, where one was to be written

    @property
    def summary(self) -> dict[str, Any]:
        if self.evaluation is None:
            raise InvalidInput("the run was interrupted, so there is no summary; resume it")
        return self.evaluation.summary


# ---- one command ---------------------------------------------------------------------------------


def execute_command(
    app: Application[S, P],
    given: Mapping[str, Any],
    options: RunOptions,
    screen: Screen,
    *,
    started: float | None = None,
) -> int:
    """Run one command: train, evaluate and report; returns the exit code.

    `given` holds the settings that were named; the others are usual, or those of the run resumed.
    A time limit counts from `started` (of `clock.now`), by default from now.
    """
    return execute_run(
        app, lambda: choose_settings(app, given, options), options, screen, started=started
    )


def execute_run(
    app: Application[S, P],
    choose: Callable[[], ChosenSettings[S]],
    options: RunOptions,
    screen: Screen,
    *,
    started: float | None = None,
    again: str = "",
) -> int:
    """The same for settings that `choose` gives; `again` is the command that continues the run."""
    started = clock.now() if started is None else started
    try:
        chosen = choose()
        outcome = perform(
            app,
            chosen.settings,
            out=options.out,
            resume=options.resume,
            force=options.force,
            described=chosen.described,
            screen=screen,
            started=started,
            report=not options.no_report,
            callbacks=_logging(options),
        )
    except KeyboardInterrupt:
        outcome = None
    screen.close()
    if outcome is None or outcome.evaluation is None:
        print_interrupted(app.name, options.out, again)
        return INTERRUPTED
    story = app.story(outcome.summary)
    if options.json:
        event = {"event": "result", "verdict": story.data, **outcome.summary}
        sys.stdout.write(files.json_line(event).decode())
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else UNBROKEN
        print(render_text(story, verbose=options.verbose, width=width))
        if options.out is not None:
            print(describe_saved(options.out, app.name, explorable=story.explorable))
    if outcome.unreported:
        print(outcome.unreported, file=sys.stderr)
    return KEPT if outcome.evaluation.kept else NOT_KEPT


def describe_saved(folder: Path, name: str, *, explorable: bool = True) -> str:
    """Where a run of the application with this name is, and what to do with it."""
    report = f" Report: {folder / REPORT}." if (folder / REPORT).exists() else ""
    if not explorable:
        return f"Saved in {folder}.{report}"
    explore = f"{program_of(name)} explore {shlex.quote(str(folder))}"
    return f"Saved in {folder}.{report} Explore it: {explore}"


def print_interrupted(name: str, out: Path | None, again: str = "") -> None:
    more = ""
    if out is not None:
        more = " before there was anything to save"
        if (out / "run.json").exists():
            again = again or f"{training_command(name)} --resume --out {shlex.quote(str(out))}"
            more = f"; continue with: {again}"
    with ignore_interrupts():
        print(f"interrupted{more}", file=sys.stderr)


@contextmanager
def ignore_interrupts() -> Iterator[None]:
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
class ChosenSettings(Generic[S]):
    """Settings, and the description of the data where the folder knows it."""

    settings: S
    described: Mapping[str, Any] | None = None


def choose_settings(
    app: Application[S, P], given: Mapping[str, Any], options: RunOptions
) -> ChosenSettings[S]:
    """The settings of a new run; of a resumed one its own, but for those that may differ."""
    make = cast("type[CheckedSettings]", app.settings)
    # a run killed before its first file was written is resumed by starting it
    if not options.resume or options.out is None or not (options.out / "run.json").exists():
        nothing = f"{options.out} holds no run to resume (run.json is missing): check the name"
        if options.resume and not given:
            raise RunFolderError(f"{nothing}, or start a run there without --resume")
        try:
            return ChosenSettings(cast(S, make.from_mapping(given)))
        except Cg4aiError as error:
            if not options.resume:
                raise
            raise RunFolderError(f"{nothing}; nor does what is given start one: {error}") from error
    run = Run.open(options.out, read_only=True)
    check_application(run, app.name)
    stored = run.settings
    described = stored.pop(DESCRIPTION, None)
    if described and UPDATE_OF in described:
        raise RunFolderError(
            f"{options.out} holds an update of {described[UPDATE_OF]}: continue it with the "
            f"command that began it, {program_of(app.name)} update, and --out {options.out}"
        )
    _refuse_settings_of_before(make, stored, options.out)
    settings = cast(S, make.from_mapping({**stored, **given}))
    only_longer = all(name in app.may_differ for name in given)
    return ChosenSettings(settings, described if only_longer else None)


def _refuse_settings_of_before(
    kind: type[CheckedSettings], stored: Mapping[str, Any], folder: Path
) -> None:
    """A run of a version that had other settings would not go on as it began."""
    gone = sorted(stored.keys() - {one.name for one in fields(cast("Any", kind))})
    if gone:
        raise RunFolderError(
            f"the run in {folder} was started by a version with other settings "
            f"({', '.join(gone)}): finish it with that version, or start anew in another --out"
        )


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
    report: bool = True,
    callbacks: Callbacks | None = None,
) -> RunOutcome[P]:
    """Train (or go on), save, evaluate; see `RunOutcome` for what an interrupt leaves.

    With `report` and a folder, what came out is also written as a page, report.html.
    """

    import torch

    get_registration(app.name)  # what nobody could read is refused before anything is trained
    screen = screen or Screen()
    started = clock.now() if started is None else started
    if settings.threads is None:
        settings = replace(settings, threads=usual_threads())  # type: ignore[type-var]
    # sums depend on how many threads share them, so the number is a setting like the others
    torch.set_num_threads(cast(int, settings.threads))
    if app.preparing:
        screen.message(app.preparing)
    limit = settings.time_limit_s
    preparing = Review(
        Deadline(started + PREPARING_SHARE * limit),
        screen.message,
        what="preparing",
        latest=Deadline(started + NEEDED_SHARE * limit),
    )
    with use_own_stream(settings.device), ExitStack() as ending:
        with preparing.activate():
            prepared = app.prepare(settings, described)
            task = app.problem(prepared)
        run = None
        if out is not None:
            if not (out / "run.json").exists() or not resume:
                compile_problem(
                    task.problem, task.settings
                )  # refuses what training would, too late
            run = open_run(app, settings, prepared, out, resume=resume, force=force)
            ending.callback(run.close)
        task = app.attach_journal(task, run)
        if report and run is not None and math.isfinite(limit):
            large = (run.folder / "run.json").stat().st_size / BYTES_PER_S
            limit -= min(REPORT_S + large, limit / 10)
        outcome = _train(
            app,
            prepared,
            task,
            run,
            screen,
            time_limit_s=limit,
            started=started,
            callbacks=callbacks,
            cut=preparing.cut,
        )
        if run is not None and outcome.evaluation is not None:
            from cg4ai.report.write import try_write_report

            with Review(say=screen.message, what="writing").stage("the report"):
                fault = try_write_report(run.folder, app, wanted=report)
            outcome = replace(outcome, unreported=fault)
        return outcome


def _train(
    app: Application[S, P],
    prepared: P,
    task: TrainingTask,
    run: Run | None,
    screen: Screen,
    *,
    time_limit_s: float,
    started: float,
    callbacks: Callbacks | None,
    cut: Sequence[str],
) -> RunOutcome[P]:
    if run is not None and run.history():
        screen.message(f"resuming after {len(run.history())} iterations")
    ready_s = clock.now() - started
    settings = _within(task, time_limit_s, ready_s)
    screen.expect(task.words, iterations=settings.iteration_limit, seconds=settings.time_limit_s)
    progress = _listening(task, screen)
    listening = step_listener.set(screen.step)
    try:
        with Review(say=screen.message, what="training").activate():
            solved = task.solver(
                task.problem, settings, progress=progress, run=run, callbacks=callbacks
            )
    finally:
        step_listener.reset(listening)
    interrupted = solved.result.stop_reason is StopReason.INTERRUPTED
    review = Review(Deadline(started + time_limit_s), screen.message)
    if not interrupted:
        with review.activate():
            solved = app.conclude(prepared, task, solved, run)
    result = solved.result
    result.ensemble.about.update(describe_mixture(app, prepared))
    if run is not None:
        run.forget_summary()  # of the ensemble of before, if there was one
        result.ensemble.save(run.folder)
    common = outcome_in_numbers(result, preparing_s=ready_s)
    if interrupted:
        if run is not None:
            run.finish(common)
        return RunOutcome(prepared, result, None)
    before = clock.now()
    with review.activate():
        evaluated = app.evaluate(prepared, task, solved, review)
    every = dict.fromkeys([*cut, *result.cut, *review.cut])
    spent = {"evaluation_s": clock.now() - before}
    summary = {"cut": list(every), **common, **evaluated.summary, **spent}
    if run is not None:
        if evaluated.arrays:
            files.write_arrays(run.folder / ARRAYS, evaluated.arrays)
        result.ensemble.save(run.folder)  # evaluation may have recorded what it established
        run.finish(summary)
    return RunOutcome(prepared, result, replace(evaluated, summary=summary))


def _logging(options: RunOptions) -> Callbacks:
    return [] if options.log_tensorboard is None else [TensorBoard(options.log_tensorboard)]


def _listening(task: TrainingTask, screen: Screen) -> Callable[[IterationRecord], None]:
    def update(record: IterationRecord) -> None:
        task.heard(record)
        screen.update(record)

    return update


def _within(task: TrainingTask, time_limit_s: float, ready_s: float) -> Settings:
    """The loop's settings with what the limit of the whole command leaves it."""
    if math.isinf(time_limit_s):
        return task.settings
    kept = min(time_limit_s * task.evaluation_share, task.evaluation_most_s)
    left = max(0.0, time_limit_s - kept - ready_s)
    return replace(task.settings, time_limit_s=min(left, task.settings.time_limit_s))


def usual_threads() -> int:
    """OMP_NUM_THREADS where set; else as many as there are cores, at most two.

    How busy they are does not count: what comes out must not depend on it.
    """
    told = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if told.isdecimal() and int(told) > 0:
        return min(int(told), MOST_THREADS)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(USUAL_THREADS, cores or 1)
