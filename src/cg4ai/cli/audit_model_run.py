"""The work of `cg4ai audit-model`: names, region and rules of the command line, then the audit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cg4ai.apps.csv_tables import CsvTable, as_number, read_csv
from cg4ai.apps.tabular.rulefile import Subject
from cg4ai.apps.tabular.rulefile.entry import Entry, kind_of
from cg4ai.apps.tabular.rulefile.read import parse_rules, rules_of
from cg4ai.errors import InvalidInput
from cg4ai.fitted_models.audit import Rule, audit_model, find_ends
from cg4ai.fitted_models.findings import ModelAudit
from cg4ai.fitted_models.model import FittedModel
from cg4ai.fitted_models.reading import read_model
from cg4ai.fitted_models.stable import Stable
from cg4ai.records import Array
from cg4ai.rules import Box, Region

STABLE = ("rule", "name", "row", "radius", "tolerance")


@dataclass(frozen=True)
class Options:
    """What the command was told."""

    rules: Path
    data: Path | None = None
    region: str | None = None
    features: Sequence[str] | None = None
    outputs: Sequence[str] | None = None
    time_limit_s: float = 60.0
    tolerance: float = 1e-6


def run(path: Path, options: Options) -> ModelAudit:
    """Read model, data and rules, and judge."""
    table = None if options.data is None else read_csv(options.data)
    model = read_model(path, features=options.features, outputs=options.outputs)
    if options.features is None and table is not None:
        model = _name_by_table(model, table)
    rows = np.empty((0, model.input_size)) if table is None else _find_numbers(table, model)
    rules = read_model_rules(options.rules, model, rows, table)
    return audit_model(
        model,
        rules,
        _parse_region(options.region, model, rows),
        data=rows if len(rows) else None,
        time_limit_s=options.time_limit_s,
        tolerance=options.tolerance,
    )


def _name_by_table(model: FittedModel, table: CsvTable) -> FittedModel:
    """Columns have the names that the model knows, or as many as it has features name them."""
    if set(model.features) <= set(table.names):
        return model
    if len(table.names) == model.input_size:
        return read_model(model, features=table.names)
    missing = [name for name in model.features if name not in table.names]
    raise InvalidInput(
        f"{table.path} lacks the column {missing[0]!r} of the model; name its columns as the model "
        "does, or give the names in the model's order by --features",
        code="unknown-name",
    )


def _find_numbers(table: CsvTable, model: FittedModel) -> Array:
    """Rows (n, d) of numbers; those with an empty cell are left out."""
    whole = [[as_number(cell) for cell in table.cells_of(name)] for name in model.features]
    columns = [[np.nan if one is None else one for one in column] for column in whole]
    found = np.array(columns, np.float64).T.reshape(-1, model.input_size)
    return np.asarray(found[np.isfinite(found).all(axis=1)])


def read_model_rules(
    path: Path, model: FittedModel, rows: Array, table: CsvTable | None
) -> list[Rule]:
    """The rules of a file, by the names of the model."""
    lower, upper = find_ends(model, rows)
    subject = Subject(
        features=model.features,
        outputs=model.outputs,
        lower=lower,
        upper=upper,
        target="",
        classification=model.classes,
        table=table,
    )
    content = parse_rules(path)
    if not isinstance(content, list):
        raise InvalidInput(
            f"{path} must hold a list of rules, [{{...}}, ...], got {kind_of(content)}", code="type"
        )
    rules: list[Rule] = []
    for number, one in enumerate(content, start=1):
        if isinstance(one, dict) and one.get("rule") == "stable":
            rules.append(_read_stable(path, number, one, model, rows))
        else:
            entry = Entry(path, number, one, subject)
            rules += [rule.requirement for rule in rules_of(entry)]
    return rules


def _read_stable(
    path: Path, number: int, content: dict[str, Any], model: FittedModel, rows: Array
) -> Stable:
    where = f"{path}, rule {number} (stable)"
    for key in content:
        if key not in STABLE:
            raise InvalidInput(
                f"{where}, key {key!r} is unknown; use {', '.join(STABLE)}", code="unknown-name"
            )
    row, radius = content.get("row"), content.get("radius")
    if isinstance(row, int) and not isinstance(row, bool):
        if not len(rows):
            raise InvalidInput(
                f"{where}, key 'row' is the number of a row of the data, but there are none; give "
                "--data, or the row itself by the names of its features",
                code="empty",
            )
        if not 0 <= row < len(rows):
            raise InvalidInput(
                f"{where}, key 'row' must be one of the {len(rows)} rows of the data, from 0, got "
                f"{row}",
                code="range",
            )
        point = rows[row]
    else:
        point = _by_name(where, "row", row, model, rest=None)
    if isinstance(radius, dict):
        radius = _by_name(where, "radius", radius, model, rest=0.0)
    elif isinstance(radius, bool) or not isinstance(radius, int | float):
        raise InvalidInput(
            f"{where}, key 'radius' must be a number or {{feature: number}}, got "
            f"{json.dumps(radius)}",
            code="type",
        )
    tolerance = content.get("tolerance")
    if tolerance is not None and (isinstance(tolerance, bool) or not _is_number(tolerance)):
        raise InvalidInput(f"{where}, key 'tolerance' must be a number", code="type")
    name = str(content.get("name", f"rule {number} (stable)"))
    return Stable(point, radius, tolerance, name=name)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _by_name(where: str, key: str, value: Any, model: FittedModel, *, rest: float | None) -> Array:
    if not isinstance(value, dict) or not all(map(_is_number, value.values())):
        raise InvalidInput(
            f"{where}, key {key!r} must be {{feature: number}}, got {json.dumps(value)}",
            code="type",
        )
    unknown = [name for name in value if name not in model.features]
    if unknown:
        raise InvalidInput(
            f"{where}, key {key!r} names the feature {unknown[0]!r}, which the model lacks",
            code="unknown-name",
        )
    missing = [name for name in model.features if name not in value]
    if missing and rest is None:
        raise InvalidInput(
            f"{where}, key {key!r} lacks the feature {missing[0]!r}", code="missing-argument"
        )
    return np.array([float(value.get(name, rest or 0.0)) for name in model.features])


def _parse_region(text: str | None, model: FittedModel, rows: Array) -> Region | None:
    """`data`, or ends by name; features that are left out have the range of the data."""
    if text is None:
        return None
    if text == "data":
        if not len(rows):
            raise InvalidInput(
                "--region data is the range of the data; add --data", code="missing-argument"
            )
        return Box(*find_ends(model, rows))
    ends: dict[str, tuple[float, float]] = {}
    for part in text.split(","):
        name, _, both = part.strip().partition("=")
        low, _, high = both.partition(":")
        one, other = as_number(low), as_number(high)
        if one is None or other is None:
            raise InvalidInput(
                f"--region takes NAME=LOW:HIGH,... or data, got {part.strip()!r}", code="type"
            )
        ends[name.strip()] = (one, other)
    return Box(ends)
