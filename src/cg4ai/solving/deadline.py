"""When to be done: one object for whatever shares a limit of time, from training to evaluation."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


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
