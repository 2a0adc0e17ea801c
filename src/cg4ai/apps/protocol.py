"""What it takes to be an application: prepare, problem, evaluate, describe, restore, story.

`runner` drives every application through these and owns all else: folders, resuming, interrupts,
saving, exit codes. A run's folder keeps the description that `describe` gave, and `restore` makes
of it what the commands for finished runs ask: predict, audit, certify.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from cg4ai.apps.changes import LastAnswer, LimitedOutputs
from cg4ai.apps.csv_tables import CsvTable
from cg4ai.apps.drift import Excess
from cg4ai.clock import Review
from cg4ai.colgen.loop import Callbacks, solve
from cg4ai.colgen.result import Result
from cg4ai.compile.problem import Problem
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray, IterationRecord
from cg4ai.rules import Requirement
from cg4ai.runs.folder import Run
from cg4ai.settings import Settings

if TYPE_CHECKING:
    from cg4ai.proofs.records import Certification, Totals
    from cg4ai.report.story import SavedRun, Story


class RunSettings(Protocol):
    """What the runner reads of any application's settings; frozen dataclasses have more."""

    @property
    def device(self) -> str: ...

    @property
    def threads(self) -> int | None: ...

    @property
    def time_limit_s(self) -> float: ...

    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class TrainingOutcome:
    """What training gave, and what is established about it on the way to evaluation.

    `proof`: of the rule that the run was asked to certify. `written`: what the summary says of
    certificates in the folder. `refused`: one was written and the checker did not accept it.
    """

    result: Result
    proof: Certification | None = None
    written: Mapping[str, Any] = field(default_factory=dict)
    refused: bool = False


class Solver(Protocol):
    """Solves a problem; `solve_plainly` is the one without further proofs."""

    def __call__(
        self,
        problem: Problem,
        settings: Settings,
        *,
        progress: Callable[[IterationRecord], None] | None,
        run: Run | None,
        callbacks: Callbacks | None = None,
    ) -> TrainingOutcome: ...


def solve_plainly(
    problem: Problem,
    settings: Settings,
    *,
    progress: Callable[[IterationRecord], None] | None,
    run: Run | None,
    callbacks: Callbacks | None = None,
) -> TrainingOutcome:
    """Solve by column generation alone."""
    return TrainingOutcome(
        solve(problem, settings, progress=progress, run=run, callbacks=callbacks)
    )


@dataclass(frozen=True)
class TrainingTask:
    """What the loop is given: `heard` is told of every iteration; `words` say what will happen."""

    problem: Problem
    settings: Settings
    words: str
    heard: Callable[[IterationRecord], None] = lambda record: None
    solver: Solver = solve_plainly
    journal: Any = None  # what the application wants to read when it evaluates
    patch_trains: bool = False  # whether a patch trains once even where weights alone suffice
    evaluation_share: float = 0.2  # of a time limit, kept for what comes after training
    evaluation_most_s: float = math.inf  # seconds that are kept for it at most


@dataclass(frozen=True)
class Evaluation:
    """What was found out about a trained mixture; `kept`: all that was asked for holds."""

    summary: dict[str, Any]
    kept: bool
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Rule:
    """A requirement, and for listed inputs the rows of the file that they come from.

    `names`: what its single rules are called, where numbers say little. `outside`: which of the
    listed inputs lie outside the region that the rule was established for.
    """

    requirement: Requirement
    outputs: tuple[str, ...]
    table: CsvTable | None = None
    rows: IntArray | None = None
    names: tuple[str, ...] = ()
    outside: NDArray[np.bool_] | None = None

    def format_source(self, number: int) -> str:
        """`patients.csv, line 9` for input `number` of the requirement; empty where unknown."""
        if self.table is None or self.rows is None or number < 0:
            return ""
        line = f"{self.table.path.name}, line {self.table.lines[int(self.rows[number])]}"
        beyond = self.outside is not None and self.outside[number]
        return f"{line}, outside the region of the guarantee" if beyond else line


@dataclass(frozen=True)
class Proposition:
    """One requirement to prove: what it is called and the names of its rules and inputs.

    `totals`: what sums of its rules keep, where that is what they are for.
    """

    requirement: Requirement
    title: str
    rule_names: list[str] | None
    input_names: list[str]
    totals: Totals | None = None


@dataclass(frozen=True)
class Signature:
    """What a model takes and gives: names of both, of their columns, and where inputs lie."""

    takes: str
    inputs: list[str]
    gives: str
    outputs: list[str]
    lower: Array
    upper: Array

    def sample(self, count: int, seed: int = 0) -> Array:
        """Random inputs (count, d) between the ends."""
        return np.random.default_rng(seed).uniform(self.lower, self.upper, (count, len(self.lower)))


@dataclass(frozen=True)
class InputColumn:
    """A column that predictions are made from.

    In the region numbers lie in [least, most]; `values` are those of text, of which others stand
    for none. `may_be_empty`: a cell may be left empty where its value is unknown. The examples of
    all columns are a row inside the region.
    """

    name: str
    example: float | bool | str
    kind: Literal["number", "boolean", "text"] = "number"
    least: float | None = None
    most: float | None = None
    values: tuple[str, ...] = ()
    may_be_empty: bool = False


@dataclass(frozen=True)
class Interface:
    """What goes into predictions and what comes out, as tables have it; `region`: of rules that are
    restricted to one, empty if there are none.

    A `Signature` has the features instead that columns are encoded to.
    """

    title: str
    inputs: tuple[InputColumn, ...]
    outputs: tuple[str, ...]
    region: str


@dataclass(frozen=True)
class Guarantee:
    """What a run says of one rule at its end, in the words of its report.

    `doubtful`: it holds on the listed rows and is likely violated on new ones.
    """

    rule: str
    holds: bool
    strength: str
    words: str
    doubtful: bool = False


@dataclass(frozen=True, eq=False)
class Answers:
    """Outputs (n, r), how far each may be from the optimum, and which were solved.

    `gaps` (n,): the objective is at most so much above the optimum, as a share of it; infinite
    where nothing is known. In place of the mixture's own outputs: `improved` (n,) by steps from
    them, `solved` (n,) by a linear program. Neither is ever worse than the mixture's, until changes
    are limited. `overloaded` (n,): whether what is answered exceeds a capacity at this very input.
    `carried`, of each class of demands by name: the share (n,) of its traffic that fits beside the
    other classes; `carried_each` likewise of each demand.
    """

    splits: Array
    gaps: Array
    improved: NDArray[np.bool_]
    solved: NDArray[np.bool_]
    overloaded: NDArray[np.bool_]
    carried: Mapping[str, Array] = field(default_factory=dict)
    carried_each: Mapping[str, Array] = field(default_factory=dict)


class TrainedDefaults:
    """What a finished run answers that knows no optimum and no agents, and reads row by row."""

    @property
    def window(self) -> int:
        return 0

    @property
    def first_answer(self) -> Array:
        return np.zeros(0)

    def read_history(self, file: Path) -> CsvTable:
        raise InvalidInput(
            "this run does not read successive matrices: leave out --history, which is for runs "
            "of cg4ai route --history",
            code="unsupported",
        )

    @property
    def paths(self) -> Mapping[str, Sequence[str]]:
        return {}

    @property
    def unproven(self) -> str:
        return ""

    @property
    def fallback(self) -> float | None:
        return None

    @property
    def without_fallback(self) -> str:
        return ""

    @property
    def export_note(self) -> str:
        return ""

    def improve_answers(self, inputs: Array, outputs: Array, *, fallback: float) -> Answers | None:
        return None

    def finish_outputs(self, inputs: Array, outputs: Array) -> Array:
        return outputs

    @property
    def churn(self) -> float | None:
        return None

    @property
    def outside_note(self) -> str:
        return ""

    def limit_changes(
        self,
        inputs: Array,
        outputs: Array,
        last: LastAnswer | None,
        *,
        churn: float,
        known: Sequence[Answers] = (),
    ) -> LimitedOutputs:
        raise InvalidInput(
            "churn is for routers, whose splits are carried out one after the other: leave it out",
            code="unsupported",
        )

    def measure_excess(self, inputs: Array) -> Excess | None:
        return None

    def find_failed_run(self, folder: Path, links: Sequence[str]) -> Path:
        raise InvalidInput(
            "this is not a run of cg4ai route: only routers answer under failed links",
            code="unsupported",
        )

    def export_agents(self, ensemble: Ensemble, folder: Path) -> list[str]:
        raise InvalidInput(
            "this is not a run of cg4ai route: --agents takes routers apart, node by node",
            code="unsupported",
        )


class TrainedModel(Protocol):
    """A finished run as commands ask it, whatever the application; see `TrainedDefaults`."""

    @property
    def window(self) -> int:
        """How many rows, up to its own, an answer needs of a table in order of time; 0: its own.

        The first rows, which have fewer, are answered by `first_answer`.
        """
        ...

    @property
    def first_answer(self) -> Array:
        """(r,): of what reads windows, what is answered until there is one."""
        ...

    def read_history(self, file: Path) -> CsvTable:
        """The rows in order of time that a file of measurements holds."""
        ...

    @property
    def paths(self) -> Mapping[str, Sequence[str]]:
        """Of a router: the nodes of the path that an output is the share of."""
        ...

    @property
    def unproven(self) -> str:
        """Why it is unknown how far answers are from the optimum; empty where it is known."""
        ...

    @property
    def fallback(self) -> float | None:
        """The proven gap above which answers are improved or solved unless asked otherwise."""
        ...

    @property
    def without_fallback(self) -> str:
        """Why answers have no fallback where one is usual; empty where none is."""
        ...

    @property
    def export_note(self) -> str:
        """What answers of a run are given beside an exported model; empty where nothing is."""
        ...

    def improve_answers(self, inputs: Array, outputs: Array, *, fallback: float) -> Answers | None:
        """Outputs with their proven gap, solved where that is above a finite `fallback`.

        Those outside the region are solved then, too. None where no optimum is known.
        """
        ...

    def finish_outputs(self, inputs: Array, outputs: Array) -> Array:
        """The mixture's outputs as they are answered, such as rounded.

        `improve_answers` does that itself.
        """
        ...

    @property
    def churn(self) -> float | None:
        """By how much successive answers may differ unless asked otherwise; None: by any."""
        ...

    @property
    def outside_note(self) -> str:
        """What follows for answers of rows outside; empty: rules are not guaranteed there."""
        ...

    def limit_changes(
        self,
        inputs: Array,
        outputs: Array,
        last: LastAnswer | None,
        *,
        churn: float,
        known: Sequence[Answers] = (),
    ) -> LimitedOutputs:
        """Outputs of successive inputs, each held near the one before; `last`: before the first.

        `known`: what is known of the outputs, in parts, where they were compared with an optimum.
        """
        ...

    def measure_excess(self, inputs: Array) -> Excess | None:
        """How far inputs lie beyond the region; None where its limits have no names."""
        ...

    def find_failed_run(self, folder: Path, links: Sequence[str]) -> Path:
        """Of a router in a folder: that of the run that answers when these links have failed."""
        ...

    def export_agents(self, ensemble: Ensemble, folder: Path) -> list[str]:
        """Write a policy for each node; what was written, in words."""
        ...

    @property
    def signature(self) -> Signature:
        """What the mixture takes and gives."""
        ...

    def interface(self) -> Interface:
        """Columns that predictions are made from, with their ranges, and names of what they are."""
        ...

    def inputs(self, table: CsvTable) -> Array:
        """The inputs (n, d) that stand in a table, matched by the names of its columns."""
        ...

    def outside(self, inputs: Array) -> NDArray[np.bool_]:
        """Which inputs (n,) lie outside what some rule over a region was established for."""
        ...

    def predictions(
        self, inputs: Array, outputs: Array, *, details: bool
    ) -> Sequence[Mapping[str, Any]]:
        """One row of a table per input, with names; `details` adds what follows from them."""
        ...

    def explorer(self, ensemble: Ensemble, folder: Path, summary: Mapping[str, Any]) -> str:
        """A page that computes predictions itself, as one HTML file; `folder`: of the run."""
        ...

    def rules(self, file: Path | None, table: CsvTable | None) -> list[Rule]:
        """What to audit: the rules of a file, or else the run's own, at the rows of a table."""
        ...

    def get_own_rules(self, table: CsvTable) -> list[Rule]:
        """The rules by which predictions for a table are explained: the run's own."""
        ...

    def propositions(self) -> list[Proposition]:
        """What can be proven over a whole region."""
        ...

    def read_added_rules(self, file: Path, table: CsvTable | None) -> list[Rule]:
        """The rules or cases of a file that a patch adds; its rows are those of a table."""
        ...

    def files(self, file: Path) -> list[Path]:
        """All files that decide what such a file means."""
        ...


S = TypeVar("S", bound=RunSettings)
P = TypeVar("P")


class Application(Protocol[S, P]):
    """What an application, or an experiment's variant of one, can do; `P` is what it prepares."""

    @property
    def name(self) -> str:
        """That of its command."""
        ...

    @property
    def settings(self) -> type[S]: ...

    @property
    def may_differ(self) -> tuple[str, ...]:
        """The settings that a resumed run may have otherwise."""
        ...

    @property
    def preparing(self) -> str:
        """What `prepare` does, for the screen; empty where it takes no time to speak of."""
        ...

    def prepare(self, settings: S, described: Mapping[str, Any] | None) -> P:
        """Read and check all that can be before training; from a description if there is one."""
        ...

    def describe(self, prepared: P) -> dict[str, Any]:
        """Inputs and outputs in plain data, from which `restore` makes sense of predictions."""
        ...

    def problem(self, prepared: P) -> TrainingTask:
        """The problem for the loop, which is refused before a folder is made or emptied for it."""
        ...

    def reopen(self, settings: S, described: Mapping[str, Any] | None) -> TrainingTask:
        """The task of a finished run that is to be patched."""
        ...

    def attach_journal(self, task: TrainingTask, run: Run | None) -> TrainingTask:
        """The same task, told to remember what is found on the way; with a run, to write it."""
        ...

    def conclude(
        self, prepared: P, task: TrainingTask, solved: TrainingOutcome, run: Run | None
    ) -> TrainingOutcome:
        """What belongs to the product itself, such as a shield or a certificate, before saving."""
        ...

    def evaluate(
        self, prepared: P, task: TrainingTask, solved: TrainingOutcome, review: Review
    ) -> Evaluation:
        """Measure the mixture; trains nothing that was not asked for."""
        ...

    def restore(
        self, ensemble: Ensemble, description: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> TrainedModel:
        """What `describe` gave, as something that commands can ask."""
        ...

    def story(self, summary: Mapping[str, Any], saved: SavedRun | None = None) -> Story:
        """What a run that has ended came to; with its folder also figures and what they need."""
        ...
