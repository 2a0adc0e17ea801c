"""What `verbose` prints while an estimator trains: a line for each iteration, and for steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cg4ai import clock
from cg4ai.colgen.pricing.gradient.training import step_listener
from cg4ai.records import IterationRecord

Listener = Callable[[IterationRecord], None]
HEADER = (
    f"{'iteration':>9} {'objective':>11} {'slack':>9} {'columns':>8} {'rows':>7} {'seconds':>8}"
)
EVERY_S = 5.0  # between two remarks on steps


@contextmanager
def watch_progress(verbose: int, progress: Listener | None) -> Iterator[Listener | None]:
    """What to call with each record: prints if `verbose`, and calls `progress` if there is one.

    1 prints a line for each iteration, 2 also how far the training of members is.
    """
    if not verbose:
        yield progress
        return
    print(HEADER, flush=True)

    def tell(record: IterationRecord) -> None:
        print(_line(record), flush=True)
        if progress is not None:
            progress(record)

    token = step_listener.set(_Steps().tell) if verbose > 1 else None
    try:
        yield tell
    finally:
        if token is not None:
            step_listener.reset(token)


def _line(record: IterationRecord) -> str:
    line = (
        f"{record.iteration:>9} {record.objective:>11.5g} {record.slack:>9.3g} "
        f"{record.columns:>8} {record.rows:>7} {record.total_s:>8.1f}"
    )
    return f"{line}  {record.note}" if record.note else line


class _Steps:
    """Says now and then how many steps are done."""

    def __init__(self) -> None:
        self.said = clock.now()

    def tell(self, done: int, steps: int) -> None:
        now = clock.now()
        if now - self.said >= EVERY_S:
            self.said = now
            print(f"          training: step {done} of {steps}", flush=True)
