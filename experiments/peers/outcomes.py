"""What one training gave, measured alike for every method, and tables of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cg4ai.data import Array
from cg4ai.report import format_markdown

OURS = "ours"
MISSING = "not installed: pip install 'cg4ai[peers]'"
TOLERANCE = 1e-9  # a rule counts as broken beyond this
BROKEN = ("inequality", "equality", "falling", "outside", "crossings")
HIGHER = ("r2", "r2_free", "accuracy", "accuracy_free", "score")  # the more the better
REPEATS = 20  # of a prediction that is timed; the quickest counts


@dataclass(frozen=True)
class Outcome:
    """Figures of one method with one seed, or, without figures, why there are none."""

    task: str
    method: str
    seed: int = 0
    figures: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    commit: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.task, self.method, self.seed

    @property
    def kept(self) -> bool:
        """Whether ours broke no rule; other methods may."""
        broken = max(self.figures.get(name, 0.0) for name in BROKEN)
        return not self.method.startswith(OURS) or broken <= TOLERANCE

    def record(self) -> dict[str, Any]:
        return asdict(self)


class Clock:
    """Processor seconds of a block of code; wall-clock time depends on what else is running."""

    def __enter__(self) -> Clock:
        self._start = time.process_time()
        self.seconds = 0.0
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = time.process_time() - self._start


def milliseconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """The quickest of several calls, in processor milliseconds."""
    taken = []
    for _ in range(repeats):
        with Clock() as clock:
            work()
        taken.append(clock.seconds)
    return 1e3 * min(taken)


def chunks(points: Array, size: int = 10_000) -> list[Tensor]:
    """Many inputs as tensors of few."""
    return [torch.as_tensor(points[start : start + size]) for start in range(0, len(points), size)]


def installed(package: str) -> bool:
    return find_spec(package) is not None


def table(
    outcomes: Sequence[Outcome], task: str, columns: Mapping[str, str], methods: Sequence[str] = ()
) -> str:
    """Markdown: one line per method, each figure the mean over seeds and, if it differs, the worst.

    `columns` maps figures to titles; what is not there stays empty. Those of `methods` that were
    not run are listed as such.
    """
    mine = [one for one in outcomes if one.task == task]
    if mine:  # columns of other tasks of the study
        shown = {key for one in mine for key in one.figures}
        columns = {key: title for key, title in columns.items() if key in shown}
    rows = []
    for method in dict.fromkeys([*methods, *(one.method for one in mine)]):
        runs = [one for one in mine if one.method == method]
        measured = [one for one in runs if one.figures]
        row: dict[str, Any] = {"method": method, "seeds": len(measured) or "-"}
        for key, title in columns.items():
            values = [one.figures[key] for one in measured if key in one.figures]
            row[title] = spread(values, higher=key in HIGHER)
        notes = dict.fromkeys(one.note for one in runs if one.note)
        row["remark"] = "; ".join(notes) if runs else "not run"
        rows.append(row)
    return format_markdown(rows)


def spread(values: Sequence[float], *, higher: bool = False) -> str:
    """`mean (worst)`, or the value if all are equal to three digits, four where `higher` is better.

    Whole numbers, such as counts, are shown whole.
    """
    if not values:
        return "-"
    worst = float(np.min(values) if higher else np.max(values))
    mean, shown = (_shown(value, 4 if higher else 3) for value in (float(np.mean(values)), worst))
    return mean if mean == shown else f"{mean} ({shown})"


def _shown(value: float, digits: int) -> str:
    return f"{value:,.0f}" if 1000 <= value < 1e9 else f"{value:.{digits}g}"
