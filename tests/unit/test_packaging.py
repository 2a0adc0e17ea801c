"""What is installed: the package alone, quick to import, with extras that name themselves."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import setuptools

import cg4ai
import cg4ai_checker
from cg4ai.extras import EXTRA_OF

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DEPENDENCIES: list[str] = PROJECT["tool"]["cg4ai"]["dependencies"]

IMPORT_ALL = """
import cg4ai, importlib, pkgutil
for module in pkgutil.walk_packages(cg4ai.__path__, "cg4ai."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""

SEARCH = """
import numpy as np
from cg4ai.errors import MissingExtra
from cg4ai.members import ConstantMembers
from cg4ai.layout import Layout
from cg4ai.members.mixture import Mixture, Part
from cg4ai.rules import Linear
from cg4ai.rules.regions import Box
from cg4ai.colgen.separation import BlackBox
members = ConstantMembers(np.zeros((1, 1)), input_size=2)
mixture = Mixture((Part(members, np.zeros(1, int), np.ones(1)),), Layout.single(1))
rule = Linear(Box([0, 0], [1, 1]), [1.0], 0.0, "<=")
try:
    BlackBox().find(mixture, rule, seed=0, limit=1, tolerance=1e-6)
except MissingExtra as error:
    print(error)
"""


def without(packages: list[str], code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process in which the packages cannot be imported."""
    hide = f"import sys\nfor name in {packages}: sys.modules[name] = None\n"
    return subprocess.run(
        [sys.executable, "-c", hide + code], capture_output=True, text=True, timeout=120
    )


def test_every_module_is_imported_without_extras_and_a_search_names_its_own() -> None:
    """Both in one process, for it takes seconds to import all."""
    hidden = [*EXTRA_OF, "pandas", "fairlearn", "experiments"]
    assert "nlopt" in hidden
    done = without(hidden, IMPORT_ALL + SEARCH)
    assert done.returncode == 0, done.stderr
    assert "pip install 'cg4ai[routing]'" in done.stdout


@pytest.mark.slow
@pytest.mark.guard
@pytest.mark.parametrize(
    ("package", "extra", "command"),
    [
        ("topohub", "routing", ["route", "abilene", "--quiet"]),
        ("networkx", "routing", ["new-network", "map.gml", "--out", "map.json"]),
        ("fastapi", "serve", ["serve", "."]),
        ("prometheus_client", "serve", ["serve", "."]),
        ("uvicorn", "serve", ["serve", "."]),
    ],
)
def test_a_missing_extra_names_itself(
    package: str, extra: str, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "map.gml").write_text("graph [ node [ id 0 ] ]")
    done = without([package], f"from cg4ai.cli.main import main\nsys.exit(main({command}))")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"pip install 'cg4ai[{extra}]'" in line


def test_extras_are_those_that_errors_name() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    for package, extra in EXTRA_OF.items():
        assert any(line.startswith(package) for line in extras[extra])
        assert not any(line.startswith(package) for line in DEPENDENCIES)
    assert extras["all"] == [f"cg4ai[{','.join(sorted(set(EXTRA_OF.values())))}]"]


# ---- what setup.py builds ------------------------------------------------------------------------


def built(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What setup.py asks setuptools for in a folder."""
    asked: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", lambda **given: asked.update(given))
    monkeypatch.chdir(folder)
    runpy.run_path(str(folder / "setup.py"))
    return asked


def folders_of_modules(source: Path) -> set[str]:
    """Dotted names of folders that hold modules."""
    return {".".join(path.parent.relative_to(source).parts) for path in source.rglob("*.py")}


def test_the_wheel_of_a_clone_has_every_module_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A folder of modules without __init__.py would be left out of the wheel."""
    asked = built(ROOT, monkeypatch)
    sources = {"": ROOT / "src", "cg4ai_checker": ROOT / "checker" / "src" / "cg4ai_checker"}
    wanted = folders_of_modules(ROOT / "src") | folders_of_modules(ROOT / "checker" / "src")
    assert set(asked["packages"]) == wanted
    assert {name.partition(".")[0] for name in wanted} == {"cg4ai", "cg4ai_checker"}
    assert {name: ROOT / place for name, place in asked["package_dir"].items()} == sources
    assert asked["install_requires"] == DEPENDENCIES
    assert asked["entry_points"]["console_scripts"] == [
        "cg4ai = cg4ai.cli.main:main",
        "cg4ai-check = cg4ai_checker.command:main",
    ]


@pytest.mark.parametrize("source", ["src", "checker/src"])
def test_the_wheel_has_every_file_beside_modules(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = built(ROOT, monkeypatch)["package_data"]
    for path in (ROOT / source).rglob("*.*"):
        place = path.relative_to(ROOT / source)
        if path.suffix in (".py", ".pyc") or "egg-info" in str(place):
            continue
        patterns = data[".".join(place.parent.parts)]
        assert any(fnmatch(path.name, pattern) for pattern in patterns), place


def test_an_sdist_requires_the_checker_that_it_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "src" / "cg4ai").mkdir(parents=True)
    (tmp_path / "src" / "cg4ai" / "__init__.py").touch()
    asked = built(tmp_path, monkeypatch)
    assert asked["packages"] == ["cg4ai"]
    assert asked["install_requires"][-1] == f"cg4ai-checker=={cg4ai_checker.__version__}"
    assert asked["entry_points"]["console_scripts"] == ["cg4ai = cg4ai.cli.main:main"]
    left_out = (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines()
    assert "prune checker" in left_out


def test_the_checker_has_its_own_distribution() -> None:
    own = tomllib.loads((ROOT / "checker" / "pyproject.toml").read_text(encoding="utf-8"))
    names = {line.partition(">=")[0] for line in own["project"]["dependencies"]}
    assert names == {"numpy", "scipy"}
    assert set(own["project"]["dependencies"]) <= set(DEPENDENCIES)
    assert own["project"]["scripts"] == {"cg4ai-check": "cg4ai_checker.command:main"}
    licences = [(ROOT / name / "LICENSE").read_bytes() for name in (".", "checker")]
    assert licences[0] == licences[1]


def test_both_distributions_and_the_citation_state_one_version() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "cg4ai.__version__"}
    stated = runpy.run_path(str(ROOT / "scripts" / "version.py"))["stated"]()
    assert set(stated.values()) == {cg4ai.__version__}


# ---- tools ---------------------------------------------------------------------------------------


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_lower_bounds_are_of_all_dependencies_and_below_the_tested_versions() -> None:
    lower_bounds = runpy.run_path(str(ROOT / "scripts" / "lower_bounds.py"))["lower_bounds"]
    bounds, tested = lower_bounds(PROJECT, ["all"]), pinned()
    names = {line.partition(">=")[0] for line in DEPENDENCIES}
    assert names < set(bounds)
    assert set(EXTRA_OF) - set(bounds) == set()
    for name, lowest in bounds.items():
        numbers = [[int(part) for part in one.split(".")] for one in (lowest, tested[name])]
        assert numbers[0] <= numbers[1], name


def test_a_dependency_without_a_lower_bound_is_refused() -> None:
    lower_bounds = runpy.run_path(str(ROOT / "scripts" / "lower_bounds.py"))["lower_bounds"]
    project = {
        "project": {"optional-dependencies": {}},
        "tool": {"cg4ai": {"dependencies": ["numpy"]}},
    }
    with pytest.raises(ValueError, match="numpy"):
        lower_bounds(project, [])


def test_hooks_run_the_tested_versions() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    tested = pinned()
    assert f"rev: v{tested['ruff']} " in hooks
    assert f"rev: {tested['check-jsonschema']} " in hooks
