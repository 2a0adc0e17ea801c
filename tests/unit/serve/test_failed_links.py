"""One server answers under failures of links, too, by the routers that a study has made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cg4ai.apps.predictions import RunPredictor
from cg4ai.cli.main import main
from cg4ai.routing.operate.failure_study import study
from cg4ai.routing.operate.rerouting import Effort
from cg4ai.serve.service import Service
from cg4ai.serve.web import make_app
from in_process import InProcess

ROW = {"a->d": 1.0, "b->d": 0.5}
CUT = "a-b,a-c,a-d"  # nothing leaves a any more


@pytest.fixture(scope="module")
def router(finished_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("failed") / "route"
    shutil.copytree(finished_runs / "route", folder)
    rows = study(folder, f"b-c;{CUT}", Effort(steps=5, validation=20, adversarial=20))
    assert [row["outcome"] for row in rows] == ["shielded", "disconnected"]
    return folder


@pytest.fixture
def client(router: Path) -> Iterator[InProcess]:
    with InProcess(make_app(Service(router))) as made:
        yield made


def test_answers_under_a_failure_are_those_of_the_command(
    router: Path, client: InProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demands = tmp_path / "demands.json"
    demands.write_text(json.dumps([ROW]))
    command = ["predict", str(router), str(demands), "--failed", "b-c", "--format", "json"]
    assert main(command) == 0
    expected = json.loads(capsys.readouterr().out)
    for links in (["b-c"], ["c-b"]):
        assert client.post("/predict", json={"rows": [ROW], "failed": links}).json() == expected
    whole = client.post("/predict", json={"rows": [ROW], "failed": None}).json()
    assert whole["model"] != expected["model"]
    assert len(whole["paths"]) > len(expected["paths"])
    assert client.post("/explain", json={"rows": [ROW], "failed": ["b-c"]}).status_code == 200


def test_a_router_of_a_failure_is_loaded_once(
    client: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Path] = []
    real = RunPredictor.from_folder

    def load(folder: Path) -> RunPredictor:
        loaded.append(folder)
        return real(folder)

    monkeypatch.setattr(RunPredictor, "from_folder", load)
    for _ in range(3):
        body = {"rows": [ROW], "failed": ["b-c"]}
        assert client.post("/predict", json=body).status_code == 200
    assert [folder.name for folder in loaded] == ["b-c"]


@pytest.mark.parametrize(
    ("failed", "words"),
    [
        (["a-c"], "was not studied"),
        (CUT.split(","), "no router for the failure"),
        (["a-z"], "a-z"),
        (["a-b", ""], "list of up to"),
        ("a-b", "list of up to"),
        ([None], "list of up to"),
    ],
)
def test_what_has_no_router_is_refused_in_one_line(
    router: Path, client: InProcess, failed: object, words: str
) -> None:
    found = client.post("/predict", json={"rows": [ROW], "failed": failed})
    assert found.status_code == 422
    assert words in found.json()["error"]
    assert str(router) not in found.text


def test_a_run_that_was_replaced_must_be_loaded_first(router: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(router, folder)
    with InProcess(make_app(Service(folder))) as client:
        with (folder / "ensemble.json").open("ab") as file:
            file.write(b"\n")
        found = client.post("/predict", json={"rows": [ROW], "failed": ["b-c"]})
        assert found.status_code == 409


def test_only_routers_know_failures(finished_runs: Path) -> None:
    with InProcess(make_app(Service(finished_runs / "train"))) as client:
        rows = [{"size": 0.5, "age": 0.5}]
        found = client.post("/predict", json={"rows": rows, "failed": ["a-b"]})
        assert found.status_code == 422
        assert client.post("/predict", json={"rows": rows}).status_code == 200
