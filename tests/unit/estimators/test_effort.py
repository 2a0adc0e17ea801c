"""One word for effort: less training, the same guarantees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cg4ai import ConstrainedClassifier, ConstrainedRegressor
from cg4ai.colgen.pricing.defaults import iterate_pricers
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.trees import TreePricer
from cg4ai.errors import InvalidInput
from cg4ai.records import StopReason
from cg4ai.rules import Box, Linear, Probability
from raising import raises


@pytest.fixture(scope="module")
def table() -> tuple[Any, Any]:
    random = np.random.default_rng(5)
    x = random.uniform(-1, 1, (1100, 4))
    return x, np.sign(x[:, 0]) + x[:, 1] ** 2 + 0.1 * random.normal(size=1100)


def test_an_unknown_word_is_refused(table: tuple[Any, Any]) -> None:
    with raises(InvalidInput, "unknown-name", "default"):
        ConstrainedRegressor(effort="defualt").fit(*table)


def test_a_rule_over_a_region_holds_at_every_input_with_boosted_members(
    table: tuple[Any, Any],
) -> None:
    x, y = table
    cap = Linear(Box([-1] * 4, [1] * 4), [1.0], 0.8, "<=")
    model = ConstrainedRegressor(effort="fast", random_state=0).fit(x, y, requirements=[cap])
    kinds = {part.members.innermost().kind for part in model.ensemble_.used}
    assert "tree" in kinds
    assert model.audit_[0].strength == "shielded"
    anywhere = np.random.default_rng(6).uniform(-1, 1, (20_000, 4))
    assert model.predict(anywhere).max() <= 0.8 + 1e-9
    assert not model.cautions_


def test_fast_trains_once_where_no_rule_asks_for_more(table: tuple[Any, Any]) -> None:
    model = ConstrainedRegressor(effort="fast", random_state=0).fit(*table)
    assert model.stop_reason_ is StopReason.ROUND_LIMIT
    assert sum(one.trainings or 0 for one in model.history_) == 1
    assert model.score(*table) > 0.9


@pytest.mark.parametrize(("classes", "networks"), [(2, False), (3, True)])
def test_fast_has_networks_where_rows_are_few_for_their_classes(
    classes: int, networks: bool
) -> None:
    x = np.random.default_rng(1).normal(size=(1200, 2))
    y = (x[:, 0] > 0) + (classes - 2) * (x[:, 1] > 0)
    problem = ConstrainedClassifier(effort="fast", random_state=0).problem(x, y)
    trained = {type(part) for one in problem.pricers for part in iterate_pricers(one)}
    assert TreePricer in trained
    assert (GradientPricer in trained) == networks


def test_rows_are_met_whatever_the_effort() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 3))
    y = (x[:, 0] > 0).astype(int)
    odd = Probability(x[:3], 1 - y[:3], at_least=0.7)
    model = ConstrainedClassifier(effort="fast", random_state=0).fit(x, y, requirements=[odd])
    assert model.audit_[0].holds


def test_what_is_set_by_itself_wins(table: tuple[Any, Any]) -> None:
    model = ConstrainedRegressor(
        effort="fast", members="network", steps=7, iteration_limit=3, random_state=0
    )
    assert model.training_of_networks(100).steps == 7
    assert model.training_of_networks(10_000).steps == 7
    settings = model.run_settings()
    assert (settings.iteration_limit, settings.training_rounds) == (3, 0)


@pytest.mark.filterwarnings("ignore::cg4ai.errors.FitWarning")
@pytest.mark.parametrize("limit", [1, 3])
def test_few_columns_have_room_for_few_members(table: tuple[Any, Any], limit: int) -> None:
    """Without simple members to start from, a boosted model is the first of the mixture."""
    model = ConstrainedRegressor(
        settings={"column_limit": limit}, steps=5, iteration_limit=2, random_state=0
    )
    model.fit(*table)
    assert model.result_.columns <= limit
    assert np.isfinite(model.predict(table[0])).all()
