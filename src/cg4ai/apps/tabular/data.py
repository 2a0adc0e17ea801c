"""The columns of a table as features and targets, and what kind of task they make."""

from __future__ import annotations

from typing import get_args

import numpy as np

from cg4ai.apps.csv_tables import CsvTable, as_number
from cg4ai.apps.tabular.rulefile import normalise_label
from cg4ai.apps.tabular.settings import Task, TrainSettings
from cg4ai.errors import InvalidInput, check_names
from cg4ai.records import Array, IntArray

MOST_CLASSES = 20  # whole numbers with at most this many distinct values are guessed to be classes
CLASSIFICATION, REGRESSION = get_args(Task)


def features_of(table: CsvTable, settings: TrainSettings) -> tuple[str, ...]:
    left_out = (settings.target, *settings.ignore)
    for name in left_out:
        table.find_column(name)
    features = tuple(name for name in table.names if name not in left_out)
    if not features:
        raise InvalidInput(
            f"{table.path} has no column left to predict from; ignore fewer", code="empty"
        )
    check_names([settings.target, *features], f"{table.path}, its header")
    return features


def task_of(table: CsvTable, settings: TrainSettings) -> str:
    """As told, or guessed from the target."""
    if settings.task is not None:
        return settings.task
    values = [as_number(text) for text in table.get_texts(settings.target)]
    if all(value is None for value in values):
        return str(CLASSIFICATION)
    whole = all(value is not None and value == int(value) for value in values)
    return str(CLASSIFICATION if whole and len(set(values)) <= MOST_CLASSES else REGRESSION)


def targets_of(table: CsvTable, target: str, task: str) -> tuple[Array | IntArray, tuple[str, ...]]:
    """What to learn, and the names of the outputs: classes, or the target itself."""
    if task == "regression":
        return table.get_numbers([target])[:, 0], (target,)
    labels = [normalise_label(text) for text in table.get_texts(target)]
    distinct = set(labels)
    check_names(sorted(distinct), f"{table.path}, column {target!r}")
    if len(distinct) < 2:
        raise InvalidInput(
            f"column {target!r} of {table.path} holds one class only, {labels[0]!r}; "
            "classification needs two or more"
        )
    numbers = {name: as_number(name) for name in distinct}
    if None in numbers.values():
        names = tuple(sorted(distinct))
    else:
        names = tuple(sorted(distinct, key=lambda name: float(name)))
    position = {name: number for number, name in enumerate(names)}
    return np.array([position[label] for label in labels], np.int64), names
