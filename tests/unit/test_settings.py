"""Settings: every check accepts and refuses, and all faults are told at once."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
import torch

from cg4ai.apps.tabular.settings import TrainSettings
from cg4ai.errors import InvalidSettings
from cg4ai.routing.settings import RouteSettings
from cg4ai.settings import Settings, format_setting
from raising import raises

WHOLE = (
    *("column_limit", "iteration_limit", "patience", "cut_rounds", "cuts_per_round"),
    *("final_rounds", "seed", "improvement_window", "estimate_restarts"),
    "training_rounds",
)
# what each number may be at its ends, and what is just outside
RANGES: dict[str, tuple[list[Any], list[Any]]] = {
    "epsilon": ([0, 1e-9, 10], [-1e-9]),
    "row_margin": ([0, 1], [-0.1, 1.1]),
    "column_limit": ([1, 10**6], [0, -5]),
    "iteration_limit": ([1, 10**6], [0]),
    "time_limit_s": ([0, 1e9, math.inf], [-1]),
    "patience": ([1, 9], [0]),
    "improvement_tolerance": ([0, 0.5], [-0.1]),
    "improvement_window": ([1, 9], [0]),
    "training_rounds": ([0, 9], [-1]),
    "cut_rounds": ([1, 9], [0]),
    "cuts_per_round": ([1, 9], [0]),
    "penalty": ([1e-9, 1e7], [0, -1, 1e10]),
    "penalty_limit": ([10.0, 1e9], [9.9, 1e10]),
    "smoothing": ([0, 0.99], [-0.1, 1.0]),
    "final_rounds": ([0, 9], [-1]),
    "estimate_restarts": ([0, 99], [-1]),
    "prune": ([0], [-0.1, 1.1]),
    "seed": ([0, 2**62], [-1, 2**63]),
}


def test_every_number_has_a_range_here() -> None:
    words = {"cuts", "final_weights", "device", "guarantee", "single_model", "n_jobs"}
    assert set(RANGES) == set(Settings().as_dict()) - words


@pytest.mark.parametrize("name", RANGES)
def test_numbers_in_range_are_accepted_and_others_refused(name: str) -> None:
    accepted, refused = RANGES[name]
    for value in accepted:
        assert getattr(Settings(**{name: value}), name) == value
    for value in refused:
        with raises(InvalidSettings, "invalid-settings", name):
            Settings(**{name: value})


@pytest.mark.parametrize("name", RANGES)
def test_what_is_no_number_is_refused(name: str) -> None:
    kind = "a whole number" if name in WHOLE else "a number"
    wrong: tuple[Any, ...] = ("3", None, True, math.nan, [1], 1j)
    for value in wrong:
        with raises(InvalidSettings, "invalid-settings", name, kind):
            Settings(**{name: value})


@pytest.mark.parametrize("name", WHOLE)
def test_counts_are_whole(name: str) -> None:
    value: Any
    for value in (1.5, math.inf):
        with raises(InvalidSettings, "invalid-settings", name, value):
            Settings(**{name: value})
    for value in (3.0, np.int64(3), np.float64(3.0)):  # from files and NumPy
        kept = getattr(Settings(**{name: value}), name)
        assert kept == 3
        assert type(kept) is int


def test_numpy_numbers_become_plain() -> None:
    assert type(Settings(epsilon=np.float32(0.5)).epsilon) is float  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "accepted", "wrong", "hint"),
    [
        ("cuts", ["before", "after"], "befor", "did you mean 'before'?"),
        ("final_weights", ["vertex", "loss", "uniform"], "uniformly", "did you mean 'uniform'?"),
    ],
)
def test_words(name: str, accepted: list[str], wrong: str, hint: str) -> None:
    for value in accepted:
        assert getattr(Settings(**{name: value}), name) == value  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings) as caught:
        Settings(**{name: wrong})  # type: ignore[arg-type]
    assert hint in str(caught.value)
    assert ", ".join(accepted) in str(caught.value)


@pytest.mark.parametrize("device", ["tpu", "", 3, None, "cpu:x", "cuda:", "mps"])
def test_unknown_devices_are_refused(device: Any) -> None:
    with raises(InvalidSettings, "invalid-settings", "device"):
        Settings(device=device)


def test_devices() -> None:
    assert Settings(device="cpu").device == "cpu"
    beyond = f"cuda:{torch.cuda.device_count()}"
    with raises(InvalidSettings, "invalid-settings", "torch"):
        Settings(device=beyond)


def test_all_faults_are_told_at_once() -> None:
    wrong: dict[str, Any] = {
        "epsilon": -1.0,
        "patience": 0,
        "penalty": "high",
        "cuts": "sometimes",
        "device": "abacus",
    }
    with pytest.raises(InvalidSettings) as caught:
        Settings(**wrong)
    for name in wrong:
        assert name in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_from_mapping_names_the_closest_setting_and_other_faults_too() -> None:
    assert Settings.from_mapping({"seed": 4, "epsilon": 0.1}) == Settings(seed=4, epsilon=0.1)
    with pytest.raises(InvalidSettings) as caught:
        Settings.from_mapping({"epsilom": 1.0, "seed": -1, "zzz": 0, 5: 1})  # type: ignore[dict-item]
    message = str(caught.value)
    assert "unknown setting 'epsilom' (did you mean 'epsilon'?)" in message
    assert "unknown setting 'zzz'" in message
    assert "unknown setting 5" in message
    assert "seed must lie in" in message


def test_settings_are_frozen_and_survive_a_round_trip() -> None:
    chosen = Settings(seed=3, cuts="after", time_limit_s=12.5)
    with pytest.raises(FrozenInstanceError):
        chosen.seed = 4  # type: ignore[misc]
    assert Settings.from_mapping(chosen.as_dict()) == chosen


def test_zero_is_said_in_words_where_it_stands_for_something() -> None:
    """`show` printed "demands = 0" for all demands, and "ratio = 0" for auto."""
    said = {"demands": "all", "ratio": "auto", "first_steps": "the usual", "seed": 0, "prune": 0.0}
    for name, words in said.items():
        assert format_setting(RouteSettings, name, 0) == words
    assert format_setting(RouteSettings, "demands", 5) == 5
    assert format_setting(RouteSettings, "baseline", False) is False


@pytest.mark.parametrize(
    ("kind", "former", "name", "value"),
    [
        (Settings, "lean", "prune", 0.0),
        (RouteSettings, "lean", "prune", 0.01),
        (RouteSettings, "sees", "agent_scope", "own"),
        (RouteSettings, "least", "min_demand", 0.1),
    ],
)
def test_former_names_are_accepted_with_a_warning(
    kind: type[Settings], former: str, name: str, value: Any
) -> None:
    given: dict[str, Any] = {"network": "abilene"} if kind is not Settings else {}
    with pytest.warns(FutureWarning, match=f"{former} is called {name} now"):
        read = kind.from_mapping({**given, former: value})
    assert read == kind.from_mapping({**given, name: value})
    with pytest.raises(InvalidSettings, match=f"{former} is the former name of {name}; give one"):
        kind.from_stored({former: value, name: value})
    with pytest.raises(InvalidSettings, match=f"unknown setting '{former}'"):
        kind(**{**given, former: value})


def test_stored_settings_of_earlier_versions_are_read() -> None:
    """Without a word: renamed, and without those that are constants now."""
    stored = {"network": "abilene", "least": 0.1, "stages": 3, "attack_starts": 64, "lean": None}
    assert RouteSettings.from_stored(stored) == RouteSettings(network="abilene", min_demand=0.1)
    files = {"data": "a.csv", "target": "y", "rules": "r.json"}
    loop = {"lean": 0.1, "row_age_limit": 10, "final_weights": "vertex"}
    read = TrainSettings.from_stored({**files, "group": 1, "loop": loop})
    assert read.loop == {"prune": 0.1, "final_weights": "vertex"}
    with pytest.raises(InvalidSettings, match="unknown setting 'stages'"):
        RouteSettings.from_mapping({"network": "abilene", "stages": 3})


def test_jobs_are_a_whole_number_but_0() -> None:
    assert Settings(n_jobs=-1).n_jobs == -1
    with raises(InvalidSettings, "invalid-settings"):
        Settings(n_jobs=0)
