"""The checkpoints of one run folder: at any moment at least one complete one lies on disk.

latest.json     names the slot to resume from
00000012/       a slot: arrays.safetensors, then checkpoint.json that completes it
00000011/       the slot before it, kept as a reserve
members/        each stack of members once, named by its content, so that a checkpoint
                writes only the stacks that are new
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cg4ai.errors import RunFolderError
from cg4ai.records import MemberState
from cg4ai.runs import files


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All that was given to `save`; `note` says if a reserve had to be used, and why."""

    iteration: int
    meta: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    members: list[MemberState] = field(default_factory=list)
    note: str = ""


class Checkpoints:
    """Reads and writes one checkpoint folder; the caller keeps other writers out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._current: str | None = None  # the slot last saved or loaded here
        self._intact: set[str] = set()  # member stacks known to be whole on disk

    def save(
        self,
        iteration: int,
        meta: Mapping[str, Any],
        *,
        arrays: Mapping[str, NDArray[Any]],
        members: Sequence[MemberState],
    ) -> None:
        """Member stacks first, then a new slot that refers to them, then the pointer to it.

        Only after that is anything removed, so a kill at any moment leaves the checkpoint before
        or this one.
        """
        content = files.jsonable({"iteration": iteration, "meta": meta}, "checkpoint")
        reserve = self._current
        if reserve is None:
            with contextlib.suppress(RunFolderError):  # a damaged pointer is about to be replaced
                reserve = self._pointed()
        slot = f"{max([0, *map(int, self._slots())]) + 1:08d}"
        try:
            (self.folder / "members").mkdir(parents=True, exist_ok=True)
            files.sync_folder(self.folder.parent)
            content["members"] = [self._save_stack(state) for state in members]
            (self.folder / slot).mkdir()
            files.sync_folder(self.folder)
        except OSError as error:
            if isinstance(error, RunFolderError):
                raise
            raise files.unwritable(self.folder, error) from error
        files.write_arrays(self.folder / slot / "arrays.safetensors", arrays)
        files.write_sealed_json(self.folder / slot / "checkpoint.json", content)
        files.write_sealed_json(self.folder / "latest.json", {"slot": slot})
        self._current = slot
        self._remove_all_but({slot, reserve})

    def load(self) -> Checkpoint | None:
        """The newest whole checkpoint, or None if none was ever completed."""
        problems: list[str] = []
        pointed: list[str] = []
        try:
            pointed = [slot for slot in [self._pointed()] if slot is not None]
        except RunFolderError as error:
            problems.append(str(error))
        others = [
            slot
            for slot in sorted(self._slots(), reverse=True)
            if slot not in pointed and (self.folder / slot / "checkpoint.json").exists()
        ]
        for slot in [*pointed, *others]:
            try:
                checkpoint = self._load_slot(slot)
            except RunFolderError as error:
                problems.append(str(error))
                continue
            self._current = slot
            note = f"resuming from iteration {checkpoint.iteration}: " + "; ".join(problems)
            return replace(checkpoint, note=note) if problems else checkpoint
        if problems:
            raise RunFolderError("no checkpoint can be read: " + "; ".join(problems))
        return None

    def whole_stacks(self) -> tuple[int, int]:
        """How many member stacks can be read, and how many there are."""
        stems = [path.stem for path in (self.folder / "members").glob("stack-*.json")]
        whole = 0
        for stem in stems:
            with contextlib.suppress(RunFolderError):
                files.load_members(self.folder / "members", stem)
                whole += 1
        return whole, len(stems)

    def _slots(self) -> list[str]:
        return [path.name for path in self.folder.glob("[0-9]*") if path.name.isdigit()]

    def _pointed(self) -> str | None:
        path = self.folder / "latest.json"
        return str(files.read_sealed_json(path)["slot"]) if path.exists() else None

    def _save_stack(self, state: MemberState) -> dict[str, str]:
        digest = files.member_digest(state)
        stem = f"stack-{digest[:16]}"
        # a file met on disk but not yet read here may be damaged, so it is written again
        if stem not in self._intact:
            files.save_members(self.folder / "members", stem, [state])
            self._intact.add(stem)
        return {"stem": stem, "sha256": digest}

    def _load_stack(self, entry: Mapping[str, str]) -> MemberState:
        members = files.load_members(self.folder / "members", entry["stem"])
        if [files.member_digest(state) for state in members] != [entry["sha256"]]:
            path = self.folder / "members" / f"{entry['stem']}.json"
            raise RunFolderError(f"{path} is damaged: it holds other members than were saved")
        self._intact.add(entry["stem"])
        return members[0]

    def _load_slot(self, slot: str) -> Checkpoint:
        content = files.read_sealed_json(self.folder / slot / "checkpoint.json")
        return Checkpoint(
            content["iteration"],
            content["meta"],
            files.read_arrays(self.folder / slot / "arrays.safetensors"),
            [self._load_stack(entry) for entry in content["members"]],
        )

    def _stems(self, slot: str) -> set[str]:
        content = files.read_sealed_json(self.folder / slot / "checkpoint.json")
        return {entry["stem"] for entry in content["members"]}

    def _remove_all_but(self, kept: Collection[str | None]) -> None:
        """Remove other slots and unneeded stacks; what cannot be removed waits for next time."""
        needed: set[str] = set()
        for slot in self._slots():
            if slot not in kept:
                shutil.rmtree(self.folder / slot, ignore_errors=True)
                continue
            with contextlib.suppress(RunFolderError):  # a damaged reserve is of no use anyway
                needed |= self._stems(slot)
        for path in (self.folder / "members").iterdir():
            if path.stem not in needed:
                with contextlib.suppress(OSError):
                    path.unlink()
        self._intact &= needed
