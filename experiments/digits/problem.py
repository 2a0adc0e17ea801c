"""The digits problem for the loop: which images are rows, which are in the loss, which members."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.colgen.separation import GradientAscent, MixedInteger
from cg4ai.compile.problem import Problem
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.layout import Layout
from cg4ai.objectives import Batch, Supervised
from cg4ai.protocols import Separator
from cg4ai.records import Array, IntArray
from cg4ai.rules import Margin, Probability
from cg4ai.rules.regions import Box
from cg4ai.rules.rows import Rows
from cg4ai.rules.violations import OutputModel
from cg4ai.seeds import derive_seed, generator
from cg4ai.settings import Settings
from experiments.digits.data import CLASSES, Split
from experiments.digits.members import DigitPricer, SmoothNetwork
from experiments.digits.separation import Attack, PixelFlips, Withstand, attacked, broken
from experiments.digits.settings import Recipe, Scenario

RELABELLED, RELABELLED_AS = 3, 2
ALONE_TRIES = 12
SIDE = 28  # pixels of an image, either way
CUTS = 3  # rows from the ball around one image and one search
FINAL_ATTACKS = 1000  # on mixtures with final weights, each with the rows that the last one broke


@dataclass(frozen=True)
class Demand:
    """What one scenario asks: images in the loss, images that are rows, attacks to withstand.

    `rows` hold the labels demanded, which are not the true ones where digits are relabelled; they
    hold for every image within `radius` of theirs, in the maximum norm, where that is positive,
    and `exact` says that mixed-integer programs search there.
    """

    scenario: Scenario
    loss: tuple[Array, IntArray] | None
    rows: tuple[Array, IntArray] | None
    attacks: Sequence[Attack] = ()
    radius: float = 0.0
    exact: bool = False


def demand(
    scenario: Scenario,
    split: Split,
    *,
    base: OutputModel | None,
    hard_per_class: int | None = None,
    constraints_only: bool = False,
    attacks: Sequence[Attack] = (),
    radius: float = 0.0,
    exact: bool = False,
) -> Demand:
    """The images of a scenario; `base` is the mixture of the base member alone."""
    images, labels = split.train_images, split.train_labels
    everything = (images, labels)
    if scenario not in get_args(Scenario):
        hint = did_you_mean(str(scenario), get_args(Scenario))
        raise InvalidInput(
            f"scenario must be one of {', '.join(get_args(Scenario))}, got {scenario!r}{hint}"
        )
    if scenario != "hard" and (hard_per_class is not None or constraints_only):
        raise InvalidInput(
            f"hard_per_class and constraints_only belong to the scenario hard, got {scenario}"
        )
    if scenario != "robust" and attacks:
        raise InvalidInput(f"attacks belong to the scenario robust, got {scenario}")
    if scenario == "plain":
        return Demand(scenario, everything, None)
    if scenario == "robust" and radius:
        return Demand(scenario, everything, everything, radius=radius, exact=exact)
    if scenario == "robust":
        return Demand(scenario, everything, None, tuple(attacks) or (PixelFlips(),))
    if scenario == "correct":
        if base is None:
            raise InvalidInput("the scenario correct needs the base member whose mistakes it is of")
        chosen = broken(base, images, labels)
        rows = (images[chosen], labels[chosen]) if chosen.any() else None
        return Demand(scenario, everything, rows)
    if scenario == "relabel":
        chosen = labels == RELABELLED
        return Demand(scenario, everything, (images[chosen], np.full(chosen.sum(), RELABELLED_AS)))
    hard = _first_of_each_class(labels, hard_per_class)
    rows = (images[hard], labels[hard]) if hard.any() else None
    left = (images[~hard], labels[~hard]) if (~hard).any() else None
    trained = everything if hard_per_class is None else left
    return Demand(scenario, None if constraints_only else trained, rows)


def _first_of_each_class(
    labels: IntArray, count: int | None
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which images are in the hard set: `count` of each class, or all for None."""
    chosen = np.zeros(len(labels), bool)
    for label in range(CLASSES):
        mine = np.flatnonzero(labels == label)
        if count is not None and not 0 <= count <= len(mine):
            raise InvalidInput(
                f"hard_per_class must lie between 0 and the {len(mine)} training images of class "
                f"{label}, got {count}"
            )
        chosen[mine[:count]] = True
    return chosen


@dataclass(frozen=True)
class DigitLoss(Supervised):
    """Mean loss over images; batches are drawn from the affine copies in `soft` where given.

    `soft` includes the images themselves, in float32 already: a batch is one look-up.
    """

    def batch(
        self, size: int | None, generator: torch.Generator, *, device: str, dtype: torch.dtype
    ) -> Batch:
        if size is None or self.soft is None:
            return super().batch(size, generator, device=device, dtype=dtype)
        inputs, targets = torch.as_tensor(self.soft[0]), torch.as_tensor(self.soft[1])
        pick = torch.randint(len(inputs), (size,), generator=generator)
        return Batch(inputs[pick].to(device=device, dtype=dtype), targets[pick].to(device), None)


def digits_problem(wanted: Demand, recipe: Recipe, *, base: Ensemble | None) -> Problem:
    """Objective, rows, pricer; where attacked, the first cuts: what fools the base member.

    That member is the first column where its mistakes are to be corrected.
    """
    requirements: list[Margin | Probability | Withstand] = []
    start_rows: list[Rows] = []
    if wanted.rows is not None:
        requirements.append(listed(*wanted.rows, recipe, name=wanted.scenario))
    if wanted.radius:
        requirements += balls(wanted, recipe)
    if wanted.attacks:
        assert wanted.loss is not None
        assert base is not None
        withstand = Withstand(*wanted.loss, wanted.attacks, recipe.rule, recipe.threshold)
        requirements.append(withstand)
        inputs, which = attacked(base, withstand, seed=derive_seed(recipe.seed, 0, "base attack"))
        if len(which):
            start_rows.append(withstand.rows_at(inputs, which, len(requirements) - 1))
    start = []
    if wanted.scenario == "correct":  # the column whose mistakes are the rows
        assert base is not None
        start = [(base.parts[0].members, np.zeros(1, np.int64))]
    return Problem(
        objective=_objective(wanted, recipe),
        requirements=tuple(requirements),
        pricers=(_pricer(recipe, row_weight=recipe.row_weight * _share_of_rows(wanted)),),
        layout=Layout.single(CLASSES),
        start=tuple(start),
        start_rows=tuple(start_rows),
    )


def listed(
    images: Array, labels: IntArray, recipe: Recipe, *, name: str, own: bool = False
) -> Margin | Probability:
    """Every image answered by its label: the requirement that `rows` and audits come from.

    With `own` margins are those of the mixture, not the mean of its members': weights alone can
    do far more about those.
    """
    if recipe.rule == "probability":
        return Probability(images, labels, recipe.threshold, name=name, classes=CLASSES)
    form = "pairwise" if own else "member"
    return Margin(images, labels, recipe.threshold, name=name, classes=CLASSES, form=form)


def balls(wanted: Demand, recipe: Recipe) -> list[Margin]:
    """The rule at every image within the radius of each row's, one requirement for each."""
    assert wanted.rows is not None
    search: Separator = MixedInteger(eager=True) if wanted.exact else GradientAscent(starts=8)
    return [
        Margin(
            Box(np.maximum(image - wanted.radius, 0.0), np.minimum(image + wanted.radius, 1.0)),
            int(label),
            recipe.threshold,
            form="pairwise",
            classes=CLASSES,
            name=f"within {wanted.radius:g} of image {number}",
            separator=search,
        )
        for number, (image, label) in enumerate(zip(*wanted.rows, strict=True))
    ]


def _objective(wanted: Demand, recipe: Recipe) -> DigitLoss:
    if wanted.loss is None:
        if wanted.rows is None:
            raise InvalidInput("nothing to learn from: there are neither rows nor a loss")
        return DigitLoss(*wanted.rows, "none", "average")
    images, labels = wanted.loss
    soft = None
    if recipe.copies:
        made = generator(derive_seed(recipe.seed, 0, "copies"))
        plain = torch.as_tensor(images, dtype=torch.float32)
        affine = Affine(recipe.turn, recipe.scale, recipe.shift)
        copies = [affine.copies(plain, made) for _ in range(recipe.copies)]
        pool = torch.cat([plain, *copies]).numpy()
        soft = (pool, np.tile(labels, recipe.copies + 1))
    loss = "cross_entropy" if recipe.rule == "margin" else "log_loss"
    return DigitLoss(images, labels, loss, "mixture", soft=soft)


def _share_of_rows(wanted: Demand) -> float:
    """What the rows' term of training counts, 1 where every image is a row.

    It is a mean over rows as the loss is a mean over images. Unscaled, a few rows that contradict
    the loss would outweigh all images: relabelled networks then answered 2 whatever they saw.
    """
    if wanted.rows is None or wanted.loss is None or wanted.attacks:
        return 1.0
    return min(1.0, len(wanted.rows[1]) / len(wanted.loss[1]))


def _pricer(recipe: Recipe, *, row_weight: float) -> DigitPricer:
    training = GradientPricer(
        SmoothNetwork(recipe.rule, recipe.hidden, recipe.blur, recipe.gain),
        restarts=1,
        group=recipe.group,
        training=Training(recipe.steps, recipe.learning_rate, "onecycle"),
        batch_size=recipe.batch_size,
        individual=recipe.individual,
        row_weight=row_weight,
        headroom=recipe.headroom,
        finish=0.0,
        output_limit=recipe.output_limit,
    )
    return DigitPricer(training, recipe.enough)


def digit_settings(recipe: Recipe, wanted: Demand) -> Settings:
    """The loop's settings: groups until the rows are met and the loss falls by less than half."""
    usual = Settings(
        guarantee="attacked",
        column_limit=recipe.column_limit,
        # one member alone is trained quickly, and takes some tries to meet all rows
        iteration_limit=max(recipe.rounds, ALONE_TRIES if recipe.single_model else 0),
        improvement_tolerance=0.5,
        improvement_window=1,
        patience=1,
        final_weights="uniform",
        single_model=recipe.single_model,
        seed=recipe.seed,
        device=recipe.device,
    )
    if wanted.radius:
        return replace(usual, cut_rounds=1, cuts_per_round=CUTS, row_margin=1e-6)
    if not wanted.attacks:
        return usual
    images = 0 if wanted.loss is None else len(wanted.loss[0])
    # one attack per group; the final weights are attacked, too, until nothing is found
    return replace(
        usual,
        cut_rounds=1,
        cuts_per_round=max(1, images * len(wanted.attacks)),
        final_rounds=FINAL_ATTACKS,
        improvement_tolerance=0.0,
    )


@dataclass(frozen=True, slots=True)
class Affine:
    """How far a copy may be turned (degrees), scaled (share) and moved (pixels), either way."""

    degrees: float = 12.0
    scale: float = 0.12
    shift: float = 2.0

    def __post_init__(self) -> None:
        if not (0 <= self.degrees <= 180 and 0 <= self.scale < 1 and 0 <= self.shift <= SIDE):
            raise InvalidInput(
                "affine copies need degrees in [0, 180], scale in [0, 1) and shift in [0, "
                f"{SIDE}], got {self}"
            )

    def copies(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """One copy of each image, (n, 784) -> (n, 784), drawn uniformly and interpolated."""
        draws = torch.rand(4, len(images), generator=generator).to(images) * 2 - 1
        angle = draws[0] * math.radians(self.degrees)
        size = 1 + draws[1] * self.scale
        moved = draws[2:] * (2 * self.shift / SIDE)  # grid_sample counts from -1 to 1
        cosine, sine = angle.cos() / size, angle.sin() / size
        first = torch.stack([cosine, -sine, moved[0]], dim=1)
        second = torch.stack([sine, cosine, moved[1]], dim=1)
        shape = (len(images), 1, SIDE, SIDE)
        grid = functional.affine_grid(torch.stack([first, second], dim=1), list(shape), False)
        pictures = functional.grid_sample(
            images.reshape(shape), grid, mode="bilinear", padding_mode="zeros", align_corners=False
        )
        return pictures.reshape(len(images), SIDE * SIDE)
