"""The public interface: exactly the names that are listed beside this file, each with one home."""

from __future__ import annotations

import ast
import difflib
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import cg4ai

ROOT = Path(__file__).parents[2]
NAMES = Path(__file__).with_name("public_names.json")
# how to accept a change on purpose: python tests/unit/test_public_interface.py
LISTED: dict[str, list[str]] = json.loads(NAMES.read_text(encoding="utf-8"))
MODULES = sorted(LISTED)
# at the top, and with the rest of their kind
TWICE = {"Cg4aiError", "FitWarning", "audit_model", "certify", "repair", "write_certificate"}


def public_modules() -> list[str]:
    inner = {name for name in dir(cg4ai) if not name.startswith("_")} - set(cg4ai.__all__)
    return ["cg4ai", *(f"cg4ai.{name}" for name in sorted(inner))]


def interface() -> dict[str, list[str]]:
    return {name: sorted(importlib.import_module(name).__all__) for name in public_modules()}


def test_the_public_names_are_those_listed() -> None:
    listed = [f"{module}.{name}" for module in LISTED for name in LISTED[module]]
    found = [f"{module}.{name}" for module, names in interface().items() for name in names]
    difference = [
        line
        for line in difflib.unified_diff(listed, found, "listed", "found", lineterm="", n=0)
        if not line.startswith("@@")
    ]
    assert not difference, "\n".join(difference)


@pytest.mark.parametrize("module", MODULES)
def test_a_public_module_shows_its_public_names_alone(module: str) -> None:
    imported = importlib.import_module(module)
    assert all(hasattr(imported, name) for name in imported.__all__)
    further = {*public_modules(), "cg4ai.__version__"} if module == "cg4ai" else set()
    shown = set(dir(imported)) - {name.removeprefix("cg4ai.") for name in further}
    assert shown == set(imported.__all__)


def test_each_name_has_one_home() -> None:
    homes: dict[str, list[str]] = {}
    for module, names in interface().items():
        for name in names:
            homes.setdefault(name, []).append(module)
    several = {name: modules for name, modules in homes.items() if len(modules) > 1}
    assert set(several) == TWICE | set(SAME_WORD), several
    for name, modules in several.items():
        objects = {id(getattr(importlib.import_module(module), name)) for module in modules}
        assert (len(objects) == 1) == (name in TWICE), f"{name} in {modules}"


# different things of one name, whose modules say which is meant
SAME_WORD = ("Completion", "OutputSet", "Part", "Shield")


@pytest.mark.parametrize("module", MODULES)
def test_what_type_checkers_see_is_what_is_imported(module: str) -> None:
    """The imports under TYPE_CHECKING and the table of homes say the same."""
    place = importlib.import_module(module).__file__
    assert place is not None
    tree = ast.parse(Path(place).read_text(encoding="utf-8"))
    tables = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "lazy_exports"
    ]
    if not tables:
        return
    loaded = ast.literal_eval(tables[0].args[1])
    (seen,) = (node for node in tree.body if isinstance(node, ast.If))
    typed: dict[str, list[str]] = {}
    for one in seen.body:
        assert isinstance(one, ast.ImportFrom)
        if one.module != "cg4ai":
            typed[str(one.module)] = sorted(alias.name for alias in one.names)
    assert {home: sorted(names) for home, names in loaded.items()} == typed


# `cg4ai.__all__` of 0.7.0
NAMES_OF_0_7 = (
    *("AffineBound", "AffineCoefficients", "Ball", "Batches", "Box"),
    *("Cg4aiError", "Concave", "ConstrainedClassifier", "ConstrainedRegressor", "Curvature"),
    *("DecisionRate", "Difference", "Ensemble", "Equality", "FitWarning"),
    *("Largest", "Linear", "Margin", "Monotone", "Objective"),
    *("Ordered", "Polytope", "Pool", "Probability", "Problem"),
    *("Quadratic", "Range", "Rate", "Result", "Settings"),
    *("Smallest", "StopReason", "SumTo", "certify", "check"),
    *("fit_with_requirements", "load", "predict_frame", "solve", "transformed"),
    "write_certificate",
)
RENAMED = {"transformed": "transform_requirement"}


@pytest.mark.parametrize("name", sorted({*NAMES_OF_0_7} - {*cg4ai.__all__}))
def test_names_that_left_the_top_warn_of_their_new_home(name: str) -> None:
    new = RENAMED.get(name, name)
    (home,) = (module for module in MODULES if new in LISTED[module])
    with pytest.warns(DeprecationWarning, match=f"from {home} import {new}"):
        value = getattr(cg4ai, name)
    assert value is getattr(importlib.import_module(home), new)
    assert name not in dir(cg4ai)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        _ = cg4ai.Lineal  # type: ignore[attr-defined]
    with pytest.raises(ImportError):
        importlib.import_module("cg4ai.rule")


def test_importing_public_modules_loads_nothing_heavy() -> None:
    code = "import sys, cg4ai\nfrom cg4ai import {}\nprint('torch' in sys.modules)"
    inner = ", ".join(sorted(name.removeprefix("cg4ai.") for name in LISTED if name != "cg4ai"))
    light = inner.replace("callbacks, ", "")  # loads NumPy and the records of a run
    done = subprocess.run(
        [sys.executable, "-c", code.format(light)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def imported_names(source: str) -> list[tuple[str, str]]:
    return [
        (str(node.module), alias.name)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "cg4ai"
        for alias in node.names
    ]


def is_public(module: str, name: str) -> bool:
    return name in LISTED.get(module, ()) or f"{module}.{name}" in LISTED or name == "__version__"


def test_routing_imports_public_names_of_the_core_alone() -> None:
    folder = ROOT / "src/cg4ai/routing"
    private = [
        f"{path.relative_to(folder)}: {module}.{name}"
        for path in sorted(folder.rglob("*.py"))
        if path != folder / "__init__.py"
        for module, name in imported_names(path.read_text(encoding="utf-8"))
        if not module.startswith("cg4ai.routing") and not is_public(module, name)
    ]
    assert not private, "\n".join(private)


@pytest.mark.parametrize("folder", ["experiments/peers", "examples"])
def test_what_users_read_imports_public_names_alone(folder: str) -> None:
    private = [
        f"{path.relative_to(ROOT)}: {module}.{name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for module, name in imported_names(path.read_text(encoding="utf-8"))
        if not is_public(module, name)
    ]
    assert not private, "\n".join(private)


if __name__ == "__main__":
    NAMES.write_text(json.dumps(interface(), indent=1) + "\n", encoding="utf-8")
