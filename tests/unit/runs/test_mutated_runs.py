"""Resealed folders that make no sense: every command says so in one line, none traces back."""

from __future__ import annotations

import copy
import hashlib
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cg4ai.apps.predictions import RunPredictor
from cg4ai.cli.main import main
from cg4ai.errors import Cg4aiError
from cg4ai.report.card import card_of
from cg4ai.report.story import SavedRun
from cg4ai.report.write import tell_story
from cg4ai.runs import files
from cg4ai.runs.folder import SPEAKS_OF, ensemble_digest

HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 3, 2**62, 0.5, 1e300, -1e300, math.nan, math.inf),
    *("", "x", "NaN", "\u202e", [], [[]], [None], ["a"], [0.5], {}, {"kind": None}),
)
MUTATIONS = 40  # of each application


def copied(finished_runs: Path, name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_runs / name, tmp_path / name))


def table_of(folder: Path, name: str) -> Path:
    about = files.read_json(folder / "ensemble.json")["about"]
    names = {"train": ["size", "age"], "route": about.get("demands")}.get(name)
    names = names or [f"pixel {number}" for number in range(784)]
    file = folder.parent / "table.csv"
    file.write_text(",".join(names) + "\n" + ",".join("0.1" for _ in names) + "\n")
    return file


def rebind(folder: Path) -> None:
    """Let the summary speak of the files as they are now, as a forger would."""
    summary = files.read_json(folder / "summary.json")
    if not isinstance(summary.get(SPEAKS_OF), dict):
        return
    summary[SPEAKS_OF] |= {
        "ensemble.json": ensemble_digest(folder / "ensemble.json"),
        "run.json": files.content_digest(files.read_json(folder / "run.json")),
        "history.jsonl": hashlib.sha256((folder / "history.jsonl").read_bytes()).hexdigest(),
    }
    files.write_json(folder / "summary.json", summary)


def change_about(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """In both places that say it."""
    ensemble, run = (files.read_json(folder / name) for name in ("ensemble.json", "run.json"))
    change(ensemble["about"])
    change(run["settings"]["description"])
    files.write_json(folder / "ensemble.json", ensemble)
    files.write_json(folder / "run.json", run)
    rebind(folder)


def put(name: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda about: about.update({name: value})


def shortened(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda about: about.update({name: about[name][:-1]})


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *(("train", shortened(one)) for one in ("upper", "lower", "features", "outputs")),
        *(("train", put(one, None)) for one in ("upper", "features", "target", "scores")),
        ("train", put("upper", [math.inf, 1.0])),
        ("train", put("upper", ["1.0", "2.0"])),
        *(("route", shortened(one)) for one in ("arcs", "capacity", "demand_max", "path_demand")),
        *(("route", shortened(one)) for one in ("demands", "paths", "path_length")),
        ("route", put("positions", {})),
        ("route", put("positions", {"a": []})),
        ("route", put("capacity", [0.0])),
        ("route", put("arc_prices", "x")),
        ("route", put("demand_set", {"kind": "box"})),
        ("digits", put("threshold", "1")),
        ("digits", put("outputs", None)),
    ],
)
def test_descriptions_that_make_no_sense_are_one_line(
    finished_runs: Path, tmp_path: Path, name: str, change: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(finished_runs, name, tmp_path)
    table = table_of(folder, name)
    change_about(folder, change)
    for command in (
        ["predict", folder, table],
        ["predict", folder, table, "--explain"],
        ["audit", folder],
        ["explore", folder, "--out", tmp_path / "page.html"],
    ):
        assert main([str(one) for one in command]) == 2, command
    for command in (["show", folder], ["report", folder]):
        assert main([str(one) for one in command]) in (0, 2), command
    if name == "route":
        certificate = str(folder / "certificate.cg4ai")
        assert main(["check", certificate, "--run", str(folder)]) in (0, 1, 2)
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert all(line.startswith(("error: ", "REJECTED: ")) for line in said.splitlines() if line)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else [*enumerate(value)][:2]
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


def mutated(content: dict[str, Any], random: Random) -> tuple[dict[str, Any], str]:
    made = copy.deepcopy(content)
    place = random.choice([*places(made)])
    inner: Any = made
    for key in place[:-1]:
        inner = inner[key]
    old = inner[place[-1]]
    new = random.choice(HOSTILE)
    if isinstance(old, list) and old:
        new = random.choice([new, old[:-1], [*old, old[-1]]])
    inner[place[-1]] = new
    if random.random() < 0.2:
        del inner[place[-1]]
    return made, f"{place} = {new!r:.60}"


@pytest.mark.parametrize("name", ["train", "route", "digits"])
def test_mutated_files_of_runs_are_one_error(
    finished_runs: Path, tmp_path: Path, name: str
) -> None:
    folder, random = copied(finished_runs, name, tmp_path), Random(5)
    kept = {one: (folder / one).read_bytes() for one in ("run.json", "summary.json")}
    kept |= {one: (folder / one).read_bytes() for one in ("ensemble.json", "history.jsonl")}
    readers: tuple[Callable[[], Any], ...] = (
        lambda: card_of(folder, RunPredictor.from_folder(folder)),
        lambda: tell_story(SavedRun(folder)),
        lambda: main(["show", str(folder)]),
    )
    lines = [0]
    for _ in range(MUTATIONS):
        file = folder / random.choice([*kept])
        if file.name == "history.jsonl":
            records = [one for _, one in files.read_lines(file)]
            number = random.randrange(len(records))
            records[number], what = mutated(records[number], random)
            file.unlink()
            files.append_lines(file, records)
        else:
            content, what = mutated(files.read_json(file), random)
            files.write_json(file, content)
        rebind(folder)
        for read in readers:
            try:
                read()
            except Cg4aiError as error:
                lines.append(str(error).count("\n"))
            except Exception as error:
                raise AssertionError(f"{file.name} {what}: {error!r}") from error
        for one, data in kept.items():
            (folder / one).write_bytes(data)
    assert max(lines) == 0
