"""When attacks on a mixture are not worth another round: they break as many images as ever."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cg4ai import Problem, Settings
from cg4ai.apps.protocol import TrainingOutcome, solve_plainly
from cg4ai.colgen import Callbacks, IterationRecord
from cg4ai.runs.folder import Run

ROUNDS_WITHOUT = 15


@dataclass
class FewerBroken:
    """Ends a run whose attacks have not found fewer wrong answers for so many rounds in a row.

    Members of a size that cannot withstand an attack would be trained for ever. Rounds in which
    nothing was attacked do not count.
    """

    patience: int = ROUNDS_WITHOUT
    _fewest: float = field(default=float("inf"), init=False)
    _without: int = field(default=0, init=False)

    def on_start(self, history: Sequence[IterationRecord]) -> bool:
        self._fewest, self._without = float("inf"), 0
        ended = False
        for record in history:
            ended = self.on_iteration(record)
        return ended

    def on_iteration(self, record: IterationRecord) -> bool:
        if record.added_rows:
            fewer = record.added_rows < self._fewest
            self._fewest = min(self._fewest, record.added_rows)
            self._without = 0 if fewer else self._without + 1
        return self._without >= self.patience


def solve_attacked(
    problem: Problem,
    settings: Settings,
    *,
    progress: Callable[[IterationRecord], None] | None,
    run: Run | None,
    callbacks: Callbacks | None = None,
) -> TrainingOutcome:
    """Train as usual, unless attacks get nowhere any more."""
    return solve_plainly(
        problem, settings, progress=progress, run=run, callbacks=(FewerBroken(), *(callbacks or ()))
    )
