"""Another run takes over without a request lost; one that cannot be loaded leaves the old one."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from cg4ai.ensemble.saved import load as load_ensemble
from cg4ai.runs.folder import Run
from cg4ai.serve.limits import ServeLimits
from cg4ai.serve.server import is_finished, state_of, try_reload, watch_folder
from cg4ai.serve.service import Service
from cg4ai.serve.web import make_app
from in_process import InProcess

ROWS = {"rows": [{"size": 0.5, "age": 0.5}]}


@pytest.fixture
def folder(finished_runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_runs / "train", tmp_path / "run"))


def change(folder: Path) -> None:
    """The same model, that says something more of itself: another ensemble.json."""
    ensemble = load_ensemble(folder)
    ensemble.about["remark"] = ensemble.about.get("remark", 0) + 1
    with Run.open(folder) as run:
        summary = run.summary()
        assert summary is not None
        ensemble.save(folder)
        run.finish(summary)  # as of this ensemble


def test_a_new_run_takes_over(folder: Path) -> None:
    with InProcess(make_app(Service(folder))) as server:
        before = server.get("/health").json()["model"]
        assert server.post("/reload").json() == {"model": before, "changed": False}
        change(folder)
        assert server.post("/predict", json=ROWS).json()["model"] == before
        after = server.post("/reload").json()
        assert after["changed"] is True
        assert after["model"] != before
        assert server.post("/predict", json=ROWS).json()["model"] == after["model"]
        counted = server.get("/metrics").text
    assert 'cg4ai_reloads_total{outcome="unchanged"} 1.0' in counted
    assert 'cg4ai_reloads_total{outcome="loaded"} 1.0' in counted
    assert counted.count("cg4ai_model_info{") == 1
    assert after["model"] in counted


def test_a_run_of_another_application_takes_over(folder: Path, finished_runs: Path) -> None:
    with InProcess(make_app(Service(folder))) as server:
        shutil.rmtree(folder)
        shutil.copytree(finished_runs / "route", folder)
        assert server.post("/reload").status_code == 200
        assert server.get("/health").json()["application"] == "route"
        assert list(server.get("/example").json()["rows"][0]) == ["a->d", "b->d"]
        row = server.get("/openapi.json").json()["components"]["schemas"]["Row"]
        assert list(row["properties"]) == ["a->d", "b->d"]


def test_a_linked_folder_is_followed_to_where_it_leads_now(
    folder: Path, finished_runs: Path, tmp_path: Path
) -> None:
    (tmp_path / "current").symlink_to(folder)
    with InProcess(make_app(Service(tmp_path / "current"))) as server:
        (tmp_path / "next").symlink_to(finished_runs / "route")
        os.replace(tmp_path / "next", tmp_path / "current")
        assert server.post("/reload").json()["changed"] is True
        assert server.get("/health").json()["application"] == "route"


def damage(folder: Path) -> None:
    with (folder / "members.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))


def unfinished(folder: Path) -> None:
    (folder / "ensemble.json").unlink()


def gone(folder: Path) -> None:
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (damage, "members.safetensors is damaged"),
        (unfinished, "the run in RUN has not ended"),
        (gone, "RUN is not a folder"),
    ],
)
def test_what_cannot_be_loaded_leaves_the_old_run(
    folder: Path, fault: Callable[[Path], None], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with InProcess(make_app(Service(folder))) as server:
        expected = server.post("/predict", json=ROWS).json()
        fault(folder)
        found = server.post("/reload")
        assert found.status_code == 409
        assert words in found.json()["error"]
        assert str(folder) not in found.text
        assert str(folder) in capsys.readouterr().err
        assert server.post("/predict", json=ROWS).json() == expected
        health = server.get("/health")
        assert words in health.json()["reload_failed"]
        assert str(folder) not in health.text
        assert 'cg4ai_reloads_total{outcome="failed"} 1.0' in server.get("/metrics").text


def test_no_request_is_lost_while_runs_are_reloaded(folder: Path) -> None:
    service = Service(folder, ServeLimits(waiting=100))
    with InProcess(make_app(service)) as server:

        async def ask(until: asyncio.Event) -> list[httpx.Response]:
            found = []
            while not until.is_set():
                found.append(await server.client.post("/predict", json=ROWS))
            return found

        async def all_at_once() -> tuple[list[httpx.Response], set[str]]:
            done, models = asyncio.Event(), {service.current.card.model}
            askers = [asyncio.create_task(ask(done)) for _ in range(4)]
            for _ in range(5):
                await asyncio.to_thread(change, folder)
                answer = await server.client.post("/reload")
                assert answer.status_code == 200
                models.add(answer.json()["model"])
            done.set()
            return [one for part in await asyncio.gather(*askers) for one in part], models

        found, models = server.run(all_at_once())
    assert len(models) == 6
    assert len(found) > 20
    assert {one.status_code for one in found} == {200}
    answering = [one.json()["model"] for one in found]
    assert set(answering) <= models
    assert len(set(answering)) > 1


def test_the_folder_is_watched_for_finished_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = Service(folder)
    before = service.current.card.model
    with Run.open(folder, read_only=True) as run:
        summary = run.summary()
    assert summary is not None

    async def watched() -> None:
        task = asyncio.create_task(watch_folder(service, 0.01))
        await asyncio.sleep(0.05)
        assert service.current.card.model == before
        (folder / "summary.json").unlink()  # as while a run is trained anew
        ensemble = load_ensemble(folder)
        ensemble.about["remark"] = 1
        ensemble.save(folder)
        await asyncio.sleep(0.1)
        assert service.current.card.model == before
        with Run.open(folder) as run:
            run.finish(summary)
        for _ in range(500):
            if service.current.card.model != before:
                break
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(watched())
    service.close()
    assert service.current.card.model != before
    assert "Reloaded: model" in capsys.readouterr().out


def test_a_reload_by_signal_that_fails_is_said_and_no_more(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = Service(folder, ServeLimits(waiting=1))
    with service.places:
        assert asyncio.run(try_reload(service)) is False  # to be tried again
    gone(folder)
    assert asyncio.run(try_reload(service)) is True
    service.close()
    shown = capsys.readouterr()
    assert "not reloaded, the old run stays" in shown.err
    assert shown.out == ""


def test_what_tells_a_new_run_from_the_old(folder: Path) -> None:
    before = state_of(folder)
    assert state_of(folder) == before
    change(folder)
    assert state_of(folder) != before
    assert is_finished(folder)
    (folder / "summary.json").unlink()
    assert not is_finished(folder)
    (folder / "run.json").unlink()  # an ensemble that lies there alone
    assert is_finished(folder)
    (folder / "ensemble.json").unlink()
    assert not is_finished(folder)
