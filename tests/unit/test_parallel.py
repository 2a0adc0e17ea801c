"""Fan-out: order kept, errors named, jobs checked, threads as asked, and no backend named."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from cg4ai.errors import InvalidInput
from cg4ai.parallel import check_jobs, fan_out, iterate_as_completed, iterate_in_order
from raising import raises

ROOT = Path(__file__).parents[2]


def threads_here(item: int) -> int:
    return torch.get_num_threads()


def refuse_two(item: int) -> int:
    if item == 2:
        raise InvalidInput("two is refused")
    return item


def divide(item: int) -> float:
    return 1 / item


@pytest.mark.parametrize("jobs", [None, 1, 2])
def test_every_item_is_answered_in_its_order(jobs: int | None) -> None:
    expected = [1, 1, 2, 6, 24, 120, 720]
    assert fan_out(math.factorial, range(7), n_jobs=jobs) == expected
    assert list(iterate_in_order(math.factorial, range(7), n_jobs=jobs)) == expected
    assert sorted(iterate_as_completed(math.factorial, range(7), n_jobs=jobs)) == expected
    assert fan_out(math.factorial, [], n_jobs=jobs) == []
    assert list(iterate_as_completed(math.factorial, [], n_jobs=jobs)) == []


def test_whoever_stops_asking_abandons_the_rest() -> None:
    begun: list[int] = []
    answers = iterate_in_order(begun.append, range(100), n_jobs=1)
    assert len(list(itertools.islice(answers, 2))) == 2
    assert begun == [0, 1]


def test_an_error_says_in_which_item_it_was() -> None:
    with raises(InvalidInput, "invalid-input", "refused") as caught:
        fan_out(refuse_two, range(5), n_jobs=2)
    assert caught.value.__notes__ == ["in job 3"]
    with pytest.raises(ZeroDivisionError) as other:
        fan_out(divide, [1, 0], n_jobs=1, names=["the first", "the second"])
    assert other.value.__notes__ == ["in the second"]


def test_threads_are_those_asked_for_and_come_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert fan_out(threads_here, [0], n_jobs=1, threads=1) == [1]
        assert fan_out(threads_here, [0], n_jobs=1) == [2]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_numbers_of_jobs_are_checked() -> None:
    assert [check_jobs(jobs) for jobs in (None, 3, -1, np.int64(2))] == [None, 3, -1, 2]
    for wrong in (0, True, 1.5, "two"):
        with raises(InvalidInput, "range", repr(wrong)):
            check_jobs(wrong)
    with raises(InvalidInput, "range", "--jobs"):
        check_jobs(0, "--jobs")
    with raises(InvalidInput, "range", "n_jobs"):
        fan_out(math.factorial, [1], n_jobs=0)


def test_one_place_fans_out_and_it_names_no_backend() -> None:
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")]
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources}
    # a pool of one thread, behind which a server computes, fans nothing out
    pools = re.compile(r"\bParallel\(|PoolExecutor\((?!1\b)")
    users = {name for name, text in texts.items() if pools.search(text)}
    # REPETITA's networks each have a process of their own, so that each has its own peak of memory
    assert users - {"repetita.py"} == {"parallel.py"}
    assert not re.search(r"backend=|import (dask|ray)", texts["parallel.py"])
