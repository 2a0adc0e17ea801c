"""The rules file: JSON without surprises, each object of its list one rule, which is made here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from cg4ai.apps.csv_tables import format_list
from cg4ai.apps.protocol import Rule
from cg4ai.apps.tabular.rulefile.entry import Entry, Subject, kind_of, normalise_label
from cg4ai.apps.tabular.rulefile.everywhere import EVERYWHERE
from cg4ai.apps.tabular.rulefile.numbers import (
    bound_of,
    coefficients_of,
    output_numbers,
    square_of,
)
from cg4ai.apps.tabular.rulefile.places import RuleScope, parse_scope
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.records import IntArray
from cg4ai.rules import (
    DecisionRate,
    Difference,
    Linear,
    Margin,
    Probability,
    Quadratic,
    Rate,
    Requirement,
)
from cg4ai.rules.regions import Region
from cg4ai.runs.files import read_given


def read_rules(path: str | Path, subject: Subject) -> list[Rule]:
    """All rules of a file, in order; one that has two bounds gives two."""
    path = Path(path)
    content = parse_rules(path)
    if not isinstance(content, list):
        raise InvalidInput(
            f"{path} must hold a list of rules, [{{...}}, ...], got {kind_of(content)}", code="type"
        )
    rules: list[Rule] = []
    for number, entry in enumerate(content, start=1):
        rules += rules_of(Entry(path, number, entry, subject))
    return rules


def rule_files(path: str | Path) -> list[Path]:
    """The rules file and the row files it names: all that decides what the rules mean."""
    path = Path(path)
    content = parse_rules(path)
    entries = content if isinstance(content, list) else []
    places = [entry.get("rows") for entry in entries if isinstance(entry, dict)]
    names = sorted({rows for rows in places if isinstance(rows, str) and rows != "all"})
    return [path, *(path.parent / name for name in names)]


def parse_rules(path: Path) -> Any:
    """What the file holds, as JSON gives it."""
    try:
        text = read_given(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(
            f"cannot read the rules file {path}: {reason}", code="bad-file"
        ) from error
    try:
        return json.loads(text, object_pairs_hook=_no_doubles, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"{path}, line {error.lineno}, column {error.colno} is not valid JSON: {error.msg}",
            code="bad-file",
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not valid JSON: {error}", code="bad-file") from error


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    double = [name for name in names if names.count(name) > 1]
    if double:
        raise ValueError(f"the key {double[0]!r} stands twice in one object")
    return dict(pairs)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def rules_of(entry: Entry) -> list[Rule]:
    """The rules that one object of the file stands for."""
    make: dict[str, Callable[[Entry, RuleScope], list[Requirement]]] = {
        "probability": _probability,
        "margin": _margin,
        "linear": _linear,
        "quadratic": _quadratic,
        "rate": _rate,
        "decision_rate": _decision_rate,
    }
    try:
        if entry.kind in EVERYWHERE:
            return [Rule(EVERYWHERE[entry.kind](entry), entry.subject.outputs)]
        place = parse_scope(entry)
        if entry.kind == "difference":
            return [_difference(entry, place)]
        return [
            Rule(requirement, entry.subject.outputs, place.table, place.rows)
            for requirement in make[entry.kind](entry, place)
        ]
    except InvalidInput as error:
        start = f"{entry.path}, rule {entry.rule_number}"
        if str(error).startswith(start):
            raise
        raise InvalidInput(f"{start} ({entry.kind}): {error}", code=error.code) from error


def _probability(entry: Entry, place: RuleScope) -> list[Requirement]:
    least = entry.number("at_least")
    return [Probability(place.inputs, _labels(entry, place), least, name=entry.name)]


def _margin(entry: Entry, place: RuleScope) -> list[Requirement]:
    least, form = entry.number("at_least"), entry.text("form", default="pairwise")
    labels, separator = _labels(entry, place), _separator(entry, place)
    return [Margin(place.inputs, labels, least, form=form, name=entry.name, separator=separator)]


def _linear(entry: Entry, place: RuleScope) -> list[Requirement]:
    senses = {"at_least": ">=", "at_most": "<=", "equal": "=="}
    given = [key for key in senses if key in entry.content]
    if not given or ("equal" in given and len(given) > 1):
        entry.refuse(None, "needs at_least, at_most, both of these, or equal")
    coefficients, separator = coefficients_of(entry), _separator(entry, place)
    return [
        Linear(
            place.inputs,
            coefficients,
            bound_of(entry, key),
            senses[key],
            name=entry.name if len(given) == 1 else f"{entry.name}, {key.replace('_', ' ')}",
            separator=separator,
        )
        for key in given
    ]


def _separator(entry: Entry, place: RuleScope) -> Literal["mip"] | None:
    """Whether violated inputs of a region are searched for exactly."""
    if "separator" not in entry.content:
        return None
    entry.choice("separator", ("mip",))
    if not isinstance(place.inputs, Region):
        entry.refuse("separator", "searches a box or ball, but the rule lists rows; leave it out")
    return "mip"


def _quadratic(entry: Entry, place: RuleScope) -> list[Requirement]:
    linear = output_numbers(entry, "linear", entry.content.get("linear", {}))
    most = entry.number("at_most")
    return [Quadratic(place.inputs, square_of(entry), most, linear, name=entry.name)]


def _difference(entry: Entry, place: RuleScope) -> Rule:
    """Pairs are numbers of rows of the table; only those that are named are listed."""
    assert place.rows is not None
    given, known = entry.content.get("pairs"), place.rows.tolist()
    if not isinstance(given, list) or not given:
        entry.refuse("pairs", f"must be a list of pairs of rows, [[0, 7]], got {json.dumps(given)}")
    for pair in given:
        whole = isinstance(pair, list) and len(pair) == 2 and all(type(one) is int for one in pair)
        if not whole or not set(pair) <= set(known):
            entry.refuse(
                "pairs",
                f"has the entry {json.dumps(pair)}; give two of the {len(known)} rows, "
                f"{known[0]} to {known[-1]}, the one that scores less first",
            )
    used, pairs = np.unique(np.array(given), return_inverse=True)
    rule = Difference(
        np.asarray(place.inputs)[[known.index(row) for row in used]],
        pairs.reshape(-1, 2),
        entry.number("at_least") if "at_least" in entry.content else 0.0,
        output=_output(entry),
        name=entry.name,
    )
    return Rule(rule, entry.subject.outputs, place.table, used)


def _rate(entry: Entry, place: RuleScope) -> list[Requirement]:
    given = _grouped(entry, place, ("mean_at_least", "mean_at_most"))
    return [Rate(place.inputs, output=_output(entry), name=entry.name, **given)]


def _decision_rate(entry: Entry, place: RuleScope) -> list[Requirement]:
    if not entry.subject.classification:
        entry.refuse("rule", "is about decisions, but the task is regression; use rate")
    assert place.rows is not None
    of = entry.text("of", default="selection")
    labels = None
    if place.table is not None and entry.subject.target in place.table.names:
        labels = _classes_of(entry, place, entry.subject.target)
    given = _grouped(entry, place, ("at_least", "at_most"))
    output = _output(entry)
    return [
        DecisionRate(place.inputs, output=output, of=of, labels=labels, name=entry.name, **given)
    ]


def _grouped(entry: Entry, place: RuleScope, ends: tuple[str, str]) -> dict[str, Any]:
    """What the rules for groups share; numbers that are not given are left out."""
    groups: list[str] | None = None
    if "group_column" in entry.content:
        column = _column(entry, place, "group_column")
        groups = [normalise_label(text) for text in column]
    between = entry.content.get("between")
    if between is not None:
        if not isinstance(between, list) or len(between) != 2:
            entry.refuse("between", f"must name two groups, [a, b], got {between!r}")
        between = (normalise_label(between[0]), normalise_label(between[1]))
    numbers = [key for key in ("tolerance", *ends) if key in entry.content]
    if entry.content.get("margin", "auto") != "auto":
        numbers.append("margin")
    return {
        "groups": None if groups is None else np.array(groups),
        "between": between,
        **({"margin": "auto"} if entry.content.get("margin") == "auto" else {}),
        **{key: entry.number(key) for key in numbers},
    }


def _labels(entry: Entry, place: RuleScope) -> IntArray | int:
    """One class for all inputs, or the class of each from a column (the target if unsaid)."""
    subject = entry.subject
    if not subject.classification:
        entry.refuse("rule", "speaks of classes, but the task is regression; use linear")
    given = entry.content.get("label")
    if given is not None and normalise_label(given) in subject.outputs:
        one = subject.outputs.index(normalise_label(given))
        return one if place.rows is None else np.full(len(place.rows), one)
    if place.table is None:
        known = format_list(subject.outputs)
        hint = did_you_mean(str(given), subject.outputs)
        entry.refuse("label", f"must be a class ({known}), got {json.dumps(given)}{hint}")
    column = subject.target if given is None else given
    if not isinstance(column, str) or column not in place.table.names:
        hint = did_you_mean(str(column), (*subject.outputs, *place.table.names))
        entry.refuse(
            "label",
            f"must be a class ({format_list(subject.outputs)}) or a column of {place.table.path}, "
            f"got {json.dumps(column)}{hint}",
        )
    return _classes_of(entry, place, column)


def _classes_of(entry: Entry, place: RuleScope, column: str) -> IntArray:
    assert place.table is not None
    assert place.rows is not None
    texts = place.table.get_texts(column)
    numbers = {name: number for number, name in enumerate(entry.subject.outputs)}
    for row in place.rows:
        if normalise_label(texts[row]) not in numbers:
            entry.refuse(
                "label",
                f"takes column {column!r}, which holds {texts[row]!r} on line "
                f"{place.table.lines[row]} of {place.table.path}; the classes are "
                f"{format_list(entry.subject.outputs)}",
            )
    return np.array([numbers[normalise_label(texts[row])] for row in place.rows], np.int64)


def _output(entry: Entry) -> int:
    outputs = entry.subject.outputs
    given = entry.content.get("output")
    if given is None:
        if len(outputs) > 1:
            entry.refuse("output", f"is missing; say whose score: {format_list(outputs)}")
        return 0
    if normalise_label(given) not in outputs:
        hint = did_you_mean(str(given), outputs)
        entry.refuse(
            "output", f"must be one of {format_list(outputs)}, got {json.dumps(given)}{hint}"
        )
    return outputs.index(normalise_label(given))


def _column(entry: Entry, place: RuleScope, key: str) -> list[str]:
    assert place.table is not None
    assert place.rows is not None
    name = entry.text(key, default="")
    if name not in place.table.names:
        entry.refuse(
            key,
            f"must be a column of {place.table.path}, got {name!r}"
            f"{did_you_mean(name, place.table.names)}",
        )
    texts = place.table.get_texts(name)
    return [texts[row] for row in place.rows]
