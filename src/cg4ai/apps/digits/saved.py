"""One digits run in a folder: what was asked for, training with resume, evaluation, files.

Beside what every run folder holds (see runs.py) there is `arrays.safetensors`, the arrays behind
figures: positions of training and test images, scores, and the required images with their labels.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from cg4ai.apps.digits.data import PIXELS, Digits, digits
from cg4ai.apps.digits.members import Rule
from cg4ai.apps.digits.problem import Recipe, Scenario, listed, usual_recipe
from cg4ai.apps.digits.separation import Attack, PixelFlips, SmallestChange
from cg4ai.apps.digits.train import TOLERANCE, DigitsResult, Prepared, fit, prepare
from cg4ai.ensemble.claims import record_audited
from cg4ai.errors import InvalidInput, InvalidSettings, RunFolderError, did_you_mean
from cg4ai.records import IterationRecord, StopReason
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from cg4ai.settings import Settings

AttackName = Literal["flips", "smallest", "both"]
ATTACK: AttackName = "flips"
FLIPPED = 100  # pixels at most
COMMAND = "digits"
ARRAYS = "arrays.safetensors"
MAY_DIFFER = ("settings.time_limit_s",)  # a resumed run may take longer than was first asked


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to train: scenario and data, and what differs from the usual recipe."""

    scenario: Scenario = "hard"
    n: int = 100
    rule: Rule = "margin"
    hard_per_class: int | None = None
    constraints_only: bool = False
    augment: bool = False
    data: Path | None = None
    hidden: int = 4
    attack: AttackName = ATTACK
    pixels: int = FLIPPED
    seed: int = 0
    device: str = "cpu"
    threads: int = 2
    time_limit_s: float = np.inf
    recipe: Recipe | None = None  # replaces the usual one, e.g. by a quicker one

    def __post_init__(self) -> None:
        for name, known in (
            ("scenario", get_args(Scenario)),
            ("rule", get_args(Rule)),
            ("attack", get_args(AttackName)),
        ):
            value = getattr(self, name)
            if value not in known:
                hint = did_you_mean(str(value), known)
                raise InvalidInput(f"{name} must be one of {', '.join(known)}, got {value!r}{hint}")
        if self.recipe is not None:
            self.recipe.check_rule(self.rule)
        if self.threads < 1:
            raise InvalidInput(f"threads must be 1 or more, got {self.threads}")
        Settings(seed=self.seed, device=self.device)  # refuses what is neither
        if self.scenario != "robust" and (self.attack, self.pixels) != (ATTACK, FLIPPED):
            raise InvalidInput(
                f"attack and pixels belong to the scenario robust, got {self.attack} and "
                f"{self.pixels} with {self.scenario}"
            )

    def attacks(self) -> tuple[Attack, ...]:
        flips: Attack = PixelFlips(self.pixels)
        smallest: Attack = SmallestChange()
        return {"flips": (flips,), "smallest": (smallest,), "both": (flips, smallest)}[self.attack]

    def usual(self) -> Recipe:
        recipe = self.recipe or usual_recipe(
            self.rule,
            self.n,
            constraints_only=self.constraints_only,
            augment=self.augment,
            seed=self.seed,
            hidden=self.hidden,
        )
        return replace(recipe, seed=self.seed, device=self.device)


def record(wanted: Wanted, prepared: Prepared) -> dict[str, Any]:
    """What run.json keeps: enough to tell whether another run is the same."""
    asked = asdict(replace(wanted, recipe=None, data=None, time_limit_s=np.inf))
    for name in ("recipe", "data", "time_limit_s"):
        del asked[name]
    return {
        **asked,
        "data_sha256": _digest(prepared.split.digits),
        "recipe": asdict(prepared.recipe),
        "settings": prepared.settings.as_dict(),
    }


def prepared_run(wanted: Wanted) -> Prepared:
    """Read the images, train the base member and check everything else that can be checked."""
    import torch

    # sums depend on how many threads share them, so the number is a setting like the others
    torch.set_num_threads(wanted.threads)
    return prepare(
        wanted.scenario,
        digits(wanted.data).split(wanted.n, wanted.seed),
        wanted.usual(),
        hard_per_class=wanted.hard_per_class,
        constraints_only=wanted.constraints_only,
        attacks=wanted.attacks() if wanted.scenario == "robust" else (),
        time_limit_s=wanted.time_limit_s,
    )


def open_run(folder: Path, wanted: Wanted, prepared: Prepared, *, resume: bool, force: bool) -> Run:
    """A new run, or with `resume` the one that is there if it was started alike."""
    if resume and force:
        raise InvalidInput("--resume continues a run, --force replaces it; give one of them")
    # a run killed before its first file was written is resumed by starting it
    if not resume or not (folder / "run.json").exists():
        created = Run.create(folder, COMMAND, record(wanted, prepared), force=force)
        (folder / ARRAYS).unlink(missing_ok=True)
        return created
    opened = Run.open(folder)
    try:
        if opened.command != COMMAND:
            raise RunFolderError(f"{folder} holds a run of {opened.command!r}, not of {COMMAND!r}")
        opened.check_settings(record(wanted, prepared), may_differ=MAY_DIFFER)
    except (InvalidSettings, RunFolderError):
        opened.close()
        raise
    (folder / "summary.json").unlink(missing_ok=True)  # about to be out of date
    return opened


def train_and_save(
    wanted: Wanted,
    prepared: Prepared,
    run: Run | None,
    *,
    prepared_s: float = 0.0,
    progress: Callable[[IterationRecord], None] | None = None,
) -> DigitsResult | None:
    """Train (or go on), evaluate and write all files; None if it was interrupted."""
    try:
        trained = fit(prepared, run, prepared_s=prepared_s, progress=progress)
    except KeyboardInterrupt:
        return None
    if trained.result.stop_reason is StopReason.INTERRUPTED:
        return None
    trained.summary["hard_per_class"] = wanted.hard_per_class
    if wanted.scenario == "robust":
        trained.summary["attack"] = {"name": wanted.attack, "pixels": wanted.pixels}
    if run is not None:
        trained.ensemble.about.update(about(prepared))
        _record_kept(trained)
        trained.ensemble.save(run.folder)
        files.write_arrays(run.folder / ARRAYS, trained.arrays)
        run.finish(trained.summary)
    return trained


def _record_kept(trained: DigitsResult) -> None:
    """Note in the ensemble at which images all demands were recomputed, if they are all kept."""
    images, labels = trained.required
    if len(labels) and trained.summary["rows_satisfied"] == len(labels):
        asked = listed(images, labels, trained.prepared.recipe, name="required images")
        record_audited(trained.ensemble, asked, tolerance=TOLERANCE)


def about(prepared: Prepared) -> dict[str, Any]:
    """What the folder says of inputs and outputs."""
    return {
        "application": "digits",
        "inputs": f"{PIXELS} pixels in [0, 1], row by row",
        "outputs": "logits" if prepared.recipe.rule == "margin" else "probabilities",
        "answer": "the class of the highest score",
        "threshold": prepared.recipe.threshold,
    }


def timed_preparation(wanted: Wanted) -> tuple[Prepared, float]:
    """`prepared_run` and the seconds it took."""
    started = time.perf_counter()
    prepared = prepared_run(wanted)
    return prepared, time.perf_counter() - started


def _digest(data: Digits) -> str:
    digest = hashlib.sha256()
    for array in (data.images, data.labels, data.test):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
