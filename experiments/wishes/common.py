"""What the scripts of wishes share: their form, versions, and counts of broken rules."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec

import numpy as np
import typer

from cg4ai.data import Array, IntArray
from cg4ai.errors import MissingExtra
from experiments.command import KEPT, NOT_KEPT, command

ROUNDING = 1e-9  # of the largest prediction: less is no violation


@dataclass(frozen=True)
class Wish:
    """A public request: to which library, where, for what, and the call that fulfils it here.

    `state` says what has become of it there, as far as known: open, or mended since a version.
    """

    library: str  # as it writes its name
    package: str  # as it is imported
    number: int
    link: str
    asked: str
    call: str
    state: str = "open"

    @property
    def name(self) -> str:
        return f"{self.library} #{self.number}"


@dataclass(frozen=True)
class Outcome:
    """What was seen: `there` in words, whether that fails; `here` the figure, whether it works."""

    there: str
    fails: bool
    here: str
    works: bool

    @property
    def fulfilled(self) -> bool:
        return self.works


Run = Callable[[], Outcome]


def check_installed(*packages: str) -> None:
    """One line that says which extra brings a package that is not installed."""
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtra(
                f"this needs the package {package}: pip install 'cg4ai[wishes]' "
                "(or the library alone)"
            )


def installed_version(package: str) -> str:
    """Its version, whichever distribution it comes from (xgboost-cpu, interpret-core)."""
    return version(packages_distributions()[package][0])


def try_wish(wish: Wish, run: Run) -> Outcome:
    """The outcome; a library that is not installed is an error of one line."""
    check_installed(wish.package)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run()


def describe(wish: Wish, outcome: Outcome) -> dict[str, str]:
    """A row of the table."""
    return {
        "wish": f"[{wish.name}]({wish.link})",
        "version": installed_version(wish.package),
        "state there": wish.state,
        "asked": wish.asked,
        "there": outcome.there if outcome.fails else f"does it: {outcome.there}",
        "here": outcome.here,
        "fulfilled": "yes" if outcome.fulfilled else "no",
    }


def main(wish: Wish, run: Run, arguments: Sequence[str] | None = None) -> int:
    """One script: prints what was seen; returns 0 if the wish is fulfilled, else 3."""

    def work() -> None:
        outcome = try_wish(wish, run)
        row = describe(wish, outcome)
        print(f"{wish.name}, {row['version']}: {wish.asked}")
        print(f"  {wish.link} ({wish.state})")
        print(f"  there: {row['there']}")
        print(f"  here: {row['here']}")
        print(f"  fulfilled: {row['fulfilled']}")
        raise typer.Exit(KEPT if outcome.fulfilled else NOT_KEPT)

    work.__doc__ = wish.asked
    return command(work, f"python -m {run.__module__}", "", arguments)


def draw_prices(random: np.random.Generator, rows: int) -> tuple[Array, Array]:
    """Three features in [0, 1] and a price that rises with the first two, and its noise, too."""
    x = random.uniform(0, 1, (rows, 3))
    mean = 2 * np.sqrt(x[:, 0]) + x[:, 1] ** 2 + np.sin(6 * x[:, 2])
    return x, mean + (0.2 + 0.5 * x[:, 0]) * random.normal(size=rows)


def draw_missing(
    random: np.random.Generator, rows: int, missing: float = 0.2
) -> tuple[Array, Array]:
    """Six features, some values missing, and classes whose chances rise with all but one."""
    x = random.normal(size=(rows, 6))
    score = x[:, 1:].sum(axis=1) + 2 * np.sin(3 * x[:, 0]) + np.sin(2 * x[:, 1]) * x[:, 0]
    y = (score + random.logistic(size=rows) > 0).astype(int)
    x[random.random(x.shape) < missing] = np.nan
    return x, y


def raised(random: np.random.Generator, x: Array, columns: Sequence[int]) -> Array:
    """The same inputs in [0, 1], but for these columns, which are larger."""
    more = x.copy()
    more[:, columns] += random.uniform(0, 1, (len(x), len(columns))) * (1 - x[:, columns])
    return more


def falls(before: Array, after: Array) -> int:
    """How many pairs of predictions fall by more than rounding, although they must not."""
    size = max(float(np.abs(before).max()), float(np.abs(after).max()))
    return int((np.asarray(after) < np.asarray(before) - ROUNDING * size).sum())


def crossings(quantiles: Array) -> int:
    """How many rows have quantiles out of order, by more than rounding."""
    limit = ROUNDING * float(np.abs(quantiles).max())
    return int((np.diff(quantiles, axis=1) < -limit).any(axis=1).sum())


def gap_of(chosen: Array, group: IntArray) -> float:
    """The difference of the shares of two groups, 0 and 1, that are chosen."""
    return float(abs(chosen[group == 1].mean() - chosen[group == 0].mean()))


def pinball(y: Array, quantiles: Array, levels: Sequence[float]) -> float:
    """The mean pinball loss of quantiles (n, k) at k levels."""
    left = np.asarray(y)[:, None] - quantiles
    return float(np.maximum(left * np.asarray(levels), left * (np.asarray(levels) - 1)).mean())
