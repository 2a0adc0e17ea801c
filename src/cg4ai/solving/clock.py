"""The time of a run: when to be done, and where its seconds went."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

OTHER = "other"  # what no step asked to have timed


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of `time.perf_counter`; infinite for work without a limit."""

    ends: float = math.inf

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """So many seconds from now."""
        return cls(time.perf_counter() + seconds)

    def left(self) -> float:
        """Seconds until then, 0 once it has passed."""
        return max(0.0, self.ends - time.perf_counter())

    @property
    def passed(self) -> bool:
        return self.left() == 0.0

    def reserving(self, seconds: float) -> Deadline:
        """An earlier deadline, that leaves so many seconds for what comes after."""
        return self if math.isinf(self.ends) else Deadline(self.ends - seconds)


class Stopwatch:
    """Runs from its making; each second belongs to the innermost step that is being timed."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._steps = [OTHER]
        self._since = time.perf_counter()

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """While entered, seconds are this step's, unless a step within takes them."""
        self._book()
        self._steps.append(step)
        try:
            yield
        finally:
            self._book()
            self._steps.pop()

    def lap(self) -> dict[str, float]:
        """The seconds of each step since the last lap; they add up to all that passed."""
        self._book()
        seconds, self._seconds = self._seconds, defaultdict(float)
        return seconds

    def _book(self) -> None:
        now = time.perf_counter()
        self._seconds[self._steps[-1]] += now - self._since
        self._since = now
