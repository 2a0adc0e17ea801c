"""The options of a run that are not about what to train: where to, and what to show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cg4ai.settings import Checked, setting


@dataclass(frozen=True, kw_only=True)
class RunOptions(Checked):
    """The options of a run that are not about what to train."""

    out: Path | None = setting(None, "New folder for the run.", metavar="DIR")
    resume: bool = setting(False, "Continue the run in DIR; nothing else need be given.")
    force: bool = setting(False, "Replace an earlier run in DIR.")
    quiet: bool = setting(False, "Show no progress.")
    json: bool = setting(False, "Progress and result as JSON lines on stdout.")

    def inconsistencies(self) -> list[str]:
        faults = []
        if self.resume and self.force:
            faults.append("--resume continues a run, --force replaces it; give one of them")
        if self.out is None and (self.resume or self.force):
            faults.append("--resume and --force need --out, the folder of the run")
        return faults
