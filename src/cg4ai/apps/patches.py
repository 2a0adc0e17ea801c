"""Finished runs patched: further rules or wrongly answered cases, without starting again.

The run's columns are weighed anew under all earlier rows and the new ones; only if they leave rows
unmet are members trained, from those there are. The old folder is only read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cg4ai.apps.csv_tables import CsvTable, read_csv, read_data
from cg4ai.apps.folders import DESCRIPTION, PATCH_OF, PATCHES, find_application, load_trained
from cg4ai.apps.protocol import Rule, TrainedModel, TrainingTask
from cg4ai.colgen.loop import patch
from cg4ai.colgen.result import Result
from cg4ai.ensemble.ensemble import GUARANTEES, Ensemble
from cg4ai.ensemble.reweighting import PredictionChanges, compute_changes
from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.members import restore as restore_members
from cg4ai.protocols import Members
from cg4ai.records import Array, IntArray, IterationRecord
from cg4ai.report.wording import outcome_in_numbers
from cg4ai.report.write import try_write_report
from cg4ai.rules.regions import Region
from cg4ai.runs.folder import Run

CERTIFICATES = "*.cg4ai"
OBJECTIVE = "inputs of the objective"

Pool = list[tuple[Members, IntArray]]


@dataclass(frozen=True)
class PatchedRun:
    """A finished run with rules added: `earlier` and `added` count the requirements of each."""

    result: Result
    before: Ensemble
    earlier: int
    added: int
    trained: int
    members: int
    changes: tuple[tuple[str, PredictionChanges], ...]
    void: tuple[str, ...]
    command: str  # that of the run: the name of its application
    unreported: str = ""  # why there is no report

    @property
    def kept(self) -> bool:
        return self.result.feasible

    @property
    def summary(self) -> dict[str, Any]:
        result = self.result
        return {
            **outcome_in_numbers(result),
            "trained": self.trained,
            "kept": self.kept,
            "audits": [
                {
                    "requirement": one.requirement,
                    "holds": one.holds,
                    "strength": one.strength,
                    "statement": str(one).splitlines()[0],
                    "added": number >= self.earlier,
                }
                for number, one in enumerate(result.audits)
            ],
            "changes": {
                name: {
                    "inputs": found.inputs,
                    "answers": found.answers,
                    "mean": found.mean,
                    "largest": found.largest,
                }
                for name, found in self.changes
            },
            "void": list(self.void),
        }

    def __str__(self) -> str:
        how = f"{self.trained} members trained beside the" if self.trained else "new weights of the"
        more = "" if self.trained else ", none trained"
        lines = [
            f"{'Patched' if self.kept else 'NOT PATCHED'}: {how} {self.members} there were{more}."
        ]
        for number, audit in enumerate(self.result.audits):
            when = "earlier" if number < self.earlier else "added"
            lines.append(f"  {when}: {str(audit).splitlines()[0]}")
        lines += [f"Changed at {name}: {found}." for name, found in self.changes]
        if self.void:
            lines.append(
                f"Void, since they speak of the old mixture: {', '.join(self.void)}; prove anew."
            )
        if self.result.conflict is not None:
            lines.append(f"Conflict: {self.result.conflict}.")
        return "\n".join(lines)


def patch_run(
    folder: Path,
    add: Sequence[Path],
    *,
    out: Path | None = None,
    data: Path | None = None,
    progress: Callable[[IterationRecord], None] | None = None,
    report: bool = True,
) -> PatchedRun:
    """Add the rules or cases in the files `add`; with `out` the patched run is saved there.

    Changes are reported at the inputs of the objective and at those of the table `data`. With
    `report` its page, report.html, is written, too.
    """
    if out is not None and out.resolve() == folder.resolve():
        raise InvalidInput(
            f"{folder} is the run to patch: choose another --out, it stays as it is", code="exists"
        )
    if out is not None and (out / "run.json").exists():
        raise InvalidInput(
            f"{out} already holds a run: choose another --out for the patched one", code="exists"
        )
    before, described = load_trained(folder)
    run = Run.open(folder, read_only=True)
    run.summary()  # refused where it speaks of another run's files
    earlier = list_added_rules(before, described)
    added = [rule for one in add for rule in described.read_added_rules(one, None)]
    app, stored = find_application(run.command), dict(run.settings)
    description = stored.pop(DESCRIPTION, None) or {}
    task = app.reopen(app.settings.from_stored(stored), description)
    _refuse(added, task)
    rules = [rule.requirement for rule in (*earlier, *added)]
    problem = replace(task.problem, requirements=(*task.problem.requirements, *rules))
    pool = _pool(run, before)
    members = sum(len(one) for one, _ in pool)
    settings = replace(task.settings, column_limit=members + task.settings.column_limit)
    new = None
    if out is not None:
        description = {**description, PATCH_OF: str(folder.absolute())}
        new = Run.create(out, run.command, {**stored, DESCRIPTION: description})
    try:
        result = patch(problem, pool, settings, once=task.patch_trains, progress=progress, run=new)
        about = result.ensemble.about
        about.update({k: v for k, v in before.about.items() if k not in (*about, GUARANTEES)})
        about[PATCHES] = [*before.about.get(PATCHES, []), *(_record(one, described) for one in add)]
        inputs: list[tuple[str, Array]] = [
            ("inputs of the objective", task.problem.objective.inputs)
        ]
        if data is not None:
            inputs.append((data.name, described.inputs(read_csv(data))))
        made = PatchedRun(
            result,
            before,
            len(problem.requirements) - len(added),
            len(added),
            result.columns - members,
            members,
            tuple((name, compute_changes(before, result.ensemble, x)) for name, x in inputs),
            tuple(sorted(path.name for path in folder.glob(CERTIFICATES))),
            run.command,
        )
        if new is not None:
            result.ensemble.save(new.folder)
            new.finish(made.summary)
            made = replace(made, unreported=try_write_report(new.folder, app, wanted=report))
        return made
    finally:
        if new is not None:
            new.close()


def list_added_rules(
    ensemble: Ensemble, described: TrainedModel, table: CsvTable | None = None
) -> list[Rule]:
    """The rules that patches added to a run, in order; none of a run that was not patched."""
    files = [_unchanged(one, described) for one in ensemble.about.get(PATCHES, [])]
    return [rule for file in files for rule in described.read_added_rules(file, table)]


def _pool(run: Run, before: Ensemble) -> Pool:
    """All columns of the run where it stored them, else the members of its mixture."""
    saved = run.load_checkpoint()
    if saved is None or not saved.meta["work"]["rules_bound"]:
        return [(part.members, part.blocks) for part in before.parts]
    return [
        (restore_members(state, {}), saved.arrays[f"stack{number}.blocks"].copy())
        for number, state in enumerate(saved.members)
    ]


def _refuse(added: Sequence[Rule], task: TrainingTask) -> None:
    """Refuse rules that members would have to be built for."""
    if not added:
        raise InvalidInput("nothing to add: the files name neither rules nor cases", code="empty")
    for one in (rule.requirement for rule in added):
        region = isinstance(one.region, Region)
        if (region and task.settings.guarantee != "attacked") or getattr(one, "inputs", 0) is None:
            raise InvalidInput(
                f"{one.name} holds at every input, which members are built or shielded for: a "
                "patch adds rules at listed inputs; train anew under this one",
                code="unsupported",
            )


def _record(file: Path, described: TrainedModel) -> dict[str, str]:
    return {"file": str(file.absolute()), "sha256": _digest(described.files(file))}


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(read_data(file))
    return digest.hexdigest()


def _unchanged(record: Mapping[str, str], described: TrainedModel) -> Path:
    """The file of an earlier patch, whose rules are kept."""
    file = Path(record["file"])
    files = described.files(file) if file.exists() else [file]
    gone = [str(one) for one in files if not one.exists()]
    if gone or _digest(files) != record["sha256"]:
        raise RunFolderError(
            f"the run was patched with {file}, which has since been changed or removed"
            f"{', without ' + ', '.join(gone) if gone else ''}; restore it"
        )
    return file
