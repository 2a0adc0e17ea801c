"""What is installed: the package alone, quick to import, with extras that name themselves."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import cg4ai
from cg4ai.extras import EXTRA_OF

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

IMPORT_ALL = """
import cg4ai, importlib, pkgutil
for module in pkgutil.walk_packages(cg4ai.__path__, "cg4ai."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def without(packages: list[str], code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process in which the packages cannot be imported."""
    hide = f"import sys\nfor name in {packages}: sys.modules[name] = None\n"
    return subprocess.run(
        [sys.executable, "-c", hide + code], capture_output=True, text=True, timeout=120
    )


def test_every_module_is_imported_without_extras() -> None:
    done = without([*EXTRA_OF, "pandas", "fairlearn", "experiments"], IMPORT_ALL)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.guard
@pytest.mark.parametrize(
    ("package", "extra", "command"),
    [
        ("topohub", "routing", ["route", "abilene", "--quiet"]),
        ("networkx", "routing", ["route", "abilene", "--quiet"]),
        ("fastapi", "serve", ["serve", "."]),
        ("prometheus_client", "serve", ["serve", "."]),
        ("uvicorn", "serve", ["serve", "."]),
    ],
)
def test_a_missing_extra_names_itself(package: str, extra: str, command: list[str]) -> None:
    done = without([package], f"from cg4ai.cli.main import main\nsys.exit(main({command}))")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"pip install 'cg4ai[{extra}]'" in line


def test_a_search_without_gradients_names_its_extra() -> None:
    code = """
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
    done = without(["nlopt"], code)
    assert "pip install 'cg4ai[routing]'" in done.stdout, done.stderr


def test_extras_are_those_that_errors_name() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    for package, extra in EXTRA_OF.items():
        assert any(line.startswith(package) for line in extras[extra])
        assert not any(line.startswith(package) for line in PROJECT["project"]["dependencies"])
    assert extras["all"] == [f"cg4ai[{','.join(sorted(set(EXTRA_OF.values())))}]"]


def test_the_wheel_has_every_module_and_nothing_else() -> None:
    """A folder of modules without __init__.py would be left out of the wheel."""
    assert PROJECT["tool"]["setuptools"]["packages"]["find"] == {"where": ["src"]}
    source = ROOT / "src"
    folders = {path.parent for path in source.rglob("*.py")}
    assert {path.relative_to(source).parts[0] for path in folders} == {"cg4ai"}
    assert [str(path) for path in folders if not (path / "__init__.py").exists()] == []


def test_the_version_is_stated_once() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "cg4ai.__version__"}
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {cg4ai.__version__}\n" in cited
