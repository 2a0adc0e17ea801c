"""What digits experiments have left behind, read for tables and figures: spreads over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cg4ai.records import StopReason
from cg4ai.report.tables import csv_text, format_markdown
from cg4ai.runs import files
from experiments.digits.units import GROUPS, SEEDS, VARIANTS, Unit, ended, units

Summary = Mapping[str, Any]
Measure = Callable[[Summary], float | None]
SETTINGS = ("paper", "tuned")  # of baselines
NOT_RUN, NOT_APPLICABLE = "not run", "-"


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and sample standard deviation of `count` values out of `runs` runs.

    As text the number of runs stands behind, in brackets, and how many a time limit `stopped`.
    """

    mean: float
    deviation: float | None
    count: int
    runs: int
    stopped: int = 0

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """None where no run has the figure, e.g. columns until rows that were never met."""
        every = list(values)
        known = [float(value) for value in every if value is not None and np.isfinite(value)]
        if not known:
            return None
        deviation = float(np.std(known, ddof=1)) if len(known) > 1 else None
        return cls(float(np.mean(known)), deviation, len(known), len(every))

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        some = f"{self.count}" if self.count == self.runs else f"{self.count} of {self.runs}"
        limited = ", time limit" if self.stopped else ""
        if 0 < self.stopped < self.runs:
            limited += f" in {self.stopped}"
        return f"{self.mean:.2f}{spread} ({some}{limited})"


@dataclass(frozen=True)
class Table:
    """`name` is that of its CSV file; values of `rows` may be spreads."""

    name: str
    title: str
    note: str
    rows: list[dict[str, Any]]

    def markdown(self) -> str:
        titles = dict.fromkeys(title for row in self.rows for title in row)
        shown = [{title: _shown(row.get(title)) for title in titles} for row in self.rows]
        body = format_markdown(shown) if shown else "Nothing of this has ended.\n"
        return f"## {self.title}\n\n{self.note}\n\n{body}"

    def csv(self) -> str:
        """Spreads become three columns: mean, deviation and number of runs."""
        spreads = {t for row in self.rows for t, value in row.items() if isinstance(value, Spread)}
        flat = []
        for row in self.rows:
            line: dict[str, Any] = {}
            for title, value in row.items():
                line[title] = value.mean if isinstance(value, Spread) else value
                if title in spreads:
                    known = isinstance(value, Spread)
                    line[f"{title} deviation"] = value.deviation if known else None
                    line[f"{title} runs"] = value.count if known else 0
            flat.append(line)
        return csv_text(flat)


def _shown(value: Any) -> Any:
    """A value as tables have it; what does not apply is a dash, so that no cell is empty."""
    if isinstance(value, Spread):
        return str(value)
    return NOT_APPLICABLE if value is None else value


@dataclass(frozen=True)
class SavedUnits:
    """The summaries of all units that have ended."""

    summaries: Mapping[Unit, Summary]

    @classmethod
    def read(cls, out: Path) -> SavedUnits:
        return cls(
            {unit: files.read_json(unit.folder(out) / "summary.json") for unit in ended(out)}
        )

    def of(self, variant: str, n: int) -> list[Summary]:
        """All seeds of one variant, in the order of the seeds."""
        found = [unit for unit in self.summaries if (unit.variant, unit.n) == (variant, n)]
        return [self.summaries[unit] for unit in sorted(found)]

    def sizes(self, variants: Iterable[str]) -> list[int]:
        wanted = set(variants)
        return sorted({unit.n for unit in self.summaries if unit.variant in wanted})

    def spread(self, variant: str, n: int, measure: Measure) -> Spread | None:
        return Spread.of(measure(summary) for summary in self.of(variant, n))

    def cell(self, variant: str, n: int, measure: Measure) -> Spread | str:
        """The spread, or in words why there is none."""
        found = self.of(variant, n)
        if not found:
            return VARIANTS[variant].problem_with(n) or NOT_RUN
        spread = Spread.of(measure(summary) for summary in found)
        if spread is None:
            return NOT_APPLICABLE
        return replace(spread, stopped=sum(map(_stopped, found)))

    def beside(self, variant: str, n: int, measure: Measure, *, ours: str) -> Spread | str:
        """Over the seeds that `ours` has too, counting those of `ours` that `variant` lacks."""
        if not self.of(variant, n):
            return self.cell(variant, n, measure)
        seeds = sorted(u.seed for u in self.summaries if (u.variant, u.n) == (ours, n))
        found = (self.summaries.get(Unit(n, seed, variant)) for seed in seeds)
        spread = Spread.of(None if summary is None else measure(summary) for summary in found)
        return spread or NOT_RUN

    def base(self, n: int) -> Spread | None:
        """Accuracy of the base member: the same for every mixture with these images and rule."""
        accuracies = {
            unit.seed: per_cent("single_accuracy")(summary)
            for unit, summary in self.summaries.items()
            if unit.n == n and summary.get("rule") == "margin" and "single_accuracy" in summary
        }
        return Spread.of(accuracies.values())

    def missing(self) -> list[str]:
        """What the whole reproduction has and this has not, a line per variant."""
        lacking: dict[str, dict[int, list[int]]] = {}
        for unit in [unit for mode in GROUPS for unit in units((), seeds=SEEDS, mode=mode)]:
            if unit not in self.summaries:
                lacking.setdefault(unit.variant, {}).setdefault(unit.n, []).append(unit.seed)
        return [
            f"{variant}: "
            + "; ".join(
                f"n={n}, seeds {', '.join(map(str, sorted(seeds)))}"
                for n, seeds in sorted(of.items())
            )
            for variant, of in lacking.items()
        ]


def _stopped(summary: Summary) -> bool:
    return bool(summary.get("stop_reason") == StopReason.TIME_LIMIT.value)


def per_cent(key: str) -> Measure:
    def measure(summary: Summary) -> float | None:
        value = summary.get(key)
        return None if value is None else 100 * float(value)

    return measure


def figure(key: str) -> Measure:
    def measure(summary: Summary) -> float | None:
        value = summary.get(key)
        return None if value is None else float(value)

    return measure


def satisfied(summary: Summary) -> float | None:
    """Per cent of the required images that are answered as demanded; None if none is required."""
    rows = summary["rows"]
    return 100 * float(summary["rows_satisfied"]) / rows if rows else None


def compared(key: str, settings: str) -> Measure:
    """A figure of a baseline's summary, in per cent, for one choice of settings."""

    def measure(summary: Summary) -> float | None:
        for row in summary["comparison"]:
            if row["settings"] == settings and row[key] is not None:
                return 100 * float(row[key])
        return None

    return measure


accuracy = per_cent("test_accuracy")
