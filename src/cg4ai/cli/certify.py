"""`cg4ai certify`: prove the rules of a finished run over their whole region, and keep the proof.

Runs of `cg4ai route` carry their network; runs of `cg4ai train` name the rules file they kept.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cg4ai.apps.routing.data import Instance
from cg4ai.apps.routing.problem import Recipe, capacity
from cg4ai.apps.routing.saved import COMMAND as ROUTE
from cg4ai.apps.tabular.csvdata import read_csv
from cg4ai.apps.tabular.rulefile import read_rules, rule_files
from cg4ai.cli.trained import load_trained
from cg4ai.ensemble.claims import record_certified
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.saved import load, save_about
from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.proofs import Certification, Progress, certify
from cg4ai.proofs.bounds.memory import MEMORY_LIMIT
from cg4ai.proofs.certificate import (
    FILE_NAME,
    check_texts,
    load_unfinished,
    remove_unfinished,
    save_unfinished,
    write_certificate,
)
from cg4ai.records import Array
from cg4ai.rules import Requirement
from cg4ai.rules.regions import Ball, Box
from cg4ai.runs.folder import Run

PROVEN, NOT_PROVEN = 0, 1
SHOWN = 5
GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifyOptions:
    time_limit_s: float = 600.0
    cells: int = 5_000_000
    memory_gib: float = MEMORY_LIMIT / GIB
    device: str = "cpu"
    resume: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        if not self.time_limit_s > 0 or self.cells < 1:
            raise InvalidInput("--time-limit must be above 0 and --cells at least 1")
        if not (0 < self.memory_gib < float("inf")):
            raise InvalidInput("--memory-limit must be a number of GiB above 0")


@dataclass(frozen=True)
class Job:
    """One requirement to prove: what it is called and the names of its rules and inputs."""

    requirement: Requirement
    title: str
    rule_names: list[str] | None
    input_names: list[str]


def run(folder: Path, options: CertifyOptions) -> int:
    """Certify every rule over a region that the run carries; returns the exit code."""
    with Run.open(folder) as opened:
        if not (folder / "ensemble.json").exists():
            raise RunFolderError(
                f"the run in {folder} has not ended, so there is no mixture yet: continue it "
                "with --resume of its own command"
            )
        ensemble = load(folder).unshielded
        jobs = route_jobs(ensemble) if opened.command == ROUTE else train_jobs(opened)
        proven = [
            _certify(opened, ensemble, job, number=number, options=options)
            for number, job in enumerate(jobs, start=1)
        ]
    return PROVEN if all(proven) else NOT_PROVEN


def _certify(
    opened: Run, ensemble: Ensemble, job: Job, *, number: int, options: CertifyOptions
) -> bool:
    stem = Path(FILE_NAME) if number == 1 else Path(FILE_NAME).with_suffix(f".{number}.cg4ai")
    # before the search, which may take long, and in vain
    check_texts(job.title, job.requirement.name, *(job.rule_names or ()))
    earlier = None
    if options.resume:
        earlier = load_unfinished(opened.folder, ensemble, job.requirement, number=number)
    result = certify(
        ensemble,
        job.requirement,
        time_limit_s=options.time_limit_s,
        cell_limit=options.cells,
        memory_limit=max(1, int(options.memory_gib * GIB)),
        device=options.device,
        progress=None if options.quiet else _shower(job.requirement.name),
        resume=earlier,
    )
    if not options.quiet and sys.stderr.isatty():
        print(file=sys.stderr)
    if result.status == "proven":
        path = opened.folder / stem
        digest = write_certificate(
            path,
            ensemble,
            requirement=job.requirement,
            certification=result,
            title=job.title,
            rule_names=job.rule_names,
        )
        remove_unfinished(opened.folder, number=number)
        _record(opened, ensemble, job, result, file=stem.name, digest=digest)
        print(_proven(job, result, path))
        return True
    if result.status == "unknown":
        save_unfinished(opened.folder, ensemble, job.requirement, result, number=number)
    print(unproven(job, result, opened.folder))
    return False


def _record(
    opened: Run, ensemble: Ensemble, job: Job, result: Certification, *, file: str, digest: str
) -> None:
    """Put the new strength into summary.json and the ensemble's own account of itself."""
    summary = opened.summary() or {}
    entry = {"file": file, "sha256": digest, "cells": result.cells, "seconds": result.seconds}
    if "audits" in summary:
        for audit in summary["audits"]:
            if audit["requirement"] == job.requirement.name:
                audit |= {
                    "strength": "certified",
                    "statement": f"{job.requirement.name} is proven at every input of "
                    f"{job.requirement.region}; check with cg4ai check {file}",
                    "certificate": entry,
                }
    else:
        summary |= {"strength": "certified", "certificate": entry}
    opened.finish(summary)
    record_certified(ensemble, job.requirement, certification=result)
    save_about(ensemble, opened.folder)


# ---- what a run folder asks to be proven ------------------------------------------------------


def route_jobs(ensemble: Ensemble) -> list[Job]:
    """Capacity of every link, over all demands of the box."""
    instance = stored_instance(ensemble.about)
    return [
        Job(
            capacity(instance, Recipe()),
            f"the router of {instance.name}, {len(instance.demand_max)} demands",
            [f"link {source}->{target}" for source, target in instance.arcs],
            instance.demand_names,
        )
    ]


def stored_instance(about: dict[str, Any]) -> Instance:
    """The instance that a routing run was trained for, from what its ensemble says."""
    try:
        arcs = [(str(source), str(target)) for source, target in about["arcs"]]
        position = {arc: number for number, arc in enumerate(arcs)}
        paths = [tuple(map(str, path)) for path in about["paths"]]
        incidence = np.zeros((len(paths), len(arcs)))
        for row, path in enumerate(paths):
            incidence[row, [position[arc] for arc in pairwise(path)]] = 1.0
        return Instance(
            name=str(about["network"]),
            arcs=arcs,
            capacity=np.array(about["capacity"], np.float64),
            incidence=incidence,
            path_demand=np.array(about["path_demand"], np.int64),
            demand_max=np.array(about["demand_max"], np.float64),
            path_length=incidence.sum(axis=1),  # in hops: lengths play no part in capacities
            demand_names=[str(name) for name in about["demands"]],
            paths=paths,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(
            f"the ensemble does not say what its network is ({error}): name a folder that "
            "cg4ai route has written"
        ) from error


def train_jobs(opened: Run) -> list[Job]:
    """The rules over a box or ball of the rules file that `cg4ai train` kept."""
    trained = load_trained(opened.folder)
    rules, data = Path(str(opened.settings.get("rules"))), Path(str(opened.settings.get("data")))
    if not rules.exists():
        raise InvalidInput(
            f"the run in {opened.folder} was trained with the rules file {rules}, which is not "
            "there; run cg4ai certify in the folder that training was started in"
        )
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in rule_files(rules)))
    if digest.hexdigest() != opened.settings.get("rules_sha256"):
        raise InvalidInput(
            f"{rules} was changed since the run in {opened.folder} was trained; restore it, or "
            "use cg4ai.proofs.certify in Python for other rules"
        )
    read = read_rules(rules, trained.subject(read_csv(data) if data.exists() else None))
    found = [rule.requirement for rule in read if isinstance(rule.requirement.region, Box | Ball)]
    if not found:
        raise InvalidInput(
            f"{rules} has no rule over a box or ball; rules at listed rows are audited, nothing "
            "is left to prove"
        )
    return [
        Job(requirement, f"the mixture in {opened.folder.name}", None, list(trained.features))
        for requirement in found
    ]


# ---- words ------------------------------------------------------------------------------------


def _shower(name: str) -> Callable[[Progress], None]:
    """Shows how far it is: one line kept up to date on terminals, else a line now and then."""
    live = sys.stderr.isatty()
    every = 0.2 if live else 5.0
    last = -every

    def show(state: Progress) -> None:
        nonlocal last
        if state.seconds - last < every:
            return
        last = state.seconds
        text = (
            f"{name}: {state.rules_closed} of {state.rules} rules closed, {state.cells} cells, "
            f"{state.open} open, worst bound {state.excess:+.3g} beyond its limit, "
            f"{state.seconds:.0f} s"
        )
        start, end = ("\r\033[K", "") if live else ("", "\n")
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)

    return show


def _proven(job: Job, result: Certification, path: Path) -> str:
    closest = max(result.rules, key=lambda proof: proof.bound - proof.limit)
    return (
        f"PROVEN: {job.requirement.name} holds at every input of {job.requirement.region}.\n"
        f"  {len(result.rules)} rules, {result.cells} cells, {result.seconds:.1f} s; closest: "
        f"{_name(job, closest.rule)}, at most {closest.bound:.9g} of {closest.limit:.9g}.\n"
        f"  Certificate: {path}; verify with cg4ai check {path} --run {path.parent}"
    )


def unproven(job: Job, result: Certification, folder: Path) -> str:
    """What was found instead of a proof, and whether to go on."""
    if result.counterexample is not None and result.counterexample_rule is not None:
        rule = result.counterexample_rule
        return (
            f"REFUTED: {_name(job, rule)} reaches {result.counterexample_value:.9g}, its limit is "
            f"{result.rules[rule].limit:.9g}, at this input:\n"
            + _point(result.counterexample, job.input_names)
        )
    resisting = sorted(
        (proof for proof in result.rules if proof.bound > proof.limit),
        key=lambda proof: proof.limit - proof.bound,
    )
    unknown = (
        f"UNKNOWN: {job.requirement.name} is neither proven nor refuted after {result.cells} "
        f"cells and {result.seconds:.1f} s; {len(result.open_cells)} cells are open. "
        f"{result.note}".rstrip()
    )
    if not resisting:  # the search is done, and the note says what the checker objects to
        return unknown
    lines = [
        unknown,
        f"  {len(result.rules) - len(resisting)} of {len(result.rules)} rules are proven; "
        "these resist:",
    ]
    for proof in resisting[:SHOWN]:
        known = f"at most {proof.bound:.9g}" if np.isfinite(proof.bound) else "not bounded yet"
        lines.append(f"  {_name(job, proof.rule)}: {known}, its limit is {proof.limit:.9g}")
    if len(resisting) > SHOWN:
        lines.append(f"  and {len(resisting) - SHOWN} more")
    if not result.exhausted:
        lines.append(f"Continue with cg4ai certify {folder} --resume")
    return "\n".join(lines)


def _name(job: Job, rule: int) -> str:
    return f"rule {rule}" if job.rule_names is None else job.rule_names[rule]


def _point(point: Array, names: list[str]) -> str:
    return "\n".join(
        f"  {name} = {value!r}" for name, value in zip(names, point.tolist(), strict=True)
    )
