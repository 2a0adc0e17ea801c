"""The digits application: from images to a classifier that answers some for sure."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.apps.csv_tables import CsvTable, read_csv
from cg4ai.apps.protocol import (
    Evaluation,
    InputColumn,
    Interface,
    Proposition,
    Rule,
    Signature,
    Solver,
    TrainedDefaults,
    TrainingOutcome,
    TrainingTask,
    solve_plainly,
)
from cg4ai.apps.runner import RunOutcome, Screen, perform
from cg4ai.clock import Review
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import Cg4aiError, InvalidInput, RunFolderError
from cg4ai.layout import Layout
from cg4ai.members.mixture import Part
from cg4ai.records import Array, IntArray
from cg4ai.report.story import SavedRun, Story
from cg4ai.rules import Margin, Probability
from cg4ai.runs.files import read_given
from cg4ai.runs.folder import Run
from experiments.digits.data import CLASSES, PIXELS, Digits, Split, digits
from experiments.digits.evaluate import Prepared, evaluate
from experiments.digits.explorer import explorer
from experiments.digits.journal import Journal
from experiments.digits.members import base_member
from experiments.digits.patience import solve_attacked
from experiments.digits.problem import Demand, demand, digit_settings, digits_problem, listed
from experiments.digits.separation import Attack, PixelFlips, SmallestChange
from experiments.digits.settings import DigitsSettings, Recipe
from experiments.digits.story import story

LABEL = "label"
ADDED = ("correct", "relabel")  # scenarios that a patch adds to a run of another
SMALLER = 10  # times than at first are groups that a patch trains, and its steps
PIXEL_NAMES = [f"pixel {number}" for number in range(PIXELS)]


@dataclass(frozen=True)
class DigitsApplication:
    """Mixtures of small networks; `images` and `attacks` replace those that the settings name."""

    images: Digits | None = None
    attacks: Sequence[Attack] = ()
    name = "digits"
    settings = DigitsSettings
    may_differ = ("time_limit_s", "data", "stored", "jobs")
    preparing = "training one network alone, to compare and to see what it gets wrong"

    def prepare(self, settings: DigitsSettings, described: Mapping[str, Any] | None) -> Prepared:
        """Train the base member, which some scenarios are about, and collect the images."""
        split = self.split(settings, described)
        base = _base(settings, split)
        return Prepared(settings, split, self.demand_of(settings, split, base), base)

    def split(self, settings: DigitsSettings, described: Mapping[str, Any] | None) -> Split:
        images = digits(settings.data) if self.images is None else self.images
        if described is not None and _digest(images) != described.get("data_sha256"):
            raise InvalidInput(
                f"the images of {images.name} are not those that the run was started with; "
                "restore them, or name their folder with --data"
            )
        return images.split(settings.n, settings.seed)

    def demand_of(self, settings: DigitsSettings, split: Split, base: Ensemble | None) -> Demand:
        wanted = demand(
            settings.scenario,
            split,
            base=base,
            hard_per_class=settings.hard_per_class,
            constraints_only=settings.constraints_only,
            attacks=self._attacks(settings),
            radius=settings.radius,
            exact=settings.separator == "mip",
        )
        if wanted.loss is None and settings.copies:
            raise InvalidInput(
                "copies are further data of the loss, and with every image in the hard set there "
                "is none; leave out augment, or hard_per_class to have every image in both"
            )
        return wanted

    def reopen(self, settings: DigitsSettings, described: Mapping[str, Any] | None) -> TrainingTask:
        """The base member is trained again only where the rows are about it.

        What is trained further stands beside a whole group, so that few members do; weights alone,
        where they keep the added rows, cost more accuracy on other images.
        """
        settings = replace(
            settings,
            group=math.ceil(settings.group / SMALLER),
            steps=math.ceil(settings.steps / SMALLER),
        )
        split = self.split(settings, described)
        base = _base(settings, split) if settings.scenario in ("correct", "robust") else None
        wanted = self.demand_of(settings, split, base)
        problem = digits_problem(wanted, settings, base=base)
        return TrainingTask(problem, digit_settings(settings, wanted), "", patch_trains=True)

    def _attacks(self, settings: DigitsSettings) -> tuple[Attack, ...]:
        if self.attacks or settings.scenario != "robust" or settings.radius:
            return tuple(self.attacks)
        flips: Attack = PixelFlips(settings.pixels)
        smallest: Attack = SmallestChange()
        return {"flips": (flips,), "smallest": (smallest,), "both": (flips, smallest)}[
            settings.attack
        ]

    def describe(self, prepared: Prepared) -> dict[str, Any]:
        asked = prepared.settings
        return {
            "inputs": f"{PIXELS} pixels in [0, 1], row by row",
            "outputs": "logits" if asked.rule == "margin" else "probabilities",
            "answer": "the class of the highest score",
            "rule": asked.rule,
            "threshold": asked.threshold,
            "data_sha256": _digest(prepared.split.digits),
        }

    def problem(self, prepared: Prepared) -> TrainingTask:
        asked = prepared.settings
        problem = digits_problem(prepared.demand, asked, base=prepared.base)
        settings = digit_settings(asked, prepared.demand)
        words = (
            f"training: up to {settings.iteration_limit} groups of {asked.group} networks on "
            f"{asked.n} images, {asked.steps} steps each"
        )
        solver: Solver = solve_attacked if prepared.demand.attacks else solve_plainly
        return TrainingTask(problem, settings, words, solver=solver)

    def attach_journal(self, task: TrainingTask, run: Run | None) -> TrainingTask:
        journal = Journal(task.problem, run)
        return replace(task, problem=journal.listen(), heard=journal.iteration, journal=journal)

    def conclude(
        self, prepared: Prepared, task: TrainingTask, solved: TrainingOutcome, run: Run | None
    ) -> TrainingOutcome:
        return solved

    def evaluate(
        self, prepared: Prepared, task: TrainingTask, solved: TrainingOutcome, review: Review
    ) -> Evaluation:
        return evaluate(prepared, solved.result, task.journal, review)

    def restore(
        self, ensemble: Ensemble, description: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> Classifier:
        try:
            threshold, outputs = description["threshold"], description["outputs"]
            if type(threshold) not in (int, float) or outputs not in ("logits", "probabilities"):
                raise ValueError(f"a threshold of {threshold!r:.40} and outputs {outputs!r:.40}")
            if (ensemble.input_size, ensemble.output_size) != (PIXELS, CLASSES):
                raise ValueError("its mixture has other inputs than pixels, or other classes")
            recipe = Recipe(rule=description["rule"], threshold=float(threshold))
            return Classifier(recipe, outputs, settings)
        except (KeyError, TypeError, ValueError) as error:
            raise RunFolderError(
                f"the run does not say what its classifier demands ({error}): name a folder that "
                "python -m experiments.digits has written"
            ) from error

    def story(self, summary: Mapping[str, Any], saved: SavedRun | None = None) -> Story:
        return story(summary, saved)


@dataclass(frozen=True)
class Classifier(TrainedDefaults):
    """A trained digit classifier: columns `pixel 0` to `pixel 783` in, an answer and scores out."""

    recipe: Recipe
    outputs: str
    settings: Mapping[str, Any]

    def interface(self) -> Interface:
        return Interface(
            f"a digit classifier: the digit on an image of {PIXELS} pixels, row by row",
            tuple(InputColumn(name, 0.5, least=0.0, most=1.0) for name in PIXEL_NAMES),
            ("digit", *(f"{self._score} {label}" for label in range(CLASSES))),
            "every pixel between 0 and 1",
        )

    @property
    def _score(self) -> str:
        """What one of the outputs is."""
        return "logit" if self.outputs == "logits" else "probability"

    def inputs(self, table: CsvTable) -> Array:
        return table.get_numbers(PIXEL_NAMES)

    def outside(self, inputs: Array) -> NDArray[np.bool_]:
        """Images with a pixel that is none."""
        return np.asarray(((inputs < 0) | (inputs > 1)).any(axis=1))

    def predictions(
        self, inputs: Array, outputs: Array, *, details: bool
    ) -> list[dict[str, float | int]]:
        return [
            {
                "digit": int(line.argmax()),
                **{f"{self._score} {label}": float(value) for label, value in enumerate(line)},
            }
            for line in outputs
        ]

    @property
    def signature(self) -> Signature:
        classes = [str(label) for label in range(CLASSES)]
        zeros = np.zeros(PIXELS)
        return Signature("pixels", PIXEL_NAMES, self.outputs, classes, zeros, zeros + 1)

    def explorer(self, ensemble: Ensemble, folder: Path, summary: Mapping[str, Any]) -> str:
        missing = ""
        try:
            required = self._required if summary.get("rows") else None
        except Cg4aiError as error:
            required, missing = None, f" Required images are not shown: {error}."
        return explorer(
            ensemble,
            folder.name,
            summary,
            scores=self._score,
            required=None if required is None else self._rule(*required),
            missing=missing,
        )

    def rules(self, file: Path | None, table: CsvTable | None) -> list[Rule]:
        """The demand of the run on the images of a table, which names the answer of each."""
        if file is not None:
            raise InvalidInput(
                "a digit classifier has one rule, its demand on listed images, so leave out "
                "--rules; give --data with pixels and labels"
            )
        if table is not None:
            return [self._listed(self.inputs(table), labels_of(table), table)]
        if self._required is None:
            raise InvalidInput(
                f"the scenario {self.settings.get('scenario')} lists no images, so give some with "
                "--data"
            )
        return [self._listed(*self._required)]

    def _listed(self, images: Array, labels: IntArray, table: CsvTable | None = None) -> Rule:
        names = tuple(str(label) for label in range(CLASSES))
        return Rule(self._rule(images, labels), names, table, np.arange(len(labels)))

    def _rule(self, images: Array, labels: IntArray) -> Margin | Probability:
        return listed(images, labels, self.recipe, name="required images")

    @cached_property
    def _required(self) -> tuple[Array, IntArray] | None:
        """The images that the run lists, read once; None where attacks found them in training."""
        return demanded(self.settings).rows

    def get_own_rules(self, table: CsvTable) -> list[Rule]:
        """The demand on images whose answer the table names; without that column on the run's."""
        if LABEL in table.names:
            return self.rules(None, table)
        return [] if self._required is None else [self._listed(*self._required)]

    def read_added_rules(self, file: Path, table: CsvTable | None) -> list[Rule]:
        stored = dict(self.settings)
        described = stored.pop("description", None)
        asked = DigitsSettings.from_stored(stored)
        return [added_images(file, APPLICATION.split(asked, described), asked)]

    def files(self, file: Path) -> list[Path]:
        return [file]

    def propositions(self) -> list[Proposition]:
        raise InvalidInput(
            "a digit classifier keeps rules at listed images, which are audited: nothing is left "
            "to prove"
        )


def _base(settings: DigitsSettings, split: Split) -> Ensemble:
    """The base member as a mixture of itself alone."""
    member = base_member(
        split.train_images,
        split.train_labels,
        rule=settings.rule,
        hidden=settings.hidden,
        seed=settings.seed,
        epochs=settings.base_epochs,
    )
    return alone(member)


def labels_of(table: CsvTable) -> IntArray:
    """The digits (n,) that a table demands of its images."""
    given = table.get_numbers([LABEL])[:, 0]
    wrong = np.flatnonzero(~np.isin(given, np.arange(CLASSES)))
    if len(wrong):
        raise InvalidInput(
            f"{table.format_position(int(wrong[0]), LABEL)} is {given[wrong[0]]:g}, not a digit "
            "from 0 to "
            f"{CLASSES - 1}; correct it or remove the row"
        )
    return given.astype(np.int64)


def added_images(file: Path, split: Split, asked: DigitsSettings) -> Rule:
    """The demand on further images: a table of pixels and labels, or positions in the data.

    A JSON file names `images`, positions among all images of the data, and `labels` where they
    are not those of the data; or the `scenario` whose images are added, correct or relabel.
    """
    names = tuple(str(label) for label in range(CLASSES))
    if file.suffix != ".json":
        table = read_csv(file)
        labels = labels_of(table)
        rule = listed(table.get_numbers(PIXEL_NAMES), labels, asked, name=file.stem, own=True)
        return Rule(rule, names, table, np.arange(len(labels)))
    images, labels = _named_images(file, split, asked)
    return Rule(listed(images, labels, asked, name=file.stem, own=True), names)


def _named_images(file: Path, split: Split, asked: DigitsSettings) -> tuple[Array, IntArray]:
    known = split.digits
    try:
        given = json.loads(read_given(file).decode())
        if "scenario" in given:
            return _of_scenario(given["scenario"], split, asked)
        chosen = np.asarray(given["images"], np.int64)
        if chosen.min(initial=0) < 0:
            raise IndexError(f"{chosen.min()} is no position")
        labels = np.asarray(given.get("labels", known.labels[chosen]), np.int64)
        return known.images[chosen], labels
    except InvalidInput:
        raise
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise InvalidInput(
            f'{file} must be a JSON object such as {{"images": [4, 17], "labels": [3, 8]}} with '
            f"positions among the {len(known.labels)} images of {known.name}, or "
            f'{{"scenario": "relabel"}} or {{"scenario": "correct"}} ({error})'
        ) from error


def _of_scenario(name: Any, split: Split, asked: DigitsSettings) -> tuple[Array, IntArray]:
    """What the scenario demands, for a run that was trained without it."""
    if name not in ADDED:
        raise ValueError(f"the scenarios to add are {' and '.join(ADDED)}, got {name!r}")
    base = _base(asked, split) if name == "correct" else None
    rows = demand(name, split, base=base).rows
    if rows is None:
        raise InvalidInput("the base member answers every training image right: nothing to correct")
    return rows


def demanded(settings: Mapping[str, Any]) -> Demand:
    """What a run demanded, made again from its settings.

    The base member is trained only where its mistakes are the rows.
    """
    stored = {name: value for name, value in settings.items() if name != "description"}
    asked = DigitsSettings.from_stored(stored)
    split = APPLICATION.split(asked, settings.get("description"))
    base = _base(asked, split) if asked.scenario == "correct" else None
    return APPLICATION.demand_of(asked, split, base)


def alone(member: Any) -> Ensemble:
    """One member as an ensemble."""
    return Ensemble((Part(member, np.zeros(1, np.int64), np.ones(1)),), Layout.single(CLASSES))


def train(
    settings: DigitsSettings | None = None,
    *,
    images: Digits | None = None,
    attacks: Sequence[Attack] = (),
    out: str | Path | None = None,
    screen: Screen | None = None,
) -> RunOutcome[Prepared]:
    """Train and measure a classifier in Python; `attacks` are further ones of the scenario robust.

    Each is a function (mixture, images, labels, *, seed) -> images.
    """
    return perform(
        DigitsApplication(images, tuple(attacks)),
        settings or DigitsSettings(),
        out=None if out is None else Path(out),
        screen=screen,
    )


def _digest(data: Digits) -> str:
    digest = hashlib.sha256()
    for array in (data.images, data.labels, data.test):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


APPLICATION = DigitsApplication()
