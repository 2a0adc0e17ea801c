"""Network files that are broken on purpose: one clear line each, never a traceback or a crash."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cg4ai.errors import Cg4aiError
from cg4ai.routing import Instance, instance

GRAPH = {
    "directed": False,
    "graph": {"demands": {"a": {"c": 4.0}, "b": {"c": 2}}},
    "nodes": [{"id": "a", "pos": [0, 0]}, {"id": "b", "pos": [1, 0]}, {"id": "c", "pos": [2, 2]}],
    "edges": [
        {"source": "a", "target": "b", "capacity": 1.0},
        {"source": "b", "target": "c", "capacity": 2.0},
        {"source": "c", "target": "a", "capacity": 3},
    ],
}

GRAPHML = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
 <key id="c" for="edge" attr.name="capacity" attr.type="int"/>
 <graph edgedefault="undirected">
  <node id="A"/><node id="B"/><node id="C"/>
  <edge source="A" target="B"><data key="c">1</data></edge>
  <edge source="B" target="C"><data key="c">2</data></edge>
 </graph>
</graphml>
"""

SNDLIB = """<?xml version="1.0"?>
<network><networkStructure>
 <nodes><node id="A"/><node id="B"><coordinates><x>1</x><y>2</y></coordinates></node></nodes>
 <links><link id="l"><source>A</source><target>B</target>
  <preInstalledModule><capacity>2</capacity></preInstalledModule></link></links>
</networkStructure>
<demands><demand id="d"><source>A</source><target>B</target><demandValue>1</demandValue></demand>
</demands></network>
"""

NATIVE = """?SNDlib native format; type: network; version: 1.0
NODES (
 A ( 0 0 )
 B ( 1 2 )
)
LINKS (
 l ( A B ) 2.0 0 0 0 ( 10 1.5 )
)
DEMANDS (
 d ( A B ) 1 6.0 UNLIMITED
)
"""

VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1e300, 1e-300, 10**400, "", "nan", "a\x1b[31m\nb", "x" * 10_000,
    [], [1, 2], {}, {"a": 1}, [[[]]], {"a": {"b": {"c": 1}}},
)  # fmt: skip
WORDS = (
    "", "(", ")", "#", "nan", "-1", "1e300", "1e-300", "9" * 5000, "x" * 10_000, "NODES (",
    "<node/>", "</graph>", '"', "&", "&lol;", "<!--", "]]>", "\0", "\u2028", "A", "é" * 50,
)  # fmt: skip


def refused(path: Path, text: str, demands: Path | None = None) -> str | None:
    """The error's message, None where the file is read; anything but our own error is a failure."""
    path.write_text(text, encoding="utf-8")
    try:
        assert isinstance(instance(path, demand_file=demands), Instance)
    except Cg4aiError as error:
        message = str(error)
        assert len(message) < 1000 + len(str(path))
        assert "\n" not in message
        return message
    return None


def deep(depth: int) -> str:
    return '{"nodes": ' + "[" * depth + "]" * depth + ', "edges": []}'


def with_value(name: str, value: str) -> str:
    return re.sub(rf'"{name}": ([^,}}\]]+|\[[^\]]*\])', f'"{name}": {value}', json.dumps(GRAPH))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("deep.json", deep(100_000), "nested too deeply"),
        ("deep.json", deep(300), "entry 1 of 'nodes' must be an object"),
        ("digits.json", with_value("capacity", "9" * 5000), "cannot be read"),
        ("digits.json", with_value("capacity", "9" * 400), "capacity must be finite"),
        ("huge.json", with_value("capacity", "1e300"), "capacity must be finite"),
        ("tiny.json", with_value("c", "1e-300"), "volume 1e-300, expected 0 or 1e-12"),
        ("list.json", '{"graph": [1, 2], "nodes": [], "edges": []}', "'graph' must be an object"),
        ("null.json", '{"graph": null, "nodes": [], "edges": []}', "'graph' must be an object"),
        ("key.json", with_value("source", '{"a": 1}'), "unknown node"),
        ("deep.xml", "<network>" * 100_000 + "</network>" * 100_000, "needs exactly one"),
        ("deep.graphml", "<graphml>" * 100_000 + "</graphml>" * 100_000, "one <graph>"),
        ("digits.graphml", GRAPHML.replace(">1<", f">{'9' * 5000}<"), "capacity must be finite"),
        ("prefix.graphml", GRAPHML.replace("<key", "<y:x/><key"), None),
        ("digits.xml", SNDLIB.replace("capacity>2<", f"capacity>{'9' * 5000}<"), "capacity must"),
        ("bracket.txt", NATIVE.replace("( 0 0 )", "(" * 10_000), "expected '<node>"),
    ],
)  # fmt: skip
def test_known_attacks_get_one_line(
    tmp_path: Path, name: str, text: str, message: str | None
) -> None:
    demands = tmp_path / "demands.csv"
    demands.write_text("source,target,volume\nA,B,1\n", encoding="utf-8")
    found = refused(tmp_path / name, text, demands if name.endswith("graphml") else None)
    assert found is None if message is None else found is not None and message in found, found


@pytest.mark.parametrize("name", ["bomb.xml", "bomb.graphml"])
def test_entities_are_not_expanded(tmp_path: Path, name: str) -> None:
    bomb = '<!ENTITY a0 "lol">' + "".join(
        f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12)
    )
    for declared in (bomb, '<!ENTITY a11 SYSTEM "file:///etc/passwd">'):
        text = f"<?xml version='1.0'?><!DOCTYPE network [{declared}]><network>&a11;</network>"
        assert "declares the entity" in str(refused(tmp_path / name, text))


def mutate_object(random_: random.Random) -> str:
    """The graph with one value, name or entry replaced by another."""
    graph = json.loads(json.dumps(GRAPH))
    place = graph
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = random_.choice(keys)
        if isinstance(place[key], (dict, list)) and place[key] and random_.random() < 0.7:
            place = place[key]
            continue
        action = random_.random()
        if action < 0.6:
            place[key] = random_.choice(VALUES)
        elif action < 0.8:
            del place[key]
        elif isinstance(place, dict):
            place[str(random_.choice(VALUES))] = place.pop(key)
        else:
            place.append(place[key])
        return json.dumps(graph)


def mutate_text(text: str) -> Callable[[random.Random], str]:
    """A text with one word replaced, doubled, moved or cut off."""
    words = re.findall(r"\w+|\s+|[^\w\s]", text)

    def mutated(random_: random.Random) -> str:
        new, position = list(words), random_.randrange(len(words))
        action = random_.randrange(4)
        if action == 0:
            new[position] = random_.choice(WORDS)
        elif action == 1:
            new[position:position] = random_.choices(words, k=3)
        elif action == 2:
            del new[position : position + random_.randint(1, 6)]
        else:
            del new[position:]
        return "".join(new)

    return mutated


@pytest.mark.parametrize(
    ("name", "mutated"),
    [
        ("a.json", mutate_object),
        ("b.json", mutate_text(json.dumps(GRAPH))),
        ("a.graphml", mutate_text(GRAPHML)),
        ("a.xml", mutate_text(SNDLIB)),
        ("a.txt", mutate_text(NATIVE)),
    ],
    ids=["values", "json", "graphml", "xml", "native"],
)
def test_damaged_files_are_read_or_refused(
    tmp_path: Path, name: str, mutated: Callable[[random.Random], str]
) -> None:
    random_ = random.Random(name)
    demands = tmp_path / "demands.csv"
    demands.write_text("source,target,volume\nA,B,1\n", encoding="utf-8")
    answers = [
        refused(tmp_path / name, mutated(random_), demands if name.endswith("graphml") else None)
        for _ in range(120)
    ]
    assert any(answers)
    assert None in answers


def test_damaged_demand_files_are_read_or_refused(tmp_path: Path) -> None:
    random_, path = random.Random(0), tmp_path / "demands.csv"
    network = tmp_path / "towns.txt"
    mutated = mutate_text("source,target,volume\nA,B,4\nB,A,2\n")
    answers = []
    for _ in range(150):
        path.write_text(mutated(random_), encoding="utf-8")
        answers.append(refused(network, NATIVE, path))
    path.write_text("source,target,volume\nA,B," + "1" * 200_000, encoding="utf-8")
    assert "not readable as CSV" in str(refused(network, NATIVE, path))
    assert any(answers)
    assert None in answers
