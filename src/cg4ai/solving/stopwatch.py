"""Seconds by step, none counted twice and none lost: what records of time are made of."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

OTHER = "other"  # what no step asked to have timed


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
