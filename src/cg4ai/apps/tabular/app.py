"""The tabular application: `cg4ai train`, a CSV file and rules in, a trained mixture out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from cg4ai.apps.csv_tables import CsvTable, read_csv
from cg4ai.apps.protocol import Evaluation, Rule, TrainingOutcome, TrainingTask
from cg4ai.apps.tabular.data import CLASSIFICATION, REGRESSION, features_of, targets_of, task_of
from cg4ai.apps.tabular.description import (
    TabularModel,
    describe_subject,
    implied_rules,
    rules_digest,
)
from cg4ai.apps.tabular.encoding import TableEncoding
from cg4ai.apps.tabular.evaluate import compute_held_out_scores, figure_arrays
from cg4ai.apps.tabular.report import make_tabular_story
from cg4ai.apps.tabular.rulefile import Subject, read_rules
from cg4ai.apps.tabular.settings import TrainSettings
from cg4ai.clock import Review
from cg4ai.compile.problem import Problem
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.estimators.effort import find_effort
from cg4ai.estimators.estimators import ConstrainedClassifier, ConstrainedRegressor
from cg4ai.proofs.after_training import prove_afterwards
from cg4ai.report import wording
from cg4ai.report.story import SavedRun, Story
from cg4ai.runs.folder import Run
from cg4ai.settings import Settings

TRAINED = ("hidden", "restarts", "steps", "learning_rate", "batch_size")


@dataclass(frozen=True)
class TabularPreparation:
    """All that training needs, checked."""

    settings: TrainSettings
    table: CsvTable
    subject: Subject
    rules: list[Rule]
    problem: Problem
    loop: Settings


class Tabular:
    """Mixtures for tables; see `cg4ai.apps.protocol` for what the parts do."""

    name = "train"
    settings = TrainSettings
    preparing = ""
    # a resumed run may go on for longer than was first asked, and its files may have moved
    may_differ = ("data", "rules", "column_limit", "iteration_limit", "time_limit_s")

    def prepare(
        self, settings: TrainSettings, described: Mapping[str, Any] | None
    ) -> TabularPreparation:
        estimator = estimator_of(settings, settings.task or str(REGRESSION))
        estimator.run_settings()  # bad ones are refused first, whatever data and rules say
        table = read_csv(Path(str(settings.data)))
        encoding = TableEncoding.from_table(table, features_of(table, settings))
        inputs = encoding.inputs(table)
        task = task_of(table, settings)
        values, outputs = targets_of(table, settings.target, task)
        if settings.quantiles:
            outputs = quantile_names(settings, task)
        subject = Subject(
            features=encoding.features,
            encoding=encoding,
            outputs=outputs,
            lower=inputs.min(0),
            upper=inputs.max(0),
            target=settings.target,
            classification=task == CLASSIFICATION,
            table=table,
            logits=settings.scores == "logit",
        )
        estimator = estimator_of(settings, task, rows=len(table))
        rules = read_rules(Path(str(settings.rules)), subject)
        rules = [*implied_rules(settings.quantiles, outputs), *rules]
        problem = estimator.problem(inputs, values, [rule.requirement for rule in rules])
        loop = estimator.run_settings()  # now in the units of the targets
        return TabularPreparation(settings, table, subject, rules, problem, loop)

    def describe(self, prepared: TabularPreparation) -> dict[str, Any]:
        return {
            **describe_subject(prepared.subject, scores=prepared.settings.scores),
            "data_sha256": prepared.table.sha256,
            "rules_sha256": rules_digest(Path(str(prepared.settings.rules))),
        }

    def problem(self, prepared: TabularPreparation) -> TrainingTask:
        asked = prepared.settings
        words = (
            f"training {', '.join(asked.members)} members on {len(prepared.table)} rows under "
            f"{wording.format_count(len(prepared.rules), 'rule')}: up to "
            f"{wording.format_count(asked.iteration_limit, 'iteration')}"
        )
        return TrainingTask(prepared.problem, prepared.loop, words)

    def reopen(self, settings: TrainSettings, described: Mapping[str, Any] | None) -> TrainingTask:
        return self.problem(self.prepare(settings, described))

    def attach_journal(self, task: TrainingTask, run: Run | None) -> TrainingTask:
        return task

    def conclude(
        self,
        prepared: TabularPreparation,
        task: TrainingTask,
        solved: TrainingOutcome,
        run: Run | None,
    ) -> TrainingOutcome:
        proven = prove_afterwards(solved.result, task.problem.requirements, task.settings)
        return replace(solved, result=proven)

    def evaluate(
        self,
        prepared: TabularPreparation,
        task: TrainingTask,
        solved: TrainingOutcome,
        review: Review,
    ) -> Evaluation:
        result = solved.result
        summary = wording.summarise_result(result, prepared.rules)
        if review.begin_step("score beside a plain model's"):
            summary |= compute_held_out_scores(
                prepared.problem,
                result,
                classes=len(prepared.subject.outputs) if prepared.subject.classification else None,
                logits=prepared.subject.logits,
            )
        arrays = {}
        if review.begin_step("room of the rules"):
            arrays = figure_arrays(prepared.problem, result, prepared.rules)
        return Evaluation(summary, result.feasible, arrays)

    def restore(
        self, ensemble: Ensemble, description: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> TabularModel:
        model = TabularModel(description, settings, ensemble)
        features, outputs = len(model.subject.features), len(model.subject.outputs)
        if features != ensemble.input_size or not 0 < outputs <= ensemble.output_size:
            raise RunFolderError(
                f"the run names {features} features and {outputs} outputs, but its mixture has "
                f"{ensemble.input_size} and {ensemble.output_size}: restore it from a copy",
                code="altered",
            )
        return model

    def story(self, summary: Mapping[str, Any], saved: SavedRun | None = None) -> Story:
        return make_tabular_story(summary, saved)


def estimator_of(
    settings: TrainSettings, task: str, *, rows: int = 0
) -> ConstrainedClassifier | ConstrainedRegressor:
    """Of many rows, what was not asked for otherwise is trained as suits them: on batches."""
    members: Any = list(settings.members)
    parameters: dict[str, Any] = {
        "members": members[0] if len(members) == 1 else members,
        "effort": settings.effort,
        "hidden": settings.hidden,
        "activation": settings.activation,
        "objective": settings.objective,
        "restarts": settings.restarts,
        "steps": settings.steps,
        "learning_rate": settings.learning_rate,
        "batch_size": settings.batch_size,
        "iteration_limit": settings.iteration_limit,
        "single_model": settings.single_model,
        "settings": {
            **(settings.loop or {}),
            "column_limit": settings.column_limit,
            "final_weights": settings.final_weights,
        },
        "random_state": settings.seed,
        "device": settings.device,
    }
    usual = {one.name: one.default for one in fields(TrainSettings)}
    if settings.iteration_limit == usual["iteration_limit"]:
        parameters["iteration_limit"] = "auto"
    if rows > find_effort(settings.effort).many_rows:
        parameters |= {name: "auto" for name in TRAINED if parameters[name] == usual[name]}
    if task == CLASSIFICATION:
        limit = settings.output_limit
        return ConstrainedClassifier(scores=settings.scores, output_limit=limit, **parameters)
    if settings.quantiles:
        parameters |= {"loss": "pinball", "quantiles": settings.quantiles}
    return ConstrainedRegressor(**parameters)


def quantile_names(settings: TrainSettings, task: str) -> tuple[str, ...]:
    """What the outputs are called: the target with the share of rows that lie below."""
    if task != REGRESSION:
        raise InvalidInput(
            f"--quantiles are of numbers, but {settings.target!r} holds classes; leave them out, "
            "or set --task regression",
            code="conflict",
        )
    return tuple(f"{settings.target} {level:g}" for level in settings.quantiles)


APPLICATION = Tabular()
