"""Rules from JSON: what each form means, and that each fault is named with its rule and key."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cg4ai.apps.csv_tables import read_csv
from cg4ai.apps.tabular.encoding import TableEncoding
from cg4ai.apps.tabular.rulefile import Subject, normalise_label, read_rules, rule_files
from cg4ai.errors import InvalidInput
from cg4ai.rules import DecisionRate, Difference, Equality, Linear, Margin, Probability, Rate
from cg4ai.rules.regions import Ball, Box, Polytope, Pool
from raising import raises

DATA = """a,b,sex,kind
0,10,f,no
1,20,m,yes
2,30,f,yes
3,40,m,no
"""


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    (tmp_path / "data.csv").write_text(DATA)
    return Subject(
        features=("a", "b"),
        outputs=("no", "yes"),
        lower=np.array([0.0, 10.0]),
        upper=np.array([3.0, 40.0]),
        target="kind",
        classification=True,
        table=read_csv(tmp_path / "data.csv"),
    )


@pytest.fixture
def regression(tmp_path: Path, subject: Subject) -> Subject:
    return Subject(
        features=("a",),
        outputs=("b",),
        lower=np.array([0.0]),
        upper=np.array([3.0]),
        target="b",
        classification=False,
        table=subject.table,
    )


def rules_of(tmp_path: Path, subject: Subject, *rules: Any) -> list[Any]:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(list(rules)))
    return [rule.requirement for rule in read_rules(path, subject)]


def test_probability_takes_the_target_column_by_default(tmp_path: Path, subject: Subject) -> None:
    (rule,) = rules_of(
        tmp_path, subject, {"rule": "probability", "rows": [1, 3], "at_least": 0.6, "name": "two"}
    )
    assert isinstance(rule, Probability)
    np.testing.assert_array_equal(rule.points, [[1, 20], [3, 40]])
    np.testing.assert_array_equal(rule.labels, [1, 0])
    np.testing.assert_array_equal(rule.at_least, [0.6, 0.6])
    assert rule.name == "two"


def test_exact_separation_is_asked_for_over_regions(tmp_path: Path, subject: Subject) -> None:
    linear = {"rule": "linear", "coefficients": {"yes": 1}, "at_most": 1, "separator": "mip"}
    margin = {"rule": "margin", "label": "yes", "at_least": 0.1, "box": {}}
    exact, usual = rules_of(tmp_path, subject, {**linear, "box": {}}, margin)
    assert exact.separator == "mip"
    assert usual.separator is None
    with raises(InvalidInput, "invalid-input", "searches"):
        rules_of(tmp_path, subject, {**linear, "rows": [0]})
    with raises(InvalidInput, "invalid-input", "separator", "milp"):
        rules_of(tmp_path, subject, {**linear, "box": {}, "separator": "milp"})


def test_rows_by_value_all_and_from_another_file(tmp_path: Path, subject: Subject) -> None:
    (tmp_path / "more.csv").write_text("truth,b,a\nyes,7,8\nno,9,6\n")
    matched, everything, other = rules_of(
        tmp_path,
        subject,
        {"rule": "margin", "rows": {"kind": "yes", "a": 2}, "at_least": 0.1},
        {"rule": "margin", "rows": "all", "label": "no", "at_least": 0.1, "form": "pairwise"},
        {"rule": "margin", "rows": "more.csv", "label": "truth", "at_least": 0.1},
    )
    assert isinstance(matched, Margin)
    np.testing.assert_array_equal(matched.points, [[2, 30]])
    np.testing.assert_array_equal(everything.labels, [0, 0, 0, 0])
    assert everything.form == "pairwise"
    # columns of the other file are matched by name, not by place
    np.testing.assert_array_equal(other.points, [[8, 7], [6, 9]])
    np.testing.assert_array_equal(other.labels, [1, 0])
    assert rule_files(tmp_path / "rules.json") == [tmp_path / "rules.json", tmp_path / "more.csv"]


def test_boxes_take_the_range_of_the_data_where_nothing_is_said(
    tmp_path: Path, subject: Subject
) -> None:
    (rule,) = rules_of(
        tmp_path,
        subject,
        {
            "rule": "linear",
            "box": {"lower": {"b": 15}, "upper": {"a": 1.5}},
            "coefficients": {"yes": 2, "no": -1},
            "at_most": 0.4,
        },
    )
    assert isinstance(rule, Linear)
    assert isinstance(rule.region, Box)
    np.testing.assert_array_equal(rule.region.lower, [0, 15])
    np.testing.assert_array_equal(rule.region.upper, [1.5, 40])
    np.testing.assert_array_equal(rule.coefficients, [[-1, 2]])
    assert rule.sense == "<="


def test_a_box_with_limits_is_a_polytope(tmp_path: Path, subject: Subject) -> None:
    limits = [
        {"sum": {"a": 10, "b": 1}, "at_most": 50},
        {"sum": {"b": 1}, "at_least": 15, "at_most": 35},
    ]
    rule = {"rule": "probability", "label": "yes", "at_least": 0.6, "box": {"limits": limits}}
    (found,) = rules_of(tmp_path, subject, rule)
    assert isinstance(found.region, Polytope)
    assert found.region.matrix.tolist() == [[10.0, 1.0], [0.0, -1.0], [0.0, 1.0]]
    assert found.region.limit.tolist() == [50.0, -15.0, 35.0]
    assert found.region.box.upper.tolist() == [3.0, 40.0]


@pytest.mark.parametrize(
    ("limits", "fact"),
    [
        ([], "limits"),
        ([{"sum": {"a": 1}}], "at_least"),
        ([{"sum": {"c": 1}, "at_most": 1}], "'c'"),
        ([{"sum": {"a": 1}, "at_most": "x"}], "x"),
        ([{"sum": {"a": 1}, "at_most": -1}], "limits 0"),
    ],
)
def test_faulty_limits(tmp_path: Path, subject: Subject, limits: Any, fact: str) -> None:
    rule = {"rule": "probability", "label": "yes", "at_least": 0.6, "box": {"limits": limits}}
    with raises(InvalidInput, "invalid-input", fact):
        rules_of(tmp_path, subject, rule)


def test_balls_around_a_row_or_a_point(tmp_path: Path, subject: Subject) -> None:
    place = {"rule": "probability", "label": "yes", "at_least": 0.5}
    around_row, around_point = rules_of(
        tmp_path,
        subject,
        place | {"ball": {"centre": 2, "radius": 0.5}},
        place | {"ball": {"centre": {"b": 1, "a": 2}, "radius": 1, "norm": "max"}},
    )
    assert isinstance(around_row.region, Ball)
    np.testing.assert_array_equal(around_row.region.centre, [2, 30])
    assert around_row.region.norm == 2
    np.testing.assert_array_equal(around_point.region.centre, [2, 1])
    assert around_point.region.norm == math.inf
    assert around_point.labels.tolist() == [1]


def test_linear_rules_of_a_regression(tmp_path: Path, regression: Subject) -> None:
    low, high, same = rules_of(
        tmp_path,
        regression,
        {"rule": "linear", "rows": "all", "at_least": 1, "at_most": 9, "name": "range"},
        {"rule": "linear", "rows": [0], "coefficients": {"b": 2}, "equal": 3},
    )
    assert [low.sense, high.sense, same.sense] == [">=", "<=", "=="]
    assert [low.name, high.name] == ["range, at least", "range, at most"]
    assert same.coefficients.tolist() == [2.0]


def test_numbers_that_depend_on_the_features(tmp_path: Path, subject: Subject) -> None:
    """`subject` has features a, b and outputs no, yes."""
    low, high, listed, curved = rules_of(
        tmp_path,
        subject,
        {
            "rule": "linear",
            "box": {},
            "coefficients": {"yes": {"offset": 2, "slope": {"b": 0.5}}, "no": 1},
            "at_least": {"smallest": [0.25, {"slope": {"a": 3}}]},
            "at_most": {"offset": 1, "slope": {"a": 0.5}},
        },
        {
            "rule": "linear",
            "rows": [0, 2],
            "coefficients": {"yes": 1},
            "equal": {"offset": 0.1, "slope": {"a": 0.2}},
        },
        {
            "rule": "quadratic",
            "box": {},
            "square": {"yes": {"yes": 2, "no": 1}, "no": {"no": 1}},
            "linear": {"no": -1},
            "at_most": 0.5,
        },
    )
    x, y = np.array([[2.0, 4.0]]), np.array([[0.3, 0.7]])
    value = 0.3 + (2 + 0.5 * 4) * 0.7
    point = torch.as_tensor(x), torch.as_tensor(y)
    for rule in (low, high, curved):
        rule.check(2, 2)
    assert low.violations(*point).item() == pytest.approx(min(0.25, 3 * 2) - value)
    assert high.violations(*point).item() == pytest.approx(value - (1 + 0.5 * 2))
    np.testing.assert_allclose(listed.bound, 0.1 + 0.2 * listed.points[:, 0])
    quadratic = 2 * 0.7**2 + 0.7 * 0.3 + 0.3**2 - 0.3
    assert curved.violations(*point).item() == pytest.approx(quadratic - 0.5)


def test_rates_group_by_a_text_column(tmp_path: Path, subject: Subject) -> None:
    (rule,) = rules_of(
        tmp_path,
        subject,
        {"rule": "rate", "group_column": "sex", "output": "yes", "tolerance": 0.02},
    )
    assert isinstance(rule, Rate)
    rule.check(2, 2)
    outputs = np.array([[0.9, 0.1], [0.5, 0.5], [0.7, 0.3], [0.6, 0.4]])
    rows = rule.rows(0)
    values = rows.mixing @ outputs[:, 1]
    gap = (0.1 + 0.3) / 2 - (0.5 + 0.4) / 2
    np.testing.assert_allclose(sorted(values), sorted([gap, -gap]))
    np.testing.assert_allclose(rows.bounds, [-0.02, -0.02])


def test_decision_rates_take_labels_from_the_target_column(
    tmp_path: Path, subject: Subject
) -> None:
    shared = {"rule": "decision_rate", "output": "yes"}
    odds, bounded = rules_of(
        tmp_path,
        subject,
        {**shared, "rows": "all", "of": "true positive", "at_least": 0.2},
        {**shared, "group_column": "sex", "at_most": 0.5, "margin": 0.1},
    )
    assert isinstance(odds, DecisionRate)
    assert odds.labels is not None
    positive = odds.labels == 1
    assert odds.output == 1
    odds.check(2, 2)
    np.testing.assert_allclose(odds.rows(0).mixing, [positive / positive.sum()])
    assert isinstance(bounded, DecisionRate)
    assert (bounded.at_most, bounded.margin) == (0.5, 0.1)


def test_inputs_are_traced_to_lines_of_their_file(tmp_path: Path, subject: Subject) -> None:
    path = tmp_path / "rules.json"
    path.write_text(
        json.dumps(
            [
                {"rule": "probability", "rows": [3, 1], "at_least": 0.6},
                {"rule": "probability", "box": {}, "label": "yes", "at_least": 0.6},
            ]
        )
    )
    listed, region = read_rules(path, subject)
    assert [listed.format_source(0), listed.format_source(1)] == [
        "data.csv, line 5",
        "data.csv, line 3",
    ]
    assert region.format_source(-1) == ""


def test_long_lists_become_pools(tmp_path: Path, subject: Subject) -> None:
    lines = "\n".join(f"{i},1,yes" for i in range(2001))
    (tmp_path / "long.csv").write_text("a,b,kind\n" + lines)
    pool, rate = rules_of(
        tmp_path,
        subject,
        {"rule": "probability", "rows": "long.csv", "at_least": 0.5},
        {"rule": "rate", "rows": "long.csv", "output": "yes", "mean_at_most": 0.5},
    )
    assert isinstance(pool.inputs, Pool)
    assert pool.region is not None
    assert rate.region is None


@pytest.mark.parametrize(
    ("label", "expected"), [(1, "1"), ("1.0", "1"), (" 2 ", "2"), ("1.5", "1.5"), ("yes", "yes")]
)
def test_classes_have_one_spelling(label: object, expected: str) -> None:
    assert normalise_label(label) == expected


GOOD = {"rule": "probability", "rows": "all", "at_least": 0.6}
LINEAR: dict[str, Any] = {"rule": "linear", "box": {}, "coefficients": {"yes": 1}}
QUADRATIC: dict[str, Any] = {
    "rule": "quadratic",
    "box": {},
    "square": {"yes": {"yes": 1}},
    "at_most": 1,
}


@pytest.mark.parametrize(
    ("rule", "parts"),
    [
        (3, ["rule 1", "object", "a number"]),
        ({}, ["rule 1", "'rule'", "nothing"]),
        ({"rule": "probabilty"}, ["'rule'", "did you mean 'probability'"]),
        (GOOD | {"at_lest": 1}, ["(probability)", "'at_lest'", "did you mean 'at_least'"]),
        ({"rule": "probability", "at_least": 0.6}, ["rows, box, ball", "none of them"]),
        (GOOD | {"box": {}}, ["rows and box"]),
        ({"rule": "probability", "rows": "all"}, ["'at_least'", "got nothing"]),
        (GOOD | {"at_least": "high"}, ["'at_least'", '"high"']),
        (GOOD | {"at_least": True}, ["'at_least'", "true"]),
        (GOOD | {"at_least": 1.5}, ["rule 1 (probability)", "(0, 1]", "1.5"]),
        (GOOD | {"rows": [4]}, ["'rows'", "4", "0 to 3"]),
        (GOOD | {"rows": [-1]}, ["'rows'", "-1"]),
        (GOOD | {"rows": [1.5]}, ["'rows'", "1.5"]),
        (GOOD | {"rows": []}, ["'rows'", "[]"]),
        (GOOD | {"rows": {"kind": "maybe"}}, ["'rows'", "matches no row"]),
        (GOOD | {"rows": {"knd": "yes"}}, ["rule 1", "'knd'", "did you mean 'kind'"]),
        (GOOD | {"rows": "none.csv"}, ["rule 1", "none.csv", "No such file"]),
        (GOOD | {"label": "yess"}, ["'label'", "did you mean 'yes'"]),
        (GOOD | {"label": "sex"}, ["'label'", "'sex'", "'f'", "line 2", "no, yes"]),
        (GOOD | {"name": 3}, ["'name'", "text"]),
        ({"rule": "margin", "box": {}, "at_least": 1}, ["'label'", "no, yes"]),
        ({"rule": "margin", "rows": "all", "at_least": 1, "form": "pair"}, ["form", "pairwise"]),
        ({"rule": "linear", "rows": "all", "at_least": 1}, ["'coefficients'", "missing"]),
        (
            {"rule": "linear", "rows": "all", "coefficients": {"yes": 1}},
            ["at_least, at_most"],
        ),
        (
            {"rule": "linear", "rows": "all", "coefficients": {"yes": 1}, "equal": 1, "at_most": 2},
            ["at_least, at_most"],
        ),
        (
            {"rule": "linear", "rows": "all", "coefficients": {"yse": 1}, "equal": 1},
            ["'coefficients'", "did you mean 'yes'"],
        ),
        (
            {"rule": "linear", "rows": "all", "coefficients": {"yes": "x"}, "equal": 1},
            ["'coefficients'", '"x"'],
        ),
        (LINEAR | {"at_most": {"slop": {}}}, ["'at_most'", "did you mean 'slope'"]),
        (LINEAR | {"at_most": {"slope": {"c": 1}}}, ["'at_most'", "'c'"]),
        (LINEAR | {"at_most": {"slope": 3}}, ["'at_most'", "{feature: number}"]),
        (LINEAR | {"at_most": {"offset": "x"}}, ["'at_most'", '"x"']),
        (LINEAR | {"at_most": {"largest": []}}, ["'at_most'", "list of bounds"]),
        (LINEAR | {"at_most": {"largest": [1], "offset": 1}}, ["'at_most'", "'offset'"]),
        (LINEAR | {"at_least": {"largest": [1]}}, ["'at_least'", "'largest'", "smallest"]),
        (LINEAR | {"equal": {"largest": [1]}}, ["'equal'", "offset, slope"]),
        (
            LINEAR | {"at_most": 1, "coefficients": {"yes": {"slope": {"c": 1}}}},
            ["'coefficients'", "'c'"],
        ),
        (
            LINEAR | {"at_most": 1, "coefficients": {"yse": {"slope": {"a": 1}}}},
            ["'coefficients'", "did you mean 'yes'"],
        ),
        (QUADRATIC | {"square": 3}, ["'square'", "{output: {output: number}}"]),
        (QUADRATIC | {"square": {"yse": {"yes": 1}}}, ["'square'", "did you mean 'yes'"]),
        (QUADRATIC | {"square": {"yes": 1}}, ["'square'", "{output: number} for 'yes'"]),
        (QUADRATIC | {"square": {"yes": {"yes": -1}}}, ["rule 1 (quadratic)", "not convex"]),
        (QUADRATIC | {"linear": 1}, ["'linear'", "{output: number}"]),
        (QUADRATIC | {"at_most": "x"}, ["'at_most'", "number"]),
        (QUADRATIC | {"at_least": 1}, ["'at_least'", "did you mean"]),
        (
            {"rule": "margin", "box": {"lower": {"c": 1}}, "label": "no", "at_least": 1},
            ["'box'", "'c'", "a, b"],
        ),
        (
            {"rule": "margin", "box": {"low": {"a": 1}}, "label": "no", "at_least": 1},
            ["'box'", "'low'", "did you mean 'lower'"],
        ),
        (
            {"rule": "margin", "box": {"lower": {"a": 5}}, "label": "no", "at_least": 1},
            ["'box'", "'a'", "lower 5 > upper 3"],
        ),
        ({"rule": "margin", "box": 3, "label": "no", "at_least": 1}, ["'box'", "lower, upper"]),
        (
            {"rule": "margin", "ball": {"centre": {"a": 1}, "radius": 1}, "at_least": 1},
            ["'ball'", "lacks b"],
        ),
        (
            {"rule": "margin", "ball": {"centre": 0}, "label": "no", "at_least": 1},
            ["'ball'", "radius"],
        ),
        (
            {"rule": "margin", "ball": {"centre": 0, "radius": 0}, "label": "no", "at_least": 1},
            ["rule 1", "radius"],
        ),
        (
            {"rule": "margin", "ball": {"centre": 0, "radius": 1, "norm": 1}, "at_least": 1},
            ["'ball'", "norm"],
        ),
        ({"rule": "rate", "group_column": "sex", "tolerance": 0.1}, ["'output'", "missing"]),
        (
            {"rule": "rate", "group_column": "sx", "output": "yes", "tolerance": 0.1},
            ["'group_column'", "did you mean 'sex'"],
        ),
        (
            {"rule": "rate", "output": "ye", "mean_at_most": 0.1},
            ["'output'", "did you mean 'yes'"],
        ),
        ({"rule": "rate", "output": "yes"}, ["rule 1 (rate)", "asks for nothing"]),
        (
            {"rule": "rate", "output": "yes", "tolerance": 0.1, "between": ["f"]},
            ["'between'", "two groups"],
        ),
    ],
)
def test_faults_name_rule_and_key(
    tmp_path: Path, subject: Subject, rule: Any, parts: list[str]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        rules_of(tmp_path, subject, rule)
    message = str(caught.value)
    assert str(tmp_path / "rules.json") in message
    assert all(part in message for part in parts), message


def test_the_number_of_the_faulty_rule_is_named(tmp_path: Path, subject: Subject) -> None:
    with raises(InvalidInput, "invalid-input", "rule 2"):
        rules_of(tmp_path, subject, GOOD, {"rule": "nothing"})


@pytest.mark.parametrize("name", ["rules.json", "affine.json", "quadratic.json"])
def test_the_examples_of_the_documentation_are_rules(tmp_path: Path, name: str) -> None:
    text = (Path(__file__).parents[4] / "docs" / "rules.md").read_text()
    for file in ("patients.csv", name):
        found = re.search(rf"<!-- example: {file} -->\n```\w+\n(.*?)```", text, re.DOTALL)
        assert found is not None
        (tmp_path / file).write_text(found[1])
    table = read_csv(tmp_path / "patients.csv")
    features, outputs = ("size", "density"), ("benign", "malignant")
    low, high = np.zeros(2), np.full(2, 4.0)
    patients = Subject(features, outputs, low, high, "diagnosis", True, table)
    rules = [rule.requirement for rule in read_rules(tmp_path / name, patients)]
    for rule in rules:
        rule.check(2, 2)
    assert len(rules) >= 1


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{}", "type"),
        ("[{]", "bad-file"),
        ('[{"rule": "rate", "rule": "rate"}]', "bad-file"),
        ('[{"rule": "linear", "at_least": NaN}]', "bad-file"),
    ],
)
def test_faulty_files_are_refused(tmp_path: Path, subject: Subject, text: str, code: str) -> None:
    path = tmp_path / "rules.json"
    path.write_text(text)
    with raises(InvalidInput, code):
        read_rules(path, subject)


def test_a_missing_file_is_named(tmp_path: Path, subject: Subject) -> None:
    with raises(InvalidInput, "bad-file", "absent.json"):
        read_rules(tmp_path / "absent.json", subject)


def test_class_rules_are_refused_for_regression(tmp_path: Path, regression: Subject) -> None:
    with raises(InvalidInput, "invalid-input", "regression"):
        rules_of(tmp_path, regression, GOOD)


def test_rows_need_data(tmp_path: Path, subject: Subject) -> None:
    from dataclasses import replace

    with raises(InvalidInput, "invalid-input", "--data"):
        rules_of(tmp_path, replace(subject, table=None), GOOD)


def test_rules_on_outputs_name_outputs_and_no_place(tmp_path: Path, subject: Subject) -> None:
    quantiles = replace(subject, outputs=("price 0.1", "price 0.9"), classification=False)
    low, ordered, total = rules_of(
        tmp_path,
        quantiles,
        {"rule": "range", "at_least": 0},
        {"rule": "ordered", "outputs": ["price 0.1", "price 0.9"]},
        {"rule": "sum_to", "total": 1, "at_least": None},
    )
    assert (low.low.tolist(), low.high.tolist()) == ([0.0], [np.inf])
    assert ordered.outputs == (0, 1)
    assert (total.total, total.low) == (1.0, -np.inf)


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ({"rule": "range"}, "invalid-input"),
        ({"rule": "range", "at_least": 2, "at_most": 1}, "range"),
        ({"rule": "ordered", "outputs": "benign"}, "invalid-input"),
        ({"rule": "ordered", "outputs": ["yess"]}, "invalid-input"),
        ({"rule": "sum_to"}, "invalid-input"),
        ({"rule": "sum_to", "total": 1, "rows": "all"}, "invalid-input"),
    ],
)
def test_faulty_rules_on_outputs(
    tmp_path: Path, subject: Subject, rule: dict[str, Any], code: str
) -> None:
    with raises(InvalidInput, code):
        rules_of(tmp_path, subject, rule)


def test_shapes_name_features_and_no_place(tmp_path: Path, subject: Subject) -> None:
    first, second = subject.features[:2]
    monotone, ordered = rules_of(
        tmp_path,
        subject,
        {"rule": "monotone", "features": {first: 1, second: -1}},
        {"rule": "monotone", "features": {second: 1}, "ordered": True},
    )
    assert (dict(monotone.features), monotone.output) == ({0: 1, 1: -1}, 1)
    assert ordered.ordered
    numbers = replace(subject, outputs=("price",), classification=False)
    (curved,) = rules_of(tmp_path, numbers, {"rule": "curvature", "features": {first: -1}})
    assert (dict(curved.features), curved.output) == ({0: -1}, None)
    logits = replace(subject, logits=True)
    (binding,) = rules_of(tmp_path, logits, {"rule": "monotone", "features": {first: 1}})
    assert binding.logits


@pytest.mark.parametrize(
    ("rule", "fact"),
    [
        ({"rule": "monotone"}, "features"),
        ({"rule": "monotone", "features": {"sizes": 1}}, "sizes"),
        ({"rule": "monotone", "features": {"size": 2}}, "size"),
        ({"rule": "monotone", "features": {"size": 1}, "output": "x"}, "output"),
        ({"rule": "monotone", "features": {"size": 1}, "ordered": 1}, "ordered"),
    ],
)
def test_faulty_shapes(tmp_path: Path, subject: Subject, rule: dict[str, Any], fact: str) -> None:
    named = replace(subject, features=("size", *subject.features[1:]))
    with raises(InvalidInput, "invalid-input", fact):
        rules_of(tmp_path, named, rule)


def test_equalities_hold_everywhere(tmp_path: Path, subject: Subject) -> None:
    fixed, tilted = rules_of(
        tmp_path,
        subject,
        {"rule": "equality", "coefficients": {"no": 1, "yes": 2}, "equal": 3},
        {
            "rule": "equality",
            "coefficients": {"no": 1, "yes": 1},
            "equal": {"offset": 1, "slope": {"b": 0.5}},
        },
    )
    assert isinstance(fixed, Equality)
    assert fixed.inputs is None
    inputs, outputs = np.array([[2.0, 4.0]]), np.array([[1.0, 2.0]])
    np.testing.assert_allclose(fixed.compute_violation(inputs, outputs), [2.0])
    np.testing.assert_allclose(tilted.compute_violation(inputs, outputs), [0.0])


def test_differences_name_rows_of_the_table(tmp_path: Path, subject: Subject) -> None:
    path = tmp_path / "rules.json"
    given = {"rule": "difference", "pairs": [[3, 1], [2, 1]], "output": "yes", "at_least": 0.1}
    path.write_text(json.dumps([given]))
    (found,) = read_rules(path, subject)
    rule: Any = found.requirement
    assert isinstance(rule, Difference)
    rule.check(2, 2)
    outputs = torch.as_tensor(rule.points[:, :1] @ np.array([[0.0, 1.0]]))  # "yes" is feature a
    np.testing.assert_allclose(rule.rows(0).values(outputs), [1 - 3, 1 - 2])
    np.testing.assert_allclose(rule.at_least, [0.1, 0.1])
    assert [found.format_source(number) for number in range(3)] == [
        f"data.csv, line {line}" for line in (3, 4, 5)
    ]


@pytest.mark.parametrize(
    ("rule", "fact"),
    [
        ({"rule": "equality", "coefficients": {"no": 1}}, "equal"),
        (
            {"rule": "equality", "coefficients": {"no": {"slope": {"a": 1}}}, "equal": 1},
            "coefficients",
        ),
        ({"rule": "difference", "output": "yes"}, "pairs"),
        ({"rule": "difference", "output": "yes", "pairs": [[0, 4]]}, "[0, 4]"),
        (
            {"rule": "difference", "output": "yes", "rows": [0, 1], "pairs": [[0, 2]]},
            "pairs",
        ),
    ],
)
def test_wrong_equalities_and_differences(
    tmp_path: Path, subject: Subject, rule: Any, fact: str
) -> None:
    with raises(InvalidInput, "invalid-input", fact):
        rules_of(tmp_path, subject, rule)


def test_a_column_of_text_is_refused_as_such_by_rules_that_need_numbers(
    tmp_path: Path, subject: Subject
) -> None:
    assert subject.table is not None
    encoding = TableEncoding.from_table(subject.table, ("a", "b", "sex"))
    whole = replace(subject, features=encoding.features, encoding=encoding)
    rule = {"rule": "monotone", "features": {"sex": 1}}
    with raises(InvalidInput, "invalid-input", "sex"):
        rules_of(tmp_path, whole, rule)
    (found,) = rules_of(tmp_path, whole, {**rule, "features": {"sex=m": 1}})
    assert found.directions(4).tolist() == [0, 0, 0, 1]
