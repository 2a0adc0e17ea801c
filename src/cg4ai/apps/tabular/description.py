"""A table's features and outputs as plain data and back, and a trained mixture for commands."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.apps.csv_tables import CsvTable, read_csv, read_data
from cg4ai.apps.protocol import (
    InputColumn,
    Interface,
    Proposition,
    Rule,
    Signature,
    TrainedDefaults,
)
from cg4ai.apps.tabular.encoding import Column, TableEncoding
from cg4ai.apps.tabular.rulefile import Subject, read_rules, rule_files
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.records import Array
from cg4ai.rules import Equality, Ordered, OutputRule, Shape
from cg4ai.rules.regions import Region
from cg4ai.runs import files

SCORES = ("probability", "logit", "score")  # what outputs of classes may be


def describe_subject(subject: Subject, *, scores: str) -> dict[str, Any]:
    """What `restore_subject` reads back."""
    return {
        "features": list(subject.features),
        "columns": None if subject.encoding is None else subject.encoding.to_record(),
        "outputs": list(subject.outputs),
        "lower": subject.lower.tolist(),
        "upper": subject.upper.tolist(),
        "target": subject.target,
        "task": "classification" if subject.classification else "regression",
        "scores": scores,
    }


def restore_subject(description: Mapping[str, Any], table: CsvTable | None = None) -> Subject:
    """For rules: ranges are those of the training data, rows those of `table`."""
    try:
        lower, upper = (
            files.finite_numbers(description[name], name) for name in ("lower", "upper")
        )
        features = tuple(map(str, description["features"]))
        encoding = TableEncoding.from_record(description.get("columns"))
        if encoding is not None and encoding.features != features:
            raise ValueError("its columns do not become its features")
        subject = Subject(
            features=features,
            encoding=encoding,
            outputs=tuple(map(str, description["outputs"])),
            lower=lower,
            upper=upper,
            target=str(description["target"]),
            classification=description["task"] == "classification",
            table=table,
            logits=description["scores"] == "logit",
        )
        if not lower.shape == upper.shape == (len(features),) or not (lower <= upper).all():
            raise ValueError("it has not one range for each feature")
        if description["scores"] not in SCORES:
            raise ValueError(f"scores are one of {', '.join(SCORES)}")
        written = describe_subject(subject, scores=description["scores"])
        if "columns" not in description:  # early runs, in which all were numbers
            del written["columns"]
        files.refuse_other(description, written, ())
        return subject
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise RunFolderError(
            f"the run does not say what its data are ({error}): name a folder that cg4ai train has "
            "written"
        ) from error


def _input(column: Column, within: Mapping[str, tuple[float, float]]) -> InputColumn:
    """A column as it is encoded, with the range of numbers."""
    if column.kind == "number":
        return replace(_number(column.name, *within[column.name]), may_be_empty=True)
    example = False if column.kind == "boolean" else column.values[0]
    return InputColumn(column.name, example, column.kind, values=column.values, may_be_empty=True)


def _number(name: str, least: float, most: float) -> InputColumn:
    middle = (least + most) / 2
    short = float(f"{middle:.3g}")
    return InputColumn(name, short if least <= short <= most else middle, least=least, most=most)


def rules_digest(path: Path) -> str:
    """Of a rules file and all row files it names."""
    digest = hashlib.sha256()
    for file in rule_files(path):
        digest.update(read_data(file))
    return digest.hexdigest()


def implied_rules(quantiles: Sequence[float], outputs: tuple[str, ...]) -> list[Rule]:
    """What holds without being asked for: several quantiles never cross."""
    return [Rule(Ordered(name="quantiles in order"), outputs)] if len(quantiles) > 1 else []


@dataclass(frozen=True)
class TabularModel(TrainedDefaults):
    """A trained mixture: columns of a table by name in, a prediction and scores out."""

    description: Mapping[str, Any]
    settings: Mapping[str, Any]
    ensemble: Ensemble | None = None

    @cached_property
    def subject(self) -> Subject:
        return restore_subject(self.description)

    def interface(self) -> Interface:
        subject = self.subject
        ranges = zip(subject.lower.tolist(), subject.upper.tolist(), strict=True)
        within = dict(zip(subject.features, ranges, strict=True))
        if subject.encoding is None:
            inputs = [_number(name, *within[name]) for name in subject.features]
        else:
            inputs = [_input(column, within) for column in subject.encoding.columns]
        scores = self.description.get("scores", "score")
        outputs = (subject.target, *(f"{scores} {name}" for name in subject.outputs))
        task = "the class" if subject.classification else "the value"
        return Interface(
            f"a model of {subject.target}: {task} from {len(inputs)} columns",
            tuple(inputs),
            outputs if subject.classification else subject.outputs,
            self._where(),
        )

    def _where(self) -> str:
        """Where the rules over regions are meant; empty if there are none."""
        names = [] if self.ensemble is None else list(self.ensemble.regions())
        return f"the region of {' and of '.join(names)}" if names else ""

    def inputs(self, table: CsvTable) -> Array:
        return self.subject.inputs(table)

    def outside(self, inputs: Array) -> NDArray[np.bool_]:
        """Rows beyond the training data that are outside the region of some rule as well.

        Within the training data a rule says nothing only where its author meant that; rules that
        hold at every input have no region.
        """
        if self.ensemble is None:
            return np.zeros(len(inputs), bool)
        subject = self.subject
        beyond = ((inputs < subject.lower) | (inputs > subject.upper)).any(axis=1)
        return np.asarray(beyond & self.ensemble.find_outside(inputs))

    def predictions(self, inputs: Array, outputs: Array, *, details: bool) -> list[dict[str, Any]]:
        """The prediction, and for classes the score of each."""
        subject, scores = self.subject, self.description.get("scores", "score")
        if not subject.classification:
            return [dict(zip(subject.outputs, map(float, line), strict=True)) for line in outputs]
        best = outputs[:, : len(subject.outputs)].argmax(1)
        if self.ensemble is not None and self.ensemble.votes:
            best = self.ensemble.decide(inputs, outside="ignore")
        return [
            {
                subject.target: subject.outputs[best[number]],
                **{
                    f"{scores} {name}": float(value)
                    for name, value in zip(subject.outputs, line, strict=False)
                },
            }
            for number, line in enumerate(outputs)
        ]

    @property
    def signature(self) -> Signature:
        subject, ends = self.subject, (self.subject.lower, self.subject.upper)
        names = list(subject.outputs)
        return Signature("inputs", list(subject.features), "outputs", names, *ends)

    def explorer(self, ensemble: Ensemble, folder: Path, summary: Mapping[str, Any]) -> str:
        from cg4ai.apps.tabular.explorer import make_explorer_page

        return make_explorer_page(self, ensemble, folder.name, summary)

    def rules(self, file: Path | None, table: CsvTable | None) -> list[Rule]:
        """Those of a file; else those that the mixture was trained under, on its data."""
        if file is not None:
            return read_rules(file, restore_subject(self.description, table))
        return [*self.list_implied_rules(), *self.read_added_rules(self._own_rules(), table)]

    def list_implied_rules(self) -> list[Rule]:
        """Rules of the run that stand in no file."""
        return implied_rules(self.settings.get("quantiles") or (), self.subject.outputs)

    def read_added_rules(self, file: Path, table: CsvTable | None) -> list[Rule]:
        """Those of a file about the rows of a table, or else of the training data."""
        data = Path(str(self.settings.get("data")))
        rows = table if table is not None else read_csv(data) if data.exists() else None
        return read_rules(file, restore_subject(self.description, rows))

    def training_table(self) -> CsvTable | None:
        """The data that it was trained on; None where they are not there as they were."""
        data = Path(str(self.settings.get("data")))
        if not data.is_file():
            return None
        digest = hashlib.sha256(read_data(data)).hexdigest()
        return read_csv(data) if digest == self.description.get("data_sha256") else None

    def files(self, file: Path) -> list[Path]:
        return rule_files(file)

    def get_own_rules(self, table: CsvTable) -> list[Rule]:
        return self._trained_under

    @cached_property
    def _trained_under(self) -> list[Rule]:
        """Read once: whoever explains many predictions asks for each of them."""
        return self.rules(None, None)

    def propositions(self) -> list[Proposition]:
        """The rules over regions, or at every input, that the mixture was trained under."""
        rules = self._own_rules()
        found = [
            rule.requirement
            for rule in self.rules(None, None)
            if isinstance(rule.requirement.region, Region)
            or isinstance(rule.requirement, Equality | OutputRule | Shape)
        ]
        if not found:
            raise InvalidInput(
                f"{rules} has no rule over a box or ball; rules at listed rows are audited, "
                "nothing is left to prove",
                code="empty",
            )
        names = list(self.subject.features)
        title = f"the mixture for {self.subject.target}"
        return [Proposition(requirement, title, None, names) for requirement in found]

    def _own_rules(self) -> Path:
        if self.settings.get("rules") is None:
            raise InvalidInput(
                "the rules of this run were given in Python and are not stored with it; audit or "
                "certify them in Python",
                code="unsupported",
            )
        rules = Path(str(self.settings["rules"]))
        if not rules.exists():
            raise InvalidInput(
                f"the run was trained with the rules file {rules}, which is not there; restore it",
                code="bad-file",
            )
        if rules_digest(rules) != self.description.get("rules_sha256"):
            raise InvalidInput(
                f"{rules} was changed since the run was trained; restore it, or use "
                "cg4ai.proofs.certification in Python for other rules",
                code="altered",
            )
        return rules
