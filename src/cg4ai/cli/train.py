"""`cg4ai train`: a CSV file and rules in, a run folder with a trained mixture out.

Everything is read and checked before the folder is made, so bad input leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cg4ai.apps.tabular.csvdata import CsvTable, as_number, read_csv
from cg4ai.apps.tabular.rulefile import Rule, Subject, canonical, read_rules, rule_files
from cg4ai.cli import wording
from cg4ai.cli.progress import progress
from cg4ai.cli.trained import about
from cg4ai.errors import InvalidInput, InvalidSettings, RunFolderError, did_you_mean
from cg4ai.estimators.estimators import ConstrainedClassifier, ConstrainedRegressor
from cg4ai.records import Array, IntArray, StopReason
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from cg4ai.settings import Settings
from cg4ai.solving.loop import solve
from cg4ai.solving.problem import Problem
from cg4ai.solving.result import Result

MET, NOT_MET, INTERRUPTED = 0, 3, 130
MOST_CLASSES = 20  # whole numbers with at most this many distinct values are guessed to be classes
TASKS = ("classification", "regression")
# a resumed run may go on for longer than was first asked, and its files may have moved
MAY_DIFFER = ("data", "rules", "column_limit", "iteration_limit", "time_limit_s")
# parameters of the estimators that have no option of their own, and what they must be
FURTHER: dict[str, tuple[type, ...]] = {
    "activation": (str,),
    "objective": (str,),
    "group": (int,),
    "learning_rate": (int, float),
    "batch_size": (int, type(None)),
    "output_limit": (int, float, type(None)),
}
KINDS_IN_WORDS = {str: "text", int: "a whole number", float: "a number", type(None): "null"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """The options of the command, as given."""

    data: Path
    target: str
    rules: Path
    out: Path
    task: str | None = None
    ignore: tuple[str, ...] = ()
    members: str = "network"
    scores: str = "probability"
    hidden: str = "16"
    restarts: int = 4
    steps: int = 300
    column_limit: int = 100
    iteration_limit: int = 15
    time_limit: float | None = None
    final_weights: str = "loss"
    seed: int = 0
    device: str = "cpu"
    threads: int = 1
    assign: tuple[str, ...] = ()
    resume: bool = False
    force: bool = False
    progress: str = "auto"


@dataclass(frozen=True)
class _Job:
    """All that training needs, checked."""

    problem: Problem
    settings: Settings
    subject: Subject
    rules: list[Rule]
    scores: str
    record: dict[str, Any]


def run(options: TrainOptions) -> int:
    """Train and report; returns the exit code."""
    job = _prepare(options)
    # sums depend on how many threads share them, so the number is a setting like the others
    torch.set_num_threads(_positive("--threads", options.threads))
    with _open_run(options, job.record) as folder, progress(options.progress) as shown:
        if options.resume:
            shown.message(_resume_text(folder))
        try:
            result = solve(job.problem, job.settings, progress=shown.update, run=folder)
        except KeyboardInterrupt:
            shown.close()
            print(f"interrupted; continue with --resume --out {options.out}", file=sys.stderr)
            return INTERRUPTED
        result.ensemble.about.update(about(job.subject, scores=job.scores))
        result.ensemble.save(folder.folder)
        summary = wording.summary(result, job.rules)
        folder.finish(summary)
        shown.close()
        _show(options, result, summary)
    if result.stop_reason is StopReason.INTERRUPTED:
        return INTERRUPTED
    return MET if result.feasible else NOT_MET


def _show(options: TrainOptions, result: Result, summary: dict[str, Any]) -> None:
    if options.progress == "json":
        sys.stdout.write(files.json_line({"event": "result", **summary}).decode())
    else:
        print(wording.report(summary))
        print(f"\nSaved in {options.out}; try: cg4ai predict {options.out} {options.data}")
    if result.stop_reason is StopReason.INTERRUPTED:
        print(f"interrupted; continue with --resume --out {options.out}", file=sys.stderr)


# ---- the run folder --------------------------------------------------------------------------


def _open_run(options: TrainOptions, record: dict[str, Any]) -> Run:
    if options.resume and options.force:
        raise InvalidInput("--resume continues a run, --force replaces it; give one of them")
    # a run killed before its first file was written is resumed by starting it
    if not options.resume or not (options.out / "run.json").exists():
        return Run.create(options.out, "train", record, force=options.force)
    opened = Run.open(options.out)
    if opened.command != "train":
        opened.close()
        raise RunFolderError(f"{options.out} holds a run of {opened.command!r}, not of 'train'")
    try:
        opened.check_settings(record, may_differ=MAY_DIFFER)
    except InvalidSettings:
        opened.close()
        raise
    # the result of an interrupted run is about to be out of date
    (opened.folder / "summary.json").unlink(missing_ok=True)
    return opened


def _resume_text(folder: Run) -> str:
    done = len(folder.history())
    return f"resuming after {done} iterations" if done else "nothing done yet: starting"


# ---- reading and checking --------------------------------------------------------------------


def _prepare(options: TrainOptions) -> _Job:
    table = read_csv(options.data)
    features = _features(table, options)
    inputs = table.numbers(features)
    task = _task(table, options)
    values, outputs = _targets(table, options.target, task)
    subject = Subject(
        features=features,
        outputs=outputs,
        lower=inputs.min(0),
        upper=inputs.max(0),
        target=options.target,
        classification=task == "classification",
        table=table,
    )
    estimator = _estimator(options, task)
    estimator.run_settings()  # bad ones are refused first, whatever the rules say
    rules = read_rules(options.rules, subject)
    requirements = [rule.requirement for rule in rules]
    problem = estimator.problem(inputs, values, requirements)
    settings = estimator.run_settings()  # now in the units of the targets
    record = _record(options, table, task, settings)
    return _Job(problem, settings, subject, rules, options.scores, record)


def _features(table: CsvTable, options: TrainOptions) -> tuple[str, ...]:
    left_out = {options.target, *options.ignore}
    for name in (options.target, *options.ignore):
        table.position(name)
    features = tuple(name for name in table.names if name not in left_out)
    if not features:
        raise InvalidInput(f"{table.path} has no column left to predict from; ignore fewer")
    return features


def _task(table: CsvTable, options: TrainOptions) -> str:
    if options.task is not None:
        if options.task not in TASKS:
            hint = did_you_mean(options.task, TASKS)
            raise InvalidInput(f"--task must be {' or '.join(TASKS)}, got {options.task!r}{hint}")
        return options.task
    texts = table.texts(options.target)
    values = [as_number(text) for text in texts]
    if all(value is None for value in values):
        return "classification"
    whole = all(value is not None and value == int(value) for value in values)
    return "classification" if whole and len(set(values)) <= MOST_CLASSES else "regression"


def _targets(table: CsvTable, target: str, task: str) -> tuple[Array | IntArray, tuple[str, ...]]:
    """What to learn, and the names of the outputs: classes, or the target itself."""
    if task == "regression":
        return table.numbers([target])[:, 0], (target,)
    labels = [canonical(text) for text in table.texts(target)]
    distinct = set(labels)
    if len(distinct) < 2:
        raise InvalidInput(
            f"column {target!r} of {table.path} holds one class only, {labels[0]!r}; "
            "classification needs two or more"
        )
    numbers = {name: as_number(name) for name in distinct}
    if None in numbers.values():
        names = tuple(sorted(distinct))
    else:
        names = tuple(sorted(distinct, key=lambda name: float(name)))
    position = {name: number for number, name in enumerate(names)}
    return np.array([position[label] for label in labels], np.int64), names


def _estimator(options: TrainOptions, task: str) -> ConstrainedClassifier | ConstrainedRegressor:
    parameters: dict[str, Any] = {
        "members": _members(options.members),
        "hidden": _hidden(options.hidden),
        "restarts": _positive("--restarts", options.restarts),
        "steps": _positive("--steps", options.steps),
        "column_limit": options.column_limit,
        "iteration_limit": options.iteration_limit,
        "time_limit_s": math.inf if options.time_limit is None else options.time_limit,
        "final_weights": options.final_weights,
        "random_state": options.seed,
        "device": options.device,
    }
    further, parameters["settings"] = _assigned(options)
    parameters |= further
    if task == "classification":
        return ConstrainedClassifier(scores=options.scores, **parameters)
    if "output_limit" in further:
        raise InvalidInput("--set output_limit is for classification with --scores logit")
    return ConstrainedRegressor(**parameters)


def _members(text: str) -> str | list[str]:
    names = [name.strip() for name in text.split(",")]
    return names[0] if len(names) == 1 else names


def _hidden(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InvalidInput(f"--hidden must be layer sizes such as 16 or 32,16, got {text!r}")
    return tuple(int(part) for part in parts)


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise InvalidInput(f"{name} must be 1 or more, got {value}")
    return value


def _assigned(options: TrainOptions) -> tuple[dict[str, Any], dict[str, Any]]:
    """`--set name=value` pairs: (parameters of the estimator, settings of the loop)."""
    own = {
        "column_limit": "--column-limit",
        "iteration_limit": "--iteration-limit",
        "time_limit_s": "--time-limit",
        "final_weights": "--final-weights",
        "seed": "--seed",
        "device": "--device",
    }
    known = [*FURTHER, *(name for name in Settings().as_dict() if name not in own)]
    further: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for pair in options.assign:
        name, equals, text = pair.partition("=")
        name = name.strip()
        if not equals:
            raise InvalidInput(f"--set takes name=value, got {pair!r}")
        if name in own:
            raise InvalidInput(f"--set {name}: use {own[name]} for this setting")
        if name not in known:
            raise InvalidInput(
                f"--set {name}: there is no such setting{did_you_mean(name, known)}; there are "
                f"{', '.join(known)}"
            )
        value = _value(text.strip())
        if name not in FURTHER:
            settings[name] = value
            continue
        if isinstance(value, bool) or not isinstance(value, FURTHER[name]):
            words = " or ".join(KINDS_IN_WORDS[kind] for kind in FURTHER[name])
            raise InvalidInput(f"--set {name}: must be {words}, got {text.strip()!r}")
        further[name] = value
    return further, settings


def _value(text: str) -> Any:
    """A JSON value, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _record(
    options: TrainOptions, table: CsvTable, task: str, settings: Settings
) -> dict[str, Any]:
    """What run.json keeps: enough to tell whether a resumed run is the same run."""
    kept = asdict(options)
    for name in ("out", "resume", "force", "progress", "assign", "time_limit"):
        del kept[name]
    further, _ = _assigned(options)
    digest = hashlib.sha256()
    for path in rule_files(options.rules):
        digest.update(path.read_bytes())
    return {
        **kept,
        "task": task,
        **further,
        **settings.as_dict(),
        "data_sha256": table.sha256,
        "rules_sha256": digest.hexdigest(),
    }
