"""Names for all that `python -m experiments.digits` trains: variants, groups of them, and units.

A variant is a way to train, a unit is a variant with a number of images and a seed. Units carry
the same name in every group, so that work which groups share is done once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from cg4ai.apps.folders import complete
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.runs import files
from experiments.baselines import METHODS
from experiments.digits.data import CLASSES
from experiments.digits.settings import Rule, Scenario

SEEDS = (42, 43, 44)
SIZES = (100, 1000)
CURVE_SIZES = (10, 20, 50, 100, 200, 500, 1000)
TENTHS = (0, 2, 5, 8)  # of each class in the hard set, out of ten; all ten are `only`
FEW = (5, 20)  # members of a group, where the ablation trains few at a time
RUNS = "runs"
PUBLISHED, LITERAL = "paper-", "-literal"
Mode = Literal["ours", "paper"]
LEAST_FOR_CHOOSING = 50  # settings are chosen on a fifth of the images of each class


@dataclass(frozen=True, slots=True)
class Mixture:
    """A mixture under rules: the options of `train` that make it.

    `hard_tenths` of each class are the hard set and the others are trained on; None: all are both.
    `literal`: not tenths but so many images of each class. `published`: by the paper's method.
    `group`: members of a group, as few as these instead of the usual number.
    """

    rule: Rule
    scenario: Scenario = "hard"
    hard_tenths: int | None = None
    literal: bool = False
    constraints_only: bool = False
    augment: bool = False
    blurred: bool = True  # as usual; False: first layers are trained without a blur
    pixels: int | None = None  # that an attack may flip; None: the paper's 100
    published: bool = False
    group: int | None = None

    def hard_per_class(self, n: int) -> int | None:
        """Tenths are rounded, but one image of each class is hard and one is trained on."""
        if self.hard_tenths is None:
            return None
        if self.literal or not self.hard_tenths:
            return self.hard_tenths
        each = n // CLASSES
        return min(max(1, round(self.hard_tenths * each / 10)), each - 1)

    def problem_with(self, n: int) -> str:
        """Why there is no such run with n images; empty if there is."""
        each = n // CLASSES
        if self.hard_tenths and each == 1:
            return "one image of each class cannot be split"
        if self.literal and self.hard_tenths is not None:
            if each == 10:
                return "ten images of each class: the same as tenths"
            if self.hard_tenths >= each:
                return f"{self.hard_tenths} hard images of {each} leave none to train on"
        return ""

    def expected_s(self, n: int) -> float:
        """Rough seconds on one core, of runs that have been measured: to begin with the cheap ones.

        `published` depends on how many columns it takes, which differs between seeds.
        """
        if self.published:
            return (20 if self.scenario == "robust" else 1) * 0.3 * n
        usual = 50.0 + 0.13 * n if self.augment else 5.0 + 0.15 * n
        return usual * self._groups(n)

    def _groups(self, n: int) -> int:
        """Roughly how many groups it takes: many probabilities are hard to meet."""
        if self.scenario == "robust":
            return 8
        if self.rule == "margin":
            return 3 if self.scenario == "relabel" else 1
        if n < 500:
            return 1
        return 3 if (self.hard_tenths or 0) >= 5 else 1


@dataclass(frozen=True, slots=True)
class Baseline:
    """One of `experiments.baselines`, with the paper's settings and with chosen ones."""

    method: str
    rule: Rule = "margin"
    augment: bool = False

    @property
    def ours(self) -> str:
        """The mixture on the same data, which says how many members "as many" are."""
        if self.augment:
            return f"{self.rule}-augmented"
        return "margin-hard" if self.rule == "margin" else "probability-only"

    def problem_with(self, n: int) -> str:
        if n < LEAST_FOR_CHOOSING:
            return f"choosing settings takes {LEAST_FOR_CHOOSING} images"
        return ""

    def expected_s(self, n: int) -> float:
        """Rough seconds on one core, most of them spent on choosing settings."""
        with_100 = {"single": 15, "projection": 17, "wide": 35, "penalty": 57, "lagrangian": 57}
        with_100 |= {"average": 60, "boosting": 90, "dc3": 95}
        return with_100[self.method] * (0.6 + 0.004 * n) * (2 if self.augment else 1)


RULES: tuple[Rule, ...] = ("margin", "probability")


def _mixtures(rule: Rule) -> dict[str, Mixture]:
    """What is trained by ours and by the paper's method, by the end of its name."""
    made = {"only": Mixture(rule, constraints_only=True)}
    for tenths in TENTHS:
        made[f"split-{tenths}"] = Mixture(rule, hard_tenths=tenths)
        if tenths:
            made[f"split-{tenths}{LITERAL}"] = Mixture(rule, hard_tenths=tenths, literal=True)
    made["robust"] = Mixture(rule, "robust")
    made["robust-10"] = Mixture(rule, "robust", pixels=10)
    made["correct"] = Mixture(rule, "correct")
    made["relabel"] = Mixture(rule, "relabel")
    return made


def _variants() -> dict[str, Mixture | Baseline]:
    made: dict[str, Mixture | Baseline] = {}
    for rule in RULES:
        for name, mixture in _mixtures(rule).items():
            made[f"{rule}-{name}"] = mixture
            made[f"{PUBLISHED}{rule}-{name}"] = replace(mixture, published=True)
        made[f"{rule}-augmented"] = Mixture(rule, augment=True)
        made |= {f"{rule}-hard-by-{group}": Mixture(rule, group=group) for group in FEW}
    made["margin-hard"] = Mixture("margin")
    made["margin-unblurred"] = Mixture("margin", blurred=False)
    made["margin-relabel-by-10"] = Mixture("margin", "relabel", group=10)
    for method in METHODS:
        made[method] = Baseline(method)
        made[f"{method}-augmented"] = Baseline(method, augment=True)
    made["average-probability"] = Baseline("average", "probability")
    made["average-probability-augmented"] = Baseline("average", "probability", augment=True)
    return made


VARIANTS = _variants()
MAIN = (
    *("margin-only", "probability-only", "margin-hard", "margin-unblurred"),
    *("margin-augmented", "probability-augmented"),
)
MAIN_BASELINES = (
    *("average", "average-probability", "average-augmented", "average-probability-augmented"),
    *("wide", "wide-augmented"),
)
CURVES = ("margin-only", "probability-only", "margin-split-2", "margin-augmented")
PUBLISHED_CURVES = tuple(PUBLISHED + variant for variant in CURVES[:3])
SPLITS = tuple(
    f"{rule}-split-{tenths}{reading}"
    for rule in RULES
    for tenths in TENTHS
    for reading in (("", LITERAL) if tenths else ("",))
)
SCENARIOS: dict[str, tuple[str, ...]] = {
    "splits": SPLITS,
    "robust": tuple(f"{rule}-{name}" for rule in RULES for name in ("robust", "robust-10")),
    "correct": tuple(f"{rule}-correct" for rule in RULES),
    "relabel": tuple(f"{rule}-relabel" for rule in RULES),
}
ABLATION = (
    *(f"{rule}-hard-by-{group}" for rule in RULES for group in FEW),
    *("margin-hard", "margin-relabel", "margin-relabel-by-10"),
)
GROUPS: dict[Mode, dict[str, tuple[str, ...]]] = {
    "ours": {
        "main": (*MAIN, *MAIN_BASELINES),
        "sizes": CURVES,
        "methods": tuple(
            f"{method}{augmented}" for method in METHODS for augmented in ("", "-augmented")
        ),
        **SCENARIOS,
        "ablation": ABLATION,
    },
    "paper": {
        "main": tuple(f"{PUBLISHED}{rule}-only" for rule in RULES),
        "sizes": PUBLISHED_CURVES,
        **{
            name: tuple(PUBLISHED + variant for variant in variants)
            for name, variants in SCENARIOS.items()
        },
    },
}


@dataclass(frozen=True, slots=True, order=True)
class Unit:
    """One run: the smallest piece of work that a process does alone."""

    n: int
    seed: int
    variant: str

    @property
    def name(self) -> str:
        return f"{self.variant}-n{self.n}-s{self.seed}"

    def folder(self, out: Path) -> Path:
        return out / RUNS / self.name

    @property
    def needs(self) -> Unit | None:
        """The run whose number of members this one takes over, if any."""
        kind = VARIANTS[self.variant]
        if isinstance(kind, Mixture) or "members" not in METHODS[kind.method].reads:
            return None
        return Unit(self.n, self.seed, kind.ours)

    @property
    def expected_s(self) -> float:
        return VARIANTS[self.variant].expected_s(self.n)


def units(
    names: Sequence[str],
    *,
    seeds: Sequence[int] = SEEDS,
    sizes: Sequence[int] | None = None,
    mode: Mode = "ours",
) -> list[Unit]:
    """The units of the groups or variants named (all groups if none), without repetition.

    `sizes` None stands for each group's own. Units that cannot be, such as two tenths of one
    image, are not among them.
    """
    found: dict[Unit, None] = {}
    for name in names or GROUPS[mode]:
        usual = CURVE_SIZES if name == "sizes" else SIZES
        for variant in _named(name, mode):
            for n in sizes or usual:
                if not VARIANTS[variant].problem_with(n):
                    found |= {Unit(n, seed, variant): None for seed in seeds}
    found |= {unit.needs: None for unit in found if unit.needs is not None}
    return sorted(found, key=_order)


def _order(unit: Unit) -> tuple[Any, ...]:
    """What tables need most comes first, so that it is there when time is short.

    Attacks last, 100 images before all other sizes, a whole seed before the next one; of these
    what needs no other unit, and the cheap before the dear.
    """
    kind = VARIANTS[unit.variant]
    attacks = isinstance(kind, Mixture) and kind.scenario == "robust"
    early = (attacks, unit.n != SIZES[0], unit.n, unit.seed)
    return (*early, unit.needs is not None, unit.expected_s, unit.variant)


def left_out(
    names: Sequence[str], sizes: Sequence[int] | None, *, mode: Mode = "ours"
) -> list[str]:
    """What was asked for by size and cannot be, with the reason."""
    asked = dict.fromkeys(v for name in names or GROUPS[mode] for v in _named(name, mode))
    return [
        f"{variant} with n={n}: {reason}"
        for variant in asked
        for n in sizes or ()
        if (reason := VARIANTS[variant].problem_with(n))
    ]


def _named(name: str, mode: Mode) -> tuple[str, ...]:
    groups = GROUPS[mode]
    if name in groups:
        return groups[name]
    if name in VARIANTS:
        return (name,)
    if any(name in others for others in GROUPS.values()):
        raise InvalidInput(
            f"--mode {mode} has no part {name!r}; use one of {', '.join(groups)}, or another --mode"
        )
    known = (*groups, *VARIANTS)
    numbers = "; several numbers are written 42,43" if name.isdigit() else ""
    raise InvalidInput(
        f"unknown part {name!r}{did_you_mean(name, known)}{numbers}; use a group, any of "
        f"{', '.join(groups)}, or a variant, any of {', '.join(VARIANTS)}"
    )


def ended(out: Path) -> Iterator[Unit]:
    """Units under `out` that have ended, whoever ran them; one that was interrupted has not."""
    for summary in sorted((out / RUNS).glob("*/summary.json")):
        match = re.fullmatch(r"(.+)-n(\d+)-s(\d+)", summary.parent.name)
        if match is None or match[1] not in VARIANTS:
            continue
        if complete(files.read_json(summary)):
            yield Unit(int(match[2]), int(match[3]), match[1])
