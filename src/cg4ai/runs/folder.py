"""The folder of one run: settings, history, checkpoints and summary, safe against being killed.

    run.json        format, command, settings, package versions, time of creation
    run.lock        locked by the process that writes
    history.jsonl   one line per iteration
    checkpoint/     see checkpoint.py
    summary.json    written when the run ends, with the digests of the files that it speaks of; the
                    ensemble's files lie beside it

All files are sealed (see files.py): `jq .objective summary.json` works as with any JSON, and what
was changed by hand or by a fault of the disk is refused.

The loop appends an iteration's record first and saves its checkpoint second; a resumed run loads
the checkpoint and cuts the history back to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import socket
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout
from numpy.typing import NDArray

from cg4ai.errors import InvalidSettings, RunFolderError
from cg4ai.records import IterationRecord, MemberState
from cg4ai.runs import files
from cg4ai.runs.checkpoint import Checkpoint, CheckpointFolder

RUN_FORMAT = "cg4ai-run"
RUN_VERSION = 2  # 2: every file is sealed
LOCK = "run.lock"
SUMMARY = "summary.json"
SPEAKS_OF = "speaks_of"  # in a summary: the digests of the files that it is about, by their names
LATER = "guarantees"  # of what an ensemble says of itself: what is established after the run
ENSEMBLE_FILES = ("ensemble.json", "members.safetensors")
REPLACED_BY_FORCE = ("checkpoint", "history.jsonl", "summary.json", *ENSEMBLE_FILES)
PACKAGES = (
    *("numpy", "scipy", "torch", "highspy", "clarabel", "nlopt", "scikit-learn"),
    *("networkx", "topohub", "mlxtend", "safetensors"),
)


class FolderLock:
    """Holds a run folder for one process; the system frees it if that process dies."""

    def __init__(self, folder: Path) -> None:
        path = folder / LOCK
        if os.path.lexists(path) and not (path.is_file() and not path.is_symlink()):
            raise files.make_damage_error(
                path, "it is not a regular file"
            )  # a pipe would be waited for
        self._lock = FileLock(path, timeout=0, thread_local=False)
        try:
            self._lock.acquire()
        except Timeout as error:
            raise RunFolderError(
                f"{folder} is being written by {_holder(path)}: wait for it to end, or choose "
                "another --out",
                code="exists",
            ) from error
        except OSError as error:
            raise files.make_unwritable_error(folder, error) from error
        with contextlib.suppress(OSError):  # some systems keep even its holder out of a locked file
            path.write_text(f"process {os.getpid()} on {socket.gethostname()}\n")

    def release(self) -> None:
        """Free the folder for other processes."""
        self._lock.release()


def ensemble_digest(path: Path) -> str:
    """SHA-256 of what ensemble.json says, but for guarantees, which are established later."""
    content = files.read_json(path)
    about = content.get("about")
    if isinstance(about, dict):
        content["about"] = {name: value for name, value in about.items() if name != LATER}
    return files.content_digest(content)


def _holder(path: Path) -> str:
    """Who wrote its name into the lock; where that cannot be read, still somebody."""
    with contextlib.suppress(OSError):
        return files.read_bytes(path)[:200].decode(errors="replace").strip() or "another process"
    return "another process"


class Run:
    """One run folder, made by `Run.create` or `Run.open`; use it in a `with` statement."""

    def __init__(self, folder: Path, header: dict[str, Any], lock: FolderLock | None) -> None:
        self.folder = folder
        self.header = header
        self._lock = lock
        self._checkpoints = CheckpointFolder(folder / "checkpoint")

    @classmethod
    def create(
        cls, folder: str | Path, command: str, settings: Mapping[str, Any], *, force: bool = False
    ) -> Self:
        """Start a run in a new or empty folder.

        `force` replaces an earlier run: its history, checkpoints, summary and ensemble are
        removed. A folder that holds anything else is refused even so.
        """
        folder = Path(folder)
        header = {
            "format": RUN_FORMAT,
            "version": RUN_VERSION,
            "command": command,
            "settings": files.to_plain(settings, "settings"),
            "packages": package_versions(),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        _check_free(folder, force)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise files.make_unwritable_error(folder, error) from error
        lock = FolderLock(folder)
        try:
            _check_free(folder, force)  # again: another process may have been quicker
            for name in REPLACED_BY_FORCE:
                _remove(folder / name)
            for left_over in folder.glob(".*.tmp"):
                left_over.unlink(missing_ok=True)
            files.write_json(folder / "run.json", header)
            files.sync_folder(folder.parent)
        except OSError as error:
            lock.release()
            if isinstance(error, RunFolderError):
                raise
            raise files.make_unwritable_error(folder, error) from error
        return cls(folder, files.read_json(folder / "run.json"), lock)

    @classmethod
    def open(cls, folder: str | Path, *, read_only: bool = False) -> Self:
        """An existing run, to resume it or, `read_only`, to report on it even while it runs."""
        folder = Path(folder)
        if not (folder / "run.json").exists():
            raise RunFolderError(f"{folder} holds no run (run.json is missing): check the name")
        header = _header(folder)
        if read_only:
            return cls(folder, header, None)
        lock = FolderLock(folder)
        for left_over in [*folder.glob(".*.tmp"), *folder.glob("checkpoint/.*.tmp")]:
            left_over.unlink(missing_ok=True)
        return cls(folder, header, lock)

    def close(self) -> None:
        """Free the folder for other processes."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def command(self) -> str:
        return str(self.header["command"])

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.header["settings"])

    def check_settings(
        self, settings: Mapping[str, Any], *, may_differ: Collection[str] = ()
    ) -> None:
        """InvalidSettings that lists every setting (dotted names) unlike the run's own."""
        now, then = _flat(files.to_jsonable(settings)), _flat(files.to_jsonable(self.settings))
        different = [
            f"{name}: the run has {then.get(name, 'none')!r}, now {now.get(name, 'none')!r}"
            for name in sorted(then.keys() | now.keys())
            if name not in may_differ
            and (name not in then or name not in now or then[name] != now[name])
        ]
        if different:
            raise InvalidSettings(
                f"the run in {self.folder} was started with other settings:\n  "
                + "\n  ".join(different)
                + "\ngive the same settings to resume it, or start anew in another --out"
            )

    def append_history(self, record: IterationRecord) -> None:
        """Add one line, on disk when this returns; a summary of before is removed."""
        self.forget_summary()
        files.append_lines(self.folder / "history.jsonl", [record])

    def history(self) -> list[dict[str, Any]]:
        """All records; a last line torn by a kill is left out."""
        return [record for _, record in self._history_lines()]

    def truncate_history(self, iteration: int) -> int:
        """Drop records past `iteration` and a torn last line; returns how many were dropped."""
        self._check_writable()
        lines = self._history_lines()
        kept = [line for line, record in lines if record["iteration"] <= iteration]
        if len(kept) < len(lines):
            self.forget_summary()
        files.write_bytes(self.folder / "history.jsonl", b"".join(kept))
        return len(lines) - len(kept)

    def save_checkpoint(
        self,
        iteration: int,
        meta: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        members: Sequence[MemberState],
    ) -> None:
        """Save the state after `iteration`; a kill leaves this checkpoint or the one before."""
        self._check_writable()
        self._checkpoints.save(iteration, meta, arrays=arrays, members=members)

    def load_checkpoint(self) -> Checkpoint | None:
        """The newest whole checkpoint, or None if none was ever completed."""
        try:
            return self._checkpoints.load()
        except RunFolderError as error:
            raise RunFolderError(
                f"{error}. Still readable in {self.folder}: {', '.join(self._readable())}. "
                "Start anew in another --out"
            ) from error

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary, with the digests of the ensemble and of all else that it speaks of.

        The last checkpoint stays, so that a run can be continued.
        """
        self._check_writable()
        files.write_json(self.folder / SUMMARY, {**summary, SPEAKS_OF: self._digests()})

    def summary(self, *, compared: bool = True) -> dict[str, Any] | None:
        """What `finish` wrote, or None while the run has not ended.

        RunFolderError if it speaks of another ensemble, history or settings than those in the
        folder, unless it shall not be `compared`. What versions before 0.8 wrote does not say of
        which ensemble it speaks: see `bound`.
        """
        found = self._summary()
        if found is None:
            return None
        stated = found.pop(SPEAKS_OF, None)
        if compared and stated is not None:
            self._refuse_other(stated)
        return found

    @property
    def bound(self) -> bool:
        """Whether the summary, if there is one, names the ensemble that it speaks of."""
        found = self._summary()
        return found is None or SPEAKS_OF in found

    def reported_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """The arrays of a file that the summary speaks of; none where there is no such file."""
        path, found = self.folder / name, self._summary()
        if not os.path.lexists(path):
            return {}
        stated = None if found is None else found.get(SPEAKS_OF)
        if stated is None:
            return files.read_arrays(path)
        return files.read_arrays(path, str(stated.get(name)))

    def forget_summary(self) -> None:
        """Remove the summary, which is about to be out of date."""
        self._check_writable()
        (self.folder / SUMMARY).unlink(missing_ok=True)

    def _summary(self) -> dict[str, Any] | None:
        path = self.folder / SUMMARY
        if not os.path.lexists(path):
            return None
        found = files.read_json(path)
        stated = found.get(SPEAKS_OF, {})
        if not isinstance(stated, dict) or not all(type(one) is str for one in stated.values()):
            raise files.make_damage_error(
                path, f"{SPEAKS_OF} must be digests by the names of files"
            )
        return found

    def _digests(self, *, figures: bool = True) -> dict[str, str]:
        """Of each file of the folder that a summary speaks of; those of `figures` may be large."""
        found = {"run.json": files.content_digest(self.header)}
        ensemble = self.folder / ENSEMBLE_FILES[0]
        if os.path.lexists(ensemble):
            found[ensemble.name] = ensemble_digest(ensemble)
        for path in sorted(self.folder.glob("*.jsonl")):
            found[path.name] = hashlib.sha256(files.read_bytes(path)).hexdigest()
        for path in sorted(self.folder.glob("*.safetensors")) if figures else ():
            if path.name not in ENSEMBLE_FILES and not path.name.startswith("certification."):
                found[path.name] = files.arrays_digest(files.read_arrays(path))
        return found

    def _refuse_other(self, stated: Mapping[str, str]) -> None:
        """RunFolderError where the summary speaks of other files; those of figures may be gone."""
        now = self._digests(figures=False)
        for name in sorted({*stated, *now}):
            if name.endswith(".safetensors") or (name not in now and name != ENSEMBLE_FILES[0]):
                continue  # figures are compared where they are read; what is gone says nothing
            if now.get(name) != stated.get(name):
                raise RunFolderError(
                    f"{self.folder / SUMMARY} speaks of another {name} than the one in this "
                    "folder: restore both from one copy, or continue the run with --resume to "
                    "write them anew",
                    code="altered",
                )

    def _check_writable(self) -> None:
        if self._lock is None:
            raise RunFolderError(
                f"the run in {self.folder} is closed or was opened read-only: open it with "
                "Run.open(folder) to write"
            )

    def _history_lines(self) -> list[tuple[bytes, dict[str, Any]]]:
        """Each complete line with its record."""
        path = self.folder / "history.jsonl"
        lines = files.read_lines(path)
        for number, (_, record) in enumerate(lines, start=1):
            if type(record.get("iteration")) is not int:
                raise files.make_line_damage_error(
                    path, number, "it is not a record of an iteration"
                )
        return lines

    def _readable(self) -> list[str]:
        found = ["run.json"]
        with contextlib.suppress(RunFolderError):
            found.append(f"{len(self.history())} records of history.jsonl")
        if (self.folder / "summary.json").exists():
            found.append("summary.json")
        whole, total = self._checkpoints.whole_stacks()
        return [*found, f"{whole} of {total} member stacks"]


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on."""
    from cg4ai import __version__  # of this code: that of its installation may be another

    versions = {"python": platform.python_version(), "cg4ai": __version__}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _header(folder: Path) -> dict[str, Any]:
    """What run.json says, as far as every command relies on it."""
    path = folder / "run.json"
    header = files.read_json(path)
    files.check_format(path, header, expected=RUN_FORMAT, version=RUN_VERSION)
    command, settings = header.get("command"), header.get("settings")
    if not isinstance(command, str) or not isinstance(settings, dict):
        raise files.make_damage_error(path, "it needs a text 'command' and an object 'settings'")
    return header


def _check_free(folder: Path, force: bool) -> None:
    """RunFolderError unless a run may start in this folder."""
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(f"{folder} is a file, not a folder: choose another --out")
    entries = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    # all that a start killed half-way leaves behind
    if all(name == LOCK or name.startswith(".run.json.") for name in entries):
        return
    if "run.json" not in entries:
        raise RunFolderError(
            f"{folder} is not empty and holds no run: its files are left alone; choose a new or "
            "empty folder for --out",
            code="exists",
        )
    header = _header(folder)
    if not force:
        raise RunFolderError(
            f"{folder} already holds a run of {header.get('command')!r}: continue it with "
            "--resume, replace it with --force, or choose another --out",
            code="exists",
        )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level of dotted names."""
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flat(inner, f"{prefix}.{key}" if prefix else key)
    return flat
