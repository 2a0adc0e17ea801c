"""The map from the paper to the code names what there is, and the paper's recipe is one setting."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from cg4ai import Problem, Settings, solve
from cg4ai import colgen as paper
from cg4ai.colgen.pricing.exact.affine import AffinePricer
from cg4ai.errors import InvalidSettings
from cg4ai.layout import Layout
from cg4ai.objectives import Supervised
from cg4ai.rules import Box, Linear

NAMES = sorted(set(re.findall(r"`((?:[a-z_0-9]+\.)*[A-Za-z_0-9]+)`", paper.__doc__ or "")))


def named(name: str) -> Any:
    """What a dotted name of the docstring stands for: a module, or something in one."""
    whole = name if name.startswith("cg4ai") else f"cg4ai.colgen.{name}"
    parts = whole.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(whole)


@pytest.mark.parametrize("name", [one for one in NAMES if "." in one])
def test_the_map_names_what_there_is(name: str) -> None:
    assert named(name) is not None


def test_both_algorithms_are_mapped_line_by_line() -> None:
    text = paper.__doc__ or ""
    lines = {1: {1, 3, 4, 5, 6, 7, 8, 9}, 2: {1, 3, 4, 5, 6, 7, 8}}  # line 2 of each is "repeat"
    for algorithm, wanted in lines.items():
        found: set[int] = set()
        for first, last in re.findall(
            rf"\| Algorithm {algorithm}, lines? (\d+)(?:-(\d+))? \|", text
        ):
            found |= set(range(int(first), int(last or first) + 1))
        assert found == wanted


def test_the_recipe_can_be_changed_like_all_settings() -> None:
    assert Settings.paper(seed=3, patience=7) == Settings(
        guarantee="attacked",
        epsilon=1e-6,
        patience=7,
        cuts="after",
        cuts_per_round=1,
        smoothing=0.0,
        final_weights="vertex",
        final_rounds=0,
        seed=3,
    )
    with pytest.raises(InvalidSettings):
        Settings.paper(cut="before")


def test_cuts_come_after_column_generation_one_at_a_time() -> None:
    x = np.linspace(-1, 1, 21)[:, None]
    rule = Linear(Box([-1.0], [1.0]), [1.0], 0.5, "<=", name="cap")
    problem = Problem(
        Supervised(x, 2 * x, "squared", "average"), [rule], [AffinePricer(1, 1)], Layout.single(1)
    )
    result = solve(problem, Settings.paper())
    added = [(one.added_columns, one.added_rows) for one in result.history]
    assert any(rows for _, rows in added)
    assert all(rows <= 1 for _, rows in added)
    assert not any(columns and rows for columns, rows in added), "never in one iteration"
    assert result.feasible
