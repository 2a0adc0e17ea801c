"""How hard pricers look for an estimate: briefly, from many starts, by their reduced cost."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_STEPS = 10  # of a training, however little of an ordinary one is asked for


@dataclass(frozen=True, slots=True)
class Probe:
    """How hard to look: from so many `restarts`, by this `share` of an ordinary call's work.

    Work is counted in steps and fits, not in seconds, so that the same run looks equally hard on
    every machine.
    """

    restarts: int
    share: float

    def steps(self, usual: int, *, models: int) -> int:
        """Of each restart, where an ordinary call trains `models` for the `usual` steps."""
        wanted = round(self.share * usual * models / self.restarts)
        return min(usual, max(LEAST_STEPS, wanted))
