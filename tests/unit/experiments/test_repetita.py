"""The experiment on REPETITA's networks: what is learned from and judged, rows kept and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cg4ai.errors import InvalidInput
from cg4ai.routing import read_traffic
from experiments import repetita
from raising import raises
from small_network import TINY

GRAPH = """NODES 3
label x y
0_A 0 0
1_B 1 0
2_C 0 1

EDGES 6
label src dest weight bw delay
e0 0 1 1 10 1
e1 1 0 1 10 1
e2 1 2 1 10 1
e3 2 1 1 10 1
e4 0 2 1 10 1
e5 2 0 1 10 1
"""
QUICK: dict[str, Any] = {"seed": 0, "threads": 1, **TINY, "rounds": 1}


def write_network(folder: Path, name: str, volumes: list[float]) -> None:
    (folder / f"{name}.graph").write_text(GRAPH)
    for number, volume in enumerate(volumes):
        text = f"DEMANDS 2\nlabel src dest bw\nd0 0 1 {volume}\nd1 0 2 {volume / 2}\n"
        (folder / f"{name}.{number:04}.demands").write_text(text)


def test_three_of_five_are_learned_from_and_rows_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_network(tmp_path, "fits", [4, 5, 3, 4, 5])
    monkeypatch.setattr(repetita, "run_alone", repetita.route_network)
    out = tmp_path / "out"
    (row,) = repetita.measure_networks(tmp_path, ["fits"], out, QUICK, tell=print)
    assert row["guaranteed"] == "yes"
    assert row["level"] <= 1
    assert (row["judged"], row["inside"], row["demands"]) == (2, 2, 2)
    assert 1 - 1e-6 <= row["mean ratio"] <= row["worst ratio"] < 1.5
    with monkeypatch.context() as kept:
        kept.setattr(repetita, "run_alone", None)  # nothing is run again
        assert repetita.measure_networks(tmp_path, ["fits"], out, QUICK, tell=print) == [row]
    assert "fits" in (out / "repetita.md").read_text()
    assert (out / "repetita.png").is_file()
    (alone,) = repetita.measure_networks(
        tmp_path, ["fits"], tmp_path / "paths", QUICK, train=False, tell=print
    )
    assert "guaranteed" not in alone
    assert alone["mean ratio"] == pytest.approx(1, abs=1e-6)
    near = row["within 1.05"]
    assert repetita.summarise([row]).startswith(f"{near} of 2 matrices")


def test_one_matrix_becomes_several(tmp_path: Path) -> None:
    write_network(tmp_path, "one", [4])
    made = read_traffic(repetita.find_traffic(tmp_path, "one", tmp_path / "out", 3))
    assert len(made) == repetita.MADE
    volumes = made.get_volumes([("0_A", "1_B"), ("1_B", "2_C")])
    assert (volumes[:, 0] > 0).all()
    assert len(np.unique(volumes[:, 0])) == repetita.MADE
    assert (volumes[:, 1] == 0).all()


def test_networks_are_listed_by_size_and_checked(tmp_path: Path) -> None:
    write_network(tmp_path, "b", [4])
    write_network(tmp_path, "a", [4])
    assert repetita.list_networks(tmp_path) == ["a", "b"]
    assert repetita.list_networks(tmp_path, ["b"]) == ["b"]
    with raises(InvalidInput, "unknown-name"):
        repetita.list_networks(tmp_path, ["c"])
    with raises(InvalidInput, "empty"):
        repetita.list_networks(tmp_path / "none")
