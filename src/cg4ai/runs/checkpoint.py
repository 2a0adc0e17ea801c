"""The checkpoints of one run folder: at any moment at least one complete one lies on disk.

latest.json     names the slot to resume from
00000012/       a slot: arrays.safetensors, then checkpoint.json that completes it
00000011/       the slot before it, kept as a reserve
members/        the arrays of each stack of members once, named by their content, so that a
                checkpoint writes only the stacks that are new

Every file is sealed, and no name that a file states leads anywhere else: slots are digits, stacks
are digests.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.records import MemberState
from cg4ai.runs import files

SLOT = re.compile(r"\d{8}")
DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All that was given to `save`; `note` says if a reserve had to be used, and why."""

    iteration: int
    meta: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    members: list[MemberState] = field(default_factory=list)
    note: str = ""


class CheckpointFolder:
    """Reads and writes one checkpoint folder; the caller keeps other writers out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._current: str | None = None  # the slot last saved or loaded here
        self._intact: set[str] = set()  # files of members known to be whole on disk

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
        content = files.to_plain({"iteration": iteration, "meta": meta}, "checkpoint")
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
            raise files.make_unwritable_error(self.folder, error) from error
        files.write_arrays(self.folder / slot / "arrays.safetensors", arrays)
        files.write_json(self.folder / slot / "checkpoint.json", content)
        files.write_json(self.folder / "latest.json", {"slot": slot})
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
        paths = list((self.folder / "members").glob("stack-*.safetensors"))
        whole = 0
        for path in paths:
            with contextlib.suppress(RunFolderError):
                files.read_arrays(path)
                whole += 1
        return whole, len(paths)

    def _slots(self) -> list[str]:
        return [path.name for path in self.folder.glob("[0-9]*") if SLOT.fullmatch(path.name)]

    def _pointed(self) -> str | None:
        path = self.folder / "latest.json"
        if not os.path.lexists(path):
            return None
        slot = files.read_json(path).get("slot")
        if not isinstance(slot, str) or not SLOT.fullmatch(slot):
            raise files.make_damage_error(
                path, f"it must name a slot of eight digits, not {slot!r}"
            )
        return slot

    def _stack_path(self, record: Any) -> Path:
        digest = record.get("arrays") if isinstance(record, dict) else None
        if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
            raise InvalidInput(
                f"a stack is named by the SHA-256 of its arrays, not {digest!r}", code="type"
            )
        return self.folder / "members" / f"stack-{digest[:16]}.safetensors"

    def _save_stack(self, state: MemberState) -> dict[str, Any]:
        record = {**files.member_record(state), "arrays": files.arrays_digest(state.arrays)}
        path = self._stack_path(record)
        # a file met on disk but not yet read here may be damaged, so it is written again
        if path.name not in self._intact:
            files.write_arrays(path, state.arrays)
            self._intact.add(path.name)
        return record

    def _load_stack(self, record: Any) -> MemberState:
        path = self._stack_path(record)
        state = files.member_state(record, files.read_arrays(path, record["arrays"]))
        self._intact.add(path.name)
        return state

    def _content(self, slot: str) -> dict[str, Any]:
        """What checkpoint.json of a slot says."""
        for folder in (self.folder, self.folder / slot, self.folder / "members"):
            files.refuse_link(folder)
        path = self.folder / slot / "checkpoint.json"
        content = files.read_json(path)
        iteration, meta, members = (content.get(name) for name in ("iteration", "meta", "members"))
        if (
            type(iteration) is not int
            or not isinstance(meta, dict)
            or not isinstance(members, list)
        ):
            raise files.make_damage_error(
                path, "it needs a number 'iteration', 'meta' and a list 'members'"
            )
        return content

    def _load_slot(self, slot: str) -> Checkpoint:
        content = self._content(slot)
        arrays = files.read_arrays(self.folder / slot / "arrays.safetensors")
        try:
            members = [self._load_stack(record) for record in content["members"]]
        except InvalidInput as error:
            raise files.make_damage_error(
                self.folder / slot / "checkpoint.json", str(error)
            ) from error
        return Checkpoint(content["iteration"], content["meta"], arrays, members)

    def _stacks_of(self, slot: str) -> set[str]:
        return {self._stack_path(record).name for record in self._content(slot)["members"]}

    def _remove_all_but(self, kept: Collection[str | None]) -> None:
        """Remove other slots and unneeded stacks; what cannot be removed waits for next time."""
        needed: set[str] = set()
        for slot in self._slots():
            if slot not in kept:
                shutil.rmtree(self.folder / slot, ignore_errors=True)
                continue
            # a damaged reserve is of no use anyway
            with contextlib.suppress(RunFolderError, InvalidInput):
                needed |= self._stacks_of(slot)
        for path in (self.folder / "members").iterdir():
            if path.name not in needed:
                with contextlib.suppress(OSError):
                    path.unlink()
        self._intact &= needed
