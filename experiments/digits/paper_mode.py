"""The digits method as published, on the same loop: to see what the package's own recipe changes.

One 784-4-10 network per pricing, trained on the reduced cost alone (Adam at 1e-3, at most 1,000
epochs, early stopping at patience 50), the average of the members' losses as the objective, at
most 400 columns, the master's own weights; cuts after column generation has ended. What the paper
leaves open is listed in experiments/digits/README.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cg4ai.apps.protocol import TrainingTask
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.compile.problem import Problem
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.objectives import Supervised
from cg4ai.rules import Margin, Probability
from cg4ai.rules.rows import Rows
from cg4ai.seeds import derive_seed
from cg4ai.settings import Settings, hidden_setting
from experiments.digits.data import CLASSES
from experiments.digits.evaluate import Prepared
from experiments.digits.fewest import Study
from experiments.digits.members import network
from experiments.digits.problem import Demand, listed
from experiments.digits.separation import Withstand, attacked
from experiments.digits.settings import EPOCHS, DigitsSettings, Recipe

PATIENCE, LEARNING_RATE = 50, 1e-3


@dataclass(frozen=True, kw_only=True)
class PublishedSettings(DigitsSettings):
    """What of the usual recipe has no part in the published method is at its neutral value."""

    group: int = hidden_setting(1, least=1)
    steps: int = hidden_setting(EPOCHS, least=1)
    rounds: int = hidden_setting(1000, least=1)
    learning_rate: float = hidden_setting(LEARNING_RATE, least=1e-12)
    batch_size: int | None = hidden_setting(None, least=1)
    individual: float = hidden_setting(0.0, least=0)
    row_weight: float = hidden_setting(0.0, least=0)
    blur: float = hidden_setting(0.0, least=0)
    gain: float = hidden_setting(1.0, least=0)
    copies: int = hidden_setting(0, least=0)
    enough: float = hidden_setting(0.0, least=0)
    column_limit: int = hidden_setting(400, least=1)


class PublishedDigits(Study):
    """The digits application with the published method in place of ours."""

    settings = PublishedSettings

    def describe(self, prepared: Prepared) -> dict[str, Any]:
        return {**super().describe(prepared), "mode": "paper"}

    def problem(self, prepared: Prepared) -> TrainingTask:
        asked = prepared.settings
        settings = published_settings(asked, prepared.demand)
        words = (
            f"training: up to {settings.column_limit} networks on {asked.n} images, one at a "
            f"time, {asked.steps} epochs each at most"
        )
        return TrainingTask(published_problem(prepared), settings, words)


def published_settings(recipe: Recipe, wanted: Demand) -> Settings:
    """The paper's recipe, with a row for every image that is broken by then."""
    images = 0 if wanted.loss is None else len(wanted.loss[0])
    return Settings.paper(
        column_limit=recipe.column_limit,
        iteration_limit=recipe.rounds,
        cuts_per_round=max(1, images),
        seed=recipe.seed,
        device=recipe.device,
    )


def published_problem(prepared: Prepared) -> Problem:
    """Scenarios that are about a base column begin with it; the others with no column at all."""
    asked, wanted = prepared.settings, prepared.demand
    requirements: list[Margin | Probability | Withstand] = []
    start_rows: list[Rows] = []
    if wanted.rows is not None:
        requirements.append(listed(*wanted.rows, asked, name=wanted.scenario))
    if wanted.attacks:
        assert wanted.loss is not None
        withstand = Withstand(*wanted.loss, wanted.attacks, asked.rule, asked.threshold)
        requirements.append(withstand)
        seed = derive_seed(asked.seed, 0, "base attack")
        inputs, which = attacked(prepared.base, withstand, seed=seed)
        if len(which):
            start_rows.append(withstand.rows_at(inputs, which, len(requirements) - 1))
    (base,) = prepared.base.parts
    about_base = wanted.scenario in ("robust", "correct", "relabel")
    return Problem(
        objective=_objective(wanted, asked),
        requirements=tuple(requirements),
        pricers=(published_pricer(asked),),
        layout=Layout.single(CLASSES),
        start=((base.members, np.zeros(1, np.int64)),) if about_base else (),
        start_rows=tuple(start_rows),
        plain_first=False,
    )


def _objective(wanted: Demand, recipe: Recipe) -> Supervised:
    """The members' own losses, averaged by the weights; none where all images are constrained."""
    if wanted.loss is not None:
        loss = "cross_entropy" if recipe.rule == "margin" else "log_loss"
        return Supervised(*wanted.loss, loss, "average")
    if wanted.rows is None:
        raise InvalidInput("nothing to learn from: there are neither rows nor a loss")
    return Supervised(*wanted.rows, "none", "average")


def published_pricer(recipe: Recipe) -> GradientPricer:
    """One network per call, by its reduced cost from the first epoch to the last."""
    return GradientPricer(
        network(recipe.rule, recipe.hidden),
        restarts=1,
        training=Training(recipe.steps, recipe.learning_rate, patience=PATIENCE, decay=1.0),
        finish=1.0,
        output_limit=recipe.output_limit,
    )
