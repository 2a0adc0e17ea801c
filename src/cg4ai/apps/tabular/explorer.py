"""The page of a model of a table: a form for its columns, its prediction, and the rules there.

`pages/model.js` shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cg4ai.apps.explanations import TOLERANCE, ListedSlack, listed_slack
from cg4ai.apps.explorer import RULES, describe_page, listed_data, model_page
from cg4ai.apps.protocol import Rule
from cg4ai.apps.tabular.encoding import Column
from cg4ai.apps.tabular.rulefile import Subject
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.records import Array
from cg4ai.rules import Shape

if TYPE_CHECKING:
    from cg4ai.apps.tabular.description import TabularModel

MOST_LISTED = 2000  # inputs of a rule that travel with the page
MOST_EXAMPLES = 50


def make_explorer_page(
    model: TabularModel, ensemble: Ensemble, name: str, summary: Mapping[str, Any]
) -> str:
    """The page, as one HTML file; `name`: of the run."""
    subject = model.subject
    rules, missing = _rules(model)
    traced = [rule for rule in rules if rule.requirement.is_pointwise]
    entries = [_entry(audit, traced) for audit in summary.get("audits", ())]
    examples: list[dict[str, Any]] = []
    for one in entries:
        if one["at"] is not None:
            continue
        rule = next((rule for rule in rules if rule.requirement.name == one["name"]), None)
        known = None if rule is None else listed_slack(ensemble, rule.requirement)
        if rule is None or known is None or not 0 < len(known.inputs) <= MOST_LISTED:
            one["silent"] = _silence(rule, known)
            continue
        labels = [
            rule.format_source(number) or f"input {number}" for number in range(len(known.inputs))
        ]
        one["listed"] = listed_data(known, labels)
        examples += [
            {"label": f"{one['name']}: {label}", "cells": _cells(subject, inputs)}
            for label, inputs in zip(labels, known.inputs, strict=True)
        ]
    outputs = {
        "kind": "classes" if subject.classification else "values",
        "names": list(subject.outputs),
        "target": subject.target,
        "scores": model.description.get("scores", "score"),
    }
    return model_page(
        ensemble,
        [rule.requirement for rule in traced],
        {
            "title": f"{subject.target}, predicted under rules",
            "about": f"{len(subject.features)} features, {len(ensemble)} members in the mixture.",
            "foot": describe_page(name) + missing,
            "form": {"kind": "fields", "fields": list(_fields(model))},
            "features": list(subject.features),
            "ends": [subject.lower.tolist(), subject.upper.tolist()],
            "outputs": outputs,
            "rules": entries,
            "examples": examples[:MOST_EXAMPLES],
        },
    )


def _rules(model: TabularModel) -> tuple[list[Rule], str]:
    """The rules of the run; only those it implies, and why, where its file cannot be read."""
    try:
        return model.rules(None, None), ""
    except InvalidInput as error:
        return model.list_implied_rules(), f" Slack of rules is not shown: {error}."


def _entry(audit: Mapping[str, Any], traced: Sequence[Rule]) -> dict[str, Any]:
    """A rule as it was judged when the run ended, and which outputs of the program tell of it."""
    names = [rule.requirement.name for rule in traced]
    name = audit["requirement"]
    return {
        "name": name,
        "strength": audit["strength"] if audit["holds"] else "violated",
        "statement": audit["statement"],
        "tolerance": audit.get("tolerance", TOLERANCE),
        "at": RULES + 2 * names.index(name) if name in names else None,
    }


def _silence(rule: Rule | None, known: ListedSlack | None) -> str:
    """Why no slack of a rule is shown at any input."""
    if rule is None:
        return "The rule's file cannot be read, so no slack is shown."
    if isinstance(rule.requirement, Shape):
        return "The rule compares inputs, so it has no slack at one input."
    if known is None:
        return "The rule is about many inputs together, so it has no slack at one input."
    return f"The rule lists {len(known.inputs):,} inputs, too many to show their slack here."


def _columns(subject: Subject) -> list[Column]:
    if subject.encoding is not None:
        return list(subject.encoding.columns)
    middle = (subject.lower + subject.upper) / 2
    pairs = zip(subject.features, middle, strict=True)
    return [Column(name, "number", float(value)) for name, value in pairs]


def _fields(model: TabularModel) -> Iterator[dict[str, Any]]:
    subject, table, place = model.subject, model.training_table(), 0
    for column in _columns(subject):
        made: dict[str, Any] = {"name": column.name, "kind": column.kind, "usual": column.fill}
        if column.values:  # the most frequent one, where the data are there to say so
            cells = [] if table is None else [cell for cell in table.cells_of(column.name) if cell]
            ((made["usual"], _),) = Counter(cells or column.values).most_common(1)
        if column.kind == "number":
            made |= {"least": float(subject.lower[place]), "most": float(subject.upper[place])}
        yield made | {"values": list(column.values), "empty": column.empty}
        place += len(column.features)


def _cells(subject: Subject, inputs: Array) -> list[Any]:
    """What stands in each column of a table for these features; None: nothing."""
    cells: list[Any] = []
    place = 0
    for column in _columns(subject):
        own = inputs[place : place + len(column.features)]
        place += len(own)
        if column.empty and own[-1]:
            cells.append(None)
        elif column.values:
            cells.append(column.values[int(np.argmax(own[: len(column.values)]))])
        else:
            cells.append(float(own[0]))
    return cells
