"""The folders of runs: made or opened again, and what a finished one holds."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from cg4ai.apps.protocol import Application, P, RunSettings, S, TrainedModel
from cg4ai.apps.registry import (
    get_registration,
    is_registered,
    program_of,
    registration_of_kind,
    training_command,
)
from cg4ai.ensemble.saved import load
from cg4ai.errors import InvalidSettings, RunFolderError
from cg4ai.records import StopReason
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from cg4ai.settings import format_setting, rename_former

ARRAYS = "arrays.safetensors"
REPORT = "report.html"
DESCRIPTION = "description"
STUDIES = ("failures",)  # folders below a run's, of what was found out about it later
POSITIONS = "positions"  # in a description: of nodes, for pictures alone
ALL_ARCS = "all_arcs"  # in a description: of the network, on paths or not
PATH_SOURCE = "path_source"  # in a description: the links of the network, and how paths were chosen
NOTES = "notes"  # in a description: what was left out, rescaled or assumed, in words
PATCH_OF = "patch_of"  # in a description: the folder of the run that was patched
UPDATE_OF = "update_of"  # in a description: the folder of the run that was updated
PATCHES = "patches"  # in an ensemble's description: the files that were added, in order


def check_application(run: Run, name: str) -> None:
    if run.command != name:
        raise RunFolderError(
            f"{run.folder} holds a run of {run.command!r}, not of {name!r}", code="conflict"
        )
    refuse_patched_run(run)


def refuse_patched_run(run: Run) -> None:
    """Refuse to resume what a patch wrote: it is quick, and starts from the run it is of."""
    whole = (run.settings.get(DESCRIPTION) or {}).get(PATCH_OF)
    if whole is not None:
        patch = f"{program_of(run.command)} patch"
        raise RunFolderError(
            f"{run.folder} holds a patched run, which is not resumed: patch it further with "
            f"{patch} {run.folder}, or anew with {patch} {whole} and another --out"
        )


def describe_mixture(app: Application[S, P], prepared: P) -> dict[str, Any]:
    """What a mixture says of itself: its application, and that one's description."""
    return {"application": get_registration(app.name).kind, **app.describe(prepared)}


def open_run(
    app: Application[S, P], settings: S, prepared: P, out: Path, *, resume: bool, force: bool
) -> Run:
    """A new run, or with `resume` the one that is there if it was started alike."""
    if not resume or not (out / "run.json").exists():
        record = {**_located(settings), DESCRIPTION: app.describe(prepared)}
        created = Run.create(out, app.name, record, force=force)
        for path in [*out.glob("*.cg4ai"), *out.glob("*.jsonl"), *out.glob("*.html"), out / ARRAYS]:
            path.unlink(missing_ok=True)
        for study in STUDIES:  # of the run that was there
            shutil.rmtree(out / study, ignore_errors=True)
        return created
    opened = Run.open(out)
    try:
        check_same(opened, app, settings, prepared)
    except (InvalidSettings, RunFolderError):
        opened.close()
        raise
    summary = opened.summary(compared=False)
    if summary is not None and not complete(summary):
        opened.forget_summary()
    return opened


def check_same(run: Run, app: Application[S, P], settings: S, prepared: P) -> None:
    """An error unless the run was started by this application with these settings and data."""
    check_application(run, app.name)
    run.check_settings(
        {**get_asked_settings(run, settings), DESCRIPTION: run.settings.get(DESCRIPTION)},
        may_differ=app.may_differ,
    )
    now, then = files.to_plain(app.describe(prepared)), run.settings.get(DESCRIPTION) or {}
    names = (now.keys() | then.keys()) - {
        POSITIONS,
        ALL_ARCS,
        PATH_SOURCE,
        NOTES,
    }  # older runs have none
    other = sorted(name for name in names if now.get(name) != then.get(name))
    if other:
        raise InvalidSettings(
            f"the run in {run.folder} was started with other data: {', '.join(other)} differ; "
            "give the same files to resume it, or start anew in another --out"
        )


def get_asked_settings(run: Run, settings: RunSettings) -> dict[str, Any]:
    """The settings, less those that came after the run was started and are usual now."""
    usual = {one.name: one.default for one in fields(cast("Any", settings))}
    return {
        name: value
        for name, value in _located(settings).items()
        if name in run.settings or value != usual[name]
    }


def _located(settings: RunSettings) -> dict[str, Any]:
    """The settings with full paths, so that the run can go on from any folder."""
    return {
        name: str(value.absolute()) if isinstance(value, Path) else value
        for name, value in settings.as_dict().items()
    }


def format_settings(run: Run) -> dict[str, Any]:
    """The settings as people read them, by their present names; what 0 stands for is said."""
    given = {name: value for name, value in run.settings.items() if name != DESCRIPTION}
    if not is_registered(run.command):
        return given
    kind = find_application(run.command).settings
    given = rename_former(kind, given)
    return {name: format_setting(kind, name, value) for name, value in given.items()}


def complete(summary: Mapping[str, Any]) -> bool:
    """Whether a summary is that of a run that came to its end."""
    return bool(summary.get("stop_reason") != StopReason.INTERRUPTED.value)


def find_application(name: str) -> Application[Any, Any]:
    """The application that is registered by this name."""
    return get_registration(name).load()


def load_trained(folder: Path) -> tuple[Any, TrainedModel]:
    """The mixture of a finished run of any application, and what it says of itself."""
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is not a folder: name the folder of a run")
    settings: Mapping[str, Any] = {}
    if (folder / "run.json").exists():
        run = Run.open(folder, read_only=True)
        settings = run.settings
        if not (folder / "ensemble.json").exists():
            refuse_patched_run(run)
            raise RunFolderError(
                f"the run in {folder} has not ended, so there is no mixture yet: continue it with "
                f"{training_command(run.command)} --resume --out {folder}"
            )
    ensemble = load(folder)
    about = ensemble.about
    if "application" not in about:
        raise RunFolderError(
            f"the ensemble in {folder} does not say of which application it is, so its inputs have "
            "no names; use cg4ai.load in Python instead"
        )
    app = registration_of_kind(str(about["application"])).load()
    return ensemble, app.restore(ensemble, about, rename_former(app.settings, settings))
