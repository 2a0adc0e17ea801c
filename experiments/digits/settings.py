"""What a digits run can be told: scenario and images, and how mixtures are trained."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from cg4ai.settings import (
    MOST_UNITS,
    CheckedSettings,
    device_setting,
    hidden_setting,
    jobs_setting,
    seed_setting,
    setting,
    threads_setting,
    time_limit_setting,
)

Rule = Literal["margin", "probability"]
Scenario = Literal["plain", "hard", "robust", "correct", "relabel"]
AttackName = Literal["flips", "smallest", "both"]
SearchName = Literal["ascent", "mip"]
UNSET: Any = math.nan  # stands for what the rule, or the kind of run, usually has
FLIPPED = 100  # pixels at most
EPOCHS = 1000  # of a member that is trained alone, at most
ATTACK_ROUNDS = 300  # of attacks and groups at most; a run ends when attacks find nothing
SMALL_ROUNDS = 60  # of small groups at most; a run ends by itself long before
# threshold, output_limit and headroom, which mean one thing for leads and another for probabilities
BY_RULE: dict[str, dict[str, float | None]] = {
    "margin": {"threshold": 0.05, "output_limit": 1000.0, "headroom": 1.0},
    "probability": {"threshold": 0.51, "output_limit": None, "headroom": 0.2},
}


def unset(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


@dataclass(frozen=True, kw_only=True)
class Recipe(CheckedSettings):
    """How digit mixtures are trained; `usual_recipe` gives the defaults, found by measurement.

    group: members trained together on the loss of their mean; rounds: groups at most.
    steps, learning_rate, batch_size: of each group; the batch is drawn from the loss's images and
        their copies, or None for all images at once.
    individual: weight of each member's own loss beside that of the mean.
    row_weight, headroom: of the hinge on the rows; the hinge aims this much above the threshold.
        The weight is that of as many rows as images, and falls with the share of rows.
    blur, gain: of the members' first layer, see `SmoothNetwork`.
    threshold: what a row demands: a lead in logits, or a probability.
    output_limit: no member's logits exceed this on the images it was trained on; the scale on
        which a margin's threshold is to be read.
    threshold, output_limit, headroom: by the rule where left out.
    copies: affine copies of each image as further data, turned by up to `turn` degrees, scaled by
        the share `scale` and moved by `shift` pixels; 0 is no augmentation.
    enough: with all rows met and a loss of at most this, no further group is trained.
    """

    rule: Rule = setting("margin", "margin (averages logits) or probability (averages those).")
    hidden: int = setting(4, "Hidden neurons of a member.", least=1, most=MOST_UNITS)
    threshold: float = hidden_setting(UNSET)
    output_limit: float | None = hidden_setting(UNSET, least=1e-9)
    group: int = hidden_setting(100, least=1)
    rounds: int = hidden_setting(4, least=1)
    steps: int = hidden_setting(1000, least=1)
    learning_rate: float = hidden_setting(1e-2, least=1e-12)
    batch_size: int | None = hidden_setting(256, least=1)
    individual: float = hidden_setting(0.3, least=0)
    row_weight: float = hidden_setting(2.0, least=0)
    headroom: float = hidden_setting(UNSET)
    blur: float = hidden_setting(2.0, least=0)
    gain: float = hidden_setting(1.0, least=0)
    copies: int = hidden_setting(0, least=0)
    enough: float = hidden_setting(0.05, least=0)
    turn: float = hidden_setting(12.0, least=0, most=180)
    scale: float = hidden_setting(0.12, least=0, most=0.99)
    shift: float = hidden_setting(2.0, least=0, most=28)
    column_limit: int = hidden_setting(400, least=1)
    single_model: bool = setting(False, "One network that meets all rows, in place of a mixture.")
    seed: int = seed_setting("Of the training images and the members.")
    device: str = device_setting()

    def __post_init__(self) -> None:
        for name, usual in BY_RULE.get(self.rule, {}).items():
            if unset(getattr(self, name)):
                object.__setattr__(self, name, usual)
        super().__post_init__()

    def inconsistencies(self) -> list[str]:
        """What does not make the class demanded the answer, or belongs to the other rule."""
        faults = []
        if self.rule == "margin" and not 0 < self.threshold < math.inf:
            faults.append(f"the threshold of a margin must be positive, got {self.threshold}")
        if self.rule == "probability":
            if not 0.5 < self.threshold < 1:
                faults.append(
                    "the threshold of a probability must lie between 0.5 and 1, so that the class "
                    f"demanded is the answer, got {self.threshold}"
                )
            if self.output_limit is not None:
                faults.append(
                    "output_limit is the scale of margins; probabilities have none, leave it out "
                    f"or give None, got {self.output_limit}"
                )
        return faults


def usual_recipe(
    rule: Rule,
    n: int,
    *,
    augment: bool,
    constraints_only: bool = False,
    small_groups: bool = False,
    scenario: Scenario = "hard",
    attacked: bool = False,
) -> dict[str, Any]:
    """What suits one kind of run, by name.

    Copies of the images teach what a blur would; with few images and no copies the blur is wide.
    Many probabilities without a loss are not met by one group however large: groups of 20, trained
    by the duals of what the others miss, meet them in a sixth of the time. Small groups, which miss
    rows at first whatever the rule, are priced by duals round after round. Where images are
    attacked (`attacked`), so many rounds follow that each is a small one, until attacks find
    nothing. A base member whose mistakes are to be corrected must make some: of few images it is
    trained for a fifth of the paper's epochs.
    """
    margin, few = rule == "margin", n < 300
    hard_to_meet = constraints_only and not margin and not few
    steps = 1000 if few and not augment else 2000 if augment and not few else 2500
    group, rounds = (20, 20) if hard_to_meet else (200 if margin and augment else 100, 4)
    if attacked:
        group, rounds, steps = 20, ATTACK_ROUNDS, steps // 2
    if small_groups:
        group, rounds = (1 if few else 2), SMALL_ROUNDS
    return {
        "group": group,
        "rounds": rounds,
        "column_limit": group * rounds if attacked else 400,
        "steps": steps,
        "individual": 0.3 if margin else 0.0,
        "row_weight": (2.0 if augment else 6.0) if margin else 10.0,
        "blur": 0.0 if augment else 2.0 if few else 1.0,
        "gain": 1.0 if few else 1.5,
        "copies": max(1, min(200, 60_000 // n)) if augment else 0,
        "base_epochs": EPOCHS // 5 if scenario == "correct" and few else EPOCHS,
        "enough": 0.05 if margin else 1.0,  # probabilities of small members stay far from 1
    }


@dataclass(frozen=True, kw_only=True)
class DigitsSettings(Recipe):
    """What to train; of the recipe, what is not given is as usual for rule, images and copies.

    stored: required images kept for figures.
    base_epochs: of the base member, which is stopped early where it ceases to improve. With the
        paper's 1,000 it answers nearly all of 100 training images right.
    """

    group: int = hidden_setting(UNSET, least=1)
    rounds: int = hidden_setting(UNSET, least=1)
    steps: int = hidden_setting(UNSET, least=1)
    individual: float = hidden_setting(UNSET, least=0)
    row_weight: float = hidden_setting(UNSET, least=0)
    blur: float = hidden_setting(UNSET, least=0)
    gain: float = hidden_setting(UNSET, least=0)
    copies: int = hidden_setting(UNSET, least=0)
    enough: float = hidden_setting(UNSET, least=0)
    column_limit: int = hidden_setting(UNSET, least=1)
    scenario: Scenario = setting("hard", "plain, hard, robust, correct or relabel.", argument=True)
    n: int = setting(100, "Training images, a multiple of 10.", least=10, option="--n")
    hard_per_class: int | None = setting(
        None, "Images per class that are rows, others train; unset: all do both.", least=0
    )
    constraints_only: bool = setting(False, "Rows alone, no loss.")
    small_groups: bool = setting(
        False,
        "One member (2 from 300 images on) for each pricing, by the duals, round after round.",
    )
    augment: bool = setting(False, "Train on affine copies too; they are never rows.")
    data: Path | None = setting(
        None, "MNIST IDX files; the 5,000 built-in images if unset.", metavar="DIR"
    )
    attack: AttackName = setting("flips", "For robust: flips, smallest or both.")
    pixels: int = setting(FLIPPED, "For robust: pixels that may be flipped.", least=1, most=784)
    radius: float = setting(
        0.0, "For robust, in place of attacks: most that any pixel may change.", least=0, most=1
    )
    separator: SearchName = setting("ascent", "Search within the radius: ascent or mip (exact).")
    radii: int = setting(0, "For robust: training images whose exact radius is found.", least=0)
    jobs: int | None = jobs_setting(
        "For robust within a radius: images searched at a time, each in a process; -1: all cores."
    )
    time_limit_s: float = time_limit_setting()
    threads: int | None = threads_setting()
    stored: int = hidden_setting(2000, least=0)
    base_epochs: int = setting(
        UNSET,
        f"Of the base member; {EPOCHS}, or for correct a fifth of that with fewer than 300 images.",
        least=1,
    )

    def __post_init__(self) -> None:
        usual = {}
        if isinstance(self.n, int) and self.n > 0:
            usual = usual_recipe(
                self.rule,
                self.n,
                augment=bool(self.augment),
                constraints_only=bool(self.constraints_only),
                small_groups=bool(self.small_groups),
                scenario=self.scenario,
                attacked=self.scenario == "robust" and not self.radius,
            )
        for one in fields(type(self)):
            if unset(getattr(self, one.name)) and one.name in usual:
                object.__setattr__(self, one.name, usual[one.name])
        super().__post_init__()

    def inconsistencies(self) -> list[str]:
        faults = super().inconsistencies()
        asked = (self.attack, self.pixels)
        if self.scenario != "robust" and asked != ("flips", FLIPPED):
            faults.append(
                f"attack and pixels belong to the scenario robust, got {self.attack} and "
                f"{self.pixels} with {self.scenario}"
            )
        within = (self.radius, self.separator, self.radii) != (0.0, "ascent", 0)
        if within and (self.scenario != "robust" or self.rule != "margin"):
            faults.append(
                "radius, separator and radii belong to the scenario robust with the rule margin "
                "(a softmax has no exact search), got "
                f"{self.scenario} with {self.rule}"
            )
        if (self.separator == "mip" or self.radii) and not self.radius:
            faults.append("separator and radii go with a radius; give one, such as 0.02")
        if self.scenario != "hard" and (self.hard_per_class is not None or self.constraints_only):
            faults.append(
                f"hard_per_class and constraints_only belong to the scenario hard, got "
                f"{self.scenario}"
            )
        if self.constraints_only and self.copies:
            faults.append(
                "copies are further data of the loss, and with constraints_only there is none; "
                "leave out augment"
            )
        return faults
