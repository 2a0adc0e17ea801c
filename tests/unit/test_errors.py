"""Codes of errors; names that would not come back as they are are refused before any training."""

from __future__ import annotations

import ast
import csv
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest

import cg4ai
from cg4ai.cli.main import main
from cg4ai.cli.program import BAD_INPUT
from cg4ai.errors import CODES, LONGEST_NAME, InvalidInput, RunFolderError, check_names
from cg4ai.routing import instance
from raising import raises
from small_network import NETWORK

SOURCES = Path(cg4ai.__file__).parent

BAD = ["a\u00a0b", "a\u202eb", "a\u00adb", "a\u200bb", "a\nb", "a\x00b", "a\ud800b", " a", "a "]
# that do show, in any script
GOOD = ["a b", "Zürich", "東京", "a->b", "x'\"<&>", "a" * LONGEST_NAME]


def test_every_code_is_documented() -> None:
    """Codes given to errors are words of `CODES`."""
    unknown = []
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                stated = [one.value for one in node.exc.keywords if one.arg == "code"]
                codes = [one.value for one in stated if isinstance(one, ast.Constant)]
                unknown += [(path.name, node.lineno, one) for one in codes if one not in CODES]
    assert unknown == []


@pytest.mark.parametrize("kind", [InvalidInput, RunFolderError])
def test_codes_survive_the_way_from_other_processes(kind: type[cg4ai.Cg4aiError]) -> None:
    back = pickle.loads(pickle.dumps(kind("two words", code="shape")))
    assert (type(back), back.code, str(back)) == (kind, "shape", "two words")
    assert kind("without one").code in CODES


@pytest.mark.parametrize("name", [*BAD, "a" * (LONGEST_NAME + 1)])
def test_bad_names_are_refused_with_their_place(name: str) -> None:
    with raises(InvalidInput, "bad-name", "line 3"):
        check_names(["good", name], "here, line 3")


def test_good_names_are_taken() -> None:
    check_names(GOOD, "here")


# ---- networks ------------------------------------------------------------------------------------


def renamed(name: str) -> dict[str, Any]:
    return json.loads(json.dumps(NETWORK).replace('"a"', json.dumps(name)))


def by_json(name: str, folder: Path) -> Any:
    (folder / "n.json").write_text(json.dumps(renamed(name)))
    return folder / "n.json"


def by_attribute(name: str, folder: Path) -> Any:
    graph = networkx.node_link_graph(NETWORK, edges="links")
    networkx.set_node_attributes(graph, {n: {"name": name if n == "a" else n} for n in graph})
    return graph


def by_graphml(name: str, folder: Path) -> Any:
    graph = networkx.relabel_nodes(
        networkx.node_link_graph(NETWORK | {"graph": {}}, edges="links"), {"a": name}
    )
    networkx.write_graphml(graph, folder / "n.graphml")
    return folder / "n.graphml"


def by_links(name: str, folder: Path) -> Any:
    with (folder / "n.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["source", "target", "capacity"], [name, "b", "5"], ["b", "c", "5"]]
        )
    return folder / "n.csv"


def by_title(name: str, folder: Path) -> Any:
    graph = networkx.node_link_graph(NETWORK, edges="links")
    graph.graph["name"] = name
    return graph


@pytest.mark.parametrize("name", ["a\u00a0b", "a\u202eb"])
@pytest.mark.parametrize("given", [by_json, by_attribute, by_graphml, by_links, by_title])
def test_networks_with_bad_names_are_refused(
    name: str, given: Callable[[str, Path], Any], tmp_path: Path
) -> None:
    demands = tmp_path / "d.csv"
    demands.write_text("source,target,volume\nb,c,1\n")
    with raises(InvalidInput, "bad-name"):
        instance(given(name, tmp_path), demand_file=demands)


def test_the_router_of_a_network_with_such_a_name_is_not_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was trained to the end, and then lost: its certificate could not be written."""
    network = by_json("a\u00a0b", tmp_path)
    out = tmp_path / "run"
    assert main(["route", str(network), "--demands", "2", "--out", str(out)]) == BAD_INPUT
    assert "NO-BREAK SPACE" in capsys.readouterr().err
    assert not out.exists()


# ---- tables and rules ----------------------------------------------------------------------------


def train(folder: Path, *, header: str = "size", target: str = "kind", label: str = "good") -> int:
    rows = [[str(i / 10), label if i % 2 else "bad"] for i in range(30)]
    with (folder / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([[header, target], *rows])
    rule = {"rule": "linear", "box": {}, "coefficients": {label: 1}, "at_most": 0.9}
    (folder / "rules.json").write_text(json.dumps([rule]))
    arguments = ["train", str(folder / "t.csv"), "--target", target, "--out", str(folder / "run")]
    return main([*arguments, "--rules", str(folder / "rules.json"), "--quiet"])


@pytest.mark.parametrize("what", ["header", "target", "label"])
def test_tables_with_bad_names_are_refused(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path, **{what: "x\u202ey"}) == BAD_INPUT
    assert "RIGHT-TO-LEFT OVERRIDE" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_rules_with_bad_names_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = {"rule": "linear", "name": "a\u00a0cap", "box": {}, "coefficients": {"good": 1}}
    (tmp_path / "rules.json").write_text(json.dumps([rule | {"at_most": 0.9}]))
    (tmp_path / "t.csv").write_text("size,kind\n" + "0.1,good\n0.2,bad\n" * 10)
    arguments = ["train", str(tmp_path / "t.csv"), "--target", "kind", "--out", str(tmp_path / "r")]
    assert main([*arguments, "--rules", str(tmp_path / "rules.json")]) == BAD_INPUT
    assert "rule 1: the name" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_rules_in_python_are_refused_before_training() -> None:
    x = np.random.default_rng(0).normal(size=(20, 2))
    box = cg4ai.rules.Box(x.min(0), x.max(0))
    rule = cg4ai.rules.Linear(box, [1.0], 5.0, "<=", name="a\u202ecap")
    with raises(InvalidInput, "bad-name"):
        cg4ai.ConstrainedRegressor().fit(x, x[:, 0], requirements=[rule])
