"""Jobs in any number of threads: same results, same order, same errors."""

from __future__ import annotations

import time

import pytest

from cg4ai.errors import InvalidInput
from cg4ai.executors import map_jobs


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_job_order(workers: int) -> None:
    def slow_square(job: int) -> int:
        time.sleep(0.002 * (5 - job))
        return job * job

    assert map_jobs(slow_square, range(5), workers=workers) == [0, 1, 4, 9, 16]
    assert map_jobs(slow_square, [], workers=workers) == []


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_in_a_job_reaches_the_caller(workers: int) -> None:
    with pytest.raises(ZeroDivisionError):
        map_jobs(lambda job: 1 // job, [1, 0, 2], workers=workers)


@pytest.mark.parametrize("workers", [0, -1, True, 1.5])
def test_wrong_worker_counts_are_refused(workers: int) -> None:
    with pytest.raises(InvalidInput, match="workers"):
        map_jobs(str, [1], workers=workers)
