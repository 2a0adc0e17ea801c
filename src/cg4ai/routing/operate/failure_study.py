"""A study of failures in the folder of a finished run: each on its own, resumed where it stopped.

failures/failures.json   what each failure leads to, of all that were studied for this router
failures/NAME/           of one failure: outcome.json, and where it is routed its router, the
                         certificate and the arrays behind its figures
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from cg4ai import Ensemble, clock, runs
from cg4ai.apps import DESCRIPTION, check_application, iterate_as_completed, load_trained
from cg4ai.clock import Deadline, Review
from cg4ai.errors import Cg4aiError, InvalidInput, TimeIsOver
from cg4ai.report import format_plain
from cg4ai.routing.demands.scaling import FACTOR, format_multiple, format_scaling_suffix
from cg4ai.routing.network.description import Router, describe_instance
from cg4ai.routing.operate.link_failures import Failure, failure_of, failures_of
from cg4ai.routing.operate.rerouting import NAMED, Effort, WholeRouter, reroute
from cg4ai.routing.settings import RouteSettings
from cg4ai.routing.train.size_limits import refuse_large_study
from cg4ai.runs import Run

TRAFFIC_FILE = "traffic.npz"  # in the folder of an update: the matrices that it learned from
ALIKE = 3  # failures that are not routed for one reason, from which a table says why
UNROUTABLE_TITLE = (
    "At some demand vector of the set every routing loads a link to this or more. Where it is\n"
    "above 1 over all paths of the network, too, no choice of paths fits; else allow more --paths:"
)
DISCONNECTED_TITLE = (
    "Demands without a path. Where the network has a way, allow more paths or give a --path-file:"
)
FOLDER, TABLE, OUTCOME = "failures", "failures.json", "outcome.json"
SETTLED = ("unaffected", "disconnected", "infeasible", "shielded")
ROUTED = ("unaffected", "shielded")
LONGEST = 80  # letters of a folder's name
ROUNDING = 1e-9  # of a gap

Heard = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class FailureJob:
    """One failure to be studied, as another process is told of it."""

    folder: Path
    failure: Failure
    effort: Effort
    router: str  # the digest of the router that it is about

    @property
    def outcome_folder(self) -> Path:
        return self.folder / FOLDER / name_failure_folder(self.failure)

    @property
    def required_provenance(self) -> dict[str, Any]:
        """What an outcome must have been made by to be this one's."""
        return {"router": self.router, "effort": asdict(self.effort)}


def study(
    folder: Path,
    which: str,
    effort: Effort | None = None,
    *,
    n_jobs: int | None = None,
    until: float = math.inf,
    heard: Heard = lambda row: None,
) -> list[dict[str, Any]]:
    """Study the failures that `which` names (see `failures_of`) of the router in `folder`.

    What was studied before by the same effort is taken from the folder. `heard` is told of each
    outcome as it comes; a failure that ends in an error has the outcome "error" and the others go
    on. Those that are not begun by `until` (of `clock.wall`) have the outcome "left". Returns the
    outcomes in the order of the failures.
    """
    whole = load_whole_router(folder)
    digest = router_digest(whole)
    jobs = [
        FailureJob(folder, failure, effort or Effort(), digest)
        for failure in failures_of(which, whole.instance)
    ]
    refuse_large_study(whole.instance, len(jobs))
    with Run.open(folder):  # nobody else studies here meanwhile
        rows: dict[str, dict[str, Any]] = {}
        for job in jobs:
            if (row := _stored(job)) is not None:
                rows[job.failure.name] = row
                heard(row)
        left = [job for job in jobs if job.failure.name not in rows]
        work = partial(_studied, until=until)
        for row in iterate_as_completed(work, left, n_jobs=n_jobs, threads=1):
            rows[row["failure"]] = row
            write_table(folder, digest)
            heard(row)
        write_table(folder, digest)
    return [rows[job.failure.name] for job in jobs]


def load_whole_router(folder: Path) -> WholeRouter:
    """The router of a finished run of `cg4ai route`."""
    router, described = load_trained(folder)
    run = Run.open(folder, read_only=True)
    check_application(run, "route")
    if not isinstance(described, Router):
        raise InvalidInput(
            f"the router in {folder} reads a history of matrices; failures and updates are of "
            "routers that know their demands: train anew with cg4ai route",
            code="unsupported",
        )
    stored = {name: value for name, value in run.settings.items() if name != DESCRIPTION}
    if (folder / TRAFFIC_FILE).exists():  # of an update, wherever its folder is now
        stored["traffic"] = folder / TRAFFIC_FILE
    # it is another device that counts here, and this machine may lack the one of training
    return WholeRouter(
        described.instance, RouteSettings.from_stored(stored | {"device": "cpu"}), router
    )


@lru_cache(maxsize=1)
def _load_once(folder: Path, digest: str) -> WholeRouter:
    """The router of this digest: each process reads it, and its traffic, once for all failures."""
    return load_whole_router(folder)


def router_digest(whole: WholeRouter) -> str:
    """SHA-256 of instance, members and weights: what was studied of another router says nothing."""
    router: Ensemble = whole.router
    content = [
        describe_instance(whole.instance),
        [[runs.member_digest(part.members.state()), part.weights] for part in router.used],
    ]
    return hashlib.sha256(runs.json_line(content)).hexdigest()


def name_failure_folder(failure: Failure) -> str:
    """The name of the folder of a failure: its own, made safe for every file system."""
    safe = re.sub(r"[^\w.,+-]", "_", failure.name, flags=re.ASCII)[:LONGEST]
    if safe == failure.name and not safe.startswith("."):
        return safe
    mark = hashlib.sha256(failure.name.encode()).hexdigest()[:8]
    return f"{safe.lstrip('.')}-{mark}"


def _studied(job: FailureJob, *, until: float) -> dict[str, Any]:
    """The outcome of one failure, kept in its folder; an error is one, too."""
    links = [list(link) for link in job.failure.links]
    unsettled = {"failure": job.failure.name, "links": links}
    if job.failure.fault:
        return {**unsettled, "outcome": "error", "text": job.failure.fault}
    left = {**unsettled, "outcome": "left", "text": "the time limit was over before it"}
    review = Review(Deadline(clock.now() + until - clock.wall()))
    if review.deadline.passed:
        return left
    if job.outcome_folder.exists():  # a router of before would outlive a failure that has none now
        shutil.rmtree(job.outcome_folder)
    try:
        with review.activate():
            whole = _load_once(job.folder, job.router)
            row = reroute(whole, job.failure, job.effort, job.outcome_folder)
    except TimeIsOver as error:
        review.cut.append(str(error))
    except Cg4aiError as error:
        return {**unsettled, "outcome": "error", "text": " ".join(str(error).split())}
    if review.cut:  # another study begins it anew
        shutil.rmtree(job.outcome_folder, ignore_errors=True)
        return {**left, "text": f"the time limit cut it short: {'; '.join(review.cut)}"}
    job.outcome_folder.mkdir(parents=True, exist_ok=True)
    runs.write_json(job.outcome_folder / OUTCOME, {**row, "asked": job.required_provenance})
    return row


def _stored(job: FailureJob) -> dict[str, Any] | None:
    """The outcome that is there already, if it was made by the same effort for this router."""
    file = job.outcome_folder / OUTCOME
    if not os.path.lexists(file):
        return None
    row = runs.read_json(file)
    links = [list(link) for link in job.failure.links]
    same = (
        row.pop("asked", None) == runs.to_plain(job.required_provenance)
        and row.get("links") == links
    )
    return row if same else None


def read_outcomes(folder: Path, digest: str) -> list[dict[str, Any]]:
    """All outcomes of failures that were studied for this router."""
    found = []
    for file in sorted((folder / FOLDER).glob(f"*/{OUTCOME}")):
        row = runs.read_json(file)
        if row.pop("asked", {}).get("router") == digest:
            found.append({**row, "folder": file.parent.name})
    return found


def read_known_outcomes(folder: Path) -> list[dict[str, Any]]:
    """All that was studied for the router that is in the folder now."""
    return read_outcomes(folder, router_digest(load_whole_router(folder)))


def write_table(folder: Path, digest: str) -> None:
    """The table of all that was studied for this router."""
    (folder / FOLDER).mkdir(exist_ok=True)
    content = {"router": digest, "failures": read_outcomes(folder, digest)}
    runs.write_json(folder / FOLDER / TABLE, content)


def failed_folder(folder: Path, text: str) -> Path:
    """The folder of the router for a failure, named by its name or its links; or why none is."""
    whole = load_whole_router(folder)
    rows = read_outcomes(folder, router_digest(whole))
    row = next((row for row in rows if row["failure"] == text.strip()), None)
    if row is None:
        links = [list(link) for link in failure_of(text, whole.instance).links]
        row = next((row for row in rows if row["links"] == links), None)
    if row is None:
        raise InvalidInput(
            f"the failure {text!r} was not studied for the router in {folder}; study it with "
            f"cg4ai failures {folder} {text}",
            code="unknown-name",
        )
    if row["outcome"] not in ROUTED:
        raise InvalidInput(
            f"there is no router for the failure {text!r}: {row['text']}", code="infeasible"
        )
    return folder if row["outcome"] == "unaffected" else folder / FOLDER / row["folder"]


# ---- in words -----------------------------------------------------------------------------------


def format_report(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of outcomes, then why failures are not routed: a line each, of many alike a table."""
    lines = [format_plain([format_outcome(row) for row in rows], digits=3), format_totals(rows)]
    tabled = set[str]()
    for title, fields, tell in (
        (UNROUTABLE_TITLE, ("network_optimum", "blocked_by"), _tell_infeasible),
        (DISCONNECTED_TITLE, ("lost", "cut"), _tell_disconnected),
    ):
        alike = [row for row in rows if all(name in row for name in fields)]
        if len(alike) >= ALIKE:
            table = format_plain([tell(row) for row in alike], digits=3)
            lines += ["", title, table.rstrip()]
            tabled |= {row["failure"] for row in alike}
    rest = [row for row in rows if row.get("text") and row["failure"] not in tabled]
    lines += [""] if tabled and rest else []
    return "\n".join([*lines, *(f"{row['failure']}: {row['text']}" for row in rest)])


def _tell_infeasible(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "failure": row["failure"],
        "these paths": row["level"],
        "all paths": row["network_optimum"],
        "links that make it so": _shorten(row["blocked_by"].split(", ")),
    }


def _tell_disconnected(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "failure": row["failure"],
        "demands without a path": len(row["lost"]),
        "without any way": row["cut"],
        "such as": _shorten(row["lost"]),
    }


def _shorten(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def format_outcome(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a table shows of one outcome."""
    certificate = row.get("certificate")
    said = None
    if row["outcome"] in ("shielded", "violated"):
        said = "none" if certificate is None else "rejected"
        said = "accepted" if certificate and certificate["accepted"] else said
    factor = row.get(FACTOR, 1.0)
    of, real = format_scaling_suffix(factor), {}
    if factor is not None and factor != 1.0:
        worst = row.get("worst_utilisation")
        real = {"worst, of the real capacity": None if worst is None else factor * worst}
    return {
        "failure": row["failure"],
        "outcome": row["outcome"],
        "paths left": f"{row['paths_left']}/{row['paths']}" if "paths" in row else None,
        f"needs{of}": row.get("level"),
        f"mean gap{of}": _gap(row.get("mean_mlu_gap")),
        f"largest gap{of}": _gap(row.get("max_mlu_gap")),
        f"worst utilisation{of}": row.get("worst_utilisation"),
        **real,
        "certificate": said,
    }


def _gap(value: float | None) -> float | None:
    """What rounding alone leaves above or below the optimum is none."""
    return value if value is None or abs(value) > ROUNDING else 0.0


def format_totals(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many there are of each outcome, and the mean of the mean gaps."""
    counts = dict.fromkeys(row["outcome"] for row in rows)
    words = [f"{sum(row['outcome'] == one for row in rows)} {one}" for one in counts]
    gaps = [row["mean_mlu_gap"] for row in rows if "mean_mlu_gap" in row]
    text = f"{len(rows)} failure{'s' if len(rows) != 1 else ''}: {', '.join(words)}"
    if gaps:
        text += f"; mean gap under failure {sum(gaps) / len(gaps):.3g} on average"
    factors = {row.get(FACTOR, 1.0) for row in rows}
    scaled = ", ".join(sorted(format_multiple(one) for one in factors if one != 1.0))
    return f"{text}; utilisations and gaps are of {scaled}" if scaled else text


def is_settled(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether each is routed with a guarantee or shown to be impossible."""
    return all(row["outcome"] in SETTLED for row in rows)
