"""`cg4ai certify`: prove the rules of a finished run over their whole region, and keep the proof.

What there is to prove is asked of the run itself, whatever the application.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cg4ai.apps.folders import load_trained
from cg4ai.apps.protocol import Proposition
from cg4ai.ensemble.claims import record_certified
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.saved import save_about
from cg4ai.errors import InvalidInput
from cg4ai.parallel import check_jobs
from cg4ai.proofs import Certification, Progress, certify
from cg4ai.proofs.certificate import (
    CERTIFICATE_FILE,
    check_texts,
    load_unfinished,
    remove_unfinished,
    save_unfinished,
    write_certificate,
)
from cg4ai.proofs.certification import MEMORY_LIMIT
from cg4ai.records import Array, Strength
from cg4ai.report.write import refresh_report
from cg4ai.runs.folder import Run
from cg4ai_checker.words import at_most

PROVEN, NOT_PROVEN = 0, 1
SHOWN = 5
GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifyOptions:
    time_limit_s: float = 600.0
    cells: int = 5_000_000
    memory_gib: float = MEMORY_LIMIT / GIB
    device: str = "cpu"
    jobs: int | None = None
    resume: bool = False
    unshielded: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        if not self.time_limit_s > 0 or self.cells < 1:
            raise InvalidInput("--time-limit must be above 0 and --cells at least 1", code="range")
        if not (0 < self.memory_gib < float("inf")):
            raise InvalidInput("--memory-limit must be a number of GiB above 0", code="range")
        check_jobs(self.jobs, "--jobs")


def run(folder: Path, options: CertifyOptions) -> int:
    """Certify every rule over a region that the run carries; returns the exit code."""
    with Run.open(folder) as opened:
        opened.summary()  # one of another run is refused before anything is proven
        mixture, described = load_trained(folder)
        ensemble = mixture.mixture if options.unshielded else mixture
        jobs = described.propositions()
        proven = [
            _certify(opened, ensemble, job, number=number, options=options)
            for number, job in enumerate(jobs, start=1)
        ]
    if fault := refresh_report(folder):
        print(fault, file=sys.stderr)
    return PROVEN if all(proven) else NOT_PROVEN


def _certify(
    opened: Run, ensemble: Ensemble, job: Proposition, *, number: int, options: CertifyOptions
) -> bool:
    stem = (
        Path(CERTIFICATE_FILE)
        if number == 1
        else Path(CERTIFICATE_FILE).with_suffix(f".{number}.cg4ai")
    )
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
        n_jobs=options.jobs,
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
            totals=job.totals,
        )
        remove_unfinished(opened.folder, number=number)
        _record(opened, ensemble, job, result, file=stem.name, digest=digest)
        print(_proven(job, result, path))
        return True
    if result.status == "unknown" and result.rules:
        save_unfinished(opened.folder, ensemble, job.requirement, result, number=number)
    print(report_unproven(job, result, opened.folder))
    return False


def _record(
    opened: Run,
    ensemble: Ensemble,
    job: Proposition,
    result: Certification,
    *,
    file: str,
    digest: str,
) -> None:
    """Put the new strength into summary.json and the ensemble's own account of itself."""
    summary = opened.summary() or {}
    entry = {"file": file, "sha256": digest, "cells": result.cells, "seconds": result.seconds}
    if "audits" in summary:
        for audit in summary["audits"]:
            if audit["requirement"] == job.requirement.name:
                audit |= {
                    "strength": result.strength,
                    "statement": f"{job.requirement.name} is proven at {_where(job)}; "
                    f"check with cg4ai check {file}",
                    "certificate": entry,
                }
    else:
        summary |= {"strength": result.strength, "certificate": entry}
    if opened.bound:  # else it would be bound to an ensemble that it may not speak of
        opened.finish(summary)
    if result.rules:  # what is constructed is seen in the members themselves
        record_certified(ensemble, job.requirement, certification=result)
        save_about(ensemble, opened.folder)


# ---- words ------------------------------------------------------------------------------------


def _shower(name: str) -> Callable[[Progress], None]:
    """Shows how far it is: one line kept up to date on terminals, else a line now and then."""
    live = sys.stderr.isatty()
    every = 0.2 if live else 5.0
    last = -every

    def show_progress(state: Progress) -> None:
        nonlocal last
        if state.seconds - last < every:
            return
        last = state.seconds
        side = "beyond" if state.excess > 0 else "within"
        text = (
            f"{name}: {state.rules_closed} of {state.rules} rules closed, {state.cells} cells, "
            f"{state.open} open, worst bound {abs(state.excess):.3g} {side} its limit, "
            f"{state.seconds:.0f} s"
        )
        start, end = ("\r\033[K", "") if live else ("", "\n")
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)

    return show_progress


def _how(result: Certification) -> str:
    if result.strength != Strength.SHIELDED:
        return ""
    return " (closed form)" if result.closed_form else " (anchor proven on cells)"


def _proven(job: Proposition, result: Certification, path: Path) -> str:
    lines = [
        f"PROVEN: {job.requirement.name} holds at {_where(job)}, {result.strength}{_how(result)}."
    ]
    if result.rules:  # equalities are no rules that could come close to a limit
        closest = max(result.rules, key=lambda proof: proof.bound - proof.limit)
        lines.append(
            f"  {len(result.rules)} rules, {result.cells} cells, {result.seconds:.1f} s; closest: "
            f"{_name(job, closest.rule)}, at most {at_most(closest.bound, closest.limit)} of "
            f"{closest.limit:.9g}."
        )
    lines.append(f"  Certificate: {path}; verify with cg4ai check {path} --run {path.parent}")
    return "\n".join(lines)


def report_unproven(job: Proposition, result: Certification, folder: Path) -> str:
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
    lines = [unknown]
    if resisting:  # else the search is done, and the note says what the checker objects to
        lines.append(
            f"  {len(result.rules) - len(resisting)} of {len(result.rules)} rules are proven; "
            "these resist:"
        )
    for proof in resisting[:SHOWN]:
        known = "not bounded yet"
        if np.isfinite(proof.bound):
            known = f"at most {at_most(proof.bound, proof.limit)}"
        lines.append(f"  {_name(job, proof.rule)}: {known}, its limit is {proof.limit:.9g}")
    if len(resisting) > SHOWN:
        lines.append(f"  and {len(resisting) - SHOWN} more")
    if not result.exhausted:
        lines.append(f"Continue with cg4ai certify {folder} --resume")
    return "\n".join(lines)


def _where(job: Proposition) -> str:
    region = job.requirement.region
    return "every input" if region is None else f"every input of {region}"


def _name(job: Proposition, rule: int) -> str:
    return f"rule {rule}" if job.rule_names is None else job.rule_names[rule]


def _point(point: Array, names: list[str]) -> str:
    return "\n".join(
        f"  {name} = {value!r}" for name, value in zip(names, point.tolist(), strict=True)
    )
