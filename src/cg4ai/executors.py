"""Run independent jobs, one after the other or in threads, with results in the order of jobs.

Jobs carry their own seeds, so how many workers there are changes the time and not the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cg4ai.errors import InvalidInput

Job = TypeVar("Job")
Result = TypeVar("Result")


def map_jobs(
    function: Callable[[Job], Result], jobs: Iterable[Job], *, workers: int = 1
) -> list[Result]:
    """`[function(job) for job in jobs]`; the first job that raises (in job order) raises here."""
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InvalidInput(f"workers must be a whole number >= 1, got {workers!r}")
    listed = list(jobs)
    if workers == 1 or len(listed) < 2:
        return [function(job) for job in listed]
    with ThreadPoolExecutor(max_workers=min(workers, len(listed))) as pool:
        return list(pool.map(function, listed))
