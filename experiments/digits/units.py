"""Names for all that `python -m experiments.digits` trains: variants, groups of them, and units.

A variant is a way to train, a unit is a variant with a number of images and a seed. Units carry
the same name in every group, so that work which groups share is done once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cg4ai.apps.digits.settings import Rule, Scenario
from cg4ai.errors import InvalidInput, did_you_mean
from experiments.baselines import METHODS

SEEDS = (42, 43, 44)
SIZES = (100, 1000)
CURVE_SIZES = (10, 20, 50, 100, 200, 500, 1000)
TENTHS = (0, 2, 5, 8)  # of each class in the hard set, out of ten; all ten are `only`
RUNS = "runs"
LEAST_FOR_CHOOSING = 50  # settings are chosen on a fifth of the images of each class


@dataclass(frozen=True, slots=True)
class Mixture:
    """A mixture under rules: the options of `cg4ai digits` that make it.

    `hard_tenths` of each class are the hard set and the others are trained on; None: all are both.
    """

    rule: Rule
    scenario: Scenario = "hard"
    hard_tenths: int | None = None
    constraints_only: bool = False
    augment: bool = False
    blurred: bool = True  # as usual; False: first layers are trained without a blur

    def hard_per_class(self, n: int) -> int | None:
        return None if self.hard_tenths is None else self.hard_tenths * n // 100

    def problem_with(self, n: int) -> str:
        """Why there is no such run with n images; empty if there is."""
        if self.hard_tenths is not None and self.hard_tenths * n % 100:
            return f"{self.hard_tenths} tenths of {n / 10:g} images of a class is no whole number"
        return ""


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


RULES: tuple[Rule, ...] = ("margin", "probability")


def _variants() -> dict[str, Mixture | Baseline]:
    made: dict[str, Mixture | Baseline] = {}
    for rule in RULES:
        made[f"{rule}-only"] = Mixture(rule, constraints_only=True)
        made[f"{rule}-augmented"] = Mixture(rule, augment=True)
        for tenths in TENTHS:
            made[f"{rule}-split-{tenths}"] = Mixture(rule, hard_tenths=tenths)
        made[f"{rule}-robust"] = Mixture(rule, "robust")
        made[f"{rule}-correct"] = Mixture(rule, "correct")
        made[f"{rule}-relabel"] = Mixture(rule, "relabel")
    made["margin-hard"] = Mixture("margin")
    made["margin-unblurred"] = Mixture("margin", blurred=False)
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
GROUPS: dict[str, tuple[str, ...]] = {
    "main": (*MAIN, *MAIN_BASELINES),
    "splits": tuple(f"{rule}-split-{tenths}" for rule in RULES for tenths in TENTHS),
    "sizes": CURVES,
    "methods": tuple(
        f"{method}{augmented}" for method in METHODS for augmented in ("", "-augmented")
    ),
    "robust": ("margin-robust", "probability-robust"),
    "correct": ("margin-correct", "probability-correct"),
    "relabel": ("margin-relabel", "probability-relabel"),
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


def units(
    names: Sequence[str], *, seeds: Sequence[int] = SEEDS, sizes: Sequence[int] | None = None
) -> list[Unit]:
    """The units of the groups or variants named (all groups if none), without repetition.

    `sizes` None stands for each group's own. Small sizes come first, then seed by seed. Units that
    cannot be, such as two tenths of one image, are not among them.
    """
    found: dict[Unit, None] = {}
    for name in names or GROUPS:
        usual = CURVE_SIZES if name == "sizes" else SIZES
        for variant in _named(name):
            for n in sizes or usual:
                if not VARIANTS[variant].problem_with(n):
                    found |= {Unit(n, seed, variant): None for seed in seeds}
    wanted = sorted(found, key=lambda unit: (unit.n, seeds.index(unit.seed)))
    ordered: dict[Unit, None] = {}
    for unit in wanted:
        before = unit.needs
        ordered |= ({} if before is None else {before: None}) | {unit: None}
    return list(ordered)


def left_out(names: Sequence[str], sizes: Sequence[int] | None) -> list[str]:
    """What was asked for by size and cannot be, with the reason."""
    return [
        f"{variant} with n={n}: {reason}"
        for variant in dict.fromkeys(v for name in names or GROUPS for v in _named(name))
        for n in sizes or ()
        if (reason := VARIANTS[variant].problem_with(n))
    ]


def _named(name: str) -> tuple[str, ...]:
    if name in GROUPS:
        return GROUPS[name]
    if name in VARIANTS:
        return (name,)
    known = (*GROUPS, *VARIANTS)
    numbers = "; several numbers are written 42,43" if name.isdigit() else ""
    raise InvalidInput(
        f"unknown part {name!r}{did_you_mean(name, known)}{numbers}; use a group, any of "
        f"{', '.join(GROUPS)}, or a variant, any of {', '.join(VARIANTS)}"
    )


def ended(out: Path) -> Iterator[Unit]:
    """Units under `out` that have ended, whoever ran them."""
    for summary in sorted((out / RUNS).glob("*/summary.json")):
        match = re.fullmatch(r"(.+)-n(\d+)-s(\d+)", summary.parent.name)
        if match is not None and match[1] in VARIANTS:
            yield Unit(int(match[2]), int(match[3]), match[1])
