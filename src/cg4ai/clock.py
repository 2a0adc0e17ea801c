"""The time of a run: one clock, the deadline, the current step, and the seconds of each step.

Nothing else in the package reads a clock, and what a run returns depends on it only where a time
limit cuts something, which is then on the list of what was cut.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeVar

from cg4ai.errors import TimeIsOver

__all__ = [
    "Deadline",
    "Review",
    "Stage",
    "now",
    "refuse_overtime",
    "review",
    "wall",
]

T = TypeVar("T")
OTHER = "other"  # what no step asked to have timed
LONG_S = 1.0  # what takes longer is said
EVERY_S = 5.0  # between two remarks on how far it is
PORTIONS = (0.001, 0.01, 0.04, 0.16, 1.0)  # of a measurement that has a limit, one by one


def now() -> float:
    """Seconds since some moment, the same for the whole process (`time.perf_counter`)."""
    return time.perf_counter()


def wall() -> float:
    """Seconds since 1970, the same for all processes (`time.time`)."""
    return time.time()


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of `now`; infinite for work without a limit."""

    ends: float = math.inf

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """So many seconds from now."""
        return cls(now() + seconds)

    def compute_seconds_left(self) -> float:
        """Seconds until then, 0 once it has passed."""
        return max(0.0, self.ends - now())

    @property
    def finite(self) -> bool:
        return math.isfinite(self.ends)

    @property
    def passed(self) -> bool:
        return self.compute_seconds_left() == 0.0

    def reserve(self, seconds: float) -> Deadline:
        """An earlier deadline, that leaves so many seconds for what comes after."""
        return self if math.isinf(self.ends) else Deadline(self.ends - seconds)


@dataclass
class Review:
    """A stretch of a run: until when, who is told, and what time did not allow.

    `what` it is about comes first in all that is said. `latest`: until when there is time for what
    nothing comes out without, where that is later.
    """

    deadline: Deadline = field(default_factory=Deadline)
    say: Callable[[str], None] = lambda text: None
    cut: list[str] = field(default_factory=list)
    what: str = "evaluating"
    latest: Deadline = Deadline(-math.inf)

    @contextmanager
    def activate(self) -> Iterator[Review]:
        """Make it the one that `review` gives, to programs and loops that it calls, too."""
        before = _review.set(self)
        try:
            yield self
        finally:
            _review.reset(before)

    def take_share(self, share: float) -> Review:
        """The same for so much of the time left, so that something is left for what follows."""
        deadline = Deadline.after(share * self.deadline.compute_seconds_left())
        return replace(self, deadline=deadline, latest=deadline)

    def begin_step(self, what: str, *, needed: float = 0.0) -> bool:
        """Whether there is time for this step, which takes about `needed` seconds."""
        if self.deadline.compute_seconds_left() <= needed:
            self.cut.append(what)
            return False
        self.say(f"{self.what}: {what}")
        return True

    def iterate_portions(self, what: str) -> Iterator[float]:
        """Shares of an effort to try in turn: all at once, or under a limit as far as it goes.

        The next one is tried while, at the pace of the last, it takes at most half of what is left.
        """
        if math.isinf(self.deadline.ends):
            yield 1.0
            return
        for share, larger in pairwise((*PORTIONS, math.inf)):
            started = now()
            yield share
            spent = now() - started
            if share < 1 and larger / share * spent > self.deadline.compute_seconds_left() / 2:
                self.cut.append(f"{what}, to {100 * share:g} % of its effort")
                return

    def run_step(self, what: str, step: Callable[[], T], *, needed: float = 0.0) -> T | None:
        """What the step comes to; None where time does not allow it, or ends it."""
        if not self.begin_step(what, needed=needed):
            return None
        try:
            return step()
        except TimeIsOver:
            self.cut.append(what)
            return None

    @contextmanager
    def stage(self, what: str, *, needed: bool = False) -> Iterator[Stage]:
        """A step, said if it takes longer than a second; `needed`: nothing comes out without it."""
        stage = Stage(self, what, needed=needed)
        stage.said = now()  # after a second it is said even where nobody asks whether to go on
        told = threading.Timer(LONG_S, stage.tell)
        told.daemon = True
        told.start()
        try:
            yield stage
        except TimeIsOver as error:
            error.add_note(f"it was {self.what}: {what}; allow more time, or ask for less")
            raise
        finally:
            told.cancel()


class Stage:
    """A step that is being made, and how far it is."""

    def __init__(self, review: Review, what: str, *, needed: bool = False) -> None:
        self.review, self.what, self.needed = review, what, needed
        later = review.latest.ends > review.deadline.ends
        self.deadline = review.latest if needed and later else review.deadline
        self.said = now() + LONG_S - EVERY_S  # the first remark comes sooner than the next

    def tell(self, how_far: str = "") -> None:
        self.review.say(f"{self.review.what}: {self.what}{how_far}")

    def is_in_time(self, done: int, of: int) -> bool:
        """Whether to go on; said now and then. Where time is over that is noted, or TimeIsOver."""
        if self.deadline.passed:
            if self.needed:
                raise TimeIsOver(f"the time limit is over, {done:,} of {of:,} done")
            cut = self.review.cut
            if not any(known.startswith(f"{self.what}, to ") for known in cut):
                cut.append(f"{self.what}, to {done} of {of}")
            return False
        if now() - self.said >= EVERY_S:
            self.said = now()
            self.tell(f", {done} of {of}")
        return True


_review: ContextVar[Review] = ContextVar("review")


def review() -> Review:
    """The stretch that the run is in; one without a limit, which tells nobody, if there is none."""
    return _review.get(None) or Review()


def refuse_overtime(what: str) -> None:
    """Raise TimeIsOver if the stretch that the run is in is over."""
    if review().deadline.passed:
        raise TimeIsOver(f"the time limit ended {what}")


class Stopwatch:
    """Runs from its making; each second belongs to the innermost step that is being timed."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._steps = [OTHER]
        self._since = now()

    @contextmanager
    def measure_step(self, step: str) -> Iterator[None]:
        """While entered, seconds are this step's, unless a step within takes them."""
        self._book()
        self._steps.append(step)
        try:
            yield
        finally:
            self._book()
            self._steps.pop()

    def take_lap(self) -> dict[str, float]:
        """The seconds of each step since the last lap; they add up to all that passed."""
        self._book()
        seconds, self._seconds = self._seconds, defaultdict(float)
        return seconds

    def _book(self) -> None:
        moment = now()
        self._seconds[self._steps[-1]] += moment - self._since
        self._since = moment


def __dir__() -> list[str]:
    return __all__
