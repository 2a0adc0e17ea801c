"""Runs of all applications behind HTTP: the answers of the command, and its words for bad input."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cg4ai
from cg4ai.cli.main import main
from cg4ai.serve.limits import ServeLimits
from cg4ai.serve.service import Service
from cg4ai.serve.web import make_app
from in_process import InProcess

NAMES = ("train", "route", "digits")
MOST_ROWS = 20


@pytest.fixture(scope="module")
def servers(finished_runs: Path) -> Iterator[dict[str, InProcess]]:
    """A client of a server for each application."""
    made = {}
    for name in NAMES:
        service = Service(finished_runs / name, ServeLimits(rows=MOST_ROWS, body_mib=1))
        made[name] = InProcess(make_app(service)).__enter__()
    yield made
    for client in made.values():
        client.__exit__(None, None, None)


def rows_for(name: str) -> list[dict[str, Any]]:
    """Rows inside and outside the region, with a column that nobody reads."""
    made = np.random.default_rng(1)
    if name == "digits":
        images = made.uniform(size=(3, 784))
        images[2, 5] = 2.0
        return [{f"pixel {i}": v for i, v in enumerate(line)} for line in images.tolist()]
    columns = {"train": ("age", "size"), "route": ("b->d", "a->d")}[name]
    scale = {"train": 1.0, "route": 4.0}[name]
    values = [*(scale * made.uniform(size=(5, 2))).tolist(), [900.0, 0.5]]
    return [{**dict(zip(columns, line, strict=True)), "note": "x"} for line in values]


def told(found: httpx.Response, code: int) -> str:
    """The words of a refusal."""
    assert found.status_code == code, found.text
    assert list(found.json()) == ["error"]
    words = found.json()["error"]
    assert words
    assert "\n" not in words
    return str(words)


# ---- answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", ["/predict", "/explain"])
def test_answers_are_those_of_the_command(
    servers: dict[str, InProcess],
    finished_runs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    path: str,
) -> None:
    rows = rows_for(name)
    found = servers[name].post(path, json={"rows": rows, "details": True})
    assert found.status_code == 200
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    command = ["predict", str(finished_runs / name), str(tmp_path / "rows.json")]
    explain = ["--explain"] if path == "/explain" else []
    assert main([*command, "--format", "json", "--details", *explain]) == 0
    expected = json.loads(capsys.readouterr().out)
    answer = found.json()
    warned = expected.pop("warnings")
    assert [one.replace(str(tmp_path / "rows.json"), "the request") for one in warned] == (
        answer.pop("warnings")
    )
    # columns that a router has no demands for are named
    assert ["ignored" in one for one in warned] == ([True, False] if name == "route" else [False])
    assert answer == expected
    assert [row["outside the region"] for row in answer["rows"]] == [False] * (len(rows) - 1) + [
        True
    ]


def test_a_row_of_the_answer_is_what_the_library_predicts(
    servers: dict[str, InProcess], finished_runs: Path
) -> None:
    (row,) = (
        servers["route"]
        .post("/predict", json={"rows": [{"a->d": 2, "b->d": 1}], "fallback": None})
        .json()["rows"]
    )
    expected = cg4ai.load(finished_runs / "route").predict(np.array([[2.0, 1.0]]))[0]
    assert row.pop("outside the region") is False
    assert list(row.values()) == expected.tolist()


def test_a_router_improves_or_solves_what_is_too_far_from_the_optimum(
    servers: dict[str, InProcess],
) -> None:
    asked = {"rows": [{"a->d": 9, "b->d": 4}], "fallback": 0.0, "details": True}
    (row,) = servers["route"].post("/predict", json=asked).json()["rows"]
    assert 0 <= row["above the optimum at most"] < 1e-12  # by the prices of the program
    assert row["improved"] or row["solved"]
    (plain,) = servers["route"].post("/predict", json={**asked, "fallback": None}).json()["rows"]
    assert row["mlu"] <= plain["mlu"] + 1e-9
    words = told(servers["train"].post("/predict", json={**asked, "rows": rows_for("train")}), 422)
    assert "a fallback is for routers" in words


@pytest.mark.parametrize("name", NAMES)
def test_the_example_is_answered_inside_the_region(
    servers: dict[str, InProcess], name: str
) -> None:
    example = servers[name].get("/example")
    answer = servers[name].post("/predict", content=example.content).json()
    assert [row["outside the region"] for row in answer["rows"]] == [False]
    assert answer["warnings"] == []


# ---- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "the request is not valid JSON"),
        (b"{", "the request is not valid JSON"),
        (b"\xff\xfe", "the request is not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "the request is a list; expected an object"),
        (b"5", "the request is a number or text; expected an object"),
        (b"null", "the request is null"),
        (b"{}", "null for its rows"),
        (b'{"rows": []}', "no rows"),
        (b'{"rows": {}}', "an object for its rows"),
        (b'{"rows": [1]}', "row 1 is a number or text"),
        (b'{"rows": [{}]}', "row 1 has no columns"),
        (b'{"rows": [{"size": 1, "size": 1}]}', "stands twice"),
        (b'{"row": []}', "did you mean 'rows'"),
        (b'{"rows": [{"size": 1}]}', "the request has no column 'age'"),
        (b'{"rows": [{"size": 1, "ago": 1}]}', "did you mean 'ago'"),
        (b'{"rows": [{"size": 1, "age": "old"}]}', "column 'age' is 'old', not a finite number"),
        (b'{"rows": [{"size": 1, "age": true}]}', "column 'age' is 'true', not a finite number"),
        (b'{"rows": [{"size": 1, "age": NaN}]}', "column 'age' is 'NaN', not a finite number"),
        (b'{"rows": [{"size": 1, "age": 1e999}]}', "column 'age' is '1e999', not a finite"),
        (b'{"rows": [{"size": 1, "age": [1]}]}', "column 'age' is a list"),
        (b'{"rows": [{"size": 1, "age": {"x": 1}}]}', "column 'age' is an object"),
        (b'{"rows": [{"size": 1, "age": "\\ud800"}]}', "'\\ud800', not a finite number"),
        (b'{"rows": [{"size": 1, "age": 1}, {"size": 1}]}', "row 2 lacks age"),
        (b'{"rows": [{"size": 1, "age": 1}], "details": 1}', "'details' must be true or false"),
        (b'{"rows": [{"size": 1, "age": 1}], "fallback": -1}', "at least 0, such as 0.02"),
        (b'{"rows": [{"size": 1, "age": 1}], "fallback": []}', "got a list"),
        (b'{"rows": [{"size": 9, "age": 1}], "refuse_outside": true}', "correct or remove"),
    ],
)
def test_bad_input_gets_422_and_one_line(
    servers: dict[str, InProcess], body: bytes, words: str
) -> None:
    assert words in told(servers["train"].post("/predict", content=body), 422)
    assert words in told(servers["train"].post("/explain", content=body), 422)


def test_a_long_quotation_is_cut(servers: dict[str, InProcess]) -> None:
    body = {"rows": [{"size": 1, "age": "x" * 100_000}]}
    assert len(told(servers["train"].post("/predict", json=body), 422)) < 1100


@pytest.mark.parametrize(
    ("name", "row", "words"),
    [
        ("route", {"a->d": 1, "b->d": -1}, "column 'b->d' is -1, but demands are at least 0"),
        ("route", {"a->d": 1, "b->d": None}, "column 'b->d' is empty"),
        ("route", {"a->d": 1, "b->d": "x"}, "row 1, column 'b->d' is 'x', not a finite number"),
        ("route", {"a->d": 1, "b->d": "NaN"}, "column 'b->d' is 'NaN', not a finite number"),
        ("route", {"a->d": 1, "b->d": "1_000"}, "column 'b->d' is '1_000', not a finite number"),
        ("train", {"size": 1, "age": "\u0663"}, "column 'age' is '\u0663', not a finite number"),
        ("digits", {"pixel 0": 0.5}, "no column 'pixel 1'"),
    ],
)
def test_other_applications_say_their_own_words(
    servers: dict[str, InProcess], name: str, row: dict[str, Any], words: str
) -> None:
    assert words in told(servers[name].post("/predict", json={"rows": [row]}), 422)


def test_demands_beyond_all_measure_cannot_be_solved_for(servers: dict[str, InProcess]) -> None:
    asked = {"rows": [{"a->d": 1e200, "b->d": 1}], "fallback": 0}
    assert "beyond the precision of the solver" in told(
        servers["route"].post("/predict", json=asked), 422
    )


# ---- whatever comes ----------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.floats(),
    st.floats(0, 5),
    st.integers(-(10**400), 10**400),
    st.sampled_from([1e308, -1e308, 5e-324, 10**25]),
)
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def nearly_right(columns: list[str]) -> st.SearchStrategy[Any]:
    cells = st.one_of(NUMBERS, st.floats(0, 5), ANYTHING)
    row = st.fixed_dictionaries(dict.fromkeys(columns, cells), optional={"label": cells})
    switch = st.one_of(st.booleans(), st.booleans(), ANYTHING)
    return st.fixed_dictionaries(
        {"rows": st.one_of(st.lists(row, max_size=4), st.lists(row, max_size=4), ANYTHING)},
        optional={
            "details": switch,
            "explain": switch,
            "refuse_outside": switch,
            "fallback": st.one_of(st.floats(0, 1), st.none(), ANYTHING),
            "": ANYTHING,
        },
    )


BODIES = {
    "train": nearly_right(["size", "age"]),
    "route": nearly_right(["a->d", "b->d"]),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("path", ["/predict", "/explain"])
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_body_is_the_server_s_fault(
    servers: dict[str, InProcess], name: str, path: str, data: st.DataObject
) -> None:
    body = data.draw(st.one_of(BODIES[name], BODIES[name], ANYTHING))
    found = servers[name].post(path, content=json.dumps(body).encode())
    if found.status_code != 200:
        assert "unexpected" not in told(found, 422)
        return
    answer = json.loads(found.content, parse_constant=lambda word: pytest.fail(word))
    assert len(answer["rows"]) == len(body["rows"])
    for row in answer["rows"]:
        if not row["outside the region"]:
            assert all(v is None or isinstance(v, str) or math.isfinite(v) for v in row.values())


@settings(max_examples=150, deadline=None)
@given(content=st.binary(max_size=60))
def test_no_bytes_are_the_server_s_fault(servers: dict[str, InProcess], content: bytes) -> None:
    assert servers["train"].post("/predict", content=content).status_code == 422


@pytest.mark.parametrize("cells", [0.0, 1.0, 1e308, -1e308, 5e-324])
def test_no_image_is_the_server_s_fault(servers: dict[str, InProcess], cells: float) -> None:
    row = {f"pixel {number}": cells for number in range(784)}
    found = servers["digits"].post("/explain", json={"rows": [row]})
    assert found.status_code == 200
    json.loads(found.content, parse_constant=lambda word: pytest.fail(word))
