"""Applications are known by what registered them, and others are named in an error."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from cg4ai.apps import register, registry
from cg4ai.apps.folders import describe_mixture, find_application
from cg4ai.apps.registry import (
    get_registration,
    is_registered,
    program_of,
    registration_of_kind,
    training_command,
)
from cg4ai.apps.runner import perform
from cg4ai.errors import InvalidInput, RunFolderError


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))


class Weather:
    """As much of an application as is asked here."""

    name = "forecast"

    def describe(self, prepared: str) -> dict[str, Any]:
        return {"place": prepared}


def test_an_application_of_another_package_is_found_by_name_and_kind() -> None:
    app: Any = Weather()
    register("forecast", kind="weather", load=lambda: app, program="weather")
    register("forecast", kind="weather", load=lambda: app, program="weather")  # imported again
    assert find_application("forecast") is app
    assert registration_of_kind("weather") is get_registration("forecast")
    assert describe_mixture(app, "Bergen") == {"application": "weather", "place": "Bergen"}
    assert program_of("forecast") == "weather"
    assert training_command("forecast") == "weather forecast"
    register("history", kind="past", load=lambda: app, program="weather", train="weather fit")
    assert training_command("history") == "weather fit"


@pytest.mark.parametrize(("name", "kind"), [("train", "weather"), ("forecast", "tabular")])
def test_names_and_kinds_are_taken_once(name: str, kind: str) -> None:
    with pytest.raises(InvalidInput):
        register(name, kind=kind, load=Weather, program="weather")  # type: ignore[arg-type]


def test_what_nobody_could_read_is_not_trained() -> None:
    app: Any = Weather()
    with pytest.raises(RunFolderError):
        perform(app, None)  # before a setting is read
    for ask in (get_registration, registration_of_kind, find_application):
        with pytest.raises(RunFolderError):
            ask("forecast")
    assert not is_registered("forecast")
    assert training_command("forecast") == "cg4ai forecast"


def test_the_package_knows_its_own_applications_and_imports_none() -> None:
    code = """
import sys, cg4ai.routing
from cg4ai.apps.registry import _REGISTERED
assert list(_REGISTERED) == ["train", "route"], list(_REGISTERED)
assert "torch" not in sys.modules and "cg4ai.routing.app" not in sys.modules
from cg4ai.apps.folders import find_application
assert [find_application(name).name for name in _REGISTERED] == ["train", "route"]
assert not any(name.startswith("experiments") for name in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
